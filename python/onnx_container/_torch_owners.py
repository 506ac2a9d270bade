"""Weights that lie in several ranks, gathered one tensor at a time by the rank that writes them into a store.

An object of a store is written whole, and a tensor lies in one object. So each part of a job has an owner, and the other ranks
send it their pieces of its tensors. All ranks take the same steps in the same order: each send meets its receive, whatever the
others do meanwhile, and no rank waits for one that waits for it. What is on its way is bounded: some tensors that wait for the
upload of an owner, and some bytes that a rank has sent and nobody has taken yet.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain, zip_longest
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ._dtypes import DataType
from ._job import Job, Receipt
from ._tensor import Tensor

__all__ = ["Messages", "Piece", "Step", "gather", "owners", "size_of", "steps"]

_MOST_SENT = 256 << 20
"""Bytes that a rank has sent and that nobody has taken yet."""
_MESSAGE = 64 << 20
"""Bytes of one message."""
_WAITING = 2
"""Tensors that wait for the upload of their owner."""
_PATIENCE = timedelta(days=1)
"""How long a rank waits for another: as long as an upload takes. A rank that dies is noticed at once."""

_MEETING = timedelta(minutes=10) / 3
"""How long a rank waits for the others to begin: all of them come from one plan. One that failed before never comes. NCCL has a
patience of ten minutes, after which it ends the processes: the error of the save has to come before."""

_ALL = "all ranks"
"""What ranks that have met decide; otherwise it is the names of those that are missing."""

Key = tuple[str, Any]
"""A part of weights in a state dict: its name, and its place in the tensor."""


@dataclass(frozen=True)
class Piece:
    """What one rank has of a tensor."""

    rank: int
    key: Key | None
    """None for a tensor that the model has itself."""
    start: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of elements."""
        return torch.Size(self.sizes).numel()


@dataclass(frozen=True)
class Step:
    """One tensor that its owner gathers."""

    name: str
    """What the job calls it."""
    owner: int
    dtype: DataType
    dims: tuple[int, ...]
    shape: tuple[int, ...]
    """As torch has it: two elements of FLOAT4E2M1 are one there."""
    itemsize: int
    pieces: tuple[Piece, ...]


def owners(job: Job, pieces: Mapping[str, Iterable[Piece]], world: int) -> list[int]:
    """The rank that writes each part: of those that write none yet, the one that has most of its elements."""
    has: dict[tuple[int, int], int] = defaultdict(int)
    for tensor in job.tensors:
        for piece in pieces[tensor.name]:
            has[tensor.part, piece.rank] += piece.count
    parts = len(job.parts)
    found: dict[int, int] = {}
    taken: set[int] = set()
    pairs = sorted(((part, rank) for part in range(parts) for rank in range(world)), key=lambda pair: (-has[pair], pair))
    for part, rank in pairs:
        if part not in found and rank not in taken:
            found[part] = rank
            taken.add(rank)
    return [found[part] for part in range(parts)]


def steps(
    job: Job, pieces: Mapping[str, tuple[Piece, ...]], shapes: Mapping[str, tuple[tuple[int, ...], int]], owner: list[int], world: int
) -> list[list[Step]]:
    """The steps of each rank, all in one order: the tensors of each part in the order of its file, and those of the parts in turns.
    ``owner`` has the rank of each part, ``shapes`` has shapes as torch has them, and the bytes of an element."""
    by_part: dict[int, list[Step]] = defaultdict(list)
    for tensor in job.tensors:
        shape, itemsize = shapes[tensor.name]
        step = Step(tensor.name, owner[tensor.part], tensor.dtype, tensor.shape, shape, itemsize, pieces[tensor.name])
        by_part[tensor.part].append(step)
    of_ranks: list[list[Step]] = [[] for _ in range(world)]
    for step in filter(None, chain.from_iterable(zip_longest(*by_part.values()))):
        for rank, known in _known(step).items():
            of_ranks[rank].append(known)
    return of_ranks


def _known(step: Step) -> dict[int, Step]:
    """What each rank knows of a step that it takes: its owner all of it, others their own pieces."""
    own: dict[int, list[Piece]] = defaultdict(list)
    for piece in step.pieces:
        own[piece.rank].append(piece)
    return {**{rank: replace(step, pieces=tuple(has)) for rank, has in own.items()}, step.owner: step}


def size_of(group: Any) -> int:
    """The number of ranks of ``group``; None is all of them."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


class Messages:
    """Messages between the ranks of ``group``, in the memory of the CPU and apart from those of the training. All its ranks make one
    for each ``job``, and keep it until all have got what was sent to them.

    torch does not know this group: it numbers its own, so that all ranks have to make all of them, and in one order. A save may be
    of some ranks, or in a thread beside the training.
    """

    def __init__(self, group: Any, job: str) -> None:
        store = dist.PrefixStore(f"onnx-container job {job}", distributed_c10d._get_default_store())
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        _meet(store, rank, size)
        self._group = dist.ProcessGroupGloo(store, rank, size, timeout=_PATIENCE)

    def send(self, message: torch.Tensor, to: int) -> Any:
        """Begins to send a message; ``to`` is a rank of the group."""
        return self._group.send([message], to, 0)

    def receive(self, message: torch.Tensor, source: int) -> None:
        """Waits for a message."""
        self._group.recv([message], source, 0).wait()


def _meet(store: Any, rank: int, size: int) -> None:
    """Waits until all ranks are here.

    Raises:
        RuntimeError: ranks that do not come, or have gone.
    """
    names = [f"rank {it}" for it in range(size)]
    store.set(names[rank], "here")
    with contextlib.suppress(RuntimeError):
        store.wait(names, _MEETING)
    missing = ", ".join(name for name in names if not store.check([name]))
    # The first rank to decide does so for all: each would see something else, as others still come.
    decided = store.compare_set("decided", "", missing or _ALL).decode()
    if decided != _ALL:
        raise RuntimeError(f"{decided}: has failed before it wrote, or did not come within {_MEETING}")


def gather(
    taken: Iterable[Step],
    rank: int,
    messages: Messages | None,
    find: Callable[[Step, Piece], torch.Tensor],
    write: Callable[[Callable[[str], Tensor]], Receipt] | None,
    failure: Exception | None = None,
) -> Receipt | None:
    """Takes the steps that concern ``rank``: sends what ``find`` has, and hands the tensors that this rank owns to ``write``,
    which asks for them by name, in their order. Without other ranks there are no ``messages``.

    What fails here, or has failed before, does not keep other ranks waiting: this one takes its steps to the end, and raises then.
    """
    upload = None if write is None else _Upload(write)
    sent, failed = _Sent(messages), _Failed(failure)
    try:
        for step in taken:
            if step.owner != rank:
                for piece in step.pieces:
                    if piece.rank == rank and piece.count:
                        sent.send(failed.bytes_of(find, step, piece), step.owner)
                        sent.send(torch.tensor([failed.error is not None], dtype=torch.uint8), step.owner)
            elif upload is not None:
                whole = _gathered(step, rank, messages, find, failed)
                if failed.error is None:
                    upload.put(step, whole)
                else:  # A part of other bytes would have a receipt, by which anybody may commit the job.
                    upload.give_up()
        sent.wait(0)
    except BaseException:
        if upload is not None:
            upload.give_up()
        raise
    if failed.error is not None:
        if upload is not None:
            upload.give_up()
        raise failed.error
    return None if upload is None else upload.end()


def _gathered(
    step: Step, rank: int, messages: Messages | None, find: Callable[[Step, Piece], torch.Tensor], failed: _Failed
) -> torch.Tensor:
    """All bytes of a tensor, with an axis for those of an element."""
    whole = torch.empty((*step.shape, step.itemsize), dtype=torch.uint8)
    for piece in step.pieces:
        if not piece.count:
            continue
        if piece.rank == rank:
            flat = failed.bytes_of(find, step, piece)
        else:
            assert messages is not None
            flat = _received(step, piece, messages, failed)
        place = whole
        for axis, (start, size) in enumerate(zip(piece.start, piece.sizes, strict=True)):
            place = place.narrow(axis, start, size)
        place.copy_(flat.reshape(place.shape))
    return whole


def _received(step: Step, piece: Piece, messages: Messages, failed: _Failed) -> torch.Tensor:
    """The bytes of a piece of another rank, which says behind them whether they are zeros in place of what it has not."""
    flat, has_failed = torch.empty(piece.count * step.itemsize, dtype=torch.uint8), torch.empty(1, dtype=torch.uint8)
    for message in (*flat.split(_MESSAGE), has_failed):
        messages.receive(message, piece.rank)
    if has_failed.item() and failed.error is None:
        failed.error = RuntimeError(f"{step.name}: rank {piece.rank} has failed, which has a part of it")
    return flat


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor in the memory of the CPU, in row-major order."""
    plain = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


class _Failed:
    """The first error of what a rank has, or gets. Others wait for its bytes, so zeros are sent in their place."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def bytes_of(self, find: Callable[[Step, Piece], torch.Tensor], step: Step, piece: Piece) -> torch.Tensor:
        count = piece.count * step.itemsize
        try:
            found = _bytes_of(find(step, piece))
            if found.numel() != count:
                raise ValueError(f"{step.name}: {found.numel()} bytes in place of {count}")
            return found
        except Exception as error:
            self.error = self.error or error
            return torch.zeros(count, dtype=torch.uint8)


class _Sent:
    """Messages that are on their way."""

    def __init__(self, messages: Messages | None) -> None:
        self._messages = messages
        self._pending: deque[tuple[Any, torch.Tensor]] = deque()
        self._bytes = 0

    def send(self, flat: torch.Tensor, to: int) -> None:
        assert self._messages is not None
        for message in flat.split(_MESSAGE):
            self._pending.append((self._messages.send(message, to), message))
            self._bytes += message.numel()
            self.wait(_MOST_SENT)

    def wait(self, most: int) -> None:
        """Waits until at most so many bytes are on their way."""
        while self._bytes > most:
            work, message = self._pending.popleft()
            work.wait()
            self._bytes -= message.numel()


class _Upload:
    """The write of an owner, in a thread of its own."""

    def __init__(self, write: Callable[[Callable[[str], Tensor]], Receipt]) -> None:
        self._tensors: queue.Queue[tuple[Step, torch.Tensor] | None] = queue.Queue(_WAITING)
        self._receipt: Receipt | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(write,), name="onnx-container-upload", daemon=True)
        self._thread.start()

    def _run(self, write: Callable[[Callable[[str], Tensor]], Receipt]) -> None:
        try:
            self._receipt = write(self._next)
        except BaseException as error:
            self._error = error

    def _next(self, name: str) -> Tensor:
        found = self._tensors.get()
        if found is None:
            raise RuntimeError("another rank, or another part of this one, has failed")
        step, whole = found
        if step.name != name:
            raise RuntimeError(f"the job asks for {name}, and {step.name} is next")
        return Tensor(whole.numpy(), step.dtype, step.dims)

    def put(self, step: Step, whole: torch.Tensor) -> None:
        """Hands over a tensor, when there is room. After a failure it is dropped: the other ranks still send theirs."""
        self._hand_over((step, whole))

    def _hand_over(self, what: tuple[Step, torch.Tensor] | None) -> None:
        while self._thread.is_alive():
            try:
                return self._tensors.put(what, timeout=0.1)
            except queue.Full:
                pass

    def give_up(self) -> None:
        """Ends the write, which then fails."""
        self._hand_over(None)
        self._thread.join()

    def end(self) -> Receipt | None:
        """Waits for the end of the write."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._receipt
