"""Tensors of torch as weights, and tensors for torch. Skipped, aloud, where torch is not installed."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import models
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tested")

from onnx_container import Container, DataType, ExtendedModelContainer  # noqa: E402
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
    assert container["#w"].numpy().sum() == 4
    del container, storage


@pytest.mark.parametrize("wrong", [lambda: torch.ones(2, device="meta"), lambda: torch.ones(2).to_sparse()])
def test_tensors_without_memory_are_refused(wrong) -> None:
    with pytest.raises(TypeError):
        Container(models.add(("w", 1, (2,))), {"#w": wrong()})


def test_dlpack_gives_torch_a_tensor() -> None:
    tensor = Container(models.add(("w", 1, (4,))), {"#w": torch.arange(4.0)})["#w"]
    assert torch.equal(torch.from_dlpack(tensor), torch.arange(4.0))


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


def test_an_exported_program_is_saved_from_the_memory_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch cannot export")
    import numpy as np
    import onnx_container.ir

    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).eval()
    x = torch.randn(2, 64)
    program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    onnx_container.ir.save(program.model, tmp_path / "ours.onnx", external_data="ours.onnx.data")
    program.save(tmp_path / "theirs.onnx", external_data=True)
    ours, theirs = (Container.load(tmp_path / f"{name}.onnx") for name in ("ours", "theirs"))
    assert ours.semantic_difference(theirs) is None and len(ours) > 0
    name = ours.model_proto.graph.input[0].name
    for container in (ours, theirs):
        session = container.inference_session(providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {name: x.numpy()})[0], module(x).detach().numpy(), atol=1e-5)
    # What is given to the save lies in the memory of the module.
    addresses = {parameter.data_ptr() for parameter in module.parameters()}
    with onnx_container.ir._handles(program.model, 256) as (message, large):
        given = Container(message, large)
    assert {given[handle].bytes().address for handle in given} <= addresses
