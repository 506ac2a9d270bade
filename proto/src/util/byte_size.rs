//! One way to say a length in bytes.
//!
//! Errors of the library, the command's reports and its progress say sizes to people, and the same
//! number has to read the same in all of them. Programs get plain numbers.

use std::fmt;

/// A length in bytes as people say it: in powers of 1000, rounded, with one decimal below 10.
///
/// ```
/// use onnx_container_proto::internal::util::byte_size::ByteSize;
///
/// assert_eq!(ByteSize(999).to_string(), "999 B");
/// assert_eq!(ByteSize(4_788_213).to_string(), "4.8 MB");
/// assert_eq!(format!("{:>8}", ByteSize(140_000_000_000)), "  140 GB");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(
    /// The length in bytes.
    pub u64,
);

/// Each unit is a thousand of the one before it.
const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text())
    }
}

impl ByteSize {
    fn text(self) -> String {
        if self.0 < 1000 {
            return format!("{} B", self.0);
        }
        let bytes = u128::from(self.0);
        let mut scale = 1_u128;
        for unit in UNITS {
            scale *= 1000;
            let tenths = rounded(bytes * 10, scale);
            if tenths < 100 {
                return format!("{}.{} {unit}", tenths / 10, tenths % 10);
            }
            let whole = rounded(bytes, scale);
            if whole < 1000 {
                return format!("{whole} {unit}");
            }
        }
        // Not reached: 2^64 bytes are 18 EB.
        format!("{bytes} B")
    }
}

/// `n / by`, rounded to the nearest integer, halves up.
fn rounded(n: u128, by: u128) -> u128 {
    (n + by / 2) / by
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_and_never_show_a_thousand_of_a_unit() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (1_049, "1.0 kB"),
            (1_050, "1.1 kB"),
            (4_788_213, "4.8 MB"),
            (5_276_672, "5.3 MB"),
            (9_949, "9.9 kB"),
            (9_950, "10 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (5_370_000_000, "5.4 GB"),
            (140_000_000_000, "140 GB"),
            (u64::MAX, "18 EB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(ByteSize(bytes).to_string(), text, "{bytes}");
        }
    }
}
