//! Replacing the elements of one tensor: [`Container::replace`], [`Container::replace_retyped`].
//!
//! Tensors can share bytes (tied weights), by one handle or by one range of memory. The caller
//! decides whether a change of one of them changes all; nothing is assumed. All changes are planned
//! and checked before the first one is made. Names are resolved by `tensors`, declared types
//! changed by `declared_types`; replacing many weights at once is left to `fill`.

use std::collections::HashSet;
use std::ops::Range;

use crate::container::lookup::list;
use crate::container::tensors::{TensorIndex, TensorRef};
use crate::container::{Container, Handle, HandleNames};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, is_external};
use crate::graph::declared_types;
use crate::graph::traversal::{self, Position, Site};
use crate::proto::TensorProto;
use crate::tensor::Tensor;
use crate::tensor::initializer::{Address, Initializer};

/// What [`Container::replace`] does with a tensor that shares its bytes with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tied {
    /// It is left unchanged, with an error that names the others.
    #[default]
    Refuse,
    /// All of them get the new elements and keep sharing them.
    All,
    /// Only this tensor gets the new elements; the others keep theirs.
    This,
}

/// What [`Container::replace`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Replaced {
    /// The tensor, with its scope before the name.
    pub tensor: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether it is inline, as before.
    pub inline: bool,
    /// The tensors that shared its bytes, in graph order. With [`Tied::All`] they changed as well.
    pub tied: Vec<String>,
}

impl Container {
    /// Replaces the elements of the tensor called `name` by others of the same dtype and dims.
    ///
    /// `name` is as for [`tensor`](Self::tensor). An inline tensor remains inline, with its bytes
    /// in `raw_data`; an external tensor remains external, and gets a handle of its own where
    /// [`Tied::This`] needs one. An initializer that several nodes use is one tensor, and not tied.
    ///
    /// ```
    /// use ndarray::array;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::edit::Tied;
    /// use onnx_container::{Container, ErrorKind};
    ///
    /// let mut graph = GraphProto::new("g");
    /// for name in ["embed", "head"] {
    ///     graph.initializer.push(TensorProto::external(name, TensorProto::FLOAT, [2], "#shared"));
    /// }
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#shared", array![1.0_f32, 2.0])?;
    ///
    /// let error = container.replace("head", array![3.0_f32, 4.0], Tied::Refuse).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Tied);
    /// let replaced = container.replace("head", array![3.0_f32, 4.0], Tied::This)?;
    /// assert_eq!(replaced.tied, ["embed"]);
    /// assert_eq!(container.tensor("embed")?.as_slice::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`tensor`](Self::tensor) for the name; [`ErrorKind::DataType`] and
    /// [`ErrorKind::Shape`] when dtype or dims are not the tensor's; [`ErrorKind::Tied`] when it
    /// shares its bytes and `tied` is [`Tied::Refuse`]; [`ErrorKind::Unsupported`] for
    /// [`Tied::All`] when a tensor shares only a part of the bytes. The container is then
    /// unchanged.
    pub fn replace<I>(&mut self, name: &str, with: I, tied: Tied) -> Result<Replaced>
    where
        I: TryInto<Initializer>,
        I::Error: Into<Error>,
    {
        self.replace_by(name, with, tied, Form::Same)
    }

    /// As [`replace`](Self::replace), where the new elements may have another dtype and other dims.
    ///
    /// The types that the graph declares for this value in `value_info` and in its inputs and
    /// outputs are updated. Everything else that depends on them, such as the declared types of
    /// values computed from it, is left to the caller. With [`Tied::All`] the tensors that share
    /// the bytes have to be of one dtype and shape, and all of them change.
    ///
    /// ```
    /// use half::f16;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::edit::Tied;
    /// use onnx_container::{Container, DataType};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", vec![1.0_f32, 2.0])?;
    ///
    /// let halves: Vec<_> = container.tensor("w")?.to_f32()?.iter().copied().map(f16::from_f32).collect();
    /// container.replace_retyped("w", halves, Tied::Refuse)?;
    /// assert_eq!(container.tensor("w")?.dtype(), DataType::Float16);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`replace`](Self::replace), except for dtype and dims; [`ErrorKind::Unsupported`]
    /// for the values or indices of a sparse tensor, for strings in place of external elements, and
    /// with [`Tied::All`] where the tensors are of several dtypes or shapes.
    pub fn replace_retyped<I>(&mut self, name: &str, with: I, tied: Tied) -> Result<Replaced>
    where
        I: TryInto<Initializer>,
        I::Error: Into<Error>,
    {
        self.replace_by(name, with, tied, Form::Any)
    }

    fn replace_by<I>(&mut self, name: &str, with: I, tied: Tied, form: Form) -> Result<Replaced>
    where
        I: TryInto<Initializer>,
        I::Error: Into<Error>,
    {
        let change = with.try_into().map_err(Into::into).and_then(|with| {
            let index = self.index();
            let found = index.find(name)?;
            if found.len() > 1 && tied == Tied::This {
                return Err(several(name, found));
            }
            let position = found.first().copied();
            let tensor = position.and_then(|position| index.iter().nth(position));
            let tensor = tensor.ok_or_else(|| Error::internal("a name without a tensor"))?;
            Change::plan(&index, tensor, with, tied, form)
        });
        let (change, replaced) = change.map_err(|error| error.with_tensor(name))?;
        change.apply(self)?;
        Ok(replaced)
    }
}

/// Which types and shapes the new elements may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Only the dtype and dims of the old ones.
    Same,
    Any,
}

/// What changes in the container.
struct Change {
    elements: Elements,
    /// The tensors that get a new dtype and dims.
    retyped: HashSet<Position>,
    dtype: DataType,
    dims: Vec<i64>,
}

/// Where the new elements are put.
enum Elements {
    /// Into the message of this tensor.
    Inline(Position, Tensor),
    /// Behind a new handle for this tensor.
    Apart(Position, Initializer),
    /// Behind existing handles.
    Behind(Vec<(Handle, Initializer)>),
}

impl Change {
    /// Plans the changes, without making any.
    fn plan(
        index: &TensorIndex<'_>,
        tensor: &TensorRef<'_>,
        with: Initializer,
        tied: Tied,
        form: Form,
    ) -> Result<(Self, Replaced)> {
        match form {
            Form::Same => fits(tensor.proto(), &with)?,
            Form::Any => may_be_retyped(tensor, &with)?,
        }
        let external = is_external(tensor.proto());
        let mut replaced = Replaced {
            tensor: tensor.qualified().to_owned(),
            bytes: with.byte_len(),
            inline: !external,
            tied: Vec::new(),
        };
        let (dtype, dims) = (with.dtype(), with.dims().to_vec());
        let mut retyped = HashSet::new();
        let elements = if external {
            let sharers = sharers(index, tensor)?;
            if form == Form::Any && tied == Tied::All {
                one_type(tensor, &sharers)?;
                retyped = sharers.iter().map(|sharer| sharer.position).collect();
            }
            replaced.tied = sharers.iter().map(|sharer| sharer.name.clone()).collect();
            behind(index, tensor, &sharers, with, (tied, form))?
        } else {
            Elements::Inline(tensor.position(), with.to_tensor()?)
        };
        if form == Form::Any {
            retyped.insert(tensor.position());
        }
        Ok((Self { elements, retyped, dtype, dims }, replaced))
    }

    fn apply(self, container: &mut Container) -> Result<()> {
        declared_types::retype(&mut container.model, &self.retyped, self.dtype, &self.dims)?;
        match self.elements {
            Elements::Inline(position, tensor) => {
                let (_, proto) = at_mut(container, position)?;
                external_data::clear_payload(proto);
                proto.raw_data = tensor.buffer().cloned();
                if let Some(strings) = tensor.strings() {
                    *proto.string_data = strings.to_vec();
                }
            }
            Elements::Apart(position, with) => {
                let mut names = HandleNames::with(container.initializers.keys());
                names.avoid(&container.model)?;
                let (place, proto) = at_mut(container, position)?;
                let handle = names.name(&place, proto);
                external_data::set_handle(proto, handle.as_str());
                container.initializers.insert(handle, with);
            }
            Elements::Behind(new) => {
                container.model.forget_digests();
                container.initializers.extend(new);
            }
        }
        Ok(())
    }
}

fn at_mut(
    container: &mut Container,
    position: Position,
) -> Result<(traversal::Place<'_>, &mut TensorProto)> {
    let found = traversal::iter_mut(&mut container.model).nth(position.index());
    found.ok_or_else(|| Error::internal("a tensor is gone"))
}

/// Where `with` is put for the external `tensor`, which shares its bytes with `sharers`.
fn behind(
    index: &TensorIndex<'_>,
    tensor: &TensorRef<'_>,
    sharers: &[Sharer],
    with: Initializer,
    (tied, form): (Tied, Form),
) -> Result<Elements> {
    let (handle, _) = index.container().initializer_of(tensor.proto())?;
    match tied {
        Tied::Refuse if !sharers.is_empty() => return Err(refusal(sharers)),
        Tied::This if sharers.iter().any(|sharer| sharer.handle == *handle) => {
            return Ok(Elements::Apart(tensor.position(), with));
        }
        Tied::All => whole(sharers)?,
        Tied::Refuse | Tied::This => {}
    }
    let others = sharers.iter().map(|sharer| &sharer.handle).filter(|_| tied == Tied::All);
    let handles: HashSet<&Handle> = others.chain([handle]).collect();
    let new = handles.into_iter().map(|handle| {
        let old = index.container().get(handle.as_str()).filter(|_| form == Form::Same);
        Ok((handle.clone(), in_the_form_of(old, &with)?))
    });
    new.collect::<Result<_>>().map(Elements::Behind)
}

/// `with` in the type and dimensions of `old`: tensors of several shapes may share one handle.
fn in_the_form_of(old: Option<&Initializer>, with: &Initializer) -> Result<Initializer> {
    match old {
        Some(old) if (old.dtype(), old.dims()) != (with.dtype(), with.dims()) => {
            with.retyped(old.dtype(), old.dims())
        }
        _ => Ok(with.clone()),
    }
}

/// The other tensors that share bytes with the external `tensor`.
fn sharers(index: &TensorIndex<'_>, tensor: &TensorRef<'_>) -> Result<Vec<Sharer>> {
    let (handle, initializer) = index.container().initializer_of(tensor.proto())?;
    let own = addresses(initializer);
    let others = index.iter().filter(|other| other.position() != tensor.position());
    let sharer = |listed: &TensorRef<'_>| {
        let other = listed.handle()?;
        let range = index.container().get(other.as_str()).and_then(addresses);
        let whole = other == *handle || (own.is_some() && own == range);
        let shared = whole || overlap(own.as_ref()?, &range?);
        let proto = listed.proto();
        shared.then(|| Sharer {
            name: listed.qualified().to_owned(),
            position: listed.position(),
            form: (proto.data_type, proto.dims.clone()),
            handle: other,
            whole,
        })
    };
    Ok(others.filter_map(sharer).collect())
}

/// A tensor that shares bytes with another.
struct Sharer {
    name: String,
    position: Position,
    /// Dtype and dims as declared.
    form: (Option<i32>, Vec<i64>),
    handle: Handle,
    /// Whether both are exactly the same bytes.
    whole: bool,
}

/// The address range of the bytes, when it is known.
fn addresses(initializer: &Initializer) -> Option<Range<Address>> {
    let start = initializer.address()?;
    let range = start..start.plus(initializer.byte_len());
    Some(range).filter(|range| !range.is_empty())
}

fn overlap(a: &Range<Address>, b: &Range<Address>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Checks that `with` has the type and dimensions of `proto`.
fn fits(proto: &TensorProto, with: &Initializer) -> Result<()> {
    let dtype = DataType::try_from(proto.data_type.unwrap_or_default())?;
    if with.dtype() != dtype {
        let reason = format!("it is {dtype}, the new elements are {}", with.dtype());
        return Err(Error::new(ErrorKind::DataType, reason));
    }
    let (old, new) = (proto.dims.as_slice(), with.dims());
    if old == new {
        return Ok(());
    }
    let mut reason = format!("its dims are {old:?}, those of the new elements {new:?}");
    if new.iter().rev().eq(old) {
        reason += ": the new elements are transposed";
    }
    Err(Error::new(ErrorKind::Shape, reason))
}

/// Refuses to change all sharing tensors when one of them shares only a part of the bytes.
fn whole(sharers: &[Sharer]) -> Result<()> {
    let parts: Vec<_> = sharers.iter().filter(|sharer| !sharer.whole).collect();
    if parts.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "only a part of its bytes is shared with {}: all cannot be replaced together",
        quoted(&parts)
    );
    Err(Error::new(ErrorKind::Unsupported, reason))
}

fn refusal(sharers: &[Sharer]) -> Error {
    let all: Vec<_> = sharers.iter().collect();
    let reason = format!("it is tied: its bytes are also those of {}", quoted(&all));
    Error::new(ErrorKind::Tied, reason)
}

fn quoted(sharers: &[&Sharer]) -> String {
    list(sharers.iter().map(|sharer| format!("`{}`", sharer.name)))
}

fn several(name: &str, found: &[usize]) -> Error {
    let reason = format!("{name} stands for {} tensors: name the one that is meant", found.len());
    Error::new(ErrorKind::InvalidArgument, reason)
}

/// Checks that another dtype or shape is possible here.
fn may_be_retyped(tensor: &TensorRef<'_>, with: &Initializer) -> Result<()> {
    let unsupported = |reason: &str| Err(Error::new(ErrorKind::Unsupported, reason));
    match tensor.place().site {
        Site::Initializer | Site::Attribute | Site::AttributeDefault => {}
        _ => return unsupported("one part of a sparse tensor cannot change its type alone"),
    }
    if with.dtype() == DataType::String && is_external(tensor.proto()) {
        return unsupported("strings cannot be external");
    }
    Ok(())
}

/// Refuses to change the type of all sharing tensors when they have different types or shapes.
fn one_type(tensor: &TensorRef<'_>, sharers: &[Sharer]) -> Result<()> {
    let proto = tensor.proto();
    let other =
        |sharer: &&Sharer| (sharer.form.0, &sharer.form.1) != (proto.data_type, &proto.dims);
    let others: Vec<_> = sharers.iter().filter(other).collect();
    if others.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "its bytes are also those of {}, of another dtype or shape: they cannot all get a new one",
        quoted(&others)
    );
    Err(Error::new(ErrorKind::Unsupported, reason))
}
