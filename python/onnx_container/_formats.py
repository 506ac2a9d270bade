"""Formats of model files: which of them onnx reads and writes for this package."""

from __future__ import annotations

import os
from typing import Any

_TEXT = (".txtpb", ".textproto", ".prototxt", ".pbtxt", ".json", ".onnxjson", ".onnxtext", ".onnxtxt")


def is_other(f: Any, format: str | None) -> bool:
    """Whether onnx has to read or write it: a stream, or another format than protobuf's."""
    if hasattr(f, "read") or hasattr(f, "write"):
        return True
    if format is not None:
        return format != "protobuf"
    return os.path.splitext(os.fspath(f))[1] in _TEXT
