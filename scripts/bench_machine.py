"""Compares the machine's two profiles with onnxruntime, rten and tract: how long a run of a model takes on one thread.

    python scripts/bench_machine.py [--rounds N] [--repeat N] [--peers] [--table] [NAME...]

Engines take turns in fresh processes. A process loads its model, runs it once unmeasured, then `--repeat` times;
the least of all these runs over all rounds is what the others on the machine disturb least. Loading,
planning of onnxruntime's session and the start of processes are not in it; what the machine does for
each run, its plan included, is. Behind each time is how many times onnxruntime's it is.

GPT-2 small, in FLOAT and in FLOAT16, and MobileNetV2 are generated from their architectures with random weights;
silero-vad is the model of the test script. NAME picks the cases whose names contain it, `--table` prints the table of
docs/machine.md. `--peers` measures rten and tract too, by the program in scripts/peers, which cargo builds:
it needs Rust 1.94 and minutes. The exit code is 1 when a profile misses its goal on GPT-2. Needs Linux,
onnx and onnxruntime, and the command in $ONNX_CONTAINER_BIN, or builds it with cargo.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
SILERO = ROOT / ".models" / "silero-vad" / "silero_vad" / "data" / "silero_vad.onnx"
PEERS = ROOT / "scripts" / "peers" / "Cargo.toml"
PROFILES = ("strict", "fast")

ONNXRUNTIME = """
import sys, time
import onnx, onnxruntime
from onnx import numpy_helper
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
given = {}
for pair in sys.argv[3:]:
    name, file = pair.split("=", 1)
    given[name] = numpy_helper.to_array(onnx.load_tensor(file))
session.run(None, given)
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    session.run(None, given)
    print(time.perf_counter() - start)
"""


class Graph:
    """A graph that is put together node by node, with floats of one type; every value has a name of its own."""

    def __init__(self, seed: int, dtype: type = np.float32) -> None:
        self.random, self.dtype = np.random.default_rng(seed), dtype
        self.nodes, self.weights = [], []

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes) -> str | list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, *shape: int, scale: float = 0.02) -> str:
        elements = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        return self.constant(elements.astype(self.dtype))

    def fill(self, value: float, *shape: int) -> str:
        return self.constant(np.full(shape, value, self.dtype))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def save(self, path: pathlib.Path, given: onnx.ValueInfoProto, result: str) -> None:
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        output = helper.make_tensor_value_info(result, dtype, None)
        graph = helper.make_graph(self.nodes, "g", [given], [output], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data")


def gpt2(path: pathlib.Path, dtype: type = np.float32) -> dict[str, np.ndarray]:
    """GPT-2 small as PyTorch exports it: the activation by its parts, the last matrix a transposed view."""
    layers, width, heads, words, tokens = 12, 768, 12, 50257, 16
    g = Graph(0, dtype)
    embedding = g.weight(words, width)

    def norm(x: str) -> str:
        return g.add("LayerNormalization", x, g.fill(1, width), g.fill(0, width), epsilon=1e-5)

    def linear(x: str, n: int, m: int) -> str:
        flat = g.add("Gemm", g.add("Reshape", x, g.ints(-1, n)), g.weight(n, m), g.weight(m))
        return g.add("Reshape", flat, g.ints(1, tokens, m))

    def split(x: str, perm: list[int]) -> str:
        return g.add("Transpose", g.add("Reshape", x, g.ints(1, tokens, heads, width // heads)), perm=perm)

    mask = g.constant(np.where(np.tri(tokens, dtype=bool), 0, np.finfo(dtype).min).astype(dtype))
    positions = g.add("Gather", g.weight(1024, width), g.constant(np.arange(tokens)[None]))
    x = g.add("Add", g.add("Gather", embedding, "ids"), positions)
    for _ in range(layers):
        parts = g.add("Split", linear(norm(x), width, 3 * width), outputs=3, axis=2, num_outputs=3)
        q, k, v = (split(part, perm) for part, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])))
        scores = g.add("Add", g.add("Mul", g.add("MatMul", q, k), g.fill(0.125)), mask)
        mixed = g.add("Transpose", g.add("MatMul", g.add("Softmax", scores), v), perm=[0, 2, 1, 3])
        x = g.add("Add", linear(g.add("Reshape", mixed, g.ints(1, tokens, width)), width, width), x)
        h = linear(norm(x), width, 4 * width)
        cube = g.add("Mul", g.add("Pow", h, g.fill(3)), g.fill(0.044715))
        inner = g.add("Tanh", g.add("Mul", g.add("Add", h, cube), g.fill(0.7978845608)))
        h = g.add("Mul", g.add("Mul", h, g.fill(0.5)), g.add("Add", inner, g.fill(1)))
        x = g.add("Add", linear(h, 4 * width, width), x)
    logits = g.add("MatMul", norm(x), g.add("Transpose", embedding, perm=[1, 0]))
    g.save(path, helper.make_tensor_value_info("ids", TensorProto.INT64, [1, tokens]), logits)
    return {"ids": np.arange(7, 7 + tokens)[None]}


# Of each group of blocks: how much wider the middle is, the channels, the blocks, the first stride.
MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet(path: pathlib.Path) -> dict[str, np.ndarray]:
    """MobileNetV2 on an image of 224 x 224, batch normalization folded into the weights."""
    g = Graph(1)

    def conv(x: str, n: int, m: int, kernel: int, stride: int, group: int = 1, active: bool = True) -> str:
        w = g.weight(m, n // group, kernel, kernel, scale=(2 / (n // group * kernel**2)) ** 0.5)
        pads = [kernel // 2] * 4
        y = g.add("Conv", x, w, g.weight(m), group=group, strides=[stride] * 2, pads=pads, kernel_shape=[kernel] * 2)
        return g.add("Clip", y, g.fill(0), g.fill(6)) if active else y

    x, channels = conv("image", 3, 32, 3, 2), 32
    for wider, out, blocks, first in MOBILE:
        for block in range(blocks):
            stride, middle = first if block == 0 else 1, channels * wider
            y = conv(x, channels, middle, 1, 1) if wider > 1 else x
            y = conv(conv(y, middle, middle, 3, stride, group=middle), middle, out, 1, 1, active=False)
            x, channels = g.add("Add", x, y) if stride == 1 and channels == out else y, out
    x = g.add("Flatten", g.add("GlobalAveragePool", conv(x, channels, 1280, 1, 1)))
    result = g.add("Gemm", x, g.weight(1280, 1000), g.weight(1000))
    g.save(path, helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224]), result)
    return {"image": np.random.default_rng(2).standard_normal((1, 3, 224, 224), np.float32)}


def silero(path: pathlib.Path) -> dict[str, np.ndarray]:
    if not SILERO.exists():
        raise SystemExit("silero-vad is not there: scripts/models.py fetches it")
    path.symlink_to(SILERO)
    samples = np.random.default_rng(3).standard_normal((1, 576), np.float32)
    return {"input": samples, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}


# What makes each model, and the goals of the profiles where there are some: at most so many times
# onnxruntime's time.
CASES = {
    "GPT-2 small, 1 x 16 tokens": (gpt2, (2.5, 1.5)),
    "GPT-2 small in FLOAT16, 1 x 16 tokens": (partial(gpt2, dtype=np.float16), (2.5, 2.0)),
    "MobileNetV2, 224 x 224": (mobilenet, ()),
    "silero-vad, 576 samples": (silero, ()),
}


class DoesNotRun(Exception):
    """An engine cannot run a model; the message is its reason."""


def build(name: str, *options: str) -> str:
    """The program of this name, built with cargo by these options."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    line = ["cargo", "build", "--release", "-q", "--target-dir", target, *options]
    subprocess.run([str(word) for word in line], cwd=ROOT, check=True)
    return str(target / "release" / name)


def output_of(line: list) -> str:
    done = subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def onnxruntime(model: pathlib.Path, repeat: int, given: list[str]) -> list[float]:
    return [float(line) for line in output_of([sys.executable, "-c", ONNXRUNTIME, model, repeat, *given]).split()]


def machine(command: str, profile: str, model: pathlib.Path, repeat: int, given: list[str]) -> list[float]:
    line = [command, "run", model, "--profile", profile, "--timings", "--repeat", repeat + 1, "--json"]
    for pair in given:
        line += ["--input", pair]
    return json.loads(output_of(line))["timings"]["seconds"][1:]


def peer(program: str, engine: str, model: pathlib.Path, repeat: int, given: list[str]) -> list[float]:
    line = [program, engine, str(model), str(repeat), *given]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise DoesNotRun(textwrap.shorten(reason.replace("|", "/"), 60, placeholder=" ..."))
    return [float(line) for line in done.stdout.split()]


def engines(with_peers: bool) -> dict[str, Callable[[pathlib.Path, int, list[str]], list[float]]]:
    """What gives the seconds of each run, by the name of its column; onnxruntime is the first."""
    found = {"onnxruntime": onnxruntime}
    if with_peers:
        program = build("onnx-container-peers", "--locked", "--manifest-path", str(PEERS))
        found |= {engine: partial(peer, program, engine) for engine in ("rten", "tract")}
    command = os.environ.get("ONNX_CONTAINER_BIN") or build("onnx-container", "-p", "onnx-container-cli")
    return found | {f"machine {profile}": partial(machine, command, profile) for profile in PROFILES}


def least(runs: dict, rounds: int, *case) -> dict[str, float | str]:
    """The least milliseconds of each engine on a case, or why it does not run; engines take turns."""
    found = dict.fromkeys(runs, math.inf)
    for _ in range(rounds):
        for name in [name for name, value in found.items() if not isinstance(value, str)]:
            try:
                found[name] = min(found[name], *(1e3 * seconds for seconds in runs[name](*case)))
            except DoesNotRun as reason:
                found[name] = f"does not run: {reason}"
    return found


def measure(make, runs: dict, rounds: int, repeat: int) -> dict[str, float | str]:
    """What `least` finds on the model and the inputs that `make` makes."""
    with tempfile.TemporaryDirectory() as folder:
        model, given = pathlib.Path(folder, "model.onnx"), []
        for name, value in make(model).items():
            file = pathlib.Path(folder, f"{name}.pb")
            file.write_bytes(numpy_helper.from_array(value).SerializeToString())
            given.append(f"{name}={file}")
        return least(runs, rounds, model, repeat, given)


def cell(found: float | str, base: float) -> str:
    return found if isinstance(found, str) else f"{found:.2f} ms ({found / base:.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("names", nargs="*")
    asked, missed = parser.parse_args(), False
    runs = engines(asked.peers)
    if asked.table:
        print(f"| model | {' | '.join(runs)} |\n|{'---|' * (len(runs) + 1)}")
    for name, (make, goals) in CASES.items():
        if asked.names and not any(part.lower() in name.lower() for part in asked.names):
            continue
        found = measure(make, runs, asked.rounds, asked.repeat)
        base = found["onnxruntime"]
        cells = {engine: cell(value, base) for engine, value in found.items()} | {"onnxruntime": f"{base:.2f} ms"}
        line = f"| {name} | {' | '.join(cells.values())} |"
        print(line if asked.table else f"{name}: {', '.join(map(' '.join, cells.items()))}", flush=True)
        missed |= any(found[f"machine {profile}"] > goal * base for profile, goal in zip(PROFILES, goals))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
