//! Runs by onnxruntime, an implementation of the operators that shares nothing with the machine.
//!
//! Its shared library is opened when a run asks for it; the one in the Python wheel is suitable
//! (`onnxruntime/capi/libonnxruntime.so.*`). onnxruntime reads the model file by itself, so an
//! error in the reading of models by this library shows as a difference too.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anstream::adapter::strip_str;
use half::{bf16, f16};
use onnx_container::{Buffer, DataType, Tensor};
use onnx_container_machine::Value;
use ort::logging::LogLevel;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::{DynValue, Tensor as OrtTensor, TensorElementType, ValueType};

use super::inputs::Input;
use super::timings::Timings;
use crate::args::EngineArgs;
use crate::terminal::failure::Failure;

/// The environment variable that names the shared library, as for other programs in Rust that use
/// onnxruntime.
const LIBRARY: &str = "ORT_DYLIB_PATH";

/// Evaluates the model at `path` as often as `times` says, and returns the outputs of the last run.
/// `args` may turn off onnxruntime's graph optimizations.
pub fn run(
    path: &Path,
    inputs: &[Input],
    times: u32,
    args: &EngineArgs,
    timings: &mut Timings,
) -> Result<Vec<(String, Value)>, Failure> {
    open_library(args)?;
    let mut session = session(path, args).map_err(|error| failed(&error).about(path))?;
    let mut outputs = run_once(&mut session, path, inputs, timings)?;
    for _ in 1..times {
        outputs = run_once(&mut session, path, inputs, timings)?;
    }
    Ok(outputs)
}

fn run_once(
    session: &mut Session,
    path: &Path,
    inputs: &[Input],
    timings: &mut Timings,
) -> Result<Vec<(String, Value)>, Failure> {
    let mut values = Vec::new();
    for Input { name, value, .. } in inputs {
        values.push((name.clone(), to_ort(name, value)?));
    }
    let start = Instant::now();
    let outputs = session.run(values).map_err(|error| failed(&error).about(path))?;
    timings.end_run(start);
    outputs
        .into_iter()
        .map(|(name, value)| Ok((name.to_owned(), from_ort(name, &value)?)))
        .collect()
}

/// Opens the shared library, the first time.
fn open_library(args: &EngineArgs) -> Result<(), Failure> {
    let path = args.ort_library.clone().map(PathBuf::into_os_string);
    let path = path.or_else(|| env::var_os(LIBRARY)).filter(|path: &OsString| !path.is_empty());
    let Some(path) = path else {
        let message = format!(
            "--with ort needs the shared library of onnxruntime: name it by --ort-library FILE or \
             {LIBRARY}; a Python wheel of onnxruntime has it as onnxruntime/capi/libonnxruntime.so.*"
        );
        return Err(Failure::Refused(message));
    };
    let unusable = |error: &dyn std::fmt::Display| {
        let path = Path::new(&path).display();
        Failure::Refused(format!("`{path}`: not a shared library of onnxruntime: {error}"))
    };
    // A relative path begins at the working folder, as in every other argument; for `ort` it would
    // begin at the program's.
    let absolute = std::path::absolute(&path).map_err(|error| unusable(&error))?;
    let environment = ort::init_from(absolute).map_err(|error| unusable(&error))?;
    environment.with_telemetry(false).commit();
    Ok(())
}

/// A session of one thread, so that two runs are alike.
fn session(path: &Path, args: &EngineArgs) -> ort::Result<Session> {
    let level = if args.ort_unoptimized {
        GraphOptimizationLevel::Disable
    } else {
        GraphOptimizationLevel::All
    };
    let builder = Session::builder()?.with_intra_threads(1)?.with_optimization_level(level)?;
    // An error is returned too: in the log it would stand a second time.
    let mut builder = builder.with_log_level(LogLevel::Fatal)?;
    builder.commit_from_file(path)
}

/// The failure with what onnxruntime says, which may be coloured and end in an empty line.
fn failed(error: &ort::Error) -> Failure {
    Failure::Machine { kind: "Onnxruntime".to_owned(), message: message(&error.to_string()) }
}

fn message(said: &str) -> String {
    format!("onnxruntime: {}", strip_str(said).to_string().trim())
}

fn unsupported(name: &str, what: &dyn std::fmt::Display) -> Failure {
    let message = format!("value `{name}`: {what} cannot be passed to or from onnxruntime");
    Failure::Machine { kind: "Unsupported".to_owned(), message }
}

/// Calls `$call!(Rust type)` for the element type `$dtype`, where onnxruntime and Rust both have
/// it.
macro_rules! by_type {
    ($dtype:expr, $enum:ident: $float:ident $double:ident $half:ident $brain:ident, $call:ident, $otherwise:expr) => {
        match $dtype {
            $enum::$float => $call!(f32),
            $enum::$double => $call!(f64),
            $enum::$half => $call!(f16),
            $enum::$brain => $call!(bf16),
            $enum::Int8 => $call!(i8),
            $enum::Int16 => $call!(i16),
            $enum::Int32 => $call!(i32),
            $enum::Int64 => $call!(i64),
            $enum::Uint8 => $call!(u8),
            $enum::Uint16 => $call!(u16),
            $enum::Uint32 => $call!(u32),
            $enum::Uint64 => $call!(u64),
            $enum::Bool => $call!(bool),
            other => $otherwise(other),
        }
    };
}

/// `value` as onnxruntime takes it; its elements are copied.
fn to_ort(name: &str, value: &Value) -> Result<DynValue, Failure> {
    let Value::Tensor(tensor) = value else { return Err(unsupported(name, &value.ty())) };
    let shape = tensor.shape();
    if let Some(strings) = tensor.strings() {
        let text = |bytes: &Buffer| String::from_utf8_lossy(bytes).into_owned();
        let strings: Vec<_> = strings.iter().map(text).collect();
        let made = OrtTensor::from_string_array((shape, strings.as_slice()));
        return made.map(OrtTensor::into_dyn).map_err(|error| failed(&error));
    }
    macro_rules! convert {
        ($type:ty) => {
            OrtTensor::from_array((shape, tensor.to_slice::<$type>()?.into_owned()))
                .map(OrtTensor::into_dyn)
                .map_err(|error| failed(&error))
        };
    }
    let refused = |dtype: DataType| Err(unsupported(name, &dtype));
    by_type!(tensor.dtype(), DataType: Float Double Float16 Bfloat16, convert, refused)
}

/// What onnxruntime computed; its elements are copied.
fn from_ort(name: &str, value: &DynValue) -> Result<Value, Failure> {
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else {
        return Err(unsupported(name, value.dtype()));
    };
    let dims: Vec<i64> = shape.to_vec();
    let failed = |error: ort::Error| self::failed(&error);
    macro_rules! convert {
        ($type:ty) => {{
            let (_, elements) = value.try_extract_tensor::<$type>().map_err(failed)?;
            Ok(Tensor::from_vec(dims, elements.to_vec())?.into())
        }};
    }
    match ty {
        TensorElementType::String => {
            let (_, strings) = value.try_extract_strings().map_err(failed)?;
            let strings = strings.into_iter().map(|text| Buffer::from(text.into_bytes())).collect();
            Ok(Tensor::from_strings(dims, strings)?.into())
        }
        other => {
            let refused = |ty: &TensorElementType| Err(unsupported(name, &format!("{ty:?}")));
            by_type!(other, TensorElementType: Float32 Float64 Float16 Bfloat16, convert, refused)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_onnxruntime_says_is_shown_without_colours() {
        let said = "\u{1b}[1;31m2026 [E:onnxruntime:, x.cc:9 Run] no\u{1b}[m\n";
        assert_eq!(message(said), "onnxruntime: 2026 [E:onnxruntime:, x.cc:9 Run] no");
    }
}
