"""Models with local functions before and after `inline`: the same outputs, bit for bit, and the same weights.

Each goes through every way that weights can lie. Where they lie beneath the target's folder, the model is
the only file that is written.
"""

import logging
import pathlib
import shutil
import subprocess
import sys

import common
import corpus
import inlining
import onnx
import onnx.inliner
import onnx_ir as ir
import writers

CHECKER = common.SHARED / "tools" / "inlining" / "check_inlined.py"
# Torch exports without weights -> their functions, and the nodes that are due.
STRIPPED = {"dynamo_resnet18_functions.onnx": (87, 540), "dynamo_speech2text2_functions.onnx": (101, 1098)}


def beside(source: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Weights where they are, the model under another name."""
    return copied(source, folder), folder / "out.onnx"


def itself(source: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """The model replaced by its result."""
    path = copied(source, folder)
    return path, path


def packed(source: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """After `pack`, bodies and all."""
    common.must_run("pack", source, folder / "packed.onnx", "--min-bytes", "0", "--no-sync")
    return folder / "packed.onnx", folder / "out.onnx"


def split(source: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """After `split`: many files stay."""
    common.must_run("split", source, folder / "split.onnx", "--no-sync")
    return folder / "split.onnx", folder / "out.onnx"


def embedded(source: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """After `embed`: no weights files, and none are made."""
    common.must_run("embed", source, folder / "embedded.onnx", "--no-sync")
    return folder / "embedded.onnx", folder / "out.onnx"


def elsewhere(source: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Weights out of reach: they are written."""
    target = folder / "target"
    target.mkdir()
    return source, target / "out.onnx"


WAYS = {way.__name__: way for way in (beside, itself, packed, split, embedded, elsewhere)}


def copied(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """A copy of the model and its weights."""
    for name in common.must_run("files", source).stdout.splitlines():
        shutil.copy(name, folder)
    return folder / source.name


def states(folder: pathlib.Path) -> dict[str, tuple]:
    """What of each file but models changes when it is written, or another takes its place."""
    files = [path for path in folder.iterdir() if path.is_file() and path.suffix != ".onnx"]
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def distinct(path: pathlib.Path) -> set[tuple]:
    """Type, shape and bytes of every tensor of the model, copies once."""
    values = common.values(common.load(path), path.parent).values()
    return {(dtype, dims, data) for _, dtype, dims, data in values}


def nodes(graph: onnx.GraphProto) -> int:
    """The nodes of the graph itself."""
    return len(graph.node)


def assert_structure(before: pathlib.Path, after: pathlib.Path) -> None:
    """The checker of the corpus, where it is: data flow, names, imports, interface."""
    if CHECKER.is_file():
        line = [sys.executable, "-B", str(CHECKER), str(before), str(after)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def exported(model: corpus.Model, way: str) -> int:
    """One model, its weights lying in one way; how many nodes it has then."""
    expected = corpus.outputs(model, model.path)
    with common.scratch() as folder:
        source, target = WAYS[way](model.path, folder)
        same, before = distinct(source), states(folder)
        original = folder / "before"
        original.mkdir()
        original = copied(source, original)
        common.must_run("inline-functions", source, target, "--no-sync", "--verify")
        result = common.load(target)
        assert not result.functions, "functions are left"
        assert distinct(target) <= same, "tensors that were not there"
        if way == "elsewhere":
            assert not common.litter(target.parent, target), common.litter(target.parent, target)
        else:
            assert states(folder) == before, "files of weights were written"
        onnx.checker.check_model(str(target))
        assert len(list(ir.load(target).graph)) == nodes(result.graph), "onnx_ir reads other nodes"
        common.must_run("check", target)
        assert_structure(original, target)
        assert corpus.outputs(model, target) == expected, "onnxruntime computes other values"
        return nodes(result.graph)


def stripped(name: str) -> None:
    """A large export without weights: as many nodes as are due, from the right data flow."""
    functions, due = STRIPPED[name]
    source = writers.PEERS / name
    assert len(common.load(source).functions) == functions
    with common.scratch() as folder:
        common.must_run("inline-functions", source, folder / "out.onnx", "--no-sync")
        result = common.load(folder / "out.onnx")
        assert nodes(result.graph) == due and not result.functions, f"{nodes(result.graph)} nodes"
        assert_structure(source, folder / "out.onnx")
        ir.load(folder / "out.onnx")


def holes(name: str) -> None:
    """A model of another tool with files of zeros for weights, gigabytes of them, which stay as they are."""
    expected = onnx.inliner.inline_local_functions(common.load(writers.PEERS / name))
    with common.scratch() as folder:
        source = pathlib.Path(shutil.copy(writers.PEERS / name, folder))
        for file, size in writers.sizes(common.load(source)).items():
            with open(folder / file, "wb") as made:
                made.truncate(size)
        before = states(folder)
        common.must_run("inline-functions", source, folder / "out.onnx", "--no-sync")
        assert states(folder) == before, "files of weights were written"
        result = common.load(folder / "out.onnx")
        assert not result.functions, "functions are left"
        inlining.plain(result.graph)
        inlining.plain(expected.graph)
        assert result.graph.node == expected.graph.node, "other nodes than onnx's"


def main() -> None:
    """Every real model that has functions, wherever its weights lie."""
    logging.disable(logging.WARNING)
    models = corpus.models()
    chosen = [model for model in models if common.load(model.path).functions]
    print(f"{len(chosen)} of {len(models)} real models have local functions: {', '.join(map(str, chosen))}")
    assert chosen, "not even our own model has functions"
    if not CHECKER.is_file():
        print("SKIPPED structure of what is inlined: ../shared/tools/inlining is not there")
    common.run_all("inlined models", exported, [(model, way) for model in chosen for way in WAYS])
    if writers.PEERS.is_dir():
        common.run_all("inlined exports without weights", stripped, [(name,) for name in STRIPPED])
        with_holes = [path.name for path in sorted(writers.PEERS.glob("yobx_*.onnx"))]
        common.run_all("inlined models of peers", holes, [(name,) for name in with_holes])
    else:
        print("SKIPPED inlining of models of peers: ../shared/data/peers is not there")
    common.finish()


if __name__ == "__main__":
    main()
