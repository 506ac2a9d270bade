"""Saves that many processes write together: :class:`Job`."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Unpack

from . import _core, _options, _patterns, _places, _stores
from ._container import CastReport, Container
from ._dtypes import DataType

if TYPE_CHECKING:
    from ._options import Path, PublishOptions, Size

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

    @property
    def infinite(self) -> list[str]:
        """Weights of which finite numbers became infinite by the cast of a rewrite, or become so when the model runs, by their old
        names, as far as this writer has seen."""
        return sorted(set(json.loads(self.json)["receipt"].get("infinite", ())))


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
    committed: bool = False
    """Whether a commit has put the model in place."""
    infinite: list[str] = field(default_factory=list)
    """That of all written parts, as :attr:`Receipt.infinite`, each weight once; in a folder not known of a job that has ended."""
    ended: bool = False
    """Whether that commit has ended the job. Otherwise it was killed before it did: another one ends it."""
    replaced: bool = False
    """Whether the model was replaced or changed since the job ended."""


@dataclass(frozen=True)
class Committed:
    """What a commit has put in place."""

    files: list[tuple[str, int]]
    """Names and lengths in bytes, the model last."""
    nbytes: int
    digest: str | None
    """That of the model, known from the receipts of parts. Of slices it is known with ``digests=True``: they are read then."""
    removed: list[os.PathLike[str]] | list[str]
    """Old weights files that were removed; in a store, the URLs of old versions."""
    left_behind: list[os.PathLike[str]]
    """Old weights files that only the replaced model needed, and that stay."""
    infinite: list[str]
    """Weights of which finite numbers became infinite by the cast, or become so when the model runs, by their old names; empty
    where an earlier call has ended the job."""
    warnings: list[str]
    """What else is to be known."""
    url: str | None = None
    """Where the model is in its store."""
    e_tag: str | None = None
    """The tag that the store gave it."""
    version: str | None = None
    """The URL of the version of the model that stays beside it."""
    already: bool = False
    """Whether an earlier call had committed the job. In a folder, what that has removed is then not known."""
    replaced: bool = False
    """Whether the model was replaced since by another, which a store tells. In a folder that is an error."""


class Job:
    """A save that many processes write together: each writes its part, and one commit puts all of them in place, in a folder or
    in a store.

    A job has no process, no connection and no credentials: it is pickled, goes as JSON, or is opened by the path or the URL of
    its folder beside the model. Nothing is at the model's path before the commit, which is crash-safe as a save is.

        >>> import numpy as np
        >>> container = Container.load("encoder.onnx")
        >>> job = Job.plan(container, "written.onnx", parts=2)
        >>> receipts = [job.write(part, container) for part in job.parts]     # anywhere, in any order
        >>> job.commit(receipts).digest == container.digest()
        True
    """

    __slots__ = ("_made", "_needs", "_text")

    def __init__(self, core: _core.Job | _core.StoreJob, needs: str | None = None) -> None:
        """Jobs are made by :meth:`plan`, :meth:`rewrite`, :meth:`open` and :meth:`from_json`."""
        self._made: _core.Job | _core.StoreJob | None = core
        self._needs = needs
        self._text = ""

    @property
    def _core(self) -> _core.Job | _core.StoreJob:
        if self._made is None:
            raise ValueError(
                f"the job was made with {self._needs}=, which did not come with it: call job.reached_by({self._needs}=...), or"
                " job.reached_by() where the environment reaches the store"
            )
        return self._made

    @classmethod
    def plan(
        cls, model: Any, path: Path, *, parts: int = 1, slices: bool = False, **options: Unpack[PublishOptions]
    ) -> Job:
        """Plans a save of ``model`` to ``path``, whose weights others write. Of weights that are not there, the type and the
        shape suffice.

        Args:
            model: a :class:`Container`, or what makes one.
            path: where the model will be: a path, a URL such as ``s3://bucket/model.onnx``, or with ``store`` a key there.
            parts: into how many parts the weights are divided. The largest goes to the part that has the least. In a store each
                is one weights file.
            slices: True for a job that is written in slices of tensors, by :meth:`write_slices`, and not in parts.
            store, store_options: see :meth:`Container.load`. They do not go to other processes: see :meth:`reached_by`.
            keep, if_present: in a store, those of :func:`publish`.
            options: those of :meth:`Container.save`, without ``progress`` and ``checksums``; ``files`` writes weights files.

        Raises:
            Error: what a save, or a publication, refuses before it writes.
        """
        container, parts = model if isinstance(model, Container) else Container(model), _count("Job.plan", "parts", parts)
        target = _Target("Job.plan", path, options)
        if not target.is_stored:
            return cls(_core.Job.plan(container._core, path, parts, slices, target.saving))
        if slices:
            raise ValueError("Job.plan(): slices=True is for a job in a folder: in a store, write parts")
        return cls(_core.StoreJob.plan(container._core, target.place, parts, *target.how), target.needs)

    @classmethod
    def rewrite(
        cls,
        source: Path,
        path: Path,
        *,
        parts: int = 1,
        cast: Any = None,
        keep_io: bool = False,
        keep_ops: Iterable[str] | str = (),
        except_: Iterable[str] | str = (),
        paths: Literal["strict", "model-dirs", "trusted"] = "model-dirs",
        limits: Mapping[str, Size] | None = None,
        mmap: bool = True,
        **options: Unpack[PublishOptions],
    ) -> Job:
        """Plans a rewrite of the model ``source`` to ``path``, in another layout. Each part reads from ``source`` what it
        writes.

        Args:
            source: a path that all writers reach; where ``path`` is in a store, also a URL, which the same ``store`` or
                ``store_options`` reach.
            path, parts: see :meth:`plan`.
            cast: the float type that weights are cast to, and computed in.
            keep_io: True leaves inputs and outputs of the model as they are.
            keep_ops: types of operators (``"Softmax"``) or names of nodes that compute in the old type; their weights are cast
                all the same: see ``except_``.
            except_: names of weights that are not cast, or patterns; their operators compute in the new type all the same: see
                ``keep_ops``.
            paths, limits: how a source that is not trusted is opened, as by :meth:`Container.load`. They are part of the job:
                every process opens it so.
            mmap: whether this process maps the file of ``source``, so that weights in it are not all in memory. No process may
                truncate or overwrite it meanwhile, which would end this process; saves of this package replace files, which is
                fine. False reads it. Weights files are read in parts in any case.
            options: those of :meth:`plan`. Tensors that are in ``source`` are in parts with ``externalize=True`` alone.

            >>> job = Job.rewrite("encoder.onnx", "half.onnx", parts=4, cast="float16")
            >>> receipts = [job.write(part) for part in job.parts]
            >>> job.commit().nbytes < Container.load("encoder.onnx").nbytes
            True
        """
        parts, recast = _count("Job.rewrite", "parts", parts), None
        target = _Target("Job.rewrite", path, options, source)
        reading = _options.source("Job.rewrite", mmap, paths=paths, limits=limits)
        if cast is None:
            for name, given in (("keep_io", keep_io), ("keep_ops", keep_ops), ("except_", except_)):
                if given:
                    raise ValueError(f"Job.rewrite(): {name}= is of a cast: give cast=, or leave it out")
        else:
            how: dict[str, Any] = {"weights": False, "paths": paths, "limits": limits, "mmap": mmap, **target.source_options}
            kept: tuple[list[str], list[str]] = ([], [])
            if except_ or keep_ops:
                known = Container.load(source, **how)._core
                excepted = _patterns.selected("Job.rewrite", sorted(known.names()), except_) if except_ else []
                kept = excepted, _options.kept_ops("Job.rewrite", keep_ops, known)
            recast = int(DataType.of(cast)), keep_io, *kept
        core: _core.Job | _core.StoreJob
        if target.is_stored:
            core = _core.StoreJob.rewrite(os.fsdecode(source), target.place, parts, recast, *target.how, reading)
        else:
            core = _core.Job.rewrite(source, path, parts, recast, target.saving, reading)
        if not core.files:
            _options.warn(
                "Job.rewrite(): the parts have nothing to write: all tensors are in the model (externalize=True moves them out)"
            )
        return cls(core, target.needs)

    @classmethod
    def open(cls, path: Path, *, store: Any = None, store_options: Mapping[str, str | int | bool] | None = None) -> Job:
        """The job whose folder, or the ``job.json`` in it, is at ``path``: a path, a URL, or with ``store`` a key there."""
        how, needs = _places.reached("Job.open", store, store_options), _needs(store, store_options)
        if _places.is_stored(path, store):
            return cls(_core.StoreJob.open(_places.in_store("Job.open", path, store), how), needs)
        _refuse_in_folder("Job.open", path, needs)
        return cls(_core.Job.open(path))

    @classmethod
    def from_json(cls, text: str, *, store: Any = None, store_options: Mapping[str, str | int | bool] | None = None) -> Job:
        """The job of :meth:`to_json`. One in a store is reached by ``store`` or ``store_options``, as by :meth:`Container.load`,
        and by the environment where neither is given."""
        how, needs = _places.reached("Job.from_json", store, store_options), _needs(store, store_options)
        if hasattr(_core, "StoreJob") and _core.StoreJob.is_json(text):
            return cls(_core.StoreJob.from_json(text, how), needs)
        job = _core.Job.from_json(text)
        _refuse_in_folder("Job.from_json", job.path, needs)
        return cls(job)

    def to_json(self) -> str:
        """The job as JSON, some 100 characters for each tensor. It has neither credentials nor how its store is reached."""
        return self._text if self._made is None else self._made.to_json()

    def reached_by(self, *, store: Any = None, store_options: Mapping[str, str | int | bool] | None = None) -> Job:
        """The same job, whose store is reached so by this process; by the environment where nothing is given.

        A job that was made with ``store`` or ``store_options`` is pickled without them. In another process it raises where it
        needs them, until this gives them again.

            >>> import pickle
            >>> from obstore.store import MemoryStore
            >>> container, store = Container.load("encoder.onnx"), MemoryStore()
            >>> job = Job.plan(container, "m.onnx", parts=2, store=store)
            >>> other = pickle.loads(pickle.dumps(job)).reached_by(store=store)
            >>> receipts = [other.write(part, container) for part in other.parts]
            >>> other.commit().url
            'memory://m.onnx'
        """
        return Job.from_json(self.to_json(), store=store, store_options=store_options)

    def __reduce__(self) -> tuple[Callable[..., Job], tuple[str, ...]]:
        if self._needs is None:
            return Job.from_json, (self.to_json(),)
        return _unpickled, (self.to_json(), self._needs)

    def __copy__(self) -> Job:
        return self

    def __deepcopy__(self, memo: Any) -> Job:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        if self._made is None:
            return f"<Job {self.id} that needs {self._needs}=: see reached_by>"
        return f"<Job {self.id} of {self.path!r}: {len(self.parts)} parts, {len(self._core.tensors)} tensors>"

    @property
    def id(self) -> str:
        """What tells the job from others of the model."""
        return str(json.loads(self._text)["job"]["id"]) if self._made is None else self._made.id

    @property
    def path(self) -> str:
        """Where the model will be: a path, or a URL."""
        return os.fspath(self._core.path)

    @property
    def folder(self) -> str:
        """The folder beside the model that has what is written until the commit. In a store it is a URL, and has the receipts."""
        return os.fspath(self._core.folder)

    @property
    def cast_report(self) -> CastReport | None:
        """What the cast of :meth:`rewrite` does; None where there is none, and where the job was opened or unpickled. Which weights
        became infinite is known when they are written: see :meth:`status`."""
        found = None if self._made is None else self._made.cast_report
        return None if found is None else CastReport(*found)

    @property
    def parts(self) -> range:
        """The numbers of the parts; none where the job is written in slices."""
        return range(self._core.parts)

    @property
    def files(self) -> list[tuple[str, int]]:
        """The weights files, with their lengths in bytes. In a store the commit gives them names of their content."""
        return self._core.files

    @property
    def tensors(self) -> list[PlannedTensor]:
        """All tensors, in the order of the files and of their offsets."""
        return [
            PlannedTensor(name, DataType(dtype), tuple(dims), file, offset, nbytes, part)
            for name, dtype, dims, file, offset, nbytes, part in self._core.tensors
        ]

    def _sizes(self) -> Iterable[tuple[int, int]]:
        """Parts, perhaps several times, and bytes that they have, as :meth:`status` counts them."""
        if isinstance(self._core, _core.Job):
            return ((it.part, it.nbytes) for it in self.tensors)
        return enumerate(nbytes for _, nbytes in self.files)

    def write(
        self, part: int, weights: Container | Mapping[str, Any] | Callable[[str], Any] | None = None, *, mmap: bool = True
    ) -> Receipt:
        """Writes a part. Any number of processes may, at once or again: a part that is written is not written again.

        Args:
            weights: a container, or anything that can be weights by the names of :attr:`tensors`, or functions that return that:
                a mapping, or a function,
                which is called for each tensor when it is written, by several threads. None for a rewrite. In a store, two runs
                of a part leave two files, except of a container or a rewrite; :func:`sweep` removes the one that no model names.
            mmap: of a rewrite, as that of :meth:`rewrite`: whether this process maps the file of the source.

        Raises:
            Error: weights of another type or shape; a source that has changed; the job was committed or aborted.
        """
        part, mmap = _count("Job.write", "part", part), _options.is_mapped("Job.write", mmap, weights)
        if weights is None:
            return Receipt(self._core.write(part, None, None, mmap))
        if isinstance(weights, Container):
            return Receipt(self._core.write(part, weights._core, None, mmap))
        by_name = weights if callable(weights) else weights.__getitem__

        def made(name: str) -> Any:
            found = by_name(name)
            return found() if callable(found) else found

        return Receipt(self._core.write(part, None, made, mmap))

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
        core = self._core
        if not isinstance(core, _core.Job):
            raise ValueError("Job.write_slices() is for a job in a folder: in a store, write parts")
        return Receipt(core.write_slices(writer, ((name, _offsets(offsets), array) for name, offsets, array in slices)))

    def status(self) -> JobStatus:
        """How far the job is, by the receipts in its folder; of one that a commit has ended, as :meth:`commit` finds it.

        Raises:
            MissingFileError: the job was aborted, or it cannot be told how it ended.
        """
        return JobStatus(*self._core.status())

    def commit(self, receipts: Iterable[Receipt] | None = None) -> Committed:
        """Puts the model and its weights files in place, and removes the folder of the job.

        The model that was there when the job was planned is replaced, and no other. A commit that was killed is done again, and
        one that was done is found (``already``): in a folder on Linux, as long as its weights files are in place, in a store
        until the next :func:`sweep`. In a store the weights files of the old model stay for a sweep.

        Args:
            receipts: those that an engine has carried, which are in the folder too; None for all of those.

        Raises:
            Error: tensors that are not written or written twice; the model was replaced by another save meanwhile.
            MissingFileError: the job was aborted, or it cannot be told how it ended.
        """
        given = None if receipts is None else [receipt.json for receipt in receipts]
        committed = Committed(**self._core.commit(given))
        for warning in committed.warnings:
            _options.warn(warning)
        return committed

    def abort(self) -> None:
        """Ends the job: its folder is removed with all that was written. In a store, weights files stay for a :func:`sweep`.

        Raises:
            Error: a commit that was killed had come so far that its model is in place; in a store, a commit had begun and may
                still publish its model. The job has ended all the same.
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


class _Target:
    """Where the model of a job will be, and how it is written there."""

    def __init__(self, function: str, path: Any, options: Mapping[str, Any], source: Any = None) -> None:
        given = dict(options)
        if given.get("progress") is not None:
            raise TypeError(f"{function}(): progress= is of a save: a job has status()")
        store, named = given.pop("store", None), given.pop("store_options", None)
        reached, self.needs = _places.reached(function, store, named), _needs(store, named)
        self.is_stored = _places.is_stored(path, store)
        self.source_options: dict[str, Any] = {}
        if not self.is_stored:
            _refuse_in_folder(function, path, self.needs)
            _places.refuse_url(function, source, "let path be a URL too, or save Container.load(url) to a folder first")
            if idle := _stores.PUBLISHING.keys() & given.keys():
                raise ValueError(f"{function}(): {', '.join(sorted(idle))} is for jobs in stores, and {path!r} is a path")
            self.saving = _options.save(function, **given)
            return
        self.place = _places.in_store(function, path, store)
        if _places.is_within(source, store):
            self.source_options = {"store": store}
        elif _places.is_url(source):
            self.source_options = {"store_options": named}
        else:
            _places.refuse_url(function, source, "give it as a str")
        self.how = *_publication(function, given), reached


def _publication(function: str, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """How the files are laid out, and how the model is published."""
    _options.checked(function, given, {**_options.SAVE_DEFAULTS, **_stores.PUBLISHING})  # which knows all of them for a hint
    if idle := _options.IDLE_IN_STORES & given.keys():
        raise ValueError(f"{function}(): {', '.join(sorted(idle))} has no effect in a store: nothing is written to a disk")
    publishing = _stores.publishing(function, given)
    return _options.save(function, **given), publishing


def _needs(store: Any, store_options: Any) -> str | None:
    """What has to be given again in another process."""
    return "store" if store is not None else "store_options" if store_options else None


def _refuse_in_folder(function: str, path: Any, needs: str | None) -> None:
    _places.refuse_url(function, path, "give it as a str")  # what pathlib made of one
    if needs is not None:
        raise ValueError(f"{function}(): {needs} is for jobs in stores, and {os.fsdecode(path)!r} is a path")


def _unpickled(text: str, needs: str) -> Job:
    job = Job.__new__(Job)
    job._made, job._needs, job._text = None, needs, text
    return job
