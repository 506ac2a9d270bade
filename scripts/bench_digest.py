#!/usr/bin/env python3
"""Time the semantic digest of a model with 100,000 nodes and 1 GB of weights beside hashing its weights file alone.

Whole processes, rounds interleaved, medians compared. `sha256sum` hashes on one thread, the digest on all cores.

    .venv/bin/python scripts/bench_digest.py [--nodes 100000] [--megabytes 1000] [--rounds 5]
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "bench"
BINARY = os.environ.get("ONNX_CONTAINER_BIN", str(ROOT / "target" / "release" / "onnx-container"))
MEGABYTE = 10**6
HASHLIB = """
import hashlib, sys
with open(sys.argv[1], 'rb') as file:
    print(hashlib.file_digest(file, 'sha256').hexdigest())
"""


def make_model(nodes: int, megabytes: int) -> pathlib.Path:
    """A chain of nodes; every so often one adds a weight of 1 MB. Each weight has elements of its own."""
    path = FOLDER / f"digest_{nodes}_{megabytes}.onnx"
    data = path.with_suffix(".data")
    if path.exists() and data.exists():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    length = MEGABYTE // 4
    random = np.random.default_rng(0)
    weights, chain = [], []
    with data.open("wb") as file:
        for i in range(megabytes):
            file.write(random.integers(0, 1 << 32, length, np.uint32).tobytes())
            weight = TensorProto(name=f"w{i}", dims=[length], data_type=TensorProto.FLOAT)
            weight.data_location = TensorProto.EXTERNAL
            place = {"location": data.name, "offset": i * MEGABYTE, "length": MEGABYTE}
            for key, value in place.items():
                weight.external_data.add(key=key, value=str(value))
            weights.append(weight)
    every = nodes // megabytes
    for i in range(nodes):
        source, result = (f"v{i}" if i else "x"), f"v{i + 1}"
        if i % every == 0 and i // every < megabytes:
            chain.append(helper.make_node("Add", [source, f"w{i // every}"], [result], name=f"n{i}"))
        else:
            chain.append(helper.make_node("LeakyRelu", [source], [result], name=f"n{i}", alpha=i / nodes))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [length])
    y = helper.make_tensor_value_info(f"v{nodes}", TensorProto.FLOAT, [length])
    graph = helper.make_graph(chain, "chain", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def timed(command: list[str]) -> tuple[float, float]:
    """Elapsed and processor seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    elapsed = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.nodes < args.megabytes:
        parser.error("--nodes must be at least --megabytes, since a node uses one weight")
    path = make_model(args.nodes, args.megabytes)
    data = str(path.with_suffix(".data"))
    runs = {
        "onnx-container digest --semantic": [BINARY, "digest", "--semantic", str(path)],
        "sha256sum of the weights": ["sha256sum", data],
        "hashlib.file_digest of the weights": [sys.executable, "-c", HASHLIB, data],
    }
    times = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, command in runs.items():
            times[name].append(timed(command))
    print(f"{args.nodes:,} nodes, {args.megabytes:,} MB of weights, {os.cpu_count()} cores, medians of {args.rounds}:")
    ours = None
    for name, samples in times.items():
        elapsed, processor = (statistics.median(values) for values in zip(*samples))
        ours = ours or elapsed
        print(f"{name:36} {elapsed:6.2f} s, {processor:6.2f} s of processor, {elapsed / ours:5.2f} times ours")


if __name__ == "__main__":
    main()
