"""The functions of ``onnx.external_data_helper``, with their signatures.

Files are opened beneath the folder that is given, as loads of this package do, and weights are read as maps of them.
"""

from __future__ import annotations

import os
import re
import uuid
from typing import TYPE_CHECKING

from . import _options, _values
from ._container import Container
from ._entries import (
    _KEYS,
    ExternalDataInfo,
    _get_all_tensors,
    _get_attribute_tensors,
    _get_attribute_tensors_from_graph,
    _get_initializer_tensors,
    _get_initializer_tensors_from_graph,
    beneath,
    clear_entries,
    every_tensor,
    put_weights,
    refuse_handles,
    set_entries,
    uses_external_data,
)

if TYPE_CHECKING:
    import onnx

    from ._options import Path, Size

__all__ = [
    "ExternalDataInfo",
    "convert_model_from_external_data",
    "convert_model_to_external_data",
    "load_external_data_for_model",
    "load_external_data_for_tensor",
    "remove_external_data_field",
    "save_external_data",
    "set_external_data",
    "uses_external_data",
    "write_external_data_tensors",
]


def __dir__() -> list[str]:
    return sorted({*__all__} | {name for name in globals() if name.startswith("_")})


def set_external_data(
    tensor: onnx.TensorProto,
    location: str | os.PathLike[str],
    offset: int | None = None,
    length: int | None = None,
    checksum: str | None = None,
    basepath: str | None = None,
) -> None:
    """Says that the elements of ``tensor``, which has them in ``raw_data``, are to be in the file ``location``."""
    if not tensor.HasField("raw_data"):
        raise ValueError(f"Tensor {tensor.name} does not have raw_data field. Cannot set external data for this tensor.")
    numbers = [None if number is None else int(number) for number in (offset, length)]
    entries = zip(_KEYS, (os.fspath(location), *numbers, checksum, basepath), strict=True)
    set_entries(tensor, dict(entries))


def remove_external_data_field(tensor: onnx.TensorProto, field_key: str) -> None:
    """Removes the entries of this key."""
    kept = [(entry.key, entry.value) for entry in tensor.external_data if entry.key != field_key]
    del tensor.external_data[:]
    for key, value in kept:
        tensor.external_data.add(key=key, value=value)


def load_external_data_for_tensor(tensor: onnx.TensorProto, base_dir: Path) -> None:
    """Reads the elements of ``tensor`` from its file in ``base_dir`` into ``raw_data``; the tensor is inline then."""
    import onnx

    if not uses_external_data(tensor):
        raise ValueError(f"the tensor {tensor.name!r} is not external")
    model = onnx.ModelProto()
    model.graph.initializer.append(tensor)
    model.graph.initializer[0].ClearField("raw_data")
    container = Container.from_bytes(model.SerializeToString(), base_dir=base_dir)
    for warning in container.warnings:
        _options.warn(warning)
    (found,) = container.values()
    tensor.raw_data = found.tobytes()
    clear_entries(tensor)


def load_external_data_for_model(model: onnx.ModelProto, base_dir: Path) -> None:
    """Reads the elements of all external tensors of ``model`` from their files in ``base_dir`` into the model."""
    put_weights(model, Container.from_bytes(model.SerializeToString(), base_dir=base_dir))


def convert_model_to_external_data(
    model: onnx.ModelProto,
    all_tensors_to_one_file: bool = True,
    location: str | os.PathLike[str] | None = None,
    size_threshold: Size = 1024,
    convert_attribute: bool = False,
) -> None:
    """Says that tensors with at least ``size_threshold`` bytes of ``raw_data`` are to be in files: all in ``location``, or each
    in a file of its name. They are written by a save of the model."""
    threshold: int = _values.size("convert_model_to_external_data", "size_threshold", size_threshold)
    location = os.fspath(location) if location else None
    if location and location.startswith("#"):
        raise ValueError(f"the location {location!r} is a handle of a container, no file in the folder of a model")
    tensors = _get_all_tensors(model) if convert_attribute else _get_initializer_tensors(model)
    large = [it for it in tensors if it.HasField("raw_data") and len(it.raw_data) >= threshold]
    if all_tensors_to_one_file:
        name = location or f"{uuid.uuid1()}.data"
        if os.path.isabs(name):
            raise ValueError("location must be a relative path that is relative to the model path.")
        for tensor in large:
            set_external_data(tensor, name)
        return
    for tensor in large:
        set_external_data(tensor, tensor.name if _is_valid_filename(tensor.name) else str(uuid.uuid1()))


def convert_model_from_external_data(model: onnx.ModelProto) -> None:
    """Says that all tensors, whose elements were loaded, are inline again."""
    for tensor in every_tensor(model):
        if uses_external_data(tensor):
            if not tensor.HasField("raw_data"):
                raise ValueError("raw_data field doesn't exist.")
            clear_entries(tensor)


def save_external_data(tensor: onnx.TensorProto, base_path: Path) -> None:
    """Writes ``raw_data`` to the file of ``tensor`` beneath ``base_path``: from its offset on, or at the end.

    A file that is there gets longer: as for onnx, the offset is at its end, or at most 64 KiB behind that.
    :func:`onnx_container.save_model` replaces files when all is written."""
    if not tensor.HasField("raw_data"):
        raise ValueError("raw_data field doesn't exist.")
    info = ExternalDataInfo(tensor)
    path = beneath(base_path, info.location, tensor.name)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    with os.fdopen(os.open(path, flags, 0o666), "r+b") as file:
        if os.fstat(file.fileno()).st_nlink > 1:
            raise ValueError(f"tensor {tensor.name!r}: {path!r} has other names too, whose content would change")
        end = file.seek(0, os.SEEK_END)
        offset = end if info.offset is None else info.offset
        if not 0 <= offset - end <= 1 << 16:
            raise ValueError(
                f"tensor {tensor.name!r}: the offset {offset} is not between the length of {path!r}, {end}, and {end + (1 << 16)}"
            )
        file.write(b"\0" * (offset - end))
        file.seek(offset)
        file.write(tensor.raw_data)
    set_external_data(tensor, info.location, offset, len(tensor.raw_data))


def write_external_data_tensors(model: onnx.ModelProto, filepath: Path) -> onnx.ModelProto:
    """Writes the tensors of ``model`` that are to be in files, beneath ``filepath``, and empties their ``raw_data``."""
    refuse_handles(every_tensor(model))
    for tensor in every_tensor(model):
        if uses_external_data(tensor) and tensor.HasField("raw_data"):
            save_external_data(tensor, filepath)
            tensor.ClearField("raw_data")
    return model


def _is_valid_filename(name: str) -> bool:
    return re.fullmatch(r'[^<>:;,?"*|/\\#]+', name) is not None and name not in (".", "..")
