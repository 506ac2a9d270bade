"""No call ends well when it did not do what it was asked for: what matches nothing is an error, what is left over is told."""

from __future__ import annotations

import copy
import os
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import onnx_container
import onnx_ir
import pytest
import safetensors.numpy
from onnx_container import Container, Error, ExtendedModelContainer, Tensor
from onnx_container import external_data_helper as helper


def named() -> dict[str, np.ndarray]:
    return {handle[1:]: weight for handle, weight in models.matmul()[1].items()}


def full(prefix: str = "") -> Container:
    """``a`` and ``b``, which have their weights."""
    model, weights = models.matmul()
    for tensor in model.graph.initializer:
        tensor.name = prefix + tensor.name
        tensor.external_data[0].value = f"#{tensor.name}"
    return Container(model, {f"#{prefix}{handle[1:]}": weight for handle, weight in weights.items()})


def bare(tmp_path: Path) -> Container:
    """The same, whose weights are in a file and were not loaded."""
    full().save(tmp_path / "bare.onnx")
    return Container.load(tmp_path / "bare.onnx", weights=False)


# Weights that go by the names of tensors

Fill = Callable[[Container, dict[str, np.ndarray], Path, dict[str, Any]], Any]


def by_fill(container: Container, weights: dict[str, np.ndarray], folder: Path, options: dict[str, Any]) -> Any:
    return container.fill(weights, **options)


def by_file(container: Container, weights: dict[str, np.ndarray], folder: Path, options: dict[str, Any]) -> Any:
    safetensors.numpy.save_file(weights, folder / "w.safetensors")
    return container.attach_safetensors(folder / "w.safetensors", **options)


FILLS = [by_fill, by_file]
HINT = 'replace_prefix of "" by "m." makes "m.a" of "a"'
NOTHING: list[tuple[str, str, dict[str, Any], str]] = [
    ("m.", "", {}, HINT),
    ("m.", "", {"partial": True}, HINT),
    ("m.", "", {"strip_prefix": "x."}, HINT),
    ("", "m.", {}, 'strip_prefix of "m." makes "a" of "m.a"'),
    ("", "other", {}, "rename, strip_prefix and replace_prefix change the names"),
    ("", "", {"rename": lambda name: f"other.{name}"}, "no tensor of the model has the name of any of the weights"),
    ("", "", {"ignore": ["a", "b"]}, "no weights were given"),
]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(("of_model", "of_weights", "options", "text"), NOTHING, ids=str)
@pytest.mark.parametrize("has_weights", [True, False])
def test_weights_that_match_nothing_are_an_error(
    tmp_path: Path, fill: Fill, of_model: str, of_weights: str, options: dict[str, Any], text: str, has_weights: bool
) -> None:
    container = full(of_model) if has_weights else Container(full(of_model).model_proto)
    before = container.model_bytes, len(container)
    with pytest.raises(Error, match=re.escape(text)) as raised:
        fill(container, {of_weights + name: weight for name, weight in named().items()}, tmp_path, options)
    assert raised.value.kind == "MissingTensor"
    assert (container.model_bytes, len(container)) == before


@pytest.mark.parametrize("fill", FILLS)
def test_weights_that_match_in_part_are_told(tmp_path: Path, fill: Fill) -> None:
    weights = named()
    cases: list[tuple[Container, dict[str, np.ndarray], dict[str, Any], tuple[list[str], ...], list[str]]] = [
        (full(), {"a": weights["a"]}, {}, ([], ["b"], [], []), ["1 (b) got no weights and keep"]),
        (full(), weights | {"m.b": weights["b"]}, {}, (["m.b"], [], [], []), ["1 (m.b) match no tensor", 'strip_prefix of "m."']),
        (Container(models.matmul(inline=True)[0]), {"a": weights["a"]}, {}, ([], [], [], ["b"]), ["1 (b) got no weights"]),
        (Container(models.matmul()[0]), {"a": weights["a"]}, {"partial": True}, ([], [], ["b"], []), ["1 (b) are still without"]),
        (bare(tmp_path), {"a": weights["a"]}, {"partial": True}, ([], [], ["b"], []), ["1 (b) are still without"]),
    ]
    for container, given, options, expected, texts in cases:
        with pytest.warns(UserWarning) as told:
            filled = fill(container, given, tmp_path, options)
        assert (filled.unused, filled.own, filled.missing, filled.kept) == expected
        (message,) = [str(it.message) for it in told]
        assert all(text in message for text in texts), message
        assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fill(full(), weights, tmp_path, {})
        fill(full(), weights | {"c": weights["a"]}, tmp_path, {"ignore": "c"})
        fill(full(), {f"m.{name}": weight for name, weight in weights.items()}, tmp_path, {"strip_prefix": "m."})


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(
    "options, rules",
    [
        ({"ignore": ["c", "a"]}, ['ignore "c"']),
        ({"strip_prefix": "m."}, ['strip_prefix "m."']),
        ({"replace_prefix": {"n": "a", "b": "b"}}, ['replace_prefix "n" by "a"']),
        ({"rename": {"b": "b"}, "replace_prefix": {"b": "x"}}, ['replace_prefix "b" by "x"']),
    ],
)
def test_rules_that_apply_to_no_weights_are_told(tmp_path: Path, fill: Fill, options: dict[str, Any], rules: list[str]) -> None:
    with pytest.warns(UserWarning, match="had no effect") as told:
        filled = fill(full(), named(), tmp_path, options)
    assert filled.idle_rules == rules
    assert all(rule in str(told[0].message) for rule in rules)


@pytest.mark.parametrize("given", [b"", lambda: b""])
def test_weights_that_are_ignored_are_not_looked_at(given: Any) -> None:
    container = full()
    with pytest.warns(UserWarning, match="got no weights"):
        filled = container.fill({"a": named()["a"], "b": given, "c": given}, ignore=["b", "c"])
    assert (filled.filled, filled.idle_rules, filled.own) == (1, [], ["b"])


@pytest.mark.parametrize(
    "options",
    [{"strip_prefix": "m."}, {"replace_prefix": {"m.": ""}}, {"rename": {"m.a": "a"}}, {"rename": lambda name: name[2:]}],
)
@pytest.mark.parametrize("given", [bytes, lambda raw: lambda: raw, lambda raw: lambda: np.frombuffer(raw, np.float32)])
def test_weights_without_a_type_have_that_of_the_tensor_that_they_go_to(
    options: dict[str, Any], given: Callable[[bytes], Any]
) -> None:
    container, weight = full(), named()["a"] + 1
    with pytest.warns(UserWarning, match="got no weights"):
        container.fill({"m.a": given(weight.tobytes())}, **options)
    np.testing.assert_array_equal(container.tensor("a").numpy(), weight)


@pytest.mark.parametrize("fill", FILLS)
def test_names_are_changed_by_prefixes_and_functions(tmp_path: Path, fill: Fill) -> None:
    weights = {f"model.{name}": weight + 1 for name, weight in named().items()}
    for prefix, options in (
        ("", {"rename": lambda name: name.removeprefix("model.")}),
        ("", {"strip_prefix": "model."}),
        ("m.", {"replace_prefix": {"model.": "m."}}),
        ("x.model.", {"replace_prefix": {"": "x."}}),
        ("", {"rename": {"model.a": "a", "model.b": "b"}}),
    ):
        container = full(prefix)
        assert fill(container, weights, tmp_path, options).filled == 2
        np.testing.assert_array_equal(container.tensor(prefix + "a").numpy(), weights["model.a"])

    def fails(name: str) -> str:
        raise KeyError("mine")

    for options, error, text in (
        ({"rename": fails}, Error, "mine"),
        ({"rename": lambda name: None}, Error, "rename returned None"),
        ({"rename": str, "strip_prefix": "m"}, Error, "give one of them"),
        ({"rename": 3}, TypeError, "or is a function"),
        ({"replace_prefix": "m"}, TypeError, "maps prefixes"),
    ):
        with pytest.raises(error, match=text):
            fill(full(), weights, tmp_path, options)


def by_bytes(container: Container, weights: dict[str, np.ndarray], folder: Path, options: dict[str, Any]) -> Any:
    return container.fill({name: weight.tobytes() for name, weight in weights.items()}, **options)


@pytest.mark.parametrize("fill", [*FILLS, by_bytes])
def test_a_function_that_renames_is_called_once_for_each_name(tmp_path: Path, fill: Fill) -> None:
    calls: list[str] = []

    def rename(name: str) -> str:
        calls.append(name)
        return "ab"[len(calls) - 1]  # fails at the third call

    weights = {f"{number}": weight + 1 for number, weight in enumerate(named().values())}
    container = full()
    assert fill(container, weights, tmp_path, {"rename": rename, "ignore": []}).filled == 2
    assert sorted(calls) == ["0", "1"]
    calls.clear()
    with pytest.warns(UserWarning, match="got no weights"):
        fill(full(), weights, tmp_path, {"rename": rename, "ignore": "0", "partial": True})
    assert calls == ["1"]


@pytest.mark.parametrize("fill", [*FILLS, by_bytes])
@pytest.mark.parametrize("raised", [KeyboardInterrupt("k"), SystemExit(3), ValueError("mine"), KeyError("mine")])
@pytest.mark.parametrize("often", [True, False])
def test_what_a_function_that_renames_raises_is_raised(
    tmp_path: Path, fill: Fill, raised: BaseException, often: bool
) -> None:
    calls: list[str] = []

    def rename(name: str) -> str:
        calls.append(name)
        if often or len(calls) == 1:
            raise raised
        return "b"

    container = full()
    before = container.digest()
    expected = Error if isinstance(raised, Exception) else type(raised)
    with pytest.raises(expected, match="mine" if expected is Error else None) as found:
        fill(container, {"x": named()["a"], "y": named()["b"]}, tmp_path, {"rename": rename})
    if expected is not Error:
        assert found.value is raised and calls == calls[:1]
    assert container.digest() == before


# Everything else that may have nothing to do

NONE: list[tuple[str, Callable[[Path], Any], type[Exception], str]] = [
    ("attach of a full model", lambda p: full().attach(p), Error, "there are no weights to attach"),
    ("attach of inline ones", lambda p: Container(models.matmul(inline=True)[0]).attach(p), Error, "no weights to attach"),
    ("attach of other files", lambda p: bare(p).attach(p / "other"), Error, "other"),
    ("replace of no tensor", lambda p: full().replace("c", named()["a"]), Error, "no such tensor"),
    ("replace of a handle", lambda p: full().replace("##a", named()["a"]), Error, "no such tensor"),
    ("cast of no weights", lambda p: Container(models.with_function()).cast("float16"), Error, "nothing is cast"),
    ("cast of short weights", lambda p: full().cast("float16", min_bytes=1 << 20), Error, "nothing is cast"),
    ("cast of another type", lambda p: full().cast("float16", from_="bfloat16"), Error, "no weights of BFLOAT16"),
    ("cast to the same", lambda p: full().cast("float32", from_="float32"), Error, "nothing is cast"),
    ("cast of nothing, to compute", lambda p: Container(models.add()).cast("float16", compute=True), Error, "nothing is cast"),
    ("cast without weights", lambda p: bare(p).cast("float16"), Error, "was not loaded: attach the weights first"),
    ("cast of few without weights", lambda p: bare(p).cast("float16", min_bytes=1 << 20), Error, "was not loaded"),
    ("cast without initializers", lambda p: Container(models.matmul()[0]).cast("float16"), Error, "unresolved handle"),
    ("consolidate without weights", lambda p: bare(p).consolidate(), Error, "was not loaded"),
    ("embed without weights", lambda p: bare(p).embed(), Error, "was not loaded"),
    ("digest without weights", lambda p: bare(p).digest(), Error, "was not loaded"),
    ("match without weights", lambda p: bare(p).match(named()), Error, "was not loaded"),
    ("inline of no function", lambda p: full().inline_functions(only="local::f"), Error, "no function"),
    ("save of an empty model", lambda p: Container().save(p / "m.onnx"), Error, "the model is empty"),
    ("parts of an empty model", lambda p: Container().to_parts(), Error, "the model is empty"),
    ("save_model of an empty model", lambda p: onnx_container.save(onnx.ModelProto(), p / "m.onnx"), ValueError, "is empty"),
]


@pytest.mark.parametrize(("work", "error", "text"), [it[1:] for it in NONE], ids=[it[0] for it in NONE])
def test_what_has_nothing_to_do_says_so(tmp_path: Path, work: Callable[[Path], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        work(tmp_path)
    assert not (tmp_path / "m.onnx").exists()


def test_what_is_a_rule_for_all_tensors_reports_that_none_had_to_change() -> None:
    """A threshold says how a model is to be afterwards, and it is."""
    container = full()
    moved = container.externalize(min_bytes=1 << 20)
    assert (moved.moved, moved.nbytes) == (0, 0)
    assert len(container.consolidate(threshold=1 << 20)) == 0


# Handles in files

Write = Callable[[onnx.ModelProto, Path], Any]


def write_ir(model: onnx.ModelProto, path: Path, **options: Any) -> None:
    onnx_container.ir.save(onnx_ir.from_proto(model), path, **options)


WRITES: list[tuple[str, Write]] = [
    ("save_model", lambda model, path: onnx_container.save_model(model, path)),
    ("save", lambda model, path: onnx_container.save(model, str(path))),
    ("save_model of bytes", lambda model, path: onnx_container.save_model(model.SerializeToString(), path)),
    ("external", lambda model, path: onnx_container.save_model(model, path, save_as_external_data=True)),
    ("external, attributes", lambda m, p: onnx_container.save_model(m, p, save_as_external_data=True, convert_attribute=True)),
    ("a file each", lambda m, p: onnx_container.save_model(m, p, save_as_external_data=True, all_tensors_to_one_file=False)),
    ("external, bytes", lambda m, p: onnx_container.save_model(m.SerializeToString(), p, save_as_external_data=True)),
    ("text", lambda model, path: onnx_container.save_model(model, path.with_suffix(".textproto"))),
    ("write_external_data_tensors", lambda model, path: helper.write_external_data_tensors(model, path.parent)),
    ("ir.save", write_ir),
    ("ir.save, external", lambda model, path: write_ir(model, path, external_data="w")),
    ("ir.save, text", lambda model, path: write_ir(model, path.with_suffix(".textproto"))),
    ("ir.save_safetensors", lambda m, p: onnx_container.ir.save_safetensors(onnx_ir.from_proto(m), p)),
    ("ir.save_safetensors, shards", lambda m, p: onnx_container.ir.save_safetensors(onnx_ir.from_proto(m), p, max_shard_size_bytes=9)),
    ("Container.save", lambda model, path: Container(model).save(path)),
    ("Container.save, kept", lambda model, path: Container(model).save(path, files="as-loaded")),
    ("Container.to_parts", lambda model, path: Container(model).to_parts()),
]
PLACES = ["initializer", "attribute", "subgraph", "function"]


def with_handle(place: str, has_elements: bool) -> onnx.ModelProto:
    """A model in which the tensor at ``place`` names a handle."""
    tensor = onnx.numpy_helper.from_array(np.ones(512, np.float32), "w")
    helper.set_external_data(tensor, "#w")
    if not has_elements:
        tensor.ClearField("raw_data")
    constant = onnx.helper.make_node("Constant", [], ["c"], value=tensor)
    model = models.with_function()
    if place == "initializer":
        model.graph.initializer.append(tensor)
    elif place == "attribute":
        model.graph.node.append(constant)
    elif place == "function":
        model.functions[0].node.append(constant)
    else:
        inner = onnx.helper.make_graph([], "inner", [], [], initializer=[tensor])
        model.graph.node.append(onnx.helper.make_node("If", ["x"], [], then_branch=inner, else_branch=inner))
    return model


@pytest.mark.parametrize("write", [it[1] for it in WRITES], ids=[it[0] for it in WRITES])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("has_elements", [False, True])
def test_no_model_is_written_that_names_handles(tmp_path: Path, write: Write, place: str, has_elements: bool) -> None:
    model = with_handle(place, has_elements)
    # One that has its elements too is refused for that by a container.
    with pytest.raises((ValueError, Error), match="handle|both external and inline"):
        write(model, tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


def test_the_model_of_a_container_is_not_saved_without_its_weights(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tensor 'a': the location '#a' is a handle, whose weights are in a container"):
        onnx_container.save_model(full().model_proto, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="handle"):
        helper.convert_model_to_external_data(models.matmul(inline=True)[0], location="#w")
    assert os.listdir(tmp_path) == []


def test_weights_that_are_not_beside_a_model_are_told(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    full().save(here / "m.onnx", data_name="w.data")
    model = onnx.load(here / "m.onnx", load_external_data=False)
    for given in (model, model.SerializeToString()):
        with pytest.warns(UserWarning, match=r"there.w\.data: the saved model needs this file") as told:
            onnx_container.save_model(given, there / "m.onnx")
        assert len(told) == 1 and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        onnx_container.save_model(model, here / "n.onnx")


# Handles and names


def test_a_container_goes_by_handles_and_nothing_else() -> None:
    container, weights = full(), models.matmul()[1]
    calls: list[tuple[str, Callable[[str], Any]]] = [
        ("read", lambda key: container[key]),
        ("write", lambda key: container.__setitem__(key, weights["#a"])),
        ("delete", lambda key: container.__delitem__(key)),
    ]
    for key in ("a", "", "val_0", "a#", 3, None):
        for what, call in calls:
            with pytest.raises(KeyError, match=r"tensor\(name\)"):
                call(key)  # type: ignore[arg-type]
            assert what and container.keys() == ["#a", "#b"]
        assert key not in container and container.get(key) is None  # type: ignore[arg-type]
    with pytest.raises(Error, match="is not `#`"):
        container.update({"a": weights["#a"]})
    # What a handle has does not follow the names of the model, and does not say that it does.
    swapped = container.model_proto
    first, second = swapped.graph.initializer
    first.name, second.name = second.name, first.name
    container.model_proto = swapped
    for name, other in (("a", "#b"), ("b", "#a")):
        np.testing.assert_array_equal(container.tensor(name).numpy(), weights[other])
        assert container.tensor(name).name == name and container[f"#{name}"].name == f"#{name}"
        np.testing.assert_array_equal(container[f"#{name}"].numpy(), weights[f"#{name}"])
    assert [tensor.name for tensor in container.values()] == [name for name, _ in container.items()] == container.keys()


# Names of peers


def test_a_location_has_to_be_that_of_a_large_initializer() -> None:
    container = ExtendedModelContainer()
    container.model_proto, weights = models.matmul()
    tensor = container.model_proto.graph.initializer[0]
    with pytest.raises(RuntimeError, match="Unable to find large tensor named 'a' with location '#a'"):
        container.get_prop(tensor)
    container.set_large_initializers(dict(weights))
    assert container.get_prop(tensor).value == "#a"
    tensor.external_data[0].value = "#c"
    with pytest.raises(RuntimeError, match="#c"):
        container.get_prop(tensor)
    del tensor.external_data[:]
    with pytest.raises(RuntimeError, match="No location found"):
        container.get_prop(tensor)


def test_weights_may_be_in_a_file_that_ends_as_models_do(tmp_path: Path) -> None:
    model, weights = models.matmul(inline=True)
    for name in ("external_data.onnx", "sub/w.ONNX"):
        (tmp_path / "sub").mkdir(exist_ok=True)
        for _ in range(2):
            onnx_container.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location=name)
            for load in (onnx.load, onnx_container.load):
                read = load(tmp_path / "m.onnx").graph.initializer[0]
                np.testing.assert_array_equal(onnx.numpy_helper.to_array(read), weights["#a"])
    marked, _ = models.matmul(inline=True)
    helper.convert_model_to_external_data(marked, location="w.onnx")
    onnx_container.save_model(marked, tmp_path / "n.onnx")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.onnx")}
    # Another model, or its weights, are not replaced, nor is the model itself.
    for target, name in (("o.onnx", "m.onnx"), ("o.onnx", "w.onnx"), ("m.onnx", "m.onnx"), ("m.onnx", "w.onnx")):
        with pytest.raises((ValueError, Error)):
            onnx_container.save_model(model, tmp_path / target, save_as_external_data=True, location=name)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.onnx")}


def test_names_of_onnx_are_there() -> None:
    import onnx.external_data_helper as theirs

    for name in ("load_external_data_for_model", "convert_model_to_external_data", "write_external_data_tensors"):
        assert getattr(onnx, name) and getattr(onnx_container, name) is getattr(helper, name)
        assert name in dir(onnx_container)
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Constant", [], ["d"], value=onnx.helper.make_tensor("d", 1, [1], [1.0]))],
        "inner", [], [], initializer=[onnx.helper.make_tensor("i", 1, [1], [1.0])],
    )
    node = onnx.helper.make_node("If", ["c"], [], then_branch=inner, else_branch=inner)
    constant = onnx.helper.make_node("Constant", [], ["c"], value=onnx.helper.make_tensor("c", 1, [1], [1.0]))
    graph = onnx.helper.make_graph([constant, node], "g", [], [], initializer=[onnx.helper.make_tensor("o", 1, [1], [1.0])])
    for name, given in (
        ("_get_initializer_tensors_from_graph", graph),
        ("_get_attribute_tensors_from_graph", graph),
        ("_get_attribute_tensors_from_graph", onnx.helper.make_function("d", "f", [], [], [constant, node], [])),
    ):
        found = [[it.name for it in getattr(module, name)(given)] for module in (helper, theirs)]
        assert found[0] == found[1] and found[0], name


def test_names_of_onnx_ir_are_there() -> None:
    ir = onnx_container.ir
    for name in onnx_ir.__all__:
        assert hasattr(ir, name), name
        if name not in ir.__all__:
            assert getattr(ir, name) is getattr(onnx_ir, name)
    assert ir.external_data is onnx_ir.external_data and {"load", "TensorProtocol"} <= set(dir(ir))
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        ir.nothing_of_this_name


def test_lazy_names_are_listed() -> None:
    assert {"ExtendedModelContainer", "ModelContainer", "make_large_model", "findings"} <= set(dir(onnx_container))
    for name in onnx_container.__all__:
        assert getattr(onnx_container, name) is not None


# Tensors


def test_what_makes_a_tensor_makes_one_of_this_class() -> None:
    proto = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    made = [
        (Tensor.lazy(1, [4], lambda: np.arange(4, dtype=np.float32).tobytes()), ""),
        (Tensor.lazy("float32", (4,), lambda: np.arange(4, dtype=np.float32), name="w"), "w"),
        (Tensor.from_tensor_proto(proto), "w"),
        (Tensor.from_tensor_proto(proto.SerializeToString()), ""),
        (Tensor(proto), "w"),
        (Tensor(Tensor(proto)), "w"),
        (Tensor(onnx_ir.from_proto(proto)), "w"),
        (Tensor(proto, name="other"), "other"),
        (onnx_container.ir.Tensor.from_tensor_proto(proto), "w"),
    ]
    for tensor, name in made:
        assert isinstance(tensor, Tensor) and tensor.name == name
        np.testing.assert_array_equal(tensor.numpy(), np.arange(4))
    assert Tensor.of_strings([2], ["a", b"b"]).numpy().tolist() == [b"a", b"b"]
    packed = Tensor.pack("int4", [3], bytes([1, 2, 15]))
    assert (packed.dtype, packed.tobytes()) == (onnx_container.DataType.INT4, b"\x21\x0f")


def test_objects_say_what_they_are(tmp_path: Path) -> None:
    full().save(tmp_path / "m.onnx")
    tensor = Container.load(tmp_path / "m.onnx").tensor("a")
    assert "m.onnx.data, bytes 0 to 16384" in repr(tensor.bytes())
    assert "lent" in repr(Tensor(np.ones(3)).bytes())
    assert repr(onnx_container._core.Initializer(tensor)) == "<Initializer: FLOAT [64, 64]>"


# Errors


def test_check_model_raises_and_findings_lists(tmp_path: Path) -> None:
    full().save(tmp_path / "m.onnx")
    onnx.checker.check_model(str(tmp_path / "m.onnx"))
    assert onnx_container.check_model(tmp_path / "m.onnx") is None
    assert not [it for it in onnx_container.findings(tmp_path / "m.onnx") if it[0] == "error"]
    (tmp_path / "m.onnx.data").unlink()
    found = [error for severity, error in onnx_container.findings(tmp_path / "m.onnx") if severity == "error"]
    assert [error.kind for error in found] == ["MissingFile"] * len(found)
    with pytest.raises(FileNotFoundError, match=r"m\.onnx\.data") as raised:
        onnx_container.check_model(tmp_path / "m.onnx")
    assert isinstance(raised.value, Error)
    for check in (onnx_container.check_model, onnx_container.findings):
        with pytest.raises(FileNotFoundError):
            check(tmp_path / "none.onnx")
        with pytest.raises(TypeError, match="from a path, not ModelProto"):
            check(models.matmul()[0])
        with pytest.raises(TypeError, match="full_check"):
            check(tmp_path / "m.onnx", full_check=True)  # type: ignore[call-arg]


def test_errors_are_those_of_python_too(tmp_path: Path) -> None:
    container = full()
    container.save(tmp_path / "m.onnx")
    (tmp_path / "folder.onnx").mkdir()
    cases: list[tuple[Callable[[], Any], type[OSError], str]] = [
        (lambda: Container.load(tmp_path / "none.onnx"), FileNotFoundError, "none.onnx"),
        (lambda: container.save(tmp_path / "m.onnx", overwrite=False), FileExistsError, "m.onnx"),
        (lambda: Container.load(tmp_path / "folder.onnx"), IsADirectoryError, "folder.onnx"),
        (lambda: container.save(tmp_path / "folder.onnx"), IsADirectoryError, "folder.onnx"),
        (lambda: container.save(tmp_path / "none" / "m.onnx"), FileNotFoundError, "none"),
    ]
    for work, expected, text in cases:
        with pytest.raises(expected, match=text) as raised:
            work()
        assert isinstance(raised.value, Error) and raised.value.errno
        assert text in raised.value.filename and raised.value.path in (raised.value.filename, None)
        assert raised.value.strerror == raised.value.reason
        for again in (pickle.loads(pickle.dumps(raised.value)), copy.copy(raised.value)):
            assert type(again) is type(raised.value) and str(again) == str(raised.value)
            for name in ("errno", "strerror", "filename", "kind", "path"):
                assert getattr(again, name) == getattr(raised.value, name)


def test_reports_are_copied_and_pickled(tmp_path: Path) -> None:
    saved = full().save(tmp_path / "m.onnx")
    mapping = full().match(named())
    for again in (copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))):
        assert again(saved) == saved and again(saved).model_bytes == saved.model_bytes
        assert again(mapping) == mapping
    assert pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(saved)))).model_proto == saved.model_proto


def test_errors_name_what_the_caller_named(tmp_path: Path) -> None:
    model, _ = models.matmul(inline=True)
    missing = tmp_path / "none"
    marked, _ = models.matmul(inline=True)
    helper.convert_model_to_external_data(marked, False)
    for given, path in ((model, missing / "m.onnx"), (marked, missing / "m.onnx")):
        with pytest.raises(FileNotFoundError) as raised:
            onnx_container.save_model(given, path)
        assert raised.value.filename == str(missing) and ".onnx-container-" not in str(raised.value)


def test_an_error_of_many_is_short(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(38)]
    container = Container(models.add(*[(name, 1, (2,)) for name in names]))
    with pytest.raises(Error) as raised:
        container.check()
    error = raised.value
    assert [it.tensor for it in error.related] == names
    assert sum(f"`{name}`" in str(error) for name in names) == 10
    assert str(error).startswith("38 problems: ") and str(error).endswith("; and 28 more, all in `related`")


@pytest.mark.parametrize("call", ["save", "dry_run"])
def test_names_of_options_elsewhere_are_known(tmp_path: Path, call: str) -> None:
    for other, ours in (
        ("location", "data_name"),
        ("external_data", "data_name"),
        ("size_threshold", "threshold"),
        ("size_threshold_bytes", "threshold"),
        ("max_shard_size", "max_shard_bytes"),
        ("max_shard_size_bytes", "max_shard_bytes"),
        ("save_as_external_data", "externalize"),
    ):
        with pytest.raises(TypeError, match=f"did you mean '{ours}'"):
            getattr(full(), call)(tmp_path / "m.onnx", **{other: 1})
