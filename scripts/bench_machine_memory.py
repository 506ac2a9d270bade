#!/usr/bin/env python3
"""Memory of a run over large weights: what a process has beside the mapped files, and N.

A chain of products with matrices of 256 MiB in one sparse file. `run` is a process of its own; RssAnon is read from
/proc every millisecond, and its peak is to be at most N and 32 MiB. RssFile is the mapped weights.

    .venv/bin/python scripts/bench_machine_memory.py [--gibibytes 8]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import onnx
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "bench" / "machine-memory"
BINARY = os.environ.get("ONNX_CONTAINER_BIN", str(ROOT / "target" / "release" / "onnx-container"))
SIDE, ROWS = 8192, 16
MATRIX = SIDE * SIDE * 4
MOST = 32 << 20


def make_model(layers: int) -> pathlib.Path:
    """x [ROWS, SIDE] times `layers` matrices, whose elements are zeros of a file without blocks."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "model.onnx"
    with open(FOLDER / "weights.bin", "wb") as weights:
        weights.truncate(layers * MATRIX)
    tensors, nodes, newest = [], [], "x"
    for layer in range(layers):
        tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
        tensor.data_location = TensorProto.EXTERNAL
        place = (("location", "weights.bin"), ("offset", layer * MATRIX), ("length", MATRIX))
        for key, value in place:
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        nodes.append(helper.make_node("MatMul", [newest, tensor.name], [f"y{layer}"]))
        newest = f"y{layer}"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, SIDE]) for name in ("x", newest))
    graph = helper.make_graph(nodes, "products", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def resident(pid: int) -> dict[str, int]:
    """RssAnon and RssFile of a process in bytes; nothing once it has ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.startswith(("RssAnon:", "RssFile:")))
    return {name.rstrip(":"): int(kibibytes) << 10 for name, kibibytes, _ in fields}


def peaks(command: list[str]) -> dict[str, int]:
    """The largest values of a whole process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = {"RssAnon": 0, "RssFile": 0}
    while process.poll() is None:
        for name, value in resident(process.pid).items():
            peak[name] = max(peak[name], value)
        time.sleep(0.001)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return peak


def main() -> None:
    """Measure, print, and fail where it is too much."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gibibytes", type=int, default=8)
    asked = parser.parse_args()
    path = make_model((asked.gibibytes << 30) // MATRIX)
    planned = subprocess.run([BINARY, "plan", str(path), "--json"], check=True, capture_output=True)
    arena = json.loads(planned.stdout)["arena_bytes"]
    start = time.monotonic()
    peak = peaks([BINARY, "run", str(path), "--seed", "0"])
    taken = time.monotonic() - start
    beside = peak["RssAnon"] - arena
    mib = {name: value / (1 << 20) for name, value in {**peak, "N": arena, "beside": beside}.items()}
    print(f"{asked.gibibytes} GiB of weights, {taken:.1f} s: N {mib['N']:.2f} MiB, RssAnon {mib['RssAnon']:.2f} MiB "
          f"(N and {mib['beside']:.2f} MiB), RssFile {mib['RssFile']:.0f} MiB")
    if beside > MOST:
        sys.exit("that is more than N and 32 MiB")


if __name__ == "__main__":
    main()
