//! Every tensor of a container, resolved: [`Container::tensors`], [`Container::index`].
//!
//! A tensor can be inline, behind a handle, or in a file that was not loaded; callers should not
//! have to distinguish them. A [`TensorRef`] is one tensor with a unique name, and finds its
//! elements on request. A [`TensorIndex`] has all tensors by name. Names are resolved by `lookup`;
//! changes are left to `replace` and `add_delete`.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;
use std::{slice, vec};

use crate::buffer::Buffer;
use crate::container::lookup::{Names, list};
use crate::container::{Container, Handle};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, ExternalData, is_external};
use crate::graph::traversal::{self, Place, Position};
use crate::proto::TensorProto;
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;
use crate::util::did_you_mean::did_you_mean;

/// A tensor of a container, wherever its elements are stored.
///
/// A malformed tensor is an error only of the calls on it that need the malformed part.
#[derive(Debug, Clone)]
pub struct TensorRef<'c> {
    container: &'c Container,
    place: Place<'c>,
    proto: &'c TensorProto,
    /// Scope and name.
    qualified: Cow<'c, str>,
    /// The unique name of this tensor, where several tensors share the qualified name.
    unique: Option<String>,
}

/// Where the elements of a tensor are.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TensorStorage<'c> {
    /// In the message.
    Inline,
    /// Behind a handle of the container.
    Handle {
        /// The handle.
        handle: &'c Handle,
        /// The initializer behind it.
        initializer: &'c Initializer,
    },
    /// In a file that was not loaded.
    File {
        /// The file as the model names it, relative to the folder of the model.
        location: String,
        /// The bytes of the file.
        range: Range<u64>,
    },
}

impl<'c> TensorRef<'c> {
    /// A name that no other tensor of the model has: [`Container::tensor`] and
    /// [`Container::replace`] take it.
    ///
    /// It is the tensor's name with the path of its scope before it (`if_node.then_branch/w`; in
    /// the main graph, `w`). Where several tensors share that name, the first one in graph order is
    /// `w[0]` and the second one `w[1]`, or `w[[1]]` where a tensor is really called `w[1]`.
    pub fn name(&self) -> &str {
        self.unique.as_deref().unwrap_or(&self.qualified)
    }

    /// Its place: position in graph order, scope, and role.
    pub fn place(&self) -> &Place<'c> {
        &self.place
    }

    /// The message, whose elements may be elsewhere.
    pub fn proto(&self) -> &'c TensorProto {
        self.proto
    }

    /// The element type.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] when the message has an unknown type or none.
    pub fn dtype(&self) -> Result<DataType> {
        let dtype = DataType::try_from(self.proto.data_type.unwrap_or_default());
        let known = dtype.and_then(|dtype| match dtype {
            DataType::Undefined => {
                Err(Error::new(ErrorKind::DataType, "the tensor has no data type"))
            }
            known => Ok(known),
        });
        self.named(known)
    }

    /// The dimensions as stored in the message, unchecked.
    pub fn dims(&self) -> &'c [i64] {
        &self.proto.dims
    }

    /// The length of the elements in bytes, computed from type and dimensions; for strings, the sum
    /// of their lengths.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] or [`ErrorKind::Shape`] when type or dimensions are not valid.
    pub fn byte_len(&self) -> Result<u64> {
        let dtype = self.dtype()?;
        if dtype == DataType::String && !is_external(self.proto) {
            return Ok(self.proto.string_data.iter().map(|string| string.len() as u64).sum());
        }
        self.named(dtype.byte_len(&self.proto.dims))
    }

    /// Where the elements are: in the message, behind a handle, or in a file that was not loaded.
    ///
    /// # Errors
    /// Those of [`Container::check`] for this tensor, and for one in a file those of
    /// [`ExternalData::parse`] and [`ExternalData::range`].
    pub fn storage(&self) -> Result<TensorStorage<'c>> {
        self.named(self.container.storage_of(self.proto))
    }

    /// The file and byte range of the elements. A loaded tensor has them whether its file was
    /// mapped or read; for a tensor that was not loaded, the path is relative to the folder of the
    /// model. `None` when the elements are not the bytes of a file range.
    ///
    /// # Errors
    /// As [`storage`](Self::storage).
    pub fn file_range(&self) -> Result<Option<(PathBuf, Range<u64>)>> {
        let of_buffer = |bytes: &Buffer| {
            bytes.source().map(|(place, _)| (place.path.to_path_buf(), place.range))
        };
        Ok(match self.storage()? {
            TensorStorage::Inline => self.proto.raw_data.as_ref().and_then(of_buffer),
            TensorStorage::Handle { initializer, .. } => {
                let told = initializer.file_range();
                let told = told.map(|place| (place.path.to_path_buf(), place.range));
                told.or_else(|| initializer.as_buffer().as_ref().and_then(of_buffer))
            }
            TensorStorage::File { location, range } => Some((location.into(), range)),
        })
    }

    /// The elements, without a copy where possible.
    ///
    /// # Errors
    /// As [`Container::resolve`].
    pub fn tensor(&self) -> Result<Tensor> {
        self.named(self.container.resolve(self.proto))
    }

    /// The handle that the message names, whether or not it has an initializer.
    pub(crate) fn handle(&self) -> Option<Handle> {
        external_data::handle_of(self.proto)?.parse().ok()
    }

    /// Its scope and name, which other tensors may share.
    pub(crate) fn qualified(&self) -> &str {
        &self.qualified
    }

    pub(crate) fn position(&self) -> Position {
        self.place.position
    }

    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.with_tensor(self.name()))
    }

    /// Type and dimensions, formatted for display.
    fn what(&self) -> String {
        let dtype = self.dtype().map_or("of an unknown type", DataType::name);
        format!("{dtype} {:?}", self.dims())
    }
}

/// Every tensor of a container by its names, see [`Container::index`].
#[derive(Debug)]
pub struct TensorIndex<'c> {
    container: &'c Container,
    names: Names<'c, usize>,
    tensors: Vec<TensorRef<'c>>,
}

impl<'c> TensorIndex<'c> {
    fn of(container: &'c Container) -> Self {
        let mut tensors: Vec<_> = traversal::iter(&container.model)
            .map(|(place, proto)| {
                let qualified = place.borrowed_qualified_name(proto);
                TensorRef { container, place, proto, qualified, unique: None }
            })
            .collect();
        let names = names_of(&tensors);
        for (number, name) in names.numbered() {
            if let Some(tensor) = tensors.get_mut(number) {
                tensor.unique = Some(name);
            }
        }
        Self { container, names, tensors }
    }

    /// The tensor called `name`: its name with its scope before it, else its name alone, else its
    /// handle (`#w`). Where several tensors have that name, see [`TensorRef::name`].
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when there is no such tensor, with similar names;
    /// [`ErrorKind::InvalidArgument`] when several tensors that do not share one handle have the
    /// name.
    pub fn get(&self, name: &str) -> Result<&TensorRef<'c>> {
        self.find(name)?.first().and_then(|number| self.tensors.get(*number)).ok_or_else(|| {
            Error::internal(format!("the name `{name}` is in the index without a tensor"))
        })
    }

    /// The tensor at `position` in graph order.
    pub fn at(&self, position: Position) -> Option<&TensorRef<'c>> {
        self.tensors.get(position.index())
    }

    /// The tensors in graph order.
    pub fn iter(&self) -> slice::Iter<'_, TensorRef<'c>> {
        self.tensors.iter()
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether the model has no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    pub(crate) fn container(&self) -> &'c Container {
        self.container
    }

    /// The positions of the tensors that `name` means: one tensor, or all tensors of one handle.
    pub(crate) fn find(&self, name: &str) -> Result<&[usize]> {
        match self.names.meanings(name) {
            [] => self.names.by_number(name).ok_or_else(|| self.unknown(name)),
            one @ [_] => Ok(one),
            several if self.share_a_handle(several) => Ok(several),
            several => Err(self.ambiguous(name, several)),
        }
    }

    fn share_a_handle(&self, positions: &[usize]) -> bool {
        let mut handles =
            positions.iter().map(|n| self.tensors.get(*n).and_then(TensorRef::handle));
        let first = handles.next().flatten();
        first.is_some() && handles.all(|handle| handle == first)
    }

    /// The unique names of all tensors that `name` may mean.
    fn ambiguous(&self, name: &str, positions: &[usize]) -> Error {
        let tensors: Vec<_> = positions.iter().filter_map(|n| self.tensors.get(*n)).collect();
        let each =
            tensors.into_iter().map(|tensor| format!("`{}` ({})", tensor.name(), tensor.what()));
        let reason = format!("{} tensors have this name: {}", positions.len(), list(each));
        Error::new(ErrorKind::InvalidArgument, reason).with_tensor(name)
    }

    fn unknown(&self, name: &str) -> Error {
        let names = self.tensors.iter().map(TensorRef::qualified);
        let hint = did_you_mean(name, names).unwrap_or_else(|| {
            format!("none of the {} tensors has a similar name", self.tensors.len())
        });
        let reason = format!("no such tensor; {hint}");
        Error::new(ErrorKind::MissingTensor, reason).with_tensor(name)
    }
}

/// The names of `tensors`, which are in graph order.
fn names_of<'c>(tensors: &[TensorRef<'c>]) -> Names<'c, usize> {
    let mut names = Names::default();
    let external = tensors.iter().filter(|tensor| is_external(tensor.proto)).count();
    names.reserve(tensors.len(), external);
    for (number, tensor) in tensors.iter().enumerate() {
        let TensorRef { place, proto, qualified, .. } = tensor;
        let plain = (!place.scope.is_main()).then(|| place.borrowed_name(proto));
        names.add_names(qualified.clone(), plain, number);
        let handle = external_data::handle_of(proto).and_then(|handle| handle.get(1..));
        if let Some(name) = handle.filter(|name| !name.is_empty()) {
            names.add_handle(name, number);
        }
    }
    names
}

impl<'c> IntoIterator for TensorIndex<'c> {
    type Item = TensorRef<'c>;
    type IntoIter = vec::IntoIter<TensorRef<'c>>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter()
    }
}

impl<'i, 'c> IntoIterator for &'i TensorIndex<'c> {
    type Item = &'i TensorRef<'c>;
    type IntoIter = slice::Iter<'i, TensorRef<'c>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Container {
    /// Every tensor of the model in graph order, wherever it is stored: in initializers,
    /// attributes, subgraphs, functions, sparse tensors and training graphs; inline, behind a
    /// handle, or in a file that was not loaded.
    ///
    /// The ten largest tensors with their means:
    ///
    /// ```
    /// use onnx_container::Container;
    /// # use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// # let mut graph = GraphProto::new("g");
    /// # graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    /// # let mut container = Container::new(ModelProto::new(graph));
    /// # container.insert("#w", vec![1.0_f32, 2.0])?;
    ///
    /// let mut tensors: Vec<_> = container.tensors().collect();
    /// tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.byte_len().unwrap_or(0)));
    /// for tensor in tensors.iter().take(10) {
    ///     let elements = tensor.tensor()?;
    ///     let values = elements.to_f32()?;
    ///     let mean = values.iter().sum::<f32>() / values.len() as f32;
    ///     println!("{} {} {:?}: {mean}", tensor.name(), elements.dtype(), elements.dims());
    ///     # assert_eq!(mean, 1.5);
    /// }
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    pub fn tensors(&self) -> vec::IntoIter<TensorRef<'_>> {
        self.index().into_iter()
    }

    /// The tensors of the model by name, to look up more than one: the model is walked once.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::new("w", TensorProto::UINT8, [2]).with_raw_data(&[1, 2][..]));
    /// let container = Container::new(ModelProto::new(graph));
    /// let index = container.index();
    /// assert_eq!(index.get("w")?.tensor()?.as_slice::<u8>()?, [1, 2]);
    /// assert!(index.get("v").is_err());
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    pub fn index(&self) -> TensorIndex<'_> {
        TensorIndex::of(self)
    }

    /// The tensor called `name`, wherever its elements are, without a copy where possible.
    ///
    /// A name is a tensor's scope and name as in errors and reports (`if_node.then_branch/w`), else
    /// its name alone, else its handle (`#w`). Where several tensors have one name, `w[0]` is the
    /// first of them in graph order.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::new("w", TensorProto::UINT8, [2]).with_raw_data(&[1, 2][..]));
    /// let container = Container::new(ModelProto::new(graph));
    /// assert_eq!(container.tensor("w")?.as_slice::<u8>()?, [1, 2]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// Each call walks the model: [`index`](Self::index) walks it once for many names, and
    /// [`tensors`](Self::tensors) iterates over all tensors.
    ///
    /// # Errors
    /// Those of [`TensorIndex::get`] for the name, and those of [`resolve`](Self::resolve).
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.index().get(name)?.tensor()
    }

    /// The elements of `proto`, a tensor of this container's model (or one that names a handle of
    /// this container), in its dimensions: those in the message, or those behind its handle.
    /// Nothing is copied where possible.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", vec![1.0_f32, 2.0])?;
    /// for proto in &container.model().graph.as_ref().unwrap().initializer {
    ///     assert_eq!(container.resolve(proto)?.as_slice::<f32>()?, [1.0, 2.0]);
    /// }
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`check`](Self::check) or [`Tensor::try_from`] for this tensor;
    /// [`ErrorKind::MissingHandle`] also when its file was not loaded.
    pub fn resolve(&self, proto: &TensorProto) -> Result<Tensor> {
        if !is_external(proto) {
            return Tensor::try_from(proto);
        }
        let tensor = self.initializer_of(proto)?.1.to_tensor()?;
        match tensor.buffer() {
            Some(bytes) if tensor.dims() != proto.dims => {
                Tensor::new(tensor.dtype(), proto.dims.as_slice(), bytes.clone())
            }
            _ => Ok(tensor),
        }
    }

    fn storage_of(&self, proto: &TensorProto) -> Result<TensorStorage<'_>> {
        if !is_external(proto) {
            return Ok(TensorStorage::Inline);
        }
        let entry = ExternalData::parse(proto)?;
        if external_data::is_handle(&entry.location) {
            let (handle, initializer) = self.initializer_of(proto)?;
            return Ok(TensorStorage::Handle { handle, initializer });
        }
        let (_, len) = external_data::layout(proto)?;
        let range = entry.range(len)?;
        Ok(TensorStorage::File { location: entry.location, range })
    }
}
