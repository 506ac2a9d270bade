//! The `onnx-container` command.

fn main() {}
