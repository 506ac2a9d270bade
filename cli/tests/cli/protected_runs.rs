//! What `run`, `trace` and `plan` leave alone: the files that they read, and the weights of other
//! models.

use std::fs;

use onnx_container::Buffer;
use onnx_container::proto::{Message, ModelProto};

use crate::support::Folder;
use crate::support::sums as model;

/// A model that can be run as `m.onnx` and `m.onnx.data`, what a run reads, `x.npy` and the folder
/// `d`, and a list of blocks.
fn with_runs() -> Folder {
    let folder = Folder::new();
    folder.save("m.onnx", &model());
    folder.run(&["pack", "m.onnx", "m.onnx", "--min-bytes", "0"]).done();
    fs::create_dir(folder.path("d")).unwrap();
    folder.run(&["run", "m.onnx", "--dim", "batch=1", "-o", "d"]).done();
    fs::copy(folder.path("d/output_0.npy"), folder.path("x.npy")).unwrap();
    fs::write(folder.path("l.csv"), "id,lower,upper,size\na,0,2,64\n").unwrap();
    folder
}

/// All files and their bytes, those in the folder `d` too.
fn everything(folder: &Folder) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for name in folder.names() {
        let path = folder.path(&name);
        if path.is_dir() {
            for entry in fs::read_dir(&path).unwrap() {
                let path = entry.unwrap().path();
                files.push((path.display().to_string(), fs::read(path).unwrap()));
            }
        } else {
            files.push((name, fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn traces_drawings_and_outputs_replace_nothing_that_is_read() {
    let folder = with_runs();
    fs::copy(folder.path("x.npy"), folder.path("d/input_0.npy")).unwrap();
    let weights = fs::read(folder.path("m.onnx.data")).unwrap();
    // Models whose weights have the names of what a run writes.
    let renamed = |name: &str| {
        let bytes = fs::read(folder.path("m.onnx")).unwrap();
        let mut model = ModelProto::decode(&Buffer::from(bytes)).unwrap();
        let entry = &mut model.graph.as_mut().unwrap().initializer[0].external_data[0];
        assert_eq!(entry.key, Some("location".into()));
        entry.value = Some(name.into());
        model
    };
    for (model, name) in [("o.onnx", "outputs.npz"), ("s.onnx", "0_0.pb")] {
        folder.save(model, &renamed(name));
        fs::write(folder.path(name), &weights).unwrap();
    }
    let before = everything(&folder);
    let not_replaced = "not replaced";
    let cases: [(&[&str], &str); 14] = [
        (&["trace", "m.onnx", "--dump", "x.npy"], "`x.npy`: is a file, not a folder"),
        (&["trace", "m.onnx", "-o", "m.onnx"], not_replaced),
        (&["trace", "m.onnx", "-o", "m.onnx.data"], not_replaced),
        (&["trace", "m.onnx", "-o", "o.onnx"], not_replaced),
        (&["trace", "m.onnx", "-o", "outputs.npz"], "o.onnx` refers to this file"),
        (&["trace", "m.onnx", "--input", "x=x.npy", "-o", "x.npy"], not_replaced),
        (&["trace", "m.onnx", "-o", "none/t"], "`none`: no such folder"),
        (&["trace", "s.onnx", "--dump", "."], "`./0_0.pb`: this file belongs to the model"),
        (&["plan", "m.onnx", "--svg", "m.onnx"], not_replaced),
        (&["plan", "m.onnx", "--svg", "m.onnx.data"], not_replaced),
        (&["plan", "m.onnx", "--svg", "none/d.svg"], "`none`: no such folder"),
        (&["run", "o.onnx", "-o", ".", "--format", "npz"], not_replaced),
        (&["run", "m.onnx", "-o", ".", "--format", "npz"], "o.onnx` refers to this file"),
        (&["run", "m.onnx", "-o", "x.npy"], "`x.npy`: is a file, not a folder"),
    ];
    for (args, reason) in cases {
        let args = [args, &["--dim", "batch=1"]].concat();
        folder.run(&args).failed(&[reason]);
        assert!(everything(&folder) == before, "{args:?}");
    }
    folder.run(&["plan", "--csv-in", "l.csv", "--svg", "l.csv"]).failed(&[not_replaced]);
    let used: [(&[&str], &str); 4] = [
        (&["--dim", "batch=1", "--expect", "d", "-o", "./d"], "are the same folder, `d`"),
        (&["--input", "x=d/output_0.npy", "-o", "d"], "`d/output_0.npy` is read by this run"),
        (&["--input", "x=d/output_1.npy", "-o", "d"], "`d/output_1.npy` is read by this run"),
        // It is refused before anything runs.
        (&["--max-steps", "0", "--input", "x=d/output_0.npy", "-o", "d"], "is read by this run"),
    ];
    for (args, reason) in used {
        folder.run(&[&["run", "m.onnx"], args].concat()).misused(&[reason]);
        assert!(everything(&folder) == before, "{args:?}");
    }
    // What is not read is replaced.
    folder.run(&["run", "m.onnx", "--input-dir", "d", "-o", "d"]).done();
    folder.run(&["plan", "m.onnx", "--dim", "batch=1", "--svg", "x.npy"]).done();
    assert!(fs::read(folder.path("x.npy")).unwrap().starts_with(b"<svg"));
}
