//! The statement on files, in the form of OpenSSF Model Signing v1.0: every file of a folder with
//! its SHA-256, or that of each of its shards.
//!
//! What is read was signed, and may still be wrong or made to harm: names are checked before any
//! file is opened.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use onnx_container_files::sha256::hex;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use sha2::{Digest, Sha256};

use crate::form::Form;
use crate::hashing::{Hashed, Method, Part, is_sha256, shards};
use crate::object::{object, objects};
use crate::options::ShardForm;

/// The type of the statement.
pub const PREDICATE: &str = "https://model_signing/signature/v1.0";

const SHA256: &str = "sha256";

/// What stands for the file itself where a single file was signed.
const ITSELF: &str = ".";

impl ShardForm {
    fn algorithm(self, method: Method) -> String {
        match (self, method) {
            (Self::ModelSigning, Method::Shards(size)) => format!("{SHA256}-sharded-{size}"),
            _ => SHA256.to_owned(),
        }
    }
}

/// The files of a folder as they were signed.
#[derive(Debug)]
pub struct Manifest {
    pub method: Method,
    pub form: ShardForm,
    /// Whether links were followed.
    pub follows_links: bool,
    /// What beneath the folder was left out.
    pub ignored: Vec<String>,
    /// The digests of each file in the order of its bytes, by its path beneath the folder.
    pub files: BTreeMap<String, Vec<Hashed>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicate {
    #[serde(deserialize_with = "object")]
    serialization: Serialization,
    #[serde(deserialize_with = "objects")]
    resources: Vec<Resource>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Serialization {
    method: String,
    hash_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard_size: Option<Number>,
    allow_symlinks: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ignore_paths: Vec<String>,
}

/// A resource may have further keys, which mean nothing here.
#[derive(Debug, Serialize, Deserialize)]
struct Resource {
    name: String,
    algorithm: String,
    digest: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Root {
    sha256: String,
}

impl Manifest {
    /// What the statement says, or what is wrong with it.
    pub fn of(form: Form<Root, Predicate>) -> Result<Self, String> {
        let (subject, Predicate { serialization, resources }) = form.parts()?;
        let method = serialization.method()?;
        let form = check_digests(&serialization, method, &resources)?;
        let (found, expected) = (root(&resources), subject.digest.sha256);
        if found != expected {
            return Err(format!("the digest of all files is {found}, not {expected:?}"));
        }
        let is_itself = |name: &str| parse(name, method).is_ok_and(|(path, _)| path == ITSELF);
        let is_single = resources.iter().all(|resource| is_itself(&resource.name));
        let mut parts = Vec::with_capacity(resources.len());
        for resource in resources {
            let (path, part) = parse(&resource.name, method)?;
            if !is_single {
                check_path(path).map_err(|reason| format!("{reason}: {path:?}"))?;
            }
            parts.push((path.to_owned(), part, resource));
        }
        if !are_in_order(&parts) {
            return Err("the names are not in order, or some are there twice".to_owned());
        }
        let mut files: BTreeMap<String, Vec<Hashed>> = BTreeMap::new();
        for (path, part, Resource { digest, .. }) in parts {
            files.entry(path).or_default().push(Hashed { part, digest });
        }
        for (path, parts) in &mut files {
            parts.sort_by_key(|hashed| hashed.part.start());
            check_parts(parts, method).map_err(|reason| format!("{reason}: {path:?}"))?;
        }
        let Serialization { allow_symlinks, ignore_paths, .. } = serialization;
        Ok(Self { method, form, follows_links: allow_symlinks, ignored: ignore_paths, files })
    }

    /// The statement on these files of the folder that is called `name`.
    pub fn statement(&self, name: String) -> Form<Root, Predicate> {
        let algorithm = &self.form.algorithm(self.method);
        let resource = |(path, parts): (&String, &Vec<Hashed>)| {
            let new = |hashed| Resource::new(path, hashed, algorithm);
            parts.iter().map(new).collect::<Vec<_>>()
        };
        let mut resources: Vec<_> = self.files.iter().flat_map(resource).collect();
        resources.sort_by(|a, b| a.name.cmp(&b.name));
        let serialization = Serialization {
            method: self.method.name().to_owned(),
            hash_type: SHA256.to_owned(),
            shard_size: self.method.shard_size().map(Number::from),
            allow_symlinks: self.follows_links,
            ignore_paths: self.ignored.clone(),
        };
        let sha256 = root(&resources);
        Form::new(name, Root { sha256 }, PREDICATE, Predicate { serialization, resources })
    }

    /// The digests of the signed file itself, where it was no folder that was signed.
    pub fn single(&self) -> Option<&[Hashed]> {
        self.files.get(ITSELF).map(Vec::as_slice)
    }
}

impl Resource {
    fn new(path: &str, Hashed { part, digest }: &Hashed, algorithm: &str) -> Self {
        let name = match part {
            Part::Whole => path.to_owned(),
            Part::Range(range) => format!("{path}:{}:{}", range.start, range.end),
        };
        Self { name, algorithm: algorithm.to_owned(), digest: digest.clone() }
    }
}

impl Serialization {
    fn method(&self) -> Result<Method, String> {
        match (self.method.as_str(), &self.shard_size) {
            ("files", None) => Ok(Method::Files),
            ("files", Some(_)) => {
                Err("the method is `files`, but a shard size is stated".to_owned())
            }
            ("shards", Some(size)) => match whole(size) {
                Some(size) if size > 0 => Ok(Method::Shards(size)),
                _ => Err(format!("the shard size {size} is not a whole number above 0")),
            },
            ("shards", None) => {
                Err("the method is `shards`, but no shard size is stated".to_owned())
            }
            (other, _) => Err(format!("files are signed by an unknown method: {other:?}")),
        }
    }
}

/// A number without a fraction, which the reference tool writes as `700.0`.
fn whole(number: &Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let text = number.to_string();
        text.strip_suffix(".0").and_then(self::number)
    })
}

/// Checks that all resources have digests of one kind, and says how it is called.
fn check_digests(
    serialization: &Serialization,
    method: Method,
    resources: &[Resource],
) -> Result<ShardForm, String> {
    let hash = &serialization.hash_type;
    if hash != SHA256 {
        return Err(format!("digests by {hash:?}, and only {SHA256} is verified"));
    }
    let Some(first) = resources.first() else { return Err("no file is signed".to_owned()) };
    let forms = [ShardForm::Spec, ShardForm::ModelSigning];
    let form = forms.into_iter().find(|form| form.algorithm(method) == first.algorithm);
    let form = form.unwrap_or_default();
    let expected = form.algorithm(method);
    for Resource { name, algorithm, digest } in resources {
        if *algorithm != expected {
            return Err(format!("{name:?} has a digest by {algorithm:?}, and not {expected}"));
        }
        if !is_sha256(digest) {
            return Err(format!("{name:?} has no digest: {digest:?}"));
        }
    }
    Ok(form)
}

/// The digest of all digests, in their order.
fn root(resources: &[Resource]) -> String {
    let mut hasher = Sha256::new();
    for resource in resources {
        let digits = resource.digest.as_bytes().chunks(2);
        let digits = digits.filter_map(|digits| std::str::from_utf8(digits).ok());
        let bytes: Vec<u8> = digits.filter_map(|two| u8::from_str_radix(two, 16).ok()).collect();
        hasher.update(bytes);
    }
    hex(&hasher.finalize())
}

/// The path in the name of a resource, and which part of that file it is.
fn parse(name: &str, method: Method) -> Result<(&str, Part), String> {
    let invalid = || format!("{name:?} is not the name of a shard");
    if method == Method::Files {
        return Ok((name, Part::Whole));
    }
    let (rest, end) = name.rsplit_once(':').ok_or_else(invalid)?;
    let (path, start) = rest.rsplit_once(':').ok_or_else(invalid)?;
    let range = number(start).ok_or_else(invalid)?..number(end).ok_or_else(invalid)?;
    Ok((path, Part::Range(range)))
}

/// Checks that the parts of a file, in the order of their bytes, are the whole file.
fn check_parts(parts: &[Hashed], method: Method) -> Result<(), String> {
    let Method::Shards(size) = method else { return Ok(()) };
    let len = parts.last().map_or(0, |last| last.part.end());
    let count = u64::try_from(parts.len()).unwrap_or(u64::MAX);
    let fit = len.div_ceil(size) == count
        && shards(len, size).zip(parts).all(|(range, found)| found.part == Part::Range(range));
    if fit { Ok(()) } else { Err("the shards do not cover a whole file".to_owned()) }
}

/// A number in the digits that Python writes.
fn number(digits: &str) -> Option<u64> {
    let number = digits.parse().ok()?;
    (u64::to_string(&number) == digits).then_some(number)
}

/// Refuses a path that is not one of a file beneath the folder, in its only form.
fn check_path(path: &str) -> Result<(), &'static str> {
    if path.starts_with('/') {
        return Err("a signed name is an absolute path");
    }
    if path.contains('\0') {
        return Err("a signed name has a NUL character");
    }
    match path.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some("..") => Err("a signed name leads out of the folder"),
        Some(_) => Err("a signed name is not in its shortest form"),
        None => Ok(()),
    }
}

/// Whether names are in the order of the specification, that of code points, or in that of the
/// reference tool, which compares folder by folder and ranges as numbers; each name once.
fn are_in_order(parts: &[(String, Part, Resource)]) -> bool {
    type Item = (String, Part, Resource);
    let by_name = |a: &Item, b: &Item| a.2.name.cmp(&b.2.name);
    let by_part = |a: &Item, b: &Item| {
        let paths = a.0.split('/').cmp(b.0.split('/'));
        paths.then(a.1.start().cmp(&b.1.start())).then(a.1.end().cmp(&b.1.end()))
    };
    let rises = |order: &dyn Fn(&Item, &Item) -> Ordering| {
        parts.iter().zip(parts.iter().skip(1)).all(|(a, b)| order(a, b) == Ordering::Less)
    };
    rises(&by_name) || rises(&by_part)
}
