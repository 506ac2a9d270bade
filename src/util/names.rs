//! Unique names: handles, files for single tensors and entries of safetensors files are named after
//! tensors, and several tensors may share a name.
//!
//! The first request for a name gets the name itself, later ones get it with a number: `w`, `w_2`,
//! `w_3`. The last number is stored for each name, so numbering a hundred thousand equal names
//! takes linear time. It is stored for the name as cut to the length limit, because names that
//! differ only beyond the limit are equal too. Which characters a name may have is left to the
//! callers.

use std::collections::{HashMap, HashSet};

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;

/// A generator of unique names.
#[derive(Debug, Clone)]
pub(crate) struct UniqueNames {
    /// The names in use, as [`Self::key`] normalizes them.
    taken: HashSet<String>,
    /// Reserved names: the first request for such a name gets it, and numbering never produces it.
    reserved: HashSet<String>,
    /// The last number that was tried, by the part of the name before the number.
    numbers: HashMap<String, u64>,
    /// The longest name in bytes, with its suffix.
    limit: usize,
    ignore_case: bool,
}

impl Default for UniqueNames {
    /// Names of any length, compared with case.
    fn default() -> Self {
        Self {
            taken: HashSet::new(),
            reserved: HashSet::new(),
            numbers: HashMap::new(),
            limit: usize::MAX,
            ignore_case: false,
        }
    }
}

impl UniqueNames {
    /// Names of files: at most `limit` bytes long, and unique also where case is ignored.
    pub(crate) fn of_files(limit: usize) -> Self {
        Self { limit, ignore_case: true, ..Self::default() }
    }

    /// Reserves `name`, so that numbering never produces it, for the first request for it.
    #[cfg_attr(not(feature = "safetensors"), allow(dead_code))] // only exports reserve
    pub(crate) fn reserve(&mut self, name: &str) {
        let key = self.key(name);
        if !self.taken.contains(&key) {
            self.reserved.insert(key);
        }
    }

    /// Takes `name` as it is; `false` when it was taken before.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        let key = self.key(name);
        self.reserved.remove(&key);
        self.taken.insert(key)
    }

    /// Takes `base` and `suffix`, or both with a number between them where that name is taken. A
    /// `base` that is too long is cut at its end.
    pub(crate) fn name(&mut self, base: &str, suffix: &str) -> String {
        let plain = format!("{}{suffix}", self.cut(base, suffix.len()));
        if self.take(&plain) { plain } else { self.numbered(base, suffix) }
    }

    /// `base`, a number and `suffix`: a name that is not taken.
    fn numbered(&mut self, base: &str, suffix: &str) -> String {
        // Numbers with more digits leave less room for the base. They continue from the last number
        // of all bases that are equal when cut to that length.
        let mut digits = 1;
        loop {
            let stem = self.cut(base, suffix.len().saturating_add("_".len() + digits));
            if let Some(name) = self.with_number_of(digits, stem, suffix) {
                return name;
            }
            digits += 1;
        }
    }

    /// `stem` and `suffix` with the next number of at most `digits` digits that results in a free
    /// name.
    fn with_number_of(&mut self, digits: usize, stem: &str, suffix: &str) -> Option<String> {
        let end = u32::try_from(digits).map_or(u64::MAX, |digits| 10_u64.saturating_pow(digits));
        let key = self.key(stem);
        let last = self.numbers.get(&key).copied().unwrap_or(1);
        let names = (last.saturating_add(1)..end).map(|n| (n, format!("{stem}_{n}{suffix}")));
        let free = names.into_iter().find(|(_, name)| self.is_free(name));
        let (number, name) = free.map_or((last.max(end - 1), None), |(n, name)| (n, Some(name)));
        self.numbers.insert(key, number);
        name.inspect(|name| {
            self.take(name);
        })
    }

    fn is_free(&self, name: &str) -> bool {
        let key = self.key(name);
        !self.taken.contains(&key) && !self.reserved.contains(&key)
    }

    /// As much of `base` as leaves room for `ending` more bytes. In names of files a dot at the end
    /// is removed, because the suffix may begin with one: onnx refuses names with two dots in a
    /// row.
    fn cut<'b>(&self, base: &'b str, ending: usize) -> &'b str {
        let mut end = self.limit.saturating_sub(ending).min(base.len());
        while !base.is_char_boundary(end) {
            end -= 1;
        }
        let cut = base.get(..end).unwrap_or(base);
        if self.ignore_case { cut.trim_end_matches('.') } else { cut }
    }

    /// `name` as names are compared.
    fn key(&self, name: &str) -> String {
        if self.ignore_case { fold_case(name) } else { name.to_owned() }
    }
}

/// `name` in the form in which file systems compare it that ignore case (NTFS, exFAT, APFS) or how
/// a letter with a mark is written (APFS, HFS+): a canonical caseless match (Unicode, D145). Upper
/// case comes first for letters that NTFS has in its table and Unicode does not fold, such as `ı`.
pub fn fold_case(name: &str) -> String {
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    name.nfd().flat_map(char::to_uppercase).default_case_fold().nfd().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gets_the_name_and_others_numbers() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["k", "k", "k"], &["k", "k_2", "k_3"]),
            (&["k_2", "k", "k"], &["k_2", "k", "k_3"]),
            (&["k", "k", "k_2"], &["k", "k_2", "k_2_2"]),
            (&["", ""], &["", "_2"]),
            (&["k", "K"], &["k", "K"]),
        ];
        for (asked, given) in cases {
            let mut names = UniqueNames::default();
            let all: Vec<_> = asked.iter().map(|name| names.name(name, "")).collect();
            assert_eq!(all, *given);
        }
    }

    #[test]
    fn a_reserved_name_is_given_to_the_first_that_asks_for_it() {
        let mut names = UniqueNames::default();
        let asked = ["k", "k", "k_2", "k_2"];
        asked.iter().for_each(|name| names.reserve(name));
        let all: Vec<_> = asked.iter().map(|name| names.name(name, "")).collect();
        assert_eq!(all, ["k", "k_3", "k_2", "k_2_2"]);
    }

    /// Names that APFS, NTFS or exFAT takes for one.
    #[test]
    fn what_some_file_system_takes_for_one_name_is_folded_to_one() {
        let cases: [&[&str]; 10] = [
            &["weight", "Weight", "WEIGHT"],
            &["\u{e9}", "e\u{301}", "\u{c9}", "E\u{301}"],
            &["\u{1e69}", "s\u{323}\u{307}", "s\u{307}\u{323}"],
            &["\u{ac00}", "\u{1100}\u{1161}"],
            &["\u{212b}", "\u{c5}", "a\u{30a}"],
            &["\u{2126}", "\u{3c9}"],
            &["stra\u{df}e", "STRASSE", "stra\u{1e9e}e"],
            &["\u{3c3}", "\u{3c2}", "\u{3a3}"],
            &["\u{17f}", "s"],
            &["\u{131}", "I", "i"],
        ];
        for names in cases {
            let folded: HashSet<_> = names.iter().map(|name| fold_case(name)).collect();
            assert_eq!(folded.len(), 1, "{names:?}: {folded:?}");
        }
        let different = ["o", "\u{f6}", "\u{f8}", "\u{ff4f}", "0", "o\u{301}"];
        let folded: HashSet<_> = different.iter().map(|name| fold_case(name)).collect();
        assert_eq!(folded.len(), different.len());
    }

    #[test]
    fn names_of_files_differ_where_case_is_ignored_and_have_no_two_dots() {
        let mut names = UniqueNames::of_files(10);
        let cases = [
            ("w", "w.bin"),
            ("W", "W_2.bin"),
            ("w_2", "w_2_2.bin"),
            ("con.", "con.bin"),
            ("con", "con_2.bin"),
            ("abcdefgh", "abcdef.bin"),
            ("abcdefxx", "abcd_2.bin"),
            ("abcde.x", "abcde.bin"),
            ("äöüä", "äöü.bin"),
            ("äöüö", "äö_2.bin"),
            ("e\u{301}", "e\u{301}.bin"),
            ("\u{c9}", "\u{c9}_2.bin"),
        ];
        for (base, name) in cases {
            assert_eq!(names.name(base, ".bin"), name);
        }
    }

    /// This would take minutes if each number were tried for each name.
    #[test]
    fn names_that_are_equal_when_cut_are_numbered_in_one_pass() {
        let mut names = UniqueNames::of_files(16);
        let many = 60_000;
        let mut all = HashSet::new();
        for i in 0..many {
            let name = names.name(&format!("name{:06}{i}", i % 1000), ".w");
            assert!(name.len() <= 16 && all.insert(name.clone()), "{name}");
        }
        let equal: HashSet<_> = (0..many).map(|_| names.name("equal", "")).collect();
        assert_eq!(equal.len(), many);
    }
}
