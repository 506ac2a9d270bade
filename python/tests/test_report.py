"""``report``: a page of a model. What the command writes is the same; a browser tests it in Rust."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_container as oc
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def model(tmp_path: Path) -> Path:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    weights = numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), "layers.0.w")
    node = helper.make_node("MatMul", ["x", "layers.0.w"], ["y"])
    graph = helper.make_graph([node], "g", values[:1], values[1:], [weights])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    oc.save_model(made, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def data(page: Path) -> dict:
    text = page.read_text(encoding="utf-8")
    return json.loads(text.split('data-encoding="json">')[1].split("</script>")[0])


def test_a_page_shows_the_model(model: Path) -> None:
    page = model.parent / "m.html"
    assert oc.report(model, page) == page.stat().st_size
    found = data(page)
    assert found["tensors"]["name"] == ["layers.0.w"]
    assert found["summary"]["parameters"] == oc.inspect(model).parameters
    assert (found["stats"], found["plan"], found["differences"]) == (None, None, None)
    before = page.read_bytes()
    oc.report(model, page)
    assert page.read_bytes() == before


def test_parts_are_there_on_request(model: Path) -> None:
    other, page = model.parent / "other.onnx", model.parent / "m.html"
    changed = onnx.load(model)
    changed.producer_name = "other"
    oc.save_model(changed, other)
    oc.report(model, page, other, stats=True, plan={"batch": 2}, mmap=False, limits={"nodes": 10})
    found = data(page)
    assert found["stats"]["max"] == [15]
    assert found["plan"]["sizes"] == ["batch=2"]
    assert found["differences"]["found"]["properties"][0]["what"] == "producer"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"plan": True}, oc.Error, "batch"),
        ({"plan": ["batch"]}, TypeError, "report(): plan is"),
        ({"limits": 3}, TypeError, "report(): limits"),
        ({"plan": {"batch": 1}, "limits": {"program": 10}}, oc.Error, "the limit `program` can be raised"),
        ({"other": "gone.onnx"}, oc.MissingFileError, "gone.onnx"),
    ],
)
def test_mistakes_are_refused(model: Path, options: dict, error: type[Exception], message: str) -> None:
    page = model.parent / "m.html"
    with pytest.raises(error) as raised:
        oc.report(model, page, **options)
    assert message in str(raised.value)
    assert not page.exists()


def test_the_page_is_refused_before_weights_are_read(model: Path) -> None:
    oc.Container.load(model).save(model, externalize=True, threshold=1)
    model.with_name("m.onnx.data").unlink()
    page = model.parent / "notes.html"
    page.write_text("mine")
    for options in ({"stats": True}, {"plan": {"batch": 1}}):
        with pytest.raises(oc.AlreadyExistsError, match="not a report"):
            oc.report(model, page, **options)
    with pytest.raises(oc.MissingFileError):
        oc.report(model, page, stats=True, overwrite=True)


def test_only_a_report_is_replaced(model: Path) -> None:
    page = model.parent / "notes.html"
    page.write_text("mine")
    with pytest.raises(oc.AlreadyExistsError, match="not a report"):
        oc.report(model, page)
    assert page.read_text() == "mine"
    oc.report(model, page, overwrite=True)
    oc.report(model, page)
    with pytest.raises(oc.AlreadyExistsError):
        oc.report(model, model, overwrite=True)
