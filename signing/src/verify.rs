//! Whether a model is the one that was signed.
//!
//! Signatures are verified before anything that they say is believed, and files before the model is
//! decoded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onnx_container::check::refuse_ambiguous;
use onnx_container::external_data::{Directory, PathPolicy};
use onnx_container::recovery::recover_model;
use onnx_container::{Container, Error, ErrorKind, LoadOptions, Result, work};
use onnx_container_files::sha256::hex;

use crate::bundle;
use crate::content::Content;
use crate::hashing::{self, Hashed, Method, Part};
use crate::manifest::Manifest;
use crate::options::VerifyOptions;
use crate::others::{places_of, says_it_is_of};
use crate::places::Places;
use crate::reason::{Asked, reason};
use crate::statement::{self, Statement};
use crate::tree::{self, Ignored, Temporary};
use crate::verdict::{ContentVerdict, FilesVerdict, Problem, ProblemKind, Verdict};
use crate::{covered, needed, others};

/// Verifies that the model at `path`, or the folder, is the one that was signed. A save of the
/// model that was interrupted is completed first.
///
/// # Errors
/// [`ErrorKind::NotVerified`] for another model, and the errors of [`verdict`].
pub fn verify(path: impl AsRef<Path>, options: &VerifyOptions) -> Result<Verdict> {
    verdict(path, options)?.into_verified()
}

/// What the signatures say of the model at `path`, or of the folder: also that it is another one.
///
/// # Errors
/// There is no verdict: [`ErrorKind::MissingFile`] where no signature is there,
/// [`ErrorKind::OtherKey`] for one by another key, [`ErrorKind::WrongDigest`] where one is not by
/// the key that it names, [`ErrorKind::Decode`] and [`ErrorKind::Unsupported`] for what cannot be
/// read, [`ErrorKind::Changed`] for a folder with an interrupted save,
/// [`ErrorKind::InvalidArgument`] for options that contradict each other, and those of reading the
/// files.
#[must_use = "the verdict may be that the model is not the one that was signed"]
pub fn verdict(path: impl AsRef<Path>, options: &VerifyOptions) -> Result<Verdict> {
    let path = path.as_ref();
    options.check()?;
    // What cannot be completed is told when the model is read.
    let _ = recover_model(path);
    path.metadata().map_err(|error| Error::io(path, error))?;
    let places = places(path, options)?;
    let (manifest, signed) = signatures(&places, options)?;
    let judge = Judge { model: path, places: &places, options };
    judge.refuse_leftovers()?;
    let content_of_folder = signed.is_some() && places.model.is_none();
    let (files_required, terms) = (options.require_files, options.terms);
    let asked = Asked { files_required, content_of_folder, terms };
    let files =
        manifest.as_ref().map(|(path, manifest)| judge.files(path, manifest)).transpose()?;
    let manifest = manifest.as_ref().map(|(_, manifest)| manifest);
    let content = match signed {
        Some((path, signed)) => judge.content(path, signed, manifest)?,
        None => None,
    };
    if files.is_none() && content.is_none() {
        let reason = "only the content of a model is signed: give the model, not its folder";
        return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(path));
    }
    let reason = reason(files.as_ref(), content.as_ref(), asked);
    let (key, curve) = (options.key.fingerprint()?, options.key.curve());
    Ok(Verdict { model: path.to_owned(), reason, key, curve, files, content })
}

/// Where the model and its signatures are. Without a name for these, they are `model.sig` unless
/// only `NAME.sig`, which `sign` proposes for a second model, says that it is of `NAME.onnx`.
fn places(path: &Path, options: &VerifyOptions) -> Result<Places> {
    let places = Places::of(path, options.signature.as_deref())?;
    let Some(model) = places.model.as_ref().filter(|_| options.signature.is_none()) else {
        return Ok(places);
    };
    let is_of_it =
        |of: &Places| [&of.files, &of.content].into_iter().any(|it| says_it_is_of(it, model));
    let own = Places::of(path, Some(&path.with_extension("sig")))?;
    Ok(if !is_of_it(&places) && is_of_it(&own) { own } else { places })
}

type Signed<'a, S> = Option<(&'a Path, S)>;

/// The statements that the key signed, each with the file that it is in.
fn signatures<'a>(
    places: &'a Places,
    options: &VerifyOptions,
) -> Result<(Signed<'a, Manifest>, Signed<'a, Content>)> {
    let (mut files, mut content) = (None, None);
    for path in [&places.files, &places.content] {
        let is_given = options.signature.as_ref() == Some(path);
        if !is_given && path.symlink_metadata().is_err() {
            continue;
        }
        let payload = bundle::read(path, &options.key)?;
        let statement = statement::parse(&payload);
        let is_second =
            match statement.map_err(|reason| bundle::error(path, ErrorKind::Decode, reason))? {
                Statement::Files(manifest) => files.replace((path.as_path(), manifest)).is_some(),
                Statement::Content(signed) => content.replace((path.as_path(), signed)).is_some(),
            };
        if is_second {
            let reason = format!("makes the same statement as `{}`", places.files.display());
            return Err(bundle::error(path, ErrorKind::Decode, reason));
        }
    }
    if files.is_none() && content.is_none() {
        return Err(bundle::error(&places.files, ErrorKind::MissingFile, looked_at(places)));
    }
    Ok((files, content))
}

/// All the places where no signature is. One that was given is an error of its own.
fn looked_at(places: &Places) -> String {
    let own = places.model.as_ref().map(|name| places_of(&places.folder.join(name)));
    let own = own.unwrap_or_default();
    let others = own.into_iter().filter(|path| ![&places.files, &places.content].contains(&path));
    let all = std::iter::once(places.content.clone()).chain(others);
    let all: Vec<_> = all.map(|path| format!("`{}`", path.display())).collect();
    format!("no signature is here, nor at {}", all.join(", "))
}

/// What is in a folder and was not signed.
#[derive(Default)]
struct Unsigned {
    problems: Vec<Problem>,
    /// What the signature says that it leaves out.
    left_out: Vec<String>,
}

struct Judge<'a> {
    model: &'a Path,
    places: &'a Places,
    options: &'a VerifyOptions,
}

impl Judge<'_> {
    /// Refuses a folder that an interrupted save left as it is: its model may be the old one, the
    /// new one or gone.
    fn refuse_leftovers(&self) -> Result<()> {
        if self.places.model.is_some() {
            return Ok(());
        }
        let root = &self.places.folder;
        let found = tree::list(root, &Ignored::with([]), true)?;
        tree::refuse_leftovers(root, &found, "then verify")
    }

    /// Compares the files with those that were signed.
    fn files(&self, signature: &Path, manifest: &Manifest) -> Result<FilesVerdict> {
        let (model, single) = (&self.places.model, manifest.single());
        let expected: Vec<(&str, &[Hashed])> = match (single, model) {
            (Some(parts), Some(model)) => vec![(model.as_str(), parts)],
            (Some(_), None) => {
                let reason = "a single file is signed, and this is a folder";
                return Err(bundle::error(signature, ErrorKind::InvalidArgument, reason.into()));
            }
            (None, _) => manifest
                .files
                .iter()
                .map(|(path, parts)| (path.as_str(), parts.as_slice()))
                .collect(),
        };
        let mut problems = self.compare(&expected, manifest)?;
        let signed: BTreeSet<&str> = expected.iter().map(|(path, _)| *path).collect();
        let mut left_out = Vec::new();
        if single.is_none() && !self.options.ignore_unsigned_files {
            let unsigned = self.unsigned(&signed, manifest)?;
            left_out = unsigned.left_out;
            problems.extend(unsigned.problems);
        }
        let own = self.own(&signed, &mut problems)?;
        left_out.retain(|path| !own.contains(path));
        Ok(FilesVerdict {
            signature: signature.to_owned(),
            as_signed: problems.is_empty(),
            shard_size: manifest.method.shard_size(),
            signed_files: signed.len(),
            problems,
            left_out,
            own,
            model: self.places.model.clone(),
        })
    }

    /// What differs in signed files. Links are followed as the path policy says: what counts is the
    /// bytes that the model has.
    fn compare(&self, expected: &[(&str, &[Hashed])], manifest: &Manifest) -> Result<Vec<Problem>> {
        let directory = self.directory()?;
        // Files of another length are not taken apart: they may have any number of shards.
        let of_other_length = |(name, signed): &(&str, &[Hashed])| match manifest.method {
            Method::Files => None,
            Method::Shards(_) => hashing::length(&directory, name)
                .ok()
                .filter(|len| *len != end(signed))
                .map(|len| {
                    (ProblemKind::Changed, format!("it has {len} bytes, not {}", end(signed)))
                }),
        };
        let differing: Vec<_> = expected.iter().map(of_other_length).collect();
        let hashed = expected.iter().zip(&differing).filter(|(_, other)| other.is_none());
        let names: Vec<_> = hashed.map(|((name, _), _)| *name).collect();
        let mut hashed = hashing::files(&directory, &names, manifest.method).into_iter();
        work::check()?;
        let problems = expected.iter().zip(differing).filter_map(|((path, signed), differing)| {
            let found =
                differing.or_else(|| hashed.next().and_then(|found| difference(found, signed)));
            found.map(|(kind, reason)| Problem { path: (*path).to_owned(), kind, reason })
        });
        Ok(problems.collect())
    }

    fn directory(&self) -> Result<Directory> {
        let policy = self.options.reading.paths;
        match &self.places.model {
            Some(_) => Directory::of_model(self.model, policy),
            None => Directory::with_policy(&self.places.folder, policy),
        }
    }

    /// What is in the folder and was not signed.
    fn unsigned(&self, signed: &BTreeSet<&str>, manifest: &Manifest) -> Result<Unsigned> {
        let signatures = self.places.signatures_inside();
        let root = &self.places.folder;
        let follows_links = self.options.reading.paths != PathPolicy::Strict;
        let always = Ignored::with(signatures.iter().map(String::as_str));
        let found = tree::list(root, &always, follows_links)?;
        // An empty file has no shards.
        let counts = |path: &str| {
            manifest.method == Method::Files
                || root.join(path).metadata().map_or(true, |meta| meta.len() > 0)
        };
        let by_the_signer = Ignored::with(manifest.ignored.iter().map(String::as_str));
        let is_left_out = |path: &str| !self.options.all_files && by_the_signer.covers(path);
        let mut unsigned = Unsigned::default();
        for path in found.files.into_iter().filter(|path| !signed.contains(path.as_str())) {
            if is_left_out(&path) {
                unsigned.left_out.push(path);
            } else if counts(&path) && !others::is_signature(root, &path, &self.options.key) {
                let reason = not_signed_because(root, &path);
                unsigned.problems.push(not_signed(path, &reason));
            }
        }
        for problem in found.problems {
            if is_left_out(&problem.path) {
                unsigned.left_out.push(problem.path);
            } else if !signed.contains(problem.path.as_str()) {
                unsigned.problems.push(problem);
            }
        }
        Ok(unsigned)
    }

    /// The files of the model. Those that were not signed are problems, the model too, whatever
    /// else is left out or ignored.
    fn own(
        &self,
        signed: &BTreeSet<&str>,
        problems: &mut Vec<Problem>,
    ) -> Result<BTreeSet<String>> {
        let Some(model) = &self.places.model else { return Ok(BTreeSet::new()) };
        let reading = self.options.reading;
        let mut own = match needed::names(self.model, model, reading) {
            Ok(own) => own,
            // Files that are not as signed explain it.
            Err(error) if error.kind() != ErrorKind::Cancelled && !problems.is_empty() => {
                BTreeSet::from([model.clone()])
            }
            Err(error) => return Err(error),
        };
        let unsigned = own.iter().filter(|path| !signed.contains(path.as_str()));
        let unsigned: BTreeSet<_> = unsigned.cloned().collect();
        let only_weights = match unsigned.iter().any(|path| path != model) {
            true => covered::only_weights(self.model, reading, &unsigned)?,
            false => BTreeSet::new(),
        };
        let reasons = unsigned.into_iter().map(|path| {
            let reason = if path == *model {
                "this is the model, and it was not signed"
            } else if only_weights.contains(&path) {
                "the model needs it, and it was not signed"
            } else {
                own.remove(&path);
                "the model needs it, it was not signed, and it holds more than weights"
            };
            not_signed(path, reason)
        });
        add(problems, reasons);
        Ok(own)
    }

    /// Compares the content with that which was signed; a folder has none. `manifest` is the
    /// statement on files.
    fn content(
        &self,
        signature: &Path,
        signed: Content,
        manifest: Option<&Manifest>,
    ) -> Result<Option<ContentVerdict>> {
        let Some(model) = &self.places.model else { return Ok(None) };
        let is_of_that_name = signed.model == *model;
        let mut content = ContentVerdict {
            signature: signature.to_owned(),
            is_of_that_name,
            as_signed: None,
            signed_digest: prefixed(&signed.digest),
            digest: None,
            reason: None,
            error: None,
            ambiguous: None,
            files: signed.files,
            signed_model: signed.model,
        };
        // Two models of one folder, with one statement on its files.
        let both = [&content.signed_model, model];
        if !is_of_that_name
            && manifest.is_some_and(|all| both.iter().all(|name| all.files.contains_key(*name)))
        {
            content.reason = Some(format!("this is about `{}`", content.signed_model));
            return Ok(Some(content));
        }
        match self.digest() {
            Ok((digest, ambiguous)) => {
                content.ambiguous = ambiguous;
                content.compare(&signed.digest, digest);
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => {
                content.reason = Some(error.to_string());
                content.error = Some(error);
            }
        }
        Ok(Some(content))
    }

    /// The digest of the model, and why other readers may take its file for another model: the
    /// digest is of what this reader sees, and of no byte besides.
    fn digest(&self) -> Result<(String, Option<String>)> {
        let options = LoadOptions::from(self.options.reading);
        let digest = Container::load(self.model, options.clone())?.digest()?;
        Ok((hex(digest.as_bytes()), ambiguous(self.model, options)?))
    }
}

impl ContentVerdict {
    /// Compares the digest that was `signed` with that of the model.
    fn compare(&mut self, signed: &str, digest: String) {
        self.as_signed = Some(digest == signed);
        self.reason = (digest != signed).then(|| {
            let about = match self.is_of_that_name {
                true => String::new(),
                false => format!("this is about `{}`; ", self.signed_model),
            };
            format!("{about}its digest is {digest}, not {signed}")
        });
        self.digest = Some(prefixed(&digest));
    }
}

/// Why other readers may take the file at `path` for another model.
fn ambiguous(path: &Path, options: LoadOptions) -> Result<Option<String>> {
    match refuse_ambiguous(path, options) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == ErrorKind::Ambiguous => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

fn prefixed(digits: &str) -> String {
    format!("sha256:{digits}")
}

/// Why the file at `path` is there and was not signed.
fn not_signed_because(root: &Path, path: &str) -> String {
    if tree::job_of(root, path).is_some() {
        return "it is a file of a job that is not ended".to_owned();
    }
    let Some((of, folder)) = tree::temporary(root, path) else {
        return "it is in the folder and was not signed".to_owned();
    };
    let who = match of {
        Temporary::Save => "an interrupted save",
        Temporary::Signing => "a `sign` that was killed",
        Temporary::Unfinished => "a command that was killed, or is running,",
    };
    format!("{who} left it: `onnx-container recover {}` removes it", folder.display())
}

fn not_signed(path: String, reason: &str) -> Problem {
    Problem { path, kind: ProblemKind::Unsigned, reason: reason.to_owned() }
}

/// Adds the problems of the model's own files, in the place of less precise ones.
fn add(problems: &mut Vec<Problem>, own: impl Iterator<Item = Problem>) {
    let mut own: BTreeMap<_, _> = own.map(|problem| (problem.path.clone(), problem)).collect();
    for known in problems.iter_mut() {
        if let Some(problem) = own.remove(&known.path)
            && problem.kind == known.kind
        {
            *known = problem;
        }
    }
    problems.extend(own.into_values());
}

/// What differs between a file as it was `found` and as it was `signed`.
fn difference(found: Result<Vec<Hashed>>, signed: &[Hashed]) -> Option<(ProblemKind, String)> {
    let found = match found {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::MissingFile => {
            return Some((ProblemKind::Missing, "it was signed and is not there".to_owned()));
        }
        Err(error) => return Some((ProblemKind::Refused, error.reason().to_owned())),
    };
    // It may have grown since its length was compared.
    if end(&found) != end(signed) {
        let reason = format!("it has {} bytes, not {}", end(&found), end(signed));
        return Some((ProblemKind::Changed, reason));
    }
    let mut pairs = found.iter().zip(signed);
    let (now, then) = pairs.find(|(now, then)| now.digest != then.digest)?;
    let of = match &now.part {
        Part::Whole => String::new(),
        Part::Range(range) => format!(" in bytes {}..{}", range.start, range.end),
    };
    Some((ProblemKind::Changed, format!("its SHA-256{of} is {}, not {}", now.digest, then.digest)))
}

/// Where the last of these parts ends; for a whole file 0.
fn end(parts: &[Hashed]) -> u64 {
    parts.last().map_or(0, |last| last.part.end())
}
