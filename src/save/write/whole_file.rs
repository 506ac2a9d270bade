//! A whole file as another one: the two share their bytes where the file system can, holes stay
//! holes, and what is left is copied by the system, or by this process.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use crate::save::write::holes::next_data;
use crate::save::write::meter::Meter;
use crate::util::retry::retried;

/// The most bytes that are copied at a time, so that the caller sees progress and can cancel.
const PIECE: u64 = 8 << 20;
/// How many bytes pass through this process at a time.
const CHUNK: usize = 1 << 20;

/// Whether the empty file `to` has the bytes of `from` now, which both share.
#[cfg(target_os = "linux")]
pub(in crate::save) fn share(from: &File, to: &File) -> bool {
    retried(|| rustix::fs::ioctl_ficlone(to, from)).is_ok()
}

#[cfg(not(target_os = "linux"))]
pub(in crate::save) fn share(_: &File, _: &File) -> bool {
    false
}

/// Copies the `len` bytes of `from` to the empty file `to`.
///
/// # Errors
/// Those of the system, [`io::ErrorKind::UnexpectedEof`] for a file that has become shorter, and
/// that of a cancellation, which `meter` knows.
pub(in crate::save) fn copy(from: &File, to: &File, len: u64, meter: &Meter<'_>) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        let data = next_data(from, at, len)?;
        add(meter, data.start.saturating_sub(at))?;
        copy_range(from, to, data.clone(), meter)?;
        at = data.end;
    }
    // A hole at the end.
    retried(|| to.set_len(len))?;
    let now = retried(|| from.metadata())?.len();
    if now == len { Ok(()) } else { Err(changed()) }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file changed while it was copied")
}

fn add(meter: &Meter<'_>, bytes: u64) -> io::Result<()> {
    meter.add(bytes).map_err(io::Error::other)
}

fn copy_range(from: &File, to: &File, range: Range<u64>, meter: &Meter<'_>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        match copy_by_system(from, to, at, range.end.saturating_sub(at).min(PIECE)) {
            0 => break,
            copied => {
                at = at.saturating_add(copied);
                add(meter, copied)?;
            }
        }
    }
    copy_by_hand(from, to, at..range.end, meter)
}

/// Copies at most `len` bytes from the offset `at` on; returns how many, none where the system does
/// not do that between these files.
#[cfg(target_os = "linux")]
fn copy_by_system(from: &File, to: &File, at: u64, len: u64) -> u64 {
    let Ok(most) = usize::try_from(len) else { return 0 };
    let copied = retried(|| {
        let (mut read, mut written) = (at, at);
        rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), most)
    });
    copied.map_or(0, |copied| copied as u64)
}

#[cfg(not(target_os = "linux"))]
fn copy_by_system(_: &File, _: &File, _: u64, _: u64) -> u64 {
    0
}

fn copy_by_hand(
    mut from: &File,
    mut to: &File,
    range: Range<u64>,
    meter: &Meter<'_>,
) -> io::Result<()> {
    let mut left = range.end.saturating_sub(range.start);
    if left == 0 {
        return Ok(());
    }
    retried(|| from.seek(SeekFrom::Start(range.start)))?;
    retried(|| to.seek(SeekFrom::Start(range.start)))?;
    let mut chunk = vec![0; CHUNK];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let part = chunk.get_mut(..most).ok_or_else(changed)?;
        from.read_exact(part)?;
        to.write_all(part)?;
        add(meter, part.len() as u64)?;
        left = left.saturating_sub(part.len() as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::save::options::SaveOptions;

    #[test]
    fn every_way_copies_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("from");
        for holes in [&[][..], &[0_u64, 2, 3, 6], &[1, 2, 5], &[0, 1, 2, 3, 4, 5, 6, 7]] {
            let from = fs::File::create(&path).unwrap();
            let len = 8 * 70_000 + 11;
            for block in (0..8_u64).filter(|block| !holes.contains(block)) {
                (&from).seek(SeekFrom::Start(block * 70_000)).unwrap();
                (&from).write_all(&vec![u8::try_from(block).unwrap() + 1; 70_000]).unwrap();
            }
            from.set_len(len).unwrap();
            let bytes = fs::read(&path).unwrap();
            let from = fs::File::open(&path).unwrap();
            let options = SaveOptions::new();
            for by_hand in [false, true] {
                let to = folder.path().join("to");
                let file = fs::File::create(&to).unwrap();
                let meter = Meter::new(&options, len);
                match by_hand {
                    true => copy_by_hand(&from, &file, 0..len, &meter).unwrap(),
                    false => copy(&from, &file, len, &meter).unwrap(),
                }
                assert!(fs::read(&to).unwrap() == bytes, "{holes:?} {by_hand}");
            }
            let file = fs::File::create(folder.path().join("to")).unwrap();
            let meter = Meter::new(&options, len);
            let error = copy(&from, &file, len + 1, &meter).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
        }
    }
}
