"""``ModelContainer`` and ``ExtendedModelContainer``: the classes of onnx and yobx, by this package.

Change the import and nothing else. What they write is complete or not there, tensors that share memory are written once, elements
narrower than a byte are packed, and weights are written from where they are and loaded as maps of their files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import _entries
from ._container import Container, _weights
from ._convert import initializer
from ._core import Error
from ._dtypes import DataType
from ._tensor import Tensor

try:
    from onnx.model_container import ModelContainer as _Base
except ImportError:  # Without onnx there are no messages, and nothing asks for its class.
    _Base = object  # type: ignore[misc,assignment]

if TYPE_CHECKING:
    import onnx

    from ._options import Path

__all__ = [
    "BuildStats",
    "ExtendedModelContainer",
    "ModelContainer",
    "TorchModelContainer",
    "make_large_model",
    "make_large_tensor_proto",
]


def __dir__() -> list[str]:
    return sorted({*__all__} | {name for name in globals() if name.startswith("_")})


class BuildStats:
    """Times and other measurements of an export by their names, which begin with ``time_export``. One that was not set is 0."""

    _PREFIXES = frozenset({"time_export"})

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        return self._data.get(key, 0.0)

    def __setitem__(self, key: str, value: Any) -> None:
        self._data[key] = value

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._data!r})"

    def to_dict(self) -> dict[str, Any]:
        """The measurements themselves, not a copy."""
        return self._data

    def validate(self) -> None:
        """Refuses names that begin with something else."""
        for key in self._data:
            if not str(key).startswith(tuple(self._PREFIXES)):
                raise KeyError(f"{key!r} is no measurement of an export: names begin with {sorted(self._PREFIXES)}")


def _get_type(elem_type: Any) -> int:
    """The number of an element type: given as this, as None, or as numpy or torch name it. The name is that of yobx, whose tests
    call it."""
    return int(DataType.UNDEFINED if elem_type is None else DataType.of(elem_type))


class ModelContainer(_Base):  # type: ignore[misc]
    """A model and its large initializers, which protobuf never sees: ``onnx.model_container.ModelContainer``."""

    _one_file = False
    _suffix = ".weight"

    def __init__(self) -> None:
        self.model_proto_: onnx.ModelProto | None = None
        self.large_initializers: dict[str, Any] = {}
        self.graphs_: list[onnx.GraphProto] = []
        self.inline = False
        self._stats = BuildStats()

    def check_model(self) -> None:
        """Checks the model by ``onnx.checker``."""
        import onnx.checker

        onnx.checker.check_model(self.model_proto)

    def __getitem__(self, name: str) -> Any:
        """The large initializer behind the handle ``name``."""
        if name not in self.large_initializers:
            known = sorted(self.large_initializers)
            raise ValueError(f"Unable to find large tensor {name!r} among {known}.")
        return self.large_initializers[name]

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The model, whose external tensors name handles."""
        if self.model_proto_ is None:
            raise RuntimeError("ModelContainer is empty.")
        return self.model_proto_

    @model_proto.setter
    def model_proto(self, model_proto: onnx.ModelProto) -> None:
        self.model_proto_ = model_proto
        self.graphs_ = list(self.enumerate_graph_protos())

    def enumerate_graph_protos(self) -> Iterator[onnx.GraphProto]:
        """Every graph of the model, subgraphs included."""
        pending = [self.model_proto.graph]
        while pending:
            graph = pending.pop()
            yield graph
            inner = [
                found
                for node in graph.node
                for attribute in node.attribute
                for found in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)
            ]
            pending.extend(reversed(inner))

    def is_in_memory_external_initializer(self, name: str) -> bool:
        """Whether ``name`` is a handle: it begins with ``#``."""
        return name.startswith("#")

    def set_large_initializers(self, large_initializers: dict[str, Any]) -> None:
        """Sets all large initializers, by handle."""
        for name in large_initializers:
            if not self.is_in_memory_external_initializer(name):
                raise ValueError(f"The location {name!r} must start with '#' to be ignored by check model.")
        self.large_initializers = large_initializers

    def check_large_initializers(self) -> None:
        """Refuses external tensors without a large initializer."""
        for tensor in self._external():
            location = _location(tensor)
            if location is None:
                raise RuntimeError(f"No location found for tensor name {tensor.name!r}.")
            self._refuse_unknown(tensor, location)

    def _refuse_unknown(self, tensor: onnx.TensorProto, location: str) -> None:
        """Refuses a ``location`` of ``tensor`` that no large initializer has."""
        if location not in self.large_initializers:
            raise RuntimeError(
                f"Unable to find large tensor named {tensor.name!r} with location {location!r} in "
                f"{sorted(self.large_initializers)}."
            )

    def _external(self) -> Iterable[onnx.TensorProto]:
        tensors = _entries.every_tensor(self.model_proto)
        return (tensor for tensor in tensors if _entries.uses_external_data(tensor))

    def to_container(self) -> Container:
        """The model and its large initializers as a :class:`Container`, which shares their memory."""
        container = Container(self.model_proto)
        container._core.update(_weights(self.large_initializers), True)
        return container

    def save(self, file_path: Path, all_tensors_to_one_file: bool | None = None, **options: Any) -> onnx.ModelProto:
        """Writes the model to ``file_path`` and its weights beside it: to one file, or to one for each tensor. Returns the
        model as it was written. Other options are those of :meth:`Container.save`."""
        one_file = self._one_file if all_tensors_to_one_file is None else all_tensors_to_one_file
        return self._save_external(file_path, one_file, **options)

    def _save_external(self, file_path: Path, all_tensors_to_one_file: bool, **options: Any) -> onnx.ModelProto:
        folder = os.path.dirname(os.fspath(file_path))
        if folder and not os.path.exists(folder):
            raise FileNotFoundError(f"Folder {folder!r} does not exist.")
        is_one_of_ours = not any(options.get(key) is not None for key in ("data_name", "files", "max_shard_bytes"))
        suffix = self._suffix if all_tensors_to_one_file and is_one_of_ours else None
        one_file = None if options.get("files") is not None else all_tensors_to_one_file
        options.setdefault("inline", self.inline)
        try:
            saved = self.to_container()._save(file_path, one_file, options, suffix, replaces=True)
        except Error:
            self.check_large_initializers()  # says of a missing one what onnx says
            raise
        seconds = dict(saved.seconds)
        # By the names that yobx has for these parts.
        self._stats["time_export_tobytes"] += seconds.pop("producing")
        self._stats["time_export_write_tensor_bytes"] += seconds.pop("writing")
        for part, spent in seconds.items():
            self._stats[f"time_export_{part}"] += spent
        return saved.model_proto

    def load(self, file_path: Path, load_large_initializers: bool = True) -> ModelContainer:
        """Loads the model, and the large initializers as maps of their files; without these,
        :meth:`_load_large_initializers` loads them later."""
        loaded = Container.load(file_path, weights=load_large_initializers)
        self.model_proto_ = None
        self._set_loaded(loaded, load_large_initializers)
        return self

    def _load_large_initializers(self, file_path: Path) -> None:
        if self.model_proto_ is None:
            raise RuntimeError("A model must be loaded before loading the weights.")
        self._set_loaded(Container.from_bytes(self.model_proto_.SerializeToString(), model_path=file_path), True)

    def _set_loaded(self, container: Container, has_weights: bool) -> None:
        """Takes model and weights of ``container``; handles are the numbers of the tensors, as in onnx."""
        if self.model_proto_ is None or not has_weights:
            self.model_proto = container.model_proto
        else:
            self.model_proto_.CopyFrom(container.model_proto)  # others may have it
            self.model_proto = self.model_proto_
        self.large_initializers = {}
        if not has_weights:
            return
        for number, tensor in enumerate(_entries.every_tensor(self.model_proto)):
            if not _entries.uses_external_data(tensor):
                continue
            handle = f"#t{number}"
            found = container[_location(tensor) or ""]
            _entries.set_entries(tensor, {"location": handle})
            self.large_initializers[handle] = _as_loaded(found)

    def get_raw_data(self, tensor: Any) -> bytes:
        """The packed little-endian bytes of weights of any kind."""
        return bytes(initializer(tensor).bytes())

    def get_prop(self, tensor: onnx.TensorProto) -> onnx.StringStringEntryProto:
        """The entry of ``tensor`` that has its location, which is that of a large initializer."""
        entry = next((entry for entry in tensor.external_data if entry.key == "location"), None)
        if entry is None:
            raise RuntimeError(f"No location found for tensor name {tensor.name!r}.")
        self._refuse_unknown(tensor, entry.value)
        return entry

    def get_model_with_data(self) -> onnx.ModelProto:
        """The model with every tensor inline; it has less than 2 GiB."""
        self.check_large_initializers()
        return self.to_container().embed()

    def to_ir(self) -> Any:
        """The model as an ``onnx_ir.Model``, whose tensors share the memory of the large initializers."""
        from . import ir

        self.check_large_initializers()
        return ir.from_container(self.to_container())

    def _deserialize_graph(self, proto: onnx.GraphProto, scoped_values: list[Any]) -> Any:
        """``proto`` as an ``onnx_ir.Graph`` with the large initializers in it."""
        from . import ir

        if scoped_values:
            raise NotImplementedError("a graph inside of another is read with it: give the outer one")
        return ir.graph_of(proto, self.large_initializers)


class ExtendedModelContainer(ModelContainer):
    """As :class:`ModelContainer`, with the defaults of yobx: one weights file, ``<model>.onnx.data``. Large initializers are
    arrays, torch tensors and parameters, ``TensorProto``, tensors of onnx_ir, callables and whatever has memory to read.

    ``inline = True`` has a save inline the local functions of the model.
    """

    _one_file = True
    _suffix = ".data"


TorchModelContainer = ExtendedModelContainer


def _location(tensor: onnx.TensorProto) -> str | None:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), None)


def _as_loaded(tensor: Tensor) -> Any:
    """An array on the bytes of ``tensor``; the tensor itself where numpy has no such type."""
    try:
        return tensor.numpy()
    except (ImportError, TypeError):
        return tensor


def make_large_tensor_proto(
    location: str, tensor_name: str, tensor_type: int, shape: tuple[int, ...]
) -> onnx.TensorProto:
    """An external tensor whose elements are behind the handle ``location``."""
    import onnx

    tensor = onnx.TensorProto(name=tensor_name, data_type=tensor_type, dims=shape)
    _entries.set_entries(tensor, {"location": location})
    return tensor


def make_large_model(
    graph: onnx.GraphProto, large_initializers: dict[str, Any] | None = None, **kwargs: Any
) -> ModelContainer:
    """A container of a model with ``graph``. Keywords are those of ``onnx.helper.make_model``."""
    import onnx.helper

    container = ModelContainer()
    container.model_proto = onnx.helper.make_model(graph, **kwargs)
    if large_initializers:
        container.set_large_initializers(large_initializers)
        container.check_large_initializers()
    return container


