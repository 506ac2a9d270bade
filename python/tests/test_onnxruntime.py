"""Sessions of onnxruntime on our maps."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import models
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_container import Container

CPU = {"providers": ["CPUExecutionProvider"]}


def anonymous() -> int:
    """The anonymous memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) << 10


@pytest.mark.parametrize("files", ["packed", "per-tensor", "safetensors", "embedded"])
def test_outputs_are_those_of_the_file(tmp_path: Path, files: str) -> None:
    container = Container(*models.matmul())
    container.save(tmp_path / "m.onnx", files=files)
    x = np.random.default_rng(1).standard_normal((3, 64), dtype=np.float32)
    expected = models.run(str(tmp_path / "m.onnx"), x=x)[0]
    loaded = Container.load(tmp_path / "m.onnx")
    for session in (loaded.inference_session(**CPU), container.inference_session(**CPU)):
        assert session.run(None, {"x": x})[0].tobytes() == expected.tobytes()


def test_weights_that_are_produced_when_needed(tmp_path: Path) -> None:
    model, weights = models.matmul()
    container = Container(model, {handle: weight.copy for handle, weight in weights.items()})
    session = container.inference_session(**CPU)
    del container
    gc.collect()
    x = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weights["#a"] @ weights["#b"], rtol=1e-3)


def test_options_of_the_caller(tmp_path: Path) -> None:
    container = Container(*models.matmul())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = np.ones((1, 64), np.float32)
    mine = container.inference_session(options, **CPU).run(None, {"x": x})[0]
    session = onnxruntime.InferenceSession(container.model_bytes, container.session_options(), **CPU)
    gc.collect()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], mine, rtol=1e-5)


def test_a_session_takes_no_memory_for_weights(tmp_path: Path) -> None:
    size = 256 << 20
    weight = np.zeros((1024, size // 4096), np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["w", "i"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("i", 7, [1])],
        [onnx.helper.make_tensor_value_info("y", 1, [1, weight.shape[1]])],
        initializer=[onnx_tensor("w", weight.shape)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    Container(model, {"#w": weight}).save(tmp_path / "m.onnx", sync=False)
    del weight
    gc.collect()
    loaded = Container.load(tmp_path / "m.onnx")
    before = anonymous()
    session = loaded.inference_session(**CPU)
    session.run(None, {"i": np.array([7])})
    assert anonymous() - before < size // 16


def test_options_keep_the_weights_alive(tmp_path: Path) -> None:
    x = np.ones((1, 64), np.float32)
    container, weights = Container(*models.matmul()), models.matmul()[1]
    expected = x @ weights["#a"] @ weights["#b"]
    container.save(tmp_path / "m.onnx")
    for lazy in (False, True):
        container = Container.load(tmp_path / "m.onnx")
        if lazy:
            container.update({handle: weight.copy for handle, weight in weights.items()})
        mine = onnxruntime.SessionOptions()
        # So that the session reads the weights again and again.
        mine.add_session_config_entry("session.disable_prepacking", "1")
        options = container.session_options(mine)
        assert options is mine
        model = container.model_bytes
        del container
        gc.collect()
        session = onnxruntime.InferenceSession(model, options, **CPU)
        del options, mine
        gc.collect()
        for _ in range(3):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-3)
        # A reset makes the session anew, of the same options.
        session.set_providers(["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-3)


def test_options_are_for_one_session() -> None:
    container = Container(*models.matmul())
    options = container.session_options()
    for use in (container.session_options, container.inference_session):
        with pytest.raises(ValueError, match="make new ones"):
            use(options)


def test_weights_are_freed_with_the_session() -> None:
    class Array(np.ndarray):
        pass

    model, weights = models.matmul()
    alive = []
    for handle in weights:
        weights[handle] = weights[handle].view(Array)
        alive.append(weakref.ref(weights[handle]))
    session = Container(model, weights).inference_session(None, ["CPUExecutionProvider"])
    del weights
    gc.collect()
    assert all(it() is not None for it in alive)
    del session
    gc.collect()
    assert all(it() is None for it in alive)


def test_external_tensors_of_subgraphs(tmp_path: Path) -> None:
    from test_onnx import everywhere

    model = everywhere()
    del model.graph.sparse_initializer[:]
    container = Container(model)
    assert container.externalize(all_tensors=True).moved >= 4
    container.save(tmp_path / "m.onnx")
    for condition in (True, False):
        c = np.array(condition)
        expected = models.run(str(tmp_path / "m.onnx"), c=c)[0]
        for it in (container, Container.load(tmp_path / "m.onnx")):
            np.testing.assert_array_equal(it.inference_session(**CPU).run(None, {"c": c})[0], expected)


def onnx_tensor(name: str, shape: tuple[int, ...]) -> onnx.TensorProto:
    from onnx_container import make_large_tensor_proto

    return make_large_tensor_proto(f"#{name}", name, 1, shape)


def test_an_onnxruntime_without_weights_from_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Options:
        """What onnxruntime before 1.24 has."""

    monkeypatch.setattr(onnxruntime, "SessionOptions", Options)
    container = Container(*models.matmul())
    for ask in (container.session_options, container.inference_session):
        with pytest.raises(ImportError, match="install 1.24 or later"):
            ask()
