"""``OnnxReader``: the weights of a model, loaded into the memory of several ranks by ``torch.distributed.checkpoint``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from . import _places, _ranks
from ._container import Container
from ._dtypes import DataType, to_torch
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._options import LoadOptions, Path

__all__ = ["OnnxReader"]


class OnnxReader(StorageReader):
    """Reads the weights of an ONNX model into the state dicts of several ranks, for ``torch.distributed.checkpoint.load``.

    Weights files are mapped, or in a store (``s3://...``) read by range, and each rank reads the rows that it needs, however its tensors are sharded. Any model will do,
    and inline tensors are weights as others are. Types that torch does not have are not among them.
    """

    def __init__(self, path: Path, *, rename: Mapping[str, str] | Callable[[str], str] | None = None, **options: Unpack[LoadOptions]) -> None:
        """A reader of the model ``path``, a path or a URL.

        Args:
            rename: as of :class:`OnnxWriter`: names in the state dict, and the tensors that they are for.
            options: those of :meth:`Container.load`.
        """
        self.path = os.fspath(path)
        self._rename, self._given = _ranks.renamed_by("OnnxReader", rename), options
        self._container: Container | None = None

    @property
    def checkpoint_id(self) -> str:
        """The path of the model."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Whether there is a file of this name, or this is a URL of a store."""
        return _places.is_url(os.fspath(checkpoint_id)) or os.path.isfile(checkpoint_id)

    def reset(self, checkpoint_id: Path | None = None) -> None:
        """Begins a load, of ``checkpoint_id`` from now on if it is given."""
        if checkpoint_id:
            self.path = os.fspath(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the model says of its tensors, each of which is one chunk."""
        self._container = Container.load(self.path, **self._given)
        found = {name: _stored(dtype, shape) for name, (dtype, shape, _) in self._container.declared().items()}
        known = {name: it for name, it in found.items() if it is not None}
        return Metadata(_Renamed(known, self._rename), planner_data={name: (name,) for name in known})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing is left to be done."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan of a rank, with what its model is."""
        container = self._opened()
        if container.e_tag is not None:  # of the model in its store, whose weights files are never others
            return dataclasses.replace(plan, storage_data=container.e_tag)
        _, _, _, digest, stamps = container.__reduce__()[1]
        return dataclasses.replace(plan, storage_data=(digest, stamps))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are, if all ranks have opened one model."""
        if any(plan.storage_data != plans[0].storage_data for plan in plans):
            raise ValueError(f"{self.path} was replaced while the ranks opened it: load it again")
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads what this rank needs."""
        container = self._opened()
        names = {item.storage_index.fqn: self._rename(item.storage_index.fqn) for item in plan.items}
        known, found = container._core.tensors()  # once: each call of a container is one on another thread
        tensors = Container._of_names(known, found, set(names.values()))
        for item in plan.items:
            target = planner.resolve_tensor(item).detach()
            _read(tensors[names[item.storage_index.fqn]], item, target)
            planner.commit_tensor(item, target)
        self._container = None
        container.close()  # the tensors keep the maps until the end of this function
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _opened(self) -> Container:
        if self._container is None:
            raise RuntimeError("OnnxReader: read_metadata opens the model")
        return self._container


class _Renamed(dict[str, Any]):
    """What the model says of its tensors, by their names and by those that a state dict has for them."""

    def __init__(self, known: dict[str, Any], rename: Callable[[str], str]) -> None:
        super().__init__(known)
        self._rename = rename

    def __contains__(self, name: object) -> bool:
        return super().__contains__(self._rename(str(name)))

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(self._rename(name))


def _stored(dtype: DataType, shape: tuple[int, ...]) -> TensorStorageMetadata | None:
    """A tensor as torch knows it; None where torch has no such type."""
    try:
        kind = to_torch(dtype)
    except TypeError:
        return None
    if dtype == DataType.FLOAT4E2M1:
        if not shape or shape[-1] % 2:
            return None
        shape = (*shape[:-1], shape[-1] // 2)
    size = torch.Size(shape)
    chunk = ChunkStorageMetadata(offsets=torch.Size([0] * len(shape)), sizes=size)
    return TensorStorageMetadata(properties=TensorProperties(dtype=kind), size=size, chunks=[chunk])


def _read(tensor: Tensor, item: ReadItem, target: torch.Tensor) -> None:
    """Copies the elements that ``item`` asks for into ``target``, piece by piece."""
    kind = to_torch(DataType(tensor.dtype))
    shape = _stored(tensor.dtype, tensor.shape)
    if shape is None:
        raise TypeError(f"torch has no type for {tensor.dtype}, of which {tensor.name} is")
    strides = torch.empty(shape.size, device="meta").stride()
    for offsets, sizes in _ranks.boxes(tuple(item.lengths), kind.itemsize, _ranks.MOST):
        start = sum((a + b) * c for a, b, c in zip(item.storage_offsets, offsets, strides, strict=True))
        end = start + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
        flat = _elements(tensor, start, end, kind)
        _ranks.part(target, offsets, sizes).copy_(flat.as_strided(sizes, strides))


def _elements(tensor: Tensor, start: int, end: int, kind: torch.dtype) -> torch.Tensor:
    """The elements from ``start`` to ``end``, in one row: on a map of their own, or copied where they are few, or at an odd
    address, at which torch does not compute."""
    some = tensor.bytes().slice(start * kind.itemsize, end * kind.itemsize)
    flat = Tensor(some, DataType.UINT8, (len(some),)).torch()
    return (flat.clone() if flat.data_ptr() % kind.itemsize else flat).view(kind)
