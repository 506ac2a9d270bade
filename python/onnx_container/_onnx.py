"""``save_model`` and ``load_model``, with the signatures of onnx."""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import IO, TYPE_CHECKING, Any, Unpack, cast

from . import external_data_helper
from ._container import Container, _parsed

if TYPE_CHECKING:
    import onnx

    from ._options import Path, SaveOptions

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
    **options: Unpack[SaveOptions],
) -> None:
    """Writes a model, as ``onnx.save_model`` does: with ``save_as_external_data``, tensors of at least ``size_threshold`` bytes go
    to the file ``location``, or each to one of its own. Other options are those of :meth:`Container.save`.

    ``proto`` is not changed, and files that are there are replaced when all is written. The default of ``location`` is the name
    of the model with ``.data``. Sparse tensors stay in the model: onnx does not read them from files.
    """
    if _is_other(f, format):
        return _save_by_onnx(
            proto, f, format, save_as_external_data, all_tensors_to_one_file, location, size_threshold, convert_attribute
        )
    path, given = os.fspath(cast("Path", f)), dict[str, Any](options)
    if proto is None:
        raise TypeError("save_model() takes a ModelProto or its bytes, not None")
    if save_as_external_data:
        container = Container(_loaded_inline(proto))
        container.externalize(size_threshold, attributes=convert_attribute, sparse=False)
        if all_tensors_to_one_file and not {"data_name", "files", "max_shard_bytes"} & given.keys():
            # By its name, because a file that the caller named is replaced, and one that nobody named is not.
            given["data_name"] = location or os.path.basename(path) + ".data"
        _save_container(container, path, None if "files" in given else all_tensors_to_one_file, given)
        return None
    named = _named_files(proto)
    if len(named) == 1 and "/" not in named[0]:
        container = Container(*_behind_handles(proto))
        _save_container(container, path, True, {"data_name": named[0], **given})
        return None
    if unknown := given.keys() - {"sync"}:
        raise TypeError(f"save_model(): {', '.join(sorted(unknown))} is for save_as_external_data=True")
    _replace_files(_with_files(proto, os.path.dirname(path), named), path, given.get("sync", True))
    return None


def _save_container(container: Container, path: str, one_file: bool | None, options: dict[str, Any]) -> None:
    """Saves ``container``; a weights file may be in a folder that is there, as for onnx."""
    name = options.get("data_name")
    folder = os.path.dirname(name) if name else ""
    if not folder:
        container.save(path, one_file, **options)
        return
    external_data_helper._checked(name or "", "")
    model, files = container.to_parts(one_file, **{**options, "data_name": os.path.basename(name or "")})
    message = _parsed(model)
    for tensor in external_data_helper.every_tensor(message):
        for entry in tensor.external_data:
            if entry.key == "location" and external_data_helper.uses_external_data(tensor):
                entry.value = f"{folder}/{entry.value}"
    base = os.path.dirname(path)
    written: list[tuple[str, Any]] = [(os.path.join(base, folder, file), [data]) for file, data in files.items()]
    _replace_files([*written, (path, [message.SerializeToString()])], path, options.get("sync", True))


def _is_loaded(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor names a file and has its elements all the same: it is to be written there."""
    return external_data_helper.uses_external_data(tensor) and tensor.HasField("raw_data")


def _loaded_inline(proto: Any) -> Any:
    """``proto``, where tensors that were loaded from files are inline."""
    if not hasattr(proto, "SerializeToString"):
        return proto
    if not any(map(_is_loaded, external_data_helper.every_tensor(proto))):
        return proto
    copied = _copied(proto)
    for tensor in filter(_is_loaded, external_data_helper.every_tensor(copied)):
        external_data_helper._clear_entries(tensor)
    return copied


def _copied(proto: Any) -> Any:
    copied = type(proto)()
    copied.CopyFrom(proto)
    return copied


def _named_files(proto: Any) -> list[str]:
    """The files that tensors with elements are to be written to."""
    if not hasattr(proto, "SerializeToString"):
        return []
    tensors = filter(_is_loaded, external_data_helper.every_tensor(proto))
    return list(dict.fromkeys(external_data_helper.ExternalDataInfo(tensor).location for tensor in tensors))


def _behind_handles(proto: Any) -> tuple[bytes, dict[str, Any]]:
    """The bytes of ``proto`` with handles in place of tensors that are to be written to a file, and their elements."""
    copied, weights = _copied(proto), {}
    for number, tensor in enumerate(filter(_is_loaded, list(external_data_helper.every_tensor(copied)))):
        handle = f"#{number}"
        weights[handle] = tensor.raw_data
        tensor.ClearField("raw_data")
        external_data_helper._set_entries(tensor, {"location": handle})
    return copied.SerializeToString(), weights


def _with_files(proto: Any, folder: str, named: list[str]) -> Any:
    """The files to write, each with its parts; the model, at the end, has no path here."""
    if not hasattr(proto, "SerializeToString"):
        Container(proto)  # an error if it is no model
        return [("", [bytes(proto)])]
    if not named:
        return [("", [proto.SerializeToString()])]
    copied = _copied(proto)
    files: dict[str, list[bytes]] = {location: [] for location in named}
    ends = dict.fromkeys(named, 0)
    for tensor in filter(_is_loaded, list(external_data_helper.every_tensor(copied))):
        location = external_data_helper._checked(external_data_helper.ExternalDataInfo(tensor).location, tensor.name)
        data = tensor.raw_data
        external_data_helper.set_external_data(tensor, location, ends[location], len(data))
        tensor.ClearField("raw_data")
        files[location].append(data)
        ends[location] += len(data)
    paths = [(os.path.join(folder, location), parts) for location, parts in files.items()]
    return [*paths, ("", [copied.SerializeToString()])]


def _replace_files(files: Any, path: str, sync: bool) -> None:
    """Writes files beside those that they replace, and renames them when all are written: the model, at ``path``, last."""
    staged: list[tuple[str, str]] = []
    try:
        for target, parts in files:
            target = os.path.realpath(target or path)
            if os.path.exists(target) and not os.path.isfile(target):
                _write(target, os.O_WRONLY, parts, False)  # a device, or a pipe
                continue
            name = os.path.join(os.path.dirname(target), f".onnx-container-{uuid.uuid4().hex}")
            staged.append((name, target))
            _write(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, parts, sync)
            if os.path.exists(target):
                os.chmod(name, os.stat(target).st_mode & 0o777)
        for name, target in staged:
            os.replace(name, target)
    except BaseException:
        for name, _ in staged:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        raise


def _write(path: str, flags: int, parts: Any, sync: bool) -> None:
    with os.fdopen(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666), "wb") as file:
        for part in parts:
            file.write(part)
        if sync:
            file.flush()
            os.fsync(file.fileno())


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
    path = cast("Path", f)
    if not load_external_data:
        return _parsed(Container.load(path, weights=False).model_bytes)
    container = Container.load(path)
    model = container.model_proto
    external_data_helper._put_weights(model, container)
    return model


def load_model_from_string(s: bytes | str, format: str = "protobuf") -> onnx.ModelProto:
    """The model of these bytes, as ``onnx.load_model_from_string``."""
    import onnx

    return onnx.load_model_from_string(s, format)
