//! What a file is, told by its bytes: a model with the files that it names, or something else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use super::names::is_named_as_a_model;
use super::tree::Tree;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file_format::{failed_download, is_text, known_format};
use crate::save::{Skimmed, skim_any};
use crate::util::parallel::{cores, for_each};
use crate::util::retry::retried;

/// What is in a file.
pub(super) enum Content {
    /// A model.
    Model {
        /// The files that it names.
        locations: BTreeSet<String>,
        /// How many bytes of each its tensors need.
        needed_bytes: BTreeMap<String, u64>,
        /// Whether its messages are whole.
        is_whole: bool,
    },
    /// An index of shards, which names files as a model does.
    Index(BTreeSet<String>),
    /// What a failed download left, and what to do.
    NotDownloaded(&'static str),
    /// Text, or nothing.
    Text,
    /// Other bytes, and their format where it is known.
    Binary(Option<&'static str>),
    /// It cannot be read.
    Unread(Error),
}

impl Content {
    /// The files that it names.
    pub(super) fn locations(&self) -> Option<&BTreeSet<String>> {
        match self {
            Self::Model { locations, .. } | Self::Index(locations) => Some(locations),
            _ => None,
        }
    }

    /// Whether it is a model.
    pub(super) fn is_model(&self) -> bool {
        matches!(self, Self::Model { .. })
    }

    /// What the file at `path` is; `name` is the one of its names by which it may be a model.
    fn of(path: &Path, name: &str) -> Self {
        let look = || {
            let Skimmed { locations, needed_bytes, is_model, is_certain, is_whole } =
                skim_any(path)?;
            if is_certain || is_model && is_named_as_a_model(name) {
                return Ok(Self::Model { locations, needed_bytes, is_whole });
            }
            let is_index = !locations.is_empty();
            Ok(if is_index { Self::Index(locations) } else { Self::of_head(&head(path)?) })
        };
        look().unwrap_or_else(Self::Unread)
    }

    /// What a file is that begins with `head`.
    fn of_head(head: &[u8]) -> Self {
        if let Some(what) = failed_download(head) {
            return Self::NotDownloaded(what);
        }
        match known_format(head) {
            _ if is_text(head) => Self::Text,
            format => Self::Binary(format),
        }
    }
}

/// How many bytes tell what a file is.
const HEAD: u64 = 512;

fn head(path: &Path) -> Result<Vec<u8>> {
    let fail = |error| Error::io(path, error);
    let file = retried(|| std::fs::File::open(path)).map_err(fail)?;
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).map_err(fail)?;
    Ok(head)
}

/// What every file of `tree` is, in their order.
///
/// # Errors
/// [`ErrorKind::Cancelled`].
pub(super) fn of_all(tree: &Tree) -> Result<Vec<Content>> {
    let contents: Vec<OnceLock<Content>> = tree.files.iter().map(|_| OnceLock::new()).collect();
    for_each(cores(usize::MAX), contents.iter().enumerate(), |(file, content)| {
        content.get_or_init(|| of_file(tree, file));
        Ok(())
    })?;
    let missing = || Content::Unread(Error::internal("a file that was not looked at"));
    Ok(contents.into_iter().map(|content| content.into_inner().unwrap_or_else(missing)).collect())
}

/// What the file of this number is.
fn of_file(tree: &Tree, file: usize) -> Content {
    // By a name of a model, where one of several is.
    let best = tree.places_of(file).max_by_key(|place| is_named_as_a_model(&place.name()));
    match best {
        Some(place) => Content::of(&place.path, &place.name()),
        None => Content::Unread(Error::internal("a file without a name")),
    }
}

/// The files that have the name of a model and are not one.
pub(super) fn not_models(tree: &Tree, contents: &[Content]) -> Vec<Error> {
    let said = |(file, content): (usize, &Content)| {
        let mut named = tree.places_of(file).filter(|place| is_named_as_a_model(&place.name()));
        let path = &named.next()?.path;
        let is_empty = tree.files.get(file).is_some_and(|file| file.bytes == 0);
        let (kind, reason) = match content {
            Content::Model { .. } | Content::Unread(_) => return None,
            Content::NotDownloaded(what) => (ErrorKind::NotDownloaded, (*what).to_owned()),
            _ if is_empty => (ErrorKind::Decode, "the file is empty".to_owned()),
            Content::Binary(Some(format)) => {
                (ErrorKind::Decode, format!("{format}, not an ONNX model"))
            }
            Content::Text | Content::Index(_) => {
                (ErrorKind::Decode, "a text file, not an ONNX model".to_owned())
            }
            Content::Binary(None) => {
                (ErrorKind::Decode, "not an ONNX model, or damaged".to_owned())
            }
        };
        Some(Error::new(kind, reason).with_path(path))
    };
    contents.iter().enumerate().filter_map(said).collect()
}
