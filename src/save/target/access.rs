//! Who may read and write a file that a save replaces, and the same for the new one.
//!
//! A rename puts a file of the process that saves in the place of another's. So the new file is
//! given the owner, the group, the permissions and, on Linux, the access control list of the old
//! one, as far as the process may. Nobody may read more than before: where the group or the list
//! cannot be given, the group gets only what all others have.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::{Error, ErrorKind};

/// Who has access to a file.
#[derive(Debug, Clone)]
#[cfg_attr(not(unix), allow(dead_code))]
pub(crate) struct Access {
    owner: u32,
    group: u32,
    mode: u32,
    /// The access control list, in the system's form.
    list: Option<Vec<u8>>,
}

/// What of an [`Access`] a file was not given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lost {
    owner: Option<u32>,
    group: Option<u32>,
    list: bool,
}

impl Lost {
    pub(crate) fn is_some(self) -> bool {
        self != Self::default()
    }

    fn words(self) -> String {
        let owner = self.owner.map(|owner| format!("the owner (user {owner})"));
        let group = self.group.map(|group| format!("the group ({group})"));
        let list = self.list.then(|| "the access control list".to_owned());
        let words: Vec<_> = [owner, group, list].into_iter().flatten().collect();
        match words.split_last() {
            Some((last, before)) if !before.is_empty() => {
                format!("{} and {last}", before.join(", "))
            }
            _ => words.concat(),
        }
    }

    /// The warning for files that replaced others, `names` in the folder.
    pub(crate) fn warning(self, folder: &Path, names: &[String]) -> Error {
        let others = match names.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(", as {more} more of this save"),
        };
        let reason = format!(
            "was replaced without {} of the old file, which this process may not give{others}: check who may read it",
            self.words()
        );
        let path = folder.join(names.first().map_or("", String::as_str));
        Error::new(ErrorKind::Unsupported, reason).with_path(path)
    }
}

#[cfg(not(unix))]
impl Access {
    pub(crate) fn of(_: &Path) -> Option<Self> {
        None
    }

    #[allow(clippy::unnecessary_wraps, clippy::unused_self)] // as on Unix
    pub(crate) fn give(&self, _: &File) -> io::Result<Lost> {
        Ok(Lost::default())
    }

    #[allow(clippy::unnecessary_wraps, clippy::unused_self)] // as on Unix
    pub(crate) fn limit(&self, _: &File) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(unix)]
impl Access {
    /// That of the regular file at `path`.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = crate::util::retry::retried(|| path.symlink_metadata()).ok();
        let metadata = metadata.filter(std::fs::Metadata::is_file)?;
        let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode() & 0o777);
        Some(Self { owner, group, mode, list: list::of(path) })
    }

    /// Gives it to a new file that nobody knows yet; returns what was not possible.
    ///
    /// # Errors
    /// When the permissions cannot be set.
    pub(crate) fn give(&self, file: &File) -> io::Result<Lost> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
        let now = crate::util::retry::retried(|| file.metadata())?;
        let mut lost = Lost::default();
        let (owner, group) = (self.owner != now.uid(), self.group != now.gid());
        if group && fchown(file, None, Some(self.group)).is_err() {
            lost.group = Some(self.group);
        }
        lost.list = !list::give(self.list.as_deref().filter(|_| lost.group.is_none()), file)
            || self.list.is_some() && lost.group.is_some();
        let mode = if lost.is_some() { without_group(self.mode) } else { self.mode };
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        // Last, since only the owner may do the rest.
        if owner && fchown(file, Some(self.owner), None).is_err() {
            lost.owner = Some(self.owner);
        }
        Ok(lost)
    }

    /// Takes from a new file the permissions that are not in this access, as for a copy.
    ///
    /// # Errors
    /// When the permissions cannot be set.
    pub(crate) fn limit(&self, file: &File) -> io::Result<()> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let now = crate::util::retry::retried(|| file.metadata())?.mode() & 0o777;
        let limited = now & self.mode;
        if limited == now {
            return Ok(());
        }
        file.set_permissions(std::fs::Permissions::from_mode(limited))
    }
}

/// Gives `file` the access to the first of `replaced` that is there; where there is none, it keeps
/// its own.
#[cfg(feature = "jobs")]
pub(crate) fn give_access_of(replaced: &[std::path::PathBuf], file: &File) -> io::Result<()> {
    let access = replaced.iter().find_map(|path| Access::of(path));
    access.map_or(Ok(()), |access| access.give(file).map(drop))
}

/// The mode in which the group may do no more than all others.
#[cfg(unix)]
fn without_group(mode: u32) -> u32 {
    let others = (mode & 0o007) << 3;
    mode & !0o070 | mode & 0o070 & others
}

/// Access control lists of POSIX, as Linux has them.
#[cfg(target_os = "linux")]
mod list {
    use std::fs::File;
    use std::path::Path;

    use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr, lgetxattr};

    use crate::util::retry::retried;

    const NAME: &str = "system.posix_acl_access";
    /// The longest attribute of Linux, in bytes.
    const LONGEST: usize = 64 << 10;

    /// That of the file at `path`, beyond its permissions.
    pub(in crate::save) fn of(path: &Path) -> Option<Vec<u8>> {
        // Most files have none, which needs no memory to find out.
        retried(|| lgetxattr(path, NAME, &mut [0_u8; 0])).ok()?;
        let mut list = vec![0_u8; LONGEST];
        let len = retried(|| lgetxattr(path, NAME, &mut list[..])).ok()?;
        list.truncate(len);
        Some(list)
    }

    /// Gives the file this list, or none. Whether that is done.
    pub(in crate::save) fn give(list: Option<&[u8]>, file: &File) -> bool {
        match list {
            Some(list) => retried(|| fsetxattr(file, NAME, list, XattrFlags::empty())).is_ok(),
            // It may have the default one of its folder.
            None if retried(|| fgetxattr(file, NAME, &mut [0_u8; 0])).is_ok() => {
                retried(|| fremovexattr(file, NAME)).is_ok()
            }
            None => true,
        }
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
mod list {
    pub(in crate::save) fn of(_: &std::path::Path) -> Option<Vec<u8>> {
        None
    }

    pub(in crate::save) fn give(_: Option<&[u8]>, _: &std::fs::File) -> bool {
        true
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_another_may_do_what_all_may() {
        for (mode, without) in
            [(0o640, 0o600), (0o664, 0o644), (0o644, 0o644), (0o607, 0o607), (0o770, 0o700)]
        {
            assert_eq!(without_group(mode), without, "{mode:o}");
        }
    }

    #[test]
    fn a_warning_says_what_is_lost() {
        let names = ["m.onnx".to_owned(), "m.onnx.data".to_owned()];
        for (owner, group, list, said) in [
            (Some(7), None, false, "the owner (user 7) of the old file"),
            (Some(7), Some(8), false, "the owner (user 7) and the group (8) of"),
            (Some(7), Some(8), true, "user 7), the group (8) and the access control list of"),
            (None, None, true, "without the access control list of"),
        ] {
            let lost = Lost { owner, group, list };
            assert!(lost.is_some());
            let warning = lost.warning(Path::new("f"), &names).to_string();
            assert!(warning.contains(said) && warning.contains("1 more"), "{warning}");
            assert!(warning.contains("f/m.onnx"), "{warning}");
        }
        assert!(!Lost::default().is_some());
    }
}
