"""Single tensors to files and back: numpy, onnx and onnxruntime hold `extract` and `replace` to their word.

What extract writes, np.load and onnx.load_tensor read as onnx.numpy_helper reads the tensor in the model;
what np.save writes in any order of bytes and axes, replace puts into the model as numpy_helper would.
"""

import itertools
import pathlib

import common
import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import safetensors
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

TYPES = [number for number in TensorProto.DataType.values() if number != TensorProto.UNDEFINED]
NARROW_SIGNED = (TensorProto.INT4, TensorProto.INT2)
SHAPES = [(), (0,), (7,), (1,), (2, 3), (3, 0, 2), (3, 5, 2)]
STORED = ("raw", "typed", "external")


def bits(data_type: int) -> int:
    """The width of an element."""
    array = helper.tensor_dtype_to_np_dtype(data_type)
    for width, names in {2: ("int2", "uint2"), 4: ("int4", "uint4", "float4_"), 6: ("float6_",)}.items():
        if array.name.startswith(names):
            return width
    return array.itemsize * 8


def array_of(data_type: int, shape: tuple, seed: int = 1) -> np.ndarray:
    """An array of the type that numpy or ml_dtypes has, of arbitrary bits."""
    dtype = helper.tensor_dtype_to_np_dtype(data_type)
    count = int(np.prod(shape))
    random = np.random.default_rng(seed)
    if data_type == TensorProto.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    if bits(data_type) >= 8:
        return np.frombuffer(random.bytes(count * dtype.itemsize), dtype).reshape(shape)
    codes = random.integers(0, 1 << bits(data_type), shape)
    if data_type in NARROW_SIGNED:
        half = 1 << (bits(data_type) - 1)
        return (codes - half).astype(dtype)
    return codes.astype(np.uint8).view(dtype)


def codes_of(array: np.ndarray, data_type: int) -> np.ndarray:
    """What extract --codes writes for an array of a type that numpy lacks."""
    if data_type in NARROW_SIGNED:
        return array.astype(np.int8)
    return array.view(np.uint16 if array.itemsize == 2 else np.uint8)


def is_numpys(data_type: int) -> bool:
    """Whether numpy has the type itself."""
    return helper.tensor_dtype_to_np_dtype(data_type).kind in "biufc" and not hasattr(
        ml_dtypes, helper.tensor_dtype_to_np_dtype(data_type).name
    )


def model_of(tensors: list[TensorProto], path: pathlib.Path, external: bool) -> None:
    """A model with these initializers and nothing else, which is enough to hold them."""
    graph = helper.make_graph([], "tensors", [], [], initializer=tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    path.write_bytes(model.SerializeToString())
    if external:
        common.must_run("pack", path, path, "--min-bytes", "0", "--all-tensors", "--no-sync")


def typed(array: np.ndarray, data_type: int) -> TensorProto:
    """The tensor in its typed field, or raw where the official helper does not make one."""
    flat = array.flatten()
    try:
        made = helper.make_tensor("w", data_type, array.shape, flat.tolist())
        if common.payload(made, None) == numpy_helper.from_array(array).raw_data:
            return made
    except (TypeError, ValueError):
        pass
    return numpy_helper.from_array(array, "w")


def stored_tensor(folder: pathlib.Path) -> tuple[bytes, TensorProto]:
    """The bytes of the tensor of folder/out.onnx, and its message."""
    tensor = common.load(folder / "out.onnx").graph.initializer[0]
    return common.payload(tensor, folder), tensor


def a_tensor(data_type: int, shape: tuple, stored: str) -> None:
    """Extract in every format, read it officially, and replace zeros by it."""
    array = array_of(data_type, shape)
    proto = typed(array, data_type) if stored == "typed" else numpy_helper.from_array(array, "w")
    raw = numpy_helper.from_array(array).raw_data
    blank = TensorProto(name="w", data_type=data_type, dims=shape, raw_data=bytes(len(raw)))
    with common.scratch() as folder:
        model_of([proto], folder / "m.onnx", stored == "external")
        model_of([blank], folder / "blank.onnx", stored == "external")
        codes = [] if is_numpys(data_type) else ["--codes"]
        for suffix, options in ((".npy", codes), (".raw", []), (".pb", []), (".safetensors", [])):
            file = folder / f"w{suffix}"
            common.must_run("extract", folder / "m.onnx", "w", "-o", file, "--no-sync", *options)
            official(file, array, data_type, raw)
            line = ["replace", folder / "blank.onnx", "w", file, "-o", folder / "out.onnx", "--no-sync"]
            common.must_run(*line, *options)
            after, tensor = stored_tensor(folder)
            assert after == raw, f"{suffix}: other bytes after replace"
            assert tuple(tensor.dims) == shape and tensor.data_type == data_type
            assert common.is_external(tensor) == (stored == "external" and len(raw) > 0)
        if codes:
            done = common.run("extract", folder / "m.onnx", "w", "-o", folder / "no.npy")
            assert done.returncode == 1 and "--codes" in done.stderr, done.said
            assert not (folder / "no.npy").exists()


def official(file: pathlib.Path, array: np.ndarray, data_type: int, raw: bytes) -> None:
    """Read an extracted file as its owner does."""
    if file.suffix == ".raw":
        assert file.read_bytes() == raw
    elif file.suffix == ".pb":
        tensor = onnx.load_tensor(str(file))
        assert tensor.raw_data == raw and tensor.data_type == data_type and tensor.name == "w"
    elif file.suffix == ".safetensors":
        [(name, entry)] = safetensors.deserialize(file.read_bytes())
        assert (name, bytes(entry["data"])) == ("w", raw)
        assert entry["dtype"] == "U8" or tuple(entry["shape"]) == array.shape
        if is_numpys(data_type) and array.dtype.kind != "c":
            read = safetensors.numpy.load_file(file)["w"]
            assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, raw)
    else:
        expected = array if is_numpys(data_type) else codes_of(array, data_type)
        for mode in (None, "r"):
            read = np.load(file, mmap_mode=mode if array.size else None)
            assert (read.dtype, read.shape) == (expected.dtype, expected.shape), read.dtype
            assert read.tobytes() == expected.tobytes()


def a_numpy_file(data_type: int, shape: tuple, order: str, endian: str, version: tuple) -> None:
    """What numpy writes in any layout goes in."""
    array = array_of(data_type, shape)
    laid = np.array(array, dtype=array.dtype.newbyteorder(endian), order=order)
    with common.scratch() as folder:
        blank = numpy_helper.from_array(np.zeros_like(array), "w")
        model_of([blank], folder / "m.onnx", external=False)
        with open(folder / "w.npy", "wb") as file:
            np.lib.format.write_array(file, laid, version=version)
        common.must_run("replace", folder / "m.onnx", "w", folder / "w.npy", "-o", folder / "out.onnx", "--no-sync")
        after, _ = stored_tensor(folder)
        assert after == numpy_helper.from_array(array).raw_data


def an_ml_dtypes_file(data_type: int) -> None:
    """What np.save makes of an array of ml_dtypes goes in as codes, and not without the word."""
    array = array_of(data_type, (3, 5))
    with common.scratch() as folder:
        blank = numpy_helper.from_array(np.zeros((3, 5), array.dtype), "w")
        model_of([blank], folder / "m.onnx", external=False)
        np.save(folder / "w.npy", array)
        line = ["replace", folder / "m.onnx", "w", folder / "w.npy", "-o", folder / "out.onnx", "--no-sync"]
        done = common.run(*line)
        assert done.returncode == 1 and "--codes" in done.stderr, done.said
        common.must_run(*line, "--codes")
        after, _ = stored_tensor(folder)
        assert after == numpy_helper.from_array(array).raw_data


def strings() -> None:
    """Strings have a file of their own kind and no other."""
    proto = helper.make_tensor("w", TensorProto.STRING, [2], [b"a", "ü".encode()])
    with common.scratch() as folder:
        model_of([proto], folder / "m.onnx", external=False)
        for suffix in (".npy", ".raw"):
            done = common.run("extract", folder / "m.onnx", "w", "-o", folder / f"w{suffix}")
            assert done.returncode == 1 and "--format pb" in done.stderr, done.said
        common.must_run("extract", folder / "m.onnx", "w", "-o", folder / "w.pb")
        assert onnx.load_tensor(str(folder / "w.pb")) == proto
        common.must_run("replace", folder / "m.onnx", "w", folder / "w.pb", "-o", folder / "out.onnx")
        assert common.load(folder / "out.onnx") == common.load(folder / "m.onnx")


def run(path: pathlib.Path, **inputs) -> list[np.ndarray]:
    """The outputs of onnxruntime."""
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)


def tied(which: str, expected: tuple[float, float]) -> None:
    """Two initializers on one range: onnxruntime sees the new weights where they were meant."""
    weight = np.ones((64, 64), np.float32)
    nodes = [helper.make_node("MatMul", ["x", name], [f"y_{name}"]) for name in ("a", "b")]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64])
    tensors = []
    for name in ("a", "b"):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=weight.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in (("location", "w.data"), ("offset", "0"), ("length", str(weight.nbytes))):
            tensor.external_data.add(key=key, value=text)
        tensors.append(tensor)
    graph = helper.make_graph(nodes, "tied", [value("x")], [value("y_a"), value("y_b")], initializer=tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.eye(1, 64, dtype=np.float32)
    with common.scratch() as folder:
        (folder / "m.onnx").write_bytes(model.SerializeToString())
        (folder / "w.data").write_bytes(weight.tobytes())
        np.save(folder / "w.npy", np.asfortranarray(weight * 2).astype(">f4"))
        line = ["replace", folder / "m.onnx", "a", folder / "w.npy", "-o", folder / "out.onnx"]
        done = common.run(*line)
        assert done.returncode == 1 and "`b`" in done.stderr and "--tied" in done.stderr, done.said
        assert not (folder / "out.onnx").exists()
        common.must_run(*line, "--tied", which)
        common.must_run("check", folder / "out.onnx")
        found = tuple(float(y[0, 0]) for y in run(folder / "out.onnx", x=x))
        assert found == expected, found
        shared = (folder / "out.onnx.data").stat().st_size
        assert shared == weight.nbytes * (1 if which == "all" else 2), shared


def a_real_tied_model() -> None:
    """GPT-2's embedding is one initializer of two nodes: no ties, and zeros in it are zeros out."""
    source = common.SHARED / "data" / "exported" / "gpt2_tied" / "model.onnx"
    if not source.exists():
        print("SKIPPED: no ../shared/data/exported/gpt2_tied")
        return
    model = common.load(source)
    used = [name for node in model.graph.node for name in node.input]
    weights = [t for t in model.graph.initializer if used.count(t.name) == 2 and len(t.dims) == 2]
    name = max(weights, key=lambda t: t.dims[0]).name
    with common.scratch() as folder:
        common.must_run("extract", source, name, "-o", folder / "w.npy")
        weight = np.load(folder / "w.npy")
        original = onnx.load(source)
        stored = next(t for t in original.graph.initializer if t.name == name)
        assert (weight == numpy_helper.to_array(stored)).all()
        np.save(folder / "zero.npy", np.zeros_like(weight))
        common.must_run("replace", source, name, folder / "zero.npy", "-o", folder / "out.onnx")
        inputs = {i.name: np.ones([1, 4], np.int64) for i in model.graph.input}
        before, after = run(source, **inputs)[0], run(folder / "out.onnx", **inputs)[0]
        assert before.any() and not after.any()
        common.must_run("replace", folder / "out.onnx", name, folder / "w.npy", "-o", folder / "back.onnx")
        assert (run(folder / "back.onnx", **inputs)[0] == before).all()


def main() -> None:
    """Run all cases."""
    numeric = [number for number in TYPES if number != TensorProto.STRING]
    numpys = [number for number in numeric if is_numpys(number)]
    others = [number for number in numeric if number not in numpys]
    assert (len(numeric), len(numpys)) == (27, 14)
    # Every type in every shape, and with several elements in every way to store them.
    tensors = [
        (number, shape, STORED[(i + k) % len(STORED)])
        for i, number in enumerate(numeric)
        for k, shape in enumerate(SHAPES)
    ]
    several = {(number, stored) for number, shape, stored in tensors if np.prod(shape) > 1}
    assert several == set(itertools.product(numeric, STORED))
    common.run_all("tensors out and in", a_tensor, tensors)
    # Every type in every order of bytes and axes, and every shape in every version of the file.
    layouts = [
        (number, shape, order, endian, ((i + k) % 3 + 1, 0))
        for i, number in enumerate(numpys)
        for k, (shape, order, endian) in enumerate(
            [((), "C", "<"), ((), "C", ">"), ((7,), "C", "<"), ((7,), "F", ">"), *itertools.product([(3, 5, 2)], "CF", "<>")]
        )
    ]
    assert len({(shape, version) for _, shape, _, _, version in layouts}) == 9
    common.run_all("arrays of numpy", a_numpy_file, layouts)
    common.run_all("arrays of ml_dtypes", an_ml_dtypes_file, [(number,) for number in others])
    common.run_all("strings", strings, [()])
    common.run_all("tied weights", tied, [("all", (2.0, 2.0)), ("this", (2.0, 1.0))])
    common.run_all("a real tied model", a_real_tied_model, [()])
    common.finish()


if __name__ == "__main__":
    main()
