"""Models whose weights are in the memory of several ranks: written and read by ``torch.distributed.checkpoint``.

Every rank writes what it has to its place in the files, and nobody gathers a tensor. torch is imported with this module, and by no
other that ``import onnx_container`` imports.
"""

try:
    import torch.distributed.checkpoint
except ImportError as error:
    raise ImportError(f"onnx_container.torch is for PyTorch, with torch.distributed: install torch ({error})") from error

from ._torch_load import OnnxReader
from ._torch_save import OnnxWriter

__all__ = ["OnnxReader", "OnnxWriter"]


def __dir__() -> list[str]:
    return sorted(__all__)
