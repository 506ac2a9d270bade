"""Puts `models` on the path."""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# A shell that starts a command in the background has it ignore the signal, and Python keeps to
# that.
signal.signal(signal.SIGINT, signal.default_int_handler)
