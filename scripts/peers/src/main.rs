//! Prints how many seconds rten or tract takes for each run of a model on one thread.
//!
//! `onnx-container-peers rten|tract MODEL REPEAT [NAME=FILE.pb]...` loads the model with its
//! external data and the inputs, runs once unmeasured, then `REPEAT` times. When the engine cannot
//! run the model, the first line of standard error is the reason, and the exit code is 1.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use rten::{ModelOptions, RunOptions, ThreadPool, Value};
use tract_onnx::Onnx;
use tract_onnx::data_resolver::MmapDataResolver;
use tract_onnx::prelude::*;
use tract_onnx::tensor::{load_tensor, proto_from_reader};

/// The name of an input of the graph, and what it is given.
type Given = (String, Tensor);

/// One run of a loaded model on the inputs it was loaded with.
type Run = Box<dyn FnMut() -> Result<()>>;

fn main() -> ExitCode {
    // Without the thread and the line, so that the reason comes first.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("panics: {}", panic.payload_as_str().unwrap_or("no reason given"))
    }));
    match measure(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.root_cause());
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &[String]) -> Result<()> {
    let [engine, model, repeat, pairs @ ..] = arguments else {
        bail!("usage: onnx-container-peers rten|tract MODEL REPEAT [NAME=FILE.pb]...");
    };
    let load = match engine.as_str() {
        "rten" => rten_run,
        "tract" => tract_run,
        other => bail!("there is no engine {other}: rten or tract"),
    };
    let repeat: usize = repeat.parse()?;
    let mut run =
        load(Path::new(model), pairs.iter().map(|pair| read(pair)).collect::<Result<_>>()?)?;
    run()?;
    for _ in 0..repeat {
        let start = Instant::now();
        run()?;
        println!("{}", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// The tensor of `NAME=FILE.pb`, a TensorProto.
fn read(pair: &str) -> Result<Given> {
    let (name, file) = pair.split_once('=').context("an input is NAME=FILE.pb")?;
    let proto = proto_from_reader(File::open(file)?)?;
    Ok((name.to_owned(), load_tensor(&MmapDataResolver, &proto, None)?))
}

fn rten_run(path: &Path, given: Vec<Given>) -> Result<Run> {
    // Like onnxruntime, which packs weights when it loads them.
    let model = ModelOptions::with_all_ops().prepack_weights(true).load_file(path)?;
    let inputs = given
        .iter()
        .map(|(name, tensor)| Ok((model.node_id(name)?, rten_value(tensor)?)))
        .collect::<Result<Vec<_>>>()?;
    let pool = Arc::new(ThreadPool::with_num_threads(1));
    Ok(Box::new(move || {
        let options = RunOptions::default().with_thread_pool(Some(pool.clone()));
        let inputs = inputs.iter().map(|(id, value)| (*id, value.into())).collect();
        model.run(inputs, model.output_ids(), Some(options))?;
        Ok(())
    }))
}

/// A tensor as rten takes it, which has INT32 for INT64.
fn rten_value(tensor: &Tensor) -> Result<Value> {
    let shape = tensor.shape();
    Ok(match tensor.datum_type() {
        DatumType::F32 => {
            Value::from_shape(shape, tensor.try_as_plain_ram()?.as_slice::<f32>()?.to_vec())?
        }
        DatumType::I64 => {
            let narrow: Result<Vec<i32>, _> = tensor
                .try_as_plain_ram()?
                .as_slice::<i64>()?
                .iter()
                .map(|&x| x.try_into())
                .collect();
            Value::from_shape(shape, narrow?)?
        }
        other => bail!("no input of type {other:?} is handed to rten"),
    })
}

/// Runs with tract, whose products use one thread unless it is given more.
fn tract_run(path: &Path, given: Vec<Given>) -> Result<Run> {
    let onnx: Onnx = tract_onnx::onnx();
    let mut model =
        onnx.model_for_path(path)?.with_input_names(given.iter().map(|(name, _)| name))?;
    for (at, (_, tensor)) in given.iter().enumerate() {
        model.set_input_fact(at, InferenceFact::dt_shape(tensor.datum_type(), tensor.shape()))?;
    }
    let plan = model.into_optimized()?.into_runnable()?;
    let inputs: TVec<TValue> = given.into_iter().map(|(_, tensor)| tensor.into()).collect();
    Ok(Box::new(move || plan.run(inputs.clone()).map(drop).map_err(|error| anyhow!(error))))
}
