//! Who may read a model may read what replaces it, and nobody else.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use onnx_container::{Container, MmapChoice, SaveOptions, WeightFiles};
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::support::external_everywhere;

const LIST: &str = "system.posix_acl_access";
/// Another user, and a group that is not his.
const OTHER: (u32, u32) = (65534, 65533);

/// A list that lets another user read: the tag, the permissions and the number of each entry.
fn list() -> Vec<u8> {
    let entries =
        [(1, 6, u32::MAX), (2, 4, 7), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(permissions));
        list.extend(u32::to_le_bytes(id));
    }
    list
}

/// The owner, group, mode and list of each file.
type Access = (u32, u32, u32, Option<Vec<u8>>);

fn access(folder: &Path) -> BTreeMap<String, Access> {
    let of = |entry: fs::DirEntry| {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        let mut list = vec![0; 1024];
        let len = getxattr(&path, LIST, &mut list[..]).ok();
        let list = len.map(|len| list[..len].to_vec());
        let access = (metadata.uid(), metadata.gid(), metadata.permissions().mode() & 0o777, list);
        (entry.file_name().into_string().unwrap(), access)
    };
    fs::read_dir(folder).unwrap().map(|entry| of(entry.unwrap())).collect()
}

#[test]
fn the_files_of_a_save_have_the_access_of_those_that_they_replace() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give files to others");
        return;
    }
    let layouts = [
        WeightFiles::Packed,
        WeightFiles::PerTensor,
        WeightFiles::Sharded { max_bytes: 100 },
        WeightFiles::Embedded,
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors,
    ];
    for layout in layouts {
        for with_list in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let container = external_everywhere();
            let options = SaveOptions::from(layout).sync(false).keep_placement(false);
            // Half of the files are there before; the others are as accessible as the model.
            container.save(&path, options.clone()).unwrap();
            for (number, name) in access(folder.path()).into_keys().enumerate() {
                let path = folder.path().join(&name);
                if name != "m.onnx" && number.is_multiple_of(2) {
                    fs::remove_file(path).unwrap();
                    continue;
                }
                chown(&path, Some(OTHER.0), Some(OTHER.1)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
                if with_list && setxattr(&path, LIST, &list(), XattrFlags::empty()).is_err() {
                    eprintln!("SKIPPED in part: no access control lists on this file system");
                    return;
                }
            }
            let saved = container.save(&path, options).unwrap();
            let said =
                |error: &onnx_container::Error| error.reason().contains("was replaced without");
            assert!(!saved.warnings.iter().any(said), "{:?}", saved.warnings);
            let expected = (OTHER.0, OTHER.1, 0o640, with_list.then(list));
            for (name, found) in access(folder.path()) {
                assert_eq!(found, expected, "{layout:?} {name}");
            }
            Container::load(&path, MmapChoice::never()).unwrap();
        }
    }
}

#[test]
fn a_list_that_a_folder_gives_to_new_files_is_not_added() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = SaveOptions::from(WeightFiles::Packed).sync(false).keep_placement(false);
    external_everywhere().save(&path, options.clone()).unwrap();
    let before = access(folder.path());
    if setxattr(folder.path(), "system.posix_acl_default", &list(), XattrFlags::empty()).is_err() {
        eprintln!("SKIPPED: no access control lists on this file system");
        return;
    }
    external_everywhere().save(&path, options.clone()).unwrap();
    assert_eq!(access(folder.path()), before);
    // A new model has what the folder gives.
    external_everywhere().save(folder.path().join("n.onnx"), options).unwrap();
    assert!(access(folder.path())["n.onnx"].3.is_some());
}
