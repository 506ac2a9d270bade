//! Any set of tensors loads back equal, from any layout, at any alignment.

use onnx_container::edit::ExternalizeOptions;
use onnx_container::proto::TensorProto;
use onnx_container::{Alignment, Buffer, Container, DataType, SaveOptions, Tensor, WeightFiles};
use proptest::prelude::*;

use crate::support::{all_bytes, assert_same, both_choices, graph, model};

/// A tensor of any type with a fixed width, and any bytes.
fn tensor() -> impl Strategy<Value = Tensor> {
    let dtypes: Vec<_> =
        DataType::ALL.iter().copied().filter(|d| d.bit_width().is_some()).collect();
    let dims = prop::collection::vec(0_i64..7, 0..4);
    (prop::sample::select(dtypes), dims).prop_flat_map(|(dtype, dims)| {
        let len = dtype.byte_len(&dims).unwrap() as usize;
        prop::collection::vec(any::<u8>(), len)
            .prop_map(move |bytes| Tensor::new(dtype, dims.clone(), Buffer::from(bytes)).unwrap())
    })
}

fn options() -> impl Strategy<Value = SaveOptions> {
    let files = [
        WeightFiles::Packed,
        WeightFiles::PerTensor,
        WeightFiles::Sharded { max_bytes: 1000 },
        WeightFiles::Embedded,
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors,
    ];
    (prop::sample::select(files.to_vec()), 0..17_u32, 0..17_u32, any::<bool>()).prop_map(
        |(files, small, large, dedup)| {
            let alignment = |shift| Alignment::new(1_u64 << shift).unwrap();
            SaveOptions::from(files)
                .alignment(alignment(small))
                .alignment_large(alignment(large))
                .dedup(dedup)
                .sync(false)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_container_comes_back(
        tensors in prop::collection::vec((tensor(), 0..3_usize), 0..12),
        options in options(),
        min_bytes in 0..64_u64,
    ) {
        // Names repeat, so that handles and files have to be told apart.
        let named = tensors.iter().map(|(tensor, name)| tensor.to_proto(["w", "W", "a/b"][*name]));
        let model = model(graph(named.collect(), vec![]));
        let mut container = Container::new(model.clone());
        container.externalize(ExternalizeOptions::from(min_bytes).all_tensors(true)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let saved = container.save(&path, options).unwrap();
        for mmap in both_choices() {
            let loaded = Container::load(&path, mmap).unwrap();
            assert_same(&loaded, &container);
            let mut embedded = loaded.embed().unwrap();
            drop_empty_raw_data(&mut embedded.graph.as_mut().unwrap().initializer);
            let mut original = model.clone();
            drop_empty_raw_data(&mut original.graph.as_mut().unwrap().initializer);
            prop_assert_eq!(embedded, original);
        }
        let checked = onnx_container::check::check_model(&path, both_choices()[0]).unwrap();
        // The models here may have one name for two tensors.
        let same_name = "two initializers have this name";
        prop_assert!(checked.errors().all(|finding| finding.error.reason() == same_name));
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), saved.files.len());
    }

    #[test]
    fn any_views_of_one_memory_come_back(
        ranges in prop::collection::vec((0..3000_usize, 0..3000_usize), 1..16),
        options in options(),
    ) {
        // Nested, crossing, equal and empty ranges, at any offset.
        let memory = Buffer::from((0..6000_u32).map(|i| (i % 251) as u8).collect::<Vec<_>>());
        let tensors = ranges.iter().map(|(start, len)| {
            let bytes = memory.slice(*start..start + len).unwrap();
            Tensor::new(DataType::Uint8, [*len as i64], bytes).unwrap().to_proto("w")
        });
        let model = model(graph(tensors.collect(), vec![]));
        let mut container = Container::new(model);
        let before = all_bytes(&container);
        container.externalize(1).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let saved = container.save(&path, options.clone()).unwrap();
        let sizes = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
        prop_assert_eq!(sizes.sum::<u64>(), saved.bytes);
        let loaded = Container::load(&path, both_choices()[0]).unwrap();
        prop_assert_eq!(all_bytes(&loaded), &before[..]);
        // A packed file is kept. What was shared once is shared again where all is written anew.
        let kept = loaded.save(&path, options.clone()).unwrap();
        prop_assert_eq!(kept.model().unwrap(), saved.model().unwrap());
        let again = loaded.save(&path, options.keep_placement(false)).unwrap();
        prop_assert_eq!((again.bytes, again.kept.len()), (saved.bytes, 0));
        prop_assert_eq!(all_bytes(&Container::load(&path, both_choices()[1]).unwrap()), before);
    }

    #[test]
    fn any_bytes_are_a_model_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Container::load_bytes(bytes, onnx_container::LoadOptions::new());
    }
}

/// Empty tensors may carry an empty `raw_data` or none.
fn drop_empty_raw_data(tensors: &mut [TensorProto]) {
    for tensor in tensors {
        tensor.raw_data = tensor.raw_data.take().filter(|raw| !raw.is_empty());
    }
}
