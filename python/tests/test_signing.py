"""Signatures: what is signed here is verified by the command and by the reference package, and the other way round."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import onnx_container
import pytest
from keys import CURVES, make_keys
from onnx_container import Container, Error, Signed, VerifiedSignature, sign, verify_signature

SIGNED = ["m.onnx", "m.onnx.data", "model.digest.sig", "model.sig"]


def save(path: Path, change: float = 0) -> Path:
    """A model with its weights in a file beside it."""
    model, weights = models.matmul()
    path.parent.mkdir(exist_ok=True)
    Container(model, {handle: weight + change for handle, weight in weights.items()}).save(path)
    return path


def command(*arguments: Any) -> tuple[int, str]:
    """The exit code of the command, and what it printed."""
    line = [sys.executable, "-m", "onnx_container", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("curve", CURVES)
def test_the_command_verifies_what_is_signed_here_and_the_other_way_round(tmp_path: Path, curve: str) -> None:
    private, public = make_keys(tmp_path, curve=curve)
    model = save(tmp_path / "m" / "m.onnx")
    signed = sign(model, private_key=private)
    assert (signed.files, signed.curve, signed.unsigned_files, signed.warnings) == (["m.onnx", "m.onnx.data"], curve, 0, [])
    assert (signed.signature, signed.content_signature) == (model.parent / "model.sig", model.parent / "model.digest.sig")
    assert signed.digest == Container.load(model).digest()
    code, said = command("verify-signature", model, "--key", public)
    assert code == 0 and "verified  by files and content" in said, said
    before = [path.read_bytes() for path in (signed.signature, signed.content_signature)]  # type: ignore[union-attr]
    code, said = command("sign", model, "--key", private)
    assert code == 0, said
    # The same key signs the same model with the same bytes.
    assert before == [path.read_bytes() for path in (signed.signature, signed.content_signature)]  # type: ignore[union-attr]
    verified = verify_signature(model, public_key=public)
    assert (verified.by_files, verified.by_content, verified.differing) == (True, True, [])
    assert (verified.key, verified.curve, verified.digest) == (signed.key, curve, signed.digest)
    assert verified.signed_model == "m.onnx"


@pytest.mark.parametrize("options", [{}, {"all_files": True}, {"shard_size": 1000, "shard_form": "model-signing"}])
def test_the_reference_package_verifies_what_is_signed_here_and_the_other_way_round(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    reference = pytest.importorskip("model_signing")
    from model_signing import signing, verifying

    assert reference
    private, public = make_keys(tmp_path)
    model = save(tmp_path / "m" / "m.onnx")
    (model.parent / "README.md").write_text("read me")
    signed = sign(model, private_key=private, **options)
    check = verifying.Config().use_elliptic_key_verifier(public_key=public)
    check.verify(model.parent, signed.signature)
    (model.parent / "README.md").write_text("changed")
    if options.get("all_files"):
        with pytest.raises(ValueError):
            check.verify(model.parent, signed.signature)
    else:
        check.verify(model.parent, signed.signature)
    theirs = tmp_path / "theirs.sig"
    signing.Config().use_elliptic_key_signer(private_key=private).sign(model.parent, theirs)
    verified = verify_signature(model, public_key=public, signature=theirs)
    assert (verified.by_files, verified.by_content) == (True, False)
    model.with_name("m.onnx.data").write_bytes(b"")
    with pytest.raises(Error, match="was changed"):
        verify_signature(model, public_key=public, signature=theirs)


def test_a_model_that_is_stored_otherwise_is_verified_by_its_content(tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    model = save(tmp_path / "m" / "m.onnx")
    sign(model, private_key=private)
    Container.load(model, mmap=False).save(model, files="embedded")
    model.with_name("m.onnx.data").unlink()
    verified = verify_signature(model, public_key=public)
    assert (verified.by_files, verified.by_content) == (False, True)
    assert [(path, kind) for path, kind, _ in verified.differing] == [("m.onnx", "changed"), ("m.onnx.data", "missing")]
    with pytest.raises(Error, match="require_files=True, and") as caught:
        verify_signature(model, public_key=public, require_files=True)
    assert caught.value.kind == "NotVerified"


def tampered(model: Path) -> None:
    """One bit of the weights is another one."""
    data = model.with_name("m.onnx.data")
    elements = bytearray(data.read_bytes())
    elements[len(elements) // 2] ^= 1
    data.write_bytes(elements)


def added(model: Path) -> None:
    (model.parent / "evil.py").write_text("x")


CHANGES: list[tuple[str, Callable[[Path], Any], str, list[str]]] = [
    ("tampered weights", tampered, "`m.onnx.data` was changed; the content is not as signed", ["changed"]),
    ("no weights", lambda m: m.with_name("m.onnx.data").unlink(), "`m.onnx.data` was signed and is gone", ["missing"]),
    ("another model", lambda m: save(m, 1), "was changed; the content is not as signed", ["changed"]),
    ("another file", added, "`evil.py` was not signed (ignore_unsigned_files=True ignores it)", ["unsigned"]),
]


@pytest.mark.parametrize(("change", "text", "kinds"), [it[1:] for it in CHANGES], ids=[it[0] for it in CHANGES])
def test_another_model_is_an_error_that_lists_each_file(
    tmp_path: Path, change: Callable[[Path], Any], text: str, kinds: list[str]
) -> None:
    private, public = make_keys(tmp_path)
    model = save(tmp_path / "m" / "m.onnx")
    sign(model, private_key=private)
    change(model)
    with pytest.raises(Error) as caught:
        verify_signature(model, public_key=public)
    assert (caught.value.kind, caught.value.path) == ("NotVerified", str(model))
    assert text in caught.value.reason
    assert [error.reason.split(":")[0] for error in caught.value.related] == kinds
    assert command("verify-signature", model, "--key", public)[0] == 1


def test_what_is_missing_or_by_another_key_is_told(tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    other_private, other = make_keys(tmp_path, "other")
    model = save(tmp_path / "m" / "m.onnx")
    with pytest.raises(FileNotFoundError, match="no signature is here"):
        verify_signature(model, public_key=public)
    sign(model, private_key=private)
    before = [path.read_bytes() for path in sorted(model.parent.iterdir())]
    cases: list[tuple[Callable[[], Any], str, str]] = [
        (lambda: verify_signature(model, public_key=other), "OtherKey", "signed by another key"),
        (lambda: verify_signature(model, public_key=private), "InvalidArgument", "this is a private key"),
        (lambda: verify_signature(model, public_key=b"x"), "InvalidArgument", "this holds no public key"),
        (lambda: verify_signature(model, public_key=tmp_path / "none"), "MissingFile", "none"),
        (lambda: verify_signature(tmp_path / "none", public_key=public), "MissingFile", "none"),
        (lambda: verify_signature(model, public_key=public, all_files=True, ignore_unsigned_files=True), "InvalidArgument", "both"),
        (lambda: sign(model, private_key=public), "InvalidArgument", "signing takes the private one"),
        (lambda: sign(model, private_key=other_private), "AlreadyExists", "give another name with signature="),
        (lambda: sign(model, private_key=private, overwrite=False), "AlreadyExists", "exists already"),
        (lambda: sign(model, private_key=private, signature=private), "AlreadyExists", "belongs to the model or is read"),
        (lambda: sign(model, private_key=private, shard_form="spec"), "InvalidArgument", "no effect without a shard size"),
        (lambda: sign(model, private_key=private, limits={"tensors": 1}), "TooLarge", "tensors"),
    ]
    for call, kind, text in cases:
        with pytest.raises(Error, match=text) as caught:
            call()
        assert kind in {caught.value.kind, *(error.kind for error in caught.value.related)}, caught.value
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"private_key": 3}, TypeError, "private_key is the path of a PEM file, or the PEM as bytes"),
        ({"private_key": private, "shard_size": "1 big"}, ValueError, "a number of bytes"),
        ({"private_key": private, "shard_form": "x"}, ValueError, "'spec', 'model-signing'"),
        ({"private_key": private, "all_file": True}, TypeError, "did you mean 'all_files'"),
        ({"private_key": private, "paths": "all"}, ValueError, "'strict', 'model-dirs', 'trusted'"),
    ]
    for options, error, text in wrong:
        with pytest.raises(error, match=text):
            sign(model, **options)
    assert names(model.parent) == SIGNED
    assert before == [path.read_bytes() for path in sorted(model.parent.iterdir())]


def test_keys_are_paths_or_bytes_and_folders_are_signed_too(tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    model = save(tmp_path / "m" / "m.onnx")
    (model.parent / "README.md").write_text("read me")
    signed = sign(model.parent, private_key=private.read_bytes(), sync=False, mmap=False)
    assert isinstance(signed, Signed)
    assert (signed.files, signed.content_signature, signed.digest) == (["README.md", "m.onnx", "m.onnx.data"], None, None)
    verified = verify_signature(str(model.parent), public_key=public.read_bytes(), mmap=False)
    assert isinstance(verified, VerifiedSignature)
    assert (verified.by_files, verified.by_content, verified.signature) == (True, False, signed.signature)
    assert pickle.loads(pickle.dumps((signed, verified))) == (signed, verified)


def test_warnings_are_warned_of(tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    model = save(tmp_path / "m" / "m.onnx")
    (model.parent / "a[1].txt").write_text("")
    # A producer before another one, which counts.
    model.write_bytes(b"\x12\x01a\x12\x01b" + model.read_bytes())
    with pytest.warns(UserWarning) as told:
        signed = sign(model, private_key=private)
    assert [str(one.message).removeprefix("sign(): ") for one in told] == signed.warnings
    assert "verified by its content alone" in signed.warnings[0] and "ignore_unsigned_files=True" in signed.warnings[1]
    assert all(one.filename == __file__ for one in told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert verify_signature(model, public_key=public, ignore_unsigned_files=True).ambiguous


def test_progress_is_reported_and_ends_the_work(tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    model = save(tmp_path / "m" / "m.onnx")
    works: list[Callable[..., Any]] = [
        lambda **options: sign(model, private_key=private, **options),
        lambda **options: verify_signature(model, public_key=public, **options),
    ]
    for work in works:
        told: list[tuple[int, int]] = []
        work(progress=lambda done, total, told=told: told.append((done, total)))
        assert told == sorted(told) and told[-1][0] == told[-1][1] > model.with_name("m.onnx.data").stat().st_size
    before = [path.read_bytes() for path in sorted(model.parent.iterdir())]

    def fails(done: int, total: int) -> None:
        raise KeyError("mine")

    for work in works:
        with pytest.raises(Error, match="cancelled") as caught:
            work(progress=lambda done, total: False)
        assert caught.value.kind == "Cancelled"
        with pytest.raises(KeyError, match="mine"):
            work(progress=fails)
    assert before == [path.read_bytes() for path in sorted(model.parent.iterdir())]


def test_names_are_there() -> None:
    for name in ("sign", "verify_signature", "Signed", "VerifiedSignature"):
        assert name in onnx_container.__all__ and getattr(onnx_container, name).__doc__


def test_a_model_with_links_is_refused_with_the_call_that_helps(tmp_path: Path) -> None:
    private, _ = make_keys(tmp_path)
    model = save(tmp_path / "m" / "m.onnx")
    data = model.with_name("m.onnx.data").rename(model.with_name("blob"))
    model.with_name("m.onnx.data").symlink_to(data.name)
    with pytest.raises(Error, match=r"Container\.save\(\) writes the model without links"):
        sign(model, private_key=private)
