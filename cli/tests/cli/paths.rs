//! Paths that are no models: each command says what is there, and what was probably meant.

use std::fs;

use crate::support::Folder;

/// A folder with a model, its weights file, and what is often given in its place.
fn models() -> Folder {
    let folder = Folder::packed();
    fs::create_dir_all(folder.path("small/snapshots/1")).unwrap();
    for name in ["small/v1.onnx", "small/snapshots/1/model.onnx"] {
        fs::copy(folder.path("p.onnx"), folder.path(name)).unwrap();
    }
    let files: [(&str, &[u8]); 9] = [
        ("dec.onnx_data", &[0x9d; 20]),
        ("layer.weight", &[0; 20]),
        ("p.onnx_data_1", &[0; 20]),
        ("config.json", b"{\n  \"architectures\": []\n}\n"),
        ("m.ort", b"\x1c\0\0\0ORTM\0\0\0\0"),
        ("m.tflite", b"\x1c\0\0\0TFL3\0\0\0\0"),
        ("m.gguf", b"GGUF\x03\0\0\0"),
        ("w.safetensors", b"\x10\0\0\0\0\0\0\0{\"a\""),
        ("README.md", b"# A model\n"),
    ];
    for (name, bytes) in files {
        fs::write(folder.path(name), bytes).unwrap();
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink("../../blobs/9e5d", folder.path("hub.onnx")).unwrap();
    folder
}

/// What is given in place of a model, and what is said.
const MISTAKES: &[(&str, &str)] = &[
    ("p.onnx.data", "`p.onnx.data`: a weights file of `p.onnx`, which is beside it, not a model"),
    ("dec.onnx_data", "its model was probably called `dec.onnx`, which is not there"),
    (
        "layer.weight",
        "a weights file by its name, not a model; its model was probably called `layer.onnx`",
    ),
    (
        "p.onnx_data_1",
        "a weights file by its name, not a model; `p.onnx`, which is beside it, does not need it",
    ),
    (
        "small",
        "`small`: a folder, not a model; in it is `small/snapshots/1/model.onnx`, `small/v1.onnx`",
    ),
    ("small/snapshots", "a folder, not a model; in it is `small/snapshots/1/model.onnx`"),
    #[cfg(unix)] // Windows says which part of a path is missing.
    (
        "smal/v1.onnx",
        "`smal/v1.onnx`: No such file or directory (os error 2); did you mean `small/v1.onnx`?",
    ),
    ("small/v1.onx", "did you mean `small/v1.onnx`?"),
    ("p.onx", "did you mean `p.onnx`"),
    ("config.json", "`config.json`: a JSON file, not an ONNX model; a model beside it is `"),
    (
        "m.ort",
        "`m.ort`: an ONNX Runtime .ort file (flatbuffers), not an ONNX model; a model beside it is `",
    ),
    ("m.gguf", "`m.gguf`: a GGUF file, not an ONNX model; a model beside it is `"),
    ("m.tflite", "a TensorFlow Lite file (flatbuffers), not an ONNX model"),
    ("README.md", "`README.md`: a text file, not an ONNX model"),
    (
        "ftp://example.com/m.onnx",
        "a URL, not a file: download the model with its weights files first",
    ),
    #[cfg(unix)]
    (
        "hub.onnx",
        "`hub.onnx`: a link to `../../blobs/9e5d`, which is not there; copy the file itself: `cp -L`",
    ),
    #[cfg(unix)]
    ("/dev/null", "not a regular file"),
];

#[test]
fn a_path_that_is_no_model_is_called_what_it_is() {
    let folder = models();
    for (path, said) in MISTAKES {
        let run = folder.run(&["inspect", path]).failed(&[said]);
        assert!(!run.stderr().contains("not a valid tag"), "{run:?}");
        let json = folder.run(&["inspect", path, "--json"]).failed(&[said]).json();
        assert!(json["error"]["message"].as_str().unwrap().contains(said), "{json}");
    }
}

#[test]
fn every_command_says_so() {
    let folder = models();
    let commands = [
        "pack X o.onnx",
        "split X o.onnx",
        "embed X o.onnx",
        "inline-functions X o.onnx",
        "cast X o.onnx --to float16",
        "edit X o.onnx --producer p",
        "import-safetensors X w.safetensors o.onnx",
        "export-safetensors X o.safetensors",
        "check X",
        "check X p.onnx",
        "inspect X",
        "files X",
        "mv X o.onnx",
        "cp X o.onnx",
        "rm X",
        "digest X",
        "diff --semantic X p.onnx",
        "extract X w -o w.npy",
        "replace X w w.npy -o o.onnx",
        #[cfg(feature = "machine")]
        "run X",
        #[cfg(feature = "machine")]
        "plan X",
        #[cfg(feature = "machine")]
        "verify X p.onnx",
        #[cfg(feature = "machine")]
        "trace X -o o.trace",
    ];
    fs::write(folder.path("w.npy"), "").unwrap();
    for (path, said) in [
        ("p.onnx.data", "a weights file of `p.onnx`, which is beside it"),
        ("p.onx", "did you mean `p.onnx`"),
        ("m.gguf", "a model beside it is `"),
    ] {
        for command in commands {
            let args: Vec<_> =
                command.split(' ').map(|it| if it == "X" { path } else { it }).collect();
            let run = folder.run(&args);
            assert_ne!(run.code(), 0, "{command}: {run:?}");
            let told = run.stderr() + &run.stdout();
            assert_eq!(told.matches(said).count(), 1, "{command}: {told}");
        }
    }
}

#[test]
fn a_safetensors_file_is_shown_by_inspect() {
    let folder = models();
    let header = r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), b"w"].concat();
    std::fs::write(folder.path("w.safetensors"), &file).unwrap();
    for command in ["stats", "check", "files", "report -o r.html", "report p.onnx -o r.html"] {
        let args: Vec<_> = command.split(' ').chain(["w.safetensors"]).collect();
        let run = folder.run(&args);
        assert_ne!(run.code(), 0, "{command}");
        for said in
            ["a safetensors file, not an ONNX model", "`inspect w.safetensors` shows what is in it"]
        {
            assert!(run.stderr().contains(said), "{command}: {}", run.stderr());
        }
    }
    // The path is a word of a shell.
    std::fs::write(folder.path("my w.safetensors"), &file).unwrap();
    let hint = "`inspect 'my w.safetensors'` shows what is in it";
    folder.run(&["stats", "my w.safetensors"]).failed(&[hint]);
    // `inspect` shows neither a file of another name nor a damaged one.
    std::fs::write(folder.path("renamed.onnx"), &file).unwrap();
    std::fs::write(folder.path("cut.safetensors"), &file[..file.len() - 1]).unwrap();
    for name in ["renamed.onnx", "cut.safetensors"] {
        let run = folder.run(&["stats", name]).failed(&["a safetensors file, not an ONNX model"]);
        assert!(!run.stderr().contains("shows what is in it"), "{}", run.stderr());
    }
}

/// What users type names options of the command, and nothing of Rust.
#[test]
fn no_message_names_what_only_rust_has() {
    let folder = models();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("p.onnx.data", folder.path("link.data")).unwrap();
        folder.save("linked.onnx", &crate::support::external(&["link.data"]));
    }
    for case in [
        "check p.onnx --digests",
        "check linked.onnx --paths strict",
        "inspect linked.onnx --paths strict",
        "pack linked.onnx o.onnx --paths strict",
        "pack p.onnx o.onnx --data-name ../y",
        "pack p.onnx none/o.onnx",
        "pack p.onnx o.onnx --limit nodes=0",
    ] {
        let run = folder.run(&case.split(' ').collect::<Vec<_>>());
        let told = run.stderr() + &run.stdout();
        for word in ["::", "Options", "Policy", "Container", "Container::"] {
            assert!(!told.contains(word), "{case}: {word} in {told}");
        }
    }
}
