"""Graphs of functions: an ensemble's steps, its tensors against its callees', and closures of locks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions import graph
from functions.config.spec import ModelConfig, Step
from functions.errors import BundleRefused
from functions.names import Ref
from functions.records import Locked

Maps = tuple[str, dict[str, str], dict[str, str]]


def tensor(name: str, datatype: str = "TYPE_FP32", dims: tuple[int, ...] = (4,), **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": datatype, "dims": list(dims), **more}


def model(inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], batch: int = 0) -> ModelConfig:
    return ModelConfig.of({"name": "m", "backend": "python", "max_batch_size": batch, "input": inputs, "output": outputs})


def ensemble(
    steps: list[Maps], inputs: list[Any] | None = None, outputs: list[Any] | None = None, batch: int = 0, version: int = -1
) -> ModelConfig:
    return ModelConfig.of(
        {
            "name": "e",
            "platform": "ensemble",
            "max_batch_size": batch,
            "input": [tensor("X")] if inputs is None else inputs,
            "output": [tensor("Y")] if outputs is None else outputs,
            "ensemble_scheduling": {
                "step": [
                    {"model_name": name, "model_version": version, "input_map": taken, "output_map": provided}
                    for name, taken, provided in steps
                ]
            },
        }
    )


CHAIN: list[Maps] = [("a", {"I": "X"}, {"O": "t"}), ("b", {"I": "t"}, {"O": "Y"})]


def steps(*maps: Maps) -> tuple[Step, ...]:
    return ensemble(list(maps)).steps


GRAPHS: list[list[Maps]] = [
    [("a", {"I": "X"}, {"O": "Y"})],
    CHAIN,
    list(reversed(CHAIN)),
    [("a", {"I": "X"}, {"O": "t"}), ("a", {"I": "t"}, {"O": "Y"})],
    [("a", {"I": "X", "J": "X"}, {"O": "t", "P": "u"}), ("b", {"I": "t", "J": "u"}, {"O": "Y"})],
    [("a", {"I": "X"}, {"O": "t"}), ("b", {"I": "X"}, {"O": "u"}), ("c", {"I": "t", "J": "u"}, {"O": "Y"})],
]


@pytest.mark.parametrize("maps", GRAPHS)
def test_a_graph_from_inputs_to_outputs_is_accepted(maps: list[Maps]) -> None:
    graph.check_steps(ensemble(maps))


def test_an_intermediate_tensor_may_also_be_an_output() -> None:
    graph.check_steps(ensemble(CHAIN, outputs=[tensor("Y"), tensor("t")]))


BROKEN: list[tuple[str, ModelConfig, str, str]] = [
    ("no step", ensemble([]), "", "without steps"),
    ("no name", ensemble([("", {"I": "X"}, {"O": "Y"})]), ".step[0]", "model_name is ''"),
    ("a name that is none", ensemble([("a/b", {"I": "X"}, {"O": "Y"})]), ".step[0]", "'a/b'"),
    ("itself", ensemble([("e", {"I": "X"}, {"O": "Y"})]), ".step[0]", "a step of itself"),
    ("a version below -1", ensemble(CHAIN, version=-2), ".step[0]", "model_version is -2"),
    ("no input_map", ensemble([("a", {}, {"O": "Y"})]), ".step[0]", "has no input_map"),
    ("no output_map", ensemble([("a", {"I": "X"}, {})]), ".step[0]", "has no output_map"),
    ("an unnamed tensor", ensemble([("a", {"I": ""}, {"O": "Y"})]), ".step[0]", "'I' to ''"),
    ("an unnamed input", ensemble([("a", {"": "X"}, {"O": "Y"})]), ".step[0]", "'' to 'X'"),
    ("one tensor from two steps", ensemble([("a", {"I": "X"}, {"O": "Y"}), ("b", {"I": "X"}, {"O": "Y"})]), ".step[1]", "provided twice"),
    ("one tensor from two outputs", ensemble([("a", {"I": "X"}, {"O": "Y", "P": "Y"})]), ".step[0]", "provided twice"),
    ("a step provides an input", ensemble([*CHAIN, ("c", {"I": "t"}, {"O": "X"})]), ".step[2]", "is the ensemble's input"),
    ("nobody provides it", ensemble([("a", {"I": "q"}, {"O": "Y"})], inputs=[]), ".step[0]", "the tensor 'q'"),
    ("nobody takes it", ensemble([("a", {"I": "X"}, {"O": "Y", "P": "u"})]), ".step[0]", "'u', which nobody takes"),
]


@pytest.mark.parametrize(("config", "field", "message"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_broken_step_is_named(config: ModelConfig, field: str, message: str) -> None:
    with pytest.raises(BundleRefused) as caught:
        graph.check_steps(config)

    assert f"config.pbtxt: ensemble_scheduling{field}" == caught.value.field
    assert message in str(caught.value)
    assert caught.value.fix


def test_an_unused_input_is_refused() -> None:
    with pytest.raises(BundleRefused, match="no step takes the ensemble's input 'X2'"):
        graph.check_steps(ensemble(CHAIN, inputs=[tensor("X"), tensor("X2")]))


@pytest.mark.parametrize("name", ["Z", "X"])
def test_an_output_that_no_step_provides_is_refused(name: str) -> None:
    with pytest.raises(BundleRefused, match=f"config.pbtxt: output: no step provides the ensemble's output '{name}'"):
        graph.check_steps(ensemble(CHAIN, outputs=[tensor("Y"), tensor(name)]))


CIRCLE: list[Maps] = [("a", {"I": "X", "J": "u"}, {"O": "t"}), ("b", {"I": "t"}, {"O": "u", "P": "Y"})]


def test_steps_in_a_circle_are_refused_by_name() -> None:
    with pytest.raises(BundleRefused, match=r"step 0 \(a\), step 1 \(b\)"):
        graph.check_steps(ensemble(CIRCLE))


def test_a_step_that_only_waits_for_a_circle_is_not_blamed() -> None:
    with pytest.raises(BundleRefused) as caught:
        graph.order(steps(("c", {"I": "Y"}, {"O": "Z"}), *CIRCLE))

    assert "step 0" not in str(caught.value)


def test_a_step_that_takes_its_own_output_is_a_circle() -> None:
    with pytest.raises(BundleRefused, match=r"each other: step 0 \(a\);"):
        graph.order(steps(("a", {"I": "X", "J": "Y"}, {"O": "Y"})))


@pytest.mark.parametrize(
    ("maps", "waves"),
    [
        ([], []),
        (CHAIN, [(0,), (1,)]),
        (list(reversed(CHAIN)), [(1,), (0,)]),
        (GRAPHS[-1], [(0, 1), (2,)]),
        ([("a", {"I": "X"}, {"O": "t"}), ("b", {"I": "X"}, {"O": "u"})], [(0, 1)]),
    ],
)
def test_steps_run_in_waves_as_early_as_they_can(maps: list[Maps], waves: list[tuple[int, ...]]) -> None:
    assert waves == graph.order(steps(*maps))


@given(st.lists(st.sets(st.integers(0, 9)), max_size=10))
def test_every_step_comes_after_all_that_it_needs(needs: list[set[int]]) -> None:
    count = len(needs)
    maps: list[Maps] = [
        (f"m{index}", {"I": "X", **{f"I{n}": f"t{n}" for n in wanted if n < index}}, {"O": f"t{index}"})
        for index, wanted in enumerate(needs)
    ]
    waves = graph.order(steps(*maps))
    at = {index: wave for wave, indexes in enumerate(waves) for index in indexes}

    assert set(range(count)) == set(at)
    for index, wanted in enumerate(needs):
        earlier = [at[n] for n in wanted if n < index]
        assert max(earlier, default=-1) + 1 == at[index]


A = model([tensor("I")], [tensor("O")])


def check(callees: dict[str, ModelConfig], **more: Any) -> None:
    graph.check_tensors(ensemble(more.pop("maps", CHAIN), **more), callees)


def refusal(callees: dict[str, ModelConfig], **more: Any) -> BundleRefused:
    with pytest.raises(BundleRefused) as caught:
        check(callees, **more)
    return caught.value


FITTING: list[tuple[str, dict[str, ModelConfig], dict[str, Any]]] = [
    ("equal", {"a": A, "b": A}, {}),
    ("any size in one", {"a": model([tensor("I")], [tensor("O", dims=(-1,))]), "b": A}, {}),
    ("batches throughout", {"a": model([tensor("I")], [tensor("O")], 8), "b": model([tensor("I")], [tensor("O")], 4)}, {"batch": 4}),
    ("an optional input left out", {"a": model([tensor("I"), tensor("J", optional=True)], [tensor("O")]), "b": A}, {}),
    ("an output left out", {"a": model([tensor("I")], [tensor("O"), tensor("P")]), "b": A}, {}),
    (
        "no batches around batching steps",
        {"a": model([tensor("I")], [tensor("O")], 8), "b": model([tensor("I")], [tensor("O")], 8)},
        {"inputs": [tensor("X", dims=(-1, 4))], "outputs": [tensor("Y", dims=(-1, 4))]},
    ),
    (
        "a step without batching among batches",
        {"a": model([tensor("I", dims=(-1, 4))], [tensor("O", dims=(-1, 4))]), "b": model([tensor("I")], [tensor("O")], 2)},
        {"batch": 2},
    ),
    (
        "reshape is the model's own affair",
        {"a": model([tensor("I", dims=(4,), reshape={"shape": [2, 2]})], [tensor("O")], 2), "b": model([tensor("I")], [tensor("O")], 2)},
        {"batch": 2},
    ),
]


@pytest.mark.parametrize(("callees", "more"), [case[1:] for case in FITTING], ids=[case[0] for case in FITTING])
def test_an_ensemble_that_fits_its_callees_is_accepted(callees: dict[str, ModelConfig], more: dict[str, Any]) -> None:
    check(callees, **more)


INTS = model([tensor("I", "TYPE_INT32")], [tensor("O", "TYPE_INT32")])
WIDE = model([tensor("I", dims=(3,))], [tensor("O", dims=(3,))])
UNFIT: list[tuple[str, dict[str, ModelConfig], dict[str, Any], str, str]] = [
    ("missing callee", {"a": A}, {}, ".step[1]", "step 1 (b) calls 'b', which is not there"),
    (
        "no such input",
        {"a": A, "b": model([tensor("K")], [tensor("O")])},
        {},
        ".step[1].input_map",
        "'b' has no input 'I'; its inputs are: K",
    ),
    ("no such output", {"a": model([tensor("I")], []), "b": A}, {}, ".step[0].output_map", "'a' has no output 'O'; its outputs are: none"),
    (
        "a required input unmapped",
        {"a": model([tensor("I"), tensor("J")], [tensor("O")]), "b": A},
        {},
        ".step[0].input_map",
        "does not get its required input 'J'",
    ),
    (
        "types between steps",
        {"a": A, "b": INTS},
        {},
        ".step[1].input_map",
        "'t' is TYPE_FP32 as output 'O' of step 0 (a), but TYPE_INT32 as input 'I' of step 1 (b)",
    ),
    (
        "types at the entrance",
        {"a": INTS, "b": INTS},
        {"outputs": [tensor("Y", "TYPE_INT32")]},
        ".step[0].input_map",
        "'X' is TYPE_FP32 as the ensemble's input",
    ),
    ("shapes between steps", {"a": A, "b": WIDE}, {}, ".step[1].input_map", "'t' has the shape [4] as output 'O' of step 0 (a), but [3]"),
    (
        "ranks between steps",
        {"a": A, "b": model([tensor("I", dims=(4, 1))], [tensor("O")])},
        {},
        ".step[1].input_map",
        "but [4, 1] as input 'I'",
    ),
    ("a batch dimension on one side", {"a": A, "b": model([tensor("I")], [tensor("O")], 4)}, {}, ".step[1].input_map", "but [-1, 4]"),
    (
        "too large batches",
        {"a": model([tensor("I")], [tensor("O")], 2), "b": A},
        {"batch": 4},
        ".step[0]",
        "batches of up to 4, step 0 (a) only of up to 2",
    ),
]


@pytest.mark.parametrize(("callees", "more", "field", "message"), [case[1:] for case in UNFIT], ids=[case[0] for case in UNFIT])
def test_what_does_not_fit_is_told_with_both_sides(callees: dict[str, ModelConfig], more: dict[str, Any], field: str, message: str) -> None:
    refused = refusal(callees, **more)

    assert f"config.pbtxt: ensemble_scheduling{field}" == refused.field
    assert message in str(refused)
    assert refused.fix


def test_an_output_of_another_type_than_its_step_gives_is_refused() -> None:
    refused = refusal({"a": A, "b": A}, outputs=[tensor("Y", "TYPE_INT32")])

    assert refused.field == "config.pbtxt: output"
    assert "but TYPE_INT32 as the ensemble's output" in str(refused)


Locks = dict[str, dict[str, int]]


def closure(locks: Locks, root: str = "a@1", shared: tuple[tuple[str, str], ...] = ()) -> None:
    def lock_of(ref: Ref) -> dict[str, Locked]:
        edges = locks.get(str(ref), {})
        return {callee: Locked(version, "sha256:0", shared=(ref.name, callee) in shared) for callee, version in edges.items()}

    name, _, version = root.partition("@")
    graph.check_closure(Ref(name, int(version)), lock_of)


def chain(length: int) -> Locks:
    return {f"f{index}@1": {f"f{index + 1}": 1} for index in range(length)}


@pytest.mark.parametrize(
    "locks",
    [
        {},
        {"a@1": {"b": 1, "c": 1}, "b@1": {"d": 1}, "c@1": {"d": 2}},
        {"a@1": {"b": 1, "c": 1}, "b@1": {"c": 2}},
    ],
)
def test_a_closure_without_circles_may_run_even_with_two_versions_of_one_function(locks: Locks) -> None:
    closure(locks)


@pytest.mark.parametrize(
    "locks",
    [
        {"a@2": {"b": 1}, "b@1": {"a": 1}},
        {"a@2": {"b": 1}, "b@1": {"c": 1}, "c@1": {"a": 1}},
        {"a@2": {"b": 2}, "b@2": {"c": 1}, "c@1": {"b": 1}},
    ],
)
def test_mutual_recursion_is_refused(locks: Locks) -> None:
    with pytest.raises(BundleRefused, match="calls itself through"):
        closure(locks, "a@2")


def test_mutual_recursion_with_a_shared_edge_may_run() -> None:
    closure({"a@2": {"b": 1}, "b@1": {"a": 1}}, "a@2", shared=(("b", "a"),))


def test_eight_calls_one_inside_another_are_the_limit() -> None:
    closure(chain(graph.MAX_DEPTH), "f0@1")

    with pytest.raises(BundleRefused, match="more than 8 calls"):
        closure(chain(graph.MAX_DEPTH + 1), "f0@1")


def test_depth_is_counted_over_the_longest_way_also_when_a_shorter_one_was_walked_first() -> None:
    locks = {"r@1": {"a": 1, "m": 1}, "a@1": {"b": 1}, **{f"m{i}@1": {f"m{i + 1}": 1} for i in range(5)}, "m@1": {"m0": 1}}
    locks["m5@1"] = {"a": 1}
    with pytest.raises(BundleRefused, match="more than 8 calls"):
        closure(locks, "r@1")


def test_a_wide_closure_is_walked_once_not_along_every_way() -> None:
    layers = {f"f{depth}x{i}@1": {f"f{depth + 1}x{j}": 1 for j in range(20)} for depth in range(7) for i in range(20)}
    closure({"a@1": {f"f0x{j}": 1 for j in range(20)}, **layers})
