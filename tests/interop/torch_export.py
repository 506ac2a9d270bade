"""onnxruntime on what the example torch_export writes: it computes what tch computed there.

The example is named in $ONNX_CONTAINER_TORCH_EXPORT, because it needs a libtorch to be built.
"""

import os
import subprocess

import common
import numpy as np
import onnx
import onnxruntime

WORDS = np.array([3, 1, 4, 1, 5])


def run(folder, model: str, feeds: dict) -> np.ndarray:
    """The model's one output."""
    onnx.checker.check_model(str(folder / model))
    return onnxruntime.InferenceSession(folder / model, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def exported() -> None:
    """All models of the example."""
    with common.scratch() as folder:
        subprocess.run([os.environ["ONNX_CONTAINER_TORCH_EXPORT"], folder], check=True, timeout=300)
        x = np.arange(32, dtype=np.float32).reshape(4, 8)
        np.testing.assert_array_equal(run(folder, "demo_torch.onnx", {"x": x}), x + 1)
        scores = np.fromfile(folder / "scores.f32", np.float32).reshape(len(WORDS), -1)
        assert scores.std() > 0.01, "scores that hardly differ show nothing"
        for model in ("tagger.onnx", "optimized.onnx"):
            np.testing.assert_allclose(run(folder, model, {"words": WORDS}), scores, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    common.run_all("torch_export", exported, [()], workers=1)
    common.finish()
