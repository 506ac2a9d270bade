"""`check` beside onnx.checker and onnxruntime: graphs with one fault each, data files that onnx refuses,
and every real model.

A model that both accept has no error in `check`; one that both refuse for a fault of the table has one.
"""

import os
import pathlib
import sys

import common
import onnx
import onnxruntime
from onnx import TensorProto, checker, helper

onnxruntime.set_default_logger_severity(4)
node = helper.make_node


def value(name: str, kind=TensorProto.FLOAT, shape=(2,)):
    """A named value of a graph."""
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str):
    """An initializer of two floats."""
    return helper.make_tensor(name, TensorProto.FLOAT, [2], [1, 2])


def copy(source: str, to: str):
    """A node that does nothing."""
    return node("Identity", [source], [to])


def model(nodes, inputs=("x",), outputs=("y",), weights=(), sets=(("", 21),), functions=(), version=10):
    """A model of a graph; `c` is a condition."""
    kinds = {"c": (TensorProto.BOOL, ())}
    given = [value(name, *kinds.get(name, ())) for name in inputs]
    graph = helper.make_graph(nodes, "g", given, [value(name) for name in outputs], list(weights))
    imports = [helper.make_opsetid(*opset) for opset in sets]
    return helper.make_model(graph, opset_imports=imports, ir_version=version, functions=list(functions))


def branch(nodes, output: str, weights=()):
    """A subgraph without inputs."""
    return helper.make_graph(nodes, "s", [], [value(output)], list(weights))


def choice(output: str, then_branch):
    """An If with a sound other branch."""
    other = branch([copy("x", "q_" + output)], "q_" + output)
    return node("If", ["c"], [output], then_branch=then_branch, else_branch=other)


def function(nodes, inputs=("a",), outputs=("b",), sets=(("", 21),), name="F"):
    """A local function."""
    imports = [helper.make_opsetid(*opset) for opset in sets]
    return helper.make_function("local", name, inputs, outputs, nodes, imports)


def called(*functions):
    """A model that calls the function F."""
    call = node("F", ["x"], ["y"], domain="local")
    return model([call], sets=(("", 21), ("local", 1)), functions=functions)


XC = ("x", "c")
SOUND = function([copy("a", "b")])
GRAPHS = {
    "sound": model([copy("x", "y")]),
    "an initializer that is gone": model([node("Add", ["x", "w"], ["y"])]),
    "an output that nothing defines": model([copy("x", "t")]),
    "an output that is an input": model([], outputs=["x"]),
    "an output that is an initializer": model([], weights=[weight("y")]),
    "no operator set": model([copy("x", "y")], sets=()),
    "ai.onnx by its long name": model([copy("x", "y")], sets=[("ai.onnx", 21)]),
    "a custom domain that is not imported": model([node("Foo", ["x"], ["y"], domain="custom")]),
    "ai.onnx.ml that is not imported": model([node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0])]),
    "two initializers of one name": model([node("Add", ["x", "w"], ["y"])], weights=[weight("w"), weight("w")]),
    "an initializer without a name": model([copy("x", "y")], weights=[weight("")]),
    "an initializer for an input": model([node("Add", ["x", "w"], ["y"])], ["x", "w"], weights=[weight("w")]),
    "two inputs of one name": model([copy("x", "y")], ["x", "x"]),
    "an output twice": model([copy("x", "y")], outputs=["y", "y"]),
    "a value defined twice": model([copy("x", "y"), copy("x", "y")]),
    "a value defined like an initializer": model([copy("x", "y"), copy("x", "w")], weights=[weight("w")]),
    "a value defined like an input": model([copy("x", "y"), copy("x", "z")], ["x", "z"]),
    "one node with one output twice": model([node("Split", ["x"], ["y", "y"], num_outputs=2)]),
    "nodes out of order": model([copy("t", "y"), copy("x", "t")]),
    "a circle": model([node("Add", ["x", "u"], ["t"]), copy("t", "u"), copy("t", "y")]),
    "no operator": model([node("", ["x"], ["y"])]),
    "IR version 14": model([copy("x", "y")], version=14),
    "a subgraph captures": model([copy("x", "t"), choice("y", branch([copy("t", "p")], "p"))], XC),
    "a subgraph captures a later value": model([choice("y", branch([copy("t", "p")], "p")), copy("x", "t")], XC),
    "a subgraph captures nothing": model([choice("y", branch([copy("nope", "p")], "p"))], XC),
    "a subgraph returns an outer value": model([copy("x", "t"), choice("y", branch([], "t"))], XC),
    "a subgraph returns its own initializer": model([choice("y", branch([], "p", [weight("p")]))], XC),
    "a subgraph returns nothing": model([choice("y", branch([copy("x", "p")], "nope"))], XC),
    "a subgraph redefines an outer value": model([copy("x", "t"), choice("y", branch([copy("x", "t")], "t"))], XC),
    "a subgraph redefines an outer input": model([choice("y", branch([copy("c", "d"), copy("x", "x")], "x"))], XC),
    "an initializer hides an outer one": model(
        [choice("y", branch([copy("w", "p")], "p", [weight("w")]))], XC, weights=[weight("w")]
    ),
    "a subgraph defines a later name": model(
        [choice("u", branch([copy("x", "t")], "t")), copy("u", "t"), copy("t", "y")], XC
    ),
    "a subgraph defines its node's output": model([choice("y", branch([copy("x", "y")], "y"))], XC),
    "two subgraphs with the same names": model(
        [choice("v", branch([copy("x", "p")], "p")), choice("y", branch([copy("v", "p")], "p"))], XC
    ),
    "a graph takes a value of a subgraph": model([choice("v", branch([copy("x", "p")], "p")), copy("p", "y")], XC),
    "a function": called(SOUND),
    "a function whose domain is not imported": model([node("F", ["x"], ["y"], domain="local")], functions=[SOUND]),
    "a body without operator sets": called(function([copy("a", "b")], sets=())),
    "a body that does not import a callee's": called(
        function([node("G", ["a"], ["b"], domain="local")]), function([copy("a", "b")], name="G")
    ),
    "a body takes what nothing defines": called(function([copy("nope", "b")])),
    "a body takes a value of the graph": called(function([copy("x", "b")])),
    "a body that does not define its output": called(function([copy("a", "t")])),
    "a body defines a value twice": called(function([copy("a", "b"), copy("a", "b")])),
    "a body redefines its input": called(function([copy("a", "a"), copy("a", "b")])),
    "a body out of order": called(function([copy("t", "b"), copy("a", "t")])),
    "two functions of one name": called(SOUND, SOUND),
    "a function that nobody calls and that is wrong": model(
        [copy("x", "y")], sets=(("", 21), ("local", 1)), functions=[function([copy("nope", "b")])]
    ),
}


def accepts(action) -> bool:
    """Whether a reader takes a model."""
    try:
        action()
    except Exception:  # noqa: BLE001: readers raise what they like
        return False
    return True


def runs(path: pathlib.Path) -> bool:
    """Whether onnxruntime makes a session of the model."""
    return accepts(lambda: onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]))


def verdict(path: pathlib.Path) -> tuple[bool, str]:
    """Whether `check` finds no error, and what it says."""
    done = common.run("check", path)
    return done.returncode == 0, done.stdout


def graphs() -> None:
    """`check` takes what both take, and nothing that both refuse."""
    seen = {True: 0, False: 0}
    with common.scratch() as folder:
        path = folder / "m.onnx"
        for name, built in GRAPHS.items():
            path.write_bytes(built.SerializeToString())
            others = [accepts(lambda: checker.check_model(str(path))), runs(path)]
            ok, said = verdict(path)
            if all(others):
                assert ok, f"{name}: both take it: {said}"
            elif not any(others):
                assert not ok, f"{name}: both refuse it: {said}"
            if name == "IR version 14":
                assert "onnxruntime" in said, said
                continue
            # What only one of them refuses is an error as well: another reader may be the strict one.
            assert ok == all(others), f"{name}: checker and onnxruntime say {others}: {said}"
            seen[ok] += 1
    print(f"graphs: {seen[True]} taken and {seen[False]} refused as by onnx.checker and onnxruntime")
    assert min(seen.values()) > 10


def declared_types() -> None:
    """An input or output whose type the checker refuses is told, as an error where onnxruntime refuses it too."""
    kind = onnx.TypeProto
    shape = onnx.TensorShapeProto()
    part = kind(tensor_type=kind.Tensor(elem_type=TensorProto.FLOAT))
    types = [
        None,
        kind(),
        kind(tensor_type=kind.Tensor()),
        kind(tensor_type=kind.Tensor(shape=shape)),
        kind(tensor_type=kind.Tensor(elem_type=TensorProto.FLOAT)),
        kind(tensor_type=kind.Tensor(elem_type=TensorProto.FLOAT, shape=shape)),
        kind(sequence_type=kind.Sequence()),
        kind(sequence_type=kind.Sequence(elem_type=part)),
        kind(optional_type=kind.Optional()),
        kind(optional_type=kind.Optional(elem_type=part)),
        kind(map_type=kind.Map()),
        kind(map_type=kind.Map(key_type=TensorProto.INT64)),
        kind(map_type=kind.Map(key_type=TensorProto.INT64, value_type=part)),
        kind(sparse_tensor_type=kind.SparseTensor(elem_type=TensorProto.FLOAT)),
        kind(sparse_tensor_type=kind.SparseTensor(elem_type=TensorProto.FLOAT, shape=shape)),
    ]
    refused = 0
    with common.scratch() as folder:
        path = folder / "m.onnx"
        for declared in types:
            for where in ("input", "output"):
                built = model([copy("x", "y")])
                changed = getattr(built.graph, where)[0]
                changed.ClearField("type")
                if declared is not None:
                    changed.type.CopyFrom(declared)
                path.write_bytes(built.SerializeToString())
                checker_takes = accepts(lambda: checker.check_model(str(path)))
                ok, said = verdict(path)
                assert checker_takes != ("onnx.checker" in said), f"{where} {declared}: {said}"
                if not ok:
                    assert not runs(path), f"{where} {declared}: {said}"
                refused += not checker_takes
    print(f"types: {refused} of {2 * len(types)} that onnx.checker refuses are told")
    assert refused > 10


def data_files() -> None:
    """Data files that onnx refuses are told as such, and no others."""

    def linked(folder: pathlib.Path) -> None:
        (folder / "real.bin").write_bytes(bytes(8))
        (folder / "w.bin").symlink_to("real.bin")

    def linked_folder(folder: pathlib.Path) -> None:
        (folder / "real").mkdir()
        (folder / "real" / "w.bin").write_bytes(bytes(8))
        (folder / "sub").symlink_to("real")

    def twice(folder: pathlib.Path) -> None:
        (folder / "w.bin").write_bytes(bytes(8))
        os.link(folder / "w.bin", folder / "other.bin")

    def plain(name: str):
        return lambda folder: (folder / name).write_bytes(bytes(8))

    cases = {
        "w.bin": [plain("w.bin"), linked, twice],
        "sub/w.bin": [linked_folder],
        "w..bin": [plain("w..bin")],
        "w...bin": [plain("w...bin")],
        "w.b.in": [plain("w.b.in")],
    }
    told = 0
    for location, setups in cases.items():
        for setup in setups:
            with common.scratch() as folder:
                setup(folder)
                tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
                tensor.data_location = TensorProto.EXTERNAL
                tensor.external_data.add(key="location", value=location)
                tensor.external_data.add(key="length", value="8")
                path = folder / "m.onnx"
                built = model([node("Add", ["x", "w"], ["y"])], weights=[tensor])
                path.write_bytes(built.SerializeToString())
                ok, said = verdict(path)
                assert ok, said
                assert runs(path), location
                refused = not accepts(lambda: onnx.load(str(path)))
                assert refused == ("which onnx refuses" in said), f"{location}: refused {refused}: {said}"
                told += refused
    print(f"data files: {told} that onnx refuses are told")
    assert told >= 4


def real_models() -> None:
    """No model that both readers take has an error."""
    folders = [common.ROOT / "tests" / "data", common.MODELS, common.SHARED / "data"]
    paths = sorted(path for folder in folders for path in folder.rglob("*.onnx"))
    taken = refused = 0
    for path in paths:
        ok, said = verdict(path)
        if ok:
            taken += 1
            continue
        both = accepts(lambda: checker.check_model(str(path))) and runs(path)
        assert not both, f"{path}: both take it: {said}"
        refused += 1
        print(f"{path}: {said.splitlines()[0][:200]}")
    print(f"real models: {taken} without an error, {refused} that a reader refuses as well")
    assert taken > 0


def main() -> None:
    """All of it."""
    graphs()
    declared_types()
    data_files()
    real_models()


if __name__ == "__main__":
    sys.exit(main())
