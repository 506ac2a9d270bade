//! A save of several models of one folder whose weights are in one new file, equal ones once.
//!
//! The weights of all models are planned as those of one model would be. Then each model is encoded
//! with the places of its own. All files are staged together and put in place by one switch, which
//! has a journal beside each model: killed anywhere, all models are the old ones or all the new
//! ones. Which models these are is the caller's business.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::buffer::Buffer;
use crate::container::{Container, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, check_location, handle_of};
use crate::graph::traversal;
use crate::proto::{GraphProto, Message, ModelProto, Str, TensorProto};
use crate::save::gather::content::Content;
use crate::save::gather::equal::Equal;
use crate::save::gather::kept::KeptFiles;
use crate::save::gather::weights::{NotLoaded, no_weight};
use crate::save::options::SaveOptions;
use crate::save::options::statistics::Deduplicated;
use crate::save::options::weight_files::WeightFiles;
use crate::save::plan::{Inputs, Plan, PlannedFile, WeightPlace};
use crate::save::target::access::Access;
use crate::save::target::file_names::is_default_name;
use crate::save::target::folder::ModelFolder;
use crate::save::target::publish::{NewFile, Published, Staging};
use crate::save::target::same_file::is_at;
use crate::save::target::{SaveTarget, SavedFile};
use crate::save::write::meter::{Meter, Metered};
use crate::save::write::stage_files;
use crate::tensor::initializer::Initializer;
use crate::util::retry::retried;

/// A model of the group.
pub(crate) struct GroupModel<'c> {
    /// The name of its file in the folder.
    pub(crate) name: String,
    pub(crate) container: &'c Container,
}

/// What a save of a group did, or would do.
pub(crate) struct GroupSaved {
    /// The weights file, then the models.
    pub(crate) files: Vec<SavedFile>,
    pub(crate) deduplicated: Deduplicated,
    /// The old weights files that were removed.
    pub(crate) removed: Vec<PathBuf>,
    /// Those that no model needs any more and that stay.
    pub(crate) left_behind: Vec<PathBuf>,
    pub(crate) warnings: Vec<Error>,
}

/// The models of a group with their weights in one container.
pub(crate) struct Group<'c> {
    directory: &'c Path,
    models: &'c [GroupModel<'c>],
    union: Container,
    options: SaveOptions,
}

impl<'c> Group<'c> {
    /// The `models` in `directory`, the main one last, with the weights in a new file `data_name`.
    pub(crate) fn new(
        directory: &'c Path,
        models: &'c [GroupModel<'c>],
        data_name: &str,
        options: &SaveOptions,
    ) -> Result<Self> {
        let options = options.clone().weight_files(WeightFiles::Packed).data_name(data_name);
        let options = options.dedup(true).keep_placement(false);
        let union = union_of(models)?;
        Ok(Self { directory, models, union, options })
    }

    /// Plans the save and writes it unless it is a `dry_run`. Nothing is done where `unchanged`
    /// fails.
    pub(crate) fn save(
        &self,
        dry_run: bool,
        unchanged: &dyn Fn() -> Result<()>,
    ) -> Result<GroupSaved> {
        let content = Content::new(&self.union, &self.options)?;
        let weights = content.weights(NotLoaded::Refuse)?;
        weights.refuse_declared()?;
        let kept = KeptFiles::default();
        let equal = Equal::find(&weights, &kept, &self.options)?;
        let plan = Plan::new(Inputs {
            weights: &weights,
            #[cfg(feature = "safetensors")]
            model: content.model(),
            kept: &kept,
            equal: &equal,
            model_name: self.main_name()?,
            options: &self.options,
        })?;
        let handles = weights.used.iter().zip(&plan.places);
        let in_file = handles.filter_map(|(weight, place)| match place {
            WeightPlace::File(_, range) => Some((weight.handle, range.clone())),
            _ => None,
        });
        let places: HashMap<_, _> = in_file.collect();
        let encoded = self.encoded(&places)?;
        let deduplicated = plan.deduplicated(&weights, &equal);
        if let Some(reason) = self.nothing_to_share(&places) {
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        let mut saved = GroupSaved {
            files: self.files(&plan, &encoded),
            deduplicated,
            removed: Vec::new(),
            left_behind: Vec::new(),
            warnings: Vec::new(),
        };
        self.check(&saved.files)?;
        let (old, removed) = match dry_run {
            true => {
                unchanged()?;
                let old = self.known_old_files(&saved.files, &mut saved.warnings);
                let removed = self.removed_of(&old, &mut saved.warnings);
                (old, removed)
            }
            false => {
                let (published, old) = self.write(&plan, &encoded, &saved.files, unchanged)?;
                saved.warnings = published.warnings;
                (old, published.removed)
            }
        };
        let paths = |names: &mut dyn Iterator<Item = &String>| {
            names.map(|name| self.directory.join(name)).collect()
        };
        saved.left_behind = paths(&mut old.iter().filter(|name| !removed.contains(name)));
        saved.removed = paths(&mut removed.iter());
        Ok(saved)
    }

    /// Why the new file would spare the models nothing.
    fn nothing_to_share(&self, places: &HashMap<&Handle, Range<u64>>) -> Option<&'static str> {
        let mut in_place: HashMap<&Range<u64>, ModelsOfSources<'_>> = HashMap::new();
        for (&handle, range) in places.iter().filter(|(_, range)| !range.is_empty()) {
            let bytes = self.union.get(handle.as_str()).and_then(Initializer::as_buffer);
            let source = bytes.map(|bytes| bytes.as_ptr()).ok_or(handle);
            in_place.entry(range).or_default().entry(source).or_default().insert(model_of(handle));
        }
        let all = |of: &ModelsOfSources<'_>| of.values().flatten().collect::<HashSet<_>>().len();
        let mut shared = in_place.values().filter(|of| all(of) > 1).peekable();
        if shared.peek().is_none() {
            return Some("the models have no equal weights: there is nothing to share");
        }
        let is_new = |of: &ModelsOfSources<'_>| of.values().all(|models| models.len() < all(of));
        (!shared.any(is_new))
            .then_some("the models share their equal weights already: there is nothing to do")
    }

    /// Those of the `old` files that the save removes: those in the folder itself, if asked for,
    /// that hold nothing but the models' weights.
    fn removed_of(&self, old: &[String], warnings: &mut Vec<Error>) -> Vec<String> {
        if !self.options.removes_old_files() {
            return Vec::new();
        }
        let folder = ModelFolder::new(self.directory, "");
        let models: Vec<_> =
            self.models.iter().map(|model| self.directory.join(&model.name)).collect();
        let is_default =
            |name: &str| self.models.iter().any(|model| is_default_name(&model.name, name));
        let mut removed = Vec::new();
        for name in old.iter().filter(|name| !name.contains('/')) {
            let holds_more =
                if is_default(name) { Ok(false) } else { folder.holds_more(&models, name) };
            match holds_more {
                Ok(false) => removed.push(name.clone()),
                Ok(true) => {}
                Err(error) => warnings.push(error),
            }
        }
        removed
    }

    /// The [`old_files`](Self::old_files), or none and a warning where nobody can tell.
    fn known_old_files(&self, files: &[SavedFile], warnings: &mut Vec<Error>) -> Vec<String> {
        self.old_files(files).unwrap_or_else(|error| {
            warnings.push(error);
            Vec::new()
        })
    }

    fn main_name(&self) -> Result<&str> {
        let last = self.models.last();
        last.map(|model| model.name.as_str()).ok_or_else(|| Error::internal("a group of no model"))
    }

    /// The models with their weights at `places` of the new file, which has the name that the
    /// options say.
    fn encoded(&self, places: &HashMap<&Handle, Range<u64>>) -> Result<Vec<Buffer>> {
        let location = Str::from(self.options.data_name.as_deref().unwrap_or_default());
        let encode = |(number, model): (usize, &GroupModel<'_>)| {
            let mut message = ModelProto::clone(model.container.model());
            for (place, tensor) in traversal::iter_mut(&mut message) {
                let Some(handle) = handle_of(tensor).map(|handle| in_union(number, handle)) else {
                    continue;
                };
                let lost = || no_weight().with_tensor(place.qualified_name(tensor));
                let range = places.get(&handle).ok_or_else(lost)?;
                external_data::set_range(tensor, (&location, None), range);
            }
            Ok(message.encode_to_vec()?.into())
        };
        self.models.iter().enumerate().map(encode).collect()
    }

    fn files(&self, plan: &Plan<'_>, encoded: &[Buffer]) -> Vec<SavedFile> {
        let models = self.models.iter().zip(encoded);
        let models = models.map(|(model, bytes)| SavedFile::new(&*model.name, bytes.len() as u64));
        plan.files.iter().map(PlannedFile::to_saved).chain(models).collect()
    }

    /// Refuses a weights file that is there, and models that are no files.
    fn check(&self, files: &[SavedFile]) -> Result<()> {
        let models: Vec<_> = self.models.iter().map(|model| &model.name).collect();
        for file in files {
            let path = self.directory.join(&file.name);
            let there = retried(|| path.symlink_metadata());
            let (kind, reason) = match (there, models.contains(&&file.name)) {
                (Err(_), false) => continue,
                (Ok(metadata), true) if metadata.is_file() => continue,
                (Ok(_), false) => {
                    let reason = "exists already: give the shared weights file another name";
                    (ErrorKind::AlreadyExists, reason)
                }
                (Ok(_), true) => (ErrorKind::UnsafePath, "a link: give the model that it leads to"),
                (Err(error), true) => return Err(Error::io(path, error)),
            };
            return Err(Error::new(kind, reason).with_path(path));
        }
        Ok(())
    }

    /// The weights files in the folder and below it that only these models needed, by their paths
    /// from it. One that is a model itself is not listed.
    fn old_files(&self, files: &[SavedFile]) -> Result<Vec<String>> {
        let folder = ModelFolder::new(self.directory, "");
        let paths: Vec<_> =
            self.models.iter().map(|model| self.directory.join(&model.name)).collect();
        let mut names = Vec::new();
        for path in &paths {
            names.extend(folder.locations_of(path)?);
        }
        names.sort();
        names.dedup();
        let is_old = |name: &String| {
            let is_new = files.iter().any(|file| file.name == *name);
            let is_valid = check_location(name).is_ok();
            let path = self.directory.join(name);
            let is_file = || retried(|| path.symlink_metadata()).is_ok_and(|it| it.is_file());
            is_valid && !is_new && is_file()
        };
        names.retain(is_old);
        let real: Vec<_> = paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let users: BTreeMap<String, Vec<PathBuf>> =
            folder.users_below(names.iter().cloned(), None)?;
        let is_ours = |user: &PathBuf| real.iter().any(|path| is_at(user, path));
        names.retain(|name| users.get(name).is_none_or(|users| users.iter().all(is_ours)));
        let mut old = Vec::new();
        for name in names {
            if folder.is_another_model(&self.directory.join(&name))?.is_none() {
                old.push(name);
            }
        }
        Ok(old)
    }

    /// Writes all files and puts them in place. Also returns the old files.
    fn write(
        &self,
        plan: &Plan<'_>,
        encoded: &[Buffer],
        files: &[SavedFile],
        unchanged: &dyn Fn() -> Result<()>,
    ) -> Result<(Published, Vec<String>)> {
        let main = self.main_name()?;
        let bytes = files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        SaveTarget::new(&self.directory.join(main))?.check_space(bytes)?;
        let meter = Meter::new(&self.options, bytes);
        meter.step()?;
        let mut staging = Staging::new(self.directory, main, &self.options)?;
        if let Err(error) = self.stage(&mut staging, plan, encoded, &meter) {
            return Err(staging.discard(error));
        }
        let locked = staging.lock(Vec::new())?;
        let checked = self.check(files).and_then(|()| unchanged()).and_then(|()| meter.step());
        if let Err(error) = checked {
            return Err(locked.discard(error));
        }
        // Under the locks: another model may need them since the weights were written.
        let mut unsure = Vec::new();
        let old = self.known_old_files(files, &mut unsure);
        let removed = self.removed_of(&old, &mut unsure);
        let mut published = locked.publish(removed)?;
        published.warnings.extend(unsure);
        Ok((published, old))
    }

    fn stage(
        &self,
        staging: &mut Staging,
        plan: &Plan<'_>,
        encoded: &[Buffer],
        meter: &Meter<'_>,
    ) -> Result<()> {
        stage_files(staging, &plan.files, &self.options, meter)?;
        self.limit_access(staging, plan)?;
        let names = || self.models.iter().map(|model| model.name.as_str());
        staging.list(names())?;
        let others = names().rev().skip(1).map(str::to_owned);
        staging.has_other_models(others.collect());
        for (name, bytes) in names().zip(encoded) {
            let NewFile { file, path, .. } = staging.create(name)?;
            let written = Metered::new(&file, meter).write_all(bytes);
            written.map_err(|error| meter.explain(Error::io(path, error)))?;
        }
        staging.flush()
    }

    /// Takes the access to the weights from everybody who may not read each of the models.
    fn limit_access(&self, staging: &Staging, plan: &Plan<'_>) -> Result<()> {
        for file in &plan.files {
            let staged = staging.staged(&file.name);
            let fail = |error| Error::io(&staged, error);
            let opened = retried(|| File::open(&staged)).map_err(fail)?;
            for model in self.models {
                let access = Access::of(&self.directory.join(&model.name));
                access.map_or(Ok(()), |access| access.limit(&opened)).map_err(fail)?;
            }
        }
        Ok(())
    }
}

/// The models that have weights of one place of the new file, by where the bytes are now: in memory
/// that all of these models have from one file, or made for this handle.
type ModelsOfSources<'u> = HashMap<std::result::Result<*const u8, &'u Handle>, HashSet<&'u str>>;

/// The model, by its number, whose weight has this handle in the union.
fn model_of(handle: &Handle) -> &str {
    handle.name().split('/').next().unwrap_or_default()
}

/// The handle in the union of `handle` of the model `number`.
fn in_union(number: usize, handle: &str) -> Handle {
    Handle::of_name(&format!("{number}/{}", handle.strip_prefix('#').unwrap_or(handle)))
}

/// A container with all weights of the models: an initializer for each of their handles.
fn union_of(models: &[GroupModel<'_>]) -> Result<Container> {
    let mut graph = GraphProto::new("group");
    let mut initializers = Vec::new();
    // Weights that are one range of one file already are one in memory too.
    let mut by_source: HashMap<_, Initializer> = HashMap::new();
    for (number, model) in models.iter().enumerate() {
        model.container.check()?;
        let mut seen = HashSet::new();
        for (_, tensor) in traversal::iter(model.container.model()) {
            let Some(handle) = handle_of(tensor) else { continue };
            let Some(initializer) = model.container.get(handle) else { continue };
            if !seen.insert(handle) {
                continue;
            }
            let own = in_union(number, handle);
            let (dtype, dims) = (initializer.dtype().number(), initializer.dims());
            let header = TensorProto::external(own.name(), dtype, dims, own.as_str());
            graph.initializer.push(header);
            let source = initializer.as_buffer().and_then(|bytes| {
                let (place, file) = bytes.source()?;
                let form = (initializer.dtype(), initializer.dims().to_vec());
                Some((file.clone(), place.range, form))
            });
            let initializer = match source {
                Some(source) => by_source.entry(source).or_insert_with(|| initializer.clone()),
                None => initializer,
            };
            initializers.push((own, initializer.clone()));
        }
    }
    let mut union = Container::new(ModelProto::new(graph));
    for (handle, initializer) in initializers {
        union.insert(handle.as_str(), initializer)?;
    }
    Ok(union)
}
