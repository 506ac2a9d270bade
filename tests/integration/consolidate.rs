//! Many tensors in one buffer: where they lie, what is freed and when, and that nothing else
//! changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ndarray::{Array1, array};
use onnx_container::buffer::{Ownership, TensorBufferOptions};
use onnx_container::edit::{ConsolidateOptions, consolidate};
use onnx_container::proto::{Message, ModelProto, Packed, TensorProto};
use onnx_container::{
    Alignment, Buffer, Container, DataType, Error, ErrorKind, Initializer, MmapChoice, Tensor,
    WeightSource, traversal,
};

use crate::ownership::{Owners, raw_data};
use crate::support::{
    IS_64_BIT, all_bytes, assert_same, both_choices, graph, model, tensors_everywhere,
};

/// The `raw_data` of all tensors in graph order.
fn buffers(model: &ModelProto) -> Vec<Buffer> {
    let mut all = Vec::new();
    traversal::tensors(model, |_, tensor| {
        all.extend(tensor.raw_data.clone());
        Ok(())
    })
    .unwrap();
    all
}

fn bytes(name: &str, bytes: impl Into<Buffer>) -> TensorProto {
    let bytes = bytes.into();
    TensorProto::new(name, TensorProto::UINT8, [bytes.len() as i64]).with_raw_data(bytes)
}

fn aligned(alignment: Alignment) -> ConsolidateOptions {
    ConsolidateOptions::new().alignment(alignment)
}

fn addresses(buffers: &[Buffer]) -> Vec<usize> {
    buffers.iter().map(|bytes| bytes.as_ptr().addr()).collect()
}

#[test]
fn every_tensor_of_a_model_moves_into_one_aligned_buffer() {
    for align in [1, 64, 256, 4096, 1 << 21] {
        let alignment = Alignment::new(align).unwrap();
        let original = tensors_everywhere();
        let mut model = original.clone();
        let buffer = consolidate(&mut model, aligned(alignment)).unwrap();
        assert_eq!(model.encode_to_vec().unwrap(), original.encode_to_vec().unwrap());
        let all = buffers(&model);
        assert_eq!(all.len(), buffers(&original).len());
        assert!(alignment.is_aligned(buffer.as_ptr().addr() as u64));
        let mut end = 0;
        for bytes in &all {
            assert!(bytes.same_owner(&buffer));
            assert!(alignment.is_aligned(bytes.as_ptr().addr() as u64));
            let offset = bytes.as_ptr().addr() - buffer.as_ptr().addr();
            assert_eq!(offset as u64, alignment.align_up(end).unwrap(), "in graph order, no gaps");
            end = (offset + bytes.len()) as u64;
        }
        assert_eq!(end, buffer.len() as u64);
    }
}

#[test]
fn smaller_tensors_stay_where_they_are() {
    let owners = Owners::default();
    let tensors = [("a", 99), ("b", 100), ("c", 101), ("d", 0)];
    let tensors = tensors.map(|(name, len)| bytes(name, owners.lend(vec![7; len])));
    let mut model = model(graph(tensors.to_vec(), vec![]));
    drop(tensors);
    let buffer =
        consolidate(&mut model, TensorBufferOptions::new().raw_data_threshold(100)).unwrap();
    assert_eq!((buffer.len(), owners.dropped()), (201, 2));
    for (index, expected) in
        [Ownership::Lent, Ownership::Shared, Ownership::Shared, Ownership::Lent]
            .into_iter()
            .enumerate()
    {
        assert_eq!(raw_data(&model, index).ownership(), expected);
    }
}

#[test]
fn a_second_call_moves_nothing() {
    let mut model = tensors_everywhere();
    let first = consolidate(&mut model, aligned(Alignment::DEVICE)).unwrap();
    let before = addresses(&buffers(&model));
    for options in [
        aligned(Alignment::DEVICE),
        aligned(Alignment::CACHE_LINE),
        ConsolidateOptions::new(),
        aligned(Alignment::DEVICE).raw_data_threshold(32),
        aligned(Alignment::DEVICE).typed_fields(true),
    ] {
        let again = consolidate(&mut model, options).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (first.as_ptr(), first.len()), "{options:?}");
        assert_eq!(addresses(&buffers(&model)), before);
    }
    let coarser = consolidate(&mut model, aligned(Alignment::PAGE)).unwrap();
    assert!(!coarser.same_owner(&first));
    // One more tensor: they are no longer in one buffer.
    model.graph.as_mut().unwrap().initializer.push(bytes("new", vec![1; 10]));
    let more = consolidate(&mut model, ConsolidateOptions::new()).unwrap();
    assert!(buffers(&model).iter().all(|bytes| bytes.same_owner(&more)));
}

#[test]
fn a_weights_file_that_was_read_is_one_buffer_already_and_a_mapped_one_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut container = Container::new(model(graph(
        vec![
            TensorProto::external("a", TensorProto::FLOAT, [1000], "#a"),
            TensorProto::external("b", TensorProto::FLOAT, [1000], "#b"),
        ],
        vec![],
    )));
    container.insert("#a", Array1::<f32>::ones(1000)).unwrap();
    container.insert("#b", Array1::<f32>::zeros(1000)).unwrap();
    container.save(&path, true).unwrap();
    let data = folder.path().join("m.onnx.data");
    for (choice, mapped) in both_choices().into_iter().zip([true, false]) {
        let mut loaded = Container::load(&path, choice).unwrap();
        let before = loaded.get("#a").unwrap().to_buffer().unwrap().as_ptr();
        let buffer = loaded.consolidate(aligned(Alignment::CACHE_LINE)).unwrap();
        assert_eq!(buffer.as_ptr() == before, !mapped);
        assert_same(&loaded, &container);
        #[cfg(target_os = "linux")]
        assert_eq!(crate::ownership::maps_of(&data), 0, "nothing keeps the map");
        let _ = &data;
    }
}

#[test]
fn the_handle_or_any_tensor_keeps_the_buffer() {
    let consolidated = || {
        let mut model = tensors_everywhere();
        let buffer = consolidate(&mut model, ConsolidateOptions::new()).unwrap();
        (model, buffer)
    };
    let (model, buffer) = consolidated();
    let copy = model.clone();
    drop((model, copy));
    assert_eq!(buffer.ownership(), Ownership::Owned, "all tensors let go of it");

    let (mut model, buffer) = consolidated();
    let expected = buffers(&tensors_everywhere());
    drop(buffer);
    assert_eq!(buffers(&model), expected);
    let tensor = model.graph.as_mut().unwrap().initializer.remove(0);
    drop(model);
    let last = tensor.raw_data.unwrap();
    assert_eq!((last.ownership(), &last), (Ownership::Owned, &expected[0]));
}

#[test]
fn an_edit_after_consolidation_leaves_the_buffer_alone() {
    let mut model = tensors_everywhere();
    let buffer = consolidate(&mut model, ConsolidateOptions::new()).unwrap();
    let before = buffer.to_vec();
    let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
    tensor.raw_data.as_mut().unwrap().make_mut().unwrap().fill(0xff);
    assert_eq!(*buffer, before);
}

/// Bytes that note, whenever they are looked at, how many owners have been dropped.
struct Watched {
    bytes: Vec<u8>,
    dropped: Arc<AtomicUsize>,
    seen: Arc<AtomicUsize>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        self.seen.store(self.dropped.load(Ordering::SeqCst), Ordering::SeqCst);
        &self.bytes
    }
}

#[test]
fn what_was_moved_is_freed_before_the_next_is_moved() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let seen: Vec<_> = (0..10).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let watched = |seen: &Arc<AtomicUsize>| {
        let (dropped, seen) = (dropped.clone(), seen.clone());
        Buffer::from_owner(Watched { bytes: vec![1; 1000], dropped, seen })
    };
    let (inline, handles) = seen.split_at(5);
    let mut tensors: Vec<_> = inline.iter().map(|seen| bytes("w", watched(seen))).collect();
    for i in 0..handles.len() {
        tensors.push(TensorProto::external("w", TensorProto::UINT8, [1000], format!("#{i}")));
    }
    let mut container = Container::new(model(graph(tensors, vec![])));
    for (i, seen) in handles.iter().enumerate() {
        let tensor = Tensor::new(DataType::Uint8, [1000], watched(seen)).unwrap();
        container.insert(&format!("#{i}"), tensor).unwrap();
    }
    container.consolidate(ConsolidateOptions::new()).unwrap();
    let seen: Vec<_> = seen.iter().map(|seen| seen.load(Ordering::SeqCst)).collect();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    assert_eq!(dropped.load(Ordering::SeqCst), 10);
}

#[test]
fn tied_bytes_are_placed_once() {
    let owners = Owners::default();
    let table: Vec<u8> = (0..=255).collect();
    let table = owners.lend(table);
    let part = |range: std::ops::Range<usize>| table.slice(range).unwrap();
    let tensors = vec![
        bytes("rows", part(64..192)), // before its host, aligned inside it
        bytes("table", table.clone()),
        bytes("again", table.fork()),
        bytes("odd", part(3..9)), // not aligned inside its host
        bytes("odd again", part(3..9)),
        TensorProto::external("tied", TensorProto::UINT8, [256], "#w"),
        TensorProto::external("same handle", TensorProto::UINT8, [256], "#w"),
    ];
    let mut container = Container::new(model(graph(tensors, vec![])));
    container.insert("#w", Tensor::new(DataType::Uint8, [256], table).unwrap()).unwrap();
    let before = all_bytes(&container);
    let buffer = container.consolidate(aligned(Alignment::CACHE_LINE)).unwrap();
    assert_eq!(all_bytes(&container), before);
    assert_eq!((buffer.len(), owners.dropped()), (256 + 6, 1));
    let offset =
        |index| raw_data(container.model(), index).as_ptr().addr() - buffer.as_ptr().addr();
    assert_eq!([0, 1, 2, 3, 4].map(offset), [64, 0, 0, 256, 256]);
    let again = container.consolidate(aligned(Alignment::CACHE_LINE)).unwrap();
    assert_eq!(again.as_ptr(), buffer.as_ptr());

    // Without an alignment every part stays in its host.
    let mut dense = container.clone();
    dense.model_mut().graph.as_mut().unwrap().initializer.push(bytes("new", vec![0; 4]));
    assert_eq!(dense.consolidate(ConsolidateOptions::new()).unwrap().len(), 256 + 6 + 4);
}

#[test]
fn strings_and_external_and_empty_tensors_stay() {
    let mut strings = TensorProto::new("s", TensorProto::STRING, [1]);
    strings.string_data.push(vec![b'x'; 100].into());
    let external = TensorProto::external("e", TensorProto::UINT8, [100], "w.bin");
    let tensors = vec![strings, external, bytes("empty", Vec::new())];
    let mut model = model(graph(tensors, vec![]));
    let before = model.clone();
    let buffer = consolidate(&mut model, aligned(Alignment::PAGE).typed_fields(true)).unwrap();
    assert!(buffer.is_empty());
    assert_eq!(model, before);
    let mut strings = Container::new(ModelProto::default());
    strings
        .insert("#s", Tensor::from_strings([1], vec![Buffer::from(&b"x"[..])]).unwrap())
        .unwrap();
    assert!(strings.consolidate(ConsolidateOptions::new()).unwrap().is_empty());
    assert!(consolidate(&mut ModelProto::default(), ConsolidateOptions::new()).unwrap().is_empty());
}

fn typed() -> Vec<TensorProto> {
    let mut floats = TensorProto::new("f", TensorProto::FLOAT, [2]);
    *floats.float_data = Packed::from(vec![1.5, -2.5]);
    let mut bools = TensorProto::new("b", TensorProto::BOOL, [3]);
    *bools.int32_data = Packed::from(vec![1, 0, 1]);
    let mut longs = TensorProto::new("l", TensorProto::INT64, [2]);
    *longs.int64_data = Packed::from(vec![-1, 300]);
    longs.doc_string = Some(Box::new("kept".into()));
    vec![floats, bools, longs]
}

#[test]
fn typed_fields_take_part_on_request() {
    let original = model(graph(typed(), vec![]));
    let mut model = original.clone();
    assert!(consolidate(&mut model, ConsolidateOptions::new()).unwrap().is_empty());
    assert_eq!(model, original);
    let options = aligned(Alignment::CACHE_LINE).typed_fields(true);
    let buffer = consolidate(&mut model, options).unwrap();
    assert_eq!(buffer.len(), 128 + 16);
    let tensors = &model.graph.as_ref().unwrap().initializer;
    for (tensor, before) in tensors.iter().zip(typed()) {
        assert!(tensor.raw_data.as_ref().unwrap().same_owner(&buffer));
        assert_eq!(Tensor::try_from(tensor).unwrap(), Tensor::try_from(&before).unwrap());
        assert_eq!((&tensor.name, &tensor.doc_string), (&before.name, &before.doc_string));
    }
    let again = consolidate(&mut model, options).unwrap();
    assert_eq!(again.as_ptr(), buffer.as_ptr());
}

#[test]
fn an_error_leaves_the_model_as_it_was() {
    let unchanged = |tensors: Vec<TensorProto>, options: ConsolidateOptions, kind| {
        let mut model = model(graph(tensors, vec![]));
        let (before, places) = (model.clone(), addresses(&buffers(&model)));
        let error = consolidate(&mut model, options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!((&model, addresses(&buffers(&model))), (&before, places));
        error
    };
    let mut wrong = typed();
    wrong[0].dims = vec![3];
    wrong[2].dims = vec![3];
    wrong.push(bytes("w", vec![1; 10]));
    let options = ConsolidateOptions::new().typed_fields(true);
    let error = unchanged(wrong, options, ErrorKind::Shape);
    let names: Vec<_> = error.related().iter().map(|error| error.tensor()).collect();
    assert_eq!(names, [Some("f"), Some("l")]);
    let huge = aligned(Alignment::new(1 << 62).unwrap());
    let kind = if IS_64_BIT { ErrorKind::Io } else { ErrorKind::TooLarge };
    unchanged(vec![bytes("w", vec![1; 10])], huge, kind);
    assert_eq!(Alignment::new(48).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Bytes that are fewer after some looks at them.
struct Shrinks(Vec<u8>, AtomicUsize);

impl AsRef<[u8]> for Shrinks {
    fn as_ref(&self) -> &[u8] {
        let left = self.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if left.is_ok() { &self.0 } else { &self.0[..1] }
    }
}

#[test]
fn an_owner_that_lets_go_of_its_bytes_costs_no_other_tensor_its_bytes() {
    let mut failed = 0;
    for looks in 1..12 {
        let shrinks = Buffer::from_owner(Shrinks(vec![5; 100], AtomicUsize::new(looks)));
        let whole = Buffer::from(vec![3; 100]);
        let mut shrinking = TensorProto::new("s", TensorProto::UINT8, [100]);
        shrinking.raw_data = Some(shrinks);
        let tensors = vec![
            bytes("a", vec![1; 100]),
            bytes("part", whole.slice(10..20).unwrap()),
            shrinking,
            bytes("whole", whole),
            bytes("b", vec![2; 100]),
        ];
        let mut model = model(graph(tensors, vec![]));
        if let Err(error) = consolidate(&mut model, ConsolidateOptions::new()) {
            assert_eq!(error.kind(), ErrorKind::OutOfBounds);
            failed += 1;
        }
        let [a, part, _, whole, b] = [0, 1, 2, 3, 4].map(|index| raw_data(&model, index).to_vec());
        assert_eq!((a, part), (vec![1; 100], vec![3; 10]));
        assert_eq!((whole, b), (vec![3; 100], vec![2; 100]));
    }
    assert!(failed > 0, "no owner shrank in time");
}

#[test]
fn initializers_of_every_form_move() {
    let owners = Owners::default();
    let message = bytes("m", owners.lend(vec![4; 50]));
    let handles = ["#array", "#transposed", "#message", "#tensor"];
    let tensors = [("f", [2, 2]), ("t", [2, 2])]
        .map(|(name, dims)| TensorProto::external(name, TensorProto::FLOAT, dims, "#array"));
    let mut tensors = tensors.to_vec();
    tensors[1] = TensorProto::external("t", TensorProto::FLOAT, [2, 2], "#transposed");
    tensors.push(TensorProto::external("m", TensorProto::UINT8, [50], "#message"));
    tensors.push(TensorProto::external("x", TensorProto::UINT8, [9], "#tensor"));
    let mut container = Container::new(model(graph(tensors, vec![])));
    let array = array![[1.0_f32, 2.0], [3.0, 4.0]];
    container.insert("#array", array.clone()).unwrap();
    container.insert("#transposed", array.reversed_axes()).unwrap();
    container.insert("#message", message).unwrap();
    let tensor = Tensor::new(DataType::Uint8, [9], owners.lend([9; 9])).unwrap();
    container.insert("#tensor", tensor).unwrap();
    container.insert("#unused", Array1::<f32>::ones(100)).unwrap();

    let before = container.clone();
    let expected = all_bytes(&before);
    let meaning = before.semantic_digest().unwrap();
    let buffer = container.consolidate(aligned(Alignment::DEVICE)).unwrap();
    assert_eq!(container.semantic_digest().unwrap(), meaning);
    assert_eq!(owners.dropped(), 0, "the clone has them still");
    drop(before);
    assert_eq!(owners.dropped(), 2);
    assert_eq!(all_bytes(&container), expected);
    for handle in handles {
        let bytes = container.get(handle).unwrap().as_buffer().unwrap();
        assert!(bytes.same_owner(&buffer), "{handle}");
        assert_eq!(bytes.as_ptr().addr() % 256, 0);
    }
    assert_eq!(container.len(), 5);
    assert!(!container.get("#unused").unwrap().as_buffer().unwrap().same_owner(&buffer));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container.save(&path, true).unwrap();
    assert_eq!(all_bytes(&Container::load(&path, MmapChoice::never()).unwrap()), expected);
}

/// A source that makes its bytes when it is asked for them, and counts how often.
#[derive(Debug)]
struct Made {
    asked: Arc<AtomicUsize>,
    fails: bool,
}

impl WeightSource for Made {
    fn dtype(&self) -> DataType {
        DataType::Uint8
    }

    fn dims(&self) -> &[i64] {
        &[100]
    }

    fn byte_len(&self) -> u64 {
        100
    }

    fn read_at(&self, _offset: u64, out: &mut [u8]) -> onnx_container::Result<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        out.fill(6);
        let error = Error::new(ErrorKind::Io, "not to be had");
        if self.fails { Err(error) } else { Ok(()) }
    }
}

#[test]
fn a_source_is_asked_once_and_one_that_fails_changes_nothing() {
    for fails in [false, true] {
        let asked = Arc::new(AtomicUsize::new(0));
        let made = Initializer::from_source(Made { asked: asked.clone(), fails }).unwrap();
        let handles = ["#a", "#b", "#c"];
        let tensor =
            |handle: &str| TensorProto::external(handle, TensorProto::UINT8, [100], handle);
        let mut container = Container::new(model(graph(handles.map(tensor).to_vec(), vec![])));
        let array = Array1::<u8>::ones(100);
        let address = array.as_ptr().addr();
        container.insert("#a", array).unwrap();
        container.insert("#b", made.clone()).unwrap();
        container.insert("#c", made).unwrap();
        let result = container.consolidate(ConsolidateOptions::new());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        let bytes = handles.map(|handle| container.get(handle).unwrap().as_buffer());
        if fails {
            let error = result.unwrap_err();
            assert_eq!((error.kind(), error.tensor()), (ErrorKind::Io, Some("#b")));
            let [a, b, c] = bytes;
            assert_eq!((a.unwrap().as_ptr().addr(), b, c), (address, None, None));
        } else {
            let buffer = result.unwrap();
            assert_eq!(buffer.len(), 200);
            assert_eq!(bytes.map(|bytes| bytes.unwrap()[99]), [1, 6, 6]);
        }
    }
}
