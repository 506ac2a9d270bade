//! Which files a save writes: [`WeightFiles`], and what shards are called.

/// Which files the weights go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WeightFiles {
    /// One file, `<model file>.data`, with every large initializer at an aligned offset. A file
    /// that already has all of them [is kept](crate::SaveOptions::keep_placement).
    #[default]
    Packed,
    /// Files like the packed one, each of at most `max_bytes` bytes, padding included: for
    /// browsers, model hubs and file systems that limit the length of a file. Tensors are in graph
    /// order, and a new file begins where the next tensor would not fit. A tensor is never split:
    /// one of more than `max_bytes` has a file alone.
    ///
    /// They are called `<model stem>-00001-of-00003.onnx.data` and so on; a single one has the name
    /// of the packed file. [`SaveOptions::shard_names`](crate::SaveOptions::shard_names) has other
    /// names, and [`SaveOptions::data_name`](crate::SaveOptions::data_name) another one to number.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, WeightFiles};
    ///
    /// let mut graph = GraphProto::new("g");
    /// for name in ["a", "b", "c"] {
    ///     let place = TensorProto::external(name, TensorProto::UINT8, [200], format!("#{name}"));
    ///     graph.initializer.push(place);
    /// }
    /// let mut container = Container::new(ModelProto::new(graph));
    /// for name in ["#a", "#b", "#c"] {
    ///     container.insert(name, ndarray::Array1::from(vec![1_u8; 200]))?;
    /// }
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let saved = container.save(folder.path().join("m.onnx"), WeightFiles::Sharded { max_bytes: 500 })?;
    /// let files: Vec<_> = saved.files.iter().map(|file| (file.name.as_str(), file.bytes)).collect();
    /// assert_eq!(files[0], ("m-00001-of-00002.onnx.data", 456)); // `b` is aligned to 256 bytes
    /// assert_eq!(files[1], ("m-00002-of-00002.onnx.data", 200));
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    Sharded {
        /// The most bytes of a file with more than one tensor.
        max_bytes: u64,
    },
    /// Files like the packed one, as many as this, of about the same length: for writers that have
    /// one file each, as the parts of a job in an object store have. The largest tensor goes to the
    /// file that has the least so far, then the next one; in a file they are in graph order. Fewer
    /// tensors have fewer files, and none is split.
    ///
    /// They are called as those of [`Sharded`](Self::Sharded).
    Balanced {
        /// How many files.
        files: usize,
    },
    /// One file for each large initializer, `<model stem>-<handle>.weight`.
    PerTensor,
    /// One safetensors file, `<model stem>.safetensors`, which safetensors readers can read too:
    /// the model refers into it by location and offset. The largest aligned tensors come first, so
    /// that alignment costs little padding.
    #[cfg(feature = "safetensors")]
    Safetensors,
    /// No weights files: all weights go into the model file, whatever its size.
    Embedded,
    /// The files that the weights were loaded from, whatever their layout: only the model is
    /// written, and refers to them. This is for models of gigabytes in which the graph or a few
    /// tensors change. Weights that are in no file go into the model when they have less than 1
    /// KiB, else into one new data file. By default its name is one that no other file has.
    ///
    /// Each of these files must be in the target's folder or below it, where [`Container::load`]
    /// finds it, and must be unchanged since it was loaded. Otherwise the save fails with
    /// [`ErrorKind::CannotKeep`]; [`Container::dry_run`] checks this in advance. A file that was
    /// read (not mapped) within two seconds of being written is compared with the bytes that were
    /// read. [`Container::to_parts`] always fails. The options of packed files apply to the new
    /// file.
    ///
    /// [`Container::load`]: crate::Container::load
    /// [`Container::to_parts`]: crate::Container::to_parts
    /// [`Container::dry_run`]: crate::Container::dry_run
    /// [`ErrorKind::CannotKeep`]: crate::ErrorKind::CannotKeep
    AsLoaded,
}

/// What the files of [`WeightFiles::Sharded`] are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ShardNames {
    /// `<model stem>-00001-of-00003.onnx.data`, with as many digits as are needed, at least five.
    /// The same model saved with another limit has files of other names.
    #[default]
    Numbered,
    /// `<model file>_data`, `<model file>_data_1`, `<model file>_data_2`: the names that
    /// transformers.js asks for when `config.json` has their number: `"transformers.js_config":
    /// {"use_external_data_format": {"<model file>": 3}}`. A number in place of the object holds
    /// for every model file of the repository.
    ///
    /// A browser cannot read a file over its limit, so that a tensor of more than `max_bytes` is an
    /// error ([`ErrorKind::TooLarge`]), and so are more files than transformers.js reads, which
    /// is 100. No other name can be given ([`SaveOptions::data_name`]).
    ///
    /// [`ErrorKind::TooLarge`]: crate::ErrorKind::TooLarge
    /// [`SaveOptions::data_name`]: crate::SaveOptions::data_name
    TransformersJs,
}
