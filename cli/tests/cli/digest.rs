//! `digest` of content, tensors and files, and `check --sha256`.

use std::fs;

use onnx_container::proto::{ModelProto, TensorProto};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::{Folder, external, model};

fn sha256(folder: &Folder, name: &str) -> String {
    format!("{:x}", Sha256::digest(fs::read(folder.path(name)).unwrap()))
}

#[test]
fn every_layout_has_the_digest_of_the_model() {
    let folder = Folder::with_model();
    let line = |name: &str| folder.run(&["digest", name]).done().stdout();
    let digest = line("m.onnx")[..71].to_owned();
    assert!(digest.starts_with("sha256:"), "{digest}");
    assert_eq!(line("m.onnx"), format!("{digest}  m.onnx\n"));
    for command in [
        &["pack", "m.onnx", "o.onnx"][..],
        &["pack", "m.onnx", "o.onnx", "--min-bytes=0", "--all-tensors", "--dedup"],
        &["pack", "m.onnx", "s.onnx", "--max-shard-size=2000"],
        &["pack", "m.onnx", "f.onnx", "--safetensors"],
        &["split", "m.onnx", "t.onnx"],
        &["embed", "o.onnx", "e.onnx"],
    ] {
        folder.run(command);
        assert_eq!(line(command[2]), format!("{digest}  {}\n", command[2]), "{command:?}");
    }
    let json = folder.run(&["digest", "--json", "o.onnx", "--no-mmap"]).done().json();
    let expected =
        json!({"command": "digest", "model": "o.onnx", "digest": digest, "warnings": []});
    assert_eq!(json, expected);
}

#[test]
fn several_models_have_a_line_each_and_one_that_fails_hides_none() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "o.onnx"]);
    let digest = folder.run(&["digest", "m.onnx"]).done().stdout()[..71].to_owned();
    let meaning = folder.run(&["digest", "--semantic", "m.onnx"]).done().stdout()[..71].to_owned();
    let hash = |name: &str| format!("{}  {name}", sha256(&folder, name));
    let files = ["m.onnx", "o.onnx", "o.onnx.data"].map(hash).join("\n");
    for (options, lines) in [
        (&[][..], format!("{digest}  m.onnx\n{digest}  o.onnx\n")),
        (&["--semantic"], format!("{meaning}  m.onnx\n{meaning}  o.onnx\n")),
        (&["--files"], files + "\n"),
    ] {
        let args = [&["digest", "m.onnx", "o.onnx"], options].concat();
        assert_eq!(folder.run(&args).done().stdout(), lines);
        let args = [&["digest", "m.onnx", "gone.onnx", "o.onnx"], options].concat();
        let run = folder.run(&args).failed(&["gone.onnx"]);
        assert_eq!(run.stdout(), lines);
        let models = folder.run(&[&args[..], &["--json"]].concat()).failed(&[]).json();
        assert_eq!(models["models"][1]["error"]["kind"], "MissingFile", "{models}");
        assert_eq!(models["models"][2]["model"], "o.onnx");
    }
    let json = folder.run(&["digest", "--json", "--tensors", "m.onnx", "o.onnx"]).done().json();
    assert_eq!(json["models"][0]["tensors"][0]["name"], "w");
    folder.run(&["digest", "--tensors", "m.onnx", "o.onnx"]).misused(&["list one model"]);
}

#[test]
fn tensors_have_lines_of_their_own() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx"]).done();
    let lines = folder.run(&["digest", "--tensors", "m.onnx"]).done().stdout();
    assert_eq!(folder.run(&["digest", "--tensors", "p.onnx"]).done().stdout(), lines);
    let names: Vec<_> = lines.lines().map(|line| &line[73..]).collect();
    assert_eq!(names[..3], ["w", "small", "typed"]);
    assert!(names.contains(&"z.then_branch/inner"), "{names:?}");
    let mut changed = model();
    changed.graph.as_mut().unwrap().initializer[1].raw_data = Some(vec![1; 16].into());
    folder.save("changed.onnx", &changed);
    let other = folder.run(&["digest", "--tensors", "changed.onnx"]).done().stdout();
    let differ: Vec<_> = lines.lines().zip(other.lines()).filter(|(a, b)| a != b).collect();
    assert!(differ.len() == 1 && differ[0].0.ends_with("  small"), "{differ:?}");
    let json = folder.run(&["digest", "--tensors", "--json", "m.onnx"]).done().json();
    let first = json!({"name": "w", "digest": &lines[..71]});
    assert_eq!(
        (&json["tensors"][0], json["tensors"].as_array().unwrap().len()),
        (&first, names.len())
    );
}

#[cfg(unix)]
#[test]
fn files_are_listed_as_sha256sum_reads_them() {
    let folder = Folder::new();
    let name = "a\\b.data";
    folder.save("m.onnx", &external(&[name, "w.bin"]));
    fs::write(folder.path(name), [1; 16]).unwrap();
    fs::write(folder.path("w.bin"), [2; 16]).unwrap();
    let run = folder.run(&["digest", "--files", "m.onnx"]).done();
    let [model, odd, plain] = ["m.onnx", name, "w.bin"].map(|name| sha256(&folder, name));
    let expected = format!("{model}  m.onnx\n\\{odd}  a\\\\b.data\n{plain}  w.bin\n");
    assert_eq!(run.stdout(), expected);
    let json = folder.run(&["digest", "--files", "m.onnx", "--json"]).done().json();
    let files = json!([{"path": "m.onnx", "sha256": model}, {"path": name, "sha256": odd},
        {"path": "w.bin", "sha256": plain}]);
    let report = json!({"command": "digest", "model": "m.onnx", "files": files, "warnings": []});
    assert_eq!(json, report);
    #[cfg(target_os = "linux")]
    {
        fs::write(folder.path("sums"), expected).unwrap();
        let mut sha256sum = std::process::Command::new("sha256sum");
        let check = sha256sum.args(["--check", "--strict", "sums"]).current_dir(folder.path(""));
        assert!(check.output().unwrap().status.success());
    }
    fs::remove_file(folder.path("w.bin")).unwrap();
    folder.run(&["digest", "--files", "m.onnx"]).failed(&["w.bin"]);
    folder.run(&["digest", "m.onnx"]).failed(&["w.bin"]);
}

#[test]
fn files_are_compared_with_digests_that_are_given() {
    let folder = Folder::packed();
    let [model, data] = ["p.onnx", "p.onnx.data"].map(|name| sha256(&folder, name));
    let given = |file: &str, digest: &str| format!("--sha256={file}={digest}");
    let good = [given("p.onnx", &model), given("./p.onnx.data", &data.to_uppercase())];
    folder.run(&["check", "p.onnx", &good[0], &good[1]]).done();
    let from_afar = folder.path("p.onnx");
    let mut command = folder.command(&["check", from_afar.to_str().unwrap(), &good[0]]);
    assert!(command.current_dir("/").output().unwrap().status.success());
    let swapped = given("p.onnx", &data);
    let run = folder.run(&["check", "p.onnx", &swapped, &good[1]]).failed(&[]);
    run.says(&[&format!("error: `p.onnx`: its SHA-256 is {model}, not {data}"), "1 error"]);
    let stranger = given("other", &data);
    folder
        .run(&["check", "p.onnx", &stranger])
        .failed(&[])
        .says(&["`other`: not a file of the model"]);
    let json = folder.run(&["check", "p.onnx", &swapped, "--json"]).failed(&[]).json();
    assert_eq!(json["findings"][0]["kind"], "WrongDigest");
    folder.run(&["check", "p.onnx", "--sha256", "p.onnx=00"]).misused(&["64 hexadecimal digits"]);
}

#[test]
fn a_model_without_a_digest_is_an_error() {
    let folder = Folder::new();
    let mut broken = ModelProto::clone(&model());
    let short = TensorProto::new("short", TensorProto::FLOAT, [9]).with_raw_data(vec![0; 4]);
    broken.graph.as_mut().unwrap().initializer.push(short);
    folder.save("m.onnx", &broken);
    folder.run(&["digest", "m.onnx"]).failed(&["`short`", "needs 36 bytes"]);
    folder.run(&["digest", "--files", "--tensors", "m.onnx"]).misused(&["cannot be used with"]);
}

#[test]
fn every_command_that_writes_a_model_stores_digests() {
    let folder = Folder::with_model();
    let digest = |name: &str| folder.run(&["digest", name]).done().stdout()[..71].to_owned();
    let expected = digest("m.onnx");
    folder.run(&["export-safetensors", "m.onnx", "w.safetensors"]).done();
    folder.run(&["extract", "m.onnx", "small", "-o", "small.npy"]).done();
    for command in [
        &["pack", "m.onnx", "o.onnx"][..],
        &["pack", "m.onnx", "f.onnx", "--safetensors"],
        &["pack", "m.onnx", "s.onnx", "--max-shard-size=2000", "--verify"],
        &["split", "m.onnx", "t.onnx"],
        &["embed", "o.onnx", "e.onnx"],
        &["inline-functions", "o.onnx", "i.onnx"],
        &["import-safetensors", "m.onnx", "w.safetensors", "p.onnx"],
        &["replace", "o.onnx", "small", "small.npy", "-o", "r.onnx"],
    ] {
        let out = if command[0] == "import-safetensors" { 3 } else { 2 };
        let out = if command[0] == "replace" { 5 } else { out };
        folder.run(&[command, &["--digests"]].concat()).done();
        let checked = folder.run(&["check", "--digests", command[out]]);
        assert!(!checked.stdout().contains("digest"), "{command:?}: {}", checked.stdout());
        if command[0] != "inline-functions" {
            assert_eq!(digest(command[out]), expected, "{command:?}");
        }
    }
    // Without the option there are none.
    folder.run(&["pack", "o.onnx", "bare.onnx"]).done();
    folder.run(&["check", "--digests", "bare.onnx"]).failed(&[]).says(&["no digests are stored"]);
}

#[test]
fn a_check_names_what_does_not_have_its_digest() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx", "--digests"]).done();
    let run = folder.run(&["check", "p.onnx", "--digests"]).done();
    assert!(run.stdout().starts_with("compared 7 tensors and the model\nok: "), "{}", run.stdout());
    damage(&folder);
    folder.run(&["check", "p.onnx"]).done();
    for options in [&["--digests"][..], &["--digests", "--no-mmap"]] {
        let run = folder.run(&[&["check", "p.onnx"], options].concat()).failed(&[]);
        run.says(&["error: tensor `typed`: `p.onnx.data`: ", "bytes 4096..5296", "1 error"]);
    }
    let json = folder.run(&["check", "p.onnx", "--digests", "--json"]).failed(&[]).json();
    let found = &json["findings"][0];
    assert_eq!(
        (&found["kind"], &found["tensor"], &found["offset"]),
        (&json!("WrongDigest"), &json!("typed"), &json!(4096))
    );
    assert_eq!(json["compared"], json!({"tensors": 7, "model": true, "files": 0}));
}

/// Flips a bit of the tensor `typed` in `p.onnx.data`, as `pack` wrote it.
fn damage(folder: &Folder) {
    let mut data = fs::read(folder.path("p.onnx.data")).unwrap();
    data[4097] ^= 1;
    fs::write(folder.path("p.onnx.data"), data).unwrap();
}

#[test]
fn no_command_vouches_for_weights_that_do_not_have_their_digests() {
    let folder = Folder::with_model();
    crate::signing::make_keys(&folder);
    folder.run(&["export-safetensors", "m.onnx", "all.safetensors"]).done();
    folder.run(&["extract", "m.onnx", "w", "-o", "w.safetensors"]).done();
    folder.run(&["extract", "m.onnx", "small", "-o", "small.npy"]).done();
    folder.run(&["pack", "m.onnx", "p.onnx", "--digests"]).done();
    damage(&folder);
    let before = folder.names();
    for command in [
        &["pack", "p.onnx", "o.onnx", "--digests"][..],
        &["split", "p.onnx", "o.onnx", "--digests", "--no-mmap"],
        &["embed", "p.onnx", "o.onnx", "--digests"],
        &["inline-functions", "p.onnx", "o.onnx", "--digests"],
        &["replace", "p.onnx", "small", "small.npy", "-o", "o.onnx", "--digests"],
        &["import-safetensors", "p.onnx", "w.safetensors", "o.onnx", "--digests"],
        &["sign", "p.onnx", "--key", "keys/P-256.pem", "-o", "o.sig"],
    ] {
        let run = folder.run(command);
        run.failed(&["tensor `typed`", "p.onnx.data", "--ignore-stored-digests"]);
        assert_eq!(folder.names(), before, "{command:?}");
        folder.run(&[command, &["--ignore-stored-digests"]].concat()).done();
        for name in folder.names().into_iter().filter(|name| !before.contains(name)) {
            fs::remove_file(folder.path(&name)).unwrap();
        }
        let json = folder.run(&[command, &["--json"]].concat()).failed(&[]).json();
        assert_eq!(json["error"]["kind"], "WrongDigest", "{command:?}");
    }
    // Nothing vouches for it here, or has it.
    folder.run(&["pack", "p.onnx", "o.onnx"]).done();
    folder.run(&["import-safetensors", "p.onnx", "all.safetensors", "o.onnx", "--digests"]).done();
    folder.run(&["check", "o.onnx", "--digests"]).done();
    folder.run(&["pack", "p.onnx", "o.onnx", "--ignore-stored-digests"]).misused(&["--digests"]);
    // The structure of a model that is filled counts as well.
    folder.run(&["pack", "m.onnx", "p.onnx", "--digests"]).done();
    let mut model = fs::read(folder.path("p.onnx")).unwrap();
    let at = model.windows(6).position(|six| six == b"a test").unwrap();
    model[at] = b'b';
    fs::write(folder.path("p.onnx"), model).unwrap();
    folder
        .run(&["import-safetensors", "p.onnx", "all.safetensors", "s.onnx", "--digests"])
        .failed(&["the model itself", "--ignore-stored-digests"]);
}

#[test]
fn digests_that_are_dropped_are_said() {
    let folder = Folder::with_model();
    folder.run(&["export-safetensors", "m.onnx", "w.safetensors"]).done();
    folder.run(&["extract", "m.onnx", "small", "-o", "small.npy"]).done();
    folder.run(&["pack", "m.onnx", "p.onnx", "--digests"]).done();
    let said = "dropped   the digests that were stored with the model: --digests stores new ones\n";
    for command in [
        &["pack", "p.onnx", "o.onnx"][..],
        &["split", "p.onnx", "o.onnx"],
        &["embed", "p.onnx", "o.onnx"],
        &["inline-functions", "p.onnx", "o.onnx"],
        &["import-safetensors", "p.onnx", "w.safetensors", "o.onnx"],
        &["replace", "p.onnx", "small", "small.npy", "-o", "o.onnx"],
    ] {
        let dropped = |options: &[&str]| {
            let run = folder.run(&[command, options].concat()).done();
            let json = folder.run(&[command, options, &["--json"]].concat()).done().json();
            let lines = run.stdout().matches(said).count();
            assert_eq!(json["dropped_digests"].as_bool(), Some(lines == 1), "{command:?}");
            lines
        };
        assert_eq!((dropped(&[]), dropped(&["--digests"])), (1, 0), "{command:?}");
        folder
            .run(&[command, &["--dry-run"]].concat())
            .done()
            .says(&["drops     the digests that were stored"]);
        for name in folder.names().into_iter().filter(|name| name.starts_with('o')) {
            fs::remove_file(folder.path(&name)).unwrap();
        }
    }
    let run = folder.run(&["pack", "m.onnx", "o.onnx"]).done();
    assert!(!run.stdout().contains("digests"), "{}", run.stdout());
    folder.run(&["embed", "p.onnx", "e.onnx", "--checksums"]).misused(&["writes none"]);
}

#[cfg(unix)]
#[test]
fn digests_of_more_files_are_compared_than_may_be_open() {
    let folder = Folder::new();
    let tensor = |i: u8| {
        TensorProto::new(format!("w{i}"), TensorProto::UINT8, [4]).with_raw_data(vec![i; 4])
    };
    let mut model = model();
    model.graph.as_mut().unwrap().initializer.extend((0..200).map(tensor));
    folder.save("m.onnx", &model);
    folder.run(&["split", "m.onnx", "s.onnx", "--min-bytes=0", "--digests", "--checksums"]).done();
    let command = folder.command(&["check", "s.onnx", "--digests"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -n 32; exec \"$0\" \"$@\""]).current_dir(folder.path(""));
    let output = shell.arg(command.get_program()).args(command.get_args()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn whole_files_are_compared_without_being_told() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx", "--checksums"]).done();
    folder.run(&["check", "p.onnx", "--digests"]).done().says(&["only files that have a checksum"]);
    damage(&folder);
    let run = folder.run(&["check", "p.onnx", "--digests"]).failed(&[]);
    run.says(&["`p.onnx.data`: the SHA-1 of the file is"]);
    #[cfg(unix)]
    {
        for made in ["blobs", "snapshots/main"] {
            fs::create_dir_all(folder.path(made)).unwrap();
        }
        let blob = format!("blobs/{}", sha256(&folder, "m.onnx"));
        fs::copy(folder.path("m.onnx"), folder.path(&blob)).unwrap();
        let link = folder.path("snapshots/main/m.onnx");
        std::os::unix::fs::symlink(format!("../../{blob}"), link).unwrap();
        let command = ["check", "snapshots/main/m.onnx", "--digests"];
        folder.run(&command).done();
        let mut bytes = fs::read(folder.path(&blob)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(folder.path(&blob), bytes).unwrap();
        folder.run(&command).failed(&[]).says(&["its name among the blobs of a cache is"]);
    }
}

#[test]
fn processes_make_a_digest_together() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx", "--min-bytes=0", "--digests"]).done();
    let whole = folder.run(&["digest", "p.onnx"]).done().stdout();
    let tensors = folder.run(&["digest", "p.onnx", "--tensors"]).done().stdout();
    for of in ["1", "3", "50"] {
        let name = |number: usize| format!("{number}.json");
        let numbers = 0..of.parse().unwrap();
        for number in numbers.clone() {
            let part = folder.run(&["digest", "p.onnx", "--part", &format!("{number}/{of}")]);
            fs::write(folder.path(&name(number)), part.done().stdout()).unwrap();
        }
        let files: Vec<_> = numbers.map(name).collect();
        let join = |model: &str, options: &[&str], files: &[String]| {
            let files = files.iter().map(String::as_str);
            let args = ["digest", model].into_iter().chain(options.iter().copied());
            folder.run(&args.chain(["--join"]).chain(files).collect::<Vec<_>>())
        };
        assert_eq!(join("p.onnx", &[], &files).done().stdout(), whole);
        assert_eq!(join("p.onnx", &["--tensors"], &files).done().stdout(), tensors);
        let json = join("p.onnx", &["--json"], &files).done().json();
        assert_eq!(json["digest"], whole[..71]);
        // No weight is read, and parts of another model are refused.
        fs::rename(folder.path("p.onnx.data"), folder.path("away")).unwrap();
        join("p.onnx", &[], &files).done();
        fs::rename(folder.path("away"), folder.path("p.onnx.data")).unwrap();
        folder.run(&["edit", "p.onnx", "e.onnx", "--set-metadata", "a=b"]).done();
        join("e.onnx", &[], &files).failed(&["e.onnx", "part 0/", "is of another model"]);
        if of == "3" {
            join("p.onnx", &[], &files[..2]).failed(&["these parts are missing: 2/3"]);
            join("p.onnx", &[], &["gone.json".into()]).failed(&["gone.json"]);
            join("p.onnx", &[], &["p.onnx".into()]).failed(&["p.onnx"]);
        }
    }
    for (args, said) in [
        ("digest p.onnx --part 3/3", "the last one is 2/3"),
        ("digest p.onnx --part 1", "not a part"),
        ("digest p.onnx m.onnx --part 0/3", "--part and --join take one model"),
        ("digest p.onnx --part 0/3 --tensors", "--tensors"),
        ("digest p.onnx --part 0/3 --json", "--json"),
        ("digest p.onnx --part 0/3 --join 0.json", "--join"),
        ("digest p.onnx --join", "--join"),
        ("digest p.onnx --join 0.json --semantic", "--semantic"),
        ("check p.onnx --part 0/3", "--part divides what --digests and --finite read"),
    ] {
        folder.run(&args.split(' ').collect::<Vec<_>>()).misused(&[said]);
    }
}

#[test]
fn processes_check_a_model_together() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx", "--min-bytes=0", "--digests"]).done();
    let codes = |options: &[&str]| {
        let part = |number: usize| {
            let part = format!("{number}/3");
            let args = [&["check", "p.onnx", "--part", part.as_str()], options].concat();
            folder.run(&args).code()
        };
        (0..3).map(part).collect::<Vec<_>>()
    };
    assert_eq!(codes(&["--digests", "--finite"]), [0, 0, 0]);
    let data = folder.path("p.onnx.data");
    let good = fs::read(&data).unwrap();
    // The first tensor is the longest one.
    fs::write(&data, [&f32::NAN.to_le_bytes(), &good[4..]].concat()).unwrap();
    assert_eq!(codes(&["--digests"]), [1, 0, 0]);
    assert_eq!(codes(&["--finite"]), [1, 0, 0]);
    fs::write(&data, good).unwrap();
    folder.run(&["check", "p.onnx", "p.onnx", "--digests", "--part", "1/3"]).done();
}
