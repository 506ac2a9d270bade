"""Names of tensors, given as names or as patterns: one reading of them for all functions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from . import _core, _values

__all__: list[str] = []

_FEW = 1000
"""Of more names a mistyped one is not compared with each."""


def selected(function: str, known: Iterable[str], patterns: Iterable[str] | str) -> list[str]:
    """Those of the ``known`` names that are one of ``patterns`` or match it: ``*`` stands for any
    characters, ``?`` for one, ``[ab]`` for one of these. Each pattern has to match.

    Raises:
        ValueError: a pattern matches no name.
    """
    known = list(known)
    found, idle = matching(function, known, patterns)
    if idle:
        like = difflib.get_close_matches(idle[0], known, 1, 0.5) if len(known) <= _FEW else []
        hint = f": did you mean {like[0]!r}?" if like else ""
        raise ValueError(f"{function}(): no tensor has a name like {idle[0]!r}{hint}")
    return found


def matching(
    function: str, known: list[str], patterns: Iterable[str] | str
) -> tuple[list[str], list[str]]:
    """As :func:`selected`, with the patterns that match no name."""
    given = _values.names(f"{function}(): a name, or a pattern of names, is a str", patterns)
    return _core.matching(known, given)


def is_pattern(name: str) -> bool:
    """Whether ``name`` may stand for other names."""
    return any(letter in name for letter in "*?[")
