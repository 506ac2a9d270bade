"""Jobs on Ray: the tasks of a cluster write the parts of a :class:`~onnx_container.Job`.

ray is imported when :func:`run` is called, and no other function needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _options, _progress
from ._container import Container
from ._core import MissingFileError
from ._job import Committed, Job, Receipt

if TYPE_CHECKING:
    from ._options import Progress

__all__ = ["run"]


def __dir__() -> list[str]:
    return sorted(__all__)


@overload
def run(
    job: Job,
    *,
    commit: Literal[True] = True,
    num_cpus: float = 1,
    max_retries: int = 3,
    in_flight: int | None = None,
    weights: Container | Mapping[str, Any] | Callable[[str], Any] | None = None,
    progress: Progress | bool | None = None,
    mmap: bool = True,
    **ray_remote_options: Any,
) -> Committed: ...
@overload
def run(
    job: Job,
    *,
    commit: Literal[False],
    num_cpus: float = 1,
    max_retries: int = 3,
    in_flight: int | None = None,
    weights: Container | Mapping[str, Any] | Callable[[str], Any] | None = None,
    progress: Progress | bool | None = None,
    mmap: bool = True,
    **ray_remote_options: Any,
) -> list[Receipt]: ...
def run(
    job: Job,
    *,
    commit: bool = True,
    num_cpus: float = 1,
    max_retries: int = 3,
    in_flight: int | None = None,
    weights: Container | Mapping[str, Any] | Callable[[str], Any] | None = None,
    progress: Progress | bool | None = None,
    mmap: bool = True,
    **ray_remote_options: Any,
) -> Committed | list[Receipt]:
    """Writes the parts of ``job`` that are not written, each by a task of Ray, and commits it. Starts Ray where that was not done.

    Where the driver is killed, or a part fails, what is written stays: ``run(Job.open(job.folder))`` goes on, and ``run(job)``
    also says what was committed. Workers reach the
    folder by its path, and a store by their environment, such as ``runtime_env={"env_vars": {...}}``.

    Args:
        commit: False returns the receipts of the parts that this call has written, and ``job.commit()`` is left to the caller.
            Of a job that is committed there are none.
        num_cpus, ray_remote_options: what a task takes, and other options of ``ray.remote``.
        max_retries: how often a part is written again whose worker died; -1 for always.
        in_flight: how many tasks are with Ray at a time: twice the CPUs of the cluster, where it is None.
        weights: see :meth:`Job.write`. Ray pickles it once.
        progress: True, or a callable that gets the bytes that are written and those of the whole job, after each part. It
            returns False to end the run.
        mmap: see :meth:`Job.write`.

    Raises:
        RuntimeError: a part failed; it names the part and why. No other part begins then, and those that had begun are finished.
    """
    ray = _ray()
    if job._needs is not None:
        raise ValueError(
            f"ray.run(): the job was made with {job._needs}=, which does not go to workers: let their environment reach the"
            " store, and run job.reached_by()"
        )
    _options.refuse_progress("ray.run", progress)
    mmap = _options.is_mapped("ray.run", mmap, weights)
    if not ray.is_initialized():
        ray.init()
    try:
        status = job.status()
    except MissingFileError:
        if not commit:
            raise
        # A driver that was killed may have committed it.
        return job.commit()
    if in_flight is None:
        in_flight = max(1, int(2 * ray.cluster_resources().get("CPU", 1)))
    if in_flight < 1:
        raise ValueError(f"ray.run(): in_flight is a number of tasks from 1 on, not {in_flight}")
    task = ray.remote(num_cpus=num_cpus, max_retries=max_retries, **ray_remote_options)(_write)
    with _progress.shown("ray.run", {"progress": progress}) as shown:
        tasks = _Tasks(ray, task, job, (weights, mmap))
        told = _Told(job, status.bytes_written, status.nbytes, shown["progress"])
        receipts = tasks.run(status.missing, in_flight, told)
    return job.commit() if commit else receipts


def _write(job: Job, part: int, weights: Any, mmap: bool) -> Receipt:
    """What a worker does."""
    return job.write(part, weights, mmap=mmap)


class _Told:
    """Tells how many bytes are written."""

    def __init__(self, job: Job, done: int, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = done, total, progress
        self._bytes = [0] * len(job.parts)
        for part, nbytes in job._sizes():
            self._bytes[part] += nbytes

    def __call__(self, part: int) -> None:
        self._done += self._bytes[part]
        if self._progress is not None and self._progress(self._done, self._total) is False:
            raise RuntimeError(f"ray.run(): progress ended the run after part {part}. What is written stays: run the job again")


class _Tasks:
    """The tasks that are with Ray, of which there are not more at a time than were asked for."""

    def __init__(self, ray: Any, task: Any, job: Job, given: tuple[Any, bool]) -> None:
        self._ray, self._task, self._parts = ray, task, len(job.parts)
        weights, self._mmap = given
        # Once, and not with each task.
        self._job, self._weights = ray.put(job), None if weights is None else ray.put(weights)
        self._running: dict[Any, int] = {}
        self._receipts: dict[int, Receipt] = {}
        self._failed: dict[int, BaseException] = {}

    def run(self, missing: list[int], in_flight: int, told: Callable[[int], None]) -> list[Receipt]:
        """The receipts of the parts, in their order."""
        waiting = iter(missing)
        try:
            while self._begin(waiting, in_flight):
                self._await_one(told)
        except BaseException:
            # The caller does not wait. What was written stays.
            for one in self._running:
                self._ray.cancel(one)
            raise
        self._refuse_failed()
        return [self._receipts[part] for part in missing]

    def _begin(self, waiting: Iterator[int], in_flight: int) -> bool:
        """Begins as many parts as may be with Ray, and none after a failure. False where none is left."""
        while not self._failed and len(self._running) < in_flight:
            part = next(waiting, None)
            if part is None:
                break
            self._running[self._task.remote(self._job, part, self._weights, self._mmap)] = part
        return bool(self._running)

    def _await_one(self, told: Callable[[int], None]) -> None:
        [ended], _ = self._ray.wait(list(self._running), num_returns=1)
        part = self._running.pop(ended)
        try:
            self._receipts[part] = self._ray.get(ended)
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            self._failed[part] = cause if isinstance(cause, BaseException) else error
        else:
            told(part)

    def _refuse_failed(self) -> None:
        if not self._failed:
            return
        part, cause = next(iter(self._failed.items()))
        others = f" {len(self._failed) - 1} more failed." if len(self._failed) > 1 else ""
        raise RuntimeError(
            f"part {part} of {self._parts} failed: {type(cause).__name__}: {cause}.{others} What is written stays: run the job"
            " again, or abort it"
        ) from cause


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"onnx_container.ray runs jobs on Ray: install ray ({error})") from error
    return ray
