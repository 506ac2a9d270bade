//! [`RemoteJob::plan`] and [`RemoteJob::rewrite`]: the layout is made, and the job is described in
//! its store, before anybody writes.

use std::collections::{HashMap, HashSet};

use onnx_container::external_data::{ExternalData, is_external};
use onnx_container::job::Recast;
use onnx_container::proto::ModelProto;
use onnx_container::save::{Prepared, PreparedPiece};
use onnx_container::{Container, Error, ErrorKind, Result, traversal};
use sha2::{Digest, Sha256};

use super::description::{FileTensor, Plan, PlannedFile, RemoteJob};
use super::folder::JobFolder;
use super::options::RemoteJobOptions;
use super::source::JobSource;
use super::stores::Stores;
use crate::names::hex;
use crate::publish::{Publication, check_target};
use crate::publishing::IfPresent;
use crate::runtime::run;
use crate::url::StoreUrl;

impl RemoteJob {
    /// Plans a publication of `container` at `url`, whose weights others write.
    ///
    /// Of weights only type and dimensions are needed, so they may be
    /// [declared](onnx_container::Initializer::declared). The store is asked for what is there and
    /// for what it can do; only the description of the job is put there. The largest tensor goes to
    /// the part that has the least so far, then the next one.
    ///
    /// # Errors
    /// Those of [`Container::prepare`] and those of a [publication](crate::publish()) before it
    /// writes; [`ErrorKind::InvalidArgument`] for what a job cannot do.
    pub fn plan(
        container: &Container,
        url: &StoreUrl,
        stores: impl Into<Stores>,
        options: impl Into<RemoteJobOptions>,
    ) -> Result<Self> {
        let options = options.into();
        if options.externalize.is_some() {
            let reason = "only a rewrite moves tensors out: externalize the container first";
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        Self::planned(container, url, stores.into(), &options, None)
    }

    /// Plans a rewrite of the model at `source`, a path or a URL, to `url`: in parts, and cast
    /// where `recast` says so. Every part reads what it writes from `source`, so callers need no
    /// weights: [`write`](Self::write). A path is one that all of them reach.
    ///
    /// # Errors
    /// Those of a load, of [`plan`](Self::plan), and of [`Container::cast`].
    pub fn rewrite(
        source: &str,
        url: &StoreUrl,
        stores: impl Into<Stores>,
        recast: Option<Recast>,
        options: impl Into<RemoteJobOptions>,
    ) -> Result<Self> {
        let (options, stores) = (options.into().moving_first(), stores.into());
        check_target(url)?;
        let (source, container, cast) =
            JobSource::new(source, &stores, recast, (options.externalize, options.source))?;
        let job = Self::planned(&container, url, stores, &options, Some(source))?;
        Ok(Self { cast, ..job })
    }

    fn planned(
        container: &Container,
        url: &StoreUrl,
        stores: Stores,
        options: &RemoteJobOptions,
        source: Option<JobSource>,
    ) -> Result<Self> {
        options.check()?;
        check_target(url)?;
        let store = stores.of(url)?;
        let prepared = container.prepare(url.name(), options.layout())?;
        let publication = Publication::new(&store, url, &options.publish)?;
        let mut model = Vec::new();
        prepared.encode_model(&mut model)?;
        let mut plan = Plan {
            id: String::new(),
            root: url.root().to_owned(),
            key: url.key().to_owned(),
            asked_parts: options.parts,
            files: files(&prepared)?,
            source,
            model: hex(&Sha256::digest(&model).into()),
            replaces: publication.replaces().cloned(),
            overwrite: options.publish.if_present == IfPresent::Overwrite,
            keep: options.publish.keep,
            digests: options.publish.save.has_digests(),
        };
        let described = |id: &str| Plan { id: id.to_owned(), ..plan.clone() }.to_json();
        plan.id = run(JobFolder::create(&store, url, described))?;
        let job = Self { plan, stores, store, url: url.clone(), cast: None };
        if let Err(error) = run(job.job_folder().put_model(model)) {
            // Without its model the job is not one: what stays is told by a listing of jobs.
            drop(run(job.job_folder().end()));
            return Err(error);
        }
        Ok(job)
    }
}

/// The weights files of a save, with their tensors.
fn files(prepared: &Prepared) -> Result<Vec<PlannedFile>> {
    let planned = prepared.files().into_iter();
    let mut files: Vec<_> = planned
        .map(|file| PlannedFile {
            name: file.name,
            bytes: file.bytes,
            tensors: Vec::new(),
            shared: Vec::new(),
        })
        .collect();
    for piece in prepared.pieces() {
        let file = files.get_mut(piece.file);
        let file = file.ok_or_else(|| Error::internal("a piece of no file"))?;
        file.tensors.push(tensor(&piece)?);
    }
    add_shared(&mut files, &prepared.model()?)?;
    files.iter().try_for_each(PlannedFile::check)?;
    Ok(files)
}

fn tensor(piece: &PreparedPiece<'_>) -> Result<FileTensor> {
    let handle = piece.handle.ok_or_else(|| Error::internal("a part with a header"))?;
    Ok(FileTensor {
        name: handle.name().to_owned(),
        dtype: piece.initializer.dtype(),
        dims: piece.initializer.dims().to_vec(),
        offset: piece.offset,
    })
}

/// Adds the ranges of `model` that are no whole pieces to the `files` that have them: they are
/// hashed with those, so that no weight is read for the digest of the model.
fn add_shared(files: &mut [PlannedFile], model: &ModelProto) -> Result<()> {
    let mut known = HashSet::new();
    for file in files.iter() {
        for tensor in &file.tensors {
            known.insert((file.name.clone(), tensor.offset, tensor.byte_len()?));
        }
    }
    let numbers: HashMap<_, _> =
        files.iter().enumerate().map(|(number, file)| (file.name.clone(), number)).collect();
    for (_, tensor) in traversal::iter(model).filter(|(_, tensor)| is_external(tensor)) {
        let place = ExternalData::parse(tensor)?;
        let len = place.length.unwrap_or(0);
        let Some(number) = numbers.get(&place.location).filter(|_| len > 0) else { continue };
        if known.insert((place.location, place.offset, len))
            && let Some(file) = files.get_mut(*number)
        {
            file.shared.push((place.offset, len));
        }
    }
    Ok(())
}
