#!/usr/bin/env python3
"""Makes what a release consists of; .github/workflows/release.yml and docs/releasing.md use it.

    scripts/release.py archive [TARGET]     the command with its pages and completions, packed
    scripts/release.py wheel [TARGET]       the Python package; `--interpreter` for another ABI
    scripts/release.py sdist                the Python package as source
    scripts/release.py crates               every crate, packed and built from its package
    scripts/release.py sbom                 what the command is built from, as CycloneDX
    scripts/release.py reproduce            two builds in two folders have the same bytes
    scripts/release.py version [X.Y.Z]      print the version, or change it everywhere
    scripts/release.py check TAG            the tag, the crates and the changelog name one version

Files go to target/release-files, or to the folder after `--out`. TARGET is a triple, by default
that of this machine. Linux is linked by zig, with the C library of 2014 or with musl. The tools
for that are those of scripts/release-requirements.txt.
"""

import argparse
import base64
import functools
import hashlib
import io
import json
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = "onnx-container"
# The oldest C library of systems that are still used.
GLIBC = "2.17"
# Levels that compile in a third of the time.
QUICK = "scripts/quick-levels.toml"
ONE_UNIT = ["onnx-container", "onnx-container-proto"]
SHELLS = {
    "bash": f"{COMMAND}.bash",
    "fish": f"{COMMAND}.fish",
    "powershell": f"_{COMMAND}.ps1",
    "zsh": f"_{COMMAND}",
}
DOCUMENTS = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"]
# The report's script, which is in the command.
HIERARCHY = "report/page/d3-hierarchy.LICENSE"
LICENSES = "LICENSES-of-dependencies"
LICENSE_NAME = re.compile(r"LICEN[SC]E|COPYING|NOTICE|COPYRIGHT", re.I)


def run(*command, **options):
    """Run it in the root, and print it first."""
    words = [str(word) for word in command]
    print("+", shlex.join(words), file=sys.stderr, flush=True)
    options.setdefault("cwd", ROOT)
    return subprocess.run(words, check=True, **options)


def output(*command, **options):
    """What it prints."""
    return run(*command, stdout=subprocess.PIPE, text=True, **options).stdout


@functools.cache
def host():
    return re.search(r"^host: (.*)$", output("rustc", "-vV"), re.M)[1]


@functools.cache
def epoch():
    """The time of every file in a release: that of the commit."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct"))


def target_folder():
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()


def build_environment(target):
    """Paths of this machine are replaced in what is built, and times are that of the commit."""
    cargo_home = os.environ.get("CARGO_HOME") or Path.home() / ".cargo"
    # The last one that fits is taken.
    paths = {ROOT: "/source", target_folder(): "/source/target", cargo_home: "/cargo"}
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(epoch()))
    flags = [f"--remap-path-prefix={path}={name}" for path, name in paths.items()]
    environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(flags)
    if "msvc" not in target:
        flags = [f"-ffile-prefix-map={path}={name}" for path, name in paths.items()]
        environment["CFLAGS"] = " ".join([environment.get("CFLAGS", ""), *flags]).strip()
    return environment


def cargo_metadata(*options):
    """The packages of the lock file."""
    return json.loads(output("cargo", "metadata", "--locked", "--format-version", "1", *options))


def levels(options):
    """The profile for Cargo and for maturin."""
    if options.quick:
        return ["--release", "--config", QUICK]
    # One unit each: slower to compile, and faster code.
    units = [f"profile.release.package.{package}.codegen-units=1" for package in ONE_UNIT]
    return ["--release", *(word for unit in units for word in ("--config", unit))]


# Versions


def manifest():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())


def version():
    return manifest()["workspace"]["package"]["version"]


def set_version(options):
    """The version of the crates, and that by which they ask for each other."""
    if not options.version:
        print(version())
        return
    if not re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?", options.version):
        sys.exit(f"{options.version} is no version: it has to look like 1.2.3 or 1.2.3-rc.1")
    path, old = ROOT / "Cargo.toml", re.escape(version())
    text, own = path.read_text(), f'version = "{options.version}"'
    text = re.sub(rf'^version = "{old}"', own, text, flags=re.M)
    text = re.sub(rf'(\{{ path = .*version = "=?){old}"', rf'\g<1>{options.version}"', text)
    path.write_text(text)
    for workspace in ["Cargo.toml", "fuzz/Cargo.toml"]:
        run("cargo", "update", "--workspace", "--offline", "--manifest-path", workspace)


def check_version(options):
    """What has to be true before anything is published."""
    faults, number = [], version()
    if options.tag != f"v{number}":
        faults.append(f"the tag is {options.tag}, and Cargo.toml says {number}")
    heading = f"\n## {number}\n"
    if heading not in (ROOT / "CHANGELOG.md").read_text():
        faults.append(f"CHANGELOG.md has no heading `{heading.strip()}` without `(unreleased)`")
    for package in cargo_metadata("--no-deps")["packages"]:
        if package["publish"] != [] and not package["repository"]:
            faults.append(f"the crate {package['name']} has no `repository`")
    if faults:
        sys.exit("Not ready for a release:\n" + "\n".join(f"  {fault}" for fault in faults))
    print(f"ready: {number}")


# Files


def write(path, data):
    """The file, and its SHA-256 beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    (path.parent / f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")
    print(f"{digest}  {len(data):>10}  {path.name}")


def tar_xz(folder, members):
    """A tar of bytes by name: sorted, of no owner, with one time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (data, mode) in sorted(members.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), mode, epoch()
            archive.addfile(entry, io.BytesIO(data))
    return lzma.compress(packed.getvalue(), preset=9)


def zipped(folder, members):
    """The same as a zip, whose times have no zone."""
    packed, when = io.BytesIO(), time.gmtime(epoch())[:6]
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (data, mode) in sorted(members.items()):
            entry = zipfile.ZipInfo(f"{folder}/{name}", when)
            entry.create_system, entry.external_attr = 3, (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return packed.getvalue()


# The command


def build_command(target, options):
    """The program's path."""
    linux = "-linux-" in target
    build = ["cargo", "zigbuild" if linux else "build", "--locked", *levels(options)]
    build += ["--package", "onnx-container-cli", "--bin", COMMAND]
    build += ["--target", f"{target}.{GLIBC}" if target.endswith("-gnu") and linux else target]
    run(*build, env=build_environment(target))
    suffix = ".exe" if "windows" in target else ""
    return target_folder() / target / "release" / f"{COMMAND}{suffix}"


def runner(target):
    """What runs programs of the target here: cargo's own variable, or nothing for the host."""
    name = f"CARGO_TARGET_{target.upper().replace('-', '_')}_RUNNER"
    return shlex.split(os.environ.get(name, ""))


def pages_and_completions(program, target):
    """What the program says of itself."""
    call = [*runner(target), program]
    said = output(*call, "--version")
    if version() not in said:
        sys.exit(f"{program} says that it is {said.strip()}, not {version()}")
    members = {}
    with tempfile.TemporaryDirectory() as folder:
        run(*call, "man", folder)
        for page in Path(folder).iterdir():
            members[f"man/man1/{page.name}"] = (page.read_bytes(), 0o644)
    for shell, name in SHELLS.items():
        script = run(*call, "completions", shell, stdout=subprocess.PIPE).stdout
        members[f"completions/{name}"] = (script, 0o644)
    return members


def licenses_of_dependencies(package, target):
    """What is in it, and each licence text once, with the crates that it is of."""
    tree = ["cargo", "tree", "--locked", "--package", package, "--edges", "normal"]
    tree += ["--target", target, "--prefix", "none", "--format", "{p}"]
    names = {tuple(line.split()[:2]) for line in output(*tree).splitlines() if line}
    metadata = cargo_metadata()
    crates, texts = [], {}
    for one in sorted(metadata["packages"], key=lambda one: (one["name"], one["version"])):
        if (one["name"], f"v{one['version']}") not in names or one["source"] is None:
            continue
        crates.append(f"{one['name']} {one['version']}: {one['license']}")
        for path in sorted(Path(one["manifest_path"]).parent.iterdir()):
            if LICENSE_NAME.match(path.name) and path.is_file():
                text = path.read_text(errors="replace").replace("\r\n", "\n").strip()
                texts.setdefault(text, []).append(one["name"])
    parts = ["\n".join(crates)]
    parts += ["=" * 80 + "\n" + ", ".join(of) + ":\n\n" + text for text, of in texts.items()]
    return ("\n\n".join(parts) + "\n").encode()


def make_archive(options):
    target = options.target or host()
    program = build_command(target, options)
    members = pages_and_completions(program, target)
    members[program.name] = (program.read_bytes(), 0o755)
    for name in DOCUMENTS:
        members[name] = ((ROOT / name).read_bytes(), 0o644)
    members["LICENSE-d3-hierarchy"] = ((ROOT / HIERARCHY).read_bytes(), 0o644)
    licenses = licenses_of_dependencies("onnx-container-cli", target)
    members[LICENSES] = (licenses, 0o644)
    folder = f"{COMMAND}-{version()}-{target}"
    if "windows" in target:
        write(options.out / f"{folder}.zip", zipped(folder, members))
    else:
        write(options.out / f"{folder}.tar.xz", tar_xz(folder, members))


# The Python package


def make_wheel(options):
    target = options.target or host()
    build = ["maturin", "build", "--locked", "--manifest-path", "python/Cargo.toml"]
    # Of another system there is no interpreter to ask, and its name is enough.
    own = sys.executable if target == host() else "python3.11"
    build += ["--target", target, "--interpreter", options.interpreter or own, *levels(options)]
    if "-linux-" in target:
        musl = "musl" in target
        build += ["--zig", "--compatibility", "musllinux_1_2" if musl else "manylinux2014"]
    # maturin takes licences from beside its manifest.
    licenses = ROOT / "python" / LICENSES
    licenses.write_bytes(licenses_of_dependencies("onnx-container-python", target))
    try:
        environment = build_environment(target)
        keep_new(options.out, build, environment, "*.whl", without_own_paths)
    finally:
        licenses.unlink()


def make_sdist(options):
    build = ["maturin", "sdist", "--manifest-path", "python/Cargo.toml"]
    keep_new(options.out, build, build_environment(host()), "*.tar.gz")


def keep_new(out, build, environment, pattern, change=bytes):
    """What maturin made and `change` makes of it, with its SHA-256."""
    with tempfile.TemporaryDirectory() as folder:
        run(*build, "--out", folder, env=environment)
        (made,) = Path(folder).glob(pattern)
        write(out / made.name, change(made.read_bytes()))


def without_own_paths(wheel):
    """The wheel with the folder of the sources replaced in its SBOM, where maturin names it."""
    changed, digests = io.BytesIO(), {}
    with zipfile.ZipFile(io.BytesIO(wheel)) as old, zipfile.ZipFile(changed, "w") as new:
        # The list of the files is the last of them.
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".cyclonedx.json"):
                data = data.replace(ROOT.as_uri().encode(), b"file:///source")
                if data.count(b"file:///") != data.count(b"file:///source"):
                    sys.exit(f"{entry.filename} names another folder than {ROOT}.")
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                digests[entry.filename] = f"{entry.filename},sha256={digest.decode()},{len(data)}"
            elif entry.filename.endswith(".dist-info/RECORD"):
                lines = [line.split(",") for line in data.decode().splitlines()]
                lines = [digests.pop(line[0], ",".join(line)) for line in lines]
                data = "".join(f"{line}\n" for line in lines).encode()
            new.writestr(entry, data, compresslevel=9)
    if digests:
        sys.exit(f"The wheel does not list {', '.join(digests)}.")
    return changed.getvalue()


# Crates and what they are made of


def packages():
    """The names of the crates that are published."""
    metadata = cargo_metadata("--no-deps")
    return [one["name"] for one in metadata["packages"] if one["publish"] is None]


def make_crates(options):
    """Cargo packs each crate after those that it needs, and builds it from its package."""
    names = packages()
    chosen = [word for name in names for word in ("--package", name)]
    if options.publish:
        run("cargo", "publish", "--locked", *chosen)
        return
    run("cargo", "package", "--locked", *chosen)
    for name in names:
        packed = target_folder() / "package" / f"{name}-{version()}.crate"
        write(options.out / packed.name, packed.read_bytes())


def make_sbom(options):
    """Of the command with its default features, for all systems."""
    name = f"{COMMAND}.cdx"
    with tempfile.TemporaryDirectory() as folder:
        # The tool writes beside every manifest.
        clone = Path(folder) / "source"
        run("git", "clone", "--quiet", ROOT, clone)
        sbom = ["cargo", "cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5"]
        sbom += [
            "--target",
            "all",
            "--manifest-path",
            "cli/Cargo.toml",
            "--override-filename",
            name,
        ]
        run(*sbom, cwd=clone, env=build_environment(host()))
        text = (clone / "cli" / f"{name}.json").read_text().replace(str(clone), "/source")
        write(options.out / f"{name}.json", text.encode())


# Two builds

CLONES = ("a", "another-folder")


def without_network(command):
    """The command in a namespace that has no network, where the system lets us make one."""
    namespace = ["unshare", "--map-root-user", "--net"]
    tried = shutil.which("unshare") and subprocess.run([*namespace, "true"], capture_output=True)
    if tried and tried.returncode == 0:
        return [*namespace, *command]
    reason = "builds could reach the network, which cannot be taken away here"
    if os.environ.get("CI") == "true":
        sys.exit(reason)
    print(f"!!! SKIPPED in part: {reason}")
    return command


def build_in(clone, options):
    """Build in the clone, with a folder of registries of its own name."""
    run("git", "clone", "--quiet", "--no-local", ROOT, clone)
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo").resolve()
    own_home = clone.parent / f"cargo-of-{clone.name}"
    own_home.mkdir()
    for entry in home.iterdir():
        (own_home / entry.name).symlink_to(entry)
    environment = dict(os.environ, CARGO_HOME=str(own_home), CARGO_NET_OFFLINE="true")
    environment.pop("CARGO_TARGET_DIR", None)
    release = [sys.executable, "scripts/release.py", *(["--quick"] if options.quick else [])]
    release += ["--out", str(clone.parent / f"from-{clone.name}")]
    target = [options.target] if options.target else []
    for part in (["sdist"], ["archive", *target], ["wheel", *target]):
        run(*without_network([*release, *part]), cwd=clone, env=environment)
    shutil.rmtree(clone / "target")


def digests_in(folder):
    """SHA-256 by name, of the files themselves."""
    files = [path for path in folder.iterdir() if path.suffix != ".sha256"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def reproduce(options):
    """Build the commit twice, and compare each file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("cargo", "fetch", "--locked")
        with ThreadPoolExecutor() as both:
            list(both.map(lambda clone: build_in(folder / clone, options), CLONES))
        first, second = (digests_in(folder / f"from-{clone}") for clone in CLONES)
        same = first == second and len(first) == 3
        for name in sorted(first | second):
            digests = first.get(name, "nothing"), second.get(name, "nothing")
            print(*digests, "same" if digests[0] == digests[1] else "DIFFERENT", name)
        if options.keep:
            shutil.copytree(folder, options.keep, symlinks=True, dirs_exist_ok=True)
    if not same:
        sys.exit("The two builds differ. With `--keep FOLDER` their files are there to compare.")


def arguments():
    """The command line."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--out", type=Path, default=target_folder() / "release-files")
    parser.add_argument("--quick", action="store_true", help=f"by the levels of {QUICK}, for tests")
    parts = parser.add_subparsers(dest="part", required=True)

    def part(name, function, *of_target):
        made = parts.add_parser(name)
        made.set_defaults(function=function)
        if of_target:
            made.add_argument("target", nargs="?", metavar="TARGET")
        return made

    part("archive", make_archive, True)
    part("wheel", make_wheel, True).add_argument("--interpreter")
    part("sdist", make_sdist)
    part("crates", make_crates).add_argument("--publish", action="store_true", help="on crates.io")
    part("sbom", make_sbom)
    part("reproduce", reproduce, True).add_argument("--keep", type=Path, metavar="FOLDER")
    part("version", set_version).add_argument("version", nargs="?")
    part("check", check_version).add_argument("tag")
    options = parser.parse_args()
    options.out = options.out.resolve()
    return options


if __name__ == "__main__":
    chosen = arguments()
    chosen.function(chosen)
