//! Every option that writes a file against every kind of file that may have its name: what is not
//! the command's own stays as it is, and nothing is written through a link or waited for.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::PathBuf;

use onnx_container::Buffer;
use onnx_container::proto::{Message, ModelProto};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::signing::make_keys;
use crate::support::Folder;
use crate::support::sums as model;

/// A file that a command writes, in the folder `t`.
struct Place {
    /// The command, the option and the name of the file.
    option: (&'static str, &'static str),
    name: &'static str,
    args: &'static [&'static str],
    /// Whether it is a part of a model or of its signature: those have rules of their own for the
    /// files that are theirs.
    is_of_model: bool,
}

const fn place(
    option: (&'static str, &'static str),
    name: &'static str,
    args: &'static [&'static str],
) -> Place {
    Place { option, name, args, is_of_model: false }
}

const fn of_model(
    option: (&'static str, &'static str),
    name: &'static str,
    args: &'static [&'static str],
) -> Place {
    Place { is_of_model: true, ..place(option, name, args) }
}

/// All of them: `every_option_that_takes_a_path_is_known` finds those that are missing.
const PLACES: [Place; 38] = [
    place(("extract", "output"), "x.npy", &["extract", "m.onnx", "w", "-o", "t/x.npy"]),
    place(
        ("extract", "output"),
        "w.pb",
        &["extract", "m.onnx", "--names-from", "names", "-o", "t", "--format", "pb"],
    ),
    place(
        ("export-safetensors", "output"),
        "x.safetensors",
        &["export-safetensors", "m.onnx", "t/x.safetensors", "--min-bytes", "0"],
    ),
    place(("run", "output"), "output_0.npy", &["run", "m.onnx", "--dim", "batch=1", "-o", "t"]),
    place(
        ("run", "output"),
        "output_1.pb",
        &["run", "m.onnx", "--dim", "batch=1", "-o", "t", "--format", "pb"],
    ),
    place(
        ("run", "output"),
        "outputs.npz",
        &["run", "m.onnx", "--dim", "batch=1", "-o", "t", "--format", "npz"],
    ),
    place(
        ("trace", "output"),
        "x.jsonl",
        &["trace", "m.onnx", "--dim", "batch=1", "-o", "t/x.jsonl"],
    ),
    place(("trace", "dump"), "0_0.pb", &["trace", "m.onnx", "--dim", "batch=1", "--dump", "t"]),
    place(
        ("trace", "dump"),
        "1_0.pb",
        &["trace", "m.onnx", "--dim", "batch=1", "--dump", "t", "-o", "trace.jsonl"],
    ),
    place(("plan", "svg"), "x.svg", &["plan", "m.onnx", "--dim", "batch=1", "--svg", "t/x.svg"]),
    place(("report", "output"), "x.html", &["report", "m.onnx", "-o", "t/x.html", "--force"]),
    place(
        ("job rewrite", "job"),
        "x.job",
        &["job", "rewrite", "m.onnx", "o.onnx", "--min-bytes=0", "-o", "t/x.job"],
    ),
    of_model(
        ("sign", "output"),
        "x.sig",
        &["sign", "m.onnx", "--key", "keys/P-256.pem", "-o", "t/x.sig"],
    ),
    of_model(("man", "folder"), "onnx-container-pack.1", &["man", "t"]),
    of_model(
        ("pack", "config"),
        "config.json",
        &[
            "pack",
            "m.onnx",
            "o.onnx",
            "--max-shard-size=1GB",
            "--shard-names=transformers-js",
            "--config=t/config.json",
        ],
    ),
    of_model(("pack", "output"), "o.onnx", &["pack", "m.onnx", "t/o.onnx"]),
    of_model(
        ("pack", "data_name"),
        "x.data",
        &["pack", "m.onnx", "t/o.onnx", "--data-name", "x.data", "--align", "64"],
    ),
    of_model(("split", "output"), "o-w.weight", &["split", "m.onnx", "t/o.onnx"]),
    of_model(("cp", "places"), "o.onnx", &["cp", "m.onnx", "t/o.onnx"]),
    of_model(("embed", "output"), "o.onnx", &["embed", "m.onnx", "t/o.onnx"]),
    of_model(("cast", "output"), "o.onnx", &["cast", "m.onnx", "t/o.onnx", "--to", "float16"]),
    of_model(
        ("cast", "data_name"),
        "x.data",
        &["cast", "m.onnx", "t/o.onnx", "--to", "float16", "--data-name", "x.data"],
    ),
    of_model(("strip", "output"), "o.onnx", &["strip", "m.onnx", "t/o.onnx"]),
    of_model(("attach", "output"), "o.onnx", &["attach", "s.onnx", "m.onnx", "t/o.onnx"]),
    of_model(
        ("attach", "data_name"),
        "x.data",
        &["attach", "s.onnx", "m.onnx", "t/o.onnx", "--data-name", "x.data"],
    ),
    of_model(
        ("extract-model", "output"),
        "o.onnx",
        &["extract-model", "m.onnx", "t/o.onnx", "--outputs", "y"],
    ),
    of_model(
        ("extract-model", "data_name"),
        "x.data",
        &["extract-model", "m.onnx", "t/o.onnx", "--outputs", "y", "--data-name", "x.data"],
    ),
    of_model(
        ("merge", "output"),
        "o.onnx",
        &["merge", "m.onnx", "m.onnx", "t/o.onnx", "--prefix-b", "b/"],
    ),
    of_model(
        ("merge", "data_name"),
        "x.data",
        &["merge", "m.onnx", "m.onnx", "t/o.onnx", "--prefix-b", "b/", "--data-name", "x.data"],
    ),
    of_model(("edit", "output"), "o.onnx", &["edit", "m.onnx", "t/o.onnx", "--producer", "p"]),
    of_model(
        ("edit", "data_name"),
        "x.data",
        &["edit", "m.onnx", "t/o.onnx", "--producer", "p", "--data-name", "x.data"],
    ),
    of_model(("inline-functions", "output"), "o.onnx", &["inline", "m.onnx", "t/o.onnx"]),
    of_model(
        ("inline-functions", "data_name"),
        "x.data",
        &["inline", "m.onnx", "t/o.onnx", "--data-name", "x.data"],
    ),
    of_model(
        ("import-safetensors", "output"),
        "o.onnx",
        &["import-safetensors", "m.onnx", "w.safetensors", "t/o.onnx"],
    ),
    of_model(
        ("import-safetensors", "data_name"),
        "x.data",
        &["import-safetensors", "m.onnx", "w.safetensors", "t/o.onnx", "--data-name", "x.data"],
    ),
    of_model(
        ("import-safetensors", "mapping"),
        "x.json",
        &[
            "import-safetensors",
            "m.onnx",
            "w.safetensors",
            "t/o.onnx",
            "--match",
            "w.safetensors",
            "--mapping",
            "t/x.json",
        ],
    ),
    of_model(
        ("replace", "output"),
        "o.onnx",
        &["replace", "m.onnx", "w", "w.npy", "-o", "t/o.onnx"],
    ),
    of_model(
        ("replace", "data_name"),
        "x.data",
        &["replace", "m.onnx", "w", "w.npy", "-o", "t/o.onnx", "--data-name", "x.data"],
    ),
];

/// What has the name of the file that is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum There {
    LinkToAnother,
    LinkToItsWeights,
    LinkToItself,
    HardLinkToItsWeights,
    Pipe,
    Directory,
    Model,
    WeightsOfAnother,
    LinkToPipe,
}

const ALL: [There; 9] = [
    There::LinkToAnother,
    There::LinkToItsWeights,
    There::LinkToItself,
    There::HardLinkToItsWeights,
    There::Pipe,
    There::Directory,
    There::Model,
    There::WeightsOfAnother,
    There::LinkToPipe,
];

/// The files in which nothing may change, in the folder itself.
const KEPT: [&str; 4] = ["m.onnx", "m.onnx.data", "victim", "w.npy"];

/// What every case begins with.
fn prepared() -> Folder {
    let folder = Folder::new();
    folder.save("m.onnx", &model());
    folder.run(&["pack", "m.onnx", "m.onnx", "--min-bytes", "0"]).done();
    folder.run(&["strip", "m.onnx", "s.onnx", "--min-bytes", "0"]).done();
    folder.run(&["extract", "m.onnx", "w", "-o", "w.npy"]).done();
    folder.run(&["export-safetensors", "m.onnx", "w.safetensors", "--min-bytes", "0"]).done();
    fs::write(folder.path("victim"), "precious").unwrap();
    fs::write(folder.path("names"), "w\n").unwrap();
    make_keys(&folder);
    folder
}

/// A copy of `prepared`, with an empty folder `t`.
fn copy_of(prepared: &Folder) -> Folder {
    let folder = Folder::new();
    for name in ["keys", "t"] {
        fs::create_dir(folder.path(name)).unwrap();
    }
    for name in [
        "m.onnx",
        "s.onnx",
        "m.onnx.data",
        "w.npy",
        "w.safetensors",
        "victim",
        "names",
        "keys/P-256.pem",
    ] {
        fs::copy(prepared.path(name), folder.path(name)).unwrap();
    }
    folder
}

/// A model whose weights are in the file `location`.
fn with_weights_in(folder: &Folder, location: &str) -> ModelProto {
    let bytes = fs::read(folder.path("m.onnx")).unwrap();
    let mut model = ModelProto::decode(&Buffer::from(bytes)).unwrap();
    let entry = &mut model.graph.as_mut().unwrap().initializer[0].external_data[0];
    assert_eq!(entry.key, Some("location".into()));
    entry.value = Some(location.into());
    model
}

fn pipe(path: PathBuf) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}

/// Puts `there` in place of the file `name` that a command will write.
fn put(folder: &Folder, there: There, name: &str) {
    let path = folder.path("t").join(name);
    match there {
        There::LinkToAnother => symlink("../victim", path).unwrap(),
        There::LinkToItsWeights => symlink("../m.onnx.data", path).unwrap(),
        There::LinkToItself => symlink("../m.onnx", path).unwrap(),
        There::HardLinkToItsWeights => fs::hard_link(folder.path("m.onnx.data"), path).unwrap(),
        There::Pipe => pipe(path),
        There::Directory => fs::create_dir(path).unwrap(),
        There::Model => fs::write(path, model().encode_to_vec().unwrap()).unwrap(),
        There::WeightsOfAnother => {
            fs::copy(folder.path("m.onnx.data"), path).unwrap();
            folder.save("t/q.onnx", &with_weights_in(folder, name));
        }
        There::LinkToPipe => {
            pipe(folder.path("pipe"));
            symlink("../pipe", path).unwrap();
        }
    }
}

#[test]
fn no_option_that_writes_touches_what_is_not_its_own() {
    let prepared = prepared();
    for place in &PLACES {
        let unhindered = copy_of(&prepared);
        let run = unhindered.run(place.args).done();
        assert!(unhindered.path("t").join(place.name).is_file(), "{:?}: {run:?}", place.args);
        for there in ALL {
            // A model that is written replaces a model of its name, which was asked for.
            if place.name == "o.onnx" && there == There::Model {
                continue;
            }
            let folder = copy_of(&prepared);
            put(&folder, there, place.name);
            let target = folder.path("t").join(place.name);
            let kept = KEPT.map(|name| fs::read(folder.path(name)).unwrap());
            let is_kept = matches!(there, There::Model | There::WeightsOfAnother);
            let before = is_kept.then(|| fs::read(&target).unwrap());
            let run = folder.run(place.args);
            let case = format!("{:?} {there:?}: {run:?}", place.args);
            assert!(KEPT.map(|name| fs::read(folder.path(name)).unwrap()) == kept, "{case}");
            let is_link = target.is_symlink();
            match there {
                There::Model | There::WeightsOfAnother => {
                    assert_eq!(run.code(), 1, "{case}");
                    assert!(fs::read(&target).ok() == before, "{case}");
                }
                There::Pipe => {
                    assert_eq!(run.code(), 1, "{case}");
                    let meta = fs::symlink_metadata(&target).unwrap();
                    assert!(meta.file_type().is_fifo(), "{case}");
                }
                There::Directory => {
                    // An output of extract or of cp, or OUT, may be a folder: files are put there.
                    let is_out = place.is_of_model && place.option.1 == "output";
                    let takes_folders =
                        is_out || place.args.contains(&"t/x.npy") || place.option.0 == "cp";
                    assert!((run.code() == 1 || takes_folders) && target.is_dir(), "{case}");
                }
                There::LinkToPipe => assert!(run.code() == 1 && is_link, "{case}"),
                There::LinkToItsWeights | There::LinkToItself if !place.is_of_model => {
                    assert!(run.code() == 1 && is_link, "{case}");
                    assert!(run.stderr().contains("is not replaced"), "{case}");
                }
                There::LinkToAnother if !place.is_of_model => {
                    assert!(run.code() == 0 && !is_link, "{case}");
                }
                // The name was given up, and the weights have another one: or nothing was done.
                _ => assert!(run.code() == 1 || !is_link, "{case}"),
            }
            let staged: Vec<_> = fs::read_dir(folder.path("t")).unwrap().collect();
            let hidden = staged.iter().map(|entry| entry.as_ref().unwrap().file_name());
            let hidden: Vec<_> =
                hidden.filter(|name| name.to_string_lossy().starts_with('.')).collect();
            assert!(hidden.is_empty(), "{hidden:?} {case}");
        }
    }
}

/// The options that take a path and write nothing there.
const READ: [(&str, &str); 67] = [
    ("attach", "model"),
    ("attach", "weights"),
    ("cast", "input"),
    ("check", "models"),
    ("scan", "folders"),
    ("diff", "a"),
    ("diff", "b"),
    ("digest", "models"),
    ("digest", "join"),
    ("edit", "input"),
    ("embed", "input"),
    ("export-safetensors", "model"),
    ("extract", "model"),
    ("extract", "names_from"),
    ("extract-model", "input"),
    ("files", "model"),
    ("import-safetensors", "matched"),
    ("import-safetensors", "model"),
    ("import-safetensors", "weights"),
    ("inline-functions", "input"),
    ("inspect", "models"),
    ("job abort", "path"),
    ("job commit", "path"),
    ("job list", "folder"),
    // It plans a save, of which tests/integration/jobs.rs has what is refused.
    ("job rewrite", "data_name"),
    ("job rewrite", "input"),
    ("job rewrite", "output"),
    ("job status", "path"),
    ("job write", "job"),
    ("merge", "a"),
    ("merge", "b"),
    // It takes away what the cases keep: `model_files` has its own.
    ("mv", "places"),
    ("pack", "input"),
    ("plan", "csv_in"),
    ("plan", "model"),
    // They write to a store.
    ("publish", "data_name"),
    ("publish", "input"),
    ("recover", "path"),
    ("replace", "file"),
    ("replace", "model"),
    ("report", "model"),
    ("report", "other"),
    ("rm", "models"),
    ("run", "expect"),
    ("run", "input_dir"),
    ("run", "model"),
    ("run", "ort_library"),
    // It replaces the models, and its file is new: `share` has its own.
    ("share", "data_name"),
    ("share", "models"),
    ("sign", "key"),
    ("sign", "model"),
    ("split", "input"),
    ("stats", "model"),
    ("strip", "input"),
    ("trace", "input_dir"),
    ("trace", "model"),
    ("trace diff", "a"),
    ("trace diff", "b"),
    ("trace diff", "dump_a"),
    ("trace diff", "dump_b"),
    ("trace diff", "input_dir"),
    ("verify", "a"),
    ("verify", "b"),
    ("verify", "ort_library"),
    ("verify-signature", "key"),
    ("verify-signature", "model"),
    ("verify-signature", "signature"),
];

#[test]
fn every_option_that_takes_a_path_is_known() {
    let mut command = onnx_container_cli::declaration();
    command.build();
    let mut unknown = BTreeSet::new();
    let parts = |sub: &clap::Command| -> Vec<_> {
        let named = |part: &clap::Command| {
            (format!("{} {}", sub.get_name(), part.get_name()), part.clone())
        };
        sub.get_subcommands().map(named).collect()
    };
    let whole = command.get_subcommands().map(|sub| (sub.get_name().to_owned(), sub.clone()));
    for (name, sub) in whole.chain(command.get_subcommands().flat_map(parts)) {
        for arg in sub.get_arguments() {
            let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
            let option = (name.as_str(), arg.get_id().as_str());
            let writes = PLACES.iter().any(|place| place.option == option);
            if (is_path || option.1 == "data_name") && !writes && !READ.contains(&option) {
                unknown.insert((name.clone(), option.1.to_owned()));
            }
        }
    }
    assert!(unknown.is_empty(), "do these write? {unknown:?}");
}
