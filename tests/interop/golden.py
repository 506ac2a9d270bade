"""Malformed external data: what the command makes of it, one folder for each case.

Every case is a model with one external tensor `w`, four float32 in `w.bin`, damaged in one way. The
command has to accept or refuse it as the table says, never to crash, to hang, or to leave anything
behind from a refused write.
"""

import os
import pathlib
import struct
import sys

import common
import onnx
from onnx import TensorProto, helper

VALUES = (1.5, -2.0, 0.25, 1e6)
PLAIN = struct.pack("<4f", *VALUES)
NIBBLES = b"\x21\x43"  # 1, 2, 3, 4 as packed int4

OK, ERROR = "ok", "error"


def model(entries: list[tuple], dims=(4,), data_type=TensorProto.FLOAT, raw: bytes = b"") -> onnx.ModelProto:
    """y = Identity(w), where w has these entries."""
    tensor = TensorProto(name="w", data_type=data_type, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries:
        tensor.external_data.add(key=key, value=value)
    if raw:
        tensor.raw_data = raw
    result = helper.make_tensor_value_info("y", data_type, None)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "golden", [], [result], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def file(name: str, content: bytes = PLAIN):
    """A case's setup: one data file."""

    def make(folder: pathlib.Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return make


def nothing(_: pathlib.Path) -> None:
    """A case's setup: no data file."""


def link(name: str, target: str):
    """A case's setup: a symbolic link to a data file; `outside` is a folder beside the model's."""

    def make(folder: pathlib.Path) -> None:
        for place in (folder, folder.parent / "outside", folder / "inside"):
            file("real.bin")(place)
        (folder / name).symlink_to(target)

    return make


def hard_link(folder: pathlib.Path) -> None:
    """A case's setup: a data file with two names."""
    file("w.bin")(folder)
    os.link(folder / "w.bin", folder / "second.bin")


def outside(folder: pathlib.Path) -> None:
    """A case's setup: a data file beside the folder."""
    file("w.bin")(folder.parent)


def directory(folder: pathlib.Path) -> None:
    """A case's setup: a folder where the data file should be."""
    (folder / "w.bin").mkdir()


def fifo(folder: pathlib.Path) -> None:
    """A case's setup: a pipe that nobody writes to."""
    os.mkfifo(folder / "w.bin")


def at(location: str, **more: str) -> list[tuple]:
    """The entries of a tensor."""
    return [("location", location), *more.items()]


def simple(expected: str, **entries: str) -> tuple:
    """A case of a sound `w.bin` with other entries beside the location."""
    return at("w.bin", **entries), file("w.bin"), expected, {}


W, LONGER, SHORTER = file("w.bin"), file("w.bin", PLAIN + b"\0" * 9), file("w.bin", PLAIN[:12])

# Name -> entries, setup, what is expected, more of the tensor.
CASES = {
    "plain": simple(OK),
    "offset and length": simple(OK, offset="0", length="16"),
    "unknown key": simple(OK, foo="1"),
    "basepath": simple(OK, basepath="/somewhere/else"),
    "wrong checksum": simple(OK, checksum="0" * 40),
    "duplicate location": ([("location", "w.bin"), ("location", "w.bin")], W, ERROR, {}),
    "duplicate offset": ([*at("w.bin"), ("offset", "0"), ("offset", "0")], W, ERROR, {}),
    "missing file": (at("w.bin"), nothing, ERROR, {}),
    "no location": ([("offset", "0"), ("length", "16")], W, ERROR, {}),
    "no entries": ([], W, ERROR, {}),
    "empty location": (at(""), W, ERROR, {}),
    "length too short": simple(ERROR, length="12"),
    "length too long": (at("w.bin", length="20"), LONGER, ERROR, {}),
    "length 0": simple(OK, length="0"),
    "no length, file longer": (at("w.bin"), LONGER, OK, {}),
    "file shorter": (at("w.bin"), SHORTER, ERROR, {}),
    "file shorter than length": (at("w.bin", offset="0", length="16"), SHORTER, ERROR, {}),
    "file empty": (at("w.bin", offset="0", length="16"), file("w.bin", b""), ERROR, {}),
    "offset beyond the end": simple(ERROR, offset="4096"),
    "offset unaligned": (at("w.bin", offset="1", length="16"), file("w.bin", b"\0" + PLAIN), OK, {}),
    "offset -1": simple(ERROR, offset="-1"),
    "offset with a blank": simple(ERROR, offset=" 0"),
    "offset +0": simple(ERROR, offset="+0"),
    "offset 1_6": (at("w.bin", offset="1_6"), file("w.bin", PLAIN * 2), ERROR, {}),
    "offset 0x0": simple(ERROR, offset="0x0"),
    "offset empty": simple(ERROR, offset=""),
    "offset 2^63": simple(ERROR, offset=str(2**63)),
    "offset 2^64-16": simple(ERROR, offset=str(2**64 - 16)),
    "offset 2^64": simple(ERROR, offset=str(2**64)),
    "offset of many digits": simple(ERROR, offset="9" * 400),
    "length 10^15": simple(ERROR, length=str(10**15)),
    "length -16": simple(ERROR, length="-16"),
    "dims -1": (at("w.bin"), W, ERROR, {"dims": [-1]}),
    "dims 2^62 x 4": (at("w.bin"), W, ERROR, {"dims": [2**62, 4]}),
    "dims 2^62 x 4, no data": (at("w.bin"), file("w.bin", b""), ERROR, {"dims": [2**62, 4]}),
    "sub/w.bin": (at("sub/w.bin"), file("sub/w.bin"), OK, {}),
    "./w.bin": (at("./w.bin"), W, OK, {}),
    "backslash": (at("sub\\w.bin"), file("sub/w.bin"), ERROR, {}),
    "a/../w.bin": (at("a/../w.bin"), W, ERROR, {}),
    "w..bin": (at("w..bin"), file("w..bin"), OK, {}),
    "w.bin/": (at("w.bin/"), W, ERROR, {}),
    "NUL": (at("w.bin\0x"), W, ERROR, {}),
    "../w.bin": (at("../w.bin"), outside, ERROR, {}),
    "sub/../../w.bin": (at("sub/../../w.bin"), outside, ERROR, {}),
    "absolute": (at("/etc/hostname"), nothing, ERROR, {}),
    "directory": (at("w.bin"), directory, ERROR, {}),
    "the folder itself": (at("."), W, ERROR, {}),
    "fifo": (at("w.bin", offset="0", length="16"), fifo, ERROR, {}),
    "device": (at("w.bin", length="16"), link("w.bin", "/dev/zero"), ERROR, {}),
    "handle without a file": (at("#w"), nothing, ERROR, {}),
    "handle that is a file": (at("#w"), file("#w"), ERROR, {}),
    "memory address": (at("*/_ORT_MEM_ADDR_/*", offset="140000000000000", length="16"), nothing, ERROR, {}),
    "native memory address": (at("*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*", offset="4096", length="16"), nothing, ERROR, {}),
    "symlink inside": (at("w.bin"), link("w.bin", "real.bin"), OK, {}),
    "symlink outside": (at("w.bin"), link("w.bin", "../outside/real.bin"), ERROR, {}),
    "symlink absolute": (at("w.bin"), link("w.bin", "/etc/hostname"), ERROR, {}),
    "symlink to itself": (at("w.bin"), link("w.bin", "w.bin"), ERROR, {}),
    "symlink to nothing": (at("w.bin"), link("w.bin", "absent.bin"), ERROR, {}),
    "folder symlink inside": (at("sub/real.bin"), link("sub", "inside"), OK, {}),
    "folder symlink outside": (at("sub/real.bin"), link("sub", "../outside"), ERROR, {}),
    "hard link": (at("w.bin"), hard_link, OK, {}),
    "external and raw_data": (at("w.bin"), W, ERROR, {"raw": PLAIN}),
    "string": (at("w.bin"), W, ERROR, {"data_type": TensorProto.STRING}),
    "undefined type": (at("w.bin"), W, ERROR, {"data_type": 0}),
    "unknown type": (at("w.bin"), W, ERROR, {"data_type": 99}),
    "int4 not packed": (at("w.bin", length="4"), file("w.bin", b"\1\2\3\4"), ERROR, {"data_type": TensorProto.INT4}),
    "int4 packed": (at("w.bin", length="2"), file("w.bin", NIBBLES), OK, {"data_type": TensorProto.INT4}),
}

# What stands where weights or the model should be, for want of a download.
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 16\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Not found</title></head></html>\n"
STAND_INS = {
    "weights are a Git LFS pointer": ("w.bin", POINTER, "LFS"),
    "weights are a web page": ("w.bin", PAGE, "web page"),
    "model is a Git LFS pointer": ("m.onnx", POINTER, "LFS"),
    "model is a web page": ("m.onnx", PAGE, "web page"),
    "model is empty": ("m.onnx", b"", "empty"),
    "model is noise": ("m.onnx", bytes(range(255, -1, -1)), "not an ONNX model"),
}


def snapshot(folder: pathlib.Path) -> set[str]:
    """All paths below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def assert_refused(path: pathlib.Path, words: str) -> None:
    """No verb that writes writes anything, and check says why."""
    base = path.parent.parent
    before = snapshot(base)
    for verb in ("pack", "split", "embed"):
        done = common.run(verb, path, path.parent / "out.onnx", timeout=30)
        assert done.returncode == 1, f"has to be refused: {done.said}"
        assert snapshot(base) == before, f"{verb} leaves {sorted(snapshot(base) - before)}"
    done = common.run("check", path, timeout=30)
    assert done.returncode in (1, 2), f"has to be refused: {done.said}"
    assert words in done.said, f"does not say {words!r}: {done.said}"


def assert_accepted(path: pathlib.Path, expected: bytes) -> None:
    """check passes it, and every verb carries the value over."""
    common.must_run("check", path, timeout=30)
    for number, verb in enumerate(("pack", "split", "embed")):
        out = path.parent / f"out{number}" / "m.onnx"
        out.parent.mkdir()
        options = [] if verb == "embed" else ["--min-bytes", "0"]
        common.must_run(verb, path, out, *options, timeout=30)
        tensor = next(iter(common.tensors(common.load(out)).values()))
        assert common.payload(tensor, out.parent) == expected, f"{verb} writes another value"


def inspects(path: pathlib.Path) -> None:
    """What reads no weights must not crash either, whatever it says."""
    common.run("inspect", path, timeout=30)
    common.run("inspect", path, "--json", timeout=30)
    common.run("files", path, timeout=30)


def case(name: str) -> None:
    """One row of the table."""
    entries, setup, expected, more = CASES[name]
    with common.scratch() as base:
        path = base / "model" / "m.onnx"
        path.parent.mkdir()
        setup(path.parent)
        path.write_bytes(model(entries, **more).SerializeToString())
        inspects(path)
        if expected == ERROR:
            assert_refused(path, "tensor `w`")
        else:
            assert_accepted(path, NIBBLES if more.get("data_type") == TensorProto.INT4 else PLAIN)


def stand_in(name: str) -> None:
    """One file that is not what its name says."""
    file_name, content, words = STAND_INS[name]
    with common.scratch() as base:
        path = base / "model" / "m.onnx"
        path.parent.mkdir()
        path.write_bytes(model(at("w.bin")).SerializeToString())
        (path.parent / "w.bin").write_bytes(PLAIN)
        (path.parent / file_name).write_bytes(content)
        inspects(path)
        assert_refused(path, words)


def main() -> None:
    """All rows, or those whose names are given."""
    names = sys.argv[1:]
    common.run_all("malformed data", case, [(name,) for name in CASES if not names or name in names])
    common.run_all("files of another kind", stand_in, [(name,) for name in STAND_INS if not names or name in names])
    common.finish()


if __name__ == "__main__":
    main()
