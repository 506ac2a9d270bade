//! Packs and unpacks elements narrower than a byte: 2 and 4 bits, and 6 bits as four codes in three
//! bytes.
//!
//! ONNX packs such elements from the least significant bit up, without gaps, and fills the last
//! byte with zero bits. Unpacked codes are one per byte, in the low bits. The value of a code is
//! left to the caller; only the sign of two's-complement codes is handled here, because it needs
//! the width.

use crate::dtype::DataType;

/// The width of an element that is narrower than a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// Four elements per byte.
    Two,
    /// Two elements per byte.
    Four,
    /// Four elements in three bytes.
    Six,
}

impl Width {
    /// The width of `dtype`, if it is narrower than a byte.
    pub(crate) fn of(dtype: DataType) -> Option<Self> {
        match dtype.bit_width()? {
            2 => Some(Self::Two),
            4 => Some(Self::Four),
            6 => Some(Self::Six),
            _ => None,
        }
    }

    /// The width in bits.
    pub(crate) const fn bits(self) -> u8 {
        match self {
            Self::Two => 2,
            Self::Four => 4,
            Self::Six => 6,
        }
    }

    /// The bits that a code may have.
    pub(crate) const fn mask(self) -> u8 {
        u8::MAX >> (8 - self.bits())
    }

    /// The codes in `bytes`, one per byte: `count` of them, or as many as there are.
    pub(crate) fn unpack(self, bytes: &[u8], count: usize) -> Vec<u8> {
        let mut codes = match self {
            Self::Two => unpack2(bytes),
            Self::Four => unpack4(bytes),
            Self::Six => unpack6(bytes),
        };
        codes.truncate(count);
        codes
    }

    /// The numbers that two's-complement codes stand for.
    pub(crate) fn sign_extend(self, codes: Vec<u8>) -> Vec<i8> {
        let shift = 8 - self.bits();
        // The collect reuses the memory of the codes.
        codes.into_iter().map(|code| (code << shift).cast_signed() >> shift).collect()
    }

    /// The packed `codes`, with zero padding; bits above the width are dropped.
    pub(crate) fn pack(self, codes: &[u8]) -> Vec<u8> {
        match self {
            Self::Two => pack2(codes),
            Self::Four => pack4(codes),
            Self::Six => pack6(codes),
        }
    }

    /// Whether the bits of `bytes` after `count` elements are zero, as the specification requires.
    pub(crate) fn padding_is_zero(self, bytes: &[u8], count: usize) -> bool {
        let used = count % 8 * usize::from(self.bits()) % 8;
        used == 0 || bytes.last().is_none_or(|last| last >> used == 0)
    }
}

fn unpack2(bytes: &[u8]) -> Vec<u8> {
    let codes = bytes.iter().map(|b| [b & 3, b >> 2 & 3, b >> 4 & 3, b >> 6]);
    codes.collect::<Vec<_>>().into_flattened()
}

fn unpack4(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|b| [b & 15, b >> 4]).collect::<Vec<_>>().into_flattened()
}

fn unpack6(bytes: &[u8]) -> Vec<u8> {
    let split =
        |[a, b, c]: [u8; 3]| [a & 63, (a >> 6 | b << 2) & 63, (b >> 4 | c << 4) & 63, c >> 2];
    let (groups, tail) = bytes.as_chunks::<3>();
    let mut codes: Vec<[u8; 4]> = groups.iter().map(|group| split(*group)).collect();
    match tail {
        [a] => codes.push(split([*a, 0, 0])),
        [a, b] => codes.push(split([*a, *b, 0])),
        _ => {}
    }
    codes.into_flattened()
}

fn pack2(codes: &[u8]) -> Vec<u8> {
    let join = |group: [u8; 4]| group.iter().rev().fold(0, |byte, code| byte << 2 | code & 3);
    let (groups, tail) = codes.as_chunks();
    let mut bytes: Vec<u8> = groups.iter().map(|group| join(*group)).collect();
    if !tail.is_empty() {
        bytes.push(join(zero_filled(tail)));
    }
    bytes
}

fn pack4(codes: &[u8]) -> Vec<u8> {
    let (groups, tail) = codes.as_chunks();
    let mut bytes: Vec<u8> = groups.iter().map(|[a, b]| a & 15 | b << 4).collect();
    bytes.extend(tail.iter().map(|last| last & 15));
    bytes
}

fn pack6(codes: &[u8]) -> Vec<u8> {
    let join = |group: [u8; 4]| {
        let [a, b, c, d] = group.map(|code| code & 63);
        [a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2]
    };
    let (groups, tail) = codes.as_chunks();
    let mut bytes = groups.iter().map(|group| join(*group)).collect::<Vec<_>>().into_flattened();
    // One code needs one byte of its group, two need two, three need all three.
    bytes.extend(join(zero_filled(tail)).iter().take(tail.len()));
    bytes
}

/// The `codes` of a last group, followed by zeros.
fn zero_filled(codes: &[u8]) -> [u8; 4] {
    let mut group = [0; 4];
    group.iter_mut().zip(codes).for_each(|(slot, code)| *slot = *code);
    group
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIDTHS: [Width; 3] = [Width::Two, Width::Four, Width::Six];

    #[test]
    fn the_first_element_has_the_lowest_bits() {
        let cases: &[(Width, &[u8], &[u8])] = &[
            (Width::Two, &[], &[]),
            (Width::Two, &[1], &[0b01]),
            (Width::Two, &[1, 2, 3, 0, 3], &[0b0011_1001, 0b11]),
            (Width::Four, &[0xa], &[0x0a]),
            (Width::Four, &[1, 2, 3], &[0x21, 0x03]),
            (Width::Six, &[63], &[0x3f]),
            (Width::Six, &[1, 2], &[0x81, 0x00]),
            (Width::Six, &[63, 0, 63], &[0x3f, 0xf0, 0x03]),
            (Width::Six, &[0, 0, 0, 63], &[0, 0, 0xfc]),
            (Width::Six, &[0, 63, 0, 0, 1], &[0xc0, 0x0f, 0, 1]),
        ];
        for (width, codes, bytes) in cases {
            assert_eq!(width.pack(codes), *bytes, "{width:?} {codes:?}");
            assert_eq!(width.unpack(bytes, codes.len()), *codes, "{width:?} {bytes:?}");
        }
    }

    #[test]
    fn codes_are_sign_extended() {
        assert_eq!(Width::Four.sign_extend(vec![0, 7, 8, 15]), [0, 7, -8, -1]);
        assert_eq!(Width::Two.sign_extend(vec![0, 1, 2, 3]), [0, 1, -2, -1]);
    }

    #[test]
    fn padding_is_the_bits_after_the_last_element() {
        let cases: &[(Width, &[u8], usize, bool)] = &[
            (Width::Four, &[0x13], 1, false),
            (Width::Four, &[0x03], 1, true),
            (Width::Four, &[0x13], 2, true),
            (Width::Two, &[0b0100_0000], 3, false),
            (Width::Six, &[0x7f], 1, false),
            (Width::Six, &[0xff, 0x1f], 2, false),
            (Width::Six, &[0xff, 0x0f], 2, true),
            (Width::Six, &[0xff, 0xff, 0x04], 3, false),
            (Width::Six, &[0xff, 0xff, 0xff], 4, true),
            (Width::Six, &[], 0, true),
        ];
        for (width, bytes, count, clean) in cases {
            assert_eq!(width.padding_is_zero(bytes, *count), *clean, "{width:?} {bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn packing_round_trips(codes: Vec<u8>) {
            for width in WIDTHS {
                let codes: Vec<u8> = codes.iter().map(|code| code & width.mask()).collect();
                let bytes = width.pack(&codes);
                let bits = codes.len() * usize::from(width.bits());
                prop_assert_eq!(bytes.len(), bits.div_ceil(8));
                prop_assert!(width.padding_is_zero(&bytes, codes.len()));
                prop_assert_eq!(width.unpack(&bytes, codes.len()), codes);
            }
        }

        #[test]
        fn unpacking_any_bytes_gives_codes(bytes: Vec<u8>, count in 0_usize..2000) {
            for width in WIDTHS {
                let codes = width.unpack(&bytes, count);
                prop_assert!(codes.len() <= count);
                prop_assert!(codes.iter().all(|code| *code <= width.mask()));
            }
        }
    }
}
