"""Where a model is: a path, or an object in a store, and how that is reached."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _core, _objects

__all__: list[str] = []

_COLLAPSED = re.compile(r"(s3a?|gs|az|azure|abfss?|https?|hf):/[^/]", re.IGNORECASE)
"""What a ``pathlib.Path`` makes of a URL."""


class Place(NamedTuple):
    """A model as the core takes it."""

    path: Any
    """The path, or the URL or key of an object in a store."""
    shown: str
    """What messages call it."""
    is_stored: bool


def reached(function: str, store: Any = None, store_options: Any = None) -> dict[str, Any]:
    """How stores are reached, as the core takes it."""
    if store is not None and store_options is not None:
        raise ValueError(f"{function}(): store_options are for URLs, and a store has its own options")
    return {"store": None if store is None else _opened(store), "store_options": _named(function, store_options)}


def _named(function: str, given: Any) -> list[tuple[str, str]]:
    """Options of stores by name. Values may be secret, so errors have none."""
    wanted = f"{function}(): store_options maps names to texts, such as {{'aws_region': 'eu-west-1'}}"
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(f"{wanted}, it is a {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, (str, bool, int)):
            raise TypeError(f"{wanted}: that of {name!r} is a {type(value).__name__}")
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    return list(texts.items())


def _opened(store: Any) -> Any:
    _refuse_without_stores()
    objects = _objects.of(store)
    return _core.Store(objects, objects.root)


def _refuse_without_stores() -> None:
    if not hasattr(_core, "Store"):
        raise NotImplementedError("this build of onnx_container is without stores: build it with the feature `stores`")


def is_url(path: Any) -> bool:
    """Whether this is the URL of an object, and no path."""
    return isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9]+://", path) is not None and _url(path) is not None


def _url(text: str) -> tuple[str, str] | None:
    """The URL as messages have it, and its key; ``None`` for a text that is no URL."""
    _refuse_without_stores()
    return _core.store_key(text)


def placed(function: str, path: Any, given: Mapping[str, Any], has_url: bool = False) -> Place:
    """Where the model is that ``function`` is to read, with the options of a load. ``has_url``: another model that it reads has a
    URL, so that options of stores have an effect.

    Raises:
        ValueError: what ``pathlib`` made of a URL, and options that have no effect there.
    """
    how, text = given["reached"], os.fsdecode(path)
    if how["store"] is not None:
        return _in_store(function, text, given["store_given"])
    if not is_url(path):
        _refuse_collapsed(function, text)
        if how["store_options"] and not has_url:
            raise ValueError(f"{function}(): store_options are for URLs, and {text!r} is a path")
        return Place(path, text, False)
    if given.get("base_dir") is not None:
        raise ValueError(f"{function}(): base_dir has no effect: the weights of a model in a store are beside it")
    url = _url(text)
    assert url is not None
    return Place(text, url[0], True)


def is_stored(path: Any, store: Any = None) -> bool:
    """Whether ``path`` is an object: a URL, or whatever it is in ``store``."""
    return store is not None or is_url(path)


def is_within(path: Any, store: Any) -> bool:
    """Whether ``path`` is the URL of an object in ``store``, as the core calls it."""
    return isinstance(path, str) and store is not None and path.startswith(f"{_objects.of(store).root}/")


def in_store(function: str, url: Any, store: Any = None) -> str:
    """The URL, or the key in ``store``, as the core takes it, for functions that work in stores alone."""
    if not isinstance(url, (str, os.PathLike)):
        raise TypeError(f"{function}() takes a URL, such as 's3://bucket/model.onnx', not {type(url).__name__}")
    text = os.fsdecode(url)
    if store is not None:
        return str(_in_store(function, text, store).path)
    _refuse_collapsed(function, text)
    if not is_url(url):
        raise ValueError(f"{function}() takes a URL, such as 's3://bucket/model.onnx', or a key with store=: {text!r} is a path")
    return text


def _in_store(function: str, path: str, store: Any) -> Place:
    objects = _objects.of(store)
    _refuse_collapsed(function, path)
    key = objects.key(path)
    return Place(key, f"{objects.root}/{key}", True)


def _refuse_collapsed(function: str, text: str) -> None:
    if _COLLAPSED.match(text) and not os.path.exists(text):
        raise ValueError(f"{function}(): {text!r} has one slash where a URL has two, as pathlib makes it: give the URL as a str")


def refuse_url(function: str, path: Any, instead: str) -> None:
    """Refuses a URL where a path is wanted; ``instead`` says what to do."""
    if isinstance(path, (str, os.PathLike)):
        _refuse_collapsed(function, os.fsdecode(path))
        if is_url(path):
            raise ValueError(f"{function}() works on files, and this is a URL: {instead}")
