//! What the operator of a node is by the schemas of ONNX, and whether the node is as its schema
//! says.

use onnx_container_proto::DataType;

use super::{Attribute, Attributes, Node};
use crate::error::{Error, ErrorKind, Result};
use crate::program::schema::{Meaning, Written};
use crate::value::Type;

impl Node {
    /// Whether the node has what its operator takes: attributes, and how many inputs and outputs.
    ///
    /// # Errors
    /// What it has that the operator has not, or the other way round; or why no such operator is
    /// known.
    #[doc(hidden)]
    pub fn check_written(&self) -> Result<()> {
        let attributes = self.attributes.iter().map(|(name, value)| (name, value.letter()));
        self.meaning.check(&Written {
            domain: &self.domain,
            op_type: &self.op_type,
            version: self.version,
            attributes: attributes.collect(),
            inputs: self.inputs.iter().map(Option::is_some).collect(),
            outputs: self.outputs.len(),
        })
    }

    /// Whether the node has no more outputs than the `given` number, which its operator or its
    /// graph gives for it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`](crate::ErrorKind::InvalidModel) when it has more.
    #[doc(hidden)]
    pub fn check_outputs(&self, given: usize) -> Result<()> {
        let named = self.outputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        if named > given {
            let reason = format!("the node has {named} outputs, and only {given} are computed");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
        Ok(())
    }

    /// Whether the operator takes inputs of these types, as far as `types` knows them.
    ///
    /// # Errors
    /// [`ErrorKind::Type`](crate::ErrorKind::Type) for the first that it does not take.
    #[doc(hidden)]
    pub fn check_types(&self, types: impl Fn(usize) -> Option<Type>) -> Result<()> {
        match self.meaning {
            Meaning::Schema(schema) => schema.check_types(self.inputs.len(), types),
            _ => Ok(()),
        }
    }

    /// The types of the outputs when inputs have these types, as far as that tells them.
    ///
    /// # Errors
    /// As [`check_types`](Self::check_types).
    #[doc(hidden)]
    pub fn output_types(&self, types: impl Fn(usize) -> Option<Type>) -> Result<Vec<Option<Type>>> {
        let counts = (self.inputs.len(), self.outputs.len());
        match self.meaning {
            Meaning::Schema(schema) => schema.output_types(counts, types, stated(&self.attributes)),
            _ => Ok(vec![None; self.outputs.len()]),
        }
    }
}

/// The element type that an attribute states.
fn stated(attributes: &Attributes) -> Option<DataType> {
    let number = |name| match attributes.get(name)? {
        Attribute::Int(number) => DataType::try_from(i32::try_from(*number).ok()?).ok(),
        Attribute::Tensor(tensor) => Some(tensor.dtype()),
        _ => None,
    };
    // Without a type here, `output_dtype` says that the type of an input is meant.
    let is_stated = |dtype: &DataType| *dtype != DataType::Undefined;
    let quantized = number("output_dtype").filter(is_stated);
    let names = ["to", "dtype", "output_datatype", "stash_type", "value"];
    names.into_iter().find_map(number).or(quantized)
}
