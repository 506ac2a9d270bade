//! What messages call the options of the command.

use onnx_container_signing::Term;

/// The factors of sizes, as options take them.
const UNITS: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("", 1)];

/// A term as the command says it.
pub fn of_command(term: &Term<'_>) -> String {
    match term {
        Term::Signature(None) => "-o".to_owned(),
        Term::Signature(Some(path)) => format!("-o {}", path.display()),
        Term::ShardSize(bytes) => format!("--shard-size {}", size(*bytes)),
        Term::RequireFiles => "--require-files".to_owned(),
        Term::IgnoreUnsignedFiles => "--ignore-unsigned-files".to_owned(),
        Term::Save => "`pack` or `embed`".to_owned(),
        other => other.to_string(),
    }
}

/// A number of bytes in the largest unit of which it is a whole number.
fn size(bytes: u64) -> String {
    let unit = UNITS.into_iter().find(|(_, unit)| bytes.is_multiple_of(*unit));
    let (name, unit) = unit.unwrap_or(("", 1));
    format!("{}{name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_of_the_largest_unit() {
        for (bytes, text) in [
            (3, "3"),
            (3_000, "3kB"),
            (70_000_000_000_000, "70TB"),
            (1_500, "1500"),
            (900_000, "900kB"),
        ] {
            assert_eq!(of_command(&Term::ShardSize(bytes)), format!("--shard-size {text}"));
        }
    }
}
