//! Bytes and parameters by module, as `du` has them by folder.

use std::io;

use onnx_container::ByteSize;
use onnx_container::summary::Module;
use serde::Serialize;

use crate::terminal::output::Output;

/// How many parts of a name are shown, unless `--depth` says otherwise.
const DEPTH: usize = 2;

/// A module, or a tensor, with all that is in it.
#[derive(Debug, Serialize)]
pub struct ModuleRow {
    /// The parts of its name with `.` between them; empty for all of the model.
    pub path: String,
    /// The number of these parts.
    pub depth: usize,
    pub tensors: usize,
    pub parameters: u64,
    pub bytes: u64,
}

/// The modules below `root` down to a depth, each before what is in it.
pub fn rows(root: &Module, depth: Option<usize>) -> Vec<ModuleRow> {
    let mut rows = Vec::new();
    add(root, String::new(), 0, depth.unwrap_or(DEPTH), &mut rows);
    rows
}

fn add(module: &Module, path: String, depth: usize, most: usize, rows: &mut Vec<ModuleRow>) {
    let Module { tensors, parameters, bytes, .. } = *module;
    let below =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let children: Vec<_> = match depth < most {
        true => module.children.iter().map(|child| (child, below(&child.name))).collect(),
        false => Vec::new(),
    };
    rows.push(ModuleRow { path, depth, tensors, parameters, bytes });
    for (child, path) in children {
        add(child, path, depth + 1, most, rows);
    }
}

/// Prints the modules.
pub fn print(rows: &[ModuleRow], out: &mut Output) -> io::Result<()> {
    out.line(format_args!("{:>10}  {:>14}  {:>8}  MODULE", "SIZE", "PARAMETERS", "TENSORS"))?;
    for row in rows {
        let name = if row.path.is_empty() { "(all)" } else { &row.path };
        let (bytes, parameters, tensors) = (ByteSize(row.bytes), row.parameters, row.tensors);
        out.line(format_args!("{bytes:>10}  {parameters:>14}  {tensors:>8}  {name}"))?;
    }
    Ok(())
}
