//! `onnx_container._core`: what the Python package is built on.
//!
//! Python code gives the package its classes and names; this module does what has to be fast and
//! safe. Messages cross the border as bytes, weights as buffers that are not copied, and the
//! interpreter is released while files are read, written or hashed.

mod bytes;
mod container;
mod convert;
mod dlpack;
mod edits;
mod error;
mod export;
mod files;
mod functions;
mod initializer;
mod interrupt;
mod job;
mod looks;
mod mapping;
mod model_files;
#[cfg(feature = "stores")]
mod objects;
mod options;
mod parts;
#[cfg_attr(not(feature = "stores"), path = "paths_alone.rs")]
mod places;
mod report;
mod saved;
mod scan;
mod signing;
#[cfg(feature = "stores")]
mod store_job;
#[cfg(feature = "stores")]
mod stores;
mod tensors;
mod texts;

use mimalloc::MiMalloc;
use pyo3::prelude::*;

/// As in the command: a large graph consists of millions of small allocations.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    use crate::error::CLASSES;

    #[pymodule_export]
    use crate::bytes::{Bytes, torch_memory};
    #[pymodule_export]
    use crate::container::Container;
    #[pymodule_export]
    use crate::dlpack::dlpack;
    #[pymodule_export]
    use crate::edits::{
        delete_initializer, metadata, remove_metadata, rename, set_metadata, unknown_operators,
    };
    #[pymodule_export]
    use crate::error::Error;
    #[pymodule_export]
    use crate::export::export_safetensors;
    #[pymodule_export]
    use crate::files::{locations, mapped_files, weights_files};
    #[pymodule_export]
    use crate::functions::{
        byte_len, check_model, dtype_names, inline_functions, map_file, model_that_needs, recover,
        run_command, save_encoded,
    };
    #[pymodule_export]
    use crate::initializer::Initializer;
    #[pymodule_export]
    use crate::job::Job;
    #[pymodule_export]
    use crate::looks::{diff, inspect};
    #[pymodule_export]
    use crate::mapping::WeightMapping;
    #[pymodule_export]
    use crate::model_files::{remove, share, transfer};
    #[pymodule_export]
    use crate::parts::{attach_model, extract_model, merge, strip};
    #[cfg(feature = "stores")]
    #[pymodule_export]
    use crate::places::Store;
    #[pymodule_export]
    use crate::report::report;
    #[pymodule_export]
    use crate::saved::{Infinite, SavedModel};
    #[pymodule_export]
    use crate::scan::scan;
    #[pymodule_export]
    use crate::signing::{sign, verify_signature};
    #[cfg(feature = "stores")]
    #[pymodule_export]
    use crate::store_job::StoreJob;
    #[cfg(feature = "stores")]
    #[pymodule_export]
    use crate::stores::{load_stored, probe, publish, rollback, store_key, sweep, versions};
    #[pymodule_export]
    use crate::tensors::{initializers, not_finite};
    #[pymodule_export]
    use crate::texts::{matching, parse_size, size_text};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        CLASSES.iter().try_for_each(|class| {
            let (name, class) = class.get(module.py())?;
            module.add(name, class)
        })
    }

    /// The version of the package.
    #[allow(non_upper_case_globals)]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
