"""Sessions of onnxruntime on the weights of a container, without a copy and without a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._container import Container

DIRECTLY = "session.use_external_initializer_file_buffers_directly"


def session_options(container: Container, options: Any = None) -> Any:
    """``options``, or new ones, with the weights of ``container`` by handle."""
    import onnxruntime

    class Options(onnxruntime.SessionOptions):
        """Options that keep the weights alive, as a session keeps its options."""

    options = Options() if options is None else options
    container.check()
    handles, buffers = container.keys(), [tensor.raw for tensor in container.values()]
    if isinstance(options, Options):
        options.onnx_container_buffers = buffers
    if handles:
        options.add_session_config_entry(DIRECTLY, "1")
        lengths = [len(buffer) for buffer in buffers]
        options.add_external_initializers_from_files_in_memory(handles, buffers, lengths)
    return options, buffers


def inference_session(container: Container, options: Any = None, **keywords: Any) -> Any:
    """A session that keeps the weights alive."""
    import onnxruntime

    options, buffers = session_options(container, options)
    session = onnxruntime.InferenceSession(container.model_bytes, options, **keywords)
    session.onnx_container_buffers = buffers
    return session
