//! What is said to who made a frequent mistake: what it is, and what to do.

use std::fs;

use crate::support::Folder;

/// The call, the exit code, and what is said.
type Case = (&'static [&'static str], i32, &'static str);

const CASES: &[Case] = &[
    (&["inspect", "smal/m.onnx"], 1, "did you mean `small/m.onnx`?"),
    (&["inspect", "small"], 1, "a folder, not a model; in it is `small/m.onnx`"),
    (&["inspect", "p.onnx.data"], 1, "a weights file of `p.onnx`, which is beside it"),
    (&["inspect", "x.gguf"], 1, "a GGUF file, not an ONNX model"),
    (&["inspect", "x.tflite"], 1, "a TensorFlow Lite file"),
    (&["inspect", "x.ort"], 1, "an ONNX Runtime .ort file"),
    (&["inspect", "x.json"], 1, "a JSON file, not an ONNX model"),
    (&["inspect", "ftp://host/m.onnx"], 1, "download the model with its weights files first"),
    (&["inspect", "-"], 2, "a model must be a file, because its weights are beside it"),
    (&["diff", "m.onnx"], 2, "<B>"),
    (&["digest", "m.onnx", "gone.onnx"], 1, "gone.onnx"),
    (&["check", "--digests", "m.onnx"], 1, "`pack --digests`"),
    (&["pack", "m.onnx", "new/o.onnx"], 1, "`mkdir -p new` makes it"),
    (&["extract", "m.onnx", "w", "-o", "new/w.npy"], 1, "`mkdir -p new` makes it"),
    (&["extract", "m.onnx", "typde", "-o", "w.npy"], 1, "did you mean `typed`"),
    (&["pack", "m.onnx", "o.onnx", "--data-name", "../y"], 1, "its name has no directory"),
    (&["pack", "m.onnx", "o.onnx", "--max-shard-size", "2"], 0, "2GB is 2 * 10^9"),
    (&["pack", "m.onnx", "o.onnx", "--min-bytes", "1Q"], 2, "1024"),
    (&["packk", "m.onnx", "o.onnx"], 2, "a similar subcommand exists: 'pack'"),
    (&["check", "m.onnx", "--finte"], 2, "a similar argument exists: '--finite'"),
];

#[cfg(feature = "machine")]
const RUN_CASES: &[Case] = &[
    (&["verify", "m.onnx"], 2, "check MODEL --digests"),
    (&["run", "m.onnx", "--input", "in/x.npy"], 2, "such as x=in/x.npy"),
    (&["run", "m.onnx"], 1, "give one, as in `--dim"),
    (&["run", "m.onnx", "--dim", "M=3"], 1, "no input has an open dimension `M`"),
];

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx"]).done();
    fs::create_dir(folder.path("small")).unwrap();
    fs::copy(folder.path("m.onnx"), folder.path("small/m.onnx")).unwrap();
    for (name, bytes) in [
        ("x.gguf", &b"GGUF\x03\0\0\0\0\0\0\0"[..]),
        ("x.tflite", b"\x1c\0\0\0TFL3\0\0\0\0\0\0\0\0"),
        ("x.ort", b"\x1c\0\0\0ORTM\0\0\0\0\0\0\0\0"),
        ("x.json", b"{\"a\": 1}"),
    ] {
        fs::write(folder.path(name), bytes).unwrap();
    }
    let cases = CASES.iter();
    #[cfg(feature = "machine")]
    let cases = cases.chain(RUN_CASES);
    for (args, code, said) in cases {
        let run = folder.run(args);
        assert_eq!(run.code(), *code, "{run:?}");
        let texts = run.stderr() + &run.stdout();
        assert!(texts.contains(said), "no {said:?} in {run:?}");
    }
    // Sizes are written in one way everywhere.
    for size in ["1.5KB", "1.5 KiB", "1e3", "2 GB"] {
        for option in ["--min-bytes", "--max-shard-size"] {
            let run = folder.run(&["pack", "m.onnx", "s.onnx", option, size, "--dry-run"]);
            assert_eq!(run.code(), 0, "{run:?}");
        }
    }
}
