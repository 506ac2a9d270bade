"""Models in the layout of the Hugging Face cache: what onnxruntime opens, the command opens, and what onnx refuses, `--paths
strict` refuses.
"""

import hashlib
import os
import pathlib

import common
import corpus
import onnx


def put_in_cache(model: pathlib.Path, root: pathlib.Path) -> pathlib.Path:
    """Move the model and its weights file to blobs, and return the path of the link to the model."""
    snapshot, blobs = root / "models--a--b" / "snapshots" / "0" / "onnx", root / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in sorted(model.parent.iterdir()):
        if not file.is_file():
            continue
        with file.open("rb") as opened:
            blob = blobs / hashlib.file_digest(opened, "sha256").hexdigest()
        file.rename(blob)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot / model.name


def runs_in_cache(model: corpus.Model, path: pathlib.Path) -> None:
    """onnxruntime computes the same of the links, except for tensors in nodes of subgraphs, which onnx's checker looks at."""
    if model.refused:
        return
    try:
        found = corpus.outputs(model, path)
    except Exception as error:  # noqa: BLE001 (onnxruntime's are not exported)
        assert "but it is a symbolic link" in str(error), error
        print(f"onnxruntime refuses links of attributes in subgraphs: {model}")
        return
    assert found == corpus.outputs(model, model.path)


def opens(model: corpus.Model) -> None:
    """One model of the corpus, packed and put in a cache."""
    with common.scratch() as folder:
        packed = folder / "packed"
        packed.mkdir()
        path = packed / "model.onnx"
        common.must_run("pack", model.path, path, "--min-bytes=16", "--data-name=model.onnx_data")
        if not (packed / "model.onnx_data").exists():
            return
        digest = common.must_run("digest", path).stdout.split()[0]
        path = put_in_cache(path, folder)
        runs_in_cache(model, path)
        common.must_run("check", path)
        common.must_run("check", path, "--digests")
        assert common.must_run("digest", path).stdout.split()[0] == digest
        again = folder / "again.onnx"
        common.must_run("pack", path, again)
        assert common.must_run("digest", again).stdout.split()[0] == digest

        refused = common.run("check", path, "--paths", "strict")
        assert refused.returncode in (1, 2) and "--paths model-dirs" in refused.said, refused.said
        try:
            onnx.load(path)
        except (onnx.checker.ValidationError, FileNotFoundError, ValueError, RuntimeError):
            pass
        else:
            raise AssertionError("onnx reads the cache now: `--paths strict` is stricter than it")

        # A link from the snapshot to anywhere else.
        weights = path.parent / "model.onnx_data"
        weights.resolve().rename(folder / "elsewhere")
        weights.unlink()
        weights.symlink_to(folder / "elsewhere")
        refused = common.run("check", path)
        assert refused.returncode in (1, 2) and "--paths trusted" in refused.said, refused.said
        common.must_run("check", path, "--paths", "trusted")


def main() -> None:
    """All real models."""
    common.run_all("models in a cache", opens, [(model,) for model in corpus.models()])
    common.finish()


if __name__ == "__main__":
    main()
