"""``save_model`` to files below the model's folder, killed at each call that renames, makes or deletes a file: the next reader
finds the old model or the new one, and the next save works.

``strace`` kills the process. The library's own tests do it for its other saves.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_container as oc
import pytest
from onnx import TensorProto, helper, numpy_helper

CALLS = "rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat"
SAVE = """
import sys
import onnx, onnx_container
print("begin", flush=True)
onnx_container.save_model(onnx.load(sys.argv[1], load_external_data=False), sys.argv[2], sync=False, **eval(sys.argv[3]))
"""
WAYS = {
    "one file below": ({"save_as_external_data": True, "location": "sub/w"}, ["sub/w"]),
    "each tensor in a file": ({}, ["a", "sub/b"]),
    "a model alone": ({}, []),
}
"""The keywords of ``save_model``, and the files that the tensors name."""


def model(value: float, files: list[str]) -> onnx.ModelProto:
    """A model whose name and elements say ``value``."""
    tensors = [numpy_helper.from_array(np.full(500, value, np.float32), name) for name in "ab"]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [500]) for name in "ab"]
    proto = helper.make_model(helper.make_graph([], f"{value}", [], outputs, tensors), ir_version=10)
    if len(files) > 1:
        for tensor, location in zip(proto.graph.initializer, files, strict=True):
            oc.set_external_data(tensor, location)
    return proto


def value(path: Path) -> float:
    """That of the model at ``path``, of its name and all its elements."""
    found = oc.load_model(path)
    values = {float(found.graph.name)}
    for tensor in found.graph.initializer:
        values.update(numpy_helper.to_array(tensor).tolist())
    (only,) = values
    return only


def traced(options: list[str], new: Path, target: Path, given: dict) -> int:
    """Saves ``new`` to ``target`` in a process that strace runs with ``options``. The exit code."""
    command = ["strace", "-f", "--seccomp-bpf", "-qq", *options, sys.executable, "-B", "-c", SAVE, str(new), str(target), repr(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "begin\n", done.stderr
    return done.returncode


def calls(log: Path, new: Path, target: Path, given: dict) -> list[tuple[str, int]]:
    """The calls of a save that change the file system, each with its number among those of its name."""
    assert traced(["-o", str(log), "-e", f"trace={CALLS}"], new, target, given) == 0
    names = [line.split("(")[0].split()[-1] for line in log.read_text().splitlines() if "(" in line]
    return [(name, names[: at + 1].count(name)) for at, name in enumerate(names)]


def can_trace() -> bool:
    """Whether strace is installed, and may trace."""
    return shutil.which("strace") is not None and subprocess.run(["strace", "-o", "/dev/null", "true"]).returncode == 0


@pytest.mark.filterwarnings("ignore:.*a save of this model was interrupted")
@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace")
@pytest.mark.parametrize("way", WAYS)
def test_a_save_that_is_killed_leaves_the_old_model_or_the_new_one(tmp_path: Path, way: str) -> None:
    options, files = WAYS[way]
    new, found = tmp_path / "new.onnx", set()
    new.write_bytes(model(2, files).SerializeToString())

    def prepared(name: str) -> Path:
        (tmp_path / name / "sub").mkdir(parents=True)
        oc.save_model(model(1, files), tmp_path / name / "m.onnx", **options)
        return tmp_path / name / "m.onnx"

    all_calls = calls(tmp_path / "log", new, prepared("whole"), options)
    assert len(all_calls) >= 4
    for call, number in all_calls:
        path = prepared(f"{call}-{number}")
        assert traced(["-o", "/dev/null", "-e", f"inject={call}:signal=KILL:when={number}"], new, path, options) != 0
        found.add(value(path))
        oc.save_model(model(3, files), path, **options)
        assert value(path) == 3
        assert [oc.model_that_needs(path.parent / file) for file in files] == [path] * len(files)
        oc.recover(path.parent)
        left = {str(it.relative_to(path.parent)) for it in path.parent.rglob("*")}
        assert left == {"m.onnx", "sub", *files}, f"killed at {call} {number}"
    assert found == {1, 2}
