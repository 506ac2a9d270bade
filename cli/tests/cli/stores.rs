//! Models in stores: URLs where commands read models, and the commands that write to stores.

use std::fs;

use onnx_container::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

use crate::store_server::Server;
use crate::support::{Folder, Run, tensors, weight};

const URL: &str = "s3://b/a é#%/m.onnx";

/// `m.onnx`, which computes y = x + w of FLOAT [300], and its weights file.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("inline.onnx", &sum(0.0));
    folder.run(&["pack", "inline.onnx", "m.onnx"]).done();
    folder
}

fn sum(first: f32) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.initializer.push(weight("w", &[300], first));
    graph.input.push(ValueInfoProto::tensor("x", 1, [300]));
    graph.output.push(ValueInfoProto::tensor("y", 1, [300]));
    graph.node.push(NodeProto::new("Add", ["x", "w"], ["y"]));
    let mut model = ModelProto::new(graph).with_operator_set("", 17);
    model.ir_version = Some(8);
    model
}

#[test]
fn commands_say_of_a_url_what_they_say_of_a_path() {
    let folder = folder();
    folder.save("changed.onnx", &sum(7.0));
    folder.run(&["pack", "changed.onnx", "other.onnx"]).done();
    let server = Server::with_model(&folder);
    let reading = [
        "check m.onnx",
        "check m.onnx --digests --finite --json",
        "files m.onnx",
        "files m.onnx --json",
        "digest m.onnx",
        "digest m.onnx --files",
        "digest m.onnx --semantic",
        "digest m.onnx --part 0/2",
        "check m.onnx --digests --finite --part 0/2",
        "stats m.onnx --part 0/2",
        "stats m.onnx",
        "inspect m.onnx --tree",
        "diff m.onnx other.onnx --stats",
        "diff other.onnx m.onnx --json",
        "diff m.onnx m.onnx --semantic",
        "extract m.onnx w -o -",
        #[cfg(feature = "machine")]
        "plan m.onnx",
        #[cfg(feature = "machine")]
        "run m.onnx --seed 1",
        #[cfg(feature = "machine")]
        "trace m.onnx --seed 1",
        #[cfg(feature = "machine")]
        "trace diff m.onnx inline.onnx --seed 1",
        #[cfg(feature = "machine")]
        "verify m.onnx inline.onnx",
    ];
    for line in reading {
        let by_path: Vec<_> = line.split(' ').collect();
        let by_url: Vec<_> =
            by_path.iter().map(|arg| if *arg == "m.onnx" { URL } else { arg }).collect();
        let (path, url) = (folder.run(&by_path), server.run(&folder, &by_url));
        assert_eq!((url.code(), url.stderr()), (path.code(), path.stderr()), "{line}: {url:?}");
        let said = String::from_utf8_lossy(url.bytes()).replace("s3://b/a é#%/", "");
        let expected = String::from_utf8_lossy(path.bytes()).into_owned();
        // Rows are as wide as paths, and a run tells its time.
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_timed = line.starts_with("run ");
        assert!(is_timed || plain(&said) == plain(&expected), "{line}: {said}\n{expected}");
    }
}

#[test]
fn what_is_written_from_a_url_is_what_is_written_from_a_path() {
    let folder = folder();
    let server = Server::with_model(&folder);
    folder.run(&["export-safetensors", "m.onnx", "w.safetensors"]).done();
    folder.run(&["strip", "m.onnx", "bare.onnx"]).done();
    folder.run(&["extract", "m.onnx", "w", "-o", "w.npy"]).done();
    for line in [
        "pack m.onnx out/o.onnx --verify",
        "pack m.onnx out/",
        "split m.onnx out/o.onnx",
        "embed m.onnx out/o.onnx --verify",
        "inline m.onnx out/o.onnx",
        "cast m.onnx out/o.onnx --to float16",
        "edit m.onnx out/o.onnx --set-metadata a=b",
        "strip m.onnx out/o.onnx",
        "attach bare.onnx m.onnx out/o.onnx",
        "replace m.onnx w w.npy -o out/o.onnx",
        "import-safetensors m.onnx w.safetensors out/o.onnx",
        "export-safetensors m.onnx out/o.safetensors",
        "extract m.onnx w -o out/",
        "extract-model m.onnx out/o.onnx --outputs y",
        "merge m.onnx m.onnx out/o.onnx --connect y=x --prefix-b b/",
    ] {
        let written = [("m.onnx", None), (URL, Some(&server))].map(|(model, server)| {
            fs::create_dir(folder.path("out")).unwrap();
            let args: Vec<_> =
                line.split(' ').map(|arg| if arg == "m.onnx" { model } else { arg }).collect();
            match server {
                Some(server) => server.run(&folder, &args).done(),
                None => folder.run(&args).done(),
            };
            let written = folder.contents_of("out");
            fs::remove_dir_all(folder.path("out")).unwrap();
            written
        });
        assert!(written[0] == written[1] && !written[0].is_empty(), "{line}");
    }
}

#[test]
fn few_requests_are_made() {
    let folder = folder();
    let server = Server::with_model(&folder);
    let (model, data) = ("GET a é#%/m.onnx", "GET a é#%/m.onnx.data");
    // The command, and what is asked.
    let cases: [(&str, &[&str]); 4] = [
        ("inspect", &[model]),
        ("check", &[model, data]),
        ("files", &[model, data]),
        ("stats", &[model, data, data]),
    ];
    for (command, asked) in cases {
        server.run(&folder, &[command, URL]).done();
        assert_eq!(server.asked(), asked, "{command}");
    }
    let inspected = server.run(&folder, &["inspect", URL, "--json"]).done().json();
    assert_eq!(inspected["files"][0]["state"], "unknown");
    assert_eq!(inspected["files"][0]["path"], "s3://b/a é#%/m.onnx.data");
    assert_eq!(inspected["file_totals"]["unknown"], 1);
}

#[test]
fn where_files_are_needed_a_url_is_refused() {
    let folder = folder();
    let before = folder.contents();
    let files = "this command works on files";
    // The arguments, and what is said.
    for (line, said) in [
        ("mv s3://b/m.onnx n.onnx", files),
        ("mv m.onnx s3://b/m.onnx", files),
        ("cp m.onnx gs://b/m.onnx", files),
        ("rm s3://b/m.onnx", files),
        ("share m.onnx s3://b/m.onnx", files),
        ("sign s3://b/m.onnx --key k", files),
        ("verify-signature s3://b/m.onnx --key k", files),
        ("report s3://b/m.onnx -o r.html", files),
        ("recover s3://b/m.onnx", "has to be a file"),
        ("scan s3://b/", "has to be a file"),
        ("job rewrite s3://b/m.onnx n.onnx -o j", "writes to a store: give a URL as OUT"),
        ("job rewrite s3://b/m.onnx n.onnx -o j", "`onnx-container pack s3://b/m.onnx m.onnx`"),
        ("pack m.onnx s3://b/n.onnx", "`publish IN URL` writes a model to a store"),
        ("embed m.onnx https://h/n.onnx", "`publish IN URL`"),
        ("export-safetensors m.onnx s3://b/w.safetensors", "has to be a file"),
        ("extract m.onnx w -o s3://b/w.npy", "has to be a file"),
        ("import-safetensors m.onnx s3://b/w.safetensors n.onnx", "has to be a file"),
        ("publish m.onnx n.onnx", "no URL of a store"),
        ("check https://me:secret@h/m.onnx", "a user or a password"),
        ("check https://h/m.onnx?sig=secret --json", "`?` or `#`"),
        ("inspect s3://key:secret@b/m.onnx", "a user or a password"),
        (
            "inspect m.onnx --store-option aws_secret_access_key=hidden",
            "`aws_secret_access_key` is a secret",
        ),
    ] {
        let run = folder.run(&line.split(' ').collect::<Vec<_>>()).misused(&[said]);
        let all = run.stdout() + &run.stderr();
        assert!(!line.contains("=secret") || !all.contains("secret"));
        assert!(!all.contains("hidden"), "{all}");
        assert!(!all.contains(":secret"), "{all}");
    }
    assert!(folder.contents() == before);
}

#[test]
fn what_a_store_does_not_have_is_said() {
    let (folder, server) = (folder(), Server::new());
    server.put("x.onnx", fs::read(folder.path("m.onnx")).unwrap());
    let none = "`s3://b/m.onnx`: there is no such object";
    for (line, code, said) in [
        ("inspect s3://b/m.onnx", 1, none),
        ("check s3://b/m.onnx", 2, none),
        ("pack s3://b/m.onnx o.onnx", 1, none),
        ("check s3://b/x.onnx", 1, "`s3://b/m.onnx.data`: there is no such object"),
        ("inspect s3://b", 1, "name a model in it"),
        ("inspect s3://b/w.safetensors", 1, "is a safetensors file in a store"),
        ("inspect s3://b/m.onnx --store-option nonsense=1", 1, "has no option `nonsense`"),
    ] {
        let run = server.run(&folder, &line.split(' ').collect::<Vec<_>>());
        let all = run.stdout() + &run.stderr();
        assert!(run.code() == code && all.contains(said), "{line}: {run:?}");
    }
}

#[test]
fn a_model_is_published_and_rolled_back() {
    let (folder, server) = (folder(), Server::new());
    let url = "s3://b/r/m.onnx";
    let publish = |args: &[&str]| server.run(&folder, &[&["publish"], args].concat());

    publish(&["m.onnx", url, "--dry-run"]).done().says(&["publishes", "sends"]);
    assert!(server.names().is_empty());
    let first = publish(&["m.onnx", url, "--keep", "2", "--json"]).done().json();
    assert_eq!((&first["files"][0]["sent"], &first["dry_run"]), (&true.into(), &false.into()));
    assert_eq!(server.names().len(), 3, "{:?}", server.names());
    server.run(&folder, &["pack", url, "back.onnx"]).done();
    assert_eq!(tensors(&folder.path("back.onnx")), tensors(&folder.path("m.onnx")));

    publish(&["m.onnx", url]).done().says(&["kept      1 weights file, there already"]);
    publish(&["m.onnx", url, "--create"]).failed(&["there is a model already"]);
    publish(&["m.onnx", url, "--expect", "\"0\""]).failed(&["not the one that was loaded"]);
    folder.save("other.onnx", &sum(7.0));
    let tag = server.state().objects["r/m.onnx"].1.clone();
    publish(&["other.onnx", url, "--keep", "2", "--expect", &tag]).done();

    let versions = server.run(&folder, &["versions", url, "--json"]).done().json();
    let versions: Vec<_> = versions["versions"].as_array().unwrap().clone();
    assert_eq!(versions.len(), 2);
    let of_first = first["version"].as_str().unwrap();
    assert!(versions.iter().any(|version| version == of_first), "{versions:?}");
    let other = folder.run(&["digest", "other.onnx"]).stdout();
    let now = || server.run(&folder, &["digest", url]).done().stdout()[..71].to_owned();
    assert_eq!(now(), other[..71]);
    server.run(&folder, &["rollback", url, of_first]).done().says(&["published", "there already"]);
    assert_eq!(now(), folder.run(&["digest", "m.onnx"]).stdout()[..71]);
    server.run(&folder, &["rollback", url, "s3://b/r/x.onnx"]).failed(&["no version"]);
}

#[test]
fn a_model_goes_from_store_to_store_in_parts() {
    let (folder, server) = (Folder::new(), Server::new());
    let mut model = sum(0.0);
    // Three parts.
    model.graph.as_mut().unwrap().initializer.push(weight("large", &[5, 1 << 20], 1.0));
    folder.save("inline.onnx", &model);
    server.run(&folder, &["publish", "inline.onnx", "s3://b/x/m.onnx"]).done();
    server.run(&folder, &["publish", "s3://b/x/m.onnx", "s3://b/y/m.onnx"]).done();
    server.run(&folder, &["pack", "s3://b/y/m.onnx", "m.onnx"]).done();
    assert_eq!(tensors(&folder.path("m.onnx")), tensors(&folder.path("inline.onnx")));
    let data = |name: &str| {
        let state = server.state();
        let mut found = state.objects.iter().filter(|(key, _)| key.starts_with(name));
        found.find(|(key, _)| key.ends_with(".data")).unwrap().1.0.clone()
    };
    assert!(data("x/") == data("y/"));
}

#[test]
fn parts_of_a_model_in_a_store_are_joined() {
    let folder = folder();
    let mut model = sum(0.0);
    let graph = model.graph.as_mut().unwrap();
    graph.initializer.extend((1..6).map(|i| weight(&format!("w{i}"), &[300 * i], 1.0)));
    folder.save("inline.onnx", &model);
    folder.run(&["pack", "inline.onnx", "m.onnx", "--digests"]).done();
    let server = Server::with_model(&folder);
    let expected = folder.run(&["digest", "m.onnx"]).done().stdout();
    let mut join = vec!["digest", URL, "--join"];
    for (part, file) in [("0/2", "0.json"), ("1/2", "1.json")] {
        server.run(&folder, &["check", URL, "--digests", "--part", part]).done();
        let partial = server.run(&folder, &["digest", URL, "--part", part]).done();
        fs::write(folder.path(file), partial.bytes()).unwrap();
        join.push(file);
    }
    server.asked();
    let joined = server.run(&folder, &join).done().stdout();
    assert_eq!(joined[..71], expected[..71]);
    assert_eq!(server.asked(), ["GET a é#%/m.onnx"]);
}

#[test]
fn a_sweep_removes_what_no_model_names() {
    let (folder, server) = (folder(), Server::new());
    let sweep = |args: &[&str]| server.run(&folder, &[&["sweep", "s3://b/r/"], args].concat());
    folder.save("other.onnx", &sum(7.0));
    for model in ["m.onnx", "other.onnx"] {
        server.run(&folder, &["publish", model, "s3://b/r/m.onnx"]).done();
    }
    server.put("r/notes.txt", b"stays".to_vec());
    let before = server.names();
    sweep(&[]).done().says(&["unneeded  1 file", "--delete"]);
    sweep(&["--older-than", "99999d", "--delete"]).done().says(&["to sweep", "young"]);
    assert_eq!(server.names(), before);
    let swept = sweep(&["--delete", "--json"]).done().json();
    assert_eq!((&swept["models"], &swept["deleted"]), (&1.into(), &true.into()));
    assert_eq!(server.names().len(), before.len() - 1);
    sweep(&[]).done().says(&["nothing"]);
    server.run(&folder, &["check", "s3://b/r/m.onnx"]).done();
}

#[test]
fn a_store_that_ignores_conditions_is_found() {
    let (folder, server) = (folder(), Server::new());
    let url = "s3://b/m.onnx";
    let probe = |args: &[&str]| server.run(&folder, &[&["stores", "probe", url], args].concat());
    probe(&[]).done().says(&["yes       refuses a new object where there is one", "works"]);
    assert!(server.names().is_empty());
    server.state().lies = true;
    let found = probe(&["--json"]);
    assert_eq!((found.code(), &found.json()["publishes"]), (1, &false.into()));
    let publish =
        |args: &[&str]| server.run(&folder, &[&["publish", "m.onnx", url], args].concat());
    publish(&[]).failed(&["two writers do not notice each other", "--unconditional"]);
    assert!(server.names().is_empty(), "{:?}", server.names());
    publish(&["--unconditional"]).done();
    server.run(&folder, &["check", url]).done();
}

#[test]
fn mistakes_of_the_environment_are_said() {
    let (folder, server) = (folder(), Server::with_model(&folder()));
    let signed = ("AWS_SKIP_SIGNATURE", "false");
    let profiles = ("AWS_SHARED_CREDENTIALS_FILE", "no-such-file");
    let settings = ("AWS_CONFIG_FILE", "no-such-file");
    // Variables, the arguments, and what is said.
    let cases = [
        (
            vec![("AWS_ENDPOINT_URL", "localhost:1")],
            "inspect s3://b/m.onnx",
            "write an address such",
        ),
        (vec![("AWS_ENDPOINT_URL", "")], "publish m.onnx s3://b/m.onnx", "write an address such"),
        (
            vec![signed, profiles, settings, ("AWS_PROFILE", "nothere")],
            "inspect s3://b/m.onnx",
            "the profile `nothere` has no keys",
        ),
        (vec![], "publish m.onnx https://h/m.onnx", "a web server is for reading only"),
        (vec![], "sweep hf://o/r/m", "the Hub is for reading only"),
    ];
    for (variables, line, said) in cases {
        let mut command = folder.command(&line.split(' ').collect::<Vec<_>>());
        server.is_known_to(&mut command);
        variables.iter().for_each(|(name, value)| {
            command.env(name, value);
        });
        let run = Run::of(command.output().unwrap());
        assert!(run.code() == 1 && run.stderr().contains(said), "{line}: {run:?}");
    }
    assert_eq!(server.asked(), [""; 0]);
}

#[test]
fn no_move_is_told_from_a_place_that_is_not_known() {
    let folder = folder();
    let server = Server::with_model(&folder);
    folder.run(&["diff", "inline.onnx", "m.onnx"]).says(&["moved"]);
    for other in ["m.onnx", "inline.onnx"] {
        let run = server.run(&folder, &["diff", other, URL]);
        assert!(run.code() == 0 && !run.stdout().contains("moved"), "{other}: {run:?}");
    }
}

#[test]
fn a_model_that_is_read_twice_is_read_in_one_version() {
    let folder = folder();
    let mut two = sum(0.0);
    let graph = two.graph.as_mut().unwrap();
    graph.initializer.push(weight("v", &[300], 1.0));
    graph.node.push(NodeProto::new("Add", ["y", "v"], ["z"]));
    graph.output = vec![ValueInfoProto::tensor("z", 1, [300])];
    folder.save("plain.onnx", &two);
    folder.run(&["pack", "plain.onnx", "two.onnx"]).done();
    folder.run(&["export-safetensors", "m.onnx", "w.safetensors"]).done();
    let server = Server::new();
    for name in ["two.onnx", "two.onnx.data"] {
        server.put(name, fs::read(folder.path(name)).unwrap());
    }
    // `w` comes from the weights, and `v` from the file that the model names.
    let import = ["import-safetensors", "s3://b/two.onnx", "w.safetensors", "o.onnx"];
    server.run(&folder, &import).done();
    let asked = server.asked();
    assert_eq!(asked.iter().filter(|asked| *asked == "GET two.onnx").count(), 1, "{asked:?}");
    assert_eq!(tensors(&folder.path("o.onnx")), tensors(&folder.path("plain.onnx")));
}

#[test]
fn a_model_that_is_published_where_it_was_read_replaces_no_other() {
    let folder = folder();
    let server = Server::new();
    for name in ["m.onnx", "m.onnx.data"] {
        server.put(name, fs::read(folder.path(name)).unwrap());
    }
    folder.save("other.onnx", &sum(7.0));
    let other = fs::read(folder.path("other.onnx")).unwrap();
    server.state().put_after_read = Some(("m.onnx".to_owned(), other.clone()));
    let url = "s3://b/m.onnx";
    server.run(&folder, &["publish", url, url]).failed(&["is not the one that was loaded"]);
    server.run(&folder, &["pack", url, "now.onnx"]).done();
    assert_eq!(tensors(&folder.path("now.onnx")), tensors(&folder.path("other.onnx")));
    server.run(&folder, &["publish", url, url]).done();
    // The option replaces what is there.
    server.state().put_after_read = Some(("m.onnx".to_owned(), other));
    server.run(&folder, &["publish", url, url, "--unconditional"]).done();
}
