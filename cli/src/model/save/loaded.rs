//! What a save needs of a model that was loaded, be it a container or an outline.

use std::path::Path;

use onnx_container::traversal::{self, Tensors};
use onnx_container::{Container, Error, Initializer, Outline, SaveOptions, Saved};

/// A model that was loaded to be saved.
pub trait Loaded {
    /// Every tensor with its place, in graph order.
    fn tensors(&self) -> Tensors<'_>;
    /// The large initializer behind `handle`.
    fn get(&self, handle: &str) -> Option<&Initializer>;
    /// What the load found that some readers refuse.
    fn warnings(&self) -> &[Error];
    /// Whether digests were stored with it.
    fn had_digests(&self) -> bool;
    fn save(&self, path: &Path, options: SaveOptions) -> Result<Saved, Error>;
    fn dry_run(&self, path: &Path, options: SaveOptions) -> Result<Saved, Error>;
}

impl Loaded for Container {
    fn tensors(&self) -> Tensors<'_> {
        traversal::iter(self.model())
    }

    fn get(&self, handle: &str) -> Option<&Initializer> {
        self.get(handle)
    }

    fn warnings(&self) -> &[Error] {
        self.warnings()
    }

    fn had_digests(&self) -> bool {
        self.had_digests()
    }

    fn save(&self, path: &Path, options: SaveOptions) -> Result<Saved, Error> {
        self.save(path, options)
    }

    fn dry_run(&self, path: &Path, options: SaveOptions) -> Result<Saved, Error> {
        self.dry_run(path, options)
    }
}

/// An outline is saved with all weights inside the model.
impl Loaded for Outline {
    fn tensors(&self) -> Tensors<'_> {
        self.tensors()
    }

    fn get(&self, handle: &str) -> Option<&Initializer> {
        self.get(handle)
    }

    fn warnings(&self) -> &[Error] {
        self.warnings()
    }

    fn had_digests(&self) -> bool {
        self.had_digests()
    }

    fn save(&self, path: &Path, options: SaveOptions) -> Result<Saved, Error> {
        self.embed(path, options)
    }

    fn dry_run(&self, path: &Path, options: SaveOptions) -> Result<Saved, Error> {
        self.dry_run(path, options)
    }
}
