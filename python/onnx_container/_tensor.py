"""``Tensor``: the elements of one tensor, shared and not copied."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _core
from ._dtypes import DataType, to_numpy, to_torch

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["Tensor"]


class Tensor(_core.Initializer):
    """The elements of one tensor: their type, shape and bytes, and its name.

    The bytes are shared with whatever holds them (a mapped file, an array, a torch tensor), which lives as long as the
    tensor or anything that was made of it. They are read-only. Weights that are produced when they are needed
    (``is_lazy``) are produced anew by each call that reads them.

    ``memoryview(tensor)`` are the packed little-endian bytes; ``numpy.asarray(tensor)`` and ``torch.from_dlpack`` work
    for types that the other side has.
    """

    def __init__(
        self,
        source: Any,
        dtype: int | None = None,
        dims: Any = None,
        *,
        name: str = "",
        doc_string: str | None = None,
    ) -> None:
        self.name = name
        self.doc_string = doc_string
        self._metadata_props: dict[str, str] | None = None
        self._meta: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Tensor<{self.dtype},{list(self.shape)}>(name={self.name!r})"

    @property
    def dtype(self) -> Any:
        """The element type, a :class:`DataType`."""
        return DataType(super().dtype)

    @property
    def shape(self) -> Any:
        """The dimensions."""
        return super().dims

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(super().dims)

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
        return memoryview(self)

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
        import numpy as np

        dtype = DataType(super().dtype)
        if dtype == DataType.STRING:
            return np.array(self.strings(), dtype=object).reshape(super().dims)
        like = to_numpy(dtype)
        shared = self.unpacked() if dtype.is_packed else self.bytes()
        array = np.frombuffer(shared, dtype=np.uint8).view(like).reshape(super().dims)
        return array.copy() if copy else array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{array.dtype} elements are not {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The elements as a DLPack capsule: on the same memory, marked as read-only, for consumers of version 1; a
        copy for others, which know no such mark."""
        if dl_device not in (None, (1, 0)):
            raise BufferError("the elements are in the memory of the CPU")
        return _core.dlpack(self, max_version is not None and max_version >= (1, 0), copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def torch(self) -> torch.Tensor:
        """The elements as a torch tensor in memory of its own, which may be written to: torch has no read-only
        tensors.

        Raises:
            TypeError: torch has no such type.
        """
        import torch

        dtype = to_torch(DataType(super().dtype))
        if self.nbytes == 0:
            return torch.empty(super().dims, dtype=dtype)
        flat = torch.frombuffer(self.bytes().writable(), dtype=torch.uint8)
        return flat.view(dtype).reshape(super().dims)

    def __reduce__(self) -> Any:
        return (_unpickled, (self.tobytes(), int(super().dtype), super().dims, self.name))


def _unpickled(raw: bytes, dtype: int, dims: tuple[int, ...], name: str) -> Tensor:
    return Tensor(raw, dtype, dims, name=name)


