"""Weights as another float type: numbers as numpy and ml_dtypes have them, models that run, flat memory."""

import os
import pathlib
import subprocess
import sys

import common
import corpus
import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

NUMPY = {"FLOAT": np.dtype(np.float32), "FLOAT16": np.dtype(np.float16), "BFLOAT16": np.dtype(ml_dtypes.bfloat16)}
# Lower halves of a FLOAT, for every upper one: zero, ties of both types, what lies beside them, and
# both ends.
LOWER = (0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001, 0xF000, 0xFFFF)
# What rounded weights may change in an output, relative to its largest value.
COMPUTING = 0.1  # and what a graph that computes in FLOAT16 may
TOLERANCE = {"FLOAT16": 0.02, "BFLOAT16": 0.15}


def cast(*arguments) -> list[int]:
    """Runs the driver; gives tensors, bytes before, bytes after, tensors left out. A cast of nothing is an error there."""
    command = [os.environ["ONNX_CONTAINER_CAST"], *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if "nothing is cast" in done.stderr:
        return [0, 0, 0, 0]
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


def bit_patterns(dtype: np.dtype) -> np.ndarray:
    upper = np.arange(1 << 16, dtype=np.uint32)
    if dtype.itemsize == 2:
        return upper.astype(np.uint16)
    return (upper[:, None] << 16 | np.array(LOWER, np.uint32)).ravel()


def numbers(source: str, target: str) -> None:
    """Every code (of FLOAT: 850,000): equal bits; for a NaN, a NaN of the same sign."""
    given = bit_patterns(NUMPY[source])
    tensor = TensorProto(name="w", data_type=getattr(TensorProto, source), dims=given.shape, raw_data=given.tobytes())
    result = helper.make_tensor_value_info("y", tensor.data_type, given.shape)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "numbers", [], [result], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with common.scratch() as folder:
        onnx.save(model, folder / "in.onnx")
        assert cast(folder / "in.onnx", folder / "out.onnx", source, target, 0)[0] == 1
        out = onnx.load(folder / "out.onnx")
    found = out.graph.initializer[0]
    assert found.data_type == getattr(TensorProto, target), found.data_type
    with np.errstate(all="ignore"):
        expected = given.view(NUMPY[source]).astype(NUMPY[target])
    found = np.frombuffer(found.raw_data, NUMPY[target])
    unsigned = {2: np.uint16, 4: np.uint32}[found.itemsize]
    nan = np.isnan(expected)
    assert (np.isnan(found) == nan).all()
    assert (np.signbit(found) == np.signbit(expected)).all()
    assert (found.view(unsigned) == expected.view(unsigned))[~nan].all()
    print(f"{source} to {target}: {len(given)} numbers, {nan.sum()} of them NaN")


def computing(model: corpus.Model, target: str) -> str:
    """The graph computes in the new type, and onnx infers the types that it declares."""
    opsets = [entry.version for entry in onnx.load(model.path, load_external_data=False).opset_import if not entry.domain]
    if target == "BFLOAT16" and min(opsets) < 13:
        return "its operator set has no Cast to BFLOAT16"
    done, strict = [], infers(model)
    for how in ([], ["io"]):
        with common.scratch() as folder:
            path = folder / "out.onnx"
            *_, nodes, kept = cast(model.path, path, "FLOAT", target, 0, "compute", *how)
            onnx.checker.check_model(str(path), full_check=strict)
            done.append(f"{nodes} nodes, {kept} kept")
            if target == "FLOAT16" and not model.refused:  # onnxruntime has few operators of BFLOAT16 for processors
                runs(model, path)
    return "; ".join(done)


def infers(model: corpus.Model) -> bool:
    """Whether onnx infers the types of the original."""
    try:
        onnx.checker.check_model(str(model.path), full_check=True)
    except onnx.shape_inference.InferenceError:
        return False
    return True


def runs(model: corpus.Model, path: pathlib.Path) -> None:
    """onnxruntime computes about the same in FLOAT16."""
    plain, other = corpus.session(model.path), corpus.session(path)
    given = corpus.inputs(model, plain)
    types = {one.name: corpus.NUMPY_TYPES[one.type] for one in other.get_inputs() if one.type in corpus.NUMPY_TYPES}
    cast_inputs = {name: np.asarray(value).astype(types[name]) for name, value in given.items()}
    for expected, found in zip(plain.run(None, given), other.run(None, cast_inputs), strict=True):
        compare(expected, np.asarray(found).astype(np.asarray(expected).dtype), COMPUTING)


def real_model(model: corpus.Model, target: str) -> str:
    """onnx checks the result, and onnxruntime computes about the same."""
    opsets = [entry.version for entry in onnx.load(model.path, load_external_data=False).opset_import if not entry.domain]
    if target == "BFLOAT16" and min(opsets) < 13:
        return "its operator set has no Cast to BFLOAT16"
    with common.scratch() as folder:
        path = folder / "out.onnx"
        count, before, after, *_ = cast(model.path, path, "FLOAT", target, 1024)
        if count == 0:
            return "nothing"
        assert after * 2 == before, (before, after)
        onnx.checker.check_model(str(path))
        plain, other = corpus.session(model.path), corpus.session(path)
        given = corpus.inputs(model, plain)
        for expected, found in zip(plain.run(None, given), other.run(None, given), strict=True):
            compare(expected, found, TOLERANCE[target])
    return f"{count} tensors"


def by_command(model: corpus.Model) -> str:
    """What the command writes runs in onnxruntime, on the inputs of the original."""
    with common.scratch() as folder:
        path = folder / "out.onnx"
        done = common.run("cast", model.path, path, "--to", "float16", "--keep-io", "--no-sync")
        if done.returncode:
            assert "nothing is cast" in done.said, done.said
            return "nothing"
        if not model.refused:
            runs(model, path)
    return "done"


def compare(expected, found, tolerance: float) -> None:
    if isinstance(expected, list):
        for one, other in zip(expected, found, strict=True):
            compare(one, other, tolerance)
        return
    assert expected.dtype == found.dtype, (expected.dtype, found.dtype)
    if not np.issubdtype(expected.dtype, np.floating):
        return  # an index or a class may be another
    assert expected.shape == found.shape or expected.ndim == found.ndim
    if expected.shape == found.shape and expected.size:
        scale = max(float(np.abs(expected).max()), 1e-3)
        difference = float(np.abs(expected.astype(np.float64) - found.astype(np.float64)).max())
        assert difference <= tolerance * scale, (difference, scale)


def flat_memory(target: str) -> None:
    """Generated weights, cast and saved: what that takes does not grow with the model."""
    # By two threads, which have few weights in flight.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    peaks = []
    for mib in (128, 512):
        with common.scratch() as folder:
            command = [os.environ["ONNX_CONTAINER_CAST"], "generate", folder / "out.onnx", "FLOAT", target, str(mib)]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0
            peaks.append(usage.ru_maxrss >> 10)
    print(f"FLOAT to {target}: peak RSS {peaks[0]} MiB for 128 MiB, {peaks[1]} MiB for 512 MiB")
    assert peaks[1] <= peaks[0] + 64, peaks


def main() -> None:
    for source in NUMPY:
        for target in NUMPY:
            if source != target:
                numbers(source, target)
    cases = [(model, target) for model in corpus.models() for target in ("FLOAT16", "BFLOAT16")]
    common.run_all("models that are cast", real_model, cases)
    common.run_all("models that compute in the new type", computing, cases)
    common.run_all("models that the command casts", by_command, [(model,) for model in corpus.models()])
    flat_memory("FLOAT16")
    common.finish()


if __name__ == "__main__":
    sys.exit(main())
