//! `run MODEL`: evaluates a model, writes its outputs and compares them.

mod expected;
mod files;
mod summary;

use std::io;
use std::path::Path;

use onnx_container::ByteSize;
use onnx_container_machine::{Profile, Value};
use serde::Serialize;

use self::summary::{Numbers, Summary};
use crate::args::RunArgs;
use crate::commands::Execute;
use crate::commands::evaluate::inputs::{self, Input, InputSource, inputs};
use crate::commands::evaluate::timings::TimingsReport;
use crate::commands::evaluate::{FoldedNodes, Model, Ran, check_engine};
use crate::model::{needed, reading};
use crate::terminal::failure::{COULD_NOT, Failure, Outcome};
use crate::terminal::output::{LABEL, Output, count, lossy, short_name};

impl Execute for RunArgs {
    fn name(&self) -> &'static str {
        "run"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.model]
    }

    /// With --expect it tells whether the outputs are as expected.
    fn code_of_failure(&self) -> u8 {
        if self.expect.is_some() { COULD_NOT } else { 1 }
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Runs, writes, compares and prints.
fn run(args: &RunArgs, out: &mut Output) -> Result<Outcome, Failure> {
    check_engine(&args.engine)?;
    let reading = reading::of(&args.read);
    let model = Model::load(&args.model, reading)?;
    if args.output.is_some() {
        files::check(&model.program.main, args.format)?;
    }
    let inputs = inputs(&model.program, &args.inputs, &args.limits)?;
    let given: Vec<_> = inputs.iter().map(InputInfo::from).collect();
    expected::check(args, model.program.main.outputs.len())?;
    if let Some(folder) = &args.output {
        let main = &model.program.main;
        let outputs = main.outputs.len();
        let names = main.outputs.iter().map(|output| main.name(output.value));
        let values = expected::files(args, names)?.into_iter().chain(inputs::files(&inputs));
        let values: Vec<_> = values.collect();
        let own = needed::files(&args.model, reading)?;
        files::check_targets(folder, args.format, outputs, &own, &values)?;
    }
    let profile = Profile::from(args.profile.profile);
    let ran = model.run(inputs, args.repeat.unwrap_or(1), (&args.engine, profile), &args.limits)?;
    let Ran { outputs, effort, timings } = ran;
    let expected = args.expect.as_ref().map(|folder| expected::compare(&outputs, folder, args));
    let expected = expected.transpose()?;
    let files = match &args.output {
        Some(folder) => files::write(&outputs, folder, args.format)?,
        None => vec![None; outputs.len()],
    };
    let report = RunReport {
        command: "run",
        model: &args.model,
        inputs: given,
        engine: args.engine.name(),
        profile: effort.as_ref().map(|_| profile.name()),
        steps: effort.as_ref().map(|effort| effort.steps),
        folded: effort.as_ref().map(|_| FoldedNodes::of(&model.program)),
        memory_bytes: effort.as_ref().map(|effort| effort.memory_bytes),
        timings: args.is_timed().then(|| timings.into()),
        outputs: outputs.iter().zip(files).map(|(o, file)| OutputInfo::new(o, file)).collect(),
        expected,
    };
    if args.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::of(report.expected.is_none_or(|expected| expected.ok)))
}

/// What was run, for people and as JSON.
#[derive(Serialize)]
struct RunReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    inputs: Vec<InputInfo>,
    /// What ran the model.
    engine: &'static str,
    /// The numeric profile of the machine.
    profile: Option<&'static str>,
    /// The steps of the machine.
    steps: Option<u64>,
    /// The nodes that have no step in the machine.
    folded: Option<FoldedNodes>,
    /// What the machine needed of the memory, without weights.
    memory_bytes: Option<u64>,
    /// How long the runs took, if it was asked for.
    timings: Option<TimingsReport>,
    outputs: Vec<OutputInfo<'a>>,
    /// How the outputs compare with those that were expected.
    expected: Option<expected::Expected>,
}

#[derive(Serialize)]
struct InputInfo {
    name: String,
    #[serde(flatten)]
    what: Summary,
    source: InputSource,
}

impl From<&Input> for InputInfo {
    fn from(input: &Input) -> Self {
        let Input { name, value, source } = input.clone();
        Self { name, what: Summary::of(&value), source }
    }
}

#[derive(Serialize)]
struct OutputInfo<'a> {
    name: &'a str,
    #[serde(flatten)]
    what: Summary,
    #[serde(flatten)]
    numbers: Numbers,
    /// The file that was written.
    path: Option<String>,
}

impl<'a> OutputInfo<'a> {
    fn new((name, value): &'a (String, Value), path: Option<String>) -> Self {
        Self { name, what: Summary::of(value), numbers: Numbers::of(value), path }
    }
}

impl RunReport<'_> {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        for InputInfo { name, what, source } in &self.inputs {
            let parts = [short_name(name) + ":", what.to_string(), format!("({source})")];
            out.row_of_parts("input", parts, " ")?;
        }
        match (self.steps, self.memory_bytes) {
            (Some(steps), Some(memory)) => {
                let (steps, memory) = (count_of(steps), ByteSize(memory));
                let how = match self.profile == Some(Profile::Strict.name()) {
                    true => String::new(),
                    false => format!(", profile {}", self.profile.unwrap_or_default()),
                };
                out.row("ran", format_args!("{steps}, {memory} of memory{how}"))?;
            }
            _ => out.row("ran", format_args!("by {}", self.engine))?,
        }
        if let Some(folded) = self.folded.filter(|folded| folded.nodes > 0) {
            out.row("folded", format_args!("{folded}"))?;
        }
        if let Some(timings) = &self.timings {
            timings.print(out)?;
        }
        for OutputInfo { name, what, numbers, path } in &self.outputs {
            let parts = [short_name(name) + ":", what.to_string()];
            out.row_of_parts("output", parts, " ")?;
            let indent = " ".repeat(LABEL);
            numbers.lines().iter().try_for_each(|line| out.prose(&indent, line))?;
            if let Some(path) = path {
                out.row("wrote", format_args!("{path}"))?;
            }
        }
        self.expected.as_ref().map_or(Ok(()), |expected| expected.print(out))
    }
}

fn count_of(steps: u64) -> String {
    count(usize::try_from(steps).unwrap_or(usize::MAX), "step")
}
