//! Keys for ECDSA on P-256 with SHA-256, P-384 with SHA-384 and P-521 with SHA-512, read from PEM.

use std::fmt;
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind, Result};
use onnx_container_files::sha256::hex;
use p256::pkcs8::{DecodePublicKey, EncodePublicKey, LineEnding};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::regular;

/// The longest key file that is read, in bytes.
const MOST_BYTES: u64 = 64 << 10;

/// The least length of the first line of a key: others are examples.
const SHORTEST_BODY: usize = 16;

/// What a PEM file is called that holds what is not wanted, and how to get what is.
const OTHERS: [(&str, &str); 6] = [
    ("ENCRYPTED PRIVATE KEY", "is encrypted: `openssl pkey -in KEY -out PLAIN` decrypts it"),
    (
        "PRIVATE KEY",
        "is a private key: `openssl pkey -in KEY -pubout -out PUB` makes the public one",
    ),
    (
        "EC PRIVATE KEY",
        "is a private key: `openssl pkey -in KEY -pubout -out PUB` makes the public one",
    ),
    ("PUBLIC KEY", "is a public key: signing takes the private one"),
    ("CERTIFICATE", "is a certificate: `openssl x509 -in CERT -noout -pubkey` prints its key"),
    (
        "OPENSSH PRIVATE KEY",
        "is a key of OpenSSH: `ssh-keygen -p -m PKCS8 -f COPY` converts a copy of it, where it is one \
         for P-256, P-384 or P-521; no other kind is read, such as Ed25519",
    ),
];

/// A key that signs: for P-256, P-384 or P-521.
pub struct PrivateKey {
    secret: Secret,
    /// The file that it was read from.
    path: Option<PathBuf>,
}

enum Secret {
    P256(p256::ecdsa::SigningKey),
    P384(p384::ecdsa::SigningKey),
    P521(p521::ecdsa::SigningKey),
}

/// A key that verifies: for P-256, P-384 or P-521.
#[derive(Debug, Clone)]
pub struct PublicKey(Point);

#[derive(Debug, Clone)]
enum Point {
    P256(p256::ecdsa::VerifyingKey),
    P384(p384::ecdsa::VerifyingKey),
    P521(p521::ecdsa::VerifyingKey),
}

/// Why a PEM is not the key that is wanted: a text that continues "this".
type Reason = &'static str;

impl PrivateKey {
    /// The key in the PEM file at `path`: PKCS#8 or SEC1, not encrypted. No signature replaces the
    /// file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a file that holds no such key, and those of reading it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let secret = Secret::of(&read(path)?).map_err(|reason| refused(reason).with_path(path))?;
        Ok(Self { secret, path: Some(path.to_owned()) })
    }

    /// The key in a PEM text: PKCS#8 or SEC1, not encrypted.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a text that holds no such key.
    pub fn from_pem(text: &str) -> Result<Self> {
        Ok(Self { secret: Secret::of(text).map_err(refused)?, path: None })
    }

    /// The key that verifies what this one signs.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(match &self.secret {
            Secret::P256(key) => Point::P256(*key.verifying_key()),
            Secret::P384(key) => Point::P384(*key.verifying_key()),
            Secret::P521(key) => Point::P521(*key.verifying_key()),
        })
    }

    /// The file that it was read from.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The signature of `message`, in DER.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        use p256::ecdsa::signature::Signer;
        let signed = match &self.secret {
            Secret::P256(key) => {
                key.try_sign(message).map(|s: p256::ecdsa::DerSignature| s.as_bytes().to_vec())
            }
            Secret::P384(key) => {
                key.try_sign(message).map(|s: p384::ecdsa::DerSignature| s.as_bytes().to_vec())
            }
            Secret::P521(key) => {
                key.try_sign(message).map(|s: p521::ecdsa::DerSignature| s.as_bytes().to_vec())
            }
        };
        signed.map_err(|error| Error::internal(format_args!("the key does not sign: {error}")))
    }
}

/// Its curve alone: a key is secret.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrivateKey").field(&self.public_key().curve()).finish_non_exhaustive()
    }
}

impl Secret {
    /// The key in a text, which may have other parts.
    fn of(text: &str) -> Result<Self, Reason> {
        let blocks = ["PRIVATE KEY", "EC PRIVATE KEY"].map(|label| block(text, label));
        let Some(pem) = blocks.into_iter().flatten().next() else {
            return Err(other(text, "holds no private key in PEM"));
        };
        if pem.contains("Proc-Type: 4,ENCRYPTED") {
            return Err("is encrypted: `openssl pkey -in KEY -out PLAIN` decrypts it");
        }
        Self::of_pem(pem).ok_or(
            "is no key for P-256, P-384 or P-521: `openssl ecparam -genkey -name prime256v1 -noout \
             -out KEY` makes one",
        )
    }

    fn of_pem(pem: &str) -> Option<Self> {
        if let Ok(key) = p256::SecretKey::from_pem(pem) {
            return Some(Self::P256(key.into()));
        }
        if let Ok(key) = p384::SecretKey::from_pem(pem) {
            return Some(Self::P384(key.into()));
        }
        p521::SecretKey::from_pem(pem).ok().map(|key| Self::P521(key.into()))
    }
}

impl PublicKey {
    /// The key in the PEM file at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a file that holds no such key, and those of reading it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let point = Point::of(&read(path)?).map_err(|reason| refused(reason).with_path(path))?;
        Ok(Self(point))
    }

    /// The key in a PEM text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a text that holds no such key.
    pub fn from_pem(text: &str) -> Result<Self> {
        Ok(Self(Point::of(text).map_err(refused)?))
    }

    /// What signatures call the key: the SHA-256 of its PEM, in hexadecimal digits.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for a key without a PEM, which only a bug can cause.
    pub fn fingerprint(&self) -> Result<String> {
        let pem = match &self.0 {
            Point::P256(key) => key.to_public_key_pem(LineEnding::LF),
            Point::P384(key) => key.to_public_key_pem(LineEnding::LF),
            Point::P521(key) => key.to_public_key_pem(LineEnding::LF),
        };
        let failed = |error| Error::internal(format_args!("the key has no PEM: {error}"));
        Ok(hex(&Sha256::digest(pem.map_err(failed)?)))
    }

    /// The curve: `P-256`, `P-384` or `P-521`.
    pub fn curve(&self) -> &'static str {
        match &self.0 {
            Point::P256(_) => "P-256",
            Point::P384(_) => "P-384",
            Point::P521(_) => "P-521",
        }
    }

    /// Whether `signature`, in DER, is one of `message` by this key.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        use p256::ecdsa::signature::Verifier;
        match &self.0 {
            Point::P256(key) => p256::ecdsa::DerSignature::from_bytes(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
            Point::P384(key) => p384::ecdsa::DerSignature::from_bytes(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
            Point::P521(key) => p521::ecdsa::DerSignature::from_bytes(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
        }
    }
}

impl Point {
    /// The key in a text, which may have other parts.
    fn of(text: &str) -> Result<Self, Reason> {
        let Some(pem) = block(text, "PUBLIC KEY") else {
            return Err(other(text, "holds no public key in PEM"));
        };
        Self::of_pem(pem).ok_or("is no key for P-256, P-384 or P-521")
    }

    fn of_pem(pem: &str) -> Option<Self> {
        if let Ok(key) = p256::PublicKey::from_public_key_pem(pem) {
            return Some(Self::P256(key.into()));
        }
        if let Ok(key) = p384::PublicKey::from_public_key_pem(pem) {
            return Some(Self::P384(key.into()));
        }
        p521::PublicKey::from_public_key_pem(pem).ok().map(|key| Self::P521(key.into()))
    }
}

/// The text of a key file, which is wiped when it is no longer needed.
fn read(path: &Path) -> Result<Zeroizing<String>> {
    let bytes = regular::read(path, MOST_BYTES)?;
    match bytes.as_deref().map(|bytes| std::str::from_utf8(bytes)) {
        Some(Ok(text)) => Ok(Zeroizing::new(text.to_owned())),
        _ => Err(refused("is not a PEM file").with_path(path)),
    }
}

/// Whether a private key in PEM or of PGP, of any kind, is in the first 64 KiB of the file at
/// `path`, also as a text in a file of another format, such as JSON.
///
/// # Errors
/// Those of reading the file.
pub(crate) fn has_private_key(path: &Path) -> Result<bool> {
    Ok(holds_private_key(&regular::beginning(path, MOST_BYTES)?))
}

/// Whether `text` has a whole private key, and does not merely name one.
fn holds_private_key(text: &[u8]) -> bool {
    let text = unescaped(text);
    let mut rest = &text[..];
    while let Some((_, begun)) = split_at(rest, b"-----BEGIN ") {
        rest = begun;
        let Some((label, body)) = split_at(begun, b"-----") else { return false };
        let is_key = label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK");
        if is_key && !label.contains(&b'\n') && begins_a_body(body) {
            return true;
        }
    }
    false
}

/// What is before the first `mark`, and what is behind it.
fn split_at<'t>(text: &'t [u8], mark: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let at = text.windows(mark.len()).position(|window| window == mark)?;
    Some((text.get(..at)?, text.get(at.checked_add(mark.len())?..)?))
}

/// Whether the first line behind headers is one of a key in base64.
fn begins_a_body(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').map(trimmed);
    let first = lines.find(|line| !line.is_empty() && !line.contains(&b':'));
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    first.is_some_and(|line| line.len() >= SHORTEST_BODY && line.iter().all(is_base64))
}

/// A line without what a program has around its text.
fn trimmed(mut line: &[u8]) -> &[u8] {
    let is_around = |byte: &u8| byte.is_ascii_whitespace() || b"\"',".contains(byte);
    while let [first, rest @ ..] = line
        && is_around(first)
    {
        line = rest;
    }
    while let [rest @ .., last] = line
        && is_around(last)
    {
        line = rest;
    }
    line
}

/// `text`, where line breaks that are written as `\n` or `\r`, as in JSON, are line breaks.
fn unescaped(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut plain = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut is_escaped = false;
    for byte in text {
        match byte {
            b'\\' => is_escaped = true,
            b'n' | b'r' if is_escaped => {
                plain.push(b'\n');
                is_escaped = false;
            }
            byte => {
                plain.push(*byte);
                is_escaped = false;
            }
        }
    }
    plain
}

/// The first part of `text` with that label, which OpenSSL may put behind parameters of a curve.
fn block<'t>(text: &'t str, label: &str) -> Option<&'t str> {
    let end = format!("-----END {label}-----");
    let from = text.get(text.find(&format!("-----BEGIN {label}-----"))?..)?;
    from.get(..from.find(&end)?.checked_add(end.len())?)
}

/// What `text` holds in place of what was asked for; `nothing` when it is nothing that is known.
fn other(text: &str, nothing: Reason) -> Reason {
    let found = OTHERS.iter().find(|(label, _)| block(text, label).is_some());
    found.map_or(nothing, |(_, what)| what)
}

fn refused(reason: Reason) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("this {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that hexadecimal digits name.
    fn bytes(digits: &str) -> Vec<u8> {
        let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|digits| pair(digits).unwrap()).collect()
    }

    /// RFC 6979, A.2.5 to A.2.7: the signatures of "sample" and nonces that depend on nothing but
    /// key and message.
    #[test]
    fn signatures_are_those_of_rfc_6979() {
        let key = bytes("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721");
        let key = p256::ecdsa::SigningKey::from_slice(&key).unwrap();
        let r = bytes("EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716");
        let s = bytes("F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8");
        let sign = |secret| PrivateKey { secret, path: None }.sign(b"sample").unwrap();
        let signed = sign(Secret::P256(key));
        let signed = p256::ecdsa::Signature::from_der(&signed).unwrap().to_vec();
        // The crate has the smaller of the two values of s that verify, for P-256 alone.
        assert_eq!(signed[..32], r);
        assert!(signed[32..] == s || signed[32] < 0x80, "{signed:x?}");

        let key = bytes(
            "6B9D3DAD2E1B8C1C05B19875B6659F4DE23C3B667BF297BA9AA47740787137D896D5724E4C70A825F872C9EA60D2EDF5",
        );
        let key = p384::ecdsa::SigningKey::from_slice(&key).unwrap();
        let expected = bytes(
            "94EDBB92A5ECB8AAD4736E56C691916B3F88140666CE9FA73D64C4EA95AD133C81A648152E44ACF96E36DD1E80FABE46
             99EF4AEB15F178CEA1FE40DB2603138F130E740A19624526203B6351D0A3A94FA329C145786E679E7B82C71A38628AC8",
        );
        let signed = sign(Secret::P384(key));
        assert_eq!(p384::ecdsa::Signature::from_der(&signed).unwrap().to_vec(), expected);

        let key = bytes(
            "00FAD06DAA62BA3B25D2FB40133DA757205DE67F5BB0018FEE8C86E1B68C7E75CAA896EB32F1F47C70855836A6D16FCC1466\
             F6D8FBEC67DB89EC0C08B0E996B83538",
        );
        let key = p521::ecdsa::SigningKey::from_slice(&key).unwrap();
        let expected = bytes(
            "00C328FAFCBD79DD77850370C46325D987CB525569FB63C5D3BC53950E6D4C5F174E25A1EE9017B5D450606ADD152B534931\
             D7D4E8455CC91F9B15BF05EC36E377FA
             00617CCE7CF5064806C467F678D3B4080D6F1CC50AF26CA209417308281B68AF282623EAA63E5B5C0723D8B8C37FF0777B1A\
             20F8CCB1DCCC43997F1EE0E44DA4A67A",
        );
        let signed = sign(Secret::P521(key));
        assert_eq!(p521::ecdsa::Signature::from_der(&signed).unwrap().to_vec(), expected);
    }

    #[test]
    fn parts_of_a_pem_file_are_found() {
        let text =
            "x\n-----BEGIN A-----\n1\n-----END A-----\n-----BEGIN B-----\n2\n-----END B-----\n";
        assert_eq!(block(text, "B"), Some("-----BEGIN B-----\n2\n-----END B-----"));
        assert_eq!(block(text, "C"), None);
        assert_eq!(block("-----END A----------BEGIN A-----", "A"), None);
    }
}
