"""The operators of onnxruntime (`com.microsoft`) by the machine and by onnxruntime, over random inputs.

A case is one node: its inputs, attributes and outputs. onnxruntime runs each by itself, without changes to the
graph; the command runs all cases of an operator as one model, in both profiles. Floats are the same within a
tolerance of their type. A quantized number may be the one beside it where its value lies in the middle of two:
onnxruntime rounds on the way.

    python contrib.py [FAMILY...]     only the cases of these functions
"""

import itertools
import sys
import typing

import common
import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

F32, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16
# Relative and absolute.
TOLERANCES = {np.dtype(F32): (1e-4, 2e-5), np.dtype(F16): (4e-3, 2e-3), np.dtype(BF16): (2e-2, 1e-2)}
TOLERANCES[np.dtype(np.float64)] = (1e-6, 1e-6)
MICROSOFT = "com.microsoft"


class Case(typing.NamedTuple):
    """A node. An input that is None is left out, and so is an output whose name in `outputs` is empty."""

    op: str
    inputs: list
    outputs: int | str = 1
    domain: str = MICROSOFT
    # What of output 0 is compared, or everything.
    compared: typing.Any = None
    # What onnxruntime's kernel does not take itself, as the same numbers of another type.
    witness: typing.Any = None
    tolerance: tuple | None = None
    attributes: dict = {}

    def asked(self) -> list[bool]:
        return [True] * self.outputs if isinstance(self.outputs, int) else [mark == "1" for mark in self.outputs]


def case(op: str, *inputs, outputs=1, domain=MICROSOFT, compared=None, witness=None, tolerance=None, **attributes):
    """A case; attributes are the keywords that are left."""
    return Case(op, list(inputs), outputs, domain, compared, witness, tolerance, attributes)


def kind(array) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def node(one: Case, prefix: str) -> onnx.NodeProto:
    names = ["" if value is None else f"{prefix}x{i}" for i, value in enumerate(one.inputs)]
    while names and not names[-1]:
        names.pop()
    outputs = [f"{prefix}y{j}" if asked else "" for j, asked in enumerate(one.asked())]
    attributes = {name: value for name, value in one.attributes.items() if value is not None}
    return helper.make_node(one.op, names, outputs, domain=one.domain, **attributes)


def model_of(nodes, inputs, outputs, initializers=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def by_onnxruntime(one: Case) -> list:
    """The outputs. Types that NumPy has not are initializers, and such outputs are cast to FLOAT."""
    one = one._replace(inputs=one.witness or one.inputs)
    inputs, initializers, feeds = [], [], {}
    for i, value in enumerate(one.inputs):
        if value is None:
            continue
        if value.dtype.kind in "fiub" and value.dtype.isbuiltin == 1:
            inputs.append(helper.make_tensor_value_info(f"x{i}", kind(value), value.shape))
            feeds[f"x{i}"] = value
        else:
            initializers.append(numpy_helper.from_array(value, f"x{i}"))
    nodes = [node(one, "")]
    names = [name for name in nodes[0].output if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    if any(value is not None and value.dtype == BF16 for value in one.inputs):
        nodes += [helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT) for name in names]
        outputs = [onnx.ValueInfoProto(name=f"{name}_f") for name in names]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model_of(nodes, inputs, outputs, initializers).SerializeToString(), options, ["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def by_command(cases: list[Case], profile: str, folder) -> list[list]:
    """The outputs of every case: all are nodes of one model."""
    nodes = [node(one, f"c{i}_") for i, one in enumerate(cases)]
    inputs, arguments = [], []
    for i, one in enumerate(cases):
        for j, value in enumerate(one.inputs):
            if value is not None:
                name = f"c{i}_x{j}"
                inputs.append(helper.make_tensor_value_info(name, kind(value), value.shape))
                (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString())
                arguments += ["--input", f"{name}={folder / name}.pb"]
    names = [name for one in nodes for name in one.output if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    onnx.save(model_of(nodes, inputs, outputs), folder / "model.onnx")
    out = folder / profile
    common.must_run("run", folder / "model.onnx", *arguments, "--profile", profile, "-o", out, "--format", "pb")
    arrays = iter(numpy_helper.to_array(onnx.load_tensor(out / f"output_{i}.pb")) for i in range(len(names)))
    return [[next(arrays) for name in one.output if name] for one in nodes]


def same(found, expected, one: Case, first: bool) -> int:
    """How many quantized numbers are the ones beside those expected."""
    assert found.shape == expected.shape, f"shape {found.shape}, not {expected.shape}"
    relative, absolute = one.tolerance or TOLERANCES.get(found.dtype, (0, 0))
    if first and one.compared is not None:
        found, expected = found[one.compared], expected[one.compared]
    if found.dtype.kind in "iu":
        assert found.dtype == expected.dtype, f"{found.dtype}, not {expected.dtype}"
        apart = np.abs(found.astype(np.int64) - expected.astype(np.int64))
        assert apart.max(initial=0) <= 1, f"{apart.max()} apart: {found.tolist()}, not {expected.tolist()}"
        return int(apart.sum())
    wide = found.astype(np.float64), expected.astype(np.float64)
    apart = np.abs(wide[0] - wide[1])
    if not np.allclose(*wide, relative, absolute, equal_nan=True):
        raise AssertionError(f"{np.nanmax(apart)} apart:\n{found}\nnot\n{expected}")
    return 0


def compare(cases: list[Case]) -> None:
    expected = []
    for one in cases:
        try:
            expected.append(by_onnxruntime(one))
        except Exception as error:
            raise AssertionError(f"onnxruntime, {shown(one)}: {error}") from error
    beside, numbers = 0, 0
    for profile in ("strict", "fast"):
        with common.scratch() as folder:
            found = by_command(cases, profile, folder)
        for one, ours, theirs in zip(cases, found, expected, strict=True):
            for j, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                try:
                    beside += same(a, b, one, j == 0)
                    numbers += a.size
                except AssertionError as error:
                    raise AssertionError(f"{profile}, output {j} of {shown(one)}: {error}") from error
    assert beside <= 0.01 * numbers, f"{beside} of {numbers} quantized numbers are others"
    print(f"{cases[0].op}: {len(cases)} cases, {beside} of {numbers} numbers one code apart")


def shown(one: Case) -> str:
    inputs = [None if value is None else f"{value.dtype}{list(value.shape)}" for value in one.inputs]
    return f"{one.op} {one.attributes} of {inputs}"


RNG = np.random.default_rng(7)


def normal(*shape, dtype=F32):
    return RNG.normal(size=shape).astype(F32).astype(dtype)


def skips():
    """Sums that are normalized: with and without bias and shift, a skip for each batch or one for all."""
    for dtype, shape in itertools.product((F32, F16, BF16), ((2, 3, 8), (3, 16))):
        width = shape[-1]
        for beta, bias, eps in itertools.product((None, 1), (None, 1), (None, 1e-3)):
            given = [one and normal(width, dtype=dtype) for one in (beta, bias)]
            x, skip, gamma = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype), normal(width, dtype=dtype)
            yield case("SkipLayerNormalization", x, skip, gamma, *given, outputs="1001", epsilon=eps)
    x, gamma = normal(2, 3, 8), normal(8)
    yield case("SkipLayerNormalization", x, normal(3, 8), gamma, normal(8))
    yield case("SkipLayerNormalization", x, normal(1, 3, 8), gamma, None, normal(8), outputs="1001")


def skips_of_roots():
    for dtype, shape, bias in itertools.product((F32, F16, BF16), ((2, 3, 8), (3, 16)), (None, 1)):
        width = shape[-1]
        x, skip, gamma = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype), normal(width, dtype=dtype)
        bias = bias and normal(width, dtype=dtype)
        yield case("SkipSimplifiedLayerNormalization", x, skip, gamma, bias, outputs="1001", epsilon=1e-5)


def roots():
    kinds = itertools.product((F32, F16, BF16, np.float64), ((-1, (2, 3, 8)), (1, (2, 3, 4)), (None, (5,))), (1, "11"))
    for dtype, (axis, shape), outputs in kinds:
        rows = shape[axis if axis is not None else -1 :]
        x, scale = normal(*shape, dtype=dtype), normal(*rows, dtype=dtype)
        if len(rows) == 1:
            yield case("SimplifiedLayerNormalization", x, scale, outputs=outputs, domain="", axis=axis, epsilon=1e-4)


def products():
    shapes = [((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((4,), (4, 5))]
    swapped = lambda shape: (*shape[:-2], shape[-1], shape[-2])  # noqa: E731
    for dtype, (a, b), alpha, trans_a, trans_b in itertools.product(
        (F32, np.float64), shapes, (None, 0.25), (0, 1), (0, 1)
    ):
        a, b = swapped(a) if trans_a and len(a) > 1 else a, swapped(b) if trans_b else b
        x, y = normal(*a, dtype=dtype), normal(*b, dtype=dtype)
        yield case("FusedMatMul", x, y, alpha=alpha, transA=trans_a, transB=trans_b)
    for trans in itertools.product((0, 1), repeat=4):
        trans_a, trans_b, batch_a, batch_b = trans
        # As it enters the product, A is 2 x 3 x 4 x 5 and B 2 x 3 x 5 x 6.
        a, b = [2, 3, *([5, 4] if trans_a else [4, 5])], [2, 3, *([6, 5] if trans_b else [5, 6])]
        a, b = [a[2], *a[:2], a[3]] if batch_a else a, [b[2], *b[:2], b[3]] if batch_b else b
        names = ("transA", "transB", "transBatchA", "transBatchB")
        yield case("FusedMatMul", normal(*a), normal(*b), **dict(zip(names, trans, strict=True)))


def gelus():
    shapes = ((7,), (3, 8), (2, 3, 8))
    for shape in shapes:
        yield case("Gelu", 3 * normal(*shape))


def biased_gelus():
    for shape in ((7,), (3, 8), (2, 3, 8)):
        yield case("BiasGelu", 3 * normal(*shape), normal(shape[-1]))


def fast_gelus():
    for shape, bias in itertools.product(((7,), (3, 8), (2, 3, 8)), (False, True)):
        yield case("FastGelu", 3 * normal(*shape), normal(shape[-1]) if bias else None)


def quick_gelus():
    for shape, alpha in itertools.product(((7,), (3, 8), (2, 3, 8)), (None, 1.0, -0.5)):
        yield case("QuickGelu", 3 * normal(*shape), alpha=alpha)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes along the last axis as bytes, the first in the lowest bits."""
    each = 8 // bits
    padded = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % each)])
    parts = padded.reshape(*padded.shape[:-1], -1, each).astype(np.uint8)
    return np.bitwise_or.reduce(parts << (np.arange(each) * bits).astype(np.uint8), axis=-1)


def quantized_products():
    """Every width, blocks that end in the middle of one, and each optional input alone and with others."""
    kinds = itertools.product((F32, F16), (2, 4, 8), ((64, 16), (70, 32), (256, 128)), (None, "packed", "float"))
    for dtype, bits, (k, block), zero in kinds:
        for group, bias, shape in ((0, 0, (1,)), (0, 1, (2, 3)), (1, 0, (5,)), (1, 1, (1,))):
            # These onnxruntime refuses on the CPU, or leaves out the zero points or the width.
            if (bits == 8 and zero == "float") or (group and (bits != 4 or zero == "packed")):
                continue
            n, blocks = 9, -(-k // block)
            codes = RNG.integers(0, 2**bits, (n, blocks * block))
            b = packed(codes, bits).reshape(n, blocks, -1)
            scales = (RNG.random((n, blocks)) * 0.1 + 0.01).astype(dtype)
            zeros = None
            if zero == "packed":
                zeros = packed(RNG.integers(0, 2**bits, (n, blocks)), bits)
            elif zero:
                zeros = (RNG.random((n, blocks)) * (2**bits - 1)).astype(dtype)
            index = RNG.integers(0, blocks, k).astype(np.int32) if group else None
            yield case(
                "MatMulNBits",
                normal(*shape, k, dtype=dtype),
                b.astype(np.uint8),
                scales,
                zeros,
                index,
                normal(n, dtype=dtype) if bias else None,
                K=k,
                N=n,
                bits=bits,
                block_size=block,
            )


def quantized_tables():
    """Tables in UINT8 and in the types of 4 and 8 bits."""
    for dtype, bits, zero, index in itertools.product((F32, F16), (4, 8), (False, True), (np.int32, np.int64)):
        codes = RNG.integers(0, 2**bits, (11, 40))
        zeros = packed(RNG.integers(0, 2**bits, (11, 3)), bits) if zero else None
        indices = RNG.integers(0, 11, (2, 3)).astype(index)
        scales = (RNG.random((11, 3)) + 0.1).astype(dtype)
        yield case("GatherBlockQuantized", packed(codes, bits), indices, scales, zeros, bits=bits, block_size=16)
    for name, zero, axes in itertools.product(("int4", "uint4"), (False, True), ((0, 2), (1, 2), (2, 1), (0, 1))):
        low, high = (-8, 8) if name == "int4" else (0, 16)
        shape, blocks = (3, 34, 20), [3, 34, 20]
        blocks[axes[1]] = -(-blocks[axes[1]] // 16)
        element = np.dtype(getattr(ml_dtypes, name))
        codes = RNG.integers(low, high, shape).astype(np.int8).astype(element)
        zeros = RNG.integers(low, high, blocks).astype(np.int8).astype(element) if zero else None
        indices = np.array([[2, 0], [-1, 1]], np.int64)
        scales = (RNG.random(blocks) + 0.1).astype(F32)
        names = dict(zip(("gather_axis", "quantize_axis"), axes, strict=True))
        yield case("GatherBlockQuantized", codes, indices, scales, zeros, block_size=16, **names)
    for element in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"):
        codes = normal(5, 32).astype(np.dtype(getattr(ml_dtypes, element)))
        scales = (RNG.random((5, 2)) + 0.1).astype(F32)
        yield case("GatherBlockQuantized", codes, np.array([4, 0, 0]), scales, bits=8, block_size=16)


FAMILIES = [
    skips,
    skips_of_roots,
    roots,
    products,
    gelus,
    biased_gelus,
    fast_gelus,
    quick_gelus,
    quantized_products,
    quantized_tables,
]


def family(name: str) -> None:
    # Inputs do not depend on what else runs.
    global RNG
    RNG = np.random.default_rng(7)
    compare(list({one.__name__: one for one in FAMILIES}[name]()))


def main() -> None:
    names = [one.__name__ for one in FAMILIES if not sys.argv[1:] or one.__name__ in sys.argv[1:]]
    common.run_all("com.microsoft as onnxruntime computes it", family, [(name,) for name in names])
    common.finish()


if __name__ == "__main__":
    main()
