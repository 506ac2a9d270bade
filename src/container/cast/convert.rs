//! Conversion between FLOAT, FLOAT16 and BFLOAT16, with the same bits as numpy and ml_dtypes.
//!
//! Every value is converted through FLOAT, which has all values of the other two. Narrowing rounds
//! to the nearest, ties to even; numbers beyond the largest value become infinite; subnormals are
//! kept. A NaN stays a NaN with its sign; its payload is not specified (numpy's differs between
//! processors).

use half::{bf16, f16};

use crate::buffer::Alignment;
use crate::buffer::{Buffer, BufferMut};
use crate::buffers::in_memory;
use crate::container::cast::overflow::Overflow;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::tensor::initializer::Initializer;
use crate::tensor::rounding::{to_bf16, to_f16};
use crate::tensor::source::{PREFERRED_READ, WeightSource};
use crate::util::cancel;

/// How many elements are converted at a time.
const CHUNK: usize = 64 << 10;

/// One of the types that convert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Float {
    F32,
    F16,
    Bf16,
}

impl Float {
    pub(super) fn of(dtype: DataType) -> Option<Self> {
        match dtype {
            DataType::Float => Some(Self::F32),
            DataType::Float16 => Some(Self::F16),
            DataType::Bfloat16 => Some(Self::Bf16),
            _ => None,
        }
    }

    pub(super) fn dtype(self) -> DataType {
        match self {
            Self::F32 => DataType::Float,
            Self::F16 => DataType::Float16,
            Self::Bf16 => DataType::Bfloat16,
        }
    }

    /// The length of an element in bytes.
    fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// An initializer that is converted whenever it is read; no converted bytes are kept.
pub(super) struct Converted {
    source: Initializer,
    from: Float,
    to: Float,
    len: u64,
    overflow: Overflow,
}

impl Converted {
    /// `source`, whose type is `from`, as `to`. Numbers that become infinite are noted in
    /// `overflow`.
    pub(super) fn initializer(
        source: Initializer,
        from: Float,
        to: Float,
        overflow: Overflow,
    ) -> Result<Initializer> {
        let len = to.dtype().byte_len(source.dims())?;
        Initializer::from_source(Self { source, from, to, len, overflow })
    }

    /// How many elements are read at a time: as many as a slow source asks for.
    fn elements_at_once(&self) -> usize {
        match self.source.preferred_read() {
            best if best > PREFERRED_READ => (best / self.from.width()).max(CHUNK),
            _ => CHUNK,
        }
    }

    fn convert(&self, input: &[u8], output: &mut [u8]) {
        convert(self.from, self.to, input, output);
        if has_new_infinities(self.from, self.to, input, output) {
            self.overflow.note();
        }
    }
}

impl WeightSource for Converted {
    fn dtype(&self) -> DataType {
        self.to.dtype()
    }

    fn dims(&self) -> &[i64] {
        self.source.dims()
    }

    fn byte_len(&self) -> u64 {
        self.len
    }

    /// Lazy where the source is, so that its elements are produced once and not for each piece.
    fn is_lazy(&self) -> bool {
        self.source.is_lazy()
    }

    /// Slow where the source is, so that it is read ahead.
    fn preferred_read(&self) -> usize {
        match self.source.preferred_read() {
            best if best > PREFERRED_READ => {
                self.elements_at_once().saturating_mul(self.to.width()).max(PREFERRED_READ + 1)
            }
            _ => PREFERRED_READ,
        }
    }

    fn to_buffer(&self) -> Result<Buffer> {
        let len = in_memory(self.len)?;
        let mut out = BufferMut::zeroed(len, Alignment::CACHE_LINE)?;
        match self.source.is_lazy() {
            true => self.convert(&self.source.to_buffer()?, &mut out),
            false => self.read_at(0, &mut out)?,
        }
        Ok(out.freeze())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let (from, to) = (self.from.width(), self.to.width());
        let start = in_memory(offset)?;
        // A read may begin and end within an element.
        let (mut first, mut skip) = (start / to, start % to);
        let (mut input, mut output, mut out) = (Vec::new(), Vec::new(), out);
        while !out.is_empty() {
            cancel::check()?;
            let count = (skip + out.len()).div_ceil(to).min(self.elements_at_once());
            input.resize(count * from, 0);
            output.resize(count * to, 0);
            self.source.read_at(first as u64 * from as u64, &mut input)?;
            self.convert(&input, &mut output);
            let part = output.get(skip..).ok_or_else(|| Error::internal("no element converted"))?;
            let (now, later) = out.split_at_mut(part.len().min(out.len()));
            now.iter_mut().zip(part).for_each(|(out, byte)| *out = *byte);
            (first, skip, out) = (first + count, 0, later);
        }
        Ok(())
    }
}

/// Converts the little-endian elements of `input`; `output` has as many.
fn convert(from: Float, to: Float, input: &[u8], output: &mut [u8]) {
    use Float::{Bf16, F16, F32};
    match (from, to) {
        (F32, F16) => each(input, output, |x| to_f16(f32::from_le_bytes(x)).to_le_bytes()),
        (F32, Bf16) => each(input, output, |x| to_bf16(f32::from_le_bytes(x)).to_le_bytes()),
        (F16, F32) => each(input, output, |x| f16::from_le_bytes(x).to_f32().to_le_bytes()),
        (Bf16, F32) => each(input, output, |x| bf16::from_le_bytes(x).to_f32().to_le_bytes()),
        (F16, Bf16) => {
            each(input, output, |x| to_bf16(f16::from_le_bytes(x).to_f32()).to_le_bytes());
        }
        (Bf16, F16) => {
            each(input, output, |x| to_f16(bf16::from_le_bytes(x).to_f32()).to_le_bytes());
        }
        (F32, F32) | (F16, F16) | (Bf16, Bf16) => output.copy_from_slice(input),
    }
}

fn each<const N: usize, const M: usize>(
    input: &[u8],
    output: &mut [u8],
    convert: impl Fn([u8; N]) -> [u8; M],
) {
    let (elements, _) = input.as_chunks::<N>();
    let (converted, _) = output.as_chunks_mut::<M>();
    converted.iter_mut().zip(elements).for_each(|(out, x)| *out = convert(*x));
}

/// Whether a finite number of `input` is infinite as `to`.
pub(super) fn becomes_infinite(from: Float, to: Float, input: &[u8]) -> bool {
    input.chunks(CHUNK * from.width()).any(|input| {
        let mut output = vec![0; input.len() / from.width() * to.width()];
        convert(from, to, input, &mut output);
        has_new_infinities(from, to, input, &output)
    })
}

/// Whether an element of `output` is infinite that is finite in `input`.
fn has_new_infinities(from: Float, to: Float, input: &[u8], output: &[u8]) -> bool {
    use Float::{Bf16, F16, F32};
    let long = |x: [u8; 4]| u32::from_le_bytes(x) << 1 == 0xff00_0000;
    let half = |x: [u8; 2]| u16::from_le_bytes(x) << 1 == 0xf800;
    let brain = |x: [u8; 2]| u16::from_le_bytes(x) << 1 == 0xff00;
    match (from, to) {
        (F32, F16) => any(input, output, |x, y| half(y) & !long(x)),
        (F32, Bf16) => any(input, output, |x, y| brain(y) & !long(x)),
        (Bf16, F16) => any(input, output, |x, y| half(y) & !brain(x)),
        // The range of the new type has that of the old one.
        _ => false,
    }
}

/// Whether one pair of elements `is` so. All are looked at, in vectors.
fn any<const N: usize, const M: usize>(
    input: &[u8],
    output: &[u8],
    is: impl Fn([u8; N], [u8; M]) -> bool,
) -> bool {
    let (elements, _) = input.as_chunks::<N>();
    let (converted, _) = output.as_chunks::<M>();
    elements.iter().zip(converted).fold(false, |any, (x, y)| any | is(*x, *y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    fn converted(from: Float, to: Float, bytes: Vec<u8>) -> Initializer {
        let count = i64::try_from(bytes.len() / from.width()).unwrap();
        let tensor = Tensor::new(from.dtype(), [count], Buffer::from(bytes)).unwrap();
        Converted::initializer(tensor.into(), from, to, Overflow::default()).unwrap()
    }

    #[test]
    fn values_round_to_the_nearest_even_one() {
        // The value, and its code as FLOAT16 and as BFLOAT16.
        let cases = [
            (0.0_f32, 0x0000_u16, 0x0000_u16),
            (-0.0, 0x8000, 0x8000),
            (1.0, 0x3c00, 0x3f80),
            // Halfway between two codes: to the even one, down and up.
            (1.0 + 1.0 / 2048.0, 0x3c00, 0x3f80),
            (1.0 + 3.0 / 2048.0, 0x3c02, 0x3f80),
            (1.0 + 1.0 / 256.0, 0x3c04, 0x3f80),
            (1.0 + 3.0 / 256.0, 0x3c0c, 0x3f82),
            // The largest that does not overflow, and the first that does.
            (65_519.996, 0x7bff, 0x4780),
            (65_520.0, 0x7c00, 0x4780),
            (f32::MAX, 0x7c00, 0x7f80),
            (f32::NEG_INFINITY, 0xfc00, 0xff80),
            // Subnormals: the least of FLOAT16, half of it (a tie to zero), and a little more.
            (5.960_464_5e-8, 0x0001, 0x3380),
            (2.980_232_2e-8, 0x0000, 0x3300),
            (2.980_232_6e-8, 0x0001, 0x3300),
            (f32::from_bits(0x0000_8000), 0x0000, 0x0000),
            (f32::from_bits(0x0000_8001), 0x0000, 0x0001),
        ];
        for (value, half, brain) in cases {
            for (to, code) in [(Float::F16, half), (Float::Bf16, brain)] {
                let bytes = converted(Float::F32, to, value.to_le_bytes().into()).to_buffer();
                assert_eq!(*bytes.unwrap(), code.to_le_bytes(), "{value:e} {to:?}");
            }
        }
    }

    #[test]
    fn only_finite_numbers_that_become_infinite_are_noted() {
        use Float::{Bf16, F16, F32};
        let infinity = f32::INFINITY;
        for (from, to, value, expected) in [
            (F32, F16, 65_519.0, false),
            (F32, F16, 65_520.0, true),
            (F32, F16, -1e38, true),
            (F32, F16, infinity, false),
            (F32, F16, f32::NAN, false),
            (F32, Bf16, 1e38, false),
            (F32, Bf16, f32::MIN, true),
            (F32, Bf16, -infinity, false),
            (Bf16, F16, 1e30, true),
            (Bf16, F16, infinity, false),
            (F16, Bf16, 65_504.0, false),
            (F16, F32, infinity, false),
        ] {
            let count = i64::try_from(2 * CHUNK + 2).unwrap();
            let mut bytes = vec![0; 2 * (CHUNK + 1) * from.width()];
            let element = match from {
                F32 => value.to_le_bytes().to_vec(),
                F16 => f16::from_f32(value).to_le_bytes().to_vec(),
                Bf16 => bf16::from_f32(value).to_le_bytes().to_vec(),
            };
            let at = (CHUNK + 7) * from.width();
            bytes[at..at + element.len()].copy_from_slice(&element);
            let overflow = Overflow::default();
            let tensor = Tensor::new(from.dtype(), [count], bytes.into()).unwrap();
            let weight = Converted::initializer(tensor.into(), from, to, overflow.clone()).unwrap();
            assert!(!overflow.is_noted(), "before it is read");
            weight.to_buffer().unwrap();
            assert_eq!(overflow.is_noted(), expected, "{from:?} {to:?} {value}");
        }
    }

    #[test]
    fn every_code_comes_back_and_every_nan_stays_one() {
        for narrow in [Float::F16, Float::Bf16] {
            let codes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let wide = converted(narrow, Float::F32, codes.clone()).to_buffer().unwrap();
            let back = converted(Float::F32, narrow, wide.to_vec()).to_buffer().unwrap();
            let nan = |code: [u8; 2]| match narrow {
                Float::F16 => f16::from_le_bytes(code).is_nan(),
                _ => bf16::from_le_bytes(code).is_nan(),
            };
            for (code, back) in codes.as_chunks::<2>().0.iter().zip(back.as_chunks::<2>().0) {
                let both_nan = nan(*code) && nan(*back) && (code[1] ^ back[1]) & 0x80 == 0;
                assert!(code == back || both_nan, "{narrow:?} {code:?} {back:?}");
            }
        }
    }

    #[test]
    fn any_range_reads_what_the_whole_has_there() {
        use Float::{Bf16, F16, F32};
        let count = 3 * CHUNK + 5;
        for (from, to) in
            [(F32, F16), (F16, F32), (Bf16, F16), (F32, Bf16), (Bf16, F32), (F16, Bf16)]
        {
            let bytes =
                (0..count * from.width()).map(|i| u8::try_from(i * 7 % 120).unwrap()).collect();
            let weight = converted(from, to, bytes);
            let whole = weight.to_buffer().unwrap();
            let end = whole.len();
            for (start, end) in
                [(0, end), (1, 2), (1, end), (3, end - 1), (end - 1, end), (end, end)]
            {
                let mut part = vec![0; end - start];
                weight.read_at(start as u64, &mut part).unwrap();
                assert!(*part == whole[start..end], "{from:?} {to:?} {start}..{end}");
            }
        }
    }
}
