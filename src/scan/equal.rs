//! Equal weights of different models: only weights of one length are compared, first by their
//! beginnings and then by their SHA-256.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::options::ScanOptions;
use super::report::{EqualWeights, ScannedModel, WeightsPlace};
use crate::buffer::Buffer;
use crate::container::Container;
use crate::container::tensors::TensorStorage;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{Directory, PathPolicy, directory_of};
use crate::save::{FileId, file_ids};
use crate::util::cancel;
use crate::util::parallel::{cores, for_each};

/// How many bytes tell nearly all different weights apart.
const HEAD: u64 = 4 << 10;
/// How much is read at a time.
const PIECE: usize = 1 << 20;

/// Where weights are stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stored {
    /// In a file, from this byte on.
    File(FileId, u64),
    /// In the message of this number.
    Inline(usize),
}

/// Weights that are read once, however many tensors have them.
struct Weights {
    len: u64,
    bytes: Bytes,
    tensors: BTreeSet<WeightsPlace>,
}

/// How weights are read.
enum Bytes {
    Here(Buffer),
    /// The model of this number names this file.
    InFile(usize, String, Range<u64>),
}

/// The weights of all models.
#[derive(Default)]
struct Survey {
    /// The paths of the models.
    models: Vec<PathBuf>,
    /// Those that are links.
    links: HashSet<PathBuf>,
    paths: PathPolicy,
    list: Vec<Weights>,
    by_place: HashMap<Stored, usize>,
    errors: Vec<Error>,
}

/// The equal weights of `models`, and why some are not compared.
///
/// # Errors
/// [`ErrorKind::Cancelled`].
pub(super) fn find(
    models: &[ScannedModel],
    options: &ScanOptions,
) -> Result<(Vec<EqualWeights>, Vec<Error>)> {
    let mut survey = Survey { paths: options.load.paths, ..Survey::default() };
    for model in models.iter().filter(|model| model.same_file_as.is_none()) {
        cancel::check()?;
        if let Err(error) = survey.add(model, options) {
            survey.errors.push(error.with_path(&model.path));
        }
    }
    let all: Vec<_> = (0..survey.list.len()).map(|number| (number, ())).collect();
    let same_length = survey.in_several(all);
    let begin_alike = survey.hashed(same_length, HEAD)?;
    let begin_alike = survey.in_several(begin_alike);
    let equal = survey.hashed(begin_alike, u64::MAX)?;
    Ok((survey.groups(equal), survey.errors))
}

impl Survey {
    /// Adds the weights of a model.
    fn add(&mut self, model: &ScannedModel, options: &ScanOptions) -> Result<()> {
        let container = Container::load(&model.path, options.load.clone().weights(false))?;
        let number = self.models.len();
        self.models.push(model.path.clone());
        self.links.extend(model.link_to.is_some().then(|| model.path.clone()));
        for tensor in container.tensors() {
            // What is wrong with single tensors a check says.
            let (Ok(len), Ok(storage)) = (tensor.byte_len(), tensor.storage()) else { continue };
            if len < options.min_equal_bytes {
                continue;
            }
            let place =
                WeightsPlace { model: model.path.clone(), tensor: tensor.name().to_owned() };
            match storage {
                TensorStorage::File { location, range } => {
                    self.add_in_file(number, location, range, place);
                }
                TensorStorage::Inline => {
                    if let Some(raw) = &tensor.proto().raw_data {
                        let stored = Stored::Inline(self.list.len());
                        self.insert(stored, len, Bytes::Here(raw.clone()), place);
                    }
                }
                TensorStorage::Handle { .. } => {}
            }
        }
        Ok(())
    }

    fn add_in_file(
        &mut self,
        number: usize,
        location: String,
        range: Range<u64>,
        place: WeightsPlace,
    ) {
        let path = directory_of(&place.model).join(&location);
        let Some(id) = file_ids(&path).unwrap_or_default().pop() else { return };
        let len = range.end.saturating_sub(range.start);
        let stored = Stored::File(id, range.start);
        self.insert(stored, len, Bytes::InFile(number, location, range), place);
    }

    fn insert(&mut self, stored: Stored, len: u64, bytes: Bytes, place: WeightsPlace) {
        let new = self.list.len();
        let number = *self.by_place.entry(stored).or_insert(new);
        match self.list.get_mut(number) {
            // One range in two lengths is two weights, of which the first one counts.
            Some(weights) if weights.len == len => drop(weights.tensors.insert(place)),
            Some(_) => {}
            None => self.list.push(Weights { len, bytes, tensors: BTreeSet::from([place]) }),
        }
    }

    /// Of `weights` with a key those of which two models have some of the same length and key.
    fn in_several<K: Eq + std::hash::Hash + Clone>(
        &self,
        weights: Vec<(usize, K)>,
    ) -> Vec<(usize, K)> {
        let mut models: HashMap<(u64, K), BTreeSet<&PathBuf>> = HashMap::new();
        for (number, key) in &weights {
            if let Some(weights) = self.list.get(*number) {
                let of = models.entry((weights.len, key.clone())).or_default();
                of.extend(weights.tensors.iter().map(|place| &place.model));
            }
        }
        let is_in_several = |(number, key): &(usize, K)| {
            let len = self.list.get(*number).map(|weights| weights.len);
            let of = len.and_then(|len| models.get(&(len, key.clone())));
            of.is_some_and(|models| models.len() > 1)
        };
        weights.iter().filter(|it| is_in_several(it)).cloned().collect()
    }

    /// The SHA-256 of the first `most` bytes of each of these weights. What cannot be read is left
    /// out.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`].
    fn hashed<K>(&mut self, weights: Vec<(usize, K)>, most: u64) -> Result<Vec<(usize, [u8; 32])>> {
        let jobs: Vec<_> = weights.iter().map(|(number, _)| (*number, OnceLock::new())).collect();
        let lengths = jobs.iter().filter_map(|(number, _)| self.list.get(*number));
        cancel::begin(lengths.map(|it| it.len.min(most)).fold(0, u64::saturating_add));
        for_each(cores(jobs.len()), jobs.iter(), |(number, done)| {
            let digest = self.digest(*number, most);
            let is_cancelled = |error: &Error| error.kind() == ErrorKind::Cancelled;
            if digest.as_ref().is_err_and(is_cancelled) {
                return digest.map(drop);
            }
            done.get_or_init(|| digest);
            Ok(())
        })?;
        let mut digests = Vec::new();
        for (number, digest) in jobs {
            match digest.into_inner() {
                Some(Ok(digest)) => digests.push((number, digest)),
                Some(Err(error)) => self.errors.push(error),
                None => self.errors.push(Error::internal("weights that were not read")),
            }
        }
        Ok(digests)
    }

    /// The SHA-256 of the first `most` bytes of the weights of this number.
    fn digest(&self, number: usize, most: u64) -> Result<[u8; 32]> {
        let missing = || Error::internal("weights that are not listed");
        let Weights { len, bytes, .. } = self.list.get(number).ok_or_else(missing)?;
        let most = most.min(*len);
        match bytes {
            Bytes::Here(bytes) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
                cancel::advance(u64::try_from(most).map_err(Error::internal)?)?;
                Ok(Sha256::digest(bytes.get(..most).unwrap_or_default()).into())
            }
            Bytes::InFile(model, location, range) => {
                // Opened for each, because a process may have few files open.
                let model = self.models.get(*model).ok_or_else(missing)?;
                let directory = Directory::of_model(model, self.paths)?;
                let file = directory.open_file(location)?;
                let digest = of_file(file, range.start, most);
                digest.map_err(|error| error.with_path(directory.join(location)))
            }
        }
    }

    /// The weights of equal digests, with those that save most first.
    fn groups(&self, digests: Vec<(usize, [u8; 32])>) -> Vec<EqualWeights> {
        let mut groups: HashMap<(u64, [u8; 32]), Vec<&Weights>> = HashMap::new();
        for (number, digest) in self.in_several(digests) {
            if let Some(weights) = self.list.get(number) {
                groups.entry((weights.len, digest)).or_default().push(weights);
            }
        }
        let equal = groups.into_iter().filter(|(_, copies)| copies.len() > 1);
        let equal = equal.map(|((bytes, _), copies)| {
            let places: BTreeSet<_> = copies.iter().flat_map(|copy| &copy.tensors).collect();
            EqualWeights {
                bytes,
                copies: copies.len(),
                places: places.into_iter().cloned().collect(),
                shareable: bytes.saturating_mul(self.spared_by_folders(&copies)),
            }
        });
        let mut equal: Vec<_> = equal.collect();
        let saves = |weights: &EqualWeights| std::cmp::Reverse(weights.saves());
        equal.sort_by(|a, b| saves(a).cmp(&saves(b)).then_with(|| a.places.cmp(&b.places)));
        equal
    }
}

/// The models of a folder that have some weights, and how often these are stored for them.
#[derive(Default)]
struct InFolder<'s> {
    models: BTreeSet<&'s Path>,
    copies: u64,
}

impl Survey {
    /// How many of the `copies` of some weights are spared when the models of each folder share
    /// them. A model that is a link shares none.
    fn spared_by_folders(&self, copies: &[&Weights]) -> u64 {
        let mut folders: HashMap<PathBuf, InFolder<'_>> = HashMap::new();
        for copy in copies {
            let models = copy.tensors.iter().map(|place| place.model.as_path());
            let models: BTreeSet<_> = models.filter(|model| !self.links.contains(*model)).collect();
            let here: BTreeSet<_> = models.iter().map(|model| directory_of(model)).collect();
            for model in models {
                folders.entry(directory_of(model)).or_default().models.insert(model);
            }
            here.into_iter().for_each(|folder| folders.entry(folder).or_default().copies += 1);
        }
        let sharing = folders.into_values().filter(|folder| folder.models.len() > 1);
        let spared = sharing.map(|folder| folder.copies.saturating_sub(1));
        // A copy of models of several folders is in both, and is spared once.
        let all = u64::try_from(copies.len()).unwrap_or(u64::MAX);
        spared.fold(0, u64::saturating_add).min(all.saturating_sub(1))
    }
}

/// The SHA-256 of `len` bytes of `file` from `start` on.
fn of_file(mut file: File, start: u64, len: u64) -> Result<[u8; 32]> {
    file.seek(SeekFrom::Start(start))?;
    let (mut hasher, mut piece, mut left) = (Sha256::new(), vec![0; PIECE.min(most(len))], len);
    while left > 0 {
        let wanted = piece.len().min(most(left));
        let read = match file.read(piece.get_mut(..wanted).unwrap_or_default()) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            let reason = format!("cut off: {left} bytes of a tensor are not there");
            return Err(Error::new(ErrorKind::OutOfBounds, reason));
        }
        hasher.update(piece.get(..read).unwrap_or_default());
        let read = u64::try_from(read).map_err(Error::internal)?;
        left = left.saturating_sub(read);
        cancel::advance(read)?;
    }
    Ok(hasher.finalize().into())
}

/// `len` in memory.
fn most(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
