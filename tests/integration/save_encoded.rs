//! Files whose bytes a caller has made, saved beside and below a model; and files that a save
//! removes, because only the model that it replaced needed them.

use std::fs;
use std::path::Path;

use onnx_container::proto::{Message, TensorProto};
use onnx_container::save::{EncodedFile, model_that_needs, other_model_that_needs, save_encoded};
use onnx_container::{Buffer, Container, ErrorKind, MmapChoice, SaveOptions, WeightFiles};

use crate::support::{all_bytes, contents, floats, graph, model};

/// A container of `count` tensors of growing length.
fn many(count: usize) -> Container {
    let weights = (0..count).map(|i| floats(&format!("w{i}"), i, 10 * i + 1)).collect();
    let mut container = Container::new(model(graph(weights, vec![])));
    container.externalize(1).unwrap();
    container
}

/// The bytes of a model with a tensor of four bytes in each of `locations`.
fn model_of(locations: &[&str]) -> Buffer {
    let tensor = |at: &&str| TensorProto::external(*at, TensorProto::UINT8, [4], *at);
    model(graph(locations.iter().map(tensor).collect(), vec![])).encode_to_vec().unwrap().into()
}

/// Saves a model with files of four times `value`, which the user named.
fn save(path: &Path, locations: &[&str], value: u8) -> onnx_container::Result<()> {
    save_with(path, locations, value, true, quick())
}

fn save_with(
    path: &Path,
    locations: &[&str],
    value: u8,
    named: bool,
    options: SaveOptions,
) -> onnx_container::Result<()> {
    let file = |at: &&str| EncodedFile::new(*at, [vec![value; 1].into(), vec![value; 3].into()]);
    let files: Vec<_> = locations.iter().map(|at| file(at).replace_unneeded(named)).collect();
    let warnings = save_encoded(path, &model_of(locations), &files, options)?;
    assert!(warnings.is_empty(), "{warnings:?}");
    Ok(())
}

fn quick() -> SaveOptions {
    SaveOptions::new().sync(false)
}

fn values(path: &Path) -> Vec<Vec<u8>> {
    all_bytes(&Container::load(path, MmapChoice::never()).unwrap())
}

fn folders() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("sub/below")).unwrap();
    folder
}

#[test]
fn files_beside_and_below_a_model_are_replaced_together() {
    for locations in [&[][..], &["w"], &["sub/w"], &["w", "sub/w", "sub/below/w"], &["./sub//w"]] {
        let folder = folders();
        let path = folder.path().join("m.onnx");
        for value in [1, 2] {
            save(&path, locations, value).unwrap();
            assert_eq!(values(&path), vec![vec![value; 4]; locations.len()], "{locations:?}");
        }
        let beside = locations.iter().filter(|at| !at.contains('/')).count();
        // The model, what is beside it, and the folder.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 + beside, "{locations:?}");
    }
}

#[test]
fn a_file_that_may_be_anything_or_that_another_model_needs_is_not_replaced() {
    for (location, named, other, refused) in [
        ("sub/w", true, None, false),
        ("sub/w", false, None, true),
        ("w", true, None, false),
        ("w", false, None, true),
        ("sub/w", true, Some(("n.onnx", "sub/w")), true),
        ("sub/w", true, Some(("sub/n.onnx", "w")), true),
        // A model of the same name in another folder is another one.
        ("sub/w", true, Some(("sub/m.onnx", "w")), true),
        ("sub/below/w", true, Some(("sub/m.onnx", "below/w")), true),
        ("w", true, Some(("n.onnx", "w")), true),
        ("w", true, Some(("sub/m.onnx", "w")), false),
    ] {
        let folder = folders();
        let at = |name: &str| folder.path().join(name);
        fs::write(at(location), [7; 4]).unwrap();
        if let Some((name, needs)) = other {
            fs::write(at(name), &*model_of(&[needs])).unwrap();
        }
        let saved = save_with(&at("m.onnx"), &[location], 2, named, quick());
        let case = format!("{location} {named} {other:?}: {saved:?}");
        assert_eq!(saved.is_err(), refused, "{case}");
        if let Err(error) = saved {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{case}");
            assert!(!at("m.onnx").exists() && fs::read(at(location)).unwrap() == [7; 4], "{case}");
        } else {
            assert_eq!(values(&at("m.onnx")), [[2; 4]], "{case}");
        }
    }
}

#[test]
fn the_model_at_the_path_is_no_other_one_wherever_its_files_are() {
    let folder = folders();
    let (path, file) = (folder.path().join("m.onnx"), folder.path().join("sub/w"));
    save(&path, &["sub/w"], 1).unwrap();
    assert_eq!(other_model_that_needs(&file, &path).unwrap(), None);
    let same_name = folder.path().join("sub/m.onnx");
    let found = other_model_that_needs(&file, &same_name).unwrap();
    assert_eq!(found, model_that_needs(&file).unwrap());
    assert!(found.is_some_and(|found| found.ends_with("m.onnx")));
}

#[test]
fn weights_of_another_model_are_not_replaced_by_a_model() {
    let folder = folders();
    let (path, data) = (folder.path().join("x.onnx"), folder.path().join("x.onnx.data"));
    save(&path, &["x.onnx.data"], 1).unwrap();
    let error = save(&data, &[], 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(values(&path), [[1; 4]]);
}

#[test]
fn places_that_are_no_files_below_the_model_are_refused() {
    let folder = folders();
    let path = folder.path().join("m.onnx");
    fs::write(folder.path().join("file"), "").unwrap();
    let mut cases = vec![
        (vec!["../w"], ErrorKind::UnsafePath),
        (vec!["/tmp/w"], ErrorKind::UnsafePath),
        (vec!["sub"], ErrorKind::UnsafePath),
        (vec!["sub/below"], ErrorKind::UnsafePath),
        (vec!["none/w"], ErrorKind::MissingFile),
        (vec!["w", "./w"], ErrorKind::InvalidArgument),
        (vec!["w", "W"], ErrorKind::InvalidArgument),
        (vec!["M.onnx"], ErrorKind::InvalidArgument),
    ];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("sub", folder.path().join("link")).unwrap();
        cases.push((vec!["link/w"], ErrorKind::UnsafePath));
    }
    for (locations, kind) in cases {
        let error = save(&path, &locations, 1).unwrap_err();
        assert_eq!(error.kind(), kind, "{locations:?}: {error}");
        assert!(!path.exists() && fs::read_dir(folder.path().join("sub")).unwrap().count() == 1);
    }
    save(&path, &["file/w"], 1).unwrap_err();
    let error = save_encoded(&path, &Buffer::default(), &[], quick()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModel);
}

#[test]
fn an_export_in_another_layout_removes_the_files_that_it_supersedes() {
    let layouts = [
        WeightFiles::Packed,
        WeightFiles::Embedded,
        WeightFiles::Sharded { max_bytes: 100 },
        WeightFiles::PerTensor,
    ];
    for first in layouts {
        for second in layouts {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            for layout in [first, second, first, second] {
                let options = SaveOptions::from(layout).sync(false).remove_superseded(true);
                let saved = many(3).save(&path, options).unwrap();
                let files = contents(folder.path()).len();
                let kept = saved.kept.len();
                assert_eq!(files, saved.files.len() + kept, "{first:?} {second:?}");
                assert!(saved.left_behind.is_empty());
                assert_eq!(values(&path), all_bytes(&many(3)), "{first:?} {second:?}");
            }
        }
    }
}

#[test]
fn only_files_of_default_names_that_nobody_needs_are_removed() {
    let embedded = || SaveOptions::from(WeightFiles::Embedded).sync(false);
    for (data_name, protected, copied, stays) in [
        (None, false, false, false),
        (Some("mine.bin"), false, false, true),
        (Some("m-calibrated.weight"), false, false, true),
        (None, true, false, true),
        (None, false, true, true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let mut options = quick();
        if let Some(name) = data_name {
            options = options.data_name(name);
        }
        many(2).save(&path, options).unwrap();
        let data = folder.path().join(data_name.unwrap_or("m.onnx.data"));
        if copied {
            fs::copy(&path, folder.path().join("n.onnx")).unwrap();
        }
        let mut options = embedded().remove_superseded(true);
        if protected {
            options = options.protect([&data]);
        }
        let saved = many(2).save(&path, options).unwrap();
        let case = format!("{data_name:?} {protected} {copied}");
        assert_eq!(data.exists(), stays, "{case}");
        let removed = if stays { Vec::new() } else { vec![data.clone()] };
        assert_eq!(saved.removed, removed, "{case}");
        assert_eq!(saved.left_behind.is_empty(), !stays || copied, "{case}");
    }
    // The files of safetensors may be the checkpoint.
    #[cfg(feature = "safetensors")]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        many(2).save(&path, SaveOptions::from(WeightFiles::Safetensors).sync(false)).unwrap();
        many(2).save(&path, embedded().remove_superseded(true)).unwrap();
        assert!(folder.path().join("m.safetensors").exists());
    }
    // What a model refers to that was not loaded is needed.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    save(&path, &["m.onnx.data"], 1).unwrap();
    let model = model_of(&["m.onnx.data"]);
    save_encoded(&path, &model, &[], quick().remove_superseded(true)).unwrap();
    assert_eq!(values(&path), [[1; 4]]);
    save_encoded(&path, &model_of(&[]), &[], quick().remove_superseded(true)).unwrap();
    assert_eq!(contents(folder.path()).len(), 1);
}

#[cfg(unix)]
#[test]
fn a_file_that_the_new_model_reaches_by_a_link_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    save(&path, &["m.onnx.data"], 1).unwrap();
    std::os::unix::fs::symlink("m.onnx.data", folder.path().join("m.onnx_data")).unwrap();
    let options = quick().remove_superseded(true);
    save_encoded(&path, &model_of(&["m.onnx_data"]), &[], options).unwrap();
    assert_eq!(fs::read(folder.path().join("m.onnx.data")).unwrap(), [1; 4]);
}

#[test]
fn nothing_is_removed_while_the_save_of_a_neighbour_cannot_be_completed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    save(&path, &["m.onnx.data"], 1).unwrap();
    fs::write(folder.path().join(".n.onnx.switching"), "cut off").unwrap();
    let options = quick().remove_superseded(true);
    let warnings = save_encoded(&path, &model_of(&[]), &[], options).unwrap();
    assert!(folder.path().join("m.onnx.data").exists());
    assert!(
        warnings.iter().any(|it| it.reason().contains("old weights files stay")),
        "{warnings:?}"
    );
    many(2).save(&path, quick().data_name("m.onnx.data")).unwrap();
    let embedded = SaveOptions::from(WeightFiles::Embedded).sync(false).remove_superseded(true);
    let saved = many(2).save(&path, embedded).unwrap();
    let data = folder.path().join("m.onnx.data");
    assert_eq!((saved.removed, saved.left_behind), (vec![], vec![data.clone()]));
    assert!(data.exists());
}

#[test]
fn files_below_are_not_replaced_beside_an_interrupted_save() {
    let folder = folders();
    fs::write(folder.path().join("sub/w.bin"), [7; 4]).unwrap();
    fs::write(folder.path().join("sub/.n.onnx.switching"), "cut off").unwrap();
    let error = save(&folder.path().join("m.onnx"), &["sub/w.bin"], 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

#[test]
fn two_files_with_one_name_in_the_staging_folder_are_refused() {
    let folder = folders();
    let error = save(&folder.path().join("m.onnx"), &["sub/w", "sub%2Fw"], 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn the_suffix_of_the_packed_file_is_no_name_that_the_caller_gave() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = || quick().data_suffix(".weight");
    let stranger = folder.path().join("m.onnx.weight");
    fs::write(&stranger, "precious").unwrap();
    let error = many(2).save(&path, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    fs::remove_file(&stranger).unwrap();
    for _ in 0..2 {
        many(2).save(&path, options().keep_placement(false)).unwrap();
        assert!(stranger.exists() && contents(folder.path()).len() == 2);
    }
}
