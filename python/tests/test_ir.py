"""``onnx_container.ir``: models of onnx_ir on our tensors."""

from __future__ import annotations

import os
from pathlib import Path

import models
import numpy as np
import onnx
import onnx_container.ir
import onnx_ir
import pytest
from onnx_container import Container


def identity(path: Path) -> tuple[int, int, int]:
    """What a write to a file changes; a read may change its time of access."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def model_and_weights() -> tuple[onnx_ir.Model, dict[str, np.ndarray]]:
    proto, weights = models.matmul(inline=True)
    return onnx_ir.from_proto(proto), {handle[1:]: weight for handle, weight in weights.items()}


@pytest.mark.parametrize("name", ["m.onnx.data", "w.bin"])
def test_models_are_saved_as_onnx_ir_does(tmp_path: Path, name: str) -> None:
    model, weights = model_and_weights()
    tensors = [value.const_value for value in model.graph.initializers.values()]
    onnx_container.ir.save(model, tmp_path / "m.onnx", external_data=name)
    assert [value.const_value for value in model.graph.initializers.values()] == tensors
    assert sorted(os.listdir(tmp_path)) == sorted(["m.onnx", name])
    for read in (onnx_ir.load(tmp_path / "m.onnx"), onnx_container.ir.load(tmp_path / "m.onnx")):
        for key, value in read.graph.initializers.items():
            np.testing.assert_array_equal(value.const_value.numpy(), weights[key])


def test_loaded_tensors_are_tensors_of_onnx_ir(tmp_path: Path) -> None:
    model, weights = model_and_weights()
    onnx_container.ir.save(model, tmp_path / "m.onnx", external_data="w")
    loaded = onnx_container.ir.load(tmp_path / "m.onnx")
    tensor = loaded.graph.initializers["a"].const_value
    assert isinstance(tensor, onnx_ir.TensorProtocol) and tensor.bytes().file_range
    assert (tensor.dtype, tensor.shape, tensor.name) == (onnx_ir.DataType.FLOAT, onnx_ir.Shape([64, 64]), "a")
    # onnx_ir writes them, by both of its ways.
    onnx_ir.save(loaded, tmp_path / "n.onnx", external_data="n.data")
    onnx_ir.save(loaded, tmp_path / "i.onnx")
    for name in ("n", "i"):
        np.testing.assert_array_equal(
            onnx.numpy_helper.to_array(onnx.load(tmp_path / f"{name}.onnx").graph.initializer[0]), weights["a"]
        )
    # And so does this package, over the files that they are mapped from.
    onnx_container.ir.save(loaded, tmp_path / "m.onnx", external_data="w")
    np.testing.assert_array_equal(Container.load(tmp_path / "m.onnx").tensor("b").numpy(), weights["b"])


def test_callbacks_name_each_tensor(tmp_path: Path) -> None:
    model, _ = model_and_weights()
    seen = []
    onnx_container.ir.save(
        model, tmp_path / "m.onnx", external_data="w", callback=lambda tensor, info: seen.append((tensor.name, info))
    )
    assert [(name, info.index, info.total, info.filename) for name, info in seen] == [("a", 0, 2, "w"), ("b", 1, 2, "w")]
    offsets = [ours.offset for ours in (info for _, info in seen)]
    read = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    written = [onnx.external_data_helper.ExternalDataInfo(it).offset or 0 for it in read.graph.initializer]
    assert offsets == written


def test_thresholds_shards_and_alignment(tmp_path: Path) -> None:
    model, _ = model_and_weights()
    onnx_container.ir.save(model, tmp_path / "a.onnx", external_data="a", size_threshold_bytes=64 * 64 * 4)
    assert os.listdir(tmp_path) == ["a.onnx"]
    onnx_container.ir.save(model, tmp_path / "s.onnx", external_data="s.data", max_shard_size_bytes=20_000)
    assert len(os.listdir(tmp_path)) == 4
    onnx_container.ir.save(model, tmp_path / "l.onnx", external_data="l", alignment=65536, align_threshold=0)
    read = onnx.load(tmp_path / "l.onnx", load_external_data=False)
    offset = onnx.external_data_helper.ExternalDataInfo(read.graph.initializer[1]).offset
    assert offset == 65536


def test_safetensors_are_written(tmp_path: Path) -> None:
    import safetensors.numpy

    model, weights = model_and_weights()
    onnx_container.ir.save_safetensors(model, tmp_path / "m.onnx")
    read = safetensors.numpy.load_file(tmp_path / "m.safetensors")
    assert read.keys() == weights.keys()
    np.testing.assert_array_equal(read["a"], weights["a"])
    loaded = onnx_container.ir.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(loaded.graph.initializers["b"].const_value.numpy(), weights["b"])


def test_without_external_data_the_model_is_one_file(tmp_path: Path) -> None:
    model, weights = model_and_weights()
    onnx_container.ir.save(model, tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == ["m.onnx"]
    np.testing.assert_array_equal(
        onnx_ir.load(tmp_path / "m.onnx").graph.initializers["a"].const_value.numpy(), weights["a"]
    )


def test_lazy_tensors_are_evaluated_by_the_save(tmp_path: Path) -> None:
    model, weights = model_and_weights()
    calls = []

    def make() -> onnx_ir.Tensor:
        calls.append(1)
        return onnx_ir.Tensor(weights["a"] + 1)

    value = model.graph.initializers["a"]
    value.const_value = onnx_ir.LazyTensor(make, dtype=onnx_ir.DataType.FLOAT, shape=onnx_ir.Shape([64, 64]), name="a")
    onnx_container.ir.save(model, tmp_path / "m.onnx", external_data="w")
    assert len(calls) == 1
    np.testing.assert_array_equal(Container.load(tmp_path / "m.onnx").tensor("a").numpy(), weights["a"] + 1)


def test_a_container_shares_the_tensors_of_a_model(tmp_path: Path) -> None:
    model, weights = model_and_weights()
    for name, weight in weights.items():
        model.graph.initializers[name].const_value = onnx_ir.Tensor(weight, name=name)
    tensors = [value.const_value for value in model.graph.initializers.values()]
    for container in (onnx_container.ir.to_container(model), Container(model)):
        assert container.keys() == ["#a", "#b"]
        assert [value.const_value for value in model.graph.initializers.values()] == tensors
        assert container["#a"].bytes().address == tensors[0].numpy().ctypes.data
    assert onnx_container.ir.to_container(model, 1 << 20).keys() == []


@pytest.mark.parametrize("load", [onnx_ir.load, onnx_container.ir.load])
def test_tensors_stay_in_their_files(tmp_path: Path, load) -> None:
    model, weights = model_and_weights()
    onnx_container.ir.save(model, tmp_path / "m.onnx", external_data="w")
    before = identity(tmp_path / "w")
    read = load(tmp_path / "m.onnx")
    read.graph.name = "other"
    kept = [value.const_value for value in read.graph.initializers.values()]
    onnx_container.ir.save(read, tmp_path / "n.onnx")
    assert [value.const_value for value in read.graph.initializers.values()] == kept
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "n.onnx", "w"]
    assert identity(tmp_path / "w") == before and (tmp_path / "n.onnx").stat().st_size < 2000
    again = onnx.load(tmp_path / "n.onnx")
    assert again.graph.name == "other"
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(again.graph.initializer[1]), weights["b"])
    # Elsewhere there is no such file, so that the model has its elements itself.
    (tmp_path / "sub").mkdir()
    onnx_container.ir.save(read, tmp_path / "sub" / "m.onnx")
    assert os.listdir(tmp_path / "sub") == ["m.onnx"]
    again = onnx.load(tmp_path / "sub" / "m.onnx")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(again.graph.initializer[1]), weights["b"])


def test_a_file_is_mapped_once(tmp_path: Path) -> None:
    arrays = {f"w{i}": np.full(64, i, np.float32) for i in range(300)}
    model = onnx_ir.from_proto(models.add())
    for name, array in arrays.items():
        model.graph.register_initializer(onnx_ir.Value(name=name, const_value=onnx_ir.Tensor(array, name=name)))
    onnx_container.ir.save(model, tmp_path / "m.onnx", external_data="w", size_threshold_bytes=0)
    read, most = onnx_ir.load(tmp_path / "m.onnx"), []

    def count(done: int, total: int) -> None:
        lines = Path("/proc/self/maps").read_text().splitlines()
        most.append(sum(line.endswith(str(tmp_path / "w")) for line in lines))

    onnx_container.ir.save(read, tmp_path / "n.onnx", progress=count)
    assert max(most) <= 2 and (tmp_path / "n.onnx").stat().st_size < 300 * 200
    assert elements_of(tmp_path / "n.onnx") == {name: array.tobytes() for name, array in arrays.items()}


def elements_of(path: Path) -> dict[str, bytes]:
    return {it.name: onnx.numpy_helper.to_array(it).tobytes() for it in onnx.load(path).graph.initializer}


def test_a_model_is_as_it_was(tmp_path: Path) -> None:
    from test_onnx import everywhere

    proto = everywhere()
    del proto.graph.sparse_initializer[:]
    container = Container(proto)
    container.externalize(all_tensors=True)
    container.save(tmp_path / "m.onnx")
    model = onnx_container.ir.load(tmp_path / "m.onnx")
    model.functions["local", "f", ""][0].attributes["value"].doc_string = "about"

    def places() -> list[int]:
        attributes = [it for function in model.functions.values() for node in function for it in node.attributes.values()]
        values = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
        return [id(it) for it in (*attributes, *values)]

    before = places()
    onnx_container.ir.save(model, tmp_path / "n.onnx", external_data="v")
    onnx_container.ir.save(model, tmp_path / "o.onnx")
    with pytest.raises(onnx_container.Error):
        onnx_container.ir.save(model, tmp_path / "none" / "n.onnx", external_data="v")
    assert places() == before


def test_threads_save_one_model(tmp_path: Path) -> None:
    import copy
    import threading

    model, weights = model_and_weights()
    seen, errors = [], []

    def save(number: int) -> None:
        def callback(tensor, info) -> None:
            value = model.graph.initializers[tensor.name]
            seen.append(value.const_value.tobytes() == weights[tensor.name].tobytes())

        try:
            for turn in range(5):
                path = tmp_path / f"{number}-{turn}.onnx"
                onnx_container.ir.save(model, path, external_data=f"{path.name}.data", callback=callback)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert errors == [] and len(seen) == 40 and all(seen)
    # Tensors of a loaded model are copied with it, and share their bytes.
    loaded = onnx_container.ir.load(tmp_path / "0-0.onnx")
    tensor = loaded.graph.initializers["a"].const_value
    copied = copy.deepcopy(tensor)
    assert type(copied) is type(tensor) and copied.bytes().address == tensor.bytes().address and copied.shape == tensor.shape


def test_small_tensors_of_files_go_into_the_model(tmp_path: Path) -> None:
    model, _ = model_and_weights()
    value = onnx_ir.Value(name="small", const_value=onnx_ir.Tensor(np.arange(4, dtype=np.int8), name="small"))
    model.graph.register_initializer(value)
    onnx_ir.save(model, tmp_path / "m.onnx", external_data="w", size_threshold_bytes=0)
    read = onnx_ir.load(tmp_path / "m.onnx")
    (tmp_path / "b").mkdir()
    onnx_container.ir.save(read, tmp_path / "b" / "m.onnx", external_data="v")
    onnx_container.ir.save(read, tmp_path / "m.onnx", external_data="w")
    for path in (tmp_path / "b" / "m.onnx", tmp_path / "m.onnx"):
        small = onnx.load(path).graph.initializer[2]
        assert small.name == "small" and onnx.numpy_helper.to_array(small).tolist() == [0, 1, 2, 3]


def test_tensors_are_found_everywhere(tmp_path: Path) -> None:
    from test_onnx import elements, everywhere

    proto = everywhere()
    del proto.graph.sparse_initializer[:]
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["deep"], ["o"])],
        "deep",
        [],
        [onnx.helper.make_tensor_value_info("o", 1, [512])],
        initializer=[onnx.numpy_helper.from_array(np.full(512, 3, np.float32), "deep")],
    )
    chosen = onnx.helper.make_node("If", ["i"], ["chosen"], then_branch=inner, else_branch=inner)
    lists = onnx.helper.make_node("Lists", [], ["l"], domain="custom")
    tensors = [onnx.numpy_helper.from_array(np.full(300, it, np.float32), f"t{it}") for it in range(2)]
    lists.attribute.append(onnx.helper.make_attribute("values", tensors))
    proto.functions[0].node.insert(0, chosen)
    proto.graph.node.insert(0, lists)
    container = Container(proto)
    container.externalize(all_tensors=True)
    container.save(tmp_path / "m.onnx")
    loaded = onnx_container.ir.load(tmp_path / "m.onnx")
    assert elements(onnx_ir.to_proto(loaded)) == elements(proto)
    onnx_container.ir.save(loaded, tmp_path / "n.onnx", external_data="v")
    assert elements(onnx_container.load(tmp_path / "n.onnx")) == elements(proto)


def test_files_of_functions_are_those_of_the_model(tmp_path: Path, monkeypatch) -> None:
    from test_onnx import elements, everywhere

    proto = everywhere()
    del proto.graph.sparse_initializer[:]
    default = onnx.helper.make_attribute("d", onnx.numpy_helper.from_array(np.full(512, 6, np.float32), "default"))
    proto.functions[0].attribute_proto.append(default)
    nameless = onnx.numpy_helper.from_array(np.full(512, 8, np.float32))
    proto.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["unused"], value=nameless))
    container = Container(proto)
    container.externalize(all_tensors=True)
    (tmp_path / "model").mkdir()
    container.save(tmp_path / "model" / "m.onnx", data_name="w.data")
    (tmp_path / "w.data").write_bytes(bytes(1 << 16))  # another model's, where this process is
    monkeypatch.chdir(tmp_path)
    for number, read in enumerate((onnx_ir.load("model/m.onnx"), onnx_container.ir.load("model/m.onnx"))):
        for options in ({}, {"external_data": f"{number}.data"}):
            onnx_container.ir.save(read, f"model/{number}.onnx", **options)
            assert elements(onnx_container.load(f"model/{number}.onnx")) == elements(proto)


def test_options_that_contradict_are_refused(tmp_path: Path) -> None:
    model, _ = model_and_weights()
    for options in (
        {"external_data": "w", "files": "safetensors"},
        {"external_data": "w", "data_name": "v"},
        {"max_shard_size_bytes": 10},
        {"external_data": "w", "max_shard_size_bytes": 0},
        {"external_data": "w", "max_workers": 0},
    ):
        with pytest.raises(ValueError):
            onnx_container.ir.save(model, tmp_path / "m.onnx", **options)
    assert os.listdir(tmp_path) == []
    onnx_container.ir.save(model, tmp_path / "m.onnx", files="per-tensor")
    assert len(os.listdir(tmp_path)) == 3
