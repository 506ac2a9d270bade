//! The files that no model needs: orphans beside models, and weights in folders without a model.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::content::Content;
use super::names::{is_named_as_weights, weights};
use super::needed::Needed;
use super::report::{Certainty, Orphan, Scan, WeightsFolder};
use super::tree::{File, Place, Tree};

/// Where the bytes of a blob without a link come from.
const STRAY: &str = "a blob that no snapshot links to";

/// What is known of a folder that has a model, or a file that a model needs.
type Models = HashMap<PathBuf, Vec<String>>;

/// Adds the files of `tree` that no model needs to what was `found`.
pub(super) fn find(tree: &Tree, contents: &[Content], needed: &Needed, found: &mut Scan) {
    let models = models_of(tree, needed, found);
    let mut folders: BTreeMap<PathBuf, WeightsFolder> = BTreeMap::new();
    for (number, (file, content)) in tree.files.iter().zip(contents).enumerate() {
        let shown = tree.shown(number);
        let is_used = needed.has(number) || content.locations().is_some() && !shown.is_empty();
        if is_used || matches!(content, Content::Unread(_)) {
            continue;
        }
        let Some(place) = shown.first() else {
            found.orphans.extend(stray(tree, number, file));
            continue;
        };
        let folder = place.folder();
        match models.get(&folder) {
            Some(models) => {
                found.orphans.extend(orphan(place, file, content, models, needed));
            }
            None if is_named_as_weights(&place.name()) && is_binary(content) => {
                add(&mut folders, folder, place, file);
            }
            None => {}
        }
    }
    found.orphans.sort_by(|a, b| a.path.cmp(&b.path));
    found.without_model.extend(folders.into_values());
}

/// The names of the models of each folder that has one, or a file that a model needs.
fn models_of(tree: &Tree, needed: &Needed, found: &Scan) -> Models {
    let mut models = Models::new();
    for file in needed.files() {
        for place in tree.places_of(file) {
            models.entry(place.folder()).or_default();
        }
    }
    for model in &found.models {
        let name = model.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = crate::files::external_data::directory_of(&model.path);
        models.entry(folder).or_default().push(name);
    }
    models
}

fn is_binary(content: &Content) -> bool {
    matches!(content, Content::Binary(_) | Content::NotDownloaded(_))
}

/// The file at `place` as an orphan, if it holds weights.
fn orphan(
    place: &Place,
    file: &File,
    content: &Content,
    models: &[String],
    needed: &Needed,
) -> Option<Orphan> {
    let (mut certainty, mut reason) = weights(&place.name(), models, is_binary(content))?;
    if needed.is_unclear(&place.folder()) && certainty > Certainty::Possible {
        certainty = Certainty::Possible;
        reason +=
            "; another file here is not whole or cannot be read, and may be a model that needs it";
    }
    Some(Orphan {
        path: place.path.clone(),
        bytes: file.bytes,
        frees: frees(file),
        certainty,
        reason,
    })
}

/// A blob that no snapshot links to.
fn stray(tree: &Tree, number: usize, file: &File) -> Option<Orphan> {
    let path = tree.places_of(number).next()?.path.clone();
    let (bytes, frees, certainty) = (file.bytes, frees(file), Certainty::Likely);
    Some(Orphan { path, bytes, frees, certainty, reason: STRAY.to_owned() })
}

/// The bytes that are free when all names of the file below the folder are removed.
fn frees(file: &File) -> u64 {
    if file.is_inside() && file.own_names >= file.names { file.bytes } else { 0 }
}

fn add(
    folders: &mut BTreeMap<PathBuf, WeightsFolder>,
    folder: PathBuf,
    place: &Place,
    file: &File,
) {
    let empty =
        || WeightsFolder { path: folder.clone(), files: 0, bytes: 0, example: place.path.clone() };
    let of = folders.entry(folder.clone()).or_insert_with(empty);
    of.files += 1;
    of.bytes = of.bytes.saturating_add(file.bytes);
}
