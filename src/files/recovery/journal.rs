//! The journal of a switch: which files a save is about to put in the place of which.
//!
//! It is written into the staging folder and renamed to its place beside the model, so it is there
//! whole or not at all. Its name follows from the model's, so a reader needs one look to know that
//! there is none. The content is text, fields ended by NUL, which no file name contains:
//! `docs/safety.md`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::buffer::MmapChoice;
use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::names::{
    is_journal_name, is_staging_name, is_staging_of, journal_name, staged_name,
};
use crate::util::retry::retried;

/// The first field.
const HEADER: &str = "onnx-container switch 2";
/// The first field of journals that name no inodes, which were written before.
const HEADER_1: &str = "onnx-container switch 1";
/// Its name in the staging folder, before it is beside the model.
pub(super) const IN_STAGING: &str = "journal";
/// The last field.
const END: &str = "end";
/// The most files of a switch. Each takes memory and several system calls, and a journal may have
/// come with a download.
const MOST_FILES: usize = 100_000;
/// The longest journal, in bytes: of so many files with long names.
const LONGEST: u64 = 32 << 20;
/// How many journals or folders are looked at for a message.
const FEW: usize = 4;
/// The longest name of a file in bytes. On Linux the system allows 255, elsewhere 255 characters.
const LONGEST_NAME: usize = 1024;

/// What tells a file from one that a stranger put in its place: its length in bytes, when it was
/// written, and its inode.
///
/// It does not tell the old file from the new one: these may have one length, and one time where
/// the clock of the file system is coarse. Where they are does that; see `switch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) len: u64,
    /// Nanoseconds since 1970.
    pub(super) modified: i128,
    /// `None` where the system has none, and in journals that do not say it.
    pub(super) inode: Option<u64>,
}

/// What is in the place of a file. A journal does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    /// A regular file, which what a save writes is.
    File,
    /// A symbolic link, which a save may replace.
    Link,
    /// A folder, a pipe, a device: no save writes or replaces one.
    Other,
}

impl FileKind {
    /// Whether a save may replace it.
    pub(super) fn is_replaceable(self) -> bool {
        self != Self::Other
    }
}

impl Mark {
    #[cfg(not(unix))]
    pub(super) fn new(metadata: &Metadata) -> Self {
        use std::time::UNIX_EPOCH;
        let nanos = |time: std::time::SystemTime| match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
            Err(before) => {
                i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |nanos| -nanos)
            }
        };
        let modified = metadata.modified().map_or(0, nanos);
        Self { len: metadata.len(), modified, inode: None }
    }

    /// Whether a file has the length and the time of this mark.
    pub(super) fn is_like(&self, file: &Self) -> bool {
        (self.len, self.modified) == (file.len, file.modified)
    }

    /// As [`is_like`](Self::is_like), and not another inode, where both are known.
    pub(super) fn is(&self, file: &Self) -> bool {
        let inodes = self.inode.zip(file.inode);
        self.is_like(file) && inodes.is_none_or(|(own, other)| own == other)
    }

    fn parse(text: &str, has_inodes: bool) -> Option<Self> {
        let mut numbers = text.split(' ');
        let (len, modified) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        let inode = numbers.next().map(str::parse).transpose().ok()?;
        let is_whole = numbers.next().is_none() && (has_inodes || inode.is_none());
        is_whole.then_some(Self { len, modified, inode })
    }

    fn text(self) -> String {
        let inode = self.inode.map(|inode| format!(" {inode}")).unwrap_or_default();
        format!("{} {}{inode}", self.len, self.modified)
    }
}

/// A file that the switch puts in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JournalEntry {
    /// The path from the model's folder, with `/` between its parts; of most files, the name.
    pub(super) name: String,
    /// The new file; `None` where the old one is removed and nothing takes its place.
    pub(super) new: Option<Mark>,
    /// The file that it replaces.
    pub(super) old: Option<Mark>,
}

impl JournalEntry {
    /// The folder below the model's that the file is in, if it is not beside the model; and its
    /// name there.
    pub(super) fn place(&self) -> (Option<&str>, &str) {
        match self.name.rsplit_once('/') {
            Some((folder, name)) => (Some(folder), name),
            None => (None, &self.name),
        }
    }

    /// Its name in the staging folder.
    pub(super) fn staged(&self) -> Cow<'_, str> {
        staged_name(&self.name)
    }
}

/// What a switch is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal {
    /// The name of the staging folder, which is beside the model.
    pub(super) staging: String,
    /// Its inode. Where it is another one now, as on a file system that numbers files anew when it
    /// is mounted, or in a copy of the folder, the inodes of the files say nothing.
    pub(super) inode: Option<u64>,
    /// The files, the model last; of several models, the main one.
    pub(super) files: Vec<JournalEntry>,
}

/// A journal with the name of its model, or why it cannot be read.
type Named = Result<(String, Journal)>;

impl Journal {
    /// The journal of saves of the model in `directory`; `None` where there is none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] for what is not a journal, [`ErrorKind::UnsafePath`] for one
    /// that somebody else may have put there.
    pub(super) fn read(directory: &Path, model_name: &str) -> Result<Option<Self>> {
        let name = journal_name(model_name);
        match Self::named(directory, &name, invalid)? {
            Some((_, journal)) if !journal.has(model_name) => Err(invalid(directory, &name)),
            journal => Ok(journal.map(|(_, journal)| journal)),
        }
    }

    /// Whether there may be a journal: one look that needs no lock.
    pub(super) fn may_be_there(directory: &Path, model_name: &str) -> bool {
        match retried(|| directory.join(journal_name(model_name)).symlink_metadata()) {
            Ok(_) => true,
            Err(error) => !is_not_there(&error),
        }
    }

    /// The names in `directory` that may be those of journals, sorted. A folder that may not be
    /// listed has none that could be followed.
    pub(super) fn names(directory: &Path) -> Result<Vec<String>> {
        let entries = match retried(|| std::fs::read_dir(directory)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Vec::new()),
            entries => entries.map_err(|error| Error::io(directory, error))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| is_journal_name(name)).collect();
        names.sort();
        Ok(names)
    }

    /// The journals in `directory` by the names of their files, with the names of their models; an
    /// error for each that cannot be read, as [`read`](Self::read) has them.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub(super) fn all(directory: &Path) -> Result<impl Iterator<Item = (String, Named)>> {
        let names = Self::names(directory)?;
        // The folder is looked through for none of very many.
        let is_few = names.len() <= FEW;
        // One at a time: an archive may have many.
        let read = move |name: String| {
            let invalid = if is_few { invalid } else { invalid_one_of_many };
            let journal = Self::named(directory, &name, invalid).transpose()?;
            Some((name, journal))
        };
        Ok(names.into_iter().filter_map(read))
    }

    /// Whether the switch puts a file of this name in place.
    fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.name == name)
    }

    /// The models other than the last that have a journal of this switch in `directory`: one that
    /// replaces several models has one beside each of them.
    pub(super) fn other_models(&self, directory: &Path) -> Result<Vec<String>> {
        let Some((_, others)) = self.files.split_last() else { return Ok(Vec::new()) };
        let there: HashSet<_> = Self::names(directory)?.into_iter().collect();
        let mut models = Vec::new();
        for entry in others.iter().filter(|entry| there.contains(&journal_name(&entry.name))) {
            let journal = Self::named(directory, &journal_name(&entry.name), invalid_one_of_many);
            if journal.is_ok_and(|it| it.is_some_and(|(_, of)| of.staging == self.staging)) {
                models.push(entry.name.clone());
            }
        }
        Ok(models)
    }

    /// The journal in the file `name`, or the error `invalid`. The model is the last file.
    fn named(
        directory: &Path,
        name: &str,
        invalid: fn(&Path, &str) -> Error,
    ) -> Result<Option<(String, Self)>> {
        let path = directory.join(name);
        let Some(text) = read_owned(&path, directory)? else { return Ok(None) };
        let journal = Self::parse(&text).and_then(|journal| {
            let model = journal.files.last()?.name.clone();
            let is_of_one = journal.files.iter().any(|file| journal_name(&file.name) == name);
            let is_its = is_of_one && is_staging_name(&journal.staging, &model);
            is_its.then_some((model, journal))
        });
        journal.map(Some).ok_or_else(|| invalid(directory, name))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.strip_suffix('\0')?.split('\0');
        let has_inodes = match fields.next()? {
            HEADER => true,
            HEADER_1 => false,
            _ => return None,
        };
        let staging = fields.next()?.to_owned();
        let inode = match has_inodes.then(|| fields.next()).flatten() {
            None | Some("") => None,
            Some(inode) => Some(inode.parse().ok()?),
        };
        let (mut files, mut names) = (Vec::new(), HashSet::new());
        loop {
            let name = match (fields.next()?, fields.next()) {
                (END, None) => return Some(Self { staging, inode, files }),
                (kind, Some(name)) if kind == "file" && is_beneath(name) => name,
                _ => return None,
            };
            if files.len() == MOST_FILES || !names.insert(staged_name(name)) {
                return None;
            }
            let mut mark = || match fields.next()? {
                "" => Some(None),
                mark => Mark::parse(mark, has_inodes).map(Some),
            };
            let (new, old) = (mark()?, mark()?);
            // One of both there is.
            new.or(old)?;
            files.push(JournalEntry { name: name.to_owned(), new, old });
        }
    }

    fn text(&self) -> String {
        let inode = self.inode.map(|inode| inode.to_string()).unwrap_or_default();
        let mut text = format!("{HEADER}\0{}\0{inode}\0", self.staging);
        for JournalEntry { name, new, old } in &self.files {
            let [new, old] = [new, old].map(|mark| mark.map(Mark::text).unwrap_or_default());
            text.push_str(&format!("file\0{name}\0{new}\0{old}\0"));
        }
        text.push_str(END);
        text.push('\0');
        text
    }

    /// Writes the journal into the folder `staging`, on the disk if `sync`; returns the path.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for one that would not be read.
    pub(super) fn write(&self, staging: &Path, sync: bool) -> io::Result<PathBuf> {
        let (path, text) = (staging.join(IN_STAGING), self.text());
        if self.files.len() > MOST_FILES || text.len() as u64 > LONGEST {
            let reason = format!(
                "{} files are too many for one save: at most {MOST_FILES}, fewer with long names",
                self.files.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let mut file = fs::File::create_new(&path)?;
        file.write_all(text.as_bytes())?;
        if sync {
            file.sync_all()?;
        }
        Ok(path)
    }
}

/// The error for what is in the place of the journal `name`: where the files of its save are, as
/// far as that is seen.
fn invalid(directory: &Path, name: &str) -> Error {
    let staged = staged_beside(directory, name);
    if staged.is_empty() {
        return invalid_one_of_many(directory, name);
    }
    let reason = format!(
        "{NO_JOURNAL}: new and old files of a save are in {}; move those into place that you want, and delete that folder \
         and this file",
        staged.join(", ")
    );
    Error::new(ErrorKind::InvalidModel, reason).with_path(directory.join(name))
}

/// As [`invalid`], without a look at the folder.
fn invalid_one_of_many(directory: &Path, name: &str) -> Error {
    let reason = format!("{NO_JOURNAL}: if the model beside it is whole, delete this file");
    Error::new(ErrorKind::InvalidModel, reason).with_path(directory.join(name))
}

const NO_JOURNAL: &str = "not the journal of a save, or a damaged one";

/// The folders with files that saves of the model of the journal `journal` staged or moved away, a
/// few of them, as text.
fn staged_beside(directory: &Path, journal: &str) -> Vec<String> {
    let entries = retried(|| std::fs::read_dir(directory)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| is_staging_of(name, journal)).take(FEW).collect();
    names.sort();
    let parts =
        names.iter().flat_map(|name| ["new", "old"].map(|part| directory.join(name).join(part)));
    let has_files = |part: &PathBuf| {
        retried(|| std::fs::read_dir(part)).is_ok_and(|mut entries| entries.next().is_some())
    };
    parts.filter(has_files).map(|part| format!("`{}`", part.display())).collect()
}

/// Whether `name` is the name of a file, or a path to one in a folder below.
fn is_beneath(name: &str) -> bool {
    let is_name = |part: &str| {
        let mut parts = Path::new(part).components();
        matches!(parts.next(), Some(std::path::Component::Normal(only)) if only == part)
            && parts.next().is_none()
    };
    name.len() <= LONGEST_NAME && name.split('/').all(is_name)
}

/// The text of the regular file at `path`, not a link, which must belong to a user who may replace
/// any file of `directory`.
fn read_owned(path: &Path, directory: &Path) -> Result<Option<String>> {
    match retried(|| path.symlink_metadata()) {
        Err(error) if is_not_there(&error) => return Ok(None),
        Err(error) => return Err(Error::io(path, error)),
        Ok(metadata) if !metadata.is_file() || !is_ours(&metadata, directory) => {
            let reason = "not the journal of a save of this user: it is not followed";
            return Err(Error::new(ErrorKind::UnsafePath, reason).with_path(path));
        }
        // Not read, so not a journal.
        Ok(metadata) if metadata.len() > LONGEST => return Ok(Some(String::new())),
        Ok(_) => {}
    }
    let file = match MmapChoice::open_regular(path) {
        Err(error) if error.kind() == ErrorKind::MissingFile => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    let read = file.take(LONGEST).read_to_string(&mut text);
    match read {
        Ok(_) => Ok(Some(text)),
        // Not text, so not a journal.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(String::new())),
        Err(error) => Err(Error::io(path, error)),
    }
}

/// Whether there is certainly no such file: a name may be too long for one.
fn is_not_there(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

/// Whether a file with this metadata in `directory` is not from a stranger: in a folder that all
/// users share, such as `/tmp`, everybody can make files, but only the owner of one may move it.
#[cfg(unix)]
fn is_ours(metadata: &Metadata, directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_sticky = retried(|| directory.metadata()).is_ok_and(|meta| meta.mode() & 0o1000 != 0);
    !is_sticky || metadata.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn is_ours(_: &Metadata, _: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        let mark = |len| Mark { len, modified: -5, inode: Some(len + 90) };
        let file = |name: &str, old| JournalEntry { name: name.into(), new: Some(mark(7)), old };
        let files = vec![file("m.onnx.data", Some(mark(3))), file("a\nb \u{e9}.onnx", None)];
        Journal { staging: ".m.onnx.saving-aB3xYz".into(), inode: Some(12), files }
    }

    fn without_inodes() -> Journal {
        let mut journal = journal();
        journal.inode = None;
        for entry in &mut journal.files {
            entry.new = entry.new.map(|new| Mark { inode: None, ..new });
            entry.old = entry.old.map(|old| Mark { inode: None, ..old });
        }
        journal
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let mut below = journal();
        if let Some(entry) = below.files.first_mut() {
            entry.name = "sub/folder/w".into();
        }
        let mut removing = journal();
        if let Some(entry) = removing.files.first_mut() {
            entry.new = None;
        }
        for journal in [journal(), without_inodes(), below, removing] {
            assert_eq!(Journal::parse(&journal.text()), Some(journal));
        }
    }

    #[test]
    fn journals_of_before_are_read() {
        let text = "onnx-container switch 1\0.m.onnx.saving-aB3xYz\0file\0m.onnx.data\x007 -5\x003 -5\0\
                    file\0a\nb \u{e9}.onnx\x007 -5\0\0end\0";
        assert_eq!(Journal::parse(text), Some(without_inodes()));
        // They have no inodes.
        assert_eq!(Journal::parse(&text.replace("7 -5", "7 -5 8")), None);
    }

    #[test]
    fn an_inode_tells_files_of_one_length_and_time_apart_where_both_are_known() {
        let mark = |len, modified, inode| Mark { len, modified, inode };
        let one = mark(7, 1, Some(5));
        for (other, like, same) in [
            (mark(7, 1, Some(5)), true, true),
            (mark(7, 1, Some(6)), true, false),
            (mark(7, 1, None), true, true),
            (mark(8, 1, Some(5)), false, false),
            (mark(7, 2, Some(5)), false, false),
        ] {
            assert_eq!((one.is_like(&other), one.is(&other)), (like, same), "{other:?}");
            assert_eq!((other.is_like(&one), other.is(&one)), (like, same), "{other:?}");
        }
    }

    #[test]
    fn a_journal_that_is_cut_off_or_changed_is_none() {
        let text = journal().text();
        for (end, _) in text.char_indices() {
            assert_eq!(Journal::parse(&text[..end]), None, "{end}");
        }
        let long = "n".repeat(LONGEST_NAME + 1);
        for (from, to) in [
            ("switch 2", "switch 3"),
            ("m.onnx.data", "../m.onnx.data"),
            ("m.onnx.data", "/etc/passwd"),
            ("m.onnx.data", ".."),
            ("m.onnx.data", ""),
            ("m.onnx.data", "m.onnx.data/"),
            ("m.onnx.data", "sub//m.onnx.data"),
            ("m.onnx.data", "sub/../m.onnx.data"),
            ("m.onnx.data", "./m.onnx.data"),
            ("m.onnx.data", &*long),
            ("\x0012\0", "\0x\0"),
            ("7 -5 97", "7"),
            ("7 -5 97", "-7 5 97"),
            ("7 -5 97", "7 -5 x"),
            ("7 -5 97", "7 -5 97 1"),
            ("3 -5 93", "x"),
            ("7 -5 97\x003 -5 93", "\0"),
            ("end\0", "end\0end\0"),
        ] {
            assert!(text.contains(from), "{from}");
            assert_eq!(Journal::parse(&text.replacen(from, to, 1)), None, "{to}");
        }
    }

    #[test]
    fn a_journal_of_too_many_files_is_neither_written_nor_read() {
        let folder = tempfile::tempdir().unwrap();
        let mark = Mark { len: 7, modified: 0, inode: None };
        let entry = |number| JournalEntry { name: format!("{number}"), new: Some(mark), old: None };
        let mut journal = journal();
        journal.files = (0..MOST_FILES).map(entry).collect();
        assert_eq!(Journal::parse(&journal.text()).unwrap().files.len(), MOST_FILES);
        journal.write(folder.path(), false).unwrap();
        journal.files.push(entry(MOST_FILES));
        assert_eq!(Journal::parse(&journal.text()), None);
        let other = tempfile::tempdir().unwrap();
        let error = journal.write(other.path(), false).unwrap_err();
        assert!(error.to_string().contains("100001 files"), "{error}");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
        // What is longer than any journal is not even read.
        let path = folder.path().join(".m.onnx.switching");
        fs::File::create(&path).unwrap().set_len(LONGEST + 1).unwrap();
        assert_eq!(read_owned(&path, folder.path()).unwrap(), Some(String::new()));
    }
}
