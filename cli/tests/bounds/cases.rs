//! Models of a given length that ask for much memory or time: many things that are empty or equal,
//! long names, depth.
//!
//! They are written field by field, because no library would write most of them.

/// The digest of a tensor is stored under this key.
const STORED: &[u8] = b"onnx_container.sha256";

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field with a length prefix.
fn field(number: u64, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    [&varint(number << 3 | 2)[..], &varint(payload.len() as u64), payload].concat()
}

/// A field that is a number.
fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn model_with(graph: &[u8], rest: &[u8]) -> Vec<u8> {
    let opset = field(8, number(2, 21));
    [&number(1, 10), &opset, &field(7, graph)[..], rest].concat()
}

pub fn model(graph: impl AsRef<[u8]>) -> Vec<u8> {
    model_with(graph.as_ref(), &[])
}

/// An entry of external data.
fn entry(key: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    field(13, [field(1, key), field(2, value)].concat())
}

/// An initializer.
fn tensor(parts: &[&[u8]]) -> Vec<u8> {
    field(5, parts.concat())
}

/// A model with `count` initializers, each of `len` bytes in the model.
pub fn embedded(count: usize, len: usize) -> Vec<u8> {
    let initializer = |i: usize| {
        let name = field(8, format!("w{i}"));
        tensor(&[&number(1, len as u64), &number(2, 2), &name, &field(9, vec![i as u8 + 1; len])])
    };
    let initializers: Vec<u8> = (0..count).flat_map(initializer).collect();
    model(initializers)
}

/// An initializer of no elements at `location`, with more entries.
fn external(location: &str, more: &[u8]) -> Vec<u8> {
    tensor(&[&number(1, 0), &number(2, 2), &entry("location", location), more, &number(14, 1)])
}

/// A digest that is stored with a tensor.
fn stored(digest: &[u8]) -> Vec<u8> {
    field(16, [field(1, STORED), field(2, digest)].concat())
}

/// A node with these fields.
fn node(parts: &[&[u8]]) -> Vec<u8> {
    field(1, parts.concat())
}

/// An attribute with a graph.
fn branch(graph: &[u8]) -> Vec<u8> {
    field(5, [&field(1, "t"), &number(20, 5), &field(6, graph)[..]].concat())
}

/// A chain of calls of a function with these fields, about half of the length, each of the first
/// output of the one before.
fn calls_in_a_chain(len: usize, function: &[u8]) -> Vec<u8> {
    let call = |i: usize| {
        let names = [field(1, format!("{i:x}")), field(2, format!("{:x}", i + 1))].concat();
        node(&[&names, &field(4, "f"), &field(7, "l")])
    };
    let count = len / 50;
    let calls: Vec<u8> = (0..count).flat_map(call).collect();
    let [input, output] = [(11, "0".to_owned()), (12, format!("{count:x}"))].map(|(list, name)| {
        let float = field(1, [number(1, 1), field(2, field(1, number(1, 1)))].concat());
        field(list, [field(1, name), field(2, float)].concat())
    });
    let function = field(25, [&field(1, "f")[..], &field(10, "l"), function].concat());
    model_with(&[input, calls, output].concat(), &function)
}

/// The length of a node's name with which any number of nodes is a program that is allowed.
const LONG: usize = 180;

/// What a model has much of, and the model.
pub type Case = (&'static str, Vec<u8>);

/// Models of about `len` bytes whose graphs have a long list of messages.
pub fn lists(len: usize) -> Vec<Case> {
    let list = |name, number| {
        let one = field(number, []);
        (name, model(one.repeat(len / one.len())))
    };
    vec![
        list("nodes", 1),
        list("tensors", 5),
        list("inputs", 11),
        list("outputs", 12),
        list("values", 13),
        list("quantizations", 14),
        list("sparse tensors", 15),
        list("metadata of the graph", 16),
    ]
}

/// All models, each of about `len` bytes, with a weights file `w` of 4 KiB beside them.
pub fn cases(len: usize) -> Vec<Case> {
    let many = |unit: &[u8]| unit.repeat(len / unit.len());
    let numbered = |unit: &dyn Fn(usize) -> Vec<u8>| {
        let mut all = Vec::new();
        for i in 0.. {
            if all.len() >= len {
                break;
            }
            all.extend(unit(i));
        }
        all
    };
    let many_in_node = |number: u64| model(node(&[&many(&field(number, []))]));
    let many_in_attribute = |number: u64| model(node(&[&field(5, many(&field(number, [])))]));
    let many_of_model = |number: u64| model_with(&[], &many(&field(number, [])));
    let in_function = |number: u64| model_with(&[], &field(25, many(&field(number, []))));
    let in_tensor = |parts: &[&[u8]]| model(tensor(parts));
    let no_elements = [number(1, 0), number(2, 1)].concat();
    let one_float = [number(1, 1), number(2, 2)].concat();
    let relu = node(&[&field(3, "n"), &field(2, "y"), &field(4, "Relu")]);
    let hex = |i: usize| format!("{i:x}");
    let float = [number(1, 1), field(2, field(1, number(1, 1)))].concat();
    let input = field(11, [field(1, "0"), field(2, field(1, &float))].concat());
    // Nodes that can be planned and run: each reads the value that `read` names. Their own names
    // are as long as it takes for a program of any number of them to be allowed.
    let runs = |op: &str, name: usize, read: &dyn Fn(usize) -> String| {
        let name = field(3, vec![b'n'; name]);
        let one =
            |i: usize| node(&[&field(1, read(i)), &field(2, hex(i + 1)), &name, &field(4, op)]);
        model([&input[..], &numbered(&one)].concat())
    };

    let mut all = lists(len);
    all.extend([
        ("inputs of a node", many_in_node(1)),
        ("outputs of a node", many_in_node(2)),
        ("attributes", many_in_node(5)),
        ("metadata of a node", many_in_node(9)),
        ("strings of an attribute", many_in_attribute(9)),
        ("tensors of an attribute", many_in_attribute(10)),
        ("graphs of an attribute", many_in_attribute(11)),
        ("types of an attribute", many_in_attribute(15)),
        ("integers of an attribute", model(node(&[&field(5, many(&number(8, 1)))]))),
        ("operator sets", many_of_model(8)),
        ("metadata", many_of_model(14)),
        ("training", many_of_model(20)),
        ("functions", many_of_model(25)),
        ("unknown fields", many_of_model(99)),
        ("nodes of a function", in_function(7)),
        ("inputs of a function", in_function(4)),
        ("attributes of a function", in_function(11)),
        ("unknown field in each node", model(many(&node(&[&field(99, [])])))),
        ("rare field in each attribute", { model(node(&[&many(&field(5, field(13, [])))])) }),
        ("dims of a value", {
            let shape = field(2, many(&field(1, [])));
            model(field(11, field(2, field(1, shape))))
        }),
        ("dims of a tensor", in_tensor(&[&many(&number(1, 1))])),
        ("packed dims", in_tensor(&[&field(1, vec![1; len]), &number(2, 2), &field(9, "abcd")])),
        ("int32_data", in_tensor(&[&number(1, 1), &number(2, 6), &many(&number(5, 1))])),
        ("int64_data", in_tensor(&[&number(1, 1), &number(2, 7), &many(&number(7, 1))])),
        ("string_data", in_tensor(&[&number(2, 8), &many(&field(6, []))])),
        ("raw_data", in_tensor(&[&number(1, len as u64), &number(2, 2), &field(9, vec![0; len])])),
        ("entries", in_tensor(&[&number(14, 1), &many(&field(13, []))])),
        ("stored digests", in_tensor(&[&no_elements, &many(&stored(&[]))])),
        ("tensors of no elements", model(many(&tensor(&[&no_elements])))),
        ("tensors with a wrong digest", model(many(&tensor(&[&no_elements, &stored(&[])])))),
        ("tensors of one byte", model(many(&tensor(&[&one_float, &field(9, "a")])))),
        ("tensors of one number", model(many(&tensor(&[&one_float, &number(5, 1)])))),
        (
            "tensors of one name",
            model(many(&tensor(&[&one_float, &field(8, "w"), &field(9, "abcd")]))),
        ),
        ("strings", model(many(&tensor(&[&number(1, 1), &number(2, 8), &field(6, [])])))),
        ("nodes of one name", model(many(&relu))),
        ("a name of all bytes", model(node(&[&field(3, vec![b'n'; len])]))),
        ("nodes of other names", {
            model(numbered(&|i| node(&[&field(2, hex(i)), &field(4, "A")])))
        }),
        ("a chain of nodes", {
            model(numbered(&|i| {
                node(&[&field(1, hex(i)), &field(2, hex(i + 1)), &field(4, "Neg")])
            }))
        }),
        ("a chain of results", runs("Neg", LONG, &hex)),
        ("a chain of views", runs("Identity", LONG, &hex)),
        ("results that nothing reads", runs("Neg", LONG, &|_| "0".to_owned())),
        ("many results that nothing reads", runs("Neg", 0, &|_| "0".to_owned())),
        ("views that nothing reads", runs("Identity", LONG, &|_| "0".to_owned())),
        ("shapes that depend on elements", runs("NonZero", LONG, &|_| "0".to_owned())),
        ("a chain of shapes that depend on elements", runs("NonZero", LONG, &hex)),
        ("missing inputs and graphs", {
            let missing: Vec<u8> = (0..len / 8).flat_map(|i| field(1, hex(i))).collect();
            let graph = branch(&[]);
            let inner = node(&[&field(4, "If"), &graph]).repeat(len / 2 / (graph.len() + 6));
            model([node(&[&missing[..len.min(missing.len()) / 2 / 8 * 8]]), inner].concat())
        }),
        ("graphs", model(many(&node(&[&field(4, "If"), &branch(&node(&[]))])))),
        ("one file", model(many(&external("w", &[])))),
        ("files that are not there", model(numbered(&|i| external(&hex(i), &[])))),
        ("handles", model(numbered(&|i| external(&format!("#{i:x}"), &[])))),
        ("offsets", model(numbered(&|i| external("w", &entry("offset", format!("{}", i % 4000)))))),
        ("checksums", model(numbered(&|i| external("w", &entry("checksum", hex(i)))))),
        ("keys", in_tensor(&[&number(14, 1), &numbered(&|i| entry(&format!("k{i:x}"), ""))])),
        ("calls", {
            let body = field(7, field(4, "A"));
            let function = field(25, [field(1, "f"), field(10, "l"), body].concat());
            model_with(&many(&node(&[&field(4, "f"), &field(7, "l")])), &function)
        }),
        ("calls that double", {
            // Each function calls the next one twice: 2^18 nodes at the end.
            let body = |i: usize| match i {
                18 => field(7, [field(2, "y"), field(4, "A")].concat()),
                _ => field(7, [field(4, format!("f{}", i + 1)), field(7, "l")].concat()).repeat(2),
            };
            let function =
                |i| field(25, [field(1, format!("f{i}")), field(10, "l"), body(i)].concat());
            let functions: Vec<u8> = (0..=18).flat_map(function).collect();
            let call = node(&[&field(4, "f0"), &field(7, "l")]);
            model_with(&[call, field(99, vec![0; len])].concat(), &functions)
        }),
        ("calls of a function with many outputs", {
            let outputs: Vec<u8> = (0..len / 20).flat_map(|i| field(5, format!("{i:x}"))).collect();
            let body = field(7, [field(1, "a"), field(2, "0"), field(4, "A")].concat());
            calls_in_a_chain(len, &[field(4, "a"), outputs, body].concat())
        }),
        ("calls of a function with many inputs", {
            let inputs = field(4, "").repeat(len / 4);
            let body = field(7, [field(1, "a"), field(2, "0"), field(4, "A")].concat());
            calls_in_a_chain(len, &[field(4, "a"), inputs, field(5, "0"), body].concat())
        }),
        ("calls of a function with many defaults", {
            let default =
                |i| field(11, [field(1, format!("{i:x}")), number(3, 1), number(20, 2)].concat());
            let defaults: Vec<u8> = (0..len / 40).flat_map(default).collect();
            let body = field(7, [field(1, "a"), field(2, "0"), field(4, "A")].concat());
            calls_in_a_chain(len, &[field(4, "a"), field(5, "0"), defaults, body].concat())
        }),
        ("references to a long attribute of a call", {
            let ints = field(8, vec![1; len / 2]);
            let list = field(5, [field(1, "p"), ints, number(20, 7)].concat());
            let read = |i: usize| {
                let refers = field(5, [field(1, "p"), number(20, 7), field(21, "p")].concat());
                let names = [field(1, "a"), field(2, format!("n{i:x}")), field(4, "A")];
                field(7, [names.concat(), refers].concat())
            };
            let reads: Vec<u8> = (0..len / 64).flat_map(read).collect();
            let names = [field(1, "f"), field(10, "l"), field(4, "a"), field(5, "n0")];
            let function = field(25, [&names.concat()[..], &field(6, "p"), &reads].concat());
            let call = [field(1, "0"), field(2, "y"), field(4, "f"), field(7, "l"), list].concat();
            let output = field(12, field(1, "y"));
            model_with(&[&input[..], &node(&[&call]), &output].concat(), &function)
        }),
        ("calls that double with a graph and attributes", {
            let attributes: Vec<u8> = (0..300)
                .flat_map(|i| {
                    field(5, [field(1, format!("{i}")), number(3, i), number(20, 2)].concat())
                })
                .collect();
            let graph = field(
                5,
                [field(1, "g"), number(20, 5), field(6, field(12, field(1, "0")))].concat(),
            );
            let given = [attributes, graph].concat();
            let call = |i: usize, from: &str, to: &str| {
                let names = [field(1, from), field(2, to), field(4, format!("f{i}"))];
                [names.concat(), field(7, "l"), given.clone()].concat()
            };
            let body = |i: usize| match i {
                20 => field(7, [field(1, "0"), field(2, "1"), field(4, "A")].concat()),
                _ => [field(7, call(i + 1, "0", "t")), field(7, call(i + 1, "t", "1"))].concat(),
            };
            let function = |i| {
                let names =
                    [field(1, format!("f{i}")), field(10, "l"), field(4, "0"), field(5, "1")];
                field(25, [names.concat(), body(i)].concat())
            };
            let functions: Vec<u8> = (0..=20).flat_map(function).collect();
            let output = field(12, field(1, "y"));
            model_with(&[&input[..], &node(&[&call(0, "0", "y")]), &output].concat(), &functions)
        }),
        ("operator sets of functions", {
            let import = |i| field(8, [field(1, hex(i)), number(2, 1)].concat());
            let imports: Vec<u8> = (0..len / 20).flat_map(import).collect();
            let functions = (0..len / 300).flat_map(|i| {
                let names =
                    [field(1, format!("f{i:x}")), field(10, "l"), field(4, "a"), field(5, "b")];
                let body = field(7, [field(1, "a"), field(2, "b"), field(4, "A")].concat());
                field(25, [names.concat(), body].concat())
            });
            let calls = (0..len / 300).flat_map(|i| {
                let names = [field(1, hex(i)), field(2, hex(i + 1)), field(4, format!("f{i:x}"))];
                node(&[&names.concat(), &field(7, "l")])
            });
            let calls: Vec<u8> = calls.collect();
            let functions: Vec<u8> = functions.collect();
            let output = field(12, field(1, hex(len / 300)));
            model_with(&[&input[..], &calls, &output].concat(), &[functions, imports].concat())
        }),
        ("functions that call each other", {
            let call = |i: usize| [field(4, format!("f{i}")), field(7, "l")].concat();
            let functions = numbered(&|i| {
                let body = field(7, call(i + 1));
                field(25, [field(1, format!("f{i}")), field(10, "l"), body].concat())
            });
            model_with(&field(1, call(0)), &functions)
        }),
    ]);
    all.push(("a long name around tensors", {
        let inner = tensor(&[&no_elements, &field(8, "w")]).repeat(len / 2 / 12);
        let long = vec![b'n'; (len / 2).min(1 << 20)];
        model(node(&[&field(4, "If"), &field(3, long), &branch(&inner)]))
    }));
    all.push(("depth", {
        let name = vec![b'n'; len / 40];
        let deeper = |graph: Vec<u8>| node(&[&field(4, "If"), &field(3, &name), &branch(&graph)]);
        model((0..30).fold(many(&relu).split_off(len * 3 / 4), |graph, _| deeper(graph)))
    }));
    all
}
