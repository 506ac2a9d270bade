//! What a save may replace: no file that another model needs, that is read, or that is somebody's;
//! and what was seen beforehand still holds when files are renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ndarray::Array1;
use onnx_container::check::check_model;
use onnx_container::proto::{Message, TensorProto};
use onnx_container::save::model_that_needs;
use onnx_container::{
    Container, DataType, Error, ErrorKind, LoadOptions, MmapChoice, SaveOptions, Tensor,
    WeightFiles,
};

use crate::support::{add_w, all_bytes, both_choices, contents, floats, graph, model};

/// A container of one weight, four times `value`.
fn container(value: f32) -> Container {
    let mut container = Container::new(add_w(4));
    container.insert("#w", Array1::from_elem(4, value)).unwrap();
    container
}

fn value_at(path: &Path) -> f32 {
    let loaded = Container::load(path, MmapChoice::never()).unwrap();
    f32::from_le_bytes(all_bytes(&loaded).remove(0)[..4].try_into().unwrap())
}

fn quick() -> SaveOptions {
    SaveOptions::new().sync(false)
}

fn named(name: &str) -> SaveOptions {
    quick().data_name(name)
}

/// The bytes of a model whose only tensor lies in `location`.
fn model_of(location: &str) -> Vec<u8> {
    let tensor = TensorProto::external("w", TensorProto::FLOAT, [4], location);
    model(graph(vec![tensor], vec![])).encode_to_vec().unwrap()
}

/// All files below a folder.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            all.extend(tree(&path));
        } else {
            all.insert(path.clone(), fs::read(&path).unwrap_or_default());
        }
    }
    all
}

#[test]
fn what_another_model_needs_is_not_replaced_whatever_that_model_is_called() {
    // The other model, the location it names, and the file that the save would replace.
    let cases = [
        ("m.onnx.bak", "m.onnx.data", "m.onnx.data"),
        ("m.pb", "m.onnx.data", "m.onnx.data"),
        ("noextension", "./m.onnx.data", "m.onnx.data"),
        (".hidden", "m.onnx.data", "m.onnx.data"),
        ("m.onnx.orig", "w.bin", "w.bin"),
        ("m.data", "w.bin", "w.bin"),
        ("../in.onnx", "sub/m.onnx.data", "m.onnx.data"),
        ("../in.pb", "sub/w.bin", "w.bin"),
        ("../in.onnx", "./sub//w.bin", "w.bin"),
        ("../../in.onnx", "deep/sub/w.bin", "w.bin"),
    ];
    for (other, location, replaced) in cases {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("deep/sub");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("m.onnx");
        container(1.0).save(&path, named(replaced)).unwrap();
        fs::write(folder.join(other), model_of(location)).unwrap();
        let before = tree(root.path());
        for options in [named(replaced), named(replaced).keep_placement(false)] {
            let error = container(2.0).save(&path, options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{other}: {error}");
            let shown = error.to_string();
            let name = Path::new(other).file_name().unwrap().to_str().unwrap();
            assert!(shown.contains(name) && shown.contains(replaced), "{shown}");
            assert_eq!(tree(root.path()), before, "{other}");
        }
        assert!(model_that_needs_it(&folder.join(replaced)), "{other}");
        // Its own files go on being replaced under another name, and the other model keeps its
        // weights.
        container(3.0).save(&path, named("free.data")).unwrap();
        assert_eq!(value_at(&path), 3.0);
        assert_eq!(fs::read(folder.join(replaced)).unwrap(), before[&folder.join(replaced)]);
    }
}

fn model_that_needs_it(path: &Path) -> bool {
    model_that_needs(path).unwrap().is_some()
}

#[test]
fn a_copy_of_the_model_under_any_name_keeps_its_weights() {
    for layout in [WeightFiles::Packed, WeightFiles::PerTensor] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let options = || SaveOptions::from(layout).sync(false);
        container(1.0).save(&path, options()).unwrap();
        let copy = folder.path().join("m.onnx.bak");
        fs::copy(&path, &copy).unwrap();
        let error = container(2.0).save(&path, options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{layout:?}");
        assert_eq!((value_at(&path), value_at(&copy)), (1.0, 1.0));
        // What the copy needs is not named as left over.
        let saved = container(2.0).save(&path, WeightFiles::Embedded).unwrap();
        assert_eq!(saved.left_behind, Vec::<PathBuf>::new());
        assert_eq!((value_at(&path), value_at(&copy)), (2.0, 1.0));
    }
}

#[test]
fn a_model_is_not_replaced_by_weights_whatever_it_is_called() {
    for name in ["other.onnx", "Other.ONNX", "m.pb", "m.onnx.bak", "weights.bin"] {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join(name);
        let inline = model(graph(vec![floats("v", 0, 4)], vec![])).encode_to_vec().unwrap();
        fs::write(&other, &inline).unwrap();
        let error = container(1.0).save(folder.path().join("m.onnx"), named(name)).unwrap_err();
        assert!(
            [ErrorKind::AlreadyExists, ErrorKind::InvalidArgument].contains(&error.kind()),
            "{name}: {error}"
        );
        assert_eq!(contents(folder.path()), BTreeMap::from([(name.to_owned(), inline)]));
    }
}

#[test]
fn a_file_of_the_default_name_that_no_model_names_is_not_replaced() {
    let cases = [
        (WeightFiles::Packed, "m.onnx.data"),
        (WeightFiles::PerTensor, "m-w.weight"),
        #[cfg(feature = "safetensors")]
        (WeightFiles::Safetensors, "m.safetensors"),
    ];
    for (layout, name) in cases {
        for model_is_there in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            if model_is_there {
                container(1.0).save(&path, WeightFiles::Embedded).unwrap();
            }
            fs::write(folder.path().join(name), "somebody's").unwrap();
            let before = contents(folder.path());
            let error = container(2.0).save(&path, layout).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{layout:?}");
            assert!(error.to_string().contains("no model here refers to it"), "{error}");
            assert_eq!(contents(folder.path()), before);
            if layout != WeightFiles::PerTensor {
                // Asked for by its name, it is replaced.
                let options = SaveOptions::from(layout).data_name(name);
                container(2.0).save(&path, options).unwrap();
                assert_eq!(value_at(&path), 2.0);
            }
        }
    }
}

#[cfg(feature = "safetensors")]
#[test]
fn shards_and_the_index_that_names_them_are_not_replaced_by_others() {
    use onnx_container::safetensors::ExportOptions;

    let folder = tempfile::tempdir().unwrap();
    let index = r#"{"metadata":{},"weight_map":{"w":"m-00001-of-00001.safetensors"}}"#;
    let shard = "m-00001-of-00001.safetensors";
    fs::write(folder.path().join("other.safetensors.index.json"), index).unwrap();
    fs::write(folder.path().join(shard), "somebody's").unwrap();
    let before = contents(folder.path());
    for name in [shard, "other.safetensors.index.json"] {
        let error = container(1.0).save(folder.path().join("o.onnx"), named(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert_eq!(contents(folder.path()), before, "{name}");
    }

    // A shard that no index names is somebody's as well; a second export replaces those of the
    // first.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let mut two = container(1.0);
    two.add_initializer("v", Array1::from_elem(4, 2.0_f32)).unwrap();
    let export = |container: &Container| {
        container.export_safetensors(&path, ExportOptions::new().max_shard_bytes(16))
    };
    let first = folder.path().join("w-00001-of-00002.safetensors");
    fs::write(&first, "somebody's").unwrap();
    assert_eq!(export(&two).unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs::remove_file(first).unwrap();
    export(&two).unwrap();
    export(&two).unwrap();
}

#[test]
fn a_file_that_is_read_is_not_replaced_under_any_name() {
    for choice in both_choices() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        container(1.0).save(at("in.onnx"), named("w.bin")).unwrap();
        let loaded = Container::load(at("in.onnx"), choice).unwrap();
        fs::remove_file(at("in.onnx")).unwrap();
        let before = contents(folder.path());
        // Nothing but the container knows of `w.bin` now.
        for options in [named("w.bin").keep_placement(false), paged("w.bin")] {
            let error = loaded.save(at("out.onnx"), options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{choice:?}: {error}");
            assert!(error.to_string().contains("w.bin"), "{error}");
        }
        let error = loaded.save(at("w.bin"), WeightFiles::Embedded).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{choice:?}: {error}");
        assert_eq!(contents(folder.path()), before);
    }
}

/// An alignment that the file does not have, so that nothing stays where it is.
fn paged(name: &str) -> SaveOptions {
    named(name).keep_placement(false).alignment(onnx_container::Alignment::PAGE)
}

#[test]
fn the_containers_own_model_is_saved_over_itself() {
    for layout in [WeightFiles::Packed, WeightFiles::PerTensor] {
        for choice in both_choices() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            container(1.0).save(&path, layout).unwrap();
            let loaded = Container::load(&path, choice).unwrap();
            let options = || SaveOptions::from(layout).keep_placement(false);
            for _ in 0..2 {
                assert_eq!(loaded.save(&path, options()).unwrap().files.len(), 2);
                assert_eq!(value_at(&path), 1.0);
            }
            assert_eq!(contents(folder.path()).len(), 2);
        }
    }
}

#[test]
#[cfg(unix)]
fn what_is_replaced_gives_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    for wanted in [0o600, 0o640, 0o444, 0o664] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let files = ["m.onnx", "m.onnx.data"].map(|name| folder.path().join(name));
        container(1.0).save(&path, quick()).unwrap();
        for file in &files {
            fs::set_permissions(file, fs::Permissions::from_mode(wanted)).unwrap();
        }
        for value in [2.0, 3.0] {
            container(value).save(&path, quick()).unwrap();
            assert_eq!(files.each_ref().map(|file| mode(file)), [wanted; 2], "{wanted:o}");
            assert_eq!(value_at(&path), value);
        }
        container(4.0).save(&path, WeightFiles::Embedded).unwrap();
        assert_eq!(mode(&path), wanted);
        // Weights under a new name are no more open than the model that is replaced.
        container(5.0).save(&path, named("other.bin")).unwrap();
        assert_eq!(mode(&folder.path().join("other.bin")), wanted, "{wanted:o}");
    }
}

#[test]
fn saves_at_once_to_one_data_file_leave_every_model_its_own_weights() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for round in 0..60 {
        let results: Vec<_> = std::thread::scope(|scope| {
            let save = |name: &'static str, value: f32| {
                let path = at(name);
                scope.spawn(move || container(value).save(path, named("w.bin")))
            };
            let all = [save("a.onnx", 1.0), save("b.onnx", 2.0), save("c.onnx", 3.0)];
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "round {round}");
        for (name, value) in [("a.onnx", 1.0), ("b.onnx", 2.0), ("c.onnx", 3.0)] {
            if at(name).exists() {
                assert_eq!(value_at(&at(name)), value, "round {round}");
            }
        }
        assert_eq!(contents(folder.path()).len(), 2, "round {round}");
        for name in contents(folder.path()).into_keys() {
            fs::remove_file(at(&name)).unwrap();
        }
    }
}

#[test]
fn of_two_saves_that_must_not_overwrite_one_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for round in 0..60 {
        for layout in [WeightFiles::Packed, WeightFiles::Embedded] {
            let options = SaveOptions::from(layout).sync(false).overwrite(false);
            let results: Vec<_> = std::thread::scope(|scope| {
                let save = |value: f32| {
                    let (path, options) = (at("m.onnx"), options.clone());
                    scope.spawn(move || container(value).save(path, options).map(|_| value))
                };
                let all = [save(1.0), save(2.0), save(3.0)];
                all.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let values: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
            assert_eq!(values.len(), 1, "round {round} {layout:?}");
            assert_eq!(value_at(&at("m.onnx")), values[0]);
            for name in contents(folder.path()).into_keys() {
                fs::remove_file(at(&name)).unwrap();
            }
        }
    }
}

#[test]
fn weights_that_stay_are_not_replaced_meanwhile() {
    // One save keeps what another one replaces: the second is refused, or packs anew.
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for round in 0..60 {
        container(1.0).save(at("a.onnx"), named("w.bin").keep_placement(false)).unwrap();
        // Windows replaces no file that is mapped.
        let mmap = both_choices()[usize::from(cfg!(windows))];
        let loaded = Container::load(at("a.onnx"), mmap).unwrap();
        let (kept, repacked) = std::thread::scope(|scope| {
            let kept = scope.spawn(|| {
                loaded.save(at("b.onnx"), SaveOptions::from(WeightFiles::AsLoaded).sync(false))
            });
            let repacked = scope.spawn(|| container(2.0).save(at("a.onnx"), named("w.bin")));
            (kept.join().unwrap(), repacked.join().unwrap())
        });
        assert!(kept.is_ok() || repacked.is_ok(), "round {round}");
        if kept.is_ok() {
            assert_eq!(value_at(&at("b.onnx")), 1.0, "round {round}");
        }
        if repacked.is_ok() {
            assert_eq!(value_at(&at("a.onnx")), 2.0, "round {round}");
        }
        for name in contents(folder.path()).into_keys() {
            fs::remove_file(at(&name)).unwrap();
        }
    }
}

#[test]
fn a_file_of_zeros_that_is_called_a_model_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = fs::File::create(folder.path().join("x.onnx")).unwrap();
    sparse.set_len(8 << 40).unwrap();
    let path = folder.path().join("m.onnx");
    for value in [1.0, 2.0] {
        container(value).save(&path, quick()).unwrap();
        assert_eq!(value_at(&path), value);
    }
}

#[test]
fn names_of_written_files_have_no_two_dots_and_are_no_models() {
    for name in ["w..bin", "..w", "x.onnx", "X.ONNX", "w.bin."] {
        let folder = tempfile::tempdir().unwrap();
        let result = container(1.0).save(folder.path().join("m.onnx"), named(name));
        let expected = match name {
            "w.bin." if cfg!(windows) => Some(ErrorKind::UnsafePath),
            "w.bin." => None,
            _ => Some(ErrorKind::InvalidArgument),
        };
        assert_eq!(result.err().map(|error| error.kind()), expected, "{name}");
        if expected.is_none() {
            continue;
        }
        assert!(contents(folder.path()).is_empty(), "{name}");
    }
    for tensor in ["con.", "..", "a..b", &format!("{}.", "n".repeat(245)), &".".repeat(300)] {
        let tensors = vec![floats(tensor, 0, 4)];
        let mut container = Container::new(model(graph(tensors, vec![])));
        container.externalize(1).unwrap();
        // On Windows no name ends in a dot.
        for model_name in ["m.onnx", "m..onnx", if cfg!(windows) { "m" } else { "m." }] {
            let folder = tempfile::tempdir().unwrap();
            for layout in [WeightFiles::PerTensor, WeightFiles::Packed] {
                let saved = container.save(folder.path().join(model_name), layout).unwrap();
                let name = &saved.files[0].name;
                assert!(!name.contains("..") && name.len() <= 255, "{name}");
            }
        }
    }
}

#[test]
fn a_path_that_ends_in_a_dot_names_no_file() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["new/.", "new/./", "a/b/."] {
        let error = container(1.0).save(folder.path().join(path), true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{path}: {error}");
    }
    assert!(contents(folder.path()).is_empty());
}

#[test]
fn protected_files_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("w.npy"), "read by the caller").unwrap();
    container(1.0).save(at("m.onnx"), named("m.bin")).unwrap();
    let before = contents(folder.path());
    let protect = |name: &str| named(name).protect([at("w.npy"), at("m.bin"), at("m.onnx")]);
    for (model, data) in [("o.onnx", "w.npy"), ("m.onnx", "m.bin"), ("m.onnx", "free.bin")] {
        let error = container(2.0).save(at(model), protect(data)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{model} {data}: {error}");
        assert_eq!(contents(folder.path()), before, "{model} {data}");
    }
    container(2.0).save(at("o.onnx"), protect("free.bin")).unwrap();
}

#[test]
#[cfg(unix)]
fn a_neighbour_that_cannot_be_read_refuses_the_replacement() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    container(1.0).save(at("m.onnx"), quick()).unwrap();
    fs::write(at("secret"), model_of("m.onnx.data")).unwrap();
    fs::set_permissions(at("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(at("secret")).is_ok() {
        return; // the superuser reads everything
    }
    let error = container(2.0).save(at("m.onnx"), quick()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(at("secret").as_path())));
    assert_eq!(value_at(&at("m.onnx")), 1.0);
    assert_eq!(model_that_needs(at("m.onnx.data")).unwrap_err().kind(), ErrorKind::Io);
    // Where no data file is replaced, nobody is asked.
    container(2.0).save(at("m.onnx"), named("free.bin")).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o300)).unwrap();
    let error = container(3.0).save(at("m.onnx"), named("free.bin")).unwrap_err();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(value_at(&at("m.onnx")), 2.0);
}

#[test]
#[cfg(unix)]
fn a_lock_that_somebody_else_holds_is_an_error_after_a_while() {
    use rustix::fs::{FlockOperation, flock};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let soon = || quick().lock_timeout(std::time::Duration::from_millis(20));
    container(1.0).save(&path, soon()).unwrap();
    let before = contents(folder.path());
    let held = fs::File::open(folder.path()).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    for options in [soon(), soon().data_name("new.bin")] {
        let error = container(2.0).save(&path, options).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(folder.path())));
        assert!(error.reason().contains("held the lock"), "{error}");
        assert_eq!(contents(folder.path()), before, "nothing is left of it");
    }
    drop(held);
    container(2.0).save(&path, soon()).unwrap();
    assert_eq!(value_at(&path), 2.0);
}

/// Locks a folder, and calls `save` with options whose callback for waiting is `report`.
#[cfg(unix)]
fn save_while_locked(
    folder: &Path,
    options: SaveOptions,
    report: impl Fn(&Path, fs::File) -> ControlFlow<()> + Send + Sync + 'static,
    save: impl FnOnce(SaveOptions) -> Result<(), Error>,
) -> Result<(), Error> {
    use rustix::fs::{FlockOperation, flock};
    let held = fs::File::open(folder).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    save(options.waiting(move |waiting| report(waiting.folder, held.try_clone().unwrap())))
}

/// Where nothing is replaced a save locks the folder to rename, otherwise also to look.
#[test]
#[cfg(unix)]
fn a_save_that_waits_for_a_lock_says_so_until_it_has_it() {
    use rustix::fs::{FlockOperation, flock};
    use std::sync::atomic::{AtomicUsize, Ordering};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    for (value, dry) in [(1.0, false), (2.0, false), (3.0, true)] {
        let calls = std::sync::Arc::new(AtomicUsize::new(0));
        let (counted, expected) = (calls.clone(), folder.path().to_path_buf());
        let report = move |folder: &Path, held: fs::File| {
            assert_eq!(folder.canonicalize().unwrap(), expected.canonicalize().unwrap());
            if counted.fetch_add(1, Ordering::Relaxed) == 3 {
                flock(&held, FlockOperation::Unlock).unwrap();
            }
            ControlFlow::Continue(())
        };
        let save = |options| match dry {
            true => container(value).dry_run(&path, options).map(drop),
            false => container(value).save(&path, options).map(drop),
        };
        save_while_locked(folder.path(), quick(), report, save).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 4, "{value}");
    }
    assert_eq!(value_at(&path), 2.0);
}

#[test]
#[cfg(unix)]
fn a_save_that_waits_for_a_lock_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container(1.0).save(&path, quick()).unwrap();
    let before = contents(folder.path());
    for options in [quick(), quick().data_name("new.bin")] {
        let save = |options| container(2.0).save(&path, options).map(drop);
        let report = |_: &Path, _| ControlFlow::Break(());
        let error = save_while_locked(folder.path(), options, report, save).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        assert_eq!(contents(folder.path()), before);
    }
}

#[test]
fn a_file_that_appears_while_a_save_runs_is_not_replaced() {
    for overwrite in [true, false] {
        for name in ["m.onnx.data", "m.onnx"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let appears = folder.path().join(name);
            let options = quick().overwrite(overwrite).progress(move |_| {
                fs::write(&appears, "somebody's").unwrap();
                std::ops::ControlFlow::Continue(())
            });
            let saved = container(1.0).save(&path, options);
            if overwrite && name == "m.onnx" {
                saved.unwrap(); // the target was named
                continue;
            }
            let error = saved.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{name} {overwrite}: {error}");
            let expected = BTreeMap::from([(name.to_owned(), b"somebody's".to_vec())]);
            assert_eq!(contents(folder.path()), expected);
        }
    }
}

#[test]
#[cfg(unix)]
fn weights_stay_in_folders_that_are_reached_by_links() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("real/sub")).unwrap();
    std::os::unix::fs::symlink("real", root.path().join("link")).unwrap();
    container(1.0).save(root.path().join("real/sub/m.onnx"), quick()).unwrap();
    for path in ["link/a.onnx", "real/b.onnx", "link/sub/c.onnx"] {
        // SAFETY: files are only replaced by renaming.
        #[allow(unsafe_code)]
        let choice = unsafe { MmapChoice::auto() };
        let loaded = Container::load(root.path().join("link/sub/m.onnx"), choice).unwrap();
        let options = SaveOptions::from(WeightFiles::AsLoaded).sync(false);
        let soon = std::time::Duration::from_millis(500);
        loaded.save(root.path().join(path), options.lock_timeout(soon)).unwrap();
        assert_eq!(value_at(&root.path().join(path)), 1.0, "{path}");
    }
}

/// Puts what a killed save leaves after `renames` of its four renames: the old model and its
/// weights away, the new weights and the new model into place. Without any, it was killed before it
/// announced them.
fn killed_after(renames: usize, folder: &Path, options: &SaveOptions) -> PathBuf {
    let data = options.clone();
    container(1.0).save(folder.join("m.onnx"), data.clone()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let names: Vec<_> = {
        let saved = container(2.0).save(scratch.path().join("m.onnx"), data).unwrap();
        saved.files.into_iter().map(|file| file.name).collect()
    };
    let [weights, model] = names.as_slice() else { panic!("{names:?}") };
    let staging = folder.join(".m.onnx.saving-aB3xYz");
    for part in ["old", "new"] {
        fs::create_dir_all(staging.join(part)).unwrap();
    }
    let list = format!("onnx-container save 1\0{weights}\0{model}\0");
    fs::write(staging.join("files"), list).unwrap();
    for name in [weights, model] {
        fs::copy(scratch.path().join(name), staging.join("new").join(name)).unwrap();
    }
    if renames > 0 {
        let journal = journal_of(folder, &staging, &[weights, model]);
        fs::write(folder.join(".m.onnx.switching"), journal).unwrap();
    }
    let steps = [
        (folder.join(model), staging.join("old").join(model)),
        (folder.join(weights), staging.join("old").join(weights)),
        (staging.join("new").join(weights), folder.join(weights)),
        (staging.join("new").join(model), folder.join(model)),
    ];
    steps.into_iter().take(renames).for_each(|(from, to)| fs::rename(from, to).unwrap());
    staging
}

/// The journal of a switch to the files `names`, as docs/safety.md describes it.
fn journal_of(folder: &Path, staging: &Path, names: &[&String]) -> String {
    let mark = |path: PathBuf| {
        let metadata = path.metadata().unwrap();
        let modified = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        format!("{} {}", metadata.len(), modified.as_nanos())
    };
    let staged = staging.file_name().unwrap().to_str().unwrap();
    let files = names.iter().map(|name| {
        let (new, old) = (mark(staging.join("new").join(name)), mark(folder.join(name)));
        format!("file\0{name}\0{new}\0{old}\0")
    });
    format!("onnx-container switch 1\0{staged}\0{}end\0", files.collect::<String>())
}

#[test]
fn what_a_killed_save_left_goes_with_the_next_save() {
    let layouts = [
        WeightFiles::Packed,
        WeightFiles::PerTensor,
        WeightFiles::Sharded { max_bytes: 1000 },
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors,
    ];
    for layout in layouts {
        for renames in 0..=4 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let options = SaveOptions::from(layout).sync(false).keep_placement(false);
            let staging = killed_after(renames, folder.path(), &options);
            // Another model's save completes it, and leaves alone what changed nothing.
            let other = container(5.0).save(folder.path().join("n.onnx"), options.clone()).unwrap();
            let is_half_done = (1..4).contains(&renames);
            assert_eq!(other.warnings.len(), usize::from(is_half_done), "{:?}", other.warnings);
            assert_eq!(staging.is_dir(), renames == 0);
            let value = if renames == 0 { 1.0 } else { 2.0 };
            assert_eq!(value_at(&path), value, "{layout:?} {renames}");
            let saved = container(3.0).save(&path, options).unwrap();
            assert!(saved.warnings.is_empty(), "{:?}", saved.warnings);
            assert_eq!(value_at(&path), 3.0, "{layout:?} {renames}");
            assert_eq!(contents(folder.path()).len(), 4, "{layout:?} after {renames} renames");
        }
    }
}

#[test]
fn what_reads_a_model_completes_its_save_and_says_so() {
    let looks: [fn(&Path) -> usize; 3] = [
        |path| Container::load(path, MmapChoice::never()).unwrap().warnings().len(),
        |path| {
            let loaded = Container::load(path, LoadOptions::new().weights(false)).unwrap();
            loaded.warnings().len()
        },
        |path| {
            let checked = check_model(path, MmapChoice::never()).unwrap();
            assert!(checked.is_ok());
            checked.findings.iter().filter(|f| f.error.kind() == ErrorKind::Changed).count()
        },
    ];
    for look in looks {
        for renames in 1..=3 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            killed_after(renames, folder.path(), &quick().keep_placement(false));
            assert_eq!(look(&path), 1, "{renames}");
            assert_eq!((value_at(&path), contents(folder.path()).len()), (2.0, 2), "{renames}");
        }
    }
}

#[test]
fn what_a_killed_save_put_in_place_is_not_replaced_where_nothing_may_be() {
    for renames in 0..=4 {
        let named = quick().overwrite(false).data_name("w.bin");
        for options in [named, SaveOptions::from(WeightFiles::Embedded).overwrite(false)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            killed_after(renames, folder.path(), &quick().keep_placement(false));
            let error = container(3.0).save(&path, options.sync(false)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{renames}: {error}");
            assert_eq!(value_at(&path), if renames == 0 { 1.0 } else { 2.0 }, "{renames}");
            assert_eq!(contents(folder.path()).len(), 2, "{renames}");
        }
    }
}

#[test]
fn weights_of_a_save_that_was_completed_are_left_behind() {
    for renames in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        killed_after(renames, folder.path(), &quick().keep_placement(false));
        let embedded = SaveOptions::from(WeightFiles::Embedded).sync(false);
        let saved = container(3.0).save(&path, embedded).unwrap();
        assert_eq!(saved.left_behind, [folder.path().join("m.onnx.data")], "{renames}");
    }
}

#[test]
#[cfg(unix)]
fn a_staging_folder_that_is_in_use_or_holds_moved_files_stays() {
    use rustix::fs::{FlockOperation, flock};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = quick().keep_placement(false);
    let staging = killed_after(0, folder.path(), &options);
    // A save in progress holds a lock on its folder.
    let in_use = fs::File::open(&staging).unwrap();
    flock(&in_use, FlockOperation::LockExclusive).unwrap();
    container(3.0).save(&path, options.clone()).unwrap();
    assert!(staging.join("new/m.onnx").exists());
    drop(in_use);
    // Files that were moved away, and no journal that says whether they are needed.
    fs::copy(&path, staging.join("old/m.onnx")).unwrap();
    let saved = container(4.0).save(&path, options.clone()).unwrap();
    assert_eq!(saved.warnings.len(), 1, "{:?}", saved.warnings);
    assert!(staging.join("old/m.onnx").exists());
    fs::remove_file(staging.join("old/m.onnx")).unwrap();
    container(5.0).save(&path, options).unwrap();
    assert!(!staging.exists());
}

#[test]
fn many_files_that_no_model_refers_to_are_one_error_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let names: Vec<_> = (0..9).map(|i| format!("w{i}")).collect();
    let tensor =
        |name: &String| TensorProto::external(name, TensorProto::FLOAT, [4], format!("#{name}"));
    let mut many = Container::new(model(graph(names.iter().map(tensor).collect(), vec![])));
    for name in &names {
        many.insert(&format!("#{name}"), Array1::from_elem(4, 1.0_f32)).unwrap();
    }
    let split = || SaveOptions::from(WeightFiles::PerTensor).sync(false);
    many.save(&path, split()).unwrap();
    fs::remove_file(&path).unwrap();
    let before = contents(folder.path());
    let error = many.save(&path, split()).unwrap_err();
    assert_eq!((error.kind(), error.related().len()), (ErrorKind::AlreadyExists, 9), "{error}");
    for part in ["9 files exist already", "delete them"] {
        assert!(error.reason().contains(part), "no {part} in {error}");
    }
    let named = error.each().filter_map(|error| error.path()?.file_name()?.to_str());
    assert_eq!(named.collect::<BTreeSet<_>>(), before.keys().map(String::as_str).collect());
    assert_eq!(contents(folder.path()), before);
    before.keys().for_each(|name| fs::remove_file(folder.path().join(name)).unwrap());
    many.save(&path, split()).unwrap();
}

/// Bytes that begin as a model does and then do not go on as one.
const LIKE_A_MODEL: [u8; 16] = *b"\x08\x07\x3a\xff\xff\x03\x0a\x01nnnnnnnn";

#[test]
fn own_weights_that_look_like_a_model_are_replaced() {
    let layouts =
        [WeightFiles::PerTensor, WeightFiles::Packed, WeightFiles::Sharded { max_bytes: 8 }];
    for layout in layouts {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let mut container = Container::new(add_w(4));
        let tensor = Tensor::new(DataType::Float, [4], LIKE_A_MODEL.to_vec().into()).unwrap();
        container.insert("#w", tensor).unwrap();
        let options = || SaveOptions::from(layout).sync(false).keep_placement(false);
        container.save(&path, options()).unwrap();
        let weights = contents(folder.path()).into_iter().find(|(name, _)| name != "m.onnx");
        let (weights, bytes) = weights.unwrap();
        assert_eq!(bytes, LIKE_A_MODEL, "{layout:?}");
        container.save(&path, options()).unwrap();
        // What is a model as a whole is not replaced, although the model at the target refers to
        // it.
        let mut whole = model(graph(vec![], vec![]));
        whole.ir_version = Some(10);
        fs::write(folder.path().join(&weights), whole.encode_to_vec().unwrap()).unwrap();
        let error = container.save(&path, options()).unwrap_err();
        assert!(error.to_string().contains("another model"), "{layout:?}: {error}");
        // Nor is what may be one and is nobody's.
        fs::write(folder.path().join(&weights), LIKE_A_MODEL).unwrap();
        fs::remove_file(&path).unwrap();
        let error = container.save(&path, options()).unwrap_err();
        assert!(error.to_string().contains("another model"), "{layout:?}: {error}");
    }
}

#[test]
fn a_file_of_nobody_is_replaced_only_where_it_was_named() {
    let folder = tempfile::tempdir().unwrap();
    for (file, options, is_replaced) in [
        ("m.onnx.data", quick(), false),
        ("other.bin", named("w.bin"), true),
        ("w.bin", named("w.bin"), true),
    ] {
        let target = folder.path().join(file);
        fs::write(&target, "mine").unwrap();
        let saved = container(1.0).save(folder.path().join("m.onnx"), options);
        assert_eq!(saved.is_ok(), is_replaced, "{file}: {saved:?}");
        assert_eq!(fs::read(&target).unwrap() == b"mine", file != "w.bin", "{file}");
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_journal_that_cannot_be_followed_stops_the_saves_of_its_own_model_only() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join(".n.onnx.switching");
    fs::write(&journal, "no journal").unwrap();
    let saved = container(1.0).save(folder.path().join("m.onnx"), quick()).unwrap();
    let about_it = |error: &Error| error.path() == Some(journal.as_path());
    assert!(saved.warnings.iter().any(about_it), "{:?}", saved.warnings);
    assert!(container(1.0).save(folder.path().join("n.onnx"), quick()).is_err());
    assert!(!folder.path().join("n.onnx").exists() && journal.exists());
}
