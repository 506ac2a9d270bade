"""What is no model, and options that have no effect or no meaning, are refused; what fails changes nothing."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import onnx_container as oc
import pytest
from onnx_container import Container, Error, Tensor
from onnx_container import external_data_helper as helper


def full() -> Container:
    model, weights = models.matmul()
    return Container(model, weights)


def inline() -> onnx.ModelProto:
    return models.matmul(inline=True)[0]


def external(key: str = "", value: str = "") -> onnx.TensorProto:
    tensor = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    helper.set_external_data(tensor, "w.data", 0, 16)
    if key:
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.parametrize("wrong", [inline().graph, inline().graph.node[0], inline().graph.initializer[0], 3, None, object()])
def test_only_a_model_is_a_model(tmp_path: Path, wrong: Any) -> None:
    container = full()
    before = container.model_bytes
    works: list[Callable[[], Any]] = [
        lambda: setattr(container, "model_proto", wrong),
        lambda: oc.save_model(wrong, tmp_path / "m.onnx"),
        lambda: oc.save_model(wrong, io.BytesIO()),
        lambda: oc.inline_functions(wrong),
    ]
    if wrong is not None:
        works.append(lambda: Container(wrong))
    for work in works:
        with pytest.raises(TypeError, match="ModelProto"):
            work()
    assert container.model_bytes == before and not list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_bytes_of_a_model_go_where_the_model_goes(tmp_path: Path, make: Callable[[bytes], Any]) -> None:
    stream = io.BytesIO()
    oc.save_model(make(inline().SerializeToString()), stream)
    assert onnx.load_model_from_string(stream.getvalue()) == inline()
    handles = make(full().model_bytes)
    for place in (io.BytesIO(), tmp_path / "m.json", tmp_path / "m.onnx"):
        with pytest.raises(ValueError, match="is a handle"):
            oc.save_model(handles, place)
    assert not list(tmp_path.iterdir())


WRITERS: list[Callable[[Path], Any]] = [
    lambda path: oc.save_model(inline(), path, save_as_external_data=True, size_threshold=0),
    lambda path: container_of(oc.ModelContainer).save(path, True),
    lambda path: container_of(oc.ExtendedModelContainer).save(path),
    lambda path: full().save(path),
]


def container_of(kind: Any) -> Any:
    model, weights = models.matmul()
    container = kind()
    container.model_proto = model
    container.set_large_initializers(weights)
    return container


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_that_nobody_named_is_replaced_only_where_the_model_needs_it(tmp_path: Path, write: Callable[[Path], Any]) -> None:
    path = tmp_path / "m.onnx"
    for suffix in (".data", ".weight"):
        (tmp_path / f"m.onnx{suffix}").write_text("precious")
    with pytest.raises(FileExistsError, match=r"m\.onnx\.(data|weight)"):
        write(path)
    assert sorted(it.read_text() for it in tmp_path.iterdir()) == ["precious", "precious"]
    for it in list(tmp_path.iterdir()):
        it.unlink()
    write(path)
    write(path)  # its own
    assert len(list(tmp_path.iterdir())) == 2


def test_a_location_counts_with_shards_too(tmp_path: Path) -> None:
    def save(**options: Any) -> list[str]:
        for it in list(tmp_path.iterdir()):
            it.unlink()
        oc.save_model(inline(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="w.bin", **options)
        return sorted(it.name for it in tmp_path.iterdir())

    assert save() == save(files="packed") == save(files=None) == ["m.onnx", "w.bin"]
    assert save(max_shard_bytes=16384) == ["m.onnx", "w-00001-of-00002.bin", "w-00002-of-00002.bin"]
    with pytest.warns(UserWarning, match="location has no effect"):
        assert "w.bin" not in save(all_tensors_to_one_file=False)


def test_a_load_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    container = container_of(oc.ModelContainer)
    before = container.model_proto
    with pytest.raises(FileNotFoundError):
        container.load(tmp_path / "none.onnx")
    assert container.model_proto is before and container.large_initializers
    for kind in (oc.ModelContainer, oc.ExtendedModelContainer):
        with pytest.raises(TypeError):
            kind(inline())


@pytest.mark.parametrize(
    "options, text",
    [
        ({"files": "per-tensor", "data_name": "x.data"}, "data_name has no effect"),
        ({"one_file": False, "data_name": "x.data"}, "data_name has no effect"),
        ({"files": "embedded", "externalize": True, "threshold": 10}, "externalize, threshold has no effect"),
        ({"files": "embedded", "checksums": True, "alignment": 4096}, "alignment, checksums has no effect"),
        ({"shard_names": "transformers-js"}, "shard_names has no effect"),
        ({"alignment": 3}, "a power of two"),
        ({"alignment_large": 0}, "a power of two"),
        ({"data_name": ""}, "data_name is the name"),
    ],
)
def test_options_of_a_save_without_effect_are_refused(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    works: list[Callable[..., Any]] = [lambda **given: full().save(tmp_path / "m.onnx", **given), full().to_parts]
    for work in works:
        with pytest.raises(ValueError, match=text):
            work(**options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"max_model_bytes": 1}, {"progress": print}, {"sync": False}, {"overwrite": False}, {"protect": "x"}])
def test_parts_take_no_options_of_files(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="nothing is written"):
        full().to_parts(**options)


@pytest.mark.parametrize(
    "work, error, text",
    [
        (lambda c, p: c.attach(p.parent, base_dir="x"), TypeError, "base_dir"),
        (lambda c, p: c.attach(p.parent, limits={"nodes": 0}), TypeError, "limits"),
        (lambda c, p: oc.findings(p, weights=False, contents=True), ValueError, "weights=False"),
        (lambda c, p: oc.check_model(p, weights=False, digests=True), ValueError, "weights=False"),
        (lambda c, p: oc.findings(p, verify_digests="no"), TypeError, "verify_digests is True or False"),
        (lambda c, p: Container.load(p, alignment=3), ValueError, "a power of two"),
        (lambda c, p: Container.load(b"m.onnx"), TypeError, r"from a path, not bytes: from_bytes\(\)"),
        (lambda c, p: Container.load(p, limits=[("nodes", 3)]), TypeError, "limits maps names"),
        (lambda c, p: Container.load(p, limits={"nodes": True}), TypeError, "limits maps names"),
        (lambda c, p: c.externalize(min_bytes=-1), TypeError, "min_bytes"),
        (lambda c, p: c.externalize(min_bytes=True), TypeError, "min_bytes"),
        (lambda c, p: c.consolidate(alignment=-1), TypeError, "alignment"),
        (lambda c, p: c.consolidate(threshold=True), TypeError, "threshold"),
        (lambda c, p: c.match({}, -1), TypeError, "min_elements"),
        (lambda c, p: c.match([("a", 1)]), TypeError, "state_dict, not list"),
        (lambda c, p: c.fill([("a", 1)]), TypeError, "state_dict, not list"),
        (lambda c, p: oc.DataType.of(float), TypeError, "no element type"),
        (lambda c, p: oc.DataType.of(True), TypeError, "no element type"),
        (lambda c, p: c.cast(float), TypeError, "no element type"),
        (lambda c, p: Tensor.lazy("float32", (4,), 5), TypeError, "takes a callable"),
        (lambda c, p: helper.set_external_data(inline().graph.initializer[0], "f", "x"), ValueError, "invalid literal"),
        (lambda c, p: Container.load(f"{p}\0"), Error, "NUL"),
        (lambda c, p: c.save(f"{p}\0"), Error, "NUL"),
        (lambda c, p: oc.findings(f"{p}\0"), Error, "NUL"),
    ],
)
def test_what_has_no_meaning_is_refused(tmp_path: Path, work: Callable[[Container, Path], Any], error: type[Exception], text: str) -> None:
    path = tmp_path / "m.onnx"
    full().save(path)
    with pytest.raises(error, match=text):
        work(Container.load(path, weights=False), path)


CALLS: dict[str, Callable[..., Any]] = {
    "load": lambda path, **options: Container.load(path, **options),
    "save": lambda path, **options: full().save(path, **options),
    "export_safetensors": lambda path, **options: full().export_safetensors(path, **options),
    "fill": lambda path, **options: full().fill({}, **{"partial": True, **options}),
    "cast": lambda path, **options: full().cast("float16", **options),
    "inline_functions": lambda path, **options: full().inline_functions(**options),
    "sign": lambda path, **options: oc.sign(path, private_key="key.pem", **options),
    "report": lambda path, **options: oc.report(path, path.with_suffix(".html"), **options),
}


@pytest.mark.parametrize(
    "function, option, values",
    [
        ("load", "base_dir", [5, b"x", ["x"], True]),
        ("load", "no_copy", [5, "x", [True]]),
        ("load", "limits", [5, {1: 2}, {"nodes": -1}, {"nodes": 1.5}, {"nodes": 1 << 64}, {"nodes": None}]),
        ("save", "protect", [5, b"x", [1], {1: 2}, [None], object]),
        ("save", "inline", [5, {1: 2}]),
        ("export_safetensors", "metadata", [5, "x", [1], {1: "x"}, {"a": 1}]),
        ("fill", "replace_prefix", [5, {1: "x"}, {"a": 1}]),
        ("fill", "ignore", [5, b"x", [1], [None]]),
        ("cast", "except_", [5, b"x", True, [1]]),
        ("cast", "keep_ops", [5, b"x", True, [1]]),
        ("inline_functions", "only", [5, b"x", [1], [None]]),
        ("inline_functions", "except_", [5, b"x", [1], [None]]),
        ("sign", "signature", [5, b"x"]),
        ("sign", "limits", [{1: 2}, {"nodes": -1}]),
        ("report", "stats", [1, "x"]),
        ("report", "overwrite", [1, "x"]),
        ("report", "plan", [1, {1: 2}, {"batch": -1}, {"batch": "x"}]),
    ],
)
def test_values_of_options_are_refused_by_their_names(tmp_path: Path, function: str, option: str, values: list[Any]) -> None:
    path = tmp_path / "m.onnx"
    full().save(path)
    for value in values:
        with pytest.raises(TypeError, match=rf"^{function}\(\): {option} (is|maps) .*not "):
            CALLS[function](path, **{option: value})


def test_entries_of_external_data_are_as_onnx_writes_them() -> None:
    ours, theirs = (onnx.numpy_helper.from_array(np.ones(4, np.float32), "w") for _ in range(2))
    for offset, length in ((1.5, True), ("7", None), (np.int64(3), np.int32(4))):
        helper.set_external_data(ours, "f", offset, length)
        onnx.external_data_helper.set_external_data(theirs, "f", offset, length)
        assert ours == theirs
    helper.convert_model_to_external_data(inline(), location=Path("a"), size_threshold=0)  # as onnx does


def test_unknown_keys_of_external_data_are_told(tmp_path: Path) -> None:
    (tmp_path / "w.data").write_bytes(np.ones(4, np.float32).tobytes())
    model = models.add()
    model.graph.initializer.append(external("zz", "1"))
    model.graph.initializer[0].ClearField("raw_data")
    onnx.save_model(model, tmp_path / "m.onnx")
    works: list[Callable[[], Any]] = [
        lambda: oc.load_model(tmp_path / "m.onnx"),
        lambda: helper.load_external_data_for_model(model, tmp_path),
        lambda: helper.load_external_data_for_tensor(external("zz", "1"), tmp_path),
        lambda: helper.ExternalDataInfo(external("zz", "1")),
    ]
    for work in works:
        with pytest.warns(UserWarning, match="zz") as told:
            work()
        assert told[0].filename == __file__


@pytest.mark.parametrize(
    "work",
    [
        lambda container: container.update({"#a": b"abc"}),
        lambda container: container.fill({"a": b"abc"}, partial=True),
    ],
)
def test_bytes_that_do_not_fit_name_their_tensor(work: Callable[[Container], Any]) -> None:
    with pytest.raises(Error, match="a`: ") as raised:
        work(Container(full().model_proto))
    assert raised.value.tensor in ("a", "#a")


def test_a_name_that_is_taken_is_no_file_that_exists() -> None:
    with pytest.raises(Error, match="a value of this name") as raised:
        full().add("a", np.ones(2))
    assert not isinstance(raised.value, OSError) and raised.value.kind == "AlreadyExists"


def test_weights_of_no_tensor_are_told(tmp_path: Path) -> None:
    container = full()
    container["#typo"] = np.ones(3, np.float32)
    with pytest.warns(UserWarning, match="#typo.*of no tensor"):
        assert container.save(tmp_path / "m.onnx").unused == ["#typo"]


def test_tensors_that_change_with_another_one_are_told(tmp_path: Path) -> None:
    def tied() -> Container:
        model, weights = models.matmul()
        for tensor in model.graph.initializer:
            tensor.external_data[0].value = "#a"
        return Container(model, {"#a": weights["#a"]})

    other = np.full((64, 64), 7, np.float32)
    for options, changed in (({}, True), ({"tied": "all"}, True), ({"tied": "this"}, False)):
        container = tied()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert container.replace("a", other, **options) == ["b"]
        assert [str(it.message) for it in told if "changed too" not in str(it.message)] == []
        assert len(told) == (not options)
        assert (container.tensor("b").numpy()[0, 0] == 7) == changed
    with pytest.raises(ValueError, match="tied is 'thsi', not one of"):
        tied().replace("a", other, tied="thsi")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options, text",
    [
        ({"location": "w.data"}, "location has no effect without save_as_external_data"),
        ({"save_as_external_data": True, "location": "w.data", "size_threshold": 10**9}, "location had no effect"),
    ],
)
def test_a_location_without_external_tensors_is_told(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.warns(UserWarning, match=text):
        oc.save_model(inline(), tmp_path / "m.onnx", **options)
    assert [it.name for it in tmp_path.iterdir()] == ["m.onnx"]


def test_options_about_files_of_inline_tensors_are_told(tmp_path: Path) -> None:
    for options in ({"data_name": "x.data"}, {"max_shard_bytes": 1000}):
        with pytest.warns(UserWarning, match="had no effect: no tensor is external"):
            Container(inline()).save(tmp_path / "m.onnx", **options)


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"save_as_external": True}, TypeError, "did you mean 'save_as_external_data'"),
        ({"digest": True}, TypeError, "did you mean 'digests'"),
        ({"max_shard_size": 1}, TypeError, "did you mean 'max_shard_bytes'"),
        ({"save_as_external_data": True, "size_threshold": "1 kilo"}, ValueError, "size_threshold is '1 kilo', which is not a number of bytes"),
        ({"save_as_external_data": True, "location": "sub/"}, ValueError, "names a folder"),
        ({"save_as_external_data": True, "files": "embedded"}, ValueError, "contradict"),
        ({"save_as_external_data": True, "max_shard_bytes": 0}, ValueError, "a shard has at least one byte"),
    ],
)
def test_keywords_of_save_model_are_checked(tmp_path: Path, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        oc.save_model(inline(), tmp_path / "m.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_what_a_fill_takes_is_said() -> None:
    weights = {"a": np.ones((64, 64), np.float32)}
    for options, text in (({"rename": {"a": ["b"]}}, "maps a name to one name"), ({"ignore": 3}, "a name, or several")):
        with pytest.raises(TypeError, match=text):
            full().fill(weights, **options)
    with pytest.raises(TypeError, match="takes a Container, not str"):
        full().semantic_difference("m.onnx")  # type: ignore[arg-type]


def test_numbers_and_flags_of_numpy_are_options(tmp_path: Path) -> None:
    yes, no = np.bool_(True), np.bool_(False)
    path = tmp_path / "m.onnx"
    oc.save_model(inline(), path, save_as_external_data=yes, size_threshold=np.int64(64 * 64 * 4), sync=no)
    assert (tmp_path / "m.onnx.data").exists()
    container = Container.load(path, mmap=no, weights=yes)
    container.save(tmp_path / "n.onnx", yes, alignment=np.uint16(512), digests=yes)
    assert container.match({"x": np.ones((64, 64), np.float32)}, min_elements=np.int32(8)) is not None
    assert len(container.consolidate(np.int64(64), threshold=np.int8(1), typed_fields=no)) > 0
    moved = Container(inline())
    assert moved.externalize(np.int16(1), all_tensors=yes).moved == 2
    oc.check_model(path, contents=yes, digests=no)


@pytest.mark.parametrize("wrong", [np.float32(1), np.bool_(True), True, np.int64(-1), 1.5])
def test_what_is_no_number_is_refused_under_the_name_that_the_caller_used(tmp_path: Path, wrong: Any) -> None:
    calls: list[tuple[str, Callable[[], object]]] = [
        ("size_threshold", lambda: oc.save_model(inline(), tmp_path / "m", save_as_external_data=True, size_threshold=wrong)),
        ("min_bytes", lambda: Container(inline()).externalize(wrong)),
        ("alignment", lambda: full().consolidate(wrong)),
        ("min_elements", lambda: full().match({}, wrong)),
    ]
    for name, call in calls:
        with pytest.raises(TypeError, match=rf"{name} is a number"):
            call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["a\0b", "folder\0/m.onnx"])
def test_a_path_with_a_nul_byte_is_refused(path: str) -> None:
    for call in (oc.recover, oc.model_that_needs, lambda it: oc.model_that_needs("m.onnx", it)):
        with pytest.raises((ValueError, Error), match="NUL|null"):
            call(path)


def test_a_mistyped_handle_is_told_what_it_is_most_like() -> None:
    container = full()
    for call in (lambda: container["#A"], lambda: container.__delitem__("#A")):
        with pytest.raises(KeyError, match="#A: did you mean '#[ab]'"):
            call()
    with pytest.raises(KeyError, match="'#something'$"):
        container["#something"]
