"""Measures saves and loads by the ranks of torch.distributed.checkpoint beside its own formats and a gather, and prints a table.

    python -P python/bench_torch.py --ranks 4 --megabytes 400 --rounds 5

All ways run in one group of ranks and in turns, in another order in each round. A time is that of the slowest rank, from one
barrier to the next. DCP's own writers and ours flush what they write where no line says otherwise, `save_file` does not. Of all
rounds a line has the least and the median in seconds, how many times longer the least is than ours, the seconds of the processors
of all ranks in the least round, the bytes on the disk, and the peak of memory of a rank over what it had before, which has its
own weights. Weights are float32 matrices: divided by rows, as FSDP does it, and then half of them by columns, as tensor
parallelism does it.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.helper as oh
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from onnx_container import make_large_tensor_proto
from onnx_container.torch import OnnxReader, OnnxWriter
from safetensors.torch import save_file
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard

OURS = "OnnxWriter"
OURS_LOADED = "OnnxReader"
SIDE = 4096
"""Rows and columns of a weight, of 64 MiB."""

State = dict[str, Any]
Work = Callable[[Path], Any]


def state_of(mesh: DeviceMesh, count: int, columns: bool, fill: bool = True) -> State:
    """What this rank has of ``count`` weights, of which half are divided by columns."""
    ranks, state = mesh.size(), {}
    for at in range(count):
        dim = at % 2 if columns else 0
        shape = [SIDE, SIDE]
        shape[dim] //= ranks
        local = torch.rand(shape) if fill else torch.zeros(shape)
        state[f"layers.{at}.weight"] = DTensor.from_local(local, mesh, [Shard(dim)], run_check=False)
    return state


def model_of(state: State) -> onnx.ModelProto:
    """A model whose weights are behind handles."""
    inits = [make_large_tensor_proto(f"#{name}", name, 1, (SIDE, SIDE)) for name in state]
    x, y = (oh.make_tensor_value_info(name, 1, [1]) for name in "xy")
    graph = oh.make_graph([oh.make_node("Identity", ["x"], ["y"])], "g", [x], [y], initializer=inits)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)


def saves(state: State) -> dict[str, Work]:
    """Ways to save the weights of all ranks."""
    model = model_of(state)

    def by(writer: Callable[[Path], Any]) -> Work:
        return lambda folder: dcp.save(state, storage_writer=writer(folder))

    def by_hugging_face(folder: Path, **options: Any) -> Any:
        return dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True, **options)

    def gathered(folder: Path) -> None:
        whole = {name: it.full_tensor() for name, it in state.items()}
        if dist.get_rank() == 0:
            save_file(whole, folder / "model.safetensors")

    return {
        OURS: by(lambda folder: OnnxWriter(folder / "m.onnx", model)),
        "OnnxWriter, not flushed": by(lambda folder: OnnxWriter(folder / "m.onnx", model, sync=False)),
        "DCP, its own format": by(lambda folder: dcp.FileSystemWriter(folder)),
        "DCP, safetensors of each rank": by(by_hugging_face),
        "DCP, safetensors, consolidated": by(
            lambda folder: by_hugging_face(folder, enable_consolidation=True, thread_count_consolidation=2)
        ),
        "full_tensor and save_file": gathered,
    }


def loads(state: State) -> dict[str, Work]:
    """Ways to load them, from the folders that `saves` has written."""

    def by(reader: Callable[[Path], Any]) -> Work:
        return lambda folder: dcp.load(state, storage_reader=reader(folder))

    return {
        OURS_LOADED: by(lambda folder: OnnxReader(folder / OURS / "m.onnx")),
        "DCP, its own format": by(lambda folder: dcp.FileSystemReader(folder / "DCP, its own format")),
        "DCP, safetensors of each rank": by(
            lambda folder: dcp.HuggingFaceStorageReader(str(folder / "DCP, safetensors of each rank"))
        ),
    }


def memory(entry: str) -> int:
    """An entry of the status of this process, in bytes."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(entry + ":"))


def of_all(number: float, reduce: Any) -> float:
    """The number of all ranks."""
    tensor = torch.tensor([number], dtype=torch.float64)
    dist.all_reduce(tensor, reduce)
    return float(tensor)


def measured(work: Work, folder: Path) -> tuple[float, float, int]:
    """Seconds, those of the processors of all ranks, and the peak of memory of any rank."""
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    dist.barrier()
    start, used = time.perf_counter(), time.process_time()
    work(folder)
    used = time.process_time() - used
    dist.barrier()
    seconds = of_all(time.perf_counter() - start, dist.ReduceOp.MAX)
    peak = of_all(memory("VmHWM") - before, dist.ReduceOp.MAX)
    return seconds, of_all(used, dist.ReduceOp.SUM), int(peak)


def on_disk(folder: Path) -> int:
    return sum(it.stat().st_size for it in folder.rglob("*") if it.is_file())


class Rows:
    """What was measured of each way."""

    def __init__(self, ways: dict[str, Work]) -> None:
        self.ways = ways
        self.times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        self.peaks = dict.fromkeys(ways, 0)
        self.bytes = dict.fromkeys(ways, 0)

    def add(self, name: str, seconds: float, used: float, peak: int) -> None:
        self.times[name].append((seconds, used))
        self.peaks[name] = max(self.peaks[name], peak)

    def print(self, title: str, ours: str) -> None:
        least = {name: min(it) for name, it in self.times.items()}
        print(f"\n{title:<34} {'least s':>8} {'median':>8} {'x ours':>7} {'CPU s':>7} {'disk MB':>8} {'peak MB':>8}")
        for name, (seconds, used) in least.items():
            median = statistics.median(seconds for seconds, _ in self.times[name])
            figures = f"{seconds:8.2f} {median:8.2f} {seconds / least[ours][0]:7.2f} {used:7.2f}"
            print(f"{name:<34} {figures} {self.bytes[name] / 1e6:8.0f} {self.peaks[name] / 1e6:8.0f}", flush=True)


def in_turns(rows: Rows, rounds: int, folder_of: Callable[[str], Path]) -> None:
    """Runs all ways in each round, in an order that the ranks agree on."""
    for number in range(rounds):
        names = list(rows.ways)
        random.Random(number).shuffle(names)
        for name in names:
            folder = folder_of(name)
            rows.add(name, *measured(rows.ways[name], folder))


def rank(arguments: argparse.Namespace, folder: Path) -> None:
    """One rank."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), arguments.ranks)
    dist.init_process_group("gloo", store=store, rank=arguments.rank, world_size=arguments.ranks)
    mesh = init_device_mesh("cpu", (arguments.ranks,))
    count = max(1, arguments.megabytes * 1_000_000 // (SIDE * SIDE * 4))
    if arguments.rank == 0:
        print(f"{arguments.ranks} ranks, {count * SIDE * SIDE * 4 / 1e6:.0f} MB in {count} weights, {arguments.rounds} rounds")
    for how, columns in (("by rows", False), ("half by columns", True)):
        saved, loaded = measure(arguments.rounds, folder, state_of(mesh, count, columns), state_of(mesh, count, columns, fill=False))
        if arguments.rank == 0:
            saved.print(f"save, {how}", OURS)
            loaded.print(f"load, {how}", OURS_LOADED)
    dist.destroy_process_group()


def measure(rounds: int, folder: Path, state: State, targets: State) -> tuple[Rows, Rows]:
    """Saves ``state`` in all ways, and loads it into ``targets``."""
    saved = Rows(saves(state))

    def emptied(name: str) -> Path:
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir()
        dist.barrier()
        return folder / name

    in_turns(saved, rounds, emptied)
    saved.bytes = {name: on_disk(folder / name) for name in saved.bytes}
    loaded = Rows(loads(targets))
    in_turns(loaded, rounds, lambda name: folder)
    for name, it in targets.items():
        assert torch.equal(it.to_local(), state[name].to_local()), name
    return saved, loaded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder without")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        rank(arguments, arguments.folder)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        given = [it for it in sys.argv[1:] if not it.startswith("--folder")]
        command = [sys.executable, "-P", __file__, *given, "--folder", folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([*command, "--rank", str(it)], env=environment) for it in range(arguments.ranks)]
        sys.exit(max(it.wait() for it in ranks))


if __name__ == "__main__":
    main()
