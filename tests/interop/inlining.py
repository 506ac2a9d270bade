"""Local functions inlined by the command, held to the corpus of ../shared and to onnx's own inliner.

The corpus has models with functions, what they compute, and a checker that reads both models as data flow.
Where onnx's inliner is right (the corpus says so), the nodes have to be its nodes: names, order and all.
What differs on purpose is listed here by its rule.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import common
import onnx
import onnx.inliner

TOOL = common.SHARED / "tools" / "inlining" / "run_corpus.sh"
CASES = common.SHARED / "data" / "inlining"
LEAST = 268  # cases that there are
SAME = 163  # cases whose nodes are onnx's byte for byte, at least
SELECTIONS = 756  # that can be said, at least

# What cannot be said without a function that would have to go: refused, and nothing is written.
LOST = "inlining would drop a default"

# Cases whose nodes are not onnx's, by the rule that parts them.
PARTED = {
    "onnx keeps a function whose import has another number, though its operators are the same": """
        spec/ops_mismatch_only_calls spec/ops_mismatch_same_schema tests_onnx/inliner_test_236
    """,
    "a graph argument's calls are numbered where it is pasted": "spec/attr_graph_with_call",
    "onnx gives one name to a value of a branch and to one that the body defines later": """
        random_core/rnd1100044 random_core/rnd1100048 random_core/rnd1100065 random_core/rnd1100075
        random_core/rnd1100089 spec/names_formal_output_local_in_branch spec/names_nested_before_outer
    """,
    "onnx does not carry the types of values into branches": "random_core/rnd1100062 random_core/rnd1100084",
}


def corpus() -> None:
    """Every case of the corpus, by its own tool."""
    line = ["sh", str(TOOL), common.binary(), "--jobs", str(common.WORKERS)]
    environment = os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
    print(done.stdout)
    tally = re.search(r"^(\d+) passed, (\d+) failed$", done.stdout, re.MULTILINE)
    assert tally, f"no tally: {done.stdout}{done.stderr}"
    passed, failed = map(int, tally.groups())
    assert done.returncode == 0 and failed == 0 and passed >= LEAST, f"{passed} passed, {failed} failed"


def plain(message) -> None:
    """Takes out what we carry over and onnx does not: a call's metadata, numbers on symbolic dimensions."""
    for field, value in message.ListFields():
        if field.name == "metadata_props":
            message.ClearField(field.name)
        elif field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                if item.DESCRIPTOR.name == "Dimension" and item.HasField("dim_param"):
                    item.dim_param = re.sub(r"(__\d+)+$", "", item.dim_param)
                plain(item)


def nodes(model: onnx.ModelProto) -> list[bytes]:
    """The bytes of the graph's nodes."""
    return [node.SerializeToString(deterministic=True) for node in model.graph.node]


def case(name: str) -> bool:
    """One case that onnx's inliner gets right; whether the nodes are the same to the byte."""
    source = CASES / f"{name}.onnx"
    expected = onnx.inliner.inline_local_functions(common.load(source))
    with common.scratch() as folder:
        for data in source.parent.glob("*.bin"):
            shutil.copy(data, folder)
        shutil.copy(source, folder / "in.onnx")
        common.must_run("inline-functions", folder / "in.onnx", folder / "out.onnx", "--no-sync")
        found = common.load(folder / "out.onnx")
    exact = nodes(expected) == nodes(found)
    plain(expected.graph)
    plain(found.graph)
    assert nodes(expected) == nodes(found), "other nodes than onnx's"
    return exact


def equal_to_onnx() -> None:
    """All cases that onnx's inliner gets right."""
    known = {name: rule for rule, names in PARTED.items() for name in names.split()}
    right = []
    for path in sorted(CASES.glob("*/*.json")):
        meta = json.loads(path.read_text())
        if meta["mode"] == "inline" and meta.get("refs", {}).get("onnx.inliner") == "ok":
            right.append(meta["name"])
    missing = set(known) - set(right)
    assert not missing, f"no cases to differ: {missing}"
    exact = common.run_all("nodes as onnx's", case, [(name,) for name in right if name not in known])
    same = sum(map(bool, exact))
    print(f"of {len(right)} cases that onnx gets right: {same} byte for byte, {len(exact)} except for metadata of calls")
    print(f"and symbolic dimensions; {len(known)} differ by a rule")
    assert same >= SAME, f"{same} cases byte for byte, there were {SAME}"


def selector(function: onnx.FunctionProto) -> str:
    """The function as `--only` and `--except` take it."""
    domain = "" if function.domain in ("", "ai.onnx") else f"{function.domain}::"
    return f"{domain}{function.name}" + (f":{function.overload}" if function.overload else "")


def selections(name: str) -> int:
    """One case with each of its functions kept, and each alone inlined; how many ways that can be said."""
    sys.path.insert(0, str(TOOL.parent))
    import check_inlined  # it is there only where ../shared is

    source = CASES / f"{name}.onnx"
    before = common.load(source)
    ways = [(option, selector(function)) for function in before.functions for option in ("--except", "--only")]
    count = 0
    for option, chosen in ways:
        with common.scratch() as folder:
            target = folder / "out.onnx"
            done = common.run("inline-functions", source, target, option, chosen, "--no-sync")
            if LOST in done.stderr:
                continue
            assert done.returncode == 0, done.said
            problems = check_inlined.verdict(str(source), str(target), meta={"mode": "any_safe"})
            problems += check_inlined.flow(before, common.load(target), str(source), str(target), False)
            assert not problems, f"{option} {chosen}: {problems[:3]}"
            count += 1
    return count


def selected() -> None:
    """Selections of functions in all cases, except those with very many."""
    names = []
    for path in sorted(CASES.glob("*/*.json")):
        meta = json.loads(path.read_text())
        if meta["mode"] == "inline" and len(common.load(path.with_suffix(".onnx")).functions) <= 12:
            names.append(meta["name"])
    ways = common.run_all("selections of functions", selections, [(name,) for name in names])
    count = sum(filter(None, ways))
    print(f"{count} selections")
    assert count >= SELECTIONS, f"{count} selections, there were {SELECTIONS}"


def is_here(path: pathlib.Path) -> bool:
    """Whether a part of ../shared is there; said aloud where it is not."""
    if not path.exists():
        print(f"SKIPPED the corpus of inlining: {path.relative_to(common.ROOT.parent)} is not there")
    return path.exists()


def main() -> None:
    """The corpus, the comparison, the selections."""
    if is_here(TOOL) and is_here(CASES):
        corpus()
        equal_to_onnx()
        selected()
    common.finish()


if __name__ == "__main__":
    main()
