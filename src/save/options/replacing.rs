//! Options of a save that say which files it replaces and removes.

use std::path::PathBuf;

use crate::save::options::SaveOptions;

impl SaveOptions {
    /// Whether existing files may be replaced. Default true.
    ///
    /// Even with `true`, a weights file is replaced only when the replaced model refers to it or
    /// [`data_name`](Self::data_name) names it. It is never replaced when another model in this
    /// folder or in one above needs it, nor when the container's bytes are in it and the replaced
    /// model does not refer to it.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether the save also removes the old weights files that only the replaced model needed.
    /// Default false: all stay, and [`Saved::left_behind`](crate::Saved::left_behind) lists them.
    ///
    /// Only files with a name that a save of this model gives by default are removed. Files that a
    /// caller named stay, and what may be such a file: a safetensors file, and a single `.weight`
    /// file of one tensor. They are removed together with the replacement of
    /// the model, all or nothing, and [`Saved::removed`](crate::Saved::removed) lists them.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, SaveOptions, WeightFiles};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", ndarray::array![1_u8, 2])?;
    ///
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("m.onnx");
    /// for layout in [WeightFiles::Packed, WeightFiles::Embedded, WeightFiles::Packed] {
    ///     container.save(&path, SaveOptions::from(layout).remove_superseded(true))?;
    /// }
    /// assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2); // m.onnx, m.onnx.data
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    #[must_use]
    pub fn remove_superseded(mut self, remove: bool) -> Self {
        self.remove_superseded = remove;
        self
    }

    /// As [`remove_superseded`](Self::remove_superseded), also for files of the model's folder that
    /// a caller named, and for safetensors files. Default false.
    ///
    /// A file that another model needs stays, and one that the container was loaded from in another
    /// folder, by a link.
    #[must_use]
    pub fn remove_left_behind(mut self, remove: bool) -> Self {
        self.remove_left_behind = remove;
        self
    }

    /// Whether old files are removed.
    pub(crate) fn removes_old_files(&self) -> bool {
        self.remove_superseded || self.remove_left_behind
    }

    /// Files that are never replaced, such as other inputs of the caller.
    ///
    /// ```
    /// use onnx_container::SaveOptions;
    ///
    /// let options = SaveOptions::new().protect(["checkpoint.safetensors"]);
    /// ```
    #[must_use]
    pub fn protect(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.protected.extend(paths.into_iter().map(Into::into));
        self
    }

    /// The suffix of the packed file: `<model file><suffix>`. Default `.data`. An existing file of
    /// this name is replaced only if the replaced model refers to it.
    ///
    /// It has no effect beside [`data_name`](Self::data_name), on several shards, and on layouts
    /// with names of their own. [`remove_superseded`](Self::remove_superseded) knows the suffixes
    /// `.data` and `.weight` only.
    #[must_use]
    pub fn data_suffix(mut self, suffix: impl Into<String>) -> Self {
        self.data_suffix = Some(suffix.into());
        self
    }
}
