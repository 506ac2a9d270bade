"""Sessions of onnxruntime on the weights of a container, without a copy and without a file."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._container import Container

DIRECTLY = "session.use_external_initializer_file_buffers_directly"


_GIVEN: weakref.WeakKeyDictionary[Any, list[memoryview]] = weakref.WeakKeyDictionary()
"""The weights that options have, of which onnxruntime has the addresses alone."""


def session_options(container: Container, options: Any = None) -> Any:
    """``options``, or new ones, with the weights of ``container`` by handle."""
    container.check()
    return _with_weights({handle: tensor.raw for handle, tensor in container.items()}, options)


def inference_session(container: Container, options: Any = None, **keywords: Any) -> Any:
    """A session that keeps the weights alive, by its options."""
    import onnxruntime

    model, files = container.to_parts(files="per-tensor")
    options = _with_weights({name: memoryview(weights) for name, weights in files.items()}, options)
    session = onnxruntime.InferenceSession(bytes(model), options, **keywords)
    session.onnx_container_options = options
    return session


def _with_weights(weights: dict[str, memoryview], options: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions() if options is None else options
    if options in _GIVEN:
        raise ValueError("these options have the weights of a session already: make new ones for each session")
    if weights:
        if not hasattr(options, "add_external_initializers_from_files_in_memory"):
            raise ImportError(
                f"onnxruntime {onnxruntime.__version__} takes no weights from memory: install 1.24 or later,"
                " or save the model and open its file"
            )
        options.add_session_config_entry(DIRECTLY, "1")
        buffers = list(weights.values())
        _GIVEN[options] = buffers
        options.add_external_initializers_from_files_in_memory(list(weights), buffers, [len(it) for it in buffers])
    return options
