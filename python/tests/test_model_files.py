"""``move``, ``copy`` and ``delete``: a model with its weights files."""

import os
import struct
from pathlib import Path

import onnx_container as oc
import pytest
from onnx_container import Container
from test_bare import model


def saved(path: Path) -> bytes:
    container = Container(model(), {"#w": struct.pack("<2f", 1, 2)})
    container.save(path)
    return path.read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_model_moves_and_is_copied_and_deleted(tmp_path: Path) -> None:
    saved(tmp_path / "m.onnx")
    inode = os.stat(tmp_path / "m.onnx.data").st_ino
    digest = Container.load(tmp_path / "m.onnx").digest()
    planned = oc.move(tmp_path / "m.onnx", tmp_path / "n.onnx", dry_run=True)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    moved = oc.move(tmp_path / "m.onnx", tmp_path / "n.onnx")
    assert moved == planned and names(tmp_path) == ["n.onnx", "n.onnx.data"]
    assert moved.files[1] == (tmp_path / "n.onnx.data", os.stat(tmp_path / "n.onnx.data").st_size)
    assert os.stat(tmp_path / "n.onnx.data").st_ino == inode
    (tmp_path / "out").mkdir()
    oc.copy(tmp_path / "n.onnx", tmp_path / "out", sync=False)
    assert Container.load(tmp_path / "out" / "n.onnx").digest() == digest
    deleted = oc.delete(tmp_path / "n.onnx")
    assert [path.name for path, _ in deleted.files] == ["n.onnx", "n.onnx.data"]
    assert names(tmp_path) == ["out"]


def test_what_another_model_needs_stays(tmp_path: Path) -> None:
    container = Container(model(), {"#w": struct.pack("<2f", 1, 2)})
    container.save(tmp_path / "a.onnx", data_name="shared")
    (tmp_path / "b.onnx").write_bytes((tmp_path / "a.onnx").read_bytes())
    deleted = oc.delete(tmp_path / "a.onnx")
    assert deleted.kept == [(tmp_path / "shared", tmp_path / "b.onnx")]
    assert names(tmp_path) == ["b.onnx", "shared"]


def test_refusals(tmp_path: Path) -> None:
    saved(tmp_path / "m.onnx")
    (tmp_path / "n.onnx.data").write_bytes(b"notes")
    before = names(tmp_path)
    for call in (
        lambda: oc.move(tmp_path / "m.onnx", tmp_path / "n.onnx"),
        lambda: oc.copy(tmp_path / "m.onnx", tmp_path / "m.onnx"),
        lambda: oc.copy(tmp_path / "m.onnx", tmp_path / "none" / "m.onnx"),
        lambda: oc.delete(tmp_path / "m.onnx.data"),
        lambda: oc.delete(tmp_path),
    ):
        with pytest.raises(oc.Error):
            call()
    assert names(tmp_path) == before


def test_what_is_not_removed_is_warned_of(tmp_path: Path) -> None:
    saved(tmp_path / "m.onnx")
    (tmp_path / "m.onnx.data").unlink()
    (tmp_path / "m.onnx.data").mkdir()
    with pytest.warns(UserWarning, match="not removed"):
        deleted = oc.delete(tmp_path / "m.onnx")
    assert deleted.warnings and names(tmp_path) == ["m.onnx.data"]
