"""What ranks write is held to the model: ``onnx_container._ranks``, which needs no torch."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from onnx_container import DataType
from onnx_container._ranks import Chunk, Names, boxes, prefix_rule, shared_out

DECLARED = {"w": (DataType.FLOAT, (4, 6), "#w"), "tied": (DataType.FLOAT, (4, 6), "#w"), "s": (DataType.FLOAT, (), None)}


def of(*parts: tuple[tuple[int, ...], tuple[int, ...]], name: str = "w", shape: tuple[int, ...] = (4, 6)) -> list[Chunk]:
    """One part of each rank."""
    return [Chunk(rank, name, DataType.FLOAT, "torch.float32", shape, box) for rank, box in enumerate(parts)]


CASES = {
    "whole": (of(((0, 0), (4, 6))), []),
    "rows": (of(((0, 0), (3, 6)), ((3, 0), (1, 6))), []),
    "columns": (of(((0, 4), (4, 2)), ((0, 0), (4, 4))), []),
    "tiles": (of(((0, 0), (2, 3)), ((0, 3), (2, 3)), ((2, 0), (2, 3)), ((2, 3), (2, 3))), []),
    "an empty part": (of(((0, 0), (4, 6)), ((4, 0), (0, 6))), []),
    "scalar": (of(((), ()), name="s", shape=()), []),
    "twice": (of(((0, 0), (4, 6)), ((0, 0), (4, 6))), ["w: ranks 0 and 1 both write [0:4, 0:6]"]),
    "overlap": (of(((0, 0), (3, 6)), ((2, 0), (2, 6))), ["w: ranks 0 and 1 both write [2:4, 0:6]"]),
    "columns overlap": (of(((0, 0), (4, 4)), ((1, 3), (3, 3))), ["w: ranks 0 and 1 both write [1:4, 3:6]"]),
    "scalar twice": (of(((), ()), ((), ()), name="s", shape=()), ["s: ranks 0 and 1 both write []"]),
    "a gap": (of(((0, 0), (2, 6)), ((3, 0), (1, 6))), ["w: the ranks have 18 of its 24 elements"]),
    "beyond": (of(((0, 0), (4, 7))), ["w: rank 0 has [0:4, 0:7], which is beyond [4, 6]"]),
    "before": (of(((-1, 0), (4, 6))), ["w: rank 0 has [-1:3, 0:6], which is beyond [4, 6]"]),
    "shape": (of(((0, 0), (6, 4)), shape=(6, 4)), ["w: rank 0 has torch.float32 [6, 4], and the model declares FLOAT [4, 6]"]),
}


@pytest.mark.parametrize(("chunks", "faults"), CASES.values(), ids=CASES.keys())
def test_parts_cover_a_tensor_once(chunks: list[Chunk], faults: list[str]) -> None:
    assert shared_out(chunks, DECLARED, Names(str))[1] == faults


def test_names_of_one_place_are_tied() -> None:
    chunks = [*of(((0, 0), (4, 6))), *of(((0, 0), (4, 6)), name="tied"), *of(((0, 0), (4, 6)), name="other")]
    shares, faults = shared_out(chunks, DECLARED, Names(str, tied={"other": "w"}))
    assert faults == [] and shares.tensors == {"w": "w", "tied": "tied", "other": "w"}
    assert shares.tied == {"tied": "w", "other": "w"}


def test_names_without_a_tensor() -> None:
    chunks = [*of(((0, 0), (4, 6)), name="x"), *of(((0, 0), (4, 6)), name="y"), *of(((0, 0), (4, 6)), name="left_out")]
    names = Names(lambda name: "z" if name == "y" else name, {"left_out"}.__contains__)
    shares, faults = shared_out(chunks, DECLARED, names)
    assert shares.unknown == ["x", "y (renamed to z)"] and faults == [] and shares.tensors == {}


RULES = {
    "longer": (["x", "a.b.w"], "rename=lambda name: name.removeprefix('a.b.')"),
    "shorter": (["w"], "rename=lambda name: 'm.' + name"),
    "no prefix": (["a_w", "other"], None),
}


@pytest.mark.parametrize(("names", "rule"), RULES.values(), ids=RULES.keys())
def test_a_prefix_is_told(names: list[str], rule: str | None) -> None:
    assert prefix_rule(names, ["m.w"] if names == ["w"] else ["w"]) == rule


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (7,), (3, 5), (1, 1, 9), (2, 3, 4), (5, 1, 2, 3)])
@pytest.mark.parametrize("most", [1, 4, 8, 20, 1000])
def test_boxes_have_every_element_once_and_in_order(shape: tuple[int, ...], most: int) -> None:
    found = []
    for offsets, sizes in boxes(shape, 4, most):
        ranges = [range(start, start + size) for start, size in zip(offsets, sizes, strict=True)]
        elements = list(itertools.product(*ranges))
        assert 0 < len(elements) * 4 <= max(most, 4)
        found += elements
    assert found == list(itertools.product(*map(range, shape)))


WITHOUT_TORCH = """
import sys, onnx_container
assert "torch" not in sys.modules
sys.modules["torch"] = None
try:
    import onnx_container.torch
except ImportError as error:
    print(error)
"""


def test_torch_is_imported_by_its_module_alone() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=True).stdout
    assert "onnx_container.torch is for PyTorch, with torch.distributed: install torch" in said
