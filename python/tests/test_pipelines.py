"""The pipelines that export models with large weights, with this package in the place of what they save by.

Skipped, aloud, where torch or what it exports by is not installed.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: its exports are not tested")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch cannot export")

import onnx_container.ir  # noqa: E402
import onnx_ir  # noqa: E402
from onnx_container import Container, ExtendedModelContainer  # noqa: E402

CPU = {"providers": ["CPUExecutionProvider"]}


class Tied(torch.nn.Module):
    """An embedding whose weight is that of the last layer too, as in language models."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(512, 64)
        self.middle = torch.nn.Linear(64, 64)
        self.head = torch.nn.Linear(64, 512, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Numbers of words to the likelihood of each next word."""
        return self.head(torch.relu(self.middle(self.embedding(ids))))


@pytest.fixture(scope="module")
def exported():
    module = Tied().eval()
    ids = torch.arange(12).reshape(2, 6)
    return module, ids, torch.onnx.export(module, (ids,), dynamo=True, verbose=False)


def run(container: Container, ids: torch.Tensor) -> np.ndarray:
    session = container.inference_session(**CPU)
    return session.run(None, {session.get_inputs()[0].name: ids.numpy()})[0]


def addresses(module: torch.nn.Module) -> set[int]:
    return {parameter.data_ptr() for parameter in module.parameters()}


SAVES = {
    "Container(program)": lambda program, path: Container(program).save(path),
    "Container(program.model)": lambda program, path: Container(program.model).save(path),
    "ir.save": lambda program, path: onnx_container.ir.save(program.model, path, external_data=path.name + ".data"),
    "ir.save, safetensors": lambda program, path: onnx_container.ir.save_safetensors(program.model, path),
}


@pytest.mark.parametrize("save", SAVES.values(), ids=SAVES.keys())
def test_a_program_of_torch_is_saved_as_torch_saves_it(tmp_path: Path, exported, save) -> None:
    module, ids, program = exported
    save(program, tmp_path / "ours.onnx")
    program.save(tmp_path / "theirs.onnx", external_data=True)
    ours, theirs = (Container.load(tmp_path / f"{name}.onnx") for name in ("ours", "theirs"))
    assert ours.semantic_difference(theirs) is None and len(ours) >= 2
    expected = module(ids).detach().numpy()
    for container in (ours, theirs):
        np.testing.assert_allclose(run(container, ids), expected, atol=1e-5)
    # And by its path, as everybody else opens it.
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "ours.onnx", **CPU)
    np.testing.assert_allclose(session.run(None, {session.get_inputs()[0].name: ids.numpy()})[0], expected, atol=1e-5)


def test_a_program_is_saved_from_the_memory_of_torch(exported) -> None:
    module, _, program = exported
    container = Container(program)
    found = {container[handle].bytes().address for handle in container}
    # The exporter may fold a transposed copy of a weight; the embedding at least is the parameter
    # itself.
    assert module.embedding.weight.data_ptr() in found and found & addresses(module)


def test_weights_are_put_into_a_program_without(tmp_path: Path, exported) -> None:
    module, ids, _ = exported
    with torch.device("meta"):
        empty = Tied().eval()
    program = torch.onnx.export(empty, (ids.to("meta"),), dynamo=True, verbose=False, optimize=False)
    with pytest.raises(TypeError, match="meta device"):
        Container(program)
    program.apply_weights(module.state_dict())
    container = Container(program)
    assert {container[handle].bytes().address for handle in container} & addresses(module)
    container.save(tmp_path / "m.onnx")
    np.testing.assert_allclose(run(Container.load(tmp_path / "m.onnx"), ids), module(ids).detach().numpy(), atol=1e-5)


def test_optimum_loads_and_saves_again(tmp_path: Path, exported) -> None:
    """Its export ends with a load of all weights and a save by other names, after which it deletes the first files."""
    module, ids, program = exported
    program.save(tmp_path / "model.onnx", external_data=True)
    first = set(os.listdir(tmp_path))
    model = onnx_container.load(tmp_path / "model.onnx", load_external_data=True)
    onnx_container.save(
        model,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location="model.onnx_data",
        convert_attribute=True,
        size_threshold=100,
    )
    for name in first - {"model.onnx"}:
        (tmp_path / name).unlink()
    assert set(os.listdir(tmp_path)) == {"model.onnx", "model.onnx_data"}
    onnx.checker.check_model(str(tmp_path / "model.onnx"))
    np.testing.assert_allclose(run(Container.load(tmp_path / "model.onnx"), ids), module(ids).detach().numpy(), atol=1e-5)
    # What it lists and copies files by.
    from onnx_container.external_data_helper import ExternalDataInfo, _get_initializer_tensors, uses_external_data

    read = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    named = {ExternalDataInfo(it).location for it in _get_initializer_tensors(read) if uses_external_data(it)}
    assert named == {"model.onnx_data"}


def test_genai_casts_each_weight_when_it_is_saved(tmp_path: Path, exported) -> None:
    """Its builder has a lazy tensor for each weight, which casts it, and writes all of them with a progress bar."""
    module, ids, program = exported
    model = onnx_ir.from_proto(program.model_proto)
    made: list[str] = []

    def half(name: str, weight: torch.Tensor) -> onnx_ir.LazyTensor:
        def cast() -> onnx_ir.TensorProtocol:
            made.append(name)
            return onnx_ir.tensor_adapters.TorchTensor(weight.to(torch.float16), name=name)

        shape = onnx_ir.Shape(weight.shape)
        return onnx_ir.LazyTensor(cast, dtype=onnx_ir.DataType.FLOAT16, shape=shape, name=name)

    weights = {value.name: torch.from_numpy(value.const_value.numpy().copy()) for value in model.graph.initializers.values()}
    floats = {name: weight for name, weight in weights.items() if weight.dtype == torch.float32}
    for name, weight in floats.items():
        model.graph.initializers[name].const_value = half(name, weight)
    (tmp_path / "model.onnx").write_bytes(b"of an earlier run")
    (tmp_path / "model.onnx.data").write_bytes(b"of an earlier run")
    seen: list[str] = []
    onnx_container.ir.save(
        model,
        tmp_path / "model.onnx",
        external_data="model.onnx.data",
        size_threshold_bytes=0,
        callback=lambda tensor, info: seen.append(tensor.name),
    )
    assert sorted(made) == sorted(floats) and set(seen) >= set(floats)
    loaded = Container.load(tmp_path / "model.onnx")
    for name, weight in floats.items():
        assert torch.equal(loaded.tensor(name).torch(), weight.to(torch.float16))


def test_yobx_puts_parameters_behind_handles(tmp_path: Path, exported) -> None:
    """Its builder makes a container of parameters, which its artifact saves, with local functions inlined."""
    module, ids, program = exported
    proto = onnx_ir.to_proto(program.model)
    parameters = dict(module.named_parameters())
    large = {}
    for tensor in proto.graph.initializer:
        if tensor.name in parameters:
            large[f"#{tensor.name}"] = parameters[tensor.name]
            tensor.CopyFrom(
                onnx_container.make_large_tensor_proto(f"#{tensor.name}", tensor.name, tensor.data_type, tuple(tensor.dims))
            )
    assert large
    container = ExtendedModelContainer()
    container.model_proto = proto
    container.set_large_initializers(large)
    container.check_large_initializers()
    container.inline = True
    saved = container.save(str(tmp_path / "m.onnx"), all_tensors_to_one_file=True)
    assert isinstance(saved, onnx.ModelProto) and not saved.functions
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]
    np.testing.assert_allclose(run(Container.load(tmp_path / "m.onnx"), ids), module(ids).detach().numpy(), atol=1e-5)
    assert container.get_model_with_data().ByteSize() > sum(it.numel() * 4 for it in large.values())
