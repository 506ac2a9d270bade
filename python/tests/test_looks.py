"""``inspect``, ``stats`` and ``diff``: what is in models, held to numpy."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_container as oc
import pytest
from models import add
from onnx import TensorProto, helper, numpy_helper
from onnx_container import Container

DTYPES = [
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float4_e2m1fn,
    ml_dtypes.int4,
    ml_dtypes.uint4,
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
]


def holding(**weights: np.ndarray) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([], "g", [], [], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_statistics_are_those_of_numpy(dtype: type) -> None:
    numbers = np.random.default_rng(7).normal(3, 2, 20_001)
    if np.dtype(dtype).kind == "u" or "uint" in np.dtype(dtype).name:
        numbers = np.abs(numbers)
    values = numbers.astype(dtype)
    wide = values.astype(np.float64)
    found = oc.stats(Container(holding(w=values)))["w"]
    assert (found.elements, found.nan, found.infinite) == (values.size, 0, 0)
    assert found.min == wide.min() and found.max == wide.max()
    assert found.mean == pytest.approx(wide.mean(), rel=1e-12)
    assert found.std == pytest.approx(wide.std(), rel=1e-12)
    assert found.zeros == np.count_nonzero(wide == 0)
    assert found.histogram is not None
    # The last bin of numpy's has its upper end too, which no number is.
    counts, _ = np.histogram(wide, bins=np.array(found.histogram.edges))
    assert counts.tolist() == found.histogram.counts


def test_what_is_not_finite_is_counted_apart() -> None:
    values = np.array([1, np.nan, np.inf, -np.inf, 3, 0], np.float32)
    found = oc.stats(Container(holding(w=values, same=np.ones(5, np.float32))))
    w = found["w"]
    assert (w.nan, w.infinite, w.zeros, w.min, w.max, w.mean) == (1, 2, 1, 0, 3, pytest.approx(4 / 3))
    assert found["same"].all_equal and found["same"].std == 0 and not w.all_equal


def test_statistics_of_chosen_tensors(tmp_path: Path) -> None:
    onnx.save(holding(**{"a.w": np.ones(3, np.float32), "b.w": np.zeros(2, np.float32)}), tmp_path / "m.onnx")
    assert list(oc.stats(tmp_path / "m.onnx", "a.*")) == ["a.w"]
    assert list(oc.stats(tmp_path / "m.onnx", ["b.*", "a.*"], mmap=False)) == ["a.w", "b.w"]
    with pytest.raises(ValueError, match=r"no tensor has a name like 'c\.\*'"):
        oc.stats(tmp_path / "m.onnx", "c.*")


def test_a_model_is_summed_up(tmp_path: Path) -> None:
    model = add(("w", TensorProto.FLOAT, (2, 3)))
    container = Container(model, {"#w": np.arange(6, dtype=np.float32)})
    container.metadata["author"] = "<b>Ada</b>"
    container.save(tmp_path / "m.onnx")
    summary = oc.inspect(tmp_path / "m.onnx")
    assert (summary.parameters, summary.nbytes, summary.nodes) == (6, 24, len(model.graph.node))
    assert [value.name for value in summary.inputs] == [value.name for value in model.graph.input]
    assert summary.tensors[0].stored["location"] == "m.onnx.data"
    assert summary.dtypes["FLOAT"] == {"tensors": 1, "elements": 6, "bytes": 24}
    assert summary.metadata == {"author": "<b>Ada</b>"}
    assert "parameters 6" in repr(summary)
    page = summary._repr_html_()
    assert "&lt;b&gt;Ada" in page and "<b>" not in page
    loaded = Container.load(tmp_path / "m.onnx").summary()
    assert loaded.parameters == 6 and loaded.tensors[0].stored["where"] == "handle"
    # No weights are needed.
    (tmp_path / "m.onnx.data").unlink()
    assert oc.inspect(tmp_path / "m.onnx") == summary
    with pytest.raises(FileNotFoundError):
        oc.inspect(tmp_path / "gone.onnx")


def test_a_safetensors_file_is_summed_up(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"a.w": np.ones((2, 2), np.float32)}, tmp_path / "w.safetensors", {"k": "v"})
    summary = oc.inspect(tmp_path / "w.safetensors")
    assert (summary.parameters, summary.metadata, summary.ir_version) == (4, {"k": "v"}, None)


def test_differences_are_told(tmp_path: Path) -> None:
    values = np.arange(400, dtype=np.float32)
    onnx.save(holding(w=values, v=values[::-1].copy()), tmp_path / "a.onnx")
    changed = values.copy()
    changed[7] += 0.5
    onnx.save(holding(w=changed, renamed=values[::-1].copy()), tmp_path / "b.onnx")
    found = oc.diff(tmp_path / "a.onnx", tmp_path / "b.onnx", stats=True)
    assert found and not found.same
    assert [(it["from"], it["to"]) for it in found.renamed] == [("v", "renamed")]
    apart = found.changed[0]["difference"]
    assert (apart["max_abs"], apart["differing"], apart["mean_abs"]) == (0.5, 1, 0.5 / 400)
    assert "changed w: at most 0.5" in repr(found)
    changed[:2] = np.nan, np.inf
    onnx.save(holding(w=changed), tmp_path / "c.onnx")
    onnx.save(holding(w=np.where(np.isfinite(changed), changed, 1)), tmp_path / "d.onnx")
    all_of_them = oc.diff(tmp_path / "d.onnx", tmp_path / "c.onnx", stats=True)
    assert "changed w: 2 of 400 elements, all of them NaN or infinite in B" in repr(all_of_them)
    apart = all_of_them.changed[0]["difference"]
    assert (apart["max_abs"], apart["mean_abs"], apart["not_finite_a"], apart["not_finite_b"]) == (None, None, 0, 2)
    same = oc.diff(tmp_path / "a.onnx", Container.load(tmp_path / "a.onnx"))
    assert same.same and not same and same.equal == 2
    with pytest.raises(FileNotFoundError):
        oc.diff(tmp_path / "a.onnx", tmp_path / "gone.onnx")


def test_stored_digests_are_believed_until_told_otherwise(tmp_path: Path) -> None:
    for name in ("a", "b"):
        container = Container(holding(w=np.ones(400, np.float32)))
        container.save(tmp_path / f"{name}.onnx", digests=True, externalize=True)
    data = tmp_path / "b.onnx.data"
    data.write_bytes(b"\xff" * data.stat().st_size)
    found = oc.diff(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert (found.same, found.by_digests, found.bytes_read) == (True, 1, 0)
    assert "1 told by stored digests" in repr(found)
    read = oc.diff(tmp_path / "a.onnx", tmp_path / "b.onnx", ignore_stored_digests=True)
    assert (read.same, read.by_digests) == (False, 0)
