//! The options that store digests of what is saved.

use super::SaveOptions;

impl SaveOptions {
    /// Whether the [digest](crate::Container::digest) of the model and that of each tensor are
    /// stored with it, as metadata that readers ignore: a check and
    /// [`LoadOptions::verify_digests`](crate::LoadOptions::verify_digests) compare with them.
    /// Default false.
    ///
    /// The weights are read once more for that, before anything is written; lazy ones are made once
    /// more. Digests that the model has from an earlier save never stay: without this option they
    /// are left out. With it, those that are stored are of the weights as they were loaded:
    /// [`VerifyDigests::WhereStored`](crate::load::VerifyDigests::WhereStored) compares these with
    /// the earlier ones.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, LoadOptions, SaveOptions};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", vec![1_u8, 2])?;
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("m.onnx");
    /// container.save(&path, SaveOptions::new().digests(true))?;
    ///
    /// let verifying = LoadOptions::new().verify_digests(true);
    /// Container::load(&path, verifying.clone())?;
    /// std::fs::write(folder.path().join("m.onnx.data"), [1, 3])?;
    /// assert!(Container::load(&path, verifying).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors of the save
    /// Those of [`Container::digest`](crate::Container::digest).
    #[must_use]
    pub fn digests(mut self, digests: bool) -> Self {
        self.digests = digests;
        self
    }

    /// Whether the external data of each tensor have the entry `checksum` of the specification: the
    /// SHA-1 of the whole weights file, as 40 hexadecimal digits. onnx and onnxruntime read it and
    /// compare nothing; [`LoadOptions::verify_digests`](crate::LoadOptions::verify_digests) and a
    /// check of digests do. Default false.
    ///
    /// The weights files are read once more for that, before anything is written, each by one core:
    /// also one that is kept. Lazy weights are made once more. Tensors whose weights were not
    /// loaded keep the entry that they have.
    #[must_use]
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }
}
