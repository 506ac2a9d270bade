//! `man FOLDER`: the manual pages, from the declaration of the command line.

use std::path::{Path, PathBuf};

use onnx_container::Error;
use onnx_container_files::targets::refusals;

use crate::args::ManArgs;
use crate::commands::{Execute, declared};
use crate::files::staged::{self, Staged};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count};

impl Execute for ManArgs {
    fn name(&self) -> &'static str {
        "man"
    }

    fn json(&self) -> bool {
        false
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Writes a page for the program and for each command.
fn run(args: &ManArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let mut pages = Vec::new();
    pages_of(declared().disable_help_subcommand(true), &[], &mut pages)?;
    staged::refuse_file(&args.folder)?;
    std::fs::create_dir_all(&args.folder).map_err(|error| Error::io(&args.folder, error))?;
    let paths: Vec<_> = pages.iter().map(|(name, _)| args.folder.join(name)).collect();
    refusals(paths.iter().map(PathBuf::as_path), &[], false)?;
    for (name, page) in &pages {
        let path = args.folder.join(name);
        let fail = |error| Error::io(&path, error);
        let page = Staged::new(path.clone(), false, |file| file.write_all(page).map_err(fail))?;
        page.publish(false)?;
    }
    let folder: &Path = &args.folder;
    out.row("wrote", format_args!("{} to {}", count(pages.len(), "page"), folder.display()))?;
    Ok(Outcome::Done)
}

/// The pages of `command`, which is one of the commands `of`, and of its subcommands.
fn pages_of(
    command: clap::Command,
    of: &[String],
    pages: &mut Vec<(PathBuf, Vec<u8>)>,
) -> Result<(), Failure> {
    let called = [of, &[command.get_name().to_owned()]].concat();
    let name = called.join("-");
    let mut page = Vec::new();
    let titled = command.clone().name(name.clone()).display_name(name.clone());
    let titled = titled.bin_name(called.join(" "));
    let rendered = clap_mangen::Man::new(titled).render(&mut page);
    rendered.map_err(|_| Error::internal("a manual page that cannot be made"))?;
    pages.push((PathBuf::from(format!("{name}.1")), page));
    for part in command.get_subcommands() {
        pages_of(part.clone(), &called, pages)?;
    }
    Ok(())
}
