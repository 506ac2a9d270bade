"""``patch``: tools that call onnx's functions get those of this package."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import types
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import onnx.external_data_helper
import onnx_container as oc
import pytest

GENUINE = {name: getattr(onnx, name) for name in ("save", "save_model", "load", "load_model", "load_model_from_string")}
HELPERS = {name: getattr(onnx.external_data_helper, name) for name in oc.external_data_helper.__all__}


def are_replaced() -> bool:
    """Whether all functions are replaced; all or none are."""
    found = {getattr(onnx, name) is not function for name, function in GENUINE.items()}
    helpers = {name: function for name, function in HELPERS.items() if name != "ExternalDataInfo"}
    found |= {getattr(onnx.external_data_helper, name) is not function for name, function in helpers.items()}
    assert len(found) == 1
    return found.pop()


@pytest.fixture(autouse=True)
def _put_back() -> Any:
    assert not are_replaced()
    yield
    assert not are_replaced()


def saves(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.getMessage().startswith("saved")]


def test_functions_are_replaced_and_put_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "onnx_container")
    model = models.matmul(inline=True)[0]
    with oc.patch():
        assert are_replaced()
        onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.data")
        assert onnx.load(str(tmp_path / "m.onnx")) == onnx.load_model(tmp_path / "m.onnx")
    assert not are_replaced()
    assert len(saves(caplog)) == 1 and (tmp_path / "w.data").exists()
    loaded = onnx.load(tmp_path / "m.onnx")
    assert [it.raw_data for it in loaded.graph.initializer] == [it.raw_data for it in model.graph.initializer]
    assert len(saves(caplog)) == 1
    patched = oc.patch()
    assert are_replaced()
    patched.undo()
    patched.undo()


def test_patches_may_be_nested_and_end_in_any_order() -> None:
    with oc.patch():
        with oc.patch():
            assert are_replaced()
        assert are_replaced()
    first, second = oc.patch(), oc.patch()
    first.undo()
    assert are_replaced()
    second.undo()
    assert not are_replaced()


def test_an_exception_puts_them_back(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), oc.patch():
        onnx.load(tmp_path / "none.onnx")
    assert not are_replaced()


def test_names_that_modules_have_are_replaced_too() -> None:
    tool, late = types.ModuleType("tool"), types.ModuleType("late")
    sys.modules |= {"tool": tool, "late": late}
    try:
        exec("from onnx import save_model as write\nfrom onnx.external_data_helper import uses_external_data", vars(tool))
        tool.ours = oc.save_model  # type: ignore[attr-defined]
        with oc.patch():
            assert tool.write is onnx.save_model is not GENUINE["save_model"]
            assert tool.uses_external_data is onnx.external_data_helper.uses_external_data
            exec("from onnx import load", vars(late))
        assert tool.write is GENUINE["save_model"] and late.load is GENUINE["load"]
        assert tool.ours is oc.save_model  # what is this package's stays
    finally:
        del sys.modules["tool"], sys.modules["late"]


def test_other_formats_are_written_by_onnx_itself(tmp_path: Path) -> None:
    model = models.matmul(inline=True)[0]
    with oc.patch():
        for name in ("m.textproto", "m.json"):
            onnx.save(model, tmp_path / name)
            assert onnx.load(tmp_path / name) == model
        with open(tmp_path / "m.onnx", "wb") as file:
            onnx.save(model, file)
        assert onnx.load_model_from_string((tmp_path / "m.onnx").read_bytes()) == model


def test_threads_that_patch_at_once_leave_onnx_as_it_was() -> None:
    def work() -> None:
        for _ in range(20):
            with oc.patch():
                assert onnx.save_model is not GENUINE["save_model"]

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_onnx_ir_is_replaced_when_it_is_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    onnx_ir = pytest.importorskip("onnx_ir")
    caplog.set_level(logging.INFO, "onnx_container")
    genuine = onnx_ir.load, onnx_ir.save
    with oc.patch():
        assert (onnx_ir.load, onnx_ir.save) == genuine
    oc.Container(*models.matmul()).save(tmp_path / "m.onnx")
    before = len(saves(caplog))
    with oc.patch(onnx_ir=True):
        assert onnx_ir.load is not genuine[0]
        model = onnx_ir.load(tmp_path / "m.onnx")
        onnx_ir.save(model, tmp_path / "n.onnx", external_data="n.data")
        onnx_ir.save(model, tmp_path / "n.textproto")
        assert onnx_ir.load(tmp_path / "n.textproto").graph.name == "g"
    assert (onnx_ir.load, onnx_ir.save) == genuine and len(saves(caplog)) == before + 1


def test_the_quantizer_of_onnxruntime_saves_by_this_package(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("onnxruntime")
    quantization = pytest.importorskip("onnxruntime.quantization")
    caplog.set_level(logging.INFO, "onnx_container")
    oc.Container(*models.matmul()).save(tmp_path / "m.onnx")
    x = np.random.default_rng(1).standard_normal((3, 64), dtype=np.float32)

    def quantized(name: str) -> Any:
        quantization.quantize_dynamic(tmp_path / "m.onnx", tmp_path / name, use_external_data_format=True)
        return models.run(str(tmp_path / name), x=x)[0]

    expected, before = quantized("theirs.onnx"), len(saves(caplog))
    with oc.patch():
        found = quantized("ours.onnx")
    np.testing.assert_array_equal(found, expected)
    assert len(saves(caplog)) > before


def test_onnxslim_saves_by_this_package(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    onnxslim = pytest.importorskip("onnxslim")
    caplog.set_level(logging.INFO, "onnx_container")
    oc.Container(*models.matmul()).save(tmp_path / "m.onnx")
    with oc.patch():
        onnxslim.slim(str(tmp_path / "m.onnx"), str(tmp_path / "s.onnx"), save_as_external_data=True)
    assert len(saves(caplog)) > 1
    oc.check_model(tmp_path / "s.onnx")


def test_without_a_package_its_functions_cannot_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    patches = importlib.import_module("onnx_container._patch")

    def missing() -> Any:
        raise ImportError("no onnx_ir")

    monkeypatch.setitem(patches._TABLES, "onnx_ir", missing)
    with pytest.raises(ImportError):
        oc.patch(onnx_ir=True)
    assert not are_replaced()
