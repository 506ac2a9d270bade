"""Completions in interactive bash, zsh and fish, after the Tab key.

ONNX_CONTAINER_BIN is the command. A shell that is missing is a failure.
"""

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source {script}"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source {script}"),
    "fish": (["fish", "--no-config", "-i"], "source {script}"),
}
# What is typed before the Tab key, and the pattern that has to be on the screen after it.
TYPED = [
    ("pack --sh", "pack --shard-names"),
    ("verify-s", "verify-signature"),
    ("pack --paths tr", "pack --paths trusted"),
    ("pack a b --max-shard-size 1GB --shard-names tr", "--shard-names transformers-js"),
    ("inline-functions --max-no", "inline-functions --max-nodes"),
    ("trace di", "trace diff"),
    ("trace diff --dump-\t", "--dump-[ab]"),
    ("trace model.onnx --se", "trace model.onnx --seed"),
    ("pack my-mo", "pack my-model.onnx"),
    ("completions z", "completions zsh"),
    ("cast a b --to float1", "cast a b --to float16"),
    ("cast a b --to=float1", "cast a b --to=float16"),
    ("cast a b --to=\t", "bfloat16"),
]
SLOWEST = 60.0


class Screen:
    """An interactive shell on a terminal of its own."""

    def __init__(self, command: list[str], folder: Path) -> None:
        binary = Path(os.environ["ONNX_CONTAINER_BIN"]).parent
        environment = {
            "PATH": f"{binary}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "dumb",
            "COLUMNS": "200",
            "LANG": "C.UTF-8",
        }
        process, self.terminal = pty.fork()
        if process == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        self.process = process

    def shows(self, text: str) -> tuple[bool, str]:
        """Reads until the pattern `text` is there; also returns what was read."""
        read, end = "", time.monotonic() + SLOWEST
        while not re.search(text, read) and time.monotonic() < end:
            ready, _, _ = select.select([self.terminal], [], [], 0.2)
            if ready:
                read += os.read(self.terminal, 1 << 16).decode(errors="replace")
        return bool(re.search(text, read)), read

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def close(self) -> None:
        os.kill(self.process, 9)
        os.close(self.terminal)
        os.waitpid(self.process, 0)


def complete(shell: str, script: Path, folder: Path) -> list[str]:
    """What is not completed in `shell`."""
    command, source = SHELLS[shell]
    faults = []
    for typed, completed in TYPED:
        screen = Screen(command, folder)
        screen.type(f"{source.format(script=script)}; echo rea''dy\n")
        ready, read = screen.shows("ready")
        if not ready:
            faults.append(f"{shell} does not start: {read!r}")
        screen.type(f"onnx-container {typed}\t")
        # The words are on the screen as typed before they are completed.
        found, read = screen.shows(completed)
        if not found or "error" in read:
            faults.append(f"{shell}: {typed!r} gives {read!r}, not {completed!r}")
        screen.close()
    return faults


def main() -> int:
    faults = []
    with tempfile.TemporaryDirectory() as made:
        scripts, folder = Path(made, "scripts"), Path(made, "folder")
        scripts.mkdir()
        folder.mkdir()
        (folder / "my-model.onnx").touch()
        for shell in SHELLS:
            call = [os.environ["ONNX_CONTAINER_BIN"], "completions", shell]
            script = scripts / f"onnx-container.{shell}"
            script.write_bytes(subprocess.run(call, check=True, capture_output=True).stdout)
            faults += complete(shell, script, folder)
        # Texts of the script that a shell takes for a redirection make files.
        left = sorted(it.name for it in folder.iterdir() if not it.name.startswith("."))
        if left != ["my-model.onnx"]:
            faults.append(f"completing wrote files: {left}")
    print(f"{len(SHELLS)} shells, {len(TYPED)} texts each, {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
