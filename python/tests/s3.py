"""Servers that speak S3, by an interpreter that has them, which need not be that of the tests: moto and SeaweedFS."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

MOTO, SEAWEEDFS = "moto", "SeaweedFS"


def free_ports(count: int) -> list[int]:
    """All are taken until the last is, so that they differ."""
    with contextlib.ExitStack() as taken:
        sockets = [taken.enter_context(socket.socket()) for _ in range(count)]
        for it in sockets:
            it.bind(("127.0.0.1", 0))
        return [it.getsockname()[1] for it in sockets]


def command(kind: str, folder: str) -> tuple[list[str], int] | None:
    """How the server is started, and its port. None where it is not here."""
    python = os.environ.get("ONNX_CONTAINER_PYTHON", sys.executable)
    if not Path(python).exists():
        return None
    if kind == MOTO:
        if subprocess.run([python, "-c", "import moto.server"], capture_output=True).returncode:
            return None
        [port] = free_ports(1)
        return [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port
    weed = Path(python).parent / "weed"
    if not weed.exists():
        return None
    names = [f"{name}.{what}" for name in ("master", "volume", "filer", "s3") for what in ("port", "port.grpc")]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    chosen = [f"-{name}={port}" for name, port in ports.items()]
    options = ["-ip=127.0.0.1", "-s3", "-filer", "-volume.max=8", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    return [str(weed), "server", *options, "-master.telemetry=false", f"-dir={folder}", *chosen], ports["s3.port"]


@contextlib.contextmanager
def server(untested: str, kind: str = MOTO) -> Iterator[dict[str, str] | None]:
    """How the environment reaches the server, which has the bucket ``models``. None where it is not here, which is said: what is
    ``untested`` then."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = command(kind, folder)
        if found is None:
            assert not os.environ.get("CI"), f"{kind} is missing"
            print(f"!!! SKIPPED in part: no {kind}, so that {untested}")
            yield None
            return
        started, port = found
        # SeaweedFS would ask for the keys of its environment.
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        process = subprocess.Popen(started, cwd=folder, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            make_bucket(port, process)
            named = {"ENDPOINT": f"http://127.0.0.1:{port}", "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
            yield {f"AWS_{name}": value for name, value in named.items()}
        finally:
            process.kill()
            process.wait()


def make_bucket(port: int, process: subprocess.Popen[bytes]) -> None:
    """As soon as the server is ready."""
    for _ in range(600):
        try:
            put = urllib.request.Request(f"http://127.0.0.1:{port}/models", method="PUT")
            urllib.request.urlopen(put).close()
            return
        except OSError:
            assert process.poll() is None
            time.sleep(0.1)
    raise AssertionError("the server did not start within a minute")
