//! An operator that is computed before a run, on buffers of its own.
//!
//! The planner needs small results for the shapes that come from them, and a program that is made
//! ready needs the results of weights. Both give the kernel what it gets in a step, but its outputs
//! do not lie in M.

use onnx_container_proto::{Alignment, Buffer, BufferMut};

use crate::error::{ErrorKind, Result};
use crate::kernel::Kernel;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::{Output, RunCx};
use crate::memory::table::byte_len;
use crate::numeric::nan::settle;

/// The elements of all outputs, whose types and shapes are `specs`. `None` where one is no tensor
/// of numbers, where they have more than `most` bytes together, and where the kernel needs elements
/// that are not known.
///
/// # Errors
/// What the kernel says of its inputs.
pub fn computed(
    kernel: &dyn Kernel,
    call: Call<'_>,
    specs: &[OutSpec],
    most: u64,
) -> Result<Option<Vec<Buffer>>> {
    let Some(lens) = lens(specs, most)? else { return Ok(None) };
    let memories = lens.into_iter().map(|len| BufferMut::zeroed(len, Alignment::CACHE_LINE));
    let mut memories = memories.collect::<Result<Vec<_>, _>>()?;
    let outputs = specs.iter().zip(&mut memories);
    let outputs = outputs.map(|(spec, memory)| Output { spec, bytes: Some(memory), value: None });
    match kernel.run(&mut RunCx::new(call, outputs.collect())) {
        Ok(()) => {
            let written = specs.iter().zip(&mut memories).filter(|_| kernel.leaves_nans());
            for (spec, memory) in written {
                if let Some(dtype) = spec.dtype() {
                    settle(dtype, memory)?;
                }
            }
            Ok(Some(memories.into_iter().map(BufferMut::freeze).collect()))
        }
        Err(error) if matches!(error.kind(), ErrorKind::NeedsValue(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The length of each output in bytes, if all are tensors of numbers with at most `most` bytes
/// together.
fn lens(specs: &[OutSpec], most: u64) -> Result<Option<Vec<usize>>> {
    let (mut lens, mut left) = (Vec::with_capacity(specs.len()), most);
    for spec in specs {
        let OutSpec::Tensor(dtype, shape) = spec else { return Ok(None) };
        if dtype.bit_width().is_none() {
            return Ok(None);
        }
        let len = byte_len(*dtype, shape)?;
        let (Some(rest), Ok(len)) = (left.checked_sub(len), usize::try_from(len)) else {
            return Ok(None);
        };
        left = rest;
        lens.push(len);
    }
    Ok(Some(lens))
}
