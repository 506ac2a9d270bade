"""`digest` prints what the Python of docs/digests.md computes, for real models and every element type, in every layout.

The code is taken from the page, so that the page is held to the command.
"""

import sys

import common
import corpus
import numpy as np
import onnx
from onnx import TensorProto, helper

LAYOUTS = (
    ("pack", "--min-bytes=0"),
    ("pack", "--min-bytes=0", "--all-tensors", "--max-shard-size=1MB"),
    ("split", "--min-bytes=64"),
    ("embed",),
)


def from_page() -> dict:
    """What the Python of the page defines."""
    text = (common.ROOT / "docs" / "digests.md").read_text(encoding="utf-8")
    (code,) = (part.split("```")[0] for part in text.split("```python\n")[1:])
    names: dict = {}
    exec(code, names)  # noqa: S102 (the page is ours)
    return names


PAGE = from_page()


def compare(path, folder) -> None:
    """The model at `path` and all that the command makes of it have one digest."""
    expected = PAGE["content_digest"](str(path))
    assert common.must_run("digest", path).stdout == f"{expected}  {path}\n"
    for number, (command, *options) in enumerate(LAYOUTS):
        out = folder / f"{number}.onnx"
        common.must_run(command, path, out, *options)
        found = common.must_run("digest", out).stdout.split()[0]
        assert found == expected, (command, options, found, expected)
        assert PAGE["content_digest"](str(out)) == expected, (command, options)


def real_model(model: corpus.Model) -> None:
    """One model of the corpus."""
    with common.scratch() as folder:
        compare(model.path, folder)


def typed_fields() -> None:
    """A tensor of each element type, in its typed field and as raw data."""
    folder_of = {False: "typed", True: "raw"}
    for raw in folder_of:
        tensors = [helper.make_tensor("text", TensorProto.STRING, [2], [b"a", b"\xff"])]
        for name, dtype in TensorProto.DataType.items():
            if name in ("UNDEFINED", "STRING"):
                continue
            kind = helper.tensor_dtype_to_np_dtype(dtype)
            values = np.array([1, 0, 1, 1, 0], dtype=np.float32).astype(kind)
            if raw:
                tensors.append(onnx.numpy_helper.from_array(values, name))
            else:
                tensors.append(helper.make_tensor(name, dtype, [5], values))
        assert len(tensors) > 20
        graph = helper.make_graph([], folder_of[raw], [], [], tensors)
        with common.scratch() as folder:
            path = folder / "m.onnx"
            path.write_bytes(helper.make_model(graph, ir_version=10).SerializeToString())
            compare(path, folder)
    print("every element type: typed and raw")


def enums() -> None:
    """Values that an enum does not have, written behind what is there: the parser of onnx says what they are."""
    values = (b"\x00", b"\x01", b"\x02", b"\x0e", b"\x0f", b"\x82\x00", b"\x81\x80\x80\x80\x10", b"\xff" * 9 + b"\x01")
    seen = set()
    for first in (b"", *values):
        for second in values:
            kind = b"".join(b"\xa0\x01" + value for value in (first, second) if value)
            place = b"".join(b"\x70" + value for value in (first, second) if value)
            tensor = TensorProto.FromString(b"\x08\x02\x10\x02\x42\x01w\x4a\x02ab" + place)
            if tensor.data_location == TensorProto.EXTERNAL:
                continue
            node = helper.make_node("X", [], [])
            node.attribute.add().MergeFromString(b"\x0a\x01a\x18\x05" + kind)
            graph = helper.make_graph([node], "g", [], [], [tensor])
            data = helper.make_model(graph, ir_version=10).SerializeToString()
            with common.scratch() as folder:
                path = folder / "m.onnx"
                path.write_bytes(data)
                expected = PAGE["content_digest"](str(path))
                assert common.must_run("digest", path).stdout == f"{expected}  {path}\n", (first, second)
                seen.add(expected)
    print(f"values of enums: {len(seen)} models")


def main() -> int:
    typed_fields()
    enums()
    common.run_all("models whose digest is that of the page", real_model, [(m,) for m in corpus.models()])
    common.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
