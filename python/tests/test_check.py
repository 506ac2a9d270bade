"""``check``: one model, several, and folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import models
import numpy as np
import onnx_container as oc
import pytest
from onnx_container import Container, _core


def container(value: float = 1.0) -> Container:
    model, weights = models.matmul()
    return Container(model, {handle: np.full_like(weight, value) for handle, weight in weights.items()})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three models below a folder."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        container().save(tmp_path / name / "m.onnx", digests=True)
    return tmp_path


def test_models_of_a_folder_are_checked(folder: Path) -> None:
    found = oc.check(folder)
    assert found and found.ok and found.exit_code == 0
    assert sorted(str(it.path) for it in found.models) == [str(folder / name / "m.onnx") for name in "abc"]
    assert repr(found).splitlines()[-1] == "ok: 3 models"
    # Each once, whatever paths were given.
    assert len(oc.check([folder, folder / "a", folder / "a" / "m.onnx", str(folder / "b" / "m.onnx")]).models) == 3
    assert oc.check(folder / "a" / "m.onnx", strict=True, digests=True, finite=True)


def damage(folder: Path) -> None:
    data = folder / "b" / "m.onnx.data"
    data.write_bytes(data.read_bytes()[:100])


def remove(folder: Path) -> None:
    (folder / "b" / "m.onnx.data").unlink()


def flip(folder: Path) -> None:
    data = folder / "b" / "m.onnx.data"
    data.write_bytes(bytes(4) + data.read_bytes()[4:])


def not_a_number(folder: Path) -> None:
    container(float("nan")).save(folder / "b" / "m.onnx")


def not_a_model(folder: Path) -> None:
    (folder / "b" / "other.onnx").write_text("<html>")


def orphan(folder: Path) -> None:
    (folder / "b" / "old.onnx.data").write_bytes(bytes(1000))


def link_to_nothing(folder: Path) -> None:
    (folder / "b" / "gone.onnx").symlink_to("none.onnx")


def nothing(folder: Path) -> None:
    for model in folder.glob("*/m.onnx*"):
        model.unlink()


@pytest.mark.parametrize(
    ("change", "options", "code", "text"),
    [
        (damage, {}, 1, "not ok .*b/m.onnx: "),
        (remove, {}, 1, "not ok .*b/m.onnx: .*m.onnx.data"),
        (flip, {}, 0, "ok      .*b/m.onnx: nothing is wrong"),
        (flip, {"digests": True}, 1, "not ok .*b/m.onnx: "),
        (not_a_number, {}, 0, "ok: 3 models"),
        (not_a_number, {"finite": True}, 1, "not ok .*b/m.onnx: 'a' is not finite; and 1 more"),
        (not_a_model, {}, 1, "not ok .*: .*other.onnx"),
        (orphan, {}, 0, "ok .*: advice: .*old.onnx.data: 1.0 kB of weights"),
        (orphan, {"strict": True}, 1, "not ok: 3 models"),
        (link_to_nothing, {}, 1, "not ok .*gone.onnx"),
        (nothing, {}, 1, "not ok: 0 models"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_wrong_is_told_and_ends_no_check(folder: Path, change, options: dict, code: int, text: str) -> None:
    import re

    change(folder)
    found = oc.check(folder, **options)
    assert (found.exit_code, found.ok, bool(found)) == (code, code == 0, code == 0), found
    assert re.search(text, repr(found)), found
    assert len(found.models) == (0 if change is nothing else 3)


def test_what_else_is_wrong_hides_no_element_that_is_not_finite(tmp_path: Path) -> None:
    model, weights = models.matmul()
    model.graph.node[0].op_type = "NoSuchOperator"
    weights["#a"][0, 0] = np.inf
    Container(model, weights).save(tmp_path / "m.onnx")
    found = oc.check(tmp_path / "m.onnx", finite=True).models[0]
    assert found.not_finite == ["a"]
    data = tmp_path / "m.onnx.data"
    data.write_bytes(data.read_bytes()[:100])
    found = oc.check(tmp_path / "m.onnx", finite=True).models[0]
    assert len(found.errors) == len(oc.check(tmp_path / "m.onnx").models[0].errors) and not found.not_finite


def test_integers_are_not_read_for_elements_that_are_not_finite() -> None:
    types = {"i": (3, np.int8), "b": (9, np.bool_), "f": (1, np.float32), "h": (10, np.float16)}
    read = []

    def lazy(name: str, dtype: type) -> Callable[[], np.ndarray]:
        def make() -> np.ndarray:
            read.append(name)
            return np.full(4, np.inf if name == "h" else 0).astype(dtype)

        return make

    model = models.add(*((name, number, (4,)) for name, (number, _) in types.items()))
    container = Container(model, {f"#{name}": lazy(name, dtype) for name, (_, dtype) in types.items()})
    assert _core.not_finite(container._core) == ["h"]
    assert sorted(read) == ["f", "h"]


def test_what_cannot_be_read_is_told(folder: Path) -> None:
    found = oc.check([folder / "a" / "m.onnx", folder / "none.onnx"])
    assert (found.exit_code, len(found.models)) == (2, 2)
    unread = found.models[1].unread
    assert isinstance(unread, FileNotFoundError) and found.models[0].ok
    assert "failed  " in repr(found) and repr(found).endswith("not ok: 2 models")


def test_names_are_shown_without_what_moves_a_terminal(tmp_path: Path) -> None:
    container().save(tmp_path / "a\x1b[2J.onnx")
    assert "a\\x1b[2J.onnx" in repr(oc.check(tmp_path))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"strictly": True}, TypeError, r"check\(\) has no option|unexpected"),
        ({"strict": "yes"}, TypeError, r"check\(\): strict is True or False"),
        ({"digest": True}, TypeError, "did you mean 'verify_digests'|has no option 'digest'"),
        ({"weights": False}, ValueError, r"check\(\): with weights=False"),
    ],
)
def test_other_options_are_refused(folder: Path, options: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        oc.check(folder, **options)
