//! `diff A B`: what differs between two models, first what the messages say, then tensors.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use onnx_container::compare::{
    ChangedTensor, CompareOptions, Comparison, Difference, MovedTensor, OneTensor, OperatorChange,
    OtherChange, Property, TensorForm,
};
use onnx_container::{ByteSize, LoadOptions};
use serde::Serialize;

use crate::args::DiffArgs;
use crate::commands::{Execute, different, leftovers, semantic};
use crate::model::{place, reading};
use crate::terminal::failure::{COULD_NOT, Failure, Outcome};
use crate::terminal::output::{Number, Output, count, cut, lossy};

/// How many of each list are shown as text, unless `--top` says otherwise.
const TOP: usize = 20;

impl Execute for DiffArgs {
    fn name(&self) -> &'static str {
        "diff"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        different(&self.a, Some(&self.b))
    }

    fn code_of_failure(&self) -> u8 {
        COULD_NOT
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        if self.semantic { semantic::diff(self, out) } else { diff(self, out) }
    }
}

/// Prints what differs.
fn diff(args: &DiffArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let load = LoadOptions::from(reading::of(&args.read));
    let options = CompareOptions::new().differences(args.stats);
    let options = options.ignore_stored_digests(args.ignore_stored_digests);
    let by_digests = !args.stats && !args.ignore_stored_digests;
    let found = place::compare(&args.a, &args.b, load, options, by_digests)?;
    let outcome = Outcome::of(found.same);
    if args.json {
        out.json(&Report::new(args, found))?;
    } else {
        print(&found, args, out)?;
    }
    Ok(outcome)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    a: &'a Path,
    #[serde(serialize_with = "lossy")]
    b: &'a Path,
    #[serde(flatten)]
    found: Comparison,
    warnings: Vec<String>,
}

impl<'a> Report<'a> {
    fn new(args: &'a DiffArgs, mut found: Comparison) -> Self {
        let (a, b) = (args.a.as_path(), args.b.as_path());
        let tensors = &mut found.tensors;
        if let Some(top) = args.top.filter(|top| *top > 0) {
            tensors.added.truncate(top);
            tensors.removed.truncate(top);
            tensors.changed.truncate(top);
            tensors.renamed.truncate(top);
            tensors.moved.truncate(top);
        }
        let warnings = leftovers::warnings(different(a, Some(b)));
        Self { command: "diff", a, b, found, warnings }
    }
}

fn print(found: &Comparison, args: &DiffArgs, out: &mut Output) -> io::Result<()> {
    let list = &mut List { most: args.top.unwrap_or(TOP), out };
    list.all(&found.properties, property)?;
    list.all(&found.operators, operator)?;
    list.all(&found.other_changes, |change| row("other", other(change)))?;
    let tensors = &found.tensors;
    list.all(&tensors.changed, changed)?;
    list.all(&tensors.added, |tensor| one("added", tensor))?;
    list.all(&tensors.removed, |tensor| one("removed", tensor))?;
    list.all(&tensors.renamed, |tensor| {
        row("renamed", format!("{} to {}  {}", tensor.from, tensor.to, form(&tensor.form)))
    })?;
    list.all(&by_files(&tensors.moved), |moved| row("moved", moved))?;
    let (equal, read) = (count(tensors.equal, "tensor"), ByteSize(tensors.bytes_read));
    let verdict = if found.same { "the same" } else { "different" };
    let believed = match tensors.by_digests {
        0 => String::new(),
        some => format!("; {} told by stored digests", count(some, "tensor")),
    };
    let text =
        format_args!("{verdict}: {equal} equal and in place; {read} of weights read{believed}");
    out.folded(text, LABEL)
}

/// Lists of which the first lines are printed.
struct List<'o> {
    /// How many of each; 0 prints all.
    most: usize,
    out: &'o mut Output,
}

impl List<'_> {
    fn all<T>(&mut self, all: &[T], line: impl Fn(&T) -> String) -> io::Result<()> {
        let most = if self.most == 0 { all.len() } else { self.most };
        for one in all.iter().take(most) {
            self.out.folded(line(one), LABEL)?;
        }
        match all.len().saturating_sub(most) {
            0 => Ok(()),
            more => self.out.row("", format_args!("and {more} more: --top 0 shows all")),
        }
    }
}

/// The width of the words at the beginning of lines, in characters.
const LABEL: usize = 10;

fn row(label: &str, text: impl std::fmt::Display) -> String {
    format!("{label:<LABEL$}{text}")
}

/// The most characters of a text that anybody may have written.
const LONGEST: usize = 100;

fn property(Property { what, name, a, b, .. }: &Property) -> String {
    let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let said = |said: &Option<String>| match said {
        Some(text) => cut(text, LONGEST).into_owned(),
        None => "(none)".to_owned(),
    };
    format!("{}{name}: {} -> {}", what.replace('_', " "), said(a), said(b))
}

fn operator(OperatorChange { operator, a, b, changed, .. }: &OperatorChange) -> String {
    let changed = match changed {
        0 => String::new(),
        changed => {
            format!(", {} with other inputs, outputs or attributes", count(*changed, "node"))
        }
    };
    let nodes = if a == b { String::new() } else { format!("{a} -> ") } + &count(*b, "node");
    row("nodes", format!("{operator}: {nodes}{changed}"))
}

/// A kind of changes that have no names.
fn other(OtherChange { what, added, removed, changed, .. }: &OtherChange) -> String {
    let kind = match *what {
        "value_types" => "types of values between nodes",
        "documentation" => "documentation",
        "node_order" => return format!("order of nodes: {changed} in other places"),
        "attribute_order" => return format!("order of attributes: {}", count(*changed, "node")),
        _ => return "fields that this command does not compare one by one".to_owned(),
    };
    let counts = [(added, "added"), (removed, "removed"), (changed, "changed")];
    let counts = counts.iter().filter(|(number, _)| **number > 0);
    let counts: Vec<_> = counts.map(|(number, how)| format!("{number} {how}")).collect();
    format!("{kind}: {}", counts.join(", "))
}

fn one(label: &str, tensor: &OneTensor) -> String {
    row(label, format!("{}  {}", tensor.name, form(&tensor.form)))
}

fn changed(ChangedTensor { name, a, b, difference, .. }: &ChangedTensor) -> String {
    let what = if a == b { form(a) } else { format!("{} -> {}", form(a), form(b)) };
    let difference = difference.as_ref().map(apart).unwrap_or_default();
    row("changed", format!("{name}  {what}{difference}"))
}

fn apart(of: &Difference) -> String {
    let elements = format!("{} of {} elements", of.differing, of.elements);
    let place = match (of.not_finite_a, of.not_finite_b) {
        (_, 0) => "A",
        (0, _) => "B",
        _ => "A or B",
    };
    let (Some(most), Some(mean)) = (of.max_abs.map(Number), of.mean_abs.map(Number)) else {
        return format!(": {elements}, all of them NaN or infinite in {place}");
    };
    let not_finite = match of.not_finite {
        0 => String::new(),
        some => format!(", {some} NaN or infinite in {place}"),
    };
    format!(": at most {most}, {mean} on average, {elements}{not_finite}")
}

fn form(TensorForm { dtype, shape, bytes, .. }: &TensorForm) -> String {
    let shape: Vec<_> = shape.iter().map(ToString::to_string).collect();
    let bytes = bytes.map(|bytes| format!(" ({})", ByteSize(bytes))).unwrap_or_default();
    format!("{dtype} [{}]{bytes}", shape.join(","))
}

/// Two files between which tensors were moved, and how many.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Way<'m> {
    from: Option<&'m str>,
    to: Option<&'m str>,
}

/// A line for each two files between which tensors were moved.
fn by_files(moved: &[MovedTensor]) -> Vec<String> {
    let mut ways: BTreeMap<Way<'_>, (usize, u64)> = BTreeMap::new();
    for tensor in moved {
        let way = Way { from: tensor.from_file.as_deref(), to: tensor.to_file.as_deref() };
        let (number, bytes) = ways.entry(way).or_default();
        (*number, *bytes) = (*number + 1, bytes.saturating_add(tensor.bytes));
    }
    let name = |file: Option<&str>| file.unwrap_or("the model").to_owned();
    let lines = ways.into_iter().map(|(Way { from, to }, (number, bytes))| {
        let tensors = format!("{} ({})", count(number, "tensor"), ByteSize(bytes));
        match from == to {
            true => format!("{tensors} within {}", name(from)),
            false => format!("{tensors} from {} to {}", name(from), name(to)),
        }
    });
    lines.collect()
}
