#!/usr/bin/env python3
"""Time whole processes that pack one large model: this command, onnx.save and onnx_ir.

All read the same model with external weights and write it into one new data file. Rounds are
interleaved, medians compared, and a Python that only imports is timed beside them.

    .venv/bin/python scripts/bench_save.py [--megabytes 600] [--rounds 5]
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "bench"
BINARY = os.environ.get("ONNX_CONTAINER_BIN", str(ROOT / "target" / "release" / "onnx-container"))
LAYERS, PER_LAYER = 32, 9  # 288 tensors of layers, the embedding and the last norm

ONNX_SAVE = """
import onnx, sys
model = onnx.load(sys.argv[1])
onnx.save(model, sys.argv[2], save_as_external_data=True, location="out.onnx.data")
"""
IR_SAVE = """
import onnx_ir as ir, sys
ir.save(ir.load(sys.argv[1]), sys.argv[2], external_data="out.onnx.data")
"""
IR_SAFETENSORS = """
import onnx_ir as ir, sys
ir.save_safetensors(ir.load(sys.argv[1]), sys.argv[2])
"""
RUNS = {
    "onnx-container pack --no-sync": [BINARY, "pack", "--no-sync"],
    "the same with --safetensors": [BINARY, "pack", "--no-sync", "--safetensors"],
    "onnx-container pack": [BINARY, "pack"],
    "onnx.save": [sys.executable, "-c", ONNX_SAVE],
    "onnx_ir.save": [sys.executable, "-c", IR_SAVE],
    "onnx_ir.save_safetensors": [sys.executable, "-c", IR_SAFETENSORS],
    "import onnx alone": [sys.executable, "-c", "import onnx"],
}


def sizes(total: int) -> list[int]:
    """Bytes of each tensor: a large embedding, and layers of matrices and small norms."""
    embedding = total // 6
    matrix = (total - embedding) // LAYERS // 7
    layer = [matrix] * 7 + [16 << 10] * 2
    return [size // 4 * 4 for size in [embedding, *layer * LAYERS, 16 << 10]]


def make_model(total: int) -> pathlib.Path:
    """The model, packed without gaps, with random weights; made once."""
    path = FOLDER / f"in-{total >> 20}" / "in.onnx"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    random, tensors, offset = np.random.default_rng(1), [], 0
    with open(path.parent / "in.onnx.data", "wb") as data:
        for number, size in enumerate(sizes(total)):
            tensor = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT, dims=[size // 4])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "in.onnx.data"), ("offset", offset), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            offset += data.write(random.bytes(size))
    nodes = [helper.make_node("Identity", [tensor.name], [f"y_{tensor.name}"]) for tensor in tensors]
    results = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    graph = helper.make_graph(nodes, "bench", [], results, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def seconds(command: list[str], path: pathlib.Path) -> float:
    """One run into an empty folder, nothing left to be written when it starts."""
    out = FOLDER / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    os.sync()
    start = time.monotonic()
    subprocess.run([*command, str(path), str(out / "out.onnx")], check=True)
    return time.monotonic() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    path = make_model(asked.megabytes << 20)
    times = {name: [] for name in RUNS}
    for _ in range(asked.rounds):
        for name, command in RUNS.items():
            times[name].append(seconds(command, path))
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    base = next(iter(medians.values()))
    print(f"{len(sizes(asked.megabytes << 20))} tensors, {asked.megabytes} MB, medians of {asked.rounds}")
    for name, median in medians.items():
        print(f"{name:32} {median:8.3f} s {median / base:8.2f} x   {min(times[name]):.3f} to {max(times[name]):.3f}")


if __name__ == "__main__":
    main()
