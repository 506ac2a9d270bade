"""Models that the command wrote, read by onnxruntime, onnx.checker and onnx_ir.

Every real model goes through every layout. onnxruntime has to compute the same bits from it as from the
original, the checker to pass what it passed, onnx_ir to read the same tensors, and the file itself to
say the same as before in everything but where tensors lie.
"""

import functools
import itertools
import json
import logging
import pathlib
import sys

import common
import corpus
import onnx
import onnx_ir as ir
from onnx import TensorProto

# Name of a layout -> the commands that lead to it, each with its options.
LAYOUTS = {
    "pack": [["pack"]],
    "pack everything": [["pack", "--min-bytes", "0"]],
    "pack verified": [["pack", "--verify", "--no-mmap", "--data-name", "weights.bin"]],
    "pack as safetensors": [["pack", "--safetensors", "--verify"]],
    "shards": [["pack", "--max-shard-size", "200KB"]],
    "shards of everything": [["pack", "--min-bytes", "0", "--max-shard-size", "1MiB", "--data-name", "w.bin"]],
    "shards for transformers.js": [["pack", "--max-shard-size", "40MB", "--shard-names", "transformers-js"]],
    "equal tensors once": [["pack", "--min-bytes", "0", "--dedup"]],
    "equal tensors once, in shards": [["pack", "--dedup", "--max-shard-size", "200KB"]],
    "equal tensors once, as safetensors": [["pack", "--dedup", "--safetensors", "--verify"]],
    "equal tensors once, split, embed": [["pack", "--dedup"], ["split"], ["embed"]],
    "split": [["split"]],
    "split everything": [["split", "--min-bytes", "0"]],
    "embed": [["embed"]],
    "pack, split, embed": [["pack"], ["split"], ["embed"]],
}

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}

# Layer tests of the onnx wheel that onnxruntime refuses as they are: what it says -> which.
REFUSED_LAYERS = {
    "Could not find an implementation for": """
        test_AvgPool1d test_AvgPool1d_stride test_AvgPool2d test_AvgPool2d_stride test_AvgPool3d
        test_AvgPool3d_stride test_AvgPool3d_stride1_pad0_gpu_input test_BatchNorm1d_3d_input_eval
        test_BatchNorm2d_eval test_BatchNorm2d_momentum_eval test_BatchNorm3d_eval
        test_BatchNorm3d_momentum_eval test_GLU test_GLU_dim test_Linear test_PReLU_1d
        test_PReLU_1d_multiparam test_PReLU_2d test_PReLU_2d_multiparam test_PReLU_3d
        test_PReLU_3d_multiparam test_PoissonNLLLLoss_no_reduce test_Softsign
        test_operator_add_broadcast test_operator_add_size1_broadcast
        test_operator_add_size1_right_broadcast test_operator_add_size1_singleton_broadcast
        test_operator_addconstant test_operator_addmm test_operator_basic test_operator_mm
        test_operator_non_float_params test_operator_params test_operator_pow
    """.split(),
    "invalid expand shape": """
        test_expand_shape_model3 test_expand_shape_model4
    """.split(),
    "ai.onnx.preview": """
        test_gradient_of_add test_gradient_of_add_and_mul
    """.split(),
}


def convert(source: pathlib.Path, folder: pathlib.Path, steps: list[list[str]]) -> pathlib.Path:
    """Run the steps one after the other, each into a folder of its own; the last file."""
    for number, (verb, *options) in enumerate(steps):
        target = folder / str(number) / source.name
        target.parent.mkdir()
        common.must_run(verb, source, target, *options)
        source = target
    return source


def assert_entries(path: pathlib.Path, embedded: bool) -> None:
    """External tensors have location, offset and length, nothing else, inside files beside the model."""
    for place, tensor in common.tensors(common.load(path)).items():
        if not common.is_external(tensor):
            assert not tensor.external_data, f"{place}: entries without a location in a file"
            continue
        assert not embedded, f"{place}: still external after embed"
        found = common.entries(tensor)
        assert list(found) == ["location", "offset", "length"], f"{place}: the entries are {found}"
        assert "/" not in found["location"], f"{place}: not beside the model: {found}"
        end = int(found["offset"]) + int(found["length"])
        assert end <= (path.parent / found["location"]).stat().st_size, f"{place}: past the end: {found}"


def assert_alignment(path: pathlib.Path) -> None:
    """Ranges start at 256 bytes, those of more than 1 MiB at 4096, and none overlaps another in part."""
    ranges = {}
    for tensor in common.tensors(common.load(path)).values():
        if common.is_external(tensor):
            found = common.entries(tensor)
            ranges.setdefault(found["location"], set()).add((int(found["offset"]), int(found["length"])))
    for location, spans in ranges.items():
        for offset, length in spans:
            assert offset % (4096 if length > 1 << 20 else 256) == 0, f"{location}: {length} bytes at {offset}"
        ends = sorted(spans)
        for (offset, length), (following, _) in itertools.pairwise(ends):
            assert offset + length <= following, f"{location}: overlap at {following}"


def assert_external(before: onnx.ModelProto, after: onnx.ModelProto, path: pathlib.Path) -> None:
    """What was external still is, and so is every large matrix of floats outside functions."""
    old = common.tensors(before)
    for place, tensor in common.tensors(after).items():
        if common.is_external(tensor) or tensor.data_type == TensorProto.STRING:
            continue
        assert not common.is_external(old[place]), f"{place}: was external, is inline"
        if place.startswith("functions") or "sparse" in place or len(tensor.dims) < 2 or tensor.data_type not in FLOATS:
            continue
        size = len(common.payload(tensor, path.parent))
        assert size < 1024, f"{place}: {tensor.name} of {size} bytes stays inline"


def assert_sharing(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Tensors that lay on the same bytes still do."""
    new, first = common.tensors(after), {}
    for place, tensor in common.tensors(before).items():
        if common.is_external(tensor):
            leader = first.setdefault(tuple(sorted(common.entries(tensor).items())), place)
            same = common.entries(new[place]) == common.entries(new[leader])
            assert same, f"{place} and {leader} shared bytes and do no longer"


def assert_once(path: pathlib.Path) -> None:
    """No two ranges of the weights files have the same bytes, in whichever file they are."""
    external = [tensor for tensor in common.tensors(common.load(path)).values() if common.is_external(tensor)]
    ranges, contents = set(), set()
    for tensor in external:
        content = common.external_bytes(tensor, path.parent)
        if content:
            ranges.add(tuple(sorted(common.entries(tensor).items())))
            contents.add(content)
    assert len(ranges) == len(contents), f"{len(ranges)} ranges for {len(contents)} contents"


def assert_files(path: pathlib.Path) -> None:
    """There is no litter, and `files` names what the model needs."""
    assert not common.litter(path.parent, path), f"litter: {common.litter(path.parent, path)}"
    named = {pathlib.Path(line).name for line in common.must_run("files", path).stdout.splitlines() if line.strip()}
    there = {file.name for file in path.parent.iterdir()}
    assert named == there, f"`files` says {sorted(named)}, there are {sorted(there)}"


def ir_graphs(graph):
    """A graph of onnx_ir and all graphs inside it."""
    yield graph
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from ir_graphs(attribute.value)
            elif attribute.type == ir.AttributeType.GRAPHS:
                for inner in attribute.value:
                    yield from ir_graphs(inner)


def ir_graph_tensors(graph):
    """The tensors that onnx_ir finds in one graph, subgraphs left out."""
    for value in getattr(graph, "initializers", {}).values():
        yield value.const_value
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                yield attribute.value
            elif attribute.type == ir.AttributeType.TENSORS and not attribute.is_ref():
                yield from attribute.value


def ir_value(tensor) -> tuple:
    """A tensor of onnx_ir in a form that compares bit for bit."""
    if tensor.dtype == ir.DataType.STRING:
        return tensor.name or "", "STRING", tuple(tensor.shape), tuple(tensor.string_data())
    return tensor.name or "", str(tensor.dtype), tuple(tensor.shape), tensor.tobytes()


def ir_tensors(path: pathlib.Path) -> list[tuple]:
    """Every tensor that onnx_ir reads from a model."""
    model = ir.load(path)
    graphs = [model.graph, *model.functions.values()]
    return [ir_value(tensor) for top in graphs for graph in ir_graphs(top) for tensor in ir_graph_tensors(graph)]


def checks(path: pathlib.Path) -> bool:
    """Whether onnx.checker passes the model."""
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError:
        return False
    return True


@functools.lru_cache(maxsize=1)  # the layouts of one model follow each other
def original(model: corpus.Model) -> tuple[onnx.ModelProto, list, list | None]:
    """The message of a model, the tensors that onnx_ir reads and the outputs of onnxruntime, if it runs it."""
    assert checks(model.path), "onnx.checker refuses the original: the table of the corpus is wrong"
    outputs = None if model.refused else corpus.outputs(model, model.path)
    return common.load(model.path), ir_tensors(model.path), outputs


def assert_readers(model: corpus.Model, path: pathlib.Path) -> None:
    """The three readers make the same of the file as of the original."""
    onnx.checker.check_model(str(path))
    _, tensors, outputs = original(model)
    assert tensors == ir_tensors(path), "onnx_ir reads other tensors"
    if not model.refused:
        assert outputs == corpus.outputs(model, path), "onnxruntime computes other values"
        return
    try:
        corpus.session(model.path)
    except Exception as error:  # onnxruntime has no common class for its errors
        assert model.refused in str(error), f"refused for another reason: {error}"
    else:
        raise AssertionError("onnxruntime runs the original now: take it out of the refused ones")


def real_model(model: corpus.Model, layout: str) -> None:
    """One real model in one layout."""
    steps = LAYOUTS[layout]
    embedded = steps[-1][0] == "embed"
    with common.scratch() as folder:
        path = convert(model.path, folder, steps)
        before, after = original(model)[0], common.load(path)
        common.assert_same_model(before, model.path.parent, after, path.parent)
        assert_entries(path, embedded)
        assert_files(path)
        if not embedded:
            assert_external(before, after, path)
            assert_sharing(before, after)
            assert_alignment(path)
            if "--dedup" in steps[-1]:
                assert_once(path)
        if layout == "embed" and not any(map(common.is_external, common.tensors(before).values())):
            assert path.read_bytes() == model.path.read_bytes(), "embed of a self-contained model changed it"
        assert_readers(model, path)
        common.must_run("check", path)
        json.loads(common.must_run("inspect", path, "--json").stdout)


def node_model(path: pathlib.Path) -> None:
    """A small model of the onnx wheel with tensors: its structure and its tensors survive both ways."""
    before = common.load(path)
    with common.scratch() as folder:
        packed = convert(path, folder, [["pack", "--min-bytes", "0", "--no-sync"]])
        common.assert_same_model(before, path.parent, common.load(packed), packed.parent)
        assert_entries(packed, embedded=False)
        onnx.checker.check_model(str(packed))
        same = folder / "same.onnx"
        common.must_run("embed", path, same, "--no-sync")
        assert same.read_bytes() == path.read_bytes(), "embed of a self-contained model changed it"


def layer_model(path: pathlib.Path) -> str:
    """One layer test: onnxruntime computes the same bits, or why it refuses the original."""
    model = corpus.Model(path)
    try:
        expected = corpus.outputs(model, path)
    except Exception as error:  # onnxruntime has no common class for its errors
        return str(error)
    with common.scratch() as folder:
        packed = convert(path, folder, [["pack", "--min-bytes", "0", "--no-sync"]])
        assert corpus.outputs(model, packed) == expected, "onnxruntime computes other values"
    return ""


def layer_models() -> None:
    """The layer tests of the onnx wheel, and that just the known ones are refused."""
    paths = [path for path in corpus.node_models() if path.parent.parent.name != "node"]
    paths = [path for path in paths if "strnorm" not in path.parent.name]  # string inputs, and a locale of the machine
    reasons = common.run_all("layer tests", layer_model, [(path,) for path in paths])
    refused = {path.parent.name: reason for path, reason in zip(paths, reasons) if reason}
    known = {name: reason for reason, names in REFUSED_LAYERS.items() for name in names if paths}
    wrong = {name: reason for name, reason in refused.items() if known.get(name, "\0") not in reason}
    wrong |= {name: "is not refused" for name in set(known) - set(refused)}
    assert not wrong, f"other layer tests than the known ones are refused: {wrong}"
    print(f"layer tests that onnxruntime refuses as they are: {len(refused)}, all of them known")


def main() -> None:
    """All models that the arguments name by a part of their path, or all."""
    logging.disable(logging.WARNING)
    chosen = [model for model in corpus.models() if all(part in str(model) for part in sys.argv[1:])]
    common.run_all("real models", real_model, [(model, layout) for model in chosen for layout in LAYOUTS])
    if len(sys.argv) == 1:
        layer_models()
        with_tensors = [path for path in corpus.node_models() if common.tensors(common.load(path))]
        assert len(with_tensors) > 350 or not common.NODE_TESTS.is_dir(), len(with_tensors)
        common.run_all("node models", node_model, [(path,) for path in with_tensors])
    common.finish()


if __name__ == "__main__":
    main()
