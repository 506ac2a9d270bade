//! What is in a model in a store, by one request for its graph: `s3://`, `gs://`, `az://`,
//! `https://` or `hf://`.
//!
//! `cargo run -p onnx-container-store --example remote_model -- hf://owner/repository/model.onnx`

use onnx_container::{LoadOptions, Result};
use onnx_container_store::{RemoteModel, StoreOptions};

fn main() -> Result<()> {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: remote_model URL");
        std::process::exit(2);
    };
    let model = RemoteModel::open(&url, &StoreOptions::new())?;
    println!("{}: {} bytes, tag {:?}", model.url(), model.bytes().len(), model.e_tag());
    let container = model.load(LoadOptions::new())?;
    for tensor in container.tensors() {
        println!("{} {} {:?}", tensor.name(), tensor.dtype()?, tensor.dims());
    }
    Ok(())
}
