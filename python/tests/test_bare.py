"""What works without any other package: run in an environment that has only this one, and pytest."""

from __future__ import annotations

import importlib.metadata
import struct
from pathlib import Path

import onnx_container
import pytest
from onnx_container import Container, DataType, Error, Tensor


def field(number: int, payload: bytes) -> bytes:
    assert len(payload) < 128
    return bytes([number << 3 | 2, len(payload)]) + payload


def model() -> bytes:
    """A model with one external tensor, ``w``: two FLOAT behind ``#w``."""
    entry = field(13, field(1, b"location") + field(2, b"#w"))
    tensor = b"\x08\x02\x10\x01" + field(8, b"w") + entry + b"\x70\x01"
    return b"\x08\x0a" + field(7, field(2, b"g") + field(5, tensor)) + field(8, b"\x10\x15")


@pytest.mark.parametrize("weights", [struct.pack("<2f", 1, 2), lambda: struct.pack("<2f", 1, 2)])
def test_a_model_is_saved_and_loaded(tmp_path: Path, weights) -> None:
    container = Container(model(), {"#w": weights})
    saved = container.save(tmp_path / "m.onnx")
    assert [name for name, _ in saved.files] == ["m.onnx.data", "m.onnx"] and saved.model_bytes
    tensor = Container.load(tmp_path / "m.onnx").tensor("w")
    assert isinstance(tensor, Tensor) and tensor.dtype is DataType.FLOAT and tensor.shape == (2,)
    assert struct.unpack("<2f", tensor.raw) == (1, 2)
    assert tensor.bytes().file_range[0] == tmp_path / "m.onnx.data"


def test_errors_have_a_kind() -> None:
    with pytest.raises(Error) as raised:
        Container.load("no such model.onnx")
    error = raised.value
    assert (error.kind, error.path, error.tensor, error.related) == ("MissingFile", "no such model.onnx", None, [])


def test_the_version_is_that_of_the_package() -> None:
    assert onnx_container.__version__ == importlib.metadata.version("onnx-container")


def test_every_type_has_its_width() -> None:
    assert (DataType.INT4.bits, DataType.FLOAT.bits, DataType.STRING.bits) == (4, 32, None)
