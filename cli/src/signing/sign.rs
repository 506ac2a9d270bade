//! `sign MODEL`: one signature on the files of a model, and one on its content.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onnx_container::check::refuse_ambiguous;
use onnx_container::external_data::Directory;
use onnx_container::{Container, Error, ErrorKind, LoadOptions};
use serde::Serialize;

use super::bundle;
use super::content::Content;
use super::hashing::{self, Hashed, Method};
use super::keys::{PrivateKey, PublicKey};
use super::manifest::Manifest;
use super::places::Places;
use super::tree::{self, ALWAYS_IGNORED, Ignored, Temporary, Tree};
use super::{others, pair, size};
use crate::args::{OutArgs, SignArgs};
use crate::files::staged::{folder, refusal};
use crate::model::needed::{self, needed, plain};
use crate::model::reading::{self, Reading};
use crate::model::save;
use crate::model::vouched::{self, Vouched};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, lossy, lossy_or_null, print_on_stderr};
use crate::terminal::stop;

/// Signs the model, or the files of a folder, and prints what was signed.
pub fn run(args: &SignArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let key = PrivateKey::read(&args.key)?;
    let job = Job::new(args, key.public())?;
    job.check_targets()?;
    job.remove_abandoned();
    // One after the other, so that the model is not in memory twice.
    let own = match &job.places.model {
        Some(model) => files_of(&args.model, model, job.reading)?,
        None => BTreeSet::new(),
    };
    let container = job.load()?;
    let (manifest, others) = job.manifest(&own)?;
    let statement = manifest.statement(job.places.folder_name());
    let files = signed(&statement, &key)?;
    let digest = container.map(|container| container.digest()).transpose();
    let digest = digest.map_err(|error| error.with_path(&args.model))?;
    let content = match (&digest, &job.places.model) {
        (Some(digest), Some(model)) => {
            Some(signed(&Content::new(model.clone(), digest, own).statement(), &key)?)
        }
        _ => None,
    };
    job.write(&files, content.as_deref())?;
    let report = Report {
        command: "sign",
        model: &args.model,
        key: key.public().hint()?,
        curve: key.public().curve(),
        signature: &job.places.files,
        method: manifest.method.name(),
        shard_size: manifest.method.shard_size(),
        files: manifest.files.keys().map(String::as_str).collect(),
        content_signature: content.as_ref().map(|_| job.places.content.as_path()),
        digest: digest.map(|digest| digest.to_string()),
        unsigned_files: others.count,
        nameless: others.nameless,
    };
    if args.out.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::Done)
}

/// The signature file of a statement.
fn signed(statement: &impl Serialize, key: &PrivateKey) -> Result<Vec<u8>, Failure> {
    let bytes = bundle::write(&serde_json::to_vec(statement).map_err(Error::other)?, key)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= bundle::MOST_BYTES) {
        return Ok(bytes);
    }
    let reason =
        format!("the signature would have {} bytes, more than a verifier reads", bytes.len());
    Err(Error::new(ErrorKind::TooLarge, reason).into())
}

/// The files of the model at `path`, whose name is `model`, as a signature names them.
pub fn files_of(path: &Path, model: &str, reading: Reading) -> Result<BTreeSet<String>, Failure> {
    let container = Container::load(path, LoadOptions::from(reading).weights(false))?;
    let needed = needed(container.model(), path, reading.paths)?;
    if let Some(error) = Error::join(needed.errors) {
        return Err(error.into());
    }
    let weights = needed.files.iter().map(|file| plain(&file.location));
    Ok(weights.chain([model.to_owned()]).collect())
}

/// Refuses a folder with files that saves make and remove again; `next` is what to do after
/// `recover`.
pub fn refuse_leftovers(root: &Path, found: &Tree, next: &str) -> Result<(), Error> {
    let paths = found.files.iter().chain(found.problems.iter().map(|problem| &problem.path));
    let mut temporary = paths.filter_map(|path| tree::temporary(root, path));
    let Some((of, folder)) = temporary.find(|(of, _)| *of != Temporary::Signing) else {
        return Ok(());
    };
    let who = if of == Temporary::Save { "an interrupted save" } else { "an interrupted command" };
    let reason =
        format!("has what {who} left: run `onnx-container recover {}`, {next}", folder.display());
    Err(Error::new(ErrorKind::Changed, reason).with_path(folder))
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
    args: &'a SignArgs,
    places: Places,
    key: PublicKey,
    reading: Reading,
}

impl<'a> Job<'a> {
    fn new(args: &'a SignArgs, key: PublicKey) -> Result<Self, Failure> {
        let places = Places::of(&args.model, args.output.as_deref())?;
        let refuse = |reason: String| {
            let error = Error::new(ErrorKind::InvalidArgument, reason);
            Err(error.with_path(&places.files).into())
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
        Ok(Self { args, places, key, reading: reading::of(&args.out.read) })
    }

    fn load(&self) -> Result<Option<Container>, Failure> {
        if self.places.model.is_none() {
            return Ok(None);
        }
        let vouched = Vouched::of(true, self.args.ignore_stored_digests);
        let container = vouched::load(&self.args.model, self.reading, vouched)?;
        save::warn(&container);
        if let Err(error) = refuse_ambiguous(&self.args.model, LoadOptions::from(self.reading)) {
            let what = "no file with these bytes is verified by its content alone";
            print_on_stderr(format_args!("warning: {error}; {what}"));
        }
        Ok(Some(container))
    }

    /// Refuses to replace the model, its weights, the key, models, what is no signature, and
    /// signatures of another model or key.
    fn check_targets(&self) -> Result<(), Failure> {
        let Places { files, content, model, .. } = &self.places;
        let mut own = match model {
            Some(_) => needed::files(&self.args.model, self.reading)?,
            None => Vec::new(),
        };
        own.extend(self.args.key.canonicalize());
        let hint = self.key.hint()?;
        let targets = [Some(files), model.as_ref().map(|_| content)];
        let refusals = targets.into_iter().flatten().filter_map(|path| {
            refusal(path, &own, self.args.out.no_clobber)
                .or_else(|| others::of_another_key(path, &hint))
                .or_else(|| others::of_another_model(&self.places, path))
        });
        let mut refusals: Vec<_> = refusals.collect();
        // That there is no such folder is said once.
        refusals.dedup_by_key(|error| error.to_string());
        Error::join(refusals).map_or(Ok(()), |e| Err(e.into()))
    }

    /// The files with their digests, of which the model has `own`; and the others that are in the
    /// folder.
    fn manifest(&self, own: &BTreeSet<String>) -> Result<(Manifest, Others), Failure> {
        let (folder, mut signatures) = (&self.places.folder, self.places.signatures_inside());
        let mut names = own.clone();
        let ignored = Ignored::with(signatures.iter().map(String::as_str));
        let found = tree::list(folder, &ignored, false);
        let mut others = Others::default();
        if self.args.all_files || self.places.model.is_none() {
            let (files, other_signatures) = self.all_files(found?)?;
            names.extend(files);
            signatures.extend(other_signatures);
        } else if let Ok(found) = found {
            others = self.others(found, own);
        }
        if names.is_empty() {
            let error = Error::new(ErrorKind::InvalidArgument, "no file is in this folder");
            return Err(error.with_path(folder).into());
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let always = ALWAYS_IGNORED.map(str::to_owned);
        let method = self.args.shard_size.map_or(Method::Files, Method::Shards);
        let left_out = std::mem::take(&mut others.left_out);
        let manifest = Manifest {
            method,
            form: self.args.shard_form,
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
    fn all_files(&self, found: Tree) -> Result<(Vec<String>, Vec<String>), Failure> {
        let folder = &self.places.folder;
        refuse_leftovers(folder, &found, "then sign")?;
        let refused = found.problems.iter().map(|problem| {
            Error::new(ErrorKind::UnsafePath, &*problem.reason)
                .with_path(folder.join(&problem.path))
        });
        Error::join(refused).map_or(Ok(()), Err)?;
        let files = found.files.into_iter();
        let files = files.filter(|path| tree::temporary(folder, path).is_none());
        let (signatures, files) =
            files.partition(|path| others::is_signature(folder, path, &self.key));
        Ok((files, signatures))
    }

    fn digests(
        &self,
        names: &[&str],
        method: Method,
    ) -> Result<BTreeMap<String, Vec<Hashed>>, Failure> {
        let (mut errors, mut files) = (Vec::new(), BTreeMap::new());
        let folder = &self.places.folder;
        let links = names.iter().filter(|name| tree::has_link(folder, name));
        errors.extend(links.map(|name| {
            let reason =
                format!("{}: `pack` or `embed` writes the model without links", tree::LINK);
            Error::new(ErrorKind::UnsafePath, reason).with_path(folder.join(name))
        }));
        if errors.is_empty() {
            let directory = match &self.places.model {
                Some(_) => Directory::of_model(&self.args.model, self.reading.paths)?,
                None => Directory::with_policy(folder, self.reading.paths)?,
            };
            // A file that cannot be opened is told of when it is hashed.
            let lengths = names
                .iter()
                .filter_map(|name| hashing::length(&directory, name).ok().map(|len| (*name, len)));
            size::check(&lengths.collect::<Vec<_>>(), method)?;
            for (name, hashed) in names.iter().zip(hashing::files(&directory, names, method)) {
                match hashed {
                    Ok(parts) => drop(files.insert((*name).to_owned(), parts)),
                    Err(error) => errors.push(error),
                }
            }
        }
        match Error::join(errors) {
            Some(error) => Err(error.into()),
            None => Ok(files),
        }
    }

    /// Removes what runs that were killed left where this one looks and writes.
    fn remove_abandoned(&self) {
        for folder in [&*self.places.folder, folder(&self.places.files)] {
            let (_, errors) = pair::remove_abandoned(folder);
            errors.iter().for_each(|error| print_on_stderr(format_args!("warning: {error}")));
        }
    }

    /// Puts the signatures in place.
    fn write(&self, files: &[u8], content: Option<&[u8]>) -> Result<(), Failure> {
        let OutArgs { no_sync, no_clobber, .. } = self.args.out;
        let how = pair::How { sync: !no_sync, no_clobber };
        let files = pair::New { path: &self.places.files, bytes: files };
        let what = if content.is_some() { "both signatures were" } else { "the signature was" };
        let content = content.map(|bytes| pair::New { path: &self.places.content, bytes });
        match pair::publish(files, content, how) {
            Ok(()) => stop::written(format!("{what} written")),
            Err(error) => return Err(stop::unwritten(error).into()),
        }
        Ok(())
    }
}

const NO_CONTENT: &str = "a folder has no content that is signed, and a signature of the content that was there stays: \
                          `sign MODEL --all-files` signs the folder and the content of a model in it";

#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    key: String,
    curve: &'static str,
    #[serde(serialize_with = "lossy")]
    signature: &'a Path,
    method: &'static str,
    shard_size: Option<u64>,
    files: Vec<&'a str>,
    #[serde(serialize_with = "lossy_or_null")]
    content_signature: Option<&'a Path>,
    digest: Option<String>,
    unsigned_files: usize,
    /// How many of them the statement does not leave out.
    #[serde(skip)]
    nameless: usize,
}

/// The most signed files that are printed; `--json` has all.
const MOST_LINES: usize = 20;

impl Report<'_> {
    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        out.line(format_args!("key       {} {}", self.curve, self.key))?;
        let (path, files) = (self.signature.display(), count(self.files.len(), "file"));
        let pieces = hashing::pieces(self.shard_size);
        out.prose("wrote     ", format_args!("{path}: {files}{pieces}"))?;
        self.files.iter().take(MOST_LINES).try_for_each(|name| out.prose("          ", name))?;
        if let Some(more) = self.files.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
            out.line(format_args!("          and {more} more, see --json"))?;
        }
        if let (Some(path), Some(digest)) = (self.content_signature, &self.digest) {
            out.prose("wrote     ", format_args!("{}: the content", path.display()))?;
            out.line(format_args!("          {digest}"))?;
        } else {
            out.prose("note      ", NO_CONTENT)?;
        }
        if self.unsigned_files == 0 {
            return Ok(());
        }
        let others = count(self.unsigned_files, "other file");
        let (what, them) = if self.unsigned_files == 1 { ("is", "it") } else { ("are", "them") };
        out.prose(
            "note      ",
            format_args!(
                "{others} of the folder {what} not signed, and the signature says so: --all-files signs \
                 {them} too"
            ),
        )?;
        if self.nameless == 0 {
            return Ok(());
        }
        let reason = "cannot be left out by name: verify-signature needs --ignore-unsigned-files";
        out.prose("note      ", format_args!("{} of these {reason}", self.nameless))
    }
}
