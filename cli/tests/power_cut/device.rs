//! A disk in memory that records its writes and flushes in their order.
//!
//! The disk is a file that FUSE serves, and a file system is mounted on it by a loop device. This
//! device has a volatile cache: a flush of it is an `fsync` of the file, and a write that has to be
//! on the disk is followed by one (drivers/block/loop.c of Linux). So the record is what
//! `dm-log-writes` has of a disk, and needs no device mapper.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyWrite, Request, TimeOrNow, WriteFlags, spawn_mount,
};
use tempfile::TempDir;

/// The length of a block in bytes, which the disk writes as a whole or not.
pub const BLOCK: usize = 4096;
const NAME: &str = "disk";
const INODE: INodeNo = INodeNo(2);
/// How many times something is tried that is in use.
const MOST_TRIES: usize = 500;
/// How long the kernel may keep what it was told of the file.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

/// What is on a disk: the blocks that have another byte than zero. Clones share them.
#[derive(Clone)]
pub struct Content {
    len: u64,
    blocks: HashMap<u64, Arc<[u8; BLOCK]>>,
}

impl Content {
    /// That of an image, whose length is a multiple of that of a block.
    pub fn of_image(image: &Path) -> Self {
        let bytes = fs::read(image).unwrap();
        let (blocks, rest) = bytes.as_chunks();
        assert!(rest.is_empty());
        let blocks = (0..).zip(blocks).filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        let blocks = blocks.map(|(number, block)| (number, Arc::new(*block))).collect();
        Self { len: bytes.len() as u64, blocks }
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = len.min((self.len - offset.min(self.len)) as usize);
        let mut bytes = vec![0; len];
        for (number, from, range) in pieces(offset, len) {
            if let Some(block) = self.blocks.get(&number) {
                let piece = &mut bytes[range];
                piece.copy_from_slice(&block[from..][..piece.len()]);
            }
        }
        bytes
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, from, range) in pieces(offset, bytes.len()) {
            let block = self.blocks.entry(number).or_insert_with(|| Arc::new([0; BLOCK]));
            let piece = &bytes[range];
            Arc::make_mut(block)[from..][..piece.len()].copy_from_slice(piece);
        }
    }
}

/// The blocks of a range: the number of each, where the range begins in it, and its bytes in the
/// range.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let from = (at % BLOCK as u64) as usize;
        let piece = (len - done).min(BLOCK - from);
        let range = done..done + piece;
        done += piece;
        (piece > 0).then_some((at / BLOCK as u64, from, range))
    })
}

/// What a disk was told.
pub enum Event {
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// What was written before is on the disk afterwards, whatever happens.
    Flush,
}

struct Served {
    content: Content,
    events: Vec<Event>,
}

/// The file system of one file.
struct OneFile(Arc<Mutex<Served>>);

fn lock(served: &Mutex<Served>) -> MutexGuard<'_, Served> {
    served.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OneFile {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_file = inode == INODE;
        FileAttr {
            ino: inode,
            size: if is_file { lock(&self.0).content.len } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == NAME {
            true => reply.entry(&FOR_EVER, &self.attributes(INODE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(inode));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&FOR_EVER, &self.attributes(inode));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(&lock(&self.0).content.read(offset, len as usize));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut served = lock(&self.0);
        served.content.write(offset, bytes);
        served.events.push(Event::Write { offset, bytes: bytes.into() });
        reply.written(bytes.len() as u32);
    }

    /// A `close`, which says nothing of the disk.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        lock(&self.0).events.push(Event::Flush);
        reply.ok();
    }
}

/// Where one disk at a time is mounted.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        let place = Self(crate::scratch());
        for path in [place.file(), place.root()] {
            fs::create_dir(path).unwrap();
        }
        place
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("file")
    }

    pub fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }
}

/// A disk with a file system that is mounted.
pub struct Mounted {
    served: Arc<Mutex<Served>>,
    session: Option<BackgroundSession>,
    /// What is mounted, the first one first.
    mounts: Vec<PathBuf>,
}

impl Mounted {
    /// Mounts the file system of `content`, or says why it is refused.
    pub fn new(place: &Place, content: Content, kind: &str, options: &str) -> Result<Self, String> {
        let served = Arc::new(Mutex::new(Served { content, events: Vec::new() }));
        let session = spawn_mount(OneFile(served.clone()), place.file(), &Config::default());
        let session = session.map_err(|error| format!("FUSE: {error}"))?;
        let mut mounted = Self { served, session: Some(session), mounts: vec![place.file()] };
        run(Command::new("mount")
            .args(["-t", kind, "-o", &format!("loop,{options}")])
            .args([&place.file().join(NAME), &place.root()]))?;
        mounted.mounts.push(place.root());
        Ok(mounted)
    }

    /// How many writes and flushes there were.
    pub fn event_count(&self) -> usize {
        lock(&self.served).events.len()
    }

    /// Unmounts it. Returns what was on the disk and what the disk was told.
    pub fn end(mut self) -> (Content, Vec<Event>) {
        self.unmount().unwrap();
        let mut served = lock(&self.served);
        (served.content.clone(), std::mem::take(&mut served.events))
    }

    fn unmount(&mut self) -> Result<(), String> {
        // The loop device ends, and closes the file, a moment after the file system.
        while let Some(path) = self.mounts.pop() {
            unmount(&path)?;
        }
        let ended = self.session.take().map(BackgroundSession::join);
        ended.unwrap_or(Ok(())).map_err(|error| error.to_string())
    }
}

/// Unmounts what is mounted at `path`. A process that another thread begins has all files open for
/// a moment.
fn unmount(path: &Path) -> Result<(), String> {
    let once = || run(Command::new("umount").arg(path));
    for _ in 0..MOST_TRIES {
        if once().is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    once()
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

/// Runs a command to its end, or returns what it said.
pub fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
