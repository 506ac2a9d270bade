//! Files of numpy, and folders with models whose tensors are extracted or replaced.

use std::fs;

use onnx_container::proto::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto};

use crate::support::{Folder, floats, model};

/// An npy file of version 1 with this header and these elements.
pub fn npy(header: &str, elements: &[u8]) -> Vec<u8> {
    let len = u16::try_from(header.len() + 1).unwrap();
    let head = [&b"\x93NUMPY\x01\x00"[..], &len.to_le_bytes(), header.as_bytes(), b"\n"];
    [head.concat().as_slice(), elements].concat()
}

/// The npy file of `values` as a vector.
pub fn vector(values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = values.len();
    npy(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape},), }}"), &bytes)
}

/// A folder that holds `m.onnx`, inline, and `p.onnx` with its data.
pub fn folder() -> Folder {
    let folder = Folder::packed();
    folder.save("m.onnx", &model());
    folder
}

/// A folder that holds `t.onnx` and `w.data`: `a` and `b` are the same bytes, `c` is the first
/// half.
pub fn tied() -> Folder {
    let folder = Folder::new();
    let mut graph = GraphProto::new("tied");
    for (name, len) in [("a", 512), ("b", 512), ("c", 256)] {
        graph.initializer.push(TensorProto::external(name, TensorProto::FLOAT, [len], "w.data"));
    }
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    folder.save("t.onnx", &model);
    fs::write(folder.path("w.data"), [0; 2048]).unwrap();
    fs::write(folder.path("nines.npy"), vector(&[9.0; 512])).unwrap();
    folder
}

/// A model of small tensors with these names.
pub fn named(names: &[&str]) -> ModelProto {
    let mut graph = GraphProto::new("main");
    graph.initializer = names.iter().map(|name| floats(name, 2)).collect();
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    model
}
