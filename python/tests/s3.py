"""A server that speaks S3: moto, by an interpreter that has it, which need not be that of the tests."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def server(untested: str) -> Iterator[dict[str, str] | None]:
    """How the environment reaches the server, which has the bucket ``models``. None where there is no moto, which is said: what is
    ``untested`` then."""
    python = os.environ.get("ONNX_CONTAINER_PYTHON", sys.executable)
    if not Path(python).exists() or subprocess.run([python, "-c", "import moto.server"], capture_output=True).returncode:
        assert not os.environ.get("CI"), "moto is missing"
        print(f"!!! SKIPPED in part: no moto, so that {untested}")
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], **quiet)
    try:
        for _ in range(600):
            try:
                put = urllib.request.Request(f"http://127.0.0.1:{port}/models", method="PUT")
                urllib.request.urlopen(put).close()
                break
            except OSError:
                assert process.poll() is None
                time.sleep(0.1)
        named = {"ENDPOINT": f"http://127.0.0.1:{port}", "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
        yield {f"AWS_{name}": value for name, value in named.items()}
    finally:
        process.terminate()
        process.wait()
