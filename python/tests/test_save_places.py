"""Which files ``save_model`` and its kin write, and which they leave alone."""

import copy
import shutil
import threading
import warnings

import numpy as np
import onnx
import onnx_container as oc
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper


def weights(count, value):
    return np.full(count, value, np.float32)


def model(arrays):
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    nodes = [helper.make_node("Identity", [name], [f"y_{name}"]) for name in arrays]
    outputs = [helper.make_tensor_value_info(f"y_{name}", TensorProto.FLOAT, None) for name in arrays]
    graph = helper.make_graph(nodes, "g", [], outputs, tensors)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def first(path):
    return numpy_helper.to_array(onnx.load(path).graph.initializer[0])[0]


@pytest.mark.parametrize(("location", "written"), [("new.data", "new.data"), (None, "m.onnx.data")])
def test_the_location_is_the_callers_where_the_proto_names_another_one(here, location, written):
    (here / "old.data").write_text("precious")
    proto = model({"w": weights(1000, 5)})
    oc.convert_model_to_external_data(proto, location="old.data")
    oc.save_model(proto, "m.onnx", save_as_external_data=True, location=location)
    assert (here / "old.data").read_text() == "precious" and (here / written).exists()
    assert first("m.onnx") == 5


@pytest.mark.parametrize("external", [True, False])
def test_bytes_of_a_model_that_names_a_file_and_has_its_elements_are_saved(here, external):
    proto = model({"w": weights(1000, 5)})
    oc.convert_model_to_external_data(proto, location="w.data")
    oc.save_model(proto.SerializeToString(), "m.onnx", save_as_external_data=external)
    assert first("m.onnx") == 5 and (here / ("m.onnx.data" if external else "w.data")).exists()


@pytest.mark.parametrize("names", [("a.onnx", "b.onnx"), ("z.onnx", "b.onnx")])
def test_weights_that_two_models_need_are_not_replaced_by_one(here, names):
    target, other = names
    (here / "sub").mkdir()

    def save(value):
        oc.save_model(model({"w": weights(1000, value)}), target, save_as_external_data=True, location="sub/w.data")

    save(1)
    save(2)  # nobody else needs it
    shutil.copy(target, other)
    with pytest.raises(FileExistsError, match=f"{other}. refers to this file"):
        save(5)
    assert first(other) == 2


@pytest.mark.parametrize("saved_as", ["external", "inline", "bytes"])
def test_a_model_does_not_replace_the_weights_of_another_one(here, saved_as):
    oc.save_model(model({"w": weights(1000, 1)}), "x.onnx", save_as_external_data=True)
    other = model({"w": weights(1000, 2)})
    given = other.SerializeToString() if saved_as == "bytes" else other
    with pytest.raises((ValueError, oc.Error), match="x.onnx"):
        oc.save_model(given, "x.onnx.data", save_as_external_data=saved_as == "external")
    assert first("x.onnx") == 1 and sorted(it.name for it in here.iterdir()) == ["x.onnx", "x.onnx.data"]
    oc.save_model(other, "x.onnx")  # a model replaces a model
    assert first("x.onnx") == 2


def test_files_that_have_names_of_tensors_and_belong_to_nobody_stay(here):
    for name in ("w", "w2"):
        (here / name).write_text("precious")
    proto = model({"w": weights(1000, 1), "w2": weights(1000, 2)})
    oc.convert_model_to_external_data(proto, all_tensors_to_one_file=False)
    with pytest.raises(FileExistsError, match="2 files exist already and are not replaced"):
        oc.save_model(proto, "a.onnx")
    assert (here / "w").read_text() == (here / "w2").read_text() == "precious"
    (here / "w").unlink()
    (here / "w2").unlink()
    oc.save_model(proto, "a.onnx")
    oc.save_model(proto, "a.onnx")  # its own files
    assert first("a.onnx") == 1


@pytest.mark.parametrize("count", [1, 2])
def test_a_file_that_has_the_name_of_a_tensor_and_that_nobody_named_stays(here, count):
    (here / "w").write_text("precious")
    proto = model({name: weights(1000, 1) for name in ("w", "w2")[:count]})
    oc.convert_model_to_external_data(proto, all_tensors_to_one_file=False)
    with pytest.raises((ValueError, oc.Error), match="exists and is not replaced"):
        oc.save_model(proto, "a.onnx")
    assert [it.name for it in here.iterdir()] == ["w"] and (here / "w").read_text() == "precious"
    (here / "w").unlink()
    for _ in range(2):  # the second save replaces the files of the first
        oc.save_model(proto, "a.onnx")
    assert first("a.onnx") == 1


@pytest.mark.parametrize("given", [{}, {"files": None}])
def test_a_file_for_each_tensor_is_written_where_files_is_left_out(here, given):
    oc.save_model(
        model({"a": weights(1000, 1), "b": weights(1000, 2)}),
        "m.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=False,
        **given,
    )
    assert sorted(it.name for it in here.iterdir()) == ["m-a.weight", "m-b.weight", "m.onnx"]


@pytest.mark.parametrize("offset", [0, 3999, 4000 + (1 << 16) + 1, 200_000_000])
def test_elements_are_written_behind_those_of_a_file(here, offset):
    (here / "w.data").write_bytes(b"A" * 4000)
    tensor = numpy_helper.from_array(weights(10, 1), "w")
    oc.set_external_data(tensor, "w.data", offset=offset)
    with pytest.raises(ValueError, match="is not between"):
        oc.external_data_helper.save_external_data(tensor, here)
    assert (here / "w.data").read_bytes() == b"A" * 4000
    with pytest.raises(Exception, match="offset"):
        onnx.external_data_helper.save_external_data(tensor, str(here))
    oc.set_external_data(tensor, "w.data", offset=4096)
    oc.external_data_helper.save_external_data(tensor, here)
    assert (here / "w.data").stat().st_size == 4096 + 40


@pytest.mark.parametrize(
    "given",
    [
        {"location": "a", "data_name": "b"},
        {"location": "a", "files": "embedded"},
        {"location": "a", "files": "safetensors"},
        {"all_tensors_to_one_file": False, "files": "packed"},
    ],
)
def test_arguments_that_say_two_things_are_refused(here, given):
    with pytest.raises(TypeError, match="give one of them"):
        oc.save_model(model({"w": weights(1000, 1)}), "m.onnx", save_as_external_data=True, **given)
    assert not list(here.iterdir())


def test_a_check_by_the_option_of_loads_compares_digests(here):
    container = oc.Container(model({"w": weights(1000, 1)}))
    container.externalize()
    container.save("g.onnx", digests=True)
    oc.check_model("g.onnx", verify_digests=True)
    assert not [found for found in oc.findings("g.onnx", verify_digests=True, mmap=True) if found[0] == "error"]
    data = bytearray((here / "g.onnx.data").read_bytes())
    data[8] ^= 1
    (here / "g.onnx.data").write_bytes(data)
    oc.check_model("g.onnx")
    for check in (oc.check_model, lambda path, **given: [raised(it) for _, it in oc.findings(path, **given)]):
        with pytest.raises(oc.Error, match="digest"):
            check("g.onnx", verify_digests=True)


def raised(error):
    raise error


def test_weights_of_another_shape_have_the_one_that_the_model_declares(here):
    flat = oc.make_large_tensor_proto("#w", "w", TensorProto.FLOAT, (10, 100))
    also = oc.make_large_tensor_proto("#w", "also", TensorProto.FLOAT, (1000,))
    graph = helper.make_graph([], "g", [], [], [flat, also])
    container = oc.Container(helper.make_model(graph), {"#w": weights(1000, 3)})
    for found, shape in (("w", (10, 100)), ("also", (1000,))):
        assert container.tensor(found).shape == container.tensors()[found].shape == shape
        assert (container.tensor(found).numpy() == 3).all()


def test_a_tensor_takes_type_and_shape_together():
    for given in ({"dtype": TensorProto.FLOAT16}, {"dims": (2, 2)}):
        with pytest.raises(TypeError, match="together"):
            oc.Tensor(weights(4, 1), **given)


def test_a_file_is_mapped_as_the_page_says(here):
    (here / "w.bin").write_bytes(b"abc")
    assert bytes(oc.map_file("w.bin")) == bytes(oc.map_file("w.bin", False)) == b"abc"


@pytest.mark.parametrize(
    "given", [{"external_data": "w.data", "externalize": True, "threshold": 0}, {"files": "embedded"}]
)
def test_a_callback_is_called_for_what_is_written_whatever_the_options_move(here, given):
    built = onnx_ir.serde.deserialize_model(model({"w": weights(1000, 1), "small": weights(2, 1)}))
    called = []
    oc.ir.save(built, "m.onnx", callback=lambda tensor, info: called.append((tensor.name, info.filename)), **given)
    assert called == ([("w", "w.data")] if "external_data" in given else [])


def test_a_name_that_is_not_utf_8_is_refused_where_a_model_would_have_it(here):
    with pytest.raises(ValueError, match="is not UTF-8"):
        oc.save_model(model({"w": weights(1000, 1)}), "z\udcff.onnx", save_as_external_data=True)
    oc.save_model(model({"w": weights(1000, 1)}), "y\udcff.onnx")


def test_warnings_are_at_the_line_of_the_caller(here):
    proto = model({"w": weights(1000, 1)})
    oc.convert_model_to_external_data(proto, location="gone.data")
    proto.graph.initializer[0].ClearField("raw_data")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        oc.save_model(proto, "m.onnx")
        oc.save_model(proto, "n.onnx", save_as_external_data=True)
    assert len(told) == 2 and {it.filename for it in told} == {__file__}


def test_copies_of_containers_and_tensors_share_what_nobody_can_change(here):
    array = weights(1000, 1)
    container = oc.Container(model({"w": weights(2, 0)}), {"#w": array})
    deep, shallow, tensor = copy.deepcopy(container), copy.copy(container), copy.copy(container["#w"])
    array[:] = 9
    assert deep["#w"].numpy()[0] == 1 and shallow["#w"].numpy()[0] == tensor.numpy()[0] == 9
    assert tensor.name == "#w"


def test_a_reader_sees_handles_as_they_were_when_it_began(here):
    container = oc.Container(model({}), {f"#{i}": weights(10, i) for i in range(50)})
    ended, failed = threading.Event(), []

    def change():
        while not ended.is_set():
            del container["#5"]
            container["#5"] = weights(10, 5)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(200):
            assert len(container.items()) in (49, 50) and len(container.values()) in (49, 50)
            found = container.get("#5")
            assert found is None or found.numpy()[0] == 5
    except KeyError as error:
        failed.append(error)
    ended.set()
    changer.join()
    assert not failed


EXPORTS = {
    "external": {"save_as_external_data": True},
    "inline": {},
    "each tensor": {"save_as_external_data": True, "all_tensors_to_one_file": False},
    "elsewhere": {"save_as_external_data": True, "location": "w.bin"},
    "below": {"save_as_external_data": True, "location": "sub/w.bin"},
    "shards": {"save_as_external_data": True, "max_shard_bytes": 4000},
}


NAMED = {"elsewhere", "below"}
"""Exports to a file that the caller names."""


@pytest.mark.parametrize("one", EXPORTS)
@pytest.mark.parametrize("other", EXPORTS)
def test_a_model_is_exported_in_one_way_and_then_in_another(here, one, other):
    (here / "sub").mkdir()
    if len(NAMED & {one, other}) == 1 and "inline" not in (one, other):
        # Who names files deletes the old ones.
        ways = [one, other]
    else:
        ways = [one, other, one, other]
    for value, way in enumerate(ways):
        arrays = {name: weights(1000, value) for name in ("w", "w2")}
        oc.save_model(model(arrays), "m.onnx", sync=False, **EXPORTS[way])
        assert first("m.onnx") == value
        needed, found = locations("m.onnx"), {str(it.relative_to(here)) for it in here.rglob("*") if it.is_file()}
        # Files that the caller named stay, and others where the caller names one.
        stay = found if way in NAMED else {"w.bin", "sub/w.bin"}
        assert needed <= found and found - stay == ({"m.onnx"} | needed) - stay


def test_a_checkpoint_that_only_the_replaced_model_needed_stays(here):
    for value in (1, 2):
        oc.save_model(model({"w": weights(1000, value)}), "m.onnx", save_as_external_data=True, files="safetensors")
    oc.save_model(model({"w": weights(1000, 3)}), "m.onnx")
    assert (here / "m.safetensors").exists() and first("m.onnx") == 3


def locations(path):
    external = onnx.load(path, load_external_data=False).graph.initializer
    return {entry.value for tensor in external for entry in tensor.external_data if entry.key == "location"}


@pytest.mark.parametrize("options", [{}, {"save_as_external_data": True, "location": "other.bin"}])
@pytest.mark.parametrize("copied", [True, False])
def test_files_that_others_need_or_that_a_caller_named_outlive_an_export(here, options, copied):
    oc.save_model(model({"w": weights(1000, 1)}), "m.onnx", save_as_external_data=True, location=None if copied else "mine.bin")
    data = "m.onnx.data" if copied else "mine.bin"
    if copied:
        shutil.copy("m.onnx", "n.onnx")
    (here / "m.onnx.weight").write_text("precious")
    oc.save_model(model({"w": weights(1000, 2)}), "m.onnx", **options)
    assert (here / data).exists() and (here / "m.onnx.weight").read_text() == "precious" and first("m.onnx") == 2
    assert not copied or first("n.onnx") == 1


def test_a_file_that_a_model_needs_and_that_was_not_loaded_stays(here):
    oc.save_model(model({"w": weights(1000, 1)}), "m.onnx", save_as_external_data=True)
    for options in ({}, {"save_as_external_data": True, "location": "w2"}):
        half = onnx.load("m.onnx", load_external_data=False)
        half.graph.initializer.append(numpy_helper.from_array(weights(1000, 2), "w2"))
        oc.save_model(half, "m.onnx", **options)
        assert first("m.onnx") == 1 and (here / "m.onnx.data").exists()
        oc.save_model(onnx.load("m.onnx"), "m.onnx", save_as_external_data=True)


def test_a_link_to_a_model_elsewhere_is_replaced_and_what_it_leads_to_stays(here):
    (here / "sub").mkdir()
    oc.save_model(model({"w": weights(1000, 1)}), "sub/m.onnx")
    for name, options in (("a.onnx", {}), ("b.onnx", {"save_as_external_data": True, "location": "sub/w"})):
        (here / name).symlink_to("sub/m.onnx")
        oc.save_model(model({"w": weights(1000, 2)}), name, **options)
        assert first(name) == 2 and not (here / name).is_symlink() and first("sub/m.onnx") == 1


@pytest.mark.parametrize(("location", "text"), [("../w", "is no file in the folder"), ("link/w", "leads through a link")])
def test_a_location_that_leads_elsewhere_is_said_without_a_tensor(here, location, text):
    (here / "link").symlink_to(here)
    with pytest.raises(ValueError, match=f"^the location '{location}' {text}"):
        oc.save_model(model({"w": weights(1000, 1)}), "m.onnx", save_as_external_data=True, location=location)
    assert [it.name for it in here.iterdir()] == ["link"]
