"""External tensors of messages: their entries, the files that they name, and the way to each of them in a model."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _options
from ._container import Container

if TYPE_CHECKING:
    import onnx

    from ._options import Path

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


def set_entries(tensor: onnx.TensorProto, entries: Mapping[str, Any]) -> None:
    del tensor.external_data[:]
    tensor.data_location = _EXTERNAL
    for key, value in entries.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))


def clear_entries(tensor: onnx.TensorProto) -> None:
    del tensor.external_data[:]
    tensor.data_location = _DEFAULT


def put_weights(model: onnx.ModelProto, container: Container) -> None:
    """Puts the weights of ``container``, which was loaded from ``model``, into it."""
    for warning in container.warnings:
        _options.warn(warning)
    for tensor, loaded in zip(every_tensor(model), every_tensor(container.model_proto), strict=True):
        if uses_external_data(tensor):
            tensor.raw_data = container[ExternalDataInfo(loaded).location].tobytes()
            clear_entries(tensor)


def beneath(folder: Path, location: str, name: str = "") -> str:
    """The path of the file ``location`` in ``folder``, to be written: never through a link, which may lead anywhere."""
    base = os.path.realpath(folder or ".")
    path = os.path.normpath(os.path.join(base, checked_location(location, name)))
    if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path) or os.path.islink(path):
        raise ValueError(f"{_of(name)}the location {location!r} leads through a link")
    return path


def checked_location(location: str, name: str) -> str:
    """``location``, which has to be beneath the folder of the model."""
    parts = location.split("/")
    is_absolute = os.path.isabs(location) or re.match("[A-Za-z]:", location) is not None
    if not location or location.startswith(("/", "#", "*")) or ".." in parts or "\0" in location or is_absolute:
        raise ValueError(f"{_of(name)}the location {location!r} is no file in the folder of the model")
    return location


def _of(name: str) -> str:
    """The beginning of a message about the tensor ``name``; none where no tensor is known."""
    return f"tensor {name!r}: " if name else ""


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
