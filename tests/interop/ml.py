"""The operators of `ai.onnx.ml` by the machine and by onnxruntime: the same labels, and scores within 1e-4.

Each model has many nodes of one operator with attributes in all forms: trees with every mode, missing values, base
values, aggregates and transforms, linear models, support vectors of every kind, encoders, maps. What onnxruntime
leaves unwritten is not compared.

    python ml.py [SEED]     other random models: the seed is 0 without it
"""

import itertools
import math
import sys

import common
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
POSTS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 4


class Nodes:
    """A model of nodes of one operator, with the values of its inputs."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.nodes = []
        self.inputs = {}
        self.declared = []
        self.compared = {}

    def given(self, value) -> str:
        """The name of an input that has this value."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = value
        self.declared.append(helper.make_value_info(name, type_of(value)))
        return name

    def add(self, op: str, inputs: list[str], outputs: int = 1, types: tuple = (), columns=None, **attributes) -> None:
        """A node; of its output 1 only the first `columns` are compared."""
        names = [f"y{len(self.compared) + i}" for i in range(outputs)]
        self.compared.update({name: columns if i == 1 else None for i, name in enumerate(names)})
        set_ones = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append((helper.make_node(op, inputs, names, domain="ai.onnx.ml", **set_ones), types))

    def model(self) -> onnx.ModelProto:
        """What the command gets."""
        outputs = []
        for node, types in self.nodes:
            for i, name in enumerate(node.output):
                outputs.append(onnx.ValueInfoProto(name=name))
                if types:
                    outputs[-1].type.CopyFrom(types[i])
        graph = helper.make_graph([node for node, _ in self.nodes], "g", self.declared, outputs)
        imports = [helper.make_opsetid("ai.onnx.ml", self.version), helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def session(self) -> ort.InferenceSession:
        """What onnxruntime gets: for it, in a TreeEnsemble 1 is LOGISTIC and 2 SOFTMAX, not the other way round."""
        model = self.model()
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "post_transform" and attribute.type == onnx.AttributeProto.INT:
                    attribute.i = {1: 2, 2: 1}.get(attribute.i, attribute.i)
        return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def tensor_type(elem_type: int) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(elem_type, None)


def type_of(value) -> onnx.TypeProto:
    if isinstance(value, dict):
        (key, element) = next(iter(value.items()))
        of = tensor_type(TensorProto.STRING if isinstance(element, str) else helper.np_dtype_to_tensor_dtype(
            np.dtype(type(element))))
        return helper.make_map_type_proto(TensorProto.STRING if isinstance(key, str) else TensorProto.INT64, of)
    kind = TensorProto.STRING if value.dtype == object else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_type_proto(kind, value.shape)


def map_proto(value: dict) -> onnx.MapProto:
    """A map as in a file: scalars beside their keys."""
    proto = onnx.MapProto(key_type=TensorProto.STRING if isinstance(next(iter(value)), str) else TensorProto.INT64)
    proto.values.elem_type = onnx.SequenceProto.TENSOR
    for key, element in value.items():
        (proto.string_keys.append(key.encode()) if isinstance(key, str) else proto.keys.append(key))
        array = np.array(element, object if isinstance(element, str) else None)
        proto.values.tensor_values.append(numpy_helper.from_array(array))
    return proto


def scalar(tensor: TensorProto):
    value = numpy_helper.to_array(tensor).item()
    return value.decode() if isinstance(value, bytes) else value


def read(path, expected):
    """What the command wrote, as onnxruntime gives it."""
    if isinstance(expected, list):
        maps = onnx.SequenceProto.FromString(path.read_bytes()).map_values
        return [
            dict(zip([key.decode() for key in one.string_keys] or one.keys, map(scalar, one.values.tensor_values)))
            for one in maps
        ]
    return numpy_helper.to_array(onnx.load_tensor(path))


def probability(quantile: float) -> float:
    return (1 + math.erf(quantile / math.sqrt(2))) / 2


def same(found, expected, columns, is_probit: bool) -> None:
    """Quantiles are compared as probabilities: around 0.5 a rounding of one moves the other by far more."""
    if isinstance(expected, list):
        assert [list(one) for one in found] == [list(one) for one in expected], f"keys {found}, not {expected}"
        found = np.array([list(one.values()) for one in found])
        expected = np.array([list(one.values()) for one in expected])
    assert found.shape == expected.shape, f"shape {found.shape}, not {expected.shape}"
    if expected.dtype.kind not in "fc":
        text = np.array([item.decode() if isinstance(item, bytes) else item for item in found.ravel().tolist()], object)
        assert text.tolist() == expected.ravel().tolist(), f"{found.tolist()}, not {expected.tolist()}"
        return
    assert found.dtype == expected.dtype, f"{found.dtype}, not {expected.dtype}"
    if columns is not None:
        found, expected = found[:, :columns], expected[:, :columns]
    if is_probit:
        found, expected = np.vectorize(probability)(found), np.vectorize(probability)(expected)
    assert np.allclose(found, expected, 1e-4, 1e-5, equal_nan=True), f"{found.tolist()}, not {expected.tolist()}"


def compare(name: str, make) -> None:
    nodes = make(np.random.default_rng(SEED))
    model = nodes.model()
    expected = nodes.session().run(None, nodes.inputs)
    with common.scratch() as folder:
        onnx.save(model, folder / "model.onnx")
        arguments = []
        for given, value in nodes.inputs.items():
            proto = map_proto(value) if isinstance(value, dict) else numpy_helper.from_array(value)
            (folder / f"{given}.pb").write_bytes(proto.SerializeToString())
            arguments += ["--input", f"{given}={folder / given}.pb"]
        common.must_run("check", "--runnable", folder / "model.onnx")
        for profile in ("strict", "fast"):
            out = folder / profile
            common.must_run("run", folder / "model.onnx", *arguments, "--profile", profile, "-o", out, "--format", "pb")
            of_node = [(node, j) for node, _ in nodes.nodes for j in range(len(node.output))]
            for i, (array, (node, j)) in enumerate(zip(expected, of_node, strict=True)):
                try:
                    is_probit = any(attribute.s == b"PROBIT" for attribute in node.attribute)
                    same(read(out / f"output_{i}.pb", array), array, nodes.compared[node.output[j]], is_probit)
                except AssertionError as error:
                    raise AssertionError(f"output {j} of {helper.printable_node(node)[:1500]}: {error}") from error
    print(f"{name}: {len(nodes.nodes)} nodes")


def rows(rng, dtype=np.float32, count: int = 9) -> np.ndarray:
    """Features that often lie on a threshold, with what is not a number and infinities among them."""
    values = rng.integers(-4, 5, (count, FEATURES)) / 2
    if np.dtype(dtype).kind == "f":
        values[rng.random(values.shape) < 0.15] = np.nan
        values[rng.random(values.shape) < 0.05] = np.inf
    return values.astype(dtype)


def as_tensor(values, dtype=np.float64) -> TensorProto:
    return numpy_helper.from_array(np.array(values, dtype))


def trees(rng, modes, count: int = 5, depth: int = 4, doubles: bool = False) -> tuple[dict, list]:
    """The attributes of trees, and the tree and number of every leaf."""
    lists = {name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")}
    lists["missing_value_tracks_true"] = []
    leaves = []

    def grow(tree: int, level: int, numbers) -> int:
        number, at = next(numbers), len(lists["nodeids"])
        is_leaf = level == depth or (level > 0 and rng.random() < 0.2)
        row = (tree, number, rng.integers(FEATURES), "LEAF" if is_leaf else rng.choice(modes), rng.integers(-4, 5) / 2)
        for name, value in zip(lists, (*row, 0, 0, rng.integers(2)), strict=True):
            lists[name].append(value if isinstance(value, str | float) else int(value))
        if is_leaf:
            leaves.append((tree, number))
        else:
            lists["truenodeids"][at] = grow(tree, level + 1, numbers)
            lists["falsenodeids"][at] = grow(tree, level + 1, numbers)
        return number

    for tree in range(count):
        grow(tree, 0, itertools.count())
    lists["values"] = [float(value) for value in lists["values"]]
    lists["modes"] = [str(mode) for mode in lists["modes"]]
    if rng.random() < 0.3:
        del lists["missing_value_tracks_true"]
    if doubles:
        lists["values_as_tensor"] = as_tensor(lists.pop("values"))
    return {f"nodes_{name}": values for name, values in lists.items()}, leaves


def votes(rng, prefix: str, leaves: list, ids, weights, doubles: bool = False) -> dict:
    """Weights of the leaves, each for some of `ids`."""
    chosen = [(leaf, one) for leaf in leaves for one in rng.permutation(ids)[: 1 + rng.integers(len(ids))]]
    values = [float(weights()) for _ in chosen]
    weighted = {f"{prefix}_weights_as_tensor": as_tensor(values)} if doubles else {f"{prefix}_weights": values}
    return weighted | {
        f"{prefix}_treeids": [leaf[0] for leaf, _ in chosen],
        f"{prefix}_nodeids": [leaf[1] for leaf, _ in chosen],
        f"{prefix}_ids": [int(one) for _, one in chosen],
    }


def base_values(rng, count: int, doubles: bool) -> dict:
    values = rng.random(count).round(2).tolist()
    return {"base_values_as_tensor": as_tensor(values)} if doubles else {"base_values": values}


def weights_of(rng, post: str, mixed: bool = True):
    """What weights of leaves are: probabilities for PROBIT, of any sign where they are mixed."""
    return lambda: rng.random() * 0.1 if post == "PROBIT" or not mixed else rng.normal()


def regressors(version: int, dtype):
    doubles = version > 1 and dtype == np.float64

    def make(rng) -> Nodes:
        nodes = Nodes(version)
        given = nodes.given(rows(rng, dtype))
        kinds = itertools.product((1, 3), POSTS, ("SUM", "AVERAGE", "MIN", "MAX"), (False, True))
        for i, (targets, post, aggregate, based) in enumerate(kinds):
            modes = MODES if i % 2 else [MODES[i // 2 % len(MODES)]]
            attributes, leaves = trees(rng, modes, doubles=doubles)
            attributes |= votes(rng, "target", leaves, range(targets), weights_of(rng, post), doubles)
            attributes |= base_values(rng, targets, doubles) if based else {}
            nodes.add(
                "TreeEnsembleRegressor",
                [given],
                n_targets=targets,
                post_transform=post,
                aggregate_function=aggregate,
                **attributes,
            )
        return nodes

    return make


def classifiers(version: int, dtype):
    doubles = version > 1 and dtype == np.float64

    def make(rng) -> Nodes:
        nodes = Nodes(version)
        given = nodes.given(rows(rng, dtype))
        # The ids of the classes that leaves have weights for, and how many classes there are.
        ids = (((0,), 2), ((1,), 2), ((0, 1), 2), ((0, 1, 2), 3), ((1, 3), 4))
        kinds = itertools.product(ids, POSTS, (False, True), (0, 1, 2))
        for i, ((ids, count), post, mixed, base) in enumerate(kinds):
            if base == 1 and (count != 2 or len(ids) == 2):
                continue
            attributes, leaves = trees(rng, MODES if i % 2 else MODES[:1], doubles=doubles)
            attributes |= votes(rng, "class", leaves, ids, weights_of(rng, post, mixed), doubles)
            attributes |= base_values(rng, [0, 1, count][base], doubles) if base else {}
            labels = [int(label) for label in rng.permutation(20)[:count]]
            named = {"classlabels_strings": [f"c{label}" for label in labels]}
            attributes |= named if i % 3 else {"classlabels_int64s": labels}
            # A score of one of two classes becomes one by PROBIT, and the other is not written.
            columns = 1 if post == "PROBIT" and count == 2 else None
            nodes.add("TreeEnsembleClassifier", [given], 2, columns=columns, post_transform=post, **attributes)
        attributes, leaves = trees(rng, MODES, doubles=doubles)
        attributes |= votes(rng, "class", leaves, [0], rng.normal, doubles)
        nodes.add("TreeEnsembleClassifier", [given], 2, classlabels_int64s=[7], **attributes)
        return nodes

    return make


def ensembles(dtype):
    """TreeEnsemble with every mode, also nodes that ask for members of a set: onnxruntime has integers there alone."""

    def make(rng) -> Nodes:
        nodes = Nodes(5)
        given = nodes.given(np.round(rows(rng, dtype)))
        kinds = itertools.product((1, 3), range(5), range(4))
        for targets, post, aggregate in kinds:
            roots, node, leaf, members = [], {name: [] for name in ("f", "m", "s", "t", "tl", "n", "nl", "miss")}, [], []

            def grow(level: int) -> tuple[int, int]:
                if level == 3 or (level > 0 and rng.random() < 0.2):
                    weight = weights_of(rng, "PROBIT" if post == 4 else "NONE")()
                    leaf.append((int(rng.integers(targets)), weight))
                    return len(leaf) - 1, 1
                at = len(node["f"])
                mode = int(rng.integers(7))
                row = {"f": int(rng.integers(FEATURES)), "m": mode, "s": rng.integers(-4, 5) / 2}
                row |= {"t": 0, "tl": 0, "n": 0, "nl": 0, "miss": int(rng.integers(2))}
                for name, value in row.items():
                    node[name].append(value)
                if mode == 6:
                    members.append((at, [*(rng.permutation(5)[:3] - 2), np.nan]))
                node["t"][at], node["tl"][at] = grow(level + 1)
                node["n"][at], node["nl"][at] = grow(level + 1)
                return at, 0

            for _ in range(4):
                roots.append(grow(0)[0])
            sets = [value for _, values in sorted(members) for value in values]
            nodes.add(
                "TreeEnsemble",
                [given],
                n_targets=targets,
                post_transform=post,
                aggregate_function=aggregate,
                tree_roots=roots,
                nodes_featureids=node["f"],
                nodes_modes=as_tensor(node["m"], np.uint8),
                nodes_splits=as_tensor(node["s"], dtype),
                nodes_truenodeids=node["t"],
                nodes_trueleafs=node["tl"],
                nodes_falsenodeids=node["n"],
                nodes_falseleafs=node["nl"],
                nodes_missing_value_tracks_true=node["miss"],
                leaf_targetids=[target for target, _ in leaf],
                leaf_weights=as_tensor([weight for _, weight in leaf], dtype),
                membership_values=as_tensor(sets, dtype) if sets else None,
            )
        return nodes

    return make


def numbers(rng, count: int) -> list[float]:
    return rng.normal(size=count).astype(np.float32).tolist()


def linear(rng) -> Nodes:
    nodes = Nodes(1)
    inputs = [nodes.given(rng.normal(size=(7, FEATURES)).astype(dtype)) for dtype in (np.float32, np.float64)]
    inputs += [nodes.given(rng.integers(-9, 9, (7, FEATURES)).astype(dtype)) for dtype in (np.int32, np.int64)]
    for post, given, classes in itertools.product(POSTS, inputs, (1, 2, 3)):
        labels = {"classlabels_ints": [5, 3, 8][: max(classes, 2)]}
        if given == inputs[1]:
            labels = {"classlabels_strings": ["b", "a", "c"][: max(classes, 2)]}
        model = {"coefficients": numbers(rng, classes * FEATURES), "intercepts": numbers(rng, classes)}
        # One score becomes two but by PROBIT, where onnxruntime packs the rows.
        if (classes, post) != (1, "PROBIT"):
            nodes.add("LinearClassifier", [given], 2, post_transform=post, **model, **labels)
        if given == inputs[0]:
            nodes.add("LinearRegressor", [given], post_transform=post, targets=classes, **model)
    model = {"coefficients": numbers(rng, FEATURES), "intercepts": numbers(rng, 1)}
    nodes.add("LinearClassifier", [inputs[0]], 2, **model)
    nodes.add("LinearRegressor", [inputs[0]], targets=2, coefficients=numbers(rng, 2 * FEATURES))
    nodes.add("LinearRegressor", [nodes.given(np.ones(FEATURES, np.float32))], targets=1, **model)
    return nodes


def support_vectors(rng) -> Nodes:
    nodes = Nodes(1)
    inputs = [nodes.given(rng.normal(size=(8, FEATURES)).astype(dtype)) for dtype in (np.float32, np.float64)]
    inputs += [nodes.given(rng.integers(-2, 3, (8, FEATURES)).astype(dtype)) for dtype in (np.int32, np.int64)]
    kinds = itertools.product(POSTS, ("LINEAR", "POLY", "RBF", "SIGMOID"), (2, 3, 5), (False, True))
    for i, (post, kind, classes, probable) in enumerate(kinds):
        of_class = [int(count) for count in rng.integers(1, 4, classes)]
        pairs, vectors = classes * (classes - 1) // 2, sum(of_class)
        labels = {"classlabels_ints": list(range(3, 3 + classes))}
        if i % 2:
            labels = {"classlabels_strings": [f"c{label}" for label in range(classes)]}
        sigmoids = {"prob_a": (-1 - rng.random(pairs)).tolist(), "prob_b": numbers(rng, pairs)} if probable else {}
        nodes.add(
            "SVMClassifier",
            [inputs[i % 4]],
            2,
            columns=1 if (post, classes, probable) == ("PROBIT", 2, False) else None,
            kernel_type=kind,
            kernel_params=[0.3, 0.5, [2.0, 3.0, 4.0][i % 3]],
            post_transform=post,
            support_vectors=numbers(rng, vectors * FEATURES),
            vectors_per_class=of_class,
            coefficients=numbers(rng, (classes - 1) * vectors),
            rho=numbers(rng, pairs),
            **sigmoids,
            **labels,
        )
        if i % 6 == 0:
            model = {"kernel_type": kind, "kernel_params": [0.3, 0.5, 3.0], "post_transform": post}
            many = {"n_supports": 6, "support_vectors": numbers(rng, 6 * FEATURES), "coefficients": numbers(rng, 6)}
            for one_class in (0, 1):
                nodes.add("SVMRegressor", [inputs[0]], one_class=one_class, rho=numbers(rng, 1), **model, **many)
            one = {"n_supports": 0, "coefficients": numbers(rng, FEATURES)}
            nodes.add("SVMRegressor", [inputs[0]], rho=numbers(rng, 1), **model, **one)
    for post, classes, positive in itertools.product(POSTS, (1, 2, 3), (False, True)):
        coefficients = np.array(numbers(rng, classes * FEATURES))
        nodes.add(
            "SVMClassifier",
            [inputs[0]],
            2,
            coefficients=(abs(coefficients) if positive else coefficients).tolist(),
            rho=numbers(rng, 1),
            kernel_params=[1.0, 0.0, 0.0],
            post_transform=post,
            classlabels_ints=[4, 2, 9][:classes],
        )
    return nodes


def features(rng) -> Nodes:
    nodes = Nodes(1)
    floats, doubles = rows(rng), rows(rng, np.float64) + 1e9
    ints, longs = rows(rng, np.int32), rows(rng, np.int64) + 2**40
    given = [nodes.given(value) for value in (floats, doubles, ints, longs)]
    for one in given:
        nodes.add("Scaler", [one], offset=[0.5], scale=[2.0])
        nodes.add("Scaler", [one], offset=numbers(rng, FEATURES), scale=numbers(rng, FEATURES))
        nodes.add("FeatureVectorizer", [one, one, one], inputdimensions=[FEATURES, FEATURES + 2, 1])
        nodes.add("ArrayFeatureExtractor", [one, nodes.given(np.array([[3, 0, 3]], np.int64))])
    for one, norm in itertools.product((given[0], given[2]), ("MAX", "L1", "L2")):
        nodes.add("Normalizer", [one], norm=norm)
    nodes.add("Binarizer", [nodes.given(np.nan_to_num(floats))], threshold=0.5)
    missing = {"imputed_value_floats": numbers(rng, FEATURES), "replaced_value_float": float("nan")}
    nodes.add("Imputer", [given[0]], **missing)
    nodes.add("Imputer", [given[0]], imputed_value_floats=[3.0], replaced_value_float=1.5)
    nodes.add("Imputer", [given[3]], imputed_value_int64s=[3], replaced_value_int64=2**40)
    words = nodes.given(np.array([["a", "bb"], ["", "z"]], object))
    nodes.add("ArrayFeatureExtractor", [words, nodes.given(np.array([1, 0], np.int64))])
    nodes.add("OneHotEncoder", [words], cats_strings=["bb", "a", "bb"])
    finite = nodes.given(np.nan_to_num(rng.integers(-3, 4, (3, 2)) + 0.6).astype(np.float32))
    for one in (finite, nodes.given(rng.integers(-3, 4, (3, 2))), nodes.given(rng.normal(size=3) * 3)):
        nodes.add("OneHotEncoder", [one], cats_int64s=[1, 2, -1, 1])
    strings, integers = tensor_type(TensorProto.STRING), tensor_type(TensorProto.INT64)
    mapped = {"cats_strings": ["bb", "a", "bb", ""], "cats_int64s": [4, 7, 9, -1]}
    nodes.add("CategoryMapper", [words], types=(integers,), default_int64=3, **mapped)
    longs = nodes.given(np.array([7, 9, 0, -1], np.int64))
    nodes.add("CategoryMapper", [longs], types=(strings,), default_string="no", **mapped)
    classes = {"classes_strings": ["bb", "a", "bb"]}
    nodes.add("LabelEncoder", [words], types=(integers,), **classes)
    nodes.add("LabelEncoder", [nodes.given(np.array([2, 1, 5, -1]))], types=(strings,), default_string="no", **classes)
    return nodes


def labels(version: int):
    def make(rng) -> Nodes:
        nodes = Nodes(version)
        keys = {
            "strings": (["a", "bb", "a", ""], np.array([["bb", "a"], ["", "c"]], object)),
            "int64s": ([1, -2, 1, 2**40], np.array([1, -2, 2**40, 5])),
            "floats": ([1.0, float("nan"), 1.0, -0.0], np.array([1, np.nan, 0, 7, -np.inf], np.float32)),
        }
        values = {"strings": ["x", "y", "z", "w"], "int64s": [4, 5, 6, 7], "floats": [0.5, 1.5, 2.5, 3.5]}
        default = {"default_string": "no", "default_int64": 99, "default_float": -7.5}
        for (key, (of, value)), (kind, to) in itertools.product(keys.items(), values.items()):
            # Before version 4 onnxruntime has no encoder from a type to itself.
            if key != kind or version >= 4:
                given = nodes.given(value)
                nodes.add("LabelEncoder", [given], **{f"keys_{key}": of, f"values_{kind}": to})
                nodes.add("LabelEncoder", [given], **{f"keys_{key}": of, f"values_{kind}": to}, **default)
        if version >= 4:
            tensors = {"values_tensor": as_tensor([1, 2, 3], np.int16), "default_tensor": as_tensor([9], np.int16)}
            nodes.add("LabelEncoder", [nodes.given(keys["strings"][1])], keys_strings=["a", "bb", "a"], **tensors)
            doubles = {"keys_tensor": as_tensor([1.5, np.nan]), "values_tensor": as_tensor([2.5, 3.5])}
            nodes.add("LabelEncoder", [nodes.given(np.array([1.5, np.nan, 2.0]))], **doubles)
        return nodes

    return make


def maps(rng) -> Nodes:
    nodes = Nodes(1)
    scores = nodes.given(rng.normal(size=(3, 3)).astype(np.float32))
    row = nodes.given(rng.normal(size=3).astype(np.float32))

    def sequence(key: int) -> tuple[onnx.TypeProto]:
        of = helper.make_map_type_proto(key, tensor_type(TensorProto.FLOAT))
        return (helper.make_sequence_type_proto(of),)

    for given in (scores, row):
        nodes.add("ZipMap", [given], types=sequence(TensorProto.STRING), classlabels_strings=["b", "a", "c"])
        nodes.add("ZipMap", [given], types=sequence(TensorProto.STRING), classlabels_strings=["b", "a", "b"])
        nodes.add("ZipMap", [given], types=sequence(TensorProto.INT64), classlabels_int64s=[3, -1, 2])
    words = {"b": 0.5, "a": -1.5, "": 3.0}
    integers = {5: 0.5, 0: -1.5, 2: 3.0}
    # From Python, onnxruntime takes maps to FLOAT alone.
    given = nodes.given({key: np.float32(element) for key, element in words.items()})
    nodes.add("DictVectorizer", [given], string_vocabulary=["a", "z", "", "a"])
    kinds = (("TO_FLOAT", TensorProto.FLOAT), ("TO_STRING", TensorProto.STRING), ("TO_INT64", TensorProto.INT64))
    given = nodes.given({key: np.float32(element) for key, element in integers.items()})
    nodes.add("DictVectorizer", [given], int64_vocabulary=[0, 1, 5])
    for to, kind in kinds:
        nodes.add("CastMap", [given], types=(tensor_type(kind),), cast_to=to)
        nodes.add("CastMap", [given], types=(tensor_type(kind),), cast_to=to, map_form="SPARSE", max_map=7)
    return nodes


CASES = [
    ("TreeEnsembleRegressor 1", regressors(1, np.float32)),
    ("TreeEnsembleRegressor 1 of DOUBLE", regressors(1, np.float64)),
    ("TreeEnsembleRegressor 3", regressors(3, np.float32)),
    ("TreeEnsembleRegressor 3 with tensors", regressors(3, np.float64)),
    ("TreeEnsembleClassifier 1", classifiers(1, np.float32)),
    ("TreeEnsembleClassifier 1 of INT64", classifiers(1, np.int64)),
    ("TreeEnsembleClassifier 1 of DOUBLE", classifiers(1, np.float64)),
    ("TreeEnsembleClassifier 3", classifiers(3, np.float32)),
    ("TreeEnsembleClassifier 3 of INT32", classifiers(3, np.int32)),
    ("TreeEnsembleClassifier 3 with tensors", classifiers(3, np.float64)),
    ("TreeEnsemble 5", ensembles(np.float32)),
    ("TreeEnsemble 5 of DOUBLE", ensembles(np.float64)),
    ("LinearClassifier, LinearRegressor", linear),
    ("SVMClassifier, SVMRegressor", support_vectors),
    ("features and categories", features),
    ("LabelEncoder 2", labels(2)),
    ("LabelEncoder 4", labels(4)),
    ("ZipMap, DictVectorizer, CastMap", maps),
]


def case(name: str) -> None:
    compare(name, dict(CASES)[name])


def main() -> None:
    common.run_all("ai.onnx.ml as onnxruntime computes it", case, [(name,) for name, _ in CASES])
    common.finish()


if __name__ == "__main__":
    main()
