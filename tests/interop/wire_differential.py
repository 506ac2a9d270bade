"""Holds our protobuf layer against the official one, on models and on mutations of them.

    python tests/interop/wire_differential.py --reencode BINARY [--count N] [--seed N] MODEL...

BINARY is the example `reencode`; a MODEL may be a folder, which stands for all .onnx files in it.
Every model must come back byte for byte, and every mutation must fare as in the official parser:

- what it refuses we refuse;
- what it accepts we accept, and write the same bytes.

Each exception is a class below, and an input is in it only when the class's own check says so.
"""

import argparse
import collections
import pathlib
import random
import struct
import subprocess
import sys
import time

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

# Mutations are of models up to this size: smaller ones show more of the format for the time.
LARGEST = 6_000


class Ours:
    """The process that reads and writes with our library."""

    def __init__(self, binary):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([binary], stdin=pipe, stdout=pipe)

    def __call__(self, data):
        """The model written again, or None and why not."""
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        header = self.process.stdout.read(5)
        if len(header) < 5:
            sys.exit("our process died")
        good, length = struct.unpack("<BI", header)
        answer = self.process.stdout.read(length)
        return (answer, None) if good else (None, answer.decode())


def official(data):
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return None
    return model.SerializeToString()


def every_message(message):
    """The message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type:
            for inner in value if field.is_repeated else [value]:
                yield from every_message(inner)


def unknown(message):
    """Its unknown records, in their order."""

    def plain(fields):
        rows = [(f.field_number, f.wire_type, f.data) for f in fields]
        return [(n, w, plain(d) if w == 3 else d) for n, w, d in rows]

    return plain(UnknownFieldSet(message))


def has_packed_varints(message):
    kinds = [FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64]
    return any(field.is_packed and field.type in kinds for field, _ in message.ListFields())


def expected_difference(ours, theirs):
    """The class of a difference in what is written, or None when there must be none.

    packed varints: some have bits that do not fit their type, or are not in their shortest form.
        The official parser writes them anew; we keep the payload as it is.

    Nothing else may differ: read by the official parser, our bytes and its own are the same
    messages with the same unknown records.
    """
    mine, peer = onnx.ModelProto.FromString(ours), onnx.ModelProto.FromString(theirs)
    found, others = list(every_message(mine)), list(every_message(peer))
    if [unknown(m) for m in found] != [unknown(m) for m in others]:
        return None
    packed = any(map(has_packed_varints, found))
    # Without them the messages must be the same, byte for byte.
    mine.DiscardUnknownFields()
    peer.DiscardUnknownFields()
    if mine.SerializeToString() != peer.SerializeToString():
        return None
    return "packed varints" if packed else None


def awkward():
    """Models with what the exceptions are about, for mutations to start from."""
    numbers = bytes.fromhex("2a06818080801005 3a028500 5a0a") + b"\xff" * 9 + b"\x7f"
    tensor = b"\x08\x01\x10\x06" + numbers + b"\x70\x07"
    node = record(5, bytes.fromhex("0a0161 1801 a00163") + record(5, tensor))
    graph = record(1, node) + record(5, tensor) + record(2, b"g")
    return b"\x08\x0a" + record(7, graph) + record(8, b"\x10\x15")


def record(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def any_record(rng):
    """A record of some field, that a model may have or not."""
    wire = rng.choice([0, 0, 1, 2, 2, 2, 3, 4, 5])
    tag = varint(rng.choice([rng.randrange(0, 30), rng.randrange(1 << 29)]) << 3 | wire)
    if wire == 0:
        return tag + varint(rng.choice([rng.randrange(300), rng.getrandbits(64)]))
    if wire == 1:
        return tag + rng.randbytes(8)
    if wire == 5:
        return tag + rng.randbytes(4)
    if wire == 3:
        number = varint(int.from_bytes(tag[:1]) >> 3 << 3 | 4)
        return tag + (any_record(rng) if rng.random() < 0.5 else b"") + number
    if wire == 4:
        return tag
    payload = rng.randbytes(rng.randrange(6))
    return tag + varint(len(payload)) + payload


def records(data):
    """Where the records of a message begin; None when it is no message."""
    starts, at = [], 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    try:
        while at < len(data):
            starts.append(at)
            tag = number()
            if tag >> 3 == 0:
                return None
            wire = tag & 7
            if wire == 0:
                number()
            elif wire == 2:
                at += number()
            elif wire in (1, 5):
                at += 8 if wire == 1 else 4
            else:
                return None
    except IndexError:
        return None
    return starts + [at] if at == len(data) else None


def split(data, start, end):
    """The tag and the payload of a length-delimited record, or None."""
    at = start
    while data[at] >= 0x80:
        at += 1
    at += 1
    wire = data[start] & 7
    if wire != 2:
        return None
    tag, size, shift = data[start:at], 0, 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return (tag, data[at:end]) if at + size == end else None


def in_structure(data, rng, depth=0):
    """Changes the records of a message, here or inside one of them: lengths stay true."""
    starts = records(data)
    if not starts or len(starts) < 2:
        return data + any_record(rng)
    index = rng.randrange(len(starts) - 1)
    start, end = starts[index], starts[index + 1]
    inner = split(data, start, end)
    if inner and depth < 8 and rng.random() < 0.75:
        tag, payload = inner
        payload = in_structure(payload, rng, depth + 1)
        return data[:start] + tag + varint(len(payload)) + payload + data[end:]
    record = data[start:end]
    kind = rng.randrange(6)
    if kind == 0:  # gone
        return data[:start] + data[end:]
    if kind == 1:  # twice
        return data[:end] + record + data[end:]
    if kind == 2:  # elsewhere
        rest = data[:start] + data[end:]
        at = rng.choice([s if s <= start else s - len(record) for s in starts if s != end])
        return rest[:at] + record + rest[at:]
    if kind == 3:  # another one beside it
        return data[:start] + any_record(rng) + data[start:]
    if kind == 4:  # another field or wire type
        return data[:start] + bytes([data[start] ^ (1 << rng.randrange(7))]) + data[start + 1 :]
    return data[:start] + b"".join(any_record(rng) for _ in range(3)) + data[end:]


def in_bytes(data, rng):
    """Changes bytes, wherever they are."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[at : at + rng.randrange(1, 4)]
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 4))
        elif kind == 4:
            data[at:at] = rng.choice([b"\xff" * 9 + b"\x7f", b"\x80\x80\x00", b"\x0b\x0c", b"\x00"])
        else:
            del data[at:]
    return bytes(data)


def mutate(data, rng):
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        data = (in_structure if rng.random() < 0.7 else in_bytes)(data, rng)
    return data


def check_models(ours, models):
    for path, data in models:
        again, error = ours(data)
        if again != data:
            sys.exit(f"{path}: {error or 'written differently'}")
        if official(data) != data:
            sys.exit(f"{path}: the official library writes it differently")
    print(f"{len(models)} models come back byte for byte")


def check_mutations(ours, models, count, seed):
    rng = random.Random(seed)
    seen = collections.Counter()
    for number in range(count):
        path, data = rng.choice(models) if rng.random() < 0.97 else ("awkward", awkward())
        data = mutate(data, rng)
        (mine, error), theirs = ours(data), official(data)
        kind = "both refuse" if mine is None else "the same bytes"
        if (mine is None) != (theirs is None):
            kind = None
        elif mine != theirs:
            kind = expected_difference(mine, theirs)
        if kind is None:
            name = pathlib.Path(f"mutation_{seed}_{number}.onnx")
            name.write_bytes(data)
            fate = f"we say {error or 'yes'}, it says {'no' if theirs is None else 'yes'}"
            sys.exit(f"mutation {number} of {path}, kept as {name}: {fate}")
        seen[kind] += 1
    print(f"{count} mutations, seed {seed}:", ", ".join(f"{k}: {n}" for k, n in seen.most_common()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reencode", required=True, help="the example of that name")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    start = time.monotonic()
    paths = []
    for given in options.models:
        paths += given.rglob("*.onnx") if given.is_dir() else [given]
    models = [(path, path.read_bytes()) for path in sorted(paths)]
    if not models:
        sys.exit("no models")
    ours = Ours(options.reencode)
    check_models(ours, models)
    small = [(path, data) for path, data in models if 0 < len(data) <= LARGEST]
    check_mutations(ours, small, options.count, options.seed)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
