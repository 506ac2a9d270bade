//! Casts the weights of a model: the other side of tests/interop/cast.py.
//!
//! `cast IN OUT FROM TO MIN_BYTES [compute] [io]` saves the model IN with its FROM weights as TO;
//! IN may be `generate`: then a model of MIN_BYTES mebibytes of FLOAT weights, which are made while
//! they are saved. With `compute` the graph computes in TO, and with `io` its inputs and outputs
//! are TO, too.

use std::env::args;
use std::error::Error;

use onnx_container::edit::CastOptions;
use onnx_container::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Container, DataType, Initializer, MmapChoice, SaveOptions};

fn dtype(name: &str) -> Result<DataType, String> {
    match name {
        "FLOAT" => Ok(DataType::Float),
        "FLOAT16" => Ok(DataType::Float16),
        "BFLOAT16" => Ok(DataType::Bfloat16),
        other => Err(format!("`{other}` is not cast")),
    }
}

/// The weights are 64 MiB each, and their elements count from 0 to 1023, again and again.
fn generated(mib: usize) -> Result<Container, Box<dyn Error>> {
    const ELEMENTS: u32 = 16 << 20;
    let mut graph = GraphProto::new("generated");
    let names: Vec<_> = (0..mib.div_ceil(64)).map(|number| format!("w{number}")).collect();
    for name in &names {
        let place = TensorProto::external(
            name,
            TensorProto::FLOAT,
            [i64::from(ELEMENTS)],
            format!("#{name}"),
        );
        graph.initializer.push(place);
    }
    graph.node.push(NodeProto::new("Sum", names.iter().map(String::as_str), ["y"]));
    graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [i64::from(ELEMENTS)]));
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    let mut container = Container::new(model);
    for name in &names {
        let weight = Initializer::lazy(DataType::Float, [i64::from(ELEMENTS)], || {
            let part: Vec<u8> = (0_u16..1024).flat_map(|i| f32::from(i).to_le_bytes()).collect();
            Ok(part.repeat(16 << 10))
        })?;
        container.insert(&format!("#{name}"), weight)?;
    }
    Ok(container)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = args().skip(1).collect();
    let [input, output, from, to, number, how @ ..] = arguments.as_slice() else {
        return Err("usage: cast IN OUT FROM TO MIN_BYTES [compute] [io]".into());
    };
    let says = |word: &str| how.iter().any(|other| other == word);
    let (mut container, options) = if input == "generate" {
        (generated(number.parse()?)?, CastOptions::new())
    } else {
        // SAFETY: the test that runs this neither writes to nor truncates its models meanwhile.
        #[allow(unsafe_code)]
        let map = unsafe { MmapChoice::auto() };
        (Container::load(input, map)?, CastOptions::new().min_bytes(number.parse()?))
    };
    let options = options.from_dtype(dtype(from)?).compute(says("compute")).keep_io(!says("io"));
    let cast = container.cast(dtype(to)?, options)?;
    container.save(output, SaveOptions::new().sync(false))?;
    let (uncast, kept) = (cast.uncast.len(), cast.kept_nodes.len());
    println!(
        "{} {} {} {uncast} {} {kept}",
        cast.cast, cast.bytes_before, cast.bytes_after, cast.nodes
    );
    Ok(())
}
