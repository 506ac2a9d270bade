"""``python -m onnx_container`` is the command."""

import sys

from ._core import run_command


def main() -> int:
    """Runs the command with the arguments of this process."""
    return run_command(["onnx-container", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
