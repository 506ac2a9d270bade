"""Measures the package beside onnx, onnx_ir, safetensors and (where it is installed) yobx, and prints a table.

    cargo build --release -p onnx-container-drivers --bin save_arrays
    python -P python/bench.py --rust target/release/save_arrays

All ways of a row run in one process, in another order in each round, and each begins with an empty folder. Nobody flushes files to
the disk (ours by `sync=False`), so that what is measured is the work of the libraries. A line has the least and the median of all
rounds in seconds, how many times longer the least is than ours, and the peak of memory over what the process had before, in
MiB (Linux). The least tells more on a machine that others share: what they do makes a round slower and never faster.
With `--rust`, the library itself saves the same weights, in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.inliner
import onnx.model_container
import onnx_container
import onnx_container.ir
import onnx_ir
import safetensors
import safetensors.numpy

Work = Callable[[Path], Any]
Weights = dict[str, np.ndarray]
OURS = "onnx_container"


def model_of(weights: Weights) -> onnx.ModelProto:
    """A model whose weights are behind handles."""
    inits = [onnx_container.make_large_tensor_proto(f"#{n}", n, 1, w.shape) for n, w in weights.items()]
    x, y = (oh.make_tensor_value_info(name, 1, [1]) for name in "xy")
    graph = oh.make_graph([oh.make_node("Identity", ["x"], ["y"])], "g", [x], [y], initializer=inits)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)


def ir_model_of(weights: Weights) -> onnx_ir.Model:
    model = onnx_ir.from_proto(model_of({}))
    for name, weight in weights.items():
        value = onnx_ir.Value(name=name, const_value=onnx_ir.Tensor(weight, name=name))
        model.graph.register_initializer(value)
    return model


def peer_container(cls: Any, weights: Weights) -> Any:
    container = cls()
    container.model_proto = model_of(weights)
    container.set_large_initializers({f"#{name}": weight for name, weight in weights.items()})
    return container


def saves(weights: Weights) -> dict[str, Work]:
    """Ways to save these weights from memory to one file."""
    proto, ir_model = model_of(weights), ir_model_of(weights)
    handles = {f"#{name}": weight for name, weight in weights.items()}
    ours, theirs = (
        peer_container(cls, weights) for cls in (onnx_container.ModelContainer, onnx.model_container.ModelContainer)
    )

    def by_ir(save: Callable[..., None], **options: Any) -> Work:
        return lambda folder: save(ir_model, folder / "m.onnx", external_data="m.data", **options)

    def by_onnx(folder: Path) -> None:
        model = model_of({})
        for name, weight in weights.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
        onnx.save_model(model, folder / "m.onnx", save_as_external_data=True, location="m.data")

    ways: dict[str, Work] = {
        OURS: lambda folder: onnx_container.Container(proto, handles).save(folder / "m.onnx", sync=False),
        "onnx_container.ModelContainer": lambda folder: ours.save(folder / "m.onnx", True, sync=False),
        "onnx_container.ir": by_ir(onnx_container.ir.save, sync=False),
        "onnx ModelContainer": lambda folder: theirs.save(str(folder / "m.onnx"), True),
        "onnx_ir": by_ir(onnx_ir.save),
        "onnx_ir, 2 workers": by_ir(onnx_ir.save, max_workers=2),
        "onnx.save_model": by_onnx,
        "safetensors, weights alone": lambda folder: safetensors.numpy.save_file(weights, folder / "m.safetensors"),
    }
    try:
        from yobx.container import ExtendedModelContainer
    except ImportError:
        return ways
    yobx = peer_container(ExtendedModelContainer, weights)
    return {**ways, "yobx": lambda folder: yobx.save(str(folder / "m.onnx"))}


def in_rust(program: Path, weights: Weights) -> Work:
    """A save of as many weights by the library, which tells its own time."""
    sizes = [str(weight.size) for weight in weights.values()]

    def run(folder: Path) -> float:
        done = subprocess.run([program, folder, *sizes], check=True, capture_output=True, text=True)
        return float(done.stdout)

    return run


def loads(path: Path) -> dict[str, Work]:
    """Ways to load a model and touch every tensor as an array."""

    def touch(arrays: Any) -> None:
        for array in arrays:
            array.reshape(-1)[:1].sum()

    def by_class(cls: Any) -> Work:
        def load(folder: Path) -> None:
            container = cls()
            container.load(str(path))
            touch(container.large_initializers.values())

        return load

    def by_safetensors(folder: Path) -> None:
        with safetensors.safe_open(path.with_suffix(".safetensors"), "numpy") as file:
            touch(map(file.get_tensor, file.keys()))

    def by_ours(folder: Path) -> None:
        touch(tensor.numpy() for tensor in onnx_container.Container.load(path).tensors().values())

    def by_onnx(folder: Path) -> None:
        touch(map(onnx.numpy_helper.to_array, onnx.load(path).graph.initializer))

    def by_ir(load: Any) -> Work:
        return lambda _: touch(it.const_value.numpy() for it in load(path).graph.initializers.values())

    return {
        OURS: by_ours,
        "onnx_container.ModelContainer": by_class(onnx_container.ModelContainer),
        "onnx_container.ir": by_ir(onnx_container.ir.load),
        "onnx ModelContainer": by_class(onnx.model_container.ModelContainer),
        "onnx_ir": by_ir(onnx_ir.load),
        "onnx.load": by_onnx,
        "safetensors": by_safetensors,
    }


def inlines(model: onnx.ModelProto) -> dict[str, Work]:
    """Ways to inline the calls of a model that is given as bytes."""
    given = model.SerializeToString()

    def by_onnx(folder: Path) -> bytes:
        return onnx.inliner.inline_local_functions(onnx.ModelProto.FromString(given)).SerializeToString()

    return {OURS: lambda _: onnx_container.inline_functions(given), "onnx.inliner": by_onnx}


def calls(bodies: dict[str, list[str]], of: list[str]) -> onnx.ModelProto:
    """A model that calls functions, whose bodies are operators and calls of other functions, one after the other."""
    imports = [oh.make_opsetid("", 21), oh.make_opsetid("local", 1)]

    def chain(kinds: list[str], start: str, end: str) -> list[onnx.NodeProto]:
        values = [start, *(f"v{i}" for i in range(len(kinds) - 1)), end]
        steps = zip(kinds, values, values[1:], strict=False)
        return [oh.make_node(kind, [a], [b], domain="local" if kind in bodies else None) for kind, a, b in steps]

    functions = [
        oh.make_function("local", name, ["a"], ["b"], chain(body, "a", "b"), imports) for name, body in bodies.items()
    ]
    ends = [oh.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = oh.make_graph(chain(of, "x", "y"), "g", ends[:1], ends[1:])
    return oh.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def nested() -> onnx.ModelProto:
    """As an export of a large language model: 50,000 nodes, of which 5,000 call 300 functions, which call one another."""
    bodies = {f"leaf{i}": ["Relu", "Neg"] * 5 for i in range(100)}
    for level, below in (("middle", "leaf"), ("top", "middle")):
        for i in range(100):
            called = [f"{below}{(3 * i + step) % 100}" for step in range(2)]
            bodies[f"{level}{i}"] = ["Relu", "Abs", *called, "Tanh"]
    of = [kind for i in range(5_000) for kind in (*["Relu", "Neg", "Abs"] * 3, f"top{i % 100}")]
    return calls(bodies, of)


def memory(name: str) -> int:
    """A line of the system's about the memory of this process, in bytes; 0 where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def once(work: Work, folder: Path) -> tuple[float, float]:
    """How long it takes in seconds, and the peak of memory over what there was, in MiB."""
    inside = Path(tempfile.mkdtemp(dir=folder))
    gc.collect()
    if hasattr(os, "sync"):
        os.sync()  # What was written before is not written meanwhile.
    try:
        if sys.platform == "linux":
            Path("/proc/self/clear_refs").write_text("5")
        before, start = memory("VmRSS"), time.perf_counter()
        told = work(inside)
        seconds = time.perf_counter() - start
        return told if isinstance(told, float) else seconds, (memory("VmHWM") - before) / (1 << 20)
    finally:
        shutil.rmtree(inside)


def measure(title: str, ways: dict[str, Work], rounds: int, folder: Path) -> None:
    """Runs all ways in turns, and prints a row for each."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    failed: dict[str, str] = {}
    for turn in range(rounds + 1):
        for name in random.sample(list(ways), len(ways)):
            if name in failed:
                continue
            try:
                measured = once(ways[name], folder)
            except OSError as error:
                failed[name] = error.strerror or str(error)
                gc.collect()  # What a failure left open is closed here.
                continue
            if turn > 0:  # The first is a warm-up.
                taken[name].append(measured)
    ours = min(seconds for seconds, _ in taken[OURS])
    for number, (name, all_) in enumerate(taken.items()):
        what = "" if number else title
        if name in failed:
            print(f"| {what} | {name} | fails: {failed[name]} | | | |", flush=True)
            continue
        seconds, added = zip(*all_, strict=True)
        least, median = min(seconds), statistics.median(seconds)
        beside = "" if name == "in Rust" else f"{max(0, statistics.median(added)):.0f}"
        print(f"| {what} | {name} | {shown(least)} | {shown(median)} | {least / ours:.2f} | {beside} |", flush=True)


def shown(seconds: float) -> str:
    """A time as people read it."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1_000_000_000, help="of the large weights, together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--rust", type=Path, help="the program save_arrays")
    parser.add_argument("--only", default="", help="rows whose titles contain this")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    size = args.bytes // 64 // 4
    cases: dict[str, Weights] = {
        f"{args.bytes / 1e9:g} GB in 64 tensors": {f"w{i}": rng.standard_normal(size, dtype=np.float32) for i in range(64)},
        "25,000 tensors of 1 to 64 KB": {
            f"w{i}": np.full(it, i, np.float32) for i, it in enumerate(rng.integers(256, 11_000, 25_000))
        },
        "25,000 tensors of 1 KiB": {f"w{i}": np.full(256, i, np.float32) for i in range(25_000)},
    }
    print("| | by | least | median | ratio of the least | MiB beside the weights |\n|---|---|---|---|---|---|")
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        for title, weights in cases.items():
            if args.only not in f"save {title}" and args.only not in f"load {title}":
                continue
            ways = saves(weights)
            if args.rust is not None:
                ways["in Rust"] = in_rust(args.rust, weights)
            if args.only in f"save {title}":
                measure(f"save {title}", ways, args.rounds, folder)
            path = folder / "loaded" / "m.onnx"
            path.parent.mkdir()
            ways[OURS](path.parent)
            ways["safetensors, weights alone"](path.parent)
            ways.clear()
            weights.clear()
            if args.only in f"load {title}":
                measure(f"load {title}, touch all", loads(path), args.rounds, folder)
            shutil.rmtree(path.parent)
    finally:
        shutil.rmtree(folder)
    for title, model in {
        "inline 5,000 calls of 300 functions, nested three deep": nested(),
        "inline 20,000 calls of one function": calls({"f": ["Relu", "Neg"]}, ["f"] * 20_000),
    }.items():
        if args.only in title:
            measure(f"{title}, from bytes to bytes", inlines(model), args.rounds, args.folder)


if __name__ == "__main__":
    main()
