"""Compares importing one large tensor with onnx.numpy_helper.to_array, each in a fresh process.

    python scripts/bench_import.py [--elements N] [--rounds N] [NAME...]

Both sides begin with the serialized TensorProto in memory. The official parser expands typed fields while it parses and
to_array copies them once more; we leave them as they are until they are imported. So the time to
compare is that of both steps, and a line ends with the ratio of its medians, and of its minima, which
a busy machine disturbs less. What the steps give is held to be the same bytes.

What is compared, by the word before the colon:
  import  our Tensor, which shares raw bytes and fields of fixed width with the input, and to_array, which
          for raw data is a view of the bytes object that the message gives out, a copy of its own
  array   an array that owns its elements, on both sides: one copy more for raw data
  unpack  one element a byte, for types narrower than a byte

NAME picks the cases whose names contain it. Needs Linux, onnx and numpy; builds the example
`bench_import` with cargo.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from onnx import TensorProto

ROOT = pathlib.Path(__file__).parent.parent
# The goals: so many times faster.
RAW, TYPED = 2, 5

PEER = """
import sys, time
import numpy as np
from onnx import TensorProto, numpy_helper

with open(sys.argv[1], "rb") as file:
    data = file.read()
proto = TensorProto()
start = time.perf_counter()
proto.ParseFromString(data)
parsed = time.perf_counter()
array = numpy_helper.to_array(proto)
if sys.argv[2] == "array":
    array = np.array(array)
end = time.perf_counter()
print(parsed - start, end - parsed)
if len(sys.argv) > 3:
    array.tofile(sys.argv[3])
"""


def integers(low, high, dtype=np.int64):
    """Numbers drawn evenly from low to below high."""
    return lambda random, count: random.integers(low, high, count, dtype)


def floats(dtype):
    return lambda random, count: random.standard_normal(count).astype(dtype)


# what, type, field, numbers: of typed fields the entries, of raw data the elements or bytes.
CASES = {
    "import: float_data FLOAT": ("FLOAT", "float_data", floats(np.float32)),
    "import: double_data DOUBLE": ("DOUBLE", "double_data", floats(np.float64)),
    "import: int64_data INT64, 0 to 127": ("INT64", "int64_data", integers(0, 128)),
    "import: int64_data INT64, -100 to 99": ("INT64", "int64_data", integers(-100, 100)),
    "import: int64_data INT64, 32 bits": ("INT64", "int64_data", integers(0, 2**32)),
    "import: int64_data INT64, any": ("INT64", "int64_data", integers(-(2**63), 2**63)),
    "import: uint64_data UINT64, any": ("UINT64", "uint64_data", integers(0, 2**64, np.uint64)),
    "import: uint64_data UINT32, any": ("UINT32", "uint64_data", integers(0, 2**32)),
    "import: int32_data INT32, 0 to 127": ("INT32", "int32_data", integers(0, 128)),
    "import: int32_data INT32, any": ("INT32", "int32_data", integers(-(2**31), 2**31)),
    "import: int32_data UINT8, any": ("UINT8", "int32_data", integers(0, 256)),
    "import: int32_data INT8, any": ("INT8", "int32_data", integers(-128, 128)),
    "import: int32_data BOOL": ("BOOL", "int32_data", integers(0, 2)),
    "import: int32_data FLOAT8E4M3FN": ("FLOAT8E4M3FN", "int32_data", integers(0, 256)),
    "import: int32_data FLOAT16, any": ("FLOAT16", "int32_data", integers(0, 65536)),
    "import: int32_data INT16, -100 to 99": ("INT16", "int32_data", integers(-100, 100)),
    "unpack: int32_data INT4": ("INT4", "int32_data", integers(0, 256)),
    "import: raw FLOAT": ("FLOAT", "raw_data", floats(np.float32)),
    "import: raw UINT8": ("UINT8", "raw_data", integers(0, 256, np.uint8)),
    "array: raw FLOAT": ("FLOAT", "raw_data", floats(np.float32)),
    "array: raw FLOAT16": ("FLOAT16", "raw_data", floats(np.float16)),
    "array: raw UINT8": ("UINT8", "raw_data", integers(0, 256, np.uint8)),
    "array: raw INT64": ("INT64", "raw_data", integers(0, 2**63)),
    "unpack: raw INT4": ("INT4", "raw_data", integers(0, 256, np.uint8)),
    "unpack: raw UINT2": ("UINT2", "raw_data", integers(0, 256, np.uint8)),
    "unpack: raw FLOAT6E2M3": ("FLOAT6E2M3", "raw_data", integers(0, 256, np.uint8)),
}
# So many elements in so many bytes, and their bits: those above them are the sign's with us only.
NARROW = {"INT4": (2, 1, 15), "UINT2": (4, 1, 3), "FLOAT6E2M3": (4, 3, 63)}
WHOLE = (1, 1, 255)


def make(type_name, field, numbers, count):
    """A tensor of `count` elements."""
    elements, units, _ = NARROW.get(type_name, WHOLE)
    values = numbers(np.random.default_rng(1), count // elements * units)
    proto = TensorProto(data_type=TensorProto.DataType.Value(type_name), dims=[count])
    if field == "raw_data":
        proto.raw_data = values.tobytes()
    else:
        getattr(proto, field).extend(values.tolist())
    return proto.SerializeToString()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(figure) for figure in done.stdout.split()]


def bytes_of(command, out):
    subprocess.run([*command, out], stdout=subprocess.DEVNULL, check=True)
    return np.fromfile(out, np.uint8)


def measure(name, options, binary, folder):
    """Print one line; whether the goal was missed."""
    what, (type_name, field, numbers) = name.split(":")[0], CASES[name]
    path, out = f"{folder}/tensor.pb", f"{folder}/out"
    pathlib.Path(path).write_bytes(make(type_name, field, numbers, options.elements))
    mine, peer = [binary, path, what], [sys.executable, "-c", PEER, path, what]
    mask = NARROW.get(type_name, WHOLE)[2]
    ours, theirs = (bytes_of(side, out) & np.uint8(mask) for side in (mine, peer))
    assert np.array_equal(ours, theirs), f"{name}: the elements differ"
    rounds = [(run(mine), run(peer)) for _ in range(options.rounds)]
    sides = list(zip(*rows_of(rounds)))
    low, middle = ([[pick(column) * 1e3 for column in zip(*side)] for side in sides] for pick in (min, statistics.median))
    (parse, get, total), (peer_parse, peer_get, peer_total) = middle
    goal = RAW if "raw" in name else TYPED
    ratio = peer_total / total
    print(
        f"{name:37} {parse:6.1f} + {get:6.1f} = {total:6.1f} ms   onnx {peer_parse:6.1f} + {peer_get:6.1f}"
        f" = {peer_total:6.1f} ms   {ratio:7.1f} times, by the minima {low[1][2] / low[0][2]:7.1f}"
        f"{'' if ratio >= goal else f', wanted {goal}'}",
        flush=True,
    )
    return ratio < goal


def rows_of(rounds):
    """Each measurement with its sum."""
    return [[[*figures, sum(figures)] for figures in pair] for pair in rounds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    build = ["cargo", "build", "--release", "--quiet", "-p", "onnx-container-drivers"]
    subprocess.run(build, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    names = [name for name in CASES if not options.names or any(n in name for n in options.names)]
    print(f"{options.elements} elements, medians of {options.rounds} rounds: parse + get")
    with tempfile.TemporaryDirectory() as folder:
        binary = built / "release/bench_import"
        missed = [name for name in names if measure(name, options, binary, folder)]
    if missed:
        sys.exit(f"{len(missed)} of {len(names)} missed the goal: " + "; ".join(missed))


if __name__ == "__main__":
    main()
