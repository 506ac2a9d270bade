"""Stores of others as the core calls them: obstore stores, and filesystems of fsspec.

Both get the same few methods. What they raise goes to the core as it is, which knows the errors of
Python and those of obstore by their names.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Protocol

__all__: list[str] = []

Told = tuple[str, int, str | None, str | None, float]
"""What is told of an object: key, length in bytes, tag, version, and when it was written, in seconds since 1970."""
Range = tuple[int, int]
Written = tuple[str | None, str | None]
"""The tag and the version of an object that was written."""


class Objects(Protocol):
    """The objects of a store by their keys, which are without a slash at the start."""

    root: str
    """What errors call the store."""

    def key(self, path: str) -> str:
        """The key of the object at ``path``, as the user writes it."""

    def head(self, key: str) -> Told: ...
    def get(self, key: str, bounds: Range | None, if_match: str | None) -> tuple[Told, Range, str | None, Any]:
        """What is told of the object, the range that is returned, how it is encoded, and the bytes."""

    def put(self, key: str, data: Any, mode: str, update: Written | None) -> Written:
        """Writes an object: ``"overwrite"``, ``"create"``, or ``"update"`` of one version."""

    def put_parts(self, key: str, parts: Iterator[Any], part: int) -> Written:
        """Writes an object of parts of ``part`` bytes. Nothing is written where the iterator raises."""

    def delete(self, key: str) -> None: ...
    def listed(self, prefix: str) -> list[Told]: ...
    def folder(self, prefix: str) -> tuple[list[Told], list[str]]:
        """The objects of a folder, and the folders in it."""


class PreconditionError(Exception):
    """An object is not the one that was seen before."""


def of(store: Any) -> Objects:
    """``store`` as the core calls it.

    Raises:
        TypeError: it is neither an obstore store nor a filesystem of fsspec.
    """
    if _has(store, "cat_file", "pipe_file", "info", "find"):
        return _Filesystem(store)
    if _has(store, "get", "head", "put", "delete", "list", "list_with_delimiter"):
        return _Obstore(store)
    raise TypeError(f"store is an obstore store or a filesystem of fsspec, not {type(store).__name__}")


def _has(store: Any, *methods: str) -> bool:
    return not isinstance(store, type) and all(callable(getattr(store, name, None)) for name in methods)


class _Obstore:
    """A store with the methods of obspec, as those of obstore are."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.root = _root_of_obstore(store)

    def key(self, path: str) -> str:
        key = path.removeprefix(f"{self.root}/")
        if "://" in key:
            raise ValueError(f"this store is {self.root}: name the object by its key there, such as 'models/m.onnx'")
        return key.strip("/")

    def head(self, key: str) -> Told:
        return _told(self._store.head(key))

    def get(self, key: str, bounds: Range | None, if_match: str | None) -> tuple[Told, Range, str | None, Any]:
        options: dict[str, Any] = {} if bounds is None else {"range": bounds}
        if if_match is not None:
            options["if_match"] = if_match
        answer = self._store.get(key, options=options)
        attributes = getattr(answer, "attributes", None) or {}
        told, (start, end) = _told(answer.meta), answer.range
        return told, (start, end), attributes.get("Content-Encoding"), answer.bytes()

    def put(self, key: str, data: Any, mode: str, update: Written | None) -> Written:
        if update is None:
            return _written(self._store.put(key, data, mode=mode, use_multipart=False))
        version = {name: it for name, it in zip(("e_tag", "version"), update, strict=True) if it is not None}
        return _written(self._store.put(key, data, mode=version, use_multipart=False))

    def put_parts(self, key: str, parts: Iterator[Any], part: int) -> Written:
        return _written(self._store.put(key, parts, use_multipart=True, chunk_size=part, max_concurrency=8))

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def listed(self, prefix: str) -> list[Told]:
        return [_told(meta) for some in self._store.list(prefix or None) for meta in some]

    def folder(self, prefix: str) -> tuple[list[Told], list[str]]:
        found = self._store.list_with_delimiter(prefix or None)
        return [_told(meta) for meta in found["objects"]], list(found["common_prefixes"])


def _told(meta: Any) -> Told:
    return meta["path"], meta["size"], meta.get("e_tag"), meta.get("version"), meta["last_modified"].timestamp()


def _written(result: Any) -> Written:
    return result.get("e_tag"), result.get("version")


_SCHEMES = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az"}


def _root_of_obstore(store: Any) -> str:
    """A URL that has nothing secret: the bucket is in what obstore shows, which has no credentials."""
    name = type(store).__name__
    bucket = re.search(r'(?:bucket|container_name)="([^"/]+)"', repr(store)) if name in _SCHEMES else None
    scheme = _SCHEMES.get(name, name.removesuffix("Store").lower() or "store")
    if bucket is None:
        return f"{scheme}:/"
    prefix = str(getattr(store, "prefix", None) or "").strip("/")
    return f"{scheme}://{bucket[1]}/{prefix}".rstrip("/")


class _Filesystem:
    """A filesystem of fsspec."""

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem
        protocol = filesystem.protocol
        self.root = f"{protocol if isinstance(protocol, str) else protocol[0]}:/"
        self._creates = _creates(filesystem)

    def key(self, path: str) -> str:
        is_shown = path.startswith(f"{self.root}/")
        return self._key(path.removeprefix(f"{self.root}/") if is_shown else self._fs._strip_protocol(path))

    def _key(self, path: str) -> str:
        return path.strip("/")

    def _path(self, key: str) -> str:
        return f"{self._fs.root_marker}{key}"

    def head(self, key: str) -> Told:
        path = self._path(key)
        self._forget(path)
        info = self._fs.info(path)
        if info["type"] != "file":
            raise FileNotFoundError(path)
        return self._told(info)

    def _forget(self, path: str) -> None:
        """Has the filesystem ask again what it listed before."""
        self._fs.invalidate_cache(self._fs._parent(path))

    def _told(self, info: dict[str, Any]) -> Told:
        times = (info.get(name) for name in ("LastModified", "last_modified", "updated", "mtime", "modificationTime", "modify", "created"))
        modified = next((_seconds(time) for time in times if time is not None), 0.0)
        tags = (info.get(name) for name in ("ETag", "etag", "e_tag"))
        tag = next((tag for tag in tags if tag), None)
        if tag is None and modified:
            tag = f'"{round(modified * 1e6):x}-{info["size"]:x}"'
        return self._key(info["name"]), info["size"], tag, None, modified

    def get(self, key: str, bounds: Range | None, if_match: str | None) -> tuple[Told, Range, str | None, Any]:
        # It has no condition: what is told before and after says of which version the bytes are.
        told = self.head(key)
        if if_match is not None and told[2] != if_match:
            raise PreconditionError(f"the tag is {told[2]}, not {if_match}")
        start, end = (min(it, told[1]) for it in bounds or (0, told[1]))
        data = self._fs.cat_file(self._path(key), start=start, end=end) if start < end else b""
        if self.head(key) != told:
            raise PreconditionError("it was replaced while it was read")
        return told, (start, end), None, data

    def put(self, key: str, data: Any, mode: str, update: Written | None) -> Written:
        path, data = self._path(key), bytes(data)
        if mode == "update" or (mode == "create" and not self._creates):
            raise NotImplementedError(f"{type(self._fs).__name__} has no condition for this")
        given = {"mode": "create"} if mode == "create" else {}
        try:
            self._fs.pipe_file(path, data, **given)
        except FileNotFoundError:
            self._make_folder(path)
            self._fs.pipe_file(path, data, **given)
        return self.head(key)[2:4]

    def _make_folder(self, path: str) -> None:
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)

    def put_parts(self, key: str, parts: Iterator[Any], part: int) -> Written:
        path = self._path(key)
        try:
            file = self._fs.open(path, "wb", block_size=part)
        except FileNotFoundError:
            self._make_folder(path)
            file = self._fs.open(path, "wb", block_size=part)
        try:
            for data in parts:
                file.write(memoryview(data))
        except BaseException:
            # To close it would write what there is.
            with contextlib.suppress(Exception):
                file.discard()
            with contextlib.suppress(Exception):
                file.closed = True
            # Some filesystems have written to the place itself.
            with contextlib.suppress(Exception):
                self._fs.rm_file(path)
            raise
        file.close()
        return self.head(key)[2:4]

    def delete(self, key: str) -> None:
        self._fs.rm_file(self._path(key))

    def listed(self, prefix: str) -> list[Told]:
        path = self._path(prefix)
        self._fs.invalidate_cache()
        return [self._told(info) for info in self._fs.find(path, detail=True).values()]

    def folder(self, prefix: str) -> tuple[list[Told], list[str]]:
        path = self._path(prefix)
        self._fs.invalidate_cache(path)
        try:
            found = self._fs.ls(path, detail=True)
        except FileNotFoundError:
            return [], []
        except PermissionError:
            if prefix:
                raise
            return [], []  # who has one bucket may not list them all
        files = [self._told(info) for info in found if info["type"] == "file"]
        return files, [self._key(info["name"]) for info in found if info["type"] != "file"]


def _creates(filesystem: Any) -> bool:
    """Whether it refuses to overwrite by itself: fsspec's own function looks first and writes then, between which another
    writer may be."""
    function = filesystem.pipe_file
    own = getattr(function, "__module__", "") not in ("fsspec.spec", "fsspec.asyn")
    return own and "mode" in inspect.signature(function).parameters


def _seconds(time: Any) -> float:
    """A time in seconds since 1970."""
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    return time.timestamp() if isinstance(time, datetime) else float(time)
