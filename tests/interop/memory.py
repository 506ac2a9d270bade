"""Memory and time of the command on models of gigabytes, whose weights are holes in sparse files.

Writing or checking N GB may add 24 MiB of anonymous memory (mapped pages do not count: RssAnon of /proc, sampled).
Most of that is rounding: the command's allocator takes huge pages of 2 MiB, a few for each thread, and a pack of 512
tensors that takes 16.3 MiB with them takes 2.9 MiB without. And what reads no weights may take no longer for 4 GB than for 4 MB.
"""

import pathlib
import subprocess
import sys
import time

import common
import onnx
from onnx import TensorProto, helper

MIB = 1 << 20
LIMIT = 24 * MIB
SAMPLE = 0.002


def hole(path: pathlib.Path, size: int) -> None:
    """A file of zeros that takes no space."""
    with open(path, "wb") as made:
        made.truncate(size)


def wide_model(folder: pathlib.Path, count: int, size: int, files: int = 1) -> pathlib.Path:
    """A model of `count` external uint8 tensors of `size` bytes, spread over data files that are not made."""
    tensors = []
    for number in range(count):
        slot, file = divmod(number, files)
        tensor = TensorProto(name=f"w{number}", data_type=TensorProto.UINT8, dims=[size])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", f"w{file}.data"), ("offset", slot * size), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    result = helper.make_tensor_value_info("y", TensorProto.UINT8, [None])
    node = helper.make_node("Concat", [tensor.name for tensor in tensors], ["y"], axis=0)
    graph = helper.make_graph([node], "wide", [], [result], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = folder / "wide.onnx"
    onnx.save(model, path)
    return path


def sparse_model(folder: pathlib.Path, count: int, size: int) -> pathlib.Path:
    """A model of `count` tensors of `size` bytes in one sparse file."""
    hole(folder / "w0.data", count * size)
    return wide_model(folder, count, size)


def anonymous(process: subprocess.Popen) -> int:
    """Bytes of anonymous memory that a process has now."""
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("RssAnon")]
    return int(lines[0][1]) * 1024 if lines else 0


def measure(*arguments, expected: int = 0) -> tuple[int, float]:
    """Run the command; its peak of anonymous memory and its seconds."""
    start, peak = time.monotonic(), 0
    line = [common.binary(), *map(str, arguments)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        peak = max(peak, anonymous(process))
        time.sleep(SAMPLE)
    seconds, said = time.monotonic() - start, process.stderr.read()
    assert process.returncode == expected, f"`{' '.join(line[1:])}` exits {process.returncode}: {said}"
    print(f"{peak / MIB:8.1f} MiB {seconds:7.2f} s  {' '.join(map(str, arguments[:1] + arguments[3:]))}")
    return peak, seconds


def bounded(*arguments, expected: int = 0) -> float:
    """Run the command within the limit; its seconds."""
    peak, seconds = measure(*arguments, expected=expected)
    assert peak <= LIMIT, f"{peak / MIB:.1f} MiB of anonymous memory, at most {LIMIT // MIB} MiB are allowed"
    return seconds


def one_gigabyte() -> None:
    """Every layout of 1 GiB, from external weights and from weights inside the model."""
    with common.scratch() as folder:
        path = sparse_model(folder, 128, 8 * MIB)
        for verb in ("pack", "split", "embed"):
            out = folder / verb / "out.onnx"
            out.parent.mkdir()
            bounded(verb, path, out, "--no-sync")
        bounded("pack", path, folder / "shards.onnx", "--no-sync", "--max-shard-size", "100MB")
        bounded("pack", path, folder / "once.onnx", "--no-sync", "--dedup")
        once = (folder / "once.onnx.data").stat().st_size
        assert once == 8 * MIB, f"{once} bytes for one content of 8 MiB"
        inside = folder / "embed" / "out.onnx"
        assert inside.stat().st_size > 128 * 8 * MIB, "embed leaves weights outside"
        bounded("pack", inside, folder / "again.onnx", "--no-sync")
        bounded("check", inside)
        bounded("inspect", inside)


def over_two_gigabytes() -> None:
    """A self-contained model over 2 GiB is refused without a word, and written with it."""
    with common.scratch() as folder:
        path = sparse_model(folder, 33, 64 * MIB)
        out = folder / "out" / "out.onnx"
        out.parent.mkdir()
        bounded("embed", path, out, expected=1)
        assert not list(out.parent.iterdir()), "a refused embed writes"
        bounded("embed", path, out, "--no-sync", "--allow-over-2gib")
        assert out.stat().st_size > 2 << 30, "embed leaves weights outside"
        bounded("inspect", out)
        bounded("check", out, expected=1)


def time_of_the_graph() -> None:
    """Loading, inspect, files and check of 4 GiB take what they take of 4 MiB."""
    with common.scratch() as folder:
        paths = []
        for size in (8 * 1024, 8 * MIB):
            base = folder / str(size)
            base.mkdir()
            paths.append(sparse_model(base, 512, size))
        # A dry run of pack loads the weights too: it maps them.
        for verb, *rest in (("inspect",), ("files",), ("check",), ("pack", folder / "out.onnx", "--dry-run")):
            small, large = (min(bounded(verb, path, *rest) for _ in range(3)) for path in paths)
            assert large < 2 * small + 0.25, f"{verb}: {large:.2f} s for 4 GiB, {small:.2f} s for 4 MiB"


def many_files() -> None:
    """inspect needs none of 600 data files, and is done at once with 4 TiB of them."""
    with common.scratch() as folder:
        path = wide_model(folder, 600, 7 << 30, files=600)
        assert bounded("inspect", path) < 1, "inspect takes more than a second for 600 absent files"


PARTS = (one_gigabyte, over_two_gigabytes, time_of_the_graph, many_files)


def main() -> None:
    """All parts, one after the other: they measure."""
    if not pathlib.Path("/proc/self/status").exists():
        print("SKIPPED memory: there is no /proc here")
        return
    for part in PARTS:
        if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
            common.run_all(part.__name__, part, [()], workers=1)
    common.finish()


if __name__ == "__main__":
    main()
