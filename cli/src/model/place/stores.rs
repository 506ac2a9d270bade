//! Models in stores.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use onnx_container::check::{CheckOptions, Checked, check_bytes};
use onnx_container::compare::{CompareOptions, Comparison, compare_with};
use onnx_container::external_data::check_location;
use onnx_container::load::{FileSource, WeightFile};
use onnx_container::{Container, LoadOptions, Outline, Result};
use onnx_container_store::{RemoteModel, StoreOptions, StoreUrl, read};

use super::{HEAD, Opened};

static OPTIONS: OnceLock<StoreOptions> = OnceLock::new();

/// Sets options of all stores, in place of those of the environment.
pub fn set_options(set: &[(String, String)]) {
    let set = set.iter().fold(StoreOptions::new(), |all, (name, value)| all.set(name, value));
    // The first call is the one of this process.
    let _ = OPTIONS.set(set);
}

/// How stores are reached.
pub fn options() -> &'static StoreOptions {
    OPTIONS.get_or_init(StoreOptions::new)
}

/// A URL as text: only texts are told to be URLs.
fn text(url: &Path) -> &str {
    url.to_str().unwrap_or_default()
}

/// The models that this process has read, so that what is read later is of the same version.
static READ: Mutex<BTreeMap<PathBuf, RemoteModel>> = Mutex::new(BTreeMap::new());

fn note(url: &Path, model: &RemoteModel) {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    read.insert(url.to_path_buf(), model.clone());
}

/// The tag of the model that was read from `input`, where `url` is the same object: a publication
/// there replaces that one, and not what another writer put there since.
pub fn tag_of_read(input: &Path, url: &str) -> Option<String> {
    let read = READ.lock().unwrap_or_else(PoisonError::into_inner).get(input).cloned()?;
    let is_there = StoreUrl::parse(url).is_ok_and(|url| url == *read.url());
    read.e_tag().filter(|_| is_there).map(str::to_owned)
}

/// The model at `url`: the one that was read before, where it was.
fn same(url: &Path) -> Result<RemoteModel> {
    let read = READ.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned();
    match read {
        Some(model) => Ok(model),
        None => RemoteModel::open(text(url), options()),
    }
}

pub fn load(url: &Path, load: LoadOptions) -> Result<Container> {
    read(text(url), options(), |model| {
        note(url, model);
        model.load(load.clone())
    })
}

#[cfg(feature = "machine")]
pub fn fetch(url: &Path, load: LoadOptions) -> Result<Container> {
    onnx_container_store::fetch(text(url), options(), load)
}

pub fn outline(url: &Path, load: LoadOptions) -> Result<Outline> {
    read(text(url), options(), |model| {
        Outline::load_bytes(model.bytes().clone(), model.load_options(load.clone())?)
    })
}

pub fn check(
    url: &Path,
    load: LoadOptions,
    check: impl Fn(LoadOptions) -> CheckOptions,
) -> Result<Checked> {
    read(text(url), options(), |model| {
        check_bytes(model.bytes().clone(), check(model.load_options(load.clone())?))
    })
}

pub fn compare(
    [a, b]: [&Path; 2],
    load: LoadOptions,
    options: &CompareOptions,
    by_digests: bool,
) -> Result<Comparison> {
    if by_digests {
        let bare = |path| super::load(path, load.clone().weights(false));
        let (a, b) = (bare(a)?, bare(b)?);
        // Fails where a weight has to be read, which is not there.
        if a.had_digests()
            && b.had_digests()
            && let Ok(found) = compare_with(&a, &b, options)
        {
            return Ok(found);
        }
    }
    compare_with(&super::load(a, load.clone())?, &super::load(b, load)?, options)
}

pub fn attaching(url: &Path, load: LoadOptions) -> Result<LoadOptions> {
    same(url)?.load_options(load)
}

#[cfg(feature = "machine")]
pub fn bytes(url: &Path) -> Result<onnx_container::Buffer> {
    Ok(RemoteModel::open(text(url), options())?.bytes().clone())
}

pub fn graph(url: &Path, load: LoadOptions) -> Result<(Container, Files)> {
    let model = same(url)?;
    let container = model.load(load.weights(false))?;
    let files = model.weights_files()?;
    Ok((container, Files { model, files }))
}

/// A model in a store, and the weights files beside it.
pub struct Files {
    model: RemoteModel,
    files: Arc<dyn FileSource>,
}

impl Files {
    pub fn path(&self, location: &str) -> PathBuf {
        let beside = self.model.url().beside(location);
        beside.map_or_else(|_| location.into(), |url| url.to_string().into())
    }

    fn file(&self, location: &str) -> Result<Arc<dyn WeightFile>> {
        check_location(location)?;
        let parts = location.split('/').filter(|part| !matches!(*part, "" | "."));
        self.files.open(&parts.collect::<Vec<_>>().join("/"))
    }

    pub fn look(&self, location: &str) -> Result<Opened> {
        let file = self.file(location)?;
        let len = file.len();
        let mut head = vec![0; usize::try_from(len.min(HEAD)).unwrap_or(0)];
        file.read_at(0, &mut head)?;
        Ok(Opened { len, head })
    }

    pub fn open(&self, location: &str) -> Result<Box<dyn Read>> {
        Ok(Box::new(InOrder { file: self.file(location)?, at: 0, part: Vec::new(), done: 0 }))
    }

    pub fn model(&self) -> &[u8] {
        self.model.bytes()
    }
}

/// The bytes of a weights file in order, in the parts that its store reads best.
struct InOrder {
    file: Arc<dyn WeightFile>,
    /// Where the part ends.
    at: u64,
    part: Vec<u8>,
    /// How many bytes of the part were read.
    done: usize,
}

impl Read for InOrder {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.done == self.part.len() {
            let left = usize::try_from(self.file.len() - self.at).unwrap_or(usize::MAX);
            self.part.resize(left.min(self.file.preferred_read()), 0);
            self.file.read_at(self.at, &mut self.part).map_err(io::Error::other)?;
            (self.at, self.done) = (self.at + self.part.len() as u64, 0);
        }
        let read = self.part.get(self.done..).unwrap_or_default().read(out)?;
        self.done += read;
        Ok(read)
    }
}
