//! Small files that a person names: keys and signatures.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use onnx_container::{Error, ErrorKind, Result};
use zeroize::Zeroizing;

/// The bytes of the regular file at `path`, or `None` where it has more than `most`; wiped when
/// they are no longer needed.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] where it is no regular file: a pipe would be waited for.
pub fn read(path: &Path, most: u64) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let bytes = beginning(path, most.saturating_add(1))?;
    Ok(u64::try_from(bytes.len()).is_ok_and(|len| len <= most).then_some(bytes))
}

/// The first bytes of the regular file at `path`, at most `most`; wiped when they are no longer
/// needed.
///
/// # Errors
/// As those of [`read`].
pub fn beginning(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>> {
    let failed = |error| Error::io(path, error);
    let found = path.metadata().map_err(failed)?;
    if !found.is_file() {
        let what = if found.is_dir() { "a folder, not a file" } else { "not a regular file" };
        return Err(Error::new(ErrorKind::InvalidArgument, what).with_path(path));
    }
    let (mut bytes, file) = (Zeroizing::new(Vec::new()), File::open(path).map_err(failed)?);
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
