"""Element types, and what numpy, ml_dtypes and torch call them."""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DataType"]


class DataType(enum.IntEnum):
    """The element type of a tensor: ``TensorProto.DataType`` of onnx.proto."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    @property
    def bits(self) -> int | None:
        """The width of one element in bits; None for strings and the undefined type."""
        return _BITS[self]

    @property
    def is_packed(self) -> bool:
        """Whether several elements share a byte."""
        return (self.bits or 8) < 8

    @property
    def itemsize(self) -> float | None:
        """The width of one element in bytes, such as 0.5; None for strings and the undefined type."""
        return None if self.bits is None else self.bits / 8

    def numpy(self) -> np.dtype[Any]:
        """What numpy calls the type, with the help of ml_dtypes where it has no such type itself.

        Raises:
            TypeError: numpy has no such type.
        """
        return to_numpy(self)

    @classmethod
    def of(cls, dtype: Any) -> DataType:
        """The type that ``dtype`` names: a number, a name, or a type of numpy, ml_dtypes or torch. A
        name is one of ONNX, numpy, torch, safetensors or onnxruntime, or a short one: ``"float16"``,
        ``"torch.float16"``, ``"F16"``, ``"tensor(float16)"``, ``"fp16"``, ``"half"``.

        Raises:
            TypeError: ONNX has no such type.

            >>> DataType.of("fp16"), DataType.of(np.int8)
            (<DataType.FLOAT16: 10>, <DataType.INT8: 3>)
        """
        # Python's float has 64 bits, and its name is that of the type with 32.
        if isinstance(dtype, bool) or dtype is float:
            raise TypeError(f"{dtype!r} is no element type of ONNX: name one, such as 'float32'")
        if isinstance(dtype, int):
            if dtype not in cls._value2member_map_:
                raise TypeError(f"{dtype} is the number of no element type of ONNX")
            return cls(dtype)
        name = str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
        name = getattr(name, "name", None) or getattr(name, "__name__", None) or name
        if isinstance(dtype, str):
            name = _plain(dtype)
        found = _BY_NUMPY_NAME.get(name) or _BY_TORCH_NAME.get(name) or cls.__members__.get(str(name).upper())
        if found is None:
            raise TypeError(f"{dtype!r} is no element type of ONNX")
        return found

    def __str__(self) -> str:
        return self.name


_BITS = {DataType(number): bits for number, _, bits, _ in _core.dtype_names()}

# The names of numpy's types, and of those that ml_dtypes adds to them.
_NUMPY = {
    DataType.FLOAT: "float32",
    DataType.UINT8: "uint8",
    DataType.INT8: "int8",
    DataType.UINT16: "uint16",
    DataType.INT16: "int16",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
    DataType.BOOL: "bool",
    DataType.FLOAT16: "float16",
    DataType.DOUBLE: "float64",
    DataType.UINT32: "uint32",
    DataType.UINT64: "uint64",
    DataType.COMPLEX64: "complex64",
    DataType.COMPLEX128: "complex128",
}
_ML_DTYPES = {
    DataType.BFLOAT16: "bfloat16",
    DataType.FLOAT8E4M3FN: "float8_e4m3fn",
    DataType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    DataType.FLOAT8E5M2: "float8_e5m2",
    DataType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    DataType.FLOAT8E8M0: "float8_e8m0fnu",
    DataType.UINT4: "uint4",
    DataType.INT4: "int4",
    DataType.FLOAT4E2M1: "float4_e2m1fn",
    DataType.UINT2: "uint2",
    DataType.INT2: "int2",
    DataType.FLOAT6E2M3: "float6_e2m3fn",
    DataType.FLOAT6E3M2: "float6_e3m2fn",
}
_BY_NUMPY_NAME = {name: dtype for dtype, name in (_NUMPY | _ML_DTYPES).items()}
_BY_NUMPY_NAME["bool_"] = DataType.BOOL  # the name of numpy's class before version 2

_TORCH = {
    DataType.FLOAT: "float32",
    DataType.UINT8: "uint8",
    DataType.INT8: "int8",
    DataType.UINT16: "uint16",
    DataType.INT16: "int16",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
    DataType.BOOL: "bool",
    DataType.FLOAT16: "float16",
    DataType.DOUBLE: "float64",
    DataType.UINT32: "uint32",
    DataType.UINT64: "uint64",
    DataType.COMPLEX64: "complex64",
    DataType.COMPLEX128: "complex128",
    DataType.BFLOAT16: "bfloat16",
    DataType.FLOAT8E4M3FN: "float8_e4m3fn",
    DataType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    DataType.FLOAT8E5M2: "float8_e5m2",
    DataType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    DataType.FLOAT8E8M0: "float8_e8m0fnu",
    DataType.FLOAT4E2M1: "float4_e2m1fn_x2",
}
_BY_TORCH_NAME = {name: dtype for dtype, name in _TORCH.items()}


_SAFETENSORS = {short: name for _, name, _, short in _core.dtype_names() if short is not None}
"""The names of safetensors, and those of ONNX."""

_SHORT = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    **{short.lower(): name for short, name in _SAFETENSORS.items() if short != "F4"},
}
"""Short names of types in lower case, and what they stand for: names above, or those of ONNX. Numpy's ``f4`` has 32 bits."""


def _plain(name: str) -> str:
    """``name`` without what torch and onnxruntime put around it, in lower case, and not short."""
    if (name := name.strip()) in _SAFETENSORS:
        return _SAFETENSORS[name]
    name = name.lower().removeprefix("torch.")
    if name.startswith("tensor(") and name.endswith(")"):
        name = name[len("tensor(") : -1]
    return _SHORT.get(name, name)


@functools.cache
def of_numpy(dtype: np.dtype[Any]) -> DataType | None:
    """The type of elements that numpy calls ``dtype``; None for strings, objects and records."""
    return _BY_NUMPY_NAME.get(dtype.name)


@functools.cache
def to_numpy(dtype: DataType) -> np.dtype[Any]:
    """What numpy calls ``dtype``, with the help of ml_dtypes where it has no such type itself."""
    import numpy as np

    if dtype in _NUMPY:
        return np.dtype(_NUMPY[dtype])
    if dtype not in _ML_DTYPES:
        raise TypeError(f"numpy has no type for {dtype}")
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
    except (ImportError, AttributeError) as error:
        raise TypeError(
            f"numpy has no type for {dtype} without a current ml_dtypes: install it, or use `raw`"
        ) from error


@functools.cache
def array_type(number: int) -> tuple[type[np.ndarray], np.dtype[Any]]:
    """numpy's class of arrays, and what it calls the type of this ``number``."""
    import numpy as np

    return np.ndarray, to_numpy(DataType(number))


def is_native(dtype: DataType) -> bool:
    """Whether numpy has ``dtype`` itself."""
    return dtype in _NUMPY


def is_added(dtype: DataType) -> bool:
    """Whether numpy has ``dtype`` by ml_dtypes alone."""
    return dtype in _ML_DTYPES


def of_torch(dtype: Any) -> DataType | None:
    """The type of elements that torch calls ``dtype``."""
    return _BY_TORCH_NAME.get(str(dtype).removeprefix("torch."))


def to_torch(dtype: DataType) -> Any:
    """What torch calls ``dtype``."""
    import torch

    found = getattr(torch, _TORCH.get(dtype, ""), None)
    if found is None:
        raise TypeError(f"this torch has no type for {dtype}: use `raw`, or `numpy()`")
    return found
