//! Where the files of a switch are found, and whether it is done.

use crate::files::recovery::journal::JournalEntry;

/// Which file has the name of one that the switch puts in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    Free,
    Old,
    New,
    /// One that the switch does not know.
    Other,
}

/// Where the files of an entry are.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundFiles {
    pub(super) position: Position,
    /// Whether a file or a link that has the length of the new file is in place.
    pub(super) has_length: bool,
    /// Whether the new file is still in the staging folder, and has its length.
    pub(super) staged: bool,
    /// Whether something is in the staging folder in place of the new file.
    pub(super) damaged: bool,
    /// Whether the old file was moved to the staging folder.
    pub(super) saved: bool,
    /// Whether what no save makes is in one of the three places: it is neither moved nor removed.
    pub(super) foreign: bool,
}

/// Whether nothing is left to do: all files in place are of one save and no new one is left to be
/// moved there, or all is as it was before, or nothing is left to do it with. Of a switch that
/// `replaces_model` the old model may be in place.
pub(super) fn is_done(all: &[(&JournalEntry, FoundFiles)], replaces_model: bool) -> bool {
    let is_old = all.last().is_some_and(|(_, model)| model.position == Position::Old);
    // A file that is removed was moved away before the new model was moved into place, or stays:
    // beside the old model it is needed.
    let is_in_place = |(entry, found): &(&JournalEntry, FoundFiles)| match entry.new {
        None => !found.saved || !is_old,
        Some(_) => found.has_length && !found.staged && !found.damaged,
    };
    if all.iter().all(is_in_place) && !(replaces_model && is_old) {
        return true;
    }
    let is_left = |(_, found): &(_, FoundFiles)| found.staged || found.damaged || found.saved;
    let is_untouched = |(entry, found): &(&JournalEntry, FoundFiles)| match found.position {
        Position::Old => true,
        Position::Free => entry.old.is_none(),
        Position::New | Position::Other => false,
    };
    let has_model = all.last().is_some_and(|(_, model)| model.position != Position::Free);
    !all.iter().any(is_left) && (has_model || all.iter().all(is_untouched))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::recovery::journal::Mark;

    /// A file at `position`, and nothing in the staging folder.
    fn found(position: Position) -> FoundFiles {
        FoundFiles {
            position,
            has_length: position == Position::New,
            staged: false,
            damaged: false,
            saved: false,
            foreign: false,
        }
    }

    #[test]
    fn nothing_is_left_to_do_where_all_is_new_or_as_it_was() {
        use Position::{Free, New, Old, Other};
        let mark = Mark { len: 1, modified: 0, inode: None };
        let (had, had_none) = (Some(mark), None);
        // What the data file and the model were, and where they are.
        let cases = [
            ([had, had], [New, New], true),
            ([had, had], [Old, Old], true),
            ([had, had], [New, Old], true),
            ([had, had], [Other, Other], true),
            ([had, had], [Old, Free], false),
            ([had, had_none], [Old, Free], true),
            ([had_none, had_none], [Free, Free], true),
            ([had_none, had_none], [New, Free], false),
            ([had, had_none], [Free, Free], false),
            ([had, had_none], [Other, Free], false),
        ];
        for (old, positions, done) in cases {
            let entries =
                old.map(|old| JournalEntry { name: "w".to_owned(), new: Some(mark), old });
            let at = |change: &dyn Fn(&mut FoundFiles)| {
                let mut data = found(positions[0]);
                change(&mut data);
                let all = [(&entries[0], data), (&entries[1], found(positions[1]))];
                is_done(&all, false)
            };
            assert_eq!(at(&|_| {}), done, "{old:?} {positions:?}");
            assert!(!at(&|data| data.staged = true), "{positions:?}, staged");
            assert!(!at(&|data| data.damaged = true), "{positions:?}, damaged");
            let all_new = positions == [New, New];
            assert_eq!(at(&|data| data.saved = true), all_new, "{positions:?}, saved");
        }
    }

    #[test]
    fn a_removed_file_that_is_saved_is_needed_beside_the_old_model() {
        let mark = Mark { len: 1, modified: 0, inode: None };
        let entry = |new| JournalEntry { name: "w".to_owned(), new, old: Some(mark) };
        let (removed, model) = (entry(None), entry(Some(mark)));
        for (saved, position, done) in [
            (true, Position::Old, false),
            (true, Position::New, true),
            (true, Position::Other, true),
            (false, Position::Old, true),
        ] {
            let place = if saved { Position::Free } else { Position::Old };
            let weights = FoundFiles { saved, has_length: false, ..found(place) };
            let of_model = FoundFiles { has_length: true, ..found(position) };
            let all = [(&removed, weights), (&model, of_model)];
            assert_eq!(is_done(&all, false), done, "{saved} {position:?}");
        }
    }

    #[test]
    fn a_switch_is_done_where_nothing_is_staged_and_every_name_is_taken_whatever_the_marks_say() {
        use Position::{New, Old, Other};
        let mark = Mark { len: 1, modified: 0, inode: None };
        let entry = JournalEntry { name: "w".to_owned(), new: Some(mark), old: Some(mark) };
        for position in [New, Old, Other] {
            for saved in [false, true] {
                let found = FoundFiles {
                    position,
                    has_length: true,
                    staged: false,
                    damaged: false,
                    saved,
                    foreign: false,
                };
                let new = FoundFiles { position: New, ..found };
                assert!(is_done(&[(&entry, found), (&entry, new)], false), "{found:?}");
                // The old model, which one rename would have replaced, has its own weights.
                let done = is_done(&[(&entry, new), (&entry, found)], true);
                assert_eq!(done, position != Old || !saved, "{found:?}");
                let longer = FoundFiles { has_length: false, saved: true, ..found };
                assert!(!is_done(&[(&entry, longer), (&entry, new)], false), "{longer:?}");
            }
        }
    }
}
