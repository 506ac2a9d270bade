//! Files that are written beside their targets and then renamed, so that a killed program leaves no
//! half of one under the name of a whole; and what killed ones left.
//!
//! Each process locks one empty file per folder; its other temporary files share that file's prefix
//! and need not be open. If nobody holds the lock, the process is gone and its files are stale.
//! Without locks of the file system no file is known to be stale.
//!
//! A file of the user may begin as these do, such as `.writing-drafts`. So the random part of a
//! name ends in letters that follow from the others, which no name does by chance, and what is not
//! empty is no holder.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use onnx_container::{Error, Result};
use tempfile::{Builder, NamedTempFile, TempPath};

/// What the names begin with. Those of signatures begin otherwise.
const PREFIX: &str = ".writing-";

/// How many characters follow, and again after a further `-`: random ones, and as many that follow
/// from these.
const RANDOM: usize = 6;
/// What they are.
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// How many names are tried before something else is wrong.
const MOST_NAMES: usize = 1000;

/// A file that is written and not yet renamed; dropping it removes it. It may be closed: there may
/// be more of them than a process may have open.
#[derive(Debug)]
pub struct Unfinished {
    file: TempPath,
    /// Dropped after the file.
    holder: Arc<Holder>,
}

/// The file that says that the process is there.
#[derive(Debug)]
struct Holder {
    folder: PathBuf,
    file: NamedTempFile,
}

/// The one that was made last.
static LAST: Mutex<Weak<Holder>> = Mutex::new(Weak::new());

impl Unfinished {
    /// A file in `folder` to write and then rename, with the mode that the umask gives, as any
    /// other new file.
    ///
    /// # Errors
    /// That nothing can be written in the folder.
    pub fn new(folder: &Path) -> Result<(File, Self)> {
        let holder = Holder::of(folder)?;
        let name = holder.file.path().file_name().unwrap_or_default().to_string_lossy();
        let (file, path) = temporary_called(&format!("{name}-"), folder)?.into_parts();
        Ok((file, Self { file: path, holder }))
    }

    /// Renames the file to `path`; with `no_clobber`, where nothing is there. It gets the mode of
    /// the file that it replaces.
    ///
    /// # Errors
    /// Those of the system. The file is removed.
    pub fn publish(self, path: &Path, no_clobber: bool) -> Result<()> {
        let Self { file, holder } = self;
        if let Some(old) = path.symlink_metadata().ok().filter(fs::Metadata::is_file) {
            fs::set_permissions(&file, old.permissions())
                .map_err(|error| Error::io(path, error))?;
        }
        let published = if no_clobber { file.persist_noclobber(path) } else { file.persist(path) };
        drop(holder);
        published.map_err(|error| Error::io(path, error.error))
    }
}

impl Holder {
    fn of(folder: &Path) -> Result<Arc<Self>> {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = last.upgrade().filter(|holder| holder.folder == folder) {
            return Ok(holder);
        }
        let holder = Self { folder: folder.to_path_buf(), file: locked(PREFIX, folder)? };
        let holder = Arc::new(holder);
        *last = Arc::downgrade(&holder);
        Ok(holder)
    }
}

/// A new file in `folder` that is locked, where the file system can. Its name is `prefix` and an
/// end of letters that follow from each other.
///
/// # Errors
/// That nothing can be written in the folder.
pub fn locked(prefix: &str, folder: &Path) -> Result<NamedTempFile> {
    loop {
        let file = temporary_called(prefix, folder)?;
        let is_held = matches!(file.as_file().try_lock(), Err(TryLockError::WouldBlock));
        // Before it was locked, another process may have taken it for one that was left.
        if !is_held && file.path().exists() {
            return Ok(file);
        }
    }
}

fn temporary_called(prefix: &str, folder: &Path) -> Result<NamedTempFile> {
    for _ in 0..MOST_NAMES {
        let name = format!("{prefix}{}", made(random()));
        let mut builder = Builder::new();
        builder.prefix(&name).rand_bytes(0);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        match builder.tempfile_in(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return file.map_err(|error| cannot_write(folder, error)),
        }
    }
    Err(cannot_write(folder, io::ErrorKind::AlreadyExists.into()))
}

/// A number that is another each time.
fn random() -> u64 {
    // Each state has keys of its own.
    RandomState::new().hash_one(std::process::id())
}

/// The end of a name: letters for the `number`, and letters that follow from these.
fn made(number: u64) -> String {
    let own = letters(number);
    let check = letters(check_of(&own));
    own + &check
}

/// Half of the characters of a name.
fn letters(mut number: u64) -> String {
    let mut letter = || {
        let letter = usize::try_from(number % 62).ok().and_then(|letter| LETTERS.get(letter));
        number /= 62;
        letter.copied().map_or('0', char::from)
    };
    (0..RANDOM / 2).map(|_| letter()).collect()
}

/// FNV-1a of the letters, after a text of this program: the same in every version.
fn check_of(letters: &str) -> u64 {
    let bytes = b"onnx-container ".iter().copied().chain(letters.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash >> 20
}

/// Whether the end of a name was made here: `text` is what follows the prefix that [`locked`] was
/// given.
fn is_made(text: &str) -> bool {
    text.len() == RANDOM
        && text
            .split_at_checked(RANDOM / 2)
            .is_some_and(|(own, check)| letters(check_of(own)) == check)
}

/// The error when no file can be created in `folder`. The system's own error names a temporary
/// file.
fn cannot_write(folder: &Path, error: io::Error) -> Error {
    let reason = format!("cannot write in this folder: {}", io::Error::from(error.kind()));
    Error::new(Error::io(folder, error).kind(), reason).with_path(folder)
}

/// The name of the holder of a file called `name`, if it is one of these files, or the holder
/// itself.
fn holder_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(PREFIX)?;
    let (holder, own) = rest.split_once('-').map_or((rest, None), |(a, b)| (a, Some(b)));
    let is_ours = is_made(holder) && own.is_none_or(is_made);
    if is_ours { name.get(..PREFIX.len().saturating_add(RANDOM)) } else { None }
}

/// Whether a file called `name` may be one that is not finished.
pub fn is_unfinished(name: &str) -> bool {
    holder_of(name).is_some()
}

/// The files in `folder` that killed programs left, sorted: those whose holder nobody holds.
pub fn abandoned(folder: &Path) -> Vec<PathBuf> {
    let (files, _locks) = unheld(folder);
    files
}

/// The files in `folder` whose holder nobody holds, and the locks on these holders. One that is
/// gone was removed with the others, or is about to be.
fn unheld(folder: &Path) -> (Vec<PathBuf>, Vec<File>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| is_unfinished(name)).collect();
    names.sort();
    let (mut free, mut locks) = (HashSet::new(), Vec::new());
    for name in names.iter().filter(|name| holder_of(name) == Some(name)) {
        if let Ok(file) = File::open(folder.join(name))
            && file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
            && file.try_lock().is_ok()
        {
            free.insert(name.as_str());
            locks.push(file);
        }
    }
    let is_free = |name: &&String| holder_of(name).is_some_and(|holder| free.contains(holder));
    (names.iter().filter(is_free).map(|name| folder.join(name)).collect(), locks)
}

/// Removes the files in `folder` that killed programs left: how many, and an error for each that is
/// still there.
pub fn remove_abandoned(folder: &Path) -> (usize, Vec<Error>) {
    let (files, locks) = unheld(folder);
    let (mut count, mut errors) = (0, Vec::new());
    // A holder is sorted before what it holds, and goes last.
    for path in files.iter().rev() {
        match fs::remove_file(path) {
            Ok(()) => count += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => errors.push(Error::io(path, error)),
        }
    }
    drop(locks);
    (count, errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_made_here_are_known() {
        for number in [0, 1, 61, 62, 1234].into_iter().chain((0..100).map(|_| random() >> 1)) {
            let name = made(number);
            assert!(name.len() == RANDOM && is_made(&name), "{name}");
            assert!(is_unfinished(&format!(".writing-{name}")), "{name}");
            assert!(is_unfinished(&format!(".writing-{name}-{}", made(number + 1))), "{name}");
            let other = name.replacen(&name[..1], if name.starts_with('x') { "y" } else { "x" }, 1);
            assert!(!is_made(&other), "{other}");
        }
        // The same in every version, which removes what another one left.
        assert_eq!([made(0), made(12345)], MADE.map(str::to_owned));
    }

    const MADE: [&str; 2] = ["000rJB", "7D3VFD"];

    #[test]
    fn names_of_users_are_not_taken_for_ours() {
        let words =
            ["backup", "config", "drafts", "policy", "secret", "second", "aB3xYz", "000000"];
        for word in
            words.into_iter().chain(["", "x", "draft", "drafts2", "a-b", "\u{e9}\u{e9}\u{e9}"])
        {
            assert!(!is_made(word), "{word}");
            assert!(!is_unfinished(&format!(".writing-{word}")), "{word}");
            let held = format!(".writing-{}-{word}", made(7));
            assert!(!is_unfinished(&held), "{held}");
        }
    }
}
