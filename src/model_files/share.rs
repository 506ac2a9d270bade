//! Several models of one folder with their weights in one file, equal ones once.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use crate::buffers::FileIdentity;
use crate::container::Container;
use crate::container::externalize::ExternalizeOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::directory_of;
use crate::load::LoadOptions;
use crate::model_files::options::FileOptions;
use crate::model_files::source::still_has_the_bytes_of;
use crate::save::{
    Deduplicated, Group, GroupModel, GroupSaved, ModelFolder, SaveTarget, SavedFile, is_one_folder,
};
use crate::util::retry::{exists, retried};

/// The name of the weights file, where none is given and no file has it.
const DATA_NAME: &str = "shared.onnx.data";

/// What [`share_weights`] did, or would do.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SharedWeights {
    /// The weights file, then the models, by their names in the folder.
    pub files: Vec<SavedFile>,
    /// What is stored once now.
    pub deduplicated: Deduplicated,
    /// Old weights files that were removed: only where the save options say so.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub removed: Vec<PathBuf>,
    /// Old weights files that no model needs any more, and that stay.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub left_behind: Vec<PathBuf>,
    /// What else the user should know.
    pub warnings: Vec<Error>,
}

/// Puts the weights of the models at `paths`, all in one folder, into one new file, those of equal
/// bytes once. Inline tensors of 1024 bytes or more go there too, as by
/// [`externalize`](Container::externalize).
///
/// All models and the file are put in place in one step: whenever the process is killed, the next
/// program that opens one of the models finds all old ones or all new ones. The file has the name
/// `data_name`, else `shared.onnx.data`, with a number where that is taken; no existing file is
/// replaced except the models. Old weights files stay, unless the save options
/// [remove them](crate::SaveOptions::remove_left_behind) and no other model needs them. Where a
/// process is killed before it removes them, they stay, and the error of another call names them.
///
/// ```
/// use onnx_container::model_files::{FileOptions, share_weights};
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::{Container, MmapChoice};
///
/// let folder = tempfile::tempdir().unwrap();
/// let paths = ["encoder.onnx", "decoder.onnx"].map(|name| folder.path().join(name));
/// for path in &paths {
///     let mut graph = GraphProto::new("g");
///     graph.initializer.push(TensorProto::external("embed", TensorProto::FLOAT, [300], "#embed"));
///     let mut container = Container::new(ModelProto::new(graph));
///     container.insert("#embed", vec![1.5_f32; 300])?;
///     container.save(path, true)?;
/// }
/// let shared = share_weights(&paths, None, FileOptions::new())?;
/// assert_eq!((shared.files[0].name.as_str(), shared.files[0].bytes), ("shared.onnx.data", 1200));
/// assert_eq!(shared.deduplicated.bytes, 1200);
/// assert!(Container::load(&paths[1], MmapChoice::never())?.get("#embed").is_some());
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for fewer than two models, one that is given twice, models of
/// several folders, and models that have no equal weights or share them already;
/// [`ErrorKind::AlreadyExists`] where there is a file `data_name`; [`ErrorKind::UnsafePath`] for a
/// model that is a link; [`ErrorKind::Changed`] where another program changes a model meanwhile.
/// Others as those of [`Container::load`] and [`Container::save`]. The old models are then in
/// place, unless it says that the new ones are.
pub fn share_weights<P: AsRef<Path>>(
    paths: &[P],
    data_name: Option<&str>,
    options: FileOptions,
) -> Result<SharedWeights> {
    let paths: Vec<_> = paths.iter().map(AsRef::as_ref).collect();
    let targets = targets(&paths)?;
    let Some(main) = targets.last() else { return Err(Error::internal("no models")) };
    let folder = ModelFolder::of(main);
    let mut warnings = match options.dry_run {
        true => Vec::new(),
        false => folder.recover(&options.save)?,
    };
    let models = paths.iter().map(|path| Model::read(path, &options.load));
    let models = models.collect::<Result<Vec<_>>>()?;
    if let Some(file) = shared_file(&models) {
        return Err(nothing_to_do(&main.directory, &targets, file)?);
    }
    warnings.extend(models.iter().flat_map(|model| model.container.warnings().to_vec()));
    let named = targets.iter().zip(&models);
    let group: Vec<_> = named
        .map(|(target, model)| GroupModel {
            name: target.name.clone(),
            container: &model.container,
        })
        .collect();
    let data_name = data_name.map_or_else(|| free_name(&main.directory), str::to_owned);
    let group = Group::new(&main.directory, &group, &data_name, &options.save)?;
    let unchanged = || models.iter().try_for_each(Model::check);
    let GroupSaved { files, deduplicated, removed, left_behind, warnings: said } =
        group.save(options.dry_run, &unchanged)?;
    warnings.extend(said);
    warnings.extend(models.iter().filter_map(Model::dropped_digests));
    Ok(SharedWeights { files, deduplicated, removed, left_behind, warnings })
}

/// The models' places, which are in one folder.
fn targets(paths: &[&Path]) -> Result<Vec<SaveTarget>> {
    let invalid = |reason: String| Error::new(ErrorKind::InvalidArgument, reason);
    if paths.len() < 2 {
        return Err(invalid("give two models or more: these share their weights".to_owned()));
    }
    let targets = paths.iter().map(|path| SaveTarget::new(path));
    let targets = targets.collect::<Result<Vec<_>>>()?;
    let mut names = HashSet::new();
    for (target, path) in targets.iter().zip(paths) {
        let Some(first) = targets.first() else { continue };
        if !is_one_folder(&first.directory, &target.directory)? {
            let (one, other) = (directory_of(&first.path()), directory_of(path));
            return Err(invalid(format!(
                "the models are in different folders, `{}` and `{}`: a model finds weights in its \
                 own folder or below it only, so move them into one first (`mv`)",
                one.display(),
                other.display()
            )));
        }
        if !names.insert(&target.name) {
            return Err(invalid("is given twice".to_owned()).with_path(path));
        }
    }
    Ok(targets)
}

/// A name for the weights file that no file has.
fn free_name(directory: &Path) -> String {
    let numbered = (1..).map(|number| format!("shared-{number}.onnx.data"));
    let mut names = std::iter::once(DATA_NAME.to_owned()).chain(numbered);
    let free = names.find(|name| !exists(&directory.join(name)));
    free.unwrap_or_else(|| DATA_NAME.to_owned())
}

/// The weights file that all weights of all models are in, if there is one.
fn shared_file(models: &[Model]) -> Option<PathBuf> {
    let mut all = BTreeSet::new();
    for model in models {
        // One without weights shares nothing.
        model.container.iter().next()?;
        for (_, initializer) in model.container.iter() {
            all.insert(initializer.as_buffer()?.file_path()?.to_path_buf());
        }
    }
    let file = all.pop_first()?;
    all.is_empty().then_some(file)
}

/// The error for models that share `file`. It names weights files that no model needs: a call that
/// was killed before it removed them leaves some. Their names are no proof of that, so they stay.
fn nothing_to_do(folder: &Path, targets: &[SaveTarget], file: PathBuf) -> Result<Error> {
    let folder = ModelFolder::new(folder, "");
    let models: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
    // A model that is out of its place may need them.
    let is_known = folder.that_may_hide_users()?.is_none();
    let left = if is_known { folder.unneeded(&models)? } else { Vec::new() };
    let mut reason = "the models share one weights file already: there is nothing to do".to_owned();
    if !left.is_empty() {
        let left: Vec<_> = left.iter().map(|name| format!("`{name}`")).collect();
        let left = left.join(", ");
        reason =
            format!("{reason}; no model needs {left} beside them: delete what you do not need");
    }
    Ok(Error::new(ErrorKind::InvalidArgument, reason).with_path(file))
}

/// A model with its weights, and its file as it was before it was read.
struct Model {
    path: PathBuf,
    container: Container,
    identity: FileIdentity,
}

impl Model {
    fn read(path: &Path, load: &LoadOptions) -> Result<Self> {
        let metadata = retried(|| path.metadata()).map_err(|error| Error::io(path, error))?;
        let mut container = Container::load(path, load.clone())?;
        container.externalize(ExternalizeOptions::new())?;
        Ok(Self {
            path: path.to_path_buf(),
            container,
            identity: FileIdentity::at(path, &metadata),
        })
    }

    /// A warning where digests are stored with the model, which the new one does not have.
    fn dropped_digests(&self) -> Option<Error> {
        let reason = "the digests that were stored with this model are dropped";
        let warning = || Error::new(ErrorKind::Unsupported, reason).with_path(&self.path);
        self.container.had_digests().then(warning)
    }

    /// Refuses where the file is not the one that was read any more.
    fn check(&self) -> Result<()> {
        if still_has_the_bytes_of(&self.path, &self.identity) {
            return Ok(());
        }
        let reason = "was changed by another program meanwhile";
        Err(Error::new(ErrorKind::Changed, reason).with_path(&self.path))
    }
}
