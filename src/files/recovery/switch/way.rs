//! What can be done with a switch now: where each of its files is, by the table in `switch`.

use crate::error::Result;
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
        let [staged, saved] = [&self.new, &self.old].map(|part| self.moved(part.as_ref(), entry));
        let (staged, saved) = (staged?, saved?);
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

    /// The mark of the file of `entry` in a folder of the staging folder, where it is not in place
    /// too.
    fn moved(
        &self,
        part: Option<&OpenFolder>,
        entry: &JournalEntry,
    ) -> Result<Option<(Mark, FileKind)>> {
        match self.is_in_place_too(part, entry)? {
            true => Ok(None),
            false => self.mark(part, &entry.staged()),
        }
    }

    /// Whether the file of `entry` in a folder of the staging folder is in place too: a power
    /// failure left both names of a rename.
    fn is_in_place_too(&self, part: Option<&OpenFolder>, entry: &JournalEntry) -> Result<bool> {
        let Some((part, place)) = part.zip(self.place_of(entry)).filter(|_| self.resumed) else {
            return Ok(false);
        };
        part.is_same_file(&entry.staged(), (place, entry.place().1))
            .map_err(|error| self.error(entry, error))
    }

    /// Takes files that are in place out of the staging folder: each rename of which a power
    /// failure left both names is done then, or was not begun.
    pub(in crate::files::recovery) fn drop_second_names(&self) -> Result<()> {
        for entry in &self.files {
            for part in [&self.new, &self.old].into_iter().flatten() {
                if self.is_in_place_too(Some(part), entry)? {
                    part.delete(&*entry.staged()).map_err(|error| self.error(entry, error))?;
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
            (false, false) if self.replaces_model() && self.is_model(entry) => {
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
        let is_staged = |entry: &JournalEntry| Ok(self.moved(self.new.as_ref(), entry)?.is_some());
        let staged: Result<Vec<bool>> = self.weights().iter().map(is_staged).collect();
        Ok(staged?.contains(&true))
    }

    pub(super) fn is_model(&self, entry: &JournalEntry) -> bool {
        self.model().is_some_and(|model| model.name == entry.name)
    }
}
