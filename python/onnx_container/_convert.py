"""Whatever Python has as weights, as initializers: without a copy where the bytes are in memory as they are to be written.

What has to be converted first (another device, strides, elements that are packed) is converted when a save comes to it, and
freed after it.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _core
from ._dtypes import DataType, is_added, of_numpy, of_torch, to_numpy

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Declared", "arrays", "initializer"]

Declared = tuple[int, tuple[int, ...]]
"""The type and the dimensions that a model declares for a tensor."""


def initializer(weights: Any, declared: Declared | None = None) -> _core.Initializer:
    """``weights`` as an initializer. What has no type and shape of its own, such as bytes and callables, has those that the
    model ``declared``.

    Raises:
        TypeError: it is nothing that can be weights, or nothing declares its type.
    """
    if isinstance(weights, _core.Initializer):
        return weights
    convert = _BY_TYPE.get(type(weights))
    if convert is None:
        convert = next((convert for kind, convert in _KINDS if kind(weights)), None)
    if convert is not None:
        _BY_TYPE[type(weights)] = convert
        return convert(weights, declared)
    raise TypeError(
        f"{type(weights).__name__} cannot be the weights of a tensor: give an array, a tensor, a TensorProto, "
        "bytes, or a callable that returns one of these"
    )


def arrays() -> tuple[type, dict[Any, int]] | None:
    """numpy's class of arrays, and the numbers of the element types that arrays have in memory as they are written; None where
    numpy is not in use."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    found = {}
    for dtype in DataType:
        if (dtype.bits or 0) < 8 or (is_added(dtype) and "ml_dtypes" not in sys.modules):
            continue
        with contextlib.suppress(TypeError):  # An old ml_dtypes lacks some.
            found[to_numpy(dtype)] = int(dtype)
    return numpy.ndarray, found


def _is_numpy(weights: Any) -> bool:
    return any(it.__module__ == "numpy" and it.__name__ in ("ndarray", "generic") for it in type(weights).__mro__)


def _is_torch(weights: Any) -> bool:
    return any(it.__module__ == "torch" and it.__name__ == "Tensor" for it in type(weights).__mro__)


def _is_tensor_proto(weights: Any) -> bool:
    return hasattr(weights, "SerializeToString") and hasattr(weights, "data_type")


def _is_ir_tensor(weights: Any) -> bool:
    return all(hasattr(weights, name) for name in ("dtype", "shape", "nbytes", "tobytes", "numpy", "metadata_props"))


def _is_buffer(weights: Any) -> bool:
    try:
        memoryview(weights)
    except TypeError:
        return False
    return True


def _of_tensor_proto(proto: Any, declared: Declared | None) -> _core.Initializer:
    return _core.Initializer.from_tensor_proto(proto.SerializeToString())


def _of_numpy(array: Any, declared: Declared | None) -> _core.Initializer:
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("a masked array has elements that are not there: fill them first, by `filled()`")
    array = np.asanyarray(array)
    if declared is not None and declared[0] == DataType.STRING and array.dtype.kind in "SUO":
        return _of_strings(array)
    dtype = of_numpy(array.dtype)
    if dtype is None:
        raise TypeError(f"an array of {array.dtype} cannot be external: no element type of ONNX has these bytes")
    dims = array.shape
    if dtype.is_packed:
        return _core.Initializer.lazy(dtype, dims, lambda: _packed(array, dtype))
    if array.dtype.byteorder == ">":
        return _core.Initializer.lazy(dtype, dims, lambda: _flat(array.astype(array.dtype.newbyteorder("<"))))
    if not array.flags.c_contiguous:
        return _core.Initializer.lazy(dtype, dims, lambda: _flat(np.ascontiguousarray(array)))
    return _core.Initializer(_flat(array), dtype, dims)


def _of_strings(array: np.ndarray) -> _core.Initializer:
    """Strings, which are stored in the model."""
    texts = [text.encode() if isinstance(text, str) else bytes(text) for text in array.reshape(-1).tolist()]
    return _core.Initializer.of_strings(array.shape, texts)


def _flat(array: np.ndarray) -> np.ndarray:
    """The memory of ``array`` as bytes, which is in row-major order."""
    import numpy as np

    return array.reshape(-1).view(np.uint8)


def _packed(array: np.ndarray, dtype: DataType) -> _core.Bytes:
    import numpy as np

    codes = _flat(np.ascontiguousarray(array))
    # A type of ml_dtypes may have its sign in the bits above.
    return _core.Initializer.pack(dtype, array.shape, codes & ((1 << (dtype.bits or 8)) - 1)).bytes()


def _of_torch(tensor: Any, declared: Declared | None) -> _core.Initializer:
    tensor = tensor.detach()
    if tensor.is_nested or str(tensor.layout) != "torch.strided":
        raise TypeError(f"a tensor of layout {tensor.layout} has no elements in a row: make it dense first")
    dtype, dims = of_torch(tensor.dtype), tuple(tensor.shape)
    if dtype is None:
        raise TypeError(f"a tensor of {tensor.dtype} cannot be external: ONNX has no such element type")
    if dtype == DataType.FLOAT4E2M1:
        dims = (*dims[:-1], dims[-1] * 2) if dims else (2,)  # torch has two elements in a byte
    return _torch_bytes(tensor, dtype, dims)


def _torch_bytes(tensor: Any, dtype: DataType, dims: tuple[int, ...]) -> _core.Initializer:
    if tensor.is_meta:
        raise TypeError("a tensor on the meta device has no elements: load the weights into it first")
    in_place = (
        tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
    if in_place:
        return _core.Initializer(_torch_memory(tensor), dtype, dims)
    return _core.Initializer.lazy(dtype, dims, lambda: _torch_memory(_in_order(tensor)))


def _in_order(tensor: Any) -> Any:
    return tensor.cpu().resolve_conj().resolve_neg().contiguous()


def _torch_memory(tensor: Any) -> _core.Bytes:
    """The memory of ``tensor``, whose storage lives as long as what is returned."""
    count = tensor.numel() * tensor.element_size()
    try:
        storage, start = tensor.untyped_storage(), tensor.data_ptr()
        if count == 0 or start != 0:
            return _core.torch_memory(storage, start or storage.data_ptr(), count)
    except RuntimeError as error:
        raise TypeError(f"a {type(tensor).__name__} has no memory of its own: {error}") from None
    raise TypeError(f"a {type(tensor).__name__} has no memory of its own")


def _of_ir_tensor(tensor: Any, declared: Declared | None) -> _core.Initializer:
    """A tensor of onnx_ir. One whose elements are in memory is read from there; others when their turn comes."""
    raw: Any = getattr(tensor, "raw", None)
    dtype, dims = DataType(int(tensor.dtype)), tuple(int(dim) for dim in tensor.shape)
    if _is_torch(raw):
        return _of_torch(raw, None)
    if type(tensor).__name__ == "Tensor" and _is_numpy(raw) and of_numpy(raw.dtype) == dtype and raw.shape == dims:
        return _of_numpy(raw, None)
    if dtype == DataType.STRING:
        raise TypeError("strings cannot be external")
    return _core.Initializer.lazy(dtype, dims, tensor.tobytes)


def _of_callable(make: Callable[[], Any], declared: Declared | None) -> _core.Initializer:
    if declared is None:
        raise TypeError("a callable needs a tensor of the model that declares type and shape of what it returns")

    def made() -> Any:
        found = initializer(make(), declared)
        shape = tuple(found.dims)
        # As `check` does it: elements in one dimension are taken for those of any shape.
        fits = shape == tuple(declared[1]) or shape == (math.prod(declared[1]),)
        if int(found.dtype) != int(declared[0]) or not fits:
            raise TypeError(
                f"the callable returned {DataType(found.dtype)} {list(shape)}; "
                f"the model declares {DataType(declared[0])} {list(declared[1])}"
            )
        return found

    return _core.Initializer.lazy(*declared, made)


def _of_array_interface(weights: Any, declared: Declared | None) -> _core.Initializer:
    import numpy as np

    array = np.asarray(weights)
    if of_numpy(array.dtype) is None and declared is not None and array.dtype.kind == "V":
        # Types that numpy has no name for are handed out as bytes.
        return _core.Initializer(_flat(np.ascontiguousarray(array)), *declared)
    return _of_numpy(array, declared)


def _of_dlpack(weights: Any, declared: Declared | None) -> _core.Initializer:
    try:
        import numpy as np

        return _of_numpy(np.from_dlpack(weights), declared)
    except (ImportError, BufferError, RuntimeError):
        import torch

        return _of_torch(torch.from_dlpack(weights), declared)


def _of_buffer(weights: Any, declared: Declared | None) -> _core.Initializer:
    if memoryview(weights).format not in ("B", "b", "c"):
        import numpy as np  # Elements of a type, which may not be the one that is declared.

        return _of_numpy(np.asarray(weights), declared)
    if declared is None:
        raise TypeError("bytes need a tensor of the model that declares their type and shape")
    return _core.Initializer(weights, *declared)


def _of_numpy_method(weights: Any, declared: Declared | None) -> _core.Initializer:
    return _of_numpy(weights.numpy(), declared)


# How objects of a type are converted, of the types that were met: models may have very many
# tensors.
_BY_TYPE: weakref.WeakKeyDictionary[type, Callable[[Any, Declared | None], _core.Initializer]] = (
    weakref.WeakKeyDictionary()
)

_KINDS: list[tuple[Callable[[Any], bool], Callable[[Any, Declared | None], _core.Initializer]]] = [
    (_is_numpy, _of_numpy),
    (_is_torch, _of_torch),
    (_is_tensor_proto, _of_tensor_proto),
    (_is_ir_tensor, _of_ir_tensor),
    (lambda it: hasattr(it, "__array_interface__"), _of_array_interface),
    (_is_buffer, _of_buffer),
    (lambda it: hasattr(it, "__dlpack__"), _of_dlpack),
    (lambda it: callable(getattr(it, "numpy", None)), _of_numpy_method),
    (callable, _of_callable),
]

