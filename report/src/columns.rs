//! The tensors of a model as columns: of very many tensors, columns are a third as long as rows,
//! and are read several times as fast.

use std::collections::HashMap;

use onnx_container::Result;
use onnx_container::summary::Stored;
use serde::{Serialize, Serializer};

use crate::files::WeightsFile;
use crate::rows::Row;
use crate::values::{Exact, Integers, Object, Text};

/// One cell of each row, written without a list of them in memory.
struct Cells<'r, C>(&'r [Row], C);

impl<'r, T: Serialize, C: Fn(&'r Row) -> T> Serialize for Cells<'r, C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(&self.1))
    }
}

fn cells<'r, T: Serialize, C: Fn(&'r Row) -> T>(rows: &'r [Row], cell: C) -> Cells<'r, C> {
    Cells(rows, cell)
}

/// Writes the columns of `rows`, whose files are in the order of `files`. Numbers in `dtype`,
/// `storage`, `site`, `operator` and `file` are places in the lists of their plural.
pub(crate) fn columns(mut to: Object<'_>, rows: &[Row], files: &[WeightsFile]) -> Result<()> {
    let by_file: HashMap<&str, usize> =
        files.iter().enumerate().map(|(number, file)| (file.location.as_str(), number)).collect();
    let (dtypes, dtype) = numbered(rows.iter().map(|row| row.tensor.dtype.as_str()));
    let (storages, storage) = numbered(rows.iter().map(|row| storage(&row.tensor.stored)));
    let (sites, site) = numbered(rows.iter().map(|row| row.tensor.site.as_str()));
    let operators = rows.iter().map(|row| row.tensor.operator.as_deref().unwrap_or_default());
    let (operators, operator) = numbered(operators);
    let exact = |number: u64| Exact(number.into());
    to.add("name", &cells(rows, name))?;
    to.add("dtypes", &dtypes)?;
    to.add("dtype", &dtype)?;
    to.add("shape", &cells(rows, shape))?;
    to.add("elements", &cells(rows, |row| row.tensor.elements.map(exact)))?;
    to.add("bytes", &cells(rows, |row| row.tensor.bytes.map(exact)))?;
    to.add("storages", &storages)?;
    to.add("storage", &storage)?;
    to.add("sites", &sites)?;
    to.add("site", &site)?;
    to.add("operators", &operators)?;
    to.add("operator", &operator)?;
    // Null for tensors in the model, as the places and lengths in files are.
    to.add("file", &cells(rows, |row| by_file.get(row.range.as_ref()?.file.as_str())))?;
    to.add("offset", &cells(rows, |row| Some(exact(row.range.as_ref()?.offset))))?;
    to.add("stored", &cells(rows, |row| Some(exact(row.range.as_ref()?.bytes))))?;
    to.add("shares", &cells(rows, |row| row.shares))?;
    to.end()
}

fn name(row: &Row) -> Text<'_> {
    Text(&row.name)
}

fn shape(row: &Row) -> Integers<'_> {
    Integers(&row.tensor.shape)
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
