"""Measures the package beside onnx, onnx_ir and onnx's ModelContainer, in one process and in turns, and prints a table.

    python -P python/bench.py [--bytes 1000000000] [--rounds 3] [--folder DIR]

Files are not flushed to the disk by anybody (`sync=False`), so that what is measured is the work of the libraries. Times
are the medians of all rounds, in seconds; ratios are to ours.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
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

Work = Callable[[Path], Any]


def model_of(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A model whose weights are behind handles."""
    inits = [onnx_container.make_large_tensor_proto(f"#{n}", n, 1, w.shape) for n, w in weights.items()]
    graph = oh.make_graph([oh.make_node("Identity", ["x"], ["y"])], "g", [], [], initializer=inits)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)


def ir_model_of(weights: dict[str, np.ndarray]) -> onnx_ir.Model:
    model = onnx_ir.from_proto(model_of({}))
    for name, weight in weights.items():
        value = onnx_ir.Value(name=name, const_value=onnx_ir.Tensor(weight, name=name))
        model.graph.register_initializer(value)
    return model


def peer_container(weights: dict[str, np.ndarray]) -> onnx.model_container.ModelContainer:
    container = onnx.model_container.ModelContainer()
    container.model_proto = model_of(weights)
    container.set_large_initializers({f"#{name}": weight for name, weight in weights.items()})
    return container


def saves(weights: dict[str, np.ndarray], with_onnx: bool) -> dict[str, Work]:
    """Ways to save these weights from memory to one file."""
    proto, ir_model, peer = model_of(weights), ir_model_of(weights), peer_container(weights)
    handles = {f"#{name}": weight for name, weight in weights.items()}
    ways: dict[str, Work] = {
        "onnx_container": lambda folder: onnx_container.Container(proto, handles).save(folder / "m.onnx", sync=False),
        "onnx_container.ir": lambda folder: onnx_container.ir.save(
            ir_model, folder / "m.onnx", external_data="m.data", sync=False
        ),
        "onnx_ir": lambda folder: onnx_ir.save(ir_model, folder / "m.onnx", external_data="m.data"),
        "onnx_ir, 2 workers": lambda folder: onnx_ir.save(
            ir_model, folder / "m.onnx", external_data="m.data", max_workers=2
        ),
        "onnx ModelContainer": lambda folder: peer.save(str(folder / "m.onnx"), True),
    }
    if with_onnx:

        def by_onnx(folder: Path) -> None:
            model = model_of({})
            for name, weight in weights.items():
                model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
            onnx.save_model(model, folder / "m.onnx", save_as_external_data=True, location="m.data")

        ways["onnx.save_model"] = by_onnx
    return ways


def loads(path: Path) -> dict[str, Work]:
    """Ways to load a model and touch every tensor as an array."""

    def touch(arrays: Any) -> None:
        for array in arrays:
            array.reshape(-1)[:1].sum()

    def by_onnx(folder: Path) -> None:
        touch(map(onnx.numpy_helper.to_array, onnx.load(path).graph.initializer))

    def by_peer(folder: Path) -> None:
        container = onnx.model_container.ModelContainer()
        container.load(str(path))
        touch(container.large_initializers.values())

    return {
        "onnx_container": lambda _: touch(
            tensor.numpy() for tensor in onnx_container.Container.load(path).tensors().values()
        ),
        "onnx_ir": lambda _: touch(it.const_value.numpy() for it in onnx_ir.load(path).graph.initializers.values()),
        "onnx ModelContainer": by_peer,
        "onnx.load": by_onnx,
    }


def inlines() -> dict[str, Work]:
    """Ways to inline the calls of a model that is given as bytes."""
    body = [oh.make_node("Add", ["a", "a"], ["t"]), oh.make_node("Relu", ["t"], ["b"])]
    function = oh.make_function("local", "f", ["a"], ["b"], body, [oh.make_opsetid("", 21)])
    nodes = [oh.make_node("f", [f"v{i}"], [f"v{i + 1}"], domain="local") for i in range(20_000)]
    graph = oh.make_graph(
        nodes, "g", [oh.make_tensor_value_info("v0", 1, [2])], [oh.make_tensor_value_info("v20000", 1, [2])]
    )
    opsets = [oh.make_opsetid("", 21), oh.make_opsetid("local", 1)]
    model = oh.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10).SerializeToString()

    def by_onnx(folder: Path) -> bytes:
        return onnx.inliner.inline_local_functions(onnx.ModelProto.FromString(model)).SerializeToString()

    return {"onnx_container": lambda _: onnx_container.inline_functions(model), "onnx.inliner": by_onnx}


def measure(title: str, ways: dict[str, Work], rounds: int, folder: Path) -> None:
    """Runs all ways in turns, and prints a row for each."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    failed: dict[str, str] = {}
    for _ in range(rounds):
        for name, work in ways.items():
            if name in failed:
                continue
            inside = Path(tempfile.mkdtemp(dir=folder))
            try:
                start = time.perf_counter()
                work(inside)
                times[name].append(time.perf_counter() - start)
            except OSError as error:
                failed[name] = error.strerror or str(error)
            # What a failure left open is closed here.
            gc.collect()
            shutil.rmtree(inside)
    ours = statistics.median(times["onnx_container"])
    for name, seconds in times.items():
        if name in failed:
            print(f"| {title} | {name} | fails: {failed[name]} | |", flush=True)
            continue
        median = statistics.median(seconds)
        print(f"| {title} | {name} | {median:.3f} | {median / ours:.2f} |", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    side = int((args.bytes / 64 / 4) ** 0.5)
    large = {f"w{i}": rng.standard_normal((side, side), dtype=np.float32) for i in range(64)}
    many = {f"w{i}": np.full((16, 16), i, np.float32) for i in range(25_000)}
    print("| what | by | seconds | ratio |\n|---|---|---|---|")
    measure(f"save {args.bytes / 1e9:g} GB", saves(large, True), args.rounds, args.folder)
    measure("save 25,000 tensors of 1 KiB", saves(many, True), args.rounds, args.folder)
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        for name, weights in (("large", large), ("many", many)):
            container = onnx_container.Container(model_of(weights), {f"#{n}": w for n, w in weights.items()})
            container.save(folder / f"{name}.onnx", sync=False)
        measure(f"load {args.bytes / 1e9:g} GB, touch all", loads(folder / "large.onnx"), args.rounds, args.folder)
        measure("load 25,000 tensors, touch all", loads(folder / "many.onnx"), args.rounds, args.folder)
    finally:
        shutil.rmtree(folder)
    measure("inline 20,000 calls, from bytes to bytes", inlines(), args.rounds, args.folder)


if __name__ == "__main__":
    main()
