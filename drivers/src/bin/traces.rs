//! The SHA-256 of the trace of each model that is named, as lines like those of `sha256sum`: two
//! processors compute the same bits where these lines are equal.
//!
//! An argument is a model, whose inputs are those of seed 0 and of [`SIZES`], or a folder of onnx's
//! tests, with a `model.onnx` and folders of inputs in each of its folders. The numeric profile is
//! `strict`; how many threads there are is what the system allows (`taskset`).

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use mimalloc::MiMalloc;
use onnx_container::{Buffer, Container, MmapChoice};
use onnx_container_machine::trace::{TraceOptions, TraceWriter};
use onnx_container_machine::{
    Machine, Program, ProgramOptions, Registry, RunLimits, Value, data, random_inputs,
};
use sha2::{Digest, Sha256};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The sizes of open dimensions of the models that `scripts/models.py` fetches, and of tests/data,
/// by name or place.
const SIZES: [(&str, usize); 22] = [
    // The encoder of tests/data: tokens.
    ("length", 9),
    // basic-pitch and magika: one clip, one file.
    ("unk__749", 1),
    ("unk__214", 1),
    // ddddocr: the width of an image.
    ("image_width", 128),
    // nakdimon and tashkeel: sentences.
    ("unk__1915", 1),
    ("unk__1916", 24),
    ("seq", 12),
    // rapidocr: an image for its detector, a line of text for its readers.
    ("p2o.DynamicDimension.0", 1),
    ("p2o.DynamicDimension.1", 96),
    ("p2o.DynamicDimension.2", 64),
    ("DynamicDimension.0", 1),
    ("DynamicDimension.1", 96),
    ("DynamicDimension.2", 64),
    ("x[0]", 1),
    ("x[2]", 48),
    ("x[3]", 192),
    // silero-vad: pieces of speech.
    ("input[0]", 1),
    ("input[1]", 576),
    ("state[1]", 1),
    ("batch", 1),
    ("sequence", 576),
    ("sequence_length", 3),
];

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    let mut failed = 0;
    for given in env::args_os().skip(1).map(PathBuf::from) {
        let models = if given.is_dir() { tests_in(&given)? } else { vec![given] };
        for model in models {
            // Some tests have what the machine does not run; they are equal where all say the same.
            match traces(&model) {
                Ok(digest) => println!("{digest}  {}", model.display()),
                Err(error) => {
                    failed += 1;
                    println!("{error}  {}", model.display());
                }
            }
        }
    }
    eprintln!("{failed} failed");
    Ok(())
}

/// The models of the tests in a folder, in the order of their names.
fn tests_in(folder: &Path) -> Done<Vec<PathBuf>> {
    let mut models = Vec::new();
    for entry in fs::read_dir(folder)? {
        models.push(entry?.path().join("model.onnx"));
    }
    models.retain(|model| model.is_file());
    models.sort();
    Ok(models)
}

/// The digest of the traces of the model with each set of its inputs.
fn traces(model: &Path) -> Done<String> {
    let container = Container::load(model, MmapChoice::never())?;
    let program = Arc::new(Program::new(&container, ProgramOptions::new())?);
    let mut digest = Sha256::new();
    for set in inputs(model, &program)? {
        let mut machine = Machine::new(Arc::clone(&program), Registry::new(), RunLimits::new());
        machine.check_runnable()?;
        set.into_iter().try_for_each(|(name, value)| machine.bind(&name, value))?;
        machine.place_inputs()?;
        let mut lines = Vec::new();
        let options = TraceOptions::new();
        let mut trace = TraceWriter::new(&mut lines, &container, &mut machine, options)?;
        trace.run(&mut machine)?;
        trace.finish(&machine)?;
        digest.update(&lines);
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

type Inputs = Vec<(String, Value)>;

/// The inputs beside the model, set by set, or those of seed 0 where there are none.
fn inputs(model: &Path, program: &Program) -> Done<Vec<Inputs>> {
    let mut sets = Vec::new();
    loop {
        let set = model.with_file_name(format!("test_data_set_{}", sets.len()));
        if !set.is_dir() {
            break;
        }
        sets.push(read_set(&set, program)?);
    }
    if sets.is_empty() {
        sets.push(random_inputs::all(program, 0, &sizes(program))?);
    }
    Ok(sets)
}

/// The sizes that the inputs of the program ask for.
fn sizes(program: &Program) -> HashMap<String, usize> {
    let all = SIZES.map(|(name, size)| HashMap::from([(name.to_owned(), size)]));
    all.into_iter().filter(|one| program.check_sizes(one).is_ok()).flatten().collect()
}

fn read_set(set: &Path, program: &Program) -> Done<Inputs> {
    let mut inputs = Vec::new();
    for (i, input) in program.main.inputs.iter().enumerate() {
        let path = set.join(format!("input_{i}.pb"));
        if path.is_file() {
            let ty = input.ty.as_ref().ok_or("an input without a type")?;
            let value = data::decode(&Buffer::from(fs::read(path)?), ty)?;
            inputs.push((program.main.name(input.value).to_owned(), value));
        }
    }
    Ok(inputs)
}
