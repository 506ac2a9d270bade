"""Containers in pickles, and in processes that were spawned."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import models
import numpy as np
import onnx_container as oc
import pytest
from onnx_container import Container


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Container(*models.matmul()).save(tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_pickle_has_the_path_and_no_weights(path: Path) -> None:
    container = Container.load(path)
    text = pickle.dumps(container)
    assert len(text) < 1000
    loaded = pickle.loads(text)
    assert loaded.digest() == container.digest() and loaded.path == path
    assert pickle.loads(pickle.dumps(container.copy())).digest() == container.digest()


OPTIONS = [
    {"mmap": False},
    {"weights": False},
    {"no_copy": False},
    {"alignment": 1 << 20},
    {"paths": "strict", "limits": {"nodes": 10}},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_pickle_has_the_options(path: Path, options: dict) -> None:
    container = Container.load(path, **options)
    loaded = pickle.loads(pickle.dumps(container))
    assert len(loaded) == len(container) and loaded.files == container.files
    assert loaded.__reduce__() == container.__reduce__()


def test_a_relative_path_is_that_of_the_load(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = pickle.dumps(Container.load("m.onnx"))
    monkeypatch.chdir("/")
    assert pickle.loads(text).tensor("a").shape == (64, 64)


def changed(container: Container) -> Container:
    container.metadata["k"] = "v"
    return container


def failed(container: Container) -> Container:
    with pytest.raises(KeyError):
        del container["#nope"]
    with pytest.raises(KeyError):
        del container.metadata["nope"]
    with pytest.raises(oc.Error):
        container.add("a", np.zeros(2, np.float32))
    with pytest.raises(oc.Error):
        container.rename("nope", "other")
    return container


def test_calls_that_change_nothing_are_no_changes(path: Path) -> None:
    container = failed(Container.load(path))
    container.update({})
    assert pickle.loads(pickle.dumps(container)).digest() == container.digest()


def filled(container: Container) -> Container:
    container["#a"] = np.zeros((64, 64), np.float32)
    return container


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: Container(*models.matmul()), "was not loaded from a path"),
        (lambda path: Container.from_bytes(path.read_bytes(), base_dir=path.parent), "was not loaded from a path"),
        (lambda path: changed(Container.load(path)), "was changed since it was loaded"),
        (lambda path: filled(Container.load(path)), "was changed since it was loaded"),
        (lambda path: changed(Container.load(path)).copy(), "was changed since it was loaded"),
    ],
)
def test_what_another_process_could_not_load_is_refused(path: Path, make: Callable[[Path], Container], text: str) -> None:
    with pytest.raises(TypeError, match=f"{text}.*: save it, and pickle Container.load"):
        pickle.dumps(make(path))


def replaced(path: Path) -> None:
    model, weights = models.matmul()
    model.graph.name = "another"
    Container(model, weights).save(path)


def refilled(path: Path) -> None:
    model, weights = models.matmul()
    before = path.read_bytes()
    Container(model, {handle: weight + 1 for handle, weight in weights.items()}).save(path)
    assert path.read_bytes() == before


def removed(path: Path) -> None:
    path.unlink()


CHANGES = [(replaced, ValueError), (refilled, ValueError), (removed, FileNotFoundError)]


@pytest.mark.parametrize("options", [{}, *OPTIONS])
@pytest.mark.parametrize(("change", "error"), CHANGES)
def test_files_that_were_replaced_are_refused(
    path: Path, change: Callable[[Path], None], error: type[Exception], options: dict
) -> None:
    container = Container.load(path, **options)
    text = pickle.dumps(container)
    change(path)
    with pytest.raises(error, match="since the container was pickled|No such file"):
        pickle.loads(text)
    with pytest.raises(error, match="since it was loaded|No such file"):
        pickle.dumps(container)


def test_of_more_files_than_are_mapped_each_is_known(tmp_path: Path) -> None:
    names = [f"w{i}" for i in range(1100)]
    path = tmp_path / "many.onnx"
    model = models.add(*((name, 1, (64,)) for name in names))
    weights = {f"#{name}": np.ones(64, np.float32) for name in names}
    Container(model, weights).save(path, files="per-tensor", sync=False)
    container = Container.load(path)
    files = container.files
    assert files[0] == path and sorted(files[1:]) == sorted(tmp_path / f"many-{name}.weight" for name in names)
    for name in ("w0", "w1099"):
        text = pickle.dumps(Container.load(path))
        other = tmp_path / "other"
        other.write_bytes(np.zeros(64, np.float32).tobytes())
        other.rename(tmp_path / f"many-{name}.weight")
        with pytest.raises(ValueError, match=f"many-{name}.weight was replaced since the container was pickled"):
            pickle.loads(text)


def test_weights_that_are_not_there_are_not_asked_for(path: Path) -> None:
    path.with_name("m.onnx.data").unlink()
    assert pickle.loads(pickle.dumps(Container.load(path, weights=False))).find("*") == ["a", "b"]


def test_a_copy_of_the_files_is_the_same_model(path: Path, tmp_path: Path) -> None:
    text = pickle.dumps(Container.load(path))
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path, kept)
    for name in ("m.onnx", "m.onnx.data"):
        os.unlink(tmp_path / name)
        shutil.copy2(kept / name, tmp_path / name)
    assert pickle.loads(text).tensor("a").shape == (64, 64)


class Weights:
    """As a ``Dataset`` of torch is given to the processes of a ``DataLoader``."""

    def __init__(self, container: Container) -> None:
        self.container = container

    def __getitem__(self, index: int) -> float:
        return float(self.container.tensor("ab"[index]).numpy().sum())


def test_processes_that_are_spawned_load_the_model_by_themselves(path: Path) -> None:
    weights = Weights(Container.load(path))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(weights.__getitem__, [0, 1]) == [weights[0], weights[1]]
