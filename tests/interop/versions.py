"""The versions that onnxruntime takes: those of the models that the examples make, and the newest that `check` knows.

The folder that is given has the built examples. Each saves its model into a folder, and a session has to open it. Then
the newest IR version and the newest operator set of each domain that the installed onnxruntime takes are found by
trying: `check` has to advise against exactly those that it refuses.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import onnx
import onnxruntime
from onnx import TensorProto, helper

# Those of an onnxruntime of another version are not compared with what `check` says of this one.
KNOWN = "1.32"
DOMAINS = ["", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft", "com.example"]


def opens(model) -> bool:
    try:
        onnxruntime.InferenceSession(model if isinstance(model, str) else model.SerializeToString())
    except Exception:
        return False
    return True


def relu(ir_version: int, sets: dict) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in sets.items()])
    model.ir_version = ir_version
    return model


def advice(folder: pathlib.Path, model: onnx.ModelProto) -> list:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    command = [os.environ["ONNX_CONTAINER_BIN"], "check", "--json", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    findings = json.loads(said)["findings"]
    return [one for one in findings if "onnxruntime" in str(one) or "operator set" in str(one)]


def examples(built: pathlib.Path, folder: pathlib.Path) -> None:
    for name, file in [("save_and_load", "demo.onnx"), ("lazy_weights", "lazy.onnx")]:
        subprocess.run([built / name, folder], check=True, stdout=subprocess.DEVNULL)
        assert opens(str(folder / file)), f"onnxruntime refuses what the example {name} saves"
        assert onnx.load(folder / file).ir_version < onnx.IR_VERSION
        print(f"{name}: onnxruntime opens it")


def versions(folder: pathlib.Path) -> None:
    models = [(f"IR version {version}", relu(version, {"": 17})) for version in range(3, onnx.IR_VERSION + 2)]
    models.append(("no operator set", relu(10, {})))
    for domain in DOMAINS:
        for version in range(1, onnx.defs.onnx_opset_version() + 2):
            if domain or version >= 6:
                models.append((f"{domain} {version}", relu(10, {"": 17} | {domain: version})))
    if not onnxruntime.__version__.startswith(KNOWN + "."):
        print(f"onnxruntime {onnxruntime.__version__}: `check` knows the versions of {KNOWN}")
        return
    refused = 0
    for name, model in models:
        taken, found = opens(model), advice(folder, model)
        assert taken == (not found), f"{name}: onnxruntime {'takes' if taken else 'refuses'} it, check says {found}"
        refused += not taken
    assert refused > 10
    print(f"{len(models)} versions, of which onnxruntime refuses {refused}: check knows which")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        examples(pathlib.Path(sys.argv[1]), pathlib.Path(folder))
        versions(pathlib.Path(folder))


main()
