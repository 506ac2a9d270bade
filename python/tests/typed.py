"""What type checkers see of the package: checked by mypy, and never run."""

import onnx_container
import onnx_container.ir
import onnx_container.ray
from onnx_container import Container, DataType, ModelContainer, Saved, Tensor


def saved(path: str) -> Saved:
    """Loads, looks and saves."""
    container: Container = Container.load(path, mmap=True, weights=True)
    tensor: Tensor = container.tensor("w")
    shape: tuple[int, ...] = tensor.shape
    assert len(shape) == 2 and isinstance(tensor.raw, memoryview)
    container["#w"] = bytes(tensor.nbytes)
    handles: list[str] = container.keys()
    declared: tuple[DataType, tuple[int, ...], str | None] = container.declared()["w"]
    assert handles and declared
    container.fill({"w": tensor}, strip_prefix="model.", ignore="other")
    container.cast("float16", except_=["w"])
    finished = onnx_container.recover(path).finished
    assert not finished
    try:
        return container.save(path, one_file=True, digests=True, progress=lambda done, total: done < total)
    except onnx_container.Error as error:
        kind: str = error.kind
        raise RuntimeError(kind) from error


def signed(path: str) -> str | None:
    """Signs and verifies."""
    made: onnx_container.Signed = onnx_container.sign(path, private_key="key.pem", all_files=True, shard_form="spec")
    verified = onnx_container.verify_signature(path, public_key=b"PEM", signature=made.signature)
    by_content: bool = verified.by_content
    return verified.digest if by_content else None


def written(path: str) -> str | None:
    """Plans a job, and runs it on Ray."""
    job = onnx_container.Job.rewrite(path, "s3://bucket/m.onnx", parts=4, cast="float16", keep=2, store_options={"a": 1})
    receipts: list[onnx_container.Receipt] = onnx_container.ray.run(job.reached_by(), commit=False, progress=True)
    committed: onnx_container.Committed = onnx_container.ray.run(job, weights=lambda name: bytes(4), memory=1 << 30)
    return committed.url if receipts else None


def looked(path: str, container: Container) -> float | None:
    """Looks at models without and with their elements."""
    summary: onnx_container.Summary = onnx_container.inspect(path)
    names: list[str] = [value.name for value in summary.inputs]
    stats: dict[str, onnx_container.TensorStats] = onnx_container.stats(container, names, mmap=False)
    difference: onnx_container.ModelDiff = onnx_container.diff(path, container, stats=True)
    nbytes: int = onnx_container.report(path, "page.html", stats=True, plan={"batch": 1})
    assert nbytes > 0
    return stats["w"].mean if difference.same and container.summary().parameters else None


def chosen(path: str) -> list[str]:
    """Names, sizes and ends."""
    with Container.load(path, limits={"memory": "1 GB"}) as container:
        names: list[str] = container.find(["*.norm", "*.bias"])
        shapes: dict[str, tuple[int, ...]] = {name: it.shape for name, it in container.tensors(names).items()}
        dtype: DataType = container.tensor("w").dtype
        exported = container.export_safetensors(path, names, max_shard_bytes="5GB", progress=True)
        container.save(path, max_shard_bytes="20MB", threshold=1024, externalize=True, progress=True)
        removed: int = container.remove("w", used=True)
    place: str | None = Tensor(b"", DataType.of("fp16"), (0,)).location
    with onnx_container.patch(onnx_ir=True):
        checked: onnx_container.Checked = onnx_container.check([path], strict=True, paths="strict")
    return [*exported.tied, str(shapes), str(dtype), str(removed), str(place), *(str(it.path) for it in checked.models)]


def stored(url: str, container: Container) -> list[str]:
    """Reads and publishes in stores."""
    loaded = Container.load(url, fetch=True, store_options={"aws_region": "eu-west-1", "max_retries": 3})
    place: str | None = loaded.url
    published: onnx_container.Published = container.publish(
        url, keep=3, if_present=loaded.e_tag or "refuse", digests=True, progress=lambda done, total: None
    )
    found: onnx_container.Sweep = onnx_container.sweep(url, older_than="12h", store=object())
    version: onnx_container.Published = onnx_container.rollback(url, onnx_container.versions(url)[0])
    assert onnx_container.probe(url).publishes and version.files[0].sha256 is None
    return [str(place), *(file.name for file in published.files if file.sent), *(it.url for it in found.swept)]


def mistyped(container: Container, other: ModelContainer, path: str) -> None:
    """Each line has an error that is found before anything runs: mypy says so where one is not."""
    container.save(path, fils="packed")  # type: ignore[call-arg]
    container.save(path, files="paked")  # type: ignore[arg-type]
    container.save(path, max_shard_bytes=2.5)  # type: ignore[arg-type]
    container.export_safetensors(path, max_bytes=3)  # type: ignore[call-arg]
    container.publish(path, kep=3)  # type: ignore[call-arg]
    onnx_container.publish(container, path, keep="all")  # type: ignore[arg-type]
    container.find(3)  # type: ignore[arg-type]
    Container.load(path, wieghts=False)  # type: ignore[call-arg]
    container.fill({}, strip=True)  # type: ignore[call-arg]
    container.inline_functions(only=3)  # type: ignore[arg-type]
    onnx_container.save_model(b"", path, digest=True)  # type: ignore[call-arg]
    onnx_container.sign(path)  # type: ignore[call-arg]
    onnx_container.sign(path, private_key=path, shard_form="other")  # type: ignore[arg-type]
    onnx_container.verify_signature(path, public_key=path, all_file=True)  # type: ignore[call-arg]
