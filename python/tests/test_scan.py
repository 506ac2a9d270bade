"""``scan``: models, their files, and what no model needs; and what is said of paths that are no models."""

import os
import struct
from pathlib import Path

import onnx_container as oc
import pytest
from onnx_container import Container
from test_bare import model


def saved(path: Path) -> None:
    Container(model(), {"#w": struct.pack("<2f", 1, 2)}).save(path)


def test_models_and_what_no_model_needs_are_found(tmp_path: Path) -> None:
    saved(tmp_path / "m.onnx")
    (tmp_path / "m.onnx_data").write_bytes(bytes(16))
    (tmp_path / "text.onnx").write_text("text")
    found = oc.scan(tmp_path)
    (one,) = found.models
    data = tmp_path / "m.onnx.data"
    assert one.path == tmp_path / "m.onnx" and one.is_whole
    assert one.files == [(data, os.stat(data).st_size, "present", None)]
    (orphan,) = found.orphans
    assert (orphan.path, orphan.nbytes, orphan.certainty) == (tmp_path / "m.onnx_data", 16, "sure")
    assert (found.reclaimable, found.perhaps_reclaimable, found.shareable) == (16, 0, None)
    (error,) = found.not_models
    assert isinstance(error, oc.Error) and "not an ONNX model" in error.reason
    assert found.files == 4 and not found.errors and not found.left and not found.dangling


def test_a_model_whose_weights_are_cut_off_is_not_whole(tmp_path: Path) -> None:
    saved(tmp_path / "m.onnx")
    os.truncate(tmp_path / "m.onnx.data", 1)
    (one,) = oc.scan(tmp_path).models
    assert (one.is_whole, one.is_damaged, one.files[0][1:3]) == (False, False, (1, "cut_off"))


def test_equal_weights_and_weights_without_a_model(tmp_path: Path) -> None:
    for name in ("a", "b", "lost"):
        (tmp_path / name).mkdir()
        saved(tmp_path / name / "m.onnx")
    (tmp_path / "lost" / "m.onnx").unlink()
    found = oc.scan(tmp_path, equal=True, min_equal_bytes=8)
    assert found.equal is not None
    assert [(it.nbytes, it.copies) for it in found.equal] == [(8, 2)]
    assert found.equal[0].places[1] == (tmp_path / "b" / "m.onnx", "w")
    assert (found.shareable, found.shareable_in_one_folder) == (0, 8)
    assert [(path, files) for path, files, _ in found.without_model] == [(tmp_path / "lost", 1)]
    with pytest.raises(TypeError):
        oc.scan(tmp_path, nonsense=True)  # type: ignore[call-arg]


def test_a_path_that_is_no_model_is_called_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    saved(tmp_path / "models" / "m.onnx")
    os.symlink("../blobs/9e5d", tmp_path / "link.onnx")
    for name, text in (
        ("models/m.onnx.data", "a weights file of `"),
        ("models", "a folder, not a model; in it is `"),
        ("modls/m.onnx", f"did you mean `{tmp_path / 'models' / 'm.onnx'}`?"),
        ("models/m.onx", "did you mean `"),
        ("link.onnx", "a link to `../blobs/9e5d`, which is not there; copy the file itself"),
    ):
        with pytest.raises(oc.Error) as raised:
            Container.load(tmp_path / name)
        assert text in str(raised.value), name


def test_a_save_in_place_where_nothing_changes_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    saved(path)
    for file in tmp_path.iterdir():
        os.utime(file, (1e9, 1e9))
    container = Container.load(path)
    assert container.save(path).unchanged
    assert {os.stat(file).st_mtime for file in tmp_path.iterdir()} == {1e9}
    container.metadata["a"] = "b"
    assert not container.save(path).unchanged
