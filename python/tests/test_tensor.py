"""``Tensor``: every type, to and from numpy and torch, by every protocol."""

from __future__ import annotations

import ctypes
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import models
import numpy as np
import onnx
import pytest
from onnx_container import Container, DataType, Error, Tensor

EVERY = [dtype for dtype in DataType if dtype not in (DataType.UNDEFINED, DataType.STRING)]
NATIVE = [dtype for dtype in EVERY if dtype.bits >= 8 and hasattr(np, dtype.name.lower()) or dtype in (1, 9, 11)]


def like(dtype: DataType) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(dtype)


def example(dtype: DataType, shape: tuple[int, ...] = (3, 5)) -> np.ndarray:
    count = int(np.prod(shape))
    if dtype.is_packed:
        codes = np.arange(count, dtype=np.uint8) % (1 << dtype.bits)
        if dtype in (DataType.INT4, DataType.INT2):
            half = 1 << (dtype.bits - 1)
            return (codes.astype(np.int8) - half).astype(like(dtype)).reshape(shape)
        return codes.view(like(dtype)).reshape(shape)
    if dtype == DataType.BOOL:
        return (np.arange(count) % 2 == 0).reshape(shape)
    bytes_ = np.arange(count * dtype.bits // 8, dtype=np.uint8) % 60
    return bytes_.view(like(dtype)).reshape(shape)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", EVERY, ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4), (7,)], ids=str)
def test_every_type_goes_out_and_comes_back(tmp_path: Path, dtype: DataType, shape: tuple[int, ...]) -> None:
    array = example(dtype, shape)
    container = Container(models.add(("w", dtype, shape)), {"#w": array})
    container.save(tmp_path / "m.onnx")
    tensor = Container.load(tmp_path / "m.onnx").tensor("w")
    assert (tensor.dtype, tensor.shape, tensor.size) == (dtype, shape, array.size)
    assert same(tensor.numpy(), array)
    # As onnx packs it, and as it reads it.
    proto = onnx.numpy_helper.from_array(array, "w")
    assert tensor.tobytes() == proto.raw_data and tensor.nbytes == len(proto.raw_data)
    read = onnx.load(tmp_path / "m.onnx").graph.initializer[0]
    assert same(onnx.numpy_helper.to_array(read), array)


@pytest.mark.parametrize("dtype", [dtype for dtype in EVERY if not dtype.is_packed], ids=str)
def test_arrays_share_the_memory_and_are_read_only(dtype: DataType) -> None:
    array = example(dtype)
    tensor = Container(models.add(("w", dtype, array.shape)), {"#w": array})["#w"]
    shared = tensor.numpy()
    assert shared.ctypes.data == array.ctypes.data and not shared.flags.writeable
    copied = tensor.numpy(copy=True)
    assert copied.ctypes.data != array.ctypes.data and copied.flags.writeable
    assert tensor.raw.readonly and bytes(tensor.raw) == array.tobytes()
    # What numpy makes of it by itself are the elements.
    for taken in (np.asarray(tensor), np.array(tensor, copy=None)):
        assert same(taken, array) and taken.ctypes.data == array.ctypes.data and not taken.flags.writeable
    assert same(np.array(tensor), array) and np.array(tensor).flags.writeable
    if dtype not in NATIVE:
        return
    interface = tensor.__array_interface__
    assert interface["data"] == (array.ctypes.data, True) and interface["shape"] == array.shape


@pytest.mark.parametrize("dtype", NATIVE, ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4)], ids=str)
def test_the_buffer_protocol_has_the_shape(dtype: DataType, shape: tuple[int, ...]) -> None:
    array = example(dtype, shape)
    tensor = Tensor(array)
    view, theirs = memoryview(tensor), memoryview(array)
    assert (view.shape, view.strides, view.itemsize) == (theirs.shape, theirs.strides, theirs.itemsize)
    assert same(np.asarray(view), array) and view.tobytes() == array.tobytes() and view.readonly
    assert same(np.asarray(tensor), array)


class PyBuffer(ctypes.Structure):
    """``Py_buffer``."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


SIMPLE, WRITABLE, FORMAT, ND, STRIDES, F_CONTIGUOUS = 0, 1, 4, 8, 0x18, 0x58


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (SIMPLE, (1, 1, None, None, None)),
        (FORMAT, (1, 1, b"B", None, None)),
        (ND, (2, 4, None, [2, 3], None)),
        (STRIDES, (2, 4, None, [2, 3], [12, 4])),
        (STRIDES | FORMAT, (2, 4, b"f", [2, 3], [12, 4])),
    ],
)
def test_the_buffer_protocol_gives_what_is_asked_for(flags: int, expected: tuple) -> None:
    api, view = ctypes.pythonapi, PyBuffer()
    tensor = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert api.PyObject_GetBuffer(ctypes.py_object(tensor), ctypes.byref(view), flags) == 0
    lists = [list(it[: view.ndim]) if it else None for it in (view.shape, view.strides)]
    assert (view.ndim, view.itemsize, view.format, *lists) == expected and (view.len, view.readonly) == (24, 1)
    api.PyBuffer_Release(ctypes.byref(view))
    for refused in (WRITABLE, F_CONTIGUOUS):
        with pytest.raises(BufferError):
            api.PyObject_GetBuffer(ctypes.py_object(tensor), ctypes.byref(view), refused)
    scalar = Tensor(np.array(1.5, np.float32))
    assert api.PyObject_GetBuffer(ctypes.py_object(scalar), ctypes.byref(view), STRIDES | FORMAT) == 0
    assert (view.ndim, bool(view.shape), bool(view.strides), view.format) == (0, False, False, b"f")
    api.PyBuffer_Release(ctypes.byref(view))


def test_types_that_the_buffer_protocol_lacks_are_refused() -> None:
    tensor = Tensor(np.zeros(4, ml_dtypes.bfloat16))
    with pytest.raises(BufferError, match="BFLOAT16: use `raw`"):
        memoryview(tensor)
    lazy = Container(models.add(("w", 1, (2,))), {"#w": lambda: np.ones(2, np.float32)})["#w"]
    assert not hasattr(lazy, "__array_interface__") and np.asarray(lazy).tolist() == [1, 1]
    assert not hasattr(Tensor(np.zeros(4, ml_dtypes.int4)), "__array_interface__")


LAYOUTS = {
    "transposed": lambda a: a.T,
    "every second": lambda a: a[:, ::2],
    "reversed": lambda a: a[::-1],
    "fortran": np.asfortranarray,
    "broadcast": lambda a: np.broadcast_to(a[0], a.shape),
    "big-endian": lambda a: a.astype(">f4"),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_arrays_in_any_layout_are_written_in_order(tmp_path: Path, layout) -> None:
    array = layout(np.arange(24, dtype=np.float32).reshape(4, 6))
    container = Container(models.add(("w", 1, array.shape)), {"#w": array})
    container.save(tmp_path / "m.onnx")
    np.testing.assert_array_equal(Container.load(tmp_path / "m.onnx").tensor("w").numpy(), array)


class Interface:
    """Something with an array interface and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__, self.array = array.__array_interface__, array


class Dlpack:
    """Something with DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Tensorflow:
    """Something with ``numpy()``, as tensors of TensorFlow."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def numpy(self) -> np.ndarray:
        return self.array


SOURCES = {
    "array": lambda a: a,
    "interface": Interface,
    "dlpack": Dlpack,
    "numpy()": Tensorflow,
    "bytes": lambda a: a.tobytes(),
    "bytearray": lambda a: bytearray(a.tobytes()),
    "memoryview": lambda a: memoryview(a),
    "callable": lambda a: lambda: a,
    "callable of bytes": lambda a: a.tobytes,
    "TensorProto": lambda a: onnx.numpy_helper.from_array(a, "other"),
    "TensorProto of typed fields": lambda a: onnx.helper.make_tensor("t", 1, a.shape, a.reshape(-1)),
    "tensor": lambda a: Tensor(a.tobytes(), 1, a.shape),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_weights_come_from_anywhere(tmp_path: Path, source) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    container = Container(models.add(("w", 1, (3, 4))), {"#w": source(array)})
    container.save(tmp_path / "m.onnx")
    np.testing.assert_array_equal(Container.load(tmp_path / "m.onnx").tensor("w").numpy(), array)


@pytest.mark.parametrize("kind", ["Tensor", "LazyTensor", "PackedTensor", "ExternalTensor"])
def test_tensors_of_onnx_ir_are_weights(tmp_path: Path, kind: str) -> None:
    import onnx_ir

    array = example(DataType.INT4 if kind == "PackedTensor" else DataType.FLOAT, (4, 6))
    dtype = onnx_ir.DataType.from_numpy(array.dtype)
    plain = onnx_ir.Tensor(array, name="w")
    if kind == "LazyTensor":
        tensor = onnx_ir.LazyTensor(lambda: plain, dtype=dtype, shape=plain.shape)
    elif kind == "PackedTensor":
        tensor = onnx_ir.PackedTensor(np.frombuffer(plain.tobytes(), np.uint8), dtype, shape=plain.shape)
    elif kind == "ExternalTensor":
        (tmp_path / "ext").write_bytes(plain.tobytes())
        tensor = onnx_ir.ExternalTensor("ext", None, None, dtype, shape=plain.shape, name="w", base_dir=tmp_path)
    else:
        tensor = plain
    container = Container(models.add(("w", dtype, (4, 6))), {"#w": tensor})
    container.save(tmp_path / "m.onnx")
    assert same(Container.load(tmp_path / "m.onnx").tensor("w").numpy(), array)


@pytest.mark.parametrize("wrong", [3, None, "text", np.ma.masked_array([1.0, 2.0], [True, False]), np.array(["a"]), np.array([object()]), np.zeros(2, [("x", "f4")])])
def test_what_cannot_be_weights_is_refused(wrong) -> None:
    with pytest.raises(TypeError):
        Container(models.add(("w", 1, (2,))), {"#w": wrong})


class Generated(dict):
    """A mapping that makes its values anew each time it is asked."""

    def __init__(self, arrays: dict[str, np.ndarray], make) -> None:
        super().__init__(arrays)
        self.make = make

    def __getitem__(self, key: str):
        return self.make(super().__getitem__(key))

    def items(self):
        return ((key, self[key]) for key in self)


@pytest.mark.parametrize("make", [onnx.numpy_helper.from_array, lambda a: a.copy(), lambda a: a.T.copy().T, Interface])
def test_weights_that_are_made_on_demand_are_not_mixed_up(make) -> None:
    arrays = {f"#w{i}": np.full((2, 3), i, np.float32) for i in range(300)}
    container = Container(models.add(*((handle[1:], 1, (2, 3)) for handle in arrays)), Generated(arrays, make))
    assert all(same(container[handle].numpy(), array) for handle, array in arrays.items())


def test_buffers_with_a_type_are_not_taken_for_another() -> None:
    import array

    model = models.add(("w", 1, (4,)))
    big = memoryview(np.arange(4, dtype=">f4"))
    assert Container(model, {"#w": big})["#w"].numpy().tolist() == [0, 1, 2, 3]
    for wrong in (array.array("i", [1, 2, 3, 4]), array.array("d", [1, 2])):
        with pytest.raises(Error):
            Container(model, {"#w": wrong}).check()


@pytest.mark.parametrize(
    "dtype, array, is_taken",
    [
        ("FLOAT", np.ones(2, np.float32), True),
        ("FLOAT", np.ones(2, np.float32).view(np.uint8), True),
        ("FLOAT", np.ones(2, np.float32).tobytes(), True),
        ("FLOAT", np.ones(2, np.int32), False),
        ("FLOAT", np.ones(1, np.float64), False),
        ("FLOAT", np.ones(2, ">f4"), False),
        ("FLOAT", np.ones(4, np.float16), False),
        ("INT64", np.ones(2, np.int64), True),
        ("INT64", np.ones(2, np.longlong), True),
        ("INT64", np.ones(2, np.uint64), False),
        ("INT64", np.ones(2, ">i8"), False),
        ("INT32", np.ones(2, np.intc), True),
        ("BOOL", np.ones(2, bool), True),
        ("BOOL", np.ones(2, np.uint8), True),
        ("UINT16", np.ones(2, ">u2"), False),
        ("COMPLEX64", np.ones(2, np.complex64), True),
        ("COMPLEX64", np.ones(2, np.float64), False),
        ("BFLOAT16", np.ones(2, np.uint16), True),
        ("BFLOAT16", np.ones(2, np.float16), False),
        ("BFLOAT16", Tensor(bytes(4), DataType.BFLOAT16, [2]), True),
        ("BFLOAT16", Tensor(bytes(4), DataType.FLOAT16, [2]), False),
        ("FLOAT8E4M3FN", np.ones(2, np.uint8), True),
        ("INT4", np.ones(1, np.uint8), True),
        ("INT4", np.ones(1, np.uint16), False),
    ],
)
def test_elements_of_another_type_are_not_taken_for_packed_bytes(dtype: str, array: Any, is_taken: bool) -> None:
    raw = bytes(array.raw) if isinstance(array, Tensor) else bytes(array)
    makes = (
        lambda: Tensor(array, DataType[dtype], [2]),
        lambda: Tensor.lazy(dtype, [2], lambda: array),
    )
    for make in makes:
        if is_taken:
            assert make().tobytes() == raw
            continue
        with pytest.raises((TypeError, Error), match=rf"cannot be the packed bytes of {dtype}"):
            make().tobytes()


def test_a_callable_returns_what_is_declared() -> None:
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    for wrong in (weights.T, weights.astype(np.float64), weights[0]):
        container = Container(models.add(("w", 1, (2, 3))), {"#w": lambda wrong=wrong: wrong})
        with pytest.raises(Error, match="the model declares FLOAT"):
            container["#w"].numpy()


def test_strings_are_replaced() -> None:
    model = models.add()
    model.graph.initializer.append(onnx.helper.make_tensor("s", 8, (2,), [b"a", b"bc"]))
    container = Container(model)
    container.replace("s", np.array(["x", "yz"]))
    assert container.tensor("s").numpy().tolist() == [b"x", b"yz"]


def test_the_type_is_named_in_many_ways() -> None:
    for name in (10, "float16", "FLOAT16", np.float16, np.dtype("f2"), DataType.FLOAT16):
        assert DataType.of(name) is DataType.FLOAT16
    assert DataType.of(ml_dtypes.bfloat16) is DataType.BFLOAT16
    for wrong in ("no type", None, object, "datetime64"):
        with pytest.raises(TypeError):
            DataType.of(wrong)


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Error):
        Container(models.add(("w", 1, (2,))), {"#w": b"123"})
    container = Container(models.add(("w", 1, (2,))), {"#w": np.zeros(2)})
    with pytest.raises(Error) as raised:
        container.check()
    assert raised.value.kind == "DataType"


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    array = np.ones((512, 512), np.float32)
    names = [("a", 1, array.shape), ("b", 1, array.shape)]
    for number, weights in enumerate([(array, array), (array, array.view()), (array.T, array.T)]):
        same_object = weights[0] is weights[1]
        container = Container(models.add(*names), dict(zip(("#a", "#b"), weights, strict=True)))
        container.save(tmp_path / f"{number}.onnx")
        written = (tmp_path / f"{number}.onnx.data").stat().st_size
        assert written == array.nbytes or not same_object and number == 2


def test_lazy_tied_weights_are_made_once(tmp_path: Path) -> None:
    calls = []

    def make() -> np.ndarray:
        calls.append(1)
        return np.ones(4, np.float32)

    container = Container(models.add(("a", 1, (4,)), ("b", 1, (4,))), {"#a": make, "#b": make})
    container.save(tmp_path / "m.onnx")
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15], ids=lambda n: str(DataType(n)))
def test_numpy_takes_dlpack_without_a_copy(dtype: int) -> None:
    array = example(DataType(dtype))
    tensor = Container(models.add(("w", dtype, array.shape)), {"#w": array})["#w"]
    taken = np.from_dlpack(tensor)
    assert taken.ctypes.data == array.ctypes.data and not taken.flags.writeable and same(taken, array)
    copied = np.from_dlpack(tensor, copy=True)
    assert copied.ctypes.data != array.ctypes.data and same(copied, array)


def test_dlpack_capsules_that_nobody_takes_are_freed() -> None:
    tensor = Tensor(bytes(1 << 20), 2, (1 << 20,))
    for versioned in (None, (1, 0)):
        for _ in range(1000):
            tensor.__dlpack__(max_version=versioned)
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=False)


def test_strings_are_read() -> None:
    proto = onnx.helper.make_tensor("s", 8, (2,), [b"a", b"bc"])
    model = models.add()
    model.graph.initializer.append(proto)
    tensor = Container(model).tensor("s")
    assert tensor.numpy().tolist() == np.asarray(tensor).tolist() == [b"a", b"bc"]
    with pytest.raises(ValueError):
        np.array(Tensor(np.zeros(4, ml_dtypes.int4)), copy=False)
    with pytest.raises(Error):
        tensor.raw
    with pytest.raises(BufferError, match="STRING"):
        memoryview(tensor)
    assert pickle.loads(pickle.dumps(tensor)).numpy().tolist() == [b"a", b"bc"]


def test_tensors_are_pickled() -> None:
    tensor = Tensor(np.arange(4, dtype=np.float32), 1, (2, 2), name="w")
    again = pickle.loads(pickle.dumps(tensor))
    assert (again.name, again.dtype, again.shape, again.tobytes()) == ("w", 1, (2, 2), tensor.tobytes())
    made = []
    lazy = Container(models.add(("w", 1, (2,))), {"#w": lambda: made.append(1) or np.ones(2, np.float32)})["#w"]
    lazy.metadata_props["key"] = "value"
    again = pickle.loads(pickle.dumps(lazy))
    assert again.numpy().tolist() == [1, 1] and again.metadata_props == {"key": "value"} and len(made) == 1


def test_a_deep_copy_is_not_changed_with_the_original() -> None:
    import copy

    array = np.ones(4, np.float32)
    copied = copy.deepcopy(Tensor(array, name="w"))
    array[0] = 9
    assert copied.numpy().tolist() == [1, 1, 1, 1] and copied.name == "w"


def test_bfloat16_is_what_ml_dtypes_has() -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    tensor = Container(models.add(("w", 16, (2,))), {"#w": array})["#w"]
    assert tensor.numpy().dtype == ml_dtypes.bfloat16 and tensor.numpy()[0] == 1.5


def memories() -> list[tuple[Any, DataType, tuple[int, ...]]]:
    """Objects that have the packed elements of a tensor in memory, which are four bytes of 1, 2, 3 and 4."""
    raw = bytes([1, 2, 3, 4])
    number = np.frombuffer(raw, "<f4")
    return [
        ((ctypes.c_float * 1).from_buffer_copy(raw), DataType.FLOAT, (1,)),
        (((ctypes.c_uint8 * 2) * 2).from_buffer_copy(raw), DataType.UINT8, (2, 2)),
        (ctypes.c_int32.from_buffer_copy(raw), DataType.INT32, ()),
        (number.reshape(()), DataType.FLOAT, ()),
        (number[0], DataType.FLOAT, (1,)),
        (np.frombuffer(raw, ml_dtypes.bfloat16), DataType.BFLOAT16, (2,)),
        (np.frombuffer(raw, ml_dtypes.float8_e4m3fn).reshape(2, 2), DataType.FLOAT8E4M3FN, (4,)),
        (np.frombuffer(b"\1\2\3\4\0\0\0\0", ml_dtypes.uint4), DataType.UINT4, (8,)),
    ]


@pytest.mark.parametrize("number", range(len(memories())))
def test_memory_of_the_type_of_a_tensor_is_taken_for_its_elements(number: int) -> None:
    memory, dtype, dims = memories()[number]
    tensor = Tensor(memory, dtype, dims)
    packed = b"\x21\x43\0\0" if dtype == DataType.UINT4 else bytes([1, 2, 3, 4])
    assert (tensor.tobytes(), tensor.dtype, tensor.shape) == (packed, dtype, dims)
    assert Tensor.lazy(dtype, dims, lambda: memory).tobytes() == packed
    for other in (DataType.DOUBLE, DataType.INT16):
        if dtype != DataType.UINT8:  # which may be the bytes of anything
            with pytest.raises(TypeError, match="cannot be the packed bytes"):
                Tensor(memory, other, dims)
