//! What a load makes of external entries, however these are ordered: handles, names, files.

use std::collections::HashMap;

use onnx_container::proto::{Message, ModelProto, Str, StringStringEntryProto, TensorProto};
use onnx_container::{Container, LoadOptions};

use crate::support::{graph, model};

/// A UINT8 tensor of `dims` at `offset` of `w.bin`, its entries in an unusual order.
fn at(name: &str, offset: usize, dims: &[i64]) -> TensorProto {
    let mut tensor = TensorProto::external(name, TensorProto::UINT8, dims, "w.bin");
    tensor.external_data.insert(0, StringStringEntryProto::new("offset", offset.to_string()));
    tensor
}

fn load(weights: Vec<TensorProto>) -> Container {
    let bytes = model(graph(weights, vec![])).encode_to_vec().unwrap();
    let file: Vec<u8> = (0..=255).collect();
    Container::load_bytes(bytes, LoadOptions::new().file("w.bin", file)).unwrap()
}

/// The only entry of each tensor: its handle.
fn handles(model: &ModelProto) -> Vec<Str> {
    let tensors = &model.graph.as_ref().unwrap().initializer;
    let handle = |tensor: &TensorProto| {
        let [entry] = &tensor.external_data[..] else { panic!("one entry") };
        assert_eq!(entry.key.as_ref().unwrap(), "location");
        entry.value.clone().unwrap()
    };
    tensors.iter().map(handle).collect()
}

/// Ranges that ascend, descend, repeat and overlap, each with several shapes; every name is used twice.
#[test]
fn tensors_share_a_handle_where_range_and_shape_are_equal_in_any_order() {
    let mut random = 1_u32;
    let mut next = |below: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) as usize % below
    };
    let weights: Vec<_> = (0..600)
        .map(|i| {
            // The first hundred ascend, as in most models.
            let offset = if i < 100 { 2 * i } else { next(200) };
            let dims = [&[4][..], &[2, 2], &[1, 4], &[6], &[0, 5], &[5, 0]][next(6)];
            at(&format!("w{}", i / 2), offset, dims)
        })
        .collect();
    let entry = |tensor: &TensorProto| (tensor.external_data[0].value.clone(), tensor.dims.clone());
    let entries: Vec<_> = weights.iter().map(entry).collect();
    let container = load(weights);

    let mut first = HashMap::new();
    let mut taken = HashMap::new();
    for (entry, handle) in entries.iter().zip(handles(container.model())) {
        let shared = first.entry(entry).or_insert_with(|| handle.clone());
        assert_eq!(*shared, handle, "{entry:?}");
        let owner = taken.entry(handle.clone()).or_insert(entry);
        assert_eq!(*owner, entry, "{handle} is used for two ranges or shapes");
        let offset: usize = entry.0.as_ref().unwrap().to_string().parse().unwrap();
        let len: i64 = entry.1.iter().product();
        let bytes = container.get(handle.to_str().unwrap()).unwrap().as_buffer().unwrap();
        let expected: Vec<u8> = (offset..offset + len as usize).map(|byte| byte as u8).collect();
        assert_eq!(*bytes, expected);
    }
    assert_eq!(container.len(), first.len());
    container.check().unwrap();
}

#[test]
fn a_name_that_repeats_gets_a_number_once_it_repeats() {
    let container = load(vec![at("a", 0, &[1]), at("a_2", 1, &[1]), at("a", 2, &[1])]);
    assert_eq!(handles(container.model()), ["#a", "#a_2", "#a_3"]);
}

#[test]
fn handles_that_are_there_are_avoided() {
    let mut container = load(vec![at("a", 0, &[1]), at("b", 1, &[1])]);
    let more = [at("a", 2, &[1]), at("c", 3, &[1])];
    container.model_mut().graph.as_mut().unwrap().initializer.extend(more);
    container.attach(".", LoadOptions::new().file("w.bin", vec![7; 4])).unwrap();
    assert_eq!(handles(container.model()), ["#a", "#b", "#a_2", "#c"]);
    container.check().unwrap();
}
