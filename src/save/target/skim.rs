//! Finds the files that a model on disk refers to, without loading it.
//!
//! A folder can hold models and weights of many gigabytes, and only the entries of external tensors
//! are needed. So the messages are walked on disk and payloads are skipped; the table of messages
//! tells which fields can hold tensors, and `found` how much of its file a tensor needs. In a file
//! that is not a model the walk ends within a few bytes: at field number 0, an invalid tag, or a
//! top level that no writer makes. Which files are read is decided in `folder`.

mod blocks;
mod found;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::save::target::skim::blocks::{BLOCK, Blocks};
use crate::save::target::skim::found::{DIMS, Found};
use crate::save::target::skim::ways::{Child, WAYS, Ways};
use crate::util::retry::retried;

/// What was found in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Skimmed {
    /// The files that it refers to, without `.` components. For a malformed model these are the
    /// ones before the fault, because the model may still be in use.
    pub(crate) locations: BTreeSet<String>,
    /// How many bytes of each of these the tensors need, as far as they say it.
    pub(crate) needed_bytes: BTreeMap<String, u64>,
    /// Whether the file is a model, whole or cut off.
    pub(crate) is_model: bool,
    /// Whether it is one beyond doubt: whole and with a version, or with files that it refers to.
    /// Of random bytes, some in ten thousand files begin as a model does.
    pub(crate) is_certain: bool,
    /// Whether the walk came to its end, and no message is longer than what is there of it.
    pub(crate) is_whole: bool,
}

/// Walks the file at `path`. A path that is missing, not a regular file or not a model has no
/// locations.
///
/// # Errors
/// [`ErrorKind::Io`] when it cannot be read, [`ErrorKind::TooLarge`] when too many bytes would be
/// read.
pub(crate) fn skim(path: &Path) -> Result<Skimmed> {
    let mut walk = match open(path) {
        Ok(Some(file)) => Walk::new(file).map_err(|error| Error::io(path, error))?,
        Ok(None) => return Ok(Skimmed::default()),
        Err(error) => return Err(Error::io(path, error)),
    };
    let end = walk.len;
    let (mut entered_graph, mut whole) = (false, false);
    match walk.model(end, &mut entered_graph) {
        Ok(()) => whole = !walk.found.is_cut,
        Err(Fault::NoModel) => {}
        Err(Fault::TooLong) => {
            let reason = "goes on for too long to see which files it needs";
            return Err(Error::new(ErrorKind::TooLarge, reason).with_path(path));
        }
        Err(Fault::Io(error)) => return Err(Error::io(path, error)),
    }
    let begins_as_one = entered_graph && (whole || walk.has_version);
    let needed_bytes = walk.found.files;
    let locations: BTreeSet<_> = needed_bytes.keys().cloned().collect();
    let is_model = begins_as_one || !locations.is_empty();
    let is_certain = entered_graph && whole && walk.has_version || !locations.is_empty();
    Ok(Skimmed { locations, needed_bytes, is_model, is_certain, is_whole: whole })
}

/// The files that the model at `path` refers to, without `.` components.
///
/// # Errors
/// Those of [`skim`].
pub(crate) fn locations(path: &Path) -> Result<BTreeSet<String>> {
    Ok(skim(path)?.locations)
}

/// Opens a regular file, or what a link leads to.
fn open(path: &Path) -> io::Result<Option<File>> {
    // Checked before it is opened: opening a FIFO would wait for its writer.
    let file = retried(|| std::fs::metadata(path))
        .and_then(|metadata| metadata.is_file().then(|| File::open(path)).transpose());
    match file {
        Err(error) if leads_nowhere(&error) => Ok(None),
        other => other,
    }
}

/// Whether `error` means that there is no file, or that a link leads nowhere or to itself.
pub(crate) fn leads_nowhere(error: &io::Error) -> bool {
    #[cfg(unix)]
    let is_loop = rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::LOOP);
    #[cfg(not(unix))]
    let is_loop = false;
    let none = [
        io::ErrorKind::NotFound,
        io::ErrorKind::NotADirectory,
        io::ErrorKind::InvalidFilename,
        io::ErrorKind::InvalidInput,
    ];
    is_loop || none.contains(&error.kind())
}

/// Why a walk ended early.
enum Fault {
    NoModel,
    TooLong,
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::NoModel,
            _ => Self::Io(error),
        }
    }
}

type Walked<T> = Result<T, Fault>;

/// The decoder's default limit of nesting.
const MAX_DEPTH: u32 = 100;
/// The maximum length of a path, in bytes.
const MAX_TEXT: usize = 1 << 16;
/// How many bytes of one file are read in all: more than a model of millions of nodes has besides
/// its payloads, and few enough to be read within seconds.
const MAX_READ: u64 = 4 << 30;
/// The maximum number of numeric fields at the top level. A model has two; a weights file that
/// happens to look like a message can have any number of them.
const MAX_NUMBERS: u32 = 1000;

/// A walk over the messages of a file.
///
/// Messages that fit into a block, which are nearly all, are walked in memory. What holds them,
/// such as the graph, and larger ones are walked from block to block.
struct Walk {
    ways: &'static Ways,
    file: Blocks,
    len: u64,
    at: u64,
    /// How many bytes were read and not skipped.
    read: u64,
    has_version: bool,
    found: Found,
}

impl Walk {
    fn new(file: File) -> io::Result<Self> {
        let len = retried(|| file.metadata())?.len();
        let (ways, file, found) = (&*WAYS, Blocks::new(file), Found::default());
        Ok(Self { ways, file, len, at: 0, read: 0, has_version: false, found })
    }

    /// Walks the model, which ends at byte `end`.
    fn model(&mut self, end: u64, entered_graph: &mut bool) -> Walked<()> {
        let mut numbers = 0;
        while self.at < end {
            let (number, wire) = self.tag()?;
            let child = self.ways.child(self.ways.model, number);
            if wire != 2 {
                numbers += 1;
                // `graph` and other messages are never numbers; `ir_version` (field 1) always is.
                if numbers > MAX_NUMBERS || child.is_some() {
                    return Err(Fault::NoModel);
                }
                self.has_version |= number == 1;
            } else if number == 1 {
                return Err(Fault::NoModel);
            }
            *entered_graph |= child.is_some();
            self.field(child, number, wire, end, 0)?;
        }
        Ok(())
    }

    /// Walks a message that ends at byte `end`.
    fn message(&mut self, message: usize, end: u64, depth: u32) -> Walked<()> {
        let is_tensor = message == self.ways.tensor;
        if is_tensor {
            self.found.begin();
        }
        while self.at < end {
            let (number, wire) = self.tag()?;
            let child = self.ways.child(message, number).filter(|_| wire == 2);
            if is_tensor && wire == 0 {
                let value = self.varint()?;
                self.found.number(number, value);
            } else {
                self.field(child, number, wire, end, depth)?;
            }
        }
        if is_tensor {
            self.found.end();
        }
        Ok(())
    }

    /// Walks or skips a field whose tag was read.
    fn field(
        &mut self,
        child: Option<Child>,
        number: u64,
        wire: u64,
        end: u64,
        depth: u32,
    ) -> Walked<()> {
        if depth > MAX_DEPTH {
            return Err(Fault::NoModel);
        }
        let Some(child) = child else { return self.skip_field(number, wire, end, depth) };
        // A truncated file ends inside its messages.
        let len = self.varint()?;
        let inner = self.at.saturating_add(len).min(end);
        self.found.is_cut |= len > inner - self.at.min(inner);
        let len = usize::try_from(inner - self.at.min(inner)).unwrap_or(usize::MAX);
        if let Some(bytes) = self.file.whole(len)? {
            let mut memory = InMemory { ways: self.ways, found: &mut self.found };
            let walked = memory.child(child, bytes, depth + 1);
            self.pass(len)?;
            return walked;
        }
        match child {
            Child::Message(message) => self.message(message, inner, depth + 1),
            Child::Entry => self.entry(inner, depth + 1),
        }
    }

    /// Reads an entry that is longer than a block, as [`InMemory::entry`] does.
    fn entry(&mut self, end: u64, depth: u32) -> Walked<()> {
        let (mut key, mut value) = (None, None);
        while self.at < end {
            let (number, wire) = self.tag()?;
            let slot = match number {
                number if number == self.ways.key => Some(&mut key),
                number if number == self.ways.value => Some(&mut value),
                _ => None,
            };
            match slot.filter(|_| wire == 2) {
                Some(slot) => *slot = self.text(end)?,
                None => self.skip_field(number, wire, end, depth)?,
            }
        }
        self.found.entry(key.as_deref(), value.as_deref());
        Ok(())
    }

    /// The bytes of a text, if it is not too long to be a path.
    fn text(&mut self, end: u64) -> Walked<Option<Vec<u8>>> {
        let len = self.varint()?;
        let short = usize::try_from(len).ok().filter(|len| *len <= MAX_TEXT);
        let Some(short) = short else { return self.skip(len, end).map(|()| None) };
        let text = self.file.whole(short)?.ok_or(Fault::NoModel)?.to_vec();
        self.pass(short)?;
        Ok(Some(text))
    }

    fn skip_field(&mut self, number: u64, wire: u64, end: u64, depth: u32) -> Walked<()> {
        match wire {
            0 => self.varint().map(drop),
            1 => self.skip(8, end),
            2 => {
                let len = self.varint()?;
                self.skip(len, end)
            }
            3 => self.skip_group(number, end, depth + 1),
            5 => self.skip(4, end),
            _ => Err(Fault::NoModel),
        }
    }

    /// Skips a group; only unknown fields are groups.
    fn skip_group(&mut self, group: u64, end: u64, depth: u32) -> Walked<()> {
        while self.at < end && depth <= MAX_DEPTH {
            let (number, wire) = self.tag()?;
            match wire {
                4 if number == group => return Ok(()),
                _ => self.skip_field(number, wire, end, depth)?,
            }
        }
        Err(Fault::NoModel)
    }

    /// The number and the wire type of a field.
    fn tag(&mut self) -> Walked<(u64, u64)> {
        as_tag(self.varint()?)
    }

    fn varint(&mut self) -> Walked<u64> {
        let mut found = varint_in(self.file.ahead());
        if found.is_none() {
            // It may go on in the next block; at the end of the file there are fewer bytes than the
            // longest has.
            self.file.fill(MAX_VARINT)?;
            found = varint_in(self.file.ahead());
        }
        let (value, len) = found.ok_or(Fault::NoModel)?;
        self.pass(len)?;
        Ok(value)
    }

    /// Moves past bytes of the current block.
    fn pass(&mut self, len: usize) -> Walked<()> {
        self.file.consume(len);
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        self.at = self.at.saturating_add(len);
        self.count(len)
    }

    fn skip(&mut self, len: u64, end: u64) -> Walked<()> {
        let to = self.at.checked_add(len).filter(|to| *to <= end).ok_or(Fault::NoModel)?;
        let seeks = self.file.skip(len)?;
        self.at = to;
        // A skip past the end of the current block makes the reader read another one.
        self.count(if seeks { BLOCK as u64 } else { 1 })
    }

    fn count(&mut self, bytes: u64) -> Walked<()> {
        self.read = self.read.saturating_add(bytes);
        if self.read > MAX_READ { Err(Fault::TooLong) } else { Ok(()) }
    }
}

/// A walk over a message in memory.
struct InMemory<'w> {
    ways: &'static Ways,
    found: &'w mut Found,
}

impl InMemory<'_> {
    fn child(&mut self, child: Child, bytes: &[u8], depth: u32) -> Walked<()> {
        match child {
            Child::Message(message) => self.message(message, bytes, depth),
            Child::Entry => self.entry(bytes, depth),
        }
    }

    fn message(&mut self, message: usize, mut bytes: &[u8], depth: u32) -> Walked<()> {
        let is_tensor = message == self.ways.tensor;
        if is_tensor {
            self.found.begin();
        }
        while !bytes.is_empty() {
            let (number, wire) = as_tag(varint(&mut bytes)?)?;
            if depth > MAX_DEPTH {
                return Err(Fault::NoModel);
            }
            match self.ways.child(message, number).filter(|_| wire == 2) {
                Some(child) => {
                    let (inner, is_cut) = truncated(&mut bytes)?;
                    self.found.is_cut |= is_cut;
                    self.child(child, inner, depth + 1)?;
                }
                None if is_tensor => self.tensor_field(&mut bytes, number, wire, depth)?,
                None => skip_field(&mut bytes, number, wire, depth)?,
            }
        }
        if is_tensor {
            self.found.end();
        }
        Ok(())
    }

    /// Reads a field of a tensor that is a number, or skips another one.
    fn tensor_field(
        &mut self,
        bytes: &mut &[u8],
        number: u64,
        wire: u64,
        depth: u32,
    ) -> Walked<()> {
        match (number, wire) {
            (_, 0) => self.found.number(number, varint(bytes)?),
            (DIMS, 2) => {
                let mut packed = payload(bytes)?;
                while !packed.is_empty() {
                    self.found.number(DIMS, varint(&mut packed)?);
                }
            }
            _ => skip_field(bytes, number, wire, depth)?,
        }
        Ok(())
    }

    /// Reads an entry, a key and a value. Where one occurs several times, the last one counts.
    fn entry(&mut self, mut bytes: &[u8], depth: u32) -> Walked<()> {
        let (mut key, mut value) = (None, None);
        while !bytes.is_empty() {
            let (number, wire) = as_tag(varint(&mut bytes)?)?;
            let slot = match number {
                number if number == self.ways.key => Some(&mut key),
                number if number == self.ways.value => Some(&mut value),
                _ => None,
            };
            match slot.filter(|_| wire == 2) {
                Some(slot) => {
                    let text = payload(&mut bytes)?;
                    *slot = Some(text).filter(|text| text.len() <= MAX_TEXT);
                }
                None => skip_field(&mut bytes, number, wire, depth)?,
            }
        }
        self.found.entry(key, value);
        Ok(())
    }
}

fn skip_field(bytes: &mut &[u8], number: u64, wire: u64, depth: u32) -> Walked<()> {
    match wire {
        0 => varint(bytes).map(drop),
        1 => take(bytes, 8).map(drop),
        2 => payload(bytes).map(drop),
        3 => skip_group(bytes, number, depth + 1),
        5 => take(bytes, 4).map(drop),
        _ => Err(Fault::NoModel),
    }
}

fn skip_group(bytes: &mut &[u8], group: u64, depth: u32) -> Walked<()> {
    while !bytes.is_empty() && depth <= MAX_DEPTH {
        let (number, wire) = as_tag(varint(bytes)?)?;
        match wire {
            4 if number == group => return Ok(()),
            _ => skip_field(bytes, number, wire, depth)?,
        }
    }
    Err(Fault::NoModel)
}

/// Removes the first `len` bytes.
#[inline]
fn take<'b>(bytes: &mut &'b [u8], len: usize) -> Walked<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or(Fault::NoModel)?;
    *bytes = rest;
    Ok(taken)
}

#[inline]
fn varint(bytes: &mut &[u8]) -> Walked<u64> {
    let (value, len) = varint_in(bytes).ok_or(Fault::NoModel)?;
    take(bytes, len)?;
    Ok(value)
}

/// Removes a length and that many bytes.
#[inline]
fn payload<'b>(bytes: &mut &'b [u8]) -> Walked<&'b [u8]> {
    let len = varint(bytes)?;
    take(bytes, usize::try_from(len).map_err(|_| Fault::NoModel)?)
}

/// As [`payload`], or fewer bytes and true where the file is truncated.
fn truncated<'b>(bytes: &mut &'b [u8]) -> Walked<(&'b [u8], bool)> {
    let len = usize::try_from(varint(bytes)?).unwrap_or(usize::MAX);
    let there = len.min(bytes.len());
    Ok((take(bytes, there)?, there < len))
}

/// The number and the wire type of a field, from its tag.
#[inline]
fn as_tag(tag: u64) -> Walked<(u64, u64)> {
    let (number, wire) = (tag >> 3, tag & 7);
    match number {
        1..0x2000_0000 => Ok((number, wire)),
        _ => Err(Fault::NoModel),
    }
}

/// The length of the longest varint, in bytes.
const MAX_VARINT: usize = 10;

/// The varint at the start of `bytes`, and its length.
#[inline]
fn varint_in(bytes: &[u8]) -> Option<(u64, usize)> {
    match bytes {
        [byte, ..] if *byte < 0x80 => Some((u64::from(*byte), 1)),
        _ => long_varint_in(bytes),
    }
}

fn long_varint_in(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (i, byte) in bytes.iter().take(MAX_VARINT).enumerate() {
        let shift = 7 * u32::try_from(i).ok()?;
        value |= u64::from(byte & 0x7F).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some((value, i + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{
        AttributeProto, FunctionProto, GraphProto, Message, ModelProto, NodeProto,
        SparseTensorProto, StringStringEntryProto, TensorProto, TrainingInfoProto,
    };

    fn external(location: &str) -> TensorProto {
        TensorProto::external("w", TensorProto::FLOAT, [1], location)
    }

    fn node(attribute: AttributeProto) -> NodeProto {
        let mut node = NodeProto::new("Op", ["x"], ["y"]);
        node.attribute = vec![attribute];
        node
    }

    /// A model with external initializers.
    fn of(locations: &[&str]) -> Vec<u8> {
        let mut graph = GraphProto::new("g");
        graph.initializer = locations.iter().map(|location| external(location)).collect();
        ModelProto::new(graph).encode_to_vec().unwrap()
    }

    fn skimmed(bytes: &[u8]) -> Skimmed {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        skim(file.path()).unwrap()
    }

    fn locations(bytes: &[u8]) -> String {
        skimmed(bytes).locations.into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_place_is_found() {
        let mut inner = GraphProto::new("inner");
        inner.initializer = vec![external("subgraph")];
        let sparse = |n: &str| {
            let indices = external(&format!("{n}_indices"));
            SparseTensorProto::new(external(&format!("{n}_values")), indices, [1])
        };
        let mut graph = GraphProto::new("g");
        graph.initializer = vec![external("./initializer")];
        graph.sparse_initializer.push(sparse("sparse"));
        graph.node = vec![
            node(AttributeProto::tensor("a", external("attribute"))),
            node(AttributeProto::tensors("a", vec![external("list")])),
            node(AttributeProto::graph("a", inner.clone())),
            node(AttributeProto::sparse_tensor("a", sparse("one"))),
            node(AttributeProto::sparse_tensors("a", vec![sparse("many")])),
        ];
        let mut model = ModelProto::new(graph);
        // Metadata with the key of an external entry is not an external entry.
        model.metadata_props.push(StringStringEntryProto::new("location", "remark"));
        let mut function = FunctionProto::new("d", "F");
        function.node = vec![node(AttributeProto::tensor("a", external("function")))];
        function.attribute_proto = vec![AttributeProto::tensor("a", external("default"))];
        model.functions = vec![function];
        let mut training = TrainingInfoProto::default();
        inner.initializer = vec![external("training")];
        training.algorithm = Some(Box::new(inner));
        model.training_info.push(training);

        let expected = "attribute default function initializer list many_indices many_values \
                        one_indices one_values sparse_indices sparse_values subgraph training";
        assert_eq!(locations(&model.encode_to_vec().unwrap()), expected);
    }

    /// A record of a message: its field, and its bytes.
    fn record(field: u8, bytes: &[u8]) -> Vec<u8> {
        let mut len = bytes.len();
        let mut record = vec![field << 3 | 2];
        while len >= 0x80 {
            record.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
            len >>= 7;
        }
        record.push(u8::try_from(len).unwrap());
        [record, bytes.to_vec()].concat()
    }

    #[test]
    fn an_entry_longer_than_a_block_is_read() {
        let long = vec![b'x'; 2 * blocks::BLOCK];
        for (long, expected) in [(record(2, &long), "w.bin"), (record(9, &long), "w.bin")] {
            let entry = [record(1, b"location"), long, record(2, b"w.bin")].concat();
            let tensor = [record(13, &entry), vec![14 << 3, 1]].concat();
            let bytes = [vec![8, 10], record(7, &record(5, &tensor))].concat();
            assert_eq!(locations(&bytes), expected);
        }
        // The last value counts, and no path is so long.
        let entry = [record(1, b"location"), record(2, b"w.bin"), record(2, &long)].concat();
        let bytes = record(7, &record(5, &record(13, &entry)));
        assert_eq!(locations(&[vec![8, 10], bytes].concat()), "");
    }

    #[test]
    fn what_is_not_a_model_refers_to_nothing() {
        let text = b"version https://git-lfs.github.com/spec/v1\n";
        let safetensors = b"\x40\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F32\"";
        let cases = [
            &b""[..],
            b"\x3b",
            b"\x3a\x03\x2a\x09\x4a",
            b"\x12\x09",
            b"\xff",
            b"\0\0\0\0",
            b"\0\0\x80\x3f",
            text,
            safetensors,
            b"{\"a\": 1}",
            b"PK\x03\x04",
            b"\x93NUMPY",
            &[8; 5000],
            &[b'P'; 5000],
            &[0xff; 50],
        ];
        for bytes in cases {
            // Of no bytes, or of few, the walk may come to the end.
            let found = Skimmed { is_whole: false, ..skimmed(bytes) };
            assert_eq!(found, Skimmed::default(), "{bytes:?}");
        }
        for path in [".", "/dev/null", "no such file"] {
            assert_eq!(skim(Path::new(path)).unwrap(), Skimmed::default(), "{path}");
        }
    }

    #[test]
    fn no_part_of_a_graph_is_whole() {
        let model = of(&["a.bin", "b.bin"]);
        let graph = model.iter().position(|byte| *byte == 7 << 3 | 2).unwrap();
        for end in graph + 2..model.len() {
            assert!(!skimmed(&model[..end]).is_whole, "{end}");
        }
        assert!(skimmed(&model).is_whole);
    }

    #[test]
    fn zeros_end_the_walk_however_many_there_are() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 << 40).unwrap();
        assert_eq!(skim(file.path()).unwrap(), Skimmed::default());
    }

    #[test]
    fn a_file_that_goes_on_for_ever_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), of(&["w"])).unwrap();
        let mut walk = Walk::new(file.reopen().unwrap()).unwrap();
        walk.read = MAX_READ - 20;
        let end = walk.len;
        assert!(matches!(walk.model(end, &mut false), Err(Fault::TooLong)));
    }

    #[test]
    fn unknown_groups_are_passed_over() {
        let model = of(&["w.data"]);
        // Field 99: a group of a varint, a string and an empty group.
        let group = b"\x9b\x06\x08\x01\x12\x01w\x1b\x1c\x9c\x06";
        let bytes = [&group[..], &model].concat();
        assert!(ModelProto::decode(&bytes.clone().into()).is_ok());
        assert_eq!(locations(&bytes), "w.data");
        // A group that another one ends.
        let wrong = b"\x9b\x06\x08\x01\x12\x01w\x1b\x1c\x94\x06";
        assert_eq!(skimmed(&[&wrong[..], &model].concat()), Skimmed::default());
        assert_eq!(skimmed(&[0x1b].repeat(1000)), Skimmed::default());
    }

    #[test]
    fn unknown_fields_of_every_kind_are_passed_over_wherever_they_are() {
        let kinds: [(&str, &[u8]); 5] = [
            ("a number", b"\x98\x06\xff\x01"),
            ("8 bytes", b"\x99\x06\x0a\x01a\x6a\0\0\0\0"),
            ("text", b"\x9a\x06\x02\x6a\x01"),
            ("a group", b"\x9b\x06\x09\x6a\0\0\0\0\0\0\0\x13\x1b\x08\x01\x1c\x14\x9c\x06"),
            ("4 bytes", b"\x9d\x06\x6a\x01a\0"),
        ];
        let long = vec![b'x'; 2 * blocks::BLOCK];
        for (kind, unknown) in kinds {
            for pad in [record(9, &[]), record(9, &long)] {
                let location = [record(1, b"location"), unknown.to_vec(), record(2, b"w")].concat();
                let entry = record(13, &[pad.clone(), location].concat());
                let tensor = record(5, &[unknown, &entry, unknown, &[14 << 3, 1]].concat());
                let graph = record(7, &[unknown, &pad, unknown, &tensor].concat());
                let bytes = [&[8, 10], unknown, &graph, unknown].concat();
                assert_eq!(locations(&bytes), "w", "{kind}");
            }
        }
        // Fields that end beyond what holds them, and groups without an end.
        for (kind, unknown) in kinds {
            for len in 1..unknown.len() {
                let cut = record(7, &record(5, &unknown[..len]));
                let found = skimmed(&[&[8, 10][..], &cut, &of(&["w"])].concat());
                assert_eq!(found.locations, BTreeSet::new(), "{kind}, {len}");
            }
        }
    }

    #[test]
    fn messages_nest_as_deep_as_for_the_decoder() {
        for pad in [vec![], vec![b'x'; 2 * blocks::BLOCK]] {
            for (levels, expected) in [(20, "w"), (60, "")] {
                let tensor = external("w").encode_to_vec().unwrap();
                let mut graph = [record(2, &pad), record(5, &tensor)].concat();
                for _ in 0..levels {
                    graph = record(1, &record(5, &record(6, &graph)));
                }
                let bytes = [vec![8, 10], record(7, &graph)].concat();
                assert_eq!(locations(&bytes), expected, "{levels} of {} bytes", pad.len());
            }
        }
    }

    #[test]
    fn a_model_that_is_cut_off_still_needs_its_files() {
        let mut model = ModelProto::decode(&of(&["first", "second"]).into()).unwrap();
        model.ir_version = Some(8);
        let bytes = model.encode_to_vec().unwrap();
        let found = skimmed(&bytes[..bytes.len() - 8]);
        assert_eq!(found.locations, BTreeSet::from(["first".to_owned()]));
        assert!(found.is_model);
        assert!(found.is_certain && skimmed(&bytes).is_certain);
        let start = skimmed(&bytes[..8]);
        assert!(start.is_model && !start.is_certain && start.locations.is_empty());
    }

    #[test]
    fn fields_that_cross_blocks_are_read() {
        for pad in BLOCK - 40..BLOCK + 4 {
            let mut graph = GraphProto::new("g".repeat(pad).as_str());
            graph.initializer = vec![external("first"), external(&"s".repeat(200))];
            let bytes = ModelProto::new(graph).encode_to_vec().unwrap();
            let found = skimmed(&bytes);
            assert!(found.is_model && found.locations.len() == 2, "{pad}: {found:?}");
        }
    }
}
