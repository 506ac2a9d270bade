"""The names that the package and its modules show."""

from __future__ import annotations

import importlib
import subprocess
import sys

import onnx_container
import pytest

LEAKED = {"Any", "Callable", "Container", "TYPE_CHECKING", "annotations", "deque", "functools", "itertools", "os", "re", "threading", "uuid"}


@pytest.mark.parametrize("name", ["", ".ir", ".external_data_helper", ".model_container", ".ray"])
def test_a_module_shows_its_own_names_and_all_of_them(name: str) -> None:
    module = importlib.import_module(f"onnx_container{name}")
    shown = set(dir(module))
    assert set(module.__all__) <= shown
    hidden = LEAKED - ({"Container"} if not name else set())
    assert not shown & hidden
    missing = [it for it in shown if not hasattr(module, it)]
    assert missing == []
    others = {it for it in shown if not it.startswith("_")} - set(module.__all__)
    if name == ".ir":
        onnx_ir = pytest.importorskip("onnx_ir")
        assert others <= set(dir(onnx_ir))
    else:
        assert others <= {"model_container", "ray"}


def test_all_names_are_sorted_and_in_order() -> None:
    assert onnx_container.__all__ == sorted(onnx_container.__all__) and len({*onnx_container.__all__}) == len(onnx_container.__all__)


def test_a_module_of_the_package_is_there_without_its_import() -> None:
    code = "import onnx_container as oc; print(oc.model_container.ModelContainer is oc.ModelContainer, oc.ir.__name__, oc.ray.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True onnx_container.ir onnx_container.ray\n"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
        onnx_container.NoSuchName  # noqa: B018
