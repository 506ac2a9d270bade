#!/usr/bin/env python3
"""Makes PyPI's torch importable without the 2.3 GB of CUDA libraries that it asks for.

Torch is linked with these libraries, and calls them only where there is a GPU. So each library that is not there gets an empty one in
its place: with its name, and with every symbol (and version of it) that torch takes from it. A function in it ends the process.
libcudart and libcupti have to be the real ones: torch asks them whether there is a GPU.

    scripts/torch_stubs.py SITE_PACKAGES
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

REAL = re.compile(r"lib(cudart|cupti)\.so")
# What the names of functions without a version begin with, and the library that has them.
PREFIXES = {"cudnn": "libcudnn", "nccl": "libnccl", "cuFile": "libcufile", "nvshmem": "libnvshmem"}


def output(*command: str) -> str:
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


def needed(library: Path) -> list[str]:
    """The names of the libraries that this one is linked with."""
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", output("readelf", "-dW", str(library)))


def defined(library: Path) -> set[str]:
    lines = output("nm", "-D", "--defined-only", str(library)).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def versions(library: Path) -> dict[str, set[str]]:
    """For each version of symbols, the libraries that it is taken from."""
    found: dict[str, set[str]] = defaultdict(set)
    of = ""
    for line in output("readelf", "-VW", str(library)).splitlines():
        if file := re.search(r"File: (\S+)", line):
            of = file[1]
        elif of and (name := re.search(r"Name: (\S+) ", line)):
            found[name[1]].add(of)
    return found


def undefined(library: Path) -> Iterator[tuple[str, str, str]]:
    """Symbols that the library takes from others and cannot do without: name, version, kind."""
    for line in output("readelf", "-W", "--dyn-syms", str(library)).splitlines():
        parts = line.split()
        if len(parts) < 8 or parts[6] != "UND":
            continue
        name, _, version = parts[7].partition("@")
        if version or parts[4] != "WEAK":
            yield name, version.strip("@"), parts[3]


def prefix_of(name: str, missing: list[str]) -> str | None:
    """The library that has a function of this name, by how names begin."""
    start = next((lib for prefix, lib in PREFIXES.items() if name.startswith(prefix)), None)
    if start is None:
        word = re.match(r"[a-z]+(?=[A-Z])|cu[a-z]+", name)
        start = f"lib{word[0]}" if word else None
    return next((library for library in missing if start and library.startswith(start)), None)


Symbols = dict[str, dict[str, tuple[str, str]]]


def wanted(libraries: list[Path], real: list[Path], missing: list[str]) -> Symbols:
    """The symbols that each missing library has to have, with version and kind."""
    found: Symbols = {library: {} for library in missing}
    known = set().union(*map(defined, libraries + real))
    for library in libraries:
        by_version = versions(library)
        for name, version, kind in undefined(library):
            if version:
                owners = by_version.get(version, set()) & found.keys()
            else:
                owner = None if name in known else prefix_of(name, missing)
                owners = {owner} if owner else set()
            for owner in owners:
                found[owner][name] = (version, kind)
    return found


def build(library: str, symbols: dict[str, tuple[str, str]], folder: Path) -> None:
    """Compiles a library of this name with these symbols."""
    code = ["#include <stdio.h>", "#include <stdlib.h>"]
    code.append(f'static void end(const char *s) {{ fprintf(stderr, "{library} is a stub: %s\\n", s); abort(); }}')
    by_version: dict[str, list[str]] = defaultdict(list)
    for name, (version, kind) in symbols.items():
        code.append(f"char {name}[4096];" if kind == "OBJECT" else f'void {name}(void) {{ end("{name}"); }}')
        by_version[version].append(name)
    with tempfile.TemporaryDirectory() as work:
        source, script = Path(work, "stub.c"), Path(work, "stub.map")
        source.write_text("\n".join(code) + "\n")
        blocks = (f"{v} {{ global: {'; '.join(names)}; }};" for v, names in by_version.items() if v)
        script.write_text("\n".join(blocks) + "\n")
        options = [f"-Wl,--version-script={script}"] if any(by_version) else []
        compiler = os.environ.get("CC", "cc")
        target = str(folder / library)
        output(compiler, "-w", "-shared", "-fPIC", "-fno-builtin", "-o", target, str(source), f"-Wl,-soname,{library}", *options)


def main() -> None:
    """Puts stubs where torch's libraries look for the real ones."""
    packages = Path(sys.argv[1])
    # libcaffe2_nvrtc is opened only where CUDA is used, and would ask for the driver.
    libraries = sorted(it for it in (packages / "torch/lib").glob("*.so*") if "caffe2_nvrtc" not in it.name)
    real = list(packages.glob("nvidia/*/lib/*.so*"))
    there = {it.name for it in libraries + real}
    # It is not on the path of everybody who may run it.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/sbin", "/usr/sbin"])
    system = output(shutil.which("ldconfig", path=path) or "ldconfig", "-p")
    names = dict.fromkeys(name for library in libraries for name in needed(library))
    missing = [it for it in names if it not in there and f"\t{it} " not in system and not it.startswith("ld-linux")]
    if unreal := list(filter(REAL.match, missing)):
        sys.exit(f"install these first, which torch calls: {unreal}")
    searched = re.search(r"(?:RPATH|RUNPATH).*\[(.+?)\]", output("readelf", "-dW", str(packages / "torch/lib/libtorch_cuda.so")))
    looks = searched[1].split(":") if searched else []
    place = next(it for it in looks if re.search(r"cu\d+/lib$|cuda_runtime/lib$", it))
    folder = Path(os.path.normpath(place.replace("$ORIGIN", str(packages / "torch/lib"))))
    folder.mkdir(parents=True, exist_ok=True)
    for library, symbols in wanted(libraries, real, missing).items():
        build(library, symbols, folder)
        print(f"stub of {library}: {len(symbols)} symbols")


if __name__ == "__main__":
    main()
