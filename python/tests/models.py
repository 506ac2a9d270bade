"""Models for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper as oh

from onnx_container import make_large_tensor_proto


def add(*weights: tuple[str, int, tuple[int, ...]], name: str = "g") -> onnx.ModelProto:
    """``y = x + w`` for each of the weights (name, type, shape), which are behind handles."""
    inits = [make_large_tensor_proto(f"#{w}", w, dtype, shape) for w, dtype, shape in weights]
    nodes = [oh.make_node("Identity", [w], [f"{w}_out"]) for w, _, _ in weights]
    outputs = [oh.make_tensor_value_info(f"{w}_out", dtype, shape) for w, dtype, shape in weights]
    graph = oh.make_graph(nodes, name, [], outputs, initializer=inits)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)


def matmul(inline: bool = False) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """``y = (x @ a) @ b``, and the weights behind its handles."""
    rng = np.random.default_rng(0)
    weights = {f"#{n}": rng.standard_normal((64, 64), dtype=np.float32) for n in "ab"}
    if inline:
        inits = [onnx.numpy_helper.from_array(w, h[1:]) for h, w in weights.items()]
    else:
        inits = [make_large_tensor_proto(h, h[1:], 1, w.shape) for h, w in weights.items()]
    graph = oh.make_graph(
        [oh.make_node("MatMul", ["x", "a"], ["h"]), oh.make_node("MatMul", ["h", "b"], ["y"])],
        "g",
        [oh.make_tensor_value_info("x", 1, [None, 64])],
        [oh.make_tensor_value_info("y", 1, [None, 64])],
        initializer=inits,
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10), weights


def with_function() -> onnx.ModelProto:
    """``y = double(x)``, where ``double`` is a local function."""
    function = oh.make_function(
        "local", "double", ["a"], ["b"], [oh.make_node("Add", ["a", "a"], ["b"])], [oh.make_opsetid("", 21)]
    )
    graph = oh.make_graph(
        [oh.make_node("double", ["x"], ["y"], domain="local")],
        "g",
        [oh.make_tensor_value_info("x", 1, [2])],
        [oh.make_tensor_value_info("y", 1, [2])],
    )
    opsets = [oh.make_opsetid("", 21), oh.make_opsetid("local", 1)]
    return oh.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)


def run(path: Any, **inputs: np.ndarray) -> list[np.ndarray]:
    """What onnxruntime computes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)
