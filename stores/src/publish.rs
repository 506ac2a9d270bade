//! Publishing a model: its weights files first, under names of their content, then the model by one
//! request with a condition.
//!
//! What a reader sees is the model object, which is the old one or the new one. The files that it
//! names are there before it is, and their names change with their bytes, so that they are never
//! written again: a reader of the old model keeps its files, and a reader of the new one has all of
//! them. A publication that ends early leaves files that no model names, for `sweep`.

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{
    Error as StoreError, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use onnx_container::bytes::Bytes;
use onnx_container::save::Prepared;
use onnx_container::{Buffer, Container, Error, ErrorKind, Result, SaveOptions, work};

use crate::again::{ATTEMPTS, again, may_pass, pause};
use crate::errors::from_store;
use crate::missing::missing;
use crate::names::{content_name, is_version_of, version_name};
use crate::object::Object;
use crate::options::StoreOptions;
use crate::put::{Source, Sum, put};
use crate::remote::RemoteModel;
use crate::runtime::run;
use crate::store::Store;
use crate::url::StoreUrl;

/// Files that are asked for at once.
const AT_ONCE: usize = 64;

/// What a publication does where there is a model already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfPresent {
    /// Replaces the model that is there when the publication begins, and no other: one that another
    /// writer put there meanwhile is an error. The default.
    #[default]
    Replace,
    /// Replaces the model with this tag, and no other: that which was loaded and edited, by
    /// [`RemoteModel::e_tag`].
    ReplaceVersion(String),
    /// Is an error.
    Refuse,
    /// Replaces whatever is there, without a condition: for a store that ignores conditions, and
    /// where nobody else writes this model.
    Overwrite,
}

/// How a model is published. [`SaveOptions`] convert.
#[derive(Debug, Clone, Default)]
pub struct PublishOptions {
    save: SaveOptions,
    if_present: IfPresent,
    keep: usize,
    dry_run: bool,
}

impl From<SaveOptions> for PublishOptions {
    fn from(save: SaveOptions) -> Self {
        Self { save, ..Self::default() }
    }
}

impl PublishOptions {
    /// One weights file, which replaces what is there.
    pub fn new() -> Self {
        Self::default()
    }

    /// How the files are laid out, as by a save.
    #[must_use]
    pub fn save(mut self, options: impl Into<SaveOptions>) -> Self {
        self.save = options.into();
        self
    }

    /// What is done where there is a model already. Default [`IfPresent::Replace`].
    #[must_use]
    pub fn if_present(mut self, if_present: IfPresent) -> Self {
        self.if_present = if_present;
        self
    }

    /// How many versions of the model stay beside it, this one included, as models of their own
    /// that [`rollback`] publishes again. Default 0: none is made, and none is removed.
    #[must_use]
    pub fn keep(mut self, versions: usize) -> Self {
        self.keep = versions;
        self
    }

    /// Whether nothing is written, and the result says what would be. Default false.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// What a publication did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Published {
    /// Where the model is.
    pub url: StoreUrl,
    /// The tag that the store gave it.
    pub e_tag: Option<String>,
    /// The length of the model file in bytes.
    pub model_bytes: u64,
    /// Its weights files.
    pub files: Vec<PublishedFile>,
    /// The version of the model that stays beside it.
    pub version: Option<StoreUrl>,
    /// Older versions that were removed.
    pub removed: Vec<StoreUrl>,
}

/// One weights file of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishedFile {
    /// Its location in the model.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// Whether it was sent: false for one that was there.
    pub sent: bool,
}

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
    old: Option<RemoteModel>,
}

impl Publication {
    /// Looks at what is at `url`, and at what the store can do.
    ///
    /// # Errors
    /// Those of [`publish`] before anything is written.
    pub fn new(store: &Store, url: &StoreUrl, options: &PublishOptions) -> Result<Self> {
        if url.key().is_empty() {
            let reason = format!("`{}` is a store: name a model in it", url.root());
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        if !url.name().ends_with(".onnx") {
            let reason =
                "call the model *.onnx: a sweep reads those to know which files are in use";
            return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(url.to_string()));
        }
        let old = match RemoteModel::open_in(store, url) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == ErrorKind::MissingFile => None,
            // Whatever is there, it is replaced as it is.
            Err(error) => return Err(error),
        };
        let refused = |kind, reason: &str| Err(Error::new(kind, reason).with_path(url.to_string()));
        match (&options.if_present, &old) {
            (IfPresent::Refuse, Some(_)) => {
                return refused(ErrorKind::AlreadyExists, "there is a model already");
            }
            (IfPresent::ReplaceVersion(tag), old) => {
                let found = old.as_ref().and_then(RemoteModel::e_tag);
                if found != Some(tag) {
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
        Ok(Self { store, url, options, old })
    }

    /// Puts the weights files there that are not, then the model.
    ///
    /// # Errors
    /// Those of [`publish`].
    pub fn publish(self, prepared: Prepared) -> Result<Published> {
        let (mut prepared, sums) = called_by_content(prepared)?;
        // A file that is no model names nothing.
        let kept = self.old.as_ref().and_then(|old| old.locations().ok()).unwrap_or_default();
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
                run(put(&self.store, key.key(), &source_of(prepared, number)?, sum))?;
            }
            files.push(PublishedFile { name: file.name, bytes: file.bytes, sha256: *sum, sent });
        }
        Ok(files)
    }

    /// Puts the model there.
    fn put_model(self, model: Buffer, files: Vec<PublishedFile>) -> Result<Published> {
        let mut published = Published {
            url: self.url.clone(),
            e_tag: None,
            model_bytes: model.len() as u64,
            files,
            version: None,
            removed: Vec::new(),
        };
        if self.options.keep > 0 {
            let name = version_name(self.url.name(), SystemTime::now(), &model);
            published.version = Some(self.url.beside(&name)?);
        }
        if self.options.dry_run {
            return Ok(published);
        }
        if let Some(version) = &published.version {
            let path = version.path()?;
            let payload = payload_of(&model);
            run(async {
                let put = self.store.objects().put(&path, payload).await;
                put.map_err(|error| from_store(&version.to_string(), error))
            })?;
        }
        published.e_tag = self.replace(&model)?;
        if let Some(version) = &published.version {
            published.removed = self.remove_versions(version)?;
        }
        Ok(published)
    }

    /// Replaces the model by one request, and returns the tag of the new one.
    fn replace(&self, model: &Buffer) -> Result<Option<String>> {
        let mode = match (&self.options.if_present, &self.old) {
            (IfPresent::Overwrite, _) => PutMode::Overwrite,
            (_, None) => PutMode::Create,
            (_, Some(old)) => PutMode::Update(UpdateVersion {
                e_tag: old.e_tag().map(str::to_owned),
                version: old.object().version().number.clone(),
            }),
        };
        let path = self.url.path()?;
        let payload = payload_of(model);
        run(async {
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
                let before = self.old.as_ref().and_then(RemoteModel::e_tag).unwrap_or("none");
                let reason = format!(
                    "another writer published this model meanwhile: its tag was {before}, and is \
                     {now}. Load it and publish again"
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

    /// Removes the oldest versions beyond those that stay, of which `made` is one: another may have
    /// been made in the same second.
    fn remove_versions(&self, made: &StoreUrl) -> Result<Vec<StoreUrl>> {
        let mut versions = versions(&self.store, &self.url)?;
        versions.retain(|version| version != made);
        let removed = versions.len().saturating_sub(self.options.keep.saturating_sub(1));
        versions.truncate(removed);
        run(async {
            for version in &versions {
                let path = version.path()?;
                match again(|| self.store.objects().delete(&path)).await {
                    Ok(()) | Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(from_store(&version.to_string(), error)),
                }
            }
            Ok(())
        })?;
        Ok(versions)
    }
}

/// The versions of the model at `url` that stay beside it, the oldest first.
///
/// # Errors
/// Where the store cannot be listed.
pub fn versions(store: &Store, url: &StoreUrl) -> Result<Vec<StoreUrl>> {
    let folder = url.key().rsplit_once('/').map(|(folder, _)| folder);
    let folder = folder.map(crate::url::path_of).transpose()?;
    run(async {
        let listed = store.objects().list_with_delimiter(folder.as_ref()).await;
        let listed = listed.map_err(|error| from_store(&store.shown(""), error))?;
        let keys = listed.objects.into_iter().map(|meta| url.with_key(meta.location));
        let mut versions: Vec<_> =
            keys.filter(|key| is_version_of(key.name(), url.name())).collect();
        versions.sort_by(|a, b| a.key().cmp(b.key()));
        Ok(versions)
    })
}

/// Publishes a version of a model again that [`PublishOptions::keep`] left beside it. No weights
/// are sent, and the version stays.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for what is no version of the model; [`ErrorKind::MissingFile`]
/// where a weights file of the version is gone; those of [`publish`].
pub fn rollback(
    store: &Store,
    url: &StoreUrl,
    version: &StoreUrl,
    options: &PublishOptions,
) -> Result<Published> {
    let beside = url.beside(version.name())?;
    if beside != *version || !is_version_of(version.name(), url.name()) {
        let reason = format!("`{version}` is no version of `{url}`");
        return Err(Error::new(ErrorKind::InvalidArgument, reason));
    }
    let model = RemoteModel::open_in(store, version)?;
    let files = model.locations()?;
    let lengths: Vec<u64> = run(async {
        let asked = files
            .iter()
            .map(|name| async { Ok(Object::head(store, url.beside(name)?.key()).await?.len()) });
        stream::iter(asked).buffered(AT_ONCE).try_collect().await
    })?;
    let e_tag = match options.dry_run {
        true => None,
        false => Publication::new(store, url, options)?.replace(model.bytes())?,
    };
    let files = files.into_iter().zip(lengths);
    let files =
        files.map(|(name, bytes)| PublishedFile { name, bytes, sha256: [0; 32], sent: false });
    Ok(Published {
        url: url.clone(),
        e_tag,
        model_bytes: model.bytes().len() as u64,
        files: files.collect(),
        version: Some(version.clone()),
        removed: Vec::new(),
    })
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
