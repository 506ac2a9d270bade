"""`check` beside onnx.checker and onnxruntime: graphs with one fault each, data files that onnx refuses,
and every real model.

A model that both accept has no error in `check`; one that both refuse for a fault of the table has one.
"""

import copy as copies
import json
import os
import pathlib
import sys

import common
import numpy
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
    "IR version 15": model([copy("x", "y")], version=15),
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


def changed(built, change):
    """A copy of a model or function that `change` has changed."""
    other = copies.deepcopy(built)
    change(other)
    return other


def with_attribute(change):
    """A model whose only node has the attribute `alpha`, changed."""
    return changed(
        model([node("LeakyRelu", ["x"], ["y"], alpha=0.5)]), lambda built: change(built.graph.node[0].attribute[0])
    )


def in_body(change):
    """A function whose only node has the attribute `alpha`, changed."""
    body = function([node("LeakyRelu", ["a"], ["b"], alpha=0.5)])
    return called(changed(body, lambda built: change(built.node[0].attribute[0])))


def with_default(change):
    """A function with a default of an attribute, changed."""
    body = function([node("LeakyRelu", ["a"], ["b"], alpha=0.5)])
    attribute = body.node[0].attribute[0]
    attribute.ClearField("f")
    attribute.ref_attr_name = "slope"
    body.attribute_proto.add(name="slope", type=onnx.AttributeProto.FLOAT, f=0.5)
    return called(changed(body, lambda built: change(built.attribute_proto[0])))


def twice(built, attributes):
    """The model with the first of these attributes of it there twice."""
    return changed(built, lambda other: attributes(other).add().CopyFrom(attributes(other)[0]))


def declared(where: str, number: int):
    """A model with a value of an element type."""

    def change(built):
        values = getattr(built.graph, where)
        if not values:
            values.add(name="t").CopyFrom(value("t"))
        values[0].type.tensor_type.elem_type = number

    return changed(model([copy("x", "t"), copy("t", "y")]), change)


def opset(number, domain=""):
    """A model and function that import a version of an operator set, or one without a version."""

    def change(built):
        for imported in built.opset_import:
            if imported.domain == domain:
                imported.ClearField("version")
                if number is not None:
                    imported.version = number

    return changed(called(SOUND), change)


def calls(*inputs, outputs=("y",), body=SOUND):
    """A call with these inputs and outputs."""
    return changed(
        called(body),
        lambda built: (
            built.graph.node[0].ClearField("input"),
            built.graph.node[0].input.extend(inputs),
            built.graph.node[0].ClearField("output"),
            built.graph.node[0].output.extend(outputs),
        ),
    )


def sparse(indices, dims=(4,), shape=None, values=None):
    """A model that adds a sparse initializer, here or in a Constant."""
    values = [1.0] * (shape or [len(indices)])[0] if values is None else values
    tensor = onnx.SparseTensorProto(dims=dims)
    tensor.values.CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [len(values)], values))
    tensor.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, shape or [len(indices)], indices))
    built = model([node("Add", ["x", "w"], ["y"])])
    for declared_value in (*built.graph.input, *built.graph.output):
        declared_value.CopyFrom(value(declared_value.name, shape=dims))
    built.graph.sparse_initializer.append(tensor)
    return built


def in_constant(built):
    """The model with its sparse initializer in a Constant."""
    other = copies.deepcopy(built)
    other.graph.ClearField("sparse_initializer")
    other.graph.node.insert(0, node("Constant", [], ["w"], sparse_value=built.graph.sparse_initializer[0]))
    return other


def of_set(number, operator="Relu"):
    """A function whose operators are of another set than the model's."""
    return called(function([node(operator, ["a"], ["b"])], sets=(("", number),)))


def shadowing(domain, name, operators=21):
    """A local function that is called like an operator."""
    body = helper.make_function(domain, name, ["a"], ["b"], [copy("a", "b")], [helper.make_opsetid("", 21)])
    sets = [("", operators)] + [(domain, 1)] * bool(domain)
    return model([node(name, ["x"], ["y"], domain=domain)], sets=sets, functions=[body])


KINDS = onnx.AttributeProto
TWO = branch([copy("x", "p"), copy("x", "p2")], "p")
TWO.output.add().CopyFrom(value("p2"))
NONE = branch([], "p")
NONE.ClearField("output")
GIVEN = branch([copy("x", "p")], "p")
GIVEN.input.add().CopyFrom(value("g"))
UNNAMED = branch([copy("x", "p")], "p")
UNNAMED.output[0].name = ""
ODD = branch([copy("x", "p")], "p")
ODD.output[0].type.tensor_type.elem_type = 99



def typed(kind, outer, *inner):
    """An If (or a Loop) around `x` whose branches (or body) declare FLOAT16 where `inner` says so."""
    types = [TensorProto.FLOAT16 if half else TensorProto.FLOAT for half in inner]
    if kind == "If":
        given = zip(("then_branch", "else_branch"), types, strict=True)
        branches = {
            name: helper.make_graph([node("Cast", ["x"], ["t"], to=of)], "b", [], [value("t", of)])
            for name, of in given
        }
        return changed(model([node("If", ["c"], ["y"], **branches)], XC), lambda m: declare(m, outer))
    inputs = [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("a", types[0])]
    made = [value("on", TensorProto.BOOL, ()), value("b", types[1])]
    nodes = [copy("go", "on"), node("Cast", ["a"], ["b"], to=types[1])]
    body = helper.make_graph(nodes, "b", inputs, made)
    return changed(model([node("Loop", ["", "c", "x"], ["y"], body=body)], XC), lambda m: declare(m, outer))


def declare(built, half):
    """Declares the output as FLOAT16."""
    if half:
        built.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16


# Faults of single messages: errors where onnxruntime refuses them, advice where only onnx.checker
# does.
FAULTS = {
    "sound": with_attribute(lambda a: None),
    "an attribute without a name": with_attribute(lambda a: a.ClearField("name")),
    "an attribute with an empty name": with_attribute(lambda a: setattr(a, "name", "")),
    "an attribute without a type": with_attribute(lambda a: a.ClearField("type")),
    "an attribute of the undefined type": with_attribute(lambda a: setattr(a, "type", 0)),
    "an INT with f": with_attribute(lambda a: setattr(a, "type", KINDS.INT)),
    "a FLOAT with f and i": with_attribute(lambda a: setattr(a, "i", 3)),
    "a FLOAT with f and ints": with_attribute(lambda a: a.ints.append(3)),
    "a FLOAT with f and s": with_attribute(lambda a: setattr(a, "s", b"s")),
    "a FLOAT with f and strings": with_attribute(lambda a: a.strings.append(b"s")),
    "a FLOAT with f and t": with_attribute(lambda a: a.t.CopyFrom(weight("w"))),
    "a FLOAT with f and tp": with_attribute(lambda a: a.tp.CopyFrom(value("v").type)),
    "an attribute twice": twice(with_attribute(lambda a: None), lambda m: m.graph.node[0].attribute),
    "in a body, without a name": in_body(lambda a: a.ClearField("name")),
    "in a body, without a type": in_body(lambda a: a.ClearField("type")),
    "in a body, an INT with f": in_body(lambda a: setattr(a, "type", KINDS.INT)),
    "in a body, a FLOAT with f and i": in_body(lambda a: setattr(a, "i", 3)),
    "a default": with_default(lambda a: None),
    "a default without a type": with_default(lambda a: a.ClearField("type")),
    "a default, an INT with f": with_default(lambda a: setattr(a, "type", KINDS.INT)),
    "an output with an empty name": changed(model([copy("x", "y")]), lambda m: setattr(m.graph.output[0], "name", "")),
    "an output without a name": changed(model([copy("x", "y")]), lambda m: m.graph.output[0].ClearField("name")),
    "an input without a name": changed(
        model([copy("x", "y")]), lambda m: m.graph.input.add().type.CopyFrom(value("v").type)
    ),
    "an output of a branch without a name": model([choice("y", UNNAMED)], XC),
    "an output of a function without a name": called(function([copy("a", "b")], outputs=("b", ""))),
    "an input of a function without a name": called(function([copy("a", "b")], inputs=("a", ""))),
    **{
        f"{where} of type {number}": declared(where, number)
        for where in ("input", "output", "value_info")
        for number in (0, -1, 99)
    },
    "an output of a branch of type 99": model([choice("y", ODD)], XC),
    **{f"operator set {number}": opset(number) for number in (0, -1, None)},
    "operator set 0 of a domain of one's own": opset(0, "local"),
    "operator set 0 of a function": called(function([copy("a", "b")], sets=(("", 0),))),
    "operator set -1 of a function": called(function([copy("a", "b")], sets=(("", -1),))),
    "IR version 0": model([copy("x", "y")], version=0),
    "IR version -1": model([copy("x", "y")], version=-1),
    "a function without a name": model(
        [copy("x", "y")], sets=(("", 21), ("local", 1)), functions=[changed(SOUND, lambda f: f.ClearField("name"))]
    ),
    "a function without a domain": model(
        [copy("x", "y")], functions=[changed(SOUND, lambda f: f.ClearField("domain"))]
    ),
    "a call": calls("x"),
    "a call with more inputs": calls("x", "x"),
    "a call with more inputs, empty": calls("x", ""),
    "a call with more outputs": calls("x", outputs=("y", "z")),
    "a call with an input left out": calls("x", "", body=function([copy("a", "b")], inputs=("a", "c"))),
    "a call with fewer inputs": calls("x", body=function([copy("a", "b")], inputs=("a", "c"))),
    "a sparse tensor": sparse([0, 2]),
    "an index of 9 of 4": sparse([0, 9]),
    "an index of 4 of 4": sparse([0, 4]),
    "an index of -1": sparse([-1, 2]),
    "an index of 9 of 4 in a Constant": in_constant(sparse([0, 9])),
    "indices that do not ascend": sparse([2, 0]),
    "an index twice": sparse([2, 2]),
    "fewer values than indices": sparse([0, 2], values=[1.0]),
    "rows of indices": sparse([0, 1, 1, 0], (2, 2), [2, 2]),
    "rows that do not ascend": sparse([1, 0, 0, 1], (2, 2), [2, 2]),
    "a row that is out of range": sparse([0, 1, 1, 2], (2, 2), [2, 2]),
    "rows of another rank": sparse([0, 1, 0, 1, 0, 0], (2, 2), [2, 3]),
    "no indices": changed(sparse([0, 2]), lambda m: m.graph.sparse_initializer[0].ClearField("indices")),
    "no values": changed(sparse([0, 2]), lambda m: m.graph.sparse_initializer[0].values.ClearField("dims")),
    "a body of an older set, same operator": of_set(20),
    "a body of an older set, other operator": of_set(12),
    "a body of an older set, in a branch": called(
        changed(
            function([choice("b", branch([node("Relu", ["a"], ["p"])], "p"))], inputs=("a",), sets=(("", 16),)),
            lambda f: (f.node[0].ClearField("input"), f.node[0].input.append("a")),
        )
    ),
    "a required input that is left out": model([node("Add", ["x", ""], ["y"])]),
    "a required input that is not there": model([node("Add", ["x"], ["y"])]),
    "one input more": model([node("Add", ["x", "x", "x"], ["y"])]),
    "one output more": model([node("Relu", ["x"], ["y", "z"])]),
    "no input": model([node("Relu", [], ["y"])]),
    "an optional input that is left out": model(
        [node("Clip", ["x", "", "m"], ["y"])], weights=[helper.make_tensor("m", TensorProto.FLOAT, [], [1.0])]
    ),
    "an input of many that is left out": model([node("Concat", ["x", ""], ["y"], axis=0)]),
    "a branch with two outputs": model([choice("y", TWO)], XC),
    "a branch without outputs": model([choice("y", NONE)], XC),
    "a branch with an input": model([choice("y", GIVEN)], XC),
    "an If with more outputs than branches": changed(
        model([choice("y", branch([copy("x", "p")], "p"))], XC), lambda m: m.graph.node[0].output.append("z")
    ),
    "branches of two types": typed("If", False, False, True),
    "branches of the declared type": typed("If", True, True, True),
    "branches of another type": typed("If", False, True, True),
    "a loop of the declared type": typed("Loop", False, False, False),
    "a loop of another type": typed("Loop", True, False, False),
    "a loop from another type": typed("Loop", True, True, True),
    "a loop that changes the type": typed("Loop", False, False, True),
    "an If without a branch": changed(
        model([choice("y", branch([copy("x", "p")], "p"))], XC), lambda m: m.graph.node[0].attribute.pop()
    ),
}
# What onnx.checker refuses and two readers would take for two things is an error all the same.
STRICT = {
    "an input with an empty name": changed(model([copy("x", "y")]), lambda m: m.graph.input.add().CopyFrom(value(""))),
    "an attribute twice in a body": twice(in_body(lambda a: None), lambda m: m.functions[0].node[0].attribute),
}
# Functions that readers take for operators: `check` gives advice, where the operator is called in
# their place.
SHADOWS = {("", "Relu"): True, ("", "Celu"): True, ("ai.onnx.ml", "Normalizer"): True, ("local", "Relu"): False}


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
            # Advice, although both refuse it: readers of tomorrow take it.
            if name == "IR version 15":
                assert ok and "onnxruntime" in said and not any(others), said
                continue
            if all(others):
                assert ok, f"{name}: both take it: {said}"
            elif not any(others):
                assert not ok, f"{name}: both refuse it: {said}"
            # What only one of them refuses is an error as well: another reader may be the strict
            # one.
            assert ok == all(others), f"{name}: checker and onnxruntime say {others}: {said}"
            seen[ok] += 1
    print(f"graphs: {seen[True]} taken and {seen[False]} refused as by onnx.checker and onnxruntime")
    assert min(seen.values()) > 10


def faults() -> None:
    """Each fault that a reader refuses is told: an error where onnxruntime refuses it."""
    told, wrong = 0, []
    with common.scratch() as folder:
        path = folder / "m.onnx"
        for name, built in (FAULTS | STRICT).items():
            path.write_bytes(built.SerializeToString())
            checker_takes, ort_takes = accepts(lambda: checker.check_model(str(path))), runs(path)
            ok, said = verdict(path)
            expected = "error" if not ort_takes or name in STRICT else "ok" if checker_takes else "advice"
            found = "error" if not ok else "advice" if "advice:" in said else "ok"
            if found != expected:
                wrong.append(f"{name}: checker {checker_takes}, onnxruntime {ort_takes}: {said}")
            told += expected != "ok"
        assert not wrong, "\n".join(wrong)
        for (domain, name), shadows in SHADOWS.items():
            path.write_bytes(shadowing(domain, name).SerializeToString())
            ok, said = verdict(path)
            assert ok and shadows == ("has the name of an operator" in said), f"{domain} {name}: {said}"
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            given = numpy.array([[-2, 0.5]] if domain == "ai.onnx.ml" else [-2, 0.5], numpy.float32)
            result = session.run(None, {"x": given.reshape(2)})[0]
            assert shadows == (not numpy.array_equal(result.reshape(-1), given.reshape(-1))), f"{name}: {result}"
    print(f"faults: {told} of {len(FAULTS) + len(STRICT)} that a reader refuses are told")
    assert told > 50


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


def with_errors(paths: list[pathlib.Path]) -> list[tuple[pathlib.Path, str]]:
    """The models that have an error, and the first that is said of each."""
    found = []
    for start in range(0, len(paths), 100):
        done = common.run("check", "--json", *paths[start : start + 100], timeout=600)
        checked = json.loads(done.stdout)["models"]
        assert [entry["path"] for entry in checked] == [str(path) for path in paths[start : start + 100]]
        found += [(pathlib.Path(entry["path"]), reason(entry)) for entry in checked if not entry["ok"]]
    return found


def reason(checked: dict) -> str:
    """The first error of a model."""
    return next(finding["reason"] for finding in checked["findings"] if finding["severity"] == "error")


def real_models() -> None:
    """No model that both readers take has an error."""
    folders = [common.ROOT / "tests" / "data", common.MODELS, common.SHARED / "data"]
    paths = sorted(path for folder in folders for path in folder.rglob("*.onnx"))
    refused = with_errors(paths)
    for path, said in refused:
        both = accepts(lambda path=path: checker.check_model(str(path))) and runs(path)
        assert not both, f"{path}: both take it: {said}"
        print(f"{path}: {said[:200]}")
    print(f"real models: {len(paths) - len(refused)} without an error, {len(refused)} that a reader refuses as well")
    assert len(refused) < len(paths)


def main() -> None:
    """All of it."""
    graphs()
    faults()
    declared_types()
    data_files()
    real_models()


if __name__ == "__main__":
    sys.exit(main())
