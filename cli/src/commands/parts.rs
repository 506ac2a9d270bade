//! `extract-model` and `merge`: the part of a model, and two models as one.
//!
//! Weights are not changed: where they can stay in their files, only the model is written.

mod given_names;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use onnx_container::edit::MergeOptions;
use onnx_container::proto::{GraphProto, ValueInfoProto, type_proto};
use onnx_container::{Container, DataType, Error, ErrorKind, Saved, WeightFiles, traversal};
use serde::Serialize;

use crate::args::{ExtractModelArgs, MergeArgs, PackedArgs, WriteArgs};
use crate::commands::Execute;
use crate::commands::leftovers;
use crate::commands::parts::given_names::{Values, graph, names, pairs};
use crate::commands::write::{Read, Verified, verify};
use crate::model::save::Written;
use crate::model::vouched::Vouched;
use crate::model::{reading, save, vouched};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, lossy, print_on_stderr};
use crate::terminal::shell::quoted;

impl Execute for ExtractModelArgs {
    fn name(&self) -> &'static str {
        "extract-model"
    }

    fn json(&self) -> bool {
        self.write.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.paths.input]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        extract(self, out)
    }
}

impl Execute for MergeArgs {
    fn name(&self) -> &'static str {
        "merge"
    }

    fn json(&self) -> bool {
        self.write.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.a, &self.b]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        merge(self, out)
    }
}

/// Extracts the part, writes it and prints a report.
fn extract(args: &ExtractModelArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let (input, output) = (&args.paths.input, &args.paths.output);
    if args.inputs.is_empty() && args.outputs.is_empty() {
        let reason = "nothing to extract: give --outputs, or --inputs, or both";
        return Err(Failure::Usage(reason.to_owned()));
    }
    refuse_a_type_given_twice(&args.types)?;
    let mut whole = load(input, &args.write)?;
    whole.declare_types(args.types.iter().map(|(name, of)| (name, of)))?;
    let read = Read::of(&whole, !args.write.read.no_mmap)?;
    let values = Values::of(&whole);
    let outputs = match args.outputs.as_slice() {
        [] => graph(&whole).map(|graph| names(&graph.output)).unwrap_or_default(),
        given => values.split("--outputs", given)?,
    };
    let part = match args.inputs.as_slice() {
        [] => whole.extract_model_for(&outputs),
        given => whole.extract_model(&values.split("--inputs", given)?, &outputs),
    };
    let part = part.map_err(|error| untyped(error, &whole, input))?;
    let target = Target { output, packed: &args.packed, write: &args.write };
    let (saved, verified) = target.save(&part)?;
    let sources = Sources { input, second: None };
    let mut report =
        Report::new("extract-model", sources, &target, (&part, read), &saved, verified);
    let before = Graph::of(&whole);
    if !args.inputs.is_empty() {
        let note = cut_little(&report.graph, &before);
        note.iter().for_each(|note| print_on_stderr(format_args!("warning: {note}")));
        report.written.warn(note);
    }
    report.finish(Some(&before), args.write.json, out)
}

/// What is said of a part that is nearly the whole.
fn cut_little(part: &Graph, whole: &Graph) -> Option<String> {
    let (kept, of) = (part.nodes, count(whole.nodes, "node"));
    let is_most = whole.nodes >= 20 && kept >= whole.nodes - whole.nodes / 20;
    is_most.then(|| format!("{kept} of {of} are kept: the inputs and outputs cut little"))
}

/// Refuses two types for one value: the second would be held to the first.
fn refuse_a_type_given_twice(types: &[(String, String)]) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    match types.iter().find(|(name, _)| !seen.insert(name)) {
        Some((name, _)) => Err(Failure::Usage(format!("--type gives `{name}` twice"))),
        None => Ok(()),
    }
}

/// The failure to extract a part of the model `whole` at `path`, with what to do where types are
/// not known.
fn untyped(error: Error, whole: &Container, path: &Path) -> Failure {
    let is_it = |one: &&Error| one.kind() == ErrorKind::MissingType;
    let Some(value) = error.each().find(is_it).and_then(Error::tensor) else {
        return error.into();
    };
    let option = quoted(&format!("{value}={}[N,128]", elements(whole, value)));
    let [from, to] = [path, &typed_name(path)].map(|path| quoted(&path.display().to_string()));
    let hint = format!(
        "give it, such as --type {option}, or infer all types, and cut the model that has them:\n\
         python -c 'import onnx, sys; onnx.shape_inference.infer_shapes_path(*sys.argv[1:])' \
         {from} {to}"
    );
    Failure::Hinted(error, hint)
}

/// The element type of the value `name`, or a common one where it is not known.
fn elements(whole: &Container, name: &str) -> DataType {
    let known = whole.value_type(name).and_then(|it| match it.value {
        Some(type_proto::Value::TensorType(tensor)) => tensor.elem_type,
        _ => None,
    });
    known.and_then(|number| DataType::try_from(number).ok()).unwrap_or(DataType::Float)
}

/// The name of a file beside `model`, which is not there.
fn typed_name(model: &Path) -> PathBuf {
    let (mut free, mut number) = (model.with_file_name("typed.onnx"), 1_u64);
    while free.symlink_metadata().is_ok() {
        number = number.saturating_add(1);
        free = model.with_file_name(format!("typed-{number}.onnx"));
    }
    free
}

/// Merges the two, writes the result and prints a report.
fn merge(args: &MergeArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let (first, second) = (load(&args.a, &args.write)?, load(&args.b, &args.write)?);
    let list = |of: &Container, list: fn(&GraphProto) -> &Vec<ValueInfoProto>| {
        graph(of).map(|graph| list(graph).clone()).unwrap_or_default()
    };
    let (inputs, outputs) = (list(&first, |it| &it.input), list(&first, |it| &it.output));
    let of_second = list(&second, |it| &it.input);
    let connected = pairs("--connect", &args.connect, &outputs, &of_second)?;
    let options = connected.iter().fold(MergeOptions::new(), |all, (a, b)| all.connect(a, b));
    let same = pairs("--same-input", &args.same_input, &inputs, &of_second)?;
    let options = same.iter().fold(options, |options, (a, b)| options.same_input(a, b));
    let options = options.prefixes(&*args.prefix_a, &*args.prefix_b);
    let both = first.into_merged(second, options).map_err(|error| not_apart(error, args))?;
    let read = Read::of(&both, !args.write.read.no_mmap)?;
    let target = Target { output: &args.output, packed: &args.packed, write: &args.write };
    let (saved, verified) = target.save(&both)?;
    let sources = Sources { input: &args.a, second: Some(&args.b) };
    let report = Report::new("merge", sources, &target, (&both, read), &saved, verified);
    report.finish(None, args.write.json, out)
}

/// The failure to merge two models, with what to do where both have values of one name.
fn not_apart(error: Error, args: &MergeArgs) -> Failure {
    if error.kind() != ErrorKind::AlreadyExists {
        return error.into();
    }
    let is_given = |prefix: &&str| *prefix == args.prefix_a || *prefix == args.prefix_b;
    let mut prefixes = ["b/", "second/", "other/"].into_iter().filter(|prefix| !is_given(prefix));
    let prefix = prefixes.next().unwrap_or_default();
    let what = match args.prefix_b.as_str() {
        "" => "give all of one a prefix",
        _ => "give all of B another prefix",
    };
    Failure::Hinted(error, format!("{what}: --prefix-b {prefix}"))
}

fn load(path: &Path, args: &WriteArgs) -> Result<Container, Failure> {
    let container = vouched::load(path, reading::of(&args.read), Vouched::from(&args.target))?;
    save::warn(&container);
    Ok(container)
}

/// Where and how the result is written.
struct Target<'a> {
    output: &'a Path,
    packed: &'a PackedArgs,
    write: &'a WriteArgs,
}

impl Target<'_> {
    /// Saves the model alone where its weights can stay, else with one file of weights; and
    /// compares what was written, where that was asked for.
    fn save(&self, container: &Container) -> Result<(Saved, Option<Verified>), Failure> {
        let Self { output, packed, write } = self;
        save::refuse_weights(output, None)?;
        let save_as = |layout| {
            let options = save::options(layout, Some(packed), &write.target);
            save::try_save(container, output, options, &write.target)
        };
        let saved: Result<Saved, Error> = match packed.is_given() {
            true => save_as(WeightFiles::Packed),
            false => save::keeping_files(save_as),
        };
        let saved = saved.map_err(|error| save::refused(error, output, &write.target))?;
        let verified = write.verify.then(|| {
            let semantic = container.semantic_digest().ok();
            verify(container, semantic, &saved, output, reading::of(&write.read))
        });
        Ok((saved, verified))
    }
}

/// The models that are read.
#[derive(Debug, Clone, Copy, Serialize)]
struct Sources<'a> {
    #[serde(serialize_with = "lossy")]
    input: &'a Path,
    #[serde(rename = "input_b", skip_serializing_if = "Option::is_none")]
    second: Option<&'a Path>,
}

/// What a graph has.
#[derive(Debug, Serialize)]
struct Graph {
    nodes: usize,
    tensors: usize,
    functions: usize,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Graph {
    fn of(container: &Container) -> Self {
        let graph = graph(container);
        let list = |of: fn(&GraphProto) -> &Vec<ValueInfoProto>| {
            graph.map(|graph| names(of(graph))).unwrap_or_default()
        };
        Self {
            nodes: graph.map_or(0, |graph| graph.node.len()),
            tensors: traversal::iter(container.model()).count(),
            functions: container.model().functions.len(),
            inputs: list(|graph| &graph.input),
            outputs: list(|graph| &graph.output),
        }
    }

    fn line(&self, of: Option<&Self>) -> String {
        let all = [
            (self.nodes, of.map(|of| of.nodes), "node"),
            (self.tensors, of.map(|of| of.tensors), "tensor"),
            (self.functions, of.map(|of| of.functions), "function"),
        ];
        let part = |(own, of, what): (usize, Option<usize>, &str)| match of {
            Some(of) => format!("{own} of {}", count(of, what)),
            None => count(own, what),
        };
        all.into_iter().map(part).collect::<Vec<_>>().join(", ")
    }
}

/// The report of both commands.
#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'static str,
    #[serde(flatten)]
    sources: Sources<'a>,
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    read: Read,
    graph: Graph,
    #[serde(flatten)]
    written: Written,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Verified>,
}

impl<'a> Report<'a> {
    fn new(
        command: &'static str,
        sources: Sources<'a>,
        target: &Target<'a>,
        (container, read): (&Container, Read),
        saved: &Saved,
        verified: Option<Verified>,
    ) -> Self {
        let output = target.output;
        let mut written = Written::new(container, output, saved, &target.write.target);
        written.warn(leftovers::warnings([sources.input].into_iter().chain(sources.second)));
        let graph = Graph::of(container);
        Self { command, sources, output, read, graph, written, verified }
    }

    /// Prints it; `whole` is the model that the result is a part of.
    fn finish(
        &self,
        whole: Option<&Graph>,
        json: bool,
        out: &mut Output,
    ) -> Result<Outcome, Failure> {
        match json {
            true => out.json(self)?,
            false => self.print(whole, out)?,
        }
        Ok(Outcome::of(self.verified.as_ref().is_none_or(|verified| verified.ok)))
    }

    fn print(&self, whole: Option<&Graph>, out: &mut Output) -> io::Result<()> {
        if whole.is_some() {
            self.read.print(self.sources.input, out)?;
        }
        let tense = match whole {
            Some(_) => self.written.tense("extracts", "extracted"),
            None => self.written.tense("merges", "merged"),
        };
        out.row(tense, self.graph.line(whole))?;
        for (label, names) in [("inputs", &self.graph.inputs), ("outputs", &self.graph.outputs)] {
            out.row_of_parts(label, names.iter().cloned(), ", ")?;
        }
        self.written.print(out)?;
        self.verified.as_ref().map_or(Ok(()), |verified| verified.print(out))
    }
}
