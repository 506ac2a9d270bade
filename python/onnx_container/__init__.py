"""A container for large ONNX models: external data in and out, mapped, verified and crash-safe.

    >>> import onnx_container
    >>> container = onnx_container.Container.load("encoder.onnx")   # weights are mapped
    >>> weight = container.tensor("layer0.qkv").numpy()             # read-only, not copied
    >>> saved = container.save("packed.onnx")                       # and packed.onnx.data
    >>> session = container.inference_session()                     # onnxruntime, on the same maps

``ExtendedModelContainer`` and ``ModelContainer`` are the classes of yobx and onnx; ``save_model``, ``load_model`` and
``external_data_helper`` have onnx's functions, ``onnx_container.ir`` those of onnx_ir. No other package is needed: numpy, onnx,
torch, onnx_ir and onnxruntime are imported when they are used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import external_data_helper, ir
from ._check import Checked, CheckedFolder, CheckedModel, check
from ._container import (
    Attached,
    CastReport,
    Container,
    Exported,
    Externalized,
    Filled,
    Inlined,
    Recovered,
    Saved,
    Stripped,
    check_model,
    findings,
    inline_functions,
    merge,
    recover,
)
from ._core import (
    AccessError,
    AlreadyExistsError,
    Bytes,
    Error,
    IsAFolderError,
    MissingFileError,
    WeightMapping,
    __version__,
    map_file,
    model_that_needs,
)
from ._dtypes import DataType
from ._job import Committed, Job, JobStatus, PlannedTensor, Receipt
from ._looks import Histogram, ModelDiff, Summary, TensorStats, TensorSummary, ValueSummary, diff, inspect, stats
from ._model_files import ModelFiles, SharedWeights, copy, delete, move, share
from ._onnx import load_model, load_model_from_string, save_model
from ._patch import Patch, patch
from ._report import report
from ._scan import EqualWeights, Orphan, Scan, ScannedModel, scan
from ._signing import Signed, VerifiedSignature, sign, verify_signature
from ._stores import OpenJob, Published, PublishedFile, StoreAbilities, Sweep, SweptObject, probe, publish, rollback, sweep, versions
from ._tensor import Tensor
from .external_data_helper import (
    convert_model_from_external_data,
    convert_model_to_external_data,
    load_external_data_for_model,
    load_external_data_for_tensor,
    save_external_data,
    set_external_data,
    uses_external_data,
    write_external_data_tensors,
)

if TYPE_CHECKING:
    from . import ray
    from .model_container import (
        BuildStats,
        ExtendedModelContainer,
        ModelContainer,
        TorchModelContainer,
        make_large_model,
        make_large_tensor_proto,
    )

load = load_model
load_from_string = load_model_from_string
save = save_model


def __dir__() -> list[str]:
    private = {name for name in globals() if name.startswith("__")}
    return sorted({*__all__, *_MODULES} | private)


def __getattr__(name: str) -> Any:
    """What is imported when it is asked for. Of that, what is built on onnx's own class imports onnx."""
    # An import by `from` would ask this function for it.
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FROM_MODEL_CONTAINER:
        return getattr(importlib.import_module(f"{__name__}.model_container"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_MODULES = ("model_container", "ray")

_FROM_MODEL_CONTAINER = (
    "BuildStats",
    "ExtendedModelContainer",
    "ModelContainer",
    "TorchModelContainer",
    "make_large_model",
    "make_large_tensor_proto",
)

__all__ = [
    "AccessError",
    "AlreadyExistsError",
    "Attached",
    "BuildStats",
    "Bytes",
    "CastReport",
    "Checked",
    "CheckedFolder",
    "CheckedModel",
    "Committed",
    "Container",
    "DataType",
    "EqualWeights",
    "Error",
    "Exported",
    "ExtendedModelContainer",
    "Externalized",
    "Filled",
    "Histogram",
    "Inlined",
    "IsAFolderError",
    "Job",
    "JobStatus",
    "MissingFileError",
    "ModelContainer",
    "ModelDiff",
    "ModelFiles",
    "OpenJob",
    "Orphan",
    "Patch",
    "PlannedTensor",
    "Published",
    "PublishedFile",
    "Receipt",
    "Recovered",
    "Saved",
    "Scan",
    "ScannedModel",
    "SharedWeights",
    "Signed",
    "StoreAbilities",
    "Stripped",
    "Summary",
    "Sweep",
    "SweptObject",
    "Tensor",
    "TensorStats",
    "TensorSummary",
    "TorchModelContainer",
    "ValueSummary",
    "VerifiedSignature",
    "WeightMapping",
    "__version__",
    "check",
    "check_model",
    "convert_model_from_external_data",
    "convert_model_to_external_data",
    "copy",
    "delete",
    "diff",
    "external_data_helper",
    "findings",
    "inline_functions",
    "inspect",
    "ir",
    "load",
    "load_external_data_for_model",
    "load_external_data_for_tensor",
    "load_from_string",
    "load_model",
    "load_model_from_string",
    "make_large_model",
    "make_large_tensor_proto",
    "map_file",
    "merge",
    "model_that_needs",
    "move",
    "patch",
    "probe",
    "publish",
    "recover",
    "report",
    "rollback",
    "save",
    "save_external_data",
    "save_model",
    "scan",
    "set_external_data",
    "share",
    "sign",
    "stats",
    "sweep",
    "uses_external_data",
    "verify_signature",
    "versions",
    "write_external_data_tensors",
]
