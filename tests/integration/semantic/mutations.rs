//! Thousands of models that differ from another in one place: their digests differ where they
//! compute something else, and only there.
//!
//! What they compute is told by `flow`, which shares no code with the digest.

use std::collections::HashMap;
use std::path::PathBuf;

use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, Str, TensorProto,
};
use onnx_container::traversal::{self, BodyMut};
use onnx_container::{Buffer, Container};

use crate::flow::{Flow, flow_of};
use crate::random_models::{Choices, Flavour, random_model};
use crate::support::real_models;

/// How many changes are tried.
const CHANGES: usize = 10_000;
/// Models of less than this many bytes; larger ones take too long to be digested thousands of
/// times.
const SMALL: u64 = 1500;
/// The kind of a change that matters whether or not anything uses the input.
const DEFAULT: &str = "a bit of the default of an input";
/// The kind of a change that takes a parameter from a call. It may be one that an operator in the
/// body has a default for, and the same: the oracle has no defaults.
const PARAMETER: &str = "the name of a parameter";
/// How many of the real models there are at most in the corpus.
const REAL: usize = 120;

struct Base {
    model: ModelProto,
    flow: Flow,
    digest: String,
}

fn digest(model: &ModelProto) -> Option<String> {
    let digest = Container::new(model.clone()).semantic_digest();
    digest.ok().map(|digest| digest.to_string())
}

/// Models that the oracle can read, without what it sees and the digest does not: training graphs.
fn corpus() -> Vec<Base> {
    let random = (0..200).map(|seed| {
        let flavour = if seed % 2 == 0 { Flavour::Anything } else { Flavour::Runnable };
        random_model(Choices::seeded(seed), flavour)
    });
    let random = random.filter(|model| model.encoded_len() < SMALL);
    let small = |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.len() < SMALL);
    let real = real_models().into_iter().filter(small);
    let real = real.filter_map(|path| std::fs::read(path).ok());
    let mut real: Vec<_> =
        real.filter_map(|bytes| ModelProto::decode(&Buffer::from(bytes)).ok()).collect();
    let step = real.len().div_ceil(REAL).max(1);
    real = real.into_iter().step_by(step).collect();
    let base = |mut model: ModelProto| {
        model.training_info.clear();
        // The oracle does not find functions that call themselves.
        let digest = digest(&model)?;
        let flow = flow_of(&model).ok()?;
        Some(Base { model, flow, digest })
    };
    let corpus: Vec<_> = random.chain(real).filter_map(base).collect();
    assert!(corpus.len() > 100, "only {} models", corpus.len());
    corpus
}

fn pick_index(choices: &mut Choices, len: usize) -> Option<usize> {
    (len > 0).then(|| choices.below(len))
}

/// Flips one bit of the tensor, which may be one that is not stored in this way.
fn flip(choices: &mut Choices, tensor: &mut TensorProto) -> Option<()> {
    let raw = tensor.raw_data.as_mut()?;
    let place = pick_index(choices, raw.len())?;
    let mut bytes = raw.to_vec();
    bytes[place] ^= 1 << choices.below(8);
    *raw = bytes.into();
    Some(())
}

fn change_attribute(choices: &mut Choices, attribute: &mut AttributeProto) -> Option<()> {
    match attribute.r#type? {
        AttributeProto::INT => {
            attribute.i = Some(attribute.i.unwrap_or(0) ^ (1 << choices.below(63)))
        }
        AttributeProto::FLOAT => {
            let bits = attribute.f.unwrap_or(0.0).to_bits() ^ (1 << choices.below(32));
            attribute.f = Some(f32::from_bits(bits));
        }
        AttributeProto::STRING => {
            let text = attribute.s.as_deref().unwrap_or_default();
            attribute.s = Some([text, b"!"].concat().into());
        }
        AttributeProto::INTS if choices.chance(30) => attribute.ints.push(1),
        AttributeProto::INTS => {
            let place = pick_index(choices, attribute.ints.len())?;
            attribute.ints[place] ^= 1 << choices.below(63);
        }
        AttributeProto::FLOATS => attribute.floats.push(0.0),
        AttributeProto::TENSOR => flip(choices, attribute.t.as_mut()?)?,
        _ => return None,
    }
    Some(())
}

/// The names that node `index` may use: what nodes before it give, and the inputs.
fn earlier(inputs: Vec<Str>, nodes: &[NodeProto], index: usize) -> Vec<Str> {
    let outputs = nodes[..index].iter().flat_map(|node| node.output.clone());
    inputs.into_iter().chain(outputs).filter(|name| !name.is_empty()).collect()
}

fn names_of(graph: &GraphProto) -> Vec<Str> {
    let inputs = graph.input.iter().filter_map(|input| input.name.clone());
    inputs.chain(graph.initializer.iter().filter_map(|tensor| tensor.name.clone())).collect()
}

/// Makes one change in a body; `None` when there is nothing of the kind that was chosen.
fn change_body(choices: &mut Choices, body: BodyMut<'_>) -> Option<&'static str> {
    let kinds = if choices.chance(10) { 9 } else { 8 };
    let kind = choices.below(kinds);
    let inputs = match &body {
        BodyMut::Graph(graph) => names_of(graph),
        BodyMut::Function(function) => function.input.clone(),
    };
    let body = match (kind, body) {
        (0, BodyMut::Graph(graph)) => {
            let place = pick_index(choices, graph.initializer.len())?;
            flip(choices, &mut graph.initializer[place])?;
            let name = &graph.initializer[place].name;
            let is_default = graph.input.iter().any(|input| input.name == *name);
            return Some(if is_default { DEFAULT } else { "a bit of a weight" });
        }
        (1, BodyMut::Graph(graph)) => {
            let place = pick_index(choices, graph.output.len())?;
            let names = earlier(names_of(graph), &graph.node, graph.node.len());
            let index = pick_index(choices, names.len())?;
            graph.output[place].name = Some(names[index].clone());
            return Some("an output");
        }
        (8, BodyMut::Graph(graph)) => {
            graph.doc_string = Some(Box::new("changed".into()));
            graph.name = Some("changed".into());
            return Some("words");
        }
        (_, body) => body,
    };
    let nodes = body.nodes();
    let index = pick_index(choices, nodes.len())?;
    let before = earlier(inputs, nodes, index);
    let node = &mut nodes[index];
    match kind {
        3 => {
            let place = pick_index(choices, node.attribute.len())?;
            change_attribute(choices, &mut node.attribute[place])?;
            Some("an attribute")
        }
        4 => {
            let place = pick_index(choices, node.attribute.len())?;
            let name = node.attribute[place].name.clone().unwrap_or_default();
            node.attribute[place].name = Some(format!("changed {name}").into());
            let is_call = node.domain.as_ref().is_some_and(|domain| !domain.is_empty());
            Some(if is_call { PARAMETER } else { "the name of an attribute" })
        }
        5 => {
            let place = pick_index(choices, node.input.len())?;
            let name = pick_index(choices, before.len())?;
            node.input[place] = before[name].clone();
            Some("an edge")
        }
        6 => {
            node.op_type = Some("Changed".into());
            Some("an operator")
        }
        2 | 7 => {
            let last = node.input.len().checked_sub(1)?;
            node.input.swap(0, last);
            Some("the order of inputs")
        }
        _ => {
            node.name = Some("changed".into());
            node.doc_string = Some("changed".into());
            Some("words")
        }
    }
}

/// One change somewhere in the model.
fn changed(choices: &mut Choices, model: &ModelProto) -> Option<(&'static str, ModelProto)> {
    let mut model = model.clone();
    let (mut bodies, mut done) = (0, None);
    traversal::graphs(&model, |_, _| {
        bodies += 1;
        Ok(())
    })
    .unwrap();
    let (chosen, mut number) = (choices.below(bodies), 0);
    traversal::graphs_mut(&mut model, |_, body| {
        if number == chosen {
            done = change_body(choices, body);
        }
        number += 1;
        Ok(())
    })
    .unwrap();
    Some((done?, model))
}

#[test]
fn a_digest_changes_where_what_is_computed_changes() {
    let corpus = corpus();
    let mut choices = Choices::seeded(1);
    // Of each base, the models that were seen by their digest.
    let mut seen: HashMap<(usize, String), ModelProto> = HashMap::new();
    let (mut tried, mut differing, mut merged) = (0, 0, 0);
    let mut kinds: HashMap<&str, [usize; 2]> = HashMap::new();
    for seed in 0.. {
        if tried == CHANGES {
            break;
        }
        if seed % 300 == 0 {
            choices = Choices::seeded(seed + 1);
        }
        let number = choices.below(corpus.len());
        let base = &corpus[number];
        let Some((kind, model)) = changed(&mut choices, &base.model) else { continue };
        // A change may leave a model that means nothing, for the oracle or for the digest.
        let Some(digest) = digest(&model) else { continue };
        let Ok(flow) = flow_of(&model) else { continue };
        tried += 1;
        let same = flow.has_outputs_of(&base.flow);
        kinds.entry(kind).or_default()[usize::from(same)] += 1;
        differing += usize::from(!same);
        let text =
            || format!("{kind}: {}\n{}", crate::dump::dump(&base.model), crate::dump::dump(&model));
        if kind == DEFAULT {
            assert_ne!(digest, base.digest, "the same digest, {}", text());
        } else if same {
            assert_eq!(digest, base.digest, "another digest of what is the same, {}", text());
        } else if digest == base.digest {
            merged += 1;
            let excused = kind == PARAMETER || are_values_equal(&base.model, &model);
            assert!(excused, "one digest of two models, {}", text());
        } else if kind != PARAMETER {
            let other = seen.entry((number, digest)).or_insert_with(|| model.clone());
            let same = || flow_of(other).unwrap().has_outputs_of(&flow);
            let excused = *other == model || same() || are_values_equal(other, &model);
            assert!(excused, "one digest of two models, {}{}", text(), crate::dump::dump(other));
        }
    }
    eprintln!(
        "{tried} changes of {} models, {differing} that matter, {merged} by equal constants and defaults: {kinds:?}",
        corpus.len()
    );
    assert!(differing > CHANGES / 3 && merged < CHANGES / 50, "{differing} {merged} {kinds:?}");
}

/// Whether the digest may see one model in two: the oracle tells initializers by their names, the
/// digest by what they hold. With a name for each content, the oracle sees one as well.
fn are_values_equal(a: &ModelProto, b: &ModelProto) -> bool {
    let [a, b] = [a, b].map(|model| flow_of(&merged(model)));
    matches!((a, b), (Ok(a), Ok(b)) if a.has_outputs_of(&b))
}

/// The model in which equal initializers of the main graph have one name.
fn merged(model: &ModelProto) -> ModelProto {
    let mut model = model.clone();
    let graph = model.graph.as_mut().unwrap();
    let mut first: HashMap<Vec<u8>, Str> = HashMap::new();
    let mut names: HashMap<Str, Str> = HashMap::new();
    for tensor in &graph.initializer {
        let mut content = tensor.clone();
        let name = content.name.take().unwrap_or_default();
        let content = content.encode_to_vec().unwrap();
        names.insert(name.clone(), first.entry(content).or_insert(name).clone());
    }
    traversal::graphs_mut(&mut model, |_, body| {
        if let BodyMut::Graph(graph) = body {
            for input in graph.node.iter_mut().flat_map(|node| &mut node.input) {
                if let Some(name) = names.get(input) {
                    *input = name.clone();
                }
            }
            for output in graph.output.iter_mut().filter_map(|output| output.name.as_mut()) {
                if let Some(name) = names.get(output) {
                    *output = name.clone();
                }
            }
        }
        Ok(())
    })
    .unwrap();
    model
}
