//! What a file is, told by its first bytes.
//!
//! People hand over the wrong file: an archive of a checkpoint, a download that failed, weights in
//! place of a model. An error that names what it is saves them a search. What follows from the
//! answer, an error or a warning, is left to the caller: raw weights may begin with any bytes.

/// What a file is that begins with `head`, when it is not what somebody meant to download: a Git
/// LFS pointer in place of the file it stands for, or a web page. The answer says what to do. The
/// first 256 bytes of the file are enough.
///
/// ```
/// let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
/// let what = onnx_container::failed_download(pointer).unwrap();
/// assert_eq!(what, "a Git LFS pointer, not the file itself: run `git lfs pull`");
/// assert_eq!(onnx_container::failed_download(b"\x08\x0a\x12\x00"), None);
/// ```
pub fn failed_download(head: &[u8]) -> Option<&'static str> {
    let head = head.get(..256).unwrap_or(head);
    if head.starts_with(b"version https://git-lfs.github.com/spec/") {
        return Some("a Git LFS pointer, not the file itself: run `git lfs pull`");
    }
    let text = head.trim_ascii_start().to_ascii_lowercase();
    let page = [&b"<!doctype html"[..], b"<html", b"<?xml"].iter().any(|tag| text.starts_with(tag));
    page.then_some("a web page, not the file itself: the download failed")
}

/// Bytes that files of a format have at an offset, and what such a file is.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"GGUF", "a GGUF file"),
    (0, b"\x93NUMPY", "a NumPy .npy file"),
    (0, b"\x1f\x8b\x08", "a gzip file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (4, b"ORTM", "an ONNX Runtime .ort file (flatbuffers)"),
    (4, b"TFL3", "a TensorFlow Lite file (flatbuffers)"),
    (0, LEGACY_TORCH, "a PyTorch file of the old format (pickle)"),
    (257, b"ustar", "a tar archive"),
];

/// The pickled number that `torch.save` began files with before it wrote zip archives.
const LEGACY_TORCH: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// What a file is that begins with `bytes`, when they are the signature of a known format. With all
/// bytes of the file the answer is the most precise.
pub(crate) fn known_format(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"PK\x03\x04") {
        return Some(archive(bytes));
    }
    if is_safetensors(bytes) {
        return Some("a safetensors file");
    }
    let is = |(offset, signature, _): &&(usize, &[u8], _)| {
        bytes.get(*offset..).is_some_and(|rest| rest.starts_with(signature))
    };
    let found = SIGNATURES.iter().find(is).map(|(_, _, what)| *what);
    let pickle = matches!(bytes, [0x80, 2..=5, b'}' | b']' | b'(' | 0x95 | b'c', ..]);
    found.or_else(|| pickle.then_some("a Python pickle"))
}

/// Whether `bytes` begin as a safetensors file does: the header's length, of less than 16 MiB here,
/// and its `{`.
pub(crate) fn is_safetensors(bytes: &[u8]) -> bool {
    bytes.get(3..9) == Some(b"\0\0\0\0\0{")
}

/// Whether `bytes` begin as an object in JSON does.
pub(crate) fn is_json(bytes: &[u8]) -> bool {
    let inner = bytes.trim_ascii_start().strip_prefix(b"{");
    let next = inner.and_then(|inner| inner.trim_ascii_start().first());
    next.is_some_and(|byte| [b'"', b'}'].contains(byte)) && is_text(bytes)
}

/// How many bytes tell a text.
const TEXT: usize = 512;

/// Whether a file that begins with `bytes` is a text: UTF-8, with spaces and line breaks and no
/// other control characters. Its end may cut a character.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    let head = bytes.get(..TEXT).unwrap_or(bytes);
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            let whole = head.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(whole).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{c}'))
}

/// Which kind of zip archive begins with `bytes`: told by the name of its first entry, and by the
/// list of entries at its end.
fn archive(bytes: &[u8]) -> &'static str {
    let contains = |part: &[u8], text: &[u8]| part.windows(text.len()).any(|window| window == text);
    let length =
        bytes.get(26..28).map_or(0, |n| n.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b)));
    let rest = bytes.get(30..).unwrap_or_default();
    let first = rest.get(..length).unwrap_or(rest);
    let tail = bytes.get(bytes.len().saturating_sub(64 << 10)..).unwrap_or_default();
    let torch = [&b"data.pkl"[..], b"/version", b"/byteorder", b"/.format_version"];
    if first.ends_with(b".npy") {
        "a NumPy .npz archive"
    } else if contains(tail, b"/constants.pkl") {
        "a TorchScript file (zip archive)"
    } else if torch.iter().any(|name| first.ends_with(name)) {
        "a PyTorch file (zip archive)"
    } else {
        "a zip archive"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a zip archive whose first entry is called `name`, and `rest` after it.
    fn zip(name: &str, rest: &str) -> Vec<u8> {
        let mut bytes = b"PK\x03\x04".to_vec();
        bytes.resize(26, 0);
        bytes.extend([u8::try_from(name.len()).unwrap(), 0, 0, 0]);
        bytes.extend(name.bytes().chain(rest.bytes()));
        bytes
    }

    #[test]
    fn formats_are_told_by_their_signatures() {
        let tar = [&[0; 257][..], b"ustar\0"].concat();
        let cases: &[(&[u8], Option<&str>)] = &[
            (b"", None),
            (b"\x08\x0a\x12\x00", None),
            (b"PK", None),
            (b"GGUF\x03\0\0\0", Some("a GGUF file")),
            (b"\x93NUMPY\x01\0", Some("a NumPy .npy file")),
            (b"\x1f\x8b\x08\0", Some("a gzip file")),
            (b"\x89HDF\r\n\x1a\n", Some("an HDF5 file")),
            (b"\x1c\0\0\0ORTM", Some("an ONNX Runtime .ort file (flatbuffers)")),
            (LEGACY_TORCH, Some("a PyTorch file of the old format (pickle)")),
            (b"\x80\x04\x95\x05", Some("a Python pickle")),
            (b"\x10\0\0\0\0\0\0\0{\"a\"", Some("a safetensors file")),
            (&tar, Some("a tar archive")),
            (&zip("a.txt", ""), Some("a zip archive")),
            (&zip("w.npy", ""), Some("a NumPy .npz archive")),
            (&zip("archive/data.pkl", ""), Some("a PyTorch file (zip archive)")),
            (&zip("m/data.pkl", "m/constants.pkl"), Some("a TorchScript file (zip archive)")),
        ];
        for (bytes, expected) in cases {
            assert_eq!(known_format(bytes), *expected, "{:?}", &bytes[..bytes.len().min(16)]);
        }
    }

    #[test]
    fn json_is_told_by_its_beginning() {
        for (bytes, expected) in [
            (&b"{\n  \"architectures\": []"[..], true),
            (b" {}", true),
            (b"{\"\x80\x81\xff", false),
            (b"{", false),
        ] {
            assert_eq!(is_json(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn text_is_told_from_weights() {
        let cut = ["x".repeat(511).as_bytes(), "é".as_bytes()].concat();
        let cases: &[(&[u8], bool)] = &[
            (b"", true),
            (b"notes\r\n\tmore", true),
            ("é".as_bytes(), true),
            (&cut, true),
            (b"\xe9t\xe9", false),
            (b"a\0b", false),
            (b"\x08\x0a\x12", false),
            (&[0x3f, 0x80, 0, 0], false),
            (b"ab\xff", false),
        ];
        for (head, expected) in cases {
            assert_eq!(is_text(head), *expected, "{head:?}");
        }
    }

    #[test]
    fn failed_downloads_are_told_from_files() {
        for (head, expected) in [
            (&b"version https://git-lfs.github.com/spec/v1\noid"[..], Some("a Git LFS pointer")),
            (b"\n <!DOCTYPE html><html>", Some("a web page")),
            (b"<HTML>", Some("a web page")),
            (b"", None),
            (b"version 1", None),
        ] {
            let found = failed_download(head).and_then(|what| what.split(',').next());
            assert_eq!(found, expected);
        }
    }
}
