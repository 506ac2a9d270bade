"""The examples in docstrings, each in a folder of its own with ``encoder.onnx``."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_container
import pages
import pytest


def examples() -> Iterator[doctest.DocTest]:
    """The docstrings that have examples, of all modules."""
    names = [it.name for it in pkgutil.iter_modules(onnx_container.__path__) if it.name not in ("__main__", "_core")]
    if importlib.util.find_spec("torch") is None:
        names = [name for name in names if name not in ("torch", "_torch_load", "_torch_owners", "_torch_save")]
    modules = [onnx_container, *(importlib.import_module(f"onnx_container.{name}") for name in names)]
    public = {name: getattr(onnx_container, name) for name in onnx_container.__all__}
    for module in modules:
        known = {**vars(module), **public, "np": np}
        found = doctest.DocTestFinder(exclude_empty=True).find(module, globs=known)
        yield from (it for it in found if it.examples)


EXAMPLES = {it.name: it for it in examples()}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_examples_of_a_docstring_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name == "onnx_container":
        pytest.importorskip("onnxruntime")
    if any("obstore" in it.source for it in EXAMPLES[name].examples):
        pytest.importorskip("obstore")
    pages.put_example(tmp_path)
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    result = doctest.DocTestRunner().run(EXAMPLES[name], out=told.append)
    assert result.failed == 0, "".join(told)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 25 and "onnx_container._container.Container.load" in EXAMPLES
