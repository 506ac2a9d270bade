"""What several options may be: names, texts by texts, paths, limits. Each is read before anything is done, and what is wrong
is said by the name of the option."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _core

__all__: list[str] = []


def size(function: str, name: str, value: Any) -> Any:
    """The number of bytes that ``value`` says, where it is a text.

    Raises:
        ValueError: the text says no number of bytes.
    """
    if not isinstance(value, str):
        return value
    try:
        return _core.parse_size(value)
    except ValueError as error:
        raise ValueError(f"{function}(): {name} is {value!r}, which is {error}") from None


def number(value: Any) -> int | None:
    """``value`` as a number that is not negative; ``None`` where it is something else."""
    try:
        found = operator.index(value)
    except TypeError:
        return None
    return found if not isinstance(value, bool) and 0 <= found < 1 << 64 else None


def part(function: str, value: Any) -> tuple[int, int] | None:
    """The part of a model that ``value`` is: its number, and of how many.

    Raises:
        TypeError: it is no pair of numbers.
        ValueError: there is no such part.
    """
    if value is None:
        return None
    numbers = [number(it) for it in value] if isinstance(value, (tuple, list)) else []
    match numbers:
        case [int(part), int(of)] if part < of:
            return part, of
        case [int(part), int(of)]:
            last = f"the last one is {of - 1}" if of else "a model has at least one part"
            raise ValueError(f"{function}(): there is no part {part} of {of}: {last}")
    raise TypeError(f"{function}(): part is two numbers, such as (3, 64), not {value!r}")


def flag(value: Any) -> Any:
    """``value`` as a bool of Python, where numpy has made it, which is not imported for this."""
    made = type(value)
    is_flag = made.__module__ == "numpy" and made.__name__ in ("bool", "bool_")
    return bool(value) if is_flag else value


def names(wanted: str, given: Any) -> list[str]:
    """Several names, or one that is given by itself; ``wanted`` says what is wanted, for an error."""
    return _several(wanted, given, (str,))


def paths(wanted: str, given: Any) -> list[Any]:
    """Several paths, or one that is given by itself; ``wanted`` says what is wanted, for an error."""
    return _several(wanted, given, (str, os.PathLike))


def _several(wanted: str, given: Any, types: tuple[type, ...]) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, (*types, bytes)) or not isinstance(given, Iterable):
        given = [given]
    found = list(given)
    for one in found:
        if not isinstance(one, types):
            raise TypeError(f"{wanted}, not {one!r}")
    return found


def texts(wanted: str, given: Any) -> list[tuple[str, str]]:
    """The entries of a mapping of texts to texts, none for ``None``; ``wanted`` says what it maps, for an error."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(f"{wanted}, it is not {given!r}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"{wanted}, not {key!r} to {value!r}")
    return list(given.items())


def limits(function: str, given: Any) -> list[tuple[str, int]]:
    """Limits by their names, none for ``None``."""
    wanted = f"{function}(): limits maps names to numbers, such as {{'nodes': 100_000}}"
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(f"{wanted}, it is not {given!r}")
    found = []
    for name, most in given.items():
        bound = number(size(function, f"limits[{name!r}]", most))
        if not isinstance(name, str) or bound is None:
            raise TypeError(f"{wanted}, not {name!r} to {most!r}")
        found.append((name, bound))
    return found
