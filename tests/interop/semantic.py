"""Models of one semantic digest give the same in onnx's reference evaluator, and the tables of the digest are onnx's schemas.

The models are onnx's own tests of nodes: for each operator and version some of them, with defaults written out, other values
of attributes, empty names at the end of inputs and outputs, and the last input left out.
"""

import pathlib
import re
import subprocess
import sys
import warnings
from collections import defaultdict

import common
import numpy as np
import onnx
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

EACH = 2
DRAWS = re.compile("Random|Bernoulli|Multinomial|Dropout")


def tables() -> None:
    """The tables are what the installed onnx gives."""
    script = common.ROOT / "scripts" / "make_opset.py"
    subprocess.run([sys.executable, script, "--check"], check=True)


def names_of_values() -> None:
    """The digest refuses the operators whose attributes name values: by their descriptions, these are all."""
    kinds = (defs.OpSchema.AttrType.STRING, defs.OpSchema.AttrType.STRINGS)
    named = {
        (schema.domain, schema.name)
        for schema in defs.get_all_schemas_with_history()
        for attribute in schema.attributes.values()
        if attribute.type in kinds and re.search(r"(tensor|input|output|value|node|graph)s? names?\b|targeted tensor",
                                                attribute.description, re.IGNORECASE)
    }
    assert named == {("ai.onnx.preview.training", "Gradient")}, named


def changed(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    """The model, and what its node is with one place or attribute changed."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    node = model.graph.node[0]
    schema = defs.get_schema(node.op_type, versions[node.domain], node.domain)
    given = {attribute.name for attribute in node.attribute}
    all_changes = []

    def change(edit) -> None:
        other = onnx.ModelProto()
        other.CopyFrom(model)
        edit(other.graph.node[0])
        all_changes.append(other)

    change(lambda node: None)
    for count in (1, 2):
        change(lambda node, count=count: node.input.extend([""] * count))
        change(lambda node, count=count: node.output.extend([""] * count))
    if len(node.input) > 1:
        change(lambda node: node.input.pop())
        change(lambda node: node.input.__setitem__(-1, ""))
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type and name not in given:
            change(lambda node, value=attribute.default_value: node.attribute.append(value))
            if attribute.default_value.type == onnx.AttributeProto.INT:
                other = helper.make_attribute(name, 1 - attribute.default_value.i)
                change(lambda node, other=other: node.attribute.append(other))
        elif attribute.default_value.type:
            change(lambda node, name=name: [node.attribute.remove(a) for a in list(node.attribute) if a.name == name])
    return all_changes


def result(model: onnx.ModelProto, inputs: list) -> list | None:
    """What the reference gives; None where it does not run."""
    feeds = {value.name: array for value, array in zip(model.graph.input, inputs, strict=False)}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # noqa: BLE001 (whatever the reference fails with)
        return None


def same(a, b) -> bool:
    """Whether two results are equal, bit for bit."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    a, b = np.asarray(a), np.asarray(b)
    return (a.dtype, a.shape) == (b.dtype, b.shape) and (a.tolist() == b.tolist() or a.tobytes() == b.tobytes())


def node_test(folder) -> tuple[int, int]:
    """The pairs of one digest that one test of a node gives, and those that were compared."""
    model = onnx.load(folder / "model.onnx")
    inputs = []
    for number in range(len(model.graph.input)):
        tensor = onnx.TensorProto.FromString((folder / "test_data_set_0" / f"input_{number}.pb").read_bytes())
        inputs.append(numpy_helper.to_array(tensor))
    models, known, equal, compared = changed(model), {}, 0, 0
    for number, digest in digests(models):
        given = result(models[number], inputs)
        if digest not in known:
            known[digest] = given
            continue
        equal += 1
        if given is not None and known[digest] is not None:
            compared += 1
            assert same(given, known[digest]), (folder.name, number, str(models[number].graph.node[0]))
    return equal, compared


def digests(models: list[onnx.ModelProto]) -> list[tuple[int, str]]:
    """The numbers and digests of the models that have one."""
    with common.scratch() as scratch:
        paths = [scratch / f"{number}.onnx" for number in range(len(models))]
        for path, model in zip(paths, models, strict=True):
            path.write_bytes(model.SerializeToString())
        lines = common.run("digest", "--semantic", *paths).stdout.splitlines()
    found = [line.split(maxsplit=1) for line in lines]
    return [(int(pathlib.Path(path).stem), digest) for digest, path in found]


def tests() -> list[tuple]:
    """Some tests of each operator in each version that there is a test of: of one node, with inputs that are tensors."""
    by_operator = defaultdict(list)
    for folder in sorted((common.NODE_TESTS / "node").iterdir()):
        model = onnx.load(folder / "model.onnx", load_external_data=False)
        nodes = model.graph.node
        tensors = all(value.type.HasField("tensor_type") for value in model.graph.input)
        if len(nodes) != 1 or not tensors or model.functions or DRAWS.search(nodes[0].op_type):
            continue
        key = (nodes[0].domain, nodes[0].op_type, model.opset_import[0].version)
        if len(by_operator[key]) < EACH:
            by_operator[key].append((folder,))
    assert len(by_operator) > 150, len(by_operator)
    return [test for of_one in by_operator.values() for test in of_one]


def main() -> int:
    tables()
    names_of_values()
    found = common.run_all("tests of nodes whose changes keep what the digest says", node_test, tests())
    equal, compared = (sum(pair[i] for pair in found if pair) for i in (0, 1))
    print(f"{equal} changed models of one digest, {compared} of them run by the reference")
    assert compared > 300, compared
    common.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
