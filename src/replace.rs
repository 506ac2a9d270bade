//! One tensor by its name: [`Container::tensor`] takes it out, [`Container::replace`] puts another in
//! its place.
//!
//! Tied weights are the danger here: tensors that show the same bytes, under one handle or at one
//! place in memory. Whether a change of one means them all is for the caller to say, and nothing is
//! assumed. Which tensor a name means is left to `find`; many weights at once are left to `fill`.

use std::ops::Range;

use crate::container::{Container, Handle, HandleNames};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::external_data::{self, is_external};
use crate::find::{Index, list};
use crate::initializer::{Address, Initializer};
use crate::proto::TensorProto;
use crate::tensor::Tensor;
use crate::traversal;

/// What [`Container::replace`] does with a tensor that shares its bytes with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tied {
    /// Nothing: it is an error that names the others.
    #[default]
    Refuse,
    /// All of them get the new elements and go on sharing them.
    All,
    /// This tensor alone gets them; the others keep theirs.
    This,
}

/// What [`Container::replace`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// The tensor, with its scope before the name.
    pub tensor: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether it is, and stays, inline.
    pub inline: bool,
    /// The tensors that shared its bytes, in graph order. With [`Tied::All`] they changed as well.
    pub tied: Vec<String>,
}

impl Container {
    /// The tensor called `name`, wherever it lies, without a copy where there need not be one.
    ///
    /// A name is a tensor's scope and name as errors and reports have it (`then_branch/w`), else its
    /// name alone, else its handle (`#w`). Where several tensors have one name, `w[0]` is the first
    /// of them in graph order.
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
    /// Each call walks the model. All tensors in one walk, wherever they lie, come by way of
    /// [`embed`](Self::embed), which shares the bytes:
    ///
    /// ```no_run
    /// use onnx_container::{Container, MmapChoice, Tensor, traversal};
    ///
    /// let model = Container::load("model.onnx", MmapChoice::never())?.embed()?;
    /// traversal::tensors(&model, |place, proto| {
    ///     let tensor = Tensor::try_from(proto)?;
    ///     println!("{} {} {:?}", place.qualified_name(proto), tensor.dtype(), tensor.dims());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when no tensor has the name, [`ErrorKind::InvalidArgument`] when
    /// several have it, and what [`check`](Self::check) or [`Tensor::try_from`] says of this one.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let index = Index::of(&self.model)?;
        let number = first(index.find(name)?);
        let mut found = None;
        self.at(number, |proto| {
            found = Some(self.tensor_of(proto).map_err(|e| e.with_tensor(name)));
        })?;
        found.unwrap_or_else(|| Err(gone(name)))
    }

    /// Puts other elements into the tensor called `name`, of the same dtype and dims.
    ///
    /// `name` is as for [`tensor`](Self::tensor). What is inline stays inline and becomes raw; what
    /// is external stays so, and gets a handle of its own where [`Tied::This`] needs one. An
    /// initializer that several nodes use is one tensor, and not tied.
    ///
    /// ```
    /// use ndarray::array;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    /// use onnx_container::{Container, ErrorKind, Tied};
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
    /// shares its bytes and `tied` refuses; [`ErrorKind::Unsupported`] when all are meant and one
    /// shares only a part. The container is then unchanged.
    pub fn replace<I>(&mut self, name: &str, with: I, tied: Tied) -> Result<Replaced>
    where
        I: TryInto<Initializer>,
        I::Error: Into<Error>,
    {
        let with = with.try_into().map_err(|e| e.into().with_tensor(name))?;
        let index = Index::of(&self.model)?;
        let numbers = index.find(name)?;
        let replaced = match numbers {
            [_, _, ..] if tied == Tied::This => Err(several(name, numbers)),
            numbers => self.replace_one(&index, first(numbers), &with, tied),
        };
        replaced.map_err(|e| e.with_tensor(name))
    }

    fn replace_one(
        &mut self,
        index: &Index,
        number: usize,
        with: &Initializer,
        tied: Tied,
    ) -> Result<Replaced> {
        let mut external = Ok(false);
        self.at(number, |proto| external = fits(proto, with).map(|()| is_external(proto)))?;
        let tensor = index.tensors().get(number).map(|listed| listed.name.clone());
        let mut replaced = Replaced {
            tensor: tensor.unwrap_or_default(),
            bytes: with.byte_len(),
            inline: !external?,
            tied: Vec::new(),
        };
        if replaced.inline {
            self.put_inline(number, &with.to_tensor()?)?;
        } else {
            replaced.tied = self.replace_external(index, number, with, tied)?;
        }
        Ok(replaced)
    }

    /// Puts `with` behind the handle of the external tensor `number`, or a new one, and names the
    /// tensors that shared its bytes.
    fn replace_external(
        &mut self,
        index: &Index,
        number: usize,
        with: &Initializer,
        tied: Tied,
    ) -> Result<Vec<String>> {
        let mut handle = Err(gone("its place"));
        self.at(number, |proto| {
            handle = self.initializer_of(proto).map(|(handle, _)| handle.clone());
        })?;
        let handle = handle?;
        let sharers = self.sharers(index, number, &handle);
        match tied {
            Tied::Refuse if !sharers.is_empty() => return Err(refusal(&sharers)),
            Tied::All => whole(&sharers)?,
            Tied::Refuse | Tied::This => {}
        }
        if tied == Tied::This && sharers.iter().any(|sharer| sharer.handle == handle) {
            self.put_apart(number, with.clone())?;
        } else {
            let others = sharers.iter().map(|sharer| &sharer.handle);
            let others = others.filter(|_| tied == Tied::All);
            self.put_behind(others.chain([&handle]), with)?;
        }
        Ok(sharers.into_iter().map(|sharer| sharer.name).collect())
    }

    /// The other tensors that show bytes of the tensor `number` behind `handle`.
    fn sharers(&self, index: &Index, number: usize, handle: &Handle) -> Vec<Sharer> {
        let own = self.initializers.get(handle).and_then(addresses);
        let tensors = index.tensors().iter().enumerate().filter(|(other, _)| *other != number);
        let sharer = |(_, listed): (usize, &crate::find::Listed)| {
            let other = listed.handle.as_ref()?;
            let range = || self.initializers.get(other).and_then(addresses);
            let whole = other == handle || (own.is_some() && own == range());
            let shared = whole || overlap(own.as_ref()?, &range()?);
            shared.then(|| Sharer { name: listed.name.clone(), handle: other.clone(), whole })
        };
        tensors.filter_map(sharer).collect()
    }

    /// Puts `with` behind `handles`, each in the type and dimensions of what is there: one handle may
    /// stand for tensors of several shapes.
    fn put_behind<'h>(
        &mut self,
        handles: impl Iterator<Item = &'h Handle>,
        with: &Initializer,
    ) -> Result<()> {
        let new = handles.map(|handle| Ok((handle.clone(), self.in_the_form_of(handle, with)?)));
        let new = new.collect::<Result<Vec<_>>>()?;
        self.initializers.extend(new);
        Ok(())
    }

    fn in_the_form_of(&self, handle: &Handle, with: &Initializer) -> Result<Initializer> {
        match self.initializers.get(handle) {
            Some(old) if (old.dtype(), old.dims()) != (with.dtype(), with.dims()) => {
                with.retyped(old.dtype(), old.dims())
            }
            _ => Ok(with.clone()),
        }
    }

    /// Gives the tensor `number` a handle of its own, and puts `with` behind it.
    fn put_apart(&mut self, number: usize, with: Initializer) -> Result<()> {
        let mut names = HandleNames::with(self.initializers.keys());
        names.avoid(&self.model)?;
        let Self { model, initializers, .. } = self;
        let (mut at, mut with) = (0..number, Some(with));
        traversal::tensors_mut(model, |place, proto| {
            if at.next().is_none()
                && let Some(with) = with.take()
            {
                let handle = names.name(place, proto);
                external_data::set_handle(proto, handle.as_str());
                initializers.insert(handle, with);
            }
            Ok(())
        })
    }

    /// Puts the elements of `with` into the message of the tensor `number`.
    fn put_inline(&mut self, number: usize, with: &Tensor) -> Result<()> {
        let (mut at, mut with) = (0..number, Some(with));
        traversal::tensors_mut(&mut self.model, |_, proto| {
            if at.next().is_none()
                && let Some(with) = with.take()
            {
                external_data::clear_payload(proto);
                proto.raw_data = with.buffer().cloned();
                if let Some(strings) = with.strings() {
                    *proto.string_data = strings.to_vec();
                }
            }
            Ok(())
        })
    }

    /// Shows `visit` the tensor `number`.
    fn at(&self, number: usize, visit: impl FnOnce(&TensorProto)) -> Result<()> {
        let (mut at, mut visit) = (0..number, Some(visit));
        traversal::tensors(&self.model, |_, proto| {
            if at.next().is_none()
                && let Some(visit) = visit.take()
            {
                visit(proto);
            }
            Ok(())
        })
    }

    /// The elements of `proto`, in its dimensions.
    fn tensor_of(&self, proto: &TensorProto) -> Result<Tensor> {
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
}

/// A tensor that shows bytes of another.
struct Sharer {
    name: String,
    handle: Handle,
    /// Whether both show just the same bytes.
    whole: bool,
}

/// Where the bytes are, when that can be told.
fn addresses(initializer: &Initializer) -> Option<Range<Address>> {
    let start = initializer.address()?;
    let range = start..start.plus(initializer.byte_len());
    Some(range).filter(|range| !range.is_empty())
}

fn overlap(a: &Range<Address>, b: &Range<Address>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Holds `with` to the type and dimensions of `proto`.
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
    if new.len() > 1 && new.iter().rev().eq(old) {
        reason += ": the new elements are transposed";
    }
    Err(Error::new(ErrorKind::Shape, reason))
}

/// Refuses to change all when one of them shares only a part.
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

fn several(name: &str, numbers: &[usize]) -> Error {
    let reason = format!("{name} stands for {} tensors: name the one that is meant", numbers.len());
    Error::new(ErrorKind::InvalidArgument, reason)
}

/// `find` gives at least one number.
fn first(numbers: &[usize]) -> usize {
    numbers.first().copied().unwrap_or_default()
}

/// For what cannot be: the numbers come from the same walk.
fn gone(name: &str) -> Error {
    Error::new(ErrorKind::MissingTensor, "it is not there").with_tensor(name)
}
