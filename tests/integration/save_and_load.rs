//! A saved container loads back equal, in every layout, mapped and read; and the guarantees of a
//! save.

use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ndarray::{Array1, array};
use onnx_container::external_data::ExternalData;
use onnx_container::proto::{Message, ModelProto, StringStringEntryProto, TensorProto};
use onnx_container::{
    Alignment, Buffer, Container, DataType, ErrorKind, Initializer, LoadOptions, MmapChoice,
    SaveOptions, Tensor, WeightFiles,
};

use crate::support::{
    LAYOUTS, add_w, all_bytes, assert_same, both_choices, contents, floats, graph, int64s, model,
    node,
};

fn send_and_sync<T: Send + Sync>() {}

#[test]
fn a_container_crosses_threads() {
    send_and_sync::<Container>();
    send_and_sync::<onnx_container::check::Checker>();
}

/// A container of `count` float tensors `w0`, `w1`, ... of growing length.
fn many(count: usize) -> Container {
    let weights = (0..count).map(|i| floats(&format!("w{i}"), i, 10 * i + 1)).collect();
    let mut container = Container::new(model(graph(weights, vec![])));
    container.externalize(1).unwrap();
    container
}

/// The entries of all external tensors: location, offset, length.
fn entries(model: &ModelProto) -> Vec<(String, u64, u64)> {
    let tensors = &model.graph.as_ref().unwrap().initializer;
    let external = tensors.iter().filter(|tensor| !tensor.external_data.is_empty());
    external
        .map(|tensor| {
            let data = ExternalData::parse(tensor).unwrap();
            let keys: Vec<_> =
                tensor.external_data.iter().map(|e| e.key.as_ref().unwrap().to_string()).collect();
            assert_eq!(keys, ["location", "offset", "length"]);
            (data.location, data.offset, data.length.unwrap())
        })
        .collect()
}

#[test]
fn every_layout_comes_back_the_same() {
    let container = many(20);
    let before = all_bytes(&container);
    let embedded = container.embed().unwrap();
    for weight_files in LAYOUTS {
        for mmap in both_choices() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let saved = container.save(&path, weight_files).unwrap();
            let files = contents(folder.path());
            assert_eq!(files.len(), saved.files.len());
            for file in &saved.files {
                assert_eq!(files[&file.name].len() as u64, file.bytes, "{}", file.name);
            }
            assert_eq!(saved.files.last().unwrap().name, "m.onnx");
            assert_eq!(
                ModelProto::decode(&files["m.onnx"].clone().into()).unwrap(),
                saved.model().unwrap()
            );
            let loaded = Container::load(&path, mmap).unwrap();
            assert_eq!(all_bytes(&loaded), before);
            assert_eq!(loaded.embed().unwrap(), embedded);
            if weight_files != WeightFiles::Embedded {
                assert_eq!(loaded.model(), container.model(), "handles are named after tensors");
            }
        }
    }
}

#[test]
fn two_saves_give_the_same_bytes() {
    let container = many(30);
    let files = || {
        let folder = tempfile::tempdir().unwrap();
        container.save(folder.path().join("m.onnx"), true).unwrap();
        contents(folder.path())
    };
    assert_eq!(files(), files());
}

#[test]
fn offsets_are_aligned_and_follow_the_graph() {
    let weights = vec![floats("small", 0, 3), floats("large", 0, 300_000), floats("last", 0, 5)];
    let mut container = Container::new(model(graph(weights, vec![])));
    container.externalize(1).unwrap();
    let page = Alignment::PAGE;
    let cases = [
        (SaveOptions::new(), [0, 4096, 1_204_224]),
        (SaveOptions::new().alignment(Alignment::DENSE), [0, 4096, 1_204_096]),
        (SaveOptions::new().alignment(page), [0, 4096, 1_204_224]),
        (SaveOptions::new().alignment_large(Alignment::new(65536).unwrap()), [0, 65536, 1_265_664]),
    ];
    for (options, offsets) in cases {
        let folder = tempfile::tempdir().unwrap();
        let saved = container.save(folder.path().join("m.onnx"), options.clone()).unwrap();
        let found: Vec<_> =
            entries(&saved.model().unwrap()).into_iter().map(|entry| entry.1).collect();
        assert_eq!(found, offsets, "{options:?}");
    }
}

#[test]
fn shared_bytes_are_written_once() {
    let shared = Buffer::from((0..8192).map(|i| i as u8).collect::<Vec<_>>());
    let tensor = |range: std::ops::Range<usize>| {
        let bytes = shared.slice(range).unwrap();
        Tensor::new(DataType::Uint8, [bytes.len() as i64], bytes).unwrap()
    };
    let names = ["tied_a", "tied_b", "part", "odd_part", "same_handle", "own"];
    let external = |name: &str, len: i64, handle: &str| {
        TensorProto::external(name, TensorProto::UINT8, [len], handle)
    };
    let weights = vec![
        external(names[0], 8192, "#a"),
        external(names[1], 8192, "#b"),
        external(names[2], 256, "#part"),
        external(names[3], 10, "#odd"),
        external(names[4], 8192, "#a"),
        external(names[5], 8192, "#own"),
    ];
    let mut container = Container::new(model(graph(weights, vec![])));
    container.insert("#a", tensor(0..8192)).unwrap();
    container.insert("#b", tensor(0..8192)).unwrap();
    container.insert("#part", tensor(4096..4352)).unwrap();
    container.insert("#odd", tensor(7..17)).unwrap();
    let own = Buffer::from(shared.to_vec());
    container.insert("#own", Tensor::new(DataType::Uint8, [8192], own).unwrap()).unwrap();
    let before = all_bytes(&container);
    for one_file in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let saved = container.save(&path, one_file).unwrap();
        let places = entries(&saved.model().unwrap());
        assert_eq!(places[0], places[1]);
        assert_eq!(places[0], places[4]);
        assert_eq!((&places[2].0, places[2].1), (&places[0].0, places[0].1 + 4096));
        assert_ne!((&places[3].0, places[3].1), (&places[0].0, places[0].1 + 7), "misaligned");
        let weights: u64 = saved.files.iter().rev().skip(1).map(|file| file.bytes).sum();
        let expected = if one_file { 8192 + 256 + 8192 } else { 8192 + 10 + 8192 };
        assert_eq!(weights, expected);
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        assert_eq!(all_bytes(&loaded), before);
        let handles: Vec<_> = loaded.iter().map(|(handle, _)| handle.to_string()).collect();
        assert_eq!(handles, ["#odd_part", "#own", "#part", "#tied_a"], "one handle for one range");
    }
}

#[test]
fn ranges_of_other_types_share_bytes_but_not_a_handle() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.bin"), [0; 16]).unwrap();
    let at = |name: &str, dtype, dims: &[i64]| TensorProto::external(name, dtype, dims, "w.bin");
    let weights = vec![
        at("a", TensorProto::FLOAT, &[4]),
        at("b", TensorProto::FLOAT, &[2, 2]),
        at("c", TensorProto::INT32, &[4]),
    ];
    let path = folder.path().join("m.onnx");
    fs::write(&path, model(graph(weights, vec![])).encode_to_vec().unwrap()).unwrap();
    for mmap in both_choices() {
        let container = Container::load(&path, mmap).unwrap();
        let address = |handle: &str| container.get(handle).unwrap().as_buffer().unwrap().as_ptr();
        assert_eq!(container.len(), 3);
        assert_eq!(address("#a"), address("#b"));
        assert_eq!(address("#a"), address("#c"));
        let saved = container.save(folder.path().join("n.onnx"), true).unwrap();
        assert_eq!(saved.files[0].bytes, 16);
    }
}

#[test]
fn names_of_handles() {
    let folder = tempfile::tempdir().unwrap();
    let model = crate::support::tensors_everywhere();
    let mut container = Container::new(model);
    container
        .externalize(onnx_container::edit::ExternalizeOptions::from(0).all_tensors(true))
        .unwrap();
    let path = folder.path().join("m.onnx");
    container.save(&path, true).unwrap();
    let loaded = Container::load(&path, MmapChoice::never()).unwrap();
    let handles: Vec<_> = loaded.iter().map(|(handle, _)| handle.as_str().to_owned()).collect();
    for handle in [
        "#w",
        "#value_out",
        "#list_out",
        "#list_out_2",
        "#sparse",
        "#sparse_2",
        "#if_node.then_branch/w",
        "#if_node.then_branch/deep.body/w",
        "#local::F/f_if.then_branch/w",
        "#training_info[0].algorithm/w",
    ] {
        assert!(handles.iter().any(|found| found == handle), "{handle} is not in {handles:?}");
    }
}

#[test]
fn a_container_is_iterated_over_by_handle() {
    let mut container = add_container();
    container.insert("#a", array![1.0_f32]).unwrap();
    let mut found = Vec::new();
    for (handle, initializer) in &container {
        found.push((handle.as_str().to_owned(), initializer.byte_len()));
    }
    let listed = container.iter().map(|(handle, it)| (handle.as_str().to_owned(), it.byte_len()));
    assert_eq!(found, listed.collect::<Vec<_>>());
    assert!(found.is_sorted() && found.len() == container.len());
}

#[test]
fn a_save_does_not_change_the_container() {
    let mut container = add_container();
    container.insert("#left_over", array![1.0_f32]).unwrap();
    let (model, count) = (container.model().clone(), container.len());
    let folder = tempfile::tempdir().unwrap();
    let saved = container.save(folder.path().join("m.onnx"), true).unwrap();
    assert_eq!((container.model(), container.len()), (&model, count));
    assert_eq!(saved.unused.iter().map(|h| h.as_str()).collect::<Vec<_>>(), ["#left_over"]);
}

fn add_container() -> Container {
    let mut container = Container::new(add_w(4));
    container.insert("#w", array![1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    container
}

#[test]
fn every_source_of_an_initializer_is_written() {
    let wide = Array1::from_iter((0..8).map(|i| i as f32));
    let strided = wide.slice(ndarray::s![..;2]).to_owned();
    let transposed = array![[0.0_f32, 2.0], [4.0, 6.0]].reversed_axes();
    let proto = TensorProto::new("any", TensorProto::FLOAT, [4]);
    let proto = proto.with_raw_data(bytemuck_floats(&[0.0, 2.0, 4.0, 6.0]));
    let tensor = Tensor::try_from(&proto).unwrap();
    let sources: Vec<Initializer> = vec![
        strided.into(),
        transposed.reversed_axes().into_dyn().into(),
        proto.try_into().unwrap(),
        tensor.into(),
    ];
    for (i, source) in sources.into_iter().enumerate() {
        let mut container = Container::new(add_w(4));
        container.insert("#w", source).unwrap();
        let folder = tempfile::tempdir().unwrap();
        container.save(folder.path().join("m.onnx"), true).unwrap();
        let written = fs::read(folder.path().join("m.onnx.data")).unwrap();
        assert_eq!(written, bytemuck_floats(&[0.0, 2.0, 4.0, 6.0]), "source {i}");
    }
}

fn bytemuck_floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn what_does_not_fit_is_reported_together_and_nothing_is_written() {
    let names = ["missing", "dtype", "length", "fine"];
    let weights = names.map(|name| {
        TensorProto::external(name, TensorProto::FLOAT, [4], format!("#{name}").as_str())
    });
    let mut container = Container::new(model(graph(weights.to_vec(), vec![])));
    container.insert("#dtype", array![1_i32, 2, 3, 4]).unwrap();
    container.insert("#length", array![1.0_f32]).unwrap();
    container.insert("#fine", array![1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    for weight_files in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        let error = container.save(folder.path().join("m.onnx"), weight_files).unwrap_err();
        let found: Vec<_> =
            error.related().iter().map(|e| (e.tensor().unwrap(), e.kind())).collect();
        let expected = [
            ("missing", ErrorKind::MissingHandle),
            ("dtype", ErrorKind::DataType),
            ("length", ErrorKind::Shape),
        ];
        assert_eq!(found, expected);
        assert!(contents(folder.path()).is_empty());
    }
    let error = add_container().save("no/such/folder/m.onnx", true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile);
    assert!(container.insert("w", array![1.0_f32]).is_err(), "a handle starts with #");
}

#[test]
fn a_save_over_the_mapped_files_is_safe() {
    for mmap in both_choices() {
        for weight_files in LAYOUTS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let before = all_bytes(&many(20));
            many(20).save(&path, true).unwrap();
            let container = Container::load(&path, mmap).unwrap();
            for _ in 0..3 {
                container.save(&path, weight_files).unwrap();
                assert_eq!(all_bytes(&container), before, "the old map still shows the old file");
                assert_eq!(all_bytes(&Container::load(&path, mmap).unwrap()), before);
            }
        }
    }
}

#[test]
fn files_of_the_replaced_model_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    many(3).save(&path, false).unwrap();
    let saved = many(3).save(&path, true).unwrap();
    let names: Vec<_> =
        saved.left_behind.iter().map(|p| p.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["m-w0.weight", "m-w1.weight", "m-w2.weight"]);
    assert!(saved.left_behind.iter().all(|path| path.is_file()));
    assert!(many(3).save(&path, true).unwrap().left_behind.is_empty());
}

#[test]
fn files_that_another_model_needs_are_not_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("m.onnx"), folder.path().join("copy.onnx"));
    many(3).save(&path, true).unwrap();
    fs::copy(&path, &copy).unwrap();
    let saved = many(3).save(&copy, true).unwrap();
    assert_eq!(saved.left_behind, Vec::<std::path::PathBuf>::new(), "`m.onnx` needs its weights");
    many(3).save(&path, WeightFiles::Embedded).unwrap();
    let saved = many(3).save(&copy, WeightFiles::Embedded).unwrap();
    assert_eq!(saved.left_behind.len(), 1);
}

#[test]
fn a_shape_that_is_transposed_is_refused() {
    let declared = TensorProto::external("w", TensorProto::FLOAT, [2, 3], "#w");
    let mut container = Container::new(model(graph(vec![declared], vec![])));
    container.insert("#w", ndarray::Array2::<f32>::zeros((3, 2))).unwrap();
    assert_eq!(container.check().unwrap_err().kind(), ErrorKind::Shape);
    container.insert("#w", ndarray::Array2::<f32>::zeros((2, 3))).unwrap();
    container.check().unwrap();
    container.insert("#w", ndarray::Array1::<f32>::zeros(6)).unwrap();
    container.check().unwrap();
}

#[test]
fn a_data_file_that_another_model_needs_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a.onnx"), folder.path().join("b.onnx"));
    many(3).save(&a, SaveOptions::new().data_name("shared.data")).unwrap();
    let before = contents(folder.path());
    let error = many(4).save(&b, SaveOptions::new().data_name("Shared.data")).map(|_| ());
    // Another file where case counts; the same where it does not.
    if error.is_ok() {
        fs::remove_file(&b).unwrap();
        fs::remove_file(folder.path().join("Shared.data")).unwrap();
    }
    let error = many(4).save(&b, SaveOptions::new().data_name("shared.data")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("a.onnx"), "{error}");
    assert_eq!(contents(folder.path()), before);
    many(4).save(&a, SaveOptions::new().data_name("shared.data")).unwrap();
}

#[test]
fn targets_that_must_not_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    many(3).save(&path, true).unwrap();
    let before = contents(folder.path());
    let error = many(4).save(&path, SaveOptions::new().overwrite(false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(error.related().len(), 2, "both files are named");
    assert_eq!(contents(folder.path()), before);

    fs::create_dir(folder.path().join("d.onnx.data")).unwrap();
    let error = many(4).save(folder.path().join("d.onnx"), true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsafePath);

    for name in ["sub/w.data", "../w.data", "/w.data", "M.ONNX", "#w", "", "a\0b", "..", "C:w"] {
        let error = many(4).save(&path, SaveOptions::new().data_name(name)).unwrap_err();
        let kinds = [ErrorKind::InvalidArgument, ErrorKind::UnsafePath];
        assert!(kinds.contains(&error.kind()), "{name:?}: {error}");
    }
    fs::remove_dir(folder.path().join("d.onnx.data")).unwrap();
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn a_cancelled_save_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    many(3).save(&path, true).unwrap();
    let before = contents(folder.path());
    for weight_files in LAYOUTS {
        let cancel = SaveOptions::from(weight_files).progress(|_| ControlFlow::Break(()));
        let error = many(30).save(&path, cancel).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(contents(folder.path()), before);
    }

    let seen = Arc::new(AtomicU64::new(0));
    let shown = seen.clone();
    let watch = SaveOptions::new().progress(move |progress| {
        shown.fetch_max(progress.done, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    let saved = many(30).save(&path, watch).unwrap();
    assert!(seen.load(Ordering::Relaxed) > saved.bytes / 2);
}

#[test]
fn a_save_can_be_cancelled_at_every_step_from_before_its_first_file_to_before_its_renames() {
    for weight_files in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let mut steps = 0;
        loop {
            let (count, dir) = (AtomicU64::new(0), folder.path().to_path_buf());
            let cancel = SaveOptions::from(weight_files).progress(move |progress| {
                let step = count.fetch_add(1, Ordering::Relaxed);
                let is_empty = fs::read_dir(&dir).unwrap().next().is_none();
                assert_eq!((step == 0, step == 0 && progress.done == 0), (is_empty, step == 0));
                if step < steps { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            let Err(error) = many(3).save(&path, cancel) else { break };
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
            steps += 1;
        }
        assert!(steps > 2, "{steps}");
    }
}

#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn a_full_disk_is_found_before_the_first_byte() {
    let bytes = Buffer::from_owner(Sparse::new(1 << 46));
    let tensor = Tensor::new(DataType::Uint8, [1_i64 << 46], bytes).unwrap();
    let weight = TensorProto::external("w", TensorProto::UINT8, [1_i64 << 46], "#w");
    let mut container = Container::new(model(graph(vec![weight], vec![])));
    container.insert("#w", tensor).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = container.save(folder.path().join("m.onnx"), true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.reason().starts_with("needs 70 TB, "), "{error}");
    assert!(contents(folder.path()).is_empty());
}

/// Address space without memory: a mapped sparse file.
#[cfg(target_pointer_width = "64")]
struct Sparse(memmap2::Mmap);

#[cfg(target_pointer_width = "64")]
impl Sparse {
    fn new(len: u64) -> Self {
        let file = tempfile::tempfile().unwrap();
        // Larger than ext4 takes: the file is short, the map is not, and nobody reads it.
        file.set_len(4096).unwrap();
        let mut options = memmap2::MmapOptions::new();
        options.len(len as usize).no_reserve_swap();
        // SAFETY: the file is private to this test and no byte of the map is touched.
        #[allow(unsafe_code)]
        let map = unsafe { options.map(&file) }.unwrap();
        Self(map)
    }
}

#[cfg(target_pointer_width = "64")]
impl AsRef<[u8]> for Sparse {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
#[cfg(unix)]
fn files_get_the_mode_that_the_umask_gives() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("plain"), "").unwrap();
    many(3).save(folder.path().join("m.onnx"), true).unwrap();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
    assert_eq!(mode("m.onnx"), mode("plain"));
    assert_eq!(mode("m.onnx.data"), mode("plain"));
}

#[test]
fn a_structure_alone_is_loaded_and_filled_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saved = many(5).save(&path, true).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(path.with_extension("onnx.data"), elsewhere.path().join("m.onnx.data")).unwrap();

    let mut container = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    assert_eq!(container.model(), &saved.model().unwrap(), "entries stay as they are");
    // What needs the bytes does not go without them.
    let embedded = container.dry_run(folder.path().join("n.onnx"), WeightFiles::Embedded);
    let parts = container.to_parts(true).map(drop);
    for error in [embedded.unwrap_err(), parts.unwrap_err(), container.check().unwrap_err()] {
        assert_eq!((error.kind(), error.related().len()), (ErrorKind::MissingHandle, 5));
    }
    let error = container.attach(folder.path(), MmapChoice::never()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile);
    assert_eq!(container.model(), &saved.model().unwrap(), "a failed attach changes nothing");
    container.attach(elsewhere.path(), MmapChoice::never()).unwrap();
    assert_same(&container, &many(5));

    let symbolic = folder.path().join("symbolic.onnx");
    fs::write(&symbolic, add_w(2).encode_to_vec().unwrap()).unwrap();
    let mut container = Container::load(&symbolic, LoadOptions::new().weights(false)).unwrap();
    assert_eq!(container.model(), &add_w(2));
    container.insert("#w", array![1.0_f32, 2.0]).unwrap();
    container.save(folder.path().join("filled.onnx"), true).unwrap();
}

#[test]
fn models_and_weights_from_memory() {
    let container = many(5);
    let before = all_bytes(&container);
    let parts = container.to_parts(false).unwrap();
    assert_eq!(parts.files.len(), 5);
    for ((_, initializer), (_, bytes)) in container.iter().zip(&parts.files) {
        assert_eq!(initializer.as_buffer().unwrap().as_ptr(), bytes.as_ptr(), "not copied");
    }
    for one_file in [true, false] {
        let parts = container.to_parts(one_file).unwrap();
        let options = parts.files.iter().fold(LoadOptions::new(), |options, (name, bytes)| {
            options.file(format!("./{name}"), bytes.clone())
        });
        let loaded = Container::load_bytes(parts.model.clone(), options).unwrap();
        assert_eq!(all_bytes(&loaded), before);
        let error = Container::load_bytes(parts.model, LoadOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingFile);
    }
    let folder = tempfile::tempdir().unwrap();
    container.save(folder.path().join("m.onnx"), true).unwrap();
    let bytes = fs::read(folder.path().join("m.onnx")).unwrap();
    let loaded = Container::load_bytes(bytes, LoadOptions::new().base_dir(folder.path())).unwrap();
    assert_eq!(all_bytes(&loaded), before);
}

#[test]
fn all_missing_files_are_in_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    many(6).save(&path, false).unwrap();
    for i in [1, 3, 4] {
        fs::remove_file(folder.path().join(format!("m-w{i}.weight"))).unwrap();
    }
    let error = Container::load(&path, MmapChoice::never()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile);
    let missing: Vec<_> = error.related().iter().map(|e| e.tensor().unwrap()).collect();
    assert_eq!(missing, ["w1", "w3", "w4"]);
    for name in ["m-w1.weight", "m-w3.weight", "m-w4.weight"] {
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn one_file_that_is_missing_is_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    many(6).save(&path, true).unwrap();
    fs::remove_file(folder.path().join("m.onnx.data")).unwrap();
    let error = Container::load(&path, MmapChoice::never()).unwrap_err();
    assert_eq!((error.kind(), error.related().len()), (ErrorKind::MissingFile, 0));
}

#[test]
fn a_self_contained_canonical_model_is_written_as_it_was() {
    let original =
        model(graph(vec![floats("w", 0, 4)], vec![node("Add", &["x", "w"], &["y"], vec![])]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let bytes = original.encode_to_vec().unwrap();
    fs::write(&path, &bytes).unwrap();
    for mmap in both_choices() {
        let container = Container::load(&path, mmap).unwrap();
        let saved = container.save(folder.path().join("n.onnx"), WeightFiles::Embedded).unwrap();
        assert_eq!(saved.files.len(), 1);
        assert_eq!(fs::read(folder.path().join("n.onnx")).unwrap(), bytes);
        // With nothing external there is no data file either.
        container.save(folder.path().join("p.onnx"), true).unwrap();
        assert_eq!(contents(folder.path()).len(), 3);
        fs::remove_file(folder.path().join("p.onnx")).unwrap();
    }
}

#[test]
fn thresholds_and_typed_fields() {
    let mut typed = TensorProto::new("typed", TensorProto::FLOAT, [256]);
    *typed.float_data = vec![1.5_f32; 256].into();
    let weights = vec![typed, floats("small", 0, 255), floats("large", 0, 256), int64s("i", &[1])];
    for (min_bytes, moved) in [(1024, 2), (1025, 0), (1020, 3), (0, 3), (u64::MAX, 0)] {
        let mut container = Container::new(model(graph(weights.clone(), vec![])));
        let before = all_bytes(&container);
        assert_eq!(container.externalize(min_bytes).unwrap().moved, moved, "{min_bytes}");
        assert_eq!(all_bytes(&container), before);
    }
}

#[test]
fn entries_of_other_writers_are_replaced_by_ours() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.bin"), [1; 16]).unwrap();
    let mut weight = TensorProto::external("w", TensorProto::FLOAT, [4], "./w.bin");
    weight.external_data.push(StringStringEntryProto::new("basepath", "/somewhere"));
    weight.external_data.push(StringStringEntryProto::new("checksum", "0"));
    let path = folder.path().join("m.onnx");
    fs::write(&path, model(graph(vec![weight], vec![])).encode_to_vec().unwrap()).unwrap();
    let container = Container::load(&path, MmapChoice::never()).unwrap();
    assert_eq!(container.warnings().len(), 1);
    assert!(container.warnings()[0].reason().contains("basepath"));
    let saved = container.save(folder.path().join("n.onnx"), true).unwrap();
    assert_eq!(entries(&saved.model().unwrap()), [("n.onnx.data".to_owned(), 0, 16)]);
}

#[test]
fn tensors_whose_names_differ_only_in_case_have_files_of_their_own_on_every_system() {
    for names in [
        &["w", "W"][..],
        &["fc.weight", "FC.weight", "fc.WEIGHT", "Fc.Weight"],
        &["ä", "Ä", "a\u{308}"],
        &["straße", "STRASSE", "strasse"],
        &["ς", "σ", "Σ"],
        &["a/b", "A:B", "a_b"],
        &["nul", "NUL", "con.", "aux "],
    ] {
        let weights = names.iter().zip(1..).map(|(name, start)| floats(name, start, 300));
        let mut container = Container::new(model(graph(weights.collect(), vec![])));
        container.externalize(1).unwrap();
        for layout in LAYOUTS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let saved = container.save(&path, layout).unwrap();
            let files = saved.files.iter().map(|file| file.name.to_uppercase().to_lowercase());
            let distinct: std::collections::BTreeSet<_> = files.collect();
            assert_eq!(distinct.len(), saved.files.len(), "{names:?} {layout:?}");
            let is_apart = layout == WeightFiles::PerTensor;
            assert!(!is_apart || saved.files.len() == names.len() + 1, "{names:?}");
            let again = Container::load(&path, MmapChoice::never()).unwrap();
            assert_eq!(all_bytes(&again), all_bytes(&container), "{names:?} {layout:?}");
        }
    }
}
