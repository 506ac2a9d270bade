"""Texts of models as people may see them: names in a model may be anything, also what moves the
cursor of a terminal or turns the order of letters around."""

from __future__ import annotations

__all__: list[str] = []


def shown(text: str) -> str:
    """``text`` with control characters, and others that are not printed, as escapes of Python."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)
