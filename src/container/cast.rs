//! [`Container::cast`]: weights of one float type stored as another.
//!
//! Most of a model's bytes are weights, and half of their bits are often enough. A weight that is
//! cast is stored as the other type, and a `Cast` node converts it back before it is used. So the
//! graph computes in the same type as before and stays valid whatever operators it has, also with
//! those that take one type only (`Resize`, `Range`, ...). `convert` converts the numbers when a
//! save or a reader reads them, and `graph` adds the nodes.

mod at_run_time;
mod compute;
mod computed;
mod convert;
mod graph;
mod options;
mod overflow;
mod types;
mod unknown;

use std::collections::{HashMap, HashSet};

use crate::buffer::Buffer;
use crate::container::{Container, Handle, HandleNames};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{self, ExternalData, is_external};
use crate::graph::operands::{ShapeOperands, ShapeUse};
use crate::graph::traversal::{self, Place, Position, Site};
use crate::proto::{GraphProto, ModelProto, Str, TensorProto};
use crate::tensor::Tensor;
use crate::tensor::initializer::{Address, Initializer};
use computed::Computed;
use convert::{Converted, Float};
use graph::{Renamed, Values, add_casts, check_opsets};
use options::float;
use overflow::Overflow;

pub use options::{CastOptions, CastReport, NotCast, NotCastReason};
pub use unknown::unknown_operators;

impl Container {
    /// Stores the weights of one float type as another, `to`: FLOAT, FLOAT16 or BFLOAT16.
    ///
    /// Each weight that is cast gets a new name, and a `Cast` node computes the value of the old
    /// name from it. The graph computes in the same type as before, with rounded weights; runtimes
    /// that fold constants run these nodes once, when they load the model. Numbers are rounded to
    /// the nearest, ties to even, and numbers beyond the largest value become infinite, as in numpy
    /// and ml_dtypes; [`CastReport::infinite`] lists the weights that have some.
    ///
    /// Weights behind handles are converted when a save reads them, a piece at a time, so the
    /// memory needed does not depend on the size of the model. Inline weights are converted by this
    /// call.
    ///
    /// Weights are initializers, sparse ones too, and the tensors of `Constant` nodes, in the main
    /// graph, its subgraphs and the bodies of functions. [`CastOptions`] choose among them, and
    /// [`NotCast`] lists those of their type and length that are left as they are.
    ///
    /// ```
    /// use ndarray::array;
    /// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto};
    /// use onnx_container::edit::CastOptions;
    /// use onnx_container::{Container, DataType};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    /// graph.node.push(NodeProto::new("Add", ["x", "w"], ["y"]));
    /// let mut model = ModelProto::new(graph);
    /// model.opset_import.push(OperatorSetIdProto::new("", 21));
    /// let mut container = Container::new(model);
    /// container.insert("#w", array![1.0_f32, 2.5])?;
    ///
    /// let report = container.cast(DataType::Float16, CastOptions::new().min_bytes(0))?;
    /// assert_eq!((report.cast, report.bytes_before, report.bytes_after), (1, 8, 4));
    /// let graph = container.model().graph.as_ref().unwrap();
    /// assert_eq!(graph.initializer[0].name.as_ref().unwrap(), "w_float16");
    /// assert_eq!(graph.node[0].output[0], "w"); // Cast(w_float16): what the Add takes
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for another type; [`ErrorKind::Unsupported`] for a model with
    /// training graphs, and when the operator set of the model, or of a function, has no `Cast` for
    /// these types (version 5 and below; 12 and below for BFLOAT16); one error for all tensors that
    /// are not valid, or whose weights were not loaded; [`ErrorKind::InvalidArgument`] when there
    /// is nothing to cast. On an error the container is unchanged.
    pub fn cast(&mut self, to: DataType, options: impl Into<CastOptions>) -> Result<CastReport> {
        self.check_nesting()?;
        let options = options.into();
        let (from, to) = (options.sources_for(to)?, float(to)?);
        if !self.model.training_info.is_empty() {
            let reason = "weights of a model with training graphs are not cast";
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        let mut planner = Planner::new(self, &options, from.clone(), to)?;
        let mut errors = Errors::default();
        for (place, tensor) in traversal::iter(&self.model) {
            if let Err(error) = planner.look_at(&place, tensor) {
                errors.push(error.with_tensor(place.qualified_name(tensor)));
            }
        }
        if let Some(error) = errors.join() {
            return Err(error);
        }
        let Planner { changes, mut report, values, .. } = planner;
        if changes.is_empty() && !options.compute {
            return Err(nothing_to_cast(&options, &from, to, &report.uncast));
        }
        let compute = match options.compute {
            true => Some((values.names, graph::node_names(&self.model)?)),
            false => None,
        };
        check_nodes_back(&self.model, &changes, &from, to)?;
        if compute.is_some() {
            check_opsets(&self.model, options.given_source().as_slice(), to)?;
        }
        // Without weights to cast, types of values may change, or nothing may.
        let before = changes.is_empty().then(|| self.model.graph.clone());
        let renamed = self.apply(changes)?;
        let mut casts = HashSet::new();
        if let Some(names) = compute {
            let model = &mut *self.model;
            let conversion = compute::Conversion::new(
                (options.keep_io, &options.keep_ops),
                from.clone(),
                to,
                &renamed,
                names,
                Computed::with(&model.functions),
            );
            let version = graph::version(&model.opset_import);
            let graph = model.graph.as_mut();
            let done = graph.map(|graph| conversion.convert(graph, version)).unwrap_or_default();
            (report.nodes, report.kept_nodes, report.calls) = (done.nodes, done.kept, done.calls);
            casts = done.casts;
        }
        let is_none = |before: &Option<Box<GraphProto>>| match options.keep_io {
            true => report.nodes == 0,
            false => *before == self.model.graph,
        };
        if let Some(graph) = before.filter(is_none) {
            self.model.graph = graph;
            return Err(nothing_to_cast(&options, &from, to, &report.uncast));
        }
        at_run_time::list(self, &casts, to, &mut report.overflows)?;
        // With `compute`, the main graph uses the cast weights directly; bodies of functions need
        // nodes.
        let graph = self.model.graph.take_if(|_| options.compute);
        add_casts(&mut self.model, &renamed)?;
        self.model.graph = graph.or(self.model.graph.take());
        Ok(report)
    }

    fn apply(&mut self, changes: Vec<Change>) -> Result<Renamed> {
        let (mut renamed, mut left) = (Renamed::new(), HashSet::new());
        let mut changes = changes.into_iter().peekable();
        for (place, tensor) in traversal::iter_mut(&mut self.model) {
            let Some(change) = changes.next_if(|change| change.position == place.position) else {
                continue;
            };
            let Change { old, new, from, to, data, .. } = change;
            tensor.name = Some(new.clone());
            tensor.data_type = Some(to.dtype().number());
            renamed.insert(new, (old, from.dtype()));
            match data {
                NewData::Inline(bytes) => external_data::set_inline(tensor, bytes),
                NewData::External { replaces, handle, initializer } => {
                    external_data::set_handle(tensor, handle.as_str());
                    self.initializers.insert(handle, initializer);
                    left.insert(replaces);
                }
            }
        }
        for (_, tensor) in traversal::iter(&self.model).filter(|(_, tensor)| is_external(tensor)) {
            if let Ok(entry) = ExternalData::parse(tensor) {
                left.remove(entry.location.as_str());
            }
        }
        self.initializers.retain(|handle, _| !left.contains(handle));
        Ok(renamed)
    }
}

/// Checks that the operator sets have the `Cast` that turns each of the `changes` back.
fn check_nodes_back(
    model: &ModelProto,
    changes: &[Change],
    from: &[Float],
    to: Float,
) -> Result<()> {
    for from in from {
        let Some(change) = changes.iter().find(|change| change.from == *from) else { continue };
        check_opsets(model, &[*from], to)
            .map_err(|error| error.with_tensor(change.old.to_string_lossy()))?;
    }
    Ok(())
}

/// The error when no weight is cast.
fn nothing_to_cast(options: &CastOptions, from: &[Float], to: Float, uncast: &[NotCast]) -> Error {
    let from: Vec<_> = from.iter().map(|from| from.dtype().to_string()).collect();
    let (from, to) = (from.join(" or "), to.dtype());
    let why = match uncast {
        [] => format!("no weights of {from} have at least {} bytes", options.min_bytes),
        [NotCast { tensor, reason }] => format!("1 weight of {from} stays, `{tensor}`: {reason}"),
        [NotCast { tensor, reason }, ..] => {
            format!("{} weights of {from} stay, such as `{tensor}`: {reason}", uncast.len())
        }
    };
    Error::new(ErrorKind::InvalidArgument, format!("nothing is cast to {to}: {why}"))
}

/// The change of one tensor.
struct Change {
    position: Position,
    old: Str,
    new: Str,
    from: Float,
    to: Float,
    data: NewData,
}

enum NewData {
    Inline(Buffer),
    External { replaces: Handle, handle: Handle, initializer: Initializer },
}

/// Looks at every tensor of a container, and plans the changes.
struct Planner<'c> {
    container: &'c Container,
    options: &'c CastOptions,
    from: Vec<Float>,
    to: Float,
    operands: ShapeOperands,
    values: Values,
    handles: HandleNames,
    /// The weights cast so far, by their old handles.
    cast: HashMap<&'c Handle, (Handle, Initializer, Overflow)>,
    /// The weights cast so far, by the address and length of their bytes: tied weights stay tied.
    same: HashMap<(Address, u64, Float), (Initializer, Overflow)>,
    changes: Vec<Change>,
    report: CastReport,
}

impl<'c> Planner<'c> {
    fn new(
        container: &'c Container,
        options: &'c CastOptions,
        from: Vec<Float>,
        to: Float,
    ) -> Result<Self> {
        let mut handles = HandleNames::with(container.initializers.keys());
        handles.avoid(&container.model)?;
        Ok(Self {
            container,
            options,
            from,
            to,
            operands: ShapeOperands::of(&container.model),
            values: Values::of(&container.model)?,
            handles,
            cast: HashMap::new(),
            same: HashMap::new(),
            changes: Vec::new(),
            report: CastReport::default(),
        })
    }

    fn look_at(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Result<()> {
        let dtype = DataType::try_from(tensor.data_type.unwrap_or(0))?;
        let Some(from) = Float::of(dtype).filter(|from| self.from.contains(from)) else {
            return Ok(());
        };
        if is_external(tensor) {
            self.container.initializer_of(tensor)?;
        }
        let len = dtype.byte_len(&tensor.dims)?;
        let small = len == 0 || len < self.options.min_bytes;
        if from == self.to || small {
            return Ok(());
        }
        let name = match self.options.chooses(place, tensor) {
            true => self.old_name(place, tensor),
            false => Err(NotCastReason::Excepted),
        };
        match name {
            Ok(old) => self.change(place, tensor, from, old),
            Err(reason) => {
                let tensor = place.qualified_name(tensor);
                self.report.uncast.push(NotCast { tensor, reason });
                Ok(())
            }
        }
    }

    /// The name of the value that a tensor is, or why it is not cast.
    fn old_name(&self, place: &Place<'_>, tensor: &TensorProto) -> Result<Str, NotCastReason> {
        let constant = place.op_type.is_some_and(|op| *op == "Constant");
        let is_value =
            |attribute: &str| constant && place.attribute.is_some_and(|a| *a == attribute);
        let name = match place.site {
            Site::Initializer | Site::SparseValues => tensor.name.as_ref(),
            Site::Attribute if is_value("value") => place.output,
            Site::SparseAttributeValues if is_value("sparse_value") => place.output,
            _ => return Err(NotCastReason::Attribute),
        };
        let name = name.filter(|name| !name.is_empty()).ok_or(NotCastReason::Nameless)?;
        if constant && !self.values.constants.contains(name) {
            return Err(NotCastReason::Attribute);
        }
        if !constant && self.values.inputs.contains(name) {
            return Err(NotCastReason::GraphInput);
        }
        if self.values.hides(tensor) {
            return Err(NotCastReason::HidesValue);
        }
        match self.operands.shape_use(tensor) {
            Some(ShapeUse::Operand | ShapeUse::Derived) => Err(NotCastReason::ShapeOperand),
            _ => Ok(name.clone()),
        }
    }

    fn change(
        &mut self,
        place: &Place<'_>,
        tensor: &TensorProto,
        from: Float,
        old: Str,
    ) -> Result<()> {
        let suffix = format!("_{}", self.to.dtype().to_string().to_lowercase());
        let new = Str::from(self.values.names.name(&old.to_string_lossy(), &suffix));
        let data = match is_external(tensor) {
            true => self.external(place, tensor, from, &new)?,
            false => {
                let len = from.dtype().byte_len(&tensor.dims)?;
                let weight = Tensor::try_from(tensor)?.into();
                let overflow = Overflow::default();
                self.list(place, tensor, overflow.clone());
                let converted = Converted::initializer(weight, from, self.to, overflow)?;
                self.count_bytes(len, &converted);
                NewData::Inline(converted.to_buffer()?)
            }
        };
        self.report.cast += 1;
        let (position, to) = (place.position, self.to);
        self.changes.push(Change { position, old, new, from, to, data });
        Ok(())
    }

    /// Lists a weight with what will be known of its numbers.
    fn list(&mut self, place: &Place<'_>, tensor: &TensorProto, overflow: Overflow) {
        self.report.overflows.push(place.qualified_name(tensor), overflow);
    }

    /// Counts the bytes of a weight, `before` and as it is `converted`. Tied weights are counted
    /// once, as they are stored once.
    fn count_bytes(&mut self, before: u64, converted: &Initializer) {
        self.report.bytes_before = self.report.bytes_before.saturating_add(before);
        self.report.bytes_after = self.report.bytes_after.saturating_add(converted.byte_len());
    }

    fn external(
        &mut self,
        place: &Place<'_>,
        tensor: &TensorProto,
        from: Float,
        new: &Str,
    ) -> Result<NewData> {
        let (replaces, weight) = self.container.initializer_of(tensor)?;
        if let Some((handle, initializer, overflow)) = self.cast.get(replaces).cloned() {
            self.list(place, tensor, overflow);
            return Ok(NewData::External { replaces: replaces.clone(), handle, initializer });
        }
        let key = weight.address().map(|address| (address, weight.byte_len(), from));
        let known = key.and_then(|key| self.same.get(&key)).cloned();
        let (initializer, overflow) = match known {
            Some((known, overflow)) => (known.retyped(self.to.dtype(), weight.dims())?, overflow),
            None => {
                let overflow = Overflow::default();
                let (source, noted) = (weight.clone(), overflow.clone());
                let converted = Converted::initializer(source, from, self.to, noted)?;
                self.count_bytes(weight.byte_len(), &converted);
                (converted, overflow)
            }
        };
        self.list(place, tensor, overflow.clone());
        if let Some(key) = key {
            self.same.entry(key).or_insert_with(|| (initializer.clone(), overflow.clone()));
        }
        let mut called = TensorProto::default();
        called.name = Some(new.clone());
        let handle = self.handles.name(place, &called);
        self.cast.insert(replaces, (handle.clone(), initializer.clone(), overflow));
        Ok(NewData::External { replaces: replaces.clone(), handle, initializer })
    }
}
