"""Writes tests/data/tensors.tsv with the official onnx helpers.

One line per tensor: case name, the TensorProto in hex, the bytes that its `raw_data` has or would
have in hex, and, for types narrower than a byte, each element as numpy_helper reads it, one byte
each in hex: the number of a signed integer, the code of every other type. Strings have one hex field per string, joined by commas, in
place of the bytes.

    pip install onnx==1.23.2 ml_dtypes numpy
    python scripts/make_tensor_goldens.py
"""

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "tensors.tsv"
SHAPES = {"scalar": [], "empty": [2, 0], "odd": [3, 1, 3], "large": [7, 19]}
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


def numeric_cases(dtype: int, rng: np.random.Generator):
    type_name = TensorProto.DataType.Name(dtype)
    for shape_name, shape in SHAPES.items():
        array = codes_of(dtype, shape, rng)
        raw = numpy_helper.from_array(array, "t")
        bytes_ = expected(dtype, array)
        assert raw.data_type == dtype and raw.raw_data == bytes_, type_name
        for form, proto in (("raw", raw), ("typed", typed(dtype, shape, array))):
            onnx.checker.check_tensor(proto)
            read = numpy_helper.to_array(proto)
            assert list(read.shape) == shape and read.dtype == array.dtype
            codes = low_bits(dtype, read)
            assert codes == low_bits(dtype, array), (type_name, shape_name, form)
            if dtype in (TensorProto.INT4, TensorProto.INT2):
                codes = read.astype(np.int8).tobytes()
            codes = codes.hex() if dtype in BITS else ""
            yield f"{type_name}/{form}/{shape_name}", proto, bytes_.hex(), codes


def string_cases():
    words = [b"", b"onnx", "größe".encode(), b"\0", "模型".encode()]
    for shape_name, shape in SHAPES.items():
        strings = [words[i % len(words)] for i in range(math.prod(shape))]
        proto = TensorProto(name="t", data_type=TensorProto.STRING, dims=shape)
        proto.string_data.extend(strings)
        onnx.checker.check_tensor(proto)
        yield f"STRING/typed/{shape_name}", proto, ",".join(s.hex() for s in strings), ""


def main() -> None:
    rng = np.random.default_rng(7)
    lines = []
    for dtype in TensorProto.DataType.values():
        if dtype == TensorProto.UNDEFINED:
            continue
        cases = string_cases() if dtype == TensorProto.STRING else numeric_cases(dtype, rng)
        for name, proto, bytes_, codes in cases:
            lines.append("\t".join((name, proto.SerializeToString().hex(), bytes_, codes)))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
