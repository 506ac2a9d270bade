//! Scans of folders: models, their files, and what no model needs.

use std::fs;
use std::path::{Path, PathBuf};

use onnx_container::proto::{GraphProto, Message, ModelProto, StringStringEntryProto, TensorProto};
use onnx_container::scan::{Certainty, FileState, Scan, ScanOptions, scan};

use crate::support::both_choices;

/// A model whose tensors of 8 bytes are in these files.
fn model(locations: &[&str]) -> Vec<u8> {
    let mut graph = GraphProto::new("g");
    let external = |location: &&str| TensorProto::external("w", TensorProto::UINT8, [8], *location);
    graph.initializer = locations.iter().map(external).collect();
    ModelProto::new(graph).with_operator_set("", 18).encode_to_vec().unwrap()
}

/// A folder with these files: what is said of each is `model LOCATION...`, or its bytes.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, what) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = match what.strip_prefix("model") {
            Some(locations) => model(&locations.split_whitespace().collect::<Vec<_>>()),
            None => what.as_bytes().to_vec(),
        };
        fs::write(path, bytes).unwrap();
    }
    folder
}

/// A commit that was killed leaves the files of its job in the folder of a save too. They are the
/// job's, and count once.
#[test]
fn files_of_a_job_that_a_killed_commit_left_count_once() {
    use onnx_container::scan::LeftKind;
    let folder = folder(&[
        (".m.onnx.job-aB3xYz/new/m.onnx.data", "01234567"),
        (".m.onnx.saving-aB3xYz/new/own", "0123"),
    ]);
    let (job, save) =
        (".m.onnx.job-aB3xYz/new/m.onnx.data", ".m.onnx.saving-aB3xYz/new/m.onnx.data");
    fs::hard_link(folder.path().join(job), folder.path().join(save)).unwrap();
    fs::create_dir(folder.path().join(".m.onnx.saving-aB3xYz/old")).unwrap();
    let list = "onnx-container save 1\0m.onnx.data\0own\0";
    fs::write(folder.path().join(".m.onnx.saving-aB3xYz/files"), list).unwrap();
    let found = found(&folder);
    let left: Vec<_> = found.left.iter().map(|it| (it.kind, it.bytes)).collect();
    let own = 4 + list.len() as u64;
    assert_eq!(left, [(LeftKind::Job, 8), (LeftKind::Unneeded, own)], "{left:?}");
    assert_eq!((found.bytes, found.reclaimable()), (8 + own, own));
}

fn found(folder: &tempfile::TempDir) -> Scan {
    let found = scan(folder.path(), ScanOptions::new()).unwrap();
    assert!(found.errors.is_empty(), "{:?}", found.errors);
    found
}

/// `path` from the folder on.
fn within(folder: &tempfile::TempDir, path: &Path) -> String {
    path.strip_prefix(folder.path()).unwrap().to_string_lossy().replace('\\', "/")
}

/// The models, each with the state of its files.
fn models(folder: &tempfile::TempDir, found: &Scan) -> Vec<String> {
    let file = |file: &onnx_container::scan::ScannedFile| {
        let state = match file.state {
            FileState::Present => "",
            FileState::Missing => "?",
            FileState::Wrong => "!",
            FileState::CutOff => "<",
            _ => "#",
        };
        format!(" {}{state}", file.location)
    };
    let line = |model: &onnx_container::scan::ScannedModel| {
        within(folder, &model.path) + &model.files.iter().map(file).collect::<String>()
    };
    found.models.iter().map(line).collect()
}

/// The orphans, each with how sure it is.
fn orphans(folder: &tempfile::TempDir, found: &Scan) -> Vec<(String, Certainty)> {
    found.orphans.iter().map(|it| (within(folder, &it.path), it.certainty)).collect()
}

const WEIGHTS: &str = "\0\0\0\0\0\0\0\0";

#[test]
fn models_are_told_by_content_and_their_files_are_listed() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 8\n";
    let folder = folder(&[
        ("a.onnx", "model a.data b.data"),
        ("a.data", WEIGHTS),
        ("b.data", pointer),
        ("deep/er/no_extension", "model ../a.data gone #x w"),
        ("deep/er/w", WEIGHTS),
        ("text.onnx", "hello"),
        ("empty.onnx", ""),
        ("pointer.onnx", pointer),
        ("noise.onnx", "\u{1}\0\0\0\0\0"),
        (".git/objects/ab", "model"),
        ("notes.txt", "notes"),
    ]);
    let found = found(&folder);
    assert_eq!(
        models(&folder, &found),
        ["a.onnx a.data b.data!", "deep/er/no_extension #x# ../a.data# gone? w"]
    );
    let not: Vec<_> = found.not_models.iter().map(|error| error.to_string()).collect();
    let says = |name: &str, what: &str| {
        assert!(not.iter().any(|it| it.contains(name) && it.contains(what)), "{name}: {not:?}");
    };
    says("text.onnx", "a text file, not an ONNX model");
    says("empty.onnx", "empty");
    says("pointer.onnx", "git lfs pull");
    says("noise.onnx", "not an ONNX model, or damaged");
    assert_eq!((not.len(), found.orphans.len()), (4, 0), "{:?}", found.orphans);
    assert_eq!(found.models[1].missing().count(), 3);
}

#[test]
fn a_model_that_is_cut_off_is_one() {
    let folder = folder(&[("whole.onnx", "model w"), ("w", WEIGHTS)]);
    let bytes = fs::read(folder.path().join("whole.onnx")).unwrap();
    fs::write(folder.path().join("cut.onnx"), &bytes[..bytes.len() - 1]).unwrap();
    let found = found(&folder);
    let whole: Vec<_> = found.models.iter().map(|it| (it.is_damaged, it.is_whole)).collect();
    assert_eq!(models(&folder, &found).len(), 2);
    assert_eq!(whole, [(true, false), (false, true)]);
}

/// A model whose tensor of 8 bytes has these entries beside its location `w`.
fn with_entries(entries: &[(&str, &str)], dims: &[i64]) -> Vec<u8> {
    let mut tensor = TensorProto::external("w", TensorProto::UINT8, [8], "w");
    tensor.dims = dims.to_vec();
    let entry = |(key, value): &(&str, &str)| StringStringEntryProto::new(*key, *value);
    tensor.external_data.extend(entries.iter().map(entry));
    let mut graph = GraphProto::new("g");
    graph.initializer = vec![tensor];
    ModelProto::new(graph).encode_to_vec().unwrap()
}

#[test]
fn weights_that_are_shorter_than_their_tensors_need_are_cut_off() {
    type Case<'c> = (&'c [(&'c str, &'c str)], &'c [i64], u64);
    let cases: [Case<'_>; 8] = [
        (&[], &[8], 8),
        (&[("offset", "4"), ("length", "8")], &[8], 12),
        (&[("length", "8"), ("offset", "4")], &[8], 12),
        (&[("offset", "4")], &[2, 4], 12),
        (&[("offset", "4"), ("length", "0")], &[8], 12),
        // What no reader takes needs no bytes that could be told.
        (&[("offset", "-4")], &[8], 8),
        (&[("offset", "4")], &[-8], 4),
        (
            &[("offset", "9223372036854775807"), ("length", "9223372036854775807")],
            &[8],
            u64::MAX - 1,
        ),
    ];
    for (entries, dims, needed) in cases {
        for (there, state) in [(needed, FileState::Present), (needed - 1, FileState::CutOff)] {
            if there > 1 << 20 && state == FileState::Present {
                continue;
            }
            let folder = folder(&[("w", "")]);
            fs::write(folder.path().join("m.onnx"), with_entries(entries, dims)).unwrap();
            let there = there.min(100);
            fs::File::create(folder.path().join("w")).unwrap().set_len(there).unwrap();
            let found = found(&folder);
            let [model] = &found.models[..] else { panic!("{:?}", found.models) };
            let file = &model.files[0];
            assert_eq!((file.state, file.bytes), (state, there), "{entries:?}");
            assert_eq!(model.is_whole, state == FileState::Present, "{entries:?}");
            let reason = format!("cut off: {there} bytes, its tensors need {needed}");
            let reason = (!model.is_whole).then_some(reason);
            assert_eq!((&file.reason, model.is_damaged), (&reason, false), "{entries:?}");
        }
    }
}

#[test]
fn a_model_is_whole_with_all_of_its_files() {
    let missing = folder(&[("m.onnx", "model gone w"), ("w", WEIGHTS)]);
    let model = &found(&missing).models[0];
    assert_eq!((model.is_whole, model.is_damaged, model.missing().count()), (false, false, 1));
    // A tensor with its elements in the message needs nothing of the file that it names too.
    let mut inline = TensorProto::external("w", TensorProto::UINT8, [8], "w");
    inline.data_location = None;
    let mut graph = GraphProto::new("g");
    graph.initializer = vec![inline];
    let bytes = ModelProto::new(graph).encode_to_vec().unwrap();
    let named = folder(&[("w", "")]);
    fs::write(named.path().join("m.onnx"), bytes).unwrap();
    assert_eq!(models(&named, &found(&named)), ["m.onnx w"]);
}

/// The names that a trial found to be passed over.
#[test]
fn what_no_model_needs_is_found_whatever_it_is_called() {
    use Certainty::{Likely, Possible, Sure};
    let names = [
        ("foo.data", Likely),
        ("m.onnx.data", Sure),
        ("m.safetensors", Possible),
        ("model.onnx_data_9", Likely),
        ("notes.txt", Possible),
        ("old_weights.bin", Possible),
        ("weights2.bin", Possible),
        ("x.weight", Likely),
    ];
    let mut files = vec![("m.onnx", "model kept"), ("kept", WEIGHTS), ("README", "text")];
    files.extend(names.map(|(name, _)| (name, WEIGHTS)));
    let folder = folder(&files);
    let found = found(&folder);
    assert_eq!(orphans(&folder, &found), names.map(|(name, sure)| (name.to_owned(), sure)));
    assert_eq!((found.reclaimable(), found.perhaps_reclaimable()), (4 * 8, 4 * 8));
}

#[test]
fn weights_without_a_model_are_a_folder_of_their_own() {
    let folder = folder(&[
        ("lost/m.onnx.data", WEIGHTS),
        ("lost/x.weight", WEIGHTS),
        ("lost/words.txt", "text"),
        ("m.onnx", "model below/w.data"),
        ("below/w.data", WEIGHTS),
        ("below/old.data", WEIGHTS),
        ("other/picture", WEIGHTS),
    ]);
    let found = found(&folder);
    // A file beside weights that a model above needs is an orphan.
    assert_eq!(orphans(&folder, &found), [("below/old.data".to_owned(), Certainty::Likely)]);
    let lost: Vec<_> = found
        .without_model
        .iter()
        .map(|it| (within(&folder, &it.path), it.files, it.bytes))
        .collect();
    assert_eq!(lost, [("lost".to_owned(), 2, 16)]);
}

#[test]
fn weights_that_a_model_above_the_folder_needs_are_none_that_nobody_needs() {
    let folder = folder(&[
        ("m.onnx", "model below/w.data"),
        ("below/w.data", WEIGHTS),
        ("below/n.onnx", "model"),
        ("below/n.onnx.data", WEIGHTS),
    ]);
    let found = scan(folder.path().join("below"), ScanOptions::new()).unwrap();
    assert_eq!(orphans(&folder, &found), [("below/n.onnx.data".to_owned(), Certainty::Sure)]);
}

#[cfg(unix)]
#[test]
fn files_with_several_names_count_once() {
    let folder = folder(&[("m.onnx", "model w"), ("w", WEIGHTS), ("x.data", WEIGHTS)]);
    let at = |name: &str| folder.path().join(name);
    fs::hard_link(at("x.data"), at("y.data")).unwrap();
    fs::hard_link(at("m.onnx"), at("n.onnx")).unwrap();
    std::os::unix::fs::symlink("m.onnx", at("latest.onnx")).unwrap();
    std::os::unix::fs::symlink("gone/m.onnx", at("lost.onnx")).unwrap();
    let found = found(&folder);
    let bytes = fs::metadata(at("m.onnx")).unwrap().len() + 16;
    assert_eq!((found.files, found.bytes, found.reclaimable()), (3, bytes, 8));
    let same: Vec<_> = found.models.iter().map(|it| it.same_file_as.clone()).collect();
    assert_eq!(same, [None, Some(at("latest.onnx")), Some(at("latest.onnx"))]);
    assert_eq!(found.models[0].link_to, Some(PathBuf::from("m.onnx")));
    assert_eq!(orphans(&folder, &found), [("x.data".to_owned(), Certainty::Likely)]);
    let dangling: Vec<_> = found.dangling.iter().map(|it| it.to_string()).collect();
    assert!(dangling.len() == 1 && dangling[0].contains("a link to `gone/m.onnx`"), "{dangling:?}");
    // A name elsewhere keeps the bytes.
    let away = tempfile::tempdir_in(folder.path().parent().unwrap()).unwrap();
    fs::hard_link(at("x.data"), away.path().join("z")).unwrap();
    assert_eq!(scan(folder.path(), ScanOptions::new()).unwrap().reclaimable(), 0);
}

#[cfg(unix)]
#[test]
fn a_cache_of_hugging_face_is_shown_by_its_snapshots() {
    let (of_model, of_data, stray) = ("a".repeat(64), "b".repeat(64), "c".repeat(40));
    let blob = |name: &str| format!("hub/blobs/{name}");
    let folder = folder(&[
        (&blob(&of_model), "model m.onnx_data"),
        (&blob(&of_data), WEIGHTS),
        (&blob(&stray), WEIGHTS),
    ]);
    let snapshot = folder.path().join("hub/snapshots/1");
    fs::create_dir_all(&snapshot).unwrap();
    for (name, digest) in [("m.onnx", &of_model), ("m.onnx_data", &of_data)] {
        let target = format!("../../blobs/{digest}");
        std::os::unix::fs::symlink(target, snapshot.join(name)).unwrap();
    }
    let found = found(&folder);
    assert_eq!(models(&folder, &found), ["hub/snapshots/1/m.onnx m.onnx_data"]);
    assert_eq!(orphans(&folder, &found), [(blob(&stray), Certainty::Likely)]);
    assert_eq!((found.reclaimable(), found.files), (8, 3));
    // The snapshot alone has the same model, and its bytes.
    let alone = scan(&snapshot, ScanOptions::new()).unwrap();
    assert_eq!((alone.models.len(), alone.bytes), (1, found.bytes - 8));
    assert!(alone.orphans.is_empty() && alone.reclaimable() == 0);
}

#[cfg(unix)]
#[test]
fn what_cannot_be_read_is_told_and_the_scan_goes_on() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder(&[
        ("closed/m.onnx", "model"),
        ("m.onnx", "model"),
        ("m.onnx.data", WEIGHTS),
        ("secret", "model m.onnx.data"),
    ]);
    let close = |name: &str| {
        let path = folder.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    };
    close("closed");
    close("secret");
    let is_root = fs::read_dir(folder.path().join("closed")).is_ok();
    let found = scan(folder.path(), ScanOptions::new()).unwrap();
    if !is_root {
        let errors: Vec<_> = found.errors.iter().map(|it| it.to_string()).collect();
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert_eq!(models(&folder, &found), ["m.onnx"]);
        // The file that cannot be read may be a model that needs it.
        assert_eq!(orphans(&folder, &found), [("m.onnx.data".to_owned(), Certainty::Possible)]);
    }
    fs::set_permissions(folder.path().join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn equal_weights_of_different_models_are_found() {
    /// A model with inline tensors of these elements.
    fn inline(tensors: &[(&str, u8, usize)]) -> Vec<u8> {
        let mut graph = GraphProto::new("g");
        graph.initializer = tensors
            .iter()
            .map(|(name, value, len)| {
                let dims = [i64::try_from(*len).unwrap()];
                TensorProto::new(*name, TensorProto::UINT8, dims).with_raw_data(vec![*value; *len])
            })
            .collect();
        ModelProto::new(graph).with_operator_set("", 18).encode_to_vec().unwrap()
    }
    let folder = folder(&[("c.onnx", "model c.data"), ("c.data", WEIGHTS)]);
    let at = |name: &str| folder.path().join(name);
    let models = [
        (
            "a.onnx",
            inline(&[("emb", 1, 5000), ("head", 2, 3000), ("twice", 3, 2000), ("t", 3, 2000)]),
        ),
        ("b.onnx", inline(&[("emb.0", 1, 5000), ("head", 4, 3000), ("small", 5, 8)])),
    ];
    for (name, bytes) in models {
        fs::write(at(name), bytes).unwrap();
    }
    for choice in both_choices() {
        let options = ScanOptions::from(choice).equal(true);
        let found = scan(folder.path(), options.clone()).unwrap();
        let equal = found.equal.as_ref().unwrap();
        let said: Vec<_> = equal.iter().map(|it| (it.bytes, it.copies, it.places.len())).collect();
        assert_eq!((said, found.shareable()), (vec![(5000, 2, 2)], Some(5000)));
        assert_eq!(equal[0].places[1].tensor, "emb.0");
        // Weights in files, from 8 bytes on. One model has a copy of the other's file.
        fs::write(at("d.onnx"), model(&["d.data"])).unwrap();
        fs::write(at("d.data"), WEIGHTS).unwrap();
        let found = scan(folder.path(), options.clone().min_equal_bytes(8)).unwrap();
        assert_eq!(found.shareable(), Some(5000 + 8));
        // Both models have the same file.
        fs::write(at("d.onnx"), model(&["c.data"])).unwrap();
        assert_eq!(
            scan(folder.path(), options.min_equal_bytes(8)).unwrap().shareable(),
            Some(5000)
        );
    }
    assert_eq!(scan(folder.path(), ScanOptions::new()).unwrap().shareable(), None);
}

/// Models share weights in one folder only.
#[test]
fn what_models_of_different_folders_cannot_share_is_counted_apart() {
    let cases: [(&[&str], u64, u64); 5] = [
        (&["a.onnx", "sub/b.onnx"], 0, 8),
        (&["a.onnx", "b.onnx", "sub/c.onnx"], 8, 8),
        (&["a.onnx", "b.onnx", "sub/c.onnx", "sub/d.onnx"], 16, 8),
        (&["x/a.onnx", "y/b.onnx", "z/c.onnx"], 0, 16),
        (&["a.onnx", "b.onnx", "c.onnx"], 16, 0),
    ];
    for (models, shareable, in_one_folder) in cases {
        let data: Vec<_> = models.iter().map(|model| format!("{model}.data")).collect();
        let own = |model: &&str| format!("model {}.data", model.rsplit('/').next().unwrap());
        let named: Vec<_> = models.iter().map(own).collect();
        let files = models.iter().zip(&named).map(|(model, named)| (*model, named.as_str()));
        let data = data.iter().map(|data| (data.as_str(), WEIGHTS));
        let folder = folder(&files.chain(data).collect::<Vec<_>>());
        let options = ScanOptions::new().equal(true).min_equal_bytes(8);
        let found = scan(folder.path(), options).unwrap();
        let told = (found.shareable(), found.shareable_in_one_folder());
        assert_eq!(told, (Some(shareable), Some(in_one_folder)), "{models:?}");
    }
}

#[test]
fn only_a_folder_is_scanned() {
    let folder = folder(&[("m.onnx", "model")]);
    for (name, text) in [("m.onnx", "not a folder"), ("gone", "No such file")] {
        let error = scan(folder.path().join(name), ScanOptions::new()).unwrap_err();
        assert!(cfg!(windows) || error.to_string().contains(text), "{error}");
    }
}
