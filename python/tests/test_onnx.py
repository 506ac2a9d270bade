"""``save_model``, ``load_model`` and ``external_data_helper``, beside those of onnx."""

from __future__ import annotations

import io
import os
from pathlib import Path

import models
import numpy as np
import onnx
import onnx.external_data_helper as theirs
import onnx_container
import pytest
from onnx_container import external_data_helper as ours


def initializers(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {it.name: onnx.numpy_helper.to_array(it) for it in model.graph.initializer}


@pytest.mark.parametrize("location", [None, "w.bin"])
@pytest.mark.parametrize("one_file", [True, False])
def test_saved_models_are_read_by_onnx(tmp_path: Path, location: str | None, one_file: bool) -> None:
    model, weights = models.matmul(inline=True)
    before = model.SerializeToString()
    path = tmp_path / "m.onnx"
    onnx_container.save_model(
        model, path, save_as_external_data=True, all_tensors_to_one_file=one_file, location=location
    )
    assert model.SerializeToString() == before
    names = {location or "m.onnx.data"} if one_file else {"m-a.weight", "m-b.weight"}
    assert set(os.listdir(tmp_path)) == {"m.onnx"} | names
    for read in (onnx.load(path), onnx_container.load(path)):
        assert initializers(read).keys() == {"a", "b"}
        np.testing.assert_array_equal(initializers(read)["a"], weights["#a"])
        assert not any(ours.uses_external_data(it) for it in read.graph.initializer)
    assert onnx_container.load_model(path, load_external_data=False) == onnx.load(path, load_external_data=False)


def test_a_second_save_replaces_the_first(tmp_path: Path) -> None:
    model, weights = models.matmul(inline=True)
    for _ in range(2):
        onnx_container.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin")
    assert (tmp_path / "w.bin").stat().st_size < 3 * 64 * 64 * 4


def test_thresholds_and_attributes(tmp_path: Path) -> None:
    model = models.add()
    value = onnx.numpy_helper.from_array(np.ones(512, np.float32), "v")
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=value))
    small = onnx.numpy_helper.from_array(np.ones(4, np.float32), "small")
    model.graph.initializer.append(small)
    for options, external in [({}, 0), ({"convert_attribute": True}, 1), ({"size_threshold": 0}, 1), ({"size_threshold": 17}, 0)]:
        path = tmp_path / "m.onnx"
        onnx_container.save_model(model, path, save_as_external_data=True, **options)
        read = onnx.load(path, load_external_data=False)
        assert sum(map(ours.uses_external_data, ours._get_all_tensors(read))) == external


def test_models_that_were_marked_are_written_to_their_files(tmp_path: Path) -> None:
    model, weights = models.matmul(inline=True)
    ours.convert_model_to_external_data(model, location="w.bin")
    onnx_container.save_model(model, tmp_path / "m.onnx")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "w.bin"]
    assert model.graph.initializer[0].HasField("raw_data")
    np.testing.assert_array_equal(initializers(onnx.load(tmp_path / "m.onnx"))["b"], weights["#b"])


def test_other_formats_and_streams_are_those_of_onnx(tmp_path: Path) -> None:
    model, _ = models.matmul(inline=True)
    for path in [tmp_path / "m.textproto", tmp_path / "m.json"]:
        onnx_container.save_model(model, path)
        assert onnx_container.load_model(path) == model
    stream = io.BytesIO()
    onnx_container.save_model(model, stream)
    assert onnx_container.load_model(io.BytesIO(stream.getvalue())) == model
    assert onnx_container.load_model_from_string(stream.getvalue()) == model
    onnx_container.save_model(model.SerializeToString(), tmp_path / "m.onnx")
    assert onnx_container.load_model(tmp_path / "m.onnx") == model


def test_permissions_stay(tmp_path: Path) -> None:
    model, _ = models.matmul(inline=True)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"")
    path.chmod(0o640)
    onnx_container.save_model(model, path)
    assert path.stat().st_mode & 0o777 == 0o640 and os.listdir(tmp_path) == ["m.onnx"]


def external(**entries: object) -> onnx.TensorProto:
    tensor = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "t")
    theirs.set_external_data(tensor, **{"location": "w", **entries})
    return tensor


@pytest.mark.parametrize("entries", [{}, {"offset": 4096}, {"offset": 0, "length": 16, "checksum": "x"}])
def test_entries_are_read_and_written_as_onnx_does(entries: dict) -> None:
    tensor = external(**entries)
    mine = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "t")
    ours.set_external_data(mine, **{"location": "w", **entries})
    assert mine == tensor
    got, expected = vars(ours.ExternalDataInfo(tensor)), vars(theirs.ExternalDataInfo(tensor))
    assert {key: expected[key] for key in got} == got
    ours.remove_external_data_field(mine, "offset")
    theirs.remove_external_data_field(tensor, "offset")
    assert mine == tensor and ours.uses_external_data(mine)
    mine.ClearField("raw_data")
    with pytest.raises(ValueError, match="raw_data"):
        ours.set_external_data(mine, "w")


def test_tensors_are_saved_and_loaded_one_by_one(tmp_path: Path) -> None:
    for offset, end in [(None, 16), (None, 32), (4096, 4112)]:
        tensor = external(offset=offset) if offset else external()
        ours.save_external_data(tensor, tmp_path)
        assert (tmp_path / "w").stat().st_size == end
        info = ours.ExternalDataInfo(tensor)
        assert (info.offset, info.length) == (end - 16, 16)
        for module in (ours, theirs):
            read = onnx.TensorProto()
            read.CopyFrom(tensor)
            read.ClearField("raw_data")
            module.load_external_data_for_tensor(read, str(tmp_path))
            assert read.raw_data == np.arange(4, dtype=np.float32).tobytes()


@pytest.mark.parametrize("location", ["../w", "/tmp/w", "", "a/../../w"])
def test_nothing_is_written_outside(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    tensor = external(location=location)
    with pytest.raises(ValueError, match="no file in the folder"):
        ours.save_external_data(tensor, folder)
    (folder / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        ours.save_external_data(external(location="link"), folder)
    assert not (tmp_path / "w").exists() and not (tmp_path / "target").exists()


def test_models_are_converted_there_and_back(tmp_path: Path) -> None:
    for one_file in (True, False):
        model, _ = models.matmul(inline=True)
        peer = onnx.ModelProto()
        peer.CopyFrom(model)
        ours.convert_model_to_external_data(model, one_file, "w")
        theirs.convert_model_to_external_data(peer, one_file, "w")
        assert model == peer
        ours.write_external_data_tensors(model, tmp_path)
        theirs.load_external_data_for_model(model, str(tmp_path))
        ours.convert_model_to_external_data(model, one_file, "w2")
        ours.convert_model_from_external_data(model)
        for tensor in ours._get_all_tensors(model):
            assert tensor.data_location == onnx.TensorProto.DEFAULT
            tensor.ClearField("data_location")
        assert model == models.matmul(inline=True)[0]


def test_tensors_come_in_the_order_of_onnx() -> None:
    inner = onnx.helper.make_graph([], "inner", [], [], initializer=[onnx.helper.make_tensor("i", 1, [1], [1.0])])
    constant = onnx.helper.make_node("Constant", [], ["c"], value=onnx.helper.make_tensor("c", 1, [1], [1.0]))
    node = onnx.helper.make_node("If", ["c"], [], then_branch=inner, else_branch=inner)
    outer = [onnx.helper.make_tensor("o", 1, [1], [1.0])]
    model = onnx.helper.make_model(onnx.helper.make_graph([constant, node], "outer", [], [], initializer=outer))
    assert [it.name for it in ours._get_all_tensors(model)] == [it.name for it in theirs._get_all_tensors(model)]
