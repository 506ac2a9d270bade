//! The bytes that docs/format.md prints are those that a save writes.

use std::fs;
use std::path::Path;

use onnx_container::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Buffer, Container, DataType, MmapChoice, Tensor};

/// The model of the page: `y = x + w`, and two tensors that nothing uses.
fn container() -> Container {
    let mut graph = GraphProto::new("g");
    graph.node.push(NodeProto::new("Add", ["x", "w"], ["y"]));
    graph.initializer = vec![
        TensorProto::external("w", TensorProto::FLOAT, [2], "#w"),
        TensorProto::external("q", TensorProto::INT4, [5], "#q"),
        TensorProto::external("tied", TensorProto::FLOAT, [2], "#tied"),
    ];
    graph.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [2]));
    graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [2]));
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import.push(OperatorSetIdProto::new("", 21));

    let mut container = Container::new(model);
    let floats: Vec<u8> = [1.0_f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let floats = Tensor::new(DataType::Float, [2], Buffer::from(floats)).unwrap();
    let codes: [u8; 5] = [1, 2, 3, 4, 15]; // 15 is -1
    container.insert("#w", floats.clone()).unwrap();
    container.insert("#tied", floats).unwrap();
    container.insert("#q", Tensor::pack(DataType::Int4, [5], &codes).unwrap()).unwrap();
    container
}

/// The bytes of the page's block for `file`: lines of an offset, bytes, and a remark after `|`.
/// What lies between two offsets is zero.
fn printed(page: &str, file: &str) -> Vec<u8> {
    let start = format!("```hex {file}\n");
    let block = page.split_once(&start).unwrap().1.split_once("```").unwrap().0;
    let mut bytes = Vec::new();
    for line in block.lines() {
        let mut words = line.split('|').next().unwrap().split_whitespace();
        let offset: usize = words.next().unwrap().parse().unwrap();
        assert!(offset >= bytes.len(), "{line}");
        bytes.resize(offset, 0);
        bytes.extend(words.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes
}

#[test]
fn the_page_prints_what_a_save_writes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/format.md");
    let page = fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container().save(&path, true).unwrap();
    for file in ["m.onnx", "m.onnx.data"] {
        let written = fs::read(folder.path().join(file)).unwrap();
        assert_eq!(written, printed(&page, file), "{file}");
    }
    let loaded = Container::load(&path, MmapChoice::never()).unwrap();
    // `w` and `tied` are one range with one dtype and shape, so they share a handle.
    let handles: Vec<_> = loaded.iter().map(|(handle, _)| handle.as_str()).collect();
    assert_eq!(handles, ["#q", "#w"]);
    let codes = loaded.get("#q").unwrap().to_tensor().unwrap().unpack_signed().unwrap();
    assert_eq!(codes, [1, 2, 3, 4, -1]);
}
