"""``Container``: save and load in every layout, changes, lifetimes, threads, errors."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import weakref
from pathlib import Path

import models
import numpy as np
import onnx
import pytest
from onnx_container import Container, Error, Recovered, findings, inline_functions, recover

LAYOUTS = [
    ({}, {"m.onnx", "m.onnx.data"}),
    ({"one_file": True}, {"m.onnx", "m.onnx.data"}),
    ({"one_file": False}, {"m.onnx", "m-a.weight", "m-b.weight"}),
    ({"files": "embedded"}, {"m.onnx"}),
    ({"files": "safetensors"}, {"m.onnx", "m.safetensors"}),
    ({"max_shard_bytes": 20_000}, {"m.onnx", "m-00001-of-00002.onnx.data", "m-00002-of-00002.onnx.data"}),
    ({"data_name": "weights.bin", "digests": True}, {"m.onnx", "weights.bin"}),
]


def filled() -> tuple[Container, dict[str, np.ndarray]]:
    model, weights = models.matmul()
    return Container(model, weights), weights


@pytest.mark.parametrize(("options", "names"), LAYOUTS)
@pytest.mark.parametrize("mmap", [True, False])
def test_every_layout_comes_back(tmp_path: Path, options: dict, names: set[str], mmap: bool) -> None:
    container, weights = filled()
    saved = container.save(tmp_path / "m.onnx", **options)
    assert set(os.listdir(tmp_path)) == names == {name for name, _ in saved.files}
    assert saved.model_proto == onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert [kind for kind, _ in findings(tmp_path / "m.onnx") if kind == "error"] == []
    loaded = Container.load(tmp_path / "m.onnx", mmap=mmap)
    for name in "ab":
        np.testing.assert_array_equal(loaded.tensor(name).numpy(), weights[f"#{name}"])
    assert loaded.digest() == container.digest()
    x = np.ones((3, 64), np.float32)
    np.testing.assert_allclose(
        models.run(str(tmp_path / "m.onnx"), x=x)[0], x @ weights["#a"] @ weights["#b"], rtol=1e-3
    )


def test_a_container_is_a_mapping() -> None:
    container, weights = filled()
    assert list(container) == container.keys() == ["#a", "#b"]
    assert len(container) == 2 and "#a" in container and "#c" not in container
    assert container.get("#c") is None
    with pytest.raises(KeyError):
        container["#c"]
    del container["#a"]
    with pytest.raises(KeyError):
        del container["#a"]
    with pytest.raises(Error) as raised:
        container.check()
    assert (raised.value.kind, raised.value.tensor) == ("MissingHandle", "a")
    container["#a"] = weights["#a"]
    container.check()


def test_copies_share_until_they_are_changed() -> None:
    container, weights = filled()
    other = copy.copy(container)
    other["#a"] = weights["#a"] + 1
    np.testing.assert_array_equal(container["#a"].numpy(), weights["#a"])
    np.testing.assert_array_equal(other["#a"].numpy(), weights["#a"] + 1)


def test_arrays_are_not_copied() -> None:
    container, weights = filled()
    for handle, tensor in container.items():
        assert tensor.bytes().address == weights[handle].ctypes.data


def test_a_tensor_outlives_its_container_and_a_map_its_tensors(tmp_path: Path) -> None:
    def maps() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path / "m.onnx.data"))

    container, weights = filled()
    container.save(tmp_path / "m.onnx")
    loaded = Container.load(tmp_path / "m.onnx")
    gone = weakref.ref(loaded)
    array = loaded.tensor("a").numpy()
    view = memoryview(loaded.tensor("b"))
    del loaded
    gc.collect()
    assert gone() is None and maps() > 0
    np.testing.assert_array_equal(array, weights["#a"])
    del array
    gc.collect()
    assert maps() > 0 and bytes(view) == weights["#b"].tobytes()
    del view
    gc.collect()
    assert maps() == 0


def test_weights_live_as_long_as_the_container() -> None:
    class Array(np.ndarray):
        pass

    model = models.add(("w", 1, (4,)))
    array = np.ones(4, np.float32).view(Array)
    alive = weakref.ref(array)
    container = Container(model, {"#w": array})
    del array
    gc.collect()
    assert alive() is not None
    del container
    gc.collect()
    assert alive() is None


def test_lazy_weights_are_made_for_each_save_and_freed(tmp_path: Path) -> None:
    made = []

    class Array(np.ndarray):
        pass

    def make() -> np.ndarray:
        array = np.full(1000, 7, np.float32).view(Array)
        made.append(weakref.ref(array))
        return array

    container = Container(models.add(("w", 1, (1000,))), {"#w": make})
    assert container["#w"].is_lazy and made == []
    container.save(tmp_path / "m.onnx")
    gc.collect()
    assert len(made) == 1 and made[0]() is None
    assert Container.load(tmp_path / "m.onnx").tensor("w").numpy().sum() == 7000


def test_what_a_callable_raises_is_the_cause(tmp_path: Path) -> None:
    def fails() -> bytes:
        raise RuntimeError("no such checkpoint")

    container = Container(models.add(("w", 1, (4,))), {"#w": fails})
    with pytest.raises(Error, match="no such checkpoint") as raised:
        container.save(tmp_path / "m.onnx")
    assert isinstance(raised.value.__cause__, RuntimeError) and raised.value.tensor is not None
    assert os.listdir(tmp_path) == []
    container["#w"] = lambda: b"\0" * 8
    with pytest.raises(Error):
        container.save(tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


def test_progress_reports_and_cancels(tmp_path: Path) -> None:
    container, _ = filled()
    seen: list[tuple[int, int]] = []
    container.save(tmp_path / "m.onnx", progress=lambda done, total: seen.append((done, total)))
    assert seen[0][0] == 0 and seen[-1][0] == seen[-1][1] > 2 * 64 * 64 * 4
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    container["#a"] = np.zeros((64, 64), np.float32)
    with pytest.raises(Error) as raised:
        container.save(tmp_path / "m.onnx", progress=lambda done, total: False)
    assert raised.value.kind == "Cancelled"

    def fails(done: int, total: int) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        container.save(tmp_path / "m.onnx", progress=fails)
    assert before == {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}


def test_threads_share_a_container(tmp_path: Path) -> None:
    container, weights = filled()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                container["#a"] = weights["#a"]
                path = tmp_path / f"m{number}-{turn}.onnx"
                container.save(path, sync=False, progress=lambda done, total: None)
                assert Container.load(path).digest() == digest
        except BaseException as error:
            errors.append(error)

    digest = container.digest()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert errors == []


def test_inline_tensors_move_out_and_back() -> None:
    model, weights = models.matmul(inline=True)
    container = Container(model)
    assert len(container) == 0 and list(container.tensors()) == ["a", "b"]
    moved = container.externalize(min_bytes=1024)
    assert (moved.moved, moved.nbytes, len(container)) == (2, 2 * 64 * 64 * 4, 2)
    again = container.embed()
    assert again.graph.initializer[0].raw_data == weights["#a"].tobytes()
    assert container.digest() == Container(model).digest()


def test_functions_are_inlined() -> None:
    model = models.with_function()
    done, report = inline_functions(model)
    assert report.calls == 1 and report.removed == ["local::double"]
    container = Container(model)
    assert container.inline_functions(except_=["local::"]).calls == 0
    assert container.inline_functions().calls == 1
    assert container.model_bytes == done
    assert [node.op_type for node in container.model_proto.graph.node] == ["Add"]
    with pytest.raises(Error, match="no function"):
        container.inline_functions(only=["local::triple"])


def test_weights_are_filled_by_name(tmp_path: Path) -> None:
    import safetensors.numpy

    model, weights = models.matmul()
    named = {handle[1:]: weight for handle, weight in weights.items()}
    container = Container(model)
    report = container.fill({f"model.{name}": weight for name, weight in named.items()}, strip_prefix="model.")
    assert (report.filled, report.missing) == (2, [])
    safetensors.numpy.save_file(named, tmp_path / "w.safetensors")
    other = Container(model)
    assert other.attach_safetensors(tmp_path / "w.safetensors").filled == 2
    assert other.digest() == container.digest()


def test_one_buffer_holds_all() -> None:
    container, weights = filled()
    buffer = container.consolidate(alignment=256)
    for handle, tensor in container.items():
        offset = tensor.bytes().address - buffer.address
        assert offset % 256 == 0 and 0 <= offset < len(buffer)
        np.testing.assert_array_equal(tensor.numpy(), weights[handle])


def test_weights_are_cast() -> None:
    container, weights = filled()
    cast = container.cast(10)
    assert (cast.cast, cast.bytes_before, cast.bytes_after, cast.kept) == (2, 32768, 16384, [])
    # A Cast node computes the value of the old name.
    assert [tensor.dtype for tensor in container.tensors().values()] == [10, 10]
    np.testing.assert_array_equal(container.values()[0].numpy(), weights["#a"].astype(np.float16))


def test_weights_that_become_infinite_are_listed_once_they_are_saved(tmp_path: Path) -> None:
    container, _ = filled()
    container["#a"] = np.full(container["#a"].shape, 1e6, np.float32)
    cast = container.cast("float16")
    assert cast.infinite == []
    container.save(tmp_path / "m.onnx")
    assert cast.infinite == ["a"]
    assert pickle.loads(pickle.dumps(cast)).infinite == ["a"]


def test_errors_say_what_and_where(tmp_path: Path) -> None:
    container, _ = filled()
    container.save(tmp_path / "m.onnx")
    data = tmp_path / "m.onnx.data"
    os.truncate(data, 100)
    with pytest.raises(Error) as raised:
        Container.load(tmp_path / "m.onnx")
    error = raised.value
    assert (error.kind, error.path) == ("OutOfBounds", str(data)) or error.related
    data.unlink()
    with pytest.raises(Error) as raised:
        Container.load(tmp_path / "m.onnx")
    assert raised.value.kind == "MissingFile" and str(data) in str(raised.value)
    with pytest.raises(Error) as raised:
        Container(b"\xff\xff")
    assert raised.value.kind == "Decode"
    for wrong in [{"files": "zip"}, {"shard_names": "x"}, {"files": "embedded", "max_shard_bytes": 1}]:
        with pytest.raises(ValueError):
            container.save(tmp_path / "n.onnx", **wrong)
    with pytest.raises(TypeError):
        container.save(tmp_path / "n.onnx", unknown=1)
    with pytest.raises(ValueError):
        Container.load(tmp_path / "m.onnx", paths="everywhere")


def test_untrusted_models_are_limited(tmp_path: Path) -> None:
    model = models.add(("w", 1, (4,)))
    model.graph.initializer[0].external_data[0].value = "../w.bin"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(Error) as raised:
        Container.load(tmp_path / "m.onnx")
    assert raised.value.kind == "UnsafePath"
    with pytest.raises(Error) as raised:
        Container.load(tmp_path / "m.onnx", weights=False, limits={"nodes": 0})
    assert raised.value.kind == "TooLarge"
    assert [kind for kind, _ in findings(tmp_path / "m.onnx")][0] == "error"


def test_stored_digests_are_verified(tmp_path: Path) -> None:
    container, _ = filled()
    container.save(tmp_path / "m.onnx", digests=True)
    Container.load(tmp_path / "m.onnx", verify_digests=True)
    data = tmp_path / "m.onnx.data"
    content = bytearray(data.read_bytes())
    content[0] ^= 1
    data.write_bytes(content)
    with pytest.raises(Error) as raised:
        Container.load(tmp_path / "m.onnx", verify_digests=True)
    assert raised.value.kind == "WrongDigest" and raised.value.tensor == "a"


def test_nothing_is_left_to_recover(tmp_path: Path) -> None:
    filled()[0].save(tmp_path / "m.onnx")
    assert recover(tmp_path) == Recovered([], [], 0, [], 0)


def test_parts_are_what_a_save_writes(tmp_path: Path) -> None:
    container, _ = filled()
    model, files = container.to_parts()
    container.save(tmp_path / "m.onnx", data_name=next(iter(files)))
    (name, data), = files.items()
    assert bytes(data) == (tmp_path / name).read_bytes()
    assert bytes(model) == (tmp_path / "m.onnx").read_bytes()


def test_models_that_compute_the_same_are_told() -> None:
    container, weights = filled()
    other = container.copy()
    assert container.semantic_difference(other) is None
    other["#a"] = weights["#a"] + 1
    assert "a" in (container.semantic_difference(other) or "")
    assert container.semantic_digest() != other.semantic_digest()


def ends(work) -> None:
    """Runs ``work`` on a thread of its own, which has to come to an end. The time is only there to give up."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive(), "it waits for ever"
    if raised:
        raise raised[0]


@pytest.mark.parametrize("change", ["consolidate", "digest", "to_parts", "embed", "save"])
def test_callables_may_use_the_container(tmp_path: Path, change: str) -> None:
    container, weights = filled()
    container["#b"] = lambda: container["#a"].numpy() + len(container)
    expected = weights["#a"] + 2
    arguments = [tmp_path / "m.onnx"] if change == "save" else []
    ends(lambda: getattr(container, change)(*arguments))
    np.testing.assert_array_equal(container.tensor("b").numpy(), expected)


def test_what_is_replaced_may_use_the_container() -> None:
    container, weights = filled()
    seen = []

    class Array(np.ndarray):
        def __del__(self) -> None:
            seen.append(len(container))

    def replace() -> None:
        for _ in range(3):
            container["#a"] = weights["#a"].copy().view(Array)
        with pytest.raises(Error):
            container.update({"#a": weights["#a"], "bad": weights["#a"]})
        assert isinstance(container["#a"].numpy(), np.ndarray) and "bad" not in container
        container.update({"#a": weights["#a"]})
        del container["#b"]

    ends(replace)
    gc.collect()
    assert len(seen) >= 3


def test_a_change_that_others_overtake_is_undone() -> None:
    container, weights = filled()

    def overtakes() -> np.ndarray:
        container["#a"] = weights["#a"] + 1
        return weights["#b"]

    container["#b"] = overtakes
    with pytest.raises(RuntimeError, match="changed by others"):
        container.consolidate()
    np.testing.assert_array_equal(container["#a"].numpy(), weights["#a"] + 1)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_program_ends_it(tmp_path: Path, raised: type[BaseException]) -> None:
    def interrupted() -> bytes:
        raise raised

    container, _ = filled()
    container["#a"] = interrupted
    for use in (lambda: container["#a"].numpy(), container.digest, container.to_parts, container.embed):
        with pytest.raises(raised):
            use()
    with pytest.raises(raised):
        container.save(tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


WRONG = [
    ({"fils": "packed"}, TypeError, "did you mean 'files'"),
    ({"max_shard_bytes": "2GX"}, ValueError, "'2GX', which is not a number of bytes"),
    ({"max_shard_bytes": -1}, TypeError, "number of bytes"),
    ({"alignment": 2.5}, TypeError, "alignment is a number of bytes"),
    ({"digests": "yes"}, TypeError, "digests is True or False"),
    ({"data_name": 3}, TypeError, "data_name is a str"),
    ({"progress": 3}, TypeError, "progress is True, or a callable"),
    ({"files": "zip"}, ValueError, "not one of"),
    ({"one_file": True, "files": "packed"}, ValueError, "one of them"),
    ({"threshold": 10}, ValueError, "externalize=True"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG, ids=str)
def test_wrong_options_say_what_would_be_right(tmp_path: Path, options: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        filled()[0].save(tmp_path / "m.onnx", **options)
    assert os.listdir(tmp_path) == []


def test_one_name_is_not_taken_for_its_letters(tmp_path: Path) -> None:
    container, weights = filled()
    container.save(tmp_path / "a.onnx")
    with pytest.raises(Error):
        container.save(tmp_path / "a.onnx", protect=str(tmp_path / "a.onnx"))
    assert container.copy().cast(10, except_="a").cast == 1
    with pytest.raises(ValueError, match="no tensor has a name like 'c'"):
        container.cast(10, except_=["a", "c"])
    with pytest.raises(ValueError, match="compute=True"):
        container.cast(10, keep_io=True)
    with pytest.raises(ValueError, match="compute=True"):
        container.cast(10, keep_ops="MatMul")
    with pytest.raises(ValueError, match="keep_ops has 'Matmul': no node"):
        container.cast(10, compute=True, keep_ops=["MatMul", "Matmul"])
    other = Container(models.matmul()[0])
    named = {handle[1:]: weight for handle, weight in weights.items()} | {"extra": weights["#a"]}
    assert other.fill(named, ignore="extra", strict=True).filled == 2
    assert Container(models.with_function()).inline_functions(only="local::double").calls == 1


def test_bytes_and_callables_are_filled_by_what_is_declared() -> None:
    container, weights = Container(models.matmul()[0]), models.matmul()[1]
    assert container.fill({"a": weights["#a"].tobytes(), "b": lambda: weights["#b"]}).filled == 2
    np.testing.assert_array_equal(container.tensor("b").numpy(), weights["#b"])


def test_the_structure_is_listed_without_weights(tmp_path: Path) -> None:
    container, _ = filled()
    container.save(tmp_path / "m.onnx")
    loaded = Container.load(tmp_path / "m.onnx", weights=False)
    assert loaded.declared() == {name: (1, (64, 64), "m.onnx.data") for name in "ab"}
    assert container.declared()["a"][2] == "#a" and bool(loaded)
    (tmp_path / "other").mkdir()
    with pytest.warns(UserWarning, match="not loaded and is not there"):
        loaded.save(tmp_path / "other" / "m.onnx")
    with pytest.raises(KeyError, match="#c"):
        container["#c"]


def test_a_path_is_no_model() -> None:
    with pytest.raises(TypeError, match="Container.load"):
        Container("m.onnx")
    with pytest.raises(TypeError, match="not int"):
        Container(3)


def test_metadata_is_a_mapping_of_the_model() -> None:
    container, _ = filled()
    assert dict(container.metadata) == {}
    container.metadata["task"] = "speech"
    container.metadata.update(author="Ada", task="text")
    assert list(container.metadata.items()) == [("task", "text"), ("author", "Ada")]
    assert {entry.key: entry.value for entry in container.model_proto.metadata_props} == dict(container.metadata)
    assert repr(container.metadata) == "{'task': 'text', 'author': 'Ada'}"
    del container.metadata["task"]
    assert container.metadata.pop("author") == "Ada" and len(container.metadata) == 0
    with pytest.raises(KeyError):
        del container.metadata["task"]
    with pytest.raises(Error, match="cannot be empty"):
        container.metadata[""] = "x"


def test_values_are_renamed_at_every_use(tmp_path: Path) -> None:
    container, weights = filled()
    assert container.rename("x", "tokens", "input") == 2
    assert container.rename("y", "logits", "output") == 2
    assert container.rename("a", "first") == 2
    container.save(tmp_path / "m.onnx")
    onnx.checker.check_model(tmp_path / "m.onnx")
    tokens = np.ones((3, 64), np.float32)
    expected = tokens @ weights["#a"] @ weights["#b"]
    np.testing.assert_allclose(models.run(str(tmp_path / "m.onnx"), tokens=tokens)[0], expected, rtol=1e-3)
    for args, text in (
        (("tokens", "first"), "another value is called `first`"),
        (("FIRST", "c"), "did you mean `first`?"),
        (("first", "c", "input"), "no input of this name"),
    ):
        with pytest.raises(Error, match=text.replace("?", r"\?")):
            container.rename(*args)
    with pytest.raises(ValueError, match="what is 'node'"):
        container.rename("first", "c", "node")
