//! How much memory the commands take for hostile models: 64 MiB and 16 bytes for each byte that is
//! read or written, beside the program itself, which has three times its size where it is built for
//! tests. The data of a page count as they are before they are deflated.
//!
//! By default each command runs on an eighth of the models, of 1 MiB. `ONNX_CONTAINER_ALL_BOUNDS=1`
//! runs all on all, `ONNX_CONTAINER_BOUNDS_OF` only the commands that begin so or the model with
//! this name, and `ONNX_CONTAINER_BOUNDS_MIB` says how long these are; times are printed, for a
//! person to see that they grow as the models do.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod cases;
#[cfg(feature = "machine")]
mod limited;
mod measured;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cases::Case;
use measured::{Measured, measure};
use p256::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};

/// Commands on the model `m.onnx`.
const COMMANDS: [&[&str]; 26] = [
    &["check", "m.onnx"],
    &["check", "m.onnx", "--digests", "--json"],
    &["inspect", "m.onnx", "--json"],
    &["inspect", "m.onnx", "--tree", "--depth", "9"],
    &["stats", "m.onnx", "--json"],
    &["files", "m.onnx"],
    &["digest", "m.onnx"],
    &["digest", "m.onnx", "--tensors"],
    &["digest", "m.onnx", "--semantic"],
    &["digest", "m.onnx", "--files"],
    &["diff", "--semantic", "m.onnx", "m.onnx"],
    &["diff", "m.onnx", "m.onnx", "--stats"],
    &["report", "m.onnx", "-o", "o/o.html"],
    &["report", "m.onnx", "-o", "o/o.html", "--stats"],
    &["report", "m.onnx", "m.onnx", "-o", "o/o.html", "--stats"],
    &["pack", "m.onnx", "o/o.onnx"],
    &["pack", "m.onnx", "o/o.onnx", "--digests", "--checksums", "--min-bytes", "0"],
    &["split", "m.onnx", "o/o.onnx"],
    &["embed", "m.onnx", "o/o.onnx"],
    &["inline-functions", "m.onnx", "o/o.onnx"],
    &["export-safetensors", "m.onnx", "o/o.safetensors"],
    &["replace", "m.onnx", "w", "w", "--format", "raw", "-o", "o/o.onnx"],
    &["extract", "m.onnx", "w", "-o", "o/w.raw"],
    &["sign", "m.onnx", "--key", "key.pem", "-o", "o/m.sig"],
    &["verify-signature", "m.onnx", "--key", "key.pub", "--signature", "m.sig"],
    &["recover", "."],
];

/// Commands that look into what the model computes.
#[cfg(feature = "machine")]
const MACHINE: [&[&str]; 4] = [
    &["plan", "m.onnx"],
    &["run", "m.onnx", "--seed", "1"],
    &["trace", "m.onnx"],
    &["verify", "m.onnx", "m.onnx"],
];
#[cfg(not(feature = "machine"))]
const MACHINE: [&[&str]; 0] = [];

/// Commands that change what a model says.
const CHANGE: [&[&str]; 4] = [
    &["strip", "m.onnx", "o/o.onnx", "--min-bytes", "0"],
    &["merge", "m.onnx", "m.onnx", "o/o.onnx", "--prefix-b", "b/"],
    &["cast", "m.onnx", "o/o.onnx", "--to", "float16"],
    &["edit", "m.onnx", "o/o.onnx", "--set-metadata", "k=v"],
];

/// The memory that any run may take, in bytes.
const BASE: u64 = 64 << 20;
/// And for each byte that it reads or writes.
const PER_BYTE: u64 = 16;

fn is_all() -> bool {
    std::env::var_os("ONNX_CONTAINER_ALL_BOUNDS").is_some()
}

/// Whether this command runs on this model: the `number`th of all pairs.
fn is_asked_for(number: usize, name: &str, command: &[&str]) -> bool {
    match std::env::var("ONNX_CONTAINER_BOUNDS_OF") {
        Ok(of) => name == of || command.join(" ").starts_with(&of),
        Err(_) => is_all() || number.is_multiple_of(8),
    }
}

fn length() -> usize {
    let mib = std::env::var("ONNX_CONTAINER_BOUNDS_MIB").ok();
    mib.map_or(1, |mib| mib.parse().unwrap()) << 20
}

/// The length of all files in `folder`, in bytes.
fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    entries.map(|metadata| metadata.len()).sum()
}

/// The length of the data of a page beyond what they have in it, where they are deflated: the data
/// are what `report` works on, and those of many tensors are mostly equal.
fn deflated(page: &Path) -> u64 {
    let Ok(page) = fs::read_to_string(page) else { return 0 };
    let data = page.split_once("data-encoding=\"deflate\">");
    let Some((data, _)) = data.and_then(|(_, rest)| rest.split_once("</script>")) else { return 0 };
    let bytes = STANDARD.decode(data.trim()).unwrap();
    let json = miniz_oxide::inflate::decompress_to_vec_zlib(&bytes).unwrap();
    json.len() as u64 - bytes.len() as u64
}

/// Runs `command` in `folder`; whether it stays below the bound, and what is to be said.
fn run(folder: &Path, command: &[&str], len: u64, program: u64) -> (bool, String) {
    let written = folder.join("o");
    fs::create_dir(&written).unwrap();
    let Measured { peak, seconds, code } = measure_in(folder, command);
    let peak = peak.saturating_sub(program);
    // These hold the graph before and after.
    let is_model = |arg: &&&str| ["m.onnx", "cast", "strip"].contains(*arg);
    let models = command.iter().filter(is_model).count().max(1) as u64;
    let written_bytes = bytes_in(&written) + deflated(&written.join("o.html"));
    let bound = BASE + PER_BYTE * (len * models + written_bytes);
    fs::remove_dir_all(&written).unwrap();
    let mib = |bytes: u64| bytes >> 20;
    let said = format!("exit {code}, {} of {} MiB, {seconds:.2} s", mib(peak), mib(bound));
    // A comparison or a check that fails is no difference and no finding.
    let compares = ["check", "diff", "verify"].contains(&command[0]);
    (peak <= bound && (matches!(code, 0 | 1) || (code == 2 && compares)), said)
}

/// Runs `command` in `folder`; what it prints goes to files in `o`.
fn measure_in(folder: &Path, command: &[&str]) -> Measured {
    let written = folder.join("o");
    let mut process = Command::new("/bin/sh");
    // It stops itself so that it can be followed from its beginning.
    process.args(["-c", "kill -STOP $$; exec \"$@\"", "sh"]);
    process.arg(env!("CARGO_BIN_EXE_onnx-container")).args(command).current_dir(folder);
    let printed = File::create(written.join("stdout")).unwrap();
    process.stdout(printed).stderr(File::create(written.join("stderr")).unwrap());
    measure(process)
}

/// A folder with one case, and the key and the signature of `signed`.
fn folder_of(model: &[u8], signed: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.onnx"), model).unwrap();
    fs::write(folder.path().join("w"), [0; 4096]).unwrap();
    for file in ["key.pem", "key.pub", "m.sig"] {
        fs::copy(signed.join(file), folder.path().join(file)).unwrap();
    }
    folder
}

/// A folder with a key, and the signature of a small model.
fn signed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = p256::SecretKey::from_slice(&[7; 32]).unwrap();
    let public = key.public_key().to_public_key_pem(LineEnding::LF).unwrap();
    fs::write(folder.path().join("key.pem"), &*key.to_pkcs8_pem(LineEnding::LF).unwrap()).unwrap();
    fs::write(folder.path().join("key.pub"), public).unwrap();
    fs::write(folder.path().join("m.onnx"), cases::model("")).unwrap();
    let mut sign = Command::new(env!("CARGO_BIN_EXE_onnx-container"));
    sign.args(["sign", "m.onnx", "--key", "key.pem", "-o", "m.sig"]).current_dir(folder.path());
    let signed = sign.output().unwrap();
    assert!(signed.status.success(), "{signed:?}");
    folder
}

/// Runs the commands that `is_asked_for` names on the models `cases`.
fn hold(cases: &[Case], is_asked_for: impl Fn(usize, &str, &[&str]) -> bool + Sync) {
    let signed = signed();
    fs::create_dir(signed.path().join("o")).unwrap();
    let program = measure_in(signed.path(), &["--version"]).peak;
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((number, (name, model))) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, cases.get(i)?)))
        {
            let folder = folder_of(model, signed.path());
            for (i, command) in COMMANDS.iter().chain(&MACHINE).chain(&CHANGE).enumerate() {
                if !is_asked_for(number + i, name, command) {
                    continue;
                }
                let (holds, said) = run(folder.path(), command, model.len() as u64, program);
                let said = format!("{name:30} {:70} {said}", command.join(" "));
                println!("{said}");
                if !holds {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).push(said);
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get().min(4));
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} runs:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn no_command_takes_much_more_memory_than_its_model_is_long() {
    let cases = cases::cases(length());
    assert!(cases.len() > 50);
    hold(&cases, is_asked_for);
}

/// Lists of this length are read by several threads.
#[test]
fn lists_that_threads_read_take_no_more() {
    hold(&cases::lists(8 << 20), |_, _, command| matches!(command, ["files", ..]));
}

/// Weights that are in the source of a job are not all in memory, unless it is read whole.
#[test]
fn a_part_of_a_job_has_its_own_weights_in_memory() {
    const MIB: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.onnx"), cases::embedded(16, 8 << 20)).unwrap();
    fs::create_dir(folder.path().join("o")).unwrap();
    let measured = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let Measured { peak, code, .. } = measure_in(folder.path(), &words);
        let said = fs::read_to_string(folder.path().join("o/stderr")).unwrap();
        assert_eq!(code, 0, "{line}: {said}");
        println!("{line}: {} MiB", peak / MIB);
        peak
    };
    let plan = "job rewrite m.onnx p.onnx --parts 4 --min-bytes 0";
    let planned = measured(&format!("{plan} -o p.job"));
    let planned_whole = measured(&format!("{plan} --no-mmap -o q.job"));
    assert!(planned + 32 * MIB < planned_whole, "{planned} {planned_whole}");
    let written = measured("job write p.job 0");
    let written_whole = measured("job write p.job 1 --no-mmap");
    assert!(written + 32 * MIB < written_whole, "{written} {written_whole}");
    measured("job write p.job 2-3");
    measured("job commit p.job");
    measured("diff m.onnx p.onnx");
}
