//! Signs a model: one signature on its files, and one on its content.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use onnx_container::check::refuse_ambiguous;
use onnx_container::external_data::Directory;
use onnx_container::load::VerifyDigests;
use onnx_container::{Container, Error, ErrorKind, LoadOptions, Result};
use onnx_container_files::targets::{folder, refusal};
use serde::Serialize;

use crate::bundle;
use crate::content::Content;
use crate::hashing::{self, Hashed, Method};
use crate::keys::{PrivateKey, PublicKey, has_private_key};
use crate::manifest::Manifest;
use crate::options::{ShardForm, SignOptions};
use crate::places::Places;
use crate::signed::{Signed, SignedContent, Warning};
use crate::terms::Term;
use crate::tree::{self, ALWAYS_IGNORED, Ignored, Tree};
use crate::{needed, others, pair, size};

/// Signs the model at `path`, or the files of a folder.
///
/// Both signatures are staged and renamed: a signing that fails or is killed leaves the old two,
/// the old one on files alone, the new one on files alone, or the new two.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`] for a signature that would replace the key, a model, weights, what
/// is no signature, or one of another model or key; [`ErrorKind::WrongDigest`] for a model that
/// does not have the digests which are stored with it; [`ErrorKind::UnsafePath`] for links;
/// [`ErrorKind::Changed`] for a folder with an interrupted save; [`ErrorKind::TooLarge`] for a
/// signature that nobody could read; [`ErrorKind::InvalidArgument`] for options that contradict
/// each other, and for a private key among the files; and those of reading and writing files.
pub fn sign(path: impl AsRef<Path>, options: &SignOptions) -> Result<Signed> {
    let path = path.as_ref();
    let mut job = Job::new(path, options)?;
    job.check_targets()?;
    job.remove_abandoned();
    // One after the other, so that the model is not in memory twice.
    let own = match &job.places.model {
        Some(model) => needed::names(path, model, options.reading)?,
        None => BTreeSet::new(),
    };
    let container = job.load()?;
    let (manifest, others) = job.manifest(&own)?;
    let statement = manifest.statement(job.places.folder_name());
    let files = signed(&statement, &options.key)?;
    let digest = container.map(|container| container.digest()).transpose();
    let digest = digest.map_err(|error| error.with_path(path))?;
    let content = match (&digest, &job.places.model) {
        (Some(digest), Some(model)) => {
            Some(signed(&Content::new(model.clone(), digest, own).statement(), &options.key)?)
        }
        _ => None,
    };
    job.write(&files, content.as_deref())?;
    let Job { places, key, warnings, .. } = job;
    Ok(Signed {
        key: key.fingerprint()?,
        curve: key.curve(),
        signature: places.files,
        shard_size: manifest.method.shard_size(),
        files: manifest.files.into_keys().collect(),
        content: digest.map(|digest| SignedContent { signature: places.content, digest }),
        unsigned_files: others.count,
        nameless_files: others.nameless,
        warnings,
    })
}

/// The signature file of a statement.
fn signed(statement: &impl Serialize, key: &PrivateKey) -> Result<Vec<u8>> {
    let bytes = bundle::write(&serde_json::to_vec(statement).map_err(Error::internal)?, key)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= bundle::MOST_BYTES) {
        return Ok(bytes);
    }
    let reason =
        format!("the signature would have {} bytes, more than a verifier reads", bytes.len());
    Err(Error::new(ErrorKind::TooLarge, reason))
}

/// What is in the folder of a model and is not signed with it.
#[derive(Debug, Default)]
struct Others {
    count: usize,
    /// Those that the statement names as left out, so that a verification does not take them for
    /// something new.
    left_out: Vec<String>,
    /// How many it cannot name: the specification has no characters of patterns in such names.
    /// Temporary files are not left out either.
    nameless: usize,
}

struct Job<'a> {
    model: &'a Path,
    options: &'a SignOptions,
    form: ShardForm,
    places: Places,
    key: PublicKey,
    warnings: Vec<Warning>,
}

impl<'a> Job<'a> {
    fn new(model: &'a Path, options: &'a SignOptions) -> Result<Self> {
        let form = options.checked_form()?;
        let places = Places::of(model, options.signature.as_deref())?;
        let refuse = |reason: String| {
            Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(&places.files))
        };
        if places.is_of_content() {
            let reason = "NAME.digest.sig is the name of the content signature: give NAME.sig";
            return refuse(reason.to_owned());
        }
        if places.is_of_a_folder_above() {
            let folder = places.folder.display();
            return refuse(format!(
                "this would be taken for the signature of the folder that it is in, and names files beneath \
                 `{folder}`: `sign FOLDER` signs the whole folder, or give this one another name"
            ));
        }
        let (key, warnings) = (options.key.public_key(), Vec::new());
        Ok(Self { model, options, form, places, key, warnings })
    }

    fn warn(&mut self, warning: Warning) {
        if let Some(tell) = &self.options.on_warning {
            tell(&warning);
        }
        self.warnings.push(warning);
    }

    /// The model, whose weights are compared with the digests that are stored with it: a signature
    /// of weights that were damaged since would say that these are right.
    fn load(&mut self) -> Result<Option<Container>> {
        if self.places.model.is_none() {
            return Ok(None);
        }
        let options = LoadOptions::from(self.options.reading);
        let compared = match self.options.ignore_stored_digests {
            true => options.clone(),
            false => options.clone().verify_digests(VerifyDigests::WhereStored),
        };
        let container = Container::load(self.model, compared)?;
        if !container.warnings().is_empty() {
            self.warn(Warning::Loaded(container.warnings().to_vec()));
        }
        if let Err(error) = refuse_ambiguous(self.model, options) {
            self.warn(Warning::Ambiguous(error));
        }
        Ok(Some(container))
    }

    /// Refuses to replace the model, its weights, the key, models, what is no signature, and
    /// signatures of another model or key.
    fn check_targets(&self) -> Result<()> {
        let Places { files, content, model, .. } = &self.places;
        let (no_clobber, terms) = (!self.options.overwrite, self.options.terms);
        let mut own = match model {
            Some(_) => needed::paths(self.model, self.options.reading)?,
            None => Vec::new(),
        };
        own.extend(self.options.key.path().and_then(|path| path.canonicalize().ok()));
        let hint = self.key.fingerprint()?;
        let targets = [Some(files), model.as_ref().map(|_| content)];
        let refusals = targets.into_iter().flatten().filter_map(|path| {
            refusal(path, &own, no_clobber)
                .or_else(|| others::of_another_key(path, &hint, terms))
                .or_else(|| others::of_another_model(&self.places, path, terms))
        });
        let mut refusals: Vec<_> = refusals.collect();
        // That there is no such folder is said once.
        refusals.dedup_by_key(|error| error.to_string());
        Error::join(refusals).map_or(Ok(()), Err)
    }

    /// The files with their digests, of which the model has `own`; and the others that are in the
    /// folder.
    fn manifest(&self, own: &BTreeSet<String>) -> Result<(Manifest, Others)> {
        let (folder, mut signatures) = (&self.places.folder, self.places.signatures_inside());
        let mut names = own.clone();
        let ignored = Ignored::with(signatures.iter().map(String::as_str));
        let found = tree::list(folder, &ignored, false);
        let mut others = Others::default();
        if self.options.all_files || self.places.model.is_none() {
            let (files, other_signatures) = self.all_files(found?)?;
            names.extend(files);
            signatures.extend(other_signatures);
        } else if let Ok(found) = found {
            others = self.others(found, own);
        }
        if names.is_empty() {
            let error = Error::new(ErrorKind::InvalidArgument, "no file is in this folder");
            return Err(error.with_path(folder));
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let always = ALWAYS_IGNORED.map(str::to_owned);
        let method = self.options.shard_size.map_or(Method::Files, Method::Shards);
        let left_out = std::mem::take(&mut others.left_out);
        let manifest = Manifest {
            method,
            form: self.form,
            follows_links: false,
            ignored: always.into_iter().chain(signatures).chain(left_out).collect(),
            files: self.digests(&names, method)?,
        };
        Ok((manifest, others))
    }

    /// What is in the folder and is not signed: all but the `own` files of the model, and
    /// signatures.
    fn others(&self, found: Tree, own: &BTreeSet<String>) -> Others {
        let folder = &self.places.folder;
        let problems = found.problems.into_iter().map(|problem| problem.path);
        let paths = found.files.into_iter().chain(problems);
        let paths = paths.filter(|path| !own.contains(path));
        let paths = paths.filter(|path| !others::is_signature(folder, path, &self.key));
        let mut others = Others::default();
        for path in paths {
            others.count += 1;
            if path.contains(['*', '?', '[']) || tree::temporary(folder, &path).is_some() {
                others.nameless += 1;
            } else {
                others.left_out.push(path);
            }
        }
        others
    }

    /// The files of the folder, and the signatures that others of its models have.
    fn all_files(&self, found: Tree) -> Result<(Vec<String>, Vec<String>)> {
        let folder = &self.places.folder;
        tree::refuse_leftovers(folder, &found, "then sign")?;
        tree::refuse_jobs(folder, &found)?;
        let refused = found.problems.iter().map(|problem| {
            Error::new(ErrorKind::UnsafePath, &*problem.reason)
                .with_path(folder.join(&problem.path))
        });
        Error::join(refused).map_or(Ok(()), Err)?;
        let files = found.files.into_iter();
        let files = files.filter(|path| tree::temporary(folder, path).is_none());
        let (signatures, files): (_, Vec<_>) =
            files.partition(|path| others::is_signature(folder, path, &self.key));
        self.refuse_private_keys(&files)?;
        Ok((files, signatures))
    }

    /// Refuses to sign private keys: all who get the signed folder would get them.
    fn refuse_private_keys(&self, files: &[String]) -> Result<()> {
        let own = self.options.key.path().and_then(|path| path.canonicalize().ok());
        let is_own = |path: &Path| own.is_some() && path.canonicalize().ok() == own;
        let paths = files.iter().map(|path| self.places.folder.join(path));
        let refused = paths.filter_map(|path| {
            let holds_one = if is_own(&path) { Ok(true) } else { has_private_key(&path) };
            let reason = "holds a private key, which all who get the signed folder would have: \
                          move it out of the folder, then sign";
            match holds_one {
                Ok(false) => None,
                Ok(true) => Some(Error::new(ErrorKind::InvalidArgument, reason).with_path(path)),
                Err(error) => Some(error),
            }
        });
        Error::join(refused).map_or(Ok(()), Err)
    }

    fn digests(&self, names: &[&str], method: Method) -> Result<BTreeMap<String, Vec<Hashed>>> {
        let (mut errors, mut files) = (Vec::new(), BTreeMap::new());
        let folder = &self.places.folder;
        let links = names.iter().filter(|name| tree::has_link(folder, name));
        errors.extend(links.map(|name| {
            let save = (self.options.terms)(&Term::Save);
            let reason = format!("{}: {save} writes the model without links", tree::LINK);
            Error::new(ErrorKind::UnsafePath, reason).with_path(folder.join(name))
        }));
        if errors.is_empty() {
            let directory = match &self.places.model {
                Some(_) => Directory::of_model(self.model, self.options.reading.paths)?,
                None => Directory::with_policy(folder, self.options.reading.paths)?,
            };
            // A file that cannot be opened is told of when it is hashed.
            let lengths = names
                .iter()
                .filter_map(|name| hashing::length(&directory, name).ok().map(|len| (*name, len)));
            size::check(&lengths.collect::<Vec<_>>(), method, self.options.terms)?;
            for (name, hashed) in names.iter().zip(hashing::files(&directory, names, method)) {
                match hashed {
                    Ok(parts) => drop(files.insert((*name).to_owned(), parts)),
                    Err(error) => errors.push(error),
                }
            }
        }
        match Error::join(errors) {
            Some(error) => Err(error),
            None => Ok(files),
        }
    }

    /// Removes what runs that were killed left where this one looks and writes.
    fn remove_abandoned(&mut self) {
        let folders = [self.places.folder.clone(), folder(&self.places.files).to_owned()];
        for folder in folders {
            let (_, errors) = pair::remove_abandoned(&folder);
            errors.into_iter().for_each(|error| self.warn(Warning::NotRemoved(error)));
        }
    }

    /// Puts the signatures in place.
    fn write(&self, files: &[u8], content: Option<&[u8]>) -> Result<()> {
        let SignOptions { sync, overwrite, writing, .. } = self.options;
        let goes_on = || writing.as_ref().map_or(ControlFlow::Continue(()), |goes_on| goes_on());
        let how = pair::How { sync: *sync, no_clobber: !overwrite, goes_on: &goes_on };
        let files = pair::New { path: &self.places.files, bytes: files };
        let content = content.map(|bytes| pair::New { path: &self.places.content, bytes });
        pair::publish(files, content, how)
    }
}
