"""The pages of the documentation, and the folder that their examples run in."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def put_example(folder: Path) -> None:
    """Puts the model of the examples into ``folder``."""
    for name in ("encoder.onnx", "encoder.onnx.data"):
        shutil.copyfile(ROOT / "tests" / "data" / "encoder" / name, folder / name)


def sections(page: str) -> Iterator[tuple[str, list[str]]]:
    """The sections of a page of ``docs/`` that have examples in Python: title, and code."""
    text = (ROOT / "docs" / page).read_text()
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        if code := re.findall(r"^```python\n(.*?)^```$", section, flags=re.M | re.S):
            yield section.splitlines()[0], code
