"""``sign`` and ``verify_signature``: signatures of models in the format of OpenSSF Model Signing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from . import _core, _options, _places, _progress

if TYPE_CHECKING:
    from ._options import Path, SignOptions, VerifyOptions

__all__ = ["Signed", "VerifiedSignature", "sign", "verify_signature"]


@dataclass(frozen=True)
class Signed:
    """What a signing wrote."""

    signature: os.PathLike[str]
    """The signature on files."""
    content_signature: os.PathLike[str] | None
    """The signature on content; None for a folder."""
    files: list[str]
    """The signed files, as paths beneath the folder of the model."""
    digest: str | None
    """``sha256:`` and the digest of the content, as ``Container.digest`` gives it; None for a folder."""
    key: str
    """The public key: the SHA-256 of its PEM, as signatures name it."""
    curve: str
    """``"P-256"``, ``"P-384"`` or ``"P-521"``."""
    unsigned_files: int
    """How many other files are in the folder."""
    warnings: list[str]
    """What was warned of."""


@dataclass(frozen=True)
class VerifiedSignature:
    """Why a model is the one that was signed: ``by_files``, ``by_content``, or both."""

    by_files: bool
    """Whether all files are as they were signed."""
    by_content: bool
    """Whether graph and weights are those that were signed, however they are stored."""
    signature: os.PathLike[str] | None
    """The signature on files."""
    content_signature: os.PathLike[str] | None
    """The signature on content."""
    digest: str | None
    """``sha256:`` and the digest of the content, where it was compared."""
    signed_model: str | None
    """What the model was called whose content was signed."""
    key: str
    """The public key: the SHA-256 of its PEM, as signatures name it."""
    curve: str
    """``"P-256"``, ``"P-384"`` or ``"P-521"``."""
    differing: list[tuple[str, str, str]]
    """Files of the model that were written anew, where it is verified by its content: the path, ``"changed"``, ``"missing"`` or
    ``"unsigned"``, and the reason."""
    left_out: list[str]
    """Files of the folder that are not signed, as the signature itself says."""
    ambiguous: str | None
    """Why other readers may take the file for another model than the one of the signed content."""


def sign(model_path: Path, *, private_key: Path | bytes, **options: Unpack[SignOptions]) -> Signed:
    """Signs the model at ``model_path``, or the files of a folder: ``model.sig`` lists the files with their SHA-256, in the
    format of OpenSSF Model Signing, and ``model.digest.sig`` has the digest of the content, which stays valid when the model is
    saved in other files. The files are replaced together.

    Args:
        private_key: the path of a PEM file, or the PEM as bytes: P-256, P-384 or P-521, not encrypted.
        signature: the signature to write, ``NAME.sig`` (``model.sig`` in the folder of the model).
        all_files: signs every file of the model's folder, not only those of the model.
        shard_size: signs files in pieces of so many bytes, which are hashed by all cores.
        shard_form: ``"spec"``, or ``"model-signing"``, the only form that the package of this name reads.
        ignore_stored_digests: signs a model even if it does not match the digests that are stored with it.
        sync: False does not wait until the disk has the signatures.
        overwrite: False refuses to replace a signature.
        mmap: False reads the files instead of mapping them.
        paths, limits: those of :meth:`Container.load`.
        progress: is called with the bytes that are hashed, and with all that are known to come; the work is cancelled when it
            returns False or raises. True shows a bar on stderr.

    Raises:
        Error: nothing was replaced.
    """
    with _progress.shown("sign", _options.sign(private_key, options)) as given:
        report = _core.sign(_path("sign", model_path), given)
    if nameless := report.pop("nameless_files"):
        report["warnings"].append(
            f"{nameless} files of the folder cannot be left out by name: verify_signature() needs ignore_unsigned_files=True"
        )
    for warning in report["warnings"]:
        _options.warn(f"sign(): {warning}")
    return Signed(**report)


def verify_signature(
    model_path: Path, *, public_key: Path | bytes, **options: Unpack[VerifyOptions]
) -> VerifiedSignature:
    """Verifies that the model at ``model_path``, or the folder, is the one that was signed: by its files, or by its content
    while all else that was signed is unchanged.

    Args:
        public_key: that of the signer, from elsewhere than the model: the path of a PEM file, or the PEM as bytes.
        signature: the signature (``model.sig`` in the folder of the model, or ``NAME.sig`` where only that is of ``NAME.onnx``);
            ``NAME.digest.sig`` beside it is verified too.
        ignore_unsigned_files: ignores files of the folder that were not signed, unless the model needs them.
        all_files: counts every unsigned file of the folder, even one that the signature lists as left out.
        require_files: every file has to match; a matching content is not enough.
        mmap: False reads the files instead of mapping them.
        paths, limits: those of :meth:`Container.load`.
        progress: is called with the bytes that are hashed, and with all that are known to come; the work is cancelled when it
            returns False or raises. True shows a bar on stderr.

    Raises:
        Error: the model is another one (``kind`` ``"NotVerified"``, with each differing file in ``related``), the signature is by
            another key (``"OtherKey"``), is missing (``"MissingFile"``), or cannot be read.
    """
    with _progress.shown("verify", _options.verify(public_key, options)) as given:
        return VerifiedSignature(**_core.verify_signature(_path("verify_signature", model_path), given))


def _path(function: str, path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{function}() takes the path of a model or of a folder, not {type(path).__name__}")
    _places.refuse_url(function, path, "Container.load(url).save(path) fetches it")
    return path
