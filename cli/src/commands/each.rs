//! Commands that say the same of one model or of several: as text one after the other, as JSON one
//! object or a list of them.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::commands::leftovers;
use crate::terminal::failure::{Failure, JsonError, Outcome};
use crate::terminal::output::{Output, lossy};

/// What a command says of models.
pub struct Each<'a, T> {
    /// The command, as it is called.
    pub command: &'static str,
    pub models: &'a [PathBuf],
    pub json: bool,
    /// Looks at a model.
    pub look: &'a dyn Fn(&'a Path) -> Result<T, Failure>,
    /// Prints as text what was seen.
    pub print: &'a dyn Fn(&T, &mut Output) -> Result<(), Failure>,
    /// Whether an empty line is printed between two models.
    pub spaced: bool,
}

impl<'a, T: Serialize> Each<'a, T> {
    /// Prints what is said of each model. One that cannot be read does not hide the others.
    pub fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        match self.models {
            [model] => self.one(model, out),
            models => self.several(models, out),
        }
    }

    fn one(&self, model: &'a Path, out: &mut Output) -> Result<Outcome, Failure> {
        let seen = (self.look)(model)?;
        if self.json {
            let warnings = leftovers::warnings([model]);
            out.json(&Alone { command: self.command, seen, warnings })?;
        } else {
            (self.print)(&seen, out)?;
        }
        Ok(Outcome::Done)
    }

    fn several(&self, models: &'a [PathBuf], out: &mut Output) -> Result<Outcome, Failure> {
        let (mut listed, mut all_read) = (Vec::new(), true);
        for (number, path) in models.iter().enumerate() {
            if number > 0 && self.spaced && !self.json {
                out.line("")?;
            }
            match (self.look)(path) {
                Ok(seen) if self.json => listed.push(Entry::Read(Box::new(seen))),
                Ok(seen) => (self.print)(&seen, out)?,
                Err(failure) => {
                    all_read = false;
                    failure.print(None);
                    listed.push(Entry::Unread { model: path, error: JsonError::from(&failure) });
                }
            }
        }
        if self.json {
            let warnings = leftovers::warnings(models.iter().map(PathBuf::as_path));
            out.json(&Several { command: self.command, models: listed, warnings })?;
        }
        Ok(Outcome::of(all_read))
    }
}

/// What `--json` prints of one model.
#[derive(Serialize)]
struct Alone<T> {
    command: &'static str,
    #[serde(flatten)]
    seen: T,
    warnings: Vec<String>,
}

/// What `--json` prints of several models.
#[derive(Serialize)]
struct Several<'a, T> {
    command: &'static str,
    models: Vec<Entry<'a, T>>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a, T> {
    Read(Box<T>),
    Unread {
        #[serde(serialize_with = "lossy")]
        model: &'a Path,
        error: JsonError,
    },
}
