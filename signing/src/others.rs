//! Signature files that are in a folder beside those that are written or verified: of other models
//! of that folder.
//!
//! They are no part of what is signed, and come after it. They are known by their signature, not by
//! their names: what is called `x.sig` may be anything.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use onnx_container::digest::ContentDigest;
use onnx_container::{Error, ErrorKind};
use onnx_container_files::sha256::hex;

use crate::bundle::{self, Claim};
use crate::keys::PublicKey;
use crate::places::Places;
use crate::statement::{self, Statement};
use crate::terms::{Term, Terms};

/// Whether the file at `path` beneath `root` is a signature by `key`.
pub fn is_signature(root: &Path, path: &str, key: &PublicKey) -> bool {
    path.ends_with(".sig") && bundle::read(&root.join(path), key).is_ok()
}

/// Why the file at `path` is not replaced by a signature of the key called `hint`: it is there and
/// is no signature, or one by another key.
pub fn of_another_key(path: &Path, hint: &str, terms: Terms) -> Option<Error> {
    let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() > 0);
    let what = match Claim::of(path) {
        _ if !is_file => return None,
        None => "no signature that is read here",
        Some(Claim { signer: Some(other), .. }) if other != hint => "a signature by another key",
        Some(_) => return None,
    };
    let reason = format!(
        "this is {what}, and is not replaced: remove it, or give another name with {}",
        terms(&Term::Signature(None))
    );
    Some(Error::new(ErrorKind::AlreadyExists, reason).with_path(path))
}

/// Why the file at `path` is not replaced by a signature of the model of `places`: it is a
/// signature of another model, which is still in the folder. What it says is believed for this
/// alone.
pub fn of_another_model(places: &Places, path: &Path, terms: Terms) -> Option<Error> {
    let model = places.model.as_ref()?;
    let is_there = |name: &String| name != model && places.folder.join(name).is_file();
    let other = match statement::parse(&Claim::of(path)?.payload).ok()? {
        Statement::Content(signed) => Some(signed.model).filter(is_there),
        Statement::Files(signed) if signed.files.contains_key(model) => None,
        Statement::Files(signed) => {
            let mut names = signed.files.into_keys().filter(|name| name.ends_with(".onnx"));
            names.find(is_there)
        }
    }?;
    let name = places.folder.join(Path::new(model).with_extension("sig"));
    let reason = format!(
        "this is the signature of `{other}`, and is not replaced by one of `{model}`: give it another name, such as \
         {}",
        terms(&Term::Signature(Some(&name)))
    );
    Some(Error::new(ErrorKind::AlreadyExists, reason).with_path(path))
}

/// The files that say that they are signatures of the model at `path`, which need not be there:
/// `model.sig` and `NAME.sig` in its folder, and those of its content beside them. Nothing is
/// verified.
pub fn signatures_of(path: &Path) -> Vec<PathBuf> {
    let Some(model) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let mut found = places_of(path);
    found.retain(|signature| says_it_is_of(signature, model));
    found
}

/// Whether the signature at `path` says that it is of this content, which holds however the model
/// is stored. Nothing is verified.
pub fn says_content(path: &Path, digest: &ContentDigest) -> bool {
    let claim = Claim::of(path).and_then(|claim| statement::parse(&claim.payload).ok());
    claim.is_some_and(|statement| match statement {
        Statement::Content(signed) => signed.digest == hex(digest.as_bytes()),
        Statement::Files(_) => false,
    })
}

/// Where signatures of the model at `path` may be.
pub fn places_of(path: &Path) -> Vec<PathBuf> {
    let names: BTreeSet<_> =
        [OsStr::new("model"), path.file_stem().unwrap_or_default()].into_iter().collect();
    let beside = |name: &OsStr, end: &str| {
        let mut file = name.to_owned();
        file.push(end);
        path.with_file_name(file)
    };
    let ends = [".sig", ".digest.sig"];
    names.into_iter().flat_map(|name| ends.map(|end| beside(name, end))).collect()
}

/// Whether the signature at `path` says that it is of the model called `model`.
pub fn says_it_is_of(path: &Path, model: &str) -> bool {
    let claim = Claim::of(path).and_then(|claim| statement::parse(&claim.payload).ok());
    claim.is_some_and(|statement| match statement {
        Statement::Content(signed) => signed.model == model,
        Statement::Files(signed) => signed.files.contains_key(model),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_looked_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for (model, expected) in [("model.onnx", 2), ("m.onnx", 4), ("model", 2), (".onnx", 4)] {
            let names = places_of(&folder.path().join(model));
            assert_eq!(names.len(), expected, "{names:?}");
        }
    }
}
