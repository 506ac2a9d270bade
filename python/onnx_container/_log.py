"""The logger ``onnx_container``: what was loaded, saved and recovered, with bytes and seconds.

Who wants to read it adds a handler, as ``logging.basicConfig(level=logging.INFO)`` does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._core import size_text

__all__: list[str] = []

logger = logging.getLogger("onnx_container")
logger.addHandler(logging.NullHandler())


class Clock:
    """What a message says of the time since it was made, and of what was moved in that time."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def info(self, message: str, *args: Any, nbytes: int) -> None:
        """Logs ``message``, with the bytes and the seconds after it."""
        if logger.isEnabledFor(logging.INFO):
            logger.info(f"{message}: %s in %.3f s", *args, size_text(nbytes), self._seconds)

    def count(self, message: str, *args: Any) -> None:
        """Logs ``message`` with the seconds after it."""
        logger.info(f"{message}: in %.3f s", *args, self._seconds)

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._start


@contextmanager
def told(message: str, *args: Any) -> Iterator[None]:
    """Logs at DEBUG that something begins, and how it failed where it does."""
    logger.debug(f"{message} begins", *args)
    try:
        yield
    except BaseException as error:
        logger.debug(f"{message} failed: %s", *args, type(error).__name__)
        raise
