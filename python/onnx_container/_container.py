"""``Container``: a model and the large initializers behind its handles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from ._convert import Declared, initializer
from ._tensor import Tensor

if TYPE_CHECKING:
    import onnx

    Path = str | os.PathLike[str]
    Model = onnx.ModelProto | bytes | bytearray | memoryview
    Progress = Callable[[int, int], bool | None]

__all__ = ["Container", "Externalized", "Filled", "Inlined", "Saved", "check_model", "inline_functions", "recover"]


@dataclass(frozen=True)
class Inlined:
    """What an inlining of local functions did."""

    calls: int
    """The number of calls that were replaced, those inside of inlined bodies included."""
    removed: list[str]
    """The functions that were removed."""
    kept: list[tuple[str, str]]
    """The functions that were selected and could not be inlined, each with the reason."""
    imported: list[tuple[str, int]]
    """Operator sets that only functions imported and that the model now imports."""
    warnings: list[str]
    """What was lost."""


@dataclass(frozen=True)
class Saved:
    """What a save wrote."""

    model_bytes: bytes = field(repr=False)
    """The model as it was written."""
    files: list[tuple[str, int]]
    """The files that were written, with their lengths in bytes; the model comes last."""
    kept: list[tuple[str, int]]
    """Weights files that stay as they are, because the model refers to them."""
    nbytes: int
    """How many bytes were written."""
    unused: list[str]
    """Handles that no tensor of the model names; they are not written."""
    left_behind: list[os.PathLike[str]]
    """Weights files of the model that was replaced, which the new one does not need."""
    warnings: list[str]
    inlined: Inlined | None
    """What an inlining did, where one was asked for."""
    deduplicated: tuple[int, int] | None
    """The number of tensors that share the bytes of others, and how many bytes that saved, where it was asked for."""
    seconds: dict[str, float] = field(repr=False)
    """How long each part of the save took."""

    @property
    def model_proto(self) -> onnx.ModelProto:
        """The model as it was written, as a message of onnx."""
        return _parsed(self.model_bytes)


@dataclass(frozen=True)
class Filled:
    """What a fill did."""

    filled: int
    """The number of weights that were taken."""
    nbytes: int
    """Their length in bytes."""
    unused: list[str]
    """Weights that match no tensor."""
    missing: list[str]
    """External tensors that still have no weights."""
    kept: list[str]
    """Inline tensors that got no weights and keep their elements."""
    tied: list[tuple[str, str]]
    """Tensors that no weights name and that got those of another, which has the same bytes."""
    untied: list[tuple[str, str]]
    """Tensors that no longer have the bytes of a tensor that got weights."""


@dataclass(frozen=True)
class Externalized:
    """What was moved out of a model."""

    moved: int
    """The number of tensors."""
    nbytes: int
    """Their bytes."""
    kept: list[tuple[str, int, str]]
    """Tensors that stay in the model: name, bytes and the reason."""


def _parsed(model: Any) -> onnx.ModelProto:
    import onnx

    proto = onnx.ModelProto()
    proto.ParseFromString(model)
    return proto


def _serialized(model: Any) -> Any:
    """``model`` as bytes."""
    return model.SerializeToString() if hasattr(model, "SerializeToString") else model


def _load(
    mmap: bool = False,
    weights: bool = True,
    base_dir: Path | None = None,
    model_path: Path | None = None,
    paths: str = "model-dirs",
    limits: Mapping[str, int] | None = None,
    no_copy: bool | None = None,
    alignment: int | None = None,
    verify_digests: bool = False,
) -> dict[str, Any]:
    return {**locals(), "limits": list((limits or {}).items())}


def _inline(
    only: Iterable[str] | None = None,
    except_: Iterable[str] = (),
    max_nodes: int | None = None,
    refuse_conflicts: bool = False,
) -> dict[str, Any]:
    return {
        "only": None if only is None else list(only),
        "except": list(except_),
        "max_nodes": max_nodes,
        "refuse_conflicts": refuse_conflicts,
    }


def _save(
    files: str = "packed",
    *,
    max_shard_bytes: int | None = None,
    shard_names: str = "numbered",
    data_name: str | None = None,
    externalize: bool = False,
    threshold: int | None = None,
    alignment: int | None = None,
    alignment_large: int | None = None,
    dedup: bool = False,
    inline: bool | dict[str, Any] = False,
    digests: bool = False,
    checksums: bool = False,
    max_model_bytes: int | None = None,
    max_bytes_in_flight: int | None = None,
    sync: bool = True,
    direct_io: bool = True,
    overwrite: bool = True,
    protect: Iterable[Path] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    inline = _inline(**inline) if isinstance(inline, dict) else _inline() if inline else None
    return {**locals(), "inline": inline, "protect": list(protect)}


def _fill(
    rename: Mapping[str, str] | None = None,
    strip_prefix: str | None = None,
    ignore: Iterable[str] = (),
    partial: bool = False,
    strict: bool = False,
    tied: Literal["all", "this"] | None = None,
) -> dict[str, Any]:
    return {**locals(), "rename": list((rename or {}).items()), "ignore": list(ignore)}


class Container:
    """A model whose large tensors are stored beside it, by handle.

    External tensors of the model name a handle, such as ``#w``, for their location; the container maps handles to
    weights: :class:`Tensor`, an array, a torch tensor, a ``TensorProto``, bytes, or a callable that returns one of
    these when a save comes to it. It is a mapping from handles to tensors.

        container = Container(model)
        container["#w"] = array
        container.save("model.onnx")

    Threads may share a container: who reads or saves it has it as it was when the call began.
    """

    __slots__ = ("_core", "__weakref__")

    def __init__(self, model: Model | None = None, initializers: Mapping[str, Any] | None = None) -> None:
        """A container of ``model``, a ``ModelProto`` or its bytes, and of large initializers by handle."""
        self._core = _core.Container(b"" if model is None else _serialized(model))
        self.update(initializers or {})

    @classmethod
    def _of(cls, core: _core.Container) -> Container:
        container = cls.__new__(cls)
        container._core = core
        return container

    @classmethod
    def load(cls, path: Path, mmap: bool = True, **options: Any) -> Container:
        """The model at ``path`` with its weights, which are mapped (``mmap=True``) or read.

        A file that is mapped takes no memory and no time before it is used. No process may truncate or overwrite it
        meanwhile; saves of this package replace files, which is fine.

        Args:
            weights: False loads the structure alone; :meth:`attach` loads the weights later.
            base_dir: the folder that locations are relative to, when it is not that of the model.
            paths: where links to weights may lead: ``"strict"``, ``"model-dirs"`` (the default) or ``"trusted"``.
            limits: what an untrusted model may hold, by name, such as ``{"nodes": 100_000}``.
            no_copy: True refuses to copy tensors, False gives each memory of its own.
            alignment: of the addresses of tensors, in bytes.
            verify_digests: compares all weights with the digests that are stored with the model.

        Raises:
            Error: what is wrong with the model or its files.
        """
        return cls._of(_core.Container.load(path, _load(mmap, **options)))

    @classmethod
    def from_bytes(cls, model: bytes | bytearray | memoryview, mmap: bool = True, **options: Any) -> Container:
        """As :meth:`load`, for the bytes of a model. Weights are beside ``model_path``, or in ``base_dir``."""
        return cls._of(_core.Container.load_bytes(model, _load(mmap, **options)))

    def copy(self) -> Container:
        """A container that shares everything with this one until either is changed."""
        return self._of(self._core.copy())

    __copy__ = copy

    def __repr__(self) -> str:
        return f"<Container of {len(self)} large initializers>"

    # The model

    @property
    def model_bytes(self) -> bytes:
        """The model; its external tensors name handles."""
        return self._core.model_bytes()

    @model_bytes.setter
    def model_bytes(self, model: bytes | bytearray | memoryview) -> None:
        self._core.set_model_bytes(model)

    @property
    def model_proto(self) -> onnx.ModelProto:
        """A copy of the model as a message of onnx. Assign a message to change the model."""
        return _parsed(self.model_bytes)

    @model_proto.setter
    def model_proto(self, model: Model) -> None:
        self._core.set_model_bytes(_serialized(model))

    @property
    def warnings(self) -> list[str]:
        """What did not prevent a load, such as unknown keys of external data."""
        return self._core.warnings()

    # The large initializers

    def __len__(self) -> int:
        """The number of handles."""
        return len(self._core)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, handle: object) -> bool:
        return isinstance(handle, str) and self._core.get(handle) is not None

    def __getitem__(self, handle: str) -> Tensor:
        found = self._core.get(handle)
        if found is None:
            raise KeyError(handle)
        return Tensor(found, name=handle.removeprefix("#"))

    def __setitem__(self, handle: str, weights: Any) -> None:
        self._core.insert(handle, initializer(weights, self._declared().get(handle)))

    def __delitem__(self, handle: str) -> None:
        if not self._core.remove(handle):
            raise KeyError(handle)

    def get(self, handle: str, default: Any = None) -> Any:
        """The tensor behind ``handle``, or ``default``."""
        return self[handle] if handle in self else default

    def keys(self) -> list[str]:
        """The handles, sorted."""
        return self._core.handles()

    def values(self) -> list[Tensor]:
        """The large initializers, in the order of their handles."""
        return [self[handle] for handle in self.keys()]

    def items(self) -> list[tuple[str, Tensor]]:
        """Handles and large initializers."""
        return [(handle, self[handle]) for handle in self.keys()]

    def update(self, initializers: Mapping[str, Any]) -> None:
        """Puts large initializers behind their handles. An object that is given for several is one weight."""
        declared = self._declared() if initializers else {}
        converted: dict[tuple[int, Declared | None], _core.Initializer] = {}
        given = []
        for handle, weights in initializers.items():
            of = declared.get(handle)
            known = (id(weights), of)
            if known not in converted:
                converted[known] = initializer(weights, of)
            given.append((handle, converted[known]))
        self._core.insert_all(given)

    def add(self, name: str, weights: Any) -> str:
        """Adds an initializer called ``name`` to the main graph, and returns its handle."""
        return self._core.add(name, initializer(weights))

    def _declared(self) -> dict[str, Declared]:
        """What the model declares for the tensors behind its handles."""
        return {location: (dtype, tuple(dims)) for location, dtype, dims in self._core.declared()}

    # The tensors

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the model, wherever its elements are, by a name that no other has: its own, with the path of its
        scope before it.

        Raises:
            Error: elements cannot be read.
        """
        return {name: Tensor(found, name=name) for name, _, found in self._found()}

    def _found(self) -> Iterator[tuple[str, str | None, _core.Initializer]]:
        for name, handle, found in self._core.tensors():
            if isinstance(found, BaseException):
                raise found
            yield name, handle, found

    def tensor(self, name: str) -> Tensor:
        """The tensor called ``name``."""
        return Tensor(self._core.tensor(name), name=name)

    def replace(self, name: str, weights: Any, tied: Literal["all", "this"] = "all") -> None:
        """Other elements, of the same type and shape, for the tensor called ``name``: also for those that share its bytes,
        or for this one alone."""
        if tied not in ("all", "this"):
            raise ValueError("tied is neither 'all' nor 'this'")
        self._core.replace(name, initializer(weights), tied == "all")

    # Changes

    def attach(self, folder: Path, mmap: bool = True, **options: Any) -> None:
        """Loads the weights of a container that was loaded without, from ``folder``. Options are those of :meth:`load`."""
        self._core.attach(folder, _load(mmap, **options))

    def fill(self, weights: Mapping[str, Any], **options: Any) -> Filled:
        """Puts weights into the tensors of their names, such as those of a ``state_dict``.

        Args:
            rename: names of weights, and the tensors that they are for.
            strip_prefix: is left out of the names of weights.
            ignore: names of weights that are left out.
            partial: allows external tensors without weights.
            strict: refuses weights that match no tensor, and inline tensors of several elements that get none.
            tied: ``"all"`` gives weights to all tensors that share bytes, ``"this"`` to those alone that are named.

        Raises:
            Error: one for all weights that do not fit; the container is then unchanged.
        """
        given = [(name, initializer(it)) for name, it in weights.items()]
        return Filled(**self._core.fill(given, _fill(**options)))

    def attach_safetensors(self, path: Path, mmap: bool = True, **options: Any) -> Filled:
        """Puts the tensors of a safetensors file, or of the files of an index, into those of their names. Options are
        those of :meth:`fill`."""
        return Filled(**self._core.attach_safetensors(path, _load(mmap), _fill(**options)))

    def externalize(
        self, min_bytes: int | None = None, all_tensors: bool = False, attributes: bool = True
    ) -> Externalized:
        """Moves inline tensors of at least ``min_bytes`` (1024) out of the model, but for those that readers need in it, such
        as shapes: with ``all_tensors`` these too. Without ``attributes``, initializers alone."""
        return Externalized(*self._core.externalize(min_bytes, all_tensors, attributes))

    def embed(self) -> onnx.ModelProto:
        """The model with every tensor inline, as a message of onnx, which has less than 2 GiB."""
        return _parsed(self._core.embedded_bytes())

    def inline_functions(self, **options: Any) -> Inlined:
        """Puts the local functions of the model into its graphs.

        Args:
            only: inlines these alone: ``"domain::name"``, ``"domain::"`` or ``"domain::name:overload"``.
            except_: keeps these.
            max_nodes: refuses to make more nodes.
            refuse_conflicts: refuses functions that cannot be inlined; otherwise they are kept.
        """
        return Inlined(**self._core.inline_functions(_inline(**options)))

    def consolidate(
        self, alignment: int | None = None, threshold: int | None = None, typed_fields: bool = False
    ) -> _core.Bytes:
        """Puts all tensors of at least ``threshold`` bytes into one buffer, and returns it."""
        return self._core.consolidate(threshold, alignment, typed_fields)

    def cast(
        self,
        to: int,
        *,
        from_: int | None = None,
        min_bytes: int | None = None,
        except_: Iterable[str] = (),
        compute: bool = False,
        keep_io: bool = False,
    ) -> list[tuple[str, str]]:
        """Stores float weights as type ``to``, a :class:`DataType`. Returns those that stay as they are, with the
        reason."""
        options = {
            "from_": from_,
            "min_bytes": min_bytes,
            "except_": list(except_),
            "compute": compute,
            "keep_io": keep_io,
        }
        return self._core.cast(to, options)[3]

    # What it is

    def check(self) -> None:
        """Compares every external tensor with the weights behind its handle.

        Raises:
            Error: one for all that do not fit.
        """
        self._core.check()

    def digest(self) -> str:
        """``sha256:`` and the digest of model and weights: the same however they are stored."""
        return self._core.digest()[0]

    def tensor_digests(self) -> list[tuple[str, str]]:
        """The names of all tensors and the digest of each."""
        return self._core.digest()[1]

    def semantic_digest(self) -> str:
        """The digest of what the model computes: the same for models that differ in names and in the order of nodes."""
        return self._core.semantic_digest()

    def semantic_difference(self, other: Container) -> str | None:
        """Where two models that do not compute the same part; None if they do."""
        return self._core.semantic_difference(other._core)

    # Saving

    def save(self, path: Path, one_file: bool | None = None, **options: Any) -> Saved:
        """Writes the model to ``path`` and its weights beside it. What was there is replaced when all is written, or left as
        it is.

        Args:
            one_file: True writes one ``<model>.onnx.data``, False a ``.weight`` file for each tensor; the same as ``files``
                of ``"packed"``, the default, and ``"per-tensor"``.
            files: ``"packed"``, ``"per-tensor"``, ``"safetensors"``, ``"embedded"`` or ``"as-loaded"``.
            max_shard_bytes: the most bytes of one weights file; there are as many as it takes.
            shard_names: ``"numbered"`` or ``"transformers-js"``.
            data_name: of the weights file.
            externalize: moves inline tensors of at least ``threshold`` bytes out as well.
            alignment, alignment_large: of tensors in a file, and of those over 1 MiB, in bytes.
            dedup: writes tensors of equal bytes once.
            inline: True inlines local functions; or a dict of the options of :meth:`inline_functions`.
            digests: stores a digest with each tensor and with the model. checksums: that of each weights file.
            max_model_bytes: refuses a longer model file.
            max_bytes_in_flight: how many bytes of lazily produced weights are in memory at once.
            sync: False does not wait until the disk has the files.
            direct_io: False writes by the cache of the system.
            overwrite: False refuses to replace a model.
            protect: files that are not replaced.
            progress: is called with the bytes that are written, and with all that are to be; the save is cancelled
                when it returns False or raises, and leaves what was there.

        Raises:
            Error: nothing was replaced.
        """
        if one_file is not None:
            options.setdefault("files", "packed" if one_file else "per-tensor")
        return _saved(self._core.save(path, _save(**options)))

    def dry_run(self, path: Path, **options: Any) -> Saved:
        """What :meth:`save` would write; nothing is written, and no weights are read."""
        return _saved(self._core.dry_run(path, _save(**options)))

    def to_parts(self, **options: Any) -> tuple[_core.Bytes, dict[str, _core.Bytes]]:
        """The bytes of the model and of each weights file by name, as :meth:`save` would write them."""
        model, files = self._core.to_parts(_save(**options))
        return model, dict(files)

    # onnxruntime

    def session_options(self, options: Any = None) -> Any:
        """``onnxruntime.SessionOptions`` that have the weights, for a session of ``model_bytes``. See
        :meth:`inference_session`."""
        from ._onnxruntime import session_options

        return session_options(self, options)[0]

    def inference_session(self, sess_options: Any = None, **keywords: Any) -> Any:
        """An ``onnxruntime.InferenceSession`` of the model on the weights as they are in memory, or mapped: without a copy
        and without a file. Both live as long as the session. Keywords are those of ``InferenceSession``."""
        from ._onnxruntime import inference_session

        return inference_session(self, sess_options, **keywords)


def _saved(report: dict[str, Any]) -> Saved:
    inlined = report["inlined"]
    return Saved(**{**report, "inlined": None if inlined is None else Inlined(**inlined)})


def inline_functions(model: Model, **options: Any) -> tuple[bytes, Inlined]:
    """The bytes of ``model`` with its local functions in its graphs, and what was done. Options are those of
    :meth:`Container.inline_functions`."""
    done, report = _core.inline_functions(_serialized(model), _inline(**options))
    return done, Inlined(**report)


def check_model(
    path: Path, *, contents: bool = False, digests: bool = False, **options: Any
) -> list[tuple[str, _core.Error]]:
    """Every fault of the model at ``path``: ``"error"`` or ``"advice"``, and what it is. Options are those of
    :meth:`Container.load`.

    Args:
        contents: also reads elements that may have no meaning, such as BOOL that are neither 0 nor 1.
        digests: also compares all weights with the digests that are stored with them.
    """
    return _core.check_model(path, _load(**options), contents, digests)[1]


def recover(path: Path) -> tuple[list[Any], list[Any], int, list[str]]:
    """Completes or undoes what saves that were killed left in the folder ``path``, or of the model ``path``: the models that
    were finished, those that were undone, how many staging folders were removed, and what failed. Loads and saves do it
    for their model."""
    return _core.recover(path)


