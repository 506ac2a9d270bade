"""``strip`` and ``attach``, ``extract_model`` and ``merge``, ``share``."""

import warnings
from pathlib import Path

import models
import numpy as np
import onnx
import onnx_container as oc
import pytest
from onnx_container import Container


def saved(path: Path, **options: bool) -> Container:
    """A model of two products with the value between them declared, packed; as it is loaded."""
    proto, weights = models.matmul()
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("h", 1, [None, 64]))
    Container(proto, weights).save(path, **options)
    return Container.load(path)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_weights_are_stripped_and_come_back(tmp_path: Path) -> None:
    whole = saved(tmp_path / "m.onnx", digests=True)
    stripped = Container.load(tmp_path / "m.onnx", weights=False)
    report = stripped.strip()
    assert (report.stripped, report.nbytes, report.kept, report.operands) == (2, 2 * 64 * 64 * 4, [], [])
    assert (report.small, report.small_nbytes) == (0, 0)
    (tmp_path / "bare").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stripped.save(tmp_path / "bare" / "s.onnx")
    assert names(tmp_path / "bare") == ["s.onnx"]
    proto = onnx.load(tmp_path / "bare" / "s.onnx", load_external_data=False)
    assert [tuple(tensor.dims) for tensor in proto.graph.initializer] == [(64, 64)] * 2
    with pytest.raises(oc.Error, match="the weights of this model were stripped"):
        Container.load(tmp_path / "bare" / "s.onnx")

    for source in (whole, tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        bare = Container.load(tmp_path / "bare" / "s.onnx", weights=False)
        bare.attach(source)
        assert bare.digest() == whole.digest()
    bare = Container.load(tmp_path / "bare" / "s.onnx", weights=False)
    attached = bare.attach_model(whole)
    assert (attached.attached, attached.compared) == (2, 2)
    other = whole.copy()
    other["#a"] = np.zeros((64, 64), np.float32)
    bare = Container.load(tmp_path / "bare" / "s.onnx", weights=False)
    with pytest.raises(oc.Error, match="not the weights that were stripped"):
        bare.attach(other)


def test_a_model_is_cut_and_merged(tmp_path: Path) -> None:
    whole = saved(tmp_path / "m.onnx")
    head, tail = whole.extract_model(["x"], ["h"]), whole.extract_model(["h"], ["y"])
    assert head.keys() == ["#a"] and tail.keys() == ["#b"]
    assert whole.extract_model(None, ["h"]).digest() == head.digest()
    both = oc.merge(head, tail, {"h": "h"})
    assert both.semantic_digest() == whole.semantic_digest()
    x = np.ones((2, 64), np.float32)
    both.save(tmp_path / "both.onnx", files="as-loaded")
    assert "both.onnx.data" not in names(tmp_path)
    for one, other in zip(models.run(tmp_path / "both.onnx", x=x), models.run(tmp_path / "m.onnx", x=x), strict=True):
        np.testing.assert_array_equal(one, other)
    twice = oc.merge(tmp_path / "m.onnx", tmp_path / "m.onnx", [("y", "x")], prefix_second="b/")
    assert sorted(twice.keys()) == ["#a", "#b", "#b/a", "#b/b"]
    beside = oc.merge(tmp_path / "m.onnx", tmp_path / "m.onnx", same_inputs={"x": "x"}, prefix_second="b/")
    assert [value.name for value in beside.model_proto.graph.input] == ["x"]
    with pytest.raises(oc.Error, match="did you mean `h`"):
        whole.extract_model(["x"], ["H"])
    with pytest.raises(oc.Error, match="none of the outputs needs"):
        whole.extract_model(["x", "b"], ["h"])
    with pytest.raises(oc.Error, match="both models have values"):
        oc.merge(whole, whole, {"y": "x"})
    with pytest.raises(TypeError, match="several names"):
        whole.extract_model("x", ["h"])
    named = whole.extract_model(["x"], ["h"], types={"h": "FLOAT[N,64]"})
    assert [head.outputs[0].shape, named.outputs[0].shape] == [[None, 64], ["N", 64]]
    with pytest.raises(oc.Error, match="contradicts what the model says of this value") as raised:
        whole.extract_model(["x"], ["h"], types={"h": "INT64[N,64]"})
    assert raised.value.kind == "DataType"
    with pytest.raises(TypeError, match="types maps names to types"):
        whole.extract_model(["x"], ["h"], types=[("h", "FLOAT[N,64]")])  # type: ignore[arg-type]


def test_models_share_a_file(tmp_path: Path) -> None:
    one, other = tmp_path / "enc.onnx", tmp_path / "dec.onnx"
    digests = [saved(path).digest() for path in (one, other)]
    planned = oc.share([one, other], dry_run=True)
    assert names(tmp_path) == ["dec.onnx", "dec.onnx.data", "enc.onnx", "enc.onnx.data"]
    shared = oc.share([one, other], delete_old=True)
    assert shared.files == planned.files and shared.deduplicated == (2, 2 * 64 * 64 * 4)
    assert sorted(Path(path).name for path in shared.removed) == ["dec.onnx.data", "enc.onnx.data"]
    assert names(tmp_path) == ["dec.onnx", "enc.onnx", "shared.onnx.data"]
    assert [Container.load(path).digest() for path in (one, other)] == digests
    with pytest.raises(oc.Error, match="share one weights file already"):
        oc.share([one, other])
    with pytest.raises(oc.Error, match="two models or more"):
        oc.share([one])
    with pytest.raises(TypeError, match="several models"):
        oc.share(one)  # type: ignore[arg-type]
