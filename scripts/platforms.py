#!/usr/bin/env python3
"""Runs a suite of tests, and writes how many passed into the table of docs/platforms.md.

    python3 scripts/platforms.py SYSTEM SUITE -- COMMAND...
    python3 scripts/platforms.py 'Linux x86-64' 'the command' -- cargo test -p onnx-container-cli

The counts are those that cargo test and pytest print, in all programs that the command runs. A row
of the same system and suite is replaced. What ran no test gives no row, and is an error.
"""

import datetime
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "platforms.md"
HEADER = ["| system | suite | passed | failed | ignored | on |", "|---|---|---|---|---|---|"]
WORDS = {"passed": 0, "failed": 1, "error": 1, "errors": 1, "ignored": 2, "skipped": 2}
# Of cargo test, and of pytest.
LAST_LINE = re.compile(
    r"^test result: .*$|^(?:=+ )?\d+ (?:passed|failed|skipped|error).* in [\d.]+s.*$", re.M
)


def counts(said):
    """Passed, failed and ignored tests, by the last lines of test programs."""
    found = [0, 0, 0]
    for line in LAST_LINE.findall(said):
        for number, word in re.findall(r"(\d+) ([a-z]+)", line):
            if word in WORDS:
                found[WORDS[word]] += int(number)
    return found


def with_row(page, row):
    """The page with the row in its place in the table."""
    lines = page.split("\n")
    start = lines.index(HEADER[1]) + 1
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    key = [row.split("|")[1], row.split("|")[2]]
    rows = [line for line in lines[start:end] if line.split("|")[1:3] != key]
    return "\n".join([*lines[:start], *sorted([*rows, row]), *lines[end:]])


def run(command):
    """What it says, which is also printed as it comes, and how it ended."""
    said = []
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, errors="replace", **both) as running:
        for line in running.stdout:
            sys.stdout.write(line)
            said.append(line)
    return "".join(said), running.returncode


def main():
    """The command line."""
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) < 5 or sys.argv[3] != "--" or "|" in "".join(sys.argv[1:3]):
        sys.exit(__doc__)
    system, suite = sys.argv[1:3]
    try:
        said, status = run(sys.argv[4:])
    except OSError as error:
        sys.exit(f"The command cannot be run: {error}")
    passed, failed, ignored = counts(said)
    if passed + failed == 0:
        sys.exit(
            f"No test ran, and docs/platforms.md is as it was: the command ended with {status}."
        )
    if status != 0 and failed == 0:
        sys.exit(
            f"A program died, or did not compile (the command ended with {status}): no row is written."
        )
    today = datetime.date.today().isoformat()
    row = f"| {system} | {suite} | {passed} | {failed} | {ignored} | {today} |"
    PAGE.write_text(with_row(PAGE.read_text(), row))
    print(row)
    sys.exit(status)


if __name__ == "__main__":
    main()
