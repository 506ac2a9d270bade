//! Digests of whole files: the `checksum` of external data, and the names of blobs in a cache.

use std::fs;
use std::path::Path;

use onnx_container::check::{CheckOptions, Finding, Severity, check_model};
use onnx_container::proto::{Message, ModelProto, StringStringEntryProto};
use onnx_container::{
    Container, ErrorKind, Initializer, LoadOptions, MmapChoice, SaveOptions, WeightFiles, traversal,
};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::support::{LAYOUTS, external_everywhere, verifying};

fn check(path: &Path) -> Vec<Finding> {
    check_model(path, CheckOptions::new().digests(true)).unwrap().findings
}

/// The errors of a check that are about digests: whether they have these words, each.
fn assert_wrong(path: &Path, words: &[&str]) {
    let mut found = check(path);
    found.retain(|f| f.severity == Severity::Error && f.error.kind() == ErrorKind::WrongDigest);
    let found: Vec<_> = found.iter().map(|finding| finding.error.to_string()).collect();
    assert_eq!(found.len(), words.len(), "{found:?}");
    assert!(found.iter().zip(words).all(|(found, words)| found.contains(words)), "{found:?}");
}

/// The location and the checksum of every external tensor.
fn checksums(model: &ModelProto) -> Vec<(String, Option<String>)> {
    let value = |entries: &[StringStringEntryProto], key: &str| {
        let entry = entries.iter().find(|entry| *entry.key.as_ref().unwrap() == key)?;
        Some(entry.value.as_ref().unwrap().to_str().unwrap().to_owned())
    };
    let external = traversal::iter(model).map(|(_, tensor)| &tensor.external_data);
    let external = external.filter(|entries| !entries.is_empty());
    external.map(|all| (value(all, "location").unwrap(), value(all, "checksum"))).collect()
}

fn sha1(path: &Path) -> Option<String> {
    Some(format!("{:x}", Sha1::digest(fs::read(path).unwrap())))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn checksums_are_those_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let layouts = LAYOUTS.into_iter().chain([WeightFiles::Sharded { max_bytes: 4000 }]);
    #[cfg(feature = "safetensors")]
    let layouts = layouts.chain([WeightFiles::Safetensors]);
    for (i, layout) in layouts.enumerate() {
        let path = folder.path().join(format!("{i}.onnx"));
        let options = SaveOptions::from(layout).checksums(true);
        let dry = external_everywhere().dry_run(&path, options.clone()).unwrap();
        let saved = external_everywhere().save(&path, options.clone()).unwrap();
        assert_eq!(dry.files, saved.files);
        assert_eq!(dry.model().unwrap(), saved.model().unwrap());
        let written = checksums(&saved.model().unwrap());
        assert_eq!(written.is_empty(), layout == WeightFiles::Embedded);
        for (location, checksum) in written {
            assert_eq!(checksum, sha1(&folder.path().join(location)), "{layout:?}");
        }
        if layout == WeightFiles::Embedded {
            continue;
        }
        // Nothing covers the model itself.
        let loaded = Container::load(&path, verifying()).unwrap();
        assert!(loaded.warnings().iter().any(|warning| warning.kind() == ErrorKind::WrongDigest));
        let found = check(&path);
        let partial = |f: &Finding| {
            let reason = f.error.reason();
            reason.contains("only files that have a checksum")
                && reason.ends_with(&format!("and not `{}`", path.display()))
        };
        assert!(found.iter().any(|f| f.severity == Severity::Advice && partial(f)), "{found:?}");
        assert_wrong(&path, &[]);
        // With digests it is covered, and both are compared.
        let both = external_everywhere().save(&path, options.digests(true)).unwrap();
        Container::load(&path, verifying()).unwrap();
        assert!(!check(&path).iter().any(partial));
        let last = &both.files[0];
        let data = folder.path().join(&last.name);
        flip(&data, usize::try_from(last.bytes).unwrap() - 1);
        assert_wrong(
            &path,
            &[
                "its elements were changed or damaged",
                &format!("{}`: the SHA-1 of the file", last.name),
            ],
        );
        let error = Container::load(&path, verifying()).unwrap_err();
        assert_eq!((error.kind(), error.each().count()), (ErrorKind::WrongDigest, 2));
        flip(&data, usize::try_from(last.bytes).unwrap() - 1);
        // The next save writes none, or new ones.
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        let bare = loaded.save(&path, SaveOptions::from(layout)).unwrap();
        assert!(checksums(&bare.model().unwrap()).iter().all(|(_, checksum)| checksum.is_none()));
    }
}

#[test]
fn files_that_are_kept_or_made_of_other_sources_have_checksums_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    external_everywhere().save(&path, true).unwrap();
    let mut kept = Container::load(&path, MmapChoice::never()).unwrap();
    kept.model_mut().producer_name = Some("another".into());
    let options = SaveOptions::from(WeightFiles::AsLoaded).checksums(true);
    let saved = kept.save(&path, options).unwrap();
    assert!(saved.files.len() == 1 && saved.kept.len() == 1);
    let expected = sha1(&folder.path().join("m.onnx.data"));
    let written = checksums(&saved.model().unwrap());
    assert!(!written.is_empty() && written.iter().all(|(_, found)| *found == expected));
    Container::load(&path, verifying()).unwrap();
    // Lazy weights, and parts in memory.
    let mut lazy = kept.clone();
    for (handle, weight) in kept.iter() {
        let bytes = weight.to_buffer().unwrap();
        let made = Initializer::lazy(weight.dtype(), weight.dims(), move || Ok(bytes.clone()));
        lazy.insert(handle.as_str(), made.unwrap()).unwrap();
    }
    let parts = lazy.to_parts(SaveOptions::new().checksums(true).digests(true)).unwrap();
    let load = verifying().files(parts.files.clone());
    Container::load_bytes(parts.model.clone(), load).unwrap();
    let (name, data) = &parts.files[0];
    let mut changed = data.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    let error = Container::load_bytes(parts.model, verifying().file(name, changed)).unwrap_err();
    assert_eq!((error.kind(), error.each().count()), (ErrorKind::WrongDigest, 2));
    // Weights that were not loaded keep what is said of their file, which stays.
    let bare = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    let saved = bare.save(&path, true).unwrap();
    assert_eq!(checksums(&saved.model().unwrap()), written);
}

#[test]
fn a_checksum_is_40_digits_in_either_case() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saved = external_everywhere().save(&path, SaveOptions::new().checksums(true)).unwrap();
    let with = |change: &dyn Fn(&str) -> String| {
        let mut model = saved.model().unwrap();
        let (_, tensor) = traversal::iter_mut(&mut model)
            .find(|(_, tensor)| !tensor.external_data.is_empty())
            .unwrap();
        let entry = tensor.external_data.last_mut().unwrap();
        entry.value = Some(change(entry.value.as_ref().unwrap().to_str().unwrap()).into());
        fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
    };
    with(&|digits| digits.to_uppercase());
    assert_wrong(&path, &[]);
    with(&|_| String::new());
    assert_wrong(&path, &[]);
    with(&|digits| digits[1..].to_owned());
    assert_wrong(&path, &["is not the 40 hexadecimal digits of a SHA-1"]);
    with(&|digits| digits.replace(|_: char| true, "0"));
    assert_wrong(&path, &["the checksum 0000000000000000000000000000000000000000 is stored"]);
    // Nobody asked.
    Container::load(&path, MmapChoice::never()).unwrap();
    let found = check_model(&path, CheckOptions::new()).unwrap().findings;
    assert!(found.iter().all(|finding| finding.error.kind() != ErrorKind::WrongDigest));
}

#[test]
fn tensors_that_state_different_checksums_of_a_file_are_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saved = external_everywhere().save(&path, SaveOptions::new().checksums(true)).unwrap();
    let wrong = |which: &dyn Fn(usize) -> Option<usize>| {
        let mut model = saved.model().unwrap();
        let tensors = traversal::iter_mut(&mut model).filter(|(_, t)| !t.external_data.is_empty());
        for (number, (_, tensor)) in tensors.enumerate() {
            let value = which(number).map(|digits| format!("{digits:040x}"));
            let entry = tensor.external_data.last_mut().unwrap();
            entry.value = value.map_or(entry.value.clone(), |value| Some(value.into()));
        }
        fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
    };
    let count = checksums(&saved.model().unwrap()).len();
    assert!(count > 15);
    wrong(&|number| Some(number % 3));
    assert_wrong(
        &path,
        &[
            "the checksum 0000000000000000000000000000000000000000 is stored, and 2 more that differ",
        ],
    );
    wrong(&|number| (number > 0).then_some(number));
    let more = format!("0001 is stored, and {} more that differ", count - 2);
    assert_wrong(&path, &[&more]);
    wrong(&|number| (number == count - 1).then_some(7));
    assert_wrong(&path, &["0007 is stored"]);
    wrong(&|number| (number == 0).then_some(7));
    assert_wrong(&path, &["0007 is stored"]);
    wrong(&|_| None);
    assert_wrong(&path, &[]);
}

/// Puts `bytes` into the cache `folder` as huggingface_hub does, and returns the name of the blob.
#[cfg(unix)]
fn put(folder: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let digest = format!("{:x}", Sha256::digest(bytes));
    fs::create_dir_all(folder.join("blobs")).unwrap();
    fs::create_dir_all(folder.join("snapshots/main")).unwrap();
    let blob = folder.join("blobs").join(&digest);
    fs::write(&blob, bytes).unwrap();
    let link = folder.join("snapshots/main").join(name);
    std::os::unix::fs::symlink(Path::new("../../blobs").join(digest), link).unwrap();
    blob
}

#[cfg(unix)]
#[test]
fn blobs_are_compared_with_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let parts = external_everywhere().to_parts(SaveOptions::from(WeightFiles::Embedded)).unwrap();
    let blob = put(folder.path(), "m.onnx", &parts.model);
    let path = folder.path().join("snapshots/main/m.onnx");
    assert_wrong(&path, &[]);
    assert!(!check(&path).iter().any(|f| f.error.reason().contains("no digests are stored")));
    Container::load(&path, verifying()).unwrap();
    let middle = parts.model.len() - 1;
    flip(&blob, middle);
    assert_wrong(&path, &["its name among the blobs of a cache is"]);
    let error = Container::load(&path, verifying()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::WrongDigest, Some(path.as_path())));
    Container::load(&path, MmapChoice::never()).unwrap();
    flip(&blob, middle);
    // Weights are blobs too.
    let parts = external_everywhere().to_parts(true).unwrap();
    fs::remove_file(&path).unwrap();
    put(folder.path(), "m.onnx", &parts.model);
    let (name, data) = &parts.files[0];
    let blob = put(folder.path(), name, data);
    assert_wrong(&path, &[]);
    flip(&blob, 3);
    assert_wrong(&path, &[&format!("{name}`: its SHA-256 is")]);
    // A file elsewhere is not named by its digest.
    let plain = folder.path().join("blobs").join("m.onnx");
    fs::write(&plain, &parts.model).unwrap();
    assert_wrong(&plain, &["no digests are stored"]);
}
