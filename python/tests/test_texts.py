"""Sizes, patterns of names, and names of element types, as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import onnx_container as oc
import pytest
from onnx_container import Container, DataType, ir
from onnx_container._core import matching, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [("1024", 1024), ("20MB", 20_000_000), ("1.5 GB", 1_500_000_000), ("16K", 16384), ("2GiB", 2 << 30), ("1e9", 10**9)],
)
def test_a_size_is_read_as_the_command_reads_it(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_a_size_is_written_as_the_command_writes_it() -> None:
    assert [size_text(size) for size in (0, 999, 4_788_213)] == ["0 B", "999 B", "4.8 MB"]


def files(folder: Path) -> list[str]:
    return sorted(it.name for it in folder.iterdir())


def test_every_number_of_bytes_may_be_a_text(tmp_path: Path) -> None:
    """Each call does the same as with the number."""

    def container() -> Container:
        return Container(models.matmul(inline=True)[0])

    container().save(tmp_path / "s.onnx", externalize=True, threshold="1K", max_shard_bytes="20 KB", alignment="4K", alignment_large="64K")
    assert files(tmp_path) == ["s-00001-of-00002.onnx.data", "s-00002-of-00002.onnx.data", "s.onnx"]
    assert container().externalize("16385").moved == 0 and container().externalize("16K").moved == 2
    assert container().strip(min_bytes="1KB").stripped == 2
    assert len(container().consolidate("64", threshold="1K")) == 2 * 16384
    with pytest.raises(oc.Error):
        container().cast("float16", min_bytes="1MB")
    oc.save_model(models.matmul(inline=True)[0], tmp_path / "t.onnx", save_as_external_data=True, size_threshold="1MB")
    assert "t.onnx.data" not in files(tmp_path)
    ir.save(ir.load(tmp_path / "s.onnx"), tmp_path / "u.onnx", external_data="u.data", size_threshold_bytes="1K", max_shard_size_bytes="17K")
    assert "u-00001-of-00002.data" in files(tmp_path)
    model = models.matmul(inline=True)[0]
    oc.convert_model_to_external_data(model, location="c.data", size_threshold="17 KB")
    assert not any(map(oc.uses_external_data, model.graph.initializer))
    oc.convert_model_to_external_data(model, location="c.data", size_threshold="16K")
    assert all(map(oc.uses_external_data, model.graph.initializer))
    assert oc.scan(tmp_path, equal=True, min_equal_bytes="1MB").equal == []
    Container.load(tmp_path / "s.onnx", limits={"memory": "1MB"})
    with pytest.raises(oc.Error, match="name"):
        Container.load(tmp_path / "s.onnx", limits={"name_bytes": "1"})


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c, p: c.save(p / "m.onnx", max_shard_bytes="2GX"), r"save\(\): max_shard_bytes is '2GX', which is not a number of bytes"),
        (lambda c, p: c.save(p / "m.onnx", max_shard_bytes="0 MB"), "a shard has at least one byte"),
        (lambda c, p: c.externalize(min_bytes=""), r"externalize\(\): min_bytes is ''"),
        (lambda c, p: oc.scan(p, min_equal_bytes="-1"), r"scan\(\): min_equal_bytes is '-1'"),
        (lambda c, p: Container.load(p / "m.onnx", limits={"memory": "much"}), r"load\(\): limits\['memory'\] is 'much'"),
    ],
)
def test_what_is_no_size_is_said(tmp_path: Path, call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call(Container(*models.matmul()), tmp_path)


NAMES = ["layers.0.norm", "layers.1.norm", "layers.1.w[0]", "w"]


@pytest.mark.parametrize(
    ("patterns", "found", "idle"),
    [
        (["*norm"], ["layers.0.norm", "layers.1.norm"], []),
        (["layers.?.norm", "w"], ["layers.0.norm", "layers.1.norm", "w"], []),
        (["layers.[1-9].*"], ["layers.1.norm", "layers.1.w[0]"], []),
        (["layers.1.w[0]"], ["layers.1.w[0]"], []),  # a name is itself, whatever it has in it
        (["[!l]*", "x*", "y"], ["w"], ["x*", "y"]),
        ([], [], []),
    ],
)
def test_patterns_choose_names(patterns: list[str], found: list[str], idle: list[str]) -> None:
    assert matching(NAMES, patterns) == (found, idle)


def test_what_is_no_pattern_is_said() -> None:
    with pytest.raises(ValueError, match=r'"a\*\*b" is no pattern'):
        matching(NAMES, ["a**b"])
    with pytest.raises(TypeError, match=r"find\(\): a name, or a pattern of names, is a str, not 3"):
        Container(*models.matmul()).find([3])  # type: ignore[list-item]


def layers() -> Container:
    weights = {f"layers.{n}.{kind}": np.full((8, 64), n, np.float32) for n in range(3) for kind in ("norm", "w")}
    inits = [onnx.numpy_helper.from_array(weight, name) for name, weight in weights.items()]
    nodes = [onnx.helper.make_node("Identity", [name], [f"{name}_out"]) for name in weights]
    outputs = [onnx.helper.make_tensor_value_info(f"{name}_out", 1, (8, 64)) for name in weights]
    graph = onnx.helper.make_graph(nodes, "g", [], outputs, inits)
    return Container(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10))


def test_names_of_tensors_may_be_patterns_everywhere(tmp_path: Path) -> None:
    container = layers()
    norms = [f"layers.{n}.norm" for n in range(3)]
    assert container.find("*norm") == norms and container.find(["layers.0.*", "no"]) == ["layers.0.norm", "layers.0.w"]
    assert list(container.tensors("*norm")) == list(oc.stats(container, "*norm")) == norms
    assert container.copy().cast("fp16", except_="*norm").cast == 3
    assert container.export_safetensors(tmp_path / "n.safetensors", "*norm").tensors == 3
    other = {name: tensor.numpy() + 1 for name, tensor in container.tensors().items()}
    with pytest.warns(UserWarning, match="3 .*got no weights"):
        assert container.fill(other, ignore="*norm").filled == 3
    with pytest.warns(UserWarning, match=r'ignore "\*nrm"|ignore .*nrm'):
        container.fill(other, ignore="*nrm")
    with pytest.warns(UserWarning, match="3 .*got no weights"):
        assert layers().attach_safetensors(tmp_path / "n.safetensors").filled == 3
    with pytest.warns(UserWarning):
        assert layers().attach_safetensors(tmp_path / "n.safetensors", ignore="*[12].norm").filled == 1
    for call in (
        lambda: container.tensors("layers.0.nrm"),
        lambda: oc.stats(container, ["*norm", "layers.0.nrm"]),
        lambda: container.cast("fp16", except_=["layers.0.nrm"]),
        lambda: container.export_safetensors(tmp_path / "x.safetensors", ["layers.0.nrm"]),
    ):
        with pytest.raises(ValueError, match="no tensor has a name like 'layers.0.nrm': did you mean 'layers.0.norm'"):
            call()
    assert not (tmp_path / "x.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("fp16", DataType.FLOAT16),
        ("half", DataType.FLOAT16),
        ("FP16", DataType.FLOAT16),
        ("F16", DataType.FLOAT16),
        ("torch.float16", DataType.FLOAT16),
        ("tensor(float16)", DataType.FLOAT16),
        ("tensor(float)", DataType.FLOAT),
        ("bf16", DataType.BFLOAT16),
        ("BF16", DataType.BFLOAT16),
        ("fp32", DataType.FLOAT),
        ("float", DataType.FLOAT),
        ("fp64", DataType.DOUBLE),
        ("double", DataType.DOUBLE),
        ("I64", DataType.INT64),
        ("F8_E4M3", DataType.FLOAT8E4M3FN),
        ("f8_e4m3", DataType.FLOAT8E4M3FN),
        ("F4", DataType.FLOAT4E2M1),
        ("F6_E2M3", DataType.FLOAT6E2M3),
        ("F6_E3M2", DataType.FLOAT6E3M2),
        ("f6_e3m2", DataType.FLOAT6E3M2),
        ("BOOL", DataType.BOOL),
        ("FLOAT8E4M3FN", DataType.FLOAT8E4M3FN),
        ("int4", DataType.INT4),
    ],
)
def test_types_have_the_names_that_people_use(name: str, dtype: DataType) -> None:
    assert DataType.of(name) is dtype


# f4 is the name of numpy for a float of 32 bits.
@pytest.mark.parametrize("name", ["fp8", "fp", "", "tensor()", "floaty", "f4", 99, -1])
def test_what_names_no_type_is_refused(name: str | int) -> None:
    with pytest.raises(TypeError, match="no element type of ONNX"):
        DataType.of(name)


def test_every_type_is_found_by_its_own_name() -> None:
    for dtype in DataType:
        assert DataType.of(dtype.name) is dtype and DataType.of(str(dtype).lower()) is dtype
    assert DataType.INT4.itemsize == 0.5 and DataType.STRING.itemsize is None
    assert DataType.FLOAT.numpy() == np.float32


def test_statistics_of_a_pattern_take_as_long_as_those_of_all() -> None:
    """That every name was compared with every tensor took seconds for so many."""
    inits = [onnx.numpy_helper.from_array(np.zeros(1, np.float32), f"w{number}") for number in range(12_000)]
    graph = onnx.helper.make_graph([], "g", [], [], inits)
    container = Container(onnx.helper.make_model(graph))
    import time

    def took(names: Any) -> float:
        start = time.process_time()
        assert len(oc.stats(container, names)) == 12_000
        return time.process_time() - start

    everything, pattern, each = took(None), took("*"), took([f"w{number}" for number in range(12_000)])
    assert max(pattern, each) < 2 * everything + 1
