"""Compares decoding and encoding a large graph with Python onnx's, each in a fresh process.

    python scripts/bench_proto.py [--model FILE] [--rounds N]

Runs both in turn and prints the minimum and the median of each, and the ratios. Without a model
one is made by `make_bench_proto.py`. Needs Linux and the onnx package; builds the example
`bench_proto` with cargo.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
COLUMNS = ["parse wall", "parse CPU", "write wall", "write CPU", "memory"]
# The goals: so many times faster in wall time, and so many times less anonymous memory; ours after
# decoding, theirs at its peak.
GOALS = {"parse wall": 1.5, "write wall": 4.0, "memory": 3.0}

PEER = """
import os, sys, threading, time
import onnx

def times():
    return time.perf_counter(), time.process_time()

def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) * 1024

with open(sys.argv[1], "rb") as file:
    data = file.read()
model = onnx.ModelProto()
start = times()
model.ParseFromString(data)
middle = times()
out = model.SerializeToString()
end = times()
same = out == data
# Its peak, without what is mapped from files.
memory = status("VmHWM:") - status("RssFile:")
print(middle[0] - start[0], middle[1] - start[1], end[0] - middle[0], end[1] - middle[1],
      memory, same)
"""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *figures, same = done.stdout.split()[:6]
    if same.lower() != "true":
        sys.exit(f"{command[0]}: the encoded model differs")
    return dict(zip(COLUMNS, map(float, figures)))


def report(ours, theirs):
    missed = []
    for column in COLUMNS:
        mine, peer = ([row[column] for row in rows] for rows in (ours, theirs))
        unit, scale = ("MiB", 2**20) if column == "memory" else ("ms", 1e-3)
        low, middle = min(peer) / min(mine), statistics.median(peer) / statistics.median(mine)
        pair = statistics.median(p / m for p, m in zip(peer, mine) if m)
        print(
            f"{column:11}"
            f" {min(mine) / scale:7.0f} / {statistics.median(mine) / scale:5.0f} {unit:3}"
            f"   onnx {min(peer) / scale:7.0f} / {statistics.median(peer) / scale:5.0f} {unit:3}"
            f"   ratio {low:5.2f} / {middle:5.2f}, in pairs {pair:5.2f}"
        )
        if column in GOALS and middle < GOALS[column]:
            missed.append(f"{column} {middle:.2f}, wanted {GOALS[column]}")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", default="0")
    options = parser.parse_args()
    build = ["cargo", "build", "--release", "--quiet", "-p", "onnx-container-drivers"]
    subprocess.run(build, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or f"{folder}/nodes.onnx"
        if not options.model:
            make = [sys.executable, ROOT / "scripts/make_bench_proto.py", model]
            subprocess.run(make, check=True)
        built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        mine = [built / "release/bench_proto", model, options.threads]
        peer = [sys.executable, "-c", PEER, model]
        rounds = [(run(mine), run(peer)) for _ in range(options.rounds)]
    print(f"minimum / median of {options.rounds} rounds, each in fresh processes")
    missed = report(*zip(*rounds))
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
