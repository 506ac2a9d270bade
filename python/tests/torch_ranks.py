"""What the ranks of ``test_torch_writer.py`` run: one group of four processes goes through all cases, since a process with torch
takes seconds to begin. Each rank writes what came of each case to a file of its own."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import models
import onnx
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from onnx_container import Container, DataType
from onnx_container import _torch_load as loading
from onnx_container._dtypes import to_torch
from onnx_container.torch import OnnxReader, OnnxWriter
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WORLD = 4

F, B16, F8, I64, BOOL = DataType.FLOAT, DataType.BFLOAT16, DataType.FLOAT8E4M3FN, DataType.INT64, DataType.BOOL

# How the ranks have a tensor: the mesh, one-dimensional or two by two, and a placement for each of its dimensions.
ROWS, COLUMNS, ALL = ("line", Shard(0)), ("line", Shard(1)), ("line", Replicate())

WEIGHTS: dict[str, tuple[DataType, tuple[int, ...], Any]] = {
    "rows": (F, (8, 6), ROWS),
    "columns": (F, (6, 8), COLUMNS),
    "uneven_rows": (F, (5, 3), ROWS),
    "fewer_rows_than_ranks": (F, (3, 7), ROWS),
    "uneven_columns": (F, (3, 5), COLUMNS),
    "middle": (F, (2, 9, 5), ("line", Shard(1))),
    "square": (F, (6, 10), ("square", Shard(0), Shard(1))),
    "square_uneven": (F, (5, 7), ("square", Shard(1), Shard(0))),
    "twice_rows": (F, (9, 2), ("square", Shard(0), Shard(0))),
    "hybrid": (F, (7, 3), ("square", Replicate(), Shard(0))),
    "replicated": (F, (4, 4), ALL),
    "plain": (F, (4, 3), None),
    "transposed": (F, (64, 33), "transposed"),
    "half": (B16, (8, 5), ROWS),
    "half_columns": (B16, (5, 8), COLUMNS),
    "eighth": (F8, (8, 3), ROWS),
    "eighth_columns": (F8, (3, 8), COLUMNS),
    "whole_numbers": (I64, (6,), ROWS),
    "flags": (BOOL, (5, 5), COLUMNS),
    "scalar": (F, (), None),
    "scalar_replicated": (F, (), ALL),
    "empty": (F, (0, 4), ROWS),
    "large": (F, (1030, 1000), COLUMNS),
}


def full(name: str) -> torch.Tensor:
    """The elements of a weight: another number at every place, as far as the type has so many."""
    dtype, shape, _ = WEIGHTS[name]
    count = torch.Size(shape).numel()
    return (torch.arange(count) + sum(name.encode()) % 89).remainder(2 if dtype == BOOL else 1 << 20).to(to_torch(dtype)).reshape(shape)


def spread(tensor: torch.Tensor, mesh: DeviceMesh, placements: Any) -> DTensor:
    """``tensor`` as the ranks of ``mesh`` have it. Nothing is sent."""
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    local = tensor
    for dim, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        local = local.narrow(dim, min(offset, tensor.shape[dim]), size)
    return DTensor.from_local(local.clone(), mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride())


def url(folder: Path, case: str) -> str:
    """Where the model of a case is that is saved to a store."""
    return f"s3://models/{folder.name}/{case}/m.onnx"


class Ranks:
    """One rank, and the folder of all."""

    in_store = False
    """Whether models are in a store, which the environment reaches."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rank = folder, dist.get_rank()
        self.meshes = {"line": init_device_mesh("cpu", (WORLD,)), "square": init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))}
        self.pair = dist.new_group([0, 1])
        self.pair_mesh = DeviceMesh("cpu", [0, 1])

    def has(self, name: str, tensor: torch.Tensor) -> Any:
        """What this rank has of a weight."""
        how = WEIGHTS[name][2]
        if how is None:
            return tensor
        if how == "transposed":
            return tensor.T.contiguous().T
        return spread(tensor, self.meshes[how[0]], how[1:])

    def state(self) -> dict[str, Any]:
        return {name: self.has(name, full(name)) for name in WEIGHTS}

    def path(self, case: str) -> Path | str:
        if self.in_store:
            return url(self.folder, case)
        (self.folder / case).mkdir(exist_ok=True)
        return self.folder / case / "m.onnx"

    def model(self) -> onnx.ModelProto | None:
        """The model, which rank 0 alone has."""
        return skeleton() if self.rank == 0 else None


def skeleton(*without: str) -> onnx.ModelProto:
    return models.add(*((name, dtype, shape) for name, (dtype, shape, _) in WEIGHTS.items() if name not in without))


# Cases that save, each to a model of its own, which the test compares with one that a single process saves.


def every_form(ranks: Ranks) -> None:
    writer = OnnxWriter(ranks.path("every_form"), ranks.model())
    dcp.save(ranks.state(), storage_writer=writer)
    assert (writer.saved is not None) == (ranks.rank == 0)


def shards(ranks: Ranks) -> None:
    dcp.save(ranks.state(), storage_writer=OnnxWriter(ranks.path("shards"), ranks.model(), max_shard_bytes="1 MB", alignment=64))


def nested_and_renamed(ranks: Ranks) -> None:
    """The names are ``model.rows``; a step is beside them and ignored."""
    state = {"model": ranks.state(), "step": 3}
    writer = OnnxWriter(
        ranks.path("nested_and_renamed"), ranks.model(), rename=lambda name: name.removeprefix("model."), ignore="step"
    )
    dcp.save(state, storage_writer=writer)


def async_save(ranks: Ranks) -> None:
    dcp.async_save(ranks.state(), storage_writer=OnnxWriter(ranks.path("async_save"), ranks.model())).result()


def small_pieces(ranks: Ranks) -> None:
    """What is copied is copied a few elements at a time."""
    from onnx_container import _ranks

    most, _ranks.MOST = _ranks.MOST, 40
    state = ranks.state()
    del state["large"]
    model = skeleton("large") if ranks.rank == 0 else None
    dcp.save(state, storage_writer=OnnxWriter(ranks.path("small_pieces"), model))
    _ranks.MOST = most


def tied_otherwise(ranks: Ranks) -> None:
    """Two names of one tensor, of which ranks have other parts."""
    state = {**ranks.state(), "also": spread(full("rows"), ranks.meshes["line"], [Shard(1)])}
    dcp.save(state, storage_writer=OnnxWriter(ranks.path("tied_otherwise"), ranks.model(), rename={"also": "rows"}))


def two_ranks(ranks: Ranks) -> None:
    state = {"rows": spread(full("rows"), ranks.pair_mesh, [Shard(1)]) if ranks.rank < 2 else None, "plain": full("plain")}
    path = ranks.path("two_ranks")
    if ranks.rank < 2:
        model = skeleton(*(WEIGHTS.keys() - {"rows", "plain"}))
        among = {"process_group": ranks.pair} if ranks.in_store else {}
        dcp.save(state, storage_writer=OnnxWriter(path, model, **among), process_group=ranks.pair)
    # torch numbers its groups: where some ranks have made one more, the next one of all never comes.
    dist.barrier(dist.new_group(timeout=timedelta(seconds=30)))


def a_rank_alone(ranks: Ranks) -> None:
    if ranks.rank == 0:
        state = {name: full(name) for name in WEIGHTS}
        dcp.save(state, storage_writer=OnnxWriter(ranks.path("a_rank_alone"), ranks.model()), no_dist=True)


def kept(ranks: Ranks) -> None:
    """Weights that no rank names stay: those of the container, and inline ones; inline ones that a rank names are replaced."""
    model = skeleton()
    model.graph.initializer.append(onnx.numpy_helper.from_array(torch.zeros(3, 2).numpy(), "inline"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(torch.ones(3).numpy(), "constant"))
    container = Container(model, {"#rows": full("rows"), "#half": full("half"), "#plain": torch.zeros(4, 3)})
    state = {name: it for name, it in ranks.state().items() if name not in ("rows", "half")}
    state["inline"] = spread(torch.arange(6.0).reshape(3, 2), ranks.meshes["line"], [Shard(0)])
    dcp.save(state, storage_writer=OnnxWriter(ranks.path("kept"), container if ranks.rank == 0 else None))


def sharded_tensors(ranks: Ranks) -> None:
    """What torch had before ``DTensor``."""
    state: dict[str, Any] = {}
    for dim, name in enumerate(("rows", "columns")):
        spec = ChunkShardingSpec(dim=dim, placements=[f"rank:{rank}/cpu" for rank in range(WORLD)])
        state[name] = sharded_tensor.empty(spec, *WEIGHTS[name][1], init_rrefs=False)
        for shard in state[name].local_shards():
            start, size = shard.metadata.shard_offsets[dim], shard.metadata.shard_sizes[dim]
            shard.tensor.copy_(full(name).narrow(dim, start, size))
    model = skeleton(*(WEIGHTS.keys() - {"rows", "columns"}))
    dcp.save(state, storage_writer=OnnxWriter(ranks.path("sharded_tensors"), model))


def over_an_old_one(ranks: Ranks) -> None:
    """A save replaces the model that it is made of."""
    path = ranks.path("over_an_old_one")
    if ranks.rank == 0:
        Container(skeleton(), {f"#{name}": torch.zeros_like(full(name)) for name in WEIGHTS}).save(path)
    dist.barrier()
    writer = OnnxWriter(path, path)
    dcp.save(ranks.state(), storage_writer=writer)
    dcp.save(ranks.state(), storage_writer=writer)


# Modules.


class Net(torch.nn.Module):
    """Tied weights, a buffer that is not saved, one that the graph does not use, and layers that are cut in both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(33, 16)
        self.up, self.norm, self.down = torch.nn.Linear(16, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 16)
        self.head = torch.nn.Linear(16, 33, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.arange(320.0).reshape(20, 16) / 320, persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids) + self.table[: ids.shape[0]]
        return self.head(self.down(self.norm(torch.relu(self.up(hidden)))))


def net() -> Net:
    torch.manual_seed(0)
    module = Net().eval()
    module.norm.running_mean = torch.rand(40)
    return module


IDS = torch.arange(7) * 4


def exported(module: torch.nn.Module) -> Any:
    """The graph of other weights than those that are saved."""
    return torch.onnx.export(module, (IDS,), dynamo=True, verbose=False, optimize=False)


def program(ranks: Ranks) -> Any:
    torch.manual_seed(1)
    return exported(Net().eval()) if ranks.rank == 0 else None


def fsdp(ranks: Ranks) -> None:
    module = net()
    fully_shard(module, mesh=ranks.meshes["line"])
    dcp.save(module.state_dict(), storage_writer=OnnxWriter(ranks.path("fsdp"), program(ranks)))


def fsdp_and_tensor_parallel(ranks: Ranks) -> None:
    module = net()
    square = ranks.meshes["square"]
    parallelize_module(module, square["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(module, mesh=square["dp"])
    placements = repr(module.up.weight.placements)
    assert "_StridedShard" in placements, placements
    dcp.save(module.state_dict(), storage_writer=OnnxWriter(ranks.path("fsdp_and_tensor_parallel"), program(ranks)))


def loaded(ranks: Ranks) -> None:
    """What every_form wrote, into other shards than those that it was written from."""
    path = ranks.path("every_form")
    line, square = ranks.meshes["line"], ranks.meshes["square"]
    placed = {1: (line, [Shard(0)]), 2: (square, [Shard(1), Shard(0)]), 3: (line, [Shard(2)])}
    state = {name: torch.zeros_like(full(name)) for name in WEIGHTS}
    for name, tensor in state.items():
        if tensor.ndim in placed:
            state[name] = spread(tensor, *placed[tensor.ndim])
    state["half"] = torch.zeros(8, 5)
    dcp.load(state, storage_reader=OnnxReader(path))
    for name, it in state.items():
        expected = spread(full(name), it.device_mesh, it.placements).to_local() if isinstance(it, DTensor) else full(name)
        found = it.to_local() if isinstance(it, DTensor) else it
        assert torch.equal(found.double(), expected.double()), name


def loaded_by_rows(ranks: Ranks) -> None:
    """A rank reads the rows that it has, and no more."""
    read: list[int] = []
    elements = loading._elements

    def counted(tensor: Any, start: int, end: int, kind: Any) -> Any:
        read.append(end - start)
        return elements(tensor, start, end, kind)

    loading._elements = counted
    state = {"model": {"large": spread(torch.zeros(1030, 1000), ranks.meshes["line"], [Shard(0)])}}
    dcp.load(state, storage_reader=OnnxReader(ranks.path("every_form"), rename={"model.large": "large"}))
    loading._elements = elements
    local = state["model"]["large"].to_local()
    assert torch.equal(local, spread(full("large"), ranks.meshes["line"], [Shard(0)]).to_local())
    assert sum(read) == local.numel(), read


# Cases that fail: the test asks what each rank raised.


def many_faults(ranks: Ranks) -> None:
    state = ranks.state()
    state["stray"], state["step"], state["config"] = torch.ones(2), 3, "adam"
    del state["rows"]
    state["columns"] = full("columns").T.contiguous()
    state["half"] = full("half").float()
    dcp.save(state, storage_writer=OnnxWriter(ranks.path("many_faults"), ranks.model()))


def other_shapes(ranks: Ranks) -> None:
    """Only some ranks have another type."""
    state = ranks.state()
    if ranks.rank == 2:
        state["rows"] = spread(full("rows").double(), ranks.meshes["line"], [Shard(0)])
    dcp.save(state, storage_writer=OnnxWriter(ranks.path("other_shapes"), ranks.model()))


def unlike_ties(ranks: Ranks) -> None:
    state = {"a": full("plain"), "b": full("plain") + 1}
    model = skeleton(*(WEIGHTS.keys() - {"plain"}))
    dcp.save(state, storage_writer=OnnxWriter(ranks.path("unlike_ties"), model, rename=lambda name: "plain"))


def no_model(ranks: Ranks) -> None:
    dcp.save(ranks.state(), storage_writer=OnnxWriter(ranks.path("no_model")))


def no_file(ranks: Ranks) -> None:
    dcp.save(ranks.state(), storage_writer=OnnxWriter(ranks.path("no_file"), "missing.onnx"))


def no_folder(ranks: Ranks) -> None:
    dcp.save(ranks.state(), storage_writer=OnnxWriter(ranks.folder / "missing" / "m.onnx", ranks.model()))


def without_collectives(ranks: Ranks) -> None:
    writer = OnnxWriter(ranks.path("without_collectives"), skeleton())
    dcp.save(ranks.state(), storage_writer=writer, use_collectives=False)


class Failing(DefaultSavePlanner):
    """Cannot give what rank 1 has to write."""

    def resolve_data(self, write_item: Any) -> Any:
        if dist.get_rank() == 1:
            raise OSError("the device is gone")
        return super().resolve_data(write_item)


def a_rank_fails(ranks: Ranks) -> None:
    """The old model stays, and the next save of the same writer leaves nothing behind."""
    path = ranks.path("a_rank_fails")
    writer = OnnxWriter(path, ranks.model())
    dcp.save(ranks.state(), storage_writer=writer)
    before = (path.stat().st_mtime_ns, (path.parent / "m.onnx.data").read_bytes())
    dist.barrier()
    try:
        dcp.save(ranks.state(), storage_writer=writer, planner=Failing())
        raise AssertionError("saved")
    except dcp.api.CheckpointException as error:
        assert "the device is gone" in str(error), error
    assert before == (path.stat().st_mtime_ns, (path.parent / "m.onnx.data").read_bytes())
    dist.barrier()
    dcp.save(ranks.state(), storage_writer=writer)
    assert sorted(os.listdir(path.parent)) == ["m.onnx", "m.onnx.data"]


def a_failed_save_goes_with_its_writer(ranks: Ranks) -> None:
    path = ranks.path("a_failed_save_goes_with_its_writer")
    writer = OnnxWriter(path, ranks.model())
    try:
        dcp.save(ranks.state(), storage_writer=writer, planner=Failing())
    except dcp.api.CheckpointException:
        pass
    if ranks.rank == 0:
        assert len(os.listdir(path.parent)) == 1
        del writer
        gc.collect()  # the traceback of the error had it
        assert os.listdir(path.parent) == []


def store_fails(ranks: Ranks) -> None:
    """The old model stays, what the other ranks sent is given up, and the next save of the same writer goes on."""
    writer = OnnxWriter(ranks.path("store_fails"), ranks.model())
    dcp.save(ranks.state(), storage_writer=writer)
    before = Container.load(ranks.path("store_fails")).e_tag
    dist.barrier()
    state = ranks.state()
    try:
        dcp.save({**state, "rows": -state["rows"]}, storage_writer=writer, planner=Failing())
        raise AssertionError("saved")
    except dcp.api.CheckpointException as error:
        assert "the device is gone" in str(error), error
    if ranks.rank == 0:
        # The job is there until the writer goes: nobody may commit it without what that rank had.
        assert writer._begun is not None
        job = writer._begun.job
        assert {it.part for it in job.tensors if WEIGHTS[it.name][2] in (ROWS, COLUMNS)} <= {*job.status().missing}
    dist.barrier()
    assert Container.load(ranks.path("store_fails")).e_tag == before
    dist.barrier()
    dcp.save(ranks.state(), storage_writer=writer)
    assert (writer.saved is not None) == (ranks.rank == 0)


def no_store(ranks: Ranks) -> None:
    dcp.save(ranks.state(), storage_writer=OnnxWriter("s3://models/m.bin", ranks.model()))


def another_group(ranks: Ranks) -> None:
    if ranks.rank < 2:
        model = skeleton(*(WEIGHTS.keys() - {"plain"}))
        dcp.save({"plain": full("plain")}, storage_writer=OnnxWriter(ranks.path("two_ranks"), model), process_group=ranks.pair)


IN_STORE: list[Callable[[Ranks], None]] = [
    every_form, nested_and_renamed, async_save, small_pieces, tied_otherwise, two_ranks, a_rank_alone, kept, sharded_tensors, fsdp,
    loaded, loaded_by_rows,
    many_faults, no_model, unlike_ties, store_fails, no_store, another_group,
]  # fmt: skip
"""Cases whose models are in a store."""

CASES: list[Callable[[Ranks], None]] = [
    every_form, shards, nested_and_renamed, async_save, small_pieces, tied_otherwise, two_ranks, a_rank_alone, kept, sharded_tensors, over_an_old_one,
    fsdp, fsdp_and_tensor_parallel, loaded, loaded_by_rows,
    many_faults, other_shapes, unlike_ties, no_model, no_file, no_folder, without_collectives,
    a_rank_fails, a_failed_save_goes_with_its_writer,
]  # fmt: skip


def main(rank: int, world: int, folder: Path) -> None:
    """Goes through all cases."""
    begin(rank, world, folder)
    told: dict[str, str | None] = {}
    ranks = Ranks(folder)
    in_store = IN_STORE if "AWS_ENDPOINT" in os.environ else []
    for case, ranks.in_store in [*((case, False) for case in CASES), *((case, True) for case in in_store)]:
        start = time.monotonic()
        name = f"{case.__name__} in a store" if ranks.in_store else case.__name__
        try:
            case(ranks)
            told[name] = None
        except BaseException as error:
            told[name] = "".join(traceback.format_exception_only(error))
            if not isinstance(error, dcp.api.CheckpointException):
                told[name] = traceback.format_exc()
        dist.barrier()
        if rank == 0:
            print(f"{name}: {time.monotonic() - start:.2f} s")
    (folder / f"rank{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def begin(rank: int, world: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)


class Killed(DefaultSavePlanner):
    """The last rank is killed when it comes to write."""

    def resolve_data(self, write_item: Any) -> Any:
        if dist.get_rank() == dist.get_world_size() - 1:
            os.kill(os.getpid(), 9)
        return super().resolve_data(write_item)


def killed(rank: int, world: int, folder: Path) -> None:
    """A save whose last rank is killed."""
    save_killed(rank, world, folder, folder / "m.onnx")


def killed_in_store(rank: int, world: int, folder: Path) -> None:
    save_killed(rank, world, folder, url(folder, "killed"))


def save_killed(rank: int, world: int, folder: Path, path: Path | str) -> None:
    begin(rank, world, folder)
    state = {"rows": spread(full("rows"), init_device_mesh("cpu", (world,)), [Shard(0)])}
    model = skeleton(*(WEIGHTS.keys() - {"rows"}))
    dcp.save(state, storage_writer=OnnxWriter(path, model), planner=Killed())


class Unsent(Exception):
    """An error that can be pickled, and not be made again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def unsent(name: str) -> str:
    raise Unsent(name, "another one")


class Early(DefaultSavePlanner):
    """Fails on rank 1, in the method that it is given."""

    def __init__(self, method: str, error: Exception) -> None:
        super().__init__()
        self.method, self.error = method, error

    def _fail(self, method: str) -> None:
        if method == self.method and dist.get_rank() == 1:
            raise self.error

    def create_local_plan(self) -> Any:
        self._fail("create_local_plan")
        return super().create_local_plan()

    def finish_plan(self, new_plan: Any) -> Any:
        self._fail("finish_plan")
        return super().finish_plan(new_plan)

    def resolve_data(self, write_item: Any) -> Any:
        self._fail("resolve_data")
        return super().resolve_data(write_item)


class Unprepared(OnnxWriter):
    """Fails on rank 1, in the method that it is given."""

    method = ""

    def set_up_storage_writer(self, *args: Any, **kwargs: Any) -> None:
        if self.method == "set_up_storage_writer" and dist.get_rank() == 1:
            raise OSError("rank 1 has no disk")
        super().set_up_storage_writer(*args, **kwargs)

    def prepare_local_plan(self, plan: Any) -> Any:
        if self.method == "prepare_local_plan" and dist.get_rank() == 1:
            raise OSError("rank 1 has no disk")
        return super().prepare_local_plan(plan)


def early(rank: int, world: int, folder: Path) -> None:
    """Saves whose rank 1, or whose rank 0 alone, fails before it has sent anything."""
    from onnx_container import _torch_owners

    _torch_owners._MEETING = timedelta(seconds=3)
    begin(rank, world, folder)
    mesh = init_device_mesh("cpu", (world,))
    state = {"rows": spread(full("rows"), mesh, [Shard(0)]), "columns": spread(full("columns"), mesh, [Shard(1)])}
    model = skeleton(*(WEIGHTS.keys() - state.keys()))
    disk = OSError("rank 1 has no disk")
    cases: dict[str, tuple[dict[str, Any], DefaultSavePlanner | None, str]] = {
        "arguments": ({"threshold": "many"} if rank == 1 else {}, None, ""),
        "a path that is none": ({}, None, "path"),
        "set_up_storage_writer": ({}, None, "set_up_storage_writer"),
        "prepare_local_plan": ({}, None, "prepare_local_plan"),
        "create_local_plan": ({}, Early("create_local_plan", disk), ""),
        "finish_plan": ({}, Early("finish_plan", disk), ""),
        "resolve_data": ({}, Early("resolve_data", Unsent("one", "another one")), ""),
        "rename": ({"rename": unsent}, None, ""),
    }
    told: dict[str, str] = {}
    for where in ["", *([" in a store"] if "AWS_ENDPOINT" in os.environ else [])]:
        for case, (options, planner, method) in cases.items():
            path: Any = url(folder, "early") if where else folder / "m.onnx"
            path = 3 if method == "path" and rank == 1 else path
            start = time.monotonic()
            try:
                writer = Unprepared(path, model, **options)
                writer.method = method
                dcp.save(state, storage_writer=writer, planner=planner)
                told[case + where] = "saved"
            except dcp.api.CheckpointException as error:
                told[case + where] = str(error)
            print(f"{case}{where}: {time.monotonic() - start:.2f} s", flush=True)
            dist.barrier()
    (folder / f"rank{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    {"main": main, "early": early, "killed": killed, "killed_in_store": killed_in_store}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
