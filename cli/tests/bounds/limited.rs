//! Runs that would need gigabytes, under a limit of the address space: each ends with exit code 0
//! or an error that a person can act on, and `--max-memory` bounds the process.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Buffer, DataType, Tensor};

use crate::measured::{Measured, measure};

/// What the address space of a process is limited to, in bytes.
const LIMIT: u64 = 1 << 30;
/// The `--max-memory` of every run that has one, in bytes, and what a process may have beside it.
const MOST: u64 = 100 << 20;
const BESIDE: u64 = 128 << 20;
/// The elements of the weights, one byte each: summed up as 16 bytes each, they would be above all
/// limits.
const WEIGHTS: u64 = 16 << 20;
/// The zeros in an npz file, in bytes.
const ZEROS: u64 = 3 << 30;

fn model(inputs: Vec<ValueInfoProto>, node: NodeProto, weights: bool) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.input = inputs;
    if weights {
        let mut tensor = TensorProto::default();
        tensor.name = Some("w".into());
        tensor.dims = vec![i64::try_from(WEIGHTS).unwrap()];
        tensor.data_type = Some(TensorProto::UINT8);
        tensor.data_location = Some(1);
        let mut entry = StringStringEntryProto::default();
        (entry.key, entry.value) = (Some("location".into()), Some("weights".into()));
        tensor.external_data = vec![entry];
        graph.initializer.push(tensor);
    }
    graph.node.push(node);
    let mut output = ValueInfoProto::default();
    output.name = Some("y".into());
    graph.output.push(output);
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

/// Bits in the order in which deflate has them.
#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn push(&mut self, bits: &str) {
        self.0.extend(bits.bytes().map(|bit| bit == b'1'));
    }

    fn bytes(&self) -> Vec<u8> {
        let byte =
            |bits: &[bool]| (0..).zip(bits).fold(0, |sum, (i, bit)| sum | u8::from(*bit) << i);
        self.0.chunks(8).map(byte).collect()
    }
}

/// `head` and about `ZEROS` zeros, deflated: a stored block, then one that repeats 258 zeros with
/// 13 bits.
fn deflated(head: &[u8]) -> Vec<u8> {
    const REPEAT: &str = "1100010100000";
    let len = u16::try_from(head.len()).unwrap();
    let mut out = [&[0][..], &len.to_le_bytes(), &(!len).to_le_bytes(), head].concat();
    // The last block, of the fixed codes; a zero.
    let mut bits = Bits::default();
    bits.push("110");
    bits.push("00110000");
    bits.push(&REPEAT.repeat(16));
    let bytes = bits.bytes();
    out.extend(&bytes[..2]);
    // Eight are 13 bytes.
    out.extend(bytes[2..15].repeat(usize::try_from(ZEROS / 258 / 8).unwrap()));
    let mut end = Bits::default();
    end.push(&REPEAT[5..]);
    end.push("0000000");
    out.extend(end.bytes());
    out
}

/// A zip archive with one deflated entry.
fn zip(name: &str, deflated: &[u8]) -> Vec<u8> {
    let [len, stored] = [ZEROS, deflated.len() as u64].map(|len| u32::try_from(len).unwrap());
    let mut common = Vec::new();
    // Version, flags, deflate, time, date.
    for number in [20_u16, 0, 8, 0, 0x21] {
        common.extend(number.to_le_bytes());
    }
    for number in [0, stored, len] {
        common.extend(number.to_le_bytes());
    }
    common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
    common.extend([0; 2]);
    let local = [b"PK\x03\x04", &common[..], name.as_bytes(), deflated].concat();
    let central = [b"PK\x01\x02\x14\0", &common[..], &[0; 14], name.as_bytes()].concat();
    let mut end = b"PK\x05\x06\0\0\0\0\x01\0\x01\0".to_vec();
    for number in [central.len(), local.len()] {
        end.extend(u32::try_from(number).unwrap().to_le_bytes());
    }
    end.extend([0; 2]);
    [local, central, end].concat()
}

/// The header of an npy file of bytes.
fn npy(shape: &str) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n");
    let len = u16::try_from(header.len()).unwrap();
    [b"\x93NUMPY\x01\0", &len.to_le_bytes()[..], header.as_bytes()].concat()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, model: &ModelProto| {
        fs::write(folder.path().join(name), model.encode_to_vec().unwrap()).unwrap();
    };
    let identity = || NodeProto::new("Identity", ["x"], ["y"]);
    let input = |ty, dims: &[i64]| vec![ValueInfoProto::tensor("x", ty, dims.iter().copied())];
    save("bytes.onnx", &model(input(DataType::Uint8, &[3]), identity(), false));
    let open = ValueInfoProto::tensor_with("x", DataType::Uint8, ["n".into()]);
    save("open.onnx", &model(vec![open], identity(), false));
    save("strings.onnx", &model(input(DataType::String, &[1 << 20, 8]), identity(), false));
    save("floats.onnx", &model(input(DataType::Float, &[40_000, 4000]), identity(), false));
    // Other models of the same interface, so that both are run.
    let other = |ty, dims, node| model(input(ty, dims), node, false);
    let concat = NodeProto::new("StringConcat", ["x", "x"], ["y"]);
    save("other-strings.onnx", &other(DataType::String, &[1 << 20, 8], concat));
    let abs = NodeProto::new("Abs", ["x"], ["y"]);
    save("other-floats.onnx", &other(DataType::Float, &[40_000, 4000], abs));
    save("large.onnx", &model(vec![], NodeProto::new("Identity", ["w"], ["y"]), true));
    save("less.onnx", &model(vec![], NodeProto::new("BitwiseNot", ["w"], ["y"]), true));
    save("split.onnx", &model(vec![], NodeProto::new("SplitToSequence", ["w"], ["y"]), true));
    let weights = File::create(folder.path().join("weights")).unwrap();
    weights.set_len(WEIGHTS).unwrap();
    fs::write(folder.path().join("x.npy"), [npy("(3,)"), vec![0; 3]].concat()).unwrap();
    for (name, head) in [
        ("none", vec![0; 16]),
        ("fits", npy("(3,)")),
        ("other", npy("(3221225472,)")),
        ("huge", npy("(1099511627776,)")),
    ] {
        fs::create_dir(folder.path().join(name)).unwrap();
        let path = folder.path().join(name).join("inputs.npz");
        fs::write(&path, zip("x.npy", &deflated(&head))).unwrap();
        let entry = zip("y.npy", &deflated(&head));
        fs::write(folder.path().join(name).join("outputs.npz"), entry).unwrap();
    }
    folder
}

/// Runs the command, with its address space limited.
fn limited(folder: &Path, args: &[&str]) -> (Measured, String) {
    let mut process = Command::new("/bin/sh");
    let limit = format!("ulimit -v {}; kill -STOP $$; exec \"$@\"", LIMIT >> 10);
    process.args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_onnx-container")]);
    process.args(args).current_dir(folder);
    let [out, err] = ["stdout", "stderr"].map(|name| folder.join(name));
    process.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let measured = measure(process);
    (measured, [out, err].map(|path| fs::read_to_string(path).unwrap()).concat())
}

#[test]
fn runs_keep_to_their_memory() {
    let folder = folder();
    let program = limited(folder.path(), &["--version"]).0.peak;
    let most = MOST.to_string();
    let mut cases: Vec<(Vec<&str>, i32, &str)> = Vec::new();
    // Files: what they have is known from their headers.
    let inputs = ["none/inputs.npz", "fits/inputs.npz", "other/inputs.npz", "huge/inputs.npz"];
    let reasons = [
        "does not begin with the npy magic number",
        "has more after its header",
        "its shape is",
        "its shape is",
    ];
    let given = inputs.map(|path| format!("x={path}"));
    for ((path, input), reason) in inputs.iter().zip(&given).zip(reasons) {
        let dir = path.split('/').next().unwrap();
        cases.push((vec!["run", "bytes.onnx", "--input", input], 1, reason));
        cases.push((vec!["run", "bytes.onnx", "--input-dir", dir], 1, reason));
        cases.push((vec!["trace", "bytes.onnx", "--input", input], 1, reason));
        // Another shape is a difference; what cannot be read is not compared.
        let (code, reason) = match reason {
            "its shape is" => (1, "the shape is"),
            reason => (2, reason),
        };
        let expect = vec!["run", "bytes.onnx", "--input", "x=x.npy", "--expect", dir];
        cases.push((expect, code, reason));
    }
    for input in &given[2..] {
        cases.push((vec!["run", "open.onnx", "--input", input], 1, "memory"));
        cases.push((
            vec!["run", "open.onnx", "--input", input, "--max-memory", &most],
            1,
            "memory",
        ));
    }
    // Values by a seed are counted before they are made.
    for [model, other] in
        [["strings.onnx", "other-strings.onnx"], ["floats.onnx", "other-floats.onnx"]]
    {
        for command in [&["run", model][..], &["trace", model], &["verify", model, other]] {
            let command = [command, &["--seed", "1", "--max-memory", &most]].concat();
            let code = if command[0] == "verify" { 2 } else { 1 };
            cases.push((command, code, "are left of the memory"));
        }
    }
    // What is said of values is made a part at a time.
    for command in [
        &["run", "large.onnx", "--max-memory", &most][..],
        &["run", "less.onnx", "--json", "--max-memory", &most],
        &["trace", "less.onnx", "--stats", "--max-memory", &most],
    ] {
        cases.push((command.to_vec(), 0, ""));
    }
    cases.push((vec!["run", "split.onnx", "--max-memory", &most], 1, "memory"));
    let mut failed = Vec::new();
    for (args, code, reason) in cases {
        let (Measured { peak, seconds, code: found }, said) = limited(folder.path(), &args);
        let peak = peak.saturating_sub(program);
        let mib = peak >> 20;
        let shown: String = said.chars().take(400).collect();
        let line = format!("{} exit {found}, {mib} MiB, {seconds:.2} s: {shown}", args.join(" "));
        println!("{line}");
        // The pages of mapped weights count as resident.
        let holds = peak <= MOST + BESIDE + WEIGHTS;
        if found != code || !said.contains(reason) || !holds {
            failed.push(line);
        }
    }
    assert!(failed.is_empty(), "{} runs:\n{}", failed.len(), failed.join("\n"));
}

/// The bytes of constants that operators count, and what a plan may take for each and at all, in
/// bytes.
const CONSTANT: usize = 8 << 20;
const PER_BYTE: u64 = 16;
const PLAN: u64 = 64 << 20;

/// The shape of an output is known by counting, and nothing that is counted is kept.
#[test]
fn plans_keep_nothing_of_what_they_count() {
    let one = |name: &str, inputs: &[&str], attribute: Option<AttributeProto>| {
        let outputs = if name == "StringSplit" { &["y", "n"][..] } else { &["y"] };
        let mut node = NodeProto::new(name, inputs.iter().copied(), outputs.iter().copied());
        node.attribute.extend(attribute);
        node
    };
    let strings = |strings: Vec<Buffer>| {
        let len = i64::try_from(strings.len()).unwrap();
        Tensor::from_strings([len], strings).unwrap().to_proto("w")
    };
    let bytes = |dims: &[i64], dtype| {
        Tensor::new(dtype, dims, Buffer::from(vec![1; CONSTANT])).unwrap().to_proto("w")
    };
    let words = || strings(vec![Buffer::from(b"ab".to_vec()); CONSTANT / 4]);
    let comma = || Some(AttributeProto::string("delimiter", ","));
    let upper = Some(AttributeProto::string("case_change_action", "UPPER"));
    let len = i64::try_from(CONSTANT).unwrap();
    let (rank, truths) = ([vec![1; 50], vec![len]].concat(), bytes(&[len], DataType::Bool));
    let cases = [
        (one("StringSplit", &["w"], comma()), strings(vec![Buffer::from(vec![b','; CONSTANT])])),
        (one("StringSplit", &["w"], comma()), words()),
        (one("StringNormalizer", &["w"], upper), words()),
        (one("NonZero", &["w"], None), bytes(&rank, DataType::Uint8)),
        (one("Compress", &["w", "w"], None), truths),
    ];
    let folder = tempfile::tempdir().unwrap();
    let program = limited(folder.path(), &["--version"]).0.peak;
    for (node, tensor) in cases {
        let what = format!("{:?} of {:?}", node.op_type, tensor.dims);
        let mut model = model(vec![], node, false);
        model.graph.as_mut().unwrap().initializer.push(tensor);
        let bytes = model.encode_to_vec().unwrap();
        fs::write(folder.path().join("m.onnx"), &bytes).unwrap();
        let (Measured { peak, code, .. }, said) = limited(folder.path(), &["plan", "m.onnx"]);
        let most = PLAN + PER_BYTE * bytes.len() as u64;
        let taken = peak.saturating_sub(program);
        println!("{what}: {} of {} MiB", taken >> 20, most >> 20);
        assert_eq!(code, 0, "{what}: {said}");
        assert!(taken <= most, "{what}: {taken} bytes, {most} are allowed");
    }
}
