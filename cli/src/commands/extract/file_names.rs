//! File names for tensors, whose names may hold anything.

use std::collections::HashSet;

/// The longest file name, in bytes, that common file systems hold.
const MAX_NAME: usize = 255;

/// Makes a file name for each tensor: clean, short, and unique also where case is ignored.
#[derive(Debug)]
pub struct FileNames {
    suffix: &'static str,
    /// In lower case.
    taken: HashSet<String>,
}

impl FileNames {
    pub fn new(suffix: &'static str) -> Self {
        Self { suffix, taken: HashSet::new() }
    }

    /// A name for the tensor called `name` that was not given out before.
    pub fn name(&mut self, name: &str) -> String {
        let base = clean(name);
        let mut file = with_suffix(&base, self.suffix);
        let mut number = 1_u64;
        while !self.taken.insert(file.to_uppercase()) {
            number += 1;
            file = with_suffix(&base, &format!("_{number}{}", self.suffix));
        }
        file
    }
}

/// Replaces what some file system or shell does not take in a name, and a `.` or `-` before it, by
/// `_`.
fn clean(name: &str) -> String {
    let keep = |(i, c): (usize, char)| {
        let first = i == 0 && matches!(c, '.' | '-' | ' ');
        let plain = c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
        if plain && !first { c } else { '_' }
    };
    name.chars().enumerate().map(keep).collect()
}

/// `base` and `suffix`; of a long `base` as much as file systems hold.
fn with_suffix(base: &str, suffix: &str) -> String {
    let room = MAX_NAME.saturating_sub(suffix.len()).min(base.len());
    let end = (0..=room).rev().find(|end| base.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{suffix}", base.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_clean_unique_and_short() {
        let mut names = FileNames::new(".npy");
        let cases = [
            ("w", "w.npy"),
            ("W", "W_2.npy"),
            ("then_branch/w", "then_branch_w.npy"),
            ("then_branch:w", "then_branch_w_2.npy"),
            ("../../etc/passwd", "_._.._etc_passwd.npy"),
            ("-o", "_o.npy"),
            ("list[1]", "list_1_.npy"),
            ("straße", "straße.npy"),
            ("STRASSE", "STRASSE_2.npy"),
        ];
        for (name, file) in cases {
            assert_eq!(names.name(name), file);
        }
        let long = "ä".repeat(300);
        for _ in 0..3 {
            let name = names.name(&long);
            assert!(name.len() <= MAX_NAME && name.ends_with(".npy"), "{name}");
        }
        assert_eq!(names.taken.len(), 12);
    }
}
