"""The recipes of ``docs/python-cookbook.md``: each runs in a folder of its own."""

from __future__ import annotations

import ast
import doctest
from pathlib import Path
from typing import Any

import pages
import pytest

RECIPES = list(pages.sections("python-cookbook.md"))


def imported(code: str) -> set[str]:
    """The packages that ``code`` imports, those of doctests too."""
    lines = code.replace(">>> ", "").replace("... ", "").splitlines()
    imports = ast.parse("\n".join(line for line in lines if line.startswith(("import ", "from "))))
    names = [it.names[0].name if isinstance(it, ast.Import) else str(it.module) for it in imports.body if isinstance(it, (ast.Import, ast.ImportFrom))]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(("title", "code"), RECIPES, ids=[title for title, _ in RECIPES])
def test_a_recipe_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, title: str, code: list[str]) -> None:
    for package in imported("\n".join(code)):
        pytest.importorskip(package)
    pages.put_example(tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in code:
        if block.startswith(">>>"):
            run_doctest(block, names, title)
        else:
            exec(compile(block, title, "exec"), names)


def run_doctest(block: str, names: dict[str, Any], title: str) -> None:
    example = doctest.DocTestParser().get_doctest(block, names, title, "python-cookbook.md", 0)
    told: list[str] = []
    result = doctest.DocTestRunner().run(example, out=told.append)
    assert result.attempted > 0 and result.failed == 0, "".join(told)


def test_recipes_are_numbered_in_order() -> None:
    numbers = [int(title.partition(".")[0]) for title, _ in RECIPES]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 20
