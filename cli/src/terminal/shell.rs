//! Texts as words of a shell, for commands that users are told to run.

/// `text` as one word of a shell, without backslashes, which are printed with escapes.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r#"'"'"'"#)),
    }
}
