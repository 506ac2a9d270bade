"""What is in models, what their elements are like, and what differs between two."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from . import _core, _options, _patterns, _places, _values
from ._shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._container import Container
    from ._options import LoadOptions, Path

__all__ = [
    "Histogram",
    "ModelDiff",
    "Summary",
    "TensorStats",
    "TensorSummary",
    "ValueSummary",
    "diff",
    "inspect",
    "stats",
]

_MOST_ROWS = 20
"""How many tensors are shown of a summary, and how many changes of each kind."""


@dataclass(frozen=True)
class ValueSummary:
    """An input or output of the main graph."""

    name: str
    type: str | None
    """The whole declared type, such as ``sequence(tensor(FLOAT))``; None when none is declared."""
    dtype: str | None
    """The element type of a tensor."""
    shape: list[int | str | None] | None
    """For each dimension its size, its name, or None; None when no rank is declared."""
    has_initializer: bool
    """Whether an initializer gives an input its value, unless the caller does."""

    def __str__(self) -> str:
        declared = self.dtype or self.type or "no type"
        dims = "" if self.shape is None else " [" + ",".join("?" if d is None else str(d) for d in self.shape) + "]"
        return shown(f"{self.name}: {declared}{dims}")


@dataclass(frozen=True)
class TensorSummary:
    """A tensor of a model."""

    name: str
    scope: str
    """The path to the graph that holds it; empty for the main graph."""
    site: str
    """What it is there, such as ``Initializer``."""
    operator: str | None
    """The operator of the node that holds it, for tensors in attributes."""
    dtype: str
    shape: list[int]
    elements: int | None
    parameters: int
    """How many weights of the network it stands for: more than its elements where one has several codes, 0 for scales and
    zero points."""
    bytes: int | None
    stored: dict[str, Any]
    """Where its elements are: ``where`` is ``inline``, ``nowhere``, ``external``, ``handle`` or ``invalid``."""


@dataclass(frozen=True)
class Summary:
    """What is in a model. It is shown as text, and as a table in a notebook."""

    ir_version: int | None
    producer: str | None
    producer_version: str | None
    domain: str | None
    model_version: int | None
    doc_string: str | None
    opsets: dict[str, int | None]
    """The versions of the operator sets by their domains; ``ai.onnx`` is ONNX's own."""
    refused: list[str]
    """Why onnxruntime refuses the model for its versions, in words."""
    metadata: dict[str, str]
    has_digests: bool
    """Whether digests are stored with the model."""
    graph: str | None
    inputs: list[ValueSummary]
    outputs: list[ValueSummary]
    nodes: int
    """Nodes of the main graph."""
    inner_nodes: int
    """Nodes of functions, of subgraphs and of training graphs."""
    functions: int
    subgraphs: int
    subgraph_depth: int
    operators: dict[str, int]
    """How often each operator occurs: the most frequent first."""
    quantization: dict[str, Any]
    """``pairs`` of QuantizeLinear and DequantizeLinear; ``weights``, ``blocks`` and ``operators`` as lists of dicts."""
    parameters: int
    """The number of elements of all tensors; those of tied tensors count once."""
    nbytes: int
    """The bytes of these."""
    totals: dict[str, int]
    """Tensors and bytes, by where they are stored."""
    dtypes: dict[str, dict[str, int]]
    """For each element type ``tensors``, ``elements`` and ``bytes``: the most bytes first."""
    tensors: list[TensorSummary] = field(repr=False)
    """The largest first."""

    def __repr__(self) -> str:
        return "\n".join(f"{label:<11}{shown(text)}" for label, text in self._rows())

    def _repr_html_(self) -> str:
        """For notebooks. Every text of the model is escaped."""
        rows = "".join(_html_row("th", "td", row) for row in self._rows())
        cells = [(t.name, t.dtype, str(t.shape), str(t.bytes), t.stored["where"]) for t in self.tensors[:_MOST_ROWS]]
        head = _html_row("th", "th", ("name", "type", "shape", "bytes", "stored"))
        tensors = "".join(_html_row("td", "td", row) for row in cells)
        more = len(self.tensors) - len(cells)
        rest = f"<p>and {more} more tensors</p>" if more else ""
        return f"<table>{rows}</table><table>{head}{tensors}</table>{rest}"

    def _rows(self) -> Iterable[tuple[str, str]]:
        yield "IR", str(self.ir_version)
        yield "opsets", ", ".join(f"{domain} {version}" for domain, version in self.opsets.items())
        yield from (("refused", why) for why in self.refused)
        if self.producer:
            yield "producer", f"{self.producer} {self.producer_version or ''}".rstrip()
        yield from (("metadata", f"{key}={value}") for key, value in self.metadata.items())
        yield from (("input", str(value)) for value in self.inputs if not value.has_initializer)
        yield from (("output", str(value)) for value in self.outputs)
        yield "nodes", f"{self.nodes}: " + ", ".join(f"{n} {op}" for op, n in list(self.operators.items())[:_MOST_ROWS])
        yield "parameters", f"{self.parameters:,} ({self.nbytes:,} bytes)"
        for dtype, of in self.dtypes.items():
            yield "tensors", f"{of['tensors']} of {dtype} ({of['bytes']:,} bytes)"


@dataclass(frozen=True)
class Histogram:
    """How many numbers are in each of some bins of equal width."""

    start: float
    """Where the first bin begins."""
    width: float
    """The width of each bin, a power of two. A bin has its lower end, and not its upper one."""
    counts: list[int]
    """The numbers in each bin."""

    @property
    def edges(self) -> list[float]:
        """The ends of the bins, one more than there are counts, as ``numpy.histogram`` takes them."""
        return [self.start + self.width * number for number in range(len(self.counts) + 1)]


@dataclass(frozen=True)
class TensorStats:
    """What the elements of a tensor are like. Mean, deviation and histogram are of the finite ones."""

    name: str
    dtype: str
    shape: list[int]
    elements: int
    bytes: int
    min: float | int | None
    """The smallest finite element; None without any."""
    max: float | int | None
    mean: float | None
    std: float | None
    """The standard deviation, as ``numpy.std`` has it."""
    nan: int
    """How many elements are not a number."""
    infinite: int
    zeros: int
    all_equal: bool
    histogram: Histogram | None = field(repr=False)


@dataclass(frozen=True)
class ModelDiff:
    """What differs between the models A and B. It is true where something does."""

    same: bool
    """Whether they have the same content, wherever it is stored."""
    properties: list[dict[str, Any]]
    """Versions, metadata, inputs, outputs and functions that differ: ``what``, ``name``, ``a``, ``b``."""
    operators: list[dict[str, Any]]
    """Operators of which nodes differ: ``operator``, the number of nodes ``a`` and ``b``, and how many are ``changed``."""
    other: bool
    """Whether something else in the messages differs."""
    other_changes: list[dict[str, Any]]
    """What this is: ``what`` (``value_types``, ``documentation``, ``node_order``, ``attribute_order``, ``fields``), and
    how many are ``added``, ``removed``, ``changed``."""
    equal: int
    """How many tensors are equal and have the same name and place."""
    added: list[dict[str, Any]]
    """Tensors that only B has: the largest first, as in the other lists."""
    removed: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    """Tensors with other elements, type or shape: ``name``, ``a``, ``b``, and with ``stats`` the ``difference``."""
    renamed: list[dict[str, Any]]
    """Tensors with the same content and another name: ``from``, ``to``."""
    moved: list[dict[str, Any]]
    """Tensors that are stored at another place. They are no difference."""
    by_digests: int
    """How many tensors were compared by the digests that are stored with both models, which were not verified."""
    bytes_read: int
    """How many bytes of weights were read to know this."""

    def __bool__(self) -> bool:
        return not self.same

    def __repr__(self) -> str:
        lines = [f"{it['what']} {it['name'] or ''}: {it['a']} -> {it['b']}" for it in self.properties]
        lines += [f"{it['operator']}: {it['a']} -> {it['b']} nodes, {it['changed']} changed" for it in self.operators]
        for it in self.other_changes:
            counts = [f"{it[kind]} {kind}" for kind in ("added", "removed", "changed") if it[kind]]
            lines.append(f"{it['what'].replace('_', ' ')}: {', '.join(counts) or 'something else in the messages'}")
        for kind in ("changed", "added", "removed", "renamed"):
            tensors: list[dict[str, Any]] = getattr(self, kind)
            lines += [f"{kind} {_told(it)}" for it in tensors[:_MOST_ROWS]]
            lines += [f"and {len(tensors) - _MOST_ROWS} more {kind}"] if len(tensors) > _MOST_ROWS else []
        lines += [f"{len(self.moved)} tensors are stored elsewhere"] if self.moved else []
        told = f"; {self.by_digests} told by stored digests" if self.by_digests else ""
        return "\n".join([*map(shown, lines), f"{'the same' if self.same else 'different'}: {self.equal} tensors equal{told}"])


def inspect(path: Path, *, mmap: bool = True, **options: Unpack[LoadOptions]) -> Summary:
    """What is in the model ``path``, or in a ``.safetensors`` file or the index of several. No weights are read.

    Options are those of :meth:`Container.load`.

        >>> summary = inspect("encoder.onnx")
        >>> summary.parameters, [str(value) for value in summary.inputs]
        (90094, ['tokens: INT64 [batch,length]', 'careful: BOOL []'])
    """
    load = _load("inspect", {"mmap": mmap, **options})
    return summary_of(_core.inspect(_places.placed("inspect", path, load).path, load))


def diff(
    a: Path | Container,
    b: Path | Container,
    *,
    stats: bool = False,
    ignore_stored_digests: bool = False,
    mmap: bool = True,
    **options: Unpack[LoadOptions],
) -> ModelDiff:
    """What differs between two models: structure first, then tensors by content.

    Weights are read only where nothing else tells: not those that are the same bytes of the same file, nor those with
    stored digests. Options are those of :meth:`Container.load`.

    Args:
        stats: also finds how far the elements of changed tensors are apart.
        ignore_stored_digests: reads the weights whose digests are stored with both models too.

        >>> container = Container.load("encoder.onnx")
        >>> container.metadata["license"] = "mit"
        >>> diff("encoder.onnx", container)
        metadata license: None -> mit
        different: 35 tensors equal
    """
    from ._container import Container

    if isinstance(a, Container) or isinstance(b, Container):
        sides = [it if isinstance(it, Container) else Container.load(it, mmap, **options) for it in (a, b)]
        return _diff_of(sides[0]._core.compare(sides[1]._core, stats, ignore_stored_digests))
    load = _load("diff", {"mmap": mmap, **options})
    has_url = _places.is_url(a) or _places.is_url(b)
    one, other = (_places.placed("diff", it, load, has_url).path for it in (a, b))
    return _diff_of(_core.diff(one, other, load, stats, ignore_stored_digests))


def stats(
    model: Path | Container,
    names: str | Iterable[str] | None = None,
    *,
    part: tuple[int, int] | None = None,
    mmap: bool = True,
    **options: Unpack[LoadOptions],
) -> dict[str, TensorStats]:
    """What the elements of the tensors are like: smallest, largest, mean, deviation, how many are not finite or zero.

    All weights that are asked for are read once, on all cores. Options are those of :meth:`Container.load`.

    Args:
        names: patterns such as ``"layers.3.*"``; all tensors without. Each has to match a tensor.
        part: ``(3, 64)`` is the fourth of 64 parts of the tensors, which as many processes go through.

        >>> found = stats("encoder.onnx", "*.qkv")
        >>> list(found), found["layer0.qkv"].nan
        (['layer0.qkv', 'layer1.qkv'], 0)
    """
    from ._container import Container

    part = _values.part("stats", part)
    container = model if isinstance(model, Container) else Container.load(model, mmap, **options)
    found = json.loads(container._core.stats(_selected(container, names), part))
    return {it["name"]: _stats_of(it) for it in found}


def _selected(container: Container, names: str | Iterable[str] | None) -> list[str] | None:
    return None if names is None else _patterns.selected("stats", container._names(), names)


def _stats_of(found: dict[str, Any]) -> TensorStats:
    histogram = found.pop("histogram")
    return TensorStats(**found, histogram=histogram and Histogram(**histogram))


def summary_of(text: str) -> Summary:
    """The summary in the JSON of the library."""
    found = json.loads(text)
    totals = found["totals"]
    return Summary(
        inputs=[ValueSummary(**value) for value in found.pop("inputs")],
        outputs=[ValueSummary(**value) for value in found.pop("outputs")],
        opsets={opset["domain"]: opset["version"] for opset in found.pop("opsets")},
        metadata={entry["key"]: entry["value"] for entry in found.pop("metadata")},
        operators={it["operator"]: it["nodes"] for it in found.pop("operators")},
        dtypes={it.pop("dtype"): it for it in found.pop("dtypes")},
        tensors=[TensorSummary(**tensor) for tensor in found.pop("tensors")],
        nbytes=totals["inline_bytes"] + totals["external_bytes"],
        **found,
    )


def _diff_of(text: str) -> ModelDiff:
    found = json.loads(text)
    return ModelDiff(**found.pop("tensors"), **found)


def _load(function: str, options: Any) -> dict[str, Any]:
    return _options.load(function, **options)


def _told(tensor: dict[str, Any]) -> str:
    name = tensor["name"] if "name" in tensor else f"{tensor['from']} to {tensor['to']}"
    apart = tensor.get("difference")
    if not apart:
        return name
    not_finite = apart["not_finite"]
    where = "A" if not apart["not_finite_b"] else "B" if not apart["not_finite_a"] else "A or B"
    if not_finite and not_finite == apart["differing"]:
        return f"{name}: {not_finite} of {apart['elements']} elements, all of them NaN or infinite in {where}"
    # A difference that is infinite is null in JSON.
    largest, mean = (float("inf") if apart[it] is None else apart[it] for it in ("max_abs", "mean_abs"))
    told = f"{name}: at most {largest:.6g}, {mean:.6g} on average"
    return f"{told}, {not_finite} NaN or infinite in {where}" if not_finite else told


def _html_row(first: str, other: str, cells: Sequence[str]) -> str:
    def cell(tag: str, text: str) -> str:
        return f"<{tag}>{html.escape(shown(text))}</{tag}>"

    return "<tr>" + "".join(cell(other if number else first, text) for number, text in enumerate(cells)) + "</tr>"
