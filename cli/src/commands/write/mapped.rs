//! `import-safetensors --match OLD`, `--mapping FILE`: weights that are put where the elements of
//! others were.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use onnx_container::edit::{FillOptions, MatchOptions, Tied, WeightMapping};
use onnx_container::{Error, Initializer, safetensors, traversal};
use onnx_container_files::targets::refusal;

use super::WriteJob;
use crate::args::ImportArgs;
use crate::commands::write::import::Imported;
use crate::files::staged::Staged;
use crate::model::vouched::{self, Vouched};
use crate::model::{place, reading, save};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

/// `import-safetensors MODEL WEIGHTS OUT` with a mapping, which is found or read.
pub fn import(args: &ImportArgs, out: &mut Output) -> Result<Outcome, Failure> {
    save::refuse_weights(&args.output, Some(&args.weights))?;
    let reading = reading::of(&args.write.read);
    let mut container = place::load(&args.model, reading)?;
    if Vouched::from(&args.write.target) == Vouched::Compared && container.had_digests() {
        let names = traversal::iter(container.model());
        let names: Vec<_> = names.map(|(place, tensor)| place.qualified_name(tensor)).collect();
        let used: HashSet<_> = names.iter().map(String::as_str).collect();
        vouched::compare(&args.model, reading, &used)?;
    }
    let new = safetensors::load(&args.weights, reading)?;
    let mut files = new.files().to_vec();
    let mapping = match &args.matched {
        Some(old) => {
            let old = safetensors::load(old, reading)?;
            files.extend_from_slice(old.files());
            container.match_weights(weights(&old), MatchOptions::new())?
        }
        None => read(args)?,
    };
    if args.matched.is_some() && mapping.matched.is_empty() {
        let reason = "no tensor of the model is made of the weights of --match: it is not the checkpoint that \
                      the model was exported from";
        return Err(Failure::Refused(reason.to_owned()));
    }
    let options = FillOptions::new().strict(args.strict).tied(args.tied.map(Tied::from));
    let filled = container.fill_mapped(&mapping, weights(&new), options)?;
    // What is on the disk must not change before the model is written.
    let written = match (&args.matched, &args.mapping) {
        (Some(_), Some(path)) => Some(stage(&mapping, path, &files, args)?),
        _ => None,
    };
    let ImportArgs { model, output, write, moving, layout, .. } = args;
    let mut job = WriteJob::packed("import-safetensors", model, output, write, moving, layout);
    job.options = job.options.protect(files);
    let imported = Imported::mapped(&args.weights, filled);
    let outcome = job.write(container, Some(imported), out)?;
    if let Some(staged) = written
        && !args.write.target.dry_run
    {
        staged.publish(args.write.target.no_clobber)?;
    }
    Ok(outcome)
}

/// The tensors of a checkpoint, tied ones under each of their names.
fn weights(of: &safetensors::Weights) -> Vec<(String, Initializer)> {
    let tied = of.tied().keys().filter_map(|name| Some((name.as_str(), of.get(name)?)));
    let all = of.iter().chain(tied);
    all.map(|(name, tensor)| (name.to_owned(), tensor.clone().into())).collect()
}

fn read(args: &ImportArgs) -> Result<WeightMapping, Error> {
    let path = args.mapping.as_ref().ok_or_else(|| Error::other("no mapping is given"))?;
    let text = fs::read_to_string(path).map_err(|error| Error::from(error).with_path(path))?;
    WeightMapping::from_json(&text).map_err(|error| error.with_path(path))
}

/// Writes the mapping beside its place, where it is put once the model is there.
fn stage(
    mapping: &WeightMapping,
    path: &std::path::Path,
    read: &[PathBuf],
    args: &ImportArgs,
) -> Result<Staged, Error> {
    let own = read.iter().chain([&args.model, &args.output]);
    let own: Vec<_> = own.filter_map(|path| path.canonicalize().ok()).collect();
    if let Some(error) = refusal(path, &own, args.write.target.no_clobber) {
        return Err(error);
    }
    let json = mapping.to_json()?;
    Staged::new(path.to_path_buf(), false, |out| Ok(writeln!(out, "{json}")?))
}
