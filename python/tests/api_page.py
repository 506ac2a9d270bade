"""Makes ``docs/python-api.md`` of the sources of the package: signatures, docstrings, and what
follows each field of a report. Nothing is imported, so that the page does not depend on the
packages that are installed."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pages import ROOT

PACKAGE = ROOT / "python" / "onnx_container"
WIDTH = 100

GROUPS: dict[str, list[str]] = {
    "Containers": ["Container", "Tensor", "DataType", "Bytes", "WeightMapping"],
    "A look": ["inspect", "stats", "diff", "check", "findings", "check_model", "scan", "report"],
    "Files of models": ["move", "copy", "delete", "share", "recover", "map_file", "model_that_needs"],
    "Stores": ["publish", "rollback", "versions", "sweep", "probe"],
    "Models": ["merge", "inline_functions"],
    "Signatures": ["sign", "verify_signature"],
    "In the place of onnx": [
        "patch",
        "save_model",
        "load_model",
        "load_model_from_string",
        "ModelContainer",
        "ExtendedModelContainer",
        "BuildStats",
        "make_large_model",
        "make_large_tensor_proto",
    ],
    "Reports": [],
    "Errors": ["Error", "MissingFileError", "AlreadyExistsError", "IsAFolderError", "AccessError"],
}
"""The sections of the page. Classes that no section names are reports; every function has a section."""

ALIASES = {"load": "load_model", "save": "save_model", "load_from_string": "load_model_from_string", "TorchModelContainer": "ExtendedModelContainer"}
"""Names that are another one, as in onnx and yobx."""

MODULES = {
    "external_data_helper": "The functions of `onnx.external_data_helper`, with their signatures.",
    "ir": "The functions of onnx_ir.",
    "ray": "Jobs on Ray.",
    "torch": "A writer and a reader for `torch.distributed.checkpoint`.",
}
OPTIONS = ["LoadOptions", "SaveOptions", "IrSaveOptions", "PublishOptions", "ExportOptions", "FillOptions", "CastOptions", "InlineOptions", "SignOptions", "VerifyOptions"]

HEAD = """\
# Python API

Every class and function of `onnx_container`, made from its docstrings: a test compares this page
with them. [python.md](python.md) is the guide, [python-cookbook.md](python-cookbook.md) has jobs
with their code. `Path` stands for `str | os.PathLike[str]`, `Size` for `int | str`: a number of
bytes, or a text such as `"20MB"`. `**options` are the keywords of the table that the annotation
names, at the end of this page. The examples run in a folder with `encoder.onnx`.
"""


@dataclass(frozen=True)
class Found:
    """A definition, and the module that has it."""

    module: str
    node: ast.ClassDef | ast.FunctionDef


def page() -> str:
    """The whole page."""
    found = definitions()
    names = exported()
    listed = [name for group in GROUPS.values() for name in group]
    rest = [it for it in names if it not in {*listed, *ALIASES, *MODULES, "__version__"}]
    helpers = exported("external_data_helper")
    reports = [it for it in rest if it not in helpers]
    if without := [it for it in reports if isinstance(found[it].node, ast.FunctionDef)]:
        raise ValueError(f"python/tests/api_page.py: GROUPS has no section for {', '.join(without)}")
    groups = {**GROUPS, "Reports": reports}
    lines = [HEAD]
    for title, members in groups.items():
        lines += [f"## {title}\n", *(section(name, found[name]) for name in members)]
    for module, about in MODULES.items():
        lines += [f"## onnx_container.{module}\n", f"{about}\n"]
        own = definitions((module,))
        lines += [section(name, own[name], f"{module}.") for name in exported(module) if name in own]
        lines += [section(name, found[name], f"{module}.") for name in exported(module) if name not in own]
    lines += ["## Other names\n", *(f"- `{name}` is `{other}`." for name, other in sorted(ALIASES.items()))]
    lines += ["- `__version__` is the version of the package.\n", "## Options\n"]
    options = definitions(("_options",), private=True)
    lines += [table(name, options[name].node, options) for name in OPTIONS]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def exported(module: str = "__init__") -> list[str]:
    """The names in ``__all__`` of a module."""
    for node in ast.parse((PACKAGE / f"{module}.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return list(ast.literal_eval(node.value))
    raise ValueError(f"{module} has no __all__")


def definitions(modules: tuple[str, ...] = (), private: bool = False) -> dict[str, Found]:
    """The public definitions by name: of these modules, or of all but ``ir``, which has names of
    its own, and of the stub of what is written in Rust."""
    paths = [PACKAGE / f"{it}.py" for it in modules] if modules else [*sorted(PACKAGE.glob("*.py")), PACKAGE / "_core.pyi"]
    found: dict[str, Found] = {}
    for path in paths:
        if not modules and path.stem in ("ir", "__main__"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_") and not is_overload(node):
                found.setdefault(node.name, Found(path.stem, node))
    return found


def is_overload(node: ast.ClassDef | ast.FunctionDef) -> bool:
    """Whether another definition of the name is the one that is documented."""
    return any(ast.unparse(by) == "overload" for by in node.decorator_list)


def section(name: str, found: Found, prefix: str = "") -> str:
    """A class or a function."""
    node = found.node
    if isinstance(node, ast.FunctionDef):
        return f"### {prefix}{name}\n\n{signature(name, node)}\n\n{documentation(name, found)}\n"
    bases = [ast.unparse(base) for base in node.bases if not ast.unparse(base).startswith("_")]
    declared = f"{name}({', '.join(bases)})" if bases else name
    lines = [f"### {prefix}{name}\n", f"*class* `{declared}`\n", documentation(name, found), ""]
    lines += fields(node)
    init = next((it for it in methods(node) if it.name in ("__init__", "__new__")), None)
    if init is not None and found.module != "_core" and not is_report(node):
        lines += [signature(name, init), "", markdown(ast.get_docstring(init) or ""), ""]
    for method in methods(node):
        if not method.name.startswith("_"):
            text = rust_method(name, method.name) if found.module == "_core" else ""
            lines += [f"#### {prefix}{name}.{method.name}\n", member(name, method, text), ""]
    return "\n".join(lines)


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """The methods of a class, of a property the one that reads it."""
    found = {}
    for it in node.body:
        if isinstance(it, ast.FunctionDef) and not any(ast.unparse(by).endswith(".setter") for by in it.decorator_list):
            found.setdefault(it.name, it)
    return list(found.values())


def is_report(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(by) for by in node.decorator_list)


def member(owner: str, node: ast.FunctionDef, text: str = "") -> str:
    """A method or a property, with a text in place of the docstring that it does not have."""
    text = markdown(ast.get_docstring(node) or text)
    marks = {ast.unparse(by) for by in node.decorator_list}
    if "property" in marks:
        kind = ast.unparse(node.returns) if node.returns else "Any"
        return f"`{node.name}: {kind}`\n\n{text}"
    name = f"{owner}.{node.name}" if marks & {"classmethod", "staticmethod"} else node.name
    return f"{signature(name, node)}\n\n{text}"


def fields(node: ast.ClassDef) -> list[str]:
    """The fields of a report, or the members of an enumeration, each with what is said of it."""
    lines, body = [], node.body
    for at, it in enumerate(body):
        if isinstance(it, ast.Assign) and isinstance(it.value, ast.Constant) and isinstance(it.value.value, int):
            lines.append(f"- `{ast.unparse(it)}`")
        if not isinstance(it, ast.AnnAssign) or ast.unparse(it.target).startswith("_"):
            continue
        text = body[at + 1].value.value if at + 1 < len(body) and is_text(body[at + 1]) else ""
        declared = f"- `{ast.unparse(it.target)}: {ast.unparse(it.annotation)}`"
        lines.append(wrapped(f"{declared}: {inline(' '.join(text.split()))}" if text else declared, "  "))
    return [*lines, ""] if lines else []


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def signature(name: str, node: ast.FunctionDef) -> str:
    """The signature as code, without ``self``."""
    given = list(parameters(node.args))
    returns = ast.unparse(node.returns) if node.returns and node.name not in ("__init__", "__new__") else ""
    result = f" -> {returns}" if returns else ""
    text = f"{name}({', '.join(given)}){result}"
    if len(text) > WIDTH:
        text = "\n".join([f"{name}(", *(f"    {it}," for it in given), f"){result}"])
    return f"```text\n{text}\n```"


def parameters(given: ast.arguments) -> Iterator[str]:
    """The parameters one by one, with their types and defaults."""
    plain = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    for at, (it, default) in enumerate(zip(plain, defaults, strict=True)):
        if at > 0 or it.arg not in ("self", "cls"):
            yield parameter(it, default)
        if given.posonlyargs and at + 1 == len(given.posonlyargs):
            yield "/"
    if given.vararg is not None:
        yield f"*{parameter(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    for it, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield parameter(it, default)
    if given.kwarg is not None:
        yield f"**{parameter(given.kwarg, None)}"


def parameter(it: ast.arg, default: ast.expr | None) -> str:
    kind = ast.unparse(it.annotation).removeprefix("Unpack[") if it.annotation else ""
    kind = kind.removesuffix("]") if kind.endswith("Options]") else kind
    declared = f"{it.arg}: {kind}" if kind else it.arg
    if default is None:
        return declared
    return f"{declared} = {ast.unparse(default)}" if kind else f"{declared}={ast.unparse(default)}"


def documentation(name: str, found: Found) -> str:
    """What a definition says of itself. Of what is written in Rust, the comments there say it."""
    text = ast.get_docstring(found.node)
    if not text and found.module == "_core":
        text = rust(name)
    return markdown(text or "")


def rust(name: str) -> str:
    """The documentation of a function or a class in the Rust sources."""
    for path in sorted((ROOT / "python" / "src").rglob("*.rs")):
        text = path.read_text()
        comment = re.search(rf"((?:^///.*\n)+)(?:^#\[.*\n)+^pub (?:fn|struct) {name}\b", text, re.M)
        if comment:
            return re.sub(r"^/// ?", "", comment[1], flags=re.M).strip()
        told = re.search(rf'"{name}",\s*"([^"]+)"', text)
        if told:
            return told[1]
        made = re.search(rf"create_exception!\(\s*onnx_container,\s*{name},\s*PyException,\s*\"((?:[^\"\\]|\\.|\\\n)*)\"", text)
        if made:
            return re.sub(r"\\\n\s*", "", made[1]).replace("\\n", "\n").replace('\\"', '"')
    raise ValueError(f"{name} is not documented")


def rust_method(owner: str, name: str) -> str:
    """The documentation of a method of a class in the Rust sources."""
    for path in sorted((ROOT / "python" / "src").rglob("*.rs")):
        text = path.read_text()
        if re.search(rf"^pub struct {owner}\b", text, re.M):
            comment = re.search(rf"((?:^    ///.*\n)+)(?:^    #\[.*\n)*^    (?:pub )?(?:pub\(crate\) )?fn {name}\b", text, re.M)
            return re.sub(r"^    /// ?", "", comment[1], flags=re.M).strip() if comment else ""
    raise ValueError(f"no class {owner} in the Rust sources")


def table(name: str, node: ast.ClassDef | ast.FunctionDef, known: dict[str, Found]) -> str:
    """The keywords of a function, in a table."""
    assert isinstance(node, ast.ClassDef)
    lines = [f"### {name}\n", markdown(ast.get_docstring(node) or ""), ""]
    if more := [it.id for it in node.bases if isinstance(it, ast.Name) and it.id in known]:
        lines += [f"Those of `{more[0]}`, and:\n"]
    lines += ["| keyword | type |", "|---|---|"]
    declared = [(ast.unparse(it.target), ast.unparse(it.annotation)) for it in node.body if isinstance(it, ast.AnnAssign)]
    lines += ["| `{}` | `{}` |".format(keyword, kind.replace("|", r"\|")) for keyword, kind in declared]
    return "\n".join([*lines, ""])


def markdown(text: str) -> str:
    """A docstring as Markdown: paragraphs, lists of arguments, and examples."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if block.lstrip().startswith(">>>"):
            lines += ["```python", textwrap.dedent(block), "```", ""]
        elif heading := re.match(r"(Args|Raises|Warns):\n", block):
            lines += [f"{({'Args': 'Arguments'}.get(heading[1], heading[1]))}:\n", *items(block[heading.end() :]), ""]
        elif block.startswith("    "):
            lines += [*items(block), ""]
        elif block:
            lines += [wrapped(inline(" ".join(block.split()))), ""]
    return "\n".join(lines).rstrip()


def items(block: str) -> list[str]:
    """The arguments in a block, each with its text."""
    found = re.split(r"\n(?=\S)", textwrap.dedent(block))
    lines = []
    for item in found:
        names, _, text = " ".join(item.split()).partition(": ")
        names = ", ".join(f"`{name}`" for name in names.split(", "))
        lines.append(wrapped(f"- {names}: {inline(text)}", "  "))
    return lines


def inline(text: str) -> str:
    """The marks of a docstring as those of Markdown."""
    text = re.sub(r":(?:meth|func|class|attr):`([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


def wrapped(text: str, indent: str = "") -> str:
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


PAGE = Path(ROOT / "docs" / "python-api.md")
