"""Weights matched by content: models as torch exports them get other weights. Skipped, aloud, where torch is not installed."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: its exports are not matched")

from torch import nn  # noqa: E402

from onnx_container import Container, Error, WeightMapping  # noqa: E402

CPU = {"providers": ["CPUExecutionProvider"]}
WIDTH, HEADS, WORDS = 32, 4, 50


def heads(values: torch.Tensor) -> torch.Tensor:
    return values.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    mixed = nn.functional.scaled_dot_product_attention(heads(query), heads(key), heads(value), is_causal=True)
    return mixed.transpose(1, 2).flatten(-2)


class Apart(nn.Module):
    """Projections of their own, as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o_proj(attention(self.q_proj(x), self.k_proj(x), self.v_proj(x)))


class Fused(nn.Module):
    """One projection for all three."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o_proj(attention(*self.qkv(x).chunk(3, -1)))


class Fusing(Apart):
    """Projections of their own, which are joined in the graph: an exporter that folds constants has one tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])
        return self.o_proj(attention(*nn.functional.linear(x, joined).chunk(3, -1)))


class Conv1D(nn.Module):
    """The linear layer of GPT-2, whose weight is transposed."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(wide, narrow) * 0.1)
        self.bias = nn.Parameter(torch.randn(narrow) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Decoder(nn.Module):
    def __init__(self, mixer: type[nn.Module], tied: bool = False, linear: type[nn.Module] = nn.Linear) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.mixers = nn.ModuleList(mixer() for _ in range(2))
        self.up = nn.ModuleList(linear(WIDTH, 2 * WIDTH) for _ in range(2))
        self.down = nn.ModuleList(linear(2 * WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for norm, mixer, up, down in zip(self.norms, self.mixers, self.up, self.down, strict=True):
            x = x + mixer(norm(x))
            x = x + down(torch.relu(up(x)))
        return self.head(x)


class Picture(nn.Module):
    """Convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 12, (3, 5), groups=2)
        self.up = nn.ConvTranspose2d(12, 6, 2)
        self.head = nn.Linear(6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(self.up(x).mean((2, 3)))


def trained(module: nn.Module, seed: int) -> nn.Module:
    """The module with random weights, of which no two are equal."""
    torch.manual_seed(seed)
    module = copy.deepcopy(module).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.1)
    return module


IDS = torch.arange(12).reshape(2, 6)
MODULES = {
    "projections apart": (lambda: Decoder(Apart), IDS),
    "projections fused": (lambda: Decoder(Fused), IDS),
    "projections joined by the exporter": (lambda: Decoder(Fusing), IDS),
    "Conv1D and a tied head": (lambda: Decoder(Fused, True, Conv1D), IDS),
    "convolutions": (Picture, torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)),
}


def export(module: nn.Module, value: torch.Tensor) -> Container:
    return Container(torch.onnx.export(module, (value,), dynamo=True, verbose=False, optimize=True))


def run(container: Container, value: torch.Tensor) -> np.ndarray:
    session = container.inference_session(**CPU)
    return session.run(None, {session.get_inputs()[0].name: value.numpy()})[0]


def made_of_weights(container: Container, mapping: WeightMapping) -> None:
    """Every weight is somewhere, and what is made of none is a causal mask, which the exporter computed."""
    assert not mapping.uniform and not mapping.unused, mapping.to_json()
    for name in mapping.unmatched:
        lowest = np.finfo(container.tensor(name).numpy().dtype).min
        assert set(np.unique(container.tensor(name).numpy())) <= {0, -np.inf, lowest}, name


@pytest.mark.parametrize(("make", "value"), MODULES.values(), ids=MODULES.keys())
def test_an_exported_model_gets_other_weights(tmp_path: Path, make, value: torch.Tensor) -> None:
    old = trained(make(), 1)
    new = trained(old, 2)
    container = export(old, value)
    mapping = container.match(old)
    made_of_weights(container, mapping)
    np.testing.assert_allclose(run(container, value), old(value).detach().numpy(), atol=1e-4)

    filled = container.fill(new, mapping=WeightMapping.from_json(mapping.to_json()))
    assert filled.filled == len(mapping.matched) and not filled.unused and filled.kept == mapping.unmatched
    expected = new(value).detach().numpy()
    np.testing.assert_allclose(run(container, value), expected, atol=1e-4)
    container.save(tmp_path / "m.onnx")
    np.testing.assert_allclose(run(Container.load(tmp_path / "m.onnx"), value), expected, atol=1e-4)


def test_the_exporter_renames_and_transposes() -> None:
    """What these tests are for: if torch no longer does it, they show nothing."""
    module = trained(Decoder(Apart), 1)
    container = export(module, IDS)
    mapping = container.match(module.state_dict())
    parts = [one["source"]["parts"][0] for one in json.loads(mapping.to_json())["mapping"]["matched"]]
    assert any(part["permutation"] == [1, 0] for part in parts)
    renamed = {tensor for tensor, _ in mapping.matched} - module.state_dict().keys()
    assert renamed
    with pytest.raises(Error, match="transposed|no weights|are \\["):
        container.fill(module, strict=True)


def test_a_cast_model_is_matched_with_the_weights_before() -> None:
    old = trained(Decoder(Apart), 1)
    new = trained(old, 2)
    container = export(old, IDS)
    container.cast("float16", min_bytes=0)
    mapping = container.match(old)
    made_of_weights(container, mapping)
    container.fill(new, mapping=mapping)
    np.testing.assert_allclose(run(container, IDS), new(IDS).detach().numpy(), atol=2e-2)


def test_what_cannot_be_done_is_said() -> None:
    old = trained(Picture(), 1)
    value = MODULES["convolutions"][1]
    container = export(old, value)
    mapping = container.match(old.state_dict())
    assert mapping == WeightMapping.from_json(mapping.to_json())
    assert repr(mapping).startswith("<WeightMapping: 8 matched") and not mapping.ambiguous
    before = container.digest()
    fewer = old.state_dict()
    del fewer["first.weight"]
    with pytest.raises(Error, match=r"there are no weights `first.weight`"):
        container.fill(fewer, mapping=mapping)
    with pytest.raises(TypeError, match="rename is about names"):
        container.fill(old, mapping=mapping, rename={"a": "b"})
    with pytest.raises(Error, match="not a mapping"):
        WeightMapping.from_json("{}")
    assert container.digest() == before
    other = container.match(trained(old, 3))
    assert not other.matched and other.unused
