"""What a newcomer asks of a container and of a tensor, and what is written to other formats."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import onnx_container as oc
import pytest
from onnx_container import Container, DataType, Error, Tensor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Container(*models.matmul()).save(tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_container_says_what_it_is(path: Path) -> None:
    container = Container.load(path)
    assert [str(it) for it in container.inputs] == ["x: FLOAT [?,64]"] and [it.name for it in container.outputs] == ["y"]
    assert container.opsets == {"ai.onnx": 21} and container.nbytes == 2 * 64 * 64 * 4
    assert container.path == path and container.files == [path, path.with_name("m.onnx.data")]
    assert repr(container) == f"<Container of {str(path)!r} and 2 large initializers (33 kB)>"
    assert "<table>" in (container._repr_html_() or "")
    assert container._ipython_key_completions_() == ["#a", "#b"]
    assert repr(Container(b"", {"#w": np.zeros(2, np.int8)})) == "<Container of a model and 1 large initializer (2 B)>"
    new = Container(models.matmul(inline=True)[0])
    assert (new.path, new.files, repr(new)) == (None, [], "<Container of a model and 0 large initializers (0 B)>")


def test_what_a_container_says_follows_its_changes(path: Path) -> None:
    container = Container.load(path)
    assert [it.name for it in container.inputs] == ["x"]
    container.rename("x", "input", "input")
    assert [it.name for it in container.inputs] == ["input"]
    container.replace("a", container.tensor("b"))
    container.outputs.clear()
    assert len(container.outputs) == 1


@pytest.mark.parametrize("options", [{}, {"mmap": False}, {"weights": False}])
def test_the_files_are_those_of_the_model(path: Path, options: dict[str, Any]) -> None:
    assert Container.load(path, **options).files == [path, path.with_name("m.onnx.data")]
    path.with_name("m.onnx.data").rename(path.parent / "other.data")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = "other.data"
    path.write_bytes(model.SerializeToString())
    assert Container.load(path, **options).files == [path, path.parent / "other.data"]


@pytest.mark.parametrize("options", [{}, {"mmap": False}, {"weights": False}, {"no_copy": False}])
def test_the_files_stay_those_of_the_load(path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    monkeypatch.chdir(path.parent)
    container = Container.load("m.onnx", **options)
    monkeypatch.chdir("/")
    if options.get("weights", True):
        container.replace("a", np.zeros((64, 64), np.float32))
        container.replace("b", np.zeros((64, 64), np.float32))
    Container(*models.matmul()).save(path, files="per-tensor")
    assert container.files == [Path("m.onnx"), Path("m.onnx.data")]


def test_metadata_is_read_once_and_in_one_way() -> None:
    model = models.add()
    for key, value in [("k", "1"), *((f"key{i}", str(i)) for i in range(4000)), ("k", "2")]:
        model.metadata_props.add(key=key, value=value)
    container = Container(model)
    metadata = container.metadata
    before = time.perf_counter()
    assert len(dict(metadata)) == len(metadata) == 4001
    assert time.perf_counter() - before < 2
    assert metadata["k"] == dict(metadata)["k"] == container.summary().metadata["k"] == "2"
    assert "'k': '2'" in repr(metadata)
    metadata["k"] = "3"
    container.metadata["key1"] = "new"
    assert (metadata["k"], metadata["key1"]) == ("3", "new")


def test_an_initializer_is_removed(path: Path) -> None:
    container = Container.load(path)
    with pytest.raises(Error, match="still used in 1 place") as raised:
        container.remove("a")
    assert raised.value.tensor == "a" and len(container) == 2
    assert container.remove("a", used=True) == 1 and container.keys() == ["#b"] and container.find("*") == ["b"]
    added = container.add("c", np.zeros(3, np.float32))
    assert added in container and container.remove("c") == 0 and added not in container
    with pytest.raises(Error, match="no such"):
        container.remove("none")
    with pytest.raises(TypeError, match="used is True or False"):
        container.remove("b", used=1)  # type: ignore[arg-type]


def header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file."""
    text = path.read_bytes()
    return json.loads(text[8 : 8 + struct.unpack("<Q", text[:8])[0]])


def test_tensors_are_exported_to_safetensors(path: Path, tmp_path: Path) -> None:
    container, weights = Container.load(path), models.matmul()[1]
    target = tmp_path / "w.safetensors"
    seen: list[tuple[int, int]] = []
    done = container.export_safetensors(target, metadata={"license": "mit"}, progress=lambda *it: seen.append(it))
    assert (done.tensors, done.left_out, done.tied) == (2, [], {}) and done.files[0][0] == "w.safetensors" and seen
    assert {*header(target)} == {"__metadata__", "a", "b"} and header(target)["__metadata__"]["license"] == "mit"
    text = target.read_bytes()
    data = text[8 + struct.unpack("<Q", text[:8])[0] :]
    for name in "ab":
        begin, end = header(target)[name]["data_offsets"]
        assert data[begin:end] == weights[f"#{name}"].tobytes()
    other = Container(models.matmul()[0])
    assert other.attach_safetensors(target).filled == 2 and other.digest() == container.digest()
    with pytest.raises(FileExistsError):
        container.export_safetensors(target, overwrite=False)


def test_chosen_tensors_are_exported_wherever_they_are(tmp_path: Path) -> None:
    model, weights = models.matmul(inline=True)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2]), "shape"))
    model.graph.initializer.append(onnx.helper.make_tensor("texts", onnx.TensorProto.STRING, [1], [b"t"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights["#a"], "same"))
    container = Container(model)
    container.externalize()
    done = container.export_safetensors(tmp_path / "a.safetensors", ["shape", "a", "same"])
    assert {*header(tmp_path / "a.safetensors")} - {"__metadata__"} == {"shape", "a", "same"} and done.tensors == 3
    assert len(container) == 3  # it is as it was
    with pytest.raises(Error, match="no strings"):
        container.export_safetensors(tmp_path / "t.safetensors", "texts")
    with pytest.raises(ValueError, match="min_bytes has no effect with names"):
        container.export_safetensors(tmp_path / "t.safetensors", "a", min_bytes=3)
    with pytest.raises(TypeError, match="metadata maps keys to texts"):
        container.export_safetensors(tmp_path / "t.safetensors", metadata=["x"])  # type: ignore[arg-type]
    shards = container.export_safetensors(tmp_path / "s.safetensors", max_shard_bytes="20 KB", all_tensors=True, min_bytes=1)
    assert [name for name, _ in shards.files][-1] == "s.safetensors.index.json" and len(shards.files) == 4
    assert not (tmp_path / "t.safetensors").exists()


def test_an_export_over_its_own_weights_is_refused(path: Path, tmp_path: Path) -> None:
    container = Container.load(path)
    container.save(tmp_path / "s.onnx", files="safetensors")
    loaded = Container.load(tmp_path / "s.onnx")
    target = next(tmp_path.glob("*.safetensors"))
    for names in (None, "a"):
        with pytest.raises(FileExistsError):
            loaded.export_safetensors(target, names)


def test_a_tensor_says_where_it_is(path: Path) -> None:
    container = Container.load(path)
    found = {name: (tensor.location, tensor.offset) for name, tensor in container.tensors().items()}
    data = str(path.with_name("m.onnx.data"))
    assert found["a"] == (data, 0) and found["b"][0] == data and (found["b"][1] or 0) >= 64 * 64 * 4
    whole = path.with_name("m.onnx.data").read_bytes()
    assert whole[found["b"][1] :][:64] == container.tensor("b").tobytes()[:64]
    unmapped = Container.load(path, mmap=False).tensor("a")
    assert (unmapped.location, unmapped.offset) == (None, None)


def test_a_tensor_gives_numbers_of_python() -> None:
    tensor = Tensor(np.array([[1, 2], [3, 4]], np.float32), name="w")
    assert tensor.tolist() == [[1.0, 2.0], [3.0, 4.0]] and Tensor(np.array(7)).item() == 7
    assert tensor.astype("fp16").dtype == np.float16 and tensor.astype(DataType.INT8).tolist() == [[1, 2], [3, 4]]
    assert tensor.astype("bf16").dtype.name == "bfloat16"
    with pytest.raises(ValueError, match="size 1|scalar"):
        tensor.item()
    assert Tensor.pack("int4", (3,), bytes([1, 2, 15])).tolist() == [1, 2, -1]


def test_control_characters_of_names_are_shown_as_text() -> None:
    hostile = "a\x1b[31m\nb\u202e\r"
    model, _ = models.matmul(inline=True)
    model.graph.initializer[0].name = hostile
    model.producer_name = hostile
    model.graph.doc_string = hostile
    model.graph.output[0].name = hostile
    model.metadata_props.add(key=hostile, value=hostile)
    for node in model.graph.node:
        node.op_type = hostile
    container = Container(model)
    other = Container(models.matmul(inline=True)[0])
    texts = [
        repr(container.summary()),
        container._repr_html_() or "",
        repr(oc.diff(container, other)),
        repr(container.tensor(hostile)),
        repr(container),
        str(container.outputs[0]),
    ]
    for text in texts:
        assert not {letter for letter in text if not letter.isprintable()} - {"\n"}, text
        assert "[31m\nb" not in text
    assert "a\\x1b[31m\\nb\\u202e\\r" in texts[0]
