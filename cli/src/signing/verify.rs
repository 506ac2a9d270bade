//! `verify-signature MODEL`: whether a model is the one that was signed.
//!
//! Signatures are verified before anything that they say is believed, and files before the model is
//! decoded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onnx_container::check::refuse_ambiguous;
use onnx_container::external_data::{Directory, PathPolicy};
use onnx_container::{Container, Error, ErrorKind, LoadOptions};

use super::bundle;
use super::hashing::{self, Hashed, Method, Part};
use super::keys::PublicKey;
use super::manifest::Manifest;
use super::places::Places;
use super::reason::reason;
use super::statement::{self, Statement};
use super::tree::{self, Ignored, Temporary};
use super::verdict::{Asked, Content, Files, Kind, Problem, Verdict};
use super::{content, covered, others, sign, told};
use crate::args::VerifySignatureArgs;
use crate::files::sha256::hex;
use crate::model::reading::{self, Reading};
use crate::terminal::failure::{Failure, JsonError, Outcome};
use crate::terminal::output::Output;

/// Judges the model and prints the verdict.
pub fn run(args: &VerifySignatureArgs, out: &mut Output) -> Result<Outcome, Failure> {
    args.model.metadata().map_err(|error| Error::io(&args.model, error))?;
    let key = PublicKey::read(&args.key)?;
    let places = Places::of(&args.model, args.signature.as_deref())?;
    let (manifest, signed) = signatures(args, &places, &key)?;
    let judge = Judge { args, places: &places, reading: reading::of(&args.read), key: &key };
    judge.refuse_leftovers()?;
    let content_of_folder = signed.is_some() && places.model.is_none();
    let asked = Asked { files_required: args.require_files, content_of_folder };
    let files =
        manifest.as_ref().map(|(path, manifest)| judge.files(path, manifest)).transpose()?;
    let manifest = manifest.as_ref().map(|(_, manifest)| manifest);
    let content = signed.and_then(|(path, signed)| judge.content(path, signed, manifest));
    if files.is_none() && content.is_none() {
        let reason = "only the content of a model is signed: give the model, not its folder";
        return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(&args.model).into());
    }
    let reason = reason(files.as_ref(), content.as_ref(), asked);
    let key = (key.hint()?, key.curve());
    let verdict = Verdict::new(&args.model, key, (files, content), reason);
    if args.json {
        out.json(&verdict)?;
    } else {
        told::print(&verdict, out)?;
    }
    Ok(Outcome::of(verdict.ok()))
}

type Signed<'a, S> = Option<(&'a Path, S)>;

/// The statements that `key` signed, each with the file that it is in.
fn signatures<'a>(
    args: &VerifySignatureArgs,
    places: &'a Places,
    key: &PublicKey,
) -> Result<(Signed<'a, Manifest>, Signed<'a, content::Content>), Failure> {
    let (mut files, mut content) = (None, None);
    for path in [&places.files, &places.content] {
        let is_given = args.signature.as_ref() == Some(path);
        if !is_given && path.symlink_metadata().is_err() {
            continue;
        }
        let payload = bundle::read(path, key)?;
        let statement = statement::parse(&payload);
        let is_second =
            match statement.map_err(|reason| bundle::error(path, ErrorKind::Decode, reason))? {
                Statement::Files(manifest) => files.replace((path.as_path(), manifest)).is_some(),
                Statement::Content(signed) => content.replace((path.as_path(), signed)).is_some(),
            };
        if is_second {
            let reason = format!("makes the same statement as `{}`", places.files.display());
            return Err(bundle::error(path, ErrorKind::Decode, reason).into());
        }
    }
    if files.is_none() && content.is_none() {
        let reason = format!("no signature is here, nor at `{}`", places.content.display());
        return Err(bundle::error(&places.files, ErrorKind::MissingFile, reason).into());
    }
    Ok((files, content))
}

/// What is in a folder and was not signed.
#[derive(Default)]
struct Unsigned {
    problems: Vec<Problem>,
    /// What the signature says that it leaves out.
    left_out: Vec<String>,
}

struct Judge<'a> {
    args: &'a VerifySignatureArgs,
    places: &'a Places,
    reading: Reading,
    key: &'a PublicKey,
}

impl<'a> Judge<'a> {
    /// Refuses a folder that an interrupted save left as it is: its model may be the old one, the
    /// new one or gone.
    fn refuse_leftovers(&self) -> Result<(), Failure> {
        if self.places.model.is_some() {
            return Ok(());
        }
        let root = &self.places.folder;
        Ok(sign::refuse_leftovers(
            root,
            &tree::list(root, &Ignored::with([]), true)?,
            "then verify",
        )?)
    }

    /// Compares the files with those that were signed.
    fn files(&self, signature: &'a Path, manifest: &Manifest) -> Result<Files<'a>, Failure> {
        let (model, single) = (&self.places.model, manifest.single());
        let expected: Vec<(&str, &[Hashed])> = match (single, model) {
            (Some(parts), Some(model)) => vec![(model.as_str(), parts)],
            (Some(_), None) => {
                let reason = "a single file is signed, and this is a folder";
                return Err(
                    bundle::error(signature, ErrorKind::InvalidArgument, reason.into()).into()
                );
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
        if single.is_none() && !self.args.ignore_unsigned_files {
            let unsigned = self.unsigned(&signed, manifest)?;
            left_out = unsigned.left_out;
            problems.extend(unsigned.problems);
        }
        let own = self.own(&signed, &mut problems)?;
        left_out.retain(|path| !own.contains(path));
        let Manifest { method, .. } = manifest;
        Ok(Files {
            signature,
            as_signed: problems.is_empty(),
            method: method.name(),
            shard_size: method.shard_size(),
            signed_files: signed.len(),
            problems,
            left_out,
            own,
            model: self.places.model.clone(),
        })
    }

    /// What differs in signed files. Links are followed as `--paths` says: what counts is the
    /// bytes that the model has.
    fn compare(
        &self,
        expected: &[(&str, &[Hashed])],
        manifest: &Manifest,
    ) -> Result<Vec<Problem>, Failure> {
        let directory = self.directory()?;
        // Files of another length are not taken apart: they may have any number of shards.
        let of_other_length = |(name, signed): &(&str, &[Hashed])| match manifest.method {
            Method::Files => None,
            Method::Shards(_) => hashing::length(&directory, name)
                .ok()
                .filter(|len| *len != end(signed))
                .map(|len| (Kind::Changed, format!("it has {len} bytes, not {}", end(signed)))),
        };
        let differing: Vec<_> = expected.iter().map(of_other_length).collect();
        let hashed = expected.iter().zip(&differing).filter(|(_, other)| other.is_none());
        let names: Vec<_> = hashed.map(|((name, _), _)| *name).collect();
        let mut hashed = hashing::files(&directory, &names, manifest.method).into_iter();
        let problems = expected.iter().zip(differing).filter_map(|((path, signed), differing)| {
            let found =
                differing.or_else(|| hashed.next().and_then(|found| difference(found, signed)));
            found.map(|(kind, reason)| Problem { path: (*path).to_owned(), kind, reason })
        });
        Ok(problems.collect())
    }

    fn directory(&self) -> Result<Directory, Error> {
        match &self.places.model {
            Some(_) => Directory::of_model(&self.args.model, self.reading.paths),
            None => Directory::with_policy(&self.places.folder, self.reading.paths),
        }
    }

    /// What is in the folder and was not signed.
    fn unsigned(&self, signed: &BTreeSet<&str>, manifest: &Manifest) -> Result<Unsigned, Failure> {
        let signatures = self.places.signatures_inside();
        let root = &self.places.folder;
        let follows_links = self.reading.paths != PathPolicy::Strict;
        let always = Ignored::with(signatures.iter().map(String::as_str));
        let found = tree::list(root, &always, follows_links)?;
        // An empty file has no shards.
        let counts = |path: &str| {
            manifest.method == Method::Files
                || root.join(path).metadata().map_or(true, |meta| meta.len() > 0)
        };
        let by_the_signer = Ignored::with(manifest.ignored.iter().map(String::as_str));
        let is_left_out = |path: &str| !self.args.all_files && by_the_signer.covers(path);
        let mut unsigned = Unsigned::default();
        for path in found.files.into_iter().filter(|path| !signed.contains(path.as_str())) {
            if is_left_out(&path) {
                unsigned.left_out.push(path);
            } else if counts(&path) && !others::is_signature(root, &path, self.key) {
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
    ) -> Result<BTreeSet<String>, Failure> {
        let Some(model) = &self.places.model else { return Ok(BTreeSet::new()) };
        let mut own = match sign::files_of(&self.args.model, model, self.reading) {
            Ok(own) => own,
            // Files that are not as signed explain it.
            Err(_) if !problems.is_empty() => BTreeSet::from([model.clone()]),
            Err(failure) => return Err(failure),
        };
        let unsigned = own.iter().filter(|path| !signed.contains(path.as_str()));
        let unsigned: BTreeSet<_> = unsigned.cloned().collect();
        let only_weights = match unsigned.iter().any(|path| path != model) {
            true => covered::only_weights(&self.args.model, self.reading, &unsigned)?,
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
        signature: &'a Path,
        signed: content::Content,
        manifest: Option<&Manifest>,
    ) -> Option<Content<'a>> {
        let model = self.places.model.as_ref()?;
        let content::Content { model: signed_model, digest: signed_digest, files } = signed;
        let is_of_that_name = signed_model == *model;
        let mut content = Content {
            signature,
            is_of_that_name,
            as_signed: None,
            signed_digest: prefixed(&signed_digest),
            digest: None,
            reason: None,
            error: None,
            ambiguous: None,
            files,
            signed_model,
        };
        // Two models of one folder, with one statement on its files.
        let both = [&content.signed_model, model];
        if !is_of_that_name
            && manifest.is_some_and(|all| both.iter().all(|name| all.files.contains_key(*name)))
        {
            content.reason = Some(format!("this is about `{}`", content.signed_model));
            return Some(content);
        }
        let options = LoadOptions::from(self.reading);
        let digest = Container::load(&self.args.model, options.clone())
            .and_then(|model| model.digest())
            // The digest is of what this reader sees, and of no byte besides.
            .and_then(|digest| Ok((digest, ambiguous(&self.args.model, options)?)));
        match digest {
            Ok((digest, ambiguous)) => {
                content.ambiguous = ambiguous;
                let digest = hex(digest.as_bytes());
                content.as_signed = Some(digest == signed_digest);
                content.reason = (digest != signed_digest).then(|| {
                    let about = match is_of_that_name {
                        true => String::new(),
                        false => format!("this is about `{}`; ", content.signed_model),
                    };
                    format!("{about}its digest is {digest}, not {signed_digest}")
                });
                content.digest = Some(prefixed(&digest));
            }
            Err(error) => {
                content.reason = Some(error.to_string());
                content.error = Some(JsonError::from(&error));
            }
        }
        Some(content)
    }
}

/// Why other readers may take the file at `path` for another model.
fn ambiguous(path: &Path, options: LoadOptions) -> Result<Option<String>, Error> {
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
    Problem { path, kind: Kind::Unsigned, reason: reason.to_owned() }
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
fn difference(
    found: onnx_container::Result<Vec<Hashed>>,
    signed: &[Hashed],
) -> Option<(Kind, String)> {
    let found = match found {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::MissingFile => {
            return Some((Kind::Missing, "it was signed and is not there".to_owned()));
        }
        Err(error) => return Some((Kind::Refused, error.reason().to_owned())),
    };
    // It may have grown since its length was compared.
    if end(&found) != end(signed) {
        let reason = format!("it has {} bytes, not {}", end(&found), end(signed));
        return Some((Kind::Changed, reason));
    }
    let mut pairs = found.iter().zip(signed);
    let (now, then) = pairs.find(|(now, then)| now.digest != then.digest)?;
    let of = match &now.part {
        Part::Whole => String::new(),
        Part::Range(range) => format!(" in bytes {}..{}", range.start, range.end),
    };
    Some((Kind::Changed, format!("its SHA-256{of} is {}, not {}", now.digest, then.digest)))
}

/// Where the last of these parts ends; for a whole file 0.
fn end(parts: &[Hashed]) -> u64 {
    parts.last().map_or(0, |last| last.part.end())
}
