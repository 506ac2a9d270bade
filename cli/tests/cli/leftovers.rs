//! What an interrupted save left is named by every command that reads the model.

use std::fs;

use crate::support::{Folder, Run};

/// Leaves what a killed save leaves: `p.onnx` and its weights are staged and not renamed.
pub fn interrupt(folder: &Folder) -> &'static str {
    let name = ".p.onnx.saving-aB3xYz";
    for part in ["old", "new"] {
        fs::create_dir_all(folder.path(name).join(part)).unwrap();
    }
    let list = FILES.map(|file| format!("{file}\0")).concat();
    fs::write(folder.path(name).join("files"), format!("onnx-container save 1\0{list}")).unwrap();
    for file in FILES {
        fs::copy(folder.path(file), folder.path(name).join("new").join(file)).unwrap();
    }
    name
}

const FILES: [&str; 2] = ["p.onnx.data", "p.onnx"];

/// Leaves what a save leaves that was killed when it had moved the old model away.
pub fn interrupt_switch(folder: &Folder) {
    let staging = interrupt(folder);
    let mark = |path: std::path::PathBuf| {
        let metadata = path.metadata().unwrap();
        let modified = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        format!("{} {}", metadata.len(), modified.as_nanos())
    };
    let files = FILES.map(|name| {
        let new = mark(folder.path(staging).join("new").join(name));
        format!("file\0{name}\0{new}\0{}\0", mark(folder.path(name)))
    });
    let journal = format!("onnx-container switch 1\0{staging}\0{}end\0", files.concat());
    fs::write(folder.path(".p.onnx.switching"), journal).unwrap();
    fs::rename(folder.path("p.onnx"), folder.path(staging).join("old/p.onnx")).unwrap();
}

#[test]
fn every_command_completes_an_interrupted_save_and_says_so() {
    let folder = with_inputs();
    for args in
        READ.into_iter().chain([&["check", "p.onnx"][..], &["digest", "p.onnx", "--semantic"]])
    {
        interrupt_switch(&folder);
        let ran = run(&folder, args);
        let said = "warning: a save of `p.onnx` was interrupted; it is complete now";
        assert_eq!(ran.code(), 0, "{ran:?}");
        assert_eq!(ran.stderr().matches(said).count(), 1, "{ran:?}");
        assert!(!folder.names().iter().any(|name| name.starts_with('.')), "{:?}", folder.names());
        run(&folder, args).done();
        interrupt_switch(&folder);
        let json = run(&folder, &[args, &["--json"]].concat()).json();
        let warnings = json["warnings"].as_array().unwrap_or_else(|| panic!("{args:?}: {json}"));
        let is_said = |text: &serde_json::Value| said.ends_with(text.as_str().unwrap());
        let completed = "a save of `p.onnx` was interrupted; it is complete now";
        let count = warnings.iter().filter(|w| w.as_str().unwrap().starts_with(completed)).count();
        assert!(count == 1 && !warnings.iter().any(is_said), "{args:?}: {json}");
    }
}

#[test]
fn recover_takes_a_model() {
    let folder = with_inputs();
    interrupt_switch(&folder);
    folder.run(&["recover", "p.onnx"]).done().says(&["completed", "p.onnx"]);
    folder.run(&["recover", "p.onnx"]).done().says(&["nothing to recover"]);
    let left = interrupt(&folder);
    let json = folder.run(&["recover", "p.onnx", "--json"]).done().json();
    assert_eq!((&json["folder"], &json["removed"]), (&"p.onnx".into(), &1.into()));
    assert!(!folder.path(left).exists());
    folder.run(&["recover", "none.onnx"]).failed(&["none.onnx", "(os error 2)"]);
}

/// A power failure on btrfs can leave both names of a rename.
#[cfg(unix)]
#[test]
fn a_file_with_both_names_of_a_rename_ends_no_recovery() {
    let folder = with_inputs();
    let model = || fs::read(folder.path("p.onnx")).unwrap();
    let before = model();
    interrupt_switch(&folder);
    let old = folder.path(".p.onnx.saving-aB3xYz/old/p.onnx");
    fs::hard_link(old, folder.path("p.onnx")).unwrap();
    folder.run(&["recover", "p.onnx"]).done().says(&["completed", "p.onnx"]);
    assert_eq!(model(), before);
    assert!(!folder.names().iter().any(|name| name.starts_with('.')), "{:?}", folder.names());
}

#[cfg(target_os = "linux")]
#[test]
fn errors_of_a_recovery_are_told_where_its_report_cannot_be_printed() {
    let folder = with_inputs();
    fs::write(folder.path(".p.onnx.switching"), "no journal").unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = folder.command(&["recover", ".", "--json"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    for said in ["not the journal of a save", "standard output", "was recovered"] {
        assert!(stderr.contains(said), "{stderr}");
    }
}

#[test]
fn both_models_of_a_comparison_are_recovered_aloud() {
    let folder = with_inputs();
    folder.run(&["pack", "p.onnx", "o.onnx"]).done();
    for args in
        [["diff", "--semantic", "o.onnx", "p.onnx"], ["diff", "--semantic", "p.onnx", "o.onnx"]]
    {
        interrupt_switch(&folder);
        let ran = folder.run(&args);
        assert_eq!(
            ran.stderr().matches("a save of `p.onnx` was interrupted").count(),
            1,
            "{ran:?}"
        );
        interrupt_switch(&folder);
        let json = folder.run(&[&args[..], &["--json"]].concat()).json();
        assert_eq!(json["warnings"].as_array().unwrap().len(), 1, "{json}");
    }
}

#[test]
fn a_dry_run_recovers_nothing() {
    let folder = with_inputs();
    folder.run(&["pack", "p.onnx", "q.onnx"]).done();
    interrupt_switch(&folder);
    let before: Vec<_> = walk(&folder);
    let ran = folder.run(&["pack", "q.onnx", "p.onnx", "--dry-run"]);
    assert!(
        ran.stderr().contains("a save of this model was interrupted, or is running"),
        "{ran:?}"
    );
    assert_eq!(walk(&folder), before);
    let left = folder.run(&["pack", "q.onnx", "p.onnx"]);
    assert!(left.stderr().contains("is complete now"), "{left:?}");
    assert!(!folder.names().iter().any(|name| name.starts_with('.')), "{:?}", folder.names());
}

/// All files beneath the folder.
fn walk(folder: &Folder) -> Vec<std::path::PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.path("")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                folders.push(entry.path())
            } else {
                found.push(entry.path())
            }
        }
    }
    found.sort();
    found
}

#[cfg(unix)]
#[test]
fn files_of_killed_commands_are_named_and_removed() {
    let folder = Folder::packed();
    let (holder, file) = (".writing-700vx5", ".writing-700vx5-800bZz");
    let others = [".writing-x", ".writing-zzzzzz-000000", ".writing-700vx5-0000000"];
    fs::write(folder.path(holder), "").unwrap();
    for name in [file].into_iter().chain(others) {
        fs::write(folder.path(name), "half").unwrap();
    }
    // While somebody holds it, it is of a command that runs.
    let held = fs::File::open(folder.path(holder)).unwrap();
    held.lock().unwrap();
    folder.run(&["check", "p.onnx"]).done().says(&["no errors\n"]);
    folder.run(&["recover", "."]).done().says(&["nothing to recover"]);
    drop(held);
    let said = "advice: `./.writing-700vx5-800bZz`: left by a command that was killed";
    folder.run(&["check", "p.onnx"]).done().says(&[said, "2 advice"]);
    let json = folder.run(&["check", "p.onnx", "--json"]).done().json();
    assert_eq!((&json["findings"][1]["kind"], &json["advice"]), (&"Changed".into(), &2.into()));
    let json = folder.run(&["recover", "p.onnx", "--json"]).done().json();
    assert_eq!(json["removed_unfinished"], 2);
    let names = folder.names();
    assert!(others.iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    assert!(!names.iter().any(|name| name == holder || name == file), "{names:?}");
    folder.run(&["check", "p.onnx"]).done().says(&["no errors\n"]);
}

/// Files and folders of the user whose names begin as those of killed commands and saves.
#[test]
fn what_only_looks_as_if_it_was_left_is_kept() {
    let names = [
        ".writing-drafts",
        ".writing-drafts-second",
        ".writing-700vx5",
        ".writing-700vx5-800bZz",
        ".writing-config",
        ".p.onnx.saving-backup/new/notes.txt",
        ".p.onnx.saving-config/new/p.onnx",
        ".p.onnx.saving-policy/new/files",
        ".p.onnx.saving-secret/files",
        ".p.onnx.saving-drafts/notes",
    ];
    for name in names {
        for text in ["mine", ""] {
            let folder = Folder::packed();
            fs::create_dir_all(folder.path(name).parent().unwrap()).unwrap();
            fs::write(folder.path(name), text).unwrap();
            folder.run(&["check", "p.onnx"]);
            folder.run(&["recover", "."]).done();
            folder.run(&["recover", "p.onnx"]).done();
            folder.run(&["pack", "p.onnx", "q.onnx"]).done();
            folder.run(&["pack", "q.onnx", "p.onnx"]).done();
            folder.run(&["extract", "p.onnx", "w", "-o", "w.npy"]).done();
            let is_holder = name == ".writing-700vx5" && text.is_empty();
            // An empty list is what a save leaves that is killed when it begins.
            let is_list = name.ends_with("/files") && !name.contains("/new/") && text.is_empty();
            let is_kept = fs::read_to_string(folder.path(name)).is_ok_and(|found| found == text);
            assert_eq!(is_kept, !is_holder && !is_list, "{name}: {text:?}");
        }
    }
}

#[test]
fn many_files_are_staged_and_nothing_is_left() {
    let folder = Folder::packed();
    fs::create_dir(folder.path("out")).unwrap();
    folder.run(&["extract", "p.onnx", "w", "typed", "sizes", "-o", "out/"]).done();
    let left = fs::read_dir(folder.path("out")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
    assert!(left.len() == 3 && !left.iter().any(|name| name.starts_with('.')), "{left:?}");
}

#[test]
fn recover_completes_and_removes() {
    let folder = with_inputs();
    folder.run(&["recover", "."]).done().says(&["nothing to recover"]);
    interrupt_switch(&folder);
    folder.run(&["recover", "."]).done().says(&["completed", "p.onnx"]);
    interrupt(&folder);
    folder.run(&["recover", "."]).done().says(&["removed", "1 staging folder"]);
    interrupt_switch(&folder);
    let json = folder.run(&["recover", ".", "--json"]).done().json();
    assert_eq!(json["finished"][0], "p.onnx");
    interrupt_switch(&folder);
    fs::write(folder.path("p.onnx.data"), "somebody's").unwrap();
    folder.run(&["recover", "."]).failed(&["was interrupted", ".p.onnx.saving-aB3xYz"]);
    folder.run(&["inspect", "p.onnx"]).failed(&["was interrupted"]);
    folder.run(&["recover", "missing"]).failed(&["missing"]);
}

const READ: [&[&str]; 13] = [
    &["inspect", "p.onnx"],
    &["files", "p.onnx"],
    &["pack", "p.onnx", "o.onnx"],
    &["split", "p.onnx", "o.onnx"],
    &["embed", "p.onnx", "o.onnx"],
    &["inline-functions", "p.onnx", "o.onnx"],
    &["cast", "p.onnx", "o.onnx", "--to", "float16"],
    &["edit", "p.onnx", "o.onnx", "--producer", "p"],
    &["export-safetensors", "p.onnx", "o.safetensors"],
    &["import-safetensors", "p.onnx", "w.safetensors", "o.onnx"],
    &["extract", "p.onnx", "w", "-o", "o.npy"],
    &["report", "p.onnx", "-o", "o.html"],
    &["replace", "p.onnx", "w", "w.npy", "-o", "o.onnx"],
];

fn with_inputs() -> Folder {
    let folder = Folder::packed();
    folder.run(&["extract", "p.onnx", "w", "-o", "w.npy"]).done();
    folder.run(&["export-safetensors", "p.onnx", "w.safetensors"]).done();
    folder
}

/// Runs the command, and removes the files that it wrote.
fn run(folder: &Folder, args: &[&str]) -> Run {
    let run = folder.run(args);
    for name in folder.names().into_iter().filter(|name| name.starts_with('o')) {
        fs::remove_file(folder.path(&name)).unwrap();
    }
    run
}

#[test]
fn every_command_names_the_folder_of_an_interrupted_save() {
    let folder = with_inputs();
    for args in READ {
        run(&folder, args).done();
    }
    let left = interrupt(&folder);
    let start = format!("note: `{left}`: left by a save that was interrupted before it");
    for args in READ {
        let ran = run(&folder, args);
        assert_eq!(ran.code(), 0, "{ran:?}");
        assert!(ran.stderr().starts_with(&start) && ran.stderr().lines().count() == 1, "{ran:?}");
        let said = run(&folder, &[args, &["--json"]].concat()).json();
        if let Some(warnings) = said["warnings"].as_array() {
            let named = |text: &serde_json::Value| text.as_str().unwrap().contains(left);
            assert_eq!(warnings.iter().filter(|text| named(text)).count(), 1, "{args:?}: {said}");
        } else {
            panic!("no warnings: {args:?}: {said}");
        }
    }
    folder.run(&["check", "p.onnx"]).done().says(&[
        left,
        "`./w.safetensors`: no model",
        "2 advice",
    ]);

    // The same where there is no model.
    fs::remove_file(folder.path("p.onnx")).unwrap();
    for args in READ.into_iter().chain([&["check", "p.onnx"][..]]) {
        let run = folder.run(args).could_not(args[0], &["p.onnx"]);
        assert_eq!(run.stderr().matches(&start).count(), 1, "{run:?}");
    }
}

#[test]
fn a_save_that_removes_the_folder_does_not_name_it() {
    let folder = Folder::packed();
    let left = interrupt(&folder);
    folder.run(&["pack", "p.onnx", "p.onnx"]).done();
    assert!(!folder.path(left).exists());
}
