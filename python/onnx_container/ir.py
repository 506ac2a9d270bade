"""``load``, ``save`` and ``save_safetensors`` with the signatures of onnx_ir, for its ``Model``.

What is loaded has tensors of this package, which are slices of maps, one for each file. What is saved is read from where it is,
each tensor when its turn comes.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import external_data_helper
from ._container import Container
from ._convert import initializer
from ._onnx import _is_other, save_model
from ._tensor import Tensor as _Tensor

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from ._container import Path

    Callback = Callable[[onnx_ir.TensorProtocol, onnx_ir.external_data.CallbackInfo], None]

__all__ = ["Tensor", "from_container", "load", "save", "save_safetensors"]


class Tensor(_Tensor):
    """A tensor of a container as an ``onnx_ir.TensorProtocol``."""

    @property
    def dtype(self) -> onnx_ir.DataType:
        """The element type."""
        import onnx_ir

        return onnx_ir.DataType(int(super().dtype))

    @property
    def shape(self) -> onnx_ir.Shape:
        """The dimensions."""
        import onnx_ir

        return onnx_ir.Shape(super().dims)


def load(path: Path, format: str | None = None) -> onnx_ir.Model:
    """The model at ``path``; its external tensors are slices of maps of their files."""
    import onnx_ir

    if _is_other(path, format):
        return onnx_ir.load(path, format)
    return from_container(Container.load(path))


def from_container(container: Container) -> onnx_ir.Model:
    """The model of ``container``, whose large initializers are shared and not copied."""
    import onnx_ir

    model = onnx_ir.serde.deserialize_model(container.model_proto)
    for place in _places(model):
        tensor = place.tensor
        if isinstance(tensor, onnx_ir.ExternalTensor) and tensor.location in container:
            place.set(_tensor(container[tensor.location], tensor))
    return model


def graph_of(proto: onnx.GraphProto, large_initializers: Mapping[str, Any]) -> onnx_ir.Graph:
    """The graph of ``proto``; its external tensors have the weights behind their handles."""
    import onnx_ir

    graph = onnx_ir.serde.deserialize_graph(proto)
    for place in itertools.chain.from_iterable(map(_places_in, [graph, *graph.subgraphs()])):
        tensor = place.tensor
        if isinstance(tensor, onnx_ir.ExternalTensor) and tensor.location in large_initializers:
            declared = (int(tensor.dtype), tuple(int(dim) for dim in tensor.shape))
            place.set(_tensor(_Tensor(initializer(large_initializers[tensor.location], declared)), tensor))
    return graph


def _tensor(found: _Tensor, declared: Any) -> Tensor:
    """The elements ``found``, with the name and the metadata of the tensor that the model declares."""
    # Elements that are behind several handles, or tied, may be declared with other dimensions.
    dims = [int(dim) for dim in declared.shape]
    same = list(found.dims) == dims
    tensor = Tensor(found, name=declared.name or "") if same else Tensor(found.bytes(), int(declared.dtype), dims)
    tensor.name, tensor.doc_string = declared.name or "", declared.doc_string
    tensor.metadata_props.update(declared.metadata_props)
    return tensor


class _Place:
    """Where a model has a tensor."""

    def __init__(self, tensor: Any, set: Callable[[Any], None]) -> None:
        self.tensor, self.set = tensor, set


def _places(model: onnx_ir.Model) -> Iterator[_Place]:
    """Every initializer of ``model``, and every tensor in an attribute."""
    for graph in model.graphs():
        yield from _places_in(graph)
    for function in model.functions.values():
        yield from _attribute_places(function)


def _places_in(graph: onnx_ir.Graph) -> Iterator[_Place]:
    for value in list(graph.initializers.values()):
        if value.const_value is not None:
            yield _Place(value.const_value, lambda new, value=value: setattr(value, "const_value", new))
    yield from _attribute_places(graph)


def _attribute_places(nodes: Any) -> Iterator[_Place]:
    import onnx_ir

    for node in nodes:
        for name, attribute in list(node.attributes.items()):
            if not attribute.is_ref() and attribute.type == onnx_ir.AttributeType.TENSOR and attribute.value is not None:

                def put(new: Any, node: Any = node, name: str = name) -> None:
                    node.attributes[name] = onnx_ir.AttrTensor(name, new)

                yield _Place(attribute.value, put)


@contextmanager
def _handles(model: onnx_ir.Model, threshold: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The bytes of ``model`` with handles in place of initializers over ``threshold`` bytes, and these by handle. The
    model is as it was at the end."""
    import onnx_ir

    replaced: list[tuple[_Place, Any]] = []
    large: dict[str, Any] = {}
    try:
        for graph in model.graphs():
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is None or tensor.dtype == onnx_ir.DataType.STRING or tensor.nbytes <= threshold:
                    continue
                handle = _unique(f"#{value.name}", large)
                place = _Place(tensor, lambda new, value=value: setattr(value, "const_value", new))
                place.set(_declared(tensor, handle, value.name))
                replaced.append((place, tensor))
                large[handle] = tensor
        yield onnx_ir.to_proto(model).SerializeToString(), large
    finally:
        for place, tensor in replaced:
            place.set(tensor)


def _declared(tensor: Any, handle: str, name: str | None) -> Any:
    import onnx_ir

    return onnx_ir.ExternalTensor(
        handle,
        None,
        None,
        tensor.dtype,
        shape=onnx_ir.Shape(tensor.shape),
        name=name or tensor.name or "",
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )


def _unique(name: str, taken: dict[str, Any]) -> str:
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def save(
    model: onnx_ir.Model,
    path: Path,
    format: str | None = None,
    external_data: Path | None = None,
    size_threshold_bytes: int = 256,
    max_shard_size_bytes: int | None = None,
    callback: Callback | None = None,
    max_workers: int | None = None,
    max_in_flight_bytes: int = 1 << 30,
    alignment: int | None = None,
    align_threshold: int = 1 << 20,
    **options: Any,
) -> None:
    """Writes ``model`` to ``path``, and initializers over ``size_threshold_bytes`` to the file ``external_data`` beside it.
    Without that, tensors stay where they are. ``model`` is not changed.

    Threads are as many as there are cores, whatever ``max_workers`` is. ``alignment`` is that of tensors over
    ``align_threshold`` bytes if that is 1 MiB, and otherwise that of all. Other options are those of :meth:`Container.save`.
    """
    import onnx_ir

    if _is_other(path, format):
        onnx_ir.save(model, path, format, external_data, size_threshold_bytes, max_shard_size_bytes, callback)
        return
    if external_data is None:
        save_model(onnx_ir.to_proto(model), path)
        return
    if alignment is not None:
        options.setdefault("alignment_large", alignment)
        if align_threshold != 1 << 20:
            options.setdefault("alignment", alignment)
    options.update(
        data_name=os.fspath(external_data), max_shard_bytes=max_shard_size_bytes, max_bytes_in_flight=max_in_flight_bytes
    )
    _save(model, path, size_threshold_bytes, callback, options)


def save_safetensors(
    model: onnx_ir.Model,
    path: Path,
    /,
    *,
    format: str | None = None,
    size_threshold_bytes: int = 256,
    max_shard_size_bytes: int | None = None,
    callback: Callback | None = None,
    **options: Any,
) -> None:
    """Writes ``model`` to ``path``, and initializers over ``size_threshold_bytes`` to a safetensors file beside it. ``model`` is not
    changed."""
    if max_shard_size_bytes is not None or _is_other(path, format):
        import onnx_ir

        onnx_ir.save_safetensors(
            model,
            path,
            format=format,
            size_threshold_bytes=size_threshold_bytes,
            max_shard_size_bytes=max_shard_size_bytes,
            callback=callback,
        )
        return
    _save(model, path, size_threshold_bytes, callback, {"files": "safetensors", **options})


def _save(model: onnx_ir.Model, path: Path, threshold: int, callback: Callback | None, options: dict[str, Any]) -> None:
    with _handles(model, threshold) as (message, large):
        container = Container(message, large)
        if callback is not None:
            options["progress"] = _Progress(container, path, large, callback, options)
        container.save(path, **options)


class _Progress:
    """Calls back for each tensor, when the bytes up to its end are written."""

    def __init__(self, container: Container, path: Path, large: dict[str, Any], callback: Callback, options: Any) -> None:
        from onnx_ir.external_data import CallbackInfo

        self._lock, self._callback = threading.Lock(), callback
        planned = container.dry_run(path, **options).model_proto
        handles = [
            external_data_helper.ExternalDataInfo(tensor).location
            for tensor in _external(container.model_proto)
        ]
        written: list[Any] = [external_data_helper.ExternalDataInfo(tensor) for tensor in _external(planned)]
        self._pending: list[tuple[int, Any, Any]] = []
        end = 0
        for index, (handle, info) in enumerate(zip(handles, written, strict=True)):
            end += large[handle].nbytes
            about = CallbackInfo(total=len(handles), index=index, offset=info.offset or 0, filename=info.location)
            self._pending.append((end, large[handle], about))

    def __call__(self, done: int, total: int) -> None:
        with self._lock:
            while self._pending and (self._pending[0][0] <= done or done >= total):
                _, tensor, info = self._pending.pop(0)
                self._callback(tensor, info)


def _external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    return (it for it in external_data_helper._get_all_tensors(model) if external_data_helper.uses_external_data(it))
