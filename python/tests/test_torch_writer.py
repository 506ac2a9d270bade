"""Models written and read by several ranks of torch. Skipped, aloud, where torch is not installed.

``torch_ranks.py`` has the cases. One group of four ranks runs all of them, and the tests here ask what came of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: saves by several ranks are not tested")

import models  # noqa: E402
import onnx_container  # noqa: E402
import s3  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch_ranks  # noqa: E402
from onnx_container import Container, DataType, Job, _torch_owners, recover  # noqa: E402
from onnx_container.torch import OnnxReader, OnnxWriter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:TypedStorage")


def run(
    case: str, world: int, folder: Path, environment: dict[str, str] | None = None
) -> list[subprocess.CompletedProcess[str]]:
    """A group of ranks to its end."""
    script = Path(torch_ranks.__file__)
    command = [sys.executable, str(script), case]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(world), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        for rank in range(world)
    ]
    said = [rank.communicate(timeout=300)[0] for rank in ranks]
    return [subprocess.CompletedProcess(command, rank.returncode, it) for rank, it in zip(ranks, said, strict=True)]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str] | None]:
    """How ranks reach a store."""
    with s3.server("ranks write no model to a store") as found:
        yield found


@pytest.fixture(scope="module")
def stored(environment: dict[str, str] | None) -> dict[str, dict[str, str]]:
    """How this process reaches the store."""
    if environment is None:
        pytest.skip("!!! SKIPPED: no moto")
    return {"store_options": {name.lower(): value for name, value in environment.items()}}


@pytest.fixture(scope="module")
def group(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str] | None
) -> Iterator[tuple[Path, list[dict[str, str | None]]]]:
    """The folder of the group, and what each rank says of each case."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in run("main", torch_ranks.WORLD, folder, environment):
        assert rank.returncode == 0, rank.stdout
    yield folder, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(torch_ranks.WORLD)]


SAVES = {
    "every_form": {},
    "shards": {"max_shard_bytes": "1 MB", "alignment": 64},
    "nested_and_renamed": {},
    "async_save": {},
    "small_pieces": {},
    "tied_otherwise": {},
    "two_ranks": {},
    "a_rank_alone": {},
    "sharded_tensors": {},
    "over_an_old_one": {},
}
"""Cases that save, and their options."""

PARTS = {
    "small_pieces": torch_ranks.WEIGHTS.keys() - {"large"},
    "two_ranks": {"rows", "plain"},
    "sharded_tensors": {"rows", "columns"},
}
"""Those that do not have all weights."""


@pytest.mark.parametrize("case", SAVES)
def test_files_are_those_of_one_process(group, tmp_path: Path, case: str) -> None:
    folder, told = group
    assert {it[case] for it in told} == {None}, told
    names = PARTS.get(case, torch_ranks.WEIGHTS.keys())
    model = torch_ranks.skeleton(*(torch_ranks.WEIGHTS.keys() - names))
    alone = Container(model, {f"#{name}": torch_ranks.full(name) for name in names})
    alone.save(tmp_path / "m.onnx", **SAVES[case])
    assert sorted(os.listdir(folder / case)) == sorted(os.listdir(tmp_path))
    for name in os.listdir(tmp_path):
        assert (folder / case / name).read_bytes() == (tmp_path / name).read_bytes(), name
    assert Container.load(folder / case / "m.onnx").digest()[0] == alone.digest()[0]


def test_a_rank_is_told_the_pieces_that_it_sends_or_gathers(tmp_path: Path) -> None:
    names, world = ["a", "b", "c"], 4
    container = Container(models.add(*((name, DataType.FLOAT, (8, 2)) for name in names)), {f"#{name}": np.ones((8, 2), "f4") for name in names})
    job = Job.plan(container, tmp_path / "m.onnx", parts=world)
    pieces = {name: tuple(_torch_owners.Piece(rank, (name, rank), (2 * rank, 0), (2, 2)) for rank in range(world)) for name in names}
    owners = _torch_owners.owners(job, pieces, world)
    steps = _torch_owners.steps(job, pieces, dict.fromkeys(names, ((8, 2), 4)), owners, world)
    assert len(set(owners)) == len(job.parts) == 3
    for rank, of_rank in enumerate(steps):
        assert [step.name for step in of_rank] == [step.name for step in steps[0]] and len(of_rank) == len(names)
        for step in of_rank:
            assert step.pieces == (pieces[step.name] if step.owner == rank else pieces[step.name][rank : rank + 1])
    job.abort()


class Waited:
    """A store, of which a rank does something when it has waited in vain."""

    def __init__(self, store: Any, then: Callable[[], None]) -> None:
        self._store, self._then = store, then

    def wait(self, names: list[str], patience: timedelta) -> None:
        try:
            self._store.wait(names, patience)
        except RuntimeError:
            self._then()
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


GONE = "rank 1: has failed before it wrote, or did not come within"


@pytest.mark.parametrize(
    ("meanwhile", "told"),
    [
        ("nothing", GONE),
        ("rank 1 begins to wait", None),
        ("rank 1 goes on", None),
        ("rank 2 gives up, and rank 1 begins to wait", GONE),
    ],
)
def test_ranks_agree_whether_all_have_come(monkeypatch: pytest.MonkeyPatch, meanwhile: str, told: str | None) -> None:
    """Rank 0 waits in vain for rank 1; what is meanwhile is before it decides. The other ranks decide after it."""
    monkeypatch.setattr(_torch_owners, "_MEETING", timedelta(milliseconds=50))
    store = torch.distributed.HashStore()
    store.set("rank 2", "here")

    def then() -> None:
        if meanwhile == "rank 1 goes on":
            _torch_owners._meet(store, 1, 3)
        if "rank 2 gives up" in meanwhile:
            with pytest.raises(RuntimeError, match=GONE):
                _torch_owners._meet(store, 2, 3)
        if "rank 1 begins" in meanwhile:
            store.set("rank 1", "here")

    for rank, of_rank in enumerate((Waited(store, then), store, store)):
        with contextlib.nullcontext() if told is None else pytest.raises(RuntimeError, match=told):
            _torch_owners._meet(of_rank, rank, 3)


@pytest.mark.parametrize("case", [it for it in SAVES if it not in ("shards", "over_an_old_one")])
def test_a_model_in_a_store_is_that_of_one_process(group, stored, case: str) -> None:
    folder, told = group
    assert {it[f"{case} in a store"] for it in told} == {None}, told
    names = PARTS.get(case, torch_ranks.WEIGHTS.keys())
    model = torch_ranks.skeleton(*(torch_ranks.WEIGHTS.keys() - names))
    alone = Container(model, {f"#{name}": torch_ranks.full(name) for name in names})
    url = torch_ranks.url(folder, case)
    assert Container.load(url, **stored).digest() == alone.digest()
    # Each rank has written one weights file, and of the job only its end is left.
    ranks = {"two_ranks": 2, "a_rank_alone": 1, "sharded_tensors": 2}.get(case, torch_ranks.WORLD)
    swept = onnx_container.sweep(url.removesuffix("m.onnx"), older_than=0, **stored)
    left = [found.url.rsplit("/", 1)[1] for found in swept.swept]
    assert left == ["committed.json"] and swept.named == ranks


@pytest.mark.parametrize("case", ["loaded", "loaded_by_rows"])
def test_ranks_load_a_model_of_a_store(group, stored, case: str) -> None:
    assert {it[f"{case} in a store"] for it in group[1]} == {None}, group[1]


def test_a_save_to_a_store_that_fails_leaves_the_old_model(group, stored) -> None:
    folder, told = group
    assert {it["store_fails in a store"] for it in told} == {None}, told
    url = torch_ranks.url(folder, "store_fails")
    assert Container.load(url, **stored).tensor("rows").torch().equal(torch_ranks.full("rows"))


def test_a_rank_that_is_killed_leaves_the_old_model_in_a_store(environment, stored, tmp_path: Path) -> None:
    url, rows = torch_ranks.url(tmp_path, "killed"), torch_ranks.full("rows")
    model = torch_ranks.skeleton(*(torch_ranks.WEIGHTS.keys() - {"rows"}))
    onnx_container.publish(Container(model, {"#rows": rows * 0}), url, **stored)
    before = Container.load(url, **stored).e_tag
    ranks = run("killed_in_store", 2, tmp_path, environment)
    assert ranks[-1].returncode == -9 and all(it.returncode != 0 for it in ranks), ranks[0].stdout
    assert Container.load(url, **stored).e_tag == before
    dcp.save({"rows": rows}, storage_writer=OnnxWriter(url, model, **stored), no_dist=True)
    assert Container.load(url, **stored).tensor("rows").torch().equal(rows)


@pytest.mark.parametrize("where", ["", " in a store"], ids=["folder", "store"])
def test_weights_that_no_rank_has_stay(group, where: str, request: pytest.FixtureRequest) -> None:
    folder, told = group
    how = request.getfixturevalue("stored") if where else {}
    assert {it[f"kept{where}"] for it in told} == {None}, told
    loaded = Container.load(torch_ranks.url(folder, "kept") if where else folder / "kept" / "m.onnx", **how)
    for name in torch_ranks.WEIGHTS:
        assert torch.equal(loaded.tensor(name).torch().double(), torch_ranks.full(name).double()), name
    assert loaded.tensor("inline").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert loaded.declared()["constant"][2] is None and loaded.tensor("constant").tolist() == [1, 1, 1]


@pytest.mark.parametrize("case", ["fsdp", "fsdp_and_tensor_parallel"])
def test_onnxruntime_computes_what_torch_does(group, tmp_path: Path, case: str) -> None:
    folder, told = group
    assert {it[case] for it in told} == {None}, told
    module = torch_ranks.net()
    computed = models.run(folder / case / "m.onnx", ids=torch_ranks.IDS.numpy())[0]
    np.testing.assert_allclose(computed, module(torch_ranks.IDS).detach().numpy(), rtol=1e-4, atol=1e-5)
    loaded = Container.load(folder / case / "m.onnx")
    assert "embedding.weight" not in loaded.declared()
    for name, weight in module.state_dict().items():
        if name not in ("embedding.weight", "norm.num_batches_tracked"):
            assert torch.equal(loaded.tensor(name).torch(), weight), name


@pytest.mark.parametrize(
    "case", ["loaded", "loaded_by_rows", "a_rank_fails", "a_failed_save_goes_with_its_writer"]
)
def test_a_case_that_asks_itself(group, case: str) -> None:
    assert {it[case] for it in group[1]} == {None}, group[1]


FAULTS = {
    "many_faults": [
        "stray: the model has no such weights",
        "config, step: no tensors",
        "columns: rank 0 has torch.float32 [8, 6], and the model declares FLOAT [6, 8]",
        "half: rank 1 has torch.float32 [8, 5], and the model declares BFLOAT16 [8, 5]",
        "rows: neither a rank nor the model has these weights",
    ],
    "other_shapes": ["rows: rank 2 has torch.float64 [8, 6]"],
    "unlike_ties": ["b and a are for one tensor of the model, and differ"],
    "no_model": ["rank 0 needs the model"],
    "no_file": ["missing.onnx"],
    "no_folder": ["the folder to save to"],
    "without_collectives": ["use_collectives=True"],
}
"""Cases that fail, and what every rank says."""


IN_STORE = {
    **{case: FAULTS[case] for case in ("many_faults", "no_model", "unlike_ties")},
    "no_store": ["call the model *.onnx"],
    "another_group": ["give it the process_group of dcp.save too"],
}
"""The same of models in a store."""


@pytest.mark.parametrize("case", IN_STORE)
def test_every_rank_tells_every_fault_of_a_model_in_a_store(group, stored, case: str) -> None:
    for number, rank in enumerate(group[1]):
        if case == "another_group" and number > 1:
            continue
        said = rank[f"{case} in a store"]
        assert said is not None and all(fault in said for fault in IN_STORE[case]), said


@pytest.mark.parametrize("case", FAULTS)
def test_every_rank_tells_every_fault(group, case: str) -> None:
    folder, told = group
    for rank in told:
        assert rank[case] is not None
        for fault in FAULTS[case]:
            assert fault in rank[case], rank[case]
    if case != "unlike_ties" and (folder / case).exists():
        assert os.listdir(folder / case) == []


EARLY = {
    "arguments": (1, "threshold"),
    "a path that is none": (1, "int"),
    "set_up_storage_writer": (1, "rank 1 has no disk"),
    "prepare_local_plan": (1, "rank 1 has no disk"),
    "create_local_plan": (1, "rank 1 has no disk"),
    "finish_plan": (1, "rank 1 has no disk"),
    "resolve_data": (1, "Unsent: one and another one"),
    "rename": (0, "Unsent: "),
}
"""Where a rank fails before it has sent anything: the rank, and what all ranks say."""


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str] | None) -> list[dict[str, str]]:
    """What two ranks say of each case. Where one of them waits for the other, this ends by its time limit."""
    folder = tmp_path_factory.mktemp("early")
    for rank in run("early", 2, folder, environment):
        assert rank.returncode == 0, rank.stdout
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("where", ["", " in a store"], ids=["folder", "store"])
@pytest.mark.parametrize("case", EARLY)
def test_a_rank_that_fails_early_keeps_no_other_waiting(early, environment, case: str, where: str) -> None:
    if where and environment is None:
        pytest.skip("!!! SKIPPED: no moto")
    rank, reason = EARLY[case]
    for told in early:
        assert f"(RANK {rank})" in told[case + where] and reason in told[case + where], told[case + where]


@pytest.mark.parametrize("world", [2, 1], ids=["another rank", "rank 0"])
def test_a_killed_rank_leaves_the_old_model(tmp_path: Path, world: int) -> None:
    rows = torch_ranks.full("rows")
    model = torch_ranks.skeleton(*(torch_ranks.WEIGHTS.keys() - {"rows"}))
    Container(model, {"#rows": rows * 0}).save(tmp_path / "m.onnx")
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    ranks = run("killed", world, tmp_path)
    assert ranks[-1].returncode == -9 and all(it.returncode != 0 for it in ranks), ranks[0].stdout
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    # Rank 0 removes what it has begun; where it is killed itself, that stays.
    left = {*os.listdir(tmp_path)} - {*before, "store"}
    assert len(left) == (0 if world > 1 else 1) and all(it.startswith(".m.onnx.job-") for it in left), left
    dcp.save({"rows": rows}, storage_writer=OnnxWriter(tmp_path / "m.onnx", model), no_dist=True)
    assert torch.equal(Container.load(tmp_path / "m.onnx").tensor("rows").torch(), rows)
    assert recover(tmp_path).errors == []
    assert {*os.listdir(tmp_path)} == {*before, "store", *left}
    for name in left:
        Job.open(tmp_path / name).abort()
    assert {*os.listdir(tmp_path)} == {*before, "store"}


# In one process.


def save(state: dict, path: Path, model, **options) -> OnnxWriter:
    writer = OnnxWriter(path, model, **options)
    dcp.save(state, storage_writer=writer, no_dist=True)
    return writer


def refused(state: dict, path: Path, model, **options) -> str:
    with pytest.raises(dcp.api.CheckpointException) as error:
        save(state, path, model, **options)
    return str(error.value)


def of_paths(tmp_path: Path):
    container = Container(models.add(("w", 1, (3, 4))), {"#w": np.zeros((3, 4), np.float32)})
    container.save(tmp_path / "given.onnx")
    return container, tmp_path / "given.onnx"


MODELS = {
    "message": lambda folder: models.add(("w", 1, (3, 4))),
    "bytes": lambda folder: models.add(("w", 1, (3, 4))).SerializeToString(),
    "container": lambda folder: of_paths(folder)[0],
    "path": lambda folder: of_paths(folder)[1],
    "path without its weights": lambda folder: without_weights(of_paths(folder)[1]),
    "message that names a file": lambda folder: onnx.load(of_paths(folder)[1], load_external_data=False),
    "inline": lambda folder: inline(np.zeros((3, 4), np.float32)),
    "inline without elements": lambda folder: inline(None),
    "onnx_ir": lambda folder: pytest.importorskip("onnx_ir").from_proto(inline(np.zeros((3, 4), np.float32))),
}


def without_weights(path: Path) -> Path:
    path.with_name(path.name + ".data").unlink()
    return path


def inline(array) -> onnx.ModelProto:
    model = models.add(("w", 1, (3, 4)))
    initializer = model.graph.initializer[0]
    if array is None:
        initializer.ClearField("external_data")
        initializer.ClearField("data_location")
    else:
        initializer.CopyFrom(onnx.numpy_helper.from_array(array, "w"))
    return model


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_any_model_will_do(tmp_path: Path, make) -> None:
    weights = torch.arange(12.0).reshape(3, 4)
    writer = save({"w": weights}, tmp_path / "m.onnx", make(tmp_path))
    assert torch.equal(Container.load(tmp_path / "m.onnx").tensor("w").torch(), weights)
    assert writer.saved is not None and [name for name, _ in writer.saved.files] == ["m.onnx.data", "m.onnx"]


def test_a_module_on_the_meta_device_is_exported_without_weights(tmp_path: Path) -> None:
    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(5, 40), torch.nn.Linear(40, 3, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.relu(self.up(x)))

    x = torch.rand(2, 5)
    with torch.device("meta"):
        empty = Plain().eval()
    program = torch.onnx.export(empty, (x.to("meta"),), dynamo=True, verbose=False, optimize=False)
    module = Plain().eval()
    save(module.state_dict(), tmp_path / "m.onnx", program)
    np.testing.assert_allclose(models.run(tmp_path / "m.onnx", x=x.numpy())[0], module(x).detach().numpy(), atol=1e-5)
    assert "up.bias: neither a rank" in refused({"down.weight": module.down.weight}, tmp_path / "b.onnx", program)


def test_what_the_exporter_computed_is_refused(tmp_path: Path) -> None:
    """Without a hint, the weights before the normalization would be written in the place of those with it."""
    module = torch.nn.Sequential(torch.nn.Linear(5, 40), torch.nn.BatchNorm1d(40)).eval()
    given = (torch.rand(2, 5),)
    told = refused(module.state_dict(), tmp_path / "m.onnx", torch.onnx.export(module, given, dynamo=True, verbose=False))
    assert "0.weight: the exporter computed it from the weights of this name" in told
    assert "1.weight, 1.bias, 1.running_mean, 1.running_var: the model has no such weights" in told and "optimize=False" in told
    program = torch.onnx.export(module, given, dynamo=True, verbose=False, optimize=False)
    save(module.state_dict(), tmp_path / "m.onnx", program)  # and 1.num_batches_tracked, which no node uses


def test_tied_weights_by_rename(tmp_path: Path) -> None:
    weights = torch.arange(12.0).reshape(3, 4)
    state = {"embedding.weight": weights, "head.weight": weights}
    names = {"embedding.weight": "w", "head.weight": "w"}
    save(state, tmp_path / "m.onnx", models.add(("w", 1, (3, 4))), rename=names)
    assert (tmp_path / "m.onnx.data").stat().st_size == 48
    found = {name: torch.zeros(3, 4) for name in state}
    dcp.load(found, storage_reader=OnnxReader(tmp_path / "m.onnx", rename=names), no_dist=True)
    assert all(torch.equal(it, weights) for it in found.values())


def test_names_that_change_places(tmp_path: Path) -> None:
    model, names = models.add(("a", 1, (3, 4)), ("b", 10, (5,))), {"a": "b", "b": "a"}
    state = {"a": torch.ones(5).half(), "b": torch.ones(3, 4)}
    save(state, tmp_path / "m.onnx", model, rename=names)
    found = {"a": torch.zeros(5), "b": torch.zeros(3, 4)}
    dcp.load(found, storage_reader=OnnxReader(tmp_path / "m.onnx", rename=names.__getitem__), no_dist=True)
    assert all(it.all() for it in found.values())


def test_a_container_that_was_loaded_without_weights(tmp_path: Path) -> None:
    model, state = models.add(("a", 1, (3, 4)), ("b", 1, (5,))), {"a": torch.rand(3, 4), "b": torch.rand(5)}
    save(state, tmp_path / "first.onnx", model)
    save(state, tmp_path / "m.onnx", Container.load(tmp_path / "first.onnx", weights=False))
    assert (tmp_path / "m.onnx.data").read_bytes() == (tmp_path / "first.onnx.data").read_bytes()


def test_inline_weights_that_an_option_moves_out_are_written(tmp_path: Path) -> None:
    model = models.add(("w", 1, (3, 4)))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(1000, 7, np.float32), "constant"))
    save({"w": torch.ones(3, 4)}, tmp_path / "m.onnx", model, externalize=True)
    loaded = Container.load(tmp_path / "m.onnx")
    assert loaded.declared()["constant"][2] is not None and loaded.tensor("constant").numpy().sum() == 7000


def test_one_place_of_two_tensors_is_written_once(tmp_path: Path) -> None:
    model = models.add(("a", 1, (3, 4)), ("b", 1, (3, 4)))
    model.graph.initializer[1].external_data[0].value = "#a"
    weights = torch.arange(12.0).reshape(3, 4)
    save({"a": weights, "b": weights.clone()}, tmp_path / "both.onnx", model)
    save({"b": weights}, tmp_path / "one.onnx", model)
    for name in ("both", "one"):
        assert (tmp_path / f"{name}.onnx.data").stat().st_size == 48
        assert torch.equal(Container.load(tmp_path / f"{name}.onnx").tensor("a").torch(), weights)
    assert "b and a are for one tensor" in refused({"a": weights, "b": weights + 1}, tmp_path / "m.onnx", model)


def test_own_weights_of_one_handle_are_written_once(tmp_path: Path) -> None:
    model = models.add(("a", 1, (3, 4)), ("b", 1, (3, 4)), ("w", 1, (5,)))
    model.graph.initializer[1].external_data[0].value = "#a"
    own = np.arange(12, dtype=np.float32).reshape(3, 4)
    save({"w": torch.ones(5)}, tmp_path / "m.onnx", Container(model, {"#a": own}))
    loaded = Container.load(tmp_path / "m.onnx")
    assert (loaded.tensor("a").numpy() == own).all() and (loaded.tensor("b").numpy() == own).all()


def test_a_writer_of_a_path_can_be_pickled(tmp_path: Path) -> None:
    """As `async_save` does it that saves by another process."""
    model = models.add(("w", 1, (3, 4))).SerializeToString()
    writer = save({"w": torch.zeros(3, 4)}, tmp_path / "m.onnx", model, rename={"v": "w"})
    copied = pickle.loads(pickle.dumps(writer))
    dcp.save({"v": torch.ones(3, 4)}, storage_writer=copied, no_dist=True)
    assert Container.load(tmp_path / "m.onnx").tensor("w").numpy().sum() == 12


def test_names_that_begin_otherwise_are_told(tmp_path: Path) -> None:
    told = refused({"model.w": torch.zeros(3, 4)}, tmp_path / "m.onnx", models.add(("w", 1, (3, 4))))
    assert "model.w: the model has no such weights; rename=lambda name: name.removeprefix('model.')" in told and "w: neither a rank" in told


def test_the_module_shows_its_own_names() -> None:
    assert dir(onnx_container.torch) == sorted(onnx_container.torch.__all__) == ["OnnxReader", "OnnxWriter"]


def test_checkpoint_id_is_the_path(tmp_path: Path) -> None:
    writer = OnnxWriter(tmp_path / "a.onnx", models.add(("w", 1, (3, 4))))
    dcp.save({"w": torch.ones(3, 4)}, storage_writer=writer, checkpoint_id=tmp_path / "b.onnx", no_dist=True)
    assert sorted(os.listdir(tmp_path)) == ["b.onnx", "b.onnx.data"]
    found = {"w": torch.zeros(3, 4)}
    dcp.load(found, storage_reader=OnnxReader("a.onnx"), checkpoint_id=tmp_path / "b.onnx", no_dist=True)
    assert found["w"].sum() == 12


def test_planners_that_cache_are_refused(tmp_path: Path) -> None:
    writer = OnnxWriter(tmp_path / "m.onnx", models.add(("w", 1, (3, 4))))
    for expected in (None, "without caching"):
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        try:
            dcp.save({"w": torch.ones(3, 4)}, storage_writer=writer, planner=planner, no_dist=True)
            told = None
        except dcp.api.CheckpointException as error:
            told = str(error)
        assert (expected is None) == (told is None) and (expected or "") in (told or "")


WRONG = [
    ({"rename": 3}, TypeError, "rename"),
    ({"ignore": 3}, TypeError, "ignore"),
    ({"align": 64}, TypeError, "alignment"),
]


@pytest.mark.parametrize(("options", "kind", "told"), WRONG)
def test_wrong_options_are_refused_at_once(options: dict, kind: type, told: str) -> None:
    with pytest.raises(kind, match=told):
        OnnxWriter("m.onnx", models.add(("w", 1, (3, 4))), **options)


def test_every_type_of_torch_is_read(tmp_path: Path) -> None:
    weights = {}
    for dtype in DataType:
        if (dtype.bits or 0) >= 8 and (kind := getattr(torch, str(onnx_container._dtypes._TORCH.get(dtype)), None)):
            weights[dtype.name] = (torch.arange(12) % 2).to(kind).reshape(3, 4)
    model = models.add(*((name, DataType[name], (3, 4)) for name in weights), ("text", DataType.STRING, (0,)))
    del model.graph.initializer[-1], model.graph.node[-1], model.graph.output[-1]
    save(weights, tmp_path / "m.onnx", model)
    found = {name: torch.zeros_like(it) for name, it in weights.items()}
    dcp.load(found, storage_reader=OnnxReader(tmp_path / "m.onnx"), no_dist=True)
    for name, it in weights.items():
        assert torch.equal(found[name].view(torch.uint8), it.view(torch.uint8)), name
    assert len(weights) > 15


def test_pairs_of_four_bits(tmp_path: Path) -> None:
    """torch has two elements of FLOAT4E2M1 in each of its own."""
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4_e2m1fn_x2")
    pairs = torch.arange(12, dtype=torch.uint8).reshape(3, 4)
    model = models.add(("w", DataType.FLOAT4E2M1, (3, 8)))
    save({"w": pairs.view(torch.float4_e2m1fn_x2)}, tmp_path / "m.onnx", model)
    assert bytes(Container.load(tmp_path / "m.onnx").tensor("w").raw) == bytes(range(12))
    found = torch.zeros_like(pairs)
    dcp.load({"w": found.view(torch.float4_e2m1fn_x2)}, storage_reader=OnnxReader(tmp_path / "m.onnx"), no_dist=True)
    assert torch.equal(found, pairs)


def test_inline_weights_are_read(tmp_path: Path) -> None:
    onnx.save(inline(np.arange(12, dtype=np.float32).reshape(3, 4)), tmp_path / "m.onnx")
    found = {"w": torch.zeros(3, 4, dtype=torch.float64)}
    dcp.load(found, storage_reader=OnnxReader(tmp_path / "m.onnx"), no_dist=True)
    assert torch.equal(found["w"], torch.arange(12.0, dtype=torch.float64).reshape(3, 4))
    with pytest.raises(dcp.api.CheckpointException, match="Missing key"):
        dcp.load({"v": torch.zeros(3, 4)}, storage_reader=OnnxReader(tmp_path / "m.onnx"), no_dist=True)
    with pytest.raises(dcp.api.CheckpointException, match="Size mismatch"):
        dcp.load({"w": torch.zeros(3, 5)}, storage_reader=OnnxReader(tmp_path / "m.onnx"), no_dist=True)


def test_a_model_that_is_replaced_meanwhile_is_told(tmp_path: Path) -> None:
    model, path = models.add(("w", 1, (3, 4))), tmp_path / "m.onnx"
    plans = []
    for number in range(2):
        save({"w": torch.full((3, 4), float(number))}, path, model)
        reader = OnnxReader(path)
        reader.read_metadata()
        plans.append(reader.prepare_local_plan(dcp.LoadPlan([])))
    assert reader.prepare_global_plan(plans[:1]) == plans[:1]
    with pytest.raises(ValueError, match="was replaced while the ranks opened it"):
        reader.prepare_global_plan(plans)
