//! The inputs of a run: from files, or made by a seed.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind};
use onnx_container_machine::{Block, Declared, Dim, Program, Value, random_inputs};
use serde::Serialize;

use super::values::{Read, Wanted};
use super::{sizes, sizes_of, values};
use crate::args::{InputArgs, LimitArgs};
use crate::terminal::failure::Failure;
use crate::terminal::memory;

/// An input with where it comes from.
#[derive(Debug, Clone)]
pub struct Input {
    pub name: String,
    pub value: Value,
    pub source: InputSource,
}

/// Where an input comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InputSource {
    /// This file.
    File(String),
    /// This seed.
    Seed(u64),
}

impl std::fmt::Display for InputSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{path}"),
            Self::Seed(seed) => write!(f, "random, seed {seed}"),
        }
    }
}

/// The files that `inputs` were read from, as absolute paths.
pub fn files(inputs: &[Input]) -> impl Iterator<Item = PathBuf> {
    inputs.iter().filter_map(|input| match &input.source {
        InputSource::File(path) => Path::new(path).canonicalize().ok(),
        InputSource::Seed(_) => None,
    })
}

/// The inputs of `program` that `args` say, in the order of the graph. Those with an initializer
/// may be missing. From here on the process keeps to `limits`.
pub fn inputs(
    program: &Program,
    args: &InputArgs,
    limits: &LimitArgs,
) -> Result<Vec<Input>, Failure> {
    memory::bound(limits.max_memory);
    let main = &program.main;
    let mut left = limits.max_memory.unwrap_or(u64::MAX);
    check_names(main, args)?;
    args.input_dir.as_deref().map_or(Ok(()), |folder| check_input_folder(folder, main, args))?;
    let named: HashMap<_, _> = args.input.iter().cloned().collect();
    let defaults: HashSet<_> = main.constants.iter().map(|(id, _)| *id).collect();
    let seed = match args.seed {
        None if args.input.is_empty() && args.input_dir.is_none() => Some(0),
        seed => seed,
    };
    let sizes = sizes_of(program, sizes(&args.dim)?);
    program.check_sizes(&sizes)?;
    let (mut inputs, mut errors) = (Vec::new(), Vec::new());
    for (i, declared) in main.inputs.iter().enumerate() {
        let name = main.name(declared.value);
        let in_folder = || values::find(args.input_dir.as_deref()?, "input", i);
        let file = named.get(name).map(|file| Path::new(file).to_owned()).or_else(in_folder);
        let read = |path: &Path| {
            let value = match values::read(path, name, &Wanted::of(declared))? {
                Read::Value(value) => {
                    check_sizes(name, path, &value, declared, &sizes)?;
                    value
                }
                Read::OtherShape(shape) => return Err(other_shape(name, path, &shape, declared)),
            };
            Ok::<_, Failure>((value, InputSource::File(path.display().to_string())))
        };
        let (value, source) = match (file, seed) {
            (Some(path), _) => read(&path)?,
            (None, _) if defaults.contains(&declared.value) => continue,
            (None, Some(seed)) => match random_inputs::one_within(program, i, seed, &sizes, left) {
                Ok(value) => (value, InputSource::Seed(seed)),
                Err(error) => {
                    errors.push(error.with_value(name));
                    continue;
                }
            },
            (None, None) => return Err(missing(name, i, args.input_dir.as_deref())),
        };
        left = left.saturating_sub(value.held_bytes());
        inputs.push(Input { name: name.to_owned(), value, source });
    }
    match onnx_container_machine::Error::join(errors) {
        None => Ok(inputs),
        Some(error) => Err(unmade(error)),
    }
}

/// The failure for the file at `path`, whose array has another shape than is declared for the input
/// `name`.
fn other_shape(name: &str, path: &Path, shape: &[usize], declared: &Declared) -> Failure {
    let dim = |dim: &Dim| match dim {
        Dim::Fixed(size) => size.to_string(),
        Dim::Symbol(name) => format!("`{name}`"),
        Dim::Unknown => "any".to_owned(),
    };
    let dims: Vec<_> = declared.dims.iter().flatten().map(dim).collect();
    let reason = format!("its shape is {shape:?}, the graph declares [{}]", dims.join(", "));
    Error::new(ErrorKind::Shape, reason).with_tensor(name).with_path(path).into()
}

/// Refuses the file at `path` where a dimension of its array has another size than `--dim` gives.
fn check_sizes(
    name: &str,
    path: &Path,
    value: &Value,
    declared: &Declared,
    sizes: &HashMap<String, usize>,
) -> Result<(), Failure> {
    let Ok(tensor) = value.tensor() else { return Ok(()) };
    for (axis, (dim, found)) in declared.dims.iter().flatten().zip(tensor.shape()).enumerate() {
        let open = match dim {
            Dim::Fixed(_) => continue,
            Dim::Symbol(symbol) => symbol.clone(),
            Dim::Unknown => format!("{name}[{axis}]"),
        };
        if let Some(given) = sizes.get(&open).filter(|given| **given != found) {
            let reason = format!("--dim sets `{open}` to {given}, but here it is {found}");
            return Err(Error::new(ErrorKind::Shape, reason).with_path(path).into());
        }
    }
    Ok(())
}

/// Refuses a name in `--input` that is no input of the graph, or that is given twice.
fn check_names(main: &Block, args: &InputArgs) -> Result<(), Failure> {
    let mut given = HashSet::new();
    for (name, _) in &args.input {
        if !given.insert(name) {
            return Err(Failure::Usage(format!("--input gives `{name}` twice")));
        }
        if !main.inputs.iter().any(|input| main.name(input.value) == name) {
            let names: Vec<_> = main.inputs.iter().map(|input| main.name(input.value)).collect();
            let reason = format!("the graph has no such input; it has {}", names.join(", "));
            return Err(Error::new(ErrorKind::MissingTensor, reason).with_tensor(name).into());
        }
    }
    Ok(())
}

/// Refuses an `--input-dir` that does not exist. With a seed, also refuses a folder without the
/// file of any input: all inputs would be made, and a mistyped name of the folder would not be
/// noticed.
fn check_input_folder(folder: &Path, main: &Block, args: &InputArgs) -> Result<(), Failure> {
    values::must_be_folder(folder)?;
    let is_found = |i| values::find(folder, "input", i).is_some();
    if args.seed.is_none() || main.inputs.is_empty() || (0..main.inputs.len()).any(is_found) {
        return Ok(());
    }
    let folder = folder.display();
    Err(Failure::Refused(format!(
        "`{folder}` has a file of no input: neither input_0.pb nor input_0.npy nor inputs.npz"
    )))
}

/// The failure for input `i`, which neither an option nor a file in `folder` gives.
fn missing(name: &str, i: usize, folder: Option<&Path>) -> Failure {
    let looked_for = folder.map_or(String::new(), |folder| {
        let folder = folder.display();
        format!("`{folder}` has neither input_{i}.pb nor input_{i}.npy nor inputs.npz; ")
    });
    let message = format!(
        "value `{name}`: the input is missing: {looked_for}--input {name}=FILE gives it, --seed N makes it"
    );
    Failure::Machine { kind: "Input".to_owned(), message }
}

/// The failure for inputs that cannot be made, with the options that help.
fn unmade(error: onnx_container_machine::Error) -> Failure {
    let message = format!("{error}. --input NAME=FILE gives an input");
    Failure::Machine { kind: format!("{:?}", error.kind()), message }
}
