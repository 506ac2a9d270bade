"""Jobs on Ray: eight workers on this machine, some of which are killed."""

from __future__ import annotations

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx_container as oc
import pytest
import s3
from onnx_container import Container, Job

ray = pytest.importorskip("ray", reason="!!! SKIPPED: ray is not installed (tests/ray-requirements.txt)")

PARTS = 16
NAMES = [f"w{number}" for number in range(32)]
SHAPE = (64, 1023)  # not a multiple of the alignment


def weights(name: str) -> Any:
    return np.random.default_rng(int(name[1:])).standard_normal(SHAPE, np.float32)


def slow(name: str) -> Any:
    """Weights that are there for a while before they are written."""
    time.sleep(0.1)
    return weights(name)


def declared() -> Any:
    return models.add(*((name, 1, SHAPE) for name in NAMES))


def filled() -> Container:
    return Container(declared(), {f"#{name}": weights(name) for name in NAMES})


FOLDER = "a folder"


@dataclasses.dataclass
class Place:
    """Where models are: on the disk, or in a store that the environment reaches."""

    kind: str
    environment: dict[str, str]


@pytest.fixture(scope="module", params=[FOLDER, s3.MOTO, s3.SEAWEEDFS])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == FOLDER:
        yield Place(FOLDER, {})
        return
    with s3.server("Ray writes no model to it", request.param) as environment:
        if environment is None:
            pytest.skip(f"!!! SKIPPED: no {request.param}")
        yield Place(request.param, environment)


@pytest.fixture(scope="module", autouse=True)
def clusters() -> Iterator[None]:
    """Workers find this module, and the last cluster ends."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def cluster(request: pytest.FixtureRequest) -> None:
    """A cluster whose workers have the environment of the driver. It is kept for the next test, unless the store is another one."""
    asked = request.getfixturevalue("place").environment if "place" in request.fixturenames else {}
    if ray.is_initialized() and asked.items() <= os.environ.items():
        return
    ray.shutdown()
    os.environ.update(asked)
    ray.init(num_cpus=8, include_dashboard=False, logging_level="ERROR", log_to_driver=False)


@pytest.fixture
def at(place: Place, tmp_path: Path) -> Callable[[str], str]:
    """The path or URL of a model."""
    return lambda name: str(tmp_path / name) if place.kind == FOLDER else f"s3://models/{tmp_path.name}/{name}"


def children(of: int) -> list[int]:
    """The processes that this one has started, and those that they have."""
    own = []
    for task in Path(f"/proc/{of}/task").glob("*/children"):
        try:
            own += [int(pid) for pid in task.read_text().split()]
        except OSError:
            continue
    return own + [pid for child in own for pid in children(child)]


def writing() -> list[int]:
    """The workers that write a part."""
    found = []
    for pid in children(os.getpid()):
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::_write"):
            found.append(pid)
    return found


class Killer(threading.Thread):
    """Kills workers while they write."""

    def __init__(self, most: int) -> None:
        super().__init__(daemon=True)
        self.most, self.killed, self.ended = most, 0, threading.Event()

    def run(self) -> None:
        rng = np.random.default_rng(7)
        while self.killed < self.most and not self.ended.wait(0.15):
            if found := writing():
                os.kill(int(rng.choice(found)), signal.SIGKILL)
                self.killed += 1


def contents(folder: Path) -> dict[str, bytes]:
    return {it.name: it.read_bytes() for it in folder.iterdir() if it.is_file()}


def test_workers_that_are_killed_are_replaced(at: Callable[[str], str], tmp_path: Path) -> None:
    job = Job.plan(declared(), at("m.onnx"), parts=PARTS)
    told: list[tuple[int, int]] = []
    total = job.status().nbytes
    killer = Killer(4)
    killer.start()
    committed = oc.ray.run(job, weights=slow, max_retries=-1, in_flight=10, progress=lambda done, total: told.append((done, total)))
    killer.ended.set()
    killer.join()
    assert killer.killed > 0
    assert committed.digest == filled().digest() == Container.load(at("m.onnx")).digest()
    assert len(told) == PARTS and told[-1] == (total, total) and told == sorted(told)
    if committed.url is None:
        written = contents(tmp_path)
        filled().save(tmp_path / "m.onnx", overwrite=True)
        assert contents(tmp_path) == written and list(written) == os.listdir(tmp_path)


def test_a_rewrite_in_parts_is_that_of_one_process(at: Callable[[str], str], tmp_path: Path) -> None:
    source = at("source.onnx")
    filled().publish(source) if source.startswith("s3:") else filled().save(source)
    expected = filled()
    expected.cast("float16", compute=True)
    job = Job.rewrite(source, at("half.onnx"), parts=PARTS, cast="float16")
    receipts = oc.ray.run(job, commit=False)
    assert len(receipts) == PARTS and job.status().missing == []
    # Engines run a task twice, also at once.
    write = ray.remote(Job.write)
    again = ray.get([write.remote(job, part) for part in [*job.parts, *job.parts][: PARTS + 6]])
    assert oc.ray.run(job, commit=False) == []
    committed = job.commit(again)
    if committed.url is not None or sys.platform == "linux":  # elsewhere files have no marks of a commit
        assert oc.ray.run(job, commit=False) == []
    assert committed.digest == expected.digest() == Container.load(at("half.onnx")).digest()
    (tmp_path / "alone").mkdir()
    alone = Job.rewrite(source, at("alone/half.onnx"), parts=PARTS, cast="float16")
    done = alone.commit([alone.write(part) for part in alone.parts])
    # Those of a store are called by the SHA-256 of their bytes.
    assert (done.files, done.digest) == (committed.files, committed.digest)
    for name, it in contents(tmp_path / "alone").items():
        assert it == (tmp_path / name).read_bytes()


def test_parts_at_once_of_other_runs_do_no_harm(at: Callable[[str], str]) -> None:
    job = Job.plan(declared(), at("m.onnx"), parts=4)
    write = ray.remote(Job.write)
    ray.get([write.remote(job, part, weights) for part in job.parts for _ in range(4)])
    assert oc.ray.run(job).digest == filled().digest() == Container.load(at("m.onnx")).digest()


DRIVER = """
import os, pickle, sys
import onnx_container as oc, ray
from test_ray import slow
job = pickle.loads(bytes.fromhex(sys.stdin.read()))
ray.init(num_cpus=8, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
oc.ray.run(job, weights=slow, in_flight=2, progress=lambda done, total: print(done, flush=True))
"""


def test_a_driver_that_is_killed_leaves_the_parts_to_another_process(at: Callable[[str], str]) -> None:
    job = Job.plan(declared(), at("m.onnx"), parts=PARTS)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # In a group of its own: its cluster ends with it.
    driver = subprocess.Popen([sys.executable, "-c", textwrap.dedent(DRIVER)], start_new_session=True, **pipes)
    try:
        assert driver.stdin is not None and driver.stdout is not None
        driver.stdin.write(pickle.dumps(job).hex())
        driver.stdin.close()
        for _ in range(3):
            assert driver.stdout.readline()
    finally:
        driver.kill()
        driver.wait()
    opened = Job.open(job.folder)
    done = opened.status().done
    assert 3 <= len(done) < PARTS
    with pytest.raises(FileNotFoundError):
        Container.load(at("m.onnx"))
    receipts = oc.ray.run(opened, weights=weights, commit=False)
    assert len(receipts) <= PARTS - len(done)
    commit = f"import onnx_container as oc; print(oc.Job.open({job.folder!r}).commit().digest)"
    ended = subprocess.run([sys.executable, "-c", commit], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == filled().digest() == Container.load(at("m.onnx")).digest()


def wrong(name: str) -> Any:
    if name == "w3":
        raise LookupError("there is no such checkpoint")
    return weights(name)


def test_a_part_that_fails_is_named_and_the_others_are_kept(at: Callable[[str], str]) -> None:
    job = Job.plan(declared(), at("m.onnx"), parts=PARTS)
    part = next(it.part for it in job.tensors if it.name == "w3")
    with pytest.raises(RuntimeError, match=f"part {part} of {PARTS} failed: LookupError: there is no such checkpoint") as raised:
        oc.ray.run(job, weights=wrong)
    assert isinstance(raised.value.__cause__, LookupError)
    assert part in job.status().missing
    committed = oc.ray.run(job, weights=weights)
    assert committed.digest == filled().digest()


def test_the_error_of_a_worker_is_told(tmp_path: Path) -> None:
    filled().save(tmp_path / "source.onnx")
    job = Job.rewrite(tmp_path / "source.onnx", tmp_path / "m.onnx", parts=2)
    os.remove(tmp_path / "source.onnx")
    with pytest.raises(RuntimeError, match="source.onnx") as raised:
        oc.ray.run(job)
    cause = raised.value.__cause__
    assert isinstance(cause, FileNotFoundError) and isinstance(cause, oc.Error) and cause.kind == "MissingFile"


def dies(name: str) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_part_whose_workers_die_again_and_again_is_named(tmp_path: Path) -> None:
    job = Job.plan(declared(), tmp_path / "m.onnx", parts=2)
    with pytest.raises(RuntimeError, match=r"part [01] of 2 failed: WorkerCrashedError"):
        oc.ray.run(job, weights=dies, max_retries=1)
    job.abort()


def test_progress_ends_a_run(tmp_path: Path) -> None:
    job = Job.plan(declared(), tmp_path / "m.onnx", parts=PARTS)

    def raises(done: int, total: int) -> None:
        raise LookupError("enough")

    for progress, error in ((lambda done, total: False, RuntimeError), (raises, LookupError)):
        with pytest.raises(error, match="progress ended the run|enough"):
            oc.ray.run(job, weights=slow, in_flight=2, progress=progress)
    assert 2 <= len(job.status().done) < PARTS
    assert oc.ray.run(job, weights=weights).digest == filled().digest()


def test_a_bound_on_tasks_holds(tmp_path: Path) -> None:
    job = Job.plan(declared(), tmp_path / "m.onnx", parts=PARTS)
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], len(writing()))

    looker = threading.Thread(target=look)
    looker.start()
    oc.ray.run(job, weights=slow, in_flight=3)
    ended.set()
    looker.join()
    assert 1 <= most[0] <= 3


def test_what_cannot_run_is_refused(tmp_path: Path) -> None:
    job = Job.plan(declared(), tmp_path / "m.onnx", parts=2)
    for given, error, said in (
        ({"in_flight": 0}, ValueError, "from 1 on"),
        ({"progress": 3}, TypeError, "progress is True, or a callable"),
        ({"num_cpu": 3}, ValueError, "num_cpu"),
        ({"mmap": "no"}, TypeError, "ray.run.*mmap is True or False"),
        ({"mmap": False, "weights": weights}, ValueError, "mmap=False is of a rewrite"),
    ):
        with pytest.raises(error, match=said):
            oc.ray.run(job, **given)


@pytest.mark.parametrize("place", [s3.MOTO], indirect=True)
def test_options_of_stores_do_not_go_to_workers(place: Place) -> None:
    job = Job.plan(declared(), "s3://models/options/m.onnx", parts=2, store_options={"aws_region": "us-east-1"})
    with pytest.raises(ValueError, match="was made with store_options=, which does not go to workers"):
        oc.ray.run(job)
    assert oc.ray.run(job.reached_by(), weights=weights).digest == filled().digest()
