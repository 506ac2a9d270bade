"""Operands that onnxruntime reads while it builds a session have to stay inline, at any threshold.

Each operand of each single-node model of the onnx wheel is turned into an initializer, and into the
value of a Constant. Where onnxruntime loads that, it also has to load what `pack --min-bytes 0` makes
of it. The operators that are known to need this (KNOWN) must be among those that were tried.

    inline_operands.py --oracle    make the operand external by hand and print what onnxruntime refuses
"""

import collections
import pathlib
import sys

import common
import corpus
import onnx
from onnx import TensorProto, helper, numpy_helper

# Operator -> input positions that onnxruntime 1.32 refuses as external data.
KNOWN = {
    **dict.fromkeys(
        "Reshape Expand Tile Squeeze Unsqueeze Split SplitToSequence TopK CenterCropPad AffineGrid Upsample STFT"
        " ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum"
        " ReduceSumSquare".split(),
        {1},
    ),
    **dict.fromkeys("ConstantOfShape BlackmanWindow HammingWindow HannWindow If".split(), {0}),
    "Pad": {1, 3},
    "Resize": {2, 3},
    "Col2Im": {1, 2},
    "DFT": {2},
    "OneHot": {1},
}


def value(path: pathlib.Path, position: int) -> TensorProto | None:
    """The test's own value for the graph input at `position`, if it is a tensor."""
    file = path.parent / "test_data_set_0" / f"input_{position}.pb"
    tensor = TensorProto()
    try:
        tensor.ParseFromString(file.read_bytes())
        numpy_helper.to_array(tensor)
    except Exception:  # a sequence, an optional, or nothing at all
        return None
    return tensor


def as_initializer(model: onnx.ModelProto, tensor: TensorProto) -> None:
    """Give the graph the tensor as an initializer."""
    model.graph.initializer.append(tensor)


def as_constant(model: onnx.ModelProto, tensor: TensorProto) -> None:
    """Give the graph the tensor as the value of a Constant."""
    model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))


FORMS = {"initializer": as_initializer, "Constant": as_constant}


def variant(path: pathlib.Path, position: int, form: str) -> onnx.ModelProto | None:
    """The model with the graph input at `position` fixed to its test value."""
    tensor = value(path, position)
    if tensor is None or tensor.data_type == TensorProto.STRING:
        return None
    model = common.load(path)
    raw = numpy_helper.from_array(numpy_helper.to_array(tensor), model.graph.input[position].name)
    del model.graph.input[position]
    FORMS[form](model, raw)
    return model


def loads(path: pathlib.Path) -> str:
    """Why onnxruntime does not load the model, or nothing."""
    try:
        corpus.session(path)
    except Exception as error:  # onnxruntime has no common class for its errors
        return str(error) or "refused"
    return ""


def users(model: onnx.ModelProto, name: str) -> set[tuple[str, int]]:
    """The operators that take this operand, and where."""
    return {(node.op_type, at) for node in model.graph.node for at, given in enumerate(node.input) if given == name}


def operand(path: pathlib.Path, position: int, form: str) -> set[tuple[str, int]]:
    """One operand in one form; the operators it was tried on."""
    model = variant(path, position, form)
    if model is None:
        return set()
    with common.scratch() as folder:
        source, packed = folder / "in.onnx", folder / "out.onnx"
        source.write_bytes(model.SerializeToString())
        if loads(source):
            return set()
        common.must_run("pack", source, packed, "--min-bytes", "0", "--no-sync")
        problem = loads(packed)
        assert not problem, f"onnxruntime refuses what pack wrote: {problem[:300]}"
    return users(common.load(path), common.load(path).graph.input[position].name)


def by_hand(path: pathlib.Path, position: int, form: str) -> set[tuple[str, int]]:
    """The operators that refuse this operand when it is external."""
    model = variant(path, position, form)
    if model is None:
        return set()
    with common.scratch() as folder:
        source = folder / "in.onnx"
        source.write_bytes(model.SerializeToString())
        if loads(source):
            return set()
        for tensor in common.tensors(model).values():
            if tensor.name != common.load(path).graph.input[position].name:
                continue
            (folder / "w").write_bytes(tensor.raw_data)
            size, tensor.data_location = len(tensor.raw_data), TensorProto.EXTERNAL
            tensor.ClearField("raw_data")
            for key, given in (("location", "w"), ("offset", 0), ("length", size)):
                tensor.external_data.add(key=key, value=str(given))
        source.write_bytes(model.SerializeToString())
        refused = loads(source)
    return users(common.load(path), common.load(path).graph.input[position].name) if refused else set()


def signature(path: pathlib.Path, model: onnx.ModelProto) -> tuple:
    """What tells the models of an operator apart: its version, names and texts of its attributes, and which inputs it
    has, of which types, and whether they are empty."""
    [node] = model.graph.node
    attributes = tuple(sorted((attribute.name, attribute.s) for attribute in node.attribute))
    versions = tuple((opset.domain, opset.version) for opset in model.opset_import)
    types = tuple((kind(given.type), is_empty(path, at)) for at, given in enumerate(model.graph.input))
    return node.domain, node.op_type, versions, attributes, tuple(map(bool, node.input)), types


def is_empty(path: pathlib.Path, position: int) -> bool:
    """Whether the operand is a tensor without elements, which stays inline in any case."""
    tensor = value(path, position)
    return tensor is not None and 0 in tensor.dims


def kind(of: onnx.TypeProto) -> int | bytes:
    """The element type of a tensor, or the whole type of another value."""
    return of.tensor_type.elem_type or of.SerializeToString(deterministic=True)


def cases() -> list[tuple]:
    """Every operand of one model for each signature of a node that onnxruntime loads."""
    found = {}
    for path in sorted(common.NODE_TESTS.glob("node/*/model.onnx")):
        model = common.load(path)
        if len(model.graph.node) == 1 and (key := signature(path, model)) not in found and not loads(path):
            found[key] = path, len(model.graph.input)
    operands = [(path, at) for path, count in found.values() for at in range(count) if not is_empty(path, at)]
    return [(*operand, form) for operand in operands for form in FORMS]


def table(results: list[set]) -> dict[str, set[int]]:
    """The operators and positions in some results."""
    found = collections.defaultdict(set)
    for operator, position in set().union(*results):
        found[operator].add(position)
    return dict(sorted(found.items()))


def main() -> None:
    """Try all operands, and see that the known ones were among them."""
    if not common.NODE_TESTS.is_dir():
        print("SKIPPED operands that stay inline: the onnx wheel's node tests are not there")
        return
    if "--oracle" in sys.argv:
        print(table(common.run_all("operands made external", by_hand, cases())))
        return
    tried = table(common.run_all("operands that stay inline", operand, cases()))
    missing = {name: spots - tried.get(name, set()) for name, spots in KNOWN.items() if spots - tried.get(name, set())}
    assert not missing, f"no model to try these on: {missing}"
    common.finish()


if __name__ == "__main__":
    main()
