//! `cast IN OUT --to TYPE`: the model with its weights in another float type, computing in it.

pub(crate) mod casting;
#[cfg(feature = "machine")]
mod difference;
mod report;

use std::collections::HashSet;
use std::path::Path;

use glob::Pattern;
use onnx_container::edit::{CastOptions, ExternalizeOptions, unknown_operators};
use onnx_container::{Container, Error, ErrorKind, Saved, traversal};

use crate::args::CastArgs;
#[cfg(feature = "machine")]
use crate::args::InOut;
use crate::commands::Execute;
use crate::commands::cast::report::CastInfo;
use crate::commands::write::Read;
use crate::model::vouched::Vouched;
use crate::model::{kept_name, reading, save, vouched};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

impl Execute for CastArgs {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.paths.input]
    }

    fn max_shard_size(&self) -> Option<u64> {
        self.layout.max_shard_size
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Casts, writes and prints a report.
fn run(args: &CastArgs, out: &mut Output) -> Result<Outcome, Failure> {
    save::refuse_weights(&args.paths.output, None)?;
    refuse_one_type(args)?;
    #[cfg(feature = "machine")]
    refuse_unverified(args)?;
    let reading = reading::of(&args.read);
    let vouched = Vouched::from(&args.target);
    let mut container = vouched::load(&args.paths.input, reading, vouched)?;
    save::warn(&container);
    let read = Read::of(&container, !args.read.no_mmap)?;
    #[cfg(feature = "machine")]
    let original = args
        .verify
        .then(|| difference::Original::new(container.clone(), args, reading))
        .transpose()?;
    let cast = container.cast(args.to.into(), options(&container, args)?)?;
    let saved = write(&mut container, args)
        .map_err(|error| save::refused(error, &args.paths.output, &args.target))?;
    let report = CastInfo::new(args, &container, read, cast, &saved);
    #[cfg(feature = "machine")]
    let report = match original {
        Some(original) => report.compared(difference::verify(&original, args, reading)?),
        None => report,
    };
    if args.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::of(report.is_well()))
}

/// Refuses to replace the model that the written one is compared with: a cast that is found to be
/// bad would be all that is left.
#[cfg(feature = "machine")]
fn refuse_unverified(args: &CastArgs) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().ok();
    let InOut { input, output } = &args.paths;
    if args.verify && real(input).is_some_and(|input| Some(input) == real(output)) {
        let reason = "OUT is IN, which --verify compares the result with: write to another name, and \
                      move it with `onnx-container mv` when it is as you want it";
        return Err(Failure::Usage(reason.to_owned()));
    }
    Ok(())
}

/// Refuses to cast a type to itself.
fn refuse_one_type(args: &CastArgs) -> Result<(), Failure> {
    match args.from {
        Some(from) if from == args.to => {
            let reason = "--from and --to are the same type: nothing would be cast";
            Err(Failure::Usage(reason.to_owned()))
        }
        _ => Ok(()),
    }
}

/// What is cast.
fn options(container: &Container, args: &CastArgs) -> Result<CastOptions, Failure> {
    let options = CastOptions::new().min_bytes(args.min_bytes).compute(!args.weights_only);
    refuse_unknown_operators(container, &args.keep_op)?;
    let options = match args.from {
        Some(from) => options.from_dtype(from.into()),
        None => options,
    };
    let options = options.keep_io(args.keep_io).keep_ops(args.keep_op.clone());
    Ok(options.except(excepted(container, &args.except, &args.paths.input)?))
}

/// Refuses a name of `--keep-op` that no node has, which was meant for another.
pub(crate) fn refuse_unknown_operators(
    container: &Container,
    keep_op: &[String],
) -> Result<(), Failure> {
    let unknown = unknown_operators(container.model(), keep_op.iter().map(String::as_str))?;
    match unknown.first() {
        Some(name) => Err(Failure::Usage(format!(
            "--keep-op `{name}`: no node has this name, and none is of this type"
        ))),
        None => Ok(()),
    }
}

/// The names of the tensors that match a pattern of `--except`. A pattern that none matches was
/// meant for another name, so it is refused.
pub(crate) fn excepted(
    container: &Container,
    patterns: &[Pattern],
    input: &Path,
) -> Result<HashSet<String>, Failure> {
    let (mut names, mut matched) = (HashSet::new(), HashSet::new());
    for (place, tensor) in traversal::iter(container.model()) {
        let name = place.qualified_name(tensor);
        for pattern in patterns.iter().filter(|pattern| pattern.matches(&name)) {
            matched.insert(pattern);
            names.insert(name.clone());
        }
    }
    match patterns.iter().find(|pattern| !matched.contains(pattern)) {
        Some(pattern) => Err(Failure::Usage(format!(
            "--except `{pattern}` matches no tensor: `inspect {}` lists them",
            input.display()
        ))),
        None => Ok(names),
    }
}

/// Saves in the layout that was asked for. A model file over 2 GiB is refused by readers, so its
/// large inline tensors go out then.
fn write(container: &mut Container, args: &CastArgs) -> Result<Saved, Error> {
    let packed = save::packed(&args.layout, &args.target);
    let reading = reading::of(&args.read);
    let packed = kept_name::kept(packed, &args.layout, &args.paths.output, reading);
    let how = || packed.clone();
    match save::try_save(container, &args.paths.output, how(), &args.target) {
        Err(error) if error.kind() == ErrorKind::ModelTooLarge => {
            container.externalize(ExternalizeOptions::new())?;
            save::try_save(container, &args.paths.output, how(), &args.target)
        }
        other => other,
    }
}
