//! One measurement for `scripts/bench_import.py`, in a process of its own.
//!
//! `bench_import FILE WHAT [OUT]` reads a TensorProto and prints the seconds that decoding it took,
//! and those that getting its elements took. WHAT is `import` (a tensor, which shares the message's
//! bytes where it can), `array` (an array of its own) or `unpack` (one code or number a byte). With
//! OUT the bytes of what was got are written there.

use std::error::Error;
use std::fs;
use std::time::Instant;

use half::f16;
use onnx_container::proto::{Message, TensorProto};
use onnx_container::{Buffer, DataType, Element, ErrorKind, Result, Tensor};

/// What was got. An array is kept as what shows its bytes.
type Got = Box<dyn AsRef<[u8]>>;

struct Array<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Array<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

fn array<T: Element>(tensor: &Tensor) -> Result<Got> {
    Ok(Box::new(Array(tensor.to_array::<T>()?.into_raw_vec_and_offset().0)))
}

fn get(proto: &TensorProto, what: &str) -> Result<Got> {
    let tensor = Tensor::try_from(proto)?;
    match (what, tensor.dtype()) {
        ("import", _) => Ok(Box::new(tensor.buffer().cloned().unwrap_or_default())),
        ("unpack", DataType::Int4 | DataType::Int2) => Ok(Box::new(Array(tensor.unpack_signed()?))),
        ("unpack", _) => Ok(Box::new(tensor.unpack()?)),
        ("array", DataType::Float) => array::<f32>(&tensor),
        ("array", DataType::Float16) => array::<f16>(&tensor),
        ("array", DataType::Uint8) => array::<u8>(&tensor),
        ("array", DataType::Int64) => array::<i64>(&tensor),
        _ => Err(onnx_container::Error::new(ErrorKind::InvalidArgument, format!("no {what} here"))),
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, what, out @ ..] = arguments.as_slice() else {
        return Err("usage: bench_import FILE WHAT [OUT]".into());
    };
    let input = Buffer::from(fs::read(path)?);
    let start = Instant::now();
    let proto = TensorProto::decode(&input)?;
    let parsed = start.elapsed();
    let got = get(&proto, what)?;
    let total = start.elapsed();
    println!("{} {}", parsed.as_secs_f64(), (total - parsed).as_secs_f64());
    if let Some(out) = out.first() {
        fs::write(out, (*got).as_ref())?;
    }
    Ok(())
}
