//! Runs onnx's node tests on the machine: how many of them it passes, and which it does not.
//!
//! Each test is a folder with a `model.onnx` and folders of inputs and expected outputs. Each runs
//! in a process of its own (this program again) with a time limit, so that one that hangs or dies
//! fails alone. Types, shapes and integers have to be equal, other elements within onnx's own
//! tolerances.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use onnx_container::{Buffer, Container, MmapChoice, work};
use onnx_container_machine::compare::{Tolerance, difference};
use onnx_container_machine::{
    Block, Error, ErrorKind, Machine, Profile, Program, ProgramOptions, Registry, Result,
    RunLimits, Value, data,
};

const USAGE: &str = "\
node_tests [--data DIR] [--set NAME] [--only TEXT]... [--floor N] [--fast] [--table] [--quiet]

  --data DIR   onnx/backend/test/data of the wheel [default: .models/onnx/onnx/backend/test/data]
  --set NAME   node, simple, pytorch-converted or pytorch-operator [default: node]
  --only TEXT  tests with TEXT in their name, or a node with the operator TEXT
  --floor N    fail when fewer than N tests pass [default: the one of the set, for all its tests]
  --fast       in the numeric profile fast
  --table      print the counts by operator as Markdown
  --quiet      do not print the reasons of failures";

/// How many tests of each set pass at least. They are raised with every kernel.
const FLOORS: [(&str, usize); 4] =
    [("node", 1753), ("simple", 21), ("pytorch-converted", 82), ("pytorch-operator", 35)];

/// The flags by which a process of its own is asked to run a test, and the profile.
const RUNS: [(&str, Profile); 2] = [("--run", Profile::Strict), ("--run-fast", Profile::Fast)];

const LIMIT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [flag, folder] = arguments.as_slice()
        && let Some((_, profile)) = RUNS.iter().find(|(run, _)| run == flag)
    {
        return match run(Path::new(folder), *profile) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                println!("{reason}");
                ExitCode::FAILURE
            }
        };
    }
    match Options::parse(&arguments).and_then(|options| all(&options).map_err(|e| e.to_string())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}

struct Options {
    data: PathBuf,
    set: String,
    only: Vec<String>,
    floor: Option<usize>,
    profile: Profile,
    table: bool,
    quiet: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            data: ".models/onnx/onnx/backend/test/data".into(),
            set: "node".into(),
            only: Vec::new(),
            floor: None,
            profile: Profile::Strict,
            table: false,
            quiet: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().cloned().ok_or_else(|| USAGE.to_owned());
            match argument.as_str() {
                "--data" => options.data = value()?.into(),
                "--set" => options.set = value()?,
                "--only" => options.only.push(value()?),
                "--floor" => {
                    options.floor = Some(value()?.parse().map_err(|_| USAGE.to_owned())?);
                }
                "--fast" => options.profile = Profile::Fast,
                "--table" => options.table = true,
                "--quiet" => options.quiet = true,
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }

    /// How many tests have to pass.
    fn floor(&self) -> usize {
        let of_set = FLOORS.iter().find(|(set, _)| *set == self.set && self.only.is_empty());
        self.floor.or(of_set.map(|(_, floor)| *floor)).unwrap_or_default()
    }
}

/// A test that ran: its name, the operators of its model, and why it failed if it did.
struct Outcome {
    name: String,
    operators: Vec<String>,
    failure: Option<String>,
}

/// Runs every test that is wanted; whether as many pass as have to.
fn all(options: &Options) -> io::Result<bool> {
    let mut folders: Vec<PathBuf> = fs::read_dir(options.data.join(&options.set))?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    folders.retain(|folder| folder.join("model.onnx").is_file());
    folders.sort();
    let mut outcomes: Vec<_> = folders.iter().map(|_| None).collect();
    let jobs = folders.iter().zip(&mut outcomes);
    let all = work::for_each(work::cores(folders.len()), jobs, |(folder, done)| {
        *done = outcome(folder, options);
        Ok(())
    });
    all.map_err(io::Error::other)?;
    let outcomes: Vec<_> = outcomes.into_iter().flatten().collect();
    Ok(report(options, &outcomes))
}

fn report(options: &Options, outcomes: &[Outcome]) -> bool {
    let passed = outcomes.iter().filter(|outcome| outcome.failure.is_none()).count();
    if options.table {
        print_table(outcomes);
    }
    for outcome in outcomes.iter().filter(|_| !options.quiet) {
        if let Some(failure) = &outcome.failure {
            println!("FAILED {}: {failure}", outcome.name);
        }
    }
    println!("{}: {passed} of {} passed", options.set, outcomes.len());
    let floor = options.floor();
    if passed < floor {
        println!("fewer than {floor}, which have to pass");
    }
    passed >= floor
}

/// For each operator, how many of the tests with it pass.
fn print_table(outcomes: &[Outcome]) {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for outcome in outcomes {
        for operator in &outcome.operators {
            let (passed, all) = counts.entry(operator).or_default();
            *passed += usize::from(outcome.failure.is_none());
            *all += 1;
        }
    }
    println!("| operator | passed | tests |\n|---|---|---|");
    for (operator, (passed, all)) in counts {
        println!("| {operator} | {passed} | {all} |");
    }
}

/// Runs one test in a process of its own; `None` if it is not wanted.
fn outcome(folder: &Path, options: &Options) -> Option<Outcome> {
    let only = &options.only;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let operators = operators(folder).unwrap_or_default();
    let wanted = |text: &String| name.contains(text.as_str()) || operators.contains(text);
    if !only.is_empty() && !only.iter().any(wanted) {
        return None;
    }
    let failure = spawn(folder, options.profile).unwrap_or_else(|error| Some(error.to_string()));
    Some(Outcome { name, operators, failure })
}

/// Every operator in the model of the test.
fn operators(folder: &Path) -> Result<Vec<String>> {
    let container = Container::load(folder.join("model.onnx"), MmapChoice::never())?;
    let graph = container.model().graph.as_deref();
    let nodes = graph.into_iter().flat_map(|graph| &graph.node);
    let mut operators: Vec<String> =
        nodes.filter_map(|node| Some(node.op_type.as_ref()?.to_string())).collect();
    operators.sort();
    operators.dedup();
    Ok(operators)
}

/// Why the test fails, if it does.
fn spawn(folder: &Path, profile: Profile) -> io::Result<Option<String>> {
    let mut command = Command::new(env::current_exe()?);
    let flag = RUNS.iter().find(|(_, of)| *of == profile).map_or("", |(flag, _)| flag);
    command.arg(flag).arg(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if !wait(&mut child)? {
        return Ok(Some(format!("took longer than {LIMIT:?}")));
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(None);
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).lines().collect::<Vec<_>>().join("; ");
    Ok(Some(if output.status.code() == Some(1) {
        said
    } else {
        format!("{}: {said}", output.status)
    }))
}

/// Waits for the end of `child`; `false` if it took too long and was ended.
fn wait(child: &mut Child) -> io::Result<bool> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    while child.try_wait()?.is_none() {
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    Ok(true)
}

/// Runs the test in `folder` with every set of its data.
fn run(folder: &Path, profile: Profile) -> Result<()> {
    let container = Container::load(folder.join("model.onnx"), MmapChoice::never())?;
    let program = Program::new(&container, ProgramOptions::new())?;
    let mut machine = Machine::new(program, Registry::of(profile), RunLimits::new());
    machine.check_runnable()?;
    let mut sets = 0;
    while let Some(set) = Some(folder.join(format!("test_data_set_{sets}"))).filter(|f| f.is_dir())
    {
        run_set(&mut machine, &set)?;
        machine.reset();
        sets += 1;
    }
    if sets == 0 { Err(failed("there is no data")) } else { Ok(()) }
}

fn run_set(machine: &mut Machine, set: &Path) -> Result<()> {
    let program = std::sync::Arc::clone(machine.program());
    for (i, input) in program.main.inputs.iter().enumerate() {
        let path = set.join(format!("input_{i}.pb"));
        if path.is_file() {
            machine.bind(program.main.name(input.value), read(&path, &program.main, i, true)?)?;
        }
    }
    let outputs = machine.run()?;
    for (i, (name, found)) in outputs.iter().enumerate() {
        let expected = read(&set.join(format!("output_{i}.pb")), &program.main, i, false)?;
        if let Some(difference) = difference(found, &expected, Tolerance::ONNX)? {
            return Err(failed(&difference).with_value(name));
        }
    }
    Ok(())
}

/// The value in the file of input or output `i`.
fn read(path: &Path, main: &Block, i: usize, is_input: bool) -> Result<Value> {
    let declared = if is_input { main.inputs.get(i) } else { main.outputs.get(i) };
    let ty = declared.and_then(|declared| declared.ty.as_ref());
    let bytes = fs::read(path).map_err(|error| failed(&format!("{}: {error}", path.display())))?;
    data::decode(&Buffer::from(bytes), ty.ok_or_else(|| failed("a value without a type"))?)
}

fn failed(reason: &str) -> Error {
    Error::new(ErrorKind::Value, reason)
}
