"""Moves, copies and removals of models with their weights files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from . import _core, _options, _places

if TYPE_CHECKING:
    from ._options import LoadOptions, Path

__all__ = ["ModelFiles", "SharedWeights", "copy", "delete", "move", "share"]


@dataclass(frozen=True)
class ModelFiles:
    """What a move, a copy or a removal of a model did."""

    files: list[tuple[os.PathLike[str], int]]
    """The files at the new place, or those that were removed: paths and lengths in bytes, the model first."""
    kept: list[tuple[os.PathLike[str], os.PathLike[str]]]
    """Files that stay at the old place, each with a model that needs it."""
    superseded: list[os.PathLike[str]]
    """Weights files of the replaced model that were removed with it."""
    warnings: list[str]
    """Files that were not removed for another reason, and what else is to be known."""


@dataclass(frozen=True)
class SharedWeights:
    """What :func:`share` did."""

    files: list[tuple[str, int]]
    """The shared weights file, then the models: names in their folder and lengths in bytes."""
    deduplicated: tuple[int, int]
    """The number of tensors that have the bytes of others, and how many bytes that saved."""
    removed: list[os.PathLike[str]]
    """Old weights files that were removed."""
    left_behind: list[os.PathLike[str]]
    """Old weights files that no model needs any more, and that stay."""
    warnings: list[str]
    """What else is to be known."""


def move(
    source: Path,
    target: Path,
    *,
    dry_run: bool = False,
    overwrite: bool = True,
    sync: bool = True,
    **options: Unpack[LoadOptions],
) -> ModelFiles:
    """Moves the model ``source`` with its weights files to ``target``, the new name of the model or a folder.

    On one file system no weights are read or written. Files with a name that was made from the model's follow its new
    name; others keep theirs. A file that another model needs stays, and the moved model gets a copy of it. Where the
    process is killed, the model is complete at one of the two places or at both. Options are those of
    :meth:`Container.load`.

    Args:
        dry_run: changes nothing, and returns what would be done.
        overwrite: whether files may be replaced, as by :meth:`Container.save`.
        sync: waits until the files are on the disk.

        >>> done = move("encoder.onnx", "release.onnx")
        >>> sorted(os.listdir())
        ['release.onnx', 'release.onnx.data']
    """
    return _transfer("move", source, target, _files(dry_run, overwrite, sync), options)


def copy(
    source: Path,
    target: Path,
    *,
    dry_run: bool = False,
    overwrite: bool = True,
    sync: bool = True,
    **options: Unpack[LoadOptions],
) -> ModelFiles:
    """Copies the model ``source`` with its weights files to ``target``, the name of the copy or a folder.

    The copy shares its bytes with the original where the file system can, and holes stay holes. Links are followed.
    Arguments are those of :func:`move`.

        >>> done = copy("encoder.onnx", "copy.onnx")
        >>> Container.load("copy.onnx").digest() == Container.load("encoder.onnx").digest()
        True
    """
    return _transfer("copy", source, target, _files(dry_run, overwrite, sync), options)


def delete(
    path: Path, *, dry_run: bool = False, sync: bool = True, **options: Unpack[LoadOptions]
) -> ModelFiles:
    """Removes the model ``path`` and those of its weights files that no other model needs.

    Of a file that is a link the link is removed. Arguments are those of :func:`move`.

        >>> done = delete("encoder.onnx")
        >>> os.listdir()
        []
    """
    _places.refuse_url("delete", path, _INSTEAD)
    load = _load("delete", options)
    return _told("delete", _core.remove(path, load, _files(dry_run, True, sync)))


def share(
    models: Iterable[Path],
    data_name: str | None = None,
    *,
    delete_old: bool = False,
    dry_run: bool = False,
    sync: bool = True,
    **options: Unpack[LoadOptions],
) -> SharedWeights:
    """Puts the weights of two models or more, all of one folder, into one new file that all of them use, equal ones
    once. All models are put in place in one step: where the process is killed, they are all old or all new ones. Options
    are those of :meth:`Container.load`.

    Args:
        data_name: the name of the new file; ``shared.onnx.data`` otherwise, with a number where that is taken.
        delete_old: also removes the old weights files that no other model needs.
        dry_run: changes nothing, and returns what would be done.
        sync: waits until the files are on the disk.

    Raises:
        Error: models of several folders, or without equal weights. All models are then as they were.

        >>> done = copy("encoder.onnx", "decoder.onnx")
        >>> share(["encoder.onnx", "decoder.onnx"]).files[0][0]
        'shared.onnx.data'
    """
    if isinstance(models, (str, bytes, os.PathLike)):
        raise TypeError("share() takes several models, such as [encoder, decoder]")
    models = list(models)
    for path in models:
        _places.refuse_url("share", path, _INSTEAD)
    load = _load("share", options)
    shared = SharedWeights(**_core.share(models, data_name, delete_old, load, _files(dry_run, True, sync)))
    for warning in shared.warnings:
        _options.warn(f"share(): {warning}")
    return shared


_INSTEAD = "publish(model, url) writes to a store, and Container.load(url).save(path) fetches from it"


def _transfer(
    function: str, source: Path, target: Path, files: dict[str, Any], options: Any
) -> ModelFiles:
    for path in (source, target):
        _places.refuse_url(function, path, _INSTEAD)
    load = _load(function, options)
    return _told(function, _core.transfer(source, target, function == "move", load, files))


def _load(function: str, options: Any) -> dict[str, Any]:
    return _options.load(function, options.pop("mmap", False), **options)


def _files(dry_run: bool, overwrite: bool, sync: bool) -> dict[str, Any]:
    return {"dry_run": dry_run, "overwrite": overwrite, "sync": sync}


def _told(function: str, report: dict[str, Any]) -> ModelFiles:
    done = ModelFiles(**report)
    for warning in done.warnings:
        _options.warn(f"{function}(): {warning}")
    return done
