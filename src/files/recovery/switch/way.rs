//! What can be done with a switch now: where each of its files is, by the table in `switch`.

use crate::error::{Error, Result};
use crate::files::recovery::found::{FoundFiles, Position, is_done};
use crate::files::recovery::journal::{FileKind, JournalEntry, Mark};
use crate::files::recovery::place::OpenFolder;
use crate::files::recovery::switch::removal::way_of_removal;
use crate::files::recovery::switch::{Switch, Way};

impl Switch {
    /// What can be done now.
    pub(in crate::files::recovery) fn way(&self) -> Result<Way> {
        let all = self.files.iter().map(|entry| Ok((entry, self.found(entry)?)));
        let all: Vec<_> = all.collect::<Result<_>>()?;
        if all.iter().any(|(_, found)| found.foreign) {
            return Ok(Way::None);
        }
        if self.is_removal() {
            return Ok(way_of_removal(&all));
        }
        if is_done(&all, self.replaces_model()) {
            return Ok(Way::Done);
        }
        let goes_on = |(entry, found): &(&JournalEntry, FoundFiles)| match found.position {
            Position::New => !found.damaged,
            Position::Free | Position::Old => entry.new.is_none() || found.staged,
            Position::Other => false,
        };
        let goes_back = |(entry, found): &(&JournalEntry, FoundFiles)| match found.position {
            Position::Old => true,
            Position::New | Position::Free => entry.old.is_none() || found.saved,
            Position::Other => false,
        };
        Ok(if all.iter().all(goes_on) {
            Way::Finish
        } else if all.iter().all(goes_back) {
            Way::Undo
        } else {
            Way::None
        })
    }

    pub(super) fn found(&self, entry: &JournalEntry) -> Result<FoundFiles> {
        let (staged, saved) = (self.staged_mark(entry)?, self.saved_mark(entry)?);
        let in_place = self.mark(self.place_of(entry), entry.place().1)?;
        let kinds = [staged, saved, in_place].into_iter().flatten().map(|(_, kind)| kind);
        let foreign = !kinds.into_iter().all(FileKind::is_replaceable);
        let has_length = |found: Option<(Mark, FileKind)>| {
            let len = entry.new.map(|new| new.len);
            found.is_some_and(|(mark, kind)| kind == FileKind::File && Some(mark.len) == len)
        };
        let is_whole = has_length(staged);
        let damaged = staged.is_some() && !is_whole;
        let saved = entry.old.is_some() && saved.is_some_and(|(_, kind)| kind.is_replaceable());
        let position = match in_place {
            None => Position::Free,
            Some(file) => self.position(entry, file, (staged.is_some(), saved))?,
        };
        let has_length = has_length(in_place);
        Ok(FoundFiles { position, has_length, staged: is_whole, damaged, saved, foreign })
    }

    /// The mark of the file of `entry` in `new`; `None` also where that is only a second name of
    /// the file in place.
    fn staged_mark(&self, entry: &JournalEntry) -> Result<Option<(Mark, FileKind)>> {
        match self.is_second_name(self.new.as_ref(), entry, (entry.new, entry.old))? {
            true => Ok(None),
            false => self.mark(self.new.as_ref(), &entry.staged()),
        }
    }

    /// The same of `old`.
    fn saved_mark(&self, entry: &JournalEntry) -> Result<Option<(Mark, FileKind)>> {
        match self.is_second_name(self.old.as_ref(), entry, (entry.old, entry.new))? {
            true => Ok(None),
            false => self.mark(self.old.as_ref(), &entry.staged()),
        }
    }

    /// Whether the file of `entry` in a folder of the staging folder is one inode with the file in
    /// place, as after a power failure that left both names of a rename.
    ///
    /// Where the inodes of the journal are those of now, it has to be the `own` one of this folder.
    /// One that the `other` file has too, as in a move onto a hard link of the same file, is no
    /// sign of a rename.
    fn is_second_name(
        &self,
        part: Option<&OpenFolder>,
        entry: &JournalEntry,
        (own, other): (Option<Mark>, Option<Mark>),
    ) -> Result<bool> {
        let Some((part, place)) = part.zip(self.place_of(entry)).filter(|_| self.resumed) else {
            return Ok(false);
        };
        let failed = |error| Error::io(part.path().join(&*entry.staged()), error);
        let inode = part.same_inode(&*entry.staged(), (place, entry.place().1)).map_err(failed)?;
        let [own, other] = [own, other].map(|mark| mark.and_then(|mark| mark.inode));
        let is_shared = own.is_some() && own == other;
        Ok(inode.is_some() && !is_shared && (!self.knows_inodes || inode == own))
    }

    /// Deletes second names in the staging folder of files that are in place: each such rename is
    /// done then, or undone.
    pub(in crate::files::recovery) fn delete_second_names(&self) -> Result<()> {
        for entry in &self.files {
            let (new, old) = (entry.new, entry.old);
            for (part, marks) in [(&self.new, (new, old)), (&self.old, (old, new))] {
                let Some(part) = part else { continue };
                if self.is_second_name(Some(part), entry, marks)? {
                    let failed = |error| Error::io(part.path().join(&*entry.staged()), error);
                    part.delete(&*entry.staged()).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    /// Which file is in place: the one that has to be there, as is told from whether the new one is
    /// `staged` and the old one `saved`, or one that the switch does not know.
    fn position(
        &self,
        entry: &JournalEntry,
        (mark, kind): (Mark, FileKind),
        (staged, saved): (bool, bool),
    ) -> Result<Position> {
        let is = |own: &Mark| if self.knows_inodes { own.is(&mark) } else { own.is_like(&mark) };
        let is_new = kind == FileKind::File && entry.new.is_some_and(|new| is(&new));
        let is_old = kind.is_replaceable() && entry.old.is_some_and(|old| is(&old));
        let must_be_new = match (staged, saved) {
            (true, true) => return Ok(Position::Other),
            (true, false) => false,
            (false, true) => true,
            (false, false) if self.is_model(entry) && self.replaces_model() => {
                let is_like_new = entry.new.is_some_and(|new| new.is_like(&mark));
                let is_clearly_old = is_old && !is_like_new;
                !is_clearly_old && !self.has_staged_weights()?
            }
            (false, false) => entry.old.is_none(),
        };
        Ok(match must_be_new {
            true if is_new => Position::New,
            false if is_old => Position::Old,
            _ => Position::Other,
        })
    }

    /// Whether some of the weights are not moved into place yet: the model is the last.
    fn has_staged_weights(&self) -> Result<bool> {
        let is_staged = |entry: &JournalEntry| Ok(self.staged_mark(entry)?.is_some());
        let staged: Result<Vec<bool>> = self.weights().iter().map(is_staged).collect();
        Ok(staged?.contains(&true))
    }

    pub(super) fn is_model(&self, entry: &JournalEntry) -> bool {
        self.model().is_some_and(|model| model.name == entry.name)
    }
}
