"""The logger of the package, and ``progress=True``."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import keys
import models
import onnx_container as oc
import pytest
from onnx_container import Container, ir


def test_loads_and_saves_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "onnx_container")
    path = tmp_path / "a\nb.onnx"
    Container(*models.matmul()).save(path)
    Container.load(path).export_safetensors(tmp_path / "w.safetensors")
    oc.recover(tmp_path)
    with pytest.raises(oc.Error):
        Container.load(tmp_path / "none.onnx")
    told = [it.getMessage() for it in caplog.records if it.levelno == logging.INFO]
    name, time = re.escape(repr(str(path))), r"in \d+\.\d{3} s"
    expected = [
        rf"saved {name}, 2 files: 33 kB {time}",
        rf"loaded {name}, 2 large initializers: 33 kB {time}",
        rf"exported 2 tensors to '.*': 33 kB {time}",
        rf"recovered '.*', 0 saves completed, 0 undone, 0 folders removed: {time}",
    ]
    assert len(told) == len(expected) and all(map(re.fullmatch, expected, told)), told
    debug = [it.getMessage() for it in caplog.records if it.levelno == logging.DEBUG]
    assert debug[0] == f"save to {str(path)!r} begins" and debug[-1].endswith("none.onnx' failed: MissingFileError")
    assert {it.name for it in caplog.records} == {"onnx_container"}


def interrupt(path: Path) -> None:
    """Leaves what a save leaves that was killed when it had moved the old model away."""
    staging, names = path.parent / f".{path.name}.saving-aB3xYz", (f"{path.name}.data", path.name)
    (staging / "old").mkdir(parents=True)
    (staging / "new").mkdir()
    (staging / "files").write_text("onnx-container save 1\0" + "".join(f"{name}\0" for name in names))

    def mark(file: Path) -> str:
        return f"{file.stat().st_size} {file.stat().st_mtime_ns}"

    files = ""
    for name in names:
        shutil.copyfile(path.parent / name, staging / "new" / name)
        files += f"file\0{name}\0{mark(staging / 'new' / name)}\0{mark(path.parent / name)}\0"
    (path.parent / f".{path.name}.switching").write_text(f"onnx-container switch 1\0{staging.name}\0{files}end\0")
    path.rename(staging / "old" / path.name)


def test_what_a_load_recovers_and_warns_of_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "onnx_container")
    path = tmp_path / "m.onnx"
    Container(*models.matmul()).save(path)
    interrupt(path)
    container = Container.load(path)
    assert len(container.warnings) == 1
    (told,) = caplog.records
    assert told.levelno == logging.WARNING and told.getMessage().startswith(f"load of {str(path)!r}: ")
    assert "a save of this model was interrupted, and is complete now" in told.getMessage()
    Container.load(path)
    assert len(caplog.records) == 1


def test_saves_of_onnx_functions_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "onnx_container")
    model = models.matmul(inline=True)[0]
    oc.save_model(model, tmp_path / "inline.onnx")
    oc.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, all_tensors_to_one_file=False)
    oc.save_model(model, tmp_path / "n.onnx", save_as_external_data=True, location="sub.onnx")
    files = [re.search(r"(\w+\.onnx)', (\d) files", it.getMessage()) for it in caplog.records]
    assert [it and it.groups() for it in files] == [("inline.onnx", "1"), ("m.onnx", "3"), ("n.onnx", "2")]


def test_nothing_is_printed_unless_it_is_asked_for(tmp_path: Path) -> None:
    """Without a handler, logging would print what is a warning or worse."""
    code = f"import onnx_container as oc; oc.Container(b'\\x08\\x0a').save({str(tmp_path / 'm.onnx')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


@pytest.fixture
def no_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)


@pytest.mark.usefixtures("no_tqdm")
def test_progress_is_shown_in_lines_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    container = Container(*models.matmul())
    for save in (
        lambda: container.save(tmp_path / "m.onnx", progress=True),
        lambda: oc.save_model(models.matmul(inline=True)[0], tmp_path / "n.onnx", save_as_external_data=True, progress=True),
        lambda: ir.save(ir.load(tmp_path / "m.onnx"), tmp_path / "i.onnx", external_data="i.data", progress=True),
    ):
        save()
        out, err = capsys.readouterr()
        assert out == "" and re.search(r"^save: 100 % of 3\d kB$", err, re.M), err
    container.export_safetensors(tmp_path / "w.safetensors", progress=True)
    assert capsys.readouterr().err == "export: 100 % of 33 kB\n"
    container.save(tmp_path / "o.onnx", progress=False)
    container.dry_run(tmp_path / "p.onnx", progress=True)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("no_tqdm")
def test_signing_shows_its_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private, public = keys.make_keys(tmp_path)
    Container(*models.matmul()).save(tmp_path / "m.onnx")
    oc.sign(tmp_path / "m.onnx", private_key=private, progress=True)
    assert re.search(r"^sign: +\d+ % of", capsys.readouterr().err, re.M)
    oc.verify_signature(tmp_path / "m.onnx", public_key=public, progress=True)
    assert re.search(r"^verify: +\d+ % of", capsys.readouterr().err, re.M)


class Bar:
    """As the bar of tqdm."""

    made: list[Bar] = []

    def __init__(self, **options: Any) -> None:
        self.options, self.total, self.n, self.is_closed = options, options["total"], 0, False
        self.made.append(self)

    def update(self, more: int) -> None:
        self.n += more

    def close(self) -> None:
        self.is_closed = True


def test_tqdm_shows_the_bar_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    module = types.ModuleType("tqdm")
    module.tqdm = Bar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", module)
    monkeypatch.setattr(Bar, "made", [])
    container = Container(*models.matmul())
    container.save(tmp_path / "m.onnx", progress=True)
    (bar,) = Bar.made
    assert bar.n == bar.total > 0 and bar.is_closed and bar.options["file"] is sys.stderr
    lazy = Container(models.matmul()[0], {"#a": lambda: 1 / 0, "#b": models.matmul()[1]["#b"]})
    with pytest.raises(oc.Error):
        lazy.save(tmp_path / "n.onnx", progress=True)
    assert all(it.is_closed for it in Bar.made)
