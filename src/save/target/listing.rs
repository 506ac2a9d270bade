//! Which of many names a folder has, told by one look at the folder.
//!
//! A save with a file for each tensor asks for tens of thousands of names, and in most folders none
//! of them is there. The listing only says that a name is not there; a caller that is not told so
//! looks at the file.

use std::collections::HashSet;
use std::fs::DirEntry;
use std::io;
use std::path::Path;

use crate::util::names::fold_case;
use crate::util::retry::retried;

/// Fewer names are looked for one by one.
const MANY: usize = 64;

/// The names in a folder, in lower case; `None` if they are not known.
#[derive(Default)]
pub(crate) struct Listing(Option<HashSet<String>>);

impl Listing {
    /// The names in `directory`, for a caller that asks for `count` of them. A folder that has many
    /// more is not listed.
    pub(crate) fn of(directory: &Path, count: usize) -> Self {
        let most = count.saturating_mul(4);
        let entries =
            (count >= MANY).then(|| retried(|| std::fs::read_dir(directory)).ok()).flatten();
        let names = entries.and_then(|entries| {
            let name = |entry: io::Result<DirEntry>| {
                Some(fold_case(&entry.ok()?.file_name().to_string_lossy()))
            };
            entries.take(most.saturating_add(1)).map(name).collect::<Option<Vec<_>>>()
        });
        // Counted before names that differ only in case become one.
        let whole = names.filter(|names| names.len() <= most);
        Self(whole.map(HashSet::from_iter))
    }

    /// `false` only if no file has this name, in whatever case. File systems have several ways to
    /// compare other than plain characters, and Windows has second names with a `~`.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        let Some(names) = &self.0 else { return true };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !name.chars().all(is_plain) || names.contains(&fold_case(name))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_name_is_not_there_only_where_that_is_certain() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["Model.onnx", "w.weight"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let all = Listing::of(folder.path(), MANY);
        let cases = [
            ("model.ONNX", true),
            ("w.weight", true),
            ("other", false),
            ("ä", true),
            ("a~1", true),
        ];
        for (name, there) in cases.into_iter().chain([("sub/w.weight", true)]) {
            assert_eq!(all.may_have(name), there, "{name}");
        }
        // Nothing is known of a folder that was not listed, or could not be.
        for listing in
            [Listing::of(folder.path(), MANY - 1), Listing::of(&folder.path().join("no"), MANY)]
        {
            assert!(listing.may_have("other"));
        }
        // Too many to be listed, though most names are others in upper case, where case counts.
        for i in 0..if cfg!(target_os = "linux") { 2 * MANY } else { 4 * MANY } {
            for name in [format!("a{i}"), format!("A{i}")] {
                fs::write(folder.path().join(name), "").unwrap();
            }
        }
        assert!(Listing::of(folder.path(), MANY).may_have("other"));
    }
}
