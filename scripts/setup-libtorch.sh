#!/usr/bin/env bash
# A libtorch for the feature `tch`: CPU only, 490 MB on disk, from three pinned wheels of PyPI.
#
#   eval "$(scripts/setup-libtorch.sh)"    # says what it does on stderr, the environment on stdout
#   scripts/setup-libtorch.sh --installed  # the same, but fails where it would have to install
#
# PyPI's torch for Linux is built for CUDA and asks for 2.3 GB of other wheels. What tch links,
# libtorch_cpu.so, needs two small libraries of them only. So this takes the headers and
# libtorch_cpu.so from the torch wheel and these two from theirs, and puts an empty libtorch.so in
# the place of the one that would load libtorch_cuda.so. No file is changed, and pip holds every
# wheel to its sha256.
#
# Needs Python 3.8 or newer with pip or venv, and a C compiler. A finished installation is found and
# used again. Two at once wait for each other; one that is broken off leaves nothing behind that is
# used.
#
#   LIBTORCH_HOME    where to install; default ~/.cache/libtorch/<version>-cpu
#   LIBTORCH_WHEELS  a folder that holds the wheels already, for machines without a network
set -euo pipefail

VERSION=2.13.0 # what the build script of torch-sys in Cargo.lock asks for
RECIPE=1       # to be raised when the steps below change

TORCH=torch==$VERSION
TORCH_SHA256=60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7
RUNTIME=nvidia-cuda-runtime==13.0.96
RUNTIME_SHA256=7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
CUPTI=nvidia-cuda-cupti==13.0.85
CUPTI_SHA256=4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8

HOME_DIR=${LIBTORCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/libtorch/$VERSION-cpu}
STAMP="$VERSION recipe $RECIPE"
PYTHON=${PYTHON:-python3}
CC=${CC:-cc}

say() { printf 'libtorch: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# The linker finds the libraries by the rpath that build.rs sets, so nothing else is needed.
print_environment() { printf 'export LIBTORCH=%q\n' "$HOME_DIR"; }

is_installed() { [[ $(cat "$HOME_DIR/.stamp" 2>/dev/null) == "$STAMP" ]]; }

# Sets PIP: Python's own, or one in an environment made for it.
find_pip() {
    if "$PYTHON" -m pip --version >/dev/null 2>&1; then
        PIP=("$PYTHON" -m pip)
    else
        "$PYTHON" -m venv "$work/venv" >&2 || fail "$PYTHON has neither pip nor venv"
        PIP=("$work/venv/bin/python" -m pip)
    fi
}

# The same wheels whatever Python this machine has: no code of theirs is run.
download() {
    find_pip
    cat >"$work/requirements.txt" <<REQUIREMENTS
$TORCH --hash=sha256:$TORCH_SHA256
$RUNTIME --hash=sha256:$RUNTIME_SHA256
$CUPTI --hash=sha256:$CUPTI_SHA256
REQUIREMENTS
    say "fetching torch $VERSION and two libraries, 540 MB"
    "${PIP[@]}" download --quiet --disable-pip-version-check --no-cache-dir --no-deps --retries 5 \
        --require-hashes --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 --abi none \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        -r "$work/requirements.txt" -d "$1" >&2
}

# unpack WHEELS INTO
unpack() {
    "$PYTHON" - "$@" >&2 <<'PYTHON'
import pathlib
import shutil
import sys
import zipfile

wheels, target = map(pathlib.Path, sys.argv[1:])


def wheel(name):
    """The one wheel of this name."""
    found = sorted(wheels.glob(f"{name}-*.whl"))
    if len(found) != 1:
        sys.exit(f"libtorch: {len(found)} wheels of {name} in {wheels}")
    return zipfile.ZipFile(found[0])


def extract(archive, member, path):
    """Copy one member of the archive to a path below the target."""
    path = target / path
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, open(path, "wb") as made:
        shutil.copyfileobj(source, made, 1 << 20)
    if path.parent.name == "lib":
        path.chmod(0o755)


torch = wheel("torch")
for library in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1"):
    extract(torch, f"torch/lib/{library}", f"lib/{library}")
for member in torch.namelist():
    if member.startswith("torch/include/") and not member.endswith("/"):
        extract(torch, member, member[len("torch/") :])
    if member.endswith(".dist-info/licenses/LICENSE"):
        extract(torch, member, "LICENSE")
for name, library in (("nvidia_cuda_runtime", "libcudart.so.13"), ("nvidia_cuda_cupti", "libcupti.so.13")):
    extract(wheel(name), f"nvidia/cu13/lib/{library}", f"lib/{library}")
PYTHON
}

# An empty library that needs libtorch_cpu.so, which is all that the original adds for tch.
make_libtorch_so() {
    printf 'int libtorch_without_cuda;\n' >"$work/empty.c"
    "$CC" -shared -fPIC -o "$1/libtorch.so" "$work/empty.c" -Wl,-soname,libtorch.so -L"$1" \
        -Wl,--no-as-needed -ltorch_cpu '-Wl,-rpath,$ORIGIN' -Wl,--allow-shlib-undefined
}

# Every symbol has to be there, or nothing is installed.
check_loads() {
    "$PYTHON" -c 'import ctypes, os, sys; ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)' "$1/libtorch.so"
}

install() {
    local wheels=${LIBTORCH_WHEELS:-}
    if [[ -z $wheels ]]; then
        wheels=$work/wheels
        download "$wheels"
    fi
    say 'unpacking'
    unpack "$wheels" "$work/made"
    make_libtorch_so "$work/made/lib"
    check_loads "$work/made/lib" || fail 'what was put together does not load'
    printf '%s\n' "$VERSION" >"$work/made/build-version" # torch-sys compares it with its own
    printf '%s\n' "$STAMP" >"$work/made/.stamp"
    chmod 755 "$work/made"
    rm -rf "$HOME_DIR"
    mv -T "$work/made" "$HOME_DIR"
    say "installed in $HOME_DIR"
}

case ${1:-} in
    '') ;;
    --installed) is_installed || fail 'not installed' ;;
    *) fail "unknown argument $1" ;;
esac
[[ $(uname -sm) == 'Linux x86_64' ]] || fail "this is for Linux on x86_64. Elsewhere: pip install torch==$VERSION, \
then set LIBTORCH_USE_PYTORCH=1"
if ! is_installed; then
    command -v "$PYTHON" >/dev/null || fail "no $PYTHON"
    command -v "$CC" >/dev/null || fail "no C compiler ($CC)"
    mkdir -p "$(dirname "$HOME_DIR")"
    exec 9>"$HOME_DIR.lock"
    flock 9
    if ! is_installed; then # by whoever held the lock
        work=$(mktemp -d "$(dirname "$HOME_DIR")/.installing.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        install
    fi
fi
print_environment
