//! Numbers of bytes in arguments.

use onnx_container::Alignment;

const TOO_LONG: &str = "more bytes than a file can hold";

/// What a unit stands for, in bytes. The first that a text ends with is meant.
const UNITS: [(&str, u128); 13] = [
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("", 1),
];

/// A number of bytes: `1024`, `16K` or `16KiB` (1024 each), `2MB` (10^6 each), `1.5 GB`, `1e9`.
pub fn size(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_ascii_uppercase();
    let unit = UNITS.into_iter().find_map(|(unit, bytes)| Some((upper.strip_suffix(unit)?, bytes)));
    let (number, unit) = unit.unwrap_or((&upper, 1));
    match Decimal::of(number.trim_end()).ok_or(NO_SIZE)?.times(unit) {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(())) => Err("not a whole number of bytes".to_owned()),
        None => Err(TOO_LONG.to_owned()),
    }
}

const NO_SIZE: &str = "not a number of bytes such as 1024, 16K, 1.5MB or 2GiB";

/// `digits * 10^power`: no number is rounded.
struct Decimal {
    digits: u128,
    power: i32,
}

impl Decimal {
    /// The number in `text`: `12`, `1.5`, `1E9`.
    fn of(text: &str) -> Option<Self> {
        let (mantissa, exponent) = text.split_once('E').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let has_fraction = mantissa.contains('.');
        if !is_number(whole) || !is_number(exponent) || has_fraction && !is_number(fraction) {
            return None;
        }
        let places = i32::try_from(fraction.len()).ok()?;
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { digits, power: exponent.parse::<i32>().ok()?.checked_sub(places)? })
    }

    /// The product with `unit`; an error where it is no whole number, `None` where it is too large.
    fn times(self, unit: u128) -> Option<Result<u64, ()>> {
        let mut bytes = self.digits.checked_mul(unit)?;
        if self.power < 0 {
            for _ in self.power..0 {
                if !bytes.is_multiple_of(10) {
                    return Some(Err(()));
                }
                bytes /= 10;
            }
        } else if bytes > 0 {
            bytes = bytes.checked_mul(10_u128.checked_pow(self.power.unsigned_abs())?)?;
        }
        u64::try_from(bytes).ok().map(Ok)
    }
}

/// As [`size`], of a shard, which is not empty.
pub fn shard_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("a shard has at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// What is to be said of shards of at most `bytes`, where a unit was likely forgotten.
pub fn shard_warning(bytes: Option<u64>) -> Option<String> {
    let bytes = bytes.filter(|bytes| *bytes < 16)?;
    Some(format!(
        "--max-shard-size {bytes} is {bytes} bytes, so nearly every tensor has a file of its own; \
         {bytes}GB is {bytes} * 10^9"
    ))
}

pub fn alignment(text: &str) -> Result<Alignment, String> {
    Alignment::new(size(text)?).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        let cases = [
            ("0", 0),
            ("1024", 1024),
            ("16K", 16 << 10),
            ("2m", 2 << 20),
            ("1G", 1 << 30),
            ("1T", 1 << 40),
            ("5GB", 5_000_000_000),
            ("1kb", 1_000),
            ("7MB", 7_000_000),
            ("2GiB", 2 << 30),
            ("3kib", 3 << 10),
            ("1TB", 1_000_000_000_000),
            ("1.5GB", 1_500_000_000),
            ("0.5K", 512),
            ("1.50 MiB", 3 << 19),
            ("2 GB", 2_000_000_000),
            (" 7 ", 7),
            ("1e9", 1_000_000_000),
            ("1.5E3", 1500),
            ("2e3KB", 2_000_000),
            ("0e999", 0),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        let no_numbers = [
            "", "K", "GB", "GiB", "-1", "+1", "1.", ".5", "1e", "e9", "1e-3", "1.5.2", "1KGB",
            "1KiGB", "1B", "1 2", "0x10", "٣", "1,5GB", "1e1e1",
        ];
        for text in no_numbers {
            assert_eq!(size(text), Err(NO_SIZE.to_owned()), "{text}");
        }
        for text in ["1.5", "0.0001K", "1.0000000001GB"] {
            assert_eq!(size(text), Err("not a whole number of bytes".to_owned()), "{text}");
        }
        for text in ["18446744073709551616", "17179869184G", "99999999999GB", "1e20", "1e999"] {
            assert_eq!(size(text), Err(TOO_LONG.to_owned()), "{text}");
        }
        for text in ["0", "0GB", "0MiB", "0.0"] {
            assert!(shard_size(text).unwrap_err().contains("at least one byte"), "{text}");
        }
        assert!(shard_warning(Some(2)).unwrap().contains("2GB is 2 * 10^9"));
        assert_eq!([None, Some(16)].map(shard_warning), [None, None]);
    }
}
