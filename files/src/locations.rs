//! Locations of files beneath a folder, in one form for each file.

/// `location` without its `.` and empty components, so that `./w` and `w` are one file. An absolute
/// path stays one.
pub fn plain(location: &str) -> String {
    let absolute = if location.starts_with('/') { "/" } else { "" };
    let parts = location.split('/').filter(|part| !part.is_empty() && *part != ".");
    format!("{absolute}{}", parts.collect::<Vec<_>>().join("/"))
}
