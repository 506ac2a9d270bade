//! Messages that nest deeper than any reader accepts: no call overflows the stack, and none ends
//! well that has to go through all of them.

use std::fmt::Write;
use std::sync::Arc;
use std::thread::Builder;

use onnx_container::check::check_model;
use onnx_container::edit::{
    AttachOptions, CastOptions, ConsolidateOptions, ExternalizeOptions, FillOptions, MergeOptions,
    Tied, consolidate,
};
use onnx_container::graph::ShapeOperands;
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::load::Limit;
use onnx_container::proto::type_proto::{Map, Optional, Sequence, Value};
use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, TypeProto, ValueInfoProto,
};
use onnx_container::{
    Buffer, Container, DataType, Error, ErrorKind, Limits, LoadOptions, Outline, SaveOptions,
    WeightFiles, traversal,
};

use crate::support::{floats, function, model};

/// The deepest model that every reader accepts has this many graphs inside its main graph: each
/// takes three levels.
const ALLOWED: usize = 33;
const TOO_DEEP: usize = 10_000;
const STACK: usize = 512 << 10;

/// Graphs inside graphs, in one attribute or in the list of another, and one weight.
fn graphs(depth: usize) -> ModelProto {
    let mut inner = GraphProto::new("g");
    for level in 0..depth {
        let mut node = NodeProto::new("If", ["c"], [""; 0]);
        node.attribute.push(match level % 2 {
            0 => AttributeProto::graph("then_branch", inner),
            _ => AttributeProto::graphs("branches", [inner]),
        });
        inner = GraphProto::new("g");
        inner.node.push(node);
    }
    inner.initializer.push(floats("w", 0, 4));
    inner.input.push(ValueInfoProto::tensor("c", DataType::Bool, []));
    let mut model = model(inner);
    model.functions.push(function("f", &["x"], &["y"], vec![NodeProto::new("Abs", ["x"], ["y"])]));
    model
}

/// A type of a value that is a sequence of optional maps of sequences, and so on.
fn types(depth: usize) -> ModelProto {
    let mut of = TypeProto::tensor(DataType::Float, []);
    for level in 0..depth {
        let elem_type = Some(Box::new(of));
        let value = match level % 3 {
            0 => {
                let mut sequence = Sequence::default();
                sequence.elem_type = elem_type;
                Value::SequenceType(Box::new(sequence))
            }
            1 => {
                let mut optional = Optional::default();
                optional.elem_type = elem_type;
                Value::OptionalType(Box::new(optional))
            }
            _ => {
                let mut map = Map::default();
                map.value_type = elem_type;
                Value::MapType(Box::new(map))
            }
        };
        of = TypeProto::default();
        of.value = Some(value);
    }
    let mut graph = GraphProto::new("g");
    let mut info = ValueInfoProto::default();
    info.name = Some("x".into());
    info.r#type = Some(Box::new(of));
    graph.input.push(info.clone());
    graph.value_info.push(info);
    graph.initializer.push(floats("w", 0, 4));
    model(graph)
}

/// Whether a call goes through all that is inside, and cannot do its work where that is too deep.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Refused,
    Done,
}

type Call = fn(&Container) -> Result<(), Error>;

fn unit<T>(result: Result<T, Error>) -> Result<(), Error> {
    result.map(drop)
}

/// Every public call that goes through a model.
const CALLS: &[(&str, On, Call)] = &[
    ("clone", On::Done, |m| {
        drop(m.model().clone());
        Ok(())
    }),
    ("clone of the graph", On::Done, |m| {
        drop(m.model().graph.clone());
        Ok(())
    }),
    ("eq", On::Done, |m| {
        assert!(*m.model() == m.model().clone());
        Ok(())
    }),
    ("Debug", On::Done, |m| {
        let mut text = String::new();
        write!(text, "{m:?}").unwrap();
        assert!(text.contains("GraphProto {"));
        Ok(())
    }),
    ("encoded_len", On::Done, |m| {
        assert!(m.model().encoded_len() > 100);
        Ok(())
    }),
    ("strings", On::Done, |m| {
        let mut count = 0;
        m.model().strings(&mut |_| count += 1);
        assert!(count > 3);
        Ok(())
    }),
    ("lowest_ir_version", On::Done, |m| {
        assert!(m.model().lowest_ir_version() >= 8);
        Ok(())
    }),
    ("traversal::iter", On::Done, |m| {
        assert_eq!(traversal::iter(m.model()).count(), 1);
        Ok(())
    }),
    ("traversal::tensors_mut", On::Done, |m| {
        traversal::tensors_mut(&mut m.model().clone(), |_, _| Ok(()))
    }),
    ("summary", On::Refused, |m| Container::new(m.model().clone()).summary().map(drop)),
    ("stats", On::Refused, |m| Container::new(m.model().clone()).stats(|_| true).map(drop)),
    ("compare", On::Refused, |m| {
        let container = Container::new(m.model().clone());
        onnx_container::compare::compare(&container, &container).map(drop)
    }),
    ("traversal::graphs", On::Done, |m| traversal::graphs(m.model(), |_, _| Ok(()))),
    ("traversal::graphs_mut", On::Done, |m| {
        traversal::graphs_mut(&mut m.model().clone(), |_, _| Ok(()))
    }),
    ("ShapeOperands::of", On::Done, |m| {
        ShapeOperands::of(m.model());
        Ok(())
    }),
    ("tensors", On::Done, |m| {
        assert_eq!(m.tensors().len(), 1);
        Ok(())
    }),
    ("tensor", On::Done, |m| unit(m.tensor("w"))),
    ("consolidate", On::Done, |m| {
        unit(consolidate(&mut m.model().clone(), ConsolidateOptions::new()))
    }),
    ("Container::consolidate", On::Refused, |m| {
        unit(m.clone().consolidate(ConsolidateOptions::new()))
    }),
    ("replace", On::Done, |m| unit(m.clone().replace("w", vec![1.0_f32; 4], Tied::Refuse))),
    ("replace_retyped", On::Done, |m| {
        unit(m.clone().replace_retyped("w", vec![1.0_f64; 2], Tied::Refuse))
    }),
    ("declare", On::Refused, |m| unit(m.clone().declare())),
    ("prepare", On::Refused, |m| unit(m.prepare("m.onnx", true))),
    ("fill", On::Done, |m| {
        let weights = [("w".to_owned(), vec![1.0_f32; 4].into())];
        unit(m.clone().fill(weights, FillOptions::new()))
    }),
    ("into_model", On::Done, |m| {
        drop(m.clone().into_model());
        Ok(())
    }),
    ("check_nesting", On::Refused, |m| m.model().check_nesting(&Limits::new())),
    ("encode", On::Refused, |m| m.model().encode(&mut Vec::new())),
    ("encode_to_vec", On::Refused, |m| unit(m.model().encode_to_vec())),
    ("check", On::Refused, |m| m.check()),
    ("embed", On::Refused, |m| unit(m.embed())),
    ("into_embedded", On::Refused, |m| unit(m.clone().into_embedded())),
    ("save", On::Refused, |m| saved(m, SaveOptions::new())),
    ("save of weights files", On::Refused, |m| saved(m, WeightFiles::PerTensor.into())),
    ("save with digests", On::Refused, |m| saved(m, SaveOptions::new().digests(true))),
    ("save inlined", On::Refused, |m| saved(m, SaveOptions::new().inline_functions(true))),
    ("dry_run", On::Refused, |m| {
        let folder = tempfile::tempdir().unwrap();
        unit(m.dry_run(folder.path().join("m.onnx"), SaveOptions::new()))
    }),
    ("to_parts", On::Refused, |m| unit(m.to_parts(SaveOptions::new()))),
    ("digest", On::Refused, |m| unit(m.digest())),
    ("semantic_digest", On::Refused, |m| unit(m.semantic_digest())),
    ("semantic_difference", On::Refused, |m| unit(m.semantic_difference(m))),
    ("inline_functions", On::Refused, |m| {
        unit(inline_functions(&mut m.model().clone(), InlineOptions::new()))
    }),
    ("Container::inline_functions", On::Refused, |m| {
        unit(m.clone().inline_functions(InlineOptions::new()))
    }),
    ("cast", On::Refused, |m| {
        unit(m.clone().cast(DataType::Float16, CastOptions::new().min_bytes(0)))
    }),
    ("externalize", On::Refused, |m| {
        unit(m.clone().externalize(ExternalizeOptions::new().min_bytes(0)))
    }),
    ("strip", On::Refused, |m| unit(m.clone().strip(ExternalizeOptions::new().min_bytes(0)))),
    ("attach_model", On::Refused, |m| {
        let mut stripped = m.clone();
        drop(stripped.strip(ExternalizeOptions::new().min_bytes(0)));
        unit(stripped.attach_model(m, AttachOptions::new()))
    }),
    ("declare_type", On::Refused, |m| match m.clone().declare_type("w", "FLOAT[]") {
        Err(error) if error.kind() == ErrorKind::MissingTensor => Ok(()),
        other => other,
    }),
    ("extract_model", On::Refused, |m| unit(m.extract_model(&[""; 0], &["w"]))),
    ("merge", On::Refused, |m| unit(m.merge(m, MergeOptions::new().prefixes("a", "b")))),
    ("rename", On::Refused, |m| unit(m.clone().rename("w", "v"))),
    ("rename_input", On::Refused, |m| {
        let mut copy = m.clone();
        unit(copy.rename_input("c", "v").or_else(|_| copy.rename_input("x", "v")))
    }),
    ("metadata", On::Done, |m| {
        let mut copy = m.clone();
        copy.set_metadata("key", "value")?;
        unit(copy.remove_metadata("key"))
    }),
    ("add", On::Refused, |m| unit(m.clone().add_initializer("v", vec![1.0_f32]))),
    ("delete", On::Refused, |m| unit(m.clone().delete_initializer("w"))),
    ("delete_used_initializer", On::Refused, |m| unit(m.clone().delete_used_initializer("w"))),
];

fn saved(container: &Container, options: SaveOptions) -> Result<(), Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saved = container.save(&path, options);
    let files = folder.path().read_dir().unwrap().count();
    assert_eq!(saved.is_err(), files == 0);
    saved.map(drop)
}

/// Runs `work` on a stack as small as those that servers give to their threads.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    Builder::new().stack_size(STACK).spawn(work).unwrap().join().unwrap();
}

#[test]
fn every_call_works_at_the_limit_and_refuses_what_is_deeper() {
    let allowed = Arc::new([graphs(ALLOWED), types(ALLOWED)].map(Container::new));
    let too_deep = Arc::new([graphs(TOO_DEEP), types(TOO_DEEP)].map(Container::new));
    for (name, on, call) in CALLS {
        let (allowed, too_deep) = (allowed.clone(), too_deep.clone());
        on_small_stack(move || {
            for model in &*allowed {
                if let Err(error) = call(model) {
                    panic!("{name}: {error}");
                }
            }
            for model in &*too_deep {
                match (call(model), on) {
                    (Ok(()), On::Done) => {}
                    (Err(error), On::Refused) => {
                        assert_eq!(error.kind(), ErrorKind::TooLarge, "{name}: {error}");
                        let text = error.to_string();
                        assert!(text.contains("the limit `nesting`"), "{name}: {text}");
                    }
                    (result, _) => panic!("{name}: {result:?}"),
                }
            }
        });
    }
}

#[test]
fn what_is_written_can_be_read_and_what_cannot_be_read_is_not_written() {
    let raised = Limits::new().with(Limit::Nesting, 200);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut seen = [0, 0];
    let graphs = (ALLOWED - 2..=ALLOWED + 2).map(graphs);
    let types = (40..=52).map(types);
    for model in graphs.chain(types) {
        let bytes = model.encode_to_vec_with(&raised).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let bytes = Buffer::from(bytes);
        let read = Container::load_bytes(bytes.clone(), LoadOptions::new()).is_ok();
        seen[usize::from(read)] += 1;
        assert_eq!(ModelProto::decode(&bytes).is_ok(), read);
        assert_eq!(check_model(&path, LoadOptions::new()).is_ok(), read);
        assert_eq!(Outline::load(&path, LoadOptions::new()).is_ok(), read);
        let mut container = Container::new(model.clone());
        let options = || SaveOptions::new().weight_files(WeightFiles::Embedded);
        assert_eq!(model.encode_to_vec().is_ok(), read);
        assert_eq!(container.check().is_ok(), read);
        assert_eq!(container.to_parts(options()).is_ok(), read);
        container.set_limits(raised);
        container.check().unwrap();
        // A container that was loaded so is also saved so.
        let loaded = Container::load_bytes(bytes, LoadOptions::new().limits(raised)).unwrap();
        loaded.save(folder.path().join("again.onnx"), options()).unwrap();
        loaded.digest().unwrap();
    }
    assert!(seen[0] > 3 && seen[1] > 3, "{seen:?}");
}
