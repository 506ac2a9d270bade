//! A switch that puts nothing in place: it removes a model and its weights files.
//!
//! The model is moved to `old` first and the other files after it, so a model that is in place has
//! its weights. Deleting begins when all are moved. So where one that was killed is found, all
//! files are put back as long as one is still in its place, and else the rest is deleted.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::recovery::found::{FoundFiles, Position};
use crate::files::recovery::journal::JournalEntry;
use crate::files::recovery::switch::{Switch, Way};

impl Switch {
    /// The removal of the files `names` of a folder by way of the folder `old` of `staging`, the
    /// model last. Names of files that are not there are passed over.
    pub(crate) fn removal(
        directory: &Path,
        staging: &Path,
        names: &[String],
        sync: bool,
    ) -> Result<Self> {
        let name = staging.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::internal("a staging folder without a name"))?;
        let mut switch = Self::open((directory, directory), name, sync, false)?;
        switch.below = switch.open_below(names.iter().map(String::as_str))?;
        for name in names {
            let mut entry = JournalEntry { name: name.clone(), new: None, old: None };
            let found = switch.mark(switch.place_of(&entry), entry.place().1)?;
            if let Some((mark, _)) = found.filter(|(_, kind)| kind.is_replaceable()) {
                entry.old = Some(mark);
                switch.files.push(entry);
            }
        }
        Ok(switch)
    }

    /// Whether files that could not be put back are in the staging folder.
    pub(crate) fn has_old_files(&self) -> bool {
        self.has_files().1
    }

    /// Whether this switch only removes.
    pub(super) fn is_removal(&self) -> bool {
        self.model().is_some_and(|model| model.new.is_none())
    }

    /// Moves all files away, or none.
    ///
    /// # Errors
    /// The files are then in place, unless that is not possible either: the next process that opens
    /// the model goes on.
    pub(crate) fn take_all_away(&self) -> Result<()> {
        // `old` has its name on the disk before a file is moved there.
        self.flush_staging()?;
        self.announce()?;
        let taken =
            self.files.iter().rev().try_for_each(|entry| self.take_away(entry, self.old.as_ref()));
        let Err(error) = taken.and_then(|()| self.flush_old()).and_then(|()| self.flush()) else {
            return Ok(());
        };
        match self.undo().and_then(|()| self.close()) {
            Ok(()) => Err(error),
            Err(_) => Err(error.and("the next process that opens the model puts its files back")),
        }
    }
}

/// What can be done with an interrupted removal of `all` files.
pub(super) fn way_of_removal(all: &[(&JournalEntry, FoundFiles)]) -> Way {
    let is_gone = |found: &FoundFiles| !found.saved && found.position == Position::Free;
    let any = |is: &dyn Fn(&FoundFiles) -> bool| all.iter().any(|(_, found)| is(found));
    let has_other = any(&|found| found.position == Position::Other);
    if !any(&|found| found.saved) {
        return Way::Done;
    }
    // Deleting had not begun, so one that is gone was taken away by somebody else.
    if any(&|found| found.position == Position::Old) {
        return if has_other { Way::None } else { Way::Undo };
    }
    if has_other && !any(&is_gone) { Way::None } else { Way::Done }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::recovery::{StagingFolder, recover};

    /// A folder with a model and weights, and the removal of both.
    fn made(names: &[&str]) -> (tempfile::TempDir, StagingFolder, Switch) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        for name in names {
            fs::write(folder.path().join(name), *name).unwrap();
        }
        let staging = StagingFolder::new(folder.path(), "m.onnx").unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let removal = Switch::removal(folder.path(), staging.path(), &names, false).unwrap();
        (folder, staging, removal)
    }

    /// The names of `all` files that are there.
    fn there<'n>(folder: &Path, all: &[&'n str]) -> Vec<&'n str> {
        all.iter().filter(|name| folder.join(name).exists()).copied().collect()
    }

    #[test]
    fn a_removal_that_is_killed_is_undone_or_complete() {
        for names in [&["m.onnx"][..], &["a", "sub/b", "m.onnx"]] {
            for moved in 0..=names.len() {
                for deleted in 0..=if moved == names.len() { moved } else { 0 } {
                    let (folder, staging, removal) = made(names);
                    removal.announce().unwrap();
                    for entry in removal.files.iter().rev().take(moved) {
                        removal.take_away(entry, removal.old.as_ref()).unwrap();
                    }
                    for entry in removal.files.iter().take(deleted) {
                        removal.old.as_ref().unwrap().delete(&*entry.staged()).unwrap();
                    }
                    staging.keep();
                    let recovery = recover(folder.path()).unwrap();
                    assert!(recovery.errors.is_empty(), "{recovery:?}");
                    let left = if moved == names.len() { &[][..] } else { names };
                    assert_eq!(there(folder.path(), names), left, "{moved} {deleted}");
                    assert_eq!(
                        fs::read_dir(folder.path())
                            .unwrap()
                            .filter(|entry| {
                                entry
                                    .as_ref()
                                    .unwrap()
                                    .file_name()
                                    .to_string_lossy()
                                    .starts_with('.')
                            })
                            .count(),
                        0,
                        "{moved} {deleted}"
                    );
                }
            }
        }
    }

    /// A power failure on btrfs may leave both names of files that were moved away.
    #[cfg(unix)]
    #[test]
    fn a_removal_with_both_names_of_files_puts_all_back() {
        let names = ["a", "sub/b", "m.onnx"];
        for both in 1..1 << names.len() {
            let (folder, staging, removal) = made(&names);
            removal.announce().unwrap();
            for (bit, entry) in removal.files.iter().enumerate().rev() {
                removal.take_away(entry, removal.old.as_ref()).unwrap();
                if both >> bit & 1 == 1 {
                    let old = staging.old_files().join(&*entry.staged());
                    fs::hard_link(old, folder.path().join(&entry.name)).unwrap();
                }
            }
            staging.keep();
            let recovery = recover(folder.path()).unwrap();
            assert!(recovery.errors.is_empty(), "{both:b}: {recovery:?}");
            assert_eq!(there(folder.path(), &names), names, "{both:b}");
        }
    }

    /// A user may rescue a file of a killed removal: the others go back, and none is deleted.
    #[test]
    fn a_file_that_was_taken_away_by_hand_deletes_no_other() {
        let names = ["a", "b", "m.onnx"];
        let (folder, staging, removal) = made(&names);
        removal.announce().unwrap();
        removal.take_away(&removal.files[2], removal.old.as_ref()).unwrap();
        fs::remove_file(folder.path().join("a")).unwrap();
        staging.keep();
        let recovery = recover(folder.path()).unwrap();
        assert!(recovery.errors.is_empty(), "{recovery:?}");
        assert_eq!(there(folder.path(), &names), ["b", "m.onnx"]);
    }

    #[test]
    fn what_is_put_in_the_place_of_a_file_is_not_touched() {
        let names = ["a", "m.onnx"];
        let (folder, staging, removal) = made(&names);
        removal.announce().unwrap();
        removal.take_away(&removal.files[1], removal.old.as_ref()).unwrap();
        fs::write(folder.path().join("m.onnx"), "another").unwrap();
        staging.keep();
        let recovery = recover(folder.path()).unwrap();
        assert_eq!(recovery.errors.len(), 1, "{recovery:?}");
        assert_eq!(fs::read_to_string(folder.path().join("m.onnx")).unwrap(), "another");
    }
}
