"""``close`` and ``with``: what a closed container does, and what keeps files mapped."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx_container as oc
import pytest
from onnx_container import Container


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Container(*models.matmul()).save(tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


needs_maps = pytest.mark.skipif(sys.platform != "linux", reason="the maps of a process are listed on Linux")


@needs_maps
def test_a_closed_container_keeps_no_file_mapped(path: Path) -> None:
    data = path.with_name("m.onnx.data")
    with Container.load(path) as container:
        assert is_mapped(data) and not container.closed
    assert container.closed and not is_mapped(data)
    container.close()
    with pytest.raises(ZeroDivisionError), Container.load(path) as failed:
        1 / 0  # noqa: B018
    assert failed.closed and not is_mapped(data)


@needs_maps
def test_what_was_handed_out_keeps_its_bytes_and_its_file(path: Path) -> None:
    data = path.with_name("m.onnx.data")
    expected = models.matmul()[1]["#a"]
    with Container.load(path) as container:
        tensor, copied = container.tensor("a"), container.copy()
    assert tensor.location == str(data) and is_mapped(data)
    np.testing.assert_array_equal(tensor.numpy(), expected)
    np.testing.assert_array_equal(copied.tensor("a").numpy(), expected)
    array = tensor.numpy()
    copied.close()
    del tensor
    np.testing.assert_array_equal(array, expected)
    assert is_mapped(data)
    del array
    assert not is_mapped(data)


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "__contains__": ("#a",),
    "__deepcopy__": ({},),
    "__delitem__": ("#a",),
    "__getitem__": ("#a",),
    "__setitem__": ("#a", np.zeros((64, 64), np.float32)),
    "add": ("c", np.zeros(2, np.float32)),
    "attach": (".",),
    "attach_model": (Container(),),
    "attach_safetensors": ("w.safetensors",),
    "cast": ("float16",),
    "dry_run": ("x.onnx",),
    "export_safetensors": ("x.safetensors",),
    "extract_model": (["x"], ["y"]),
    "fill": ({},),
    "find": ("*",),
    "get": ("#a",),
    "match": ({},),
    "partial_digest": (0, 1),
    "publish": ("s3://models/m.onnx",),
    "remove": ("a",),
    "rename": ("a", "b"),
    "replace": ("a", np.zeros((64, 64), np.float32)),
    "save": ("x.onnx",),
    "semantic_difference": (Container(),),
    "tensor": ("a",),
    "update": ({},),
}
"""The arguments of those methods that need any."""

ALLOWED = {"close", "closed", "path", "url", "e_tag", "load", "from_bytes", "__bool__", "__repr__", "__exit__", "__init__", "_repr_html_"}
"""What a closed container still does, and what makes another one."""

OWN = ("__contains__", "__copy__", "__deepcopy__", "__delitem__", "__enter__", "__getitem__", "__iter__", "__len__", "__reduce__", "__setitem__")
MEMBERS = sorted(({name for name in vars(Container) if not name.startswith("_")} | {*OWN}) - ALLOWED)


@pytest.mark.parametrize("name", MEMBERS)
def test_nothing_else_can_be_asked_of_a_closed_container(path: Path, tmp_path: Path, monkeypatch: Any, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    container = Container.load(path)
    container.close()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match="the container is closed: Container.load"):
        found = inspect.getattr_static(Container, name)
        if isinstance(found, property):
            value = getattr(container, name)
            dict(value)  # what writes through is asked when it is used
        elif name == "update":
            container.update({"#a": np.zeros((64, 64), np.float32)})
        else:
            getattr(container, name)(*ARGUMENTS.get(name, ()))
    assert sorted(tmp_path.iterdir()) == before


def test_a_closed_container_is_told_by_functions_too(path: Path) -> None:
    closed = Container.load(path)
    closed.close()
    opened = Container.load(path)
    for call in (
        lambda: oc.diff(closed, opened),
        lambda: oc.diff(opened, closed),
        lambda: oc.stats(closed),
        lambda: oc.merge(opened, closed),
        lambda: opened.attach(closed),
        lambda: opened.semantic_difference(closed),
        lambda: setattr(closed, "model_bytes", opened.model_bytes),
    ):
        with pytest.raises(ValueError, match="the container is closed"):
            call()
    assert repr(closed) == f"<Container of {str(path)!r}, closed>" and closed.path == path
    assert closed._repr_html_() is None
