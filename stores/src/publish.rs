//! Publishing a model: its weights files first, under names of their content, then the model by one
//! request with a condition.
//!
//! What a reader sees is the model object, which is the old one or the new one. The files that it
//! names are there before it is, and their names change with their bytes, so that they are never
//! written again: a reader of the old model keeps its files, and a reader of the new one has all of
//! them. A publication that ends early leaves files that no model names, for `sweep`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use object_store::{
    Error as StoreError, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use onnx_container::bytes::Bytes;
use onnx_container::save::Prepared;
use onnx_container::{Buffer, Container, Error, ErrorKind, Result, work};

use crate::again::{ATTEMPTS, again, may_pass, pause};
use crate::errors::from_store;
use crate::listing;
use crate::missing::missing;
use crate::names::{content_name, is_version_of, same_version, version_name};
use crate::object::{Object, Version};
use crate::options::StoreOptions;
use crate::publishing::{IfPresent, PublishOptions, Published, PublishedFile};
use crate::put::{Source, put};
use crate::remote::RemoteModel;
use crate::runtime::{run, run_to_end};
use crate::store::Store;
use crate::sums::Sum;
use crate::url::StoreUrl;

/// Publishes `container` at `url`.
///
/// ```no_run
/// use onnx_container::{Container, LoadOptions};
/// use onnx_container_store::{PublishOptions, StoreOptions, publish};
///
/// let container = Container::load("m.onnx", LoadOptions::new())?;
/// let published =
///     publish("s3://models/m.onnx", &StoreOptions::new(), &container, PublishOptions::new())?;
/// for file in &published.files {
///     println!("{} {}", file.name, if file.sent { "sent" } else { "was there" });
/// }
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// Those of [`StoreUrl::parse`], [`Store::open`] and [`Container::prepare`];
/// [`ErrorKind::AlreadyExists`] and [`ErrorKind::Changed`] as [`IfPresent`] says;
/// [`ErrorKind::Unsupported`] for a store that ignores conditions, unless
/// [`IfPresent::Overwrite`] does without; [`ErrorKind::Io`] for what the store refuses. The model
/// that was there is there then, unless the error says that it is not known.
pub fn publish(
    url: &str,
    store: &StoreOptions,
    container: &Container,
    options: impl Into<PublishOptions>,
) -> Result<Published> {
    let url = StoreUrl::parse(url)?;
    publish_in(&Store::open(&url, store)?, &url, container, options)
}

/// Publishes `container` at `url` in a store that is open.
///
/// # Errors
/// Those of [`publish`].
pub fn publish_in(
    store: &Store,
    url: &StoreUrl,
    container: &Container,
    options: impl Into<PublishOptions>,
) -> Result<Published> {
    let options = options.into();
    check_target(url)?;
    let prepared = container.prepare(url.name(), options.save.clone())?;
    Publication::new(store, url, &options)?.publish(prepared)
}

/// A publication that has begun: what it replaces is known.
#[derive(Debug)]
pub struct Publication {
    store: Store,
    url: StoreUrl,
    options: PublishOptions,
    /// The model that is replaced.
    old: Option<Replaced>,
    /// What is to be done where another one is there by then.
    way_out: &'static str,
}

/// A model that is replaced.
#[derive(Debug)]
struct Replaced {
    version: Version,
    /// The weights files that it names. What is no model names none.
    locations: BTreeSet<String>,
}

impl Replaced {
    /// What is at `url`, whatever it is.
    fn at(store: &Store, url: &StoreUrl) -> Result<Option<Self>> {
        match RemoteModel::open_in(store, url) {
            Ok(model) => {
                let locations = model.locations().unwrap_or_default();
                Ok(Some(Self { version: model.object().version().clone(), locations }))
            }
            Err(error) if error.kind() == ErrorKind::MissingFile => Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Unsupported) => {
                let version = run(Object::head(store, url.key()))?.version().clone();
                Ok(Some(Self { version, locations: BTreeSet::new() }))
            }
            Err(error) => Err(error),
        }
    }

    fn e_tag(&self) -> Option<&str> {
        self.version.e_tag.as_deref()
    }
}

impl Publication {
    /// Looks at what is at `url`, and at what the store can do.
    ///
    /// # Errors
    /// Those of [`publish`] before anything is written.
    pub fn new(store: &Store, url: &StoreUrl, options: &PublishOptions) -> Result<Self> {
        check_target(url)?;
        let old = Replaced::at(store, url)?;
        let refused = |kind, reason: &str| Err(Error::new(kind, reason).with_path(url.to_string()));
        match (&options.if_present, &old) {
            (IfPresent::Refuse, Some(_)) => {
                return refused(ErrorKind::AlreadyExists, "there is a model already");
            }
            (IfPresent::ReplaceVersion(tag), old) => {
                let found = old.as_ref().and_then(Replaced::e_tag);
                // A shell takes the quotes away that are part of a tag.
                if found.map(|found| found.trim_matches('"')) != Some(tag.trim_matches('"')) {
                    let found = found.unwrap_or("none");
                    let reason = format!(
                        "the model is not the one that was loaded: its tag is {found}, not {tag}"
                    );
                    return refused(ErrorKind::Changed, &reason);
                }
            }
            _ => {}
        }
        if options.if_present != IfPresent::Overwrite && !options.dry_run {
            store.publishes(url, old.is_some())?;
        }
        let (store, url, options) = (store.clone(), url.clone(), options.clone());
        Ok(Self { store, url, options, old, way_out: "Load it and publish again" })
    }

    /// Puts the weights files there that are not, then the model.
    ///
    /// # Errors
    /// Those of [`publish`].
    pub fn publish(self, prepared: Prepared) -> Result<Published> {
        let (mut prepared, sums) = called_by_content(prepared)?;
        // Without a condition, another model may be there by the time of the replacement.
        let is_bound = self.options.if_present != IfPresent::Overwrite;
        let kept = self.old.as_ref().filter(|_| is_bound).map(|old| old.locations.clone());
        let kept = kept.unwrap_or_default();
        let missing = missing(&self.store, &self.url, &mut prepared, &kept)?;
        let mut model = Vec::new();
        prepared.encode_model(&mut model)?;
        let files = self.put_files(&Arc::new(prepared), &sums, missing)?;
        self.put_model(Buffer::from(model), files)
    }

    /// Puts the weights files there that are missing.
    fn put_files(
        &self,
        prepared: &Arc<Prepared>,
        sums: &[Sum],
        missing: Vec<bool>,
    ) -> Result<Vec<PublishedFile>> {
        let planned = prepared.files();
        if !self.options.dry_run {
            let sent = planned.iter().zip(&missing).filter(|(_, missing)| **missing);
            work::begin(sent.map(|(file, _)| file.bytes).fold(0, u64::saturating_add));
        }
        let mut files = Vec::new();
        let planned = planned.into_iter().zip(sums).zip(missing);
        for (number, ((file, sum), sent)) in planned.enumerate() {
            if sent && !self.options.dry_run {
                let key = self.url.beside(&file.name)?;
                // It ends by itself when it is cancelled, and gives up its parts.
                run_to_end(put(&self.store, key.key(), &source_of(prepared, number)?, sum))?;
            }
            files.push(PublishedFile {
                name: file.name,
                bytes: file.bytes,
                sha256: Some(*sum),
                sent,
            });
        }
        Ok(files)
    }

    /// One of a job, which replaces what was there when the job was planned.
    pub(crate) fn planned(
        store: &Store,
        url: &StoreUrl,
        options: PublishOptions,
        old: Option<Version>,
    ) -> Self {
        let old = old.map(|version| Replaced { version, locations: BTreeSet::new() });
        let way_out = "Abort the job and plan it again";
        Self { store: store.clone(), url: url.clone(), options, old, way_out }
    }

    /// The version of the model that is replaced; `None` where there is none.
    pub(crate) fn replaces(&self) -> Option<&Version> {
        self.old.as_ref().map(|old| &old.version)
    }

    /// Puts the model there.
    pub(crate) fn put_model(self, model: Buffer, files: Vec<PublishedFile>) -> Result<Published> {
        let mut published = Published {
            url: self.url.clone(),
            e_tag: None,
            model_bytes: model.len() as u64,
            files,
            version: None,
            removed: Vec::new(),
            warnings: Vec::new(),
        };
        if !self.options.dry_run {
            published.e_tag = self.replace(&model)?;
        }
        // The model is published, whatever becomes of its versions.
        if self.options.keep > 0
            && let Err(error) = self.keep_versions(&model, &mut published)
        {
            published.warnings.push(error);
        }
        Ok(published)
    }

    /// Puts a version beside the model, unless the newest has the same bytes, and removes the
    /// oldest beyond those that stay.
    fn keep_versions(&self, model: &Buffer, published: &mut Published) -> Result<()> {
        let new = self.url.beside(&version_name(self.url.name(), SystemTime::now(), model))?;
        let mut older = versions(&self.store, &self.url)?;
        let version = match older.pop_if(|newest| same_version(newest.name(), new.name())) {
            Some(same) => same,
            None => {
                self.put_version(&new, model)?;
                new
            }
        };
        published.version = Some(version);
        older.truncate((older.len() + 1).saturating_sub(self.options.keep));
        for version in older {
            self.delete(&version)?;
            published.removed.push(version);
        }
        Ok(())
    }

    fn put_version(&self, version: &StoreUrl, model: &Buffer) -> Result<()> {
        if self.options.dry_run {
            return Ok(());
        }
        let (path, payload) = (version.path()?, payload_of(model));
        run(async {
            let put = again(|| self.store.objects().put(&path, payload.clone())).await;
            put.map(|_| ()).map_err(|error| from_store(&version.to_string(), error))
        })
    }

    fn delete(&self, version: &StoreUrl) -> Result<()> {
        if self.options.dry_run {
            return Ok(());
        }
        let path = version.path()?;
        run(async {
            match again(|| self.store.objects().delete(&path)).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(from_store(&version.to_string(), error)),
            }
        })
    }

    /// Replaces the model by one request, and returns the tag of the new one.
    pub(crate) fn replace(&self, model: &Buffer) -> Result<Option<String>> {
        let mode = match (&self.options.if_present, &self.old) {
            (IfPresent::Overwrite, _) => PutMode::Overwrite,
            (_, None) => PutMode::Create,
            (_, Some(old)) => PutMode::Update(UpdateVersion {
                e_tag: old.version.e_tag.clone(),
                version: old.version.number.clone(),
            }),
        };
        let path = self.url.path()?;
        let payload = payload_of(model);
        work::check()?;
        // Not cancelled before its answer is there, which says what is there.
        run_to_end(async {
            let mut attempt = 1;
            loop {
                let options = PutOptions::from(mode.clone());
                let put = self.store.objects().put_opts(&path, payload.clone(), options).await;
                let error = match put {
                    Ok(put) => return Ok(put.e_tag),
                    Err(error) => error,
                };
                let may_pass = may_pass(&error);
                match self.read_back(model, error).await {
                    Err(_) if may_pass && attempt < ATTEMPTS => pause(attempt).await,
                    result => return result,
                }
                attempt += 1;
            }
        })
    }

    /// What became of a model whose request failed: the answer of one that succeeded may be lost,
    /// and the repeated request then meets its own model.
    async fn read_back(&self, model: &Buffer, error: StoreError) -> Result<Option<String>> {
        let shown = self.url.to_string();
        let refused =
            matches!(error, StoreError::AlreadyExists { .. } | StoreError::Precondition { .. });
        match Object::whole(&self.store, self.url.key()).await {
            Ok((object, found)) if found[..] == model[..] => Ok(object.version().e_tag.clone()),
            Ok((object, _)) if refused => {
                let now = object.version().e_tag.as_deref().unwrap_or("no tag").to_owned();
                let before = self.old.as_ref().and_then(Replaced::e_tag).unwrap_or("none");
                let reason = format!(
                    "another writer published this model meanwhile: its tag was {before}, and is \
                     {now}. {}",
                    self.way_out
                );
                Err(Error::new(ErrorKind::Changed, reason).with_path(shown))
            }
            Ok(_) => Err(from_store(&shown, error)),
            Err(read) if read.kind() == ErrorKind::MissingFile => Err(from_store(&shown, error)),
            Err(read) => {
                let unknown =
                    format!("whether the model was published is not known: {}", read.reason());
                Err(from_store(&shown, error).and(&unknown))
            }
        }
    }
}

/// The versions of the model at `url` that stay beside it, the oldest first.
///
/// # Errors
/// Where the store cannot be listed.
pub fn versions(store: &Store, url: &StoreUrl) -> Result<Vec<StoreUrl>> {
    url.refuse_read_only()?;
    let folder = url.key().rsplit_once('/').map(|(folder, _)| folder);
    run(async {
        let listed = listing::inside(store, folder.unwrap_or_default()).await?;
        let keys = listed.objects.into_iter().map(|meta| url.with_key(meta.location));
        // Some servers list more than one folder.
        let is_beside = |key: &StoreUrl| {
            key.key().strip_suffix(key.name()) == url.key().strip_suffix(url.name())
        };
        let is_version = |key: &StoreUrl| is_beside(key) && is_version_of(key.name(), url.name());
        let mut versions: Vec<_> = keys.filter(is_version).collect();
        versions.sort_by(|a, b| a.key().cmp(b.key()));
        Ok(versions)
    })
}

/// Refuses to publish where no model can be.
pub(crate) fn check_target(url: &StoreUrl) -> Result<()> {
    url.refuse_read_only()?;
    let reason = match url.name() {
        "" => "that is a store: name a model in it",
        name if !name.ends_with(".onnx") => {
            "call the model *.onnx: a sweep reads those to know which files are in use"
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(url.to_string()))
}

/// The bytes of a model as the body of a request: they are not copied.
fn payload_of(model: &Buffer) -> PutPayload {
    Bytes::from_owner(model.clone()).into()
}

/// Calls each weights file by its content, and returns the digests of the files.
fn called_by_content(prepared: Prepared) -> Result<(Prepared, Vec<Sum>)> {
    let shared = Arc::new(prepared);
    let sums: Vec<Sum> = run(async {
        work::begin(shared.files().iter().map(|file| file.bytes).fold(0, u64::saturating_add));
        let mut sums = Vec::new();
        for number in 0..shared.files().len() {
            sums.push(source_of(&shared, number)?.sum().await?);
        }
        Ok(sums)
    })?;
    let prepared = Arc::into_inner(shared);
    let mut prepared =
        prepared.ok_or_else(|| Error::internal("a reader of a plan is still at work"))?;
    let names: Vec<String> = prepared.files().into_iter().map(|file| file.name).collect();
    for (number, (name, sum)) in names.iter().zip(&sums).enumerate() {
        prepared.rename(number, content_name(name, sum))?;
    }
    Ok((prepared, sums))
}

/// The bytes of one planned file.
fn source_of(prepared: &Arc<Prepared>, number: usize) -> Result<Source> {
    let file = prepared.files().into_iter().nth(number);
    let bytes = file.ok_or_else(|| Error::internal("a planned file is not there"))?.bytes;
    let prepared = Arc::clone(prepared);
    Ok(Source::new(bytes, move |offset, out| prepared.read_at(number, offset, out)))
}
