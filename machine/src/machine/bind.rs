//! Inputs: each is checked against what the graph declares for it. `places` puts them into M.

use std::collections::HashMap;

use super::Machine;
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::memory::table::Entry;
use crate::program::{Declared, Dim};
use crate::value::Value;

impl Machine {
    /// Gives the input called `name` its value. The value stays outside of M until
    /// [`place_inputs`](Self::place_inputs) copies its elements there. An input with an initializer
    /// may be left out.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] when the graph has no such input or it is bound already, or after the
    /// first step; [`ErrorKind::Type`] and [`ErrorKind::Shape`] when the value is not what the
    /// graph declares, or a symbolic dimension has another size in another input. That M has no
    /// room for the value is an error of the placing.
    pub fn bind(&mut self, name: &str, value: Value) -> Result<()> {
        self.bind_value(name, value).map_err(|error| error.with_value(name))
    }

    fn bind_value(&mut self, name: &str, value: Value) -> Result<()> {
        let main = &self.program.main;
        let declared = self.inputs.get(name).and_then(|i| main.inputs.get(*i));
        let declared = declared.ok_or_else(|| self.no_such_input())?;
        if self.pc > 0 || self.bound.contains(&declared.value) {
            let when = if self.pc > 0 { "after the first step" } else { "twice" };
            return Err(Error::new(ErrorKind::Input, format!("the input is given {when}")));
        }
        check(declared, &value, &mut self.symbols)?;
        let id = declared.value;
        let default = self.table.set(id, Entry::Outside(value));
        self.runner.release(default);
        self.bound.insert(id);
        self.is_placed = false;
        Ok(())
    }

    fn no_such_input(&self) -> Error {
        let main = &self.program.main;
        let names: Vec<_> = main.inputs.iter().map(|input| main.name(input.value)).collect();
        let reason = format!("the graph has no such input; it has {}", names.join(", "));
        Error::new(ErrorKind::Input, reason)
    }

    /// Every input that is neither bound nor has an initializer.
    pub(super) fn check_inputs(&self) -> Result<()> {
        let main = &self.program.main;
        let missing = main.inputs.iter().filter(|input| self.table.get(input.value).is_none());
        let errors = missing.map(|input| {
            Error::new(ErrorKind::Input, "the input is missing").with_value(main.name(input.value))
        });
        errors.collect::<Errors>().join().map_or(Ok(()), Err)
    }
}

/// Checks `value` against what is declared; `symbols` has the sizes of symbolic dimensions so far.
fn check(declared: &Declared, value: &Value, symbols: &mut HashMap<String, usize>) -> Result<()> {
    if let Some(ty) = declared.ty.as_ref().filter(|ty| **ty != value.ty()) {
        let reason = format!("the graph declares {ty}, the value is {}", value.ty());
        return Err(Error::new(ErrorKind::Type, reason));
    }
    let (Some(dims), Value::Tensor(tensor)) = (&declared.dims, value) else { return Ok(()) };
    let shape = tensor.shape();
    if dims.len() != shape.len() {
        let reason =
            format!("the graph declares {} dimensions, the shape is {shape:?}", dims.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    for (i, (dim, size)) in dims.iter().zip(&shape).enumerate() {
        let declared = match dim {
            Dim::Fixed(declared) => *declared,
            Dim::Symbol(name) => *symbols.entry(name.clone()).or_insert(*size),
            Dim::Unknown => *size,
        };
        if declared != *size {
            let name =
                if let Dim::Symbol(name) = dim { format!(" (`{name}`)") } else { String::new() };
            let reason = format!("dimension {i}{name} is {size} in {shape:?}, not {declared}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
    }
    Ok(())
}
