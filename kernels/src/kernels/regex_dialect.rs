//! Patterns of [RE2](https://github.com/google/re2/wiki/Syntax), the dialect of RegexFullMatch, for
//! the crate `regex`.
//!
//! The crate descends from RE2 and has nearly its syntax. What RE2 means differently is rewritten
//! here: `\d`, `\s`, `\w` and `\b` are ASCII, `\Q..\E` quotes, and in a class `[`, `&` and `~` are
//! characters.

use std::iter::Peekable;
use std::str::Chars;

use regex::Regex;

use crate::error::{Error, ErrorKind, Result};

/// The matcher of whole strings for `pattern`.
///
/// # Errors
/// [`ErrorKind::InvalidModel`] when it is no pattern of RE2, or too large.
pub(super) fn full_match(pattern: &str) -> Result<Regex> {
    Regex::new(&format!(r"\A(?:{})\z", rewritten(pattern))).map_err(|error| {
        let reason = format!("attribute `pattern` is `{pattern}`, which is no pattern: {error}");
        Error::new(ErrorKind::InvalidModel, reason)
    })
}

/// `pattern` with the meaning of RE2.
fn rewritten(pattern: &str) -> String {
    let (mut chars, mut out) = (pattern.chars().peekable(), String::new());
    while let Some(c) = chars.next() {
        match c {
            '\\' => escape(&mut chars, false, &mut out),
            '[' => class(&mut chars, &mut out),
            other => out.push(other),
        }
    }
    out
}

/// A class, behind its `[`.
fn class(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('[');
    out.extend(chars.next_if_eq(&'^'));
    if chars.next_if_eq(&']').is_some() {
        out.push_str(r"\]"); // as the first character it is one of the class
    }
    while let Some(c) = chars.next() {
        match c {
            ']' => return out.push(']'),
            '\\' => escape(chars, true, out),
            '[' if chars.peek() == Some(&':') => {
                out.push('[');
                out.extend(chars.by_ref().take_while(|c| *c != ']'));
                out.push(']');
            }
            '[' | '&' | '~' => out.extend(['\\', c]),
            other => out.push(other),
        }
    }
}

/// An escape, behind its backslash.
fn escape(chars: &mut Peekable<Chars<'_>>, in_class: bool, out: &mut String) {
    match chars.next() {
        Some('d') => out.push_str("[0-9]"),
        Some('D') => out.push_str("[^0-9]"),
        Some('s') => out.push_str(r"[\t\n\f\r ]"),
        Some('S') => out.push_str(r"[^\t\n\f\r ]"),
        Some('w') => out.push_str("[0-9A-Za-z_]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
        Some('Q') if !in_class => {
            let rest: String = chars.clone().collect();
            let quoted = rest.split_once(r"\E").map_or(rest.as_str(), |(quoted, _)| quoted);
            out.push_str(&regex::escape(quoted));
            let used = quoted.chars().count() + if quoted.len() < rest.len() { 2 } else { 0 };
            chars.by_ref().take(used).for_each(drop);
        }
        Some(other) => out.extend(['\\', other]),
        None => out.push('\\'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_do_in_re2() {
        let cases = [
            (r"\d+", "12", true),
            (r"\d+", "\u{661}", false), // a digit of Unicode
            (r"[\w-]+", "a-b", true),
            (r"[\W]", "é", true),
            (r"\s", "\u{b}", false),
            (r"[]a]+", "]a", true),
            (r"[[&~]+", "&[~", true),
            (r"[[:alpha:]]+", "ab", true),
            (r"\Qa.b\E+", "a.bb", true),
            (r"\Qa.b", "axb", false),
            (r"a\b.", "a b", false),
            (r"a|b.", "ab", false),
            (r"\pL+", "é", true),
            ("a", "a\n", false),
        ];
        for (pattern, string, expected) in cases {
            assert_eq!(
                full_match(pattern).unwrap().is_match(string),
                expected,
                "{pattern} {string:?}"
            );
        }
        for wrong in ["(", r"\", "[a", r"a{5000}{5000}"] {
            assert_eq!(full_match(wrong).unwrap_err().kind(), ErrorKind::InvalidModel, "{wrong}");
        }
    }
}
