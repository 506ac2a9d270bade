"""``OnnxWriter``: a model whose weights are in the memory of several ranks, saved by ``torch.distributed.checkpoint``.

What the ranks have is held to the model by `_ranks`, the model is opened by `_torch_model`, and files are laid out and replaced by
a job. In a folder each rank writes its parts of each tensor; in a store `_torch_owners` brings them to the rank that writes a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from . import _core, _options, _patterns, _places, _ranks, _stores, _torch_model, _torch_owners
from ._container import Container
from ._dtypes import DataType, of_torch
from ._job import Committed, Job, Receipt
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._options import Path, PublishOptions

__all__ = ["OnnxWriter"]


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _sent(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """``call``, whose errors can be pickled: torch sends them to the other ranks, which wait for ever for one that cannot be."""

    @functools.wraps(call)
    def made(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
            raise

    return made


@dataclass(frozen=True)
class _Task:
    """What one rank writes."""

    rank: int
    job: Job
    tensors: dict[str, str]
    """Names in the state dict, and what the job calls the tensors that they are for."""
    tied: dict[tuple[str, Any], WriteItem | None]
    """Parts of weights that another name of the state dict writes, by name and offset, and what it writes there."""
    steps: list[_torch_owners.Step] | None = None
    """Of a model in a store: what this rank sends and gathers."""
    part: int | None = None
    """Of a model in a store: the part that this rank writes."""
    has_others: bool = False
    """Of a model in a store: whether other ranks save too."""


class OnnxWriter(StorageWriter):
    """Writes an ONNX model whose weights are in the state dicts of several ranks, for ``torch.distributed.checkpoint.save`` and
    ``async_save``.

    Each rank writes its parts of each tensor, however it is sharded, to their places in the weights files of one model in a
    folder that all ranks see. In a store (``s3://...``) each rank writes one weights file, and the others send it their parts of
    the tensors there, a bounded number of bytes at a time. The model that was at ``path`` is replaced when all have written; a
    save that fails, or whose rank is killed, leaves it as it was.

    Before a byte is written the names, types and shapes of all ranks are held to the model, and every fault is told in one
    ``CheckpointException`` on every rank: names that no tensor has, weights that no rank has or that two ranks write. A weight
    that the model has with its elements and that no rank names stays as it is.

    On rank 0 ``saved`` is a :class:`Committed`: what the last save has put in place.
    """

    def __init__(
        self,
        path: Path,
        model: Any = None,
        *,
        rename: Mapping[str, str] | Callable[[str], str] | None = None,
        ignore: Iterable[str] | str = (),
        process_group: Any = None,
        **options: Unpack[PublishOptions],
    ) -> None:
        """A writer of the model ``path``, a path or a URL.

        Args:
            model: what ``torch.onnx.export`` returned, a ``ModelProto``, the path of a model, or a :class:`Container`; its weights
                need not be there. Rank 0 alone needs it.
            rename: names of weights, and the tensors that they are for, or a function that makes the one of the other. Several
                names for one tensor are tied weights, which are written once.
            ignore: names of weights that are left out, or patterns.
            process_group: for a model in a store, the group of ``dcp.save`` where that is not of all ranks.
            store, store_options, keep, if_present: for a model in a store, as in :meth:`Job.plan`. Each rank gives its own.
            options: those of :meth:`Container.save`.

        Raises:
            TypeError, ValueError: arguments that no save has. Where there are other ranks, the save raises ``CheckpointException``
                instead, on every rank, which says the same.
        """
        self.path, self._is_stored = str(path), False
        self.saved: Committed | None = None
        """What the last save has put in place; on rank 0 alone."""
        self._model, self._given = model, options
        self._reached: dict[str, Any] = {name: options.get(name) for name in ("store", "store_options")}
        self._refused: Exception | None = None
        try:
            self._take(path, rename, ignore)
        except Exception as error:
            # Other ranks come to the save, and wait there for this one.
            if _torch_owners.size_of(None) == 1:
                raise
            self._refused = error
        self._process_group = process_group
        self._begun: _Begun | None = None
        self._kept: tuple[Container, list[str]] | None = None
        self._messages: _torch_owners.Messages | None = None

    def _take(self, path: Path, rename: _ranks.Rename, ignore: Iterable[str] | str) -> None:
        """Refuses arguments that no save has."""
        self._is_stored = _places.is_stored(path, self._reached["store"])
        apart = {*self._reached, *(_stores.PUBLISHING if self._is_stored else ())}
        saving: dict[str, Any] = {name: value for name, value in self._given.items() if name not in apart}
        _options.save("OnnxWriter", **saving)
        self.path = os.fspath(path)
        self._rename = _ranks.renamed_by("OnnxWriter", rename)
        self._ignored = _options.fill("OnnxWriter", ignore=ignore)["ignore"]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_begun": None, "_kept": None, "_messages": None, "saved": None}

    @property
    def checkpoint_id(self) -> str:
        """The path of the model."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Whether this is a path or a URL of a store."""
        return "://" not in os.fspath(checkpoint_id) or _places.is_url(os.fspath(checkpoint_id))

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Begins a save, to ``checkpoint_id`` from now on if it is given."""
        if checkpoint_id:
            self.path = os.fspath(checkpoint_id)
            self._is_stored = _places.is_stored(checkpoint_id, self._reached["store"])

    @_sent
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Refuses what cannot be saved by several ranks."""
        if self._refused is not None:
            raise self._refused
        if not kwargs.get("use_collectives", True):
            raise ValueError("OnnxWriter: ranks agree on one model: save with use_collectives=True")
        if is_coordinator and self._model is None:
            raise TypeError("OnnxWriter: rank 0 needs the model: OnnxWriter(path, model)")

    @_sent
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan of a rank, as it is."""
        if not getattr(plan, "usable", True):
            raise ValueError("OnnxWriter: a plan that is cached names the files of an earlier save: use a planner without caching")
        return plan

    @_sent
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Holds the plans of all ranks to the model, lays out its files, and says what each rank writes."""
        self._abandon()
        found = _torch_model.skeleton(self._model)
        shares, container = self._shared_out(found, plans)
        if self._is_stored and len(plans) not in (1, _torch_owners.size_of(self._process_group)):
            raise ValueError("OnnxWriter: give it the process_group of dcp.save too, whose ranks send each other their weights")
        how: dict[str, Any] = {"parts": len(plans)} if self._is_stored else {"slices": True}
        job = Job.plan(container, self.path, **how, **self._given)
        self._begun = _Begun(self, job)
        planned = _planned_names(job, container, shares.tensors)
        kept = {it.name for it in job.tensors} - {*planned.values()}
        self._kept = (container, sorted(kept)) if kept else None
        firsts = set(shares.tied.values())
        writers = {_place(item): item for plan in plans for item in plan.items if item.index.fqn in firsts}
        tasks = [_task(rank, plan, job, planned, shares.tied, writers) for rank, plan in enumerate(plans)]
        return _with_steps(tasks, job, planned, shares.tied) if self._is_stored else tasks

    def _shared_out(self, found: _torch_model.Skeleton, plans: list[SavePlan]) -> tuple[_ranks.Shares, Container]:
        """What each rank writes, and the container with slots for it.

        Raises:
            ValueError: one for all faults.
        """
        items = [(rank, item) for rank, plan in enumerate(plans) for item in plan.items]
        ignored = self._left_out(found, list(dict.fromkeys(item.index.fqn for _, item in items)))
        names = _ranks.Names(self._rename, ignored.__contains__, found.tied)
        others = sorted({item.index.fqn for _, item in items if item.tensor_data is None} - ignored)
        chunks = [_chunk(rank, item) for rank, item in items if item.tensor_data is not None]
        shares, faults = _ranks.shared_out(chunks, found.declared, names)
        if others:
            faults.insert(0, f"{', '.join(others)}: no tensors; save the state dict of the model alone, or ignore them")
        faults += [
            f"{name}: the exporter computed it from the weights of this name; export with optimize=False"
            for name in sorted(found.computed & set(shares.tensors.values()))
        ]
        container = found.with_slots(set(shares.tensors.values()))
        if shares.unknown:
            rule = _ranks.prefix_rule(shares.unknown, found.declared) or _ADVICE
            faults.insert(0, f"{', '.join(shares.unknown)}: the model has no such weights; {rule}")
        faults += _missing(container, set(shares.tensors.values()))
        if faults:
            raise ValueError(_ranks.told(self.path, faults))
        return shares, container

    def _left_out(self, found: _torch_model.Skeleton, names: list[str]) -> set[str]:
        """Those of ``names`` that are to be ignored, or that the graph does not use."""
        ignored = _patterns.matching("OnnxWriter", names, self._ignored)[0]
        return {*ignored, *(name for name in names if self._rename(name) in found.unused)}

    @_sent
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Writes what this rank has to its places."""
        task: _Task = plan.storage_data
        future: Future[list[WriteResult]] = Future()
        if not plan.items and self._kept is None and task.steps is None:
            future.set_result([])
            return future
        receipt = self._written(task, plan.items, planner)
        lengths = [_chunk(task.rank, item) for item in plan.items]
        results = [
            WriteResult(item.index, size_in_bytes=_nbytes(chunk), storage_data=None)
            for item, chunk in zip(plan.items, lengths, strict=True)
        ]
        if results and receipt is not None:
            results[0] = dataclasses.replace(results[0], storage_data=receipt)
        elif self._begun is not None and receipt is not None:
            self._begun.receipts.append(receipt)
        future.set_result(results)
        return future

    def _written(self, task: _Task, items: list[WriteItem], planner: SavePlanner) -> Receipt | None:
        """Writes what this rank has; in a store what it owns, if it owns a part."""
        if task.steps is None:
            return task.job.write_slices(f"rank-{task.rank}", self._slices(task, items, planner))
        by_place, failure = {_place(item): item for item in items}, None
        try:
            for place in task.tied:
                _refuse_other(planner, by_place[place], _resolved(planner, by_place[place]), task.tied[place])
        except Exception as error:
            failure = error

        def find(step: _torch_owners.Step, piece: _torch_owners.Piece) -> torch.Tensor:
            if piece.key is not None:
                return _resolved(planner, by_place[piece.key])
            assert self._kept is not None
            return torch.frombuffer(bytearray(_own(self._kept[0], step.name).raw), dtype=torch.uint8)

        def write(ask: Callable[[str], Tensor]) -> Receipt:
            assert task.part is not None
            return task.job.reached_by(**self._reached).write(task.part, ask)

        # They stay until the next save: another rank may still be reading.
        self._messages = _torch_owners.Messages(self._process_group, task.job.id) if task.has_others else None
        owned = write if task.part is not None else None
        return _torch_owners.gather(task.steps, task.rank, self._messages, find, owned, failure)

    def _slices(
        self, task: _Task, items: list[WriteItem], planner: SavePlanner
    ) -> Iterator[tuple[str, tuple[int, ...], Any]]:
        """Tensor, offsets and elements of everything that this rank writes. The first writes what the model has itself."""
        if self._kept is not None:
            container, names = self._kept
            for name in names:
                own = _own(container, name)
                yield name, (0,) * own.ndim, own
        for item in items:
            tensor = _resolved(planner, item)
            if _place(item) in task.tied:
                _refuse_other(planner, item, tensor, task.tied[_place(item)])
            else:
                yield from _pieces(task.tensors[item.index.fqn], _chunk(task.rank, item), tensor)

    @_sent
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Puts the model in its place, once all ranks have written."""
        begun = self._begun
        if begun is None:
            raise RuntimeError("OnnxWriter: nothing was planned")
        receipts = [it.storage_data for of_rank in results for it in of_rank if it.storage_data is not None]
        # A rank that has nothing of its own may own a part: what it has written is in the store.
        self.saved = begun.job.commit(None if self._is_stored else [*begun.receipts, *receipts])
        begun.forget()
        self._begun = self._kept = None

    def _abandon(self) -> None:
        """Removes what an earlier save of this writer left, which failed."""
        begun, self._begun, self._kept = self._begun, None, None
        if begun is not None:
            begun.end()


class _Begun:
    """A job that was begun and not yet committed. It is removed with its writer, by the process that began it: nobody else can
    commit it."""

    def __init__(self, writer: OnnxWriter, job: Job) -> None:
        self.job = job
        self.receipts: list[Receipt] = []
        self._end = weakref.finalize(writer, _abort, job, os.getpid())

    def end(self) -> None:
        """Removes it."""
        self._end()

    def forget(self) -> None:
        """It is committed."""
        self._end.detach()


def _abort(job: Job, process: int) -> None:
    # What is left otherwise is told by `recover`. A fork of the process has no say.
    if os.getpid() == process:
        with contextlib.suppress(_core.Error, OSError):
            job.abort()


def _place(item: WriteItem) -> tuple[str, Any]:
    return item.index.fqn, item.index.offset


def _task(
    rank: int,
    plan: SavePlan,
    job: Job,
    planned: Mapping[str, str],
    tied: Mapping[str, str],
    writers: Mapping[tuple[str, Any], WriteItem],
) -> SavePlan:
    """The plan of a rank with what it writes alone."""
    items = [item for item in plan.items if item.index.fqn in planned]
    tensors = {item.index.fqn: planned[item.index.fqn] for item in items}
    others = {
        _place(item): writers.get((tied[item.index.fqn], item.index.offset)) for item in items if item.index.fqn in tied
    }
    return dataclasses.replace(plan, items=items, storage_data=_Task(rank, job, tensors, others))


def _with_steps(tasks: list[SavePlan], job: Job, planned: Mapping[str, str], tied: Mapping[str, str]) -> list[SavePlan]:
    """The plans of all ranks with what each sends, gathers and writes for a model in a store."""
    pieces: dict[str, list[_torch_owners.Piece]] = {}
    shapes: dict[str, tuple[tuple[int, ...], int]] = {}
    for rank, plan in enumerate(tasks):
        for item in plan.items:
            if item.index.fqn in tied:
                continue
            name, data = planned[item.index.fqn], item.tensor_data
            piece = _torch_owners.Piece(rank, _place(item), tuple(data.chunk.offsets), tuple(data.chunk.sizes))
            pieces.setdefault(name, []).append(piece)
            shapes[name] = tuple(data.size), data.properties.dtype.itemsize
    for tensor in job.tensors:
        if tensor.name not in pieces:  # The model has it, which rank 0 alone has: as bytes.
            pieces[tensor.name] = [_torch_owners.Piece(0, None, (0,), (tensor.nbytes,))]
            shapes[tensor.name] = (tensor.nbytes,), 1
    whole = {name: tuple(of_tensor) for name, of_tensor in pieces.items()}
    owners = _torch_owners.owners(job, whole, len(tasks))
    steps = _torch_owners.steps(job, whole, shapes, owners, len(tasks))
    return [
        dataclasses.replace(
            plan,
            storage_data=dataclasses.replace(
                plan.storage_data,
                steps=steps[rank],
                part=owners.index(rank) if rank in owners else None,
                has_others=len(tasks) > 1,
            ),
        )
        for rank, plan in enumerate(tasks)
    ]


def _refuse_other(planner: SavePlanner, item: WriteItem, tensor: torch.Tensor, first: WriteItem | None) -> None:
    """Refuses a part of weights that are tied by their names alone: it differs from what is written in its place."""
    if first is None:
        return
    try:
        written = _resolved(planner, first)
    except (KeyError, ValueError):
        return  # Another rank has it.
    # Boxes of two shardings are not of the same elements.
    if tensor.shape == written.shape and not _are_equal(tensor, written):
        raise ValueError(f"{item.index.fqn} and {first.index.fqn} are for one tensor of the model, and differ: rename one of them")


def _planned_names(job: Job, container: Container, tensors: Mapping[str, str]) -> dict[str, str]:
    """What a job calls the tensors that names of the state dict are for: as their handles, without the mark. A tensor without
    elements may have no place in it."""
    declared, known, planned = container.declared(), {it.name for it in job.tensors}, {}
    for name, tensor in tensors.items():
        _, shape, location = declared[tensor]
        handle = (location or tensor).removeprefix("#")
        if handle in known:
            planned[name] = handle
        elif 0 not in shape:
            raise RuntimeError(f"the job has no place for {tensor}")
    return planned


def _own(container: Container, name: str) -> Tensor:
    """The weights of the model itself that a job calls ``name``: they are behind a handle, or an option moves them out."""
    handle = f"#{name}"
    return container[handle] if handle in container else container.tensor(name)


_ADVICE = (
    "rename= says which tensors they are for, ignore= leaves them out, and weights that the exporter"
    " folded into others are there with torch.onnx.export(..., optimize=False)"
)


def _missing(container: Container, written: set[str]) -> list[str]:
    """Tensors that have no elements, and that no rank writes."""
    declared = container.declared()
    slots = {declared[name][2] or name for name in written}
    found = zip(*container._core.tensors(), strict=True)
    names = [name for name, it in found if isinstance(it, BaseException) and (declared[name][2] or name) not in slots]
    return [f"{', '.join(names)}: neither a rank nor the model has these weights;"
        " a buffer that is not persistent is in no state dict: add it (sd[name] = module.get_buffer(name))"] if names else []


def _chunk(rank: int, item: WriteItem) -> _ranks.Chunk:
    """What a rank has of a tensor. torch has two elements of FLOAT4E2M1 in each of its own, side by side."""
    data = item.tensor_data
    kind = data.properties.dtype
    dtype = of_torch(kind)
    boxed = tuple(data.chunk.offsets), tuple(data.chunk.sizes)
    shape, offsets, sizes = (_wide(dtype, tuple(it)) for it in (data.size, *boxed))
    return _ranks.Chunk(rank, item.index.fqn, dtype, str(kind), shape, (offsets, sizes))


def _wide(dtype: DataType | None, dims: tuple[int, ...]) -> tuple[int, ...]:
    return (*dims[:-1], dims[-1] * 2) if dtype == DataType.FLOAT4E2M1 and dims else dims


def _nbytes(chunk: _ranks.Chunk) -> int:
    return _core.byte_len(chunk.dtype or 0, chunk.box[1])


def _resolved(planner: SavePlanner, item: WriteItem) -> torch.Tensor:
    """The elements of ``item``, where they are, as the plan says."""
    tensor = planner.resolve_data(item).detach()
    data = item.tensor_data
    if tensor.shape != data.chunk.sizes or tensor.dtype != data.properties.dtype:
        raise ValueError(
            f"{item.index.fqn}: the planner gives {tensor.dtype} {list(tensor.shape)},"
            f" and planned {data.properties.dtype} {list(data.chunk.sizes)}"
        )
    return tensor


def _pieces(name: str, chunk: _ranks.Chunk, tensor: torch.Tensor) -> Iterator[tuple[str, tuple[int, ...], torch.Tensor]]:
    """``tensor`` in pieces that are in the memory of the CPU, in row-major order. What is so already is one piece, and not copied."""
    start = chunk.box[0]
    is_in_order = tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    # Of a tensor without elements there is one part without elements.
    if is_in_order and (tensor.numel() or 0 in chunk.shape):
        yield name, start, tensor
        return
    for offsets, sizes in _ranks.boxes(tuple(tensor.shape), tensor.element_size(), _ranks.MOST):
        part = _ranks.part(tensor, offsets, sizes)
        inner = _wide(chunk.dtype, offsets)
        places = tuple(a + b for a, b in zip(start, inner, strict=True))
        yield name, places, part.cpu().resolve_conj().resolve_neg().contiguous()


def _are_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the bytes are equal; those of one memory are not read."""
    if a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    flat = [it.contiguous().reshape(-1).view(torch.uint8) for it in (a, b)]
    return torch.equal(*flat)
