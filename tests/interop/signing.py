"""Signatures, both ways: the reference tool of OpenSSF Model Signing verifies ours, and the command verifies its.

Keys are made here, for all three curves, in every form that the tools read.
"""

import subprocess
import sys

import common
import onnx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from model_signing import hashing, signing, verifying
from onnx import TensorProto, helper

CURVES = ("SECP256R1", "SECP384R1", "SECP521R1")
FORMATS = ("PKCS8", "TraditionalOpenSSL")
# Digests of shards have names of its own there: without the form, only readers of the specification
# take them.
SHARDS = ("--shard-size=5000", "--shard-form=model-signing")
NAMES = ("encoder-é.onnx", "a.b.onnx")


def make_keys(folder, curve, form):
    """A key pair as PEM files: the private and the public one."""
    key, pem = ec.generate_private_key(getattr(ec, curve)()), serialization.Encoding.PEM
    form = getattr(serialization.PrivateFormat, form)
    private, public = folder / "key.pem", folder / "key.pub"
    private.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def make_model(folder, name):
    """A model with two weights files, one of them in a folder of its own."""
    folder.mkdir()
    (folder / "weights").mkdir()
    tensors = []
    for number, location in enumerate(("weights/w.bin", "weights.bin")):
        tensor = helper.make_tensor(f"w{number}", TensorProto.FLOAT, [3000], bytes([number + 1]) * 12000, raw=True)
        onnx.external_data_helper.set_external_data(tensor, location)
        tensor.ClearField("raw_data")
        (folder / location).write_bytes(bytes([number + 1]) * 12000)
        tensors.append(tensor)
    model = helper.make_model(helper.make_graph([], "g", [], [], tensors), ir_version=10)
    (folder / name).write_bytes(model.SerializeToString())
    return folder / name


def tool(*arguments):
    """Run the reference tool; whether it was content."""
    line = [sys.executable, "-m", "model_signing", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def theirs_verifies(model, signature, public, ours_by_shards, *options):
    """What the reference tool says of a signature on a folder. Its command verifies whole files only."""
    if not ours_by_shards:
        return tool("verify", "key", model, "--signature", signature, "--public_key", public, *options)
    try:
        config = verifying.Config().use_elliptic_key_verifier(public_key=public)
        config.verify(model, signature)
    except ValueError as error:
        return False, str(error)
    return True, ""


def ours(model, public, *options):
    """Whether the command verifies a signature."""
    return common.run("verify-signature", model, "--key", public, *options)


def flip(path):
    """Change a byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def we_sign(curve, form, name, shards) -> None:
    """Our signature, verified by the reference tool and by us, and refused by both when something changed."""
    with common.scratch() as scratch:
        private, public = make_keys(scratch, curve, form)
        folder = scratch / "m"
        model, signature = make_model(folder, name), folder / "model.sig"
        # Left out by the statement, which both take.
        (folder / "LICENSE").write_text("not signed", encoding="utf-8")
        common.must_run("sign", model, "--key", private, *(SHARDS if shards else []))
        content, said = theirs_verifies(folder, signature, public, shards)
        assert content, said
        common.must_run("verify-signature", model, "--key", public)
        (folder / "README.md").write_text("not signed", encoding="utf-8")
        content, said = theirs_verifies(folder, signature, public, shards)
        assert not content and "README.md" in said, said
        assert ours(model, public).returncode == 1
        common.must_run("verify-signature", model, "--key", public, "--ignore-unsigned-files")
        if not shards:
            content, said = theirs_verifies(folder, signature, public, False, "--ignore_unsigned_files")
            assert content, said
        (folder / "README.md").unlink()
        flip(folder / "weights" / "w.bin")
        content, said = theirs_verifies(folder, signature, public, shards)
        assert not content and "w.bin" in said, said
        done = ours(model, public)
        assert done.returncode == 1 and "weights/w.bin" in done.stdout, done.said


def they_sign(curve, form, name, shards) -> None:
    """The signature of the reference tool, verified by us, and refused when something changed."""
    with common.scratch() as scratch:
        private, public = make_keys(scratch, curve, form)
        folder = scratch / "m"
        model, signature = make_model(folder, name), folder / "model.sig"
        (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
        if shards:
            # Its ranges are in the order of numbers, of which texts have another.
            config = hashing.Config().use_shard_serialization(shard_size=700)
            config.set_ignored_paths(paths=[])
            signer = signing.Config().use_elliptic_key_signer(private_key=private).set_hashing_config(config)
            signer.sign(folder, signature)
        else:
            content, said = tool("sign", "key", folder, "--signature", signature, "--private_key", private)
            assert content, said
        for what in (model, folder):
            done = ours(what, public)
            assert done.returncode == 0 and "4 files" in done.stdout, done.said
        (folder / "new.txt").write_text("new", encoding="utf-8")
        done = ours(model, public)
        assert done.returncode == 1 and "new.txt" in done.stdout, done.said
        common.must_run("verify-signature", model, "--key", public, "--ignore-unsigned-files")
        (folder / "new.txt").unlink()
        flip(folder / "tokenizer.json")
        done = ours(model, public)
        assert done.returncode == 1 and "tokenizer.json" in done.stdout, done.said


def they_sign_a_file(curve, form) -> None:
    """A signature on a single file, which the reference tool calls `.`."""
    with common.scratch() as scratch:
        private, public = make_keys(scratch, curve, form)
        make_model(scratch / "m", "m.onnx")
        model, signature = scratch / "e.onnx", scratch / "e.sig"
        common.must_run("embed", scratch / "m" / "m.onnx", model)
        content, said = tool("sign", "key", model, "--signature", signature, "--private_key", private)
        assert content, said
        common.must_run("verify-signature", model, "--key", public, "--signature", signature)
        flip(model)
        assert ours(model, public, "--signature", signature).returncode == 1


def main() -> int:
    cases = [
        (curve, form, NAMES[shards], shards) for curve in CURVES for form in FORMATS for shards in (False, True)
    ]
    common.run_all("signatures of ours that the reference tool verifies", we_sign, cases)
    common.run_all("signatures of the reference tool that are verified", they_sign, cases)
    files = [(curve, FORMATS[0]) for curve in CURVES]
    common.run_all("signatures of the reference tool on one file", they_sign_a_file, files)
    common.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
