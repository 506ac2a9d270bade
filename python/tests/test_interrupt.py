"""Ctrl-C ends every call that may take long, early: the error that ended the work is the cause of what is raised."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx_container
import pytest
from keys import make_keys
from onnx_container import Container, Error

COUNT, SHAPE = 40, (64, 64)


class Made:
    """Weights that are made one by one. The first one has the process interrupted, as Ctrl-C does."""

    def __init__(self) -> None:
        self.count, self.lock, self.interrupts = 0, threading.Lock(), True

    def __call__(self) -> np.ndarray:
        with self.lock:
            self.count += 1
            is_first = self.count == 1
        if self.interrupts and is_first:
            os.kill(os.getpid(), signal.SIGINT)
        # Others have their turn, such as the thread that handles signals.
        time.sleep(0.02)
        return np.full(SHAPE, 7, np.float32)


def lazy(made: Made) -> Container:
    """Many weights, each with a callable of its own: what is given twice is made once."""
    names = [f"w{number}" for number in range(COUNT)]
    weights = {f"#{name}": (lambda made=made: made()) for name in names}
    return Container(models.add(*[(name, 1, SHAPE) for name in names]), weights)


CALLS: list[tuple[str, Callable[[Container, Path], Any]]] = [
    ("digest", lambda c, p: c.digest()),
    ("tensor_digests", lambda c, p: c.tensor_digests()),
    ("semantic_digest", lambda c, p: c.semantic_digest()),
    ("semantic_difference", lambda c, p: c.semantic_difference(c.copy())),
    ("stats", lambda c, p: onnx_container.stats(c)),
    ("diff", lambda c, p: onnx_container.diff(c, lazy(Made()))),
    ("consolidate", lambda c, p: c.consolidate()),
    ("to_parts", lambda c, p: c.to_parts()),
    ("embed", lambda c, p: c.embed()),
    ("inference_session", lambda c, p: c.inference_session()),
    ("session_options", lambda c, p: c.session_options()),
    ("match", lambda c, p: c.match({"v": np.ones(SHAPE, np.float32)})),
    ("save", lambda c, p: c.save(p / "m.onnx")),
    ("save, with progress", lambda c, p: c.save(p / "m.onnx", progress=lambda done, total: None)),
    ("save, a file each", lambda c, p: c.save(p / "m.onnx", one_file=False)),
    ("save, embedded", lambda c, p: c.save(p / "m.onnx", files="embedded")),
    ("save, with digests", lambda c, p: c.save(p / "m.onnx", digests=True)),
    ("save, as safetensors", lambda c, p: c.save(p / "m.onnx", files="safetensors")),
]


@pytest.mark.parametrize("call", [it[1] for it in CALLS], ids=[it[0] for it in CALLS])
def test_calls_that_make_weights_end_early(tmp_path: Path, call: Callable[[Container, Path], Any]) -> None:
    made = Made()
    container = lazy(made)
    before = container.model_bytes
    with pytest.raises(KeyboardInterrupt) as raised:
        call(container, tmp_path)
    assert 0 < made.count < COUNT
    cause = raised.value.__cause__
    assert cause is None or isinstance(cause, Error) and cause.kind == "Cancelled"
    assert container.model_bytes == before and os.listdir(tmp_path) == []
    # And the next call is a call as any other.
    made.interrupts = False
    assert container["#w0"].numpy().sum() == 7 * 64 * 64


def model_of(folder: Path, mib: int) -> Path:
    """A model of one tensor of ``mib`` MiB, in a file that takes no space."""
    path = folder / f"m{mib}.onnx"
    model = models.add(("w", 2, (mib << 20,)))
    model.graph.initializer[0].external_data[0].value = f"{mib}.data"
    path.write_bytes(model.SerializeToString())
    with open(folder / f"{mib}.data", "wb") as file:
        file.truncate(mib << 20)
    return path


def safetensors_of(folder: Path, mib: int) -> Path:
    path = folder / f"{mib}.safetensors"
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (mib << 20, mib << 20)
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + (mib << 20))
    return path


def bare(folder: Path, mib: int) -> Container:
    return Container.load(model_of(folder, mib), weights=False)


def of_floats(mib: int) -> Container:
    """A model of one inline tensor."""
    return Container(Container(models.add(("w", 1, (mib << 18,))), {"#w": bytes(mib << 20)}).embed())


def saved(folder: Path, mib: int, **options: Any) -> Callable[[], Any]:
    container = Container.load(model_of(folder, mib))
    return lambda: container.save(folder / "new.onnx", **options)


def verified(folder: Path, mib: int, check: Callable[[Path], Any]) -> Callable[[], Any]:
    Container.load(model_of(folder, mib)).save(folder / "digests.onnx", digests=True, sync=False)
    return lambda: check(folder / "digests.onnx")


def signing(folder: Path, mib: int) -> Callable[[], Any]:
    private, _ = make_keys(folder, f"{mib}")
    model = model_of(folder, mib)
    return lambda: onnx_container.sign(model, private_key=private, signature=folder / f"{mib}.sig")


def verifying(folder: Path, mib: int) -> Callable[[], Any]:
    private, public = make_keys(folder, f"{mib}")
    model, signature = model_of(folder, mib), folder / f"{mib}.sig"
    onnx_container.sign(model, private_key=private, signature=signature, sync=False)
    return lambda: onnx_container.verify_signature(model, public_key=public, signature=signature)


READS: dict[str, Callable[[Path, int], Callable[[], Any]]] = {
    "load": lambda p, mib: lambda path=model_of(p, mib): Container.load(path, mmap=False),
    "from_bytes": lambda p, mib: lambda path=model_of(p, mib): Container.from_bytes(
        path.read_bytes(), mmap=False, model_path=path
    ),
    "load, verified": lambda p, mib: verified(p, mib, lambda path: Container.load(path, verify_digests=True)),
    "check_model": lambda p, mib: verified(p, mib, lambda path: onnx_container.check_model(path, digests=True)),
    "findings": lambda p, mib: verified(p, mib, lambda path: onnx_container.findings(path, digests=True)),
    "attach": lambda p, mib: lambda container=bare(p, mib): container.attach(p, mmap=False),
    "attach_safetensors": lambda p, mib: lambda container=bare(p, mib), path=safetensors_of(p, mib): (
        container.attach_safetensors(path, mmap=False)
    ),
    "map_file": lambda p, mib: lambda path=model_of(p, mib): onnx_container.map_file(p / f"{mib}.data", False),
    "digest": lambda p, mib: Container.load(model_of(p, mib)).digest,
    "semantic_digest": lambda p, mib: Container.load(model_of(p, mib)).semantic_digest,
    "save": lambda p, mib: saved(p, mib, digests=True),
    "sign": signing,
    "verify_signature": verifying,
    "cast": lambda p, mib: lambda container=of_floats(min(mib, 256)): container.cast("float16"),
}


@pytest.mark.parametrize("name", READS)
def test_calls_that_read_files_end_early(tmp_path: Path, name: str) -> None:
    """The files are made longer until the work takes longer than the signal: how long that is does not matter. On a machine
    that does much else the signal may be there before the work begins, so it comes later then."""
    for mib, after in ((64, 0.005), (256, 0.005), (1024, 0.005), (1024, 0.05), (1024, 0.2)):
        call = READS[name](tmp_path, mib)
        timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
        raised: KeyboardInterrupt | None = None
        try:
            timer.start()
            call()
            timer.join()
            time.sleep(1)  # until the signal is there
        except KeyboardInterrupt as error:
            raised = error
        timer.join()
        assert raised is not None
        if isinstance(raised.__cause__, Error):
            assert raised.__cause__.kind == "Cancelled"
            return
    pytest.fail("no call ended early")


def test_other_handlers_and_threads(tmp_path: Path) -> None:
    """What a handler raises is raised; and a call on another thread is not interrupted."""

    def handler(number: int, frame: Any) -> None:
        raise RuntimeError("hang up")

    before = signal.signal(signal.SIGINT, handler)
    try:
        made = Made()
        with pytest.raises(RuntimeError, match="hang up"):
            lazy(made)["#w0"].numpy()
    finally:
        signal.signal(signal.SIGINT, before)
    made = Made()
    made.interrupts = False
    digests: list[str] = []
    thread = threading.Thread(target=lambda: digests.append(lazy(made).digest()))
    thread.start()
    thread.join()
    assert len(digests) == 1
