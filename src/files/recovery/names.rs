//! The names beside a model that its saves use: staging folders, the journal of a switch, and locks
//! where these are files.

use std::borrow::Cow;
#[cfg(any(windows, test))]
use std::path::{Path, PathBuf};

/// The number of random characters at the end of the name of a staging folder.
pub(super) const RANDOM: usize = 6;
/// The most characters of a model's name that these names contain.
const SHORT: usize = 48;

/// The name of the journal of saves of the model. There is one at a time, so a reader looks for one
/// name.
pub(crate) fn journal_name(model_name: &str) -> String {
    format!(".{}.switching", short(model_name))
}

/// Whether `name` may be the name of a journal, of whatever model.
pub(super) fn is_journal_name(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".switching")
}

/// The prefix of the names of a model's staging folders.
pub(crate) fn staging_prefix(model_name: &str) -> String {
    format!(".{}.saving-", short(model_name))
}

/// Whether `name` is the name of a staging folder of the model.
pub(super) fn is_staging_name(name: &str, model_name: &str) -> bool {
    name.strip_prefix(&staging_prefix(model_name)).is_some_and(is_random)
}

/// Whether `name` is the name of a staging folder of the model that the journal `journal` is of.
pub(super) fn is_staging_of(name: &str, journal: &str) -> bool {
    let random = journal
        .strip_suffix("switching")
        .and_then(|stem| name.strip_prefix(stem)?.strip_prefix("saving-"));
    random.is_some_and(is_random)
}

/// Whether `name` may be the name of a staging folder, of whatever model.
pub(super) fn may_be_staging_name(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|name| name.rsplit_once(".saving-"));
    parts.is_some_and(|(_, random)| is_random(random))
}

/// The name of the file in a folder that is open while the folder is locked, on Windows.
const LOCK: &str = ".onnx-container.lock";
/// What follows the name of a staging folder in that of its lock, which is beside it.
const LOCK_SUFFIX: &str = ".lock";

/// The file that is open while `folder` is locked, on Windows.
#[cfg(any(windows, test))]
pub(super) fn lock_path(folder: &Path) -> PathBuf {
    let name = folder.file_name().and_then(|name| name.to_str());
    match name.filter(|name| may_be_staging_name(name)) {
        Some(name) => folder.with_file_name(format!("{name}{LOCK_SUFFIX}")),
        None => folder.join(LOCK),
    }
}

/// Whether a file that is called `name` may be the lock of a folder: another program may have it
/// open, so that nobody can read it. The system deletes it.
pub(crate) fn is_lock_name(name: &str) -> bool {
    name == LOCK || name.strip_suffix(LOCK_SUFFIX).is_some_and(may_be_staging_name)
}

/// The name of the folder of the job `id` of a model. No save and no recovery removes it: a job has
/// no process.
#[cfg(feature = "jobs")]
pub(crate) fn job_name(model_name: &str, id: &str) -> String {
    format!(".{}.job-{id}", short(model_name))
}

/// The name that the folder of a job which is called `name` has from its end on, while it is
/// removed; `None` where `name` is that of no job.
#[cfg(feature = "jobs")]
pub(crate) fn ended_job_name(name: &str) -> Option<String> {
    let (model, id) = name.rsplit_once(".job-").filter(|_| is_of_job(name))?;
    Some(format!("{model}.ended-{id}"))
}

/// Whether `id` may be that of a job.
#[cfg(feature = "jobs")]
pub(crate) fn is_job_id(id: &str) -> bool {
    is_random(id)
}

/// Whether a folder beside models that is called `name` may be that of a
/// job (`Job`), which somebody may go on with.
///
/// ```
/// use onnx_container::recovery::is_of_job;
///
/// assert!(is_of_job(".m.onnx.job-aB3xYz") && !is_of_job("m.onnx"));
/// ```
pub fn is_of_job(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|name| name.rsplit_once(".job-"));
    parts.is_some_and(|(_, random)| is_random(random))
}

/// Whether a folder beside models that is called `name` may be that of a job that has ended and was
/// not removed to its end.
pub(crate) fn is_of_ended_job(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|name| name.rsplit_once(".ended-"));
    parts.is_some_and(|(_, random)| is_random(random))
}

/// Whether a file or folder beside models that is called `name` is one that a save makes and
/// removes again: its staging folder, the journal of a switch, or on Windows a lock. Where no save
/// is running, one that was interrupted left it, and [`recover`](crate::recovery::recover)
/// completes that save or removes what it left. So it is with the folder of a job that has ended.
/// That of a job that goes on is told by [`is_of_job`].
///
/// ```
/// use onnx_container::recovery::is_left_by_saves;
///
/// assert!(is_left_by_saves(".m.onnx.saving-aB3xYz") && is_left_by_saves(".m.onnx.switching"));
/// assert!(!is_left_by_saves("m.onnx"));
/// ```
pub fn is_left_by_saves(name: &str) -> bool {
    may_be_staging_name(name)
        || is_journal_name(name)
        || is_lock_name(name)
        || is_of_ended_job(name)
}

/// The name that the file `name` has in the folders of a staging folder, which have no folders: of
/// one in a folder below the model's, the path in one piece.
pub(crate) fn staged_name(name: &str) -> Cow<'_, str> {
    if name.contains('/') { name.replace('/', "%2F").into() } else { name.into() }
}

fn is_random(text: &str) -> bool {
    text.len() == RANDOM && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The model's name in names that are derived from it. A long one is cut and a hash of it appended,
/// so that models whose names begin alike do not share them.
fn short(model_name: &str) -> String {
    let short: String = model_name.chars().take(SHORT).collect();
    if short.len() == model_name.len() {
        return short;
    }
    // FNV-1a: the same in every version of this crate.
    let hash = model_name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{short}.{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_knows_its_own_staging_folders() {
        let long = format!("{}.onnx", "n".repeat(60));
        let other = format!("{}.onnx", "n".repeat(61));
        for (name, model_name, own) in [
            (".m.onnx.saving-aB3xYz".to_owned(), "m.onnx", true),
            (".m.onnx.saving-aB3xYz-kept".to_owned(), "m.onnx", false),
            (".m.onnx.saving-".to_owned(), "m.onnx", false),
            (".m.onnx.saving-x.saving-aB3xYz".to_owned(), "m.onnx", false),
            (".m.onnx.saving-x.saving-aB3xYz".to_owned(), "m.onnx.saving-x", true),
            (".n.onnx.saving-aB3xYz".to_owned(), "m.onnx", false),
            (format!("{}aB3xYz", staging_prefix(&long)), long.as_str(), true),
            (format!("{}aB3xYz", staging_prefix(&long)), other.as_str(), false),
        ] {
            assert_eq!(is_staging_name(&name, model_name), own, "{name} of {model_name}");
            assert!(!own || may_be_staging_name(&name), "{name}");
        }
        assert!(!may_be_staging_name(".m.onnx.saving-") && !may_be_staging_name("m.saving-aB3xYz"));
    }

    #[test]
    fn a_lock_is_in_its_folder_or_beside_one_that_has_to_be_empty() {
        for (folder, lock) in [
            ("models", "models/.onnx-container.lock"),
            ("a/.m.onnx.saving-aB3xYz", "a/.m.onnx.saving-aB3xYz.lock"),
            ("a/.m.onnx.saving-drafts", "a/.m.onnx.saving-drafts.lock"),
            ("a/.m.onnx.saving-my-drafts", "a/.m.onnx.saving-my-drafts/.onnx-container.lock"),
        ] {
            let path = lock_path(Path::new(folder));
            assert_eq!(path, Path::new(lock));
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(is_lock_name(name) && is_left_by_saves(name), "{name}");
            assert!(!may_be_staging_name(name) && !is_journal_name(name), "{name}");
        }
        for name in ["m.onnx.lock", ".m.onnx.lock", ".m.onnx.saving-aB3xYz"] {
            assert!(!is_lock_name(name), "{name}");
        }
    }

    #[cfg(feature = "jobs")]
    #[test]
    fn folders_of_jobs_are_none_of_saves() {
        for (name, of_job, ended) in [
            (job_name("m.onnx", "aB3xYz"), true, false),
            (ended_job_name(".m.onnx.job-aB3xYz").unwrap(), false, true),
            (ended_job_name(&job_name(&"n".repeat(90), "aB3xYz")).unwrap(), false, true),
            (".m.onnx.saving-aB3xYz".to_owned(), false, false),
            (".m.onnx.job-aB3xY".to_owned(), false, false),
            ("m.onnx.job-aB3xYz".to_owned(), false, false),
        ] {
            assert_eq!((is_of_job(&name), is_of_ended_job(&name)), (of_job, ended), "{name}");
            assert!(!may_be_staging_name(&name) || name.contains("saving"), "{name}");
            assert_eq!(ended_job_name(&name).is_some(), of_job, "{name}");
        }
    }

    #[test]
    fn names_of_long_models_are_short_enough_and_differ() {
        let (long, other) = ("é".repeat(127), format!("{}a", "é".repeat(126)));
        assert!(staging_prefix(&long).len() + RANDOM <= 255 && journal_name(&long).len() <= 255);
        assert_ne!(journal_name(&long), journal_name(&other));
        assert!(is_journal_name(&journal_name(&long)) && is_journal_name(&journal_name("m.onnx")));
        // A later version has to find what this one left behind.
        let letters = "n".repeat(SHORT);
        assert_eq!(short(&letters), letters);
        assert_eq!(short(&format!("{letters}o")), format!("{letters}.f9a3e749e006527e"));
    }
}
