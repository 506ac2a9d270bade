"""``Tensor``: the elements of one tensor, shared and not copied."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import _core
from ._convert import _is_ir_tensor, _is_tensor_proto
from ._dtypes import DataType, array_type, is_native, to_numpy, to_torch

if TYPE_CHECKING:
    import numpy as np
    import torch
    from typing_extensions import Self

__all__ = ["Tensor"]

_LEAST_MAP = 64 << 10
"""Bytes of the shortest tensor that is mapped for torch: a map takes a page table and one of the maps of the process."""


class Tensor(_core.Initializer):
    """The elements of one tensor: their type, shape and bytes, and its name.

    The bytes are shared with whatever holds them (a mapped file, an array, a torch tensor), which lives as long as the
    tensor or anything that was made of it; a torch storage must not be resized meanwhile. They are read-only. Weights that are produced when they are needed
    (``is_lazy``) are produced anew by each call that reads them.

    ``Tensor(weights)`` takes whatever a container takes: an array, a torch tensor, a ``TensorProto``; ``Tensor(raw, dtype, dims)``
    packed little-endian bytes. ``raw`` gives these; ``numpy.asarray(tensor)``, ``memoryview(tensor)`` and DLPack give
    elements, for the types that the other side has.

        >>> tensor = Tensor(np.array([[1, 2], [3, 4]], np.int8), name="w")
        >>> tensor
        Tensor<INT8,[2, 2]>(name='w')
        >>> tensor.tolist(), tensor.tobytes()
        ([[1, 2], [3, 4]], b'\\x01\\x02\\x03\\x04')
    """

    # On the class, because models have many tensors and most have no more than a name.
    doc_string: str | None = None
    _metadata_props: dict[str, str] | None = None
    _meta: dict[str, Any] | None = None

    def __init__(
        self,
        source: Any,
        dtype: int | None = None,
        dims: Any = None,
        *,
        name: str = "",
        doc_string: str | None = None,
    ) -> None:
        is_named = not name and dtype is None and (_is_tensor_proto(source) or _is_ir_tensor(source))
        self.name = source.name or "" if is_named else name
        if doc_string is not None:
            self.doc_string = doc_string

    @classmethod
    def lazy(cls, dtype: Any, dims: Any, make: Callable[[], Any], name: str = "") -> Self:  # type: ignore[override]
        """A tensor whose packed little-endian bytes ``make`` returns, each time they are needed."""
        if not callable(make):
            raise TypeError(f"lazy() takes a callable that returns the bytes, not {make!r}")
        return cls(_core.Initializer.lazy(DataType.of(dtype), dims, make), name=name)

    @classmethod
    def from_tensor_proto(cls, message: Any) -> Self:  # type: ignore[override]
        """The elements and the name of a ``TensorProto``. Those of its bytes are not copied, and have no name."""
        if _is_tensor_proto(message):
            return cls(message)
        return cls(_core.Initializer.from_tensor_proto(message))

    @classmethod
    def of_strings(cls, dims: Any, strings: Iterable[str | bytes], name: str = "") -> Self:  # type: ignore[override]
        """A tensor of strings."""
        texts = [text.encode() if isinstance(text, str) else text for text in strings]
        return cls(_core.Initializer.of_strings(dims, texts), name=name)

    @classmethod
    def pack(cls, dtype: Any, dims: Any, codes: Any, name: str = "") -> Self:  # type: ignore[override]
        """A tensor of elements narrower than a byte, which ``codes`` has in one byte each."""
        return cls(_core.Initializer.pack(DataType.of(dtype), dims, codes), name=name)

    def __repr__(self) -> str:
        return f"Tensor<{self.dtype},{list(self.shape)}>(name={self.name!r})"

    @property
    def dtype(self) -> DataType:
        """The element type, a :class:`DataType`."""
        return DataType(super().dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return super().dims

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(super().dims)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(super().dims)

    @property
    def location(self) -> str | None:
        """The file that the elements are mapped from, which this tensor keeps mapped; None where
        they are in memory."""
        found = self.file_range()
        return None if found is None else os.fsdecode(found[0])

    @property
    def offset(self) -> int | None:
        """Where the elements begin in the file, in bytes."""
        found = self.file_range()
        return None if found is None else found[1]

    @property
    def metadata_props(self) -> dict[str, str]:
        """Metadata that a serializer may write."""
        if self._metadata_props is None:
            self._metadata_props = {}
        return self._metadata_props

    @property
    def meta(self) -> dict[str, Any]:
        """Metadata of passes, which is not written."""
        if self._meta is None:
            self._meta = {}
        return self._meta

    @property
    def raw(self) -> memoryview:
        """The packed little-endian bytes, as in ``raw_data``; not copied where they are in memory or in a mapped file."""
        return memoryview(self.bytes())

    def tobytes(self) -> bytes:
        """A copy of the packed little-endian bytes."""
        return bytes(self.raw)

    def tofile(self, file: Any) -> None:
        """Writes the packed little-endian bytes to ``file``."""
        file.write(self.raw)

    def numpy(self, copy: bool = False) -> np.ndarray:
        """The elements as an array: read-only, on the same memory; with ``copy``, in memory of its own.

        Elements narrower than a byte take one byte each in numpy, and are copied. Strings are an array of ``bytes``
        objects.

        Raises:
            TypeError: numpy has no such type, or needs ml_dtypes for it.
        """
        memory: Any
        number, dims, memory = self.elements()
        if memory is None:
            import numpy as np

            return np.array(self.strings(), dtype=object).reshape(dims)
        ndarray, dtype = array_type(number)
        array = ndarray(dims, dtype, memory)
        return array.copy() if copy else array

    def item(self) -> Any:
        """The only element, as a number of Python.

        Raises:
            ValueError: there are more, or none.
        """
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as numbers of Python, in lists as nested as the shape."""
        return self.numpy().tolist()

    def astype(self, dtype: Any) -> np.ndarray:
        """The elements as an array of another type, which is one that :meth:`DataType.of` takes."""
        return self.numpy().astype(to_numpy(DataType.of(dtype)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if copy is False and DataType(super().dtype).is_packed:
            raise ValueError("elements narrower than a byte are copied: numpy has one in each byte")
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{array.dtype} elements are not {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The elements where they are, read-only, for the types that numpy has itself: of others it would make bytes. What is
        produced when it is needed has no place."""
        dtype = DataType(super().dtype)
        if self.is_lazy or not is_native(dtype):
            raise AttributeError("__array_interface__")
        data = (self.bytes().address, True)
        return {"version": 3, "typestr": to_numpy(dtype).str, "shape": super().dims, "data": data}

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The elements as a DLPack capsule: marked as read-only for consumers of version 1, on the same memory, or on a map of
        their own where they are in a mapped file; a copy of short ones there, and for others, which know no such mark."""
        if dl_device not in (None, (1, 0)):
            raise BufferError("the elements are in the memory of the CPU")
        return _core.dlpack(self, max_version is not None and max_version >= (1, 0), copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def torch(self, copy: bool | None = None) -> torch.Tensor:
        """The elements as a torch tensor, which may be written to: torch has no read-only tensors.

        Elements in a mapped file are mapped once more, so that nothing is read before it is used, and only the pages that are
        written to are copied: neither the file nor any other tensor changes. All others are copied, as are short ones,
        and with ``copy=True`` all; ``copy=False`` refuses to copy. FLOAT4E2M1 has two elements in each of torch's, so that
        the last dimension is half as long.

        Raises:
            TypeError: torch has no such type.
            ValueError: the elements would be copied, which ``copy=False`` forbids.
        """
        import torch

        number, dims = super().dtype, super().dims
        if number == DataType.FLOAT4E2M1 and dims and dims[-1] % 2 == 0:
            dtype, dims = to_torch(DataType(number)), (*dims[:-1], dims[-1] // 2)
        elif number == DataType.FLOAT4E2M1:
            raise TypeError("torch has pairs of FLOAT4E2M1 alone, and the last dimension is odd: use `raw`, or `numpy()`")
        else:
            dtype = to_torch(DataType(number))
        if self.nbytes == 0:
            return torch.empty(dims, dtype=dtype)
        memory = self.bytes()
        # torch computes with elements at odd addresses as if they were not, and crashes.
        is_copied = copy or memory.address % dtype.itemsize != 0 or (copy is None and len(memory) < _LEAST_MAP)
        shared = None if is_copied else memory.private_map()
        if shared is None and copy is False:
            raise ValueError("the elements are in no mapped file, or not aligned there, so torch can only have a copy")
        flat = torch.frombuffer(memory.writable() if shared is None else shared, dtype=torch.uint8)
        return flat.view(dtype).reshape(dims)

    @property
    def _is_lent(self) -> bool:
        """Whether another object has the memory, and may change it."""
        return super().dtype != DataType.STRING and not self.is_lazy and self.bytes().ownership == "lent"

    def __copy__(self) -> Tensor:
        """A tensor of the same elements, which are shared."""
        tensor = type(self)(self)
        tensor.__dict__.update(self.__dict__)
        return tensor

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A tensor of the same elements, shared where nobody can change them: memory of another object is copied."""
        tensor = type(self)(self.tobytes(), super().dtype, super().dims) if self._is_lent else type(self)(self)
        tensor.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return tensor

    def __reduce__(self) -> Any:
        number, dims = super().dtype, super().dims
        elements = self.strings() if number == DataType.STRING else self.tobytes()
        return (_unpickled, (type(self), number, dims, elements, self.__dict__))


def _unpickled(cls: type[Tensor], dtype: int, dims: tuple[int, ...], elements: Any, attributes: dict[str, Any]) -> Tensor:
    is_text = dtype == DataType.STRING
    tensor = cls(_core.Initializer.of_strings(dims, elements)) if is_text else cls(elements, dtype, dims)
    tensor.__dict__.update(attributes)
    return tensor


