"""``Container``: a model and the large initializers behind its handles."""

from __future__ import annotations

import copy
import difflib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from . import _core, _log, _options, _origin, _patterns, _places, _progress, _stores, _values
from ._convert import arrays, initializer
from ._dtypes import DataType
from ._looks import Summary, ValueSummary, inspect, summary_of
from ._tensor import Tensor

if TYPE_CHECKING:
    import onnx
    import onnxruntime
    import torch
    from typing_extensions import Self

    from ._options import (
        CastOptions,
        ExportOptions,
        FillOptions,
        InlineOptions,
        LoadOptions,
        Path,
        PublishOptions,
        SaveOptions,
        Size,
    )

    Model = onnx.ModelProto | bytes | bytearray | memoryview

__all__ = [
    "Attached",
    "CastReport",
    "Container",
    "Exported",
    "Externalized",
    "Filled",
    "Inlined",
    "Recovered",
    "Saved",
    "Stripped",
    "check_model",
    "findings",
    "inline_functions",
    "merge",
    "recover",
]


class _Metadata(MutableMapping[str, str]):
    """The metadata of the model of a container, which it changes."""

    def __init__(self, core: _core.Container) -> None:
        self._core = core
        self._known: tuple[int, dict[str, str]] | None = None

    def _now(self) -> dict[str, str]:
        """Keys and values, which are asked for once for each state of the container. Of a key that the model has twice,
        the last value counts, as it does in onnxruntime."""
        changes = self._core.changes()
        if self._known is None or self._known[0] != changes or self._core.is_closed():
            self._known = changes, dict(_core.metadata(self._core))
        return self._known[1]

    def __getitem__(self, key: str) -> str:
        return self._now()[key]

    def __setitem__(self, key: str, value: str) -> None:
        _core.set_metadata(self._core, key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        _core.remove_metadata(self._core, key)

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._now()))

    def __len__(self) -> int:
        return len(self._now())

    def __repr__(self) -> str:
        return repr(self._now())


@dataclass(frozen=True)
class Stripped:
    """What :meth:`Container.strip` did."""

    stripped: int
    """The number of tensors without elements."""
    nbytes: int
    """The length of these elements in bytes, those of tied tensors once."""
    small: int
    """The number of tensors below ``min_bytes``, which keep their elements; without those that readers need."""
    small_nbytes: int
    """The length of the elements of the ``small`` tensors in bytes."""
    kept: list[tuple[str, int, str]]
    """Tensors that stay in the model although they are large enough: name, bytes, reason."""
    operands: list[str]
    """Stripped tensors that shape inference reads: they were external, and not loaded."""


@dataclass(frozen=True)
class Attached:
    """What :meth:`Container.attach_model` did."""

    attached: int
    """The number of tensors that have their elements again."""
    nbytes: int
    """The length of these elements in bytes, those of tied tensors once."""
    differing: list[str]
    """Tensors that both models have with different elements, of a model that was edited: it keeps its own."""
    unused: list[str]
    """Tensors that only the other model has, of a model that was edited."""
    compared: int
    """The number of tensors that were compared with the digests that are stored with the stripped model."""


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
    """What does not prevent the save, such as tensors that some readers refuse."""
    inlined: Inlined | None
    """What an inlining did, where one was asked for."""
    deduplicated: tuple[int, int] | None
    """The number of tensors that share the bytes of others, and how many bytes that saved, where it was asked for."""
    unchanged: bool
    """Whether nothing was written, because all files are there as they would be written."""
    seconds: dict[str, float] = field(repr=False)
    """How long each part of the save took."""
    _model: _core.SavedModel = field(repr=False, compare=False)

    @property
    def _has_weights_files(self) -> bool:
        return len(self.files) > 1 or bool(self.kept)

    @property
    def model_bytes(self) -> bytes:
        """The model as it was written."""
        return self._model.encode()

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
    own: list[str]
    """External tensors that got no weights and keep those that they had."""
    missing: list[str]
    """External tensors that still have no weights."""
    kept: list[str]
    """Inline tensors that got no weights and keep their elements."""
    idle_rules: list[str]
    """Options that apply to no weights, such as ``ignore "w"``: a name or a prefix may be misspelled."""
    tied: list[tuple[str, str]]
    """Tensors that no weights name and that got those of another, which has the same bytes."""
    untied: list[tuple[str, str]]
    """Tensors that no longer have the bytes of a tensor that got weights."""


@dataclass(frozen=True)
class Exported:
    """What :meth:`Container.export_safetensors` wrote."""

    files: list[tuple[str, int]]
    """The files, with their lengths in bytes; the index of several comes last."""
    nbytes: int
    """Their length in bytes."""
    tensors: int
    """The number of tensors that have an entry."""
    as_bytes: list[str]
    """Tensors that are written as bytes, because readers do not have their type."""
    tied: dict[str, str]
    """Tensors without an entry of their own, and the entry that has their bytes."""
    renamed: dict[str, str]
    """Entries that are not called as their tensor is, because another one is: entry and tensor."""
    left_out: list[str]
    """Inline tensors, which are in no file."""
    unused: list[str]
    """Handles that no tensor of the model names; they are not written."""
    left_behind: list[os.PathLike[str]]
    """Files of an earlier export that this one did not replace."""
    warnings: list[str]
    """What did not prevent the export, such as tensors that are longer than a shard."""


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
    proto.ParseFromString(model if isinstance(model, bytes) else bytes(model))
    return proto


def _ir_model(model: Any) -> Any:
    """The ``onnx_ir.Model`` that ``model`` is, or that it has, as a program of ``torch.onnx`` does."""
    # Of the class: a program makes its message anew each time it is asked.
    inner = model.model if hasattr(type(model), "model_proto") and hasattr(model, "model") else model
    return inner if hasattr(inner, "graphs") and hasattr(inner, "opset_imports") else None


def _is_model(message: Any) -> bool:
    """Whether this is a ``ModelProto``, of onnx or of another package, and no message of another kind."""
    return hasattr(message, "SerializeToString") and all(hasattr(message, name) for name in ("graph", "opset_import"))


def _serialized(model: Any) -> Any:
    """``model`` as bytes."""
    if _is_model(model):
        return model.SerializeToString()
    if isinstance(model, (bytes, bytearray, memoryview, _core.Bytes)):
        return model
    hint = ": Container.load(path) loads a file" if isinstance(model, (str, os.PathLike)) else ""
    raise TypeError(f"a model is a ModelProto or its bytes, not {type(model).__name__}{hint}")


@dataclass(frozen=True)
class CastReport:
    """What a cast did."""

    cast: int
    """The number of weights that are stored as the other type."""
    bytes_before: int
    """Their length in bytes before."""
    bytes_after: int
    """Their length in bytes now."""
    kept: list[tuple[str, str]]
    """Weights that stay as they are, with the reason."""
    _infinite: _core.Infinite = field(repr=False, compare=False)

    @property
    def infinite(self) -> list[str]:
        """The weights of which finite numbers became infinite: they are beyond the largest of the type, 65504 of FLOAT16.

        Weights are converted when they are read, so this is known once the container is saved.
        """
        return self._infinite.names()


@dataclass(frozen=True)
class Recovered:
    """What was done after saves that were killed."""

    finished: list[os.PathLike[str]]
    """The models whose save was completed."""
    undone: list[os.PathLike[str]]
    """The models that are as they were before the save."""
    removed: int
    """The number of staging folders that were removed."""
    errors: list[str]
    """What failed."""
    jobs: int = 0
    """The number of folders of jobs that were removed: of those that had ended."""


class Container:
    """A model whose large tensors are stored beside it, by handle.

    External tensors of the model name a handle, such as ``#w``, for their location; the container maps handles to
    weights: :class:`Tensor`, an array, a torch tensor, a ``TensorProto``, bytes, or a callable that returns one of
    these when a save comes to it. It is a mapping from handles to tensors.

        >>> container = Container.load("encoder.onnx")
        >>> container["#embedding"]
        Tensor<FLOAT,[256, 64]>(name='#embedding')
        >>> container["#embedding"] = np.zeros((256, 64), np.float32)
        >>> container.save("model.onnx").files[0]
        ('model.onnx.data', 288768)

    ``container[handle]`` goes by handles alone, to read and to write, and a handle begins with ``#``. :meth:`tensor`,
    :meth:`replace` and :meth:`fill` go by the names of tensors, which may change while the handles stay.

    Threads may share a container: who reads or saves it has it as it was when the call began.

    ``with Container.load(path) as container:`` lets go of the files at the end, as :meth:`close` does.
    A container of a path can be pickled: the pickle has the path, and no weights.
    """

    __slots__ = ("__weakref__", "_core", "_known", "_loaded")

    _core: Any
    _loaded: _origin.Origin | _origin.Stored | None
    _known: tuple[int, Summary] | None

    def __init__(self, model: Model | Any = None, initializers: Mapping[str, Any] | None = None) -> None:
        """A container of ``model`` and of large initializers by handle.

        ``model`` is a ``ModelProto`` or its bytes; or an ``onnx_ir.Model``, or what ``torch.onnx.export`` returns, whose initializers
        over 256 bytes become large ones, without a copy."""
        if (ir_model := _ir_model(model)) is not None:
            from . import ir

            self._core = ir.to_container(ir_model)._core
        else:
            self._core = _core.Container(b"" if model is None else _serialized(model))
        self._loaded = self._known = None
        self.update(initializers or {})

    @classmethod
    def _of(cls, core: _core.Container, origin: _origin.Origin | _origin.Stored | None = None) -> Container:
        container = cls.__new__(cls)
        container._core, container._loaded, container._known = core, origin, None
        return container

    @classmethod
    def load(cls, path: Path, mmap: bool = True, *, fetch: bool = False, **options: Unpack[LoadOptions]) -> Container:
        """The model at ``path`` with its weights, which are mapped (``mmap=True``) or read.

        A file that is mapped takes no memory and no time before it is used. No process may truncate or overwrite it
        meanwhile, which would end this process or change the weights; saves of this package replace files, which is fine. Read
        files that others write to with ``mmap=False``.

        ``path`` may also be the URL of a model in a store, as a ``str``: ``s3://bucket/model.onnx``, ``gs://``, ``az://``,
        ``https://``, ``hf://owner/repository/path``. The graph is one request, and weights are read by range when they are needed,
        or now with ``fetch=True``. Of a file that is replaced meanwhile no byte is read.

        Args:
            fetch: reads all weights of a model in a store now.
            weights: False loads the structure alone; :meth:`attach` loads the weights later.
            base_dir: the folder that locations are relative to, when it is not that of the model.
            paths: where links to weights may lead: ``"strict"``, ``"model-dirs"`` (the default) or ``"trusted"``.
            limits: what an untrusted model may hold, by name, such as ``{"nodes": 100_000}``.
            no_copy: True refuses to copy tensors, False gives each memory of its own.
            alignment: of the addresses of tensors, in bytes.
            verify_digests: compares all weights with the digests that are stored with the model.
            store: an obstore store, or a filesystem of fsspec, in which ``path`` is then. Calls of Python are slower than a URL.
            store_options: how the store of a URL is reached, by name, in place of the environment: ``{"aws_region": "eu-west-1"}``.

        Raises:
            Error: what is wrong with the model or its files.

            >>> with Container.load("encoder.onnx") as container:
            ...     container.tensor("layer0.qkv").numpy().shape
            (64, 192)
        """
        path = _a_path("load", path)
        given, clock = _options.load("load", mmap, **options), _log.Clock()
        fetch = _options.checked("load", {"fetch": fetch}, {"fetch": False})["fetch"]
        place = _places.placed("load", path, given)
        if place.is_stored:
            return cls._load_stored(place, fetch, given)
        if fetch:
            raise ValueError(f"load(): fetch is for models in stores, and {place.shown!r} is a path")
        first = _origin.before(path)
        with _log.told("load of %r", os.fsdecode(path)):
            core = _core.Container.load(path, given)
        for warning in core.warnings():
            _log.logger.warning("load of %r: %s", os.fsdecode(path), warning)
        clock.info("loaded %r, %d large initializers", os.fsdecode(path), len(core), nbytes=core.nbytes())
        return cls._of(core, _origin.of_load(path, mmap, dict(options), core, first))

    @classmethod
    def _load_stored(cls, place: _places.Place, fetch: bool, given: dict[str, Any]) -> Container:
        clock = _log.Clock()
        with _log.told("load of %r", place.shown):
            core, e_tag = _core.load_stored(place.path, fetch, given)
        for warning in core.warnings():
            _log.logger.warning("load of %r: %s", place.shown, warning)
        clock.info("loaded %r, %d large initializers", place.shown, len(core), nbytes=core.nbytes())
        return cls._of(core, _origin.Stored(place.shown, e_tag))

    @classmethod
    def from_bytes(
        cls,
        model: bytes | bytearray | memoryview,
        mmap: bool = True,
        *,
        model_path: Path | None = None,
        **options: Unpack[LoadOptions],
    ) -> Container:
        """As :meth:`load`, for the bytes of a model. Weights are beside ``model_path``, or in ``base_dir``."""
        given = _options.load("from_bytes", mmap, model_path, **options)
        return cls._of(_core.Container.load_bytes(_serialized(model), given))

    def copy(self) -> Container:
        """A container that shares everything with this one until either is changed."""
        return self._of(self._core.copy(), self._loaded)

    __copy__ = copy

    def __reduce__(self) -> Any:
        """The path and the options of a container that was loaded, and the digest of the model file.

        Raises:
            TypeError: it has no path, or was changed since it was loaded.
            ValueError: its files were replaced since then.
        """
        self._refuse_closed()
        return _unpickled, _origin.reduced(self._loaded, self._core.changes())

    def __deepcopy__(self, memo: dict[int, Any]) -> Container:
        """A copy whose weights nobody else can change: memory of arrays is copied."""
        copied = self.copy()
        lent = {handle: tensor for handle, tensor in self.items() if tensor._is_lent}
        copied.update({handle: copy.deepcopy(tensor, memo) for handle, tensor in lent.items()})
        return copied

    def __repr__(self) -> str:
        what = repr(self.url) if self.url else "a model" if self.path is None else repr(os.fspath(self.path))
        if self.closed:
            return f"<Container of {what}, closed>"
        nbytes, count = _core.size_text(self._core.nbytes()), len(self)
        return f"<Container of {what} and {count} large initializer{'' if count == 1 else 's'} ({nbytes})>"

    def _repr_html_(self) -> str | None:
        """For notebooks: the summary."""
        return None if self.closed else self._summary()._repr_html_()

    def _ipython_key_completions_(self) -> list[str]:
        """For the completion of ``container["``."""
        return self.keys()

    def __bool__(self) -> bool:
        return True

    # An end

    def close(self) -> None:
        """Lets go of the model, the weights and the files, which are no longer mapped then. On Windows a
        file can be replaced or deleted only after that. All else that is asked of a closed container
        is a ``ValueError``; to close it once more does nothing.

        Tensors, arrays and sessions that it gave keep their weights, and the file mapped that
        :attr:`Tensor.location` names, until they are gone too. So do copies of the container.
        """
        self._core.close()
        self._known = None

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.is_closed()

    def _refuse_closed(self) -> None:
        """Raises what each call of a closed container does."""
        self._core.warnings()

    def __enter__(self) -> Self:
        self._refuse_closed()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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

    @property
    def path(self) -> pathlib.Path | None:
        """The model that was loaded; None for one that was not loaded from a path."""
        return pathlib.Path(self._loaded.path) if isinstance(self._loaded, _origin.Origin) else None

    @property
    def url(self) -> str | None:
        """Where in a store the model was loaded from; None for one that was not."""
        return self._loaded.url if isinstance(self._loaded, _origin.Stored) else None

    @property
    def e_tag(self) -> str | None:
        """The tag that the store gave the model that was loaded: ``publish(if_present=container.e_tag)`` replaces that one alone."""
        return self._loaded.e_tag if isinstance(self._loaded, _origin.Stored) else None

    @property
    def files(self) -> list[pathlib.Path]:
        """The model that was loaded, and the weights files that it named then: later changes leave the list as it is. Of a
        container without a path, the files that weights are mapped from."""
        mapped = _core.mapped_files(self._core)  # refuses a closed container
        if isinstance(self._loaded, _origin.Origin):
            return [pathlib.Path(path) for path in (self._loaded.path, *self._loaded.weights_files)]
        return sorted(pathlib.Path(path) for path in mapped)

    def _summary(self) -> Summary:
        """The summary, which is made once for each state of the container."""
        changes = self._core.changes()
        if self.closed or self._known is None or self._known[0] != changes:
            self._known = changes, self.summary()
        return self._known[1]

    @property
    def inputs(self) -> list[ValueSummary]:
        """The inputs of the model that a caller gives: name, type and shape."""
        return [value for value in self._summary().inputs if not value.has_initializer]

    @property
    def outputs(self) -> list[ValueSummary]:
        """The outputs of the model: name, type and shape."""
        return list(self._summary().outputs)

    @property
    def opsets(self) -> dict[str, int | None]:
        """The versions of the operator sets by their domains; ``ai.onnx`` is ONNX's own."""
        return dict(self._summary().opsets)

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors, wherever they are; those of tied tensors once."""
        return self._summary().nbytes

    # The large initializers

    def __len__(self) -> int:
        """The number of handles."""
        return len(self._core)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, handle: object) -> bool:
        return _is_handle(handle) and self._core.get(handle) is not None

    def __getitem__(self, handle: str) -> Tensor:
        """The large initializer behind ``handle``, which is its name: the model says which tensors have it."""
        found = self._core.get(_handle(handle))
        if found is None:
            raise self._unknown(handle)
        return Tensor(found, name=handle)

    def __setitem__(self, handle: str, weights: Any) -> None:
        self.update({_handle(handle): weights})

    def __delitem__(self, handle: str) -> None:
        if not self._core.remove(_handle(handle)):
            raise self._unknown(handle)

    def _unknown(self, handle: str) -> KeyError:
        """The error for a ``handle`` that is not there, with the one that it is most like."""
        known = self._core.handles()
        like = difflib.get_close_matches(handle, known, 1, 0.5) if len(known) <= _FEW else []
        return KeyError(f"{handle}: did you mean {like[0]!r}?" if like else handle)

    def get(self, handle: str, default: Any = None) -> Any:
        """The tensor behind ``handle``, or ``default``."""
        found = self._core.get(handle) if _is_handle(handle) else None
        return default if found is None else Tensor(found, name=handle)

    def keys(self) -> list[str]:
        """The handles, sorted."""
        return self._core.handles()

    def values(self) -> list[Tensor]:
        """The large initializers, in the order of their handles."""
        return [tensor for _, tensor in self.items()]

    def items(self) -> list[tuple[str, Tensor]]:
        """Handles and large initializers."""
        now = self._core.copy()  # other threads may change this one meanwhile
        return [(handle, Tensor(cast("_core.Initializer", now.get(handle)), name=handle)) for handle in now.handles()]

    def update(self, initializers: Mapping[str, Any]) -> None:
        """Puts large initializers behind their handles. An object that is given for several is one weight."""
        self._core.update(_weights(initializers), False)

    def add(self, name: str, weights: Any) -> str:
        """Adds an initializer called ``name`` to the main graph, and returns its handle."""
        return self._core.add(name, initializer(weights))

    # The tensors

    def declared(self) -> dict[str, tuple[DataType, tuple[int, ...], str | None]]:
        """What the model says of every tensor, by its unique name, also where no weights are loaded: element type, shape,
        and the handle or file of an external one."""
        return {
            name: (DataType(dtype), tuple(dims), location) for name, location, dtype, dims in self._core.declared()
        }

    def tensors(self, names: str | Iterable[str] | None = None) -> dict[str, Tensor]:
        """Every tensor of the model, wherever its elements are, by a name that no other has: its own, with the path of its
        scope before it.

        Args:
            names: names or patterns such as ``"layers.3.*"``; all tensors without.

        Raises:
            Error: elements cannot be read.
            ValueError: no tensor has a name like one of ``names``.
        """
        known, found = self._core.tensors()
        wanted = None if names is None else set(_patterns.selected("tensors", known, names))
        return self._of_names(known, found, wanted)

    @staticmethod
    def _of_names(known: list[str], found: list[Any], wanted: set[str] | None) -> dict[str, Tensor]:
        """Those of the tensors ``found``, called as ``known`` says, whose names are ``wanted``: all of them for ``None``."""
        pairs = [(name, it) for name, it in zip(known, found, strict=True) if wanted is None or name in wanted]
        if wrong := next((it for _, it in pairs if isinstance(it, BaseException)), None):
            raise wrong
        return {name: Tensor(elements, name=name) for name, elements in pairs}

    def find(self, pattern: str | Iterable[str]) -> list[str]:
        """The names of the tensors that match a pattern, or one of several: ``*`` stands for any characters, ``?`` for
        one, ``[ab]`` for one of these. None may match.

            >>> Container.load("encoder.onnx").find("*.qkv")
            ['layer0.qkv', 'layer1.qkv']
        """
        return _patterns.matching("find", self._names(), pattern)[0]

    def _names(self) -> list[str]:
        return [name for name, *_ in self._core.declared()]

    def state_dict(self, names: str | Iterable[str] | None = None) -> dict[str, torch.Tensor]:
        """The initializers as torch tensors by name, as ``load_state_dict`` takes them: see :meth:`Tensor.torch`.

        Args:
            names: names or patterns; all initializers without.

        Raises:
            TypeError: torch has no type for one of them, which it names.
        """
        if names is None:
            now = self._core.copy()  # other threads may change this one meanwhile
            known, found = now.tensors()
            chosen = self._of_names(known, found, set(_core.initializers(now)))
        else:
            chosen = self.tensors(names)
        return {name: _as_torch(tensor) for name, tensor in chosen.items()}

    def tensor(self, name: str) -> Tensor:
        """The tensor called ``name``."""
        return Tensor(self._core.tensor(name), name=name)

    def replace(self, name: str, weights: Any, tied: Literal["all", "this"] | None = None) -> list[str]:
        """Other elements, of the same type and shape, for the tensor called ``name``. Returns the names of the tensors that
        share its bytes.

        Args:
            tied: ``"all"``, the default, also changes the tensors that share its bytes, ``"this"`` it alone.

        Warns:
            UserWarning: of other tensors that changed, where ``tied`` is not given.

            >>> container = Container.load("encoder.onnx")
            >>> container.replace("embedding", np.zeros((256, 64), np.float32), tied="all")
            ['embedding_again']
        """
        if tied not in ("all", "this", None):
            raise ValueError(f"tied is {tied!r}, not one of 'all', 'this'")
        known = self._core.tensor(name)
        others = self._core.replace(name, initializer(weights, (int(known.dtype), known.dims)), tied != "this")
        if others and tied is None:
            _options.warn(f"replace(): {_listed(others)} share the bytes of {name} and changed too: tied='this' leaves them")
        return others

    # Changes

    @property
    def metadata(self) -> MutableMapping[str, str]:
        """The keys and values of the model's metadata: what is set or deleted here is changed in the model.

            >>> container = Container.load("encoder.onnx")
            >>> container.metadata["license"] = "mit"
            >>> container.summary().metadata["license"]
            'mit'
        """
        return _Metadata(self._core)

    def rename(self, name: str, to: str, what: Literal["value", "input", "output"] = "value") -> int:
        """Renames a value of the model at every use, in subgraphs too. Returns the number of places.

        Args:
            name: a name in the main graph, or one with its scope before it: ``"if_node.then_branch/w"``.
            what: ``"input"`` and ``"output"`` refuse a value that is not an input or output of the model.

        Raises:
            Error: there is no such value, or another one is called ``to``.

            >>> container = Container.load("encoder.onnx")
            >>> container.rename("tokens", "input_ids", "input")
            4
        """
        if what not in ("value", "input", "output"):
            raise ValueError(f"what is {what!r}, not one of 'value', 'input', 'output'")
        return _core.rename(self._core, name, to, what)

    def remove(self, name: str, used: bool = False) -> int:
        """Removes the initializer called ``name``, and its weights where no other tensor has them. Returns the number of places
        that still use it.

        Args:
            used: removes one that is still used, such as one whose value becomes an input. The model is not complete then.

        Raises:
            Error: there is no such initializer, it belongs to a node, or it is used.

            >>> container = Container.load("encoder.onnx")
            >>> container.remove("positions", used=True)
            1
        """
        used = _options.checked("remove", {"used": used}, {"used": False})["used"]
        return _core.delete_initializer(self._core, name, used)

    def attach(self, source: Container | Path, mmap: bool = True, **options: Unpack[LoadOptions]) -> None:
        """Loads the weights of a container that was loaded without, from a folder. Options are those of :meth:`load`.
        Tensors that have weights keep them. Where ``source`` is a container, or the path of a model, puts the weights
        that were stripped back, as :meth:`attach_model` does.

        Raises:
            Error: files are missing or wrong, or each tensor has its weights; the container is then unchanged.
        """
        for name, why in (("weights", "it loads them"), ("base_dir", "the folder says where they are"), ("limits", "the model is loaded")):
            if name in options:
                raise TypeError(f"attach() has no option {name!r}: {why}")
        if isinstance(source, Container) or _places.is_url(source) or options.get("store") is not None or os.path.isfile(source):
            self.attach_model(source, mmap=mmap, **options)
        else:
            self._core.attach(source, _options.load("attach", mmap, **options))

    def strip(self, min_bytes: Size | None = None) -> Stripped:
        """Takes the elements of all external tensors away, and of inline ones of at least ``min_bytes`` (1024), except
        those that readers need in the model. Types and shapes stay; :meth:`attach` puts the weights back.

        No weight is read, so a container that was loaded with ``weights=False`` will do. A save writes the model alone.

            >>> structure = Container.load("encoder.onnx", weights=False)
            >>> structure.strip().stripped
            15
            >>> structure.attach("encoder.onnx")
        """
        given = _options.checked("strip", {"min_bytes": min_bytes}, {"min_bytes": None})
        return Stripped(*_core.strip(self._core, given["min_bytes"]))

    def attach_model(
        self, source: Container | Path, edited: bool = False, mmap: bool = True, **options: Unpack[LoadOptions]
    ) -> Attached:
        """Puts weights back into a model that was stripped of them: those of ``source``, a container or the path of a
        model. Options are those of :meth:`load`.

        Names, types and shapes are compared, the elements of tensors that were not stripped, and where digests are
        stored with the stripped model, all weights with these.

        Args:
            edited: the model was changed since it was stripped: tensors that differ are its own, and weights that it
                does not use are left out.

        Raises:
            Error: the two do not belong together. The container is then unchanged.
        """
        if not isinstance(source, Container):
            source = Container.load(source, mmap, **options)
        return Attached(*_core.attach_model(self._core, source._core, edited))

    def extract_model(
        self, inputs: Iterable[str] | None, outputs: Iterable[str], types: Mapping[str, str] | None = None
    ) -> Container:
        """The part of the model that computes the values ``outputs`` from the values ``inputs``, as a new container that
        shares the weights. Values are those of the main graph.

        Args:
            inputs: None takes those inputs of the model that the outputs need.
            types: of values for which the model declares none and which common operators do not give, such as
                ``{"h": "FLOAT[N,128]"}``. Dimensions are numbers, names, or ``?`` where nothing is known. A type that is
                known in part is completed.

        Raises:
            Error: there is no such value, no output needs an input, an output needs what no input gives, the type of a
                value is not known, or a given type contradicts the known one.

            >>> part = Container.load("encoder.onnx").extract_model(None, ["logits"])
            >>> [value.name for value in part.outputs]
            ['logits']
        """
        for what, given in (("inputs", inputs), ("outputs", outputs)):
            if isinstance(given, str):
                raise TypeError(f"extract_model(): {what} are several names, such as [{given!r}]")
        if types is not None and not isinstance(types, Mapping):
            raise TypeError(f"extract_model(): types maps names to types, it is not {types!r}")
        given = None if inputs is None else list(inputs)
        part = _core.extract_model(self._core, given, list(outputs), list((types or {}).items()))
        return Container._of(part)

    def match(
        self, weights: Mapping[str, Any] | Any, min_elements: int | None = None
    ) -> _core.WeightMapping:
        """Finds which weights each tensor of the model is made of, by its elements, whatever an exporter made of names and
        layout: transposed, reshaped, cast, joined and cut weights are found. ``fill`` with the mapping then puts other
        weights into the same places.

        Args:
            weights: those that the model was exported from: a ``state_dict``, or a module that has one.
            min_elements: the least number of elements of a tensor that is matched by content (8).
        """
        given = _options.checked("match", {"min_elements": min_elements}, {"min_elements": None})
        return self._core.match_weights(_weights(_state("match", weights)), given["min_elements"])

    def fill(
        self,
        weights: Mapping[str, Any] | Any,
        mapping: _core.WeightMapping | None = None,
        **options: Unpack[FillOptions],
    ) -> Filled:
        """Puts weights into the tensors of their names: a mapping such as a ``state_dict``, or a module that has one.

        Args:
            weights: arrays, tensors, messages; bytes and callables have the type and shape of the tensor that they go to.
            mapping: what :meth:`match` found: weights go where it says, and names do not count. Of the options ``partial``,
                ``strict`` and ``tied`` apply; ``kept`` and ``unused`` of the result list what the mapping does not have.
            rename: names of weights, and the tensors that they are for; or a function that makes the one of the other.
            strip_prefix: is left out of the names of weights.
            replace_prefix: prefixes of names of weights, and what they become: ``{"": "model."}`` puts one before all.
            ignore: names of weights that are left out, or patterns.
            partial: allows external tensors without weights.
            strict: refuses weights that match no tensor, and inline tensors of several elements that get none.
            tied: ``"all"`` gives weights to all tensors that share bytes, ``"this"`` to those alone that are named.

        Raises:
            Error: no weights match a tensor, with the prefix that may be the reason; or one for all weights that do not
                fit. The container is then unchanged.

        Warns:
            UserWarning: of weights that match no tensor, of tensors that got none, and of ``ignore`` and prefixes without
                effect. The result lists them.
        """
        weights = _state("fill", weights)
        given = _options.fill(**options)
        given["ignore"] = _ignored("fill", given["ignore"], list(weights))
        if mapping is None:
            return self._filled("fill", self._core.fill(_weights(weights), given))
        if wrong := options.keys() & {"rename", "strip_prefix", "replace_prefix", "ignore"}:
            raise TypeError(f"fill(): {', '.join(sorted(wrong))} is about names, and a mapping says where weights go")
        return self._filled("fill", self._core.fill_mapped(mapping, _weights(weights), given))

    def _filled(self, function: str, report: dict[str, Any]) -> Filled:
        """What a fill did, and a warning of what it left as it was."""
        filled = Filled(**report)
        told = []
        if filled.unused:
            rule = self._core.prefix_rule(filled.unused)
            told.append(f"{_listed(filled.unused)} match no tensor" + (f" ({rule})" if rule else ""))
        if kept := filled.own + filled.kept:
            told.append(f"{_listed(kept)} got no weights and keep those that they had")
        if filled.missing:
            told.append(f"{_listed(filled.missing)} are still without weights")
        if filled.idle_rules:
            told.append(f"{', '.join(filled.idle_rules)} had no effect: no weights have such names, or another rule takes precedence")
        if told:
            _options.warn(f"{function}(): {'; '.join(told)}")
        return filled

    def attach_safetensors(self, path: Path, mmap: bool = True, **options: Unpack[FillOptions]) -> Filled:
        """Puts the tensors of a safetensors file, or of the files of an index, into those of their names. Options are
        those of :meth:`fill`, and so are errors and warnings."""
        given = _options.fill("attach_safetensors", **options)
        if any(map(_patterns.is_pattern, given["ignore"])):
            entries = [tensor.name for tensor in inspect(path, mmap=mmap).tensors]
            given["ignore"] = _ignored("attach_safetensors", given["ignore"], entries)
        report = self._core.attach_safetensors(path, _options.load("attach_safetensors", mmap), given)
        return self._filled("attach_safetensors", report)

    def externalize(
        self, min_bytes: Size | None = None, all_tensors: bool = False, attributes: bool = True, sparse: bool = True
    ) -> Externalized:
        """Moves inline tensors of at least ``min_bytes`` (1024) out of the model, except those that readers need in it, such
        as shapes: with ``all_tensors`` these too. Without ``attributes``, initializers alone; without ``sparse``, no sparse
        tensors, which onnx does not read from files."""
        given = {"min_bytes": min_bytes, "all_tensors": all_tensors, "attributes": attributes, "sparse": sparse}
        defaults = {"min_bytes": None, "all_tensors": False, "attributes": True, "sparse": True}
        return Externalized(*self._core.externalize(**_options.checked("externalize", given, defaults)))

    def embed(self) -> onnx.ModelProto:
        """The model with every tensor inline, as a message of onnx, which has less than 2 GiB."""
        return _parsed(self._core.embedded_bytes())

    def inline_functions(self, **options: Unpack[InlineOptions]) -> Inlined:
        """Puts the local functions of the model into its graphs.

        Args:
            only: inlines these alone: ``"domain::name"``, ``"domain::"`` or ``"domain::name:overload"``.
            except_: keeps these.
            max_nodes: refuses to make more nodes.
            refuse_conflicts: refuses functions that cannot be inlined; otherwise they are kept.
        """
        return Inlined(**self._core.inline_functions(_options.inline(**options)))

    def consolidate(
        self, alignment: Size | None = None, threshold: Size | None = None, typed_fields: bool = False
    ) -> _core.Bytes:
        """Puts all tensors of at least ``threshold`` bytes into one buffer, and returns it."""
        given = {"alignment": alignment, "threshold": threshold, "typed_fields": typed_fields}
        defaults = {"alignment": None, "threshold": None, "typed_fields": False}
        return self._core.consolidate(**_options.checked("consolidate", given, defaults))

    def cast(self, to: Any, **options: Unpack[CastOptions]) -> CastReport:
        """Stores float weights as type ``to``: a :class:`DataType`, its name, or what numpy or torch call it.

        A weight gets a new name, such as ``w_float16``, and a ``Cast`` node computes the value of the old one from it, X

        Args:
            from_: casts this type; otherwise both others of FLOAT, FLOAT16 and BFLOAT16.
            min_bytes: casts weights of this length or more (1024).
            except_: names of tensors that stay as they are, or patterns such as ``"*norm*"``.
            compute: computes in the type too, instead of adding ``Cast`` nodes.
            keep_io: with ``compute``, inputs and outputs keep their types.
            keep_ops: with ``compute``, types of operators (``"Softmax"``) or names of nodes that compute in the old type; their
                weights are cast all the same: see ``except_``.

        Raises:
            Error: there are no weights to cast, they were not loaded, or cannot be cast. The container is then as it was.
            ValueError: no tensor has a name like one of ``except_``, or no node is one of ``keep_ops``.

            >>> container = Container.load("encoder.onnx")
            >>> container.cast("fp16", except_="*scale*").cast
            12
        """
        given = _options.cast(**options)
        if given["from_"] is not None:
            given["from_"] = DataType.of(given["from_"])
        if given["except_"]:
            given["except_"] = _patterns.selected("cast", sorted(self._core.names()), given["except_"])
        given["keep_ops"] = _options.kept_ops("cast", given["keep_ops"], self._core)
        return CastReport(*self._core.cast(DataType.of(to), given))

    # What it is

    def check(self) -> None:
        """Compares every external tensor with the weights behind its handle.

        Raises:
            Error: one for all that do not fit.
        """
        self._core.check()

    def digest(self, *, parts: Iterable[str] | None = None) -> str:
        """``sha256:`` and the digest of model and weights: the same however they are stored.

        Args:
            parts: what :meth:`partial_digest` has returned for each part, in any order. No weight is read then, and the
                model may have been loaded with ``weights=False``.

        Raises:
            Error: parts are missing, or of another model.

            >>> container = Container.load("encoder.onnx")
            >>> _ = container.save("single.onnx", files="embedded")
            >>> Container.load("single.onnx").digest() == container.digest()
            True
        """
        if isinstance(parts, str):
            raise TypeError("digest(): parts is a list of what partial_digest() returned, not a str")
        return self._core.digest(None if parts is None else list(parts))[0]

    def partial_digest(self, part: int, of: int) -> str:
        """The digests of part ``part`` of ``of`` of the tensors, from 0 on, as JSON. Any number of processes make the digest
        of one model together: each has a part, and one of them joins the parts.

            >>> container = Container.load("encoder.onnx")
            >>> parts = [container.partial_digest(part, 4) for part in range(4)]
            >>> container.digest(parts=parts) == container.digest()
            True
        """
        chosen = _values.part("partial_digest", (part, of))
        assert chosen is not None
        return self._core.partial_digest(*chosen)

    def tensor_digests(self) -> list[tuple[str, str]]:
        """The names of all tensors and the digest of each."""
        return self._core.digest()[1]

    def summary(self) -> Summary:
        """What is in the model, without reading weights: see :func:`inspect`."""
        return summary_of(self._core.summary())

    def semantic_digest(self) -> str:
        """The digest of what the model computes: the same for models that differ in names and in the order of nodes."""
        return self._core.semantic_digest()

    def semantic_difference(self, other: Container) -> str | None:
        """Where two models that do not compute the same part; None if they do."""
        if not isinstance(other, Container):
            raise TypeError(f"semantic_difference() takes a Container, not {type(other).__name__}: Container.load(path) loads one")
        return self._core.semantic_difference(other._core)

    # Saving

    def save(self, path: Path, one_file: bool | None = None, **options: Unpack[SaveOptions]) -> Saved:
        """Writes the model to ``path`` and its weights beside it. What was there is replaced when all is written, or left as
        it is.

        Args:
            one_file: True writes one ``<model>.onnx.data``, False a ``.weight`` file for each tensor; the same as ``files``
                of ``"packed"``, the default, and ``"per-tensor"``.
            files: ``"packed"``, ``"per-tensor"``, ``"safetensors"``, ``"embedded"`` or ``"as-loaded"``.
            max_shard_bytes: the most bytes of one weights file; there are as many as it takes.
            shard_names: ``"numbered"`` or ``"transformers-js"``.
            data_name: of the weights file.
            externalize: moves inline tensors of at least ``threshold`` (64) bytes out as well.
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
                when it returns False or raises, and leaves what was there. True shows a bar on stderr.

        Raises:
            Error: nothing was replaced.

            >>> container = Container.load("encoder.onnx")
            >>> saved = container.save("packed.onnx", digests=True, max_shard_bytes="200 KB")
            >>> [name for name, _ in saved.files]
            ['packed-00001-of-00002.onnx.data', 'packed-00002-of-00002.onnx.data', 'packed.onnx']
        """
        _places.refuse_url("save", path, "publish(url) writes to a store")
        saved = self._save(path, one_file, options)
        idle = sorted({"data_name", "max_shard_bytes"} & options.keys())
        if idle and not saved._has_weights_files:
            _options.warn(f"save(): {', '.join(idle)} had no effect: no tensor is external (externalize=True moves them out)")
        return saved

    def _save(
        self, path: Path, one_file: bool | None, options: Mapping[str, Any], data_suffix: str | None = None, replaces: bool = False
    ) -> Saved:
        """As :meth:`save`, for functions that name files by themselves. The packed file has the name of the model and the
        suffix. A save that ``replaces`` an export removes files of default names that only the replaced model needed, so that
        the next export may have them."""
        given, clock = _options.save("save", one_file, **options), _log.Clock()
        own = {"data_suffix": data_suffix, "remove_superseded": replaces}
        with _log.told("save to %r", os.fsdecode(path)), _progress.shown("save", given) as given:
            report = self._core.save(path, {**given, **own})
        _log.logger.debug("the seconds of the save to %r: %s", os.fsdecode(path), report["seconds"])
        clock.info("saved %r, %d files", os.fsdecode(path), len(report["files"]), nbytes=report["nbytes"])
        for missing in report["missing"]:
            _options.warn(missing)
        if report["unused"]:
            _options.warn(f"save(): {_listed(report['unused'])} are handles of no tensor: these weights were not written")
        return _saved(report)

    def dry_run(self, path: Path, one_file: bool | None = None, **options: Unpack[SaveOptions]) -> Saved:
        """What :meth:`save` would write; nothing is written, and no weights are read."""
        _places.refuse_url("dry_run", path, "publish(url, dry_run=True) says what it would write")
        given = _options.save("dry_run", one_file, **options)
        if isinstance(given["progress"], bool):
            given["progress"] = None  # nothing is written
        return _saved(self._core.dry_run(path, given))

    def publish(self, url: str, one_file: bool | None = None, **options: Unpack[PublishOptions]) -> _stores.Published:
        """Publishes the model in an object store: see :func:`publish`."""
        return _stores.publish(self, url, one_file, **options)

    def to_parts(
        self, one_file: bool | None = None, **options: Unpack[SaveOptions]
    ) -> tuple[_core.Bytes, dict[str, _core.Bytes]]:
        """The bytes of the model and of each weights file by name, as :meth:`save` would write them."""
        model, files = self._core.to_parts(_options.save("to_parts", one_file, **options))
        return model, dict(files)

    def export_safetensors(
        self, path: Path, names: str | Iterable[str] | None = None, **options: Unpack[ExportOptions]
    ) -> Exported:
        """Writes tensors to the safetensors file ``path``, or to shards beside it. An entry has the name of its tensor; tensors that
        share bytes are written once. The files are replaced when all is written.

        Args:
            names: names or patterns, of tensors wherever they are; without, the large initializers, and inline
                tensors of at least ``min_bytes``.
            min_bytes: 1024, unless it is given.
            all_tensors: also writes integers that shapes may be computed from.
            max_shard_bytes: the most bytes of tensors in one file; an index lists the files.
            metadata: more entries of ``__metadata__``.
            padding: fills gaps by entries that are not tensors, so that every tensor is aligned.
            overwrite, sync, progress: those of :meth:`save`.

        Raises:
            Error: nothing was replaced.
            ValueError: no tensor has a name like one of ``names``.

            >>> container = Container.load("encoder.onnx")
            >>> container.export_safetensors("weights.safetensors", "*.qkv").tensors
            2
        """
        _places.refuse_url("export_safetensors", path, "write a file, and upload it")
        export, given = _options.export(names is not None, options)
        if names is not None:
            export["names"] = _patterns.selected("export_safetensors", self._names(), names)
        clock = _log.Clock()
        with _log.told("export to %r", os.fsdecode(path)), _progress.shown("export", given) as given:
            report = _core.export_safetensors(self._core, path, export, given)
        clock.info("exported %d tensors to %r", report["tensors"], os.fsdecode(path), nbytes=report["nbytes"])
        return Exported(**report)

    # onnxruntime

    def session_options(self, sess_options: onnxruntime.SessionOptions | None = None) -> onnxruntime.SessionOptions:
        """Options, new ones or those that are given, that have the weights: for one session of ``model_bytes``, whose
        external tensors all are initializers of the main graph. They keep the weights alive, as does the session.

        onnxruntime itself copies weights that it packs for its kernels, unless its entry ``session.disable_prepacking`` is
        ``"1"``."""
        from ._onnxruntime import session_options

        return session_options(self, sess_options)

    def inference_session(
        self, sess_options: onnxruntime.SessionOptions | None = None, providers: Any = None, **keywords: Any
    ) -> onnxruntime.InferenceSession:
        """An ``onnxruntime.InferenceSession`` of the model on the weights as they are in memory, or mapped: without a copy
        of ours, and without a file. Weights that are produced when they are needed are produced once, and live as long as
        the session. External tensors that onnxruntime reads from files alone, such as those of subgraphs, are put into the
        model that it gets. Keywords are those of ``InferenceSession``."""
        from ._onnxruntime import inference_session

        return inference_session(self, sess_options, providers=providers, **keywords)


def _unpickled(path: str, mmap: bool, options: Any, digest: str, stamps: dict[str, _origin.Stamp]) -> Container:
    """The container that was pickled, of the same files."""
    _origin.refuse_other(path, digest)
    container = Container.load(path, mmap, **options)
    _origin.refuse_other_weights(stamps)
    return container


def _as_torch(tensor: Tensor) -> torch.Tensor:
    try:
        return tensor.torch()
    except TypeError as error:
        raise TypeError(f"{tensor.name!r}: {error}") from error


def _ignored(function: str, ignore: list[str], known: list[str]) -> list[str]:
    """The names in ``ignore``, with those of ``known`` in the place of the patterns that match any."""
    globs = [name for name in ignore if _patterns.is_pattern(name)]
    if not globs:
        return ignore
    found, idle = _patterns.matching(function, known, globs)
    return [*(name for name in ignore if name not in globs), *found, *idle]


_FEW = 1000
"""Of more handles a mistyped one is not compared with each."""


def _is_handle(handle: object) -> bool:
    return isinstance(handle, str) and handle.startswith("#")


def _handle(handle: str) -> str:
    """``handle``, which begins with ``#``."""
    if not _is_handle(handle):
        raise KeyError(
            f"{handle!r} is no handle, which begins with '#': tensor(name), replace(name, weights) and "
            "fill({name: weights}) go by the names of tensors"
        )
    return handle


def _listed(names: list[str]) -> str:
    """How many ``names`` there are, and the first of them."""
    few = ", ".join(names[:5])
    return f"{len(names)} ({few}{f' and {len(names) - 5} more' if len(names) > 5 else ''})"


def _state(function: str, weights: Any) -> Mapping[str, Any]:
    """The mapping that ``weights`` are, or that a module has."""
    if isinstance(weights, Mapping):
        return weights
    if not callable(getattr(weights, "state_dict", None)):
        raise TypeError(f"{function}() takes a mapping from names to weights, or a module with a state_dict, not {type(weights).__name__}")
    return weights.state_dict()


def _weights(given: Mapping[str, Any]) -> tuple[dict[str, Any], Any, Any]:
    """``given`` as the core takes it."""
    return dict(given), arrays(), initializer


def _saved(report: dict[str, Any]) -> Saved:
    del report["missing"]
    inlined = report["inlined"]
    return Saved(**{**report, "inlined": None if inlined is None else Inlined(**inlined)})


def inline_functions(model: Model, **options: Unpack[InlineOptions]) -> tuple[bytes, Inlined]:
    """The bytes of ``model`` with its local functions in its graphs, and what was done. Options are those of
    :meth:`Container.inline_functions`."""
    done, report = _core.inline_functions(_serialized(model), _options.inline(**options))
    return done, Inlined(**report)


def merge(
    first: Container | Path,
    second: Container | Path,
    connect: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    *,
    same_inputs: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    prefix_first: str = "",
    prefix_second: str = "",
    mmap: bool = True,
    **options: Unpack[LoadOptions],
) -> Container:
    """The model ``first`` and ``second`` after it, as one model in a new container that shares the weights of both. Options
    are those of :meth:`Container.load`.

    Args:
        connect: outputs of the first model, and the inputs of the second that each becomes: a mapping, or pairs where
            one output becomes several inputs.
        same_inputs: inputs of the first model, and the inputs of the second that each is too, as ``connect``.
        prefix_first, prefix_second: are put before the names of all values and nodes of one model.

    Raises:
        Error: one for all that does not fit: versions of operators, names, types, functions and metadata.

        >>> first = Container.load("encoder.onnx").extract_model(None, ["logits"])
        >>> both = merge(first, "encoder.onnx", prefix_first="first.")
        >>> [value.name for value in both.outputs]
        ['first.logits', 'logits', 'best']
    """

    def opened(model: Container | Path) -> Container:
        return model if isinstance(model, Container) else Container.load(model, mmap, **options)

    def pairs(given: Mapping[str, str] | Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        return list(given.items()) if isinstance(given, Mapping) else [(a, b) for a, b in given]

    connected, same = pairs(connect), pairs(same_inputs)
    one, other = opened(first), opened(second)
    return Container._of(_core.merge(one._core, other._core, connected, same, (prefix_first, prefix_second)))


def findings(
    path: Path,
    *,
    contents: bool = False,
    digests: bool = False,
    part: tuple[int, int] | None = None,
    **options: Unpack[LoadOptions],
) -> list[tuple[Literal["error", "advice"], _core.Error]]:
    """Every fault of the model at ``path``, with its weights: ``"error"`` or ``"advice"``, and what it is. They are not
    raised; :func:`check_model` raises the errors among them. Options are those of :meth:`Container.load`.

    Args:
        contents: also reads elements that may have no meaning, such as BOOL that are neither 0 nor 1.
        digests: also compares all weights with the digests that are stored with them.
        part: ``(3, 64)`` is the fourth of 64 parts of the tensors: of these alone elements are read.

    Raises:
        Error: the model cannot be read.

        >>> findings("encoder.onnx")
        []
    """
    given, digests = _checking("findings", contents, digests, options)
    part = _values.part("findings", part)
    place = _places.placed("findings", _a_path("findings", path), given)
    return _core.check_model(place.path, given, contents, digests, part)[0]


def check_model(
    path: Path, *, contents: bool = False, digests: bool = False, **options: Unpack[LoadOptions]
) -> None:
    """Raises where the model at ``path``, or what is in its weights files, is not right, as ``onnx.checker.check_model``
    does. Options are those of :func:`findings`, which returns what is found, advice too.

    Raises:
        Error: one for all errors (``related``).
    """
    given, digests = _checking("check_model", contents, digests, options)
    place = _places.placed("check_model", _a_path("check_model", path), given)
    if error := _core.check_model(place.path, given, contents, digests)[1]:
        raise error


def _checking(function: str, contents: bool, digests: bool, options: Any) -> tuple[dict[str, Any], bool]:
    """Options of a check, and whether it compares digests, which an option of loads asks for too."""
    also = options.pop("verify_digests", False)
    given = {"contents": contents, "digests": digests, "verify_digests": also}
    given = _options.checked(function, given, dict.fromkeys(given, False))
    if options.get("weights") is False and any(given.values()):
        raise ValueError(f"{function}(): with weights=False no contents are read and no digests are compared")
    return _options.load(function, options.pop("mmap", False), **options), digests or also


def _a_path(function: str, path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        hint = ": from_bytes() takes the bytes of a model" if function == "load" else ""
        raise TypeError(f"{function}() reads a model and its weights from a path, not {type(path).__name__}{hint}")
    return path


def recover(path: Path) -> Recovered:
    """Completes or undoes what saves that were killed left in the folder ``path``, or of the model ``path``. Loads and saves do it
    for their model."""
    _places.refuse_url("recover", path, "a publication that was interrupted needs no recovery")
    clock = _log.Clock()
    done = Recovered(*_core.recover(path))
    changed = len(done.finished), len(done.undone), done.removed
    clock.count("recovered %r, %d saves completed, %d undone, %d folders removed", os.fsdecode(path), *changed)
    return done
