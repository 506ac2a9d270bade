"""Saves that many processes write together: :class:`Job`."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from . import _core, _options, _patterns
from ._container import Container
from ._dtypes import DataType

if TYPE_CHECKING:
    from ._options import Path, SaveOptions

__all__ = ["Committed", "Job", "JobStatus", "PlannedTensor", "Receipt"]


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor of a job, and its place."""

    name: str
    """That of the handle, without ``#``. Tensors of one handle are one."""
    dtype: DataType
    shape: tuple[int, ...]
    file: str
    """The name of the weights file."""
    offset: int
    """In that file, in bytes."""
    nbytes: int
    part: int
    """The part that has it."""


@dataclass(frozen=True)
class Receipt:
    """What one writer of a job has written. It is in the folder of the job too, so no engine has to carry it."""

    json: str

    def __repr__(self) -> str:
        return f"<Receipt of {len(self.json)} characters>"


@dataclass(frozen=True)
class JobStatus:
    """How far a job is."""

    done: list[int]
    """The parts that are written."""
    missing: list[int]
    """The parts that are not."""
    writers: list[str]
    """The writers of slices that are done."""
    bytes_written: int
    nbytes: int
    """The bytes of all tensors."""


@dataclass(frozen=True)
class Committed:
    """What a commit has put in place."""

    files: list[tuple[str, int]]
    """Names and lengths in bytes, the model last."""
    nbytes: int
    digest: str | None
    """That of the model, known from the receipts of parts. Of slices it is known with ``digests=True``: they are read then."""
    removed: list[os.PathLike[str]]
    """Old weights files that were removed."""
    left_behind: list[os.PathLike[str]]
    """Old weights files that only the replaced model needed, and that stay."""
    infinite: list[str]
    """Weights of which finite numbers became infinite by the cast, by their old names."""
    warnings: list[str]
    """What else is to be known."""


class Job:
    """A save that many processes write together: each writes its part into files of full length, and one commit puts all of
    them in place.

    A job has no process and no connection: it is pickled, goes as JSON, or is opened by the path of its folder beside the
    model. Nothing is at the model's path before the commit, which is crash-safe as a save is.

        >>> import numpy as np
        >>> container = Container.load("encoder.onnx")
        >>> job = Job.plan(container, "written.onnx", parts=2)
        >>> receipts = [job.write(part, container) for part in job.parts]     # anywhere, in any order
        >>> job.commit(receipts).digest == container.digest()
        True
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Job) -> None:
        """Jobs are made by :meth:`plan`, :meth:`rewrite`, :meth:`open` and :meth:`from_json`."""
        self._core = core

    @classmethod
    def plan(
        cls, model: Any, path: Path, *, parts: int = 1, slices: bool = False, **options: Unpack[SaveOptions]
    ) -> Job:
        """Plans a save of ``model`` to ``path``, whose weights others write. Of weights that are not there, the type and the
        shape suffice.

        Args:
            model: a :class:`Container`, or what makes one.
            parts: into how many parts the weights are divided. The largest goes to the part that has the least.
            slices: True for a job that is written in slices of tensors, by :meth:`write_slices`, and not in parts.
            options: those of :meth:`Container.save`, without ``progress`` and ``checksums``; ``files`` writes weights files.

        Raises:
            Error: what a save refuses before it writes.
        """
        container = model if isinstance(model, Container) else Container(model)
        given, parts = _saving("Job.plan", options), _count("Job.plan", "parts", parts)
        return cls(_core.Job.plan(container._core, path, parts, slices, given))

    @classmethod
    def rewrite(
        cls,
        source: Path,
        path: Path,
        *,
        parts: int = 1,
        cast: Any = None,
        keep_io: bool = False,
        except_: Iterable[str] | str = (),
        **options: Unpack[SaveOptions],
    ) -> Job:
        """Plans a rewrite of the model ``source`` to ``path``, in another layout. Each part reads from ``source`` what it
        writes.

        Args:
            parts: into how many parts the weights are divided.
            cast: the float type that weights are cast to, and computed in.
            keep_io: True leaves inputs and outputs of the model as they are.
            except_: names of weights that are not cast, or patterns.
            options: those of :meth:`plan`.

            >>> job = Job.rewrite("encoder.onnx", "half.onnx", parts=4, cast="float16")
            >>> receipts = [job.write(part) for part in job.parts]
            >>> job.commit().nbytes < Container.load("encoder.onnx").nbytes
            True
        """
        given, recast = _saving("Job.rewrite", options), None
        parts = _count("Job.rewrite", "parts", parts)
        if cast is not None:
            names = sorted(Container.load(source, weights=False)._core.names()) if except_ else []
            kept = _patterns.selected("Job.rewrite", names, except_) if except_ else []
            recast = int(DataType.of(cast)), keep_io, kept
        return cls(_core.Job.rewrite(source, path, parts, recast, given))

    @classmethod
    def open(cls, path: Path) -> Job:
        """The job whose folder, or the ``job.json`` in it, is at ``path``."""
        return cls(_core.Job.open(path))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job of :meth:`to_json`."""
        return cls(_core.Job.from_json(text))

    def to_json(self) -> str:
        """The job as JSON, some 100 characters for each tensor."""
        return self._core.to_json()

    def __reduce__(self) -> tuple[Callable[[str], Job], tuple[str]]:
        return Job.from_json, (self.to_json(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.path!r}: {len(self.parts)} parts, {len(self._core.tensors)} tensors>"

    @property
    def id(self) -> str:
        """What tells the job from others of the model."""
        return self._core.id

    @property
    def path(self) -> str:
        """Where the model will be."""
        return os.fspath(self._core.path)

    @property
    def folder(self) -> str:
        """The folder beside the model that has what is written until the commit."""
        return os.fspath(self._core.folder)

    @property
    def parts(self) -> range:
        """The numbers of the parts; none where the job is written in slices."""
        return range(self._core.parts)

    @property
    def files(self) -> list[tuple[str, int]]:
        """The weights files, with their lengths in bytes."""
        return self._core.files

    @property
    def tensors(self) -> list[PlannedTensor]:
        """All tensors, in the order of the files and of their offsets."""
        return [
            PlannedTensor(name, DataType(dtype), tuple(dims), file, offset, nbytes, part)
            for name, dtype, dims, file, offset, nbytes, part in self._core.tensors
        ]

    def write(self, part: int, weights: Container | Mapping[str, Any] | Callable[[str], Any] | None = None) -> Receipt:
        """Writes a part. Any number of processes may, at once or again: a part that is written is not written again.

        Args:
            weights: a container, or anything that can be weights by the names of :attr:`tensors`, or functions that return that:
                a mapping, or a function,
                which is called for each tensor when it is written, by several threads. None for a rewrite.

        Raises:
            Error: weights of another type or shape; a source that has changed; the job was committed or aborted.
        """
        part = _count("Job.write", "part", part)
        if weights is None:
            return Receipt(self._core.write(part, None, None))
        if isinstance(weights, Container):
            return Receipt(self._core.write(part, weights._core, None))
        by_name = weights if callable(weights) else weights.__getitem__

        def made(name: str) -> Any:
            found = by_name(name)
            return found() if callable(found) else found

        return Receipt(self._core.write(part, None, made))

    def write_slices(self, writer: str, slices: Iterable[tuple[str, Iterable[int], Any]]) -> Receipt:
        """Writes all slices that one ``writer`` has, and flushes them. A later call of the same name replaces its receipt: after a
        kill it writes the same slices again.

        Args:
            writer: the name of this process, such as ``rank-3``.
            slices: the name of a tensor, the first index on each axis, and the elements: an array, a tensor of torch, or
                anything else that can be weights.

            >>> import numpy as np
            >>> container = Container.load("encoder.onnx")
            >>> job = Job.plan(container, "slices.onnx", slices=True)
            >>> weights = {it.name: container["#" + it.name].numpy() for it in job.tensors}
            >>> first = job.write_slices("rank-0", [(name, [0] * it.ndim, it[:1]) for name, it in weights.items()])
            >>> other = job.write_slices("rank-1", [(name, [1] + [0] * (it.ndim - 1), it[1:]) for name, it in weights.items()])
            >>> [name for name, _ in job.commit([first, other]).files]
            ['slices.onnx.data', 'slices.onnx']
        """
        return Receipt(self._core.write_slices(writer, ((name, _offsets(offsets), array) for name, offsets, array in slices)))

    def status(self) -> JobStatus:
        """How far the job is, by the receipts in its folder."""
        return JobStatus(*self._core.status())

    def commit(self, receipts: Iterable[Receipt] | None = None) -> Committed:
        """Puts the model and its weights files in place, and removes the folder of the job.

        The model that was there when the job was planned is replaced, and no other. A commit that was killed is done again.

        Args:
            receipts: those that an engine has carried, which are in the folder too; None for all of those.

        Raises:
            Error: tensors that are not written or written twice; the model was replaced by another save meanwhile.
        """
        given = None if receipts is None else [receipt.json for receipt in receipts]
        committed = Committed(**self._core.commit(given))
        for warning in committed.warnings:
            _options.warn(warning)
        return committed

    def abort(self) -> None:
        """Ends the job: its folder is removed with all that was written.

        Raises:
            Error: a commit that was killed had come so far that its model is in place; the job has ended all the same.
        """
        self._core.abort()


def _count(function: str, name: str, value: Any) -> int:
    count = operator.index(value)
    if not 0 <= count < 1 << 32:
        raise ValueError(f"{function}(): {name} is a number from 0 on, not {value}")
    return count


def _offsets(given: Iterable[int]) -> list[int]:
    offsets = [operator.index(it) for it in given]
    if any(not 0 <= it < 1 << 63 for it in offsets):
        raise ValueError(f"Job.write_slices(): offsets are indices from 0 on, not {offsets}")
    return offsets


def _saving(function: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a save. A job has no progress of its own."""
    if options.get("progress") is not None:
        raise TypeError(f"{function}: progress= is of a save: a job has status()")
    return _options.save(function, **options)
