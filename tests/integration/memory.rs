//! What memory a process has while tensors are loaded, consolidated, compared and dropped, by
//! /proc/self/status.
//!
//! Each test runs in a process of its own, whose memory no other test changes.

use std::path::Path;

use onnx_container::edit::{ConsolidateOptions, consolidate};
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{
    Alignment, Buffer, BufferMut, Container, DataType, Initializer, LoadOptions, Result,
    SaveOptions, WeightSource,
};

use crate::ownership::raw_data;
use crate::support::{both_choices, graph, model};

/// Says that a process runs one test only.
const ALONE: &str = "ONNX_CONTAINER_ALONE";

/// Runs the ignored test `name` of this file in a process of its own.
fn alone(name: &str) {
    let name = format!("memory::{name}");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.env(ALONE, "1").args(["--exact", &name, "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Whether this process runs one test only.
fn is_alone() -> bool {
    let alone = std::env::var_os(ALONE).is_some();
    if !alone {
        println!("run by another test, in a process of its own");
    }
    alone
}

/// A field of /proc/self/status in MiB.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// A model of `count` tensors of 8 MiB, each in memory of its own.
fn large(count: u8) -> ModelProto {
    let tensors = (0..count).map(|i| {
        let mut memory = BufferMut::zeroed(8 << 20, Alignment::PAGE).unwrap();
        memory.fill(i);
        TensorProto::new(format!("w{i}"), TensorProto::UINT8, [8 << 20])
            .with_raw_data(memory.freeze())
    });
    model(graph(tensors.collect(), vec![]))
}

#[test]
fn consolidated_memory_goes_back_to_the_system_and_is_never_held_twice() {
    alone("a_process_that_consolidates");
}

#[test]
#[ignore = "measures the process: run alone by the test above"]
fn a_process_that_consolidates() {
    if !is_alone() {
        return;
    }
    let empty = status("RssAnon");
    let mut model = large(16);
    let (loaded, all) = (status("RssAnon"), status("VmRSS"));
    assert!((128..140).contains(&(loaded - empty)), "{empty} {loaded}");
    // Makes the peak the present.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let options = ConsolidateOptions::new().alignment(Alignment::DEVICE);
    let buffer = consolidate(&mut model, options).unwrap();
    let (peak, after) = (status("VmHWM"), status("RssAnon"));
    assert!(peak < all + 32, "three tensors more at most: {all} {peak}");
    assert!(after < loaded + 8, "{loaded} {after}");
    for i in 0..16 {
        assert_eq!(raw_data(&model, i)[0], i as u8);
    }
    drop(buffer);
    let tensor = model.graph.take().unwrap().initializer.remove(3);
    drop(model);
    assert!(status("RssAnon") > empty + 120, "one tensor keeps the buffer");
    drop(tensor);
    assert!(status("RssAnon") < empty + 8, "{empty} {}", status("RssAnon"));

    // Memory of each tensor's own is freed with the tensor.
    let mut model = large(16);
    model.graph.as_mut().unwrap().initializer.truncate(4);
    assert!(status("RssAnon") < empty + 48);
    let edited = raw_data(&model, 0).clone().into_mut().unwrap();
    drop((edited, model));
    assert!(status("RssAnon") < empty + 8);
}

/// A source of 32 MiB that has no memory.
struct Zeros([i64; 1]);

impl WeightSource for Zeros {
    fn dtype(&self) -> DataType {
        DataType::Uint8
    }

    fn dims(&self) -> &[i64] {
        &self.0
    }

    fn byte_len(&self) -> u64 {
        self.0[0] as u64
    }

    fn read_at(&self, _: u64, out: &mut [u8]) -> Result<()> {
        out.fill(0);
        Ok(())
    }
}

#[test]
fn equal_weights_are_found_without_a_copy_of_them() {
    alone("a_process_that_compares");
}

#[test]
#[ignore = "measures the process: run alone by the test above"]
fn a_process_that_compares() {
    if !is_alone() {
        return;
    }
    const LEN: i64 = 32 << 20;
    let place =
        |i| TensorProto::external(format!("w{i}"), TensorProto::UINT8, [LEN], format!("#w{i}"));
    let mut container = Container::new(model(graph((0..4).map(place).collect(), vec![])));
    for i in 0..4 {
        let weight = Initializer::from_source(Zeros([LEN])).unwrap();
        container.insert(&format!("#w{i}"), weight).unwrap();
    }
    let before = status("VmRSS");
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let plan = container.dry_run("m.onnx", SaveOptions::new().dedup(true)).unwrap();
    assert_eq!(plan.deduplicated.unwrap().bytes, 3 * LEN as u64);
    // Two pieces of 1 MiB for each of at most eight threads, and their stacks.
    assert!(status("VmHWM") < before + 24, "{before} {}", status("VmHWM"));
}

#[test]
fn loaded_memory_goes_back_to_the_system() {
    alone("a_process_that_loads");
}

/// The bytes of every tensor, inline or external; each byte is read.
fn tensors(container: Container) -> Vec<Buffer> {
    let bytes =
        container.tensors().map(|tensor| tensor.tensor().unwrap().buffer().unwrap().clone());
    let all: Vec<_> = bytes.collect();
    assert!(
        all.iter().all(|bytes| bytes[1..] == bytes[..bytes.len() - 1]),
        "all bytes are the same"
    );
    all
}

#[test]
#[ignore = "measures the process: run alone by the test above"]
fn a_process_that_loads() {
    if !is_alone() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [inline, external] = ["inline.onnx", "external.onnx"].map(|name| folder.path().join(name));
    let model = Container::new(large(8));
    model.save(&inline, SaveOptions::new().sync(false)).unwrap();
    model.save(&external, SaveOptions::new().sync(false).externalize(true)).unwrap();
    drop(model);
    for path in [inline.as_path(), &external] {
        loaded_with_and_without_a_copy(path);
    }
    from_bytes(&inline);
}

/// Scenarios 1, 2, 5 and 6 of docs/ownership.md for the model of 64 MiB at `path`.
fn loaded_with_and_without_a_copy(path: &Path) {
    let empty = status("RssAnon");
    let near = |mib: u64| (empty + mib..empty + mib + 12).contains(&(status("RssAnon") + 4));
    for (choice, read) in both_choices().into_iter().zip([0, 64]) {
        let options = LoadOptions::new().mmap(choice);
        let mut copied = tensors(Container::load(path, options.clone().no_copy(false)).unwrap());
        assert!(near(64), "one copy, and no file: {empty} {}", status("RssAnon"));
        copied.truncate(2);
        assert!(near(16), "each with its own memory: {empty} {}", status("RssAnon"));
        drop(copied);
        assert!(near(0), "{empty} {}", status("RssAnon"));

        let files = status("RssFile");
        let mut shared = tensors(Container::load(path, options).unwrap());
        assert!(near(read), "the file, mapped or once in memory: {empty} {}", status("RssAnon"));
        assert!(read > 0 || status("RssFile") >= files + 60, "the map was read");
        shared.truncate(1);
        assert!(near(read), "one tensor keeps the file: {empty} {}", status("RssAnon"));
        drop(shared);
        assert!(near(0), "{empty} {}", status("RssAnon"));
        assert!(status("RssFile") < files + 8, "unmapped");
    }
}

/// Scenarios 3 and 4 for the bytes of the model at `path`.
fn from_bytes(path: &Path) {
    let empty = status("RssAnon");
    let near = |mib: u64| (empty + mib..empty + mib + 12).contains(&(status("RssAnon") + 4));
    let lend = || Buffer::from_owner(std::fs::read(path).unwrap());
    let copied = tensors(Container::load_bytes(lend(), LoadOptions::new().no_copy(false)).unwrap());
    assert!(near(64), "the caller's bytes are freed: {empty} {}", status("RssAnon"));
    drop(copied);
    assert!(near(0), "{empty} {}", status("RssAnon"));
    let mut borrowed = tensors(Container::load_bytes(lend(), LoadOptions::new()).unwrap());
    borrowed.truncate(1);
    assert!(near(64), "one tensor keeps the caller's bytes: {empty} {}", status("RssAnon"));
    drop(borrowed);
    assert!(near(0), "{empty} {}", status("RssAnon"));
}
