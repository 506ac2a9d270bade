"""Scans of folders: models, their files, and what no model needs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Unpack

from . import _core, _options, _places

if TYPE_CHECKING:
    from ._core import Error
    from ._options import LoadOptions, Path, Size

__all__ = ["EqualWeights", "Orphan", "Scan", "ScannedModel", "scan"]


@dataclass(frozen=True)
class ScannedModel:
    """A model that a scan found."""

    path: os.PathLike[str]
    nbytes: int
    """The bytes of all its files."""
    model_nbytes: int
    """The bytes of the model's own file."""
    files: list[tuple[os.PathLike[str], int, Literal["present", "cut_off", "missing", "wrong", "stripped", "refused"], str | None]]
    """Its weights files: path, bytes, whether it is there, and what is wrong with it. One that is ``cut_off`` is shorter than
    its tensors need; in place of a ``wrong`` one is a failed download."""
    link_to: os.PathLike[str] | None
    """Where its path leads, if it is a link."""
    same_file_as: os.PathLike[str] | None
    """An earlier model of the list that is the same file."""
    is_whole: bool
    """Whether its own file and all its weights files are there and not cut off."""
    is_damaged: bool
    """Whether its own file is cut off or damaged."""


@dataclass(frozen=True)
class Orphan:
    """A file beside a model that no model needs."""

    path: os.PathLike[str]
    nbytes: int
    certainty: Literal["sure", "likely", "possible"]
    """How sure it is that these are weights: named after a model, named as weights are, or a binary file."""
    reason: str


@dataclass(frozen=True)
class EqualWeights:
    """Weights of equal bytes that several models have."""

    nbytes: int
    copies: int
    """How often these bytes are stored."""
    places: list[tuple[os.PathLike[str], str]]
    """The models, each with the name of a tensor."""


@dataclass(frozen=True)
class Scan:
    """What is below a folder."""

    models: list[ScannedModel]
    not_models: list[Error]
    """Files with the name of a model that are not one: what they are."""
    orphans: list[Orphan]
    without_model: list[tuple[os.PathLike[str], int, int]]
    """Folders with weights and without a model: how many files, and their bytes."""
    left: list[tuple[os.PathLike[str], int, Literal["unneeded", "needed", "in_use", "job", "committed"]]]
    """What saves left: path, bytes, and whether :func:`recover` removes it, completes a save with it, or a save is running; and
    the folders of jobs, which stay, except of committed ones, whose model is in place: :func:`recover` removes these."""
    dangling: list[Error]
    """Links to files that are not there."""
    equal: list[EqualWeights] | None
    """With ``equal=True``, the equal weights of different models, the largest first."""
    errors: list[Error]
    """What could not be read."""
    files: int
    """How many files there are, each once however many names it has."""
    nbytes: int
    """Their bytes."""
    reclaimable: int
    """The bytes of what nobody needs."""
    perhaps_reclaimable: int
    """The bytes of ``possible`` orphans."""
    shareable: int | None
    """How many bytes are spared when the models of each folder share their equal weights."""
    shareable_in_one_folder: int | None
    """How many more are spared when models of different folders are moved into one and share theirs."""


def scan(
    folder: Path,
    *,
    equal: bool = False,
    min_equal_bytes: Size = 1024,
    **options: Unpack[LoadOptions],
) -> Scan:
    """Finds every model below ``folder``, its files, and the files that no model needs. Nothing is changed.

    Models are told by their content. Links to folders are not followed, and folders called ``.git`` are not entered. What
    cannot be read is in ``errors``. Options are those of :meth:`Container.load`.

    Args:
        equal: finds equal weights of different models too, which reads those that have the same length.
        min_equal_bytes: how long the weights are that are compared.

        >>> [os.fspath(model.path) for model in scan(".").models]
        ['encoder.onnx']
    """
    _places.refuse_url("scan", folder, "check(url) looks at one model, sweep(url) at what no model names")
    given = _options.checked("scan", {"min_equal_bytes": min_equal_bytes}, {"min_equal_bytes": 1024})
    report = _core.scan(folder, equal, given["min_equal_bytes"], _load(options))
    report["models"] = [ScannedModel(**model) for model in report["models"]]
    report["orphans"] = [Orphan(*orphan) for orphan in report["orphans"]]
    if report["equal"] is not None:
        report["equal"] = [EqualWeights(**weights) for weights in report["equal"]]
    return Scan(**report)


def _load(options: Any) -> dict[str, Any]:
    return _options.load("scan", options.pop("mmap", False), **options)
