"""``docs/python-api.md`` is what the docstrings say. With ONNX_CONTAINER_WRITE_PAGE=1 it is written."""

from __future__ import annotations

import os
import re

import api_page


def test_the_page_is_what_the_docstrings_say() -> None:
    page = api_page.page()
    if os.environ.get("ONNX_CONTAINER_WRITE_PAGE"):
        api_page.PAGE.write_text(page)
    written = api_page.PAGE.read_text().splitlines()
    for number, line in enumerate(page.splitlines(), 1):
        found = written[number - 1] if number <= len(written) else None
        assert line == found, f"line {number} of docs/python-api.md: run this test with ONNX_CONTAINER_WRITE_PAGE=1"
    assert len(written) == len(page.splitlines())


def test_every_public_name_is_on_the_page() -> None:
    page = api_page.page()
    for name in api_page.exported():
        is_there = any(mark in page for mark in (f"### {name}\n", f"- `{name}` is ", f"## onnx_container.{name}\n", f".{name}\n"))
        assert is_there, name


def test_everything_on_the_page_is_documented() -> None:
    """Below each signature there is a text."""
    page = api_page.page().partition("## Options\n")[0]
    for block in page.split("\n### ")[1:]:
        for part in block.split("\n#### "):
            title, _, text = part.partition("\n")
            code = text.replace("```python", "```").split("```")
            prose = "".join(code[::2]).replace("*class*", "")
            assert any(line and not re.fullmatch("`[^`]*`", line) for line in prose.splitlines()), title
