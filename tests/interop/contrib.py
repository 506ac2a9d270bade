"""The operators of onnxruntime (`com.microsoft`) by the machine and by onnxruntime, over random inputs.

A case is one node: its inputs, attributes and outputs. onnxruntime runs each by itself, without changes to the
graph; the command runs all cases of an operator as one model, in both profiles. Floats are the same within a
tolerance of their type. A quantized number may be the one beside it where its value lies in the middle of two:
onnxruntime rounds on the way.

    python contrib.py [FAMILY...]     only the cases of these functions
"""

import itertools
import subprocess
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
    # The lengths of sequences up to which caches are compared, or everything.
    caches: tuple | None = None
    tolerance: tuple | None = None
    attributes: dict = {}

    def asked(self) -> list[bool]:
        return [True] * self.outputs if isinstance(self.outputs, int) else [mark == "1" for mark in self.outputs]


def case(op: str, *inputs, outputs=1, domain=MICROSOFT, compared=None, caches=None, tolerance=None, **attributes):
    """A case; attributes are the keywords that are left."""
    return Case(op, list(inputs), outputs, domain, compared, caches, tolerance, attributes)


def kind(array) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def node(one: Case, prefix: str) -> onnx.NodeProto:
    names = ["" if value is None else f"{prefix}x{i}" for i, value in enumerate(one.inputs)]
    outputs = [f"{prefix}y{j}" if asked else "" for j, asked in enumerate(one.asked())]
    attributes = {name: value for name, value in one.attributes.items() if value is not None}
    return helper.make_node(one.op, names, outputs, domain=one.domain, **attributes)


def model_of(nodes, inputs, outputs, initializers=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def by_onnxruntime(one: Case) -> list:
    """The outputs. Types that NumPy has not are initializers, and such outputs are cast to FLOAT."""
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


def same(found, expected, one: Case, output: int) -> int:
    """How many quantized numbers are the ones beside those expected."""
    assert found.shape == expected.shape, f"shape {found.shape}, not {expected.shape}"
    relative, absolute = one.tolerance or TOLERANCES.get(found.dtype, (0, 0))
    if output == 0 and one.compared:
        found, expected = one.compared(found), one.compared(expected)
    if output > 0 and one.caches:
        found, expected = (
            np.concatenate([array[b, :, :length] for b, length in enumerate(one.caches)], 1)
            for array in (found, expected)
        )
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
                    beside += same(a, b, one, j)
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
            yield case("SkipLayerNormalization", x, skip, gamma, *given, outputs=4, epsilon=eps)
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


def omitted_products():
    """A matrix of which a dimension is 0 is left out."""
    for dtype, shape, bias in itertools.product((F32, F16), ((0, 2, 16), (3, 0, 16), (3, 2, 0), (0, 0, 0)), (0, 1)):
        codes, scales = np.zeros(shape, np.uint8), np.zeros((3, 2) if bias else (0,), dtype)
        bias = normal(3, dtype=dtype) if bias else None
        a = normal(2, 4, 64, dtype=dtype)
        yield case("MatMulNBits", a, codes, scales, None, None, bias, K=64, N=3, bits=4, block_size=32)


def quantized_tables():
    """Tables in UINT8 and in the types of 4 and 8 bits."""
    for dtype, bits, zero, index in itertools.product((F32, F16), (4, 8), (False, True), (np.int32, np.int64)):
        codes = RNG.integers(0, 2**bits, (11, 40))
        zeros = packed(RNG.integers(0, 2**bits, (11, 3)), bits) if zero else None
        indices = RNG.integers(0, 11, (2, 3)).astype(index)
        scales = (RNG.random((11, 3)) + 0.1).astype(dtype)
        yield case("GatherBlockQuantized", packed(codes, bits), indices, scales, zeros, bits=bits, block_size=16)
        outside = np.array([11, 3, -12], index)
        yield case("GatherBlockQuantized", packed(codes, bits), outside, scales, zeros, bits=bits, block_size=16)
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
        for shape in ((5, 1), (1, 1)):
            scales = (RNG.random(shape) + 0.1).astype(F32)
            yield case("GatherBlockQuantized", codes, np.array([4, 5, -6, 0]), scales, block_size=0)


def caches(positions: int, half: int, dtype) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines as exports of language models have them."""
    angles = np.arange(positions)[:, None] / 100 ** (np.arange(half) / half)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def rotations():
    kinds = itertools.product((F32, F16), (0, 1), ("flat", "heads", "part"), (True, False), (0, 1))
    for dtype, interleaved, form, offset, packing in kinds:
        batch, sequence, heads, head = 2, 3, 4, 8
        half = 2 if form == "part" else head // 2
        shape = (batch, heads, sequence, head) if form == "heads" else (batch, sequence, heads * head)
        positions = np.array([5]) if offset else RNG.integers(0, 20, (batch, sequence))
        attributes = {"rotary_embedding_dim": 4, "num_heads": heads} if form == "part" else {}
        attributes |= {"num_heads": heads} if packing else {}
        yield case(
            "RotaryEmbedding",
            normal(*shape, dtype=dtype),
            positions.astype(np.int64),
            *caches(20, half, dtype),
            interleaved=interleaved,
            is_packed_batching=packing,
            **attributes,
        )


def group_query(
    dtype, lengths, sequence, *, room=0, heads=4, kv_heads=2, head=32, packed=False, rotary=0, parts=(), **more
):
    """A case: `lengths` are the keys of each sequence, the last `sequence` of them new, in a cache with `room`."""
    batch, total = len(lengths), max(lengths)
    is_prompt = sequence == total
    past = 0 if is_prompt and not room else max(room, total - sequence)
    q, k, v = (normal(batch, sequence, n * head, dtype=dtype) for n in (heads, kv_heads, kv_heads))
    old = [normal(batch, kv_heads, past, head, dtype=dtype) for _ in range(2)]
    if is_prompt and not room:
        old = [np.zeros((batch, kv_heads, 0, head), dtype) for _ in range(2)]
    half = head // 2 if rotary != 2 else head // 4
    cos, sin = caches(total + 4, half, dtype) if rotary else (None, None)
    # Two behind those that they have without this input. Of a prompt, the first one counts alone.
    begins = [2 + b if is_prompt else length - sequence + 2 for b, length in enumerate(lengths)]
    positions = np.array([np.arange(begin, begin + sequence) for begin in begins], np.int64)
    if is_prompt and "padded" in parts:
        positions = np.array([([1, 1, 0, 1, 2, -1] * 9)[b : b + sequence] for b in range(batch)], np.int64)
    inputs = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
    inputs += [*old, np.array(lengths, np.int32) - 1, np.array([total], np.int32), cos, sin]
    inputs += [positions if "positions" in parts else None]
    inputs += [normal(1 if "one" in parts else batch, heads, sequence, total, dtype=dtype) if "bias" in parts else None]
    inputs += [normal(heads, dtype=dtype) if "sink" in parts else None]
    while inputs[-1] is None:
        inputs.pop()
    # What is behind the keys of a shorter sequence is not said, and neither what is computed of its padding.
    seen = [(b, slice(0, min(sequence, length)) if is_prompt else slice(None)) for b, length in enumerate(lengths)]
    return case(
        "GroupQueryAttention",
        *inputs,
        outputs=3,
        compared=(lambda y: np.concatenate([y[one] for one in seen])) if len(set(lengths)) > 1 else None,
        caches=lengths if len(set(lengths)) > 1 or room else None,
        num_heads=heads,
        kv_num_heads=kv_heads,
        do_rotary=int(rotary > 0),
        **more,
    )


def group_queries():
    """Prompts and steps, of one length and of several, with each part alone and with others."""
    for dtype in (F32, F16):
        lengths = (((5, 5), 5, 0), ((5, 3), 5, 0), ((6,), 1, 0), ((7, 5), 1, 0), ((9,), 3, 0))
        lengths += (((5, 5), 5, 8), ((6, 4), 1, 9))
        for (of, sequence, room), packed, rotary in itertools.product(lengths, (False, True), (0, 1, 2)):
            yield group_query(dtype, of, sequence, room=room, packed=packed, rotary=rotary)
        for of, sequence, room in lengths:
            one = {"room": room, "rotary": 1}
            yield group_query(dtype, of, sequence, **one, rotary_interleaved=1)
            yield group_query(dtype, of, sequence, **one, parts=("positions",))
            if sequence == max(of):
                yield group_query(dtype, of, sequence, **one, parts=("positions", "padded"))
            yield group_query(dtype, of, sequence, **one, parts=("bias",))
            yield group_query(dtype, of, sequence, **one, parts=("bias", "one"), softcap=0.8)
            yield group_query(dtype, of, sequence, **one, parts=("sink",))
            yield group_query(dtype, of, sequence, **one, local_window_size=2)
            yield group_query(dtype, of, sequence, **one, causal=0)
            yield group_query(dtype, of, sequence, **one, softcap=0.8, smooth_softmax=1, scale=0.5)
            yield group_query(dtype, of, sequence, **one, parts=("sink", "bias"), local_window_size=3)
            yield group_query(dtype, of, sequence, **one, heads=4, kv_heads=4, head=16)
            yield group_query(dtype, of, sequence, **one, heads=6, kv_heads=1)


def linear(dtype, scale=None, zero=True):
    """A scale, and a zero point in the type of the codes or none."""
    low = 0 if dtype == np.uint8 else -128
    of_zero = np.array(RNG.integers(low + 60, low + 190), dtype) if zero else None
    return [np.array(scale or RNG.random() * 0.05 + 0.01, F32), of_zero]


def codes(dtype, *shape):
    bounds = np.iinfo(dtype)
    return RNG.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def quantized_pairs(op: str, scale):
    def pairs():
        shapes = (((3, 40), (3, 40)), ((3, 40), (40,)), ((2, 1, 5), (4, 1)), ((1,), (2, 7)))
        # Without a zero point, onnxruntime infers no type.
        for dtype, (a, b) in itertools.product((np.uint8, np.int8), shapes):
            inputs = [codes(dtype, *a), *linear(dtype), codes(dtype, *b), *linear(dtype)]
            yield case(op, *inputs, *linear(dtype, scale))

    pairs.__name__ = f"pairs_of_{op}"
    return pairs


def quantized_functions(op: str, scale, **attributes):
    def functions():
        for dtype, zero in itertools.product((np.uint8, np.int8), (True, False)):
            yield case(op, codes(dtype, 4, 300), *linear(dtype, 0.04, zero), *linear(dtype, scale, zero))
            for name, value in attributes.items():
                one = {name: value}
                yield case(op, codes(dtype, 4, 300), *linear(dtype, 0.04), *linear(dtype, scale), **one)

    functions.__name__ = f"codes_of_{op}"
    return functions


def quantized_softmaxes():
    for dtype, (axis, opset) in itertools.product((np.uint8, np.int8), ((-1, 13), (1, 13), (0, 13), (1, 11), (2, 12))):
        to = [np.array(1 / 256, F32), np.array(0 if dtype == np.uint8 else -128, dtype)]
        inputs = [codes(dtype, 3, 4, 11), *linear(dtype, 0.03), *to]
        yield case("QLinearSoftmax", *inputs, axis=axis, opset=opset)


def quantized_choices():
    for dtype, shape in itertools.product((np.uint8, np.int8), (((3, 8), (3, 8), (3, 8)), ((3, 1), (8,), (2, 3, 8)))):
        condition = RNG.random(shape[0]) < 0.5
        tensors = [[codes(dtype, *one), *linear(dtype)] for one in shape[1:]]
        yield case("QLinearWhere", condition, *tensors[0], *tensors[1], *linear(dtype, 0.05))


def quantized_joins():
    for dtype, (axis, shapes) in itertools.product(
        (np.uint8, np.int8), ((0, ((2, 3), (4, 3))), (-1, ((2, 3), (2, 1), (2, 5))), (1, ((2, 2, 3), (2, 4, 3))))
    ):
        tensors = [[codes(dtype, *shape), *linear(dtype)] for shape in shapes]
        yield case("QLinearConcat", *linear(dtype, 0.04), *(one for tensor in tensors for one in tensor), axis=axis)


def quantized_means():
    for dtype, last, spatial in itertools.product((np.uint8, np.int8), (0, 1), ((5, 6), (7, 7))):
        shape = (2, *spatial, 3) if last else (2, 3, *spatial)
        given = [codes(dtype, *shape), *linear(dtype), *linear(dtype, 0.01)]
        yield case("QLinearGlobalAveragePool", *given, channels_last=last)


def quantized_windows():
    windows = (
        {"kernel_shape": [2, 2]},
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1, "count_include_pad": 1},
        {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 0, 1], "count_include_pad": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID"},
    )
    for dtype, last, window in itertools.product((np.uint8, np.int8), (0, 1), windows):
        shape = (2, 7, 8, 3) if last else (2, 3, 7, 8)
        given = [codes(dtype, *shape), *linear(dtype, 0.04), *linear(dtype, 0.05)]
        yield case("QLinearAveragePool", *given, channels_last=last, **window)


def quantized_gemms():
    """Every pair of types that the kernel has; scales for all columns and for each; quantized results and FLOAT."""
    kinds = itertools.product(((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)), (0, 1), (0, 1), (0, 1))
    for (of_a, of_b), trans_a, trans_b, by_column in kinds:
        for addend, quantized in ((None, True), ((5,), True), ((3, 5), False), ((1, 5), True), (None, False)):
            m, k, n = 3, 12, 5
            a = codes(of_a, *((k, m) if trans_a else (m, k)))
            b = codes(of_b, *((n, k) if trans_b else (k, n)))
            scale, zero = linear(of_b)
            if by_column:
                scale = (RNG.random(n) * 0.05 + 0.01).astype(F32)
                zero = codes(of_b, n)
            c = None if addend is None else RNG.integers(-999, 999, addend).astype(np.int32)
            to = linear(of_a, 0.3) if quantized else []
            attributes = {"transA": trans_a, "transB": trans_b, "alpha": 0.5 if by_column else None}
            yield case("QGemm", a, *linear(of_a), b, scale, zero, c, *to, **attributes)


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
    omitted_products,
    quantized_tables,
    rotations,
    group_queries,
    quantized_pairs("QLinearAdd", 0.06),
    quantized_pairs("QLinearMul", 0.1),
    quantized_functions("QLinearSigmoid", 1 / 256),
    quantized_functions("QLinearLeakyRelu", 0.05, alpha=0.2),
    quantized_softmaxes,
    quantized_choices,
    quantized_joins,
    quantized_means,
    quantized_windows,
    quantized_gemms,
]


def family(name: str) -> None:
    # Inputs do not depend on what else runs.
    global RNG
    RNG = np.random.default_rng(7)
    compare(list({one.__name__: one for one in FAMILIES}[name]()))


def main() -> None:
    subprocess.run([sys.executable, common.ROOT / "scripts" / "make_contrib.py", "--check"], check=True)
    names = [one.__name__ for one in FAMILIES if not sys.argv[1:] or one.__name__ in sys.argv[1:]]
    common.run_all("com.microsoft as onnxruntime computes it", family, [(name,) for name in names])
    common.finish()


if __name__ == "__main__":
    main()
