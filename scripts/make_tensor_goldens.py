"""Writes the goldens of tests/integration/tensors.rs with the official onnx helpers.

    pip install onnx==1.23.2 ml_dtypes numpy
    python scripts/make_tensor_goldens.py

tests/data/tensors.tsv: one line per tensor: case name, the TensorProto in hex, the bytes that its `raw_data`
has or would have in hex, and, for types narrower than a byte, each element as numpy_helper reads it, one
byte each in hex: the number of a signed integer, the code of every other type. Strings have one hex
field per string, joined by commas, in place of the bytes.

tests/data/external/: the same tensors as the initializers of a model, with their bytes in a file, as onnx saves it.

tests/data/large_tensors.tsv: one line per type, for tensors whose elements follow a rule (`rule`, which the test
repeats): the CRC-32 of the encoded TensorProto with raw data, of that with the typed field, of the bytes, and
of the elements of narrow types as above; `-` where there is no such thing.

tests/data/types.tsv: number, name, bits, typed field and numpy's name of every type, as onnx.helper has them.

tests/data/small_floats.tsv: the float32 of every code of the types narrower than 16 bits, as ml_dtypes has them.
"""

import math
import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OUT = Path(__file__).resolve().parent.parent / "tests" / "data"
SHAPES = {"scalar": [], "empty": [2, 0], "odd": [3, 1, 3], "matrix": [7, 19]}
LARGE = [521, 1031]
BITS = {
    **dict.fromkeys((TensorProto.UINT4, TensorProto.INT4, TensorProto.FLOAT4E2M1), 4),
    **dict.fromkeys((TensorProto.UINT2, TensorProto.INT2), 2),
    **dict.fromkeys((TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2), 6),
}


def codes_of(dtype: int, shape: list[int], rng: np.random.Generator) -> np.ndarray:
    """Random elements with every bit pattern possible, NaNs included."""
    count = math.prod(shape)
    if dtype == TensorProto.BOOL:
        return rng.integers(0, 2, count).astype(np.bool_).reshape(shape)
    np_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    bits = BITS.get(dtype, 8)
    data = rng.integers(0, 1 << bits, count * np_dtype.itemsize, dtype=np.uint8)
    if dtype in (TensorProto.FLOAT, TensorProto.COMPLEX64):
        # Python's floats are doubles, and a signalling NaN does not survive the way there.
        words = data.view(np.uint32)
        words[np.isnan(data.view(np.float32))] |= 1 << 22
    return data.view(np_dtype).reshape(shape)


def typed(dtype: int, shape: list[int], array: np.ndarray) -> TensorProto:
    """make_tensor, save that NaN patterns and signs go into the field as bits, not as numbers."""
    field = helper.tensor_dtype_to_field(dtype)
    if field == "int32_data" and dtype in (
        TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT8E4M3FNUZ,
        TensorProto.FLOAT8E5M2,
        TensorProto.FLOAT8E5M2FNUZ,
        TensorProto.FLOAT8E8M0,
    ):
        # The helper casts these from float32 and would saturate; the field holds the bits.
        proto = TensorProto(name="t", data_type=dtype, dims=shape)
        proto.int32_data.extend(array.view(np.uint8).ravel().tolist())
        return proto
    return helper.make_tensor("t", dtype, shape, array)


def expected(dtype: int, array: np.ndarray) -> bytes:
    flat = array.ravel()
    pack = {4: numpy_helper._pack_4bitx2, 2: numpy_helper._pack_2bitx4}.get(BITS.get(dtype))
    if pack:
        flat = pack(flat)
    elif dtype in BITS:
        flat = numpy_helper._pack_6bit(flat.view(np.uint8))
    return numpy_helper.tobytes_little_endian(flat)


def low_bits(dtype: int, array: np.ndarray) -> bytes:
    """The memory of the elements, of narrow ones without the bits above, which may be anything."""
    mask = (1 << BITS.get(dtype, 8)) - 1
    return (np.frombuffer(array.tobytes(), np.uint8) & np.uint8(mask)).tobytes()


def elements_of(dtype: int, array: np.ndarray) -> bytes:
    """The elements of a narrow type, one a byte."""
    if dtype in (TensorProto.INT4, TensorProto.INT2):
        return array.astype(np.int8).tobytes()
    return low_bits(dtype, array) if dtype in BITS else b""


def forms(dtype: int, shape: list[int], array: np.ndarray) -> tuple[TensorProto, TensorProto, bytes]:
    """The array as raw data and in the typed field, which read the same, and its bytes."""
    raw, bytes_ = numpy_helper.from_array(array, "t"), expected(dtype, array)
    assert raw.data_type == dtype and raw.raw_data == bytes_, dtype
    in_field = typed(dtype, shape, array)
    for proto in (raw, in_field):
        onnx.checker.check_tensor(proto)
        read = numpy_helper.to_array(proto)
        assert list(read.shape) == shape and read.dtype == array.dtype
        assert low_bits(dtype, read) == low_bits(dtype, array), dtype
    return raw, in_field, bytes_


def numeric_cases(dtype: int, rng: np.random.Generator):
    type_name = TensorProto.DataType.Name(dtype)
    for shape_name, shape in SHAPES.items():
        array = codes_of(dtype, shape, rng)
        raw, in_field, bytes_ = forms(dtype, shape, array)
        elements = elements_of(dtype, array).hex()
        for form, proto in (("raw", raw), ("typed", in_field)):
            yield f"{type_name}/{form}/{shape_name}", proto, bytes_.hex(), elements


def strings_of(shape: list[int]) -> TensorProto:
    words = [b"", b"onnx", "größe".encode(), b"\0", "模型".encode()]
    proto = TensorProto(name="t", data_type=TensorProto.STRING, dims=shape)
    proto.string_data.extend(words[i % len(words)] for i in range(math.prod(shape)))
    onnx.checker.check_tensor(proto)
    return proto


def string_cases():
    for shape_name, shape in SHAPES.items():
        proto = strings_of(shape)
        yield f"STRING/typed/{shape_name}", proto, ",".join(s.hex() for s in proto.string_data), ""


def rule(dtype: int, count: int) -> np.ndarray:
    """The highest bits of multiples of a large odd number; NaNs are made quiet."""
    np_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    parts = 2 if dtype in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else 1
    bits = 1 if dtype == TensorProto.BOOL else BITS.get(dtype, np_dtype.itemsize * 8 // parts)
    words = np.arange(1, count * parts + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    codes = (words >> np.uint64(64 - bits)).astype(f"u{np_dtype.itemsize // parts}")
    for name, quiet in (("float32", 1 << 22), ("float64", 1 << 51)):
        if dtype in (TensorProto.FLOAT, TensorProto.COMPLEX64, TensorProto.DOUBLE, TensorProto.COMPLEX128):
            if codes.itemsize == np.dtype(name).itemsize:
                codes[np.isnan(codes.view(name))] |= codes.dtype.type(quiet)
    return codes.view(np_dtype).reshape(LARGE)


def checksum(data) -> str:
    data = data.SerializeToString() if isinstance(data, TensorProto) else data
    return f"{zlib.crc32(data):08x}" if data else "-"


def large_line(dtype: int) -> str:
    if dtype == TensorProto.STRING:
        parts = [b"", strings_of(LARGE), b"", b""]
    else:
        array = rule(dtype, math.prod(LARGE))
        parts = [*forms(dtype, LARGE, array), elements_of(dtype, array)]
    return "\t".join([TensorProto.DataType.Name(dtype), *map(checksum, parts)])


def type_line(dtype: int) -> str:
    np_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    bits = 0 if dtype == TensorProto.STRING else BITS.get(dtype, np_dtype.itemsize * 8)
    name = TensorProto.DataType.Name(dtype)
    return "\t".join([str(dtype), name, str(bits), helper.tensor_dtype_to_field(dtype), np_dtype.name])


def small_float_line(dtype: int) -> str:
    codes = np.arange(1 << BITS.get(dtype, 8), dtype=np.uint8)
    values = codes.view(helper.tensor_dtype_to_np_dtype(dtype)).astype(np.float32)
    return "\t".join([TensorProto.DataType.Name(dtype), values.astype("<f4").tobytes().hex()])


def is_small_float(dtype: int) -> bool:
    return TensorProto.DataType.Name(dtype).startswith(("FLOAT8", "FLOAT6", "FLOAT4"))


def write(name: str, lines) -> None:
    (OUT / name).write_text("".join(f"{line}\n" for line in lines))


def write_external(cases) -> None:
    """A model with the raw tensors as external initializers, its node a placeholder."""
    tensors = []
    for name, proto, _, _ in cases:
        if "/raw/" in name:
            tensors.append(TensorProto.FromString(proto.SerializeToString()))
            tensors[-1].name = name
    node = helper.make_node("Identity", ["x"], ["y"])
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([node], "tensors", value[:1], value[1:], tensors)
    model = helper.make_model(graph, ir_version=13, opset_imports=[helper.make_opsetid("", 25)])
    folder = OUT / "external"
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx.data").unlink(missing_ok=True)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    (folder / "model.onnx.data").chmod(0o644)


def main() -> None:
    rng = np.random.default_rng(7)
    dtypes = [dtype for dtype in TensorProto.DataType.values() if dtype != TensorProto.UNDEFINED]
    cases = []
    for dtype in dtypes:
        cases.extend(string_cases() if dtype == TensorProto.STRING else numeric_cases(dtype, rng))
    OUT.mkdir(parents=True, exist_ok=True)
    lines = ((name, proto.SerializeToString().hex(), bytes_, codes) for name, proto, bytes_, codes in cases)
    write("tensors.tsv", map("\t".join, lines))
    write("large_tensors.tsv", map(large_line, dtypes))
    write("types.tsv", map(type_line, dtypes))
    write("small_floats.tsv", map(small_float_line, filter(is_small_float, dtypes)))
    write_external(cases)


if __name__ == "__main__":
    main()
