//! Elements of at most eight bits: how often each code occurs says everything of them. Of very many
//! integers only a part is counted, for the histogram.
//!
//! Bytes are counted, whatever is packed in them, and taken apart when all of them are known.

use super::numbers::Numbers;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// How often each byte occurs, and each code among those that fill no byte.
#[derive(Debug, Clone)]
pub(super) struct Codes {
    bytes: Box<[u64; 256]>,
    /// Codes that were taken out of their bytes already.
    codes: Box<[u64; 256]>,
}

/// So many bytes are counted in pairs: the table of pairs takes longer than fewer bytes.
const LEAST_PAIRS: usize = 1 << 20;

/// Counts of bytes, in several tables side by side: a count in memory that was just written has to
/// be waited for.
#[derive(Debug)]
pub(super) struct Tables([[u32; 256]; 4]);

impl Default for Tables {
    fn default() -> Self {
        Self([[0; 256]; 4])
    }
}

impl Tables {
    /// Counts `bytes`, fewer than 2^32 in all.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let [a, b, c, d] = &mut self.0;
        let (words, rest) = bytes.as_chunks::<4>();
        for [w, x, y, z] in words {
            one_more(a, *w);
            one_more(b, *x);
            one_more(c, *y);
            one_more(d, *z);
        }
        rest.iter().for_each(|byte| one_more(a, *byte));
    }
}

/// Counts of which few are not zero, as those of a tensor with few elements: a model may have
/// millions of these.
#[derive(Debug, Clone)]
pub(super) struct FewCodes {
    bytes: Box<[(u8, u64)]>,
    codes: Box<[(u8, u64)]>,
}

impl FewCodes {
    /// The counts as tables.
    pub(super) fn to_codes(&self) -> Codes {
        let mut codes = Codes::new();
        let tables = [(&mut codes.bytes, &self.bytes), (&mut codes.codes, &self.codes)];
        for (table, few) in tables {
            for (code, times) in few {
                if let Some(count) = table.get_mut(usize::from(*code)) {
                    *count += times;
                }
            }
        }
        codes
    }
}

impl Codes {
    pub(super) fn new() -> Self {
        Self { bytes: Box::new([0; 256]), codes: Box::new([0; 256]) }
    }

    /// Those that are not zero.
    pub(super) fn few(&self) -> FewCodes {
        let few = |table: &[u64; 256]| {
            let counts = (0..=u8::MAX).zip(table.iter().copied());
            counts.filter(|(_, times)| *times > 0).collect()
        };
        FewCodes { bytes: few(&self.bytes), codes: few(&self.codes) }
    }

    /// Counts the elements of `piece`.
    pub(super) fn add(&mut self, piece: &Tensor) -> Result<()> {
        let bits = bits(piece.dtype())?;
        let bytes = piece.as_bytes().unwrap_or_default();
        if !matches!(bits, 2 | 4 | 8) {
            return self.add_codes(piece);
        }
        // The bits behind the last element mean nothing, so the last byte is taken apart.
        let whole = piece.element_count() * usize::from(bits) / 8;
        let (full, rest) = bytes.split_at(whole.min(bytes.len()));
        self.add_bytes(full);
        let per_byte = 8 / usize::from(bits);
        let left = piece.element_count() % per_byte;
        for byte in rest.iter().take(1) {
            codes_of(*byte, bits).take(left).for_each(|code| self.add_code(code, 1));
        }
        Ok(())
    }

    /// Counts bytes.
    fn add_bytes(&mut self, bytes: &[u8]) {
        if bytes.len() < LEAST_PAIRS {
            let mut tables = Tables::default();
            tables.add(bytes);
            return self.add_tables(&tables);
        }
        // The counts of a part stay below 2^32.
        bytes.chunks(1 << 30).for_each(|part| self.add_pairs(part));
    }

    /// Adds the bytes that `tables` counted.
    pub(super) fn add_tables(&mut self, tables: &Tables) {
        for table in &tables.0 {
            self.bytes.iter_mut().zip(table).for_each(|(to, more)| *to += u64::from(*more));
        }
    }

    /// Counts pairs of bytes: a count in memory is the slowest step, and there are half as many.
    fn add_pairs(&mut self, bytes: &[u8]) {
        let mut counts = Box::new([0_u32; 1 << 16]);
        let (pairs, odd) = bytes.as_chunks::<2>();
        for pair in pairs {
            if let Some(count) = counts.get_mut(usize::from(u16::from_le_bytes(*pair))) {
                *count += 1;
            }
        }
        let (rows, _) = counts.as_chunks::<256>();
        for (row, second) in rows.iter().zip(0..=u8::MAX) {
            let sum = row.iter().map(|count| u64::from(*count)).sum();
            self.add_byte(second, sum);
            self.bytes.iter_mut().zip(row).for_each(|(to, more)| *to += u64::from(*more));
        }
        odd.iter().for_each(|byte| self.add_byte(*byte, 1));
    }

    fn add_byte(&mut self, byte: u8, times: u64) {
        if let Some(count) = self.bytes.get_mut(usize::from(byte)) {
            *count += times;
        }
    }

    /// Counts elements that share bytes with others.
    fn add_codes(&mut self, piece: &Tensor) -> Result<()> {
        piece.unpack()?.into_iter().for_each(|code| self.add_code(code, 1));
        Ok(())
    }

    fn add_code(&mut self, code: u8, times: u64) {
        if let Some(count) = self.codes.get_mut(usize::from(code)) {
            *count += times;
        }
    }

    /// Adds the counts of other elements of the same type.
    pub(super) fn merge(&mut self, other: &Self) {
        let add = |to: &mut [u64], more: &[u64]| {
            to.iter_mut().zip(more).for_each(|(to, more)| *to += more);
        };
        add(&mut *self.bytes, &*other.bytes);
        add(&mut *self.codes, &*other.codes);
    }

    /// What is known of the elements, which have this type.
    pub(super) fn finish(mut self, dtype: DataType) -> Result<Numbers> {
        let bits = bits(dtype)?;
        let bytes = std::mem::replace(&mut self.bytes, Box::new([0; 256]));
        for (byte, times) in (0..=u8::MAX).zip(bytes.iter()) {
            codes_of(byte, bits).for_each(|code| self.add_code(code, *times));
        }
        let mut numbers = Numbers::default();
        for (number, times) in values(dtype)?.into_iter().zip(self.codes.iter()) {
            numbers.add(number, *times);
        }
        Ok(numbers)
    }
}

/// The elements of `piece` as floats of 64 bits.
pub(super) fn wide(piece: &Tensor) -> Result<Vec<f64>> {
    let values = values(piece.dtype())?;
    let value = |code: &u8| values.get(usize::from(*code)).copied().unwrap_or(f64::NAN);
    if bits(piece.dtype())? == 8 {
        return Ok(piece.as_bytes().unwrap_or_default().iter().map(value).collect());
    }
    Ok(piece.unpack()?.iter().map(value).collect())
}

#[inline(always)]
fn one_more(table: &mut [u32; 256], byte: u8) {
    if let Some(count) = table.get_mut(usize::from(byte)) {
        *count += 1;
    }
}

/// The codes in `byte`, of elements of two, four or eight bits, the lowest first.
fn codes_of(byte: u8, bits: u8) -> impl Iterator<Item = u8> {
    let mask = u8::MAX >> 8_u8.saturating_sub(bits);
    (0..8_u32).step_by(usize::from(bits.max(1))).map(move |shift| (byte >> shift) & mask)
}

/// Whether elements of this type are integers of four or eight bits: to add these up is faster than
/// to count their codes.
pub(super) fn are_integers(dtype: DataType) -> bool {
    matches!(dtype, DataType::Int8 | DataType::Uint8 | DataType::Int4 | DataType::Uint4)
}

pub(super) fn bits(dtype: DataType) -> Result<u8> {
    let bits = dtype.bit_width().filter(|bits| *bits <= 8);
    bits.ok_or_else(|| Error::internal(format!("{dtype} has more than eight bits")))
}

/// The number that each code of `dtype` stands for, in the order of the codes.
fn values(dtype: DataType) -> Result<Vec<f64>> {
    let bits = bits(dtype)?;
    let codes: Vec<u8> = (0..=u8::MAX).take(1 << bits).collect();
    let count = 1_i64 << bits;
    let signed = |code: u8| {
        let unused = 8 - u32::from(bits);
        f64::from((code << unused).cast_signed() >> unused)
    };
    Ok(match dtype {
        DataType::Bool => codes.into_iter().map(|code| f64::from(u8::from(code > 0))).collect(),
        DataType::Uint8 | DataType::Uint4 | DataType::Uint2 => {
            codes.into_iter().map(f64::from).collect()
        }
        DataType::Int8 | DataType::Int4 | DataType::Int2 => codes.into_iter().map(signed).collect(),
        _ => {
            let tensor = match bits {
                8 => Tensor::new(dtype, [count], codes.into())?,
                _ => Tensor::pack(dtype, [count], &codes)?,
            };
            tensor.to_f32()?.iter().map(|number| f64::from(*number)).collect()
        }
    })
}
