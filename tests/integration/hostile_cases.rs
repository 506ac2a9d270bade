//! Models with untrusted external data, and what is expected of every reader of ours: the cases
//! that readers treat differently, and those by which advisories of other readers were shown. The
//! tests of the library and of the command share this file.

use std::fs;
use std::path::{Path, PathBuf};

use onnx_container::external_data::PathPolicy;
use onnx_container::proto::{
    GraphProto, Message, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};

/// What happens: accepted, or refused by an error with this text.
pub type Expected = Result<(), &'static str>;

/// The policies, in the order of [`Case::expect`], with their names on the command line.
pub const POLICIES: [PathPolicy; 3] =
    [PathPolicy::Strict, PathPolicy::ModelDirs, PathPolicy::Trusted];

/// A model with one external tensor `w`, whose elements, if it is accepted, are bytes of 1, and an
/// inline one, `v`.
pub struct Case {
    pub name: &'static str,
    entries: &'static [(&'static str, &'static str)],
    dims: &'static [i64],
    dtype: i32,
    /// Makes the files, other than `w.bin`, in the folder of the model.
    prepare: fn(&Path),
    /// Whether the path of the model is a link to `../blobs/m`.
    cached: bool,
    pub expect: [Expected; 3],
}

impl Case {
    /// Makes the files in the folder `model` of `root`; returns the path of the model.
    pub fn make(&self, root: &Path) -> PathBuf {
        let (folder, blobs) = (root.join("model"), root.join("blobs"));
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&blobs).unwrap();
        fs::write(folder.join("w.bin"), [1; 16]).unwrap();
        (self.prepare)(&folder);
        let mut tensor = TensorProto::external("w", self.dtype, self.dims, "");
        tensor.external_data =
            self.entries.iter().map(|(k, v)| StringStringEntryProto::new(*k, *v)).collect();
        let mut graph = GraphProto::new("g");
        graph.initializer.push(tensor);
        graph
            .initializer
            .push(TensorProto::new("v", TensorProto::FLOAT, [1]).with_raw_data(vec![1; 4]));
        let mut model = ModelProto::new(graph);
        model.opset_import.push(OperatorSetIdProto::new("", 21));
        let model = model.encode_to_vec().unwrap();
        let path = folder.join("m.onnx");
        if self.cached {
            fs::write(blobs.join("m"), model).unwrap();
            #[cfg(unix)]
            link("../blobs/m", &path);
        } else {
            fs::write(&path, model).unwrap();
        }
        path
    }
}

impl Default for Case {
    fn default() -> Self {
        Self {
            name: "",
            entries: &[("location", "w.bin")],
            dims: &[4],
            dtype: TensorProto::FLOAT,
            prepare: |_| {},
            cached: false,
            expect: [Ok(()); 3],
        }
    }
}

fn case(
    name: &'static str,
    entries: &'static [(&'static str, &'static str)],
    expect: Expected,
) -> Case {
    Case { name, entries, expect: [expect; 3], ..Case::default() }
}

fn at(
    location: &'static str,
    entries: &'static [(&'static str, &'static str)],
    prepare: fn(&Path),
    expect: Expected,
) -> Case {
    Case { name: location, entries, prepare, expect: [expect; 3], ..Case::default() }
}

fn sub(dir: &Path) {
    fs::create_dir(dir.join("sub")).unwrap();
    fs::copy(dir.join("w.bin"), dir.join("sub/w.bin")).unwrap();
}

pub fn outside(dir: &Path) -> std::path::PathBuf {
    let outside = dir.parent().unwrap().join("outside.bin");
    fs::write(&outside, [1; 16]).unwrap();
    outside
}

#[cfg(unix)]
pub fn link(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    std::os::unix::fs::symlink(from, to).unwrap();
}

#[cfg(unix)]
pub fn fifo(path: &Path) {
    let status = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(status.success());
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("plain", &[("location", "w.bin")], Ok(())),
        case("unknown key", &[("location", "w.bin"), ("foo", "1")], Ok(())),
        case("basepath", &[("location", "w.bin"), ("basepath", "/x")], Ok(())),
        case("wrong checksum", &[("location", "w.bin"), ("checksum", "00")], Ok(())),
        case("location twice", &[("location", "w.bin"), ("location", "w.bin")], Err("twice")),
        case("missing file", &[("location", "no.bin")], Err("no such file")),
        case("no location", &[], Err("no location")),
        case("empty location", &[("location", "")], Err("no location")),
        case("length short", &[("location", "w.bin"), ("length", "8")], Err("length is 8")),
        case("length long", &[("location", "w.bin"), ("length", "32")], Err("length is 32")),
        case("length 0", &[("location", "w.bin"), ("length", "0")], Ok(())),
        case(
            "length 10^15",
            &[("location", "w.bin"), ("length", "1000000000000000")],
            Err("length"),
        ),
        case("offset beyond", &[("location", "w.bin"), ("offset", "16")], Err("file has 16")),
        case("offset -1", &[("location", "w.bin"), ("offset", "-1")], Err("decimal")),
        case("offset space", &[("location", "w.bin"), ("offset", " 0")], Err("decimal")),
        case("offset plus", &[("location", "w.bin"), ("offset", "+0")], Err("decimal")),
        case("offset underscore", &[("location", "w.bin"), ("offset", "1_6")], Err("decimal")),
        case("offset hex", &[("location", "w.bin"), ("offset", "0x0")], Err("decimal")),
        case("offset empty", &[("location", "w.bin"), ("offset", "")], Err("decimal")),
        case("2^63", &[("location", "w.bin"), ("offset", "9223372036854775808")], Err("decimal")),
        case(
            "2^64-16",
            &[("location", "w.bin"), ("offset", "18446744073709551600")],
            Err("decimal"),
        ),
        case(
            "2^63-1",
            &[("location", "w.bin"), ("offset", "9223372036854775807")],
            Err("overflows"),
        ),
        case("dot", &[("location", "./w.bin")], Ok(())),
        case("backslash", &[("location", "sub\\w.bin")], Err("backslash")),
        case("up and down", &[("location", "a/../w.bin")], Err("`..`")),
        case("slash at the end", &[("location", "w.bin/")], Err("directory")),
        case("NUL", &[("location", "w.bin\0x")], Err("NUL")),
        case("parent", &[("location", "../w.bin")], Err("`..`")),
        case("absolute", &[("location", "/etc/hostname")], Err("absolute")),
        case("drive", &[("location", "C:\\w.bin")], Err("absolute")),
        case("directory", &[("location", ".")], Err("directory")),
        case("handle", &[("location", "#w")], Err("unresolved handle")),
        case(
            "tag",
            &[("location", "*/_ORT_MEM_ADDR_/*"), ("offset", "140000")],
            Err("in-memory tag"),
        ),
        case(
            "native tag",
            &[("location", "*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*")],
            Err("in-memory tag"),
        ),
        Case { name: "dims -1", dims: &[-1], expect: [Err("negative"); 3], ..Case::default() },
        Case {
            name: "dims overflow",
            dims: &[1 << 62, 4],
            expect: [Err("2^63"); 3],
            ..Case::default()
        },
        Case { name: "file short", dims: &[5], expect: [Err("file has 16"); 3], ..Case::default() },
        Case {
            name: "string",
            dtype: TensorProto::STRING,
            expect: [Err("STRING"); 3],
            ..Case::default()
        },
        Case { name: "no dtype", dtype: 0, expect: [Err("UNDEFINED"); 3], ..Case::default() },
        Case { name: "dtype 99", dtype: 99, expect: [Err("99"); 3], ..Case::default() },
        at("sub/w.bin", &[("location", "sub/w.bin")], sub, Ok(())),
        at(
            "w..bin",
            &[("location", "w..bin")],
            |dir| fs::write(dir.join("w..bin"), [1; 16]).unwrap(),
            Ok(()),
        ),
        at(
            "longer",
            &[("location", "l.bin")],
            |dir| fs::write(dir.join("l.bin"), [1; 99]).unwrap(),
            Ok(()),
        ),
        at(
            "offset 1",
            &[("location", "l.bin"), ("offset", "1")],
            |dir| fs::write(dir.join("l.bin"), [1; 17]).unwrap(),
            Ok(()),
        ),
        at(
            "handle, file exists",
            &[("location", "#w")],
            |dir| fs::write(dir.join("#w"), [1; 16]).unwrap(),
            Err("unresolved handle"),
        ),
        at("sub", &[("location", "sub")], sub, Err("a directory")),
        at(
            "git lfs",
            &[("location", "lfs")],
            |dir| {
                let pointer =
                    "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 16\n";
                fs::write(dir.join("lfs"), pointer).unwrap();
            },
            Err("Git LFS pointer"),
        ),
        at(
            "web page",
            &[("location", "page")],
            |dir| {
                fs::write(dir.join("page"), "<!DOCTYPE html><html><body>404</body></html>")
                    .unwrap();
            },
            Err("web page"),
        ),
        Case { name: "empty tensor", dims: &[0, 3], ..Case::default() },
        Case { name: "scalar", dims: &[], ..Case::default() },
    ];
    #[cfg(unix)]
    cases.extend(links());
    cases
}

/// A link `l`, and what the policies make of it.
#[cfg(unix)]
fn linked(name: &'static str, prepare: fn(&Path), expect: [Expected; 3]) -> Case {
    Case { name, entries: &[("location", "l")], prepare, expect, ..Case::default() }
}

#[cfg(unix)]
fn links() -> Vec<Case> {
    const INSIDE: [Expected; 3] = [Err("`--paths model-dirs`"), Ok(()), Ok(())];
    const OUTSIDE: [Expected; 3] = [Err("`--paths trusted`"), Err("leads out"), Ok(())];
    const NOWHERE: [Expected; 3] = [Err(""); 3];
    let in_folder = |name, prepare, expect| Case {
        entries: &[("location", "l/w.bin")],
        ..linked(name, prepare, expect)
    };
    let cached = |name, prepare, expect| Case { cached: true, ..linked(name, prepare, expect) };
    vec![
        linked("link inside", |dir| link("w.bin", dir.join("l")), INSIDE),
        linked("absolute link inside", |dir| link(dir.join("w.bin"), dir.join("l")), INSIDE),
        linked("link outside", |dir| link(outside(dir), dir.join("l")), OUTSIDE),
        linked(
            "relative link outside",
            |dir| {
                outside(dir);
                link("../outside.bin", dir.join("l"));
            },
            OUTSIDE,
        ),
        linked(
            "link out and in again",
            |dir| link(Path::new("..").join(dir.file_name().unwrap()).join("w.bin"), dir.join("l")),
            INSIDE,
        ),
        linked(
            "link to a link outside",
            |dir| {
                link(outside(dir), dir.join("next"));
                link("next", dir.join("l"));
            },
            OUTSIDE,
        ),
        in_folder(
            "linked folder outside",
            |dir| {
                fs::write(dir.parent().unwrap().join("w.bin"), [1; 16]).unwrap();
                link("..", dir.join("l"));
            },
            OUTSIDE,
        ),
        in_folder(
            "linked folder inside",
            |dir| {
                sub(dir);
                link("sub", dir.join("l"));
            },
            INSIDE,
        ),
        linked("link to itself", |dir| link("l", dir.join("l")), NOWHERE),
        linked("link to nothing", |dir| link("absent", dir.join("l")), NOWHERE),
        linked("link to a folder", |dir| link(".", dir.join("l")), NOWHERE),
        linked("fifo", |dir| fifo(&dir.join("l")), [Err("device, pipe"); 3]),
        linked(
            "socket",
            |dir| drop(std::os::unix::net::UnixListener::bind(dir.join("l")).unwrap()),
            [Err("a device, pipe or socket"); 3],
        ),
        linked("link to a device", |dir| link("/dev/null", dir.join("l")), NOWHERE),
        linked("link to what never ends", |dir| link("/dev/zero", dir.join("l")), NOWHERE),
        linked("link to memory", |dir| link("/proc/self/mem", dir.join("l")), NOWHERE),
        linked(
            "hard link",
            |dir| fs::hard_link(dir.join("w.bin"), dir.join("l")).unwrap(),
            [Err("hard links"), Ok(()), Ok(())],
        ),
        cached("cache of Hugging Face", |dir| blob(dir, "w"), INSIDE),
        cached(
            "cache with a folder",
            |dir| {
                fs::create_dir(dir.join("../blobs/deep")).unwrap();
                blob(dir, "deep/w");
            },
            INSIDE,
        ),
        cached("cache, weights elsewhere", |dir| link(outside(dir), dir.join("l")), OUTSIDE),
        cached("cached model, weights beside the link", |dir| plain(&dir.join("l")), [Ok(()); 3]),
        cached(
            "cached model, weights in the cache only",
            |dir| plain(&dir.join("../blobs/l")),
            [Err("no such file"); 3],
        ),
        linked("weights in a cache, the model is not", |dir| blob(dir, "w"), OUTSIDE),
    ]
}

#[cfg(unix)]
fn plain(path: &Path) {
    fs::write(path, [1; 16]).unwrap();
}

/// Weights in the folder of blobs, and a link to them.
#[cfg(unix)]
fn blob(dir: &Path, name: &str) {
    plain(&dir.join("../blobs").join(name));
    link(Path::new("../blobs").join(name), dir.join("l"));
}
