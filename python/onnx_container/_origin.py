"""Where a container was loaded from: what a pickle of it has in place of the weights."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from ._options import Path

__all__: list[str] = []

Stamp = tuple[int, int]
"""The length of a file in bytes, and when it was written last, in nanoseconds."""


@dataclass(frozen=True)
class Origin:
    """The path and the options of a load."""

    path: str
    """As it was given."""
    absolute: str
    mmap: bool
    options: dict[str, Any]
    weights_files: list[str]
    """Those that weights were loaded from; where none were loaded, those that the model names."""
    stamps: dict[str, Stamp]
    """The model, and the weights files that are there, as they were when it was loaded."""


@dataclass(frozen=True)
class Stored:
    """Where in a store a container was loaded from."""

    url: str
    e_tag: str | None


def before(path: Path) -> Stamp | None:
    """The stamp of the model at ``path``, taken before it is loaded."""
    try:
        return _stamp(os.fsdecode(path))
    except (OSError, ValueError):
        return None  # the load says what is wrong


def of_load(
    path: Path, mmap: bool, options: dict[str, Any], core: _core.Container, first: Stamp | None
) -> Origin | None:
    """The origin of a container that was just loaded. None if nobody can tell which files it is
    of, because they were replaced at that time."""
    given = os.fsdecode(path)
    folder = os.fsdecode(options.get("base_dir") or os.path.dirname(given))
    loaded = [os.fsdecode(it) for it in _core.weights_files(core)]
    named = [os.path.join(folder, it) for it in _core.locations(core)]
    absolute, *weights = map(os.path.abspath, [given, *loaded, *named])
    try:
        stamps = {it: _stamp(it) for it in (absolute, *weights) if it == absolute or os.path.exists(it)}
    except (OSError, ValueError):
        return None
    if stamps[absolute] != first:
        return None
    if options.get("base_dir"):
        options = {**options, "base_dir": os.path.abspath(folder)}
    return Origin(given, absolute, mmap, options, sorted({*loaded, *named}), stamps)


def reduced(origin: Origin | Stored | None, changes: int) -> tuple[Any, ...]:
    """What a pickle of the container has: path, options, the digest of the model file, and the
    stamps of all files.

    Raises:
        TypeError: another process could not load the same.
    """
    way_out = "save it, and pickle Container.load(path) of what was saved"
    if isinstance(origin, Stored):
        raise TypeError(f"a container that was loaded from a store cannot be pickled: pass {origin.url!r}, and load it there")
    if origin is None:
        raise TypeError(f"a container that was not loaded from a path cannot be pickled: {way_out}")
    if changes:
        raise TypeError(f"a container that was changed since it was loaded cannot be pickled: {way_out}")
    _refuse_replaced(origin.stamps, "was replaced since it was loaded")
    return origin.absolute, origin.mmap, origin.options, _digest(origin.absolute), origin.stamps


def refuse_other(path: str, digest: str) -> None:
    """Refuses a model file that is not the one that was pickled.

    Raises:
        ValueError: it is another one.
    """
    if _digest(path) != digest:
        raise ValueError(f"{path} was replaced since the container was pickled: load it anew, and pickle that")


def refuse_other_weights(stamps: dict[str, Stamp]) -> None:
    """Refuses weights files that are not those of the time of the load."""
    _refuse_replaced(stamps, "was replaced since the container was pickled")


def _refuse_replaced(stamps: dict[str, Stamp], how: str) -> None:
    for path, stamp in stamps.items():
        if _stamp(path) != stamp:
            raise ValueError(f"{path} {how}: load the container anew, and pickle that")


def _stamp(path: str) -> Stamp:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
