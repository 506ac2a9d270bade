//! Saving and loading against the machine's own limits: a plain write, and a map.
//!
//! `cargo bench --bench container`. Peers are compared as whole processes by
//! `scripts/bench_save.py`; read the ratios, not the seconds.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation
)]

use std::path::PathBuf;

use divan::Bencher;
#[cfg(feature = "safetensors")]
use onnx_container::edit::FillOptions;
use onnx_container::proto::{GraphProto, Message, ModelProto, TensorProto};
use onnx_container::{
    Alignment, Buffer, BufferMut, Container, DataType, MmapChoice, SaveOptions, Tensor, WeightFiles,
};

fn main() {
    divan::main();
}

/// Large tensors of an exported language model, or many small ones.
const WORKLOADS: [(&str, usize, usize); 2] = [("large", 64, 4 << 20), ("small", 16_000, 16 << 10)];

fn container(workload: &str) -> (Container, usize) {
    let (_, count, len) = *WORKLOADS.iter().find(|(name, ..)| *name == workload).unwrap();
    let mut memory = BufferMut::zeroed(count * len, Alignment::PAGE).unwrap();
    memory.chunks_mut(4096).enumerate().for_each(|(i, page)| page.fill(i as u8));
    let memory = memory.freeze();
    let mut graph = GraphProto::new("g");
    let mut weights = Vec::new();
    for i in 0..count {
        let handle = format!("#w{i}");
        let dims = [len as i64];
        graph.initializer.push(TensorProto::external(
            format!("w{i}").as_str(),
            TensorProto::UINT8,
            dims,
            handle.as_str(),
        ));
        let bytes = memory.slice(i * len..(i + 1) * len).unwrap();
        weights.push((handle, Tensor::new(DataType::Uint8, dims, bytes).unwrap()));
    }
    let mut container = Container::new(ModelProto::new(graph));
    for (handle, weight) in weights {
        container.insert(&handle, weight).unwrap();
    }
    (container, count * len)
}

/// A folder on the disk that the build is on: `/tmp` is memory on many machines.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

#[divan::bench(args = ["large", "small"], sample_count = 10)]
fn save_packed(bencher: Bencher, workload: &str) {
    let (container, _) = container(workload);
    let folder = folder();
    let path = folder.path().join("m.onnx");
    let options = SaveOptions::from(WeightFiles::Packed).sync(false);
    bencher.bench_local(|| container.save(&path, options.clone()).unwrap());
}

#[divan::bench(args = ["large"], sample_count = 10)]
fn save_per_tensor(bencher: Bencher, workload: &str) {
    let (container, _) = container(workload);
    let folder = folder();
    let path = folder.path().join("m.onnx");
    let options = SaveOptions::from(WeightFiles::PerTensor).sync(false);
    bencher.bench_local(|| container.save(&path, options.clone()).unwrap());
}

#[divan::bench(args = ["large", "small"], sample_count = 10)]
fn limit_plain_write(bencher: Bencher, workload: &str) {
    let (_, len) = container(workload);
    let bytes = vec![1_u8; len];
    let folder = folder();
    let (staged, path) = (folder.path().join("staged"), folder.path().join("data"));
    bencher.bench_local(|| {
        std::fs::write(&staged, &bytes).unwrap();
        std::fs::rename(&staged, &path).unwrap();
    });
}

#[divan::bench(args = ["large", "small"], sample_count = 10)]
fn load_mapped(bencher: Bencher, workload: &str) {
    let (container, _) = container(workload);
    let folder = folder();
    let path = folder.path().join("m.onnx");
    container.save(&path, SaveOptions::new().sync(false)).unwrap();
    // SAFETY: nobody else touches the files of this folder.
    #[allow(unsafe_code)]
    let mmap = unsafe { MmapChoice::auto() };
    bencher.bench_local(|| Container::load(&path, mmap).unwrap());
}

#[divan::bench(args = ["large", "small"], sample_count = 10)]
fn load_read(bencher: Bencher, workload: &str) {
    let (container, _) = container(workload);
    let folder = folder();
    let path = folder.path().join("m.onnx");
    container.save(&path, SaveOptions::new().sync(false)).unwrap();
    bencher.bench_local(|| Container::load(&path, MmapChoice::never()).unwrap());
}

/// A structure to fill, and a safetensors file of its weights.
#[cfg(feature = "safetensors")]
fn checkpoint(workload: &str) -> (Container, tempfile::TempDir, PathBuf) {
    let (container, _) = container(workload);
    let folder = folder();
    let path = folder.path().join("w.safetensors");
    container.export_safetensors(&path, SaveOptions::new().sync(false)).unwrap();
    (Container::new(container.model().clone()), folder, path)
}

#[cfg(feature = "safetensors")]
#[divan::bench(args = ["large", "small"], sample_count = 10)]
fn attach_safetensors_mapped(bencher: Bencher, workload: &str) {
    let (structure, _folder, path) = checkpoint(workload);
    // SAFETY: nobody else touches the files of this folder.
    #[allow(unsafe_code)]
    let mmap = unsafe { MmapChoice::auto() };
    bencher.with_inputs(|| structure.clone()).bench_local_values(|mut container| {
        container.attach_safetensors_with(&path, mmap, FillOptions::new()).unwrap();
        container
    });
}

/// The reference: its header and views, which know no model.
#[cfg(feature = "safetensors")]
#[divan::bench(args = ["large", "small"], sample_count = 10)]
fn limit_safetensors_crate_mapped(bencher: Bencher, workload: &str) {
    let (_, _folder, path) = checkpoint(workload);
    bencher.bench_local(|| {
        let file = std::fs::File::open(&path).unwrap();
        // SAFETY: nobody else touches the files of this folder.
        #[allow(unsafe_code)]
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        safetensors::SafeTensors::deserialize(&map).unwrap().tensors().len()
    });
}

#[divan::bench(args = ["small"], sample_count = 10)]
fn decode(bencher: Bencher, workload: &str) {
    let (container, _) = container(workload);
    let bytes = Buffer::from(container.model().encode_to_vec().unwrap());
    bencher.bench_local(|| ModelProto::decode(&bytes).unwrap());
}
