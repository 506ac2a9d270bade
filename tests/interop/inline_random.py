"""Random models before and after inlining: onnx.checker takes both, and onnxruntime computes the same bits.

usage: inline_random.py FOLDER, with pairs N.onnx and N.inlined.onnx. onnxruntime reads the functions of
the original itself, so what it computes owes nothing to the inlining. What it does not load, because a model
has more than engines know, is counted and said.
"""

import collections
import multiprocessing
import pathlib
import sys

import common
import numpy as np
import onnx
import onnxruntime


def check(model: onnx.ModelProto) -> str | None:
    """The complaint of the official checker about a model."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # whatever it is, it is compared, not handled
        return str(error)
    return None


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session that computes what the model says, node by node."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feeds(model: onnx.ModelProto, condition: bool) -> dict[str, np.ndarray]:
    """Vectors that differ, and the condition, for the inputs that have no value of their own."""
    given = {}
    own = {tensor.name for tensor in model.graph.initializer}
    for index, value in enumerate(value for value in model.graph.input if value.name not in own):
        if value.type.tensor_type.elem_type == onnx.TensorProto.BOOL:
            given[value.name] = np.array(condition)
        else:
            given[value.name] = np.array([index - 0.75, 1.5 - 2 * index], np.float32)
    return given


def hangs(model: onnx.ModelProto) -> bool:
    """Whether onnxruntime 1.32 never ends loading the model, as it does with some nested functions."""
    attempt = multiprocessing.get_context("fork").Process(target=session, args=(model,))
    attempt.start()
    attempt.join(20)
    if attempt.exitcode is None:
        attempt.kill()
        attempt.join()
        return True
    return False


def pair(before_path: str, after_path: str) -> str:
    """Hold the two models of a pair to each other; what was compared."""
    before, after = common.load(before_path), common.load(after_path)
    if check(before) is None:
        assert (complaint := check(after)) is None, f"onnx.checker: {complaint}"
    if hangs(before):
        return "onnxruntime hangs"
    try:
        original = session(before)
    except Exception:  # more than the engine knows
        return "not for onnxruntime"
    inlined = session(after)
    for condition in (False, True):
        given = feeds(before, condition)
        try:
            expected = original.run(None, given)
        except Exception:  # the model itself does not run on these values
            return "does not run"
        for name, want, got in zip(original.get_outputs(), expected, inlined.run(None, given), strict=True):
            assert want.tobytes() == got.tobytes(), f"{name.name}: {want} became {got}"
    return "same numbers"


def main() -> None:
    """Every pair of the folder."""
    folder = pathlib.Path(sys.argv[1])
    after = sorted(folder.glob("*.inlined.onnx"))
    cases = [(str(path).replace(".inlined.onnx", ".onnx"), str(path)) for path in after]
    tally = collections.Counter(common.run_all("random models, inlined", pair, cases))
    print(dict(tally))
    assert tally["same numbers"] * 3 > len(cases), f"onnxruntime ran too few of them: {tally}"
    common.finish()


if __name__ == "__main__":
    main()
