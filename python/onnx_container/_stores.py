"""Models in object stores: publications, their versions, and what they left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from . import _core, _log, _options, _places, _progress, _values
from ._shown import shown

if TYPE_CHECKING:
    from ._container import Container
    from ._options import Path, PublishOptions

__all__ = [
    "OpenJob",
    "Published",
    "PublishedFile",
    "StoreAbilities",
    "Sweep",
    "SweptObject",
    "probe",
    "publish",
    "rollback",
    "sweep",
    "versions",
]


@dataclass(frozen=True)
class PublishedFile:
    """One weights file of a publication."""

    name: str
    """Its location in the model."""
    nbytes: int
    """Its length in bytes."""
    sha256: str | None
    """The SHA-256 of its bytes, in hexadecimal digits; None for a version that was published again."""
    sent: bool
    """Whether it was sent: False for one that was there."""


@dataclass(frozen=True)
class Published:
    """What a publication did."""

    url: str
    """Where the model is."""
    e_tag: str | None
    """The tag that the store gave it; None in a dry run."""
    model_nbytes: int
    """The length of the model file in bytes."""
    files: list[PublishedFile]
    """Its weights files."""
    version: str | None
    """The URL of the version of the model that stays beside it."""
    removed: list[str]
    """The URLs of older versions that were removed."""
    warnings: list[str]
    """What failed after the model was published: a version that was not kept or not removed."""

    def __repr__(self) -> str:
        sent = [file.nbytes for file in self.files if file.sent]
        count = len(self.files)
        files = f"{count} weights file{'' if count == 1 else 's'}, {len(sent)} sent ({_core.size_text(sum(sent))})"
        version = f", version {self.version}" if self.version else ""
        return shown(f"<Published {self.url}: {files}{version}>")


@dataclass(frozen=True)
class SweptObject:
    """A weights file that no model names."""

    url: str
    nbytes: int
    """Its length in bytes."""
    age: timedelta
    """How long ago it was written."""


@dataclass(frozen=True)
class OpenJob:
    """A job that was neither committed nor aborted: a sweep leaves what it has written."""

    url: str
    """The URL of its folder, which :meth:`Job.open` takes."""
    model: str
    """Where its model will be."""
    age: timedelta
    """How long ago it was planned."""
    written: int
    """The number of its parts that are written."""


@dataclass(frozen=True)
class Sweep:
    """What a sweep found."""

    models: int
    """The number of models that were read."""
    named: int
    """The number of weights files that they name."""
    swept: list[SweptObject]
    """Files that no model names and that are old enough: deleted, where that was asked for."""
    young: list[SweptObject]
    """Files that no model names and that are younger."""
    jobs: list[OpenJob]
    """The jobs below the URL that nobody has ended: their files are in neither list."""
    deleted: bool
    """Whether files were deleted."""

    def __repr__(self) -> str:
        what = "deleted" if self.deleted else "would be deleted"
        lines = [f"{what}: {it.url} ({_core.size_text(it.nbytes)})" for it in self.swept]
        told = f"{self.models} models name {self.named} files; {len(self.swept)} {what}, {len(self.young)} are too young"
        jobs = [f"open job: {it.url} ({it.age.days} days old)" for it in self.jobs]
        return "\n".join([*map(shown, lines), *map(shown, jobs), told])


@dataclass(frozen=True)
class StoreAbilities:
    """What a store can do."""

    create: bool
    """It refuses an object that is to be new, where there is one."""
    replace: bool
    """It replaces one version of an object and refuses to replace another."""
    read_condition: bool
    """It refuses to read a version that is no longer there. Otherwise the tags of answers are compared."""
    tags: bool
    """Its objects have tags that change with their bytes."""
    ranges: bool
    """It reads ranges as they were asked for."""

    @property
    def publishes(self) -> bool:
        """Whether writers of one model notice each other."""
        return self.create and self.replace


def publish(
    model: Container | Path,
    url: str,
    one_file: bool | None = None,
    **options: Unpack[PublishOptions],
) -> Published:
    """Publishes a model in an object store: its weights files under names of their content, those that are there already not
    again, then the model by one request. A reader sees the old model or the new one.

    Args:
        model: a container, or where :meth:`Container.load` finds the model.
        url: ``s3://bucket/model.onnx``, ``gs://...``, ``az://...``; with ``store``, the key of the model there.
        keep: how many versions stay beside the model, this one included, for :func:`rollback`. With 0 none is made.
        if_present: ``"replace"`` replaces the model that is there when the publication begins; ``"refuse"`` raises;
            ``"overwrite"`` goes without conditions, for a store that ignores them; the ``e_tag`` of a container replaces
            the model that it was loaded from. A model that another writer put there meanwhile is an error, except with
            ``"overwrite"``.
        dry_run: nothing is written, and the result says what would be.
        store, store_options: see :meth:`Container.load`.
        progress: is called with the bytes of weights that are read, and with all that are to be: for the
            names of their files, and again to be sent. Other options of :meth:`Container.save` lay out
            the files.

    Raises:
        Error: the model that was there is there, unless the error says that this is not known.

        >>> from obstore.store import MemoryStore
        >>> store = MemoryStore()
        >>> publish("encoder.onnx", "m.onnx", store=store)
        <Published memory://m.onnx: 1 weights file, 1 sent (289 kB)>
        >>> container = Container.load("m.onnx", store=store)
        >>> container.publish("m.onnx", store=store, if_present=container.e_tag).files[0].sent
        False
    """
    from ._container import Container

    defaults = {**_options.SAVE_DEFAULTS, **PUBLISHING, "store": None, "store_options": None}
    _options.checked("publish", options, defaults)  # which knows all of them for a hint
    given: dict[str, Any] = dict(options)
    how_published = publishing("publish", given)
    store = given.pop("store", None)
    how = _places.reached("publish", store, given.pop("store_options", None))
    save, place = _options.save("publish", one_file, **given), _places.in_store("publish", url, store)
    container = model if isinstance(model, Container) else Container.load(model)
    clock = _log.Clock()
    with _log.told("publication"), _progress.shown("publish", save) as save:
        how_published["progress"] = save["progress"]
        report = _core.publish(container._core, place, {**save, "progress": None}, how_published, how)
    done = _published(report)
    clock.info("published %r, %d weights files", done.url, len(done.files), nbytes=sum(it.nbytes for it in done.files if it.sent))
    return done


def rollback(
    url: str,
    version: str,
    *,
    store: Any = None,
    store_options: Mapping[str, str | int | bool] | None = None,
    if_present: str = "replace",
    dry_run: bool = False,
) -> Published:
    """Publishes a version of the model again that ``publish(keep=...)`` left beside it. No weights are sent, and the version
    stays. Arguments are those of :func:`publish`; :func:`versions` lists the versions.

    Raises:
        Error: ``version`` is not one of this model, or one of its weights files is gone.
    """
    how_published = publishing("rollback", {"if_present": if_present, "dry_run": dry_run})
    how, both = _places.reached("rollback", store, store_options), (url, version)
    place, earlier = (_places.in_store("rollback", it, store) for it in both)
    return _published(_core.rollback(place, earlier, how_published, how))


def versions(
    url: str, *, store: Any = None, store_options: Mapping[str, str | int | bool] | None = None
) -> list[str]:
    """The URLs of the versions of the model at ``url`` that stay beside it, the oldest first; with ``store``, their keys are
    behind its name."""
    how = _places.reached("versions", store, store_options)
    return _core.versions(_places.in_store("versions", url, store), how)


def sweep(
    url: str,
    *,
    older_than: str | float | timedelta = "7d",
    delete: bool = False,
    store: Any = None,
    store_options: Mapping[str, str | int | bool] | None = None,
) -> Sweep:
    """Finds weights files below ``url`` that :func:`publish` made and that no model names, such as those of replaced models.
    Nothing is deleted without ``delete=True``, and other objects never. What an open :class:`Job` has written stays, and
    ``jobs`` of the result names it.

    Args:
        older_than: how old a file has to be: seconds, or a text such as ``"12h"`` or ``"7d"``. Less than a week is safe only
            where nobody publishes meanwhile.
        store, store_options: see :meth:`Container.load`.

    Raises:
        Error: a model cannot be read, as it may name any file. Nothing is deleted then.
    """
    delete = _options.checked("sweep", {"delete": delete}, {"delete": False})["delete"]
    how = _places.reached("sweep", store, store_options)
    place, age = _places.in_store("sweep", url, store), _age("sweep", older_than)
    models, named, swept, young, jobs = _core.sweep(place, age, delete, how)
    old, new = ([_swept(*it) for it in files] for files in (swept, young))
    return Sweep(models, named, old, new, [_open(*it) for it in jobs], delete)


def probe(
    url: str, *, store: Any = None, store_options: Mapping[str, str | int | bool] | None = None
) -> StoreAbilities:
    """Tries what the store of ``url`` can do, with a small object beside ``url`` that is deleted afterwards. :func:`publish` does
    it where nothing is known of the store.

        >>> from obstore.store import MemoryStore
        >>> probe("models/", store=MemoryStore()).publishes
        True
    """
    how = _places.reached("probe", store, store_options)
    return StoreAbilities(**_core.probe(_places.in_store("probe", url, store), how))


PUBLISHING: dict[str, Any] = {"keep": 0, "if_present": "replace", "dry_run": False}
_MODES = ("replace", "refuse", "overwrite")


def publishing(function: str, given: dict[str, Any]) -> dict[str, Any]:
    """Takes the options out of ``given`` that a save does not have."""
    own = {name: given.pop(name) for name in PUBLISHING if name in given}
    own = _options.checked(function, own, PUBLISHING)
    keep, mode = _values.number(own["keep"]), own["if_present"]
    if keep is None:
        raise TypeError(f"{function}(): keep is a number of versions, not {own['keep']!r}")
    # A tag has other characters, such as quotes.
    if not isinstance(mode, str) or (mode not in _MODES and re.fullmatch("[a-z_ ]*", mode)):
        raise ValueError(f"{function}(): if_present is 'replace', 'refuse', 'overwrite' or an e_tag, not {mode!r}")
    return {**own, "keep": keep, "progress": None}


def _published(report: dict[str, Any]) -> Published:
    return Published(**{**report, "files": [PublishedFile(*file) for file in report["files"]]})


def _swept(url: str, nbytes: int, seconds: float) -> SweptObject:
    return SweptObject(url, nbytes, timedelta(seconds=seconds))


def _open(url: str, model: str, seconds: float, written: int) -> OpenJob:
    return OpenJob(url, model, timedelta(seconds=seconds), written)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _age(function: str, given: Any) -> timedelta:
    """The time that ``given`` says."""
    wanted = f"{function}(): older_than is a time, such as '12h', '7d' or a number of seconds, not {given!r}"
    if isinstance(given, timedelta):
        age = given
    elif isinstance(given, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", given)
        if found is None:
            raise ValueError(wanted)
        age = timedelta(seconds=float(found[1]) * _UNITS[found[2]])
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        age = timedelta(seconds=given)
    else:
        raise TypeError(wanted)
    if age < timedelta(0):
        raise ValueError(wanted)
    return age
