"""The model that weights of ranks are written to: whatever Python has as a model, as a container whose weights need not be there.

Weights that ranks write are behind handles that nothing is behind; what the model has beside them stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from . import _core, _entries, ir
from ._container import Container, _ir_model
from ._dtypes import DataType

__all__ = ["Skeleton", "skeleton"]

_LEAST = 256
"""Initializers of onnx_ir of more bytes than this become large ones."""


@dataclass(frozen=True)
class Skeleton:
    """A model, and what is known of its weights before they are there."""

    with_slots: Callable[[Collection[str]], Container]
    """The container whose tensors of these names are behind handles without weights."""
    declared: dict[str, tuple[DataType, tuple[int, ...], str | None]]
    """Every tensor by name: type, shape, handle or file."""
    tied: dict[str, str] = field(default_factory=dict)
    """Names that the exporter left out, because another tensor has the same weights, and that tensor."""
    unused: set[str] = field(default_factory=set)
    """Weights that the graph does not use."""
    computed: set[str] = field(default_factory=set)
    """Tensors that the exporter computed of the weights of this name."""


def skeleton(model: Any) -> Skeleton:
    """What ``model`` is: a container, a path, a program of ``torch.onnx``, an ``onnx_ir.Model``, a ``ModelProto`` or its bytes."""
    if (ir_model := _ir_model(model)) is not None:
        return _of_ir(ir_model, getattr(model, "exported_program", None))
    container = _opened(model)
    return Skeleton(lambda names: _emptied(container, names), container.declared())


def _opened(model: Any) -> Container:
    """The container of ``model``, without weights where their files are not there."""
    if isinstance(model, Container):
        return _named_by_handles(model.copy())
    if not isinstance(model, (str, os.PathLike)):
        return _named_by_handles(Container(model))
    try:
        return Container.load(model)
    except _core.MissingFileError:
        if not os.path.exists(model):
            raise
        return _named_by_handles(Container.load(model, weights=False))


def _named_by_handles(container: Container) -> Container:
    """The container with a handle for each tensor that names a file, since nothing is known of that file."""
    files = {name for name, (_, _, location) in container.declared().items() if location and not location.startswith("#")}
    return _behind_handles(container, files) if files else container


def _emptied(container: Container, names: Collection[str]) -> Container:
    """A copy of ``container`` whose tensors ``names`` are behind handles without weights."""
    declared = container.declared()
    inline = {name for name in names if declared[name][2] is None}
    emptied = _behind_handles(container, inline) if inline else container.copy()
    # One handle may be that of several tensors.
    for handle in {declared[name][2] for name in names} & set(emptied.keys()):
        del emptied[str(handle)]
    return emptied


def _behind_handles(container: Container, names: Collection[str]) -> Container:
    """A copy of ``container`` whose initializers ``names`` are behind handles of their own."""
    message = container.model_proto
    handles = dict.fromkeys([*container.keys(), *(location or "" for _, _, location in container.declared().values())])
    for tensor in message.graph.initializer:
        if tensor.name in names:
            handle = _entries.handle_of(tensor.name, handles)
            handles[handle] = None
            _clear(tensor)
            _entries.set_entries(tensor, {"location": handle})
    copied = container.copy()
    copied.model_proto = message
    return copied


_FIELDS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def _clear(tensor: Any) -> None:
    for name in _FIELDS:
        tensor.ClearField(name)


def _of_ir(model: Any, program: Any) -> Skeleton:
    """A model of onnx_ir, and the ``ExportedProgram`` that it was made of, which knows the module."""
    values = model.graph.initializers
    declared: dict[str, tuple[DataType, tuple[int, ...], str | None]] = {
        name: (DataType(int(value.dtype)), tuple(int(it) for it in value.shape), None)
        for name, value in values.items()
        if value.dtype is not None
    }
    state = {} if program is None else dict(program.state_dict)
    raw = {name: getattr(value.const_value, "raw", None) for name, value in values.items()}
    tied = _tied(state, raw)
    return Skeleton(
        lambda names: _ir_container(model, names),
        declared,
        tied,
        set() if program is None else _unused(program) - tied.keys(),
        {name for name, it in raw.items() if name in state and it is not state[name] and _is_elsewhere(it, state[name])},
    )


def _is_elsewhere(raw: Any, weights: Any) -> bool:
    """Whether ``raw`` is another tensor than ``weights``."""
    return not hasattr(raw, "untyped_storage") or _memory(raw) != _memory(weights)


def _memory(tensor: Any) -> Any:
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _tied(state: dict[str, Any], raw: dict[str, Any]) -> dict[str, str]:
    """Weights of the module that the graph has under another name."""
    known = {_memory(weights): name for name, weights in state.items() if name in raw and weights.numel()}
    return {name: known[_memory(it)] for name, it in state.items() if name not in raw and _memory(it) in known}


def _unused(program: Any) -> set[str]:
    """Weights of the module that no node of the program uses."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs: Iterable[Any] = program.graph_signature.input_specs
    return {it.target for it in inputs if it.target and (node := nodes.get(it.arg.name)) is not None and not node.users}


def _ir_container(model: Any, names: Collection[str]) -> Container:
    """The container of a model of onnx_ir: what is in memory is shared, ``names`` have no weights, nor have tensors of torch
    without memory."""

    main = model.graph.initializers
    slots = {id(value.const_value) for name, value in main.items() if name in names}

    def is_slot(tensor: Any) -> bool:
        return id(tensor) in slots or _is_absent(tensor)

    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    places = [ir._initializer_place(value) for value in values]
    message, large = ir._behind_handles(model, places, lambda it: is_slot(it) or ir._length(it) > _LEAST)
    return ir._container(message, {handle: tensor for handle, tensor in large.items() if not is_slot(tensor)})


def _is_absent(tensor: Any) -> bool:
    """Whether ``tensor`` is one of torch's without memory."""
    raw = getattr(tensor, "raw", None)
    return bool(getattr(raw, "is_meta", False)) or type(raw).__name__ == "FakeTensor"
