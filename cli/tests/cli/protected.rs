//! What a save leaves alone, and what it says of what it met: files that are read, leftovers of
//! interrupted saves, unreferenced bytes, folders that cannot be written.

use std::fs;

use crate::support::Folder;

/// A tensor file of each kind that is read, and an index with one shard.
fn with_weights() -> Folder {
    let folder = Folder::packed();
    folder.run(&["extract", "p.onnx", "w", "-o", "w.npy"]).done();
    folder.run(&["extract", "p.onnx", "w", "-o", "w.bin"]).done();
    folder.run(&["export-safetensors", "p.onnx", "all.safetensors"]).done();
    folder
        .run(&["export-safetensors", "p.onnx", "s.safetensors", "--max-shard-size", "4096"])
        .done();
    folder
}

#[test]
fn files_that_are_read_are_never_replaced() {
    let folder = with_weights();
    let before = folder.contents();
    let names = folder.names();
    let shard = names.iter().find(|name| name.starts_with("s-00001")).unwrap().as_str();
    let index = "s.safetensors.index.json";
    for (weights, name) in [
        ("w.npy", "w.npy"),
        ("w.bin", "w.bin"),
        ("all.safetensors", "all.safetensors"),
        (index, index),
        (index, shard),
    ] {
        let args = ["replace", "p.onnx", "w", weights, "-o", "q.onnx", "--data-name", name];
        folder.run(&args).failed(&[name, "not replaced"]);
        assert!(folder.contents() == before, "{args:?}");
        if weights.contains("safetensors") {
            let args = ["import-safetensors", "p.onnx", weights, "o.onnx", "--data-name", name];
            folder.run(&args).failed(&[name, "not replaced"]);
            assert!(folder.contents() == before, "{args:?}");
        }
    }
    fs::write(folder.path("names.raw"), "w\n").unwrap();
    let before = folder.contents();
    for output in ["names.raw", "p.onnx", "p.onnx.data"] {
        let args =
            ["extract", "p.onnx", "--names-from", "names.raw", "-o", output, "--format", "raw"];
        folder.run(&args).failed(&[output, "not replaced"]);
        folder.run(&["export-safetensors", "p.onnx", output]).failed(&[output]);
        assert!(folder.contents() == before, "{args:?}");
    }
}

#[test]
fn unreferenced_bytes_of_kept_files_are_reported() {
    let folder = Folder::packed();
    let mut data = fs::OpenOptions::new().append(true).open(folder.path("p.onnx.data")).unwrap();
    std::io::Write::write_all(&mut data, &[0; 100_000]).unwrap();
    drop(data);
    folder.run(&["extract", "p.onnx", "small", "-o", "small.npy"]).done();
    let args = ["replace", "p.onnx", "small", "small.npy", "-o", "p.onnx"];
    folder.run(&args).done().says(&["kept      1 file of weights, unchanged", "in no tensor"]);
    let report = folder.run(&[&args[..], &["--json"]].concat()).done().json();
    assert!(report["unreferenced_bytes"].as_u64().unwrap() >= 100_000, "{report}");
    assert_eq!(report["warnings"].as_array().unwrap().len(), 0);
}

#[test]
fn a_data_file_that_no_model_names_is_refused_with_what_to_do() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "o.onnx"]).done();
    folder.run(&["embed", "m.onnx", "o.onnx", "--keep-old"]).done();
    let before = folder.contents();
    folder.run(&["pack", "m.onnx", "o.onnx"]).failed(&["o.onnx.data", "--data-name NAME"]);
    assert!(folder.contents() == before);
    folder.run(&["pack", "m.onnx", "o.onnx", "--data-name", "o.onnx.data"]).done();
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn set_mode(folder: &Folder, name: &str, mode: u32) {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs a command as a user whom modes bind; `None`, said aloud, where that is not possible.
    fn run_bound(folder: &Folder, args: &[&str]) -> Option<(i32, String, String)> {
        let plain = folder.command(args);
        let mut command = plain;
        if rustix::process::geteuid().is_root() {
            let mut bound = Command::new("setpriv");
            bound.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
            let runs = bound.arg(command.get_program()).arg("--version").output();
            if !runs.is_ok_and(|output| output.status.success()) {
                eprintln!("SKIPPED: root is bound by no mode, and setpriv cannot run the command");
                return None;
            }
            let mut bound = Command::new("setpriv");
            bound.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
            bound.arg(command.get_program()).args(args).current_dir(folder.path(""));
            command = bound;
        }
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Some((output.status.code().unwrap(), text(output.stdout), text(output.stderr)))
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let folder = Folder::with_model();
        fs::create_dir(folder.path("ro")).unwrap();
        set_mode(&folder, "", 0o755);
        set_mode(&folder, "ro", 0o555);
        for args in [
            &["pack", "m.onnx", "ro/p.onnx"][..],
            &["export-safetensors", "m.onnx", "ro/w.safetensors"],
            &["extract", "m.onnx", "w", "-o", "ro/w.npy"],
        ] {
            let Some((code, _, stderr)) = run_bound(&folder, args) else { return };
            assert_eq!(code, 1, "{stderr}");
            assert!(stderr.contains("`ro`: cannot write in this folder"), "{stderr}");
            assert!(!stderr.contains(".saving-"), "{stderr}");
        }
    }

    #[test]
    fn a_neighbour_that_may_not_be_read_is_asked_only_where_a_data_file_is_replaced() {
        let folder = Folder::with_model();
        set_mode(&folder, "", 0o777);
        let pack = ["pack", "m.onnx", "p.onnx"];
        let Some((code, _, stderr)) = run_bound(&folder, &pack) else { return };
        assert_eq!(code, 0, "{stderr}");
        fs::copy(folder.path("p.onnx"), folder.path("secret")).unwrap();
        set_mode(&folder, "secret", 0o000);
        let before = fs::read(folder.path("p.onnx.data")).unwrap();
        let aligned = [&pack[..], &["--align", "64"]].concat();
        let (code, _, stderr) = run_bound(&folder, &aligned).unwrap();
        assert_eq!(code, 1, "{stderr}");
        let said = "secret`: cannot be read, and may be a model that needs a file to be replaced";
        assert!(stderr.contains(said), "no {said} in {stderr}");
        assert!(fs::read(folder.path("p.onnx.data")).unwrap() == before);
        // A list does without it, and says so; a removal does not.
        let (code, list, stderr) = run_bound(&folder, &["files", "p.onnx"]).unwrap();
        assert_eq!((code, list.as_str()), (0, "p.onnx\np.onnx.data\n"), "{stderr}");
        assert!(stderr.contains("which other models need these files is not known"), "{stderr}");
        let (code, _, stderr) = run_bound(&folder, &["rm", "p.onnx"]).unwrap();
        assert!(code == 1 && stderr.contains(said), "{stderr}");
        assert!(folder.path("p.onnx").exists());
        let other = [&aligned[..], &["--data-name", "free.bin"]].concat();
        let (code, _, stderr) = run_bound(&folder, &other).unwrap();
        assert_eq!(code, 0, "{stderr}");
    }

    #[test]
    fn a_file_of_another_user_in_a_shared_folder_is_named() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make files of two users");
            return;
        }
        let folder = Folder::packed();
        let before = folder.contents();
        set_mode(&folder, "", 0o1777);
        for (args, file) in [
            (&["pack", "p.onnx", "p.onnx", "--align", "64"][..], "`./p.onnx`"),
            (&["embed", "p.onnx", "p.onnx"], "`./p.onnx`"),
        ] {
            let Some((code, _, stderr)) = run_bound(&folder, args) else { return };
            assert_eq!(code, 1, "{stderr}");
            let said = format!("{file}: cannot be replaced: it may belong to another user");
            assert!(stderr.contains(&said), "no {said} in {stderr}");
            assert!(!stderr.contains(".saving-"), "{stderr}");
            assert!(folder.contents() == before, "{args:?}");
        }
    }

    #[test]
    fn a_save_over_the_model_of_another_user_says_so() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make files of two users");
            return;
        }
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        for (mode, new) in [(0o644, 0o644), (0o664, 0o644), (0o666, 0o666)] {
            let folder = Folder::packed();
            set_mode(&folder, "", 0o777);
            set_mode(&folder, "p.onnx", mode);
            set_mode(&folder, "p.onnx.data", mode);
            let args = ["pack", "p.onnx", "p.onnx", "--align", "4096"];
            let Some((code, _, stderr)) = run_bound(&folder, &args) else { return };
            assert_eq!(code, 0, "{stderr}");
            let said = "was replaced without the owner (user 0) and the group (0) of the old file";
            assert_eq!(stderr.matches(said).count(), 1, "{stderr}");
            for name in ["p.onnx", "p.onnx.data"] {
                let metadata = fs::metadata(folder.path(name)).unwrap();
                let found = (metadata.uid(), metadata.permissions().mode() & 0o777);
                assert_eq!(found, (65534, new), "{name} of {mode:o}");
            }
            // Its own files are replaced without a word.
            let (code, _, stderr) = run_bound(&folder, &["embed", "p.onnx", "p.onnx"]).unwrap();
            assert_eq!((code, &*stderr), (0, ""));
        }
    }

    #[test]
    fn a_save_warns_of_what_it_cannot_remove() {
        let folder = Folder::with_model();
        let left = ".p.onnx.saving-aB3xYz";
        fs::create_dir_all(folder.path(left).join("old")).unwrap();
        fs::create_dir_all(folder.path(left).join("new")).unwrap();
        fs::write(folder.path(left).join("old/x"), "").unwrap();
        fs::write(folder.path(left).join("files"), "onnx-container save 1\0").unwrap();
        set_mode(&folder, &format!("{left}/old"), 0o555);
        set_mode(&folder, "", 0o777);
        let args = ["pack", "m.onnx", "p.onnx", "--json"];
        let Some((code, stdout, stderr)) = run_bound(&folder, &args) else { return };
        assert_eq!(code, 0, "{stderr}");
        assert!(stderr.contains("warning: ") && stderr.contains(left), "{stderr}");
        let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let warnings = report["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|said| said.as_str().unwrap().contains(left)), "{report}");
        set_mode(&folder, &format!("{left}/old"), 0o755);
    }

    #[test]
    fn a_check_names_the_folders_of_interrupted_saves() {
        let folder = Folder::packed();
        for name in ["p.onnx", "gone.onnx"] {
            let left = format!(".{name}.saving-aB3xYz");
            fs::create_dir_all(folder.path(&left).join("old")).unwrap();
        }
        let said = "left by a save that was interrupted";
        let run = folder.run(&["check", "p.onnx"]).done();
        run.says(&["advice: ", ".p.onnx.saving-aB3xYz", said, "ok: p.onnx: no errors, 1 advice"]);
        folder.run(&["check", "gone.onnx"]).misused(&[".gone.onnx.saving-aB3xYz", said]);
        let report = folder.run(&["check", "gone.onnx", "--json"]).misused(&[]).json();
        assert_eq!((&report["errors"], &report["advice"]), (&1.into(), &1.into()), "{report}");
    }
}
