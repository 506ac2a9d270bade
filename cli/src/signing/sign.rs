//! `sign MODEL`: one signature on the files of a model, and one on its content.

use std::ops::ControlFlow;

use onnx_container::{Error, ErrorKind};
use onnx_container_signing::{PrivateKey, SignOptions, Signed, Warning};

use crate::args::SignArgs;
use crate::model::{reading, save, vouched};
use crate::signing::json::SignReport;
use crate::signing::terms;
use crate::signing::told::pieces;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, print_on_stderr};
use crate::terminal::progress::is_quiet;
use crate::terminal::stop;

/// Signs the model, or the files of a folder, and prints what was signed.
pub fn run(args: &SignArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let options = options(args, PrivateKey::read(&args.key)?);
    let signed = match onnx_container_signing::sign(&args.model, &options) {
        Ok(signed) => signed,
        Err(error) => return Err(failure(stop::unwritten(error))),
    };
    let what = if signed.content.is_some() { "both signatures were" } else { "the signature was" };
    stop::written(format!("{what} written"));
    if args.out.json {
        out.json(&SignReport::new(args, &signed))?;
    } else {
        print(&signed, out)?;
    }
    Ok(Outcome::Done)
}

fn options(args: &SignArgs, key: PrivateKey) -> SignOptions {
    let reading = reading::of(&args.out.read);
    let mut options = SignOptions::new(key)
        .all_files(args.all_files)
        .ignore_stored_digests(args.ignore_stored_digests)
        .sync(!args.out.no_sync)
        .overwrite(!args.out.no_clobber)
        .mmap(reading.map)
        .paths(reading.paths)
        .limits(reading.limits)
        .terms(terms::of_command)
        .on_warning(warn)
        .writing(|| match stop::goes_on() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
    if let Some(path) = &args.output {
        options = options.signature(path);
    }
    if let Some(bytes) = args.shard_size {
        options = options.shard_size(bytes).shard_form(args.shard_form.into());
    }
    options
}

fn warn(warning: &Warning) {
    match warning {
        Warning::Loaded(warnings) => save::print_warnings(warnings),
        other => print_on_stderr(format_args!("warning: {other}")),
    }
}

/// The failure for an `error` of the signing. The only digests that it compares are those that are
/// stored with the model.
fn failure(error: Error) -> Failure {
    if error.has(ErrorKind::WrongDigest) { vouched::refused(error) } else { error.into() }
}

const NO_CONTENT: &str = "a folder has no content that is signed, and a signature of the content that was there stays: \
                          `sign MODEL --all-files` signs the folder and the content of a model in it";

/// The most signed files that are printed; `--json` has all.
const MOST_LINES: usize = 20;

fn print(signed: &Signed, out: &mut Output) -> std::io::Result<()> {
    out.line(format_args!("key       {} {}", signed.curve, signed.key))?;
    let (path, files) = (signed.signature.display(), count(signed.files.len(), "file"));
    let pieces = pieces(signed.shard_size);
    out.prose("wrote     ", format_args!("{path}: {files}{pieces}"))?;
    signed.files.iter().take(MOST_LINES).try_for_each(|name| out.prose("          ", name))?;
    if let Some(more) = signed.files.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        out.line(format_args!("          and {more} more, see --json"))?;
    }
    if let Some(content) = &signed.content {
        out.prose("wrote     ", format_args!("{}: the content", content.signature.display()))?;
        out.line(format_args!("          {}", content.digest))?;
    }
    if is_quiet() {
        return Ok(());
    }
    if signed.content.is_none() {
        out.prose("note      ", NO_CONTENT)?;
    }
    print_unsigned(signed, out)
}

/// Says what else is in the folder.
fn print_unsigned(signed: &Signed, out: &mut Output) -> std::io::Result<()> {
    if signed.unsigned_files == 0 {
        return Ok(());
    }
    let others = count(signed.unsigned_files, "other file");
    let (what, them) = if signed.unsigned_files == 1 { ("is", "it") } else { ("are", "them") };
    out.prose(
        "note      ",
        format_args!(
            "{others} of the folder {what} not signed, and the signature says so: --all-files signs \
             {them} too"
        ),
    )?;
    if signed.nameless_files == 0 {
        return Ok(());
    }
    let reason = "cannot be left out by name: verify-signature needs --ignore-unsigned-files";
    out.prose("note      ", format_args!("{} of these {reason}", signed.nameless_files))
}
