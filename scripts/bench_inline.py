"""Compares inlining local functions with onnx.inliner and onnx_ir's InlinePass, each in fresh processes.

    python scripts/bench_inline.py [--rounds N] [--slow] [NAME...]

onnx's step is its C++ function called with bytes, without the Python around it. It parses and serializes
too: in parentheses stands what it takes for the result, where nothing is left to inline. Ours is the
step alone; from bytes to bytes, with parsing and writing, is the comparison of like with like. The whole process is
`onnx-container inline IN OUT`: start, parse, inline, check, write. Memory is the peak up to the end of the step, over that of a process
that only parses the result. A line ends with the ratios of the medians. onnx_ir is quadratic in the
calls, so it runs up to 2,000 of them (with --slow 10,000, which takes minutes).

NAME picks the cases whose names contain it. Needs Linux, onnx and onnx_ir; builds the command and the
example `bench_inline` with cargo.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import onnx
from onnx import helper

ROOT = pathlib.Path(__file__).parent.parent
# The goals: the step so many times faster, the whole process, and memory at most so many times.
STEP, WHOLE, MEMORY = 20, 2, 2
DOMAIN, OPSET = "local", 18

PEER = """
import sys, time
from onnx.onnx_cpp2py_export import inliner
data = open(sys.argv[1], "rb").read()
start = time.perf_counter()
out = inliner.inline_local_functions(data, False)
print(time.perf_counter() - start)
if len(sys.argv) > 2:
    open(sys.argv[2], "wb").write(out)
"""
PASS = """
import sys, time
import onnx, onnx_ir
from onnx_ir.passes.common import inliner
model = onnx_ir.from_proto(onnx.load(sys.argv[1]))
start = time.perf_counter()
inliner.InlinePass()(model)
print(time.perf_counter() - start)
"""


def function(name, nodes):
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, ["x"], ["y"], nodes, imports)


def chain(kinds, first, last, prefix):
    """Nodes of these kinds, one after the other, from value `first` to `last`; a local function has a colon."""
    nodes, value = [], first
    for i, kind in enumerate(kinds):
        out = last if i == len(kinds) - 1 else f"{prefix}{i}"
        local = kind.startswith(":")
        nodes.append(helper.make_node(kind.lstrip(":"), [value], [out], domain=DOMAIN if local else None))
        value = out
    return nodes


def model(kinds, functions):
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "XY"]
    graph = helper.make_graph(chain(kinds, "X", "Y", "v"), "g", info[:1], info[1:])
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, functions=functions, ir_version=10, opset_imports=imports)


def flat(calls):
    """Calls of one function of three nodes."""
    return model([":f"] * calls, [function("f", chain(["Abs", "Tanh", "Abs"], "x", "y", "t"))])


def nested(calls):
    """Calls of a function that calls ten times one of three nodes."""
    inner = function("f", chain(["Abs", "Tanh", "Abs"], "x", "y", "t"))
    return model([":g"] * calls, [inner, function("g", chain([":f"] * 10, "x", "y", "a"))])


def mixed(nodes, functions, calls):
    """Nodes, among them calls of functions that nest three deep: a third of them on each floor."""
    draw, floor = random.Random(1), functions // 3
    bodies = []
    for i in range(functions):
        below = [f":f{draw.randrange((i // floor - 1) * floor, i // floor * floor)}"] if i >= floor else []
        kinds = [draw.choice(["Abs", "Tanh", "Neg", "Relu"]) for _ in range(3)] + below
        draw.shuffle(kinds)
        bodies.append(function(f"f{i}", chain(kinds, "x", "y", "t")))
    kinds = ["Abs"] * (nodes - calls) + [f":f{draw.randrange(functions)}" for _ in range(calls)]
    draw.shuffle(kinds)
    return model(kinds, bodies)


CASES = {
    "1,000 calls": lambda: flat(1_000),
    "10,000 calls": lambda: flat(10_000),
    "50,000 calls": lambda: flat(50_000),
    "100,000 calls": lambda: flat(100_000),
    "10,000 x 10 nested": lambda: nested(10_000),
    "200,000 nodes, 300 functions": lambda: mixed(200_000, 300, 20_000),
}


def seconds(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout)


def ours(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def whole(command, path, out):
    start = time.perf_counter()
    subprocess.run([command, "inline-functions", path, out, "--no-sync"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def same_nodes(ours, theirs):
    """Both inlined models have the same nodes."""
    return onnx.load(ours).graph.node == onnx.load(theirs).graph.node


def measure(name, options, binary, command, folder):
    """Print one line; give the goals that were missed."""
    path, mine, peer = (f"{folder}/{part}.onnx" for part in ("in", "mine", "peer"))
    pathlib.Path(path).write_bytes(CASES[name]().SerializeToString())
    ours(binary, path, mine), seconds(PEER, path, peer)
    assert same_nodes(mine, peer), f"{name}: the nodes differ"
    runs = [(ours(binary, path), seconds(PEER, path), whole(command, path, mine)) for _ in range(options.rounds)]
    step, total = (statistics.median(column) for column in zip(*[(a["inline"], c) for a, _, c in runs]))
    through = statistics.median(a["parse"] + a["inline"] + a["write"] for a, _, _ in runs)
    theirs = statistics.median(b for _, b, _ in runs)
    idle = statistics.median(seconds(PEER, peer) for _ in range(options.rounds))
    result = ours(binary, mine)
    memory = statistics.median(a["peak_kb"] for a, _, _ in runs) / result["parsed_peak_kb"]
    one = runs[0][0]
    most = 10_000 if options.slow else 2_000
    ir = f", onnx_ir {seconds(PASS, path) * 1e3:.0f} ms" if one["calls"] <= most else ""
    print(
        f"{name:29} {one['nodes']:7} nodes: step {step * 1e3:6.1f} ms, onnx {theirs * 1e3:6.1f} ms ({idle * 1e3:.1f}){ir},"
        f" {theirs / step:5.1f} times; bytes to bytes {through * 1e3:6.1f} ms, {theirs / through:4.1f} times; whole {total * 1e3:6.1f} ms, {theirs / total:4.1f} times; memory {memory:.2f};"
        f" {step / one['calls'] * 1e9:.0f} ns a call, {step / one['nodes'] * 1e9:.0f} ns a node",
        flush=True,
    )
    goals = {"step": theirs / step >= STEP, "whole": theirs / total >= WHOLE, "memory": memory <= MEMORY}
    return [f"{name}: {goal}" for goal, reached in goals.items() if not reached]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slow", action="store_true", help="onnx_ir for 10,000 calls too")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    build = ["cargo", "build", "--release", "--quiet"]
    for what in (["-p", "onnx-container-drivers"], ["-p", "onnx-container-cli"]):
        subprocess.run([*build, *what], cwd=ROOT, check=True)
    built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    names = [name for name in CASES if not options.names or any(n in name for n in options.names)]
    print(f"medians of {options.rounds} rounds, on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        binary, command = built / "bench_inline", built / "onnx-container"
        missed = [goal for name in names for goal in measure(name, options, binary, command, folder)]
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
