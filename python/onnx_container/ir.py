"""``load``, ``save`` and ``save_safetensors`` with the signatures of onnx_ir, for its ``Model``.

What is loaded has tensors of this package, which are slices of maps, one for each file. What is saved is read from where it is,
each tensor when its turn comes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from . import _entries, _progress, _values
from ._container import Container
from ._convert import initializer
from ._core import Bytes, map_file
from ._dtypes import of_numpy
from ._formats import is_other
from ._patch import genuine
from ._tensor import Tensor as _Tensor

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from ._options import IrSaveOptions, Path, SaveOptions, Size

    Callback = Callable[[onnx_ir.TensorProtocol, onnx_ir.external_data.CallbackInfo], None]

__all__ = ["Tensor", "from_container", "load", "save", "save_safetensors", "to_container"]


def __getattr__(name: str) -> Any:
    """Everything else of onnx_ir, so that this module can be imported in its place."""
    # What the import system and other tools look for is not asked of a package that may not be
    # installed.
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import onnx_ir
    except ImportError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}, and onnx_ir is not installed") from None
    try:
        return getattr(onnx_ir, name)
    except AttributeError:
        raise AttributeError(f"neither {__name__!r} nor 'onnx_ir' has an attribute {name!r}") from None


def __dir__() -> list[str]:
    try:
        import onnx_ir
    except ImportError:
        return sorted(__all__)
    return sorted({*__all__, *onnx_ir.__all__})


class Tensor(_Tensor):
    """A tensor of a container as an ``onnx_ir.TensorProtocol``."""

    @property
    def dtype(self) -> onnx_ir.DataType:  # type: ignore[override]
        """The element type."""
        import onnx_ir

        return onnx_ir.DataType(int(super().dtype))

    @property
    def shape(self) -> onnx_ir.Shape:  # type: ignore[override]
        """The dimensions."""
        import onnx_ir

        return onnx_ir.Shape(super().dims)


def load(path: Path, format: str | None = None) -> onnx_ir.Model:
    """The model at ``path``; its external tensors are slices of maps of their files."""
    import onnx_ir

    if is_other(path, format):
        return genuine(onnx_ir.load)(path, format)
    return from_container(Container.load(path))


def from_container(container: Container) -> onnx_ir.Model:
    """The model of ``container``, whose large initializers are shared and not copied."""
    import onnx_ir

    model = onnx_ir.serde.deserialize_model(container.model_proto)
    for place in _places(model):
        tensor = place.tensor
        if isinstance(tensor, onnx_ir.ExternalTensor) and tensor.location in container:
            place.set(_tensor(container[str(tensor.location)], tensor))
    return model


def to_container(model: onnx_ir.Model, size_threshold_bytes: Size = 256) -> Container:
    """A container of ``model``, whose initializers over ``size_threshold_bytes`` are its large ones: shared, not copied, and those that
    are produced when they are needed (``LazyTensor``) not before. ``model`` is not changed."""
    threshold = _values.size("to_container", "size_threshold_bytes", size_threshold_bytes)
    return _container(*_handles(model, threshold))


def _container(message: bytes, large: dict[str, Any]) -> Container:
    """A container of tensors of onnx_ir by handle; arrays of numpy are given as these, which is faster."""
    return Container(message, {handle: _array_of(tensor) for handle, tensor in large.items()})


def _array_of(tensor: Any) -> Any:
    """The array that ``tensor`` has its elements in, as they are written; otherwise the tensor itself."""
    raw: Any = getattr(tensor, "raw", None)
    is_plain = type(raw).__module__ == "numpy" and type(tensor).__name__ == "Tensor"
    return raw if is_plain and of_numpy(raw.dtype) == tensor.dtype else tensor


def _length(tensor: Any) -> int:
    """The length of ``tensor`` in bytes."""
    array = _array_of(tensor)
    # onnx_ir counts the elements each time. Those narrower than a byte are of no kind that numpy
    # has.
    return int(array.nbytes if array is not tensor and array.dtype.kind in "fiubc" else tensor.nbytes)


def graph_of(proto: onnx.GraphProto, large_initializers: Mapping[str, Any]) -> onnx_ir.Graph:
    """The graph of ``proto``; its external tensors have the weights behind their handles."""
    import onnx_ir

    graph = onnx_ir.serde.deserialize_graph(proto)
    for place in itertools.chain.from_iterable(map(_graph_places, [graph, *graph.subgraphs()])):
        tensor = place.tensor
        if isinstance(tensor, onnx_ir.ExternalTensor) and tensor.location in large_initializers:
            declared = (int(tensor.dtype), _dims(tensor))
            place.set(_tensor(_Tensor(initializer(large_initializers[str(tensor.location)], declared)), tensor))
    return graph


def _dims(tensor: Any) -> tuple[int, ...]:
    return tuple(int(dim) for dim in tensor.shape)


def _tensor(found: _Tensor, declared: Any) -> Tensor:
    """The elements ``found``, with the name and the metadata of the tensor that the model declares."""
    # Elements that are behind several handles, or tied, may be declared with other dimensions.
    dims = _dims(declared)
    same = found.dims == dims
    tensor = Tensor(found, name=declared.name or "") if same else Tensor(found.bytes(), int(declared.dtype), dims)
    tensor.name, tensor.doc_string = declared.name or "", declared.doc_string
    tensor.metadata_props.update(declared.metadata_props)
    return tensor


class _Place:
    """Where a model has a tensor, how another is put there, and how all is put back as it was."""

    def __init__(
        self, name: str | None, tensor: Any, set: Callable[[Any], None], restore: Callable[[], None] | None = None
    ) -> None:
        self.name, self.tensor, self.set = name or "", tensor, set
        self.restore = restore or functools.partial(set, tensor)


def _places(model: onnx_ir.Model) -> Iterator[_Place]:
    """Every initializer of ``model``, and every tensor in an attribute."""
    yield from itertools.chain.from_iterable(map(_graph_places, _graphs(model)))
    for function in model.functions.values():
        yield from _attribute_places(function)
        yield from _attribute_places([function])  # the defaults of its attributes


def _graphs(model: onnx_ir.Model) -> Iterator[onnx_ir.Graph]:
    """Every graph of ``model``, those in functions included."""
    yield from model.graphs()
    for function in model.functions.values():
        yield from function.subgraphs()


def _graph_places(graph: onnx_ir.Graph) -> Iterator[_Place]:
    for value in list(graph.initializers.values()):
        if value.const_value is not None:
            yield _initializer_place(value)
    yield from _attribute_places(graph)


def _initializer_place(value: onnx_ir.Value) -> _Place:
    return _Place(value.name, value.const_value, lambda new: setattr(value, "const_value", new))


def _attribute_places(nodes: Any) -> Iterator[_Place]:
    for node in nodes:
        for name, attribute in list(node.attributes.items()):
            if not attribute.is_ref() and attribute.value is not None:
                yield from _places_of(node, name, attribute)


def _places_of(node: Any, name: str, attribute: Any) -> Iterator[_Place]:
    import onnx_ir

    def restore() -> None:
        node.attributes[name] = attribute

    def put_one(new: Any) -> None:
        node.attributes[name] = onnx_ir.AttrTensor(name, new, doc_string=attribute.doc_string)

    if attribute.type == onnx_ir.AttributeType.TENSOR:
        yield _Place(attribute.value.name, attribute.value, put_one, restore)
    if attribute.type == onnx_ir.AttributeType.TENSORS:
        tensors = list(attribute.value)

        def put(at: int, new: Any) -> None:
            tensors[at] = new
            node.attributes[name] = onnx_ir.AttrTensors(name, list(tensors), doc_string=attribute.doc_string)

        for at, tensor in enumerate(attribute.value):
            yield _Place(tensor.name, tensor, functools.partial(put, at), restore)


def _handles(model: onnx_ir.Model, threshold: int) -> tuple[bytes, dict[str, Any]]:
    """The bytes of ``model`` with handles in place of initializers over ``threshold`` bytes, and these by handle. All other tensors
    are inline."""

    def is_large(tensor: Any) -> bool:
        # One on torch's meta device has no elements that could be inline; it is refused by its
        # name.
        return _length(tensor) > threshold or getattr(getattr(tensor, "raw", None), "is_meta", False)

    places = (_initializer_place(value) for graph in model.graphs() for value in graph.initializers.values())
    return _behind_handles(model, list(places), is_large)


_CHANGING = threading.RLock()
"""Held while a model is written: its tensors are replaced by marks for that time."""


def _behind_handles(
    model: onnx_ir.Model, places: list[_Place], is_large: Callable[[Any], bool]
) -> tuple[bytes, dict[str, Any]]:
    """The bytes of ``model`` with handles in place of those tensors at ``places`` that are large, and these by handle. All others are
    inline. The model is as it was afterwards."""
    import onnx_ir

    replaced: list[_Place] = []
    large: dict[str, Any] = {}
    mark = uuid.uuid4().bytes

    def replace(place: _Place, new: Any) -> None:
        replaced.append(place)
        place.set(new)

    with _CHANGING:
        try:
            for place in places:
                tensor = place.tensor
                if tensor is None or tensor.dtype == onnx_ir.DataType.STRING or not is_large(tensor):
                    continue
                handle = _entries.handle_of(place.name, large)
                replace(place, _Behind(tensor, mark + handle.encode()))
                large[handle] = tensor
            # What stays has to be inline: the file that it is in now is not that of what is saved.
            files = _Files(model)
            for place in _places(model):
                if isinstance(place.tensor, onnx_ir.ExternalTensor):
                    replace(place, files.tensor(place.tensor))
            message = onnx_ir.to_proto(model)
        finally:
            for place in reversed(replaced):
                place.restore()
    for tensor in _entries.every_tensor(message) if large else ():
        if tensor.raw_data.startswith(mark):
            handle = tensor.raw_data[len(mark) :].decode()
            tensor.ClearField("raw_data")
            _entries.set_entries(tensor, {"location": handle})
    return message.SerializeToString(), large


class _Behind:
    """Stands for a large tensor while a model is written: its elements are a mark, and the handle that it is behind."""

    __slots__ = ("_mark", "_tensor", "name")

    def __init__(self, tensor: Any, mark: bytes) -> None:
        self._tensor, self._mark, self.name = tensor, mark, tensor.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)

    def tobytes(self) -> bytes:
        """The mark."""
        return self._mark


def save(
    model: onnx_ir.Model,
    path: Path,
    format: str | None = None,
    external_data: Path | None = None,
    size_threshold_bytes: Size = 256,
    max_shard_size_bytes: Size | None = None,
    callback: Callback | None = None,
    max_workers: int | None = None,
    max_in_flight_bytes: Size = 1 << 30,
    alignment: Size | None = None,
    align_threshold: Size = 1 << 20,
    **options: Unpack[IrSaveOptions],
) -> None:
    """Writes ``model`` to ``path``, and initializers over ``size_threshold_bytes`` to the file ``external_data`` beside it. Without
    that, tensors that were loaded from files in the folder of ``path`` stay there, and all others are written into the model.
    ``model`` is not changed.

    Files of external tensors are mapped meanwhile, so that no other process may truncate or write to them.

    Threads are as many as there are cores, whatever ``max_workers`` is. ``alignment`` is that of tensors over
    ``align_threshold`` bytes if that is 1 MiB, and otherwise that of all. Other options are those of :meth:`Container.save`; one that
    says where weights go (``files``) does instead of ``external_data``.
    """
    import onnx_ir

    _refuse_handles(model)
    given: dict[str, Any] = dict(options)
    threshold: int = _values.size("save", "size_threshold_bytes", size_threshold_bytes)
    most: int | None = _values.size("save", "max_shard_size_bytes", max_shard_size_bytes)
    if max_shard_size_bytes is not None and external_data is None:
        raise ValueError("max_shard_size_bytes is for external_data: name the file that the names of shards are made of")
    if given and is_other(path, format):
        raise TypeError(f"save(): {', '.join(sorted(given))} is for files of protobuf")
    for name, value in (("max_shard_size_bytes", most), ("max_workers", max_workers)):
        if value is not None and value <= 0:
            raise ValueError(f"{name} is {value}, and has to be more than 0")
    if is_other(path, format):
        # Older versions have no shards, and another order.
        shards = {} if most is None else {"max_shard_size_bytes": most}
        files = {"external_data": external_data, "size_threshold_bytes": threshold, "callback": callback}
        genuine(onnx_ir.save)(model, path, format, **files, **shards)
        return
    if external_data is not None:
        if doubled := {"files", "data_name", "max_shard_bytes"} & given.keys():
            raise ValueError(f"{', '.join(sorted(doubled))} and external_data say the same: give one of them")
        given |= {"data_name": os.fspath(external_data), "max_shard_bytes": most}
    elif not {"files", "data_name", "max_shard_bytes"} & given.keys():
        _save_in_place(model, path, given)
        return
    if alignment is not None:
        given.setdefault("alignment_large", alignment)
        if _values.size("save", "align_threshold", align_threshold) != 1 << 20:
            given.setdefault("alignment", alignment)
    given.setdefault("max_bytes_in_flight", max_in_flight_bytes)
    _save(model, path, threshold, callback, given)


def _save_in_place(model: onnx_ir.Model, path: Path, options: dict[str, Any]) -> None:
    """Writes ``model``; tensors in files beside it stay there."""
    import onnx_ir

    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    files = _Files(model)

    def stays(tensor: Any) -> bool:
        found = tensor.bytes().file_range if isinstance(tensor, _Tensor) and not tensor.is_lazy else None
        return found is not None and os.path.dirname(os.path.realpath(found[0])) == folder

    with _CHANGING, contextlib.ExitStack() as stack:
        for place in _places(model):
            if isinstance(place.tensor, onnx_ir.ExternalTensor):
                stack.callback(place.restore)
                place.set(files.tensor(place.tensor))
        message, large = _behind_handles(model, list(_places(model)), stays)
    _container(message, large).save(path, **{**options, "files": "as-loaded" if large else "embedded"})


def _refuse_handles(model: onnx_ir.Model) -> None:
    """Refuses external tensors that name handles: their weights would be lost."""
    import onnx_ir

    for place in _places(model):
        if isinstance(place.tensor, onnx_ir.ExternalTensor):
            _entries.refuse_handle(str(place.tensor.location), place.name)


class _Files:
    """The files of the external tensors of a model of onnx_ir, each mapped once."""

    def __init__(self, model: onnx_ir.Model) -> None:
        import onnx_ir

        external = (place.tensor for place in _places(model) if isinstance(place.tensor, onnx_ir.ExternalTensor))
        self._folders = {os.fspath(tensor.base_dir) for tensor in external} - {""}
        self._mapped: dict[str, Bytes] = {}

    def tensor(self, external: Any) -> Tensor:
        """An external tensor as one of this package, on the map of its file."""
        path = os.path.realpath(os.path.join(self._folder_of(external), external.location))
        if path not in self._mapped:
            self._mapped[path] = map_file(path, True)
        offset = external.offset or 0
        part = self._mapped[path].slice(offset, offset + external.nbytes)
        return _tensor(_Tensor(part, int(external.dtype), _dims(external)), external)

    def _folder_of(self, external: Any) -> str:
        """The folder of its file. onnx_ir does not say it of the tensors in functions: it is that of all others."""
        if external.base_dir or not self._folders:
            return os.fspath(external.base_dir)
        if len(self._folders) > 1:
            raise ValueError(f"tensor {external.name!r}: it is not known which folder {external.location!r} is in")
        return next(iter(self._folders))


def save_safetensors(
    model: onnx_ir.Model,
    path: Path,
    /,
    *,
    format: str | None = None,
    size_threshold_bytes: Size = 256,
    max_shard_size_bytes: Size | None = None,
    callback: Callback | None = None,
    **options: Unpack[SaveOptions],
) -> None:
    """Writes ``model`` to ``path``, and initializers over ``size_threshold_bytes`` to a safetensors file beside it. ``model`` is not
    changed. Several files (``max_shard_size_bytes``) are written by onnx_ir."""
    _refuse_handles(model)
    threshold: int = _values.size("save_safetensors", "size_threshold_bytes", size_threshold_bytes)
    most: int | None = _values.size("save_safetensors", "max_shard_size_bytes", max_shard_size_bytes)
    if most is not None or is_other(path, format):
        import onnx_ir

        if options:
            raise TypeError(f"save_safetensors(): {', '.join(sorted(options))} is for one file, beside a model of protobuf")
        genuine(onnx_ir.save_safetensors)(
            model,
            path,
            format=format,
            size_threshold_bytes=threshold,
            max_shard_size_bytes=most,
            callback=callback,
        )
        return
    _save(model, path, threshold, callback, {"files": "safetensors", **options})


def _save(model: onnx_ir.Model, path: Path, threshold: int, callback: Callback | None, options: dict[str, Any]) -> None:
    message, large = _handles(model, threshold)
    container = _container(message, large)
    with _progress.shown("save", options) as given:
        if callback is not None:
            given["progress"] = _Progress(container, path, large, callback, given)
        container._save(path, None, given)


class _Progress:
    """Calls back for each tensor, when the bytes up to its end are written."""

    def __init__(self, container: Container, path: Path, large: dict[str, Any], callback: Callback, options: Any) -> None:
        from onnx_ir.external_data import CallbackInfo

        self._lock, self._callback = threading.Lock(), callback
        planned = container.dry_run(path, **options).model_proto
        # Options of the save may move other tensors to files, or all into the model.
        written: dict[str, list[Any]] = {}
        for tensor in _external(planned):
            written.setdefault(tensor.name, []).append(_entries.ExternalDataInfo(tensor))
        pairs = [
            (_entries.ExternalDataInfo(tensor).location, written[tensor.name].pop(0))
            for tensor in _external(container.model_proto)
            if written.get(tensor.name)
        ]
        self._progress = options.get("progress")
        self._pending: deque[tuple[int, Any, Any]] = deque()
        end = 0
        for index, (handle, info) in enumerate(pairs):
            end += large[handle].nbytes
            about = CallbackInfo(total=len(pairs), index=index, offset=info.offset or 0, filename=info.location)
            self._pending.append((end, large[handle], about))

    def __call__(self, done: int, total: int) -> bool | None:
        with self._lock:
            while self._pending and (self._pending[0][0] <= done or done >= total):
                _, tensor, info = self._pending.popleft()
                self._callback(tensor, info)
        return self._progress(done, total) if self._progress is not None else None


def _external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    return (it for it in _entries.every_tensor(model) if _entries.uses_external_data(it))
