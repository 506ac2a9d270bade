"""``save_model`` and ``load_model``, with the signatures of onnx."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Set
from typing import IO, TYPE_CHECKING, Any, Unpack, cast

from . import _entries, _log, _options, _values, external_data_helper
from ._container import Container, _is_model, _parsed
from ._core import Error, byte_len, model_that_needs, save_encoded
from ._dtypes import DataType
from ._formats import is_other
from ._patch import genuine

if TYPE_CHECKING:
    import onnx

    from ._options import Path, SaveOptions, Size

__all__ = ["load_model", "load_model_from_string", "save_model"]

_KEYWORDS: dict[str, Any] = {
    **_options.SAVE_DEFAULTS,
    "save_as_external_data": False,
    "all_tensors_to_one_file": True,
    "location": None,
    "size_threshold": 1024,
    "convert_attribute": False,
}
"""All keywords of :func:`save_model`, for the check of their names."""


def save_model(
    proto: onnx.ModelProto | bytes,
    f: IO[bytes] | Path,
    format: str | None = None,
    *,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = True,
    location: str | None = None,
    size_threshold: Size = 1024,
    convert_attribute: bool = False,
    **options: Unpack[SaveOptions],
) -> None:
    """Writes a model, as ``onnx.save_model`` does: with ``save_as_external_data``, tensors of at least ``size_threshold`` bytes go
    to the file ``location``, or each to one of its own. Other options are those of :meth:`Container.save`.

    ``proto`` is not changed. Files are replaced when all is written. Without ``location``, weights files of default names that
    only the replaced model needed are removed. The default of ``location`` is the name of the model with ``.data``. Sparse tensors stay in the model: onnx does not read them from files.

    Raises:
        ValueError: a tensor names a handle such as ``#w``, whose weights only a container has.

    Warns:
        UserWarning: of files that the model needs, and that are not where it is written to.
    """
    if is_other(f, format):
        if options:
            raise TypeError(f"save_model(): {', '.join(sorted(options))} is for files of protobuf")
        message = _message(proto)
        threshold: int = _values.size("save_model", "size_threshold", size_threshold)
        _entries.refuse_handles(_entries.every_tensor(message))
        return _save_by_onnx(
            message, f, format, save_as_external_data, all_tensors_to_one_file, location, threshold, convert_attribute
        )
    path, given = os.fsdecode(cast("Path", f)), dict[str, Any](options)
    _refuse_others(proto)
    own = {
        "save_as_external_data": save_as_external_data,
        "all_tensors_to_one_file": all_tensors_to_one_file,
        "size_threshold": size_threshold,
        "convert_attribute": convert_attribute,
    }
    checked = _options.checked("save_model", {**own, **given}, _KEYWORDS)
    given = {name: checked[name] for name in given}
    if location and not checked["save_as_external_data"]:
        _options.warn("save_model(): location has no effect without save_as_external_data=True")
    if location and os.fspath(location).endswith("/"):
        raise ValueError(f"save_model(): location {location!r} names a folder, not a file")
    locations = _locations(proto)
    for name, at in locations:
        _entries.refuse_handle(at, name)
    if not hasattr(proto, "SerializeToString") and locations:
        proto = _parsed(proto)
    if checked["save_as_external_data"]:
        return _save_external(proto, path, location, checked, given)
    named = _named_files(proto)
    _refuse_half_loaded(proto, named)
    if len(named) == 1 and "/" not in named[0]:
        return _save_named(proto, path, named[0], given)
    if unknown := given.keys() - {"sync"}:
        raise TypeError(f"save_model(): {', '.join(sorted(unknown))} is for save_as_external_data=True")
    files, model = _with_files(proto, named)
    is_named = len(named) == 1 and not _is_name_of_tensor(proto, named[0])
    _replace_files(files, model, path, given.get("sync", True), is_named)
    _warn_of_missing([location for _, location in locations if location not in files], path)
    return None


def _save_external(proto: Any, path: str, location: str | None, asked: dict[str, Any], given: dict[str, Any]) -> None:
    """Saves a model whose tensors go to files, as the arguments of :func:`save_model` say; ``given`` are options of the save."""
    one_file, threshold = asked["all_tensors_to_one_file"], asked["size_threshold"]
    _refuse_contradictions(location, one_file, given)
    container = _externalized(proto, threshold, asked["convert_attribute"])
    if location and one_file:
        # A file that the caller named is replaced, and one that nobody named is not.
        given["data_name"] = os.fspath(location)
    name = given.get("data_name") or os.path.basename(path)
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise ValueError(f"save_model(): the file name {name!r} is not UTF-8, so no model can name it")
    has_files = _save_container(container, path, None if given.get("files") is not None else one_file, given)
    if location and not has_files:
        _options.warn(f"save_model(): location had no effect: no tensor has {threshold} bytes")


def _save_named(proto: Any, path: str, location: str, given: dict[str, Any]) -> None:
    """Saves a model whose tensors say that they are to be in the file ``location``."""
    if _is_name_of_tensor(proto, location):
        _refuse_unneeded(location, path)
    _save_container(_container_of(proto, _is_loaded), path, True, {"data_name": location, **given})


def _refuse_others(proto: Any) -> None:
    """Refuses what is neither a model nor its bytes."""
    if not isinstance(proto, (bytes, bytearray, memoryview)) and not _is_model(proto):
        raise TypeError(f"save_model() takes a ModelProto or its bytes, not {type(proto).__name__}")


def _message(proto: Any) -> Any:
    """``proto`` as a message."""
    _refuse_others(proto)
    return proto if hasattr(proto, "SerializeToString") else _parsed(proto)


def _refuse_contradictions(location: str | None, one_file: bool, given: dict[str, Any]) -> None:
    """Refuses arguments of which one would have no effect beside another one."""
    if location and (doubled := {"data_name", "files"} & given.keys()):
        if "data_name" in doubled or given["files"] not in ("packed", None):
            raise TypeError(f"save_model(): location and {', '.join(sorted(doubled))} say where weights go: give one of them")
    if location and not one_file:
        # As for onnx, which does not say so.
        _options.warn("save_model(): location has no effect with all_tensors_to_one_file=False, where each tensor has a file")
    if given.get("files") == "embedded":
        raise ValueError("save_model(): save_as_external_data=True and files='embedded' contradict each other: give one of them")
    if not one_file and given.get("files") is not None:
        raise TypeError("save_model(): all_tensors_to_one_file and files say where weights go: give one of them")


def _locations(proto: Any) -> list[tuple[str, str]]:
    """The external tensors of a model, each with its location."""
    if hasattr(proto, "SerializeToString"):
        external = filter(_entries.uses_external_data, _entries.every_tensor(proto))
        return [(tensor.name, _entries.ExternalDataInfo(tensor).location) for tensor in external]
    try:
        declared = Container(proto).declared()
    except Error as error:
        if error.kind == "Decode":
            raise
        return _locations(_parsed(proto))  # tensors that name files and have their elements too
    return [(name, location) for name, (_, _, location) in declared.items() if location is not None]


def _warn_of_missing(locations: list[str], path: str) -> None:
    """Warns of files that the model at ``path`` needs and that are not beside it."""
    for location in dict.fromkeys(locations):
        at = os.path.join(os.path.dirname(path), location)
        if not os.path.exists(at):
            _options.warn(f"{at}: the saved model needs this file, which was not loaded and is not there")


def _externalized(proto: Any, threshold: int, attributes: bool) -> Container:
    """A container of ``proto`` with the tensors behind handles that onnx reads from files: none of training graphs."""
    if not hasattr(proto, "SerializeToString"):
        if not any(name.startswith("training_info[") for name in Container(proto).declared()):
            container = Container(proto)
            container.externalize(threshold, attributes=attributes, sparse=False)
            return container
        proto = _parsed(proto)
    container = _container_of(proto, functools.partial(_is_long, threshold), {"training_info"})
    container.externalize(threshold, attributes=attributes, sparse=False)
    if proto.training_info:
        # Messages one after the other are one message with the lists of both.
        container.model_bytes += type(proto)(training_info=proto.training_info).SerializeToString()
    return container


_NOT_BESIDE = {"overwrite", "protect", "progress", "direct_io", "max_model_bytes", "max_bytes_in_flight"}
"""Options of a save that writes files by itself."""


def _save_container(container: Container, path: str, one_file: bool | None, options: dict[str, Any]) -> bool:
    """Saves ``container``; a weights file may be in a folder that is there, as for onnx. Returns whether there are weights
    files."""
    name = options.get("data_name") or ""
    folder, base = os.path.split(name)
    # A save of the container names no weights as models are.
    is_model = base.lower().endswith(".onnx")
    if not folder and not is_model:
        # Who names files deletes old ones as well: optimum fails where they are gone.
        return container._save(path, one_file, options, replaces=not name)._has_weights_files
    _entries.checked_location(name, "")
    if unknown := options.keys() & _NOT_BESIDE:
        raise ValueError(
            f"save_model(): {', '.join(sorted(unknown))} is for a location beside the model, not in a folder, that does not "
            "end in .onnx"
        )
    sync = options.pop("sync", True)
    model, files = container.to_parts(one_file, **{**options, "data_name": f"{base}.data" if is_model else base})
    message = _parsed(model)
    places = {file: os.path.join(folder, file.removesuffix(".data") if is_model else file) for file in files}
    for tensor in _entries.every_tensor(message):
        for entry in tensor.external_data:
            if entry.key == "location" and _entries.uses_external_data(tensor):
                entry.value = places.get(entry.value, entry.value)
    written: dict[str, Any] = {places[file]: [data] for file, data in files.items()}
    _replace_files(written, message, path, sync, named=True)
    return bool(files)


def _is_loaded(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor names a file and has its elements all the same: it is to be written there."""
    return _entries.uses_external_data(tensor) and tensor.HasField("raw_data")


def _copied(proto: Any) -> Any:
    copied = type(proto)()
    copied.CopyFrom(proto)
    return copied


def _named_files(proto: Any) -> list[str]:
    """The files that tensors with elements are to be written to."""
    if not hasattr(proto, "SerializeToString"):
        return []
    tensors = filter(_is_loaded, _entries.every_tensor(proto))
    return list(dict.fromkeys(_entries.ExternalDataInfo(tensor).location for tensor in tensors))


def _is_name_of_tensor(proto: Any, location: str) -> bool:
    """Whether a tensor that is to be written to ``location`` has this name, so that perhaps nobody chose it."""
    named = filter(_is_loaded, _entries.every_tensor(proto))
    return any(tensor.name == location == _entries.ExternalDataInfo(tensor).location for tensor in named)


def _refuse_half_loaded(proto: Any, named: list[str]) -> None:
    """Refuses to replace a file that tensors without elements are in."""
    written = set(map(os.path.normpath, named))
    for tensor in _entries.every_tensor(proto) if named else ():
        if _entries.uses_external_data(tensor) and not tensor.HasField("raw_data"):
            location = _entries.ExternalDataInfo(tensor).location
            if os.path.normpath(location) in written:
                raise ValueError(f"save_model(): {location} is not replaced: tensor {tensor.name!r} is in it and is not loaded")


def _container_of(proto: Any, is_taken: Callable[[Any], bool], without: Set[str] = frozenset()) -> Container:
    """A container of ``proto``, which may be longer than protobuf writes: initializers that are taken are behind handles, and are not
    copied before they are written. All others are inline, or where they are if they have no elements. Fields of the model may be left
    out."""
    message, weights = type(proto)(), dict[str, Any]()
    if _has_unknown(proto) or _has_unknown(proto.graph):
        message.CopyFrom(proto)
        for name in without:
            message.ClearField(name)
    else:
        _copy_fields(proto, message, {"graph", *without})
        if proto.HasField("graph"):
            message.graph.SetInParent()
        _copy_fields(proto.graph, message.graph, {"initializer"})
        for tensor in proto.graph.initializer:
            header = message.graph.initializer.add()
            if not is_taken(tensor) or _has_unknown(tensor):
                header.CopyFrom(tensor)
                continue
            _copy_fields(tensor, header, {"raw_data", "external_data", "data_location"})
            handle = _entries.handle_of(tensor.name, weights)
            _entries.set_entries(header, {"location": handle})
            weights[handle] = functools.partial(getattr, tensor, "raw_data")
    for tensor in filter(_is_loaded, list(_entries.every_tensor(message))):
        if not is_taken(tensor):
            _entries.clear_entries(tensor)
            continue
        handle = _entries.handle_of(tensor.name, weights)
        weights[handle] = tensor.raw_data
        tensor.ClearField("raw_data")
        _entries.set_entries(tensor, {"location": handle})
    return Container(message, weights)


def _is_long(threshold: int, tensor: onnx.TensorProto) -> bool:
    """Whether a tensor is so long that it is external in any case: shapes, which are integers, may have to be inline."""
    integers = (DataType.STRING, DataType.INT64, DataType.INT32, DataType.BOOL)
    if not tensor.HasField("raw_data") or tensor.data_type in integers:
        return False
    return byte_len(tensor.data_type, list(tensor.dims)) >= max(threshold, 64 << 10)


def _has_unknown(message: Any) -> bool:
    """Whether a message has fields that this version of onnx does not know, which have to be copied with it."""
    try:
        from google.protobuf.unknown_fields import UnknownFieldSet
    except ImportError:
        return False
    return len(UnknownFieldSet(message)) > 0


def _copy_fields(source: Any, target: Any, without: set[str]) -> None:
    """Copies all fields but these."""
    for field, value in source.ListFields():
        if field.name in without:
            continue
        if hasattr(value, "MergeFrom"):  # a message, or a list
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def _with_files(proto: Any, named: list[str]) -> tuple[dict[str, list[bytes]], Any]:
    """The files to write by their locations, each in parts, and the model."""
    if not named:
        return {}, proto
    copied = _copied(proto)
    files: dict[str, list[bytes]] = {location: [] for location in named}
    ends = dict.fromkeys(named, 0)
    for tensor in filter(_is_loaded, list(_entries.every_tensor(copied))):
        location, data = _entries.ExternalDataInfo(tensor).location, tensor.raw_data
        external_data_helper.set_external_data(tensor, location, ends[location], len(data))
        tensor.ClearField("raw_data")
        files[location].append(data)
        ends[location] += len(data)
    return files, copied


def _replace_files(files: dict[str, Any], model: Any, path: str, sync: bool, named: bool) -> None:
    """Writes weights files, by their locations, and the ``model`` to ``path``: all of them are replaced or none. A file that is
    ``named`` by the caller is replaced even if no model needs it."""
    folder = os.path.realpath(os.path.dirname(path))
    target = os.path.realpath(path)  # A link stays one,
    if os.path.dirname(target) != folder:
        target = os.path.join(folder, os.path.basename(path))  # unless it leads to another folder, such as a cache.
    _refuse_one_file([_entries.beneath(folder, location) for location in files], target)
    message = model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model)
    if not message:
        raise ValueError("save_model(): the model is empty, and nothing would read it")
    if os.path.exists(target) and not os.path.isfile(target):
        if files:
            raise ValueError(f"save_model(): {path} is not a file, so its weights cannot be beside it")
        _write(target, os.O_WRONLY, message)  # a device, or a pipe
    elif any("\ud800" <= letter <= "\udfff" for letter in os.path.basename(target)):
        _replace_alone(target, message, sync)
    else:
        clock = _log.Clock()
        for warning in save_encoded(target, message, [(at, parts, named) for at, parts in files.items()], sync):
            _options.warn(warning)
        lengths = (memoryview(part).nbytes for parts in files.values() for part in parts)
        clock.info("saved %r, %d files", target, 1 + len(files), nbytes=len(message) + sum(lengths))


def _replace_alone(target: str, message: bytes, sync: bool) -> None:
    """Replaces a model without weights files whose name is not UTF-8, which no file of a save could have in it."""
    with tempfile.TemporaryDirectory(prefix=".onnx-container-", dir=os.path.dirname(target)) as staging:
        staged = os.path.join(staging, "model")
        _write(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, message, sync)
        if os.path.exists(target):
            shutil.copymode(target, staged)
        os.replace(staged, target)


def _refuse_one_file(targets: list[str], target: str) -> None:
    """Refuses weights files that are one file, or that are the model or may be another one."""
    for at in targets:
        if at.lower().endswith(".onnx") and os.path.exists(at) and model_that_needs(at) is None:
            raise ValueError(f"save_model(): {at} is not replaced: it ends in .onnx, as models do, and may be one")
    if twice := {it for it in targets if targets.count(it) > 1 or it == target}:
        raise ValueError(f"save_model(): several locations are one file: {', '.join(sorted(twice))}")


def _refuse_unneeded(location: str, path: str) -> None:
    """Refuses a file that is there, that is named after a tensor, and that no model needs: it may be anything."""
    at = _entries.beneath(os.path.dirname(path), location)
    if os.path.exists(at) and model_that_needs(at) is None:
        raise ValueError(f"save_model(): {at} exists and is not replaced, because no model here refers to it")


def _write(path: str, flags: int, message: bytes, sync: bool = False) -> None:
    with os.fdopen(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666), "wb") as file:
        file.write(message)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def _save_by_onnx(
    proto: Any, f: Any, format: str | None, external: bool, one_file: bool, location: str | None, size: int, attribute: bool
) -> None:
    import onnx

    genuine(onnx.save_model)(
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

    if is_other(f, format):
        return genuine(onnx.load_model)(f, format, load_external_data)
    path = os.fsdecode(cast("Path", f))
    if not load_external_data:
        return _parsed(Container.load(path, weights=False).model_bytes)
    container = Container.load(path)
    model = container.model_proto
    _entries.put_weights(model, container)
    return model


def load_model_from_string(s: bytes | str, format: str = "protobuf") -> onnx.ModelProto:
    """The model of these bytes, as ``onnx.load_model_from_string``."""
    import onnx

    return genuine(onnx.load_model_from_string)(s, format)
