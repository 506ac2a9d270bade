"""``ModelContainer`` and ``ExtendedModelContainer``: what users of onnx and yobx rely on."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import models
import numpy as np
import onnx
import onnx.model_container
import onnx_container
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_container import ExtendedModelContainer, ModelContainer, make_large_model, make_large_tensor_proto

CLASSES = [ModelContainer, ExtendedModelContainer]


def filled(cls):
    container = cls()
    container.model_proto, weights = models.matmul()
    container.set_large_initializers(dict(weights))
    container.check_large_initializers()
    return container, weights


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("one_file", [None, True, False])
def test_names_of_files_are_those_of_the_peers(tmp_path: Path, cls, one_file) -> None:
    container, weights = filled(cls)
    path = str(tmp_path / "m.onnx")
    saved = container.save(path) if one_file is None else container.save(path, one_file)
    packed = cls is ExtendedModelContainer if one_file is None else one_file
    suffix = ".data" if cls is ExtendedModelContainer else ".weight"
    expected = {"m.onnx", f"m.onnx{suffix}"} if packed else {"m.onnx", "m-a.weight", "m-b.weight"}
    assert set(os.listdir(tmp_path)) == expected
    assert isinstance(saved, onnx.ModelProto)
    assert [it.external_data[0].value for it in container.model_proto.graph.initializer] == ["#a", "#b"]
    onnx.checker.check_model(path)

    loaded = cls()
    assert loaded.load(path) is loaded
    assert sorted(loaded.large_initializers) == ["#t0", "#t1"]
    assert isinstance(loaded["#t0"], np.ndarray)
    np.testing.assert_array_equal(loaded["#t0"], weights["#a"])
    loaded.check_large_initializers()
    peer = onnx.model_container.ModelContainer()
    peer.load(path)
    np.testing.assert_array_equal(peer["#t1"], weights["#b"])


def test_what_the_peers_wrote_is_loaded(tmp_path: Path) -> None:
    peer = onnx.model_container.ModelContainer()
    peer.model_proto, weights = models.matmul()
    peer.set_large_initializers(weights)
    for one_file in (True, False):
        path = str(tmp_path / f"{one_file}.onnx")
        peer.save(path, one_file)
        loaded = ExtendedModelContainer().load(path)
        np.testing.assert_array_equal(loaded["#t1"], weights["#b"])


@pytest.mark.parametrize("cls", CLASSES)
def test_the_reference_evaluator_takes_it(cls) -> None:
    container, weights = filled(cls)
    assert isinstance(container, onnx.model_container.ModelContainer)
    x = np.ones((2, 64), np.float32)
    got = ReferenceEvaluator(container).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, x @ weights["#a"] @ weights["#b"], rtol=1e-5)


def test_errors_are_those_of_the_peers(tmp_path: Path) -> None:
    container = ExtendedModelContainer()
    with pytest.raises(RuntimeError, match="empty"):
        container.model_proto
    with pytest.raises(RuntimeError, match="must be loaded"):
        container._load_large_initializers(str(tmp_path / "m.onnx"))
    with pytest.raises(ValueError, match="must start with '#'"):
        container.set_large_initializers({"w": np.zeros(2)})
    container.model_proto = models.matmul()[0]
    with pytest.raises(ValueError, match="Unable to find large tensor"):
        container["#a"]
    with pytest.raises(RuntimeError, match="Unable to find large tensor named 'a'"):
        container.check_large_initializers()
    with pytest.raises(RuntimeError, match="Unable to find large tensor named 'a'"):
        container.save(tmp_path / "m.onnx")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        filled(ExtendedModelContainer)[0].save(tmp_path / "none" / "m.onnx")
    assert os.listdir(tmp_path) == []


def test_functions_are_inlined_by_a_save(tmp_path: Path) -> None:
    container = ExtendedModelContainer()
    container.model_proto = models.with_function()
    container.inline = True
    saved = container.save(tmp_path / "m.onnx")
    assert len(saved.functions) == 0 and saved.graph.node[0].op_type == "Add"
    assert len(container.model_proto.functions) == 1


def test_a_name_without_a_folder_is_here(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    container, weights = filled(ModelContainer)
    container.save("m.onnx")
    assert sorted(os.listdir()) == ["m-a.weight", "m-b.weight", "m.onnx"]


def test_a_model_is_made_of_a_graph() -> None:
    model, weights = models.matmul()
    large = make_large_model(model.graph, weights, ir_version=9)
    assert large.model_proto.ir_version == 9 and isinstance(large, ModelContainer)
    large.check_model()
    assert large.is_in_memory_external_initializer("#a") and not large.is_in_memory_external_initializer("a")
    tensor = make_large_tensor_proto("#l", "n", onnx.TensorProto.FLOAT, (2, 3))
    peer = onnx.model_container.make_large_tensor_proto("#l", "n", onnx.TensorProto.FLOAT, (2, 3))
    assert tensor == peer


def test_the_model_has_its_data_on_request() -> None:
    container, weights = filled(ExtendedModelContainer)
    model = container.get_model_with_data()
    assert model.graph.initializer[0].raw_data == weights["#a"].tobytes()
    assert container.get_prop(container.model_proto.graph.initializer[0]).value == "#a"
    assert container.get_raw_data(weights["#b"]) == weights["#b"].tobytes()
    ir_model = container.to_ir()
    np.testing.assert_array_equal(ir_model.graph.initializers["a"].const_value.numpy(), weights["#a"])


def test_weights_are_loaded_later(tmp_path: Path) -> None:
    container, weights = filled(ExtendedModelContainer)
    path = str(tmp_path / "m.onnx")
    container.save(path)
    loaded = ExtendedModelContainer()
    loaded.load(path, load_large_initializers=False)
    assert loaded.large_initializers == {}
    loaded._load_large_initializers(path)
    np.testing.assert_array_equal(loaded["#t0"], weights["#a"])


def test_graphs_inside_are_listed() -> None:
    inner = onnx.helper.make_graph([], "inner", [], [])
    node = onnx.helper.make_node("If", ["c"], [], then_branch=inner, else_branch=inner)
    graph = onnx.helper.make_graph([node], "outer", [], [])
    container = ModelContainer()
    container.model_proto = onnx.helper.make_model(graph)
    peer = onnx.model_container.ModelContainer()
    peer.model_proto = container.model_proto
    assert [it.name for it in container.graphs_] == [it.name for it in peer.graphs_]


def test_times_are_kept(tmp_path: Path) -> None:
    container, _ = filled(ExtendedModelContainer)
    container.save(tmp_path / "m.onnx")
    assert all(key.startswith("time_export_") for key in container._stats) and container._stats


def test_statistics_are_those_of_yobx() -> None:
    from onnx_container.model_container import BuildStats, _get_type

    stats = BuildStats()
    assert len(stats) == 0 and stats["time_export_tobytes"] == 0.0 and "{}" in repr(stats)
    stats["time_export_tobytes"] += 0.5
    stats["time_export_write_model"] += 0.25
    stats.validate()
    stats.to_dict()["time_export_tobytes"] = 2.0
    assert stats.to_dict() == {"time_export_tobytes": 2.0, "time_export_write_model": 0.25}
    stats["other"] = 1
    with pytest.raises(KeyError):
        stats.validate()
    assert [_get_type(it) for it in (1, None, np.float16, np.bool_, np.dtype("i8"))] == [1, 0, 10, 9, 7]
    with pytest.raises(TypeError):
        _get_type("unknown_type")


def test_handles_that_the_model_lacks_are_left_out(tmp_path: Path) -> None:
    container, weights = filled(ExtendedModelContainer)
    container.large_initializers["#unused"] = lambda: weights["#a"]
    container.save(tmp_path / "m.onnx")
    assert len(ExtendedModelContainer().load(tmp_path / "m.onnx").large_initializers) == 2


def test_a_model_that_others_have_gets_its_handles_in_place(tmp_path: Path) -> None:
    container, _ = filled(ExtendedModelContainer)
    container.save(tmp_path / "m.onnx")
    loaded = ExtendedModelContainer().load(tmp_path / "m.onnx", load_large_initializers=False)
    model = loaded.model_proto
    loaded._load_large_initializers(tmp_path / "m.onnx")
    assert loaded.model_proto is model and model.graph.initializer[0].external_data[0].value == "#t0"


def test_both_names_are_one_class() -> None:
    assert onnx_container.TorchModelContainer is ExtendedModelContainer


def test_a_graph_becomes_one_of_onnx_ir() -> None:
    container, weights = filled(ExtendedModelContainer)
    graph = container._deserialize_graph(container.model_proto.graph, [])
    assert [it.name for it in graph.inputs] == ["x"] and len(list(graph)) == 2
    np.testing.assert_array_equal(graph.initializers["a"].const_value.numpy(), weights["#a"])
    # Handles that the model does not name are no weights of it.
    container.large_initializers["#unused"] = weights["#a"]
    container.check_large_initializers()


@pytest.mark.parametrize("classes", [(ModelContainer, ModelContainer), (ModelContainer, ExtendedModelContainer)])
def test_a_model_is_saved_to_one_file_and_to_many_in_turn(tmp_path: Path, classes) -> None:
    path = tmp_path / "m.onnx"
    for cls, one_file in [(cls, one_file) for cls in classes for one_file in (True, False, True, True, False)]:
        container, weights = filled(cls)
        container.save(path, one_file)
        np.testing.assert_array_equal(cls().load(path)["#t1"], weights["#b"])
        assert len(os.listdir(tmp_path)) == (2 if one_file else 3)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_file_of_the_default_name_that_nobody_needs_stays(tmp_path: Path, cls) -> None:
    container, _ = filled(cls)
    stranger = tmp_path / f"m.onnx{cls._suffix}"
    stranger.write_text("precious")
    with pytest.raises(FileExistsError, match="not replaced"):
        container.save(tmp_path / "m.onnx", True)
    assert stranger.read_text() == "precious"
    container.model_proto = models.add()
    container.large_initializers = {}
    container.save(tmp_path / "m.onnx", True)  # nothing is written to such a file
    assert stranger.read_text() == "precious"


def test_saves_at_once_take_turns(tmp_path: Path) -> None:
    path, errors = tmp_path / "m.onnx", []
    start = threading.Barrier(4)

    def save() -> None:
        container, _ = filled(ModelContainer)
        start.wait()
        for _ in range(8):
            try:
                container.save(path, True, sync=False)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.weight"]
