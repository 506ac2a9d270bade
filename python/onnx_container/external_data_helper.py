"""The functions of ``onnx.external_data_helper``, with their signatures.

Files are opened beneath the folder that is given, as loads of this package do, and weights are read as maps of them.
"""

from __future__ import annotations

import itertools
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _options
from ._container import Container

if TYPE_CHECKING:
    import onnx

    from ._options import Path

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

_DEFAULT: Any = 0
_EXTERNAL: Any = 1
_KEYS = ("location", "offset", "length", "checksum", "basepath")


class ExternalDataInfo:
    """The entries of an external tensor. Offset and length are in bytes; None where they are not given."""

    def __init__(self, tensor: onnx.TensorProto) -> None:
        self.location = ""
        self.offset: int | None = None
        self.length: int | None = None
        self.checksum: str | None = None
        self.basepath = ""
        for entry in tensor.external_data:
            if entry.key in ("offset", "length"):
                number = int(entry.value)
                if number < 0:
                    raise ValueError(f"tensor {tensor.name!r}: {entry.key} is {number}")
                setattr(self, entry.key, number)
            elif entry.key in _KEYS:
                setattr(self, entry.key, entry.value)
        if unknown := sorted({entry.key for entry in tensor.external_data} - {*_KEYS}):
            _options.warn(f"tensor {tensor.name!r}: unknown keys of external data are ignored: {', '.join(unknown)}")


def uses_external_data(tensor: onnx.TensorProto) -> bool:
    """Whether the elements of ``tensor`` are in a file."""
    return tensor.HasField("data_location") and tensor.data_location == _EXTERNAL


def handle_of(name: str | None, taken: Mapping[str, Any]) -> str:
    """A handle that is called after a tensor, and that is not taken."""
    first = candidate = f"#{name or 'tensor'}"
    numbers = itertools.count(2)
    while candidate in taken:
        candidate = f"{first}_{next(numbers)}"
    return candidate


def _set_entries(tensor: onnx.TensorProto, entries: Mapping[str, Any]) -> None:
    del tensor.external_data[:]
    tensor.data_location = _EXTERNAL
    for key, value in entries.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))


def _clear_entries(tensor: onnx.TensorProto) -> None:
    del tensor.external_data[:]
    tensor.data_location = _DEFAULT


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
    _set_entries(tensor, dict(entries))


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
    _clear_entries(tensor)


def load_external_data_for_model(model: onnx.ModelProto, base_dir: Path) -> None:
    """Reads the elements of all external tensors of ``model`` from their files in ``base_dir`` into the model."""
    _put_weights(model, Container.from_bytes(model.SerializeToString(), base_dir=base_dir))


def _put_weights(model: onnx.ModelProto, container: Container) -> None:
    """Puts the weights of ``container``, which was loaded from ``model``, into it."""
    for warning in container.warnings:
        _options.warn(warning)
    for tensor, loaded in zip(every_tensor(model), every_tensor(container.model_proto), strict=True):
        if uses_external_data(tensor):
            tensor.raw_data = container[ExternalDataInfo(loaded).location].tobytes()
            _clear_entries(tensor)


def convert_model_to_external_data(
    model: onnx.ModelProto,
    all_tensors_to_one_file: bool = True,
    location: str | os.PathLike[str] | None = None,
    size_threshold: int = 1024,
    convert_attribute: bool = False,
) -> None:
    """Says that tensors with at least ``size_threshold`` bytes of ``raw_data`` are to be in files: all in ``location``, or each
    in a file of its name. They are written by a save of the model."""
    location = os.fspath(location) if location else None
    if location and location.startswith("#"):
        raise ValueError(f"the location {location!r} is a handle of a container, no file in the folder of a model")
    tensors = _get_all_tensors(model) if convert_attribute else _get_initializer_tensors(model)
    large = [it for it in tensors if it.HasField("raw_data") and len(it.raw_data) >= size_threshold]
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
            _clear_entries(tensor)


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


def beneath(folder: Path, location: str, name: str = "") -> str:
    """The path of the file ``location`` in ``folder``, to be written: never through a link, which may lead anywhere."""
    base = os.path.realpath(folder or ".")
    path = os.path.normpath(os.path.join(base, _checked(location, name)))
    if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path) or os.path.islink(path):
        raise ValueError(f"tensor {name!r}: the location {location!r} leads through a link")
    return path


def _checked(location: str, name: str) -> str:
    """``location``, which has to be beneath the folder of the model."""
    parts = location.split("/")
    is_absolute = os.path.isabs(location) or re.match("[A-Za-z]:", location) is not None
    if not location or location.startswith(("/", "#", "*")) or ".." in parts or "\0" in location or is_absolute:
        raise ValueError(f"tensor {name!r}: the location {location!r} is no file in the folder of the model")
    return location


def refuse_handles(tensors: Iterable[onnx.TensorProto]) -> None:
    """Refuses to write external tensors that name handles: their weights would be lost."""
    for tensor in filter(uses_external_data, tensors):
        for entry in tensor.external_data:
            if entry.key == "location":
                refuse_handle(entry.value, tensor.name)


def refuse_handle(location: str, name: str) -> None:
    """Refuses to write the tensor ``name`` where its ``location`` is a handle."""
    if location.startswith("#"):
        raise ValueError(
            f"tensor {name!r}: the location {location!r} is a handle, whose weights are in a container: save that, or "
            "a Container(model, weights)"
        )


def write_external_data_tensors(model: onnx.ModelProto, filepath: Path) -> onnx.ModelProto:
    """Writes the tensors of ``model`` that are to be in files, beneath ``filepath``, and empties their ``raw_data``."""
    refuse_handles(every_tensor(model))
    for tensor in every_tensor(model):
        if uses_external_data(tensor) and tensor.HasField("raw_data"):
            save_external_data(tensor, filepath)
            tensor.ClearField("raw_data")
    return model


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """``graph`` and those in its nodes."""
    yield graph
    for inner in _inner_graphs(graph.node):
        yield from _graphs(inner)


def _inner_graphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def _tensors_of_attributes(nodes: Iterable[Any]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _get_initializer_tensors_from_graph(graph: onnx.GraphProto, /) -> Iterator[onnx.TensorProto]:
    """The initializers of ``graph`` and of those in its nodes."""
    for inner in _graphs(graph):
        yield from inner.initializer


def _get_initializer_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The initializers of all graphs of ``model``."""
    yield from _get_initializer_tensors_from_graph(model.graph)


def _get_attribute_tensors_from_graph(
    graph_or_function: onnx.GraphProto | onnx.FunctionProto, /
) -> Iterator[onnx.TensorProto]:
    """The tensors in attributes of the nodes of a graph or function, and of the graphs in these."""
    yield from _tensors_of_attributes(graph_or_function.node)
    for inner in _inner_graphs(graph_or_function.node):
        for graph in _graphs(inner):
            yield from _tensors_of_attributes(graph.node)


def _get_attribute_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors in attributes of all nodes, those of functions included."""
    yield from _get_attribute_tensors_from_graph(model.graph)
    for function in model.functions:
        yield from _get_attribute_tensors_from_graph(function)


def _get_all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The initializers and the tensors in attributes: all that onnx reads from files."""
    yield from _get_initializer_tensors(model)
    yield from _get_attribute_tensors(model)


def every_tensor(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of ``model``: also those in functions and training graphs, and the parts of sparse ones, which onnx does not
    reach."""
    yield from _get_all_tensors(model)
    for graph in _graphs(model.graph):
        yield from _sparse_tensors(graph)
    for function in model.functions:
        yield from _sparse_of_attributes(function.node)
        for graph in _graphs_of_function(function):
            yield from graph.initializer
            yield from _sparse_tensors(graph)
        # The defaults of attributes, as if a node had them.
        defaults = (_Attributes(function.attribute_proto),)
        yield from _tensors_of_attributes(defaults)
        yield from _sparse_of_attributes(defaults)
    for info in model.training_info:
        for graph in itertools.chain(_graphs(info.initialization), _graphs(info.algorithm)):
            yield from graph.initializer
            yield from _tensors_of_attributes(graph.node)
            yield from _sparse_tensors(graph)


class _Attributes(NamedTuple):
    """What has attributes."""

    attribute: Any


def _graphs_of_function(function: onnx.FunctionProto) -> Iterator[onnx.GraphProto]:
    for inner in _inner_graphs(function.node):
        yield from _graphs(inner)


def _sparse_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _sparse_of_attributes(graph.node)


def _sparse_of_attributes(nodes: Iterable[Any]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
            for sparse in attribute.sparse_tensors:
                yield from (sparse.values, sparse.indices)


def _is_valid_filename(name: str) -> bool:
    return re.fullmatch(r'[^<>:;,?"*|/\\#]+', name) is not None and name not in (".", "..")
