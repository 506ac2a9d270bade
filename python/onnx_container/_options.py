"""Keyword arguments of the public functions: their names and types, for type checkers, and how the core takes them.

A mistyped or contradictory option is an error before anything is done, which says what would be right.
"""

from __future__ import annotations

import difflib
import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from . import _core, _places, _values

if TYPE_CHECKING:
    Path = str | os.PathLike[str]
    Progress = Callable[[int, int], bool | None]
    Size = int | str

__all__ = [
    "CastOptions",
    "ExportOptions",
    "FillOptions",
    "InlineOptions",
    "IrSaveOptions",
    "LoadOptions",
    "PublishOptions",
    "SaveOptions",
    "SignOptions",
    "VerifyOptions",
]


class LoadOptions(TypedDict, total=False):
    """How a model is loaded."""

    weights: bool
    base_dir: Path | None
    paths: Literal["strict", "model-dirs", "trusted"]
    limits: Mapping[str, Size] | None
    no_copy: bool | None
    alignment: Size | None
    verify_digests: bool
    store: Any
    store_options: Mapping[str, str | int | bool] | None


class InlineOptions(TypedDict, total=False):
    """Which local functions are inlined."""

    only: Iterable[str] | str | None
    except_: Iterable[str] | str
    max_nodes: int | None
    refuse_conflicts: bool


class IrSaveOptions(TypedDict, total=False):
    """How a model is saved, beside what onnx_ir has for it."""

    files: Literal["packed", "per-tensor", "safetensors", "embedded", "as-loaded"] | None
    max_shard_bytes: Size | None
    shard_names: Literal["numbered", "transformers-js"]
    data_name: str | None
    externalize: bool
    threshold: Size | None
    alignment_large: Size | None
    dedup: bool
    inline: bool | InlineOptions
    digests: bool
    checksums: bool
    max_model_bytes: Size | None
    max_bytes_in_flight: Size | None
    sync: bool
    direct_io: bool
    overwrite: bool
    protect: Iterable[Path] | Path
    progress: Progress | bool | None


class SaveOptions(IrSaveOptions, total=False):
    """How a model is saved."""

    alignment: Size | None


class PublishOptions(SaveOptions, total=False):
    """How a model is published in a store."""

    keep: int
    if_present: str
    dry_run: bool
    store: Any
    store_options: Mapping[str, str | int | bool] | None


class ExportOptions(TypedDict, total=False):
    """How tensors are written to safetensors files."""

    min_bytes: Size | None
    all_tensors: bool
    max_shard_bytes: Size | None
    metadata: Mapping[str, str] | None
    padding: bool
    sync: bool
    overwrite: bool
    progress: Progress | bool | None


class FillOptions(TypedDict, total=False):
    """How weights are put into a model."""

    rename: Mapping[str, str] | Callable[[str], str] | None
    strip_prefix: str | None
    replace_prefix: Mapping[str, str] | None
    ignore: Iterable[str] | str
    partial: bool
    strict: bool
    tied: Literal["all", "this"] | None


class CastOptions(TypedDict, total=False):
    """Which weights are cast."""

    from_: Any
    min_bytes: Size | None
    except_: Iterable[str] | str
    compute: bool
    keep_io: bool
    keep_ops: Iterable[str] | str


class SignOptions(TypedDict, total=False):
    """How a model is signed."""

    signature: Path | None
    all_files: bool
    shard_size: Size | None
    shard_form: Literal["spec", "model-signing"] | None
    ignore_stored_digests: bool
    sync: bool
    overwrite: bool
    mmap: bool
    paths: Literal["strict", "model-dirs", "trusted"]
    limits: Mapping[str, Size] | None
    progress: Progress | bool | None


class VerifyOptions(TypedDict, total=False):
    """How a signature is verified."""

    signature: Path | None
    ignore_unsigned_files: bool
    all_files: bool
    require_files: bool
    mmap: bool
    paths: Literal["strict", "model-dirs", "trusted"]
    limits: Mapping[str, Size] | None
    progress: Progress | bool | None


_NAMES_OF_OTHERS = {
    "location": "data_name",
    "external_data": "data_name",
    "size_threshold": "threshold",
    "size_threshold_bytes": "threshold",
    "max_shard_size": "max_shard_bytes",
    "max_shard_size_bytes": "max_shard_bytes",
    "save_as_external_data": "externalize",
}
"""What onnx, onnx_ir and Hugging Face call an option, and its name here."""

_BYTES = {
    "alignment",
    "alignment_large",
    "align_threshold",
    "max_bytes_in_flight",
    "max_in_flight_bytes",
    "max_model_bytes",
    "max_shard_bytes",
    "max_shard_size_bytes",
    "min_bytes",
    "min_equal_bytes",
    "shard_size",
    "size_threshold",
    "size_threshold_bytes",
    "threshold",
}
"""Options that are numbers of bytes, or texts such as ``"20MB"``."""

_COUNTS = {"max_nodes", "min_elements"}
_TEXTS = {"files", "shard_names", "data_name", "paths", "strip_prefix", "tied", "shard_form"}
_PATHS = {"base_dir", "signature"}


_PACKAGE = os.path.dirname(__file__)


def warn(message: str) -> None:
    """Warns at the line that called the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def checked(function: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with the defaults of what is not given. Numbers and flags of numpy become those of Python.

    Raises:
        TypeError: an option that ``function`` does not have, or a value of another type.
    """
    given = {name: _plain(function, name, value) for name, value in given.items()}
    for name, value in given.items():
        if name not in defaults:
            like = [known] if (known := _NAMES_OF_OTHERS.get(name)) in defaults else []
            like = like or difflib.get_close_matches(name, defaults, 1, 0.5)
            raise TypeError(f"{function}() has no option {name!r}" + (f": did you mean {like[0]!r}?" if like else ""))
        wanted = _wanted(name, value, defaults[name])
        if wanted is not None:
            raise TypeError(f"{function}(): {name} is {wanted}, not {value!r}")
        if name in ("alignment", "alignment_large") and value is not None and value.bit_count() != 1:
            raise ValueError(f"{function}(): {name} is a power of two, not {value}")
        if name == "max_shard_bytes" and value == 0:
            raise ValueError(f"{function}(): max_shard_bytes is 0, and a shard has at least one byte")
        if name == "data_name" and value == "":
            raise ValueError(f"{function}(): data_name is the name of a file, not ''")
    return {**defaults, **given}


def _plain(function: str, name: str, value: Any) -> Any:
    """``value`` as an int of Python, for options that are numbers, or as a bool, where numpy has made it."""
    value = _values.flag(value)
    if name in _BYTES:
        value = _values.size(function, name, value)
    if name in _BYTES | _COUNTS and not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass  # what it should be is said later
    return value


def _wanted(name: str, value: Any, default: Any) -> str | None:
    """What the option should be, where ``value`` is something else."""
    if name in _BYTES or name in _COUNTS:
        is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64
        unit = "a number" if name in _COUNTS else "a number of bytes"
        as_text = "" if name in _COUNTS else ", or a text such as '20MB'"
        return None if value is None or is_one else f"{unit}, as an int{as_text}"
    if isinstance(default, bool):
        return None if isinstance(value, bool) or name == "inline" else "True or False"
    if value is None and default is None:
        return None
    if name in _TEXTS:
        return None if isinstance(value, str) else "a str"
    if name in _PATHS:
        return None if isinstance(value, (str, os.PathLike)) else "a path"
    if name == "no_copy":
        return None if isinstance(value, bool) else "True, False or None"
    return None


def refuse_progress(function: str, progress: Any) -> None:
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"{function}(): progress is True, or a callable, not {progress!r}")


def load(function: str = "load", mmap: bool = True, model_path: Path | None = None, **given: Any) -> dict[str, Any]:
    """Options of a load."""
    defaults: dict[str, Any] = {
        "weights": True,
        "base_dir": None,
        "paths": "model-dirs",
        "limits": None,
        "no_copy": None,
        "alignment": None,
        "verify_digests": False,
    }
    if function in _READ_URLS:
        defaults |= {"store": None, "store_options": None}
    options, mmap = checked(function, given, defaults), is_mapped(function, mmap)
    store = options.pop("store", None)
    reached = _places.reached(function, store, options.pop("store_options", None))
    limits = _values.limits(function, options["limits"])
    return {**options, "mmap": mmap, "model_path": model_path, "limits": limits, "reached": reached, "store_given": store}


def is_mapped(function: str, mmap: Any, weights: Any = None) -> bool:
    """``mmap`` as a bool; anything else is an error. With weights of the caller no source is mapped or read."""
    mmap = _values.flag(mmap)
    if not isinstance(mmap, bool):
        raise TypeError(f"{function}(): mmap is True or False, not {mmap!r}")
    if weights is not None and not mmap:
        raise ValueError(f"{function}(): mmap=False is of a rewrite, which reads its source: leave it out with weights")
    return mmap


def source(function: str, mmap: bool, **given: Any) -> tuple[str, list[tuple[str, int]], bool]:
    """How the source of a rewrite is opened: which links are followed, limits, and whether it is mapped."""
    options = checked(function, given, {"paths": "model-dirs", "limits": None})
    return options["paths"], _values.limits(function, options["limits"]), is_mapped(function, mmap)


_READ_URLS = {"load", "inspect", "diff", "check", "check_model", "findings"}
"""Functions that read models in stores too."""


def signature(function: str, key: tuple[str, Any], defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a signing or of a verification, with the key, which has a name."""
    name, value = key
    if not isinstance(value, (str, os.PathLike, bytes)):
        raise TypeError(f"{function}(): {name} is the path of a PEM file, or the PEM as bytes, not {type(value).__name__}")
    defaults = {"signature": None, "mmap": True, "paths": "model-dirs", "limits": None, "progress": None, **defaults}
    options = checked(function, given, defaults)
    refuse_progress(function, options["progress"])
    return {**options, name: value, "limits": _values.limits(function, options["limits"])}


def sign(private_key: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a signing."""
    defaults = {
        "all_files": False,
        "shard_size": None,
        "shard_form": None,
        "ignore_stored_digests": False,
        "sync": True,
        "overwrite": True,
    }
    return signature("sign", ("private_key", private_key), defaults, given)


def verify(public_key: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a verification."""
    defaults = {"ignore_unsigned_files": False, "all_files": False, "require_files": False}
    return signature("verify_signature", ("public_key", public_key), defaults, given)


def inline(function: str = "inline_functions", **given: Any) -> dict[str, Any]:
    """Options of inlining."""
    defaults = {"only": None, "except_": (), "max_nodes": None, "refuse_conflicts": False}
    options = checked(function, given, defaults)
    options["except"] = _names(function, "except_", options.pop("except_"))
    only = options["only"]
    return {**options, "only": None if only is None else _names(function, "only", only)}


def _names(function: str, option: str, given: Any) -> list[str]:
    return _values.names(f"{function}(): {option} is a name, or several", given)


SAVE_DEFAULTS: dict[str, Any] = {
    "files": None,
    "max_shard_bytes": None,
    "shard_names": "numbered",
    "data_name": None,
    "externalize": False,
    "threshold": None,
    "alignment": None,
    "alignment_large": None,
    "dedup": False,
    "inline": False,
    "digests": False,
    "checksums": False,
    "max_model_bytes": None,
    "max_bytes_in_flight": None,
    "sync": True,
    "direct_io": True,
    "overwrite": True,
    "protect": (),
    "progress": None,
}
"""The options of a save."""

_IDLE = {
    "per-tensor": {"data_name", "shard_names"},
    "embedded": {
        "alignment",
        "alignment_large",
        "checksums",
        "data_name",
        "dedup",
        "externalize",
        "max_shard_bytes",
        "shard_names",
        "threshold",
    },
}
"""Options of a save that have no effect on ``files`` of these kinds."""

IDLE_IN_STORES = {"direct_io", "max_bytes_in_flight", "overwrite", "protect", "sync"}
"""Options of a save that have no effect where nothing is written to a disk."""

_IDLE_IN = {
    "to_parts": {"direct_io", "max_model_bytes", "overwrite", "progress", "protect", "sync"},
    "publish": IDLE_IN_STORES,
}
"""Options of a save that have no effect in these functions."""


def _refuse_idle(function: str, given: set[str], files: str) -> None:
    """Refuses options that were given and have no effect."""
    if idle := given & _IDLE.get(files, set()):
        raise ValueError(f"{function}(): {', '.join(sorted(idle))} has no effect with files={files!r}")
    if idle := given & _IDLE_IN.get(function, set()):
        raise ValueError(f"{function}(): {', '.join(sorted(idle))} has no effect here: nothing is written to a disk")
    if "shard_names" in given and "max_shard_bytes" not in given:
        raise ValueError(f"{function}(): shard_names has no effect without max_shard_bytes")


def save(function: str = "save", one_file: bool | None = None, **given: Any) -> dict[str, Any]:
    """Options of a save."""
    defaults = SAVE_DEFAULTS
    options, one_file = checked(function, given, defaults), _values.flag(one_file)
    if one_file is not None and options["files"] is not None:
        raise ValueError("one_file and files say the same: give one of them")
    if options["threshold"] is not None and not options["externalize"]:
        raise ValueError("threshold says which tensors move out of the model: give externalize=True with it")
    refuse_progress(function, options["progress"])
    if options["files"] is None:
        options["files"] = "per-tensor" if one_file is False else "packed"
    wanted = options["inline"]
    is_dict = isinstance(wanted, Mapping) and all(isinstance(name, str) for name in wanted)
    if not isinstance(wanted, bool) and not is_dict:
        raise TypeError(f"{function}(): inline is True or False, or a dict of the options of inline_functions, not {wanted!r}")
    if one_file is not None and not isinstance(one_file, bool):
        raise TypeError(f"{function}(): one_file is True or False, not {one_file!r}")
    wanted = inline("inline", **wanted) if isinstance(wanted, Mapping) else inline() if wanted else None
    _refuse_idle(function, {name for name, value in given.items() if value != defaults[name]}, options["files"])
    protect = _values.paths(f"{function}(): protect is a path, or several", options["protect"])
    # What only functions of this package ask for.
    own = {"data_suffix": None, "remove_superseded": False}
    return {**options, **own, "inline": wanted, "protect": protect}


def export(is_chosen: bool, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of an export to safetensors: its own, and those of a save. Where the tensors are chosen by name, no other option
    chooses them."""
    defaults = {
        "min_bytes": None,
        "all_tensors": False,
        "max_shard_bytes": None,
        "metadata": None,
        "padding": False,
        "sync": True,
        "overwrite": True,
        "progress": None,
    }
    options, function = checked("export_safetensors", given, defaults), "export_safetensors"
    refuse_progress(function, options["progress"])
    if is_chosen and (idle := {"min_bytes", "all_tensors"} & given.keys()):
        raise ValueError(f"{function}(): {', '.join(sorted(idle))} has no effect with names, which say what is written")
    own = {
        "names": None,
        "min_bytes": options["min_bytes"],
        "all_tensors": options["all_tensors"],
        "shard_bytes": options["max_shard_bytes"],
        "metadata": _values.texts(f"{function}(): metadata maps keys to texts", options["metadata"]),
        "padding": options["padding"],
    }
    return own, save(function, **{name: options[name] for name in ("sync", "overwrite", "progress")})


def fill(function: str = "fill", **given: Any) -> dict[str, Any]:
    """Options of a fill."""
    defaults = {
        "rename": None,
        "strip_prefix": None,
        "replace_prefix": None,
        "ignore": (),
        "partial": False,
        "strict": False,
        "tied": None,
    }
    options = checked(function, given, defaults)
    rename = options["rename"]
    if rename is not None and not isinstance(rename, Mapping) and not callable(rename):
        raise TypeError(f"{function}(): rename maps names of weights to names of tensors, or is a function, not {rename!r}")
    if isinstance(rename, Mapping):
        for name, to in rename.items():
            if not isinstance(name, str) or not isinstance(to, str):
                raise TypeError(f"{function}(): rename maps a name to one name, not {name!r} to {to!r}")
    is_mapping = isinstance(rename, Mapping)
    prefixes = f"{function}(): replace_prefix maps prefixes to prefixes, such as {{'': 'model.'}}"
    return {
        **options,
        "rename": list(rename.items()) if is_mapping else [],
        "rename_with": None if is_mapping else rename,
        "replace_prefix": _values.texts(prefixes, options["replace_prefix"]),
        "ignore": _names(function, "ignore", options["ignore"]),
    }


def cast(**given: Any) -> dict[str, Any]:
    """Options of a cast."""
    defaults = {"from_": None, "min_bytes": None, "except_": (), "compute": False, "keep_io": False, "keep_ops": ()}
    options = checked("cast", given, defaults)
    named = {name: _names("cast", name, options[name]) for name in ("except_", "keep_ops")}
    if options["keep_io"] and not options["compute"]:
        raise ValueError("keep_io is for compute=True: without it, inputs and outputs stay as they are")
    if options["keep_ops"] and not options["compute"]:
        raise ValueError("keep_ops is for compute=True: without it, all nodes compute in the old type")
    return {**options, **named}


def kept_ops(function: str, given: Any, container: _core.Container) -> list[str]:
    """The operators and nodes that a cast leaves as they are.

    Raises:
        ValueError: the model has none of a name.
    """
    names = _names(function, "keep_ops", given)
    if unknown := _core.unknown_operators(container, names):
        raise ValueError(f"{function}(): keep_ops has {unknown[0]!r}: no node has this name, and none is of this type")
    return names
