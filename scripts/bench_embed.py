"""Compares `onnx-container embed IN OUT` of a large graph with onnx, in the CPU time of whole processes.

    python scripts/bench_embed.py [--rounds N] [--nodes N] [--command FILE]

The graph has 200,000 nodes, 83 MB and no weights. Each process reads it from a file and writes it to another,
which it replaces. onnx's loads (without a look for external data, which takes longer than all the rest), serializes and
writes; what Python takes to start and to import onnx is measured beside it and subtracted. The command is taken as it
is, with its start, its checks and its flush to the disk (`--no-sync` in a row of its own, as onnx does not flush).
Rounds are interleaved in random order, and before each process memory is touched, because a virtual machine may have
to get it from its host first. The figures are user and system time by the resource usage of the children. Needs
Linux and onnx; builds the command with cargo.
"""

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import onnx
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).parent.parent
# How many times less CPU time.
GOAL = 2
# More bytes than any of the processes needs.
TOUCHED = 1 << 30
OPS = [("MatMul", []), ("Add", []), ("Reshape", ["allowzero"]), ("Transpose", ["perm"]), ("Softmax", ["axis"])]
OPS += [("LayerNormalization", ["axis", "epsilon", "stash_type"]), ("Cast", ["to"]), ("Slice", []), ("Mul", [])]
OPS += [("Gemm", ["alpha", "beta", "transB"]), ("Concat", ["axis"]), ("Gelu", ["approximate"])]
VALUES = {
    "allowzero": 0,
    "perm": [0, 2, 1, 3],
    "axis": -1,
    "epsilon": 1e-5,
    "stash_type": 1,
    "to": 1,
    "alpha": 1.0,
    "beta": 1.0,
    "transB": 1,
    "approximate": "tanh",
}
PARTS = ["self_attn/q_proj", "self_attn/k_proj", "self_attn/o_proj", "mlp/gate_proj", "input_layernorm"]
IMPORT = "import onnx, sys"
PEER = """
import onnx, sys
model = onnx.load(sys.argv[1], load_external_data=False)
data = model.SerializeToString()
with open(sys.argv[2], "wb") as file:
    file.write(data)
"""


def make(path, count):
    """Writes the graph, the same bytes on every run."""
    rng = random.Random(83)
    model = onnx.ModelProto(ir_version=10, producer_name="pytorch", producer_version="2.9.0")
    model.opset_import.add(domain="", version=20)
    graph = model.graph
    graph.name = "main_graph"
    shared = {name: helper.make_attribute(name, value) for name, value in VALUES.items()}
    recent = ["input"]
    for index in range(count):
        op, attributes = OPS[rng.randrange(len(OPS))]
        scope = f"/model/decoder/layers.{index % 96}/{rng.choice(PARTS)}"
        node = graph.node.add(op_type=op, name=f"{scope}/{op}_{index}")
        output = f"{scope}/{op}_{index}_output_0"
        node.input.extend([rng.choice(recent), f"model.decoder.layers.{index % 96}.constant_{index % 977}"])
        node.output.append(output)
        node.attribute.extend(shared[name] for name in attributes)
        for key, value in [("namespace", f"{scope}: Llama/{index}"), ("stack_trace", "modeling_llama.py, in forward")]:
            if index % 2 == 0:
                node.metadata_props.add(key=key, value=value)
        recent = [*recent[-7:], output]
        dims = ["batch", "sequence", 32, 128][: rng.choice([3, 4])]
        graph.value_info.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, dims))
    for found, name in [(graph.input, "input"), (graph.output, recent[-1])]:
        found.add().CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 768]))
    path.write_bytes(model.SerializeToString())


def run(command):
    """The user, system and elapsed time of a process, in seconds."""
    touched = b"\1" * TOUCHED
    del touched
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]}: exit code {process.returncode}")
    return usage.ru_utime, usage.ru_stime, elapsed


def median(rows):
    """The medians of user, system and elapsed time, and of user and system time together."""
    user, system, elapsed = (statistics.median(column) for column in zip(*rows))
    return user, system, elapsed, statistics.median(row[0] + row[1] for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--command", help="a built command, instead of that of this repository")
    options = parser.parse_args()
    if not options.command:
        build = ["cargo", "build", "--release", "--quiet", "-p", "onnx-container-cli"]
        subprocess.run(build, cwd=ROOT, check=True)
    built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = options.command or str(built / "release/onnx-container")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = folder / "model.onnx"
        make(model, options.nodes)
        out = {name: folder / name / "model.onnx" for name in ["ours", "ours --no-sync", "onnx"]}
        for path in out.values():
            path.parent.mkdir()
        commands = {
            "ours": [command, "embed", model, out["ours"]],
            "ours --no-sync": [command, "embed", "--no-sync", model, out["ours --no-sync"]],
            "onnx": [sys.executable, "-c", PEER, model, out["onnx"]],
            "import onnx": [sys.executable, "-c", IMPORT],
        }
        # The first round is not counted: after it, every process replaces a file.
        for line in commands.values():
            run(line)
        orders = [random.sample(list(commands), len(commands)) for _ in range(options.rounds)]
        rounds = [{name: run(commands[name]) for name in order} for order in orders]
        if len({path.read_bytes() for path in [model, *out.values()]}) != 1:
            sys.exit("the written models differ")
        print(f"{model.stat().st_size / 1e6:.1f} MB, {options.nodes} nodes, medians of {options.rounds} rounds, seconds")
    found = {name: median([row[name] for row in rounds]) for name in commands}
    for name, (user, system, elapsed, both) in found.items():
        print(f"{name:15} user {user:.3f}  system {system:.3f}  CPU {both:.3f}  elapsed {elapsed:.3f}")
    step = found["onnx"][3] - found["import onnx"][3]
    print(f"onnx's load, serialize and write: CPU {step:.3f}")
    for name in ["ours", "ours --no-sync"]:
        print(f"ratio {name}: {step / found[name][3]:.2f}")
    if step / found["ours"][3] < GOAL:
        sys.exit(f"missed: wanted {GOAL}")


if __name__ == "__main__":
    main()
