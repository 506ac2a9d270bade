//! Numbers of bytes in arguments.

use onnx_container::Alignment;

const TOO_LONG: &str = "more bytes than a file can hold";

/// A number of bytes: `1024`, `16K`, `2M`, `1G`.
pub fn size(text: &str) -> Result<u64, String> {
    let units = [(['k', 'K'], 10), (['m', 'M'], 20), (['g', 'G'], 30)];
    let unit = units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("not a number of bytes such as 1024, 16K, 2M or 1G".to_owned());
    }
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| TOO_LONG.to_owned())
}

/// A size as Hugging Face writes it, `5GB` or `5GiB`, or as [`size`] takes it.
pub fn shard_size(text: &str) -> Result<u64, String> {
    let units = [
        ("KIB", 1 << 10),
        ("MIB", 1 << 20),
        ("GIB", 1 << 30),
        ("TIB", 1 << 40),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    let upper = text.to_ascii_uppercase();
    let unit = units.into_iter().find_map(|(unit, scale)| Some((upper.strip_suffix(unit)?, scale)));
    let bytes = match unit {
        Some((digits, scale)) if digits.ends_with(|c: char| c.is_ascii_digit()) => {
            size(digits).and_then(|n| n.checked_mul(scale).ok_or_else(|| TOO_LONG.to_owned()))
        }
        _ => size(text),
    };
    let bytes = bytes.map_err(|reason| reason.replace("2M or 1G", "2MB or 2GiB"))?;
    if bytes == 0 { Err("a shard has at least one byte".to_owned()) } else { Ok(bytes) }
}

pub fn alignment(text: &str) -> Result<Alignment, String> {
    Alignment::new(size(text)?).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        let cases = [("0", 0), ("1024", 1024), ("16K", 16 << 10), ("2m", 2 << 20), ("1G", 1 << 30)];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        let cases = [
            ("5GB", 5_000_000_000),
            ("1kb", 1_000),
            ("7MB", 7_000_000),
            ("2G", 2 << 30),
            ("2GiB", 2 << 30),
            ("3kib", 3 << 10),
            ("1TB", 1_000_000_000_000),
        ];
        for (text, bytes) in cases {
            assert_eq!(shard_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "0",
            "0GB",
            "GB",
            "1KGB",
            "1.5GB",
            "99999999999GB",
            "5 GB",
            "GiB",
            "1KiGB",
            "0MiB",
            "1B",
        ] {
            let reason = shard_size(text).unwrap_err();
            assert!(!reason.contains("2M or"), "{text}: {reason}");
        }
        for text in ["", "K", "-1", "+1", "1.5M", "1T", "1 K", "1KB", "17179869184G", "٣"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
