"""Jobs in stores: by URL on a server that speaks S3, in an obstore store, and in a filesystem of fsspec."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx_container as oc
import pytest
from onnx_container import Container, Error, Job
from test_stores import ENCODER, SECRET, Place, moto, place, server_options  # noqa: F401

NAMES = ["a", "b", "c", "d"]
SHAPE = (64, 64)


def arrays() -> dict[str, Any]:
    return {name: np.random.default_rng(seed).standard_normal(SHAPE, np.float32) for seed, name in enumerate(NAMES)}


def declared() -> Any:
    return models.add(*((name, 1, SHAPE) for name in NAMES))


def filled() -> Container:
    return Container(declared(), {f"#{name}": it for name, it in arrays().items()})


def planned(place: Place, model: Any = None, key: str = "m.onnx", **options: Any) -> Job:
    if not place.can_replace:
        options.setdefault("if_present", "overwrite")
    return Job.plan(declared() if model is None else model, place.at(key), **place.how, **{"parts": 3, **options})


def write_all(job: Job, weights: Any = None) -> list[oc.Receipt]:
    return [job.write(part, weights) for part in job.parts]


GIVEN: dict[str, Callable[[], Any]] = {
    "mapping": arrays,
    "functions": lambda: {name: lambda it=it: it for name, it in arrays().items()},
    "function": lambda: arrays().__getitem__,
    "container": filled,
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_a_job_publishes_the_model(place: Place, given: Callable[[], Any]) -> None:  # noqa: F811
    job = planned(place, digests=True, keep=2)
    assert list(job.parts) == [0, 1, 2] and job.status().missing == [0, 1, 2] and job.status().writers == []
    receipts = [Job.open(job.folder, **place.how).write(2, given()), *(job.write(part, given()) for part in (1, 0, 0))]
    assert job.status() == oc.JobStatus([0, 1, 2], [], [], job.status().nbytes, sum(nbytes for _, nbytes in job.files))
    with pytest.raises(oc.MissingFileError):
        place.load()
    committed = job.commit(pickle.loads(pickle.dumps(receipts)))
    loaded = place.load()
    assert committed.digest == filled().digest() == loaded.digest()
    assert oc.inspect(place.at("m.onnx"), **place.how).has_digests
    assert (committed.url, committed.e_tag) == (loaded.url, loaded.e_tag) == (job.path, committed.e_tag)
    assert committed.version in oc.versions(place.at("m.onnx"), **place.how)
    assert committed.files[-1][0] == "m.onnx" and len(committed.files) == 4
    assert committed.nbytes == sum(nbytes for _, nbytes in committed.files)
    assert (committed.removed, committed.left_behind, committed.infinite, committed.warnings) == ([], [], [], [])
    assert job.commit() == replace(committed, already=True)
    status = job.status()
    assert (status.committed, status.ended, status.replaced, status.missing) == (True, True, False, [])
    place.publish(Container(models.add(("w", 1, (2,))), {"#w": np.ones(2, np.float32)}), "m.onnx")
    assert job.status() == replace(status, replaced=True)
    assert job.commit() == replace(committed, already=True, replaced=True)


def test_a_rewrite_reads_a_path_or_a_url(place: Place, tmp_path: Path) -> None:  # noqa: F811
    filled().save(tmp_path / "m.onnx")
    url = place.publish(filled(), "source.onnx").url
    expected = filled()
    expected.cast("float16", compute=True, except_=["c", "d"], keep_ops="Identity")
    mode = {} if place.can_replace else {"if_present": "overwrite"}
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), url):
        job = Job.rewrite(source, place.at("half.onnx"), parts=2, cast="float16", except_=["c", "[d]"], keep_ops="Identity", **place.how, **mode)
        write_all(Job.from_json(job.to_json(), **place.how))
        committed = job.commit()
        assert committed.digest == expected.digest() == place.load("half.onnx").digest()
        with pytest.raises(Error, match="nodes"):
            Job.rewrite(source, place.at("other.onnx"), limits={"nodes": 0}, **place.how, **mode)
        other = Job.rewrite(source, place.at("other.onnx"), paths="strict", limits={"nodes": 9}, **place.how, **mode)
        assert other.to_json().count('"limits":{"nodes":9}') == 1
        write_all(other)
        assert other.commit().digest == filled().digest()


def test_what_a_job_is(place: Place) -> None:  # noqa: F811
    job = planned(place)
    assert job.path.endswith("/m.onnx") and job.folder == job.path.replace("m.onnx", f".m.onnx.job-{job.id}")
    reopened = [
        Job.open(job.folder, **place.how),
        Job.open(f"{job.folder}/job.json", **place.how),
        Job.open(place.at(f".m.onnx.job-{job.id}"), **place.how),
        Job.from_json(job.to_json(), **place.how),
        pickle.loads(pickle.dumps(job)).reached_by(**place.how),
    ]
    assert all(it == job and hash(it) == hash(job) and it.files == job.files for it in reopened)
    assert repr(job) == f"<Job {job.id} of {job.path!r}: 3 parts, 4 tensors>"
    assert sorted(it.name for it in job.tensors) == NAMES and {it.part for it in job.tensors} == {0, 1, 2}
    for it in job.tensors:
        assert (it.dtype, it.shape, it.nbytes, it.file) == (oc.DataType.FLOAT, SHAPE, 16384, job.files[it.part][0])
    job.abort()
    for ended in (lambda: Job.open(job.folder, **place.how), job.commit):
        with pytest.raises(oc.MissingFileError, match="it was aborted$"):
            ended()


def test_a_commit_needs_all_parts_and_is_refused_by_another_model(place: Place) -> None:  # noqa: F811
    job = planned(place)
    job.write(0, arrays())
    with pytest.raises(Error, match="parts 1, 2 of 3 are not written") as missing:
        job.commit()
    assert missing.value.kind == "MissingTensor"
    with pytest.raises(Error, match="of another job"):
        job.commit(write_all(planned(place, key="other.onnx"), arrays()))
    write_all(job, arrays())
    if place.can_replace:
        place.publish(ENCODER)
        with pytest.raises(Error) as changed:
            job.commit()
        assert changed.value.kind == "Changed" and place.load().digest() == Container.load(ENCODER).digest()
    job.abort()


def test_what_does_not_fit_is_refused(place: Place) -> None:  # noqa: F811
    job = planned(place, parts=1)
    for wrong, error, said in (
        ({**arrays(), "b": np.zeros((64, 2), np.float32)}, Error, "shape"),
        ({**arrays(), "b": np.zeros(SHAPE, np.float16)}, Error, "FLOAT16"),
        ({}, KeyError, "a"),
    ):
        with pytest.raises(error, match=said):
            job.write(0, wrong)
    with pytest.raises(Error, match="the job is no rewrite"):
        job.write(0)
    with pytest.raises(Error, match="not 7"):
        job.write(7, arrays())
    assert job.status().done == []


# Other processes


def write(job: Job, part: int, how: dict[str, Any] | None) -> oc.Receipt:
    """In another process."""
    return (job if how is None else job.reached_by(**how)).write(part, arrays())


def refused(job: Job) -> tuple[str, list[str]]:
    """In another process, which was not told how the store is reached."""
    said = []
    for call in (lambda: job.write(0, arrays()), job.status, job.commit, job.abort, lambda: job.parts, lambda: job.path):
        try:
            call()
        except ValueError as error:
            said.append(str(error))
    return repr(job), said


@pytest.fixture(scope="module")
def pool() -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool


def test_a_job_of_the_environment_goes_to_another_process(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for name, value in server_options(moto).items():
        monkeypatch.setenv(name.upper(), value)
    job = Job.plan(declared(), "s3://models/process/m.onnx", parts=2)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        receipts = pool.starmap(write, [(job, part, None) for part in job.parts])
    assert job.commit(receipts).digest == Container.load("s3://models/process/m.onnx").digest() == filled().digest()


def test_options_do_not_go_to_another_process(moto: str, pool: Any) -> None:  # noqa: F811
    how = {"store_options": server_options(moto)}
    job = Job.plan(declared(), "s3://models/options/m.onnx", parts=2, **how)
    assert not any(SECRET in text for text in (job.to_json(), repr(job), pickle.dumps(job).decode("latin-1")))
    shown, said = pool.apply(refused, (job,))
    assert shown == f"<Job {job.id} that needs store_options=: see reached_by>"
    assert len(said) == 6 and all("the job was made with store_options=" in it for it in said)
    unpickled = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(job))))
    assert copy.copy(job).status() == copy.deepcopy(job).status() == job.status()
    assert unpickled == job and hash(unpickled) == hash(job) and unpickled.to_json() == job.to_json() and unpickled.id == job.id
    receipts = pool.starmap(write, [(job, part, how) for part in job.parts])
    assert unpickled.reached_by(**how).commit(receipts).digest == filled().digest()


def test_the_store_of_a_caller_does_not_go_to_another_process(pool: Any) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    job = Job.plan(declared(), "m.onnx", parts=2, store=store)
    assert all("the job was made with store=" in it for it in pool.apply(refused, (job,))[1])
    for how in ({}, {"store": pytest.importorskip("fsspec").filesystem("file")}):
        with pytest.raises(Error, match="no URL reaches `memory:/`: give that store"):
            job.reached_by(**how)
    with pytest.raises(oc.MissingFileError, match="it was committed or aborted"):
        job.reached_by(store=type(store)()).status()
    write_all(job.reached_by(store=store), arrays())
    assert job.commit().digest == filled().digest()


def test_a_store_that_has_a_prefix_is_a_part_of_the_url(moto: str) -> None:  # noqa: F811
    config = server_options(moto)
    obstore = pytest.importorskip("obstore.store")
    store = obstore.S3Store("models", prefix="prefix", config=config, client_options={"allow_http": True})
    by_store, by_url = {"store": store}, {"store_options": config}
    job = Job.plan(declared(), "m.onnx", parts=2, **by_store)
    assert job.path == "s3://models/prefix/m.onnx"
    job.reached_by(**by_store).write(0, arrays())
    job.reached_by(**by_url).write(1, arrays())
    assert job.commit().digest == filled().digest()
    job = Job.rewrite(job.path, "s3://models/prefix/copy.onnx", **by_url)
    write_all(job.reached_by(**by_store))
    assert job.commit().digest == Container.load("copy.onnx", **by_store).digest() == filled().digest()
    elsewhere = Job.plan(declared(), "s3://models/elsewhere.onnx", **by_url)
    with pytest.raises(Error, match="s3://models/elsewhere.onnx.*of another store than `s3://models/prefix`"):
        elsewhere.reached_by(**by_store)


def test_other_threads_run_while_a_part_is_written(place: Place) -> None:  # noqa: F811
    """A function of weights waits for another thread."""
    job, goes_on = planned(place, parts=1), threading.Event()

    def waits(name: str) -> Any:
        assert goes_on.wait(60)
        return arrays()[name]

    call = threading.Thread(target=job.write, args=(0, waits))
    call.start()
    goes_on.set()
    call.join()
    assert job.status().done == [0]


def test_a_sweep_keeps_what_a_job_has_written(place: Place) -> None:  # noqa: F811
    job = planned(place, parts=1)
    job.write(0, arrays())
    folder = place.at("") if place.start != "models/" else "models"
    time.sleep(1.1)  # the times that servers tell have seconds
    found = oc.sweep(folder, older_than=1, delete=True, **place.how)
    assert found.swept == [] and [(it.url, it.written) for it in found.jobs] == [(str(job.folder), 1)]
    assert found.jobs[0].age >= timedelta(seconds=1) and "open job: " in repr(found)
    assert job.commit().digest == filled().digest()
    assert oc.sweep(folder, **place.how).jobs == []


# Refusals

URL = "s3://models/m.onnx"
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "slices": (lambda: Job.plan(declared(), URL, slices=True), ValueError, "is for a job in a folder: in a store, write parts"),
    "progress": (lambda: Job.plan(declared(), URL, progress=True), TypeError, "a job has status"),
    "sync": (lambda: Job.plan(declared(), URL, sync=False), ValueError, "sync has no effect in a store"),
    "hint": (lambda: Job.plan(declared(), URL, kep=1), TypeError, "did you mean 'keep'"),
    "mode": (lambda: Job.plan(declared(), URL, if_present="swap"), ValueError, "'replace', 'refuse', 'overwrite' or an e_tag"),
    "both": (lambda: Job.plan(declared(), "m", store=3, store_options={"a": "b"}), ValueError, "a store has its own options"),
    "secret": (lambda: Job.plan(declared(), URL, store_options={"aws_session_token": SECRET.encode()}), TypeError, "is a bytes"),
    "collapsed": (lambda: Job.plan(declared(), Path(URL)), ValueError, "give the URL as a str"),
    "keep": (lambda: Job.plan(declared(), "m.onnx", keep=1), ValueError, "keep is for jobs in stores, and 'm.onnx' is a path"),
    "options": (lambda: Job.plan(declared(), "m.onnx", store_options={"aws_region": "x"}), ValueError, "store_options is for jobs"),
    "source": (lambda: Job.rewrite(URL, "m.onnx"), ValueError, "let path be a URL too"),
    "open": (lambda: Job.open("m.job", store_options={"aws_region": "x"}), ValueError, "store_options is for jobs in stores"),
    "no job": (lambda: Job.open(URL), Error, "this is no job of a model"),
    "read only": (lambda: Job.plan(declared(), "hf://o/r/m.onnx"), Error, "for reading only"),
    "store": (lambda: Job.plan(declared(), "m.onnx", store=3), TypeError, "an obstore store or a filesystem of fsspec, not int"),
}


@pytest.mark.parametrize(("call", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_meaning_is_refused(call: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        call()
    assert SECRET not in str(raised.value)


def test_what_a_job_in_a_store_cannot_do_is_refused() -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    for options, said in (
        ({"files": "per-tensor"}, "ask for parts"),
        ({"checksums": True}, "ask for digests"),
        ({"dry_run": True}, "planned, and not tried"),
        ({"parts": 0}, "not 0"),
    ):
        with pytest.raises(Error, match=said):
            Job.plan(declared(), "m.onnx", store=store, **options)
    job = Job.plan(declared(), "m.onnx", store=store)
    with pytest.raises(ValueError, match="in a store, write parts"):
        job.write_slices("rank-0", [])
    oc.publish(ENCODER, "m.onnx", store=store)
    with pytest.raises(oc.AlreadyExistsError):
        Job.plan(declared(), "m.onnx", store=store, if_present="refuse")


def test_a_job_of_a_folder_has_no_store(tmp_path: Path) -> None:
    job = Job.plan(declared(), tmp_path / "m.onnx")
    assert job.reached_by() == job
    for how in ({"store_options": {"aws_region": "x"}}, {"store": pytest.importorskip("obstore.store").MemoryStore()}):
        with pytest.raises(ValueError, match="is for jobs in stores"):
            job.reached_by(**how)
    assert job.commit([job.write(0, arrays())]).url is None


def test_a_build_without_stores_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    text = Job.plan(declared(), "m.onnx", store=store).to_json()
    assert json.loads(text)["format"] == "onnx-container store job"
    for name in ("Store", "StoreJob", "store_key"):
        monkeypatch.delattr(oc._core, name)
    for call in (lambda: Job.plan(declared(), URL), lambda: Job.open(URL), lambda: Job.rewrite("m", "n", store=store)):
        with pytest.raises(NotImplementedError, match="is without stores"):
            call()
    with pytest.raises(Error, match="onnx-container store job"):
        Job.from_json(text)
    job = Job.plan(declared(), tmp_path / "m.onnx")
    assert pickle.loads(pickle.dumps(job)) == job
