"""Writes the model that the protobuf bench reads: about 100 MB of graph and hardly any weights.

    python scripts/make_bench_proto.py OUT.onnx [NODES]

200,000 nodes of about 2.5 attributes and two metadata_props each; 400 of them are an If with two
subgraphs; 20,000 value_infos, 2,000 small initializers. The same bytes on every run.
"""

import random
import sys

import onnx
from onnx import TensorProto, helper

OPS = ["Conv", "Gemm", "Transpose", "Softmax", "Concat", "LayerNormalization", "Gather", "Cast"]
MODULE = "model.encoder.layers.{}.self_attention.projection"


def add_attributes(node, rng):
    kinds = rng.sample(range(6), rng.choice([2, 2, 3, 3]))
    for kind in sorted(kinds):
        attribute = node.attribute.add()
        if kind == 0:
            attribute.CopyFrom(helper.make_attribute("axis", rng.randrange(-4, 4)))
        elif kind == 1:
            attribute.CopyFrom(helper.make_attribute("epsilon", rng.random()))
        elif kind == 2:
            attribute.CopyFrom(helper.make_attribute("perm", rng.sample(range(5), 5)))
        elif kind == 3:
            attribute.CopyFrom(helper.make_attribute("mode", rng.choice(["linear", "nearest"])))
        elif kind == 4:
            attribute.CopyFrom(helper.make_attribute("scales", [rng.random() for _ in range(4)]))
        else:
            values = [rng.randrange(1 << 40) for _ in range(4)]
            tensor = helper.make_tensor("value", TensorProto.INT64, [4], values)
            attribute.CopyFrom(helper.make_attribute("value", tensor))


def add_node(nodes, index, rng, scope=""):
    node = nodes.add()
    layer = MODULE.format(index % 96)
    before = max(index - rng.randrange(1, 8), 0)
    node.input.append(f"{scope}/{layer}/output_{before}")
    node.input.append(f"{scope}/{layer}/weight_{index % 2000}")
    node.output.append(f"{scope}/{layer}/output_{index}")
    node.name = f"{scope}/{layer}/node_{index}"
    node.op_type = rng.choice(OPS)
    add_attributes(node, rng)
    trace = f"aten.{node.op_type.lower()}.default, line {index}"
    for key, value in [
        ("namespace", f"{scope}: Model/{layer}: Attention/{index}"),
        ("pkg.torch.onnx.stack_trace", f"File modeling.py, in forward\n    {trace}\n"),
    ]:
        entry = node.metadata_props.add()
        entry.key, entry.value = key, value
    return node


def add_branches(node, index, rng):
    node.op_type = "If"
    del node.attribute[:]
    for name in ["then_branch", "else_branch"]:
        attribute = node.attribute.add()
        attribute.name, attribute.type = name, onnx.AttributeProto.GRAPH
        attribute.g.name = f"{name}_{index}"
        for inner in range(5):
            add_node(attribute.g.node, inner, rng, f"/{name}_{index}")
        output = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 768])
        attribute.g.output.add().CopyFrom(output)


def main():
    path = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    rng = random.Random(20_000)
    model = onnx.ModelProto(ir_version=10, producer_name="bench", producer_version="1")
    model.opset_import.add(domain="", version=21)
    graph = model.graph
    graph.name = "main_graph"
    for index in range(count):
        node = add_node(graph.node, index, rng)
        if index % (count // 400 or 1) == 7:
            add_branches(node, index, rng)
    for index in range(count // 100):
        raw = rng.randbytes(64)
        graph.initializer.add(name=f"weight_{index}", dims=[4, 4], data_type=1, raw_data=raw)
    for index in range(count // 10):
        name = f"/{MODULE.format(index % 96)}/output_{index}"
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "sequence", 768])
        graph.value_info.add().CopyFrom(info)
    for found, name in [(graph.input, "input"), (graph.output, "output")]:
        found.add().CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 768]))
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


if __name__ == "__main__":
    main()
