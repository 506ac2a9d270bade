"""The three jobs of docs/jobs.md for Slurm, on a cluster of one node that is started here.

ONNX_CONTAINER_BIN is the command. It is killed while it writes a part, whose task is requeued.
Needs munged, slurmctld and slurmd, and to be root, as slurmd does.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

BINARY = Path(os.environ["ONNX_CONTAINER_BIN"]).absolute()
DOCS = Path(__file__).parents[2] / "docs" / "jobs.md"
SLOWEST = 120.0
PARTS = 64
# The part of a large tensor, so that there is time to kill its writer.
KILLED = 0

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmctldPort={controller}
SlurmdPort={node}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MailProg=/bin/true
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=10 OverSubscribe=FORCE:4
"""

# What tasks find as `onnx-container`: it counts the starts of each part, and kills the first writer
# of one.
WRAPPER = """#!/bin/sh
if [ "$1 $2" = "job write" ]; then
    echo x >> {folder}/starts-$4
    if [ "$4" = {killed} ] && [ -z "$SLURM_RESTART_COUNT" ]; then
        {binary} "$@" & writer=$!
        until ls .half.onnx.job-*/receipts/part-00000.lock; do :; done
        kill -KILL $writer
        ls .half.onnx.job-*/receipts > {folder}/receipts
        scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
        sleep 100
    fi
fi
exec {binary} "$@"
"""


def main() -> None:
    missing = [it for it in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(it) is None]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}")
    lines = documented()
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        cluster(Path(folder)) as environment,
    ):
        work = Path(folder) / "work"
        work.mkdir()
        make_model(work / "big.onnx")
        run(["bash", "-euc", lines], work, environment)
        wait_for_the_end(work, environment)
        compare(work, environment)
        check_tasks(Path(folder), work)
    print(f"{PARTS} parts written by Slurm, one of them by a requeued task: the model of `cast`")


def documented() -> str:
    """The block of docs/jobs.md after "Slurm, three jobs", with a cast."""
    block = re.search(r"^Slurm, three jobs.*?```sh\n(.*?)```", DOCS.read_text(), re.M | re.S)
    assert block, "docs/jobs.md has no lines for Slurm"
    lines = block[1].replace(f"--parts {PARTS}", f"--cast float16 --parts {PARTS}")
    assert lines.count("sbatch") == 3 and "--cast" in lines, lines
    return lines


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """A cluster whose files are all in `folder`; the environment in which its commands find it."""
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir()
    host = socket.gethostname().split(".")[0]
    controller, node = free_ports(2)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(folder=folder, host=host, controller=controller, node=node)
    )
    wrapper = folder / "bin" / "onnx-container"
    wrapper.write_text(WRAPPER.format(folder=folder, binary=BINARY, killed=KILLED))
    wrapper.chmod(0o755)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    environment = {
        **os.environ,
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{wrapper.parent}:{os.environ['PATH']}",
    }
    munge = [
        *("munged", "--foreground", "--force", f"--key-file={folder}/munge.key"),
        *(f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"),
        *(f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"),
    ]
    daemons = [munge, ["slurmctld", "-D", "-i"], ["slurmd", "-D", "-N", host]]
    running = []
    # munged wants folders that no other user can write into.
    folder.chmod(0o755)
    try:
        for daemon in daemons:
            with (folder / f"{daemon[0]}.said").open("w") as said:
                running.append(subprocess.Popen(daemon, env=environment, stdout=said, stderr=said))
            if daemon is munge:
                wait(lambda: (folder / "munge.socket").exists(), "munged does not start")
        wait(lambda: "idle" in ask(["sinfo", "-h", "-o", "%t"], environment), "no node is idle")
        yield environment
    except BaseException:
        print(*(it.read_text() for it in sorted(folder.glob("*.said"))), sep="\n")
        raise
    finally:
        # Tasks are no children of these processes.
        ask(["scancel", "--user=root"], environment)
        with contextlib.suppress(AssertionError):
            wait(lambda: left(environment) in ([], None), "tasks do not end", most=20)
        for process in reversed(running):
            process.terminate()
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for it in sockets:
            it.bind(("127.0.0.1", 0))
        return [it.getsockname()[1] for it in sockets]


def make_model(path: Path) -> None:
    """y = x times the sum of many weights, and z = x times a large one."""
    generator = np.random.default_rng(0)
    names = [f"w{index}" for index in range(80)]
    dims = {"large": (64, 1 << 17), **{name: (64, 64) for name in names}}
    weights = {it: generator.standard_normal(dims[it], dtype=np.float32) for it in dims}
    nodes = [
        helper.make_node("Sum", names, ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("MatMul", ["x", "large"], ["z"]),
    ]
    value = partial(helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", shape=[1, 64])],
        [value("y", shape=[1, 64]), value("z", shape=[1, 1 << 17])],
        [numpy_helper.from_array(weight, name) for name, weight in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data")


def wait_for_the_end(work: Path, environment: dict[str, str]) -> None:
    """Waits until no job is left. Slurm lets a requeued task wait for two minutes: not here."""

    def is_over() -> bool:
        jobs = left(environment)
        for job, reason in jobs or []:
            if reason == "BeginTime":
                ask(["scontrol", "update", f"JobId={job}", "StartTime=now"], environment)
        return jobs == []

    wait(is_over, "jobs do not end", lambda: f"{left(environment)} {said(work)}")
    assert (work / "half.onnx").exists(), said(work)


def left(environment: dict[str, str]) -> list[tuple[str, str]] | None:
    """The jobs that did not end, and the reasons why they wait; `None` where Slurm does not say."""
    command = ["squeue", "-h", "-r", "-o", "%A %r"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    return [(job, reason) for job, _, reason in lines] if done.returncode == 0 else None


def said(work: Path) -> str:
    return "".join(f"\n{it.name}: {it.read_text()}" for it in sorted(work.glob("slurm-*.out")))


def compare(work: Path, environment: dict[str, str]) -> None:
    run([BINARY, "cast", "big.onnx", "cast.onnx", "--to", "float16"], work, environment)
    models = ("half.onnx", "cast.onnx")
    job, cast = (run([BINARY, "digest", it], work, environment) for it in models)
    assert job.split()[0] == cast.split()[0] and job.startswith("sha256:"), f"{job}{cast}"
    jobs = [it.name for it in work.iterdir() if ".job" in it.name]
    assert jobs == ["half.job"], jobs


def check_tasks(folder: Path, work: Path) -> None:
    """Each part was written by one task, and that of the killed writer by the task's second run."""
    starts = [len((folder / f"starts-{part}").read_text().splitlines()) for part in range(PARTS)]
    assert starts == [1 + (part == KILLED) for part in range(PARTS)], starts
    receipt = f"part-{KILLED:05}.json"
    assert receipt not in (folder / "receipts").read_text(), "the writer was faster than its kill"
    [output] = work.glob(f"slurm-*_{KILLED}.out")
    assert f"wrote     part {KILLED}" in output.read_text(), said(work)


def run(command: list[object], work: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=work, env=environment, text=True, capture_output=True
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def ask(command: list[str], environment: dict[str, str]) -> str:
    """What a command of Slurm says, also while the cluster starts or ends."""
    return subprocess.run(command, env=environment, text=True, capture_output=True).stdout


def wait(
    is_done: Callable[[], bool], error: str, more: Callable[[], str] = str, most: float = SLOWEST
) -> None:
    end = time.monotonic() + most
    while not is_done():
        assert time.monotonic() < end, f"{error} {more()}"
        time.sleep(0.25)


if __name__ == "__main__":
    main()
