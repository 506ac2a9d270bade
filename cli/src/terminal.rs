//! What the user sees and does: output, failures, progress, signals, memory.

pub(crate) mod failure;
pub(crate) mod memory;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod safetensors_names;
pub(crate) mod shell;
pub(crate) mod stop;
