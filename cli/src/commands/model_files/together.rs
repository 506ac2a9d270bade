//! What the models of one `mv` or `rm` need of each other.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use onnx_container::model_files::{KeptFile, other_models_that_need};

/// The files that stayed with the first models of a call, because a later one needs them: they go
/// with that one.
pub struct Stayed {
    /// The real paths of the models.
    models: HashSet<PathBuf>,
    files: RefCell<Vec<PathBuf>>,
}

impl Stayed {
    pub fn because_of(models: &[PathBuf]) -> Self {
        let models = models.iter().map(|path| real(path)).collect();
        Self { models, files: RefCell::default() }
    }

    pub fn files(&self) -> Vec<PathBuf> {
        self.files.borrow().clone()
    }

    pub fn add(&self, kept: &[KeptFile]) {
        let is_of_call = |file: &&KeptFile| self.models.contains(&real(&file.needed_by));
        let files = kept.iter().filter(is_of_call).map(|file| file.path.clone());
        self.files.borrow_mut().extend(files);
    }
}

/// The models in such an order that a model which is a weights file of another one comes after it.
pub fn users_first(models: Vec<PathBuf>) -> Vec<PathBuf> {
    let users = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What cannot be told is an error of the removal.
        let users = other_models_that_need(path, [name]).unwrap_or_default();
        users.into_values().flatten().map(|user| real(&user)).collect::<HashSet<_>>()
    };
    let mut rest: Vec<_> = models.into_iter().map(|path| (users(&path), path)).collect();
    let mut ordered = Vec::new();
    while !rest.is_empty() {
        let left: HashSet<_> = rest.iter().map(|(_, path)| real(path)).collect();
        let is_free = |(users, _): &(HashSet<PathBuf>, PathBuf)| users.is_disjoint(&left);
        let next = rest.iter().position(is_free).unwrap_or(0);
        ordered.push(rest.remove(next).1);
    }
    ordered
}

/// The path by way of the real folder.
pub fn real(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match (folder.unwrap_or(Path::new(".")).canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_path_buf(),
    }
}
