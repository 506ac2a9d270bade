"""An edited model is valid, and onnxruntime computes with it what it computes with the original.

Usage: edits.py ORIGINAL EDITED, two model files. Values of EDITED may have other names; its inputs and
outputs are in the same order.
"""

import sys

import numpy
import onnx
import onnxruntime


def outputs(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    random = numpy.random.default_rng(7)
    feeds = {}
    for given in session.get_inputs():
        shape = [dim if isinstance(dim, int) else 3 for dim in given.shape]
        if given.type == "tensor(int64)":
            feeds[given.name] = random.integers(0, 8, shape)
        elif given.type == "tensor(bool)":
            feeds[given.name] = numpy.ones(shape, dtype=bool)
        else:
            feeds[given.name] = random.standard_normal(shape).astype(numpy.float32)
    return session.run(None, feeds)


original, edited = sys.argv[1:]
onnx.checker.check_model(edited)
pairs = list(zip(outputs(original), outputs(edited), strict=True))
assert pairs, "nothing to compare"
for expected, found in pairs:
    numpy.testing.assert_array_equal(expected, found)
print(f"{len(pairs)} outputs equal")
