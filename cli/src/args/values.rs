//! Values of options that are two parts: names, prefixes, a file and its digest.

/// Two names: `A=B`, of which B may be empty.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(from, _)| !from.is_empty());
    let (from, to) = pair.ok_or("not two names such as A=B")?;
    Ok((from.to_owned(), to.to_owned()))
}

/// Two names: `A=B`. Names may have a `=`, so that the models tell where the text is split.
pub(super) fn equation(text: &str) -> Result<String, String> {
    pair(text).map(|_| text.to_owned())
}

/// A name and a type: `h=FLOAT[N,128]`, split at the last `=`.
pub(super) fn typed(text: &str) -> Result<(String, String), String> {
    let pair = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, of) = pair.ok_or("not a name and a type such as h=FLOAT[N,128]")?;
    Ok((name.to_owned(), of.to_owned()))
}

/// A key and its value: `K=V`, split at the first `=`; V may be empty.
pub(super) fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or("not a key and a value such as K=V")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Two prefixes: `A=B`, of which each may be empty; an empty one begins every name.
pub(super) fn prefixes(text: &str) -> Result<(String, String), String> {
    let (from, to) = text.split_once('=').ok_or("not two prefixes such as A=B")?;
    Ok((from.to_owned(), to.to_owned()))
}

/// A file and the digest that it has to have: `FILE=HEX`, where HEX may begin with `sha256:`.
pub(super) fn expected(text: &str) -> Result<(String, String), String> {
    let (file, digest) =
        text.rsplit_once('=').ok_or("not a file and a digest such as m.onnx=HEX")?;
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    if file.is_empty() || digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err("not a file, `=` and the 64 hexadecimal digits of a SHA-256".to_owned());
    }
    Ok((file.to_owned(), digits.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expected_digest_is_64_digits() {
        let digits = "0f".repeat(32);
        let good = |text: &str| expected(text).unwrap();
        assert_eq!(good(&format!("a=b={}", digits.to_uppercase())), ("a=b".into(), digits.clone()));
        assert_eq!(good(&format!("w=sha256:{digits}")).1, digits);
        for bad in ["", "w", "w=", "w=00", &format!("={digits}"), &format!("w={digits}0"), &digits]
        {
            assert!(expected(bad).is_err(), "{bad}");
        }
    }
}
