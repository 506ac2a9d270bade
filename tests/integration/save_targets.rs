//! Where a save may write and under which names: odd model names, links, neighbours, folders that
//! take nothing, many tensors of one name, several saves at once.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use ndarray::{Array1, array};
use onnx_container::check::{Severity, check_model};
use onnx_container::edit::ExternalizeOptions;
use onnx_container::external_data::ExternalData;
use onnx_container::load::Limit;
use onnx_container::proto::{Message, ModelProto, TensorProto};
use onnx_container::{
    Buffer, Container, ErrorKind, Limits, LoadOptions, MmapChoice, SaveOptions, WeightFiles,
};

use crate::support::{
    LAYOUTS, add_w, all_bytes, assert_same, both_choices, contents, floats, graph, model,
};

/// A container of one weight, four times `value`.
fn container(value: f32) -> Container {
    let mut container = Container::new(add_w(4));
    container.insert("#w", Array1::from_elem(4, value)).unwrap();
    container
}

/// The value of a saved [`container`], seen to be one.
fn value_at(path: &Path) -> f32 {
    let loaded = Container::load(path, MmapChoice::never()).unwrap();
    let bytes = all_bytes(&loaded).remove(0);
    assert!(bytes.chunks(4).all(|part| part == &bytes[..4]), "{bytes:?}");
    f32::from_le_bytes(bytes[..4].try_into().unwrap())
}

#[test]
fn any_name_of_a_model_is_saved_and_loaded() {
    let names = [
        "m.onnx",
        "old",
        "new",
        "OLD",
        "M.ONNX",
        "no extension",
        "my model (1).onnx",
        "a..b.onnx",
        "..m.onnx",
        "#m.onnx",
        "モデル.onnx",
        "m.onnx.data",
        "-m.onnx",
        ".onnx",
    ];
    // Windows takes these for something else: `windows_names`.
    let on_unix = ["...", "C:m.onnx", "a\\b.onnx", "*.onnx"];
    names.into_iter().chain(on_unix.into_iter().filter(|_| cfg!(unix))).for_each(comes_back);
}

#[test]
fn the_longest_names_of_models_are_saved_and_loaded() {
    [&"n".repeat(250), &"é".repeat(125)].into_iter().for_each(|name| comes_back(name));
}

/// Saves a model of this name twice in each layout, and loads it again.
fn comes_back(name: &str) {
    for layout in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        for value in [1.0, 2.0] {
            let saved = container(value)
                .save(&path, layout)
                .unwrap_or_else(|error| panic!("{name} {layout:?}: {error}"));
            assert_eq!(contents(folder.path()).len(), saved.files.len(), "{name}");
            assert_eq!(value_at(&path), value, "{name} {layout:?}");
            let findings = check_model(&path, MmapChoice::never()).unwrap().findings;
            assert!(findings.is_empty(), "{name} {layout:?}: {findings:?}");
        }
    }
}

#[test]
#[cfg(windows)]
fn names_that_windows_takes_for_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["...", "m.onnx ", "*.onnx", "con.onnx"] {
        let error = container(1.0).save(folder.path().join(name), true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name}: {error}");
        assert!(contents(folder.path()).is_empty(), "{name}");
    }
}

#[test]
fn a_data_file_may_have_any_plain_name() {
    for name in ["old", "new", "w", "weights.bin", "m.data", "ä b.data"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        for value in [1.0, 2.0] {
            container(value).save(&path, SaveOptions::new().data_name(name)).unwrap();
            assert_eq!(value_at(&path), value);
            assert_eq!(contents(folder.path()).len(), 2);
        }
    }
}

#[test]
fn models_whose_names_differ_only_in_case_are_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let (lower, upper) = (folder.path().join("m.onnx"), folder.path().join("M.onnx"));
    container(1.0).save(&lower, true).unwrap();
    if upper.exists() {
        return; // case does not count here
    }
    for value in [2.0, 3.0] {
        container(value).save(&upper, true).unwrap();
    }
    assert_eq!((value_at(&lower), value_at(&upper)), (1.0, 3.0));
}

#[test]
#[cfg(unix)]
fn a_link_to_the_model_does_not_hold_its_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (path, latest) = (folder.path().join("m.onnx"), folder.path().join("latest.onnx"));
    container(1.0).save(&path, true).unwrap();
    std::os::unix::fs::symlink("m.onnx", &latest).unwrap();
    container(2.0).save(&path, true).unwrap();
    assert_eq!((value_at(&path), value_at(&latest)), (2.0, 2.0));
    // The other way round the link is replaced, and what it named still needs its weights.
    let error =
        container(3.0).save(&latest, SaveOptions::new().data_name("m.onnx.data")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    container(3.0).save(&latest, true).unwrap();
    assert_eq!((value_at(&path), value_at(&latest)), (2.0, 3.0));
}

#[test]
#[cfg(unix)]
fn weights_that_a_neighbour_reaches_by_a_link_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container(1.0).save(&path, true).unwrap();
    std::os::unix::fs::symlink("m.onnx.data", folder.path().join("alias")).unwrap();
    let tensor = TensorProto::external("w", TensorProto::FLOAT, [4], "./alias");
    let other = folder.path().join("other.onnx");
    fs::write(&other, model(graph(vec![tensor], vec![])).encode_to_vec().unwrap()).unwrap();
    let error = container(2.0).save(&path, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(value_at(&other), 1.0);
}

#[test]
#[cfg(unix)]
fn targets_that_are_links_are_replaced_themselves() {
    for target in ["elsewhere.onnx", "no/such/file", "m.onnx"] {
        for layout in LAYOUTS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            fs::write(folder.path().join("elsewhere.onnx"), "untouched").unwrap();
            std::os::unix::fs::symlink(target, &path).unwrap();
            container(1.0).save(&path, layout).unwrap();
            assert!(!path.is_symlink());
            assert_eq!(value_at(&path), 1.0);
            assert_eq!(
                fs::read_to_string(folder.path().join("elsewhere.onnx")).unwrap(),
                "untouched"
            );
        }
    }
}

#[test]
#[cfg(unix)]
fn a_folder_behind_a_link_is_a_folder() {
    for path in ["link/m.onnx", "real/../link/m.onnx", "real/./m.onnx"] {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.path().join("link")).unwrap();
        for layout in LAYOUTS {
            container(1.0).save(root.path().join(path), layout).unwrap();
            assert_eq!(value_at(&root.path().join("real/m.onnx")), 1.0);
        }
        assert_eq!(contents(root.path()).len(), 2, "nothing beside the folder and its link");
    }
}

#[test]
#[cfg(unix)]
fn an_existing_file_without_write_permission_is_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container(1.0).save(&path, true).unwrap();
    for name in ["m.onnx", "m.onnx.data"] {
        let mode = fs::Permissions::from_mode(0o444);
        fs::set_permissions(folder.path().join(name), mode).unwrap();
    }
    container(2.0).save(&path, true).unwrap();
    assert_eq!(value_at(&path), 2.0);
}

#[test]
#[cfg(unix)]
fn names_that_are_not_text_are_refused_for_writing_and_fine_for_reading() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join(OsStr::from_bytes(b"m\xff.onnx"));
    let error = container(1.0).save(&odd, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(contents(folder.path()).is_empty());
    container(1.0).save(folder.path().join("m.onnx"), true).unwrap();
    fs::rename(folder.path().join("m.onnx"), &odd).unwrap();
    assert_eq!(value_at(&odd), 1.0);
    assert!(check_model(&odd, MmapChoice::never()).unwrap().findings.is_empty());
    // A folder may have any name.
    let inside = folder.path().join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&inside).unwrap();
    container(2.0).save(inside.join("m.onnx"), true).unwrap();
    assert_eq!(value_at(&inside.join("m.onnx")), 2.0);
}

#[test]
fn targets_that_name_no_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("f"), "a file").unwrap();
    let kinds = [
        (".", ErrorKind::UnsafePath),
        ("..", ErrorKind::InvalidArgument),
        ("d", ErrorKind::UnsafePath),
        ("d/", ErrorKind::InvalidArgument),
        ("new/", ErrorKind::InvalidArgument),
        ("no/m.onnx", ErrorKind::MissingFile),
        ("f/m.onnx", ErrorKind::UnsafePath),
    ];
    let before = contents(folder.path());
    for (path, kind) in kinds {
        let error = container(1.0).save(folder.path().join(path), true).unwrap_err();
        assert_eq!(error.kind(), kind, "{path}: {error}");
        assert_eq!(contents(folder.path()), before, "{path}");
    }
    assert_eq!(container(1.0).save("", true).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn saves_at_once_leave_one_of_them_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let long = |value: f32| {
        let mut container = Container::new(add_w(1000));
        container.insert("#w", Array1::from_elem(1000, value)).unwrap();
        container
    };
    for _ in 0..100 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    // Differing lengths: a model beside the other's weights does not load.
                    let (few, many) = (container(thread as f32), long(thread as f32));
                    let container = if thread % 2 == 0 { few } else { many };
                    let options = SaveOptions::new().sync(false);
                    container.save(path, options).unwrap();
                });
            }
        });
        value_at(&path);
        let names: Vec<_> = contents(folder.path()).into_keys().collect();
        assert_eq!(names, ["m.onnx", "m.onnx.data"]);
    }
}

#[test]
fn a_reader_beside_busy_writers_never_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let quick = SaveOptions::new().sync(false);
    container(0.0).save(&path, quick.clone()).unwrap();
    let writing = std::sync::atomic::AtomicUsize::new(3);
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let (path, writing, quick) = (&path, &writing, &quick);
            scope.spawn(move || {
                let save = |_| container(f32::from(thread)).save(path, quick.clone()).map(|_| ());
                let saved = (0..150).try_for_each(save);
                writing.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                saved.unwrap();
            });
        }
        while writing.load(std::sync::atomic::Ordering::Relaxed) > 0 {
            assert!([0.0, 1.0, 2.0].contains(&value_at(&path)));
            let checked = check_model(&path, MmapChoice::never()).unwrap();
            let wrong = checked.findings.iter().find(|one| one.severity == Severity::Error);
            assert!(wrong.is_none(), "{wrong:?}");
        }
    });
}

#[test]
fn only_the_model_is_replaced_in_one_step() {
    // Nobody who looks sees the folder without a model: no weights file has to be moved away.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container(1.0).save(&path, WeightFiles::Embedded).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (absent, saved) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut absent = 0_u32;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                absent += u32::from(fs::symlink_metadata(&path).is_err());
            }
            absent
        });
        let save = |_| {
            let options = SaveOptions::from(WeightFiles::Embedded).sync(false);
            container(2.0).save(&path, options).map(|_| ())
        };
        let saved = (0..300).try_for_each(save);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        (watch.join().unwrap(), saved)
    });
    saved.unwrap();
    assert_eq!(absent, 0);
}

/// `count` weights of one name, each a different number.
fn of_one_name(name: &str, count: usize) -> Container {
    let weights = (0..count).map(|i| floats(name, i, 1)).collect();
    let mut container = Container::new(model(graph(weights, vec![])));
    let options = ExternalizeOptions::from(1).all_tensors(true);
    assert_eq!(container.externalize(options).unwrap().moved, count);
    container
}

#[test]
fn many_tensors_of_one_name() {
    let container = of_one_name("w", 20_000);
    let parts = container.to_parts(false).unwrap();
    let names: HashSet<_> = parts.files.iter().map(|(name, _)| name.to_lowercase()).collect();
    assert_eq!(names.len(), 20_000);
    let files = parts.files.into_iter();
    let options =
        files.fold(LoadOptions::new(), |options, (name, bytes)| options.file(name, bytes));
    let loaded = Container::load_bytes(parts.model, options).unwrap();
    assert_eq!(loaded.model(), container.model());
}

#[test]
fn many_names_that_clean_to_one_file_name() {
    // `w` and twelve characters that file names do not have: 2^12 names, one clean one.
    let name = |i: usize| {
        let bits = (0..12).map(|bit| if i >> bit & 1 == 0 { '/' } else { ':' });
        std::iter::once('w').chain(bits).collect::<String>()
    };
    let count = 1 << 12;
    let weights = (0..count).map(|i| floats(&name(i), i, 1)).collect();
    let mut container = Container::new(model(graph(weights, vec![])));
    container.externalize(1).unwrap();
    let parts = container.to_parts(false).unwrap();
    let names: HashSet<_> = parts.files.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), count);
}

#[test]
fn a_model_of_many_files_is_saved_over_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let container = of_one_name("w", 1000);
    for _ in 0..2 {
        let options = SaveOptions::from(false).sync(false);
        let saved = container.save(&path, options).unwrap();
        assert!(saved.left_behind.is_empty());
    }
    assert_eq!(all_bytes(&Container::load(&path, MmapChoice::never()).unwrap()).len(), 1000);
}

#[test]
#[cfg(target_os = "linux")]
fn mapped_files_hold_no_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    of_one_name("w", 300).save(&path, SaveOptions::from(false).sync(false)).unwrap();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    for mmap in both_choices() {
        let before = open();
        let loaded = Container::load(&path, mmap).unwrap();
        // Other tests run beside this one and open a few files of their own.
        assert!(open() < before + 150, "{} descriptors for 300 files", open() - before);
        drop(loaded);
    }
}

#[test]
fn handles_that_wait_for_their_weights_are_not_taken() {
    // `#w` is named by the model and not inserted yet; a tensor called `w` gets another handle.
    let mut proto = add_w(4);
    proto.graph.as_mut().unwrap().initializer.push(floats("v", 7, 4));
    let mut inner = graph(vec![floats("w", 50, 4)], vec![]);
    inner.initializer.push(floats("u", 60, 4));
    let attribute = onnx_container::proto::AttributeProto::graph("body", inner);
    let node = crate::support::node("Loop", &["", "c"], &["w"], vec![attribute]);
    proto.graph.as_mut().unwrap().node.push(node);
    let mut container = Container::new(proto);
    container.externalize(1).unwrap();
    let error = container.check().unwrap_err();
    assert_eq!((error.kind(), error.tensor()), (ErrorKind::MissingHandle, Some("w")));
    container.insert("#w", array![1.0_f32, 1.0, 1.0, 1.0]).unwrap();
    let bytes = all_bytes(&container);
    assert_eq!(bytes[0], [1.0_f32; 4].map(f32::to_le_bytes).concat());
    assert_eq!(bytes[2], [50.0_f32, 51.0, 52.0, 53.0].map(f32::to_le_bytes).concat());
}

#[test]
fn an_offset_into_a_handle_is_refused() {
    let mut proto = add_w(4);
    let weight = &mut proto.graph.as_mut().unwrap().initializer[0];
    let entry = |k: &str, v: &str| onnx_container::proto::StringStringEntryProto::new(k, v);
    weight.external_data.extend([entry("offset", "16"), entry("length", "16")]);
    let mut container = Container::new(proto);
    container.insert("#w", array![1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let error = container.check().unwrap_err();
    assert_eq!((error.kind(), error.tensor()), (ErrorKind::OutOfBounds, Some("w")));
    assert!(container.embed().is_err());
}

#[test]
fn a_segment_of_a_tensor_is_refused_outside_as_inside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut proto: ModelProto = container(1.0).save(&path, true).unwrap().model().unwrap();
    proto.graph.as_mut().unwrap().initializer[0].segment = Some(Box::default());
    fs::write(&path, proto.encode_to_vec().unwrap()).unwrap();
    let error = Container::load(&path, MmapChoice::never()).unwrap_err();
    assert_eq!((error.kind(), error.tensor()), (ErrorKind::Unsupported, Some("w")));
    let findings = check_model(&path, MmapChoice::never()).unwrap().findings;
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    assert_eq!(errors, 1, "{findings:?}");
}

#[test]
fn files_handed_in_are_found_by_what_the_location_means() {
    let mut proto = add_w(4);
    let mut load = |location: &str, name: &str| {
        let entry = TensorProto::external("w", TensorProto::FLOAT, [4], location);
        proto.graph.as_mut().unwrap().initializer[0] = entry;
        let options = LoadOptions::new().file(name, Buffer::from(vec![0; 16]));
        Container::load_bytes(proto.encode_to_vec().unwrap(), options).map(|_| ())
    };
    for (location, name) in [
        ("w.bin", "w.bin"),
        ("./w.bin", "w.bin"),
        ("w.bin", "./w.bin"),
        ("sub//w.bin", "sub/w.bin"),
        ("#w", "#w"),
    ] {
        load(location, name).unwrap_or_else(|error| panic!("{location} as {name}: {error}"));
    }
    for location in ["../w", "/w", "*/_ORT_MEM_ADDR_/*", "a\0b", "w/", "C:\\w"] {
        let error = load(location, location).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsafePath, "{location:?}: {error}");
    }
}

#[test]
fn a_tensor_with_many_unknown_keys_is_read_in_time() {
    let mut proto = add_w(4);
    let entries = &mut proto.graph.as_mut().unwrap().initializer[0].external_data;
    entries.extend(
        (0..100_000).map(|i| {
            onnx_container::proto::StringStringEntryProto::new(format!("k{i}").as_str(), "")
        }),
    );
    let tensor = proto.graph.as_ref().unwrap().initializer[0].clone();
    assert_eq!(ExternalData::parse(&tensor).unwrap().unknown_keys.len(), 100_000);
}

#[test]
fn every_tensor_everywhere_comes_back_from_every_layout() {
    let original = Container::new(crate::support::tensors_everywhere());
    let mut everywhere = original.clone();
    everywhere.externalize(ExternalizeOptions::from(0).all_tensors(true)).unwrap();
    for layout in LAYOUTS {
        for mmap in both_choices() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            everywhere.save(&path, layout).unwrap();
            let loaded = Container::load(&path, mmap).unwrap();
            assert_same(&loaded, &original);
            let mut later = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
            // All tensors of an embedded model have their weights.
            let attached = later.attach(folder.path(), mmap);
            assert_eq!(attached.is_err(), matches!(layout, WeightFiles::Embedded), "{attached:?}");
            assert_eq!(later.model(), loaded.model());
            later.save(&path, layout).unwrap();
            assert_same(&Container::load(&path, mmap).unwrap(), &original);
        }
    }
}

#[test]
#[cfg(unix)]
fn a_folder_that_cannot_be_listed_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container(1.0).save(&path, true).unwrap();
    // No obstacle for the superuser.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o100)).unwrap();
    let value = value_at(&path);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(value, 1.0);
}

#[test]
fn what_a_save_left_is_found_by_any_name_of_the_model() {
    let long = "n".repeat(60);
    for name in ["m", "my model (1)", "a..b", "#m", long.as_str()] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{name}.onnx"));
        for layout in LAYOUTS {
            container(1.0).save(&path, layout).unwrap();
        }
        // A staging folder is left when the process is killed while it writes.
        let kept = folder.path().to_path_buf();
        let stage = SaveOptions::from(WeightFiles::Embedded).progress(move |_| {
            let staging = contents(&kept).into_keys().find(|name| name.starts_with('.'));
            // There is none yet when the save begins.
            if let Some(staging) = staging {
                let (prefix, _) = staging.rsplit_once('-').unwrap();
                fs::create_dir_all(kept.join(format!("{prefix}-kiLLed/new"))).unwrap();
            }
            std::ops::ControlFlow::Continue(())
        });
        container(2.0).save(&path, stage).unwrap();
        let findings = check_model(&path, MmapChoice::never()).unwrap().findings;
        let orphans: Vec<_> = findings.iter().filter_map(|f| f.error.path()).collect();
        assert_eq!(orphans.len(), 3, "{name}: {orphans:?}");
    }
}

/// Graphs in graphs, `depth` of them, a tensor in the innermost.
fn nested(depth: usize) -> ModelProto {
    let innermost = graph(vec![floats("w", 0, 4)], vec![]);
    let mut main = (0..depth).fold(innermost, |inner, _| {
        let body = onnx_container::proto::AttributeProto::graph("body", inner);
        graph(vec![], vec![crate::support::node("Loop", &["", "c"], &["o"], vec![body])])
    });
    main.input = crate::support::vectors(&["c"]);
    model(main)
}

#[test]
fn the_deepest_model_that_is_read_needs_little_stack() {
    // The model, its graph and the tensor are levels too; a subgraph takes three.
    let work = || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        fs::write(&path, nested(32).encode_to_vec().unwrap()).unwrap();
        let mut container = Container::load(&path, MmapChoice::never()).unwrap();
        assert_eq!(container.externalize(1).unwrap().moved, 1);
        for layout in LAYOUTS {
            container.save(&path, layout).unwrap();
            assert!(check_model(&path, MmapChoice::never()).unwrap().findings.len() < 3);
        }
        let raised = Limits::new().with(Limit::Nesting, 200);
        fs::write(&path, nested(34).encode_to_vec_with(&raised).unwrap()).unwrap();
        assert_eq!(
            Container::load(&path, MmapChoice::never()).unwrap_err().kind(),
            ErrorKind::Decode
        );
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_save_does_not_follow_the_current_directory() {
    // The current directory is the process's, so a process of its own runs the save.
    const NAME: &str = "save_targets::a_save_does_not_follow_the_current_directory";
    if let Ok(elsewhere) = std::env::var("ONNX_CONTAINER_TEST_ELSEWHERE") {
        container(1.0).save("m.onnx", true).unwrap();
        let leave = SaveOptions::new().progress(move |progress| {
            if progress.done > 0 {
                std::env::set_current_dir(&elsewhere).unwrap();
            }
            std::ops::ControlFlow::Continue(())
        });
        container(2.0).save("m.onnx", leave).unwrap();
        return;
    }
    let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .current_dir(here.path())
        .env("ONNX_CONTAINER_TEST_ELSEWHERE", elsewhere.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(contents(here.path()).len(), 2);
    assert!(contents(elsewhere.path()).is_empty());
    assert_eq!(value_at(&here.path().join("m.onnx")), 2.0);
}

#[test]
fn a_node_of_very_many_inputs_and_outputs_is_analysed_in_time() {
    let names = |prefix: &str| (0..20_000).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
    let (inputs, outputs) = (names("i"), names("o"));
    let many = onnx_container::proto::NodeProto::new(
        "Split",
        inputs.iter().map(String::as_str),
        outputs.iter().map(String::as_str),
    );
    let mut container = Container::new(model(graph(vec![floats("w", 0, 4)], vec![many])));
    assert_eq!(container.externalize(1).unwrap().moved, 1);
}
