"""Tensors of torch as weights, and tensors for torch. Skipped, aloud, where torch is not installed."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import models
import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tested")

from onnx_container import Container, DataType, Error, ExtendedModelContainer  # noqa: E402
from onnx_container._dtypes import to_torch  # noqa: E402

TYPES = [dtype for dtype in DataType if dtype.bits and dtype.bits >= 8]


def example(dtype: DataType, shape: tuple[int, ...] = (3, 4)) -> torch.Tensor:
    try:
        kind = to_torch(dtype)
    except TypeError:
        pytest.skip(f"this torch has no {dtype}")
    return (torch.arange(12, dtype=torch.float32) % 2).to(kind).reshape(shape)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    flat = [it.contiguous().reshape(-1).view(torch.uint8) for it in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*flat)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type_goes_out_and_comes_back(tmp_path: Path, dtype: DataType) -> None:
    tensor = example(dtype)
    container = Container(models.add(("w", dtype, (3, 4))), {"#w": tensor})
    assert container["#w"].bytes().address == tensor.data_ptr()
    container.save(tmp_path / "m.onnx")
    loaded = Container.load(tmp_path / "m.onnx").tensor("w").torch()
    assert same(loaded, tensor)
    loaded.zero_()
    assert same(Container.load(tmp_path / "m.onnx").tensor("w").torch(), tensor)


FORMS = {
    "transposed": lambda t: t.T,
    "strided": lambda t: t[:, ::2],
    "expanded": lambda t: t[0].expand(3, 4),
    "parameter": torch.nn.Parameter,
    "with gradient": lambda t: t.clone().requires_grad_(),
    "conjugate": lambda t: torch.conj(torch.complex(t, t)),
    "scalar": lambda t: t[0, 0],
    "empty": lambda t: t[:0],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_tensors_in_any_form_are_written_in_order(tmp_path: Path, form) -> None:
    tensor = form(torch.arange(12, dtype=torch.float32).reshape(3, 4))
    dtype = DataType.COMPLEX64 if tensor.dtype == torch.complex64 else DataType.FLOAT
    container = Container(models.add(("w", dtype, tuple(tensor.shape))), {"#w": tensor})
    container.save(tmp_path / "m.onnx")
    loaded = Container.load(tmp_path / "m.onnx").tensor("w").torch()
    assert same(loaded, tensor.detach().resolve_conj())


def test_tied_parameters_are_written_once(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(256, 256))
    container = ExtendedModelContainer()
    container.model_proto = models.add(("a", 1, (256, 256)), ("b", 1, (256, 256)))
    container.large_initializers = {"#a": weight, "#b": weight.view(256, 256)}
    container.save(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").stat().st_size == 256 * 256 * 4


def test_a_tensor_lives_as_long_as_the_container() -> None:
    tensor = torch.ones(4)
    storage = weakref.ref(tensor.untyped_storage())
    container = Container(models.add(("w", 1, (4,))), {"#w": tensor})
    del tensor
    gc.collect()
    assert container["#w"].numpy().sum() == 4 and storage() is not None
    del container
    gc.collect()
    assert storage() is None


WITHOUT_MEMORY = {
    "meta": lambda: torch.ones(2, device="meta"),
    "sparse": lambda: torch.ones(2).to_sparse(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2)]),
    "fake": lambda: torch._subclasses.FakeTensorMode().from_tensor(torch.ones(2)),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
}


@pytest.mark.parametrize("wrong", WITHOUT_MEMORY.values(), ids=WITHOUT_MEMORY.keys())
def test_tensors_without_memory_are_refused(wrong) -> None:
    with pytest.raises(TypeError, match="#w"):
        Container(models.add(("w", 1, (2,))), {"#w": wrong()})


def test_dlpack_gives_torch_a_tensor(tmp_path: Path) -> None:
    weights = torch.arange(64 * 1024.0)
    container = Container(models.add(("w", 1, (64 * 1024,))), {"#w": weights})
    taken = torch.from_dlpack(container["#w"])
    assert torch.equal(taken, weights) and taken.data_ptr() == weights.data_ptr()
    # torch takes no notice of the mark of read-only elements, and what it writes changes nothing
    # else.
    container.save(tmp_path / "m.onnx")
    loaded = Container.load(tmp_path / "m.onnx")
    taken = torch.from_dlpack(loaded.tensor("w"))
    assert torch.equal(taken, weights)
    taken.zero_()
    # Also where the file is no longer there to be mapped.
    (tmp_path / "m.onnx.data").rename(tmp_path / "moved")
    torch.from_dlpack(loaded.tensor("w")).zero_()
    with pytest.raises(BufferError, match="replaced"):
        loaded.tensor("w").__dlpack__(max_version=(1, 0), copy=False)
    (tmp_path / "moved").rename(tmp_path / "m.onnx.data")
    assert same(loaded.tensor("w").torch(), weights)
    assert same(Container.load(tmp_path / "m.onnx").tensor("w").torch(), weights)


def maps(path: Path) -> list[str]:
    """The maps that this process has of a file: their permissions."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split()[1] for line in lines if line.endswith(str(path))]


def test_tensors_are_private_maps_of_their_file(tmp_path: Path) -> None:
    weights = torch.arange(1 << 20, dtype=torch.float32)
    model = models.add(("w", 1, (1 << 20,)), ("short", 1, (4,)))
    Container(model, {"#w": weights, "#short": weights[:4]}).save(tmp_path / "m.onnx")
    data = tmp_path / "m.onnx.data"
    written = data.read_bytes()
    loaded = Container.load(tmp_path / "m.onnx")
    before = maps(data)
    tensor = loaded.tensor("w").torch()
    assert sorted(set(maps(data)) - set(before)) == ["rw-p"] and len(maps(data)) == len(before) + 1
    other = loaded.tensor("w").torch()
    tensor[7] = -1
    assert tensor[7] == -1 and other[7] == 7 and loaded.tensor("w").numpy()[7] == 7
    assert data.read_bytes() == written
    # It outlives the container, and is unmapped with its last view.
    del loaded, other
    view = tensor[8:]
    del tensor
    gc.collect()
    assert view[0] == 8
    del view
    gc.collect()
    assert maps(data) == []
    loaded = Container.load(tmp_path / "m.onnx")
    assert len(maps(data)) == 1
    copy, short = loaded.tensor("w").torch(copy=True), loaded.tensor("short").torch()
    assert len(maps(data)) == 1 and torch.equal(copy, weights) and torch.equal(short, weights[:4])
    assert torch.equal(loaded.tensor("short").torch(copy=False), weights[:4])
    with pytest.raises(ValueError, match="in no mapped file"):
        Container.load(tmp_path / "m.onnx", mmap=False).tensor("w").torch(copy=False)
    # A file that was replaced is no longer there to be mapped.
    Container(model, {"#w": weights + 1, "#short": weights[:4]}).save(tmp_path / "m.onnx")
    assert torch.equal(loaded.tensor("w").torch(), weights)


def test_pairs_of_four_bits(tmp_path: Path) -> None:
    import numpy as np

    packed = torch.arange(12, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(3, 4)
    container = Container(models.add(("w", DataType.FLOAT4E2M1, (3, 8))), {"#w": packed})
    container.save(tmp_path / "m.onnx")
    tensor = Container.load(tmp_path / "m.onnx").tensor("w")
    assert same(tensor.torch(), packed) and tensor.shape == (3, 8) and tensor.numpy().shape == (3, 8)
    odd = Container(models.add(("w", DataType.FLOAT4E2M1, (3,))), {"#w": np.zeros(3, tensor.numpy().dtype)})
    with pytest.raises(TypeError, match="odd"):
        odd["#w"].torch()
    with pytest.raises(TypeError, match="use `raw`"):
        Container(models.add(("w", DataType.INT4, (2,))), {"#w": b"1"})["#w"].torch()


MOVES = {
    "shrunk": lambda t: t.untyped_storage().resize_(0),
    "grown": lambda t: t.resize_(1 << 22),
    "shared": lambda t: t.share_memory_(),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_memory_that_torch_moved_is_not_read(tmp_path: Path, move) -> None:
    tensor = torch.ones(1 << 20)
    container = Container(models.add(("w", 1, (1 << 20,))), {"#w": tensor})
    move(tensor)
    with pytest.raises(Error, match="became shorter"):
        container.save(tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


def test_bfloat16_takes_no_memory_beside_the_weights(tmp_path: Path) -> None:
    def peak() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10

    size = int(os.environ.get("ONNX_CONTAINER_BFLOAT16_BYTES", 256 << 20))
    tensor = torch.ones(size // 2, dtype=torch.bfloat16)
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    container = Container(models.add(("w", 16, tuple(tensor.shape))), {"#w": tensor})
    container.save(tmp_path / "m.onnx", sync=False)
    assert peak() - before <= 64 << 20
    assert (tmp_path / "m.onnx.data").stat().st_size == size


def test_a_state_dict_is_of_torch() -> None:
    container = Container(*models.matmul())
    state = container.state_dict()
    assert {*state} == {"a", "b"} and {*container.state_dict("a")} == {"a"}
    module = torch.nn.ParameterDict({name: torch.zeros(64, 64) for name in "ab"})
    module.load_state_dict(state)
    assert torch.equal(module["a"], torch.from_numpy(models.matmul()[1]["#a"]))
    packed = models.add(("i", int(DataType.INT4), (4,)))
    with pytest.raises(TypeError, match="'i': "):
        Container(packed, {"#i": bytes(2)}).state_dict()


class Sums(torch.utils.data.Dataset):
    """A data set that holds a container."""

    def __init__(self, container: Container) -> None:
        self.container = container

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.container.tensor("ab"[index % 2]).torch().sum()


def test_the_processes_of_a_data_loader_load_the_model_by_themselves(tmp_path: Path) -> None:
    Container(*models.matmul()).save(tmp_path / "m.onnx")
    data = Sums(Container.load(tmp_path / "m.onnx"))
    loader = torch.utils.data.DataLoader(data, num_workers=2, multiprocessing_context="spawn")
    assert torch.cat(list(loader)).tolist() == [data[index].item() for index in range(4)]


def test_a_state_dict_has_the_initializers_of_every_graph() -> None:
    def branch(name: str, value: float) -> onnx.GraphProto:
        weight = onnx.numpy_helper.from_array(np.full(2, value, np.float32), "w")
        node = onnx.helper.make_node("Identity", ["w"], [f"{name}_out"])
        output = onnx.helper.make_tensor_value_info(f"{name}_out", 1, [2])
        return onnx.helper.make_graph([node], name, [], [output], [weight])

    node = onnx.helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch("then", 1), else_branch=branch("else", 2))
    named = [onnx.numpy_helper.from_array(np.zeros(2, np.float32), name) for name in ("w", "[x]*")]
    constant = onnx.helper.make_node("Constant", [], ["k"], value=onnx.helper.make_tensor("t", 1, [1], [0]))
    inputs = [onnx.helper.make_tensor_value_info("c", 9, [])]
    outputs = [onnx.helper.make_tensor_value_info("y", 1, [2])]
    graph = onnx.helper.make_graph([constant, node], "g", inputs, outputs, named)
    state = Container(onnx.helper.make_model(graph)).state_dict()
    found = {name: float(tensor[0]) for name, tensor in state.items()}
    assert found == {"w": 0, "[x]*": 0, "choice.then_branch/w": 1, "choice.else_branch/w": 2}
