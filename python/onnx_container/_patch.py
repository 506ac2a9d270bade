"""``patch``: this package's functions in the place of those of onnx, for tools that call onnx.

Functions are replaced wherever a module has them, also under another name: a tool may have said
``from onnx import save_model``. Each is replaced by a function of its own, which is found again by
what it is, so that all are put back, and names that a module took from this package stay.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Patch", "patch"]

_ORIGINAL = "__onnx_container_original__"
"""The attribute of a function that replaces another one: the one that it replaces."""


def patch(onnx_ir: bool = False) -> Patch:
    """Replaces functions of onnx by those of this package, from now on until :meth:`Patch.undo`, or until the end of a ``with``:
    ``save_model``, ``load_model``, ``save``, ``load``, ``load_from_string`` and those of ``external_data_helper``. Tools that
    call them, such as the quantizer of onnxruntime, then read maps, and replace files when all is written.

        >>> import onnx
        >>> with patch():
        ...     onnx.save(onnx.load("encoder.onnx"), "tool.onnx", save_as_external_data=True)

    Several at once are as one: the functions are put back by the last ``undo``. They are replaced for all threads.

    Args:
        onnx_ir: also replaces ``load``, ``save`` and ``save_safetensors`` of onnx_ir.

    Raises:
        ImportError: onnx, or onnx_ir, is not installed.
    """
    return Patch(("onnx", "onnx_ir") if onnx_ir else ("onnx",))


class Patch:
    """Functions that are replaced: see :func:`patch`."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        tables = {package: _TABLES[package]() for package in packages}
        self._packages: tuple[str, ...] = packages
        with _LOCK:
            for package, table in tables.items():
                _DEPTH[package] = _DEPTH.get(package, 0) + 1
                if _DEPTH[package] == 1:
                    _replace({id(old): new for old, new in table})

    def undo(self) -> None:
        """Puts the functions back, unless another patch still replaces them. To undo it once more does nothing."""
        with _LOCK:
            packages, self._packages = self._packages, ()
            for package in packages:
                _DEPTH[package] -= 1
                if _DEPTH[package] == 0:
                    _replace({id(new): old for old, new in _TABLES[package]()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()


def genuine(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of onnx or onnx_ir itself, where it is replaced."""
    return getattr(function, _ORIGINAL, function)


_LOCK = threading.Lock()
_DEPTH: dict[str, int] = {}
"""How many patches replace the functions of each package."""


def _replace(table: dict[int, Any]) -> None:
    """Replaces every global of every module that ``table`` has a replacement for."""
    for module in _modules():
        for name, value in list(vars(module).items()):
            if (new := table.get(id(value))) is not None:
                setattr(module, name, new)


def _modules() -> Iterator[ModuleType]:
    """All modules but those of this package."""
    package = __name__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] != package:
            yield module


@functools.cache
def _of_onnx() -> list[tuple[Any, Any]]:
    """The functions of onnx, each with the one that replaces it."""
    import onnx
    import onnx.external_data_helper

    from . import _onnx, external_data_helper

    pairs = [(onnx, _onnx, name) for name in _onnx.__all__]
    own = [name for name in external_data_helper.__all__ if name != "ExternalDataInfo"]
    pairs += [(onnx.external_data_helper, external_data_helper, name) for name in own]
    return _replacements(pairs)


@functools.cache
def _of_onnx_ir() -> list[tuple[Any, Any]]:
    """The functions of onnx_ir, each with the one that replaces it."""
    import onnx_ir

    from . import ir

    return _replacements([(onnx_ir, ir, name) for name in ("load", "save", "save_safetensors")])


_TABLES = {"onnx": _of_onnx, "onnx_ir": _of_onnx_ir}


def _replacements(pairs: list[tuple[ModuleType, ModuleType, str]]) -> list[tuple[Any, Any]]:
    """Of each module of others that has the function, that function and its replacement."""
    known = [(vars(theirs).get(name), getattr(ours, name)) for theirs, ours, name in pairs]
    return [(genuine(old), _replacement(genuine(old), new)) for old, new in known if old is not None]


def _replacement(old: Callable[..., Any], new: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(new)
    def replacement(*args: Any, **keywords: Any) -> Any:
        return new(*args, **keywords)

    setattr(replacement, _ORIGINAL, old)
    return replacement
