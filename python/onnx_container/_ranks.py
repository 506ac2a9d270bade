"""Which bytes of a model each rank writes: the chunks that the ranks have are held to the model, and every fault is told at once.

Nothing here needs torch: a chunk is a name, a type, a shape and a place in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _options
from ._dtypes import DataType

__all__ = ["MOST", "Chunk", "Names", "Rename", "Shares", "boxes", "part", "prefix_rule", "renamed_by", "shared_out", "told"]

MOST = 64 << 20
"""Bytes that are copied from a device, or put in a row, at a time."""

Rename = Mapping[str, str] | Callable[[str], str] | None
"""Names in a state dict, and the tensors that they are for; or a function that makes the one of the other."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""A part of a tensor: the offset of its first element in each dimension, and its size."""


@dataclass(frozen=True)
class Chunk:
    """A part of a tensor that one rank has."""

    rank: int
    name: str
    """Its name in the state dict."""
    dtype: DataType | None
    """None for a type that ONNX does not have."""
    dtype_name: str
    """The type as the rank calls it."""
    shape: tuple[int, ...]
    """The shape of the whole tensor."""
    box: Box


@dataclass(frozen=True)
class Names:
    """How names of a state dict become names of tensors."""

    rename: Callable[[str], str]
    ignored: Callable[[str], bool] = lambda name: False
    tied: Mapping[str, str] = field(default_factory=dict)
    """Names of weights that the model has under another name."""

    def tensor(self, name: str, known: Collection[str]) -> str:
        """The tensor that the weights ``name`` are for."""
        renamed = self.rename(name)
        return renamed if renamed in known else self.tied.get(renamed, renamed)


@dataclass(frozen=True)
class Shares:
    """What the ranks write."""

    tensors: dict[str, str]
    """Names in the state dict, and the tensors that they are for."""
    tied: dict[str, str]
    """Names whose tensor another name writes, and that name."""
    unknown: list[str]
    """Names that no tensor has."""


def shared_out(
    chunks: Iterable[Chunk], declared: Mapping[str, tuple[DataType, tuple[int, ...], str | None]], names: Names
) -> tuple[Shares, list[str]]:
    """Who writes what, and every fault of it: a name that no tensor has, another type or shape, a part of a tensor that no rank
    has, or that two have. ``declared`` is what the model says of its tensors; those with one location are one."""
    by_name: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        if not names.ignored(chunk.name):
            by_name[chunk.name].append(chunk)
    shares = Shares({}, {}, [])
    faults: list[str] = []
    writers: dict[str, str] = {}
    for name, parts in by_name.items():
        tensor = names.tensor(name, declared)
        if tensor not in declared:
            shares.unknown.append(name if tensor == name else f"{name} (renamed to {tensor})")
            continue
        wrong = _wrong(name, parts, declared[tensor])
        faults += wrong
        shares.tensors[name] = tensor
        first = writers.setdefault(declared[tensor][2] or tensor, name)
        if first != name:
            shares.tied[name] = first
        elif not wrong:
            faults += _uncovered(name, parts)
    return shares, faults


def prefix_rule(names: Iterable[str], known: Collection[str]) -> str | None:
    """The ``rename`` that makes a known name of one of ``names``, where a prefix is all that they differ in."""
    for name in names:
        dots = [at + 1 for at, letter in enumerate(name) if letter == "."]
        if at := next((at for at in dots if name[at:] in known), None):
            return f"rename=lambda name: name.removeprefix({name[:at]!r})"
        if longer := next((it for it in known if it.endswith(f".{name}")), None):
            return f"rename=lambda name: {longer[: -len(name)]!r} + name"
    return None


def _wrong(name: str, parts: list[Chunk], declared: tuple[DataType, tuple[int, ...], str | None]) -> list[str]:
    """Where the parts of the weights ``name`` are not of the type and shape that the model declares."""
    dtype, shape, _ = declared
    texts: dict[str, str] = {}
    for it in parts:
        if it.dtype != dtype or it.shape != shape:
            has = f"{it.dtype_name} {list(it.shape)}"
            texts.setdefault(has, f"{name}: rank {it.rank} has {has}, and the model declares {dtype} {list(shape)}")
    return list(texts.values())


def _uncovered(name: str, parts: list[Chunk]) -> list[str]:
    """Where the parts do not cover the whole tensor exactly once."""
    shape, filled = parts[0].shape, [it for it in parts if math.prod(it.box[1])]
    if outside := [it for it in filled if not _is_within(shape, it.box)]:
        return [f"{name}: rank {it.rank} has {_text(it.box)}, which is beyond {list(shape)}" for it in outside]
    if twice := [f"{name}: ranks {a.rank} and {b.rank} both write {_text(b.box)}" for a, b in _overlaps(filled)]:
        return twice
    count, total = sum(math.prod(it.box[1]) for it in filled), math.prod(shape)
    return [f"{name}: the ranks have {count} of its {total} elements"] if count != total else []


def _is_within(shape: tuple[int, ...], box: Box) -> bool:
    return all(0 <= start and start + size <= most for start, size, most in zip(*box, shape, strict=True))


def _overlaps(parts: list[Chunk]) -> Iterator[tuple[Chunk, Chunk]]:
    """Pairs of parts that have elements in common, found in the order of their first rows."""
    open_parts: list[Chunk] = []
    for part in sorted(parts, key=lambda it: it.box[0]):
        start = part.box[0][:1]
        open_parts = [it for it in open_parts if not start or it.box[0][0] + it.box[1][0] > start[0]]
        yield from ((it, part) for it in open_parts if _meet(it.box, part.box))
        open_parts.append(part)


def _meet(a: Box, b: Box) -> bool:
    ranges = zip(*a, *b, strict=True)
    return all(start < other + others and other < start + size for start, size, other, others in ranges)


def _text(box: Box) -> str:
    """A part of a tensor as Python indexes it, such as ``[0:4, 2:8]``."""
    return "[" + ", ".join(f"{start}:{start + size}" for start, size in zip(*box, strict=True)) + "]"


def boxes(sizes: tuple[int, ...], itemsize: int, most: int) -> Iterator[Box]:
    """Parts of a tensor of this shape, in order, each of at most ``most`` bytes, or of one element. There are none of an empty
    one."""
    count = math.prod(sizes)
    if count == 0:
        return
    if count * itemsize <= most or count == 1:
        yield (0,) * len(sizes), sizes
        return
    at = next(at for at, size in enumerate(sizes) if size > 1)
    step = max(1, most // (count // sizes[at] * itemsize))
    for start in range(0, sizes[at], step):
        part = (*sizes[:at], min(step, sizes[at] - start), *sizes[at + 1 :])
        for offsets, inner in boxes(part, itemsize, most) if step == 1 else [((0,) * len(sizes), part)]:
            yield (*offsets[:at], offsets[at] + start, *offsets[at + 1 :]), inner


def told(path: Any, faults: list[str]) -> str:
    """One message of all ``faults``."""
    return f"{path} was not saved, and nothing was written:" + "".join(f"\n  {it}" for it in faults)


def part(tensor: Any, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    """A view of some elements of a tensor of torch."""
    for dim, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        tensor = tensor.narrow(dim, offset, size)
    return tensor


def renamed_by(function: str, rename: Rename) -> Callable[[str], str]:
    """``rename`` as a function."""
    _options.fill(function, rename=rename)  # refuses what is neither
    if isinstance(rename, Mapping):
        return _ByTable(dict(rename))
    return _unchanged if rename is None else rename


def _unchanged(name: str) -> str:
    return name


@dataclass(frozen=True)
class _ByTable:
    """A function that can be pickled."""

    table: dict[str, str]

    def __call__(self, name: str) -> str:
        return self.table.get(name, name)
