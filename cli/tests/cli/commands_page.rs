//! `docs/commands.md`: every command with one real call and its output, and its help. The page is
//! made from the declaration and by running the calls; this test holds it to them.
//!
//! With ONNX_CONTAINER_WRITE_PAGE=1 the page is written.

use std::fmt::Write;
use std::path::Path;

use crate::store_server::Server;
use crate::support::Folder;

/// A call that the page shows, after the calls above it.
const CALLS: [(&str, &[&str]); 39] = [
    ("inspect", &["encoder.onnx", "--top", "3"]),
    ("files", &["encoder.onnx"]),
    ("scan", &["."]),
    ("check", &["encoder.onnx"]),
    ("digest", &["encoder.onnx"]),
    ("pack", &["encoder.onnx", "packed.onnx", "--verify"]),
    ("diff", &["encoder.onnx", "packed.onnx"]),
    ("stats", &["encoder.onnx", "layer0.*"]),
    ("report", &["encoder.onnx", "-o", "encoder.html", "--stats"]),
    ("split", &["encoder.onnx", "split.onnx"]),
    ("embed", &["encoder.onnx", "single.onnx"]),
    ("edit", &["single.onnx", "single.onnx", "--set-metadata", "version=2"]),
    ("cast", &["encoder.onnx", "half.onnx", "--to", "float16", "--keep-io"]),
    ("strip", &["encoder.onnx", "structure.onnx"]),
    ("attach", &["structure.onnx", "encoder.onnx", "whole.onnx"]),
    ("extract-model", &["encoder.onnx", "part.onnx", "--outputs", "best"]),
    ("merge", &["single.onnx", "part.onnx", "both.onnx", "--prefix-b", "second."]),
    ("share", &["packed.onnx", "whole.onnx", "--data-name", "shared.data"]),
    ("inline-functions", &["encoder.onnx", "flat.onnx"]),
    ("extract", &["encoder.onnx", "embedding", "-o", "embedding.npy"]),
    ("replace", &["encoder.onnx", "embedding", "embedding.npy", "-o", "tuned.onnx"]),
    ("export-safetensors", &["encoder.onnx", "weights.safetensors"]),
    ("import-safetensors", &["encoder.onnx", "weights.safetensors", "filled.onnx"]),
    ("mv", &["packed.onnx", "release.onnx"]),
    ("cp", &["release.onnx", "copy.onnx"]),
    ("rm", &["copy.onnx"]),
    ("job", &["write", "half.job", "0-1"]),
    ("publish", &["release.onnx", "s3://models/m.onnx"]),
    ("versions", &["s3://models/m.onnx"]),
    ("rollback", &["s3://models/m.onnx", "20261127T181530"]),
    ("sweep", &["s3://models/"]),
    ("stores", &["probe", "s3://models/"]),
    ("recover", &["."]),
    ("sign", &["release.onnx", "--key", "keys/P-256.pem"]),
    ("verify-signature", &["release.onnx", "--key", "keys/P-256.pub"]),
    ("plan", &["encoder.onnx", "--dim", "batch=1", "--dim", "length=8", "--top", "3"]),
    ("run", &["encoder.onnx", "--dim", "batch=1", "--dim", "length=8"]),
    ("trace", &["diff", "encoder.onnx", "release.onnx", "--dim", "batch=1", "--dim", "length=8"]),
    ("verify", &["encoder.onnx", "release.onnx"]),
];

/// Options of builds with onnxruntime.
const OF_ORT: [&str; 3] = ["with", "ort_library", "ort_unoptimized"];

#[test]
fn the_page_of_commands_is_what_the_commands_say() {
    let page = page();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/commands.md");
    if std::env::var_os("ONNX_CONTAINER_WRITE_PAGE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let pairs = page.lines().zip(written.lines().chain(std::iter::repeat("")));
    for (number, (now, then)) in pairs.enumerate() {
        assert_eq!(
            now,
            then,
            "line {} of docs/commands.md: run this test with ONNX_CONTAINER_WRITE_PAGE=1",
            number + 1
        );
    }
    assert_eq!(page.len(), written.len());
}

fn page() -> String {
    let folder = Folder::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/encoder");
    for name in ["encoder.onnx", "encoder.onnx.data"] {
        std::fs::copy(data.join(name), folder.path(name)).unwrap();
    }
    crate::signing::make_keys(&folder);
    let mut page = "# Commands\n\nEvery command with one call and what it prints, and its help. The model is\n\
                    `tests/data/encoder` of this repository. [json.md](json.md) has the keys of `--json`.\n"
        .to_owned();
    let mut cli = onnx_container_cli::declaration();
    cli.build();
    let names: Vec<_> = cli.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    let shown: Vec<_> = CALLS.iter().map(|(name, _)| *name).collect();
    for name in names.iter().filter(|name| !shown.contains(&name.as_str())) {
        assert!(["help", "completions", "man"].contains(&name.as_str()), "{name} has no call");
    }
    let store = Server::of_examples(&folder, "encoder.onnx");
    for (name, args) in CALLS {
        if name == "job" {
            // What it prints has a random name.
            let plan = "job rewrite encoder.onnx job.onnx --parts 2 --cast float16 -o half.job";
            folder.run(&plan.split(' ').collect::<Vec<_>>()).done();
        }
        let run = store.run(&folder, &[&[name], args].concat());
        assert!(run.code() < 2, "{run:?}");
        let command = cli.find_subcommand_mut(name).unwrap();
        for id in OF_ORT {
            if command.get_arguments().any(|arg| arg.get_id() == id) {
                *command = command.clone().mut_arg(id, |arg| arg.hide(true));
            }
        }
        let about = command.get_about().unwrap().to_string();
        let mut help = command.render_long_help().to_string();
        for part in command.get_subcommands_mut().filter(|part| part.get_name() != "help") {
            write!(help, "\n\n{}", part.render_long_help()).unwrap();
        }
        let help = help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        let said = format!("{}{}", run.stdout(), run.stderr());
        if name == "job" {
            folder.run(&["job", "abort", "half.job"]).done();
            std::fs::remove_file(folder.path("half.job")).unwrap();
        }
        let call = args.join(" ");
        write!(
            page,
            "\n## `{name}`\n\n{about}.\n\n```text\n$ onnx-container {name} {call}\n{}\n```\n\n```text\n{help}\n```\n",
            said.trim_end()
        )
        .unwrap();
    }
    page
}
