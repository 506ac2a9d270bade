"""A stand-in for ``onnx_container.Job``, until the package has it: the folder of a job is that of an ordinary save whose weights
are zeros."""

from __future__ import annotations

import math
import os
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_container
from onnx_container import Container, DataType, Saved


@dataclass(frozen=True)
class PlannedTensor:
    name: str
    dtype: DataType
    shape: tuple[int, ...]
    file: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Receipt:
    writer: str
    elements: dict[str, int]


@dataclass
class Job:
    path: str
    folder: str
    tensors: list[PlannedTensor] = field(repr=False)

    @classmethod
    def plan(cls, container: Container, path: Any, *, parts: int = 1, slices: bool = False, **options: Any) -> Job:
        path = Path(path)
        folder = path.parent / f".{path.name}.job-{uuid.uuid4().hex[:12]}"
        filled = container.copy()
        slots = {location: math.prod(shape) for _, shape, location in container.declared().values() if location}
        types = {location: dtype for dtype, _, location in container.declared().values()}
        zeros = {it: _zeros(types[it], count) for it, count in slots.items() if it not in container}
        filled.update(zeros)
        filled.dry_run(path, **options)
        folder.mkdir()
        filled.save(folder / path.name, **options)
        handles = {name: location for name, (_, _, location) in container.declared().items()}
        return cls(str(path), str(folder), _planned(folder / path.name, handles))

    def write_slices(self, writer: str, slices: Any) -> Receipt:
        planned = {it.name: it for it in self.tensors}
        elements: dict[str, int] = {}
        for name, offsets, array in slices:
            it = planned[name]
            if it.nbytes:
                sizes = _write(Path(self.folder) / it.file, it, offsets, array)
                elements[name] = elements.get(name, 0) + math.prod(sizes)
        return Receipt(writer, elements)

    def commit(self, receipts: Any = None) -> Saved:
        for it in self.tensors:
            found = sum(receipt.elements.get(it.name, 0) for receipt in receipts)
            if it.nbytes and found != math.prod(it.shape):
                raise ValueError(f"{it.name}: {found} of {math.prod(it.shape)} elements were written")
        target = Path(self.path)
        names = sorted(os.listdir(self.folder), key=lambda name: name == target.name)
        files = [(name, (Path(self.folder) / name).stat().st_size) for name in names]
        for name in names:
            os.replace(Path(self.folder) / name, target.parent / name)
        os.rmdir(self.folder)
        return Saved(files, [], sum(it for _, it in files), [], [], [], None, None, False, {}, None)

    def abort(self) -> None:
        shutil.rmtree(self.folder)


def _zeros(dtype: DataType, count: int) -> Any:
    return lambda: bytes(count * (dtype.bits or 8) // 8)


def _planned(path: Path, handles: dict[str, str | None]) -> list[PlannedTensor]:
    """The tensors by the names of their handles."""
    tensors = {}
    for it in onnx.load(path, load_external_data=False).graph.initializer:
        if it.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in it.external_data}
            place = entries["location"], int(entries.get("offset", 0)), int(entries.get("length", 0))
            name = (handles[it.name] or it.name).removeprefix("#")
            tensors[name] = PlannedTensor(name, DataType(it.data_type), tuple(it.dims), *place)
    return list(tensors.values())


def _write(file: Path, planned: PlannedTensor, offsets: tuple[int, ...], array: Any) -> tuple[int, ...]:
    """Through a map, which has the elements of the tensor as runs of bytes."""
    width = (planned.dtype.bits or 8) // 8
    shape = (*planned.shape, width)
    place = np.memmap(file, np.uint8, "r+", planned.offset, shape)
    if isinstance(array, onnx_container.Tensor):
        part, sizes = np.frombuffer(array.raw, np.uint8), tuple(array.shape)
    else:
        import torch

        part, sizes = array.contiguous().reshape(-1).view(torch.uint8).numpy(), tuple(array.shape)
    index = tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))
    place[index] = part.reshape(*sizes, width)
    place.flush()
    return sizes


def install() -> None:
    """Puts the class where the package will have it."""
    if not hasattr(onnx_container, "Job"):
        onnx_container.Job = Job
