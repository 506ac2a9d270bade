//! A save whose weights are unchanged on disk writes the model file and nothing else.

use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ndarray::{Array1, array};
use onnx_container::external_data::ExternalData;
use onnx_container::proto::{Message, ModelProto, StringStringEntryProto, TensorProto};
use onnx_container::{
    Alignment, Container, ErrorKind, MmapChoice, SaveOptions, Saved, WeightFiles, traversal,
};
use tempfile::TempDir;

use crate::support::{all_bytes, assert_same, both_choices, contents, graph, model};

/// Data that no packer of ours would place so: `(name, offset, length)`. In reverse order, at odd
/// offsets, tied, one inside another, empty.
const FOREIGN: &[(&str, u64, i64)] = &[
    ("last", 8001, 300),
    ("tied", 1003, 2000),
    ("first", 7, 90),
    ("tied_again", 1003, 2000),
    ("inside", 1500, 10),
    ("empty", 4000, 0),
];

/// Writes a model of [`FOREIGN`] and its data file, which nobody has written to for an hour.
fn foreign(folder: &Path, location: &str) -> PathBuf {
    let tensors = FOREIGN.iter().map(|(name, offset, len)| {
        let mut tensor = TensorProto::external(*name, TensorProto::UINT8, [*len], location);
        let entry = |key: &str, value: String| StringStringEntryProto::new(key, value);
        tensor.external_data.push(entry("offset", offset.to_string()));
        tensor.external_data.push(entry("length", len.to_string()));
        tensor
    });
    let path = folder.join("m.onnx");
    fs::write(&path, model(graph(tensors.collect(), vec![])).encode_to_vec().unwrap()).unwrap();
    let data = folder.join(location);
    fs::create_dir_all(data.parent().unwrap()).unwrap();
    fs::write(&data, (0..9000_u32).map(|i| (i * i % 251) as u8).collect::<Vec<_>>()).unwrap();
    settle(&data);
    path
}

/// Lets the file look as if it was written an hour ago. No program can set when it was changed, so
/// that it waits until the clock of the file system goes on.
fn settle(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    std::thread::sleep(Duration::from_millis(30));
}

/// What changes when a file is written, or another one takes its place.
fn state(path: &Path) -> (u64, SystemTime, Vec<u8>) {
    let meta = fs::metadata(path).unwrap();
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&meta);
    #[cfg(not(unix))]
    let inode = 0;
    (inode, meta.modified().unwrap(), fs::read(path).unwrap())
}

/// The entries of all external tensors, by name.
fn entries(model: &ModelProto) -> Vec<(String, String, u64, Option<u64>)> {
    let mut all = Vec::new();
    traversal::tensors(model, |_, tensor| {
        if tensor.data_location == Some(TensorProto::EXTERNAL) {
            let data = ExternalData::parse(tensor)?;
            let name = tensor.name.as_ref().unwrap().to_string();
            all.push((name, data.location, data.offset, data.length));
        }
        Ok(())
    })
    .unwrap();
    all.sort();
    all
}

/// What a change to the graph does: another order of the tensors, one of them in a second place.
fn rearrange(container: &mut Container) {
    let graph = container.model_mut().graph.as_mut().unwrap();
    graph.initializer.reverse();
    let mut twice = graph.initializer[0].clone();
    twice.name = Some("twice".into());
    graph.initializer.push(twice);
}

fn names(files: &[onnx_container::save::SavedFile]) -> Vec<&str> {
    files.iter().map(|file| file.name.as_str()).collect()
}

/// Saves, and sees that a dry run said so and that just the model was written.
#[track_caller]
fn save_model_only(container: &Container, path: &Path, options: &SaveOptions, kept: &[&str]) {
    let folder = path.parent().unwrap();
    let before: Vec<_> = kept.iter().map(|name| state(&folder.join(name))).collect();
    let planned = container.dry_run(path, options.clone()).unwrap();
    let saved = container.save(path, options.clone()).unwrap();
    for Saved { files, bytes, kept: found, left_behind, .. } in [&planned, &saved] {
        assert_eq!(names(files), [path.file_name().unwrap().to_str().unwrap()]);
        assert_eq!(*bytes, fs::metadata(path).unwrap().len());
        assert_eq!(names(found), kept);
        let lens = found.iter().map(|file| file.bytes);
        assert!(lens.eq(before.iter().map(|(_, _, bytes)| bytes.len() as u64)));
        assert!(left_behind.is_empty(), "{left_behind:?}");
    }
    assert_eq!(planned.model().unwrap(), saved.model().unwrap());
    let after: Vec<_> = kept.iter().map(|name| state(&folder.join(name))).collect();
    assert_eq!(after, before);
    let hidden = contents(folder).into_keys().find(|name| name.starts_with('.'));
    assert_eq!(hidden, None, "no staging folder is left");
    for mmap in both_choices() {
        let again = Container::load(path, mmap).unwrap();
        assert_same(&again, container);
    }
}

/// Saves, and sees that everything was written and is right.
#[track_caller]
fn save_all(container: &Container, path: &Path, options: &SaveOptions) -> Saved {
    let before = all_bytes(container);
    let planned = container.dry_run(path, options.clone()).unwrap();
    let saved = container.save(path, options.clone()).unwrap();
    assert_eq!((saved.files.len(), saved.kept.len()), (2, 0));
    assert_eq!(
        (planned.files, planned.kept, planned.bytes),
        (saved.files.clone(), vec![], saved.bytes)
    );
    assert_eq!(all_bytes(&Container::load(path, MmapChoice::never()).unwrap()), before);
    saved
}

#[test]
fn a_packed_file_is_kept() {
    for mmap in both_choices() {
        let folder = tempfile::tempdir().unwrap();
        let path = foreign(folder.path(), "elsewhere.bin");
        let anew = SaveOptions::new().keep_placement(false);
        Container::load(&path, mmap).unwrap().save(&path, anew).unwrap();
        let data = folder.path().join("m.onnx.data");
        settle(&data);
        let mut container = Container::load(&path, mmap).unwrap();
        let before = entries(&container.dry_run(&path, true).unwrap().model().unwrap());
        rearrange(&mut container);
        save_model_only(&container, &path, &SaveOptions::new(), &["m.onnx.data"]);
        // Once more, from the same container and over the model that was written.
        save_model_only(&container, &path, &SaveOptions::new(), &["m.onnx.data"]);
        let after = entries(&container.dry_run(&path, true).unwrap().model().unwrap());
        let twice = after.iter().filter(|entry| entry.0 != "twice").cloned().collect::<Vec<_>>();
        assert_eq!(twice, before);
    }
}

#[test]
fn a_data_file_of_another_layout_is_kept() {
    for location in ["m.onnx.data", "model.onnx_data", "sub/deep/w.bin"] {
        for mmap in both_choices() {
            for layout in [WeightFiles::Packed, WeightFiles::AsLoaded] {
                let folder = tempfile::tempdir().unwrap();
                let path = foreign(folder.path(), location);
                let before =
                    entries(&ModelProto::decode(&fs::read(&path).unwrap().into()).unwrap());
                let mut container = Container::load(&path, mmap).unwrap();
                save_model_only(&container, &path, &layout.into(), &[location]);
                let after = ModelProto::decode(&fs::read(&path).unwrap().into()).unwrap();
                let mut before = before;
                // onnxruntime reads no bytes only at offset 0.
                before.iter_mut().find(|entry| entry.0 == "empty").unwrap().2 = 0;
                // A length of 0 reads as none.
                assert_eq!(entries(&after), before, "{location} {layout:?}");
                rearrange(&mut container);
                save_model_only(&container, &path, &layout.into(), &[location]);
            }
        }
    }
}

#[test]
fn a_data_file_that_onnx_wrote_is_kept() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/external");
    let folder = tempfile::tempdir().unwrap();
    for name in ["model.onnx", "model.onnx.data"] {
        fs::copy(source.join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join("model.onnx");
    let container = Container::load(&path, both_choices()[0]).unwrap();
    assert!(!container.is_empty());
    save_model_only(&container, &path, &SaveOptions::new(), &["model.onnx.data"]);
}

#[test]
fn a_data_file_given_by_name_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = foreign(folder.path(), "model.onnx_data");
    let container = Container::load(&path, both_choices()[0]).unwrap();
    let named = |name: &str| SaveOptions::new().data_name(name);
    save_model_only(&container, &path, &named("model.onnx_data"), &["model.onnx_data"]);
    // Beside it, also for another model: nothing of the first is replaced.
    let other = folder.path().join("other.onnx");
    save_model_only(&container, &other, &named("model.onnx_data"), &["model.onnx_data"]);
    // Another model has weights of its own otherwise.
    let saved = save_all(&container, &folder.path().join("n.onnx"), &SaveOptions::new());
    assert_eq!(names(&saved.files), ["n.onnx.data", "n.onnx"]);
    let saved = save_all(&container, &path, &named("w.bin"));
    assert_eq!(names(&saved.files), ["w.bin", "m.onnx"]);
}

#[test]
fn only_the_file_that_the_replaced_model_refers_to_is_the_targets() {
    // The model at the target refers to another file too, or to none of that name.
    for other in [&["w.bin", "more.bin"][..], &["more.bin"]] {
        let folder = tempfile::tempdir().unwrap();
        let path = foreign(folder.path(), "w.bin");
        let container = Container::load(&path, both_choices()[0]).unwrap();
        let refer =
            |location: &&str| TensorProto::external(*location, TensorProto::UINT8, [1], *location);
        let proto = model(graph(other.iter().map(refer).collect(), vec![]));
        fs::write(&path, proto.encode_to_vec().unwrap()).unwrap();
        save_all(&container, &path, &SaveOptions::new());
    }
}

/// Something that happens to the data file between the load and the save.
type Accident = (&'static str, fn(&Path));

const ACCIDENTS: &[Accident] = &[
    ("its time is another", |data| {
        File::options().write(true).open(data).unwrap().set_modified(SystemTime::now()).unwrap();
    }),
    ("it is gone", |data| fs::remove_file(data).unwrap()),
    ("a file of other bytes took its place", |data| {
        let modified = fs::metadata(data).unwrap().modified().unwrap();
        let new = data.with_extension("new");
        fs::write(&new, vec![1; 9000]).unwrap();
        File::options().write(true).open(&new).unwrap().set_modified(modified).unwrap();
        fs::rename(new, data).unwrap();
    }),
    ("a shorter one took its place", |data| {
        fs::rename(data, data.with_extension("old")).unwrap();
        fs::write(data, [0; 100]).unwrap();
    }),
    ("a folder took its place", |data| {
        fs::rename(data, data.with_extension("old")).unwrap();
        fs::create_dir(data).unwrap();
    }),
];

/// What only a container that was read, not mapped, survives.
const ACCIDENTS_IN_PLACE: &[Accident] = &[
    ("it was cut", |data| File::options().write(true).open(data).unwrap().set_len(100).unwrap()),
    ("it was written to", |data| {
        File::options().write(true).open(data).unwrap().write_all(&[9; 50]).unwrap();
    }),
    #[cfg(unix)]
    ("it was written to and given its old time", |data| {
        let modified = fs::metadata(data).unwrap().modified().unwrap();
        let mut file = File::options().write(true).open(data).unwrap();
        file.write_all(&[9; 50]).unwrap();
        file.set_modified(modified).unwrap();
    }),
];

/// How files are loaded that the test then replaces or deletes: mapped, where that can be done.
fn replaceable() -> MmapChoice {
    both_choices()[usize::from(cfg!(windows))]
}

#[test]
fn a_file_that_changed_is_not_kept() {
    let [map, read] = both_choices();
    // On Windows no program replaces or deletes a file that is mapped.
    let of_mapped = if cfg!(windows) { &[] } else { ACCIDENTS };
    let cases = [(map, of_mapped), (read, ACCIDENTS), (read, ACCIDENTS_IN_PLACE)];
    for (mmap, (what, accident)) in
        cases.into_iter().flat_map(|(mmap, all)| all.iter().map(move |accident| (mmap, accident)))
    {
        let folder = tempfile::tempdir().unwrap();
        let path = foreign(folder.path(), "m.onnx.data");
        let container = Container::load(&path, mmap).unwrap();
        let data = folder.path().join("m.onnx.data");
        assert_eq!(container.dry_run(&path, true).unwrap().kept.len(), 1, "{what}: before");
        accident(&data);
        let before = contents(folder.path());
        let error = container.save(&path, WeightFiles::AsLoaded).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CannotKeep, "{what}: {error}");
        assert_eq!(error.path(), Some(data.as_path()), "{what}: {error}");
        assert_eq!(error.tensor(), Some("last"), "the first of the file: {what}: {error}");
        assert_eq!(contents(folder.path()), before, "{what}");
        if data.is_dir() {
            let error = container.save(&path, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnsafePath, "as without weights there: {error}");
        } else {
            save_all(&container, &path, &SaveOptions::new());
        }
    }
}

#[test]
fn a_file_read_right_after_its_last_write_is_kept_only_after_a_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let path = foreign(folder.path(), "m.onnx.data");
    let data = folder.path().join("m.onnx.data");
    // As new as it can be: a write at the next moment may leave this very time.
    File::options().write(true).open(&data).unwrap().set_modified(SystemTime::now()).unwrap();
    let [map, read] = both_choices();
    let kept =
        |mmap| Container::load(&path, mmap).unwrap().dry_run(&path, true).unwrap().kept.len();
    assert_eq!((kept(map), kept(read)), (1, 0));
    // A caller that asks for them to stay has their bytes compared.
    let container = Container::load(&path, read).unwrap();
    save_model_only(&container, &path, &WeightFiles::AsLoaded.into(), &["m.onnx.data"]);
}

#[test]
fn a_file_that_is_lost_while_the_model_is_written_is_written_after_all() {
    let layouts = [WeightFiles::Packed, WeightFiles::AsLoaded];
    for (layout, sync) in layouts.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
        let folder = tempfile::tempdir().unwrap();
        let path = foreign(folder.path(), "m.onnx.data");
        let container = Container::load(&path, replaceable()).unwrap();
        let before = fs::read(&path).unwrap();
        let data = folder.path().join("m.onnx.data");
        // The model is being written: what to keep was decided.
        let options = SaveOptions::from(layout).sync(sync).progress(move |_| {
            fs::write(data.with_extension("new"), [0; 9000]).unwrap();
            fs::rename(data.with_extension("new"), &data).unwrap();
            ControlFlow::Continue(())
        });
        if layout == WeightFiles::Packed {
            let saved = container.save(&path, options).unwrap();
            assert_eq!(names(&saved.files), ["m.onnx.data", "m.onnx"]);
            let again = Container::load(&path, MmapChoice::never()).unwrap();
            assert_same(&again, &container);
        } else {
            let error = container.save(&path, options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CannotKeep, "{error}");
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        assert_eq!(contents(folder.path()).len(), 2);
    }
}

#[test]
fn a_file_without_the_requested_alignment_is_not_kept() {
    let dense = Alignment::DENSE;
    let eight = Alignment::new(8).unwrap();
    let page = Alignment::PAGE;
    let default = SaveOptions::new();
    // Offsets of ours are multiples of 256, and of 4096 for long tensors; a caller that asks for no
    // more than that has it already.
    let cases = [
        (default.clone(), true),
        (default.clone().alignment(dense), true),
        (default.clone().alignment(Alignment::DEVICE), true),
        (default.clone().alignment(page), false),
        (default.clone().alignment_large(page), true),
        (default.clone().alignment_large(Alignment::new(1 << 16).unwrap()), false),
        (default.clone().alignment(eight).alignment_large(eight), true),
        (default.clone().keep_placement(false), false),
    ];
    for (options, keeps) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let lens = [300, (1 << 20) + 1, 5];
        let tensor = |(i, len): (usize, &i64)| {
            TensorProto::external(format!("w{i}"), TensorProto::UINT8, [*len], format!("#{i}"))
        };
        let tensors = lens.iter().enumerate().map(tensor).collect();
        let mut container = Container::new(model(graph(tensors, vec![])));
        for (i, len) in lens.iter().enumerate() {
            container.insert(&format!("#{i}"), Array1::from_elem(*len as usize, i as u8)).unwrap();
        }
        container.save(&path, true).unwrap();
        let loaded = Container::load(&path, both_choices()[0]).unwrap();
        if keeps {
            save_model_only(&loaded, &path, &options, &["m.onnx.data"]);
        } else {
            save_all(&loaded, &path, &options);
        }
    }
    // Odd offsets are no alignment at all.
    for (alignment, keeps) in [(dense, true), (Alignment::new(2).unwrap(), false)] {
        let folder = tempfile::tempdir().unwrap();
        let path = foreign(folder.path(), "m.onnx.data");
        let loaded = Container::load(&path, both_choices()[0]).unwrap();
        let plan = loaded.dry_run(&path, SaveOptions::new().alignment(alignment)).unwrap();
        assert_eq!(plan.kept.len(), usize::from(keeps), "{alignment:?}");
    }
}

#[test]
fn one_tensor_from_another_file_makes_a_save_write_all() {
    for mmap in both_choices() {
        let folder = tempfile::tempdir().unwrap();
        let path = foreign(folder.path(), "m.onnx.data");
        let mut container = Container::load(&path, mmap).unwrap();
        let new = TensorProto::external("new", TensorProto::FLOAT, [2], "#new");
        container.model_mut().graph.as_mut().unwrap().initializer.push(new);
        container.insert("#new", array![1.0_f32, 2.0]).unwrap();
        save_all(&container, &path, &SaveOptions::new());
    }
}

#[test]
fn as_loaded_writes_only_tensors_that_are_in_no_file() {
    let values = |len: usize| Array1::from_iter((0..len).map(|i| i as u8));
    for mmap in both_choices() {
        for (folder, files) in layouts() {
            let path = folder.path().join("m.onnx");
            let before: Vec<_> =
                files.iter().map(|name| state(&folder.path().join(name))).collect();
            let mut container = Container::load(&path, mmap).unwrap();
            container.insert("#inside", values(10)).unwrap();
            // 12 bytes go into the model: no data file is written.
            let saved = container.save(&path, WeightFiles::AsLoaded).unwrap();
            assert_eq!(names(&saved.files), ["m.onnx"]);
            // 2,000 bytes go into a file of their own, which takes no other's place.
            container.insert("#tied", values(2000)).unwrap();
            if !files.contains(&"m.onnx.data".into()) {
                fs::write(folder.path().join("m.onnx.data"), "somebody's").unwrap();
            }
            let saved = container.save(&path, WeightFiles::AsLoaded).unwrap();
            assert_eq!(names(&saved.files), ["m.onnx_2.data", "m.onnx"]);
            assert_same(&Container::load(&path, mmap).unwrap(), &container);
            let after: Vec<_> = files.iter().map(|name| state(&folder.path().join(name))).collect();
            assert_eq!(after, before, "none of the other files was written");
        }
    }
}

#[test]
fn bytes_that_no_tensor_refers_to_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = foreign(folder.path(), "m.onnx.data");
    let mut container = Container::load(&path, both_choices()[0]).unwrap();
    let all = 9000 - (300 + 2000 + 90);
    assert_eq!(container.dry_run(&path, true).unwrap().unreferenced_bytes, all);
    let graph = container.model_mut().graph.as_mut().unwrap();
    graph.initializer.retain(|tensor| *tensor.name.as_ref().unwrap() != "last");
    assert_eq!(container.save(&path, true).unwrap().unreferenced_bytes, all + 300);
    let packed = container.save(&path, SaveOptions::new().keep_placement(false)).unwrap();
    assert_eq!((packed.unreferenced_bytes, packed.kept.len()), (0, 0));
}

/// A folder with a model in each layout, and the names of its weights files.
fn layouts() -> Vec<(TempDir, Vec<String>)> {
    let layouts = [
        WeightFiles::Packed,
        WeightFiles::PerTensor,
        WeightFiles::Sharded { max_bytes: 1000 },
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors,
    ];
    let save = |layout| {
        let source = tempfile::tempdir().unwrap();
        let container = Container::load(foreign(source.path(), "w"), both_choices()[1]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let saved = container.save(folder.path().join("m.onnx"), layout).unwrap();
        let mut files: Vec<_> = saved.files.into_iter().map(|file| file.name).collect();
        files.pop();
        files.iter().for_each(|name| settle(&folder.path().join(name)));
        (folder, files)
    };
    layouts.into_iter().map(save).collect()
}

#[test]
fn as_loaded_every_layout_stays_as_it_is() {
    let options = SaveOptions::from(WeightFiles::AsLoaded);
    for mmap in both_choices() {
        for (folder, files) in layouts() {
            let path = folder.path().join("m.onnx");
            let mut container = Container::load(&path, mmap).unwrap();
            container.insert("#unused", array![1_u8]).unwrap();
            let kept = |container: &Container, path: &Path| {
                let mut kept: Vec<_> = container.dry_run(path, options.clone()).unwrap().kept;
                kept.sort_by(|a, b| a.name.cmp(&b.name));
                names(&kept).join(" ")
            };
            let mut sorted = files.clone();
            sorted.sort();
            assert_eq!(kept(&container, &path), sorted.join(" "));
            rearrange(&mut container);
            // Under another name beside it, and over itself.
            for name in ["other.onnx", "m.onnx"] {
                let path = folder.path().join(name);
                let order: Vec<_> = container.dry_run(&path, options.clone()).unwrap().kept;
                save_model_only(&container, &path, &options, &names(&order));
                assert_eq!(kept(&container, &path), sorted.join(" "));
            }
            // The other model needs the weights now: a save that writes them is refused.
            let anew = SaveOptions::new().data_name(&files[0]).keep_placement(false);
            let error = container.save(&path, anew).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
            assert!(error.to_string().contains("other.onnx"), "{error}");
        }
    }
}

#[test]
fn as_loaded_refuses_files_outside_the_targets_directory() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = foreign(folder.path(), "m.onnx.data");
    let container = Container::load(&path, both_choices()[0]).unwrap();
    let error = container.save(elsewhere.path().join("m.onnx"), WeightFiles::AsLoaded).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CannotKeep);
    assert!(error.reason().contains("outside the folder"), "{error}");
    assert!(contents(elsewhere.path()).is_empty());
    // From the folder above everything lies beneath.
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let path = foreign(&inner, "w.bin");
    let container = Container::load(&path, both_choices()[0]).unwrap();
    let above = folder.path().join("above.onnx");
    save_model_only(&container, &above, &WeightFiles::AsLoaded.into(), &["inner/w.bin"]);
    // Two files, two reasons.
    let inline = |name| crate::support::floats(name, 0, 4);
    let mut container = Container::new(model(graph(vec![inline("w"), inline("v")], vec![])));
    container.externalize(1).unwrap();
    container.save(&path, WeightFiles::PerTensor).unwrap();
    let container = Container::load(&path, replaceable()).unwrap();
    for name in ["m-w.weight", "m-v.weight"] {
        fs::remove_file(inner.join(name)).unwrap();
    }
    let error = container.dry_run(&above, WeightFiles::AsLoaded).unwrap_err();
    assert_eq!((error.kind(), error.related().len()), (ErrorKind::CannotKeep, 2));
    let error = container.to_parts(WeightFiles::AsLoaded).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CannotKeep);
}

#[test]
fn a_model_file_is_not_kept_as_a_weights_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let inline = model(graph(vec![crate::support::floats("w", 0, 5000)], vec![]));
    fs::write(&path, inline.encode_to_vec().unwrap()).unwrap();
    settle(&path);
    for mmap in both_choices() {
        let mut container = Container::load(&path, mmap).unwrap();
        assert_eq!(container.externalize(1).unwrap().moved, 1);
        for target in [&path, &folder.path().join("n.onnx")] {
            let error = container.dry_run(target, WeightFiles::AsLoaded).unwrap_err();
            assert!(error.reason().contains("is a model"), "{error}");
            assert!(container.dry_run(target, true).unwrap().kept.is_empty());
        }
    }
}

#[test]
fn tensors_without_elements_need_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let empty = TensorProto::external("e", TensorProto::FLOAT, [0], "#e");
    let mut container = Container::new(model(graph(vec![empty], vec![])));
    container.insert("#e", Array1::<f32>::zeros(0)).unwrap();
    let saved = container.save(&path, WeightFiles::AsLoaded).unwrap();
    assert_eq!(
        (saved.files.len(), saved.kept.len(), entries(&saved.model().unwrap()).len()),
        (1, 0, 0)
    );
    // In an empty file, and beside what has bytes.
    for layout in [WeightFiles::Packed, WeightFiles::PerTensor] {
        let saved = container.save(&path, layout).unwrap();
        settle(&folder.path().join(&saved.files[0].name));
        for mmap in both_choices() {
            let loaded = Container::load(&path, mmap).unwrap();
            for again in [layout, WeightFiles::AsLoaded] {
                loaded.save(&path, again).unwrap();
                assert_eq!(all_bytes(&Container::load(&path, mmap).unwrap()), [Vec::<u8>::new()]);
            }
        }
    }
    let path = foreign(folder.path(), "m.onnx.data");
    let mut container = Container::load(&path, both_choices()[0]).unwrap();
    container.insert("#empty", Array1::<u8>::zeros(0)).unwrap();
    save_model_only(&container, &path, &SaveOptions::new(), &["m.onnx.data"]);
}

#[test]
fn no_clobber_is_about_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = foreign(folder.path(), "w.bin");
    let container = Container::load(&path, both_choices()[0]).unwrap();
    let careful = SaveOptions::new().overwrite(false).data_name("w.bin");
    let error = container.save(&path, careful.clone()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::AlreadyExists, Some(path.as_path())));
    save_model_only(&container, &folder.path().join("n.onnx"), &careful, &["w.bin"]);
}

#[test]
fn progress_counts_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = foreign(folder.path(), "m.onnx.data");
    let container = Container::load(&path, both_choices()[0]).unwrap();
    let seen = std::sync::Arc::new(std::sync::Mutex::new((0, 0)));
    let last = seen.clone();
    let options = SaveOptions::new().progress(move |progress| {
        *last.lock().unwrap() = (progress.done, progress.total);
        ControlFlow::Continue(())
    });
    let saved = container.save(&path, options).unwrap();
    assert_eq!(*seen.lock().unwrap(), (saved.bytes, saved.bytes));
    assert_eq!(saved.bytes, fs::metadata(&path).unwrap().len());
}

#[test]
fn to_parts_contains_all_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = foreign(folder.path(), "m.onnx.data");
    let container = Container::load(&path, both_choices()[0]).unwrap();
    assert_eq!(container.to_parts(true).unwrap().files.len(), 1);
}

/// Makes all tensors of the model at `path` name `location`.
#[cfg(unix)]
fn refer_to(location: &str, path: &Path) {
    let mut proto = ModelProto::decode(&fs::read(path).unwrap().into()).unwrap();
    for tensor in &mut proto.graph.as_mut().unwrap().initializer {
        tensor.external_data[0].value = Some(location.into());
    }
    fs::write(path, proto.encode_to_vec().unwrap()).unwrap();
}

#[test]
#[cfg(unix)]
fn weights_behind_a_link_stay_there() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let path = foreign(folder.path(), "blobs/1f");
    for location in ["m.onnx.data", "model.onnx_data"] {
        let linked = folder.path().join(location);
        symlink("blobs/1f", &linked).unwrap();
        // The model refers to the link, as in a cache of Hugging Face.
        refer_to(location, &path);
        for mmap in both_choices() {
            for layout in [WeightFiles::Packed, WeightFiles::AsLoaded] {
                let container = Container::load(&path, mmap).unwrap();
                save_model_only(&container, &path, &layout.into(), &[location]);
                assert!(linked.is_symlink());
            }
        }
        fs::remove_file(linked).unwrap();
    }
    // Loaded through one link, kept by another: what both lead to is not left behind.
    refer_to("blobs/1f", &path);
    symlink("blobs/1f", folder.path().join("m.onnx.data")).unwrap();
    let container = Container::load(&path, both_choices()[0]).unwrap();
    save_model_only(
        &container,
        &path,
        &SaveOptions::new().data_name("m.onnx.data"),
        &["m.onnx.data"],
    );
}

#[test]
#[cfg(unix)]
fn a_link_that_leads_out_is_not_kept() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = foreign(folder.path(), "m.onnx.data");
    let container = Container::load(&path, both_choices()[0]).unwrap();
    let (data, away) = (folder.path().join("m.onnx.data"), outside.path().join("w"));
    // The same inode where both folders are on one file system, and no reader follows the link.
    if fs::rename(&data, &away).is_err() {
        eprintln!("SKIPPED: two temporary folders on two file systems");
        return;
    }
    std::os::unix::fs::symlink(&away, &data).unwrap();
    assert!(container.dry_run(&path, true).unwrap().kept.is_empty());
    let error = container.dry_run(&path, WeightFiles::AsLoaded).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CannotKeep, "{error}");
}

#[test]
fn tensors_in_every_place_are_kept() {
    use onnx_container::edit::ExternalizeOptions;
    let mut everywhere = Container::new(crate::support::tensors_everywhere());
    everywhere.externalize(ExternalizeOptions::from(0).all_tensors(true)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    everywhere.save(&path, true).unwrap();
    settle(&folder.path().join("m.onnx.data"));
    for mmap in both_choices() {
        let loaded = Container::load(&path, mmap).unwrap();
        save_model_only(&loaded, &path, &SaveOptions::new(), &["m.onnx.data"]);
    }
}
