"""Pages for a browser that show what is in a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from . import _core, _options, _places, _values

if TYPE_CHECKING:
    from ._options import Path, Size

__all__ = ["report"]


def report(
    model: Path,
    path: Path,
    other: Path | None = None,
    *,
    stats: bool = False,
    plan: bool | Mapping[str, int] = False,
    overwrite: bool = False,
    mmap: bool = True,
    paths: Literal["strict", "model-dirs", "trusted"] = "model-dirs",
    limits: Mapping[str, Size] | None = None,
) -> int:
    """Writes one HTML page that shows what is in the model ``model``, and returns its length in bytes.

    The page is one file, shows everything offline and asks for nothing on the network. It has a map of the weights by module,
    a table of all tensors, the places in the weights files, operators, inputs and outputs, and the findings of a check. The
    same model, path and options give the same bytes.

    Args:
        path: the page. A report that is there is replaced; a model or its weights never.
        other: another model; the page shows what differs in it, as :func:`diff` says, and what a check finds in it.
        stats: shows range, mean, deviation, NaN and a histogram of each tensor. All weights are read.
        plan: draws where every tensor of a run lies in memory: ``True``, or sizes of dimensions such as ``{"batch": 1}``.
        overwrite: replaces a file that is no report too.
        mmap: maps the weights files; see :meth:`Container.load` for this and for ``paths`` and ``limits``.
    """
    for read in (model, other):
        _places.refuse_url("report", read, "Container.load(url).save(path) fetches it")
    load = _options.load("report", mmap, paths=paths, limits=limits)
    given = _options.checked("report", {"stats": stats, "overwrite": overwrite}, {"stats": False, "overwrite": False})
    return _core.report(model, path, other, load, given["stats"], _sizes(plan), given["overwrite"])


def _sizes(plan: bool | Mapping[str, int]) -> dict[str, int] | None:
    """The sizes of dimensions; ``None`` without a plan."""
    if isinstance(plan, bool):
        return {} if plan else None
    if not isinstance(plan, Mapping) or not all(isinstance(name, str) for name in plan) or None in map(_values.number, plan.values()):
        raise TypeError(f"report(): plan is True, False or maps dimensions to sizes, such as {{'batch': 1}}, it is not {plan!r}")
    return dict(plan)
