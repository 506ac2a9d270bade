//! The bytes of a saved model and its digests are the same on every machine. Miri runs this test
//! for a big-endian one, where code that copies numbers as they lie in memory fails.

#[cfg(test)]
mod tests {
    use ndarray::arr1;
    use sha2::{Digest as _, Sha256};

    use crate::container::Container;
    use crate::error::Result;
    use crate::load::LoadOptions;
    use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, Packed, TensorProto};
    use crate::tensor::initializer::Initializer;

    type Fill = fn(&mut TensorProto);

    /// Tensors in fields of numbers, with elements that differ in each byte.
    const TYPED: [(&str, i32, i64, Fill); 8] = [
        ("f32", TensorProto::FLOAT, 2, |t| t.float_data = Packed::from(vec![1.5, -2.25e-7]).into()),
        ("f64", TensorProto::DOUBLE, 1, |t| {
            t.double_data = Packed::from(vec![-1.234_567_8e200]).into()
        }),
        ("c64", TensorProto::COMPLEX64, 1, |t| t.float_data = Packed::from(vec![3.0, -0.1]).into()),
        ("i64", TensorProto::INT64, 2, |t| {
            t.int64_data = Packed::from(vec![0x0102_0304_0506_0708, -2]).into()
        }),
        ("u64", TensorProto::UINT64, 1, |t| {
            t.uint64_data = Packed::from(vec![u64::MAX - 0x0102]).into()
        }),
        ("f16", TensorProto::FLOAT16, 2, |t| {
            t.int32_data = Packed::from(vec![0x3c01, 0xfbff]).into()
        }),
        ("i16", TensorProto::INT16, 2, |t| {
            t.int32_data = Packed::from(vec![0x0102, -0x0304]).into()
        }),
        ("i4", TensorProto::INT4, 3, |t| t.int32_data = Packed::from(vec![0x21, 0x0f]).into()),
    ];

    fn container() -> Result<Container> {
        let mut graph = GraphProto::new("g");
        let mut weights = Vec::new();
        for (name, dtype, count, fill) in TYPED {
            let mut tensor = TensorProto::new(name, dtype, [count]);
            fill(&mut tensor);
            weights.push((name, dtype, count, Initializer::try_from(tensor)?));
        }
        let array = Initializer::from(arr1(&[0x0a0b_0c0d_i32, -7]));
        weights.push(("array", TensorProto::INT32, 2, array));
        weights.push(("vec", TensorProto::FLOAT, 1, Initializer::from(vec![1e-3_f32])));
        for (name, dtype, count, _) in &weights {
            let external = TensorProto::external(*name, *dtype, [*count], format!("#{name}"));
            graph.initializer.push(external);
        }
        let mut node = NodeProto::new("Constant", [""; 0], ["y"]);
        let mut value = TensorProto::new("", TensorProto::FLOAT, [1]);
        value.float_data = Packed::from(vec![0.1]).into();
        node.attribute.push(AttributeProto::tensor("value", value));
        graph.node.push(node);
        let mut container = Container::new(ModelProto::new(graph));
        for (name, .., initializer) in weights {
            container.insert(format!("#{name}").as_str(), initializer)?;
        }
        Ok(container)
    }

    fn sha256(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn files_and_digests_are_the_same_bytes_on_every_machine() -> Result<()> {
        let container = container()?;
        let prepared = container.prepare("m.onnx", true)?;
        let [file] = &prepared.files()[..] else { panic!("{:?}", prepared.files()) };
        let mut weights = vec![0; usize::try_from(file.bytes).unwrap()];
        prepared.read_at(0, 0, &mut weights)?;
        let mut model = Vec::new();
        prepared.encode_model(&mut model)?;
        assert_eq!(
            sha256(&weights),
            "09087d0b46faedb1dd160d7cf5ad1f1180655449337a2ddc226361b17f5d52ef"
        );
        assert_eq!(
            sha256(&model),
            "2942d0689d57d8ecb3191745d15e521f9ece5f6ffa5cb5ccb62a1605ddaae5f9"
        );
        let digest = container.digest()?;
        assert_eq!(
            digest.to_string(),
            "sha256:fcc2ea62525d40090191d5264cfa2d14f91ab73d5927a1483edd0275703f1bde"
        );
        let options = LoadOptions::new().file("m.onnx.data", weights);
        assert_eq!(Container::load_bytes(model, options)?.digest()?, digest);
        Ok(())
    }
}
