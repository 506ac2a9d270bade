#!/usr/bin/env bash
# A Python environment with torch for the CPU and what exports models by it, 1.7 GB on disk: for the
# tests of the Python package.
#
#   scripts/setup-torch.sh says what it does on stderr, the path of its interpreter on stdout
#   scripts/setup-torch.sh --installed the same, but fails where it would have to install
#
# PyPI's torch for Linux asks for 2.3 GB of CUDA libraries, which are not called without a GPU:
# torch_stubs.py puts empty ones in their place. A finished installation is found and used again.
# Two at once wait for each other; one that is broken off leaves nothing behind that is used.
#
#   TORCH_HOME_DIR   where to install; default ~/.cache/onnx-container/torch-<version>-<recipe>
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
VERSION=2.15.0
PYTHON=${PYTHON:-python3}
# Another recipe is another folder, so that checkouts of different age do not undo each other's.
STAMP=$VERSION-$(cat "$HERE"/setup-torch.sh "$HERE"/torch-requirements.txt "$HERE"/torch_stubs.py | cksum | cut -d ' ' -f 1)
HOME_DIR=${TORCH_HOME_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/onnx-container/torch-$STAMP}
MARKER=.made-by-setup-torch # whatever has it may be deleted
NO_NETWORK=75 # what it returns when a package cannot be fetched

say() { printf 'torch: %s\n' "$*" >&2; }

is_installed() { [[ $(cat "$HOME_DIR/.stamp" 2>/dev/null) == "$STAMP" ]]; }

install() {
    local pip packages
    if [[ -n $(ls -A "$HOME_DIR" 2>/dev/null) && ! -e $HOME_DIR/$MARKER ]]; then
        say "$HOME_DIR is not empty, and nothing that this made" && exit 1
    fi
    if [[ -e $HOME_DIR ]]; then
        mv "$HOME_DIR" "$HOME_DIR.removed.$$"
        rm -rf "$HOME_DIR.removed.$$"
    fi
    mkdir "$HOME_DIR"
    touch "$HOME_DIR/$MARKER"
    "$PYTHON" -m venv --without-pip "$HOME_DIR"
    pip=("$PYTHON" -m pip --python "$HOME_DIR/bin/python" install --quiet --disable-pip-version-check --no-cache-dir --retries 5)
    say "fetching torch $VERSION, 540 MB, and others"
    "${pip[@]}" --no-deps "torch==$VERSION" nvidia-cuda-runtime==13.2.86 nvidia-cuda-cupti==13.2.86 >&2 || exit "$NO_NETWORK"
    "${pip[@]}" --no-deps -r "$HERE/torch-requirements.txt" >&2 || exit "$NO_NETWORK"
    packages=$("$HOME_DIR/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$HOME_DIR/bin/python" "$HERE/torch_stubs.py" "$packages" >&2
    "$HOME_DIR/bin/python" -c 'import torch; assert not torch.cuda.is_available()' >&2
    printf '%s\n' "$STAMP" >"$HOME_DIR/.stamp"
}

case ${1:-} in
    '') ;;
    --installed) is_installed || { say 'not installed' && exit 1; } ;;
    *) say "unknown argument $1" && exit 2 ;;
esac
if ! is_installed; then
    [[ $(uname -sm) == 'Linux x86_64' ]] || { say "this is for Linux on x86_64; elsewhere: pip install torch==$VERSION" && exit 1; }
    mkdir -p "$(dirname "$HOME_DIR")"
    exec 9>"$HOME_DIR.lock"
    flock 9
    is_installed || install # by whoever held the lock
fi
printf '%s\n' "$HOME_DIR/bin/python"
