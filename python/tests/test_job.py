"""Jobs: a save that many processes write together."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import onnx_container
import pytest
from onnx import TensorProto, helper
from onnx_container import Container, DataType, Job, Recovered, recover


def model() -> Any:
    """Two weights behind handles, without elements."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 40])],
    )
    for name, dims in (("w", [16, 40]), ("b", [40])):
        tensor = graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"#{name}")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def weights() -> dict[str, Any]:
    return {"w": np.arange(640, dtype=np.float32).reshape(16, 40), "b": np.ones(40, np.float32)}


def filled() -> Container:
    container = Container(model())
    container.update({f"#{name}": it for name, it in weights().items()})
    return container


def contents(folder: Path) -> dict[str, bytes]:
    return {it.name: it.read_bytes() for it in folder.iterdir() if it.is_file()}


def write(folder: str, part: int) -> onnx_container.Receipt:
    """In another process, which has no more than the path."""
    return Job.open(folder).write(part, weights())


def write_pickled(job: Job, part: int) -> onnx_container.Receipt:
    return job.write(part, weights())


@pytest.mark.parametrize("options", [{}, {"files": "per-tensor"}, {"files": "safetensors"}, {"digests": True}])
def test_the_files_are_those_of_a_save(tmp_path: Path, options: Any) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "job").mkdir()
    filled().save(tmp_path / "saved/m.onnx", **options)
    job = Job.plan(model(), tmp_path / "job/m.onnx", parts=2, **options)
    assert [it.name for it in job.tensors] and len(job.parts) == 2
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        receipts = [
            pool.submit(write, job.folder, 1).result(),
            pool.submit(write_pickled, job, 0).result(),
            pool.submit(write_pickled, job, 0).result(),
        ]
    assert job.status().missing == [] and job.status().bytes_written == 2720
    committed = job.commit(pickle.loads(pickle.dumps(receipts)))
    assert committed.digest == filled().digest()
    assert contents(tmp_path / "job") == contents(tmp_path / "saved")
    assert os.listdir(tmp_path / "job") == [*contents(tmp_path / "job")]
    onnx.checker.check_model(str(tmp_path / "job/m.onnx"), full_check=True)


@pytest.mark.parametrize(
    "given", [lambda it: it, lambda it: it.__getitem__, lambda _: filled()], ids=["mapping", "function", "container"]
)
def test_weights_come_by_name(tmp_path: Path, given: Any) -> None:
    job = Job.plan(model(), tmp_path / "m.onnx", parts=2)
    for part in job.parts:
        job.write(part, given(weights()))
    job.commit()
    assert np.array_equal(Container.load(tmp_path / "m.onnx").tensor("w").numpy(), weights()["w"])


def test_slices_of_any_array(tmp_path: Path) -> None:
    job = Job.plan(model(), tmp_path / "m.onnx", slices=True)
    assert list(job.parts) == []
    w, b = weights()["w"], weights()["b"]
    job.write_slices("rank-0", [("w", (0, 0), w[:, :3]), ("b", [0], b)])
    job.write_slices("rank-1", iter([("w", (0, 3), w[:, 3:][::-1][::-1])]))
    assert job.status().writers == ["rank-0", "rank-1"]
    assert job.commit().digest is None
    assert Container.load(tmp_path / "m.onnx").digest() == filled().digest()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    job = Job.plan(model(), tmp_path / "m.onnx")
    for wrong, said in (
        ({"w": np.zeros((40, 16), np.float32), "b": np.zeros(40, np.float32)}, "shape"),
        ({"w": np.zeros((16, 40), np.float16), "b": np.zeros(40, np.float32)}, "FLOAT16"),
    ):
        with pytest.raises(onnx_container.Error, match=said):
            job.write(0, wrong)
    with pytest.raises(KeyError):
        job.write(0, {})
    with pytest.raises(onnx_container.Error, match="w"):
        job.commit()
    assert contents(tmp_path) == {}
    job.abort()
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        job.status()
    sliced = Job.plan(model(), tmp_path / "m.onnx", slices=True)
    for slices, said in (
        ([("w", [0, 0], np.zeros((16, 40), np.int32))], "INT32"),
        ([("w", [1, 0], np.zeros((16, 40), np.float32))], "not within"),
        ([("v", [0], np.zeros(1, np.float32))], "no tensor of this name"),
    ):
        with pytest.raises(onnx_container.Error, match=said):
            sliced.write_slices("r", slices)
    for call in (
        lambda: Job.plan(model(), tmp_path / "n.onnx", parts=-1),
        lambda: Job.rewrite(tmp_path / "n.onnx", tmp_path / "o.onnx", parts=10**30),
        lambda: sliced.write(-1),
        lambda: sliced.write_slices("s", [("b", [-1], np.zeros(1, np.float32))]),
    ):
        with pytest.raises(ValueError, match="from 0 on"):
            call()
    with pytest.raises(TypeError, match="status"):
        Job.plan(model(), tmp_path / "n.onnx", progress=True)


def test_every_part_of_a_rewrite_opens_its_source_as_the_plan_did(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "m").mkdir()
    filled().save(outside / "m.onnx")
    (tmp_path / "m" / "m.onnx").write_bytes((outside / "m.onnx").read_bytes())
    os.symlink(outside / "m.onnx.data", tmp_path / "m" / "m.onnx.data")
    source = tmp_path / "m" / "m.onnx"
    for how in ({}, {"paths": "strict"}):
        with pytest.raises(onnx_container.Error, match="leads out|outside|link"):
            Job.rewrite(source, tmp_path / "o.onnx", **how)
    with pytest.raises(onnx_container.Error, match="nodes"):
        Job.rewrite(source, tmp_path / "o.onnx", paths="trusted", limits={"nodes": 1})
    job = Job.rewrite(source, tmp_path / "o.onnx", paths="trusted", limits={"nodes": 2}, cast="float16", except_="b")
    assert json.loads(job.to_json())["job"]["source"]["options"] == {"paths": "trusted", "limits": {"nodes": 2}}
    pickle.loads(pickle.dumps(job)).write(0)
    assert job.commit().digest is not None
    for given, said in [({"paths": "all"}, "paths"), ({"paths": 3}, "paths is a str"), ({"limits": {"tables": 3}}, 'no "tables"')]:
        with pytest.raises((ValueError, TypeError), match=said):
            Job.rewrite(source, tmp_path / "p.onnx", **given)


def test_numbers_that_become_infinite_are_told_by_receipts_and_the_status(tmp_path: Path) -> None:
    container = filled()
    container.update({"#b": np.full(40, 1e9, np.float32)})
    container.save(tmp_path / "m.onnx")
    job = Job.rewrite(tmp_path / "m.onnx", tmp_path / "half.onnx", parts=2, cast="float16", keep_ops="MatMul")
    assert job.status().infinite == []
    receipts = [job.write(part) for part in job.parts]
    # A node of the model converts it, so that each part has seen it.
    assert [it.infinite for it in receipts] == [["b"], ["b"]]
    assert job.status().infinite == job.commit(receipts).infinite == ["b"]
    other = Job.plan(model(), tmp_path / "o.onnx")
    assert other.write(0, weights()).infinite == other.status().infinite == []


def test_a_rewrite_casts_and_runs(tmp_path: Path) -> None:
    import onnxruntime

    filled().save(tmp_path / "m.onnx")
    job = Job.rewrite(tmp_path / "m.onnx", tmp_path / "half.onnx", parts=3, cast="float16", keep_io=True, files="per-tensor")
    for part in Job.from_json(job.to_json()).parts:
        job.write(part)
    job.commit()
    assert Container.load(tmp_path / "half.onnx").nbytes == 2720 - 1280
    x = np.ones((2, 16), np.float32)
    half, full = (
        onnxruntime.InferenceSession(str(tmp_path / name)).run(None, {"x": x})[0] for name in ("half.onnx", "m.onnx")
    )
    assert np.allclose(half, full, rtol=1e-3)


def test_operators_that_are_named_keep_their_type(tmp_path: Path) -> None:
    filled().save(tmp_path / "m.onnx")
    expected = filled()
    expected.cast("float16", compute=True, keep_ops="Add", except_="b")
    how = {"cast": "float16", "except_": "b"}
    job = Job.rewrite(tmp_path / "m.onnx", tmp_path / "half.onnx", keep_ops=["Add"], **how)
    told = filled().cast("float16", compute=True, keep_ops="Add", except_="b")
    assert job.cast_report == told and told.cast == 1
    assert Job.open(job.folder).cast_report is None and Job.from_json(job.to_json()) == job
    job.write(0)
    assert job.commit().digest == expected.digest()
    assert "Cast" in [node.op_type for node in expected.model_proto.graph.node]
    for alone in ({"keep_ops": "Add"}, {"except_": "b"}, {"keep_io": True}):
        with pytest.raises(ValueError, match=f"{next(iter(alone))}= is of a cast"):
            Job.rewrite(tmp_path / "m.onnx", tmp_path / "o.onnx", **alone)
    with pytest.raises(ValueError, match="Job.rewrite.*keep_ops has 'Softmax': no node has this name"):
        Job.rewrite(tmp_path / "m.onnx", tmp_path / "o.onnx", keep_ops=["Softmax"], **how)


PEAK = """
import sys, onnx_container as oc
from pathlib import Path
exec(sys.argv[1])
print(next(int(it.split()[1]) for it in Path("/proc/self/status").read_text().splitlines() if it.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
def test_a_part_has_its_own_weights_in_memory(tmp_path: Path) -> None:
    values = [onnx.numpy_helper.from_array(np.full(2 << 20, number, np.float32), f"w{number}") for number in range(16)]
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], values)), tmp_path / "m.onnx")
    del values

    def peak(line: str) -> int:
        """The most memory of a process that runs this, in KiB."""
        done = subprocess.run([sys.executable, "-c", PEAK, line], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    plan = "Path('{0}').write_text(oc.Job.rewrite('m.onnx', '{0}.onnx', parts=4, externalize=True, sync=False, mmap={1}).to_json())"
    assert peak(plan.format("mapped", True)) + (32 << 10) < peak(plan.format("read", False))
    write = "oc.Job.from_json(Path('mapped').read_text()).write({}, mmap={})"
    assert peak(write.format(0, True)) + (32 << 10) < peak(write.format(1, False))
    job = Job.from_json((tmp_path / "mapped").read_text())
    for part in job.parts:
        job.write(part)
    job.commit()
    written = Container.load(tmp_path / "mapped.onnx")
    assert [written.tensor(f"w{number}").numpy()[-1] for number in range(16)] == list(range(16))


def test_parts_that_have_nothing_to_write_are_told(tmp_path: Path) -> None:
    filled().save(tmp_path / "m.onnx", files="embedded")
    with pytest.warns(UserWarning, match="nothing to write.*externalize=True"):
        job = Job.rewrite(tmp_path / "m.onnx", tmp_path / "o.onnx", parts=2)
    assert job.files == [] and job.tensors == []
    job.abort()
    assert len(Job.rewrite(tmp_path / "m.onnx", tmp_path / "o.onnx", parts=2, externalize=True).tensors) == 2


def test_a_source_is_mapped_or_not(tmp_path: Path) -> None:
    filled().save(tmp_path / "m.onnx")
    job = Job.rewrite(tmp_path / "m.onnx", tmp_path / "o.onnx", parts=2, mmap=np.False_)
    job.write(0, mmap=False)
    no: Any = "no"
    for call, said in (
        (lambda: job.write(1, mmap=no), "Job.write.*mmap is True or False"),
        (lambda: job.write(1, filled(), mmap=False), "mmap=False is of a rewrite"),
        (lambda: Job.rewrite(tmp_path / "m.onnx", tmp_path / "p.onnx", mmap=no), "Job.rewrite.*mmap is True or False"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            call()
    job.abort()


@pytest.mark.skipif(sys.platform != "linux", reason="files have no marks of a commit here")
def test_a_status_says_that_a_job_is_committed_and_whether_its_model_is_still_there(tmp_path: Path) -> None:
    job = Job.plan(model(), tmp_path / "m.onnx", parts=2)
    other = Job.plan(model(), tmp_path / "o.onnx", parts=2)
    for part in job.parts:
        job.write(part, weights())
    job.commit()
    status = job.status()
    assert (status.committed, status.ended, status.replaced, status.done, status.missing) == (True, True, False, [0, 1], [])
    (tmp_path / "m.onnx").write_bytes(Container(models.add(("w", 1, (2,)))).model_bytes)
    assert job.status() == dataclasses.replace(status, replaced=True)
    other.abort()
    with pytest.raises(onnx_container.MissingFileError, match="aborted"):
        other.status()


def committed_and_left(path: Path) -> Job:
    """A job whose commit was killed at its end."""
    job = Job.plan(filled(), path, parts=2)
    for part in job.parts:
        job.write(part, filled())
    assert not job.status().committed
    kept = Path(job.folder) / "kept"
    kept.write_bytes(b"")
    with pytest.warns(UserWarning, match="not all of the job is removed"):
        job.commit()
    kept.unlink()
    return job


@pytest.mark.skipif(sys.platform != "linux", reason="there are no marks of a commit here")
def test_recover_removes_what_a_killed_commit_left(tmp_path: Path) -> None:
    for name, place in (("a", "a"), ("b", "b/m.onnx")):
        (tmp_path / name).mkdir()
        job = committed_and_left(tmp_path / name / "m.onnx")
        assert recover(tmp_path / place) == Recovered([], [], 0, [], 1)
        assert not Path(job.folder).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="there are no marks of a commit here")
def test_a_status_says_that_a_killed_commit_has_put_the_model_in_place(tmp_path: Path) -> None:
    job = committed_and_left(tmp_path / "m.onnx")
    assert job.status().committed
    assert job.commit().already
    assert not Path(job.folder).exists()


def test_what_a_job_is(tmp_path: Path) -> None:
    job = Job.plan(model(), tmp_path / "m.onnx", parts=2)
    assert job == Job.from_json(job.to_json()) == Job.open(job.folder) == pickle.loads(pickle.dumps(job))
    assert hash(job) == hash(Job.open(job.folder)) and job != 1
    assert repr(job) == f"<Job {job.id} of {job.path!r}: 2 parts, 2 tensors>"
    first = next(it for it in job.tensors if it.name == "w")
    assert (first.dtype, first.shape, first.file, first.nbytes) == (DataType.FLOAT, (16, 40), "m.onnx.data", 2560)
    assert job.files == [("m.onnx.data", max(it.offset + it.nbytes for it in job.tensors))]


def test_a_scan_knows_the_folder_of_a_job(tmp_path: Path) -> None:
    job = Job.plan(model(), tmp_path / "m.onnx")
    scan = onnx_container.scan(tmp_path)
    assert [(os.fspath(path), kind) for path, _, kind in scan.left] == [(job.folder, "job")]
    assert scan.models == [] and scan.orphans == []


def test_a_run_on_ray_needs_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="runs jobs on Ray: install ray"):
        onnx_container.ray.run(Job.plan(model(), tmp_path / "m.onnx"))
