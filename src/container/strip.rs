//! [`Container::strip`]: a model without the elements of its weights.
//!
//! The graph, the types and the dimensions stay, for viewers, for reports of bugs and for a history
//! of versions. Each tensor that loses its elements names a range of one file that is not there, so
//! that tied tensors stay tied and every reader says what is missing. Tensors that shape inference
//! reads stay. Putting weights back is left to `attach_model`.

use std::collections::HashMap;
use std::ops::Range;

use crate::container::Container;
use crate::container::externalize::{ExternalizeOptions, Kept, Verdict};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{
    self, ExternalData, STRIPPED, is_external, is_stripped, set_inline, set_range, without_dots,
};
use crate::graph::operands::{ShapeOperands, ShapeUse};
use crate::graph::stored_digests::has_digests;
use crate::graph::traversal::{self, Place, Position};
use crate::proto::{ModelProto, Str, TensorProto};
use crate::tensor::Tensor;

/// What [`Container::strip`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stripped {
    /// The number of tensors without elements.
    pub stripped: usize,
    /// The length of their elements in bytes, those of tied tensors once.
    pub bytes: u64,
    /// The number of tensors that keep their elements because they are smaller than
    /// [`min_bytes`](ExternalizeOptions::min_bytes). Those that readers need do not count.
    pub small: usize,
    /// The length of the elements of the `small` tensors in bytes.
    pub small_bytes: u64,
    /// Tensors that stay inline although they are large enough.
    pub kept: Vec<Kept>,
    /// Tensors among the stripped ones that shape inference reads: they are external, and their
    /// elements were not loaded. Where they are loaded, such tensors become inline.
    pub operands: Vec<String>,
}

impl Container {
    /// Takes the elements of all external tensors away, and those of the inline tensors that
    /// [`externalize`](Self::externalize) moves out with these options. Types and dimensions stay,
    /// and so do stored digests of a model that was loaded without weights.
    ///
    /// No weight is read. The handles are removed, so the container holds no weights any more; a
    /// save writes the model file alone. [`attach_model`](Self::attach_model) puts weights back.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", vec![1.0_f32, 2.0])?;
    /// let original = container.clone();
    ///
    /// let stripped = container.strip(1024)?; // also inline tensors of so many bytes
    /// assert_eq!((stripped.stripped, stripped.bytes), (1, 8));
    /// assert!(container.is_stripped() && container.is_empty());
    /// container.attach_model(&original, Default::default())?;
    /// assert_eq!(container.digest()?, original.digest()?);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// One error for all tensors that are not valid; the container is then unchanged.
    pub fn strip(&mut self, options: impl Into<ExternalizeOptions>) -> Result<Stripped> {
        self.stripped(&options.into(), None)
    }

    /// As [`strip`](Self::strip), of a model that was loaded without weights, so that it has its
    /// stored digests still; tensors that shape inference reads have their elements from `loaded`,
    /// which is the same model with its weights.
    ///
    /// # Errors
    /// Those of [`strip`](Self::strip).
    pub fn strip_with(
        &mut self,
        options: impl Into<ExternalizeOptions>,
        loaded: &Self,
    ) -> Result<Stripped> {
        loaded.check_nesting()?;
        self.stripped(&options.into(), Some(loaded))
    }

    fn stripped(
        &mut self,
        options: &ExternalizeOptions,
        loaded: Option<&Self>,
    ) -> Result<Stripped> {
        self.check_nesting()?;
        let Plan { changes, report, .. } = Plan::of(self, options, loaded)?;
        // Not by way of a change of the model, which drops digests: they are those of the weights
        // that are put back.
        let mut model = ModelProto::clone(&self.model);
        let location = Str::from(STRIPPED);
        for (place, tensor) in traversal::iter_mut(&mut model) {
            match changes.get(&place.position) {
                Some(Change::Strip(range)) => set_range(tensor, (&location, None), range),
                Some(Change::Inline(elements)) => {
                    let bytes = elements.buffer().cloned();
                    let bytes = bytes.ok_or_else(|| Error::internal("a tensor without bytes"))?;
                    set_inline(tensor, bytes);
                }
                None => {}
            }
        }
        self.had_digests &= !has_digests(&model);
        self.model = model.into();
        self.initializers.clear();
        Ok(report)
    }

    /// Whether tensors of the model have lost their elements by [`strip`](Self::strip).
    pub fn is_stripped(&self) -> bool {
        traversal::iter(&self.model).any(|(_, tensor)| is_without_elements(tensor))
    }
}

/// Whether `tensor` is one whose elements were taken away.
pub(crate) fn is_without_elements(tensor: &TensorProto) -> bool {
    is_external(tensor)
        && ExternalData::parse(tensor).is_ok_and(|entry| is_stripped(&entry.location))
}

/// What becomes of a tensor.
enum Change {
    /// It names this range (bytes) of the file that is not there.
    Strip(Range<u64>),
    /// Shape inference reads it, so it has its elements in the model.
    Inline(Tensor),
}

/// Where the elements of external tensors are: tensors of one place are tied.
type Stored = (String, u64, u64);

struct Plan<'c> {
    container: &'c Container,
    /// The same model with its weights, and its tensors by their positions.
    loaded: Option<(&'c Container, HashMap<Position, &'c TensorProto>)>,
    options: &'c ExternalizeOptions,
    operands: ShapeOperands,
    changes: HashMap<Position, Change>,
    /// The offset of the elements that were in each place.
    offsets: HashMap<Stored, u64>,
    end: u64,
    report: Stripped,
}

impl<'c> Plan<'c> {
    fn of(
        container: &'c Container,
        options: &'c ExternalizeOptions,
        loaded: Option<&'c Container>,
    ) -> Result<Self> {
        let loaded = loaded.map(|loaded| {
            let tensors = traversal::iter(&loaded.model);
            (loaded, tensors.map(|(place, tensor)| (place.position, tensor)).collect())
        });
        let (changes, offsets) = (HashMap::new(), HashMap::new());
        let operands = ShapeOperands::of(&container.model);
        let (end, report) = (0, Stripped::default());
        let mut plan = Self { container, loaded, options, operands, changes, offsets, end, report };
        let mut errors = Errors::default();
        for (place, tensor) in traversal::iter(&container.model) {
            if let Err(error) = plan.tensor(&place, tensor) {
                errors.push(error.with_tensor(place.qualified_name(tensor)));
            }
        }
        plan.report.bytes = plan.end;
        errors.join().map_or(Ok(plan), Err)
    }

    fn tensor(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Result<()> {
        if is_external(tensor) {
            return self.external(place, tensor);
        }
        match self.options.judge(place, tensor, &self.operands)? {
            Verdict::Out => {
                let (_, len) = external_data::layout(tensor)?;
                let offset = self.reserve(len)?;
                self.strip(place, offset, len);
            }
            Verdict::Keep(reason, bytes) => {
                let tensor = place.qualified_name(tensor);
                self.report.kept.push(Kept { tensor, bytes, reason });
            }
            Verdict::Stay => self.small(place, tensor)?,
        }
        Ok(())
    }

    /// Counts an inline `tensor` that is below the threshold and would go without it.
    fn small(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Result<()> {
        let all = self.options.min_bytes(0);
        if matches!(all.judge(place, tensor, &self.operands)?, Verdict::Out) {
            let (_, len) = external_data::layout(tensor)?;
            self.report.small += 1;
            self.report.small_bytes = self.report.small_bytes.saturating_add(len);
        }
        Ok(())
    }

    fn external(&mut self, place: &Place<'_>, tensor: &TensorProto) -> Result<()> {
        let entry = ExternalData::parse(tensor)?;
        let (_, len) = external_data::layout(tensor)?;
        let range = entry.range(len)?;
        if self.is_operand(tensor) {
            if let Some(elements) = self.elements(place, tensor) {
                self.changes.insert(place.position, Change::Inline(elements));
                return Ok(());
            }
            self.report.operands.push(place.qualified_name(tensor));
        }
        let stored = (without_dots(&entry.location), range.start, len);
        let offset = match self.offsets.get(&stored) {
            Some(offset) => *offset,
            None => {
                let offset = self.reserve(len)?;
                self.offsets.insert(stored, offset);
                offset
            }
        };
        self.strip(place, offset, len);
        Ok(())
    }

    /// The elements of `tensor`, if they are loaded.
    fn elements(&self, place: &Place<'_>, tensor: &TensorProto) -> Option<Tensor> {
        let own = self.container.resolve(tensor).ok();
        own.or_else(|| {
            let (container, tensors) = self.loaded.as_ref()?;
            let same = tensors.get(&place.position).filter(|same| same.name == tensor.name)?;
            let elements = container.resolve(same).ok()?;
            let dtype = DataType::try_from(tensor.data_type.unwrap_or(0)).ok();
            let is_same = Some(elements.dtype()) == dtype && *elements.dims() == *tensor.dims;
            is_same.then_some(elements)
        })
    }

    fn is_operand(&self, tensor: &TensorProto) -> bool {
        let used = self.operands.shape_use(tensor);
        matches!(used, Some(ShapeUse::Operand | ShapeUse::Derived))
    }

    fn strip(&mut self, place: &Place<'_>, offset: u64, len: u64) {
        self.report.stripped += 1;
        let range = offset..offset.saturating_add(len);
        self.changes.insert(place.position, Change::Strip(range));
    }

    /// The offset of `len` more bytes.
    fn reserve(&mut self, len: u64) -> Result<u64> {
        let offset = self.end;
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        self.end = end.ok_or_else(|| {
            Error::new(ErrorKind::TooLarge, "the weights have more than 2^63 bytes together")
        })?;
        Ok(offset)
    }
}
