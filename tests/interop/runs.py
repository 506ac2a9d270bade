"""The machine on every real model in both numeric profiles, beside onnxruntime: the same outputs within 1e-3 of
the largest value.

    python runs.py             the models that take seconds in a build without optimizations
    python runs.py --all       also the others, for a build with them
    python runs.py --table     the table of docs/machine.md

onnxruntime runs on one thread, and without its own changes of the graph where those alone move the
outputs by more (`LOOSE`).
"""

import pathlib
import sys
import time

import common
import corpus
import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

TOLERANCE = 1e-3

# Models that take a build without optimizations more than half a minute.
HEAVY = ("ddddocr/common_det.onnx",)

# Models of which onnxruntime's own changes of the graph move the outputs by more than the
# tolerance.
LOOSE = ("llama_int4/model.onnx", "llama_int4/model_uint4.onnx")

# Models whose quantization makes large differences out of small ones.
AMPLIFIES = ("ddddocr/common_old.onnx",)

# Models that find text: noise has none, and their outputs for it are zeros with noise.
TEXT = ("det_infer.onnx", "det_small.onnx")


def letters(shape: tuple) -> np.ndarray:
    """An image with dark strokes, white being 1: upright and level bars, as in H, E and L."""
    image = np.ones(shape, np.float32)
    _, _, height, width = shape
    top, bottom = height // 3, 2 * height // 3
    for left in range(8, width - 12, 16):
        image[..., top:bottom, left : left + 3] = -1
        for row in (top, (top + bottom) // 2, bottom - 3):
            image[..., row : row + 3, left : left + 8] = -1
    return image


def inputs(model: corpus.Model, reader: ort.InferenceSession) -> dict:
    given = corpus.inputs(model, reader)
    if not str(model).endswith(TEXT):
        return given
    return {name: letters(value.shape) for name, value in given.items()}


def session(model: corpus.Model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if str(model).endswith(LOOSE):
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])


def ours(model: corpus.Model, given: dict, profile: str, count: int) -> tuple[list, float]:
    """What the machine computes in a numeric profile, and how many seconds the command took."""
    arguments = ["--profile", profile]
    with common.scratch() as folder:
        for i, (name, value) in enumerate(given.items()):
            path = folder / f"given_{i}.pb"
            path.write_bytes(numpy_helper.from_array(np.asarray(value)).SerializeToString())
            arguments += ["--input", f"{name}={path}"]
        start = time.monotonic()
        common.must_run("run", model.path, *arguments, "-o", folder, "--format", "pb", timeout=1200)
        seconds = time.monotonic() - start
        tensors = [onnx.load_tensor(folder / f"output_{i}.pb") for i in range(count)]
    return [numpy_helper.to_array(tensor) for tensor in tensors], seconds


def difference(expected, found) -> float:
    """The largest difference, relative to the largest expected value; types and shapes have to be equal."""
    expected, found = np.asarray(expected), np.asarray(found)
    assert expected.shape == found.shape, (expected.shape, found.shape)
    if expected.dtype == object:
        return float([str(one) for one in expected.ravel()] != [str(one) for one in found.ravel()])
    assert expected.dtype == found.dtype, (expected.dtype, found.dtype)
    if not expected.size:
        return 0.0
    if expected.dtype.kind in "biu":
        return float((expected != found).any())
    expected, found = expected.astype(np.float64), found.astype(np.float64)
    assert (np.isnan(expected) == np.isnan(found)).all(), "a NaN is no NaN"
    return float(np.nanmax(np.abs(expected - found)) / max(np.nanmax(np.abs(expected)), 1e-6))


def worst(expected: list, found: list) -> float:
    return max(difference(*pair) for pair in zip(expected, found, strict=True))


def allowed(model: corpus.Model, reader: ort.InferenceSession, given: dict, expected: list) -> float:
    """The tolerance; of a model that amplifies noise, what onnxruntime makes of noise of 1e-6."""
    if not str(model).endswith(AMPLIFIES):
        return TOLERANCE
    random = np.random.default_rng(0)
    moves = []
    for _ in range(8):
        moved = {
            name: (value * (1 + 1e-6 * random.uniform(-1, 1, value.shape))).astype(value.dtype)
            for name, value in given.items()
        }
        moves.append(worst(expected, reader.run(None, moved)))
    return 2 * max(moves)  # both results are off by the noise of their own roundings


def compare(model: corpus.Model) -> tuple[float, float]:
    reader = session(model)
    given = inputs(model, reader)
    expected = reader.run(None, given)
    limit = allowed(model, reader, given, expected)
    found, seconds = ours(model, given, "strict", len(expected))
    faster, _ = ours(model, given, "fast", len(expected))
    apart, fast = worst(expected, found), worst(expected, faster)
    print(f"{model}: {apart:.1e}, in profile fast {fast:.1e}, of {limit:.1e}, {seconds:.1f} s", flush=True)
    assert max(apart, fast) <= limit, f"{apart:.2e} and {fast:.2e} from onnxruntime"
    return apart, seconds


def main() -> None:
    everything = bool({"--all", "--table"} & set(sys.argv[1:]))
    models = [model for model in corpus.models() if not model.refused]
    chosen = [model for model in models if everything or not str(model).endswith(HEAVY)]
    for left in (model for model in models if model not in chosen):
        print(f"!!! SKIPPED without --all: {left}")
    found = common.run_all("models as onnxruntime computes them", compare, [(model,) for model in chosen])
    if "--table" in sys.argv[1:]:
        print("| model | from onnxruntime |\n|---|---|")
        for model, pair in zip(chosen, found, strict=True):
            print(f"| {model} | {pair[0]:.1e} |" if pair else f"| {model} | differs |")
    common.finish()


if __name__ == "__main__":
    main()
