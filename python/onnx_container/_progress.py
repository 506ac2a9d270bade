"""``progress=True``: a bar on stderr, by tqdm where it is installed, and in plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from ._core import size_text

__all__: list[str] = []

_TURN = 0.5
"""The seconds between two lines."""


class _Bar(Protocol):
    def __call__(self, done: int, total: int) -> None: ...
    def close(self) -> None: ...


@contextmanager
def shown(what: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """``options`` with a bar in the place of ``progress=True``, which is closed at the end."""
    given = dict(options)
    wanted = given.get("progress")
    if wanted is not True:
        if wanted is False:
            given["progress"] = None
        yield given
        return
    bar = _bar(what)
    try:
        yield {**given, "progress": bar}
    finally:
        bar.close()


def _bar(what: str) -> _Bar:
    try:
        from tqdm import tqdm
    except ImportError:
        return _Lines(what)
    return _Tqdm(what, tqdm)


class _Tqdm:
    """The bar of tqdm."""

    def __init__(self, what: str, tqdm: Callable[..., Any]) -> None:
        self._make = lambda total: tqdm(
            total=total, desc=what, unit="B", unit_scale=True, file=sys.stderr
        )
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = self._make(total)
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Lines:
    """A line now and then, and one at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + _TURN
        self._last: tuple[int, int] | None = None
        self._shown: tuple[int, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        self._last = done, total
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _TURN
            self._show()

    def close(self) -> None:
        if self._last is not None and self._last != self._shown:
            self._show()

    def _show(self) -> None:
        assert self._last is not None
        self._shown = self._last
        done, total = self._last
        percent = 100 * done // total if total else 100
        line = f"{self._what}: {percent:3d} % of {size_text(total)}"
        print(line, file=sys.stderr, flush=True)
