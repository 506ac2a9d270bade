//! The patterns of `--name`: one that no tensor matches is mistyped.

use std::cell::RefCell;
use std::path::Path;

use glob::Pattern;
use onnx_container::summary::Summary;

use crate::args::InspectArgs;
use crate::terminal::failure::Failure;

/// The patterns, and which of them matched no tensor so far.
pub struct Patterns<'a> {
    /// Whether there are several models: a tensor of one of them suffices.
    several: bool,
    idle: RefCell<Vec<&'a Pattern>>,
    /// The models that were read.
    read: RefCell<usize>,
}

impl<'a> Patterns<'a> {
    pub fn new(args: &'a InspectArgs) -> Self {
        let idle = RefCell::new(args.name.iter().collect());
        Self { several: args.models.len() > 1, idle, read: RefCell::new(0) }
    }

    /// Notes which patterns match a tensor of the model at `path`. The first that matches none is
    /// refused where there is no other model.
    pub fn note(&self, summary: &Summary, path: &Path) -> Result<(), Failure> {
        *self.read.borrow_mut() += 1;
        let mut idle = self.idle.borrow_mut();
        idle.retain(|glob| {
            let is_match = |name: &str| glob.matches(name);
            let mut tensors = summary.tensors.iter();
            !tensors.any(|it| is_match(&it.qualified_name()) || is_match(&it.name))
        });
        let Some(glob) = idle.first().filter(|_| !self.several) else { return Ok(()) };
        let text: String = glob.as_str().chars().filter(|c| !"*?[]".contains(*c)).collect();
        let names = summary.names_like(&text);
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        let advice = match names.is_empty() {
            true => "`inspect --top 0` lists the names".to_owned(),
            false => format!("did you mean {}?", names.join(" or ")),
        };
        let path = path.display();
        Err(Failure::Refused(format!("no tensor of `{path}` has a name like `{glob}`; {advice}")))
    }

    /// The failure by a pattern that no tensor of several models matches.
    pub fn idle(&self) -> Option<Failure> {
        let idle = self.idle.borrow();
        let glob = idle.first().filter(|_| *self.read.borrow() > 0)?;
        let reason = format!(
            "no tensor of these models has a name like `{glob}`: `inspect --top 0` lists the names"
        );
        Some(Failure::Refused(reason))
    }
}
