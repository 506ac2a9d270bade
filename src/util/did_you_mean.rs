//! "Did you mean ...?": the names that a mistyped one is most like.
//!
//! Somebody who asks for a tensor or a function that is not there usually made a slip, or left out
//! its scope or domain. What the names are and what they mean is left to `lookup` and `inline`.

/// The least similarity for a suggestion: 1 is equal, 0 has nothing in common.
const LEAST: f64 = 0.6;
/// From this length in bytes on, a name that stands within another may mean it.
const PART: usize = 3;
/// The most bytes of a name that is compared letter by letter.
const LONGEST: usize = 1024;
/// How many names are suggested.
const MOST: usize = 3;

/// `did you mean ...?` with the `names` that are most like `name`, the best first.
pub(crate) fn did_you_mean<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let nearest: Vec<_> =
        nearest(name, names).into_iter().map(|name| format!("`{name}`")).collect();
    (!nearest.is_empty()).then(|| format!("did you mean {}?", nearest.join(" or ")))
}

/// The `names` that are most like `name`, the best first.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut near: Vec<_> = names.map(|other| (similarity(name, other), other)).collect();
    near.retain(|(similarity, other)| *similarity >= LEAST && !other.is_empty());
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    near.dedup();
    near.into_iter().map(|(_, other)| other).take(MOST).collect()
}

/// 1 where only the case differs, or where one name is the last words of the other: its scope or
/// domain is what was left out.
fn similarity(name: &str, other: &str) -> f64 {
    if name.eq_ignore_ascii_case(other) {
        return 1.0;
    }
    if has_at_its_end(other, name) || has_at_its_end(name, other) {
        return 1.0;
    }
    if name.len() >= PART && other.contains(name) {
        return LEAST;
    }
    // Most names are told apart by their lengths, and a huge one is not compared: the comparison
    // takes memory for the product of both lengths.
    if name.len().max(other.len()) > LONGEST {
        return 0.0;
    }
    let (len, other_len) = (name.chars().count(), other.chars().count());
    if len.min(other_len) * 10 < len.max(other_len) * 6 {
        return 0.0;
    }
    strsim::normalized_damerau_levenshtein(name, other)
}

/// Whether `name` ends with `end`, behind something that is no letter or digit.
fn has_at_its_end(name: &str, end: &str) -> bool {
    let scope = name.strip_suffix(end).filter(|_| !end.is_empty());
    scope.is_some_and(|scope| !scope.ends_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_and_missing_scopes_are_seen_through() {
        let names = ["layer.weight", "then_branch/w", "layer.bias", ""];
        let cases: &[(&str, &[&str])] = &[
            ("layer.wieght", &["layer.weight"]),
            ("w", &["then_branch/w"]),
            ("new", &[]),
            ("branch", &["then_branch/w"]),
            ("LAYER.BIAS", &["layer.bias"]),
            ("something else", &[]),
            ("", &[]),
        ];
        for (name, expected) in cases {
            assert_eq!(nearest(name, names.into_iter()), *expected, "{name}");
        }
        let said = did_you_mean("layer.", names.into_iter()).unwrap();
        assert_eq!(said, "did you mean `layer.bias` or `layer.weight`?");
        assert_eq!(did_you_mean("", names.into_iter()), None);
    }

    #[test]
    fn a_huge_name_is_near_nothing_but_its_own_end() {
        let huge = "x".repeat(10_000_000);
        let names = || [huge.as_str(), "layer.weight"].into_iter();
        assert_eq!(nearest(&"y".repeat(10_000), names()), Vec::<&str>::new());
        assert_eq!(nearest("layer.wieght", names()), ["layer.weight"]);
    }
}
