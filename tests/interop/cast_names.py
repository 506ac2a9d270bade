"""Models whose subgraphs have names of the main graph, or that declare types of no value.

Cast, they pass onnx.checker and `check`, and compute the same in onnxruntime.
"""

import pathlib
import sys

import common
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

onnxruntime.set_default_logger_severity(4)
node = helper.make_node
FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
KINDS = {"c": (BOOL, ()), "n": (INT64, ()), "xs": (FLOAT, (3, 2))}
SCAN = np.float32([[1, 2], [-3, 0.25], [0, 4]])
GIVEN = {"x": np.float32([0.5, -1]), "n": np.int64(3), "xs": SCAN}
WEIGHT = helper.make_tensor("w", FLOAT, [2], [1.5, -2])


def value(name: str, kind=FLOAT, shape=(2,)):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, outputs=(("y", (2,)),), types=()) -> onnx.ModelProto:
    """A model of a graph that takes `x`, the condition `c`, the count `n` and the vectors `xs`."""
    given = [value("x")] + [value(name, *kind) for name, kind in KINDS.items()]
    made = [value(name, shape=shape) for name, shape in outputs]
    graph = helper.make_graph(nodes, "g", given, made, [WEIGHT], value_info=list(types))
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def add(given: str, made: str):
    return node("Add", [given, "w"], [made])


def looped(outputs, taken: str, given, nodes):
    """A Loop whose body takes and gives these values."""
    inputs = [value("i", INT64, ()), value("again", BOOL, ()), value(taken)]
    made = [value("go", BOOL, ()), *map(value, given)]
    body = helper.make_graph([node("Identity", ["again"], ["go"]), *nodes], "body", inputs, made)
    return node("Loop", ["n", "c", "x"], outputs, body=body)


def scanned(outputs):
    """A Scan whose body gives `fin` and `y`."""
    nodes = [add("a", "fin"), node("Add", ["b", "a"], ["y"])]
    body = helper.make_graph(nodes, "body", [value("a"), value("b")], [value("fin"), value("y")])
    return node("Scan", ["x", "xs"], outputs, body=body, num_scan_inputs=1)


def branched(output: str, name: str, *branches):
    """An If whose branches, lists of nodes, give `name`."""
    given = [helper.make_graph(nodes, "branch", [], [value(name)]) for nodes in branches]
    return node("If", ["c"], [output], then_branch=given[0], else_branch=given[1])


def nested(operator: str):
    """The nodes of a branch that has branches."""
    inner = branched("m", "deep", [add("x", "deep")], [node(operator, ["x"], ["deep"])])
    return [inner, node("Neg", ["m"], ["y"])]


GELU = node("Gelu", ["x"], ["y"], domain="com.microsoft")
NEG = node("Neg", ["l"], ["y"])
SCANNED = (("fin", (2,)), ("y", (3, 2)))
TYPES = ("float", "float16", "bfloat16")
CASES = {
    "a loop gives y": model([looped(["l"], "a", ["y"], [add("a", "y")]), NEG]),
    "a loop gives y as y": model([looped(["y"], "a", ["y"], [add("a", "y")])]),
    "a loop takes x": model([looped(["l"], "x", ["b"], [add("x", "b")]), NEG]),
    "a loop collects z": model(
        [
            looped(["l", "k"], "a", ["y", "z"], [add("a", "y"), node("Neg", ["a"], ["z"])]),
            NEG,
            node("Abs", ["k"], ["z"]),
        ],
        [("y", (2,)), ("z", ("q", 2))],
    ),
    "a scan gives both": model([scanned(["fin", "y"])], SCANNED),
    "a scan gives others": model(
        [scanned(["s", "t"]), node("Neg", ["s"], ["fin"]), node("Abs", ["t"], ["y"])], SCANNED
    ),
    "a branch gives y as y": model(
        [branched("y", "y", [add("x", "y")], [node("Neg", ["x"], ["y"])])]
    ),
    "branches in branches": model([branched("l", "y", nested("Neg"), nested("Abs")), NEG]),
    "a branch that stays": model(
        [branched("l", "y", [GELU], [add("x", "y")]), NEG]
    ),
    "types of no value": model(
        [add("x", "a"), node("Neg", ["a"], ["y"])],
        types=[value(f"{name}_{to}", INT64, (3,)) for name in "xyaw" for to in TYPES],
    ),
}


def run(path: pathlib.Path, condition: bool) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {}
    for one in session.get_inputs():
        array = np.asarray(GIVEN.get(one.name, condition))
        given[one.name] = array.astype(np.float16) if one.type == "tensor(float16)" else array
    return session.run(None, given)


def case(name: str, to: str, option: str | None) -> str:
    """The cast model is valid, and runs where onnxruntime has its operators: few of BFLOAT16."""
    with common.scratch() as folder:
        onnx.checker.check_model(CASES[name], full_check=True)
        onnx.save(CASES[name], folder / "m.onnx")
        options = ["--to", to, "--min-bytes", 0, "--no-sync", *filter(None, [option])]
        common.must_run("cast", folder / "m.onnx", folder / "o.onnx", *options)
        onnx.checker.check_model(str(folder / "o.onnx"), full_check=True)
        common.must_run("check", folder / "o.onnx")
        if to == "bfloat16" and option != "--weights-only":
            return "checked"
        for condition in (True, False):
            before, after = (run(folder / name, condition) for name in ("m.onnx", "o.onnx"))
            for expected, found in zip(before, after, strict=True):
                assert np.allclose(expected, found.astype(np.float32), atol=0.05), (expected, found)
    return "run"


def main() -> None:
    options = (None, "--keep-io", "--weights-only")
    cases = [(name, to, option) for name in CASES for to in TYPES[1:] for option in options]
    common.run_all("models with names of other values that are cast", case, cases)
    common.finish()


if __name__ == "__main__":
    sys.exit(main())
