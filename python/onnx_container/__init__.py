"""A container for large ONNX models: external data in and out, mapped, verified and crash-safe.

    import onnx_container

    container = onnx_container.Container.load("model.onnx")     # weights are mapped
    container.tensor("encoder.weight").numpy()                  # read-only, not copied
    container.save("packed.onnx")                               # packed.onnx and packed.onnx.data
    session = container.inference_session()                     # onnxruntime, on the same maps

``ExtendedModelContainer`` and ``ModelContainer`` are the classes of yobx and onnx; ``save_model``, ``load_model`` and
``external_data_helper`` have onnx's functions, ``onnx_container.ir`` those of onnx_ir. No other package is needed: numpy, onnx,
torch, onnx_ir and onnxruntime are imported when they are used.
"""

from typing import TYPE_CHECKING, Any

from . import external_data_helper, ir
from ._container import (
    Casted,
    Container,
    Externalized,
    Filled,
    Inlined,
    Recovered,
    Saved,
    check_model,
    inline_functions,
    recover,
)
from ._core import Bytes, Error, MissingFileError, WeightMapping, __version__, map_file, model_that_needs
from ._dtypes import DataType
from ._onnx import load_model, load_model_from_string, save_model
from ._tensor import Tensor

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    """What is built on onnx's own class: onnx is imported when it is asked for."""
    if name in _FROM_MODEL_CONTAINER:
        from . import model_container

        return getattr(model_container, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_FROM_MODEL_CONTAINER = (
    "BuildStats",
    "ExtendedModelContainer",
    "ModelContainer",
    "TorchModelContainer",
    "make_large_model",
    "make_large_tensor_proto",
)

__all__ = [
    "BuildStats",
    "Bytes",
    "Casted",
    "Container",
    "DataType",
    "Error",
    "ExtendedModelContainer",
    "Externalized",
    "Filled",
    "Inlined",
    "MissingFileError",
    "ModelContainer",
    "Recovered",
    "Saved",
    "Tensor",
    "TorchModelContainer",
    "WeightMapping",
    "__version__",
    "check_model",
    "external_data_helper",
    "inline_functions",
    "ir",
    "load",
    "load_from_string",
    "load_model",
    "load_model_from_string",
    "make_large_model",
    "make_large_tensor_proto",
    "map_file",
    "model_that_needs",
    "recover",
    "save",
    "save_model",
]
