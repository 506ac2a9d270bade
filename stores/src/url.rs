//! [`StoreUrl`]: where an object is, as users write it.
//!
//! A key is the text as it stands for `s3`, `gs`, `az` and `hf`, as the tools of those stores take
//! it: `s3://b/a b#1.onnx` names the object `a b#1.onnx`. Only web addresses are percent-decoded.

use std::fmt;

use object_store::path::Path;
use onnx_container::{Error, ErrorKind, Result};

/// The kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// `s3://bucket/key`: S3, and every store that speaks its protocol.
    S3,
    /// `gs://bucket/key`: Google Cloud Storage.
    Gcs,
    /// `az://container/key`, and `abfs[s]://container@account.dfs.core.windows.net/key`: Azure.
    Azure,
    /// `http[s]://host/path`: a web server, for reading only.
    Http,
    /// `hf://owner/repository[@revision]/path`: the Hugging Face Hub, for reading only.
    Hub,
    /// A store that a caller opened, by [`StoreUrl::of`]: no URL is taken apart as one.
    Other,
}

const SCHEMES: [(&str, Scheme); 10] = [
    ("s3", Scheme::S3),
    ("s3a", Scheme::S3),
    ("gs", Scheme::Gcs),
    ("az", Scheme::Azure),
    ("azure", Scheme::Azure),
    ("abfs", Scheme::Azure),
    ("abfss", Scheme::Azure),
    ("http", Scheme::Http),
    ("https", Scheme::Http),
    ("hf", Scheme::Hub),
];

/// The address of an object: a store, and a key in it.
///
/// ```
/// use onnx_container_store::{Scheme, StoreUrl};
///
/// let url = StoreUrl::parse("s3://models/whisper/m.onnx")?;
/// assert_eq!((url.scheme(), url.root()), (Scheme::S3, "s3://models"));
/// assert_eq!(url.key(), "whisper/m.onnx");
/// assert_eq!(url.beside("m.onnx.data")?.to_string(), "s3://models/whisper/m.onnx.data");
/// # Ok::<(), onnx_container::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreUrl {
    scheme: Scheme,
    root: String,
    key: String,
}

/// Whether `text` is the URL of an object, and no path: `s3://...`, `gs://...`, `az://...`,
/// `https://...`, `hf://...`.
pub fn is_url(text: &str) -> bool {
    scheme_of(text).is_some()
}

/// The scheme, and what follows its `://`.
fn scheme_of(text: &str) -> Option<(Scheme, &str, &str)> {
    let (name, rest) = text.split_once("://")?;
    let (name, scheme) = SCHEMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some((*scheme, name, rest))
}

impl StoreUrl {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for another scheme, where the store or the key is missing,
    /// for a key that no store has (`a//b`, `a/../b`), for a web address with a query or a
    /// fragment, and for a user or a password in an address: they would be in every error.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((scheme, name, rest)) = scheme_of(text) else {
            return Err(invalid(format!("no URL of a store: `{}`", without_secrets(text))));
        };
        let (store, key) = match scheme {
            Scheme::Hub => hub_parts(rest).ok_or_else(|| {
                invalid("`hf://` takes `owner/repository[@revision]/path`".to_owned())
            })?,
            _ => rest.split_once('/').unwrap_or((rest, "")),
        };
        // `abfss://container@account` has no password.
        if store.split_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return Err(invalid(SECRET.to_owned()));
        }
        let root = format!("{name}://{store}");
        if store.is_empty() {
            return Err(invalid(format!("`{name}://` is without the name of a store")));
        }
        if scheme != Scheme::Http && store.contains(['?', '#', ' ']) {
            return Err(invalid(format!("`{root}`: no store has such a name")));
        }
        if key.starts_with('/') {
            return Err(invalid(format!("`{root}/`: no key of a store begins with a slash")));
        }
        let key = match scheme {
            Scheme::Http => web_key(&root, store, key)?,
            _ => Path::parse(key).map_err(|error| invalid(error.to_string()))?,
        };
        Ok(Self { scheme, root, key: key.into() })
    }

    /// The object of `key` in a store that is called `root`, such as one of a program's own.
    ///
    /// ```
    /// let url = onnx_container_store::StoreUrl::of("memory:/", "models/m.onnx")?;
    /// assert_eq!(url.to_string(), "memory://models/m.onnx");
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a key that no store has.
    pub fn of(root: impl Into<String>, key: &str) -> Result<Self> {
        Ok(Self { scheme: Scheme::Other, root: root.into(), key: path_of(key)?.into() })
    }

    /// The object of `key` in the store that is called `root`, whatever kind of store that is.
    pub(crate) fn named(root: &str, key: &str) -> Result<Self> {
        if !is_url(root) {
            return Self::of(root, key);
        }
        // The key of a web address is decoded by now.
        Ok(Self { key: path_of(key)?.into(), ..Self::parse(root)? })
    }

    /// The kind of the store.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The store: scheme and bucket, container, host or repository, without a slash at the end.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The name of the object in its store, without a slash at its start. Empty for a whole store.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The last component of the key.
    pub fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(self.key(), |(_, name)| name)
    }

    /// The object at `location` beside this one, as the location of a tensor is beside its model.
    ///
    /// # Errors
    /// [`ErrorKind::UnsafePath`] for a location that leads elsewhere.
    pub fn beside(&self, location: &str) -> Result<Self> {
        onnx_container::external_data::check_location(location)?;
        let location = plain(location);
        Ok(match self.key.rsplit_once('/') {
            Some((folder, _)) => self.with_key(format!("{folder}/{location}")),
            None => self.with_key(location),
        })
    }

    /// Refuses a store that is for reading only.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for web servers and the Hub.
    pub(crate) fn refuse_read_only(&self) -> Result<()> {
        let what = match self.scheme {
            Scheme::Http => "a web server",
            Scheme::Hub => "the Hub",
            _ => return Ok(()),
        };
        let way = match self.scheme {
            Scheme::Hub => "`hf upload` puts files there",
            _ => "publish to s3://, gs:// or az://",
        };
        let reason = format!("{what} is for reading only here: {way}");
        Err(Error::new(ErrorKind::Unsupported, reason).with_path(self.to_string()))
    }

    /// Another object of the same store.
    pub(crate) fn with_key(&self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self.clone() }
    }

    /// The key as object_store takes it.
    pub(crate) fn path(&self) -> Result<Path> {
        path_of(&self.key)
    }
}

/// A location as a load asks for it: without components that are `.` or empty.
pub(crate) fn plain(location: &str) -> String {
    let parts = location.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.collect::<Vec<_>>().join("/")
}

/// A key as object_store takes it: as it stands.
pub(crate) fn path_of(key: &str) -> Result<Path> {
    // object_store drops it, and `/a` is another object than `a`.
    if key.starts_with('/') {
        return Err(invalid(format!("no key of a store begins with a slash: `{key}`")));
    }
    Path::parse(key).map_err(|error| invalid(format!("no key of a store: {error}")))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.root, self.key)
    }
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, reason)
}

/// `owner/repository[@revision]`, and the path in it. A revision with slashes is written with
/// `%2F` for them, as the Hub writes it.
fn hub_parts(rest: &str) -> Option<(&str, &str)> {
    let owner = rest.find('/')?;
    let after = rest.get(owner + 1..)?;
    let end = after.find('/').map_or(rest.len(), |slash| owner + 1 + slash);
    let (store, key) = rest.split_at_checked(end)?;
    let named = store.split('/').all(|part| !part.is_empty() && !part.starts_with('@'));
    named.then_some((store, key.strip_prefix('/').unwrap_or(key)))
}

const SECRET: &str = "a user or a password in an address would be in errors and logs: leave it out";

/// The key of a web address.
fn web_key(root: &str, host: &str, key: &str) -> Result<Path> {
    if host.contains('@') {
        return Err(invalid(SECRET.to_owned()));
    }
    if key.contains(['?', '#']) || root.contains(['?', '#']) {
        let reason = "a web address with `?` or `#`: its weights files would need the same, and a \
                      signature is for one file. Write %3F and %23 in the name of a file";
        return Err(Error::new(ErrorKind::Unsupported, reason));
    }
    Path::from_url_path(key).map_err(|error| invalid(error.to_string()))
}

/// `text` without what may be secret in a URL: users and passwords, queries, fragments.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '`' | '\'' | ')' | '>' | ',');
        let (url, left) = after.split_at(after.find(ends).unwrap_or(after.len()));
        let (host, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        // The part before the `@` of `abfss://container@account` is no secret.
        let host = match host.rsplit_once('@') {
            Some((user, host)) if user.contains(':') || before.contains("http") => host,
            _ => host,
        };
        let path = path.split(['?', '#']).next().unwrap_or_default();
        shown.push_str(host.split(['?', '#']).next().unwrap_or_default());
        shown.push_str(path);
        rest = left;
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        // What is written, the scheme, the store and the key.
        let cases = [
            ("s3://b/m.onnx", Scheme::S3, "s3://b", "m.onnx"),
            ("S3://b/a/m.onnx", Scheme::S3, "s3://b", "a/m.onnx"),
            ("s3a://b/a b#%é+[x]~?.onnx", Scheme::S3, "s3a://b", "a b#%é+[x]~?.onnx"),
            ("gs://b", Scheme::Gcs, "gs://b", ""),
            ("az://c/x/", Scheme::Azure, "az://c", "x"),
            (
                "abfss://c@a.dfs.core.windows.net/m",
                Scheme::Azure,
                "abfss://c@a.dfs.core.windows.net",
                "m",
            ),
            ("https://h:80/a%20b/m%23.onnx", Scheme::Http, "https://h:80", "a b/m#.onnx"),
            ("https://h/a%2520b%3F.onnx", Scheme::Http, "https://h", "a%20b?.onnx"),
            ("hf://o/r/onnx/m.onnx", Scheme::Hub, "hf://o/r", "onnx/m.onnx"),
            ("hf://o/r@refs%2Fpr%2F1/m.onnx", Scheme::Hub, "hf://o/r@refs%2Fpr%2F1", "m.onnx"),
            ("hf://o/r", Scheme::Hub, "hf://o/r", ""),
        ];
        for (text, scheme, root, key) in cases {
            let url = StoreUrl::parse(text).unwrap();
            assert_eq!((url.scheme(), url.root(), url.key()), (scheme, root, key), "{text}");
            assert!(is_url(text));
            assert_eq!(StoreUrl::named(root, key).unwrap(), url, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        // What is written, and what is said.
        let cases = [
            ("m.onnx", "no URL of a store"),
            ("ftp://h/m.onnx", "no URL of a store"),
            ("s3://", "without the name of a store"),
            ("s3:///m.onnx", "without the name of a store"),
            ("s3://b/a//m.onnx", "empty"),
            ("s3://b//m.onnx", "begins with a slash"),
            ("s3://b?x/m.onnx", "no store has such a name"),
            ("s3://b/../m.onnx", ".."),
            ("https://h/m.onnx?X-Amz-Signature=1", "a web address with `?`"),
            ("https://me:secret@h/m.onnx", "a user or a password"),
            ("s3://key:secret@b/m.onnx", "a user or a password"),
            ("hf://o", "owner/repository"),
            ("hf:///r/m", "owner/repository"),
        ];
        for (text, said) in cases {
            let error = StoreUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for (key, said) in [("/m.onnx", "begins with a slash"), ("a//m.onnx", "empty")] {
            for error in [StoreUrl::of("memory:/", key), StoreUrl::named("s3://b", key)] {
                let error = error.unwrap_err().to_string();
                assert!(error.contains(said), "{key}: {error}");
            }
        }
        assert!(!is_url("C:\\m.onnx") && !is_url("a://b") && !is_url("s3:/b"));
    }

    #[test]
    fn locations_are_beside_the_model() {
        let model = StoreUrl::parse("gs://b/a/m.onnx").unwrap();
        // The location, and the key or nothing where it is refused.
        let cases =
            [("w", Some("a/w")), ("./x//w#1", Some("a/x/w#1")), ("../w", None), ("/w", None)];
        for (location, key) in cases {
            let beside = model.beside(location);
            assert_eq!(beside.as_ref().ok().map(StoreUrl::key), key, "{location}");
        }
        let top = StoreUrl::parse("gs://b/m.onnx").unwrap();
        assert_eq!(top.beside("w").unwrap().key(), "w");
    }

    #[test]
    fn secrets_are_not_shown() {
        let cases = [
            ("GET https://u:p@h/a?sig=1 failed", "GET https://h/a failed"),
            ("(https://h?x=1): no", "(https://h): no"),
            ("`abfss://c@a/k`", "`abfss://c@a/k`"),
            ("s3://k:s@b/m", "s3://b/m"),
            ("nothing", "nothing"),
        ];
        for (text, shown) in cases {
            assert_eq!(without_secrets(text), shown);
        }
    }
}
