//! Who owns the bytes of tensors, seen from outside: by counting when owners are dropped, by the
//! maps of the process, and by the memory that it has.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onnx_container::buffer::{Ownership, TensorBufferOptions};
use onnx_container::edit::ConsolidateOptions;
use onnx_container::proto::{DecodeOptions, Message, ModelProto, TensorProto};
use onnx_container::{
    Alignment, Buffer, BufferMut, Container, ErrorKind, LoadOptions, SaveOptions,
};

use crate::support::{all_bytes, assert_same, both_choices, floats, graph, model};

/// Bytes that count how many of them have been dropped.
pub(crate) struct Counted {
    bytes: Vec<u8>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Makes owners and knows how many of them were dropped.
#[derive(Default)]
pub(crate) struct Owners(Arc<AtomicUsize>);

impl Owners {
    pub(crate) fn lend(&self, bytes: impl Into<Vec<u8>>) -> Buffer {
        Buffer::from_owner(Counted { bytes: bytes.into(), dropped: self.0.clone() })
    }

    pub(crate) fn dropped(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// How often the file at `path` is mapped by this process.
#[cfg(target_os = "linux")]
pub(crate) fn maps_of(path: &std::path::Path) -> usize {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count()
}

/// A model with two initializers of 4096 bytes and one of 16, encoded.
fn encoded() -> Vec<u8> {
    let tensors = vec![floats("a", 0, 1024), floats("b", 5000, 1024), floats("small", 7, 4)];
    model(graph(tensors, vec![])).encode_to_vec().unwrap()
}

pub(crate) fn raw_data(model: &ModelProto, index: usize) -> &Buffer {
    model.graph.as_ref().unwrap().initializer[index].raw_data.as_ref().unwrap()
}

#[test]
fn ownership_tells_who_holds_the_memory() {
    let aligned = |len| BufferMut::zeroed(len, Alignment::PAGE).unwrap().freeze();
    for buffer in [Buffer::from(vec![1; 100]), aligned(100), aligned(1 << 20)] {
        assert_eq!((buffer.ownership(), buffer.is_shared()), (Ownership::Owned, false));
        let part = buffer.slice(10..20).unwrap();
        let fork = buffer.fork();
        for shared in [&buffer, &part, &fork] {
            assert_eq!((shared.ownership(), shared.is_shared()), (Ownership::Shared, true));
        }
        drop((buffer, fork));
        assert_eq!(part.ownership(), Ownership::Owned, "the last slice owns the memory");
    }
    let owners = Owners::default();
    let lent = owners.lend([1, 2, 3]);
    assert_eq!((lent.ownership(), lent.is_shared()), (Ownership::Lent, false));
    assert_eq!(lent.clone().ownership(), Ownership::Lent);
    let bytes = bytes::Bytes::from_static(&[1]);
    assert_eq!(Buffer::from(bytes).ownership(), Ownership::Lent);
}

#[test]
fn a_lent_owner_is_dropped_with_the_last_buffer_of_it() {
    let owners = Owners::default();
    let whole = owners.lend([1, 2, 3]);
    let parts = [whole.slice(1..).unwrap(), whole.fork(), whole.clone()];
    drop(whole);
    let [part, fork, clone] = parts;
    drop(fork);
    drop(clone);
    assert_eq!(owners.dropped(), 0);
    let moved = Box::new(part);
    assert_eq!(**moved, [2, 3]);
    drop(moved);
    assert_eq!(owners.dropped(), 1);
}

#[test]
fn an_edit_is_in_place_where_nobody_else_holds_the_memory() {
    let aligned = BufferMut::zeroed(1 << 20, Alignment::PAGE).unwrap().freeze();
    for buffer in [Buffer::from(vec![0; 100]), aligned] {
        let address = buffer.as_ptr();
        let mut part = buffer.slice(10..20).unwrap();
        drop(buffer);
        part.make_mut().unwrap()[0] = 9;
        assert_eq!(part.as_ptr().addr(), address.addr() + 10);
        let mut bytes = part.into_mut().unwrap();
        assert_eq!((bytes.as_ptr().addr(), bytes.len()), (address.addr() + 10, 10));
        bytes[1] = 8;
        assert_eq!(bytes.freeze()[..2], [9, 8]);
    }
}

#[test]
fn an_edit_of_shared_or_lent_bytes_is_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.bin");
    fs::write(&path, [0; 10]).unwrap();
    let owners = Owners::default();
    let [mapped, read] = both_choices().map(|choice| choice.buffer(&path).unwrap());
    for original in [Buffer::from(vec![0; 10]), owners.lend([0; 10]), mapped, read] {
        let other = original.clone();
        let mut edited = original;
        edited.make_mut().unwrap()[3] = 9;
        assert_eq!((other[3], edited[3]), (0, 9));
        assert_eq!((edited.ownership(), edited.file_range().is_none()), (Ownership::Owned, true));
        let address = edited.as_ptr();
        edited.make_mut().unwrap()[4] = 9;
        assert_eq!(edited.as_ptr(), address, "it is copied once");
        assert_eq!(other.into_mut().unwrap().len(), 10);
    }
    assert_eq!(owners.dropped(), 1);
    assert_eq!(fs::read(&path).unwrap(), [0; 10], "the file does not change");
}

#[test]
fn a_message_is_edited_without_a_trace_in_its_clones() {
    let original = ModelProto::decode(&Buffer::from(encoded())).unwrap();
    let mut edited = original.clone();
    let tensor = &mut edited.graph.as_mut().unwrap().initializer[0];
    tensor.raw_data.as_mut().unwrap().make_mut().unwrap().fill(1);
    assert_eq!(original.encode_to_vec().unwrap(), encoded());
    assert_eq!(raw_data(&edited, 0).ownership(), Ownership::Owned);
    assert!(raw_data(&edited, 1).same_owner(raw_data(&original, 1)));
}

#[test]
fn bytes_decoded_without_a_copy_keep_their_owner_alive() {
    let owners = Owners::default();
    let input = owners.lend(encoded());
    let range = input.as_ptr_range();
    for options in [DecodeOptions::new(), DecodeOptions::new().no_copy(true)] {
        let mut model = ModelProto::decode_with(&input, &options).unwrap();
        assert!(range.contains(&raw_data(&model, 0).as_ptr()));
        assert_eq!(raw_data(&model, 0).ownership(), Ownership::Lent);
        let tensor = model.graph.take().unwrap().initializer.remove(1);
        drop(model);
        assert!(tensor.raw_data.unwrap().same_owner(&input));
    }
    let model = ModelProto::decode(&input).unwrap();
    let moved = Box::new(model);
    drop(input);
    assert_eq!(owners.dropped(), 0);
    assert_eq!(moved.encode_to_vec().unwrap(), encoded());
    drop(moved);
    assert_eq!(owners.dropped(), 1);
}

#[test]
fn bytes_decoded_with_a_copy_let_their_owner_go() {
    for threads in [1, 4] {
        let owners = Owners::default();
        let input = owners.lend(encoded());
        let options = DecodeOptions::new().no_copy(false).threads(threads);
        let model = ModelProto::decode_with(&input, &options).unwrap();
        drop(input);
        assert_eq!(owners.dropped(), 1);
        assert_eq!(model.encode_to_vec().unwrap(), encoded());
        for index in [0, 1] {
            assert_eq!(raw_data(&model, index).ownership(), Ownership::Owned);
        }
        // Shorter than the threshold: it shares memory with names.
        assert_eq!(raw_data(&model, 2).ownership(), Ownership::Shared);
    }
}

#[test]
fn a_threshold_of_zero_gives_every_tensor_memory_of_its_own() {
    let options = DecodeOptions::from(TensorBufferOptions::new()).no_copy(false);
    let model = ModelProto::decode_with(&Buffer::from(encoded()), &options).unwrap();
    for index in 0..3 {
        assert_eq!(raw_data(&model, index).ownership(), Ownership::Owned);
    }
}

#[test]
fn any_message_is_the_same_with_and_without_copies() {
    let everywhere = crate::support::tensors_everywhere().encode_to_vec().unwrap();
    let mut many = graph(vec![], vec![]);
    for i in 0..80_000 {
        let name = format!("a long name of the node with the number {i}");
        many.node.push(crate::support::node("Relu", &[&name], &["y"], vec![]));
    }
    for bytes in [everywhere, model(many).encode_to_vec().unwrap(), vec![]] {
        let input = Buffer::from(bytes);
        let expected = ModelProto::decode(&input).unwrap();
        let owned = DecodeOptions::new().no_copy(false);
        let aligned = DecodeOptions::new().alignment(Alignment::PAGE).raw_data_threshold(1);
        for options in [owned, aligned] {
            let message = ModelProto::decode_with(&input, &options).unwrap();
            assert_eq!(message, expected);
            assert_eq!(message.encode_to_vec().unwrap(), &input[..]);
        }
    }
}

#[test]
fn alignment_is_kept_by_a_copy_or_refused() {
    let input = Buffer::from(encoded());
    let page = DecodeOptions::new().alignment(Alignment::PAGE);
    for options in [page.clone(), page.clone().no_copy(false)] {
        let model = ModelProto::decode_with(&input, &options).unwrap();
        for index in [0, 1] {
            assert_eq!(raw_data(&model, index).as_ptr().addr() % 4096, 0);
        }
        assert_eq!(model.encode_to_vec().unwrap(), encoded());
    }
    let error = ModelProto::decode_with(&input, &page.clone().no_copy(true)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.offset().is_some());
    // Tensors below the threshold, and what is no tensor, may lie anywhere.
    let options = page.no_copy(true).raw_data_threshold(5000);
    let model = ModelProto::decode_with(&input, &options).unwrap();
    assert!(raw_data(&model, 0).same_owner(&input));

    let tensor = TensorProto::new("w", TensorProto::UINT8, [4096]).with_raw_data(vec![1; 4096]);
    let bytes = tensor.encode_to_vec().unwrap();
    let shift = bytes.len() - 4096;
    let mut memory = BufferMut::zeroed(bytes.len() + 64, Alignment::CACHE_LINE).unwrap();
    memory[64 - shift..][..bytes.len()].copy_from_slice(&bytes);
    let input = memory.freeze().slice(64 - shift..).unwrap();
    let input = input.slice(..bytes.len()).unwrap();
    let options = DecodeOptions::new().alignment(Alignment::CACHE_LINE).no_copy(true);
    let decoded = TensorProto::decode_with(&input, &options).unwrap();
    assert!(decoded.raw_data.unwrap().same_owner(&input), "aligned already: not copied");
}

#[test]
#[cfg(target_os = "linux")]
fn a_mapped_file_is_unmapped_with_its_last_slice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    fs::write(&path, encoded()).unwrap();
    let [auto, _] = both_choices();
    let input = auto.buffer(&path).unwrap();
    let copied = DecodeOptions::new().no_copy(false);
    let copy = ModelProto::decode_with(&input, &copied).unwrap();
    let mut borrowed = ModelProto::decode(&input).unwrap();
    assert_eq!(raw_data(&borrowed, 0).ownership(), Ownership::Shared);
    drop(input);
    assert_eq!(maps_of(&path), 1);
    let tensor = borrowed.graph.as_mut().unwrap().initializer.remove(0);
    drop(borrowed);
    assert_eq!(maps_of(&path), 1, "one tensor keeps the map");
    drop(tensor);
    assert_eq!(maps_of(&path), 0);
    assert_eq!(copy.encode_to_vec().unwrap(), encoded());
}

/// A model at `m.onnx` whose two tensors of 4096 bytes are in `m.onnx.data`; its path and theirs.
fn two_files(folder: &std::path::Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (path, data) = (folder.join("m.onnx"), folder.join("m.onnx.data"));
    let container = Container::load_bytes(encoded(), LoadOptions::new()).unwrap();
    container.save(&path, SaveOptions::new().externalize(true)).unwrap();
    (path, data)
}

fn handles(container: &Container) -> Vec<Buffer> {
    container.iter().map(|(_, weights)| weights.as_buffer().unwrap()).collect()
}

#[test]
fn a_model_of_one_file_is_loaded_with_and_without_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    fs::write(&path, encoded()).unwrap();
    for (choice, mapped) in both_choices().into_iter().zip([1, 0]) {
        let options = || LoadOptions::new().mmap(choice);
        let copied = Container::load(&path, options().no_copy(false)).unwrap();
        let owned = |index| raw_data(copied.model(), index).ownership() == Ownership::Owned;
        assert!(owned(0) && owned(1));
        #[cfg(target_os = "linux")]
        assert_eq!(maps_of(&path), 0, "a copy needs no file");
        for options in [options(), options().no_copy(true)] {
            let borrowed = Container::load(&path, options).unwrap();
            let first = raw_data(borrowed.model(), 0).clone();
            assert_eq!(first.ownership(), Ownership::Shared);
            assert!(first.same_owner(raw_data(borrowed.model(), 1)));
            assert_same(&borrowed, &copied);
            drop(borrowed);
            #[cfg(target_os = "linux")]
            assert_eq!(maps_of(&path), mapped);
            drop(first);
            #[cfg(target_os = "linux")]
            assert_eq!(maps_of(&path), 0);
            let _ = mapped;
        }
    }
}

#[test]
fn a_model_from_bytes_is_loaded_with_and_without_a_copy() {
    let owners = Owners::default();
    let copied = LoadOptions::new().no_copy(false);
    let container = Container::load_bytes(owners.lend(encoded()), copied).unwrap();
    assert_eq!(owners.dropped(), 1);
    assert_eq!(raw_data(container.model(), 0).ownership(), Ownership::Owned);
    drop(container);
    let container = Container::load_bytes(owners.lend(encoded()), LoadOptions::new()).unwrap();
    assert_eq!(raw_data(container.model(), 0).ownership(), Ownership::Lent);
    let (clone, moved) = (container.clone(), container);
    drop(moved);
    let tensor = raw_data(clone.model(), 1).clone();
    drop(clone);
    assert_eq!(owners.dropped(), 1, "one tensor keeps the caller's bytes");
    drop(tensor);
    assert_eq!(owners.dropped(), 2);
}

#[test]
fn external_tensors_are_loaded_with_and_without_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (path, data) = two_files(folder.path());
    for (choice, mapped) in both_choices().into_iter().zip([1, 0]) {
        let options = || LoadOptions::new().mmap(choice);
        let copied = Container::load(&path, options().no_copy(false)).unwrap();
        let expected = all_bytes(&copied);
        let [a, b] = <[Buffer; 2]>::try_from(handles(&copied)).unwrap();
        drop(copied);
        assert!(!a.same_owner(&b));
        assert_eq!([a.ownership(), b.ownership()], [Ownership::Owned; 2]);
        #[cfg(target_os = "linux")]
        assert_eq!(maps_of(&data), 0, "a copy needs no file");

        for options in [options(), options().no_copy(true)] {
            let borrowed = Container::load(&path, options).unwrap();
            assert_eq!(all_bytes(&borrowed), expected);
            let model = borrowed.embed().unwrap();
            let [a, b] = <[Buffer; 2]>::try_from(handles(&borrowed)).unwrap();
            assert!(a.same_owner(&b) && raw_data(&model, 0).same_owner(&a));
            drop((borrowed, model, a));
            assert!(!b.is_shared());
            #[cfg(target_os = "linux")]
            assert_eq!(maps_of(&data), mapped, "the last tensor keeps the map");
            drop(b);
            #[cfg(target_os = "linux")]
            assert_eq!(maps_of(&data), 0);
            let _ = (&data, mapped);
        }
    }
}

#[test]
fn external_tensors_are_aligned_by_a_copy_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = two_files(folder.path());
    for choice in both_choices() {
        // A save aligns to 256 bytes.
        let options = LoadOptions::new().mmap(choice).no_copy(true).alignment(Alignment::DEVICE);
        assert_eq!(Container::load(&path, options).unwrap().len(), 2);
        let large = Alignment::new(1 << 21).unwrap();
        let options = LoadOptions::new().mmap(choice).alignment(large);
        let aligned = Container::load(&path, options.clone()).unwrap();
        assert!(
            handles(&aligned).iter().all(|bytes| large.is_aligned(bytes.as_ptr().addr() as u64))
        );
        let error = Container::load(&path, options.no_copy(true)).unwrap_err();
        assert!(error.has(ErrorKind::Unsupported), "{error}");
        assert!(error.each().all(|error| error.tensor().is_some()));
    }
}

#[test]
fn a_save_with_externalize_moves_inline_tensors_at_the_threshold_out() {
    let tensors = vec![floats("a", 0, 15), floats("b", 9, 16), floats("c", 5, 1000)];
    let container = Container::new(model(graph(tensors, vec![])));
    for (options, lens, align) in [
        (SaveOptions::new(), vec![64, 4000], 256),
        (SaveOptions::new().alignment(Alignment::CACHE_LINE), vec![64, 4000], 64),
        (SaveOptions::new().raw_data_threshold(0), vec![60, 64, 4000], 256),
        (SaveOptions::new().raw_data_threshold(4001), vec![], 256),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let options = options.externalize(true);
        assert_eq!(
            container.dry_run(&path, options.clone()).unwrap().files.len(),
            1 + lens.len().min(1)
        );
        let parts = container.to_parts(options.clone()).unwrap();
        container.save(&path, options).unwrap();
        assert_eq!(fs::read(&path).unwrap().len() > 4000, lens.is_empty());
        let loaded = Container::load(&path, LoadOptions::new()).unwrap();
        assert_same(&loaded, &container);
        let bytes = handles(&loaded);
        assert_eq!(bytes.iter().map(|bytes| bytes.len()).collect::<Vec<_>>(), lens);
        assert!(bytes.iter().all(|bytes| bytes.as_ptr().addr() % align == 0));
        assert_eq!(parts.files.len(), lens.len().min(1));
    }
    assert!(container.is_empty(), "the container keeps its tensors");
}

#[test]
fn the_options_of_every_operation_contain_the_same_base() {
    fn base(options: impl Into<TensorBufferOptions>) -> (u64, Option<Alignment>) {
        let TensorBufferOptions { raw_data_threshold, alignment, .. } = options.into();
        (raw_data_threshold, alignment)
    }
    assert_eq!(base(TensorBufferOptions::new()), (0, None));
    assert_eq!(base(ConsolidateOptions::new()), (0, None));
    assert_eq!(base(DecodeOptions::new()), (1024, None));
    assert_eq!(base(LoadOptions::new()), (1024, None));
    assert_eq!(base(SaveOptions::new()), (64, None));
    let buffers = TensorBufferOptions::new().raw_data_threshold(7).alignment(Alignment::PAGE);
    let expected = (7, Some(Alignment::PAGE));
    let (decode, load) = (DecodeOptions::from(buffers), LoadOptions::from(buffers));
    let (save, consolidate) = (SaveOptions::from(buffers), ConsolidateOptions::from(buffers));
    for options in [decode.as_ref(), load.as_ref(), save.as_ref(), consolidate.as_ref()] {
        assert_eq!(base(*options), expected);
    }
    let mut empty = ModelProto::default();
    for options in [ConsolidateOptions::from(decode), load.into(), save.into(), buffers.into()] {
        assert_eq!(base(options), expected);
        assert!(onnx_container::edit::consolidate(&mut empty, options).unwrap().is_empty());
    }
}
