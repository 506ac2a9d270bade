//! Names of tensors, as they are shown and as they are given.
//!
//! A name may hold a line break, or anything else that would break a line or move a cursor. It is
//! shown with escapes then, and what is shown can be given back: a name that no tensor has is read
//! with its escapes. So a list of names is text with one name a line.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use onnx_container::{Error, ErrorKind, Result, TensorIndex, TensorRef};

/// The tensor that `name` means, as it is or with its escapes read.
pub fn tensor<'n, 'i, 'c>(
    index: &'i TensorIndex<'c>,
    name: &'n str,
) -> Result<(Cow<'n, str>, &'i TensorRef<'c>)> {
    let missing = match index.get(name) {
        Err(error) if error.kind() == ErrorKind::MissingTensor => error,
        found => return Ok((name.into(), found?)),
    };
    let Some(meant) = unescaped(name) else { return Err(missing) };
    match index.get(&meant) {
        Err(error) if error.kind() == ErrorKind::MissingTensor => Err(missing),
        found => Ok((meant.into(), found?)),
    }
}

/// The names in the file at `path`, one a line; `-` is standard input.
pub fn from_file(path: &Path) -> Result<Vec<String>> {
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    let text = text.map_err(|e| Error::io(path, e))?;
    let names = text.lines().filter(|line| !line.is_empty()).map(str::to_owned);
    Ok(names.collect())
}

/// `shown` with its escapes read; `None` when it has none, or one that is never shown.
pub fn unescaped(shown: &str) -> Option<String> {
    let mut name = String::with_capacity(shown.len());
    let (mut plain, mut escapes) = shown.split_once('\\')?;
    loop {
        name += plain;
        let (c, after) = escape(escapes)?;
        name.push(c);
        match after.split_once('\\') {
            Some(next) => (plain, escapes) = next,
            None => return Some(name + after),
        }
    }
}

/// The character that `text`, which follows a backslash, begins with, and what comes after it.
fn escape(text: &str) -> Option<(char, &str)> {
    let mut chars = text.chars();
    let c = match chars.next()? {
        '\\' => '\\',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let (digits, after) = text.strip_prefix("u{")?.split_once('}')?;
            return Some((char::from_u32(u32::from_str_radix(digits, 16).ok()?)?, after));
        }
        _ => return None,
    };
    Some((c, chars.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::output::escaped;

    #[test]
    fn what_is_shown_can_be_given_back() {
        for name in ["two\nlines", "a\\nb", "\\", "\r\t\u{1b}[2J\u{202e}é", "\u{7f}\\u{7f}"] {
            let shown = escaped(name).to_string();
            assert!(!shown.contains(char::is_control), "{shown}");
            assert_eq!(unescaped(&shown).as_deref(), Some(name), "{shown}");
        }
        for plain in ["", "encoder.w", "é/ü x"] {
            assert_eq!(escaped(plain).to_string(), plain);
            assert_eq!(unescaped(plain), None);
        }
        for other in ["\\", "a\\x", "\\u{110000}", "\\u{", "\\u41", "a\\nb\\"] {
            assert_eq!(unescaped(other), None, "{other}");
        }
    }
}
