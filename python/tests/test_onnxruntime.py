"""Sessions of onnxruntime on our maps."""

from __future__ import annotations

import gc
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


def onnx_tensor(name: str, shape: tuple[int, ...]) -> onnx.TensorProto:
    from onnx_container import make_large_tensor_proto

    return make_large_tensor_proto(f"#{name}", name, 1, shape)
