//! A save where nothing changes writes nothing, and says so.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use onnx_container::{Container, LoadOptions, SaveOptions, Saved, WeightFiles};

use crate::support::{both_choices, container_of};

/// A second before the files are written: what is written again has another time.
fn set_old(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let file = fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }
}

/// What tells whether the files of a folder were written again.
fn state(folder: &Path) -> Vec<(String, u64, SystemTime)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            #[cfg(unix)]
            let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
            #[cfg(not(unix))]
            let inode = 0;
            (entry.file_name().into_string().unwrap(), inode, metadata.modified().unwrap())
        })
        .collect();
    files.sort();
    files
}

fn is_said(saved: &Saved, unchanged: bool) {
    assert_eq!(saved.unchanged, unchanged);
}

#[test]
fn a_save_in_place_where_nothing_changes_writes_nothing() {
    for (first, then) in [
        (WeightFiles::Packed, WeightFiles::Packed),
        (WeightFiles::Packed, WeightFiles::AsLoaded),
        (WeightFiles::PerTensor, WeightFiles::AsLoaded),
        (WeightFiles::PerTensor, WeightFiles::PerTensor),
        (WeightFiles::Sharded { max_bytes: 2000 }, WeightFiles::Sharded { max_bytes: 2000 }),
        (WeightFiles::Embedded, WeightFiles::Embedded),
    ] {
        for choice in both_choices() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            container_of(3).save(&path, first).unwrap();
            set_old(folder.path());
            let before = state(folder.path());
            let loaded = Container::load(&path, choice).unwrap();
            let planned = loaded.dry_run(&path, then).unwrap();
            assert!(planned.unchanged, "{first:?} {then:?} {choice:?}: {planned:?}");
            for sync in [true, false] {
                let saved = loaded.save(&path, SaveOptions::from(then).sync(sync)).unwrap();
                is_said(&saved, true);
            }
            assert_eq!(state(folder.path()), before, "{first:?} {then:?}");
            // What is to be the same is the file that is there.
            let error = loaded.save(&path, SaveOptions::from(then).overwrite(false)).unwrap_err();
            assert_eq!(error.kind(), onnx_container::ErrorKind::AlreadyExists);
        }
    }
}

#[test]
fn what_changes_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("m.onnx"), folder.path().join("n.onnx"));
    container_of(3).save(&path, WeightFiles::Packed).unwrap();
    let load = || Container::load(&path, LoadOptions::new()).unwrap();
    let weights = folder.path().join("m.onnx.data");
    let cases: [(&str, &dyn Fn() -> Saved); 7] = [
        ("the model", &|| {
            let mut container = load();
            container.model_mut().producer_name = Some("another".into());
            container.save(&path, WeightFiles::Packed).unwrap()
        }),
        ("the layout", &|| load().save(&path, WeightFiles::Embedded).unwrap()),
        ("the place of the weights", &|| {
            load().save(&path, SaveOptions::from(WeightFiles::Packed).data_name("w")).unwrap()
        }),
        ("a weight", &|| {
            let bytes = fs::read(&weights).unwrap();
            let container = load();
            fs::write(&weights, [&bytes[..bytes.len() - 1], &[!bytes[bytes.len() - 1]]].concat())
                .unwrap();
            container.save(&path, WeightFiles::Packed).unwrap()
        }),
        ("the padding", &|| {
            let mut bytes = fs::read(&weights).unwrap();
            bytes[1200] = 1;
            fs::write(&weights, bytes).unwrap();
            load()
                .save(&path, SaveOptions::from(WeightFiles::Packed).keep_placement(false))
                .unwrap()
        }),
        ("the path", &|| load().save(&other, WeightFiles::Packed).unwrap()),
        ("the file, which another program wrote to", &|| {
            let container = load();
            let mut bytes = fs::read(&path).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(&path, bytes).unwrap();
            container.save(&path, WeightFiles::Packed).unwrap()
        }),
    ];
    for (what, save) in cases {
        for entry in fs::read_dir(folder.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        container_of(3).save(&path, WeightFiles::Packed).unwrap();
        assert!(!save().unchanged, "{what}");
    }
}

/// A save replaces links, also where they lead to the same bytes.
#[cfg(unix)]
#[test]
fn a_link_to_the_same_model_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("m.onnx"), folder.path().join("l.onnx"));
    container_of(2).save(&path, WeightFiles::Embedded).unwrap();
    std::os::unix::fs::symlink("m.onnx", &link).unwrap();
    let saved = Container::load(&link, LoadOptions::new())
        .unwrap()
        .save(&link, WeightFiles::Embedded)
        .unwrap();
    assert!(!saved.unchanged && !link.is_symlink());
}
