//! A file of a save that has the bytes of a file that exists: it becomes another name of that file,
//! or a copy.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::buffers::FileIdentity;
use crate::error::{Error, ErrorKind, Result};
use crate::save::target::SaveTarget;
use crate::save::target::access::Access;
use crate::save::target::publish::{NewFile, Staging};
use crate::save::write::holes::stored_bytes;
use crate::save::write::meter::Meter;
use crate::save::write::whole_file;
use crate::util::retry::{exists, retried};

/// A file that exists.
#[derive(Debug, Clone)]
pub(crate) struct Existing {
    /// Its real path.
    pub(crate) path: PathBuf,
    pub(crate) identity: FileIdentity,
    pub(crate) modified: Option<SystemTime>,
    pub(crate) len: u64,
    /// Whether the new file may be another name of this one.
    pub(crate) may_link: bool,
}

/// How a file of a model got to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Placed {
    /// It is the same file under another name: no byte was read.
    Linked,
    /// It is a copy that has its bytes in the same place on the disk, which the file system did.
    Shared,
    /// Its bytes were copied, holes as holes.
    Copied,
    /// It was written: the model, because other names are in it now.
    Written,
    /// It stays where it is: its name and its folder are the same.
    Kept,
}

impl Existing {
    /// Puts the file into the staging folder as `name`.
    pub(super) fn stage(
        &self,
        staging: &Staging,
        name: &str,
        target: &SaveTarget,
        meter: &Meter<'_>,
    ) -> Result<Placed> {
        let fail = |error| meter.explain(Error::io(&self.path, error));
        if self.may_link && staging.link(name, &self.path).is_ok() {
            let staged = staging.staged(name);
            let metadata = retried(|| staged.metadata()).map_err(fail)?;
            self.check(&FileIdentity::at(&staged, &metadata))?;
            meter.add(self.len)?;
            return Ok(Placed::Linked);
        }
        let from = File::open(&self.path).map_err(fail)?;
        let metadata = retried(|| from.metadata()).map_err(fail)?;
        self.check(&FileIdentity::of(&from, &metadata))?;
        let NewFile { file, path, .. } = staging.create(name)?;
        self.give_access(&file, exists(&path)).map_err(fail)?;
        let placed = self.fill(&from, &file, target, meter)?;
        if let Some(modified) = self.modified.filter(|_| self.may_link) {
            // Nobody needs it; a file system may not take it.
            drop(file.set_modified(modified));
        }
        let written = retried(|| file.metadata()).map_err(fail)?.len();
        if written == self.len { Ok(placed) } else { Err(self.changed()) }
    }

    fn fill(
        &self,
        from: &File,
        to: &File,
        target: &SaveTarget,
        meter: &Meter<'_>,
    ) -> Result<Placed> {
        if whole_file::share(from, to) {
            meter.add(self.len)?;
            return Ok(Placed::Shared);
        }
        let metadata = retried(|| from.metadata()).map_err(|e| Error::io(&self.path, e))?;
        target.check_space(stored_bytes(&metadata))?;
        let copied = whole_file::copy(from, to, self.len, meter);
        copied.map_err(|error| meter.explain(Error::io(&self.path, error)))?;
        Ok(Placed::Copied)
    }

    /// A file that moves keeps its access and its time; a copy has no more than the original.
    fn give_access(&self, file: &File, replaces: bool) -> io::Result<()> {
        let access = Access::of(&self.path).filter(|_| !replaces);
        match access {
            Some(access) if self.may_link => access.give(file).map(drop),
            Some(access) => access.limit(file),
            None => Ok(()),
        }
    }

    fn check(&self, now: &FileIdentity) -> Result<()> {
        let is_same = self.identity.has_the_bytes_of(now);
        if is_same { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> Error {
        let reason = "was changed by another program meanwhile";
        Error::new(ErrorKind::Changed, reason).with_path(&self.path)
    }
}
