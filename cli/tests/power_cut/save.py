"""Saves a model by ``save_model`` in one of three ways: ``NEW TARGET WAY [--no-sync]``."""

import sys

import onnx
import onnx_container

new, target, way, *flags = sys.argv[1:]
model = onnx.load(new)
if way == "files":
    for tensor, location in zip(model.graph.initializer, ["a", "sub/b", "sub/c"], strict=True):
        onnx_container.set_external_data(tensor, location)
options = {"save_as_external_data": True, "location": "sub/w"} if way == "location" else {}
onnx_container.save_model(model, target, sync=not flags, **options)
