//! `sign MODEL`: one signature on the files of a model, and one on its content.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onnx_container::external_data::Directory;
use onnx_container::{Container, Error, ErrorKind, LoadOptions};
use serde::Serialize;

use super::bundle;
use super::content::Content;
use super::hashing::{self, Hashed, Method};
use super::keys::PrivateKey;
use super::manifest::Manifest;
use super::pair;
use super::places::Places;
use super::tree::{self, ALWAYS_IGNORED, Ignored, Temporary, Tree};
use crate::args::{OutArgs, SignArgs};
use crate::failure::{Failure, Outcome};
use crate::needed::{self, needed, plain};
use crate::output::{Output, count, lossy, print_on_stderr};
use crate::reading::{self, Reading};
use crate::staged::{folder, refusal};
use crate::{save, stop};

/// Signs the model and prints what was signed.
pub fn run(args: &SignArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let key = PrivateKey::read(&args.key)?;
    let job = Job::new(args)?;
    job.check_targets()?;
    job.remove_abandoned();
    let container = Container::load(&args.model, job.reading)?;
    save::warn(&container);
    let (manifest, others) = job.manifest()?;
    let digest = container.digest().map_err(|error| error.with_path(&args.model))?;
    let statement = manifest.statement(job.places.folder_name());
    let files = bundle::write(&serde_json::to_vec(&statement).map_err(Error::other)?, &key)?;
    let statement = Content::new(&digest).statement(job.model.clone());
    let content = bundle::write(&serde_json::to_vec(&statement).map_err(Error::other)?, &key)?;
    job.write(&files, &content)?;
    let report = Report {
        command: "sign",
        model: &args.model,
        key: key.public().hint()?,
        curve: key.public().curve(),
        signature: &job.places.files,
        method: manifest.method.name(),
        shard_size: manifest.method.shard_size(),
        files: manifest.files.keys().map(String::as_str).collect(),
        content_signature: &job.places.content,
        digest: digest.to_string(),
        unsigned_files: others,
    };
    if args.out.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::Done)
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

/// Refuses a folder with files that saves make and remove again; `next` is what to do after `recover`.
pub fn refuse_leftovers(root: &Path, found: &Tree, next: &str) -> Result<(), Error> {
    let paths = found.files.iter().chain(found.problems.iter().map(|problem| &problem.path));
    let mut temporary = paths.filter_map(|path| tree::temporary(root, path));
    let Some((_, folder)) = temporary.find(|(of, _)| *of == Temporary::Save) else { return Ok(()) };
    let reason = format!(
        "has what an interrupted save left: run `onnx-container recover {}`, {next}",
        folder.display()
    );
    Err(Error::new(ErrorKind::Changed, reason).with_path(folder))
}

struct Job<'a> {
    args: &'a SignArgs,
    places: Places,
    /// The name of the model in its folder.
    model: String,
    reading: Reading,
}

impl<'a> Job<'a> {
    fn new(args: &'a SignArgs) -> Result<Self, Failure> {
        let mut places = Places::of(&args.model, args.output.as_deref())?;
        let Some(model) = places.model.take() else {
            let reason = "a folder: give the model in it; --all-files signs the whole folder";
            let error = Error::new(ErrorKind::InvalidArgument, reason);
            return Err(error.with_path(&args.model).into());
        };
        Ok(Self { args, places, model, reading: reading::of(&args.out.read) })
    }

    /// Refuses to replace the model, its weights, the key and models.
    fn check_targets(&self) -> Result<(), Failure> {
        let mut own = needed::files(&self.args.model, self.reading)?;
        own.extend(self.args.key.canonicalize());
        let targets = [&self.places.files, &self.places.content];
        let refusals = targets.map(|path| refusal(path, &own, self.args.out.no_clobber));
        Error::join(refusals.into_iter().flatten().collect()).map_or(Ok(()), |e| Err(e.into()))
    }

    /// The files with their digests, and how many others are in the folder.
    fn manifest(&self) -> Result<(Manifest, usize), Failure> {
        let (folder, signatures) = (&self.places.folder, self.places.signatures_inside());
        let mut names = files_of(&self.args.model, &self.model, self.reading)?;
        let ignored = Ignored::with(signatures.iter().map(String::as_str));
        let found = tree::list(folder, &ignored, false);
        let mut others = 0;
        if self.args.all_files {
            let mut found = found?;
            refuse_leftovers(folder, &found, "then sign")?;
            found.files.retain(|path| tree::temporary(folder, path).is_none());
            let refused = found.problems.iter().map(|problem| {
                Error::new(ErrorKind::UnsafePath, &*problem.reason)
                    .with_path(folder.join(&problem.path))
            });
            Error::join(refused.collect()).map_or(Ok(()), Err)?;
            names.extend(found.files);
        } else if let Ok(found) = found {
            let unsigned = found.files.iter().filter(|path| !names.contains(*path)).count();
            others = unsigned + found.problems.len();
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let always = ALWAYS_IGNORED.map(str::to_owned);
        let method = self.args.shard_size.map_or(Method::Files, Method::Shards);
        let manifest = Manifest {
            method,
            form: self.args.shard_form,
            follows_links: false,
            ignored: always.into_iter().chain(signatures).collect(),
            files: self.digests(&names, method)?,
        };
        Ok((manifest, others))
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
            let directory = Directory::of_model(&self.args.model, self.reading.paths)?;
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

    /// Puts both signatures in place.
    fn write(&self, files: &[u8], content: &[u8]) -> Result<(), Failure> {
        let OutArgs { no_sync, no_clobber, .. } = self.args.out;
        let how = pair::How { sync: !no_sync, no_clobber };
        let files = pair::New { path: &self.places.files, bytes: files };
        let content = pair::New { path: &self.places.content, bytes: content };
        match pair::publish(files, Some(content), how) {
            Ok(()) => stop::written("both signatures were written".to_owned()),
            Err(error) => return Err(stop::unwritten(error).into()),
        }
        Ok(())
    }
}

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
    #[serde(serialize_with = "lossy")]
    content_signature: &'a Path,
    digest: String,
    unsigned_files: usize,
}

impl Report<'_> {
    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        out.line(format_args!("key       {} {}", self.curve, self.key))?;
        let (path, files) = (self.signature.display(), count(self.files.len(), "file"));
        out.prose("wrote     ", format_args!("{path}: {files}"))?;
        self.files.iter().try_for_each(|name| out.prose("          ", name))?;
        let path = self.content_signature.display();
        out.prose("wrote     ", format_args!("{path}: the content"))?;
        out.line(format_args!("          {}", self.digest))?;
        if self.unsigned_files == 0 {
            return Ok(());
        }
        let others = count(self.unsigned_files, "other file");
        let what = if self.unsigned_files == 1 { "is" } else { "are" };
        out.prose(
            "note      ",
            format_args!(
                "{others} of the folder {what} not signed: --all-files signs them too, and \
                 verify-signature --ignore-unsigned-files ignores them"
            ),
        )
    }
}
