//! Digests that are stored with a model: they come with a save, are verified, and never become
//! wrong.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use onnx_container::check::{CheckOptions, check_model};
use onnx_container::edit::{CastOptions, ExternalizeOptions, Tied};
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::load::VerifyDigests;
use onnx_container::proto::{Message, ModelProto, StringStringEntryProto, TensorProto};
use onnx_container::{
    Container, DataType, Error, ErrorKind, LoadOptions, MmapChoice, Outline, SaveOptions,
    WeightFiles, traversal,
};

use crate::random_models::Choices;
use crate::support::{
    LAYOUTS, both_choices, external_everywhere, floats, graph, graph_of, int64s, model, node,
    tensors_everywhere, verifying,
};

const KEY: &str = "onnx_container.sha256";

/// `y = x + w`, with a tensor beside it that stays in the model and one of narrow elements.
fn small() -> Container {
    let narrow =
        TensorProto::new("q", TensorProto::INT4, [5]).with_raw_data(vec![0x21, 0x43, 0x0f]);
    let mut typed = TensorProto::new("typed", TensorProto::INT64, [2]);
    *typed.int64_data = onnx_container::proto::Packed::from(vec![1_i64, 300]);
    let tensors = vec![floats("w", 0, 6), narrow, int64s("kept", &[5, -1]), typed];
    let nodes = vec![node("Add", &["x", "w"], &["y"], vec![])];
    let mut main = graph_of(&["x"], &["y"], nodes);
    main.initializer = tensors;
    let mut container = Container::new(model(main));
    for name in ["w", "q"] {
        let tensor = container.tensor(name).unwrap();
        let place = container.model_mut().graph.as_mut().unwrap();
        let place =
            place.initializer.iter_mut().find(|t| *t.name.as_ref().unwrap() == name).unwrap();
        let dtype = tensor.dtype().number();
        *place = TensorProto::external(name, dtype, tensor.dims().to_vec(), format!("#{name}"));
        container.insert(&format!("#{name}"), tensor).unwrap();
    }
    container
}

/// The findings of a check of digests, or why the model cannot be read.
fn check(path: &Path) -> Result<(), Vec<Error>> {
    let options = CheckOptions::from(MmapChoice::never()).digests(true);
    let findings = check_model(path, options).map_err(|error| vec![error])?.findings;
    let found: Vec<_> = findings.into_iter().map(|finding| finding.error).collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn has_key(entries: &[StringStringEntryProto]) -> bool {
    entries.iter().any(|entry| *entry.key.as_ref().unwrap() == KEY)
}

/// How many digests are stored with `model`.
fn stored(model: &ModelProto) -> usize {
    let tensors = traversal::iter(model).filter(|(_, tensor)| has_key(&tensor.metadata_props));
    tensors.count() + usize::from(has_key(&model.metadata_props))
}

#[test]
fn every_layout_is_saved_with_digests_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let container = external_everywhere();
    let expected = container.digest().unwrap();
    let layouts = LAYOUTS.into_iter();
    #[cfg(feature = "safetensors")]
    let layouts = layouts.chain([WeightFiles::Safetensors]);
    for (i, layout) in layouts.enumerate() {
        let path = folder.path().join(format!("{i}.onnx"));
        let options = SaveOptions::from(layout).digests(true);
        let dry = container.dry_run(&path, options.clone()).unwrap();
        let saved = container.save(&path, options.clone()).unwrap();
        assert_eq!(dry.files, saved.files);
        assert_eq!(stored(&saved.model().unwrap()), 20);
        for choice in both_choices() {
            let loaded =
                Container::load(&path, LoadOptions::from(choice).verify_digests(true)).unwrap();
            assert_eq!(loaded.digest().unwrap(), expected);
            assert_eq!(stored(loaded.model()), 0);
            // Saved again with digests, it is the same; without them, it has none.
            let again = folder.path().join("again.onnx");
            loaded.save(&again, options.clone()).unwrap();
            Container::load(&again, verifying()).unwrap();
            let bare = loaded.save(&again, SaveOptions::from(layout)).unwrap();
            assert_eq!(stored(&bare.model().unwrap()), 0);
            assert_eq!(Container::load(&again, choice).unwrap().digest().unwrap(), expected);
        }
    }
    assert_eq!(stored(container.model()), 0);
}

#[test]
fn digests_are_those_of_what_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    // Weights and graph are changed after a load that brought digests.
    small().save(&path, SaveOptions::new().digests(true)).unwrap();
    let mut changed = Container::load(&path, verifying()).unwrap();
    changed.insert("#w", vec![9.0_f32; 6]).unwrap();
    changed.model_mut().producer_name = Some("another".into());
    changed.save(&path, SaveOptions::new().digests(true)).unwrap();
    Container::load(&path, verifying()).unwrap();
    // Only the graph, beside weights that stay where they are.
    let mut kept = Container::load(&path, MmapChoice::never()).unwrap();
    kept.model_mut().producer_name = Some("a third".into());
    kept.save(&path, SaveOptions::from(WeightFiles::AsLoaded).digests(true)).unwrap();
    Container::load(&path, verifying()).unwrap();
    // Tensors that move out while they are saved, and parts in memory.
    let inline = Container::new(tensors_everywhere());
    let options = SaveOptions::new().externalize(true).raw_data_threshold(1).digests(true);
    inline.save(&path, options.clone()).unwrap();
    Container::load(&path, verifying()).unwrap();
    let parts = inline.to_parts(options).unwrap();
    Container::load_bytes(parts.model, verifying().files(parts.files)).unwrap();
    // An outline leaves them out, and cannot make them.
    let outline = Outline::load(&path, MmapChoice::never()).unwrap();
    let error = outline.embed(&path, SaveOptions::new().digests(true)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(stored(&outline.embed(&path, true).unwrap().model().unwrap()), 0);
}

#[test]
fn whatever_changes_a_model_drops_its_digests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    small().save(&path, SaveOptions::from(WeightFiles::Embedded).digests(true)).unwrap();
    let bytes = fs::read(&path).unwrap();
    let message = || ModelProto::decode(&bytes.clone().into()).unwrap();
    assert_eq!(stored(&message()), 5);
    assert_eq!(stored(Container::new(message()).model()), 5);
    type Change = fn(&mut Container);
    let changes: [Change; 9] = [
        |container| {
            container.model_mut();
        },
        |container| drop(container.insert("#new", vec![1_u8])),
        |container| drop(container.remove("#none")),
        |container| drop(container.replace("w", vec![0.5_f32; 6], Tied::All).unwrap()),
        |container| {
            drop(container.cast(DataType::Float16, CastOptions::new().min_bytes(1)).unwrap())
        },
        |container| drop(container.delete_used_initializer("w").unwrap()),
        |container| assert_eq!(container.rename("w", "v").unwrap(), 2),
        |container| drop(container.inline_functions(InlineOptions::new()).unwrap()),
        |container| drop(container.externalize(ExternalizeOptions::new().min_bytes(1)).unwrap()),
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut container = Container::new(message());
        change(&mut container);
        assert_eq!(stored(container.model()), 0, "change {i}");
        assert_eq!(stored(&container.embed().unwrap()), 0, "change {i}");
    }
    let mut alone = message();
    inline_functions(&mut alone, InlineOptions::new()).unwrap();
    assert_eq!(stored(&alone), 0);
    // Weights that were not loaded are replaced too.
    small().save(&path, SaveOptions::new().digests(true)).unwrap();
    let mut bare = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    assert_eq!(stored(bare.model()), 5);
    let saved = bare.dry_run(&path, true).unwrap();
    assert_eq!(stored(&saved.model().unwrap()), 0);
    bare.insert("#w", vec![0.5_f32; 6]).unwrap();
    assert_eq!(stored(bare.model()), 0);
}

/// Readers may take bytes that such an entry names for the elements, as onnxruntime does with those
/// that it prepacked.
#[test]
fn entries_that_name_other_bytes_are_refused_by_every_digest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = || SaveOptions::new().digests(true);
    let signed = small().digest().unwrap();
    for (key, word) in [
        ("prepacked_0", "weights that onnxruntime prepacked for one machine"),
        ("prepacked", "weights that onnxruntime prepacked for one machine"),
        ("basepath", "unknown external data key `basepath`, which onnxruntime refuses"),
        ("", "unknown external data key ``"),
    ] {
        let mut model = small().save(&path, options()).unwrap().model().unwrap();
        let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
        let entry = StringStringEntryProto::new(key, "MatMul+1|24;4096;0");
        tensor.external_data.insert(1, entry);
        fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
        let refused = |error: &Error| {
            assert_eq!((error.kind(), error.tensor()), (ErrorKind::Unsupported, Some("w")));
            assert!(error.reason().contains(word), "{error}");
        };
        refused(&Container::load(&path, verifying()).unwrap_err());
        let [error] = &check(&path).unwrap_err()[..] else { panic!("{key}: one finding") };
        refused(error);
        let plain = check_model(&path, MmapChoice::never()).unwrap();
        assert!(plain.is_ok());
        refused(&plain.findings[0].error);
        let mut bare = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
        refused(&bare.attach(folder.path(), verifying()).unwrap_err());
        bare.attach(folder.path(), MmapChoice::never()).unwrap();
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        refused(&loaded.warnings()[0]);
        for container in [&bare, &loaded, &loaded.clone()] {
            refused(&container.digest().unwrap_err());
            assert_eq!(container.semantic_digest().unwrap_err().kind(), ErrorKind::Unsupported);
            // What is saved has no such entries, in whatever layout.
            for layout in LAYOUTS {
                let folder = tempfile::tempdir().unwrap();
                let other = folder.path().join("other.onnx");
                let saved =
                    container.save(&other, SaveOptions::from(layout).digests(true)).unwrap();
                for (_, tensor) in traversal::iter(&saved.model().unwrap()) {
                    assert!(tensor.external_data.len() < 4, "{:?}", tensor.external_data);
                }
                let again = Container::load(&other, verifying()).unwrap();
                assert_eq!(again.digest().unwrap(), signed);
                assert!(check(&other).is_ok());
            }
            let parts = container.to_parts(options()).unwrap();
            let load = parts
                .files
                .iter()
                .fold(verifying(), |load, (name, bytes)| load.file(name, bytes.clone()));
            assert_eq!(Container::load_bytes(parts.model, load).unwrap().digest().unwrap(), signed);
        }
    }
}

#[test]
fn what_cannot_be_verified_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    small().save(&path, true).unwrap();
    let error = Container::load(&path, verifying()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongDigest);
    assert!(error.to_string().contains("no digests are stored"), "{error}");
    assert!(check(&path).unwrap_err()[0].to_string().contains("no digests are stored"));
    small().save(&path, SaveOptions::new().digests(true)).unwrap();
    assert!(check(&path).is_ok());
    for error in [
        Container::load(&path, verifying().weights(false)).unwrap_err(),
        Outline::load(&path, verifying()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    // Weights that are attached are verified too, and nothing changes when they are others.
    let mut bare = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    let data = folder.path().join("m.onnx.data");
    let good = fs::read(&data).unwrap();
    let mut bad = good.clone();
    bad[5] ^= 4;
    fs::write(&data, &bad).unwrap();
    let error = bare.attach(folder.path(), verifying()).unwrap_err();
    assert_eq!((error.kind(), error.tensor(), bare.len()), (ErrorKind::WrongDigest, Some("w"), 0));
    fs::write(&data, &good).unwrap();
    bare.attach(folder.path(), verifying()).unwrap();
    // A model whose own digest was taken away.
    let embedded = SaveOptions::from(WeightFiles::Embedded).digests(true);
    let mut model = small().save(&path, embedded).unwrap().model().unwrap();
    model.metadata_props.clear();
    let bytes = model.encode_to_vec().unwrap();
    let error = Container::load_bytes(bytes.clone(), verifying()).unwrap_err();
    assert!(error.to_string().contains("only such of tensors"), "{error}");
    assert_eq!(stored(&model), 4);
    let loaded = Container::load_bytes(bytes, LoadOptions::new()).unwrap();
    assert_eq!(stored(loaded.model()), 0);
}

#[test]
fn a_load_verifies_what_is_stored_where_it_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let where_stored = || LoadOptions::new().verify_digests(VerifyDigests::WhereStored);
    let load = || Container::load(&path, where_stored());
    small().save(&path, true).unwrap();
    let bare = load().unwrap();
    assert!(!bare.had_digests() && bare.warnings().is_empty());
    small().save(&path, SaveOptions::new().digests(true)).unwrap();
    assert!(load().unwrap().had_digests());
    assert!(Container::load(&path, LoadOptions::new().weights(false)).unwrap().had_digests());
    assert!(Outline::load(&path, MmapChoice::never()).unwrap().had_digests());
    let error = Container::load(&path, where_stored().weights(false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let mut unfilled = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
    let data = folder.path().join("m.onnx.data");
    let mut bad = fs::read(&data).unwrap();
    bad[5] ^= 4;
    fs::write(&data, &bad).unwrap();
    for error in [load().unwrap_err(), unfilled.attach(folder.path(), where_stored()).unwrap_err()]
    {
        assert_eq!((error.kind(), error.tensor()), (ErrorKind::WrongDigest, Some("w")));
    }
    // A model whose own digest was taken away.
    let mut model = small().save(&path, SaveOptions::new().digests(true)).unwrap().model().unwrap();
    model.metadata_props.clear();
    fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
    assert!(Container::load(&path, MmapChoice::never()).unwrap().had_digests());
    assert_eq!(load().unwrap_err().kind(), ErrorKind::WrongDigest);
    // A checksum is stored as well.
    small().save(&path, SaveOptions::new().checksums(true)).unwrap();
    assert!(load().unwrap().warnings().is_empty());
    fs::write(&data, &bad).unwrap();
    assert_eq!(load().unwrap_err().kind(), ErrorKind::WrongDigest);
}

#[test]
fn a_file_that_cannot_be_read_is_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = SaveOptions::new().digests(true).checksums(true);
    let mut model = external_everywhere().save(&path, options).unwrap().model().unwrap();
    // No system has names of this length.
    let long = "x".repeat(300);
    for (_, tensor) in traversal::iter_mut(&mut model) {
        if let Some(entry) = tensor.external_data.first_mut() {
            entry.value = Some(long.as_str().into());
        }
    }
    fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
    let found = check(&path).unwrap_err();
    let unread = found.iter().filter(|error| error.kind() == ErrorKind::Io).count();
    assert_eq!(unread, 1, "{found:?}");
    assert!(found.iter().all(|error| error.kind() != ErrorKind::WrongDigest), "{found:?}");
}

#[test]
fn a_check_says_what_it_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let compared = |digests: bool, checksums: bool, asked: bool| {
        let options = SaveOptions::new().digests(digests).checksums(checksums);
        external_everywhere().save(&path, options).unwrap();
        let checked = check_model(&path, CheckOptions::new().digests(asked)).unwrap();
        checked.compared.map(|compared| compared.to_string())
    };
    assert_eq!(compared(true, true, false), None);
    assert_eq!(compared(true, true, true).unwrap(), "19 tensors, the model and 1 checksum");
    assert_eq!(compared(true, false, true).unwrap(), "19 tensors and the model");
    assert_eq!(compared(false, true, true).unwrap(), "0 tensors and 1 checksum");
    assert_eq!(compared(false, false, true).unwrap(), "0 tensors");
}

#[test]
fn all_mismatches_are_named_with_file_and_range() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    small().save(&path, SaveOptions::new().digests(true)).unwrap();
    let data = folder.path().join("m.onnx.data");
    let mut bytes = fs::read(&data).unwrap();
    bytes[3] ^= 1;
    bytes[257] ^= 1;
    fs::write(&data, bytes).unwrap();
    let mut model = fs::read(&path).unwrap();
    let at = model.windows(8).position(|eight| eight == (-1_i64).to_le_bytes()).unwrap();
    model[at] ^= 1;
    fs::write(&path, &model).unwrap();
    let found = check(&path).unwrap_err();
    let places: Vec<_> =
        found.iter().map(|e| (e.tensor(), e.path().unwrap().to_path_buf(), e.offset())).collect();
    let start = at as u64 - 8;
    let expected = [
        (Some("w"), data.clone(), Some(0)),
        (Some("q"), data, Some(256)),
        (Some("kept"), path.clone(), Some(start)),
    ];
    assert_eq!(places, expected);
    assert!(found.iter().all(|error| error.kind() == ErrorKind::WrongDigest), "{found:?}");
    let said = found[1].to_string();
    let words = "m.onnx.data`: its elements were changed or damaged since its digest was stored (bytes 256..259; stored ";
    assert!(said.contains(words) && said.contains(", found ") && said.ends_with(')'), "{said}");
    assert!(!said.contains("at byte"), "{said}");
    let error = Container::load(&path, verifying()).unwrap_err();
    assert_eq!(error.each().count(), 3);
    // Something that is no tensor.
    let at = model.windows(3).position(|three| three == b"Add").unwrap();
    model[at] = b'a';
    fs::write(&path, &model).unwrap();
    let found = check(&path).unwrap_err();
    assert!(found.iter().any(|e| e.tensor().is_none() && e.reason().contains("the model itself")));
}

/// Changes one byte in place: a file that is written anew waits for the disk.
fn write_at(mut file: &File, at: usize, byte: u8) {
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(&[byte]).unwrap();
}

#[test]
fn no_byte_of_a_small_model_changes_unnoticed() {
    for layout in [WeightFiles::Packed, WeightFiles::PerTensor, WeightFiles::Embedded] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let expected = small().digest().unwrap();
        let saved = small().save(&path, SaveOptions::from(layout).digests(true)).unwrap();
        assert_eq!(check(&path).map_err(|found| found[0].to_string()), Ok(()));
        for file in saved.files.iter().map(|file| folder.path().join(&file.name)) {
            let open = File::options().write(true).open(&file).unwrap();
            for (at, byte) in fs::read(&file).unwrap().into_iter().enumerate() {
                write_at(&open, at, byte ^ 1 << (at % 8));
                let found = check(&path).err();
                assert!(found.is_some(), "{layout:?}: byte {at} of {}: unnoticed", file.display());
                // What is loaded all the same has the same content: padding between tensors, and
                // entries of external data that the load warns of.
                if let Ok(loaded) = Container::load(&path, verifying()) {
                    let is_padding =
                        file != path && layout == WeightFiles::Packed && (24..256).contains(&at);
                    // The location in another case is the same file where case does not count.
                    let is_case = byte.is_ascii_alphabetic() && at % 8 == 5;
                    let is_same = is_padding || is_case && !cfg!(target_os = "linux");
                    let at = format!("{layout:?}: byte {at} of {}", file.display());
                    assert!(is_same || !loaded.warnings().is_empty(), "{at}");
                    assert_eq!(loaded.digest().unwrap(), expected, "{at}");
                }
                write_at(&open, at, byte);
            }
        }
    }
}

#[test]
fn no_bit_of_a_larger_model_changes_unnoticed() {
    let mut tensors: Vec<_> =
        (0..40).map(|i| floats(&format!("w{i}"), 100 * i, 10_000 + i)).collect();
    tensors.extend((0..10).map(|i| floats(&format!("small{i}"), i, 7)));
    let container = Container::new(model(graph(tensors, vec![])));
    let options = SaveOptions::new().externalize(true).digests(true);
    let parts = container.to_parts(options).unwrap();
    let [(name, data)] = &parts.files[..] else { panic!() };
    let whole = [&parts.model[..], &data[..]].concat();
    let mut choices = Choices::seeded(11);
    let mut named = BTreeSet::new();
    for _ in 0..1000 {
        let (at, bit) = (choices.below(60_000) * 60_000 + choices.below(60_000), choices.below(8));
        let at = at % whole.len();
        let mut bad = whole.clone();
        bad[at] ^= 1 << bit;
        let (model, data) = bad.split_at(parts.model.len());
        let options = verifying().file(name, data.to_vec());
        match Container::load_bytes(model.to_vec(), options) {
            Ok(_) => {
                // Padding: no tensor has it.
                let at = at.checked_sub(parts.model.len()).expect("a bit of the model unnoticed");
                assert_eq!(whole[parts.model.len() + at], 0, "byte {at} unnoticed");
                named.insert("padding".to_owned());
            }
            Err(error) => {
                if let Some(at) = at.checked_sub(parts.model.len()) {
                    let (kind, start) = (error.kind(), error.offset().unwrap());
                    assert!(kind == ErrorKind::WrongDigest && start <= at as u64, "{at}: {error}");
                    assert!(at as u64 - start < 10_040 * 4, "{at}: {error}");
                }
                named.extend(error.tensor().map(str::to_owned));
            }
        }
    }
    assert!(named.len() > 30, "{named:?}");
}
