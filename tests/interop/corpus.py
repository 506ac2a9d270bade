"""The real models: where they are, what to feed them, and which of them a reader refuses to begin with.

What is missing is said aloud. Models outside the repository (../shared) may be absent; those from
PyPI may not when CI is set.
"""

import dataclasses
import os
import pathlib
import zlib

import common
import ml_dtypes
import numpy as np
import onnxruntime as ort

NUMPY_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(bfloat16)": ml_dtypes.bfloat16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint64)": np.uint64,
    "tensor(uint32)": np.uint32,
    "tensor(uint16)": np.uint16,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


@dataclasses.dataclass(frozen=True)
class Model:
    """One model of the corpus."""

    path: pathlib.Path
    shapes: dict = dataclasses.field(default_factory=dict)  # input name -> shape, where it is dynamic
    below: int = 2  # integer inputs are drawn from [0, below)
    fixed: dict = dataclasses.field(default_factory=dict)  # input name -> value, where chance would not do
    refused: str = ""  # what onnxruntime says of the original, where it cannot run it

    def __str__(self) -> str:
        return str(self.path.relative_to(common.ROOT.parent))

    def __hash__(self) -> int:
        return hash(self.path)


SPEECH = {"input": (1, 576), "state": (2, 1, 128)}
RATE = {"sr": 16000}

# Below .models/: path -> how to run it.
FROM_PYPI = {
    "basic-pitch/basic_pitch/saved_models/icassp_2022/nmp.onnx": {
        "shapes": {"serving_default_input_2:0": (1, 43844, 1)}
    },
    "ddddocr/ddddocr/common.onnx": {"shapes": {"input1": (1, 1, 64, 128)}},
    "ddddocr/ddddocr/common_det.onnx": {},
    "ddddocr/ddddocr/common_old.onnx": {"shapes": {"input1": (1, 1, 64, 128)}},
    "magika/magika/models/standard_v3_3/model.onnx": {"shapes": {"bytes": (1, 2048)}, "below": 257},
    "piper-tts/piper/hebrew/nakdimon.onnx": {"shapes": {"input_1": (1, 24)}},
    "piper-tts/piper/tashkeel/model.onnx": {
        "shapes": {"char_inputs": (1, 12), "diac_inputs": (1, 12)},
        "below": 10,
        "fixed": {"input_lengths": [12]},
    },
    "rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": {"shapes": {"x": (1, 3, 96, 64)}},
    "rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": {"shapes": {"x": (1, 3, 48, 64)}},
    "rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": {
        "shapes": {"x": (1, 3, 48, 192)}
    },
    "rapidocr/rapidocr/models/PP-OCRv6_det_small.onnx": {"shapes": {"x": (1, 3, 96, 64)}},
    "rapidocr/rapidocr/models/PP-OCRv6_rec_small.onnx": {"shapes": {"x": (1, 3, 48, 64)}},
    "rapidocr/rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": {"shapes": {"x": (1, 3, 48, 192)}},
    "silero-vad/silero_vad/data/silero_vad.onnx": {"shapes": SPEECH, "fixed": RATE},
    "silero-vad/silero_vad/data/silero_vad_16k_op15.onnx": {"shapes": SPEECH, "fixed": RATE},
    "silero-vad/silero_vad/data/silero_vad_16k_sequence.onnx": {"shapes": {"input": (3, 576)}},
    "silero-vad/silero_vad/data/silero_vad_half.onnx": {"shapes": SPEECH},
    "silero-vad/silero_vad/data/silero_vad_op18_ifless.onnx": {"shapes": SPEECH, "fixed": RATE},
    "silero-vad/silero_vad/data/silero_vad_openvino_16k.onnx": {},
}

# Below ../shared/data/exported: made by torch, with external data.
EXPORTED = {
    "control_flow/model.onnx": {"fixed": {"n": 3}},
    "dtypes/model.onnx": {},
    "functions/model.onnx": {"below": 50},
    "gpt2_tied/model.onnx": {"shapes": {"input_ids": (2, 7)}, "below": 50},
    "llama_bf16/model.onnx": {"refused": "Could not find an implementation for Where(16)"},
    "llama_int4/model.onnx": {"shapes": {"input_ids": (2, 7)}, "below": 50},
    "llama_int4/model_uint4.onnx": {"shapes": {"input_ids": (2, 7)}, "below": 50},
}

OWN = {"encoder/encoder.onnx": {"below": 50}}


def _group(base: pathlib.Path, table: dict, required: bool) -> list[Model]:
    """The models of one table that are there; the others are named."""
    missing = [name for name in table if not (base / name).is_file()]
    if missing:
        note = f"{len(missing)} of {len(table)} models are not in {base.name}: {', '.join(missing)}"
        assert not required, note
        print(f"SKIPPED {note}")
    return [Model(base / name, **how) for name, how in table.items() if name not in missing]


def models() -> list[Model]:
    """Every real model that is there."""
    own = _group(common.ROOT / "tests" / "data", OWN, required=True)
    fetched = _group(common.MODELS, FROM_PYPI, required=bool(os.environ.get("CI")))
    return own + fetched + _group(common.SHARED / "data" / "exported", EXPORTED, required=False)


def node_models() -> list[pathlib.Path]:
    """The small models of the onnx wheel, one operator or one layer each."""
    return sorted(common.NODE_TESTS.rglob("*.onnx"))


def session(path) -> ort.InferenceSession:
    """onnxruntime on one thread, so that two runs add in the same order."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _input(model: Model, node, random: np.random.Generator) -> np.ndarray:
    """One input, of the model's type and shape."""
    dtype = NUMPY_TYPES[node.type]
    if node.name in model.fixed:
        return np.array(model.fixed[node.name], dtype)
    shape = model.shapes.get(node.name, node.shape)
    shape = [size if isinstance(size, int) else 1 for size in shape]
    if np.issubdtype(dtype, np.integer) or dtype is np.bool_:
        return random.integers(0, model.below, shape).astype(dtype)
    return random.uniform(-1, 1, shape).astype(dtype)


def inputs(model: Model, runner: ort.InferenceSession) -> dict[str, np.ndarray]:
    """The same inputs for a model every time."""
    random = np.random.default_rng(zlib.crc32(model.path.name.encode()))
    return {node.name: _input(model, node, random) for node in runner.get_inputs()}


def outputs(model: Model, path) -> list[tuple]:
    """What onnxruntime computes from the file at `path` with this model's inputs, bit for bit."""
    runner = session(path)
    results = runner.run(None, inputs(model, runner))
    return [_bits(result) for result in results]


def _bits(value) -> tuple:
    """A result in a form that compares bit for bit, NaN included."""
    if isinstance(value, (list, tuple)):
        return tuple(_bits(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _bits(item)) for key, item in value.items())
    array = np.asarray(value)
    return str(array.dtype), array.shape, array.tolist() if array.dtype == object else array.tobytes()
