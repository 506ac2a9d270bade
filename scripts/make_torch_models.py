#!/usr/bin/env python3
"""Write the models under tests/data/torch as PyTorch 2.13 writes them.

structure.onnx is what `torch.onnx.export` makes of a small module, without the file that held its weights:
the structure that a pipeline fills from elsewhere. optimized.onnx is the same, optimized as is the
exporter's default, which transposes and renames a weight. module.pt is the same module in TorchScript. types.pt has
a buffer of each type that PyTorch has and tch has no name for.

PyTorch is no dependency of the tests, which use these files only. To write them again:

    python3 -m venv VENV && VENV/bin/pip install torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2
    VENV/bin/python scripts/make_torch_models.py [FOLDER]
"""

import io
import pathlib
import sys
import zipfile

import onnx
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "torch"
VOCABULARY, WIDTH, HIDDEN = 24, 80, 16


class Tagger(nn.Module):
    """Words to words: an embedding that is also the output layer, and what exporters rewrite in between."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH, bias=False)
        self.fc1 = nn.Linear(WIDTH, HIDDEN)
        self.bn = nn.BatchNorm1d(HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words):
        """Scores of every word of the vocabulary, for each of `words`."""
        # Applied to three dimensions, a layer becomes MatMul with the weight transposed, not Gemm.
        mixed = self.mix(self.embed(words).unsqueeze(0)).squeeze(0)
        hidden = self.bn(torch.relu(self.fc1(mixed)))
        return self.head(self.norm(self.fc2(hidden)))


def module() -> Tagger:
    """The module with random weights: the exporter merges tensors of equal elements, such as all ones."""
    torch.manual_seed(20)
    made = Tagger().eval()
    with torch.no_grad():
        for tensor in [*made.parameters(), *made.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.1)
    return made


def export(made: Tagger, path: pathlib.Path, optimize: bool) -> None:
    """Export with the weights in a file of their own, and leave that file out."""
    torch.onnx.export(made, (torch.arange(5),), path, input_names=["words"], output_names=["scores"],
                      dynamo=True, external_data=True, opset_version=18, optimize=optimize)
    data = path.with_name(path.name + ".data")
    data.unlink()
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        del node.metadata_props[:]  # traces of the exporting machine's stack
    onnx.save(model, path)


class Types(nn.Module):
    """One buffer of every type beyond tch's, each with the bytes from 1 on."""

    def __init__(self):
        super().__init__()
        for name in ("uint16", "uint32", "uint64", "float8_e8m0fnu", "float4_e2m1fn_x2"):
            raw = torch.arange(1, 49, dtype=torch.uint8).reshape(2, 24)
            self.register_buffer(name, raw.view(getattr(torch, name)))

    def forward(self, x):
        """Something to script."""
        return x


def save_script(made: nn.Module, path: pathlib.Path) -> None:
    """Save as TorchScript, without the source positions of the machine that saves."""
    whole = io.BytesIO()
    torch.jit.save(torch.jit.script(made), whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(zipfile.ZipInfo(entry.filename), source.read(entry))


def main() -> None:
    """Write both files."""
    folder = pathlib.Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    made = module()
    export(made, folder / "structure.onnx", optimize=False)
    export(made, folder / "optimized.onnx", optimize=True)
    save_script(made, folder / "module.pt")
    save_script(Types(), folder / "types.pt")


if __name__ == "__main__":
    main()
