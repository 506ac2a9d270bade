"""onnxruntime, onnx and onnx_ir on what the library wrote: sessions from memory, tensors without elements.

The Rust test in tests/integration/sessions.rs writes the folder that is given: `embedded.onnx` is the
whole model, `parts-*` hold the parts of `Container::to_parts`, `saved-*` the files of saves. Each has to
compute what the whole model computes.
"""

import pathlib
import sys

import numpy
import onnx
import onnx_ir
import onnxruntime


def outputs(session: onnxruntime.InferenceSession) -> list:
    feeds = {"x": numpy.arange(600, dtype=numpy.float32), "c": numpy.array(True)}
    results = []
    for chosen in (True, False):
        results += session.run(None, feeds | {"c": numpy.array(chosen)})
    return results


def from_memory(folder: pathlib.Path) -> onnxruntime.InferenceSession:
    files = [path for path in sorted(folder.iterdir()) if path.name != "model.onnx"]
    contents = [path.read_bytes() for path in files]
    options = onnxruntime.SessionOptions()
    options.add_external_initializers_from_files_in_memory(
        [path.name for path in files], contents, [len(content) for content in contents]
    )
    return onnxruntime.InferenceSession((folder / "model.onnx").read_bytes(), options)


def from_files(folder: pathlib.Path) -> onnxruntime.InferenceSession:
    path = folder / "model.onnx"
    onnx.load(path)
    for value in onnx_ir.load(path).graph.initializers.values():
        value.const_value.numpy()
    return onnxruntime.InferenceSession(path)


def main() -> None:
    root = pathlib.Path(sys.argv[1])
    expected = outputs(onnxruntime.InferenceSession(root / "embedded.onnx"))
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    for folder in folders:
        session = from_memory(folder) if folder.name.startswith("parts-") else from_files(folder)
        for ours, theirs in zip(outputs(session), expected, strict=True):
            numpy.testing.assert_array_equal(ours, theirs, err_msg=folder.name)
        print(folder.name, "computes the same")
    assert len(folders) >= 10, "the Rust test wrote fewer folders than it should"


main()
