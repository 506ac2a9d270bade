"""What the interop drivers share: the command under test, the tensors of a model, and one way to fail.

Everything here reads models through onnx's own protobuf classes and plain file access, never through
the crate, so that a mistake in the crate cannot hide itself.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

import onnx
from onnx import TensorProto, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / ".models"
SHARED = ROOT.parent / "shared"
NODE_TESTS = MODELS / "onnx" / "onnx" / "backend" / "test" / "data"
WORKERS = int(os.environ.get("ONNX_CONTAINER_JOBS", "2"))

FAILED = []

VALUE_FIELDS = (
    "raw_data",
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "external_data",
    "data_location",
)


def binary() -> str:
    """The command under test: $ONNX_CONTAINER_BIN, or the newest build in target/."""
    if named := os.environ.get("ONNX_CONTAINER_BIN"):
        return named
    built = [ROOT / "target" / kind / "onnx-container" for kind in ("release", "debug")]
    found = sorted((path for path in built if path.exists()), key=lambda path: path.stat().st_mtime)
    if not found:
        raise SystemExit("no onnx-container: build it, or name it in ONNX_CONTAINER_BIN")
    return str(found[-1])


def run(*arguments, timeout: float = 300) -> subprocess.CompletedProcess:
    """Run the command and return what it did; a crash, a panic or a hang raises.

    What `check`, `diff` and `verify` cannot read is exit code 2, which is wrong usage elsewhere.
    """
    line = [binary(), *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=timeout, check=False)
    said = f"`{' '.join(line[1:])}` exits {done.returncode}\n{done.stdout}{done.stderr}"
    codes = (0, 1, 2) if arguments[0] in ("check", "diff", "verify") and "Usage:" not in done.stderr else (0, 1)
    if done.returncode not in codes or "panicked" in done.stderr:
        raise AssertionError(f"crash or wrong use: {said}")
    done.said = said
    return done


def must_run(*arguments, timeout: float = 300) -> subprocess.CompletedProcess:
    """Run the command, which has to succeed."""
    done = run(*arguments, timeout=timeout)
    assert done.returncode == 0, done.said
    return done


@contextlib.contextmanager
def scratch():
    """A folder below target/ that is gone afterwards (on the disk of the build, never in memory)."""
    base = ROOT / "target" / "interop"
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base) as folder:
        yield pathlib.Path(folder)


def load(path) -> onnx.ModelProto:
    """The model as its file says, external tensors left external."""
    return onnx.load(str(path), load_external_data=False)


def _holders() -> set[str]:
    """The types of messages in which a tensor can be, at some depth."""
    found, grown = {"TensorProto"}, True
    types = onnx.ModelProto.DESCRIPTOR.file.message_types_by_name.values()
    while grown:
        more = {t.name for t in types if any(f.message_type and f.message_type.name in found for f in t.fields)}
        grown = not more <= found
        found |= more
    return found


HOLDERS = _holders()


def _collect(message, place: str, found: dict) -> None:
    """Add the tensors in a message to `found`."""
    if isinstance(message, TensorProto):
        found[place] = message
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.name not in HOLDERS:
            continue
        at = f"{place}.{field.name}" if place else field.name
        if field.is_repeated:
            for index, item in enumerate(value):
                _collect(item, f"{at}[{index}]", found)
        else:
            _collect(value, at, found)


def tensors(message, place: str = "") -> dict[str, TensorProto]:
    """Every tensor at any depth, wherever the format allows one, by its place in the model."""
    found = {}
    _collect(message, place, found)
    return found


def is_external(tensor: TensorProto) -> bool:
    """Whether the tensor's bytes are in another file."""
    return tensor.data_location == TensorProto.EXTERNAL


def entries(tensor: TensorProto) -> dict[str, str]:
    """The external data entries of a tensor; a key that is there twice raises."""
    found = {entry.key: entry.value for entry in tensor.external_data}
    assert len(found) == len(tensor.external_data), f"{tensor.name}: an entry key is there twice"
    return found


def external_bytes(tensor: TensorProto, folder: pathlib.Path) -> bytes:
    """The bytes that an external tensor's entries point at."""
    found = entries(tensor)
    with open(folder / found["location"], "rb") as file:
        file.seek(int(found.get("offset", "0")))
        return file.read(int(found["length"])) if "length" in found else file.read()


def payload(tensor: TensorProto, folder: pathlib.Path) -> bytes:
    """The value of a tensor as raw_data would hold it, wherever it is kept."""
    if is_external(tensor):
        return external_bytes(tensor, folder)
    if tensor.data_type == TensorProto.STRING:
        return b"".join(len(item).to_bytes(8, "little") + item for item in tensor.string_data)
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    return numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data


def skeleton(model: onnx.ModelProto) -> bytes:
    """The model without the values of its tensors: all that a change of storage must leave alone."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in tensors(bare).values():
        for field in VALUE_FIELDS:
            tensor.ClearField(field)
    return bare.SerializeToString(deterministic=True)


def values(model: onnx.ModelProto, folder: pathlib.Path) -> dict[str, tuple]:
    """Every tensor's name, type, shape and bytes, by its place in the model."""
    return {
        place: (tensor.name, tensor.data_type, tuple(tensor.dims), payload(tensor, folder))
        for place, tensor in tensors(model).items()
    }


def assert_same_model(before: onnx.ModelProto, before_folder, after: onnx.ModelProto, after_folder) -> None:
    """Both models have the same structure and the same tensors, bit for bit."""
    assert skeleton(before) == skeleton(after), "the structure of the model changed"
    old, new = values(before, before_folder), values(after, after_folder)
    wrong = [place for place in old if old[place] != new[place]]
    assert not wrong, f"{len(wrong)} of {len(old)} tensors differ: {wrong[:5]}"


def litter(folder: pathlib.Path, model: pathlib.Path) -> set[str]:
    """Files in the folder that are neither the model nor named by it."""
    named = {entries(tensor)["location"] for tensor in tensors(load(model)).values() if is_external(tensor)}
    return {path.name for path in folder.iterdir()} - {model.name} - named


def _attempt(case):
    """Run one case; what went wrong, or None."""
    function, arguments = case
    try:
        return None, function(*arguments)
    except AssertionError as error:
        return str(error) or traceback.format_exc(), None
    except Exception:  # a driver reports every case, whatever went wrong in one
        return traceback.format_exc(), None


def run_all(title: str, function, cases: list[tuple], workers: int = WORKERS) -> list:
    """Run function(*case) for every case, a few at a time; what each returned, None where it failed."""
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        outcomes = list(pool.map(_attempt, [(function, case) for case in cases]))
    failed = [(case, problem) for case, (problem, _) in zip(cases, outcomes) if problem]
    for case, problem in failed:
        print(f"FAILED {title} {' '.join(map(str, case))}\n    {problem.strip()}", file=sys.stderr)
    print(f"{title}: {len(cases) - len(failed)} of {len(cases)} passed")
    sys.stdout.flush()
    FAILED.extend(failed)
    return [result for _, result in outcomes]


def finish() -> None:
    """End a driver: exit 1 if any case failed."""
    raise SystemExit(1 if FAILED else 0)
