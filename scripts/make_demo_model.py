#!/usr/bin/env python3
"""Write the small model under tests/data/encoder: a two-layer text encoder with random weights.

It is small, runs in onnxruntime, and holds one of each thing that makes external data hard: weights in
one data file by onnx's own writer, two initializers on the same bytes, one initializer with two users,
local functions with constants, an attribute default and a subgraph inside, an If whose branches have
initializers, operands that have to stay inline, typed fields, strings, packed int4, bfloat16 and a
sparse initializer. The same bytes come out every time.

    .venv/bin/python scripts/make_demo_model.py [FOLDER]
"""

import pathlib
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "encoder"
DOMAIN = "encoder.layers"
OPSET, IR_VERSION = 21, 10
VOCABULARY, POSITIONS, WIDTH, HEADS, HIDDEN, BLOCK = 256, 32, 64, 4, 128, 32
FLOAT = TensorProto.FLOAT

random = np.random.default_rng(20)


def weight(name: str, *shape: int, dtype=np.float32) -> TensorProto:
    """A random matrix of a size that keeps activations near one."""
    values = random.standard_normal(shape) / np.sqrt(shape[0])
    return numpy_helper.from_array(values.astype(dtype), name)


def constant(name: str, values, dtype=np.int64):
    """A Constant node that holds a tensor."""
    return helper.make_node(
        "Constant", [], [name], value=numpy_helper.from_array(np.array(values, dtype), f"{name}_value")
    )


def node(operator: str, inputs: str, outputs: str, domain: str = "", **attributes):
    """A node from blank-separated names."""
    return helper.make_node(operator, inputs.split(), outputs.split(), domain=domain, **attributes)


def function(name: str, inputs: str, outputs: str, nodes: list, **more):
    """A local function of this model."""
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_function(DOMAIN, name, inputs.split(), outputs.split(), nodes, opsets, **more)


def branch(name: str, nodes: list, initializers: list):
    """One branch of an If; its last node's output is its result."""
    result = helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)
    return helper.make_graph(nodes, name, [], [result], initializers)


def norm_function():
    """Norm(x, scale): axes and epsilon are Constants inside the function."""
    body = [
        constant("axes", [-1]),
        constant("epsilon", 1e-5, np.float32),
        node("ReduceMean", "x axes", "mean", keepdims=1),
        node("Sub", "x mean", "centred"),
        node("Mul", "centred centred", "squared"),
        node("ReduceMean", "squared axes", "variance", keepdims=1),
        node("Add", "variance epsilon", "positive"),
        node("Sqrt", "positive", "deviation"),
        node("Div", "centred deviation", "unit"),
        node("Mul", "unit scale", "y"),
    ]
    return function("Norm", "x scale", "y", body)


def feed_forward_function():
    """FeedForward(x, up, down, gate): a 2 KiB Constant, a default of an attribute, an If with weights."""
    bias = helper.make_node("Constant", [], ["bias"])
    bias.attribute.append(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, ref_attr_name="bias"))
    default = helper.make_attribute("bias", numpy_helper.from_array(np.full(HIDDEN, 0.01, np.float32), "bias_default"))
    soft = branch("soft", [node("Mul", "biased soft_slope", "soft_result")], [weight("soft_slope", HIDDEN)])
    hard = branch("hard", [node("Add", "biased hard_shift", "hard_result")], [weight("hard_shift", HIDDEN)])
    body = [
        bias,
        helper.make_node("Constant", [], ["table"], value=weight("table_value", 4, HIDDEN)),
        constant("table_axes", [0]),
        node("ReduceMean", "table table_axes", "row", keepdims=0),
        node("MatMul", "x up", "wide"),
        node("Add", "wide bias", "shifted"),
        node("Add", "shifted row", "biased"),
        node("If", "gate", "chosen", then_branch=soft, else_branch=hard),
        node("Relu", "chosen", "active"),
        node("MatMul", "active down", "y"),
    ]
    return function("FeedForward", "x up down gate", "y", body, attribute_protos=[default])


def embedding() -> tuple[list, list]:
    """Tokens to vectors: the table is shared with the output, the positions are in float_data."""
    table = weight("embedding", VOCABULARY, WIDTH)
    positions = random.standard_normal(POSITIONS * WIDTH).astype(np.float32)
    typed = helper.make_tensor("positions", FLOAT, [POSITIONS, WIDTH], positions)
    starts = numpy_helper.from_array(np.array([0], np.int64), "starts")
    nodes = [
        node("Gather", "embedding tokens", "embedded"),
        node("Shape", "tokens", "length", start=1, end=2),
        constant("first_axis", [0]),
        node("Slice", "positions starts length first_axis", "placed"),
        node("Add", "embedded placed", "hidden_0"),
    ]
    return nodes, [table, typed, starts]


def quantised(name: str) -> tuple[list, list]:
    """A matrix in packed int4 with a scale for each block of rows, and the node that widens it."""
    codes = random.integers(-8, 8, (WIDTH, HIDDEN)).astype(ml_dtypes.int4)
    scale = random.uniform(0.01, 0.04, (WIDTH // BLOCK, HIDDEN)).astype(np.float32)
    tensors = [numpy_helper.from_array(codes, f"{name}_int4"), numpy_helper.from_array(scale, f"{name}_scale")]
    return [node("DequantizeLinear", f"{name}_int4 {name}_scale", name, axis=0, block_size=BLOCK)], tensors


def attention(layer: int) -> tuple[list, list]:
    """Self-attention: the shape of its Reshapes is an initializer of all layers."""
    at = f"layer{layer}"
    tensors = [weight(f"{at}.qkv", WIDTH, 3 * WIDTH), weight(f"{at}.projection", WIDTH, WIDTH)]
    nodes = [
        node("MatMul", f"{at}.normed {at}.qkv", f"{at}.mixed"),
        node("Split", f"{at}.mixed thirds", f"{at}.q {at}.k {at}.v", axis=2),
    ]
    for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(node("Reshape", f"{at}.{part} heads", f"{at}.{part}_split"))
        nodes.append(node("Transpose", f"{at}.{part}_split", f"{at}.{part}_heads", perm=order))
    nodes += [
        node("MatMul", f"{at}.q_heads {at}.k_heads", f"{at}.scores"),
        node("Softmax", f"{at}.scores", f"{at}.weights", axis=-1),
        node("MatMul", f"{at}.weights {at}.v_heads", f"{at}.context"),
        node("Transpose", f"{at}.context", f"{at}.context_rows", perm=[0, 2, 1, 3]),
        node("Reshape", f"{at}.context_rows whole", f"{at}.joined"),
        node("MatMul", f"{at}.joined {at}.projection", f"{at}.attended"),
    ]
    return nodes, tensors


def layer(number: int) -> tuple[list, list]:
    """One encoder layer: norm, attention, norm, feed forward."""
    at, before, after = f"layer{number}", f"hidden_{number}", f"hidden_{number + 1}"
    widen, packed = quantised(f"{at}.up")
    mixing, weights = attention(number)
    scale = numpy_helper.from_array(np.ones(WIDTH, ml_dtypes.bfloat16), f"{at}.scale_bf16")
    nodes = [
        node("Cast", f"{at}.scale_bf16", f"{at}.scale", to=FLOAT),
        node("Norm", f"{before} {at}.scale", f"{at}.normed", domain=DOMAIN),
        *mixing,
        node("Add", f"{before} {at}.attended", f"{at}.middle"),
        node("Norm", f"{at}.middle {at}.scale", f"{at}.middle_normed", domain=DOMAIN),
        *widen,
        node("FeedForward", f"{at}.middle_normed {at}.up {at}.down careful", f"{at}.fed", domain=DOMAIN),
        node("Add", f"{at}.middle {at}.fed", after),
    ]
    return nodes, [*packed, *weights, weight(f"{at}.down", HIDDEN, WIDTH), scale]


def head() -> tuple[list, list]:
    """An If with weights in its branches, a sparse matrix, and the embedding again as the output matrix."""
    inner = branch("inner", [node("Mul", "turned inner_scale", "inner_result")], [weight("inner_scale", WIDTH)])
    kept = branch("kept", [node("Identity", "turned", "kept_result")], [])
    careful = branch(
        "careful",
        [
            node("MatMul", "hidden_2 turn", "turned"),
            node("If", "careful", "careful_result", then_branch=inner, else_branch=kept),
        ],
        [weight("turn", WIDTH, WIDTH)],
    )
    quick = branch("quick", [node("Mul", "hidden_2 quick_scale", "quick_result")], [weight("quick_scale", WIDTH)])
    nodes = [
        node("If", "careful", "decided", then_branch=careful, else_branch=quick),
        node("MatMul", "decided sparse_mix", "mixed"),
        node("Add", "decided mixed", "final"),
        constant("pads", [0, 0, 0, 0, 0, 0]),
        node("Pad", "final pads", "padded"),
        node("Transpose", "embedding", "output_matrix", perm=[1, 0]),
        node("MatMul", "padded output_matrix", "plain_logits"),
        node("Gather", "embedding_again tokens", "echo"),
        node("ReduceSum", "echo last_axis", "echo_sum", keepdims=1),
        node("Add", "plain_logits echo_sum", "logits"),
        node("ArgMax", "logits", "best_index", axis=-1, keepdims=0),
        node("Gather", "words best_index", "best"),
    ]
    words = helper.make_tensor(
        "words", TensorProto.STRING, [VOCABULARY], [f"token-{n:03}".encode() for n in range(VOCABULARY)]
    )
    return nodes, [words]


def sparse() -> onnx.SparseTensorProto:
    """A matrix with 300 values that are not zero."""
    places = np.sort(random.choice(WIDTH * WIDTH, 300, replace=False)).astype(np.int64)
    values = numpy_helper.from_array(random.standard_normal(300).astype(np.float32) / 16, "sparse_mix")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places, "sparse_mix_places"), [WIDTH, WIDTH])


def operands() -> list:
    """Operands that readers need while they infer shapes."""
    table = {"heads": [0, 0, HEADS, WIDTH // HEADS], "whole": [0, 0, WIDTH], "thirds": [WIDTH] * 3, "last_axis": [-1]}
    return [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in table.items()]


def encoder() -> onnx.ModelProto:
    """The whole model, self-contained."""
    parts = [embedding(), layer(0), layer(1), head()]
    nodes = [item for part in parts for item in part[0]]
    tensors = [item for part in parts for item in part[1]] + operands()
    graph = helper.make_graph(
        nodes,
        "encoder",
        [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "length"]),
            helper.make_tensor_value_info("careful", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("logits", FLOAT, ["batch", "length", VOCABULARY]),
            helper.make_tensor_value_info("best", TensorProto.STRING, ["batch", "length"]),
        ],
        tensors,
        sparse_initializer=[sparse()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    functions = [norm_function(), feed_forward_function()]
    return helper.make_model(
        graph, opset_imports=opsets, functions=functions, ir_version=IR_VERSION, producer_name="make_demo_model"
    )


def share_embedding(path: pathlib.Path) -> None:
    """Add an initializer that lies on the bytes of another one."""
    model = onnx.load(path, load_external_data=False)
    again = TensorProto()
    again.CopyFrom(next(tensor for tensor in model.graph.initializer if tensor.name == "embedding"))
    again.name = "embedding_again"
    model.graph.initializer.append(again)
    path.write_bytes(model.SerializeToString(deterministic=True))


def write(folder: pathlib.Path) -> pathlib.Path:
    """The model and its data file, written by onnx."""
    path, data = folder / "encoder.onnx", folder / "encoder.onnx.data"
    folder.mkdir(parents=True, exist_ok=True)
    data.unlink(missing_ok=True)
    onnx.save(encoder(), path, save_as_external_data=True, location=data.name, size_threshold=1024)
    data.chmod(0o644)
    share_embedding(path)
    return path


def expected(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Inputs, and what onnxruntime makes of them with either branch."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options)
    tokens = np.random.default_rng(7).integers(0, VOCABULARY, (1, 5))
    found = {"tokens": tokens}
    for careful in (False, True):
        logits, best = session.run(None, {"tokens": tokens, "careful": np.array(careful)})
        found[f"logits_{careful}".lower()], found[f"best_{careful}".lower()] = logits, best.astype("U")
    return found


def main() -> None:
    """Write the model, let the checker read it, and store what it computes."""
    path = write(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
    onnx.checker.check_model(str(path))
    np.savez_compressed(path.parent / "expected.npz", **expected(path))
    for file in sorted(path.parent.iterdir()):
        print(f"{file.stat().st_size:>8} {file.name}")


if __name__ == "__main__":
    main()
