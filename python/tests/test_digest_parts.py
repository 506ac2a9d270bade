"""Digests, checks and statistics of a model by several processes, each a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_container as oc
import pytest
from onnx import helper, numpy_helper
from onnx_container import Container, Error


@pytest.fixture(name="path")
def saved(tmp_path: Path) -> Path:
    """A model of three weights with stored digests."""
    weights = {f"w{i}": np.full(100 * (3 - i), i, np.float32) for i in range(3)}
    tensors = [numpy_helper.from_array(it, name) for name, it in weights.items()]
    nodes = [helper.make_node("Identity", [name], [f"y{name}"]) for name in weights]
    outputs = [helper.make_tensor_value_info(f"y{name}", 1, it.shape) for name, it in weights.items()]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "a.onnx")
    path = tmp_path / "m.onnx"
    Container.load(tmp_path / "a.onnx").save(path, externalize=True, threshold=1, digests=True)
    return path


@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_parts_make_the_digest(path: Path, of: int) -> None:
    container = Container.load(path)
    texts = [container.partial_digest(part, of) for part in range(of)]
    bare = Container.load(path, weights=False)
    assert bare.digest(parts=reversed(texts)) == container.digest()
    stats = [oc.stats(path, part=(part, of)) for part in range(of)]
    assert {name: it for part in stats for name, it in part.items()} == oc.stats(path)
    assert sum(map(len, stats)) == 3
    assert list(oc.stats(container, "w0", part=(0, of))) == ["w0"]


def test_a_changed_weight_is_found_by_its_part(path: Path) -> None:
    given: dict[str, Any] = {"digests": True, "finite": True}
    assert [oc.check(path, part=(part, 3), **given).ok for part in range(3)] == [True] * 3
    data = path.with_name("m.onnx.data")
    content = bytearray(data.read_bytes())
    content[:4] = np.float32(np.nan).tobytes()
    data.write_bytes(content)
    checked = [oc.check(path, part=(part, 3), **given) for part in range(3)]
    assert [it.ok for it in checked] == [False, True, True]
    assert checked[0].models[0].not_finite == ["w0"]
    kinds = [[kind for kind, _ in oc.findings(path, digests=True, part=(part, 3))] for part in range(3)]
    assert kinds == [["error"], [], []]


def test_what_is_no_part_is_refused(path: Path) -> None:
    container = Container.load(path)
    texts = [container.partial_digest(part, 3) for part in range(3)]
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: container.partial_digest(3, 3), ValueError, "no part 3 of 3"),
        (lambda: container.partial_digest(0, 0), ValueError, "no part 0 of 0"),
        (lambda: container.partial_digest("0", 3), TypeError, "two numbers"),  # type: ignore[arg-type]
        (lambda: oc.stats(path, part=(3, 3)), ValueError, "the last one is 2"),
        (lambda: oc.stats(path, part="0/3"), TypeError, "two numbers"),  # type: ignore[arg-type]
        (lambda: oc.check(path, part=(-1, 3)), TypeError, "two numbers"),
        (lambda: oc.check(path, part=(0, 3)), ValueError, "part divides what digests=True"),
        (lambda: oc.findings(path, part=(1,)), TypeError, "two numbers"),  # type: ignore[arg-type]
        (lambda: container.digest(parts=texts[:2]), Error, "these parts are missing: 2/3"),
        (lambda: container.digest(parts=[]), Error, "no parts to join"),
        (lambda: container.digest(parts=["{}"]), Error, "not a partial digest"),
        (lambda: container.digest(parts=texts[0]), TypeError, "not a str"),
        (lambda: container.digest(parts=[b""]), TypeError, "str"),  # type: ignore[list-item]
    ]
    for call, kind, said in refused:
        with pytest.raises(kind, match=said):
            call()
