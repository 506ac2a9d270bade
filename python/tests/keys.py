"""Keys for the tests."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
PEM = serialization.Encoding.PEM


def make_keys(folder: Path, name: str = "key", curve: str = "P-256") -> tuple[Path, Path]:
    """The files of a private and a public key."""
    key, private, public = ec.generate_private_key(CURVES[curve]), folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public
