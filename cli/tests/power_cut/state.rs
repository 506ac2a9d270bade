//! Makes a state of a disk: a folder with its files, their bytes and times.
//!
//! A file gets another inode than it had. Recovery compares inodes with those of the journal, where
//! the staging folder has the journal's. So the inodes in journals are changed to those that the
//! files have now, as if they had kept their own; without that, the folder is what a copy of it is.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::disk::{Entry, State};
use crate::record::{Record, Time};

/// What files of a clock that stands still have as time.
const STOPPED: Time = (1 << 30, 0);

/// How a state is made.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// Whether the files have the inodes of the journal.
    pub keeps_inodes: bool,
    /// Whether all files have one time, as a coarse clock gives them.
    pub is_stopped: bool,
}

/// Makes the files of `state` in the empty folder `root`.
pub fn make(record: &Record, state: &State, root: &Path, how: How) {
    let mut made = HashMap::new();
    let mut inodes = HashMap::new();
    for Entry { path, id, file } in state {
        let at = root.join(&**path);
        match (file, made.get(id)) {
            (None, _) => fs::create_dir(&at).unwrap(),
            (Some(_), Some(first)) => fs::hard_link(first, &at).unwrap(),
            (Some((bytes, time)), None) => {
                fs::write(&at, record.bytes(*bytes)).unwrap();
                set_time(&at, if how.is_stopped { STOPPED } else { *time });
                made.insert(*id, at.clone());
            }
        }
        inodes.insert(record.inodes[*id], fs::metadata(&at).unwrap().ino());
    }
    for Entry { path, id, .. } in state.iter().filter(|entry| is_journal(&entry.path)) {
        let at = root.join(&**path);
        let text = record.bytes(state.iter().find(|e| e.id == *id).unwrap().file.unwrap().0);
        if let Some(text) =
            std::str::from_utf8(&text).ok().and_then(|t| translated(t, &inodes, how))
        {
            fs::write(&at, text).unwrap();
        }
    }
}

fn set_time(path: &Path, (seconds, nanos): Time) {
    let time = UNIX_EPOCH + Duration::new(seconds as u64, nanos as u32);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Whether a file is the journal, in its place or before.
pub fn is_journal(path: &str) -> bool {
    path.ends_with(".switching") || path.contains(".saving-") && path.ends_with("/journal")
}

/// A whole journal, of files that have other inodes and times.
fn translated(text: &str, inodes: &HashMap<u64, u64>, how: How) -> Option<String> {
    let fields: Vec<_> = text.strip_suffix("\0end\0")?.split('\0').collect();
    let [header, staging, folder, files @ ..] = fields.as_slice() else { return None };
    assert_eq!((*header, files.len() % 4), ("onnx-container switch 2", 0), "another journal");
    // One that is gone had a number that none has now.
    let inode = |inode: &str| match how.keeps_inodes {
        true => inodes.get(&inode.parse().unwrap()).copied().unwrap_or(u64::MAX).to_string(),
        false => inode.to_owned(),
    };
    let mark = |mark: &str| -> String {
        let parts: Vec<_> = mark.split(' ').collect();
        let [len, time, own] = parts.as_slice() else { return mark.to_owned() };
        let stopped = format!("{}000000000", STOPPED.0);
        let time = if how.is_stopped { &stopped } else { *time };
        format!("{len} {time} {}", inode(own))
    };
    let mut made = vec![(*header).to_owned(), (*staging).to_owned(), inode(folder)];
    for file in files.chunks(4) {
        made.extend([file[0].to_owned(), file[1].to_owned(), mark(file[2]), mark(file[3])]);
    }
    Some(made.join("\0") + "\0end\0")
}
