"""Models that others wrote, read by the command: onnx, its ModelContainer, onnx_ir, onnxruntime, yobx.

Each writer stores each source model with external data in its own layout. `check` has to pass what it
wrote, and `pack` and `embed` have to carry over every tensor, bit for bit.
"""

import logging
import os
import pathlib
import shutil

import common
import corpus
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.model_container import ModelContainer

PACKED = {
    TensorProto.INT2,
    TensorProto.UINT2,
    TensorProto.INT4,
    TensorProto.UINT4,
    TensorProto.FLOAT4E2M1,
    TensorProto.FLOAT6E2M3,
    TensorProto.FLOAT6E3M2,
}
SOURCES = ("encoder.onnx", "op15", "sequence", "magika", "nmp.onnx", "ch_PP-OCRv4_det", "common_old", "exported")
PEERS = common.SHARED / "data" / "peers"


def onnx_one_file(source: pathlib.Path, target: pathlib.Path) -> None:
    """onnx.save, all tensors in one file."""
    onnx.save(onnx.load(source), target, save_as_external_data=True, location="weights.data", size_threshold=0)


def onnx_one_file_attributes(source: pathlib.Path, target: pathlib.Path) -> None:
    """onnx.save, the tensors of Constants as well, with the file name onnx makes up."""
    onnx.save(onnx.load(source), target, save_as_external_data=True, size_threshold=64, convert_attribute=True)


def onnx_file_each(source: pathlib.Path, target: pathlib.Path) -> None:
    """onnx.save, a file for each tensor."""
    model = onnx.load(source)
    onnx.save(model, target, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=256)


def container(source: pathlib.Path) -> ModelContainer:
    """A ModelContainer that holds what it can of the source: it writes packed types wrongly."""
    model, large = onnx.load(source), {}
    for place, tensor in common.tensors(model).items():
        apart = place.startswith(("functions", "graph.sparse")) or tensor.data_type in PACKED
        if apart or not tensor.HasField("raw_data") or len(tensor.raw_data) < 256:
            continue
        handle = f"#t{len(large)}"
        large[handle] = numpy_helper.to_array(tensor)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=handle)
    held = ModelContainer()
    held.model_proto = model
    held.set_large_initializers(large)
    return held


def container_one_file(source: pathlib.Path, target: pathlib.Path) -> None:
    """ModelContainer, one file."""
    container(source).save(str(target), all_tensors_to_one_file=True)


def container_file_each(source: pathlib.Path, target: pathlib.Path) -> None:
    """ModelContainer, a file for each tensor."""
    container(source).save(str(target), all_tensors_to_one_file=False)


def ir_data(source: pathlib.Path, target: pathlib.Path) -> None:
    """onnx_ir, one file."""
    ir.save(ir.load(source), target, external_data="weights.data")


def ir_safetensors(source: pathlib.Path, target: pathlib.Path) -> None:
    """onnx_ir, a safetensors file."""
    ir.save_safetensors(ir.load(source), target)


def ort_optimised(source: pathlib.Path, target: pathlib.Path) -> None:
    """onnxruntime's own writer of optimised models."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.data")
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


WRITERS = {
    writer.__name__: writer
    for writer in (
        onnx_one_file,
        onnx_one_file_attributes,
        onnx_file_each,
        container_one_file,
        container_file_each,
        ir_data,
        ir_safetensors,
        ort_optimised,
    )
}

# Writer -> folders of sources that it cannot store, and why.
CANNOT = {
    "ir_data": {"encoder": "strings have no tobytes()"},
    "ir_safetensors": {"encoder": "safetensors has no strings"},
    "ort_optimised": {"llama_bf16": "no Where of bfloat16"},
}


def check(path: pathlib.Path) -> None:
    """check passes, or names nothing but shape operands, and then onnxruntime does refuse the model."""
    result = common.run("check", path)
    errors = [line for line in result.stdout.splitlines() if line.startswith("error:")]
    if result.returncode == 0:
        return
    others = [line for line in errors if "shape operand" not in line]
    assert errors and not others, f"check: {others or result.stderr}"
    try:
        corpus.session(path)
    except Exception:  # onnxruntime has a type for each failure, and none of them is public
        return
    raise AssertionError(f"onnxruntime loads what check says that it refuses: {errors[0]}")


def carries_over(path: pathlib.Path, folder: pathlib.Path) -> None:
    """check, pack, split and embed of a model that another tool wrote."""
    check(path)
    before = common.load(path)
    for verb in ("pack", "split", "embed"):
        out = folder / verb / path.name
        out.parent.mkdir()
        common.must_run(verb, path, out, "--no-sync")
        common.assert_same_model(before, path.parent, common.load(out), out.parent)


def written(model: corpus.Model, writer: str) -> int:
    """One source stored by one writer; how many external tensors that made."""
    with common.scratch() as folder:
        path = folder / "written" / model.path.name
        path.parent.mkdir()
        WRITERS[writer](model.path, path)
        carries_over(path, folder)
        return sum(map(common.is_external, common.tensors(common.load(path)).values()))


def sizes(model: onnx.ModelProto) -> dict[str, int]:
    """Each data file of the model and how long it has to be, from types and shapes."""
    needed = {}
    for tensor in common.tensors(model).values():
        if common.is_external(tensor):
            found = common.entries(tensor)
            count = 1
            for size in tensor.dims:
                count *= size
            width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            end = int(found.get("offset", "0")) + count * width
            needed[found["location"]] = max(end, needed.get(found["location"], 0))
    return needed


def peer(name: str) -> None:
    """A model of yobx's ExtendedModelContainer: first without its data, then with holes of the right size."""
    needed = sizes(common.load(PEERS / name))
    with common.scratch() as folder:
        path = folder / "model" / name
        path.parent.mkdir()
        shutil.copyfile(PEERS / name, path)
        common.must_run("inspect", path)
        assert_missing(path, set(needed))
        for file, size in needed.items():
            with open(path.parent / file, "wb") as made:
                made.truncate(size)
        common.must_run("check", path)
        common.must_run("pack", path, folder / "out.onnx", "--dry-run")
        assert {item.name for item in folder.iterdir()} == {"model"}, "a dry run writes"
        last = sorted(needed)[-1]
        os.remove(path.parent / last)
        assert_missing(path, {last})


def assert_missing(path: pathlib.Path, files: set[str]) -> None:
    """check and pack fail, and both name every missing file at once."""
    for arguments in (("check", path), ("pack", path, path.parent.parent / "out.onnx")):
        done = common.run(*arguments)
        assert done.returncode == 1, f"has to fail: {done.said}"
        unnamed = [file for file in files if file not in done.said]
        assert not unnamed, f"{len(unnamed)} of {len(files)} missing files are not named: {done.said}"
        assert {item.name for item in path.parent.parent.iterdir()} == {"model"}, "a failed pack writes"


def stripped(name: str) -> None:
    """A model whose weights were taken out: its structure can be looked at."""
    common.must_run("inspect", PEERS / name)
    assert common.must_run("files", PEERS / name).stdout.split()[-1].endswith(name), "it needs no other file"


def peers() -> None:
    """The models that other tools left, where they are."""
    if not PEERS.is_dir():
        print("SKIPPED models of peers: ../shared/data/peers is not there")
        return
    common.run_all("models of peers", peer, [(path.name,) for path in sorted(PEERS.glob("yobx_*.onnx"))])
    common.run_all("models without weights", stripped, [(path.name,) for path in sorted(PEERS.glob("dynamo_*.onnx"))])


def main() -> None:
    """Every writer with every source it can store; each has to have made something external."""
    logging.disable(logging.WARNING)
    sources = [model for model in corpus.models() if any(part in str(model) for part in SOURCES)]
    cases = [(model, writer) for writer in WRITERS for model in sources]
    cases = [(model, writer) for model, writer in cases if model.path.parent.name not in CANNOT.get(writer, {})]
    print(f"left out, as the writer cannot store them: {CANNOT}")
    made = common.run_all("models of other writers", written, cases)
    idle = [str(model) + " " + writer for (model, writer), count in zip(cases, made) if count == 0]
    print(f"{sum(filter(None, made))} external tensors; none were made by: {', '.join(idle) or 'nobody'}")
    peers()
    common.finish()


if __name__ == "__main__":
    main()
