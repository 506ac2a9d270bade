//! A model edited and saved over itself: one tensor replaced, another renamed.
//!
//! A rename changes the model file alone, and the weights file stays, however large it is
//! (`WeightFiles::AsLoaded`). New elements need a new weights file (`true`), which takes the place
//! of the old one when it is complete.
//!
//! ```sh
//! cargo run --example edit_in_place
//! ```

#![allow(unsafe_code)] // mapping files is a promise that only the caller can make

use std::fs;
use std::path::Path;

use onnx_container::edit::Tied;
use onnx_container::{Container, MmapChoice, Saved, WeightFiles};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A copy of a small model, so that the repository keeps its own.
    let folder = tempfile::tempdir()?;
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/encoder");
    for name in ["encoder.onnx", "encoder.onnx.data"] {
        fs::copy(data.join(name), folder.path().join(name))?;
    }
    let path = folder.path().join("encoder.onnx");

    // SAFETY: nobody writes to or truncates these files; the save puts new ones in their place.
    let mut container = Container::load(&path, unsafe { MmapChoice::auto() })?;
    let mut projection = container.tensor("layer0.projection")?.to_array::<f32>()?;
    projection.mapv_inplace(|weight| weight * 0.5);
    container.replace("layer0.projection", projection, Tied::Refuse)?;
    report("replaced", &container.save(&path, WeightFiles::Packed)?);

    // SAFETY: as above.
    let mut container = Container::load(&path, unsafe { MmapChoice::auto() })?;
    let places = container.rename("layer0.qkv", "encoder.0.attention.qkv")?;
    println!("renamed in {places} places");
    report("renamed", &container.save(&path, WeightFiles::AsLoaded)?);
    Ok(())
}

fn report(what: &str, saved: &Saved) {
    for file in &saved.files {
        println!("{what}: wrote {}, {} bytes", file.name, file.bytes);
    }
    for file in &saved.kept {
        println!("{what}: kept {}, {} bytes", file.name, file.bytes);
    }
}
