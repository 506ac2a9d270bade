"""``save_model`` and ``load_model``, with the signatures of onnx."""

from __future__ import annotations

import os
import tempfile
from typing import IO, TYPE_CHECKING, Any

from . import external_data_helper
from ._container import Container, _parsed

if TYPE_CHECKING:
    import onnx

    from ._container import Path

__all__ = ["load_model", "load_model_from_string", "save_model"]

_TEXT = (".txtpb", ".textproto", ".prototxt", ".pbtxt", ".json", ".onnxjson", ".onnxtext", ".onnxtxt")


def _is_other(f: Any, format: str | None) -> bool:
    """Whether onnx has to read or write it: a stream, or another format than protobuf's."""
    if hasattr(f, "read") or hasattr(f, "write"):
        return True
    if format is not None:
        return format != "protobuf"
    return os.path.splitext(os.fspath(f))[1] in _TEXT


def save_model(
    proto: onnx.ModelProto | bytes,
    f: IO[bytes] | Path,
    format: str | None = None,
    *,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = True,
    location: str | None = None,
    size_threshold: int = 1024,
    convert_attribute: bool = False,
    **options: Any,
) -> None:
    """Writes a model, as ``onnx.save_model`` does: with ``save_as_external_data``, tensors of at least ``size_threshold`` bytes go
    to the file ``location``, or each to one of its own. Other options are those of :meth:`Container.save`.

    ``proto`` is not changed, and files that are there are replaced when all is written. The default of ``location`` is the name
    of the model with ``.data``.
    """
    if _is_other(f, format):
        return _save_by_onnx(
            proto, f, format, save_as_external_data, all_tensors_to_one_file, location, size_threshold, convert_attribute
        )
    if save_as_external_data:
        container = Container(_inline(proto))
        container.externalize(size_threshold, attributes=convert_attribute)
        if all_tensors_to_one_file and location is not None:
            options.setdefault("data_name", location)
        container.save(f, all_tensors_to_one_file, **options)
        return None
    message = _with_files(proto, f)
    folder = os.path.dirname(os.path.abspath(f))
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".onnx-container-", delete=False) as file:
        try:
            file.write(message)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, _mode(f))
            os.replace(file.name, f)
        except BaseException:
            os.unlink(file.name)
            raise
    return None


def _mode(path: Path) -> int:
    """The permissions of the file at ``path``, or those of a new one."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _inline(proto: Any) -> Any:
    """``proto``, where tensors that were loaded from files are inline."""
    if not hasattr(proto, "SerializeToString"):
        return proto
    if not any(_is_loaded(tensor) for tensor in external_data_helper._get_all_tensors(proto)):
        return proto
    copied = type(proto)()
    copied.CopyFrom(proto)
    for tensor in filter(_is_loaded, external_data_helper._get_all_tensors(copied)):
        external_data_helper._clear_entries(tensor)
    return copied


def _is_loaded(tensor: onnx.TensorProto) -> bool:
    return external_data_helper.uses_external_data(tensor) and tensor.HasField("raw_data")


def _with_files(proto: Any, f: Any) -> bytes:
    """The bytes of ``proto``, after tensors that are to be in files are written to them."""
    if not hasattr(proto, "SerializeToString"):
        return bytes(proto)
    if any(_is_loaded(tensor) for tensor in external_data_helper._get_all_tensors(proto)):
        copied = type(proto)()
        copied.CopyFrom(proto)
        proto = external_data_helper.write_external_data_tensors(copied, os.path.dirname(os.fspath(f)))
    return proto.SerializeToString()


def _save_by_onnx(
    proto: Any, f: Any, format: str | None, external: bool, one_file: bool, location: str | None, size: int, attribute: bool
) -> None:
    import onnx

    proto = _parsed(proto) if isinstance(proto, bytes) else proto
    onnx.save_model(
        proto,
        f,
        format,
        save_as_external_data=external,
        all_tensors_to_one_file=one_file,
        location=location,
        size_threshold=size,
        convert_attribute=attribute,
    )


def load_model(f: IO[bytes] | Path, format: str | None = None, load_external_data: bool = True) -> onnx.ModelProto:
    """Reads a model, and with ``load_external_data`` its weights into it, as ``onnx.load_model`` does. :meth:`Container.load`
    maps them instead."""
    import onnx

    if _is_other(f, format):
        return onnx.load_model(f, format, load_external_data)
    if not load_external_data:
        return _parsed(Container.load(f, weights=False).model_bytes)
    container = Container.load(f)
    model = container.model_proto
    external_data_helper._put_weights(model, container)
    return model


def load_model_from_string(s: bytes | str, format: str = "protobuf") -> onnx.ModelProto:
    """The model of these bytes, as ``onnx.load_model_from_string``."""
    import onnx

    return onnx.load_model_from_string(s, format)
