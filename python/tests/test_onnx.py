"""``save_model``, ``load_model`` and ``external_data_helper``, beside those of onnx."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import models
import numpy as np
import onnx
import onnx.external_data_helper as theirs
import onnx_container
import pytest
from onnx_container import _entries
from onnx_container import external_data_helper as ours


def initializers(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {it.name: onnx.numpy_helper.to_array(it) for it in model.graph.initializer}


@pytest.mark.parametrize("location", [None, "w.bin"])
@pytest.mark.parametrize("one_file", [True, False])
def test_saved_models_are_read_by_onnx(tmp_path: Path, location: str | None, one_file: bool) -> None:
    model, weights = models.matmul(inline=True)
    before = model.SerializeToString()
    path = tmp_path / "m.onnx"
    has_no_effect = location is not None and not one_file
    with pytest.warns(UserWarning, match="location has no effect") if has_no_effect else contextlib.nullcontext():
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
    with pytest.raises(ValueError, match="through a link"):
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


def marked(one_file: bool = True, location: str | None = "w.bin") -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model whose tensors have their elements, and say that they are to be in files."""
    model, weights = models.matmul(inline=True)
    theirs.convert_model_to_external_data(model, one_file, location)
    return model, weights


@pytest.mark.parametrize("one_file", [True, False])
def test_models_that_are_marked_are_saved_again_and_again(tmp_path: Path, one_file: bool) -> None:
    model, weights = marked(one_file)
    before = model.SerializeToString()
    sizes = set()
    for _ in range(3):
        onnx_container.save_model(model, tmp_path / "m.onnx")
        assert model.SerializeToString() == before
        assert set(os.listdir(tmp_path)) == {"m.onnx"} | ({"w.bin"} if one_file else {"a", "b"})
        sizes.add(sum(path.stat().st_size for path in tmp_path.iterdir()))
        np.testing.assert_array_equal(initializers(onnx.load(tmp_path / "m.onnx"))["b"], weights["#b"])
    assert len(sizes) == 1


@pytest.mark.parametrize("one_file", [True, False])
def test_what_was_there_stays_when_a_save_fails(tmp_path: Path, one_file: bool) -> None:
    model, _ = marked(one_file)
    onnx_container.save_model(model, tmp_path / "m.onnx")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for tensor in model.graph.initializer:
        tensor.raw_data = bytes(len(tensor.raw_data))
    ours.set_external_data(model.graph.initializer[1], "no such folder/b")
    with pytest.raises((OSError, onnx_container.Error)):
        onnx_container.save_model(model, tmp_path / "m.onnx")
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_model_that_was_loaded_by_tensors_leaves_its_files_alone(tmp_path: Path) -> None:
    model, weights = marked()
    onnx_container.save_model(model, tmp_path / "q.onnx")
    data = (tmp_path / "w.bin").read_bytes()
    mapped = onnx_container.Container.load(tmp_path / "q.onnx").tensor("a").numpy()
    loaded = onnx.load(tmp_path / "q.onnx", load_external_data=False)
    for tensor in loaded.graph.initializer:
        ours.load_external_data_for_tensor(tensor, tmp_path)
        assert not ours.uses_external_data(tensor)
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weights[f"#{tensor.name}"])
        tensor.raw_data = bytes(len(tensor.raw_data))
    onnx_container.save_model(loaded, tmp_path / "q_new.onnx")
    assert (tmp_path / "w.bin").read_bytes() == data
    np.testing.assert_array_equal(mapped, weights["#a"])
    assert not initializers(onnx.load(tmp_path / "q_new.onnx"))["a"].any()


def test_weights_are_in_a_folder_that_is_there(tmp_path: Path) -> None:
    model, weights = models.matmul(inline=True)
    (tmp_path / "sub").mkdir()
    onnx_container.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="sub/w.bin")
    assert os.listdir(tmp_path / "sub") == ["w.bin"]
    for read in (onnx.load(tmp_path / "m.onnx"), onnx_container.load(tmp_path / "m.onnx")):
        np.testing.assert_array_equal(initializers(read)["a"], weights["#a"])
    onnx_container.save_model(*marked(True, "sub/v.bin")[:1], tmp_path / "n.onnx")
    assert sorted(os.listdir(tmp_path / "sub")) == ["v.bin", "w.bin"]
    for wrong in ("../w.bin", "/tmp/w.bin"):
        with pytest.raises((ValueError, onnx_container.Error)):
            onnx_container.save_model(model, tmp_path / "o.onnx", save_as_external_data=True, location=wrong)


def test_only_files_are_replaced(tmp_path: Path) -> None:
    import stat
    import threading

    model, _ = models.matmul(inline=True)
    onnx_container.save_model(model, "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    onnx_container.save_model(model, tmp_path / "pipe")
    reader.join(20)
    assert read == [model.SerializeToString()]
    # A link stays one, and what it leads to is replaced, with its mode.
    (tmp_path / "target.onnx").write_bytes(b"old")
    (tmp_path / "target.onnx").chmod(0o640)
    (tmp_path / "link.onnx").symlink_to("target.onnx")
    onnx_container.save_model(model, tmp_path / "link.onnx")
    assert (tmp_path / "link.onnx").is_symlink() and onnx.load(tmp_path / "target.onnx") == model
    assert (tmp_path / "target.onnx").stat().st_mode & 0o777 == 0o640


def test_one_file_is_not_written_twice(tmp_path: Path) -> None:
    model, _ = models.matmul(inline=True)
    for first, second in (("w", "./w"), ("w", "m.onnx"), ("w", "C:w"), ("sub/../w", "w")):
        ours.set_external_data(model.graph.initializer[0], first)
        ours.set_external_data(model.graph.initializer[1], second)
        with pytest.raises(ValueError):
            onnx_container.save_model(model, tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


def test_weights_are_not_written_through_links(tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "out"
    base.mkdir()
    out.mkdir()
    (base / "a").symlink_to(out / "a")
    (base / "sub").symlink_to(out)
    model, _ = marked(False)
    with pytest.raises(ValueError, match="link"):
        onnx_container.save_model(model, base / "m.onnx")
    inline, _ = models.matmul(inline=True)
    with pytest.raises(ValueError, match="link"):
        onnx_container.save_model(inline, base / "m.onnx", save_as_external_data=True, location="sub/w")
    assert os.listdir(out) == [] and sorted(os.listdir(base)) == ["a", "sub"]


def test_files_that_others_need_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    model, weights = marked(False)
    onnx_container.save_model(model, tmp_path / "a.onnx")
    inline, _ = models.matmul(inline=True)
    onnx_container.save_model(inline, tmp_path / "c.onnx", save_as_external_data=True, location="sub/w")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises((ValueError, onnx_container.Error), match="a.onnx"):
        onnx_container.save_model(model, tmp_path / "b.onnx")
    with pytest.raises((ValueError, onnx_container.Error), match="c.onnx"):
        onnx_container.save_model(inline, tmp_path / "d.onnx", save_as_external_data=True, location="sub/w")
    # One that is loaded in part has other tensors in the file that it would replace.
    half = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    half.graph.initializer[0].raw_data = bytes(64 * 64 * 4)
    ours.set_external_data(half.graph.initializer[0], "./b")
    with pytest.raises(ValueError, match="not loaded"):
        onnx_container.save_model(half, tmp_path / "a.onnx")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    # Their own models replace them.
    onnx_container.save_model(model, tmp_path / "a.onnx")
    onnx_container.save_model(inline, tmp_path / "c.onnx", save_as_external_data=True, location="sub/w")


def test_what_is_not_known_is_kept(tmp_path: Path) -> None:
    big = onnx.numpy_helper.from_array(np.arange(64 * 1024, dtype=np.float32), "big")
    unknown = b"\xa2\x06\x03abc"  # field 100
    for place in range(3):
        model = models.add()
        model.doc_string = "about"
        model.metadata_props.add(key="k", value="v")
        tensor = onnx.TensorProto.FromString(big.SerializeToString() + (unknown if place == 0 else b""))
        tensor.doc_string = "a tensor"
        graph = onnx.GraphProto(name="g", initializer=[tensor])
        model.graph.CopyFrom(onnx.GraphProto.FromString(graph.SerializeToString() + (unknown if place == 1 else b"")))
        model = onnx.ModelProto.FromString(model.SerializeToString() + (unknown if place == 2 else b""))
        onnx_container.save_model(model, tmp_path / "m.onnx", save_as_external_data=True)
        assert (tmp_path / "m.onnx").read_bytes().count(unknown) == 1
        read = onnx_container.load(tmp_path / "m.onnx")
        assert read == onnx.load(tmp_path / "m.onnx") and (read.doc_string, read.metadata_props[0].value) == ("about", "v")
        assert read.graph.initializer[0].doc_string == "a tensor" and initializers(read)["big"].sum() == initializers(model)["big"].sum()


def test_thresholds_hold_for_long_tensors(tmp_path: Path) -> None:
    model = models.add()
    for name, count in (("short", 100_000), ("long", 300_000)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(count, np.uint8), name))
    onnx_container.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=200_000)
    read = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert [ours.uses_external_data(it) for it in read.graph.initializer] == [False, True]


def available() -> int:
    """The memory that is free, in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


@pytest.mark.skipif(available() < 9 << 30, reason="less than 9 GiB of memory: a model of 2.1 GiB is not tested")
def test_a_proto_that_protobuf_cannot_write(tmp_path: Path) -> None:
    model, size = models.add(), 700 << 20
    for name in "abc":
        model.graph.initializer.add(name=name, data_type=2, dims=[size], raw_data=bytes(size))
    theirs.convert_model_to_external_data(model, True, "w")
    onnx_container.save_model(model, tmp_path / "m.onnx", sync=False)
    theirs.convert_model_from_external_data(model)
    onnx_container.save_model(model, tmp_path / "n.onnx", save_as_external_data=True, sync=False)
    for name, data in (("m.onnx", "w"), ("n.onnx", "n.onnx.data")):
        assert (tmp_path / data).stat().st_size >= 3 * size > 1 << 31
        assert not onnx_container.Container.load(tmp_path / name).tensor("c").numpy()[-1]


def test_bytes_and_paths_of_bytes(tmp_path: Path) -> None:
    model, weights = marked()
    onnx_container.save_model(model.SerializeToString(), os.fsencode(tmp_path / "m.onnx"))
    read = onnx_container.load_model(os.fsencode(tmp_path / "m.onnx"))
    np.testing.assert_array_equal(initializers(read)["a"], weights["#a"])
    assert onnx.load(tmp_path / "m.onnx") == read


def test_options_that_have_no_effect_are_refused(tmp_path: Path) -> None:
    model, _ = models.matmul(inline=True)
    (tmp_path / "sub").mkdir()
    for options in ({"overwrite": False}, {"progress": print}):
        with pytest.raises(ValueError, match="beside the model"):
            onnx_container.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="sub/w", **options)
        with pytest.raises(TypeError, match="for save_as_external_data"):
            onnx_container.save_model(model, tmp_path / "m.onnx", **options)
        with pytest.raises(TypeError, match="for files of protobuf"):
            onnx_container.save_model(model, io.BytesIO(), **options)
        with pytest.raises(TypeError, match="for files of protobuf"):
            onnx_container.ir.save(onnx_container.ir.from_container(onnx_container.Container(model)), "m.json", **options)
    assert os.listdir(tmp_path) == ["sub"]


@pytest.mark.parametrize("wrong", [b"\xff\xff", 3, "text", None])
def test_what_is_no_model_is_refused(tmp_path: Path, wrong) -> None:
    for external in (True, False):
        with pytest.raises((TypeError, onnx_container.Error)):
            onnx_container.save_model(wrong, tmp_path / "m.onnx", save_as_external_data=external)
    assert os.listdir(tmp_path) == []


def with_training() -> onnx.ModelProto:
    model, _ = models.matmul(inline=True)
    info = model.training_info.add()
    info.algorithm.initializer.append(onnx.numpy_helper.from_array(np.full(512, 4, np.float32), "trained"))
    value = onnx.numpy_helper.from_array(np.full(512, 5, np.float32), "constant")
    info.initialization.node.append(onnx.helper.make_node("Constant", [], ["c"], value=value))
    return model


@pytest.mark.parametrize("as_bytes", [False, True])
def test_training_graphs_stay_in_the_model(tmp_path: Path, as_bytes: bool) -> None:
    model = with_training()
    given = model.SerializeToString() if as_bytes else model
    onnx_container.save_model(given, tmp_path / "m.onnx", save_as_external_data=True, convert_attribute=True)
    for read in (onnx.load(tmp_path / "m.onnx"), onnx_container.load(tmp_path / "m.onnx")):
        assert elements(read) == elements(model) and len(elements(read)) == 4
    # Where they are in a file all the same, they are read from there.
    container = onnx_container.Container(model)
    container.externalize(all_tensors=True)
    container.save(tmp_path / "n.onnx")
    read = onnx_container.load(tmp_path / "n.onnx")
    assert elements(read) == elements(model)
    theirs_read = onnx.load(tmp_path / "n.onnx")
    ours.convert_model_to_external_data(theirs_read, True, "./n.onnx.data")
    with pytest.raises(ValueError, match="not loaded"):
        onnx_container.save_model(theirs_read, tmp_path / "n.onnx")
    assert elements(onnx_container.load(tmp_path / "n.onnx")) == elements(model)


def everywhere() -> onnx.ModelProto:
    """A model with tensors where onnx looks for them, and where it does not: sparse, in a subgraph, in a function."""
    helper = onnx.helper

    def large(name: str, value: float) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(np.full(512, value, np.float32), name)

    out = [helper.make_tensor_value_info("o", 1, [512])]
    branches = {
        key: helper.make_graph([helper.make_node("Identity", [key], ["o"])], key, [], out, initializer=[large(key, number)])
        for number, key in enumerate(("then_branch", "else_branch"))
    }
    constant = helper.make_node("Constant", [], ["inside"], value=large("inside", 5))
    body = [constant, helper.make_node("Add", ["i", "inside"], ["r"])]
    function = helper.make_function("local", "f", ["i"], ["r"], body, [helper.make_opsetid("", 21)])
    places = onnx.numpy_helper.from_array(np.arange(512, dtype=np.int64), "places")
    sparse = helper.make_sparse_tensor(large("sparse", 7), places, [1024])
    nodes = [
        helper.make_node("If", ["c"], ["chosen"], **branches),
        helper.make_node("f", ["chosen"], ["called"], domain="local"),
        helper.make_node("Add", ["called", "main"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("c", 9, [])],
        [helper.make_tensor_value_info("y", 1, [512])],
        initializer=[large("main", 9)],
        sparse_initializer=[sparse],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)


def elements(model: onnx.ModelProto) -> dict[str, bytes]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor).tobytes() for tensor in ours.every_tensor(model)}


@pytest.mark.parametrize("attributes", [True, False])
def test_tensors_everywhere_are_saved_so_that_onnx_reads_them(tmp_path: Path, attributes: bool) -> None:
    model = everywhere()
    onnx_container.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, convert_attribute=attributes)
    onnx.checker.check_model(str(tmp_path / "m.onnx"))
    assert elements(onnx.load(tmp_path / "m.onnx")) == elements(model)
    assert elements(onnx_container.load(tmp_path / "m.onnx")) == elements(model)


@pytest.mark.parametrize("attributes", [True, False])
def test_tensors_everywhere_are_converted_as_onnx_does(tmp_path: Path, attributes: bool) -> None:
    model, peer = everywhere(), everywhere()
    ours.convert_model_to_external_data(model, True, "w", 1024, attributes)
    theirs.convert_model_to_external_data(peer, True, "w", 1024, attributes)
    assert model == peer
    onnx_container.save_model(model, tmp_path / "m.onnx")
    assert elements(onnx_container.load(tmp_path / "m.onnx")) == elements(everywhere())


def test_tensors_everywhere_are_in_a_container(tmp_path: Path) -> None:
    model, large = everywhere(), {}
    for tensor in ours.every_tensor(model):
        if tensor.name != "places":
            large[f"#{tensor.name}"] = onnx.numpy_helper.to_array(tensor)
            tensor.ClearField("raw_data")
            _entries.set_entries(tensor, {"location": f"#{tensor.name}"})
    container = onnx_container.ExtendedModelContainer()
    container.model_proto = model
    container.large_initializers = large
    assert elements(container.get_model_with_data()) == elements(everywhere())
    container.save(tmp_path / "m.onnx")
    assert elements(onnx_container.load(tmp_path / "m.onnx")) == elements(everywhere())
    loaded = onnx_container.ExtendedModelContainer().load(tmp_path / "m.onnx")
    loaded.check_large_initializers()
    assert len(loaded.large_initializers) == len(large)
    assert elements(loaded.get_model_with_data()) == elements(everywhere())


def test_files_that_are_not_there_are_what_other_code_catches(tmp_path: Path) -> None:
    for load in (onnx_container.load_model, onnx_container.Container.load, onnx_container.ir.load):
        with pytest.raises(FileNotFoundError) as raised:
            load(tmp_path / "none.onnx")
        assert isinstance(raised.value, onnx_container.Error) and raised.value.kind == "MissingFile"


def test_external_data_that_leads_elsewhere_is_not_written(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "link").symlink_to(tmp_path)
    (base / "hard").write_bytes(b"1")
    os.link(base / "hard", tmp_path / "other")
    for location in ("link/w", "hard"):
        with pytest.raises(ValueError):
            ours.save_external_data(external(location=location), base)
    assert (tmp_path / "other").read_bytes() == b"1" and not (tmp_path / "w").exists()
    with pytest.raises(ValueError, match="offset is -1"):
        ours.ExternalDataInfo(external(location="w", offset=-1))
    with pytest.raises(ValueError, match="not external"):
        ours.load_external_data_for_tensor(onnx.numpy_helper.from_array(np.ones(2), "w"), base)
