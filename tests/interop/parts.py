"""Models that are stripped, shared, cut apart and merged: onnx and onnxruntime make the same of them.

Cuts are compared with `onnx.utils.extract_model`, and what each half computes with the whole model.
"""

import pathlib
import sys

import common
import corpus
import onnx
import onnx.utils

# How many values of a model are cut at.
HEADS = 3
TAILS = 60


def checked(path: pathlib.Path) -> None:
    onnx.checker.check_model(str(path))


def same(model: corpus.Model, path: pathlib.Path) -> None:
    """onnxruntime computes the same from the model at `path`."""
    if not model.refused:
        assert corpus.outputs(model, path) == corpus.outputs(model, model.path), "other outputs"


def stripped(model: corpus.Model) -> str:
    """A stripped model opens without weights, with every type and shape, and gets them back."""
    with common.scratch() as folder:
        bare, whole = folder / "bare.onnx", folder / "whole.onnx"
        common.must_run("strip", model.path, bare)
        assert [path.name for path in folder.iterdir()] == ["bare.onnx"]
        before, after = common.load(model.path), common.load(bare)
        assert common.skeleton(before) == common.skeleton(after), "the structure changed"
        onnx.shape_inference.infer_shapes(after)
        common.must_run("attach", bare, model.path, whole, "--verify")
        common.assert_same_model(before, model.path.parent, common.load(whole), folder)
        same(model, whole)
        return f"{bare.stat().st_size} bytes"


def shared(model: corpus.Model) -> None:
    """Two copies of a model, one of them in another layout, use one file and compute the same."""
    with common.scratch() as folder:
        one, other = folder / "one.onnx", folder / "other.onnx"
        common.must_run("pack", model.path, one)
        common.must_run("split", model.path, other)
        if one.stat().st_size == model.path.stat().st_size and len(list(folder.iterdir())) == 2:
            return  # no weights of 1024 bytes
        before = sum(path.stat().st_size for path in folder.iterdir())
        common.must_run("share", one, other, "--delete-old")
        after = sum(path.stat().st_size for path in folder.iterdir())
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["one.onnx", "other.onnx", "shared.onnx.data"], names
        assert after < before, (before, after)
        for path in (one, other):
            common.assert_same_model(common.load(model.path), model.path.parent, common.load(path), folder)
            same(model, path)


def typed(model: corpus.Model, folder: pathlib.Path) -> pathlib.Path:
    """A copy of the model with the types that onnx infers."""
    path = folder / "typed.onnx"
    common.must_run("cp", model.path, path)
    inferred = onnx.shape_inference.infer_shapes(common.load(path))
    path.write_bytes(inferred.SerializeToString())
    return path


def candidates(graph: onnx.GraphProto, count: int) -> list[str]:
    """At most so many values of known types and shapes along the graph."""
    tensors = (info for info in graph.value_info if info.type.WhichOneof("value") == "tensor_type")
    declared = {info.name for info in tensors if info.type.tensor_type.HasField("shape")}
    values = [name for node in graph.node for name in node.output if name in declared]
    step = max(1, len(values) // (count + 1))
    return values[step::step][:count]


def heads(model: corpus.Model) -> str:
    """The head of a model has what onnx extracts, and computes what the whole does there."""
    with common.scratch() as folder:
        path, head = typed(model, folder), folder / "head.onnx"
        values = candidates(common.load(path).graph, HEADS)
        for value in values:
            common.must_run("extract-model", path, head, "--outputs", value)
            checked(head)
            compare_with_onnx(path, head, value)
            if not model.refused:
                compare_values(model, path, head, value)
        return f"{len(values)} heads"


def tails(model: corpus.Model) -> str:
    """Where all goes through one value, the two halves make the model whole again."""
    with common.scratch() as folder:
        path = typed(model, folder)
        head, tail, whole = (folder / name for name in ("head.onnx", "tail.onnx", "whole.onnx"))
        for value in candidates(common.load(path).graph, TAILS):
            found = common.run("extract-model", path, tail, "--inputs", value)
            if found.returncode:
                assert "none of the outputs needs" in found.said or "an input of the model" in found.said, found.said
                continue
            common.must_run("extract-model", path, head, "--outputs", value)
            checked(tail)
            merged = ("merge", head, tail, whole, "--connect", f"{value}={value}")
            if common.run(*merged).returncode:  # a weight that both halves use
                common.must_run(*merged, "--prefix-b", "b/")
            checked(whole)
            same(model, whole)
            return f"whole again at {value}"
    return "no value that all goes through"


def compare_with_onnx(path: pathlib.Path, head: pathlib.Path, value: str) -> None:
    """The nodes, the initializers and the functions are those that onnx extracts."""
    own = common.load(head)
    theirs = path.with_name("theirs.onnx")
    inputs = [info.name for info in own.graph.input]
    if not inputs or common.load(path).graph.sparse_initializer:
        return  # onnx extracts neither values of constants nor sparse initializers
    onnx.utils.extract_model(str(path), str(theirs), inputs, [value], check_model=False, infer_shapes=False)
    other = onnx.load(str(theirs), load_external_data=False)
    for of in (lambda graph: graph.initializer, lambda graph: graph.node):
        mine, others = ([item.SerializeToString() for item in of(model.graph)] for model in (own, other))
        if of(own.graph) and isinstance(of(own.graph)[0], onnx.TensorProto):
            mine, others = ([item.name for item in of(model.graph)] for model in (own, other))
        hold(set(mine), set(others), own, value)
    mine, others = ({function.name for function in model.functions} for model in (own, other))
    hold(mine, others, own, value)
    assert own.opset_import == common.load(path).opset_import
    theirs.unlink()
    theirs.with_name(theirs.name + ".data").unlink(missing_ok=True)


def hold(mine: set, others: set, own: onnx.ModelProto, value: str) -> None:
    """Both are the same, except that onnx leaves out what a subgraph alone uses."""
    captured = any(attribute.HasField("g") for node in own.graph.node for attribute in node.attribute)
    assert not others - mine, f"{value}: {others - mine}"
    assert captured or not mine - others, f"{value}: {mine - others}"


def compare_values(model: corpus.Model, path: pathlib.Path, head: pathlib.Path, value: str) -> None:
    """The head computes the value that the whole model does."""
    whole = common.load(path)
    declared = next(info for info in whole.graph.value_info if info.name == value)
    whole.graph.output.insert(0, declared)
    shown = path.with_name("shown.onnx")
    shown.write_bytes(whole.SerializeToString())
    expected = corpus.session(shown)
    given = corpus.inputs(model, expected)
    found = corpus.session(head)
    names = {node.name for node in found.get_inputs()}
    one = expected.run([value], given)[0]
    other = found.run(None, {name: array for name, array in given.items() if name in names})[0]
    # Fusions differ where the value is not the last one.
    assert one.dtype == other.dtype and one.shape == other.shape, (one.shape, other.shape)
    if one.dtype.kind in "fc":
        corpus.np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    else:
        assert (one == other).all()
    shown.unlink()


def main() -> None:
    models = corpus.models()
    cases = [(model,) for model in models]
    for model, size in zip(models, common.run_all("models that are stripped", stripped, cases), strict=True):
        print(f"    {model}: {size}")
    common.run_all("models that share", shared, cases)
    common.run_all("heads of models", heads, cases)
    for model, said in zip(models, common.run_all("models that are cut in two", tails, cases), strict=True):
        print(f"    {model}: {said}")
    common.finish()


if __name__ == "__main__":
    sys.exit(main())
