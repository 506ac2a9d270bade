"""What type checkers see of the package: checked by mypy, and never run."""

import onnx_container
from onnx_container import Container, Saved, Tensor


def saved(path: str) -> Saved:
    """Loads, looks and saves."""
    container: Container = Container.load(path, mmap=True, weights=True)
    tensor: Tensor = container.tensor("w")
    shape: tuple[int, ...] = tensor.shape
    assert len(shape) == 2 and isinstance(tensor.raw, memoryview)
    container["#w"] = bytes(tensor.nbytes)
    handles: list[str] = container.keys()
    assert handles
    try:
        return container.save(path, one_file=True, digests=True)
    except onnx_container.Error as error:
        kind: str = error.kind
        raise RuntimeError(kind) from error
