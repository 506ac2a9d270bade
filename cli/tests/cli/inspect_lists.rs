//! Which tensors `inspect` lists, in which order, and how it adds them up by module.

use crate::inspect::quantized;
use crate::support::Folder;

#[test]
fn tensors_are_chosen_by_name_and_sorted() {
    let folder = Folder::new();
    folder.save("m.onnx", &quantized());
    let names = |args: &[&str]| -> Vec<String> {
        let args = [&["inspect", "m.onnx", "--json"], args].concat();
        let said = folder.run(&args).done().json();
        let tensors = said["tensors"].as_array().unwrap().iter();
        tensors.map(|tensor| tensor["name"].as_str().unwrap().to_owned()).collect()
    };
    let [zero, one, head] = ["model.layers.0.w", "model.layers.1.w", "head"];
    for (args, expected) in [
        (&[][..], &[one, head, zero][..]),
        (&["--sort", "bytes"], &[one, head, zero]),
        (&["--sort", "name"], &[head, zero, one]),
        (&["--sort", "dtype"], &[one, head, zero]),
        (&["--name", "model.*"], &[one, zero]),
        (&["--name", "*.0.*", "--name", "head"], &[head, zero]),
        (&["--sort", "name", "--top", "1"], &[head]),
    ] {
        assert_eq!(names(args), expected, "{args:?}");
    }
    folder.run(&["pack", "m.onnx", "p.onnx", "--min-bytes", "0"]);
    let said = folder.run(&["inspect", "p.onnx", "--sort", "place", "--json"]).done().json();
    let offsets = said["tensors"].as_array().unwrap().iter();
    let offsets: Vec<_> = offsets.map(|t| t["stored"]["offset"].as_u64().unwrap()).collect();
    assert!(offsets.is_sorted() && offsets.len() == 3, "{offsets:?}");
    folder.run(&["inspect", "m.onnx", "--name", "head"]).done().says(&[
        "3 inline (1.6 kB), 0 external (0 B),\n           1 with a name that was asked for",
    ]);
    folder.run(&["inspect", "m.onnx", "--sort", "age"]).misused(&["--sort"]);
    folder.run(&["inspect", "m.onnx", "--name", "[", "--json"]).misused(&[]);
    // A pattern that no tensor matches is mistyped.
    for (args, said) in [
        (
            &["m.onnx", "--name", "HEAD*"][..],
            "no tensor of `m.onnx` has a name like `HEAD*`; did you mean `head`?",
        ),
        (&["m.onnx", "--name", "head", "--name", "model.layers.0.v"], "`model.layers.0.w`"),
        (&["m.onnx", "--name", "qqq"], "has a name like `qqq`; `inspect --top 0` lists the names"),
        (&["m.onnx", "p.onnx", "--name", "qqq"], "no tensor of these models has a name like `qqq`"),
    ] {
        folder.run(&[&["inspect"], args].concat()).failed(&[said]);
    }
    let json = folder.run(&["inspect", "m.onnx", "--name", "qqq", "--json"]).failed(&[]).json();
    assert_eq!(json["error"]["kind"], "Refused");
    let mut other = quantized();
    other
        .graph
        .as_mut()
        .unwrap()
        .initializer
        .retain(|tensor| *tensor.name.as_ref().unwrap() == "head");
    folder.save("other.onnx", &other);
    folder.run(&["inspect", "m.onnx", "other.onnx", "--name", "model.*"]).done();
}

#[test]
fn a_tree_adds_up_modules() {
    let folder = Folder::new();
    folder.save("m.onnx", &quantized());
    let rows = |args: &[&str]| {
        let run = folder.run(&[&["inspect", "m.onnx", "--tree"], args].concat()).done();
        run.stdout().lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        rows(&[]),
        [
            "    1.6 kB             404         3  (all)",
            "    1.2 kB             304         2  model",
            "    1.2 kB             304         2  model.layers",
            "     400 B             100         1  head",
        ]
    );
    assert_eq!(rows(&["--depth", "0"]).len(), 1);
    assert_eq!(rows(&["--depth", "9"]).len(), 8);
    assert_eq!(rows(&["--name", "head"]).len(), 2);
    let said = folder.run(&["inspect", "m.onnx", "--tree", "--json"]).done().json();
    let row = serde_json::json!({"path": "model", "depth": 1, "tensors": 2, "parameters": 304,
        "bytes": 1202});
    assert_eq!(said["tree"][1], row);
    folder.run(&["inspect", "m.onnx", "--depth", "1"]).misused(&["--tree"]);
}
