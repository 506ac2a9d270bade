"""Checks of models and of folders: everything that is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from . import _core, _options, _places, _values
from ._container import Container, _checking, findings
from ._core import Error
from ._scan import Orphan, Scan, scan
from ._shown import shown

if TYPE_CHECKING:
    from ._options import LoadOptions, Path

__all__ = ["Checked", "CheckedFolder", "CheckedModel", "check"]


@dataclass(frozen=True)
class CheckedModel:
    """What a check found of one model."""

    path: Path
    errors: list[Error]
    """What is wrong with it."""
    advice: list[Error]
    """What is better changed."""
    not_finite: list[str]
    """With ``finite=True``, the tensors that have elements that are infinite or not a number."""
    unread: Error | None
    """Why it could not be read, if it could not."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, whatever is advised."""
        return not self.errors and not self.not_finite and self.unread is None


@dataclass(frozen=True)
class CheckedFolder:
    """What a check found of a folder, beside its models."""

    path: Path
    errors: list[Error]
    """What has the name of a model and is not one."""
    advice: list[str]
    """Files that no model needs, weights without a model, and what saves left."""
    unread: list[Error]
    """What could not be read."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, whatever is advised."""
        return not self.errors and not self.unread


@dataclass(frozen=True)
class Checked:
    """What :func:`check` found. It is true where all is well."""

    models: list[CheckedModel]
    folders: list[CheckedFolder]
    strict: bool = field(default=False, repr=False)

    @property
    def ok(self) -> bool:
        """Whether there are models and nothing is wrong; where the check was strict, that nothing is advised either."""
        found: list[CheckedModel | CheckedFolder] = [*self.models, *self.folders]
        return bool(self.models) and all(it.ok and not (self.strict and it.advice) for it in found)

    @property
    def exit_code(self) -> int:
        """What the command ends with: 0 if all is well, 1 if something is wrong, 2 if something could not be read."""
        is_unread = any(it.unread for it in self.models) or any(it.unread for it in self.folders)
        return 2 if is_unread else 0 if self.ok else 1

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        lines = [f"{_verdict(it):<8}{_path(it)}: {_told(it)}" for it in self.models]
        lines += [f"{_verdict(it):<8}{_path(it)}: {_told(it)}" for it in self.folders if not it.ok or it.advice]
        count = len(self.models)
        verdict = "ok" if self.ok else "not ok"
        return "\n".join([*map(shown, lines), f"{verdict}: {count} model{'' if count == 1 else 's'}"])


def check(
    models: Path | Iterable[Path],
    *,
    strict: bool = False,
    digests: bool = False,
    finite: bool = False,
    part: tuple[int, int] | None = None,
    **options: Unpack[LoadOptions],
) -> Checked:
    """Everything that is wrong with models: with one, several, or all below a folder, as :func:`scan` finds them; those in stores
    one by one. Nothing that is
    found is raised, and a model that cannot be read does not end the check of the others. Options are those of
    :meth:`Container.load`.

    Args:
        strict: advice counts as wrong.
        digests: also compares all weights with the digests that are stored with them.
        finite: also finds floats that are infinite or not a number, which reads all weights.
        part: ``(3, 64)`` is the fourth of 64 parts of the tensors: of these alone elements are read. Where all parts are
            ok, the model is.

    Raises:
        Error: a folder cannot be read.

        >>> check("encoder.onnx")
        ok      encoder.onnx: nothing is wrong
        ok: 1 model
    """
    given = {"strict": strict, "finite": finite}
    given = _options.checked("check", given, dict.fromkeys(given, False))
    _checking("check", True, digests, dict(options))  # refuses options of other functions
    part = _values.part("check", part)
    if part and not (digests or options.get("verify_digests") or given["finite"]):
        raise ValueError("check(): part divides what digests=True and finite=True read: give one of these too")
    checked: dict[tuple[str, str], CheckedModel] = {}
    folders: list[CheckedFolder] = []

    def add(path: Any) -> None:
        """Checks the model at ``path``, unless that was done."""
        if _is_stored(path, options):
            checked.setdefault(("", path), _checked(path, digests, given["finite"], part, options))
            return
        folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
        key = folder, os.path.realpath(path)
        if key not in checked:
            checked[key] = _checked(path, digests, given["finite"], part, options)

    for path in [models] if isinstance(models, (str, os.PathLike)) else models:
        if _is_stored(path, options) or not os.path.isdir(path):
            add(path)
            continue
        found = scan(path, **_of_scan(options))
        for model in found.models:
            add(model.path)
        folders.append(_folder(path, found))
    return Checked(list(checked.values()), folders, given["strict"])


def _is_stored(path: Any, options: Any) -> bool:
    return options.get("store") is not None or _places.is_url(path)


def _of_scan(options: Any) -> Any:
    """Those options of a load that scans have."""
    return {name: options[name] for name in ("paths", "limits") if name in options}


def _checked(path: Any, digests: bool, finite: bool, part: tuple[int, int] | None, options: Any) -> CheckedModel:
    try:
        found = findings(path, contents=True, digests=digests, part=part, **options)
    except Error as error:
        return CheckedModel(path, [], [], [], error)
    errors = [error for severity, error in found if severity == "error"]
    advice = [error for severity, error in found if severity == "advice"]
    numbers = _not_finite(path, errors, part, options) if finite else []
    return CheckedModel(path, errors, advice, numbers, None)


def _not_finite(path: Any, errors: list[Error], part: tuple[int, int] | None, options: Any) -> list[str]:
    """The tensors with elements that are not finite. Why they cannot be read is one more of the errors of the check, unless
    the check has said it."""
    try:
        container = Container.load(path, **options)
    except Error as error:
        if not errors:
            errors.append(error)
        return []
    with container:
        try:
            return _core.not_finite(container._core, part)
        except Error as error:
            errors.append(error)
            return []


def _folder(path: Any, found: Scan) -> CheckedFolder:
    """What is wrong with the folder of a scan."""
    models = [error for error in found.dangling if (error.path or "").lower().endswith(".onnx")]
    advice = [_orphan(it) for it in found.orphans if it.certainty != "possible"]
    advice += [
        f"{os.fspath(folder)}: {count} weights files ({_core.size_text(nbytes)}) and no model"
        for folder, count, nbytes in found.without_model
    ]
    what = {"needed": "completes", "unneeded": "removes"}
    advice += [
        f"{os.fspath(left)}: left by a save that was interrupted: recover(folder) {what[kind]} it"
        for left, _, kind in found.left
        if kind in what
    ]
    advice += [str(error) for error in found.dangling if error not in models]
    return CheckedFolder(path, [*found.not_models, *models], advice, found.errors)


def _orphan(orphan: Orphan) -> str:
    return f"{os.fspath(orphan.path)}: {_core.size_text(orphan.nbytes)} of weights: {orphan.reason}"


def _verdict(found: CheckedModel | CheckedFolder) -> str:
    return "failed" if found.unread else "ok" if found.ok else "not ok"


def _path(found: CheckedModel | CheckedFolder) -> str:
    return os.fsdecode(found.path)


def _told(found: CheckedModel | CheckedFolder) -> str:
    """The first thing that is wrong, and how many there are."""
    unread = found.unread if isinstance(found.unread, list) else [found.unread] if found.unread else []
    texts = [*map(str, unread), *map(str, found.errors)]
    if isinstance(found, CheckedModel):
        texts += [f"{name!r} is not finite" for name in found.not_finite]
    texts += [f"advice: {it}" for it in found.advice]
    more = f"; and {len(texts) - 1} more" if len(texts) > 1 else ""
    return texts[0] + more if texts else "nothing is wrong"
