//! Models that nobody sees, because a save or a removal of them was interrupted: nothing that they
//! may need is removed.

use std::path::PathBuf;

use super::ModelFolder;
use crate::error::{Error, Result};
use crate::files::recovery::may_need_recovery;
use crate::save::target::users::Base;
use crate::util::retry::retried;

impl ModelFolder {
    /// A folder that [`users`](Self::users) searches, where a model may be out of its place: a save
    /// or a removal of it was interrupted.
    pub(crate) fn that_may_hide_users(&self) -> Result<Option<PathBuf>> {
        let root =
            retried(|| self.directory.canonicalize()).map_err(|e| Error::io(&self.directory, e))?;
        for base in Base::all(&self.directory, &root, self.depth) {
            match may_need_recovery(&base.path) {
                Ok(true) => return Ok(Some(base.path)),
                Err(error) if !base.passes_error(&error, &base.path) => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(None)
    }
}
