//! The file of a signature: a Sigstore bundle with a DSSE envelope, for a key that the reader has.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use onnx_container::{Error, ErrorKind, Result};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::keys::{PrivateKey, PublicKey};
use crate::object::{Object, object, objects, optional};
use crate::regular;

/// The longest signature file that is read, in bytes: room for some 300,000 files.
pub const MOST_BYTES: u64 = 64 << 20;

const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// What is signed: the type of the payload, and the payload, so that neither can be taken for the
/// other.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {PAYLOAD_TYPE} {} ", PAYLOAD_TYPE.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// The bundle that holds `payload` with its signature by `key`, as JSON.
pub fn write(payload: &[u8], key: &PrivateKey) -> Result<Vec<u8>> {
    let signature = key.sign(&signed_bytes(payload))?;
    let written = Written {
        media_type: MEDIA_TYPE,
        verification_material: WrittenMaterial {
            public_key: WrittenKey { hint: key.public_key().fingerprint()? },
            tlog_entries: [],
        },
        dsse_envelope: WrittenEnvelope {
            payload: STANDARD.encode(payload),
            payload_type: PAYLOAD_TYPE,
            signatures: [WrittenSignature { sig: STANDARD.encode(signature), keyid: "" }],
        },
    };
    let mut bytes = serde_json::to_vec(&written).map_err(Error::internal)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The payload of the bundle at `path`, which `key` signed.
pub fn read(path: &Path, key: &PublicKey) -> Result<Vec<u8>> {
    let hint = key.fingerprint()?;
    verified(&bytes(path)?, key, &hint).map_err(|Refused(kind, reason)| error(path, kind, reason))
}

/// What a bundle says of itself. Nothing proves it.
pub struct Claim {
    pub payload: Vec<u8>,
    /// The name of the key that signed it, or that this was a certificate, where it says so.
    pub signer: Option<String>,
}

impl Claim {
    /// That of the bundle at `path`; `None` for another file.
    pub fn of(path: &Path) -> Option<Self> {
        let Object(bundle): Object<Bundle> = serde_json::from_slice(&bytes(path).ok()?).ok()?;
        let payload = STANDARD.decode(bundle.dsse_envelope.payload).ok()?;
        let material = bundle.verification_material;
        let signer = match material.is_by_certificate() {
            true => Some("a certificate".to_owned()),
            false => material.public_key.and_then(|key| key.hint).filter(|hint| !hint.is_empty()),
        };
        Some(Self { payload, signer })
    }
}

/// Why a bundle is not one of what a key signed.
#[derive(Debug)]
struct Refused(ErrorKind, String);

/// An error about the signature file at `path`.
pub fn error(path: &Path, kind: ErrorKind, reason: String) -> Error {
    Error::new(kind, reason).with_path(path)
}

fn bytes(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    regular::read(path, MOST_BYTES)?.ok_or_else(|| {
        let reason = format!("longer than {MOST_BYTES} bytes, the most that a signature may have");
        error(path, ErrorKind::TooLarge, reason)
    })
}

/// Whether `bytes` are how a bundle begins that [`write`] makes, and the whole of it where they are
/// fewer.
pub fn begins(bytes: &[u8]) -> bool {
    let head = format!("{{\"mediaType\":\"{MEDIA_TYPE}\",");
    let len = bytes.len().min(head.len());
    bytes.get(..len) == head.as_bytes().get(..len)
}

/// The payload of the bundle in `bytes`, if `key`, which is called `hint`, signed it.
fn verified(bytes: &[u8], key: &PublicKey, hint: &str) -> Result<Vec<u8>, Refused> {
    let malformed = |reason: String| Refused(ErrorKind::Decode, reason);
    let Object(bundle): Object<Bundle> = serde_json::from_slice(bytes)
        .map_err(|error| malformed(format!("not a signature bundle: {error}")))?;
    if bundle.media_type != MEDIA_TYPE {
        return Err(malformed(format!(
            "the bundle is of the type {:?}, not {MEDIA_TYPE}",
            bundle.media_type
        )));
    }
    let material = bundle.verification_material;
    let by_certificate = material.is_by_certificate();
    let Some(named) = material.public_key else {
        let how = if by_certificate { "a certificate" } else { "no key" };
        let reason = format!("this is signed by {how}, and only signatures by keys are verified");
        return Err(Refused(ErrorKind::Unsupported, reason));
    };
    if by_certificate {
        return Err(malformed("both a key and a certificate are named".to_owned()));
    }
    // Signatures by tools before 1.1 have no hint.
    if let Some(named) = named.hint.filter(|named| !named.is_empty() && named != hint) {
        let reason = format!(
            "signed by another key: the SHA-256 of its PEM is {named:?}, that of the given one {hint}"
        );
        return Err(Refused(ErrorKind::OtherKey, reason));
    }
    let envelope = bundle.dsse_envelope;
    if envelope.payload_type != PAYLOAD_TYPE {
        return Err(malformed(format!(
            "the payload is of the type {:?}, not {PAYLOAD_TYPE}",
            envelope.payload_type
        )));
    }
    let [signature] = envelope.signatures.as_slice() else {
        let found = envelope.signatures.len();
        return Err(malformed(format!("{found} signatures where there has to be one")));
    };
    let decoded = |what, text: &str| {
        STANDARD.decode(text).map_err(|error| malformed(format!("the {what}: {error}")))
    };
    let (payload, sig) =
        (decoded("payload", &envelope.payload)?, decoded("signature", &signature.sig)?);
    if !key.verifies(&signed_bytes(&payload), &sig) {
        let reason = format!("the signature is not one of this payload by the {} key", key.curve());
        return Err(Refused(ErrorKind::WrongDigest, reason));
    }
    Ok(payload)
}

/// A bundle as it is read. What the format has besides is for other ways to sign, or for logs that
/// are not asked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    #[serde(deserialize_with = "object")]
    verification_material: Material,
    #[serde(deserialize_with = "object")]
    dsse_envelope: Envelope,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    #[serde(default, deserialize_with = "optional")]
    public_key: Option<Key>,
    x509_certificate_chain: Option<IgnoredAny>,
    certificate: Option<IgnoredAny>,
}

impl Material {
    fn is_by_certificate(&self) -> bool {
        self.x509_certificate_chain.is_some() || self.certificate.is_some()
    }
}

#[derive(Deserialize)]
struct Key {
    hint: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    #[serde(deserialize_with = "objects")]
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    sig: String,
}

/// A bundle as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    media_type: &'static str,
    verification_material: WrittenMaterial,
    dsse_envelope: WrittenEnvelope,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMaterial {
    public_key: WrittenKey,
    tlog_entries: [(); 0],
}

#[derive(Serialize)]
struct WrittenKey {
    hint: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenEnvelope {
    payload: String,
    payload_type: &'static str,
    signatures: [WrittenSignature; 1],
}

#[derive(Serialize)]
struct WrittenSignature {
    sig: String,
    keyid: &'static str,
}

#[cfg(test)]
mod tests {
    use p256::pkcs8::{EncodePrivateKey, LineEnding};

    use super::*;

    #[test]
    fn a_signature_is_of_every_bit_of_its_payload() {
        let secret = p256::SecretKey::from_slice(&[7; 32]).unwrap();
        let key = PrivateKey::from_pem(&secret.to_pkcs8_pem(LineEnding::LF).unwrap()).unwrap();
        let (public, hint) = (key.public_key(), key.public_key().fingerprint().unwrap());
        let payload = br#"{"_type":"https://in-toto.io/Statement/v1"}"#;
        let good: serde_json::Value =
            serde_json::from_slice(&write(payload, &key).unwrap()).unwrap();
        let read = |bundle: &serde_json::Value| {
            verified(bundle.to_string().as_bytes(), &public, &hint)
                .map_err(|Refused(_, reason)| reason)
        };
        assert_eq!(read(&good).unwrap(), payload);
        for field in ["/dsseEnvelope/payload", "/dsseEnvelope/signatures/0/sig"] {
            let text = good.pointer(field).unwrap().as_str().unwrap();
            let bytes = STANDARD.decode(text).unwrap();
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1 << (at % 8);
                let mut bad = good.clone();
                *bad.pointer_mut(field).unwrap() = STANDARD.encode(&other).into();
                let reason = read(&bad).unwrap_err();
                assert!(reason.starts_with("the signature is not one"), "{field} {at}: {reason}");
            }
            let mut bad = good.clone();
            *bad.pointer_mut(field).unwrap() = STANDARD.encode([&bytes[..], &[0]].concat()).into();
            assert!(read(&bad).is_err(), "{field}: a byte more");
        }
    }
}
