//! The tensors of a model as columns: of very many tensors, columns are a third as long as rows,
//! and are read several times as fast.

use std::collections::HashMap;

use onnx_container::Result;
use onnx_container::summary::Stored;
use serde::Serialize;

use crate::rows::Row;
use crate::values::{Exact, Integers, Text, json};

/// The columns. Numbers in `dtype`, `storage`, `site`, `operator` and `file` are places in the
/// lists of their plural.
#[derive(Serialize)]
struct Columns<'r> {
    name: Vec<Text<'r>>,
    dtypes: Vec<Text<'r>>,
    dtype: Vec<usize>,
    shape: Vec<Integers<'r>>,
    elements: Vec<Option<Exact>>,
    bytes: Vec<Option<Exact>>,
    storages: Vec<Text<'r>>,
    storage: Vec<usize>,
    sites: Vec<Text<'r>>,
    site: Vec<usize>,
    operators: Vec<Text<'r>>,
    operator: Vec<usize>,
    /// The place in the list of files; `None` for tensors in the model.
    file: Vec<Option<usize>>,
    offset: Vec<Option<Exact>>,
    /// The length in the file, in bytes.
    stored: Vec<Option<Exact>>,
    /// The tensor whose bytes it has.
    shares: Vec<Option<usize>>,
}

/// The columns of `rows`, whose files are in the order of `files`.
pub(crate) fn columns(rows: &[Row], files: &[String]) -> Result<String> {
    let by_file: HashMap<&str, usize> =
        files.iter().enumerate().map(|(number, file)| (file.as_str(), number)).collect();
    let file = |row: &Row| by_file.get(row.range.as_ref()?.file.as_str()).copied();
    let (dtypes, dtype) = numbered(rows.iter().map(|row| row.tensor.dtype.as_str()));
    let (storages, storage) = numbered(rows.iter().map(|row| storage(&row.tensor.stored)));
    let (sites, site) = numbered(rows.iter().map(|row| row.tensor.site.as_str()));
    let operators = rows.iter().map(|row| row.tensor.operator.as_deref().unwrap_or_default());
    let (operators, operator) = numbered(operators);
    let exact = |number: u64| Exact(number.into());
    json(&Columns {
        name: rows.iter().map(|row| Text(&row.name)).collect(),
        dtypes,
        dtype,
        shape: rows.iter().map(|row| Integers(&row.tensor.shape)).collect(),
        elements: rows.iter().map(|row| row.tensor.elements.map(exact)).collect(),
        bytes: rows.iter().map(|row| row.tensor.bytes.map(exact)).collect(),
        storages,
        storage,
        sites,
        site,
        operators,
        operator,
        file: rows.iter().map(file).collect(),
        offset: rows.iter().map(|row| Some(exact(row.range.as_ref()?.offset))).collect(),
        stored: rows.iter().map(|row| Some(exact(row.range.as_ref()?.bytes))).collect(),
        shares: rows.iter().map(|row| row.shares).collect(),
    })
}

/// Where the elements are, in words.
fn storage(stored: &Stored) -> &str {
    match stored {
        Stored::Inline { field } => field,
        Stored::External { .. } => "external",
        Stored::Nowhere => "removed",
        Stored::Handle { .. } => "memory",
        _ => "invalid",
    }
}

/// The different texts in the order of their first use, and the number of each text among them.
fn numbered<'t>(texts: impl Iterator<Item = &'t str>) -> (Vec<Text<'t>>, Vec<usize>) {
    let (mut all, mut known) = (Vec::new(), HashMap::new());
    let number = |text: &'t str| {
        *known.entry(text).or_insert_with(|| {
            all.push(Text(text));
            all.len() - 1
        })
    };
    let numbers = texts.map(number).collect();
    (all, numbers)
}
