"""The text dialect that authors' config.pbtxt files are written in, as Triton's C++ reader takes it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.config import model_config_pb2, text
from functions.errors import BundleRefused
from tests.functions.config import regenerate

INPUT: dict[str, Any] = {
    "name": "",
    "data_type": "TYPE_INVALID",
    "format": "FORMAT_NONE",
    "dims": [],
    "is_shape_tensor": False,
    "allow_ragged_batch": False,
    "optional": False,
    "is_non_linear_format_io": False,
}
BATCHING: dict[str, Any] = {
    "preferred_batch_size": [],
    "max_queue_delay_microseconds": 0,
    "preserve_ordering": False,
    "priority_levels": 0,
    "default_priority_level": 0,
    "priority_queue_policy": {},
}


def given_fields(config: dict[str, Any]) -> dict[str, Any]:
    """What of a configuration is not at its default."""
    empty = text.parse("")
    return {key: value for key, value in config.items() if value != empty.get(key)}


ACCEPTED = [
    ("", {}),
    ("# only a comment", {}),
    ('# c\nname: "a" # d\n', {"name": "a"}),
    ('name: "a # no comment"', {"name": "a # no comment"}),
    ('name: "a", backend: "b"; max_batch_size: 3', {"name": "a", "backend": "b", "max_batch_size": 3}),
    ('name: "a" backend: "b"', {"name": "a", "backend": "b"}),
    ('name:"a"\r\nbackend:"b"\r\n', {"name": "a", "backend": "b"}),
    ('input {name: "x"}', {"input": [{**INPUT, "name": "x"}]}),
    ('input: {name: "x"}', {"input": [{**INPUT, "name": "x"}]}),
    ('input <name: "x">', {"input": [{**INPUT, "name": "x"}]}),
    ("dynamic_batching: { }", {"dynamic_batching": BATCHING}),
    ("dynamic_batching { }", {"dynamic_batching": BATCHING}),
    ("dynamic_batching <>", {"dynamic_batching": BATCHING}),
    ('input [ {name: "x"}, {name: "y"} ]', {"input": [{**INPUT, "name": "x"}, {**INPUT, "name": "y"}]}),
    ('input: [ {name: "x"} ]', {"input": [{**INPUT, "name": "x"}]}),
    ("input: []", {}),
    ("input []", {}),
    ('input {name:"a"} input [{name:"b"}] input {}', {"input": [{**INPUT, "name": "a"}, {**INPUT, "name": "b"}, INPUT]}),
    ("input { dims: [2, 3] dims: 4 dims: [] dims: -1 }", {"input": [{**INPUT, "dims": [2, 3, 4, -1]}]}),
    ("input { data_type: TYPE_FP32 }", {"input": [{**INPUT, "data_type": "TYPE_FP32"}]}),
    ("input { data_type: 11 }", {"input": [{**INPUT, "data_type": "TYPE_FP32"}]}),
    ("max_batch_size: 0x4", {"max_batch_size": 4}),
    ("max_batch_size: 0XF", {"max_batch_size": 15}),
    ("max_batch_size: 010", {"max_batch_size": 8}),
    ("max_batch_size: -1", {"max_batch_size": -1}),
    ("max_batch_size: - 1", {"max_batch_size": -1}),
    ("max_batch_size: -\n  1", {"max_batch_size": -1}),
    ("input { dims: [ - 1 ] }", {"input": [{**INPUT, "dims": [-1]}]}),
    *[(f"input {{ optional: {word} }}", {"input": [{**INPUT, "optional": True}]}) for word in ("true", "True", "t", "1")],
    *[(f"input {{ optional: {word} }}", {"input": [INPUT]}) for word in ("false", "False", "f", "0")],
    ("name: 'a'", {"name": "a"}),
    ("name: 'a' \"b\"\n'c'", {"name": "abc"}),
    (r'name: "\n\x41\101\t\\\"\'"', {"name": "\nAA\t\\\"'"}),
    (r'name: "\?\x4\7é\u00e9\U0001F600"', {"name": "?\x04\x07éé😀"}),
    ('name: "a - 1 1_0 +2 0b1"', {"name": "a - 1 1_0 +2 0b1"}),
    ('metric_tags {key: "a" value: "b"}', {"metric_tags": {"a": "b"}}),
    ('metric_tags [{key:"a" value:"1"}, {key:"a" value:"2"}]', {"metric_tags": {"a": "2"}}),
    ('metric_tags {key: "a"}', {"metric_tags": {"a": ""}}),
    ('parameters {key:"k" value {string_value: "v"}}', {"parameters": {"k": {"string_value": "v"}}}),
    ('parameters: {key:"k" value: {string_value: "v"}}', {"parameters": {"k": {"string_value": "v"}}}),
    ('parameters [{key:"k"}]', {"parameters": {"k": {"string_value": ""}}}),
    ("version_policy: { all { } }", {"version_policy": {"all": {}}}),
    ("version_policy { specific { versions: [1, 3] } }", {"version_policy": {"specific": {"versions": [1, 3]}}}),
    ("optimization { graph { level: -1 } }", {"optimization": {"graph": {"level": -1}}}),
]


@pytest.mark.parametrize(("source", "expected"), ACCEPTED)
def test_what_triton_reads_is_read(source: str, expected: dict[str, Any]) -> None:
    config = given_fields(text.parse(source))
    if "optimization" in config:
        config["optimization"] = {key: config["optimization"][key] for key in expected["optimization"]}

    assert expected == config


REFUSED = [
    ("// no comment", "1:1"),
    ("/* no comment */", "1:1"),
    ("max_batch_size 4", "1:16"),
    ("input {", "1"),
    ('name: "a"\n}', "2:1"),
    ("input [{},]", "1:11"),
    ("input [{} {}]", "1:11"),
    ("input { dims: [1,] }", "1:18"),
    ("input { dims: [1 2] }", "1:18"),
    ('name: "a" name: "b"', "1"),
    ("dynamic_batching {} dynamic_batching {}", "1"),
    ("dynamic_batching {} sequence_batching {}", "1:21"),
    ("version_policy { all {} latest {} }", "1"),
    ('backend: "b"\nmax_batchsize: 4', "2:1"),
    ("5: 1", "1:1"),
    ("[a.b]: 1", "1"),
    ("[type.googleapis.com/x] {}", "1"),
    ("input { data_type: TYPE_X }", "1:20"),
    ("input { data_type: type_fp32 }", "1:20"),
    ('input { data_type: "TYPE_FP32" }', "1:20"),
    ("input { data_type: 99 }", ""),
    ("max_batch_size: 1.5", "1:17"),
    ('max_batch_size: "1"', "1:17"),
    ("max_batch_size: 2147483648", "1:17"),
    ("input { dims: 9223372036854775808 }", "1:15"),
    ("dynamic_batching { max_queue_delay_microseconds: -1 }", "1:50"),
    ("max_batch_size: 1_0", "1:17"),
    ("max_batch_size: 0b1", "1:17"),
    ("max_batch_size: 0o7", "1:17"),
    ("max_batch_size: +1", "1:17"),
    ("max_batch_size: 09", "1:17"),
    ("max_batch_size: 0x", "1:17"),
    ("max_batch_size: 1e3", "1:17"),
    ("max_batch_size: nan", "1:17"),
    ("input { optional: TRUE }", "1:19"),
    ("input { optional: FALSE }", "1:19"),
    ("input { optional: 2 }", "1:19"),
    ("\ufeffname: 'a'", "1:1"),
    ('name: "a\nb"', "1:7"),
    ('name: "a', "1:7"),
    ('name: "a" "b', "1:11"),
    ("name: a", "1:7"),
    ("name: {}", "1:7"),
    (r'name: "\xff"', "1"),
    (r'name: "\q"', "1:8"),
    (r'name: "\u12"', "1:8"),
    ('name: "\ud800"', "1:8"),
    ("metric_tags: 'x'", "1"),
    ("input: 3", "1"),
    ("input: {]", "1:9"),
    ("input { dims: [[1]] }", "1"),
]


@pytest.mark.parametrize(("source", "place"), REFUSED)
def test_what_triton_refuses_is_refused_with_its_place(source: str, place: str) -> None:
    with pytest.raises(BundleRefused) as caught:
        text.parse(source)

    assert caught.value.field.startswith(f"config.pbtxt:{place}")


def test_an_unknown_field_names_the_one_that_was_meant() -> None:
    with pytest.raises(BundleRefused) as caught:
        text.parse("input {\n  data_typ: TYPE_FP32\n}", "configs/x.pbtxt")

    assert str(caught.value) == "configs/x.pbtxt:2:3: ModelInput has no field 'data_typ'; did you mean 'data_type'?"


def test_a_refusal_does_not_repeat_a_whole_line() -> None:
    with pytest.raises(BundleRefused) as caught:
        text.parse('name: "' + "x" * 100_000)

    assert len(str(caught.value)) < 400


def test_a_text_over_the_limit_is_refused() -> None:
    with pytest.raises(BundleRefused, match="the limit is"):
        text.parse(" " * (text.MAX_CHARACTERS + 1))


def test_a_string_that_never_ends_is_refused_at_once() -> None:
    with pytest.raises(BundleRefused, match="quote"):
        text.parse('name: "' + '\\"' * 500_000 + "x")


@given(st.text(alphabet=st.sampled_from("{}[]<>:,;\"'\\-+ \n#.0159xabtnameidsfpu_"), max_size=60))
def test_no_text_whatever_breaks_the_reader(source: str) -> None:
    with contextlib.suppress(BundleRefused):
        text.parse(source)


def test_64_bit_integers_are_numbers_but_where_triton_prints_strings() -> None:
    config = text.parse(
        """
        dynamic_batching { max_queue_delay_microseconds: 5 priority_levels: 2 priority_queue_policy { key: 1 value {} } }
        optimization { cuda { graph_spec { batch_size: 1 input { key: "a" value { dim: [7] } } } } }
        instance_group { secondary_devices { device_id: 3 } }
        """
    )

    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 5
    assert list(config["dynamic_batching"]["priority_queue_policy"]) == ["1"]
    assert config["optimization"]["cuda"]["graph_spec"][0]["input"] == {"a": {"dim": ["7"]}}
    assert config["instance_group"][0]["secondary_devices"] == [{"kind": "KIND_NVDLA", "device_id": "3"}]


def test_keys_stand_in_tritons_order() -> None:
    config = text.parse("dynamic_batching {} version_policy { all {} } optimization {}")
    expected = (
        "name platform backend runtime version_policy max_batch_size input output batch_input batch_output optimization dynamic_batching "
        "instance_group default_model_filename cc_model_filenames metric_tags parameters model_warmup"
    )

    assert expected.split() == list(config)
    assert list(INPUT) == list(text.parse("input {}")["input"][0])


def test_a_member_of_a_oneof_is_there_only_when_it_was_set_even_to_its_default() -> None:
    config = text.parse('model_warmup { name: "w" inputs { key: "a" value { zero_data: false } } inputs { key: "b" } }')

    assert config["model_warmup"][0]["inputs"] == {
        "a": {"data_type": "TYPE_INVALID", "dims": [], "zero_data": False},
        "b": {"data_type": "TYPE_INVALID", "dims": []},
    }


@pytest.mark.parametrize(("source", "expected"), ACCEPTED)
def test_completing_what_was_parsed_changes_nothing(source: str, expected: dict[str, Any]) -> None:
    del expected
    config = text.parse(source)

    assert config == text.complete(config)


def test_a_partial_dictionary_is_completed() -> None:
    config = text.complete({"backend": "python", "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]})

    assert config["input"] == [{**INPUT, "name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
    assert config["max_batch_size"] == 0


@pytest.mark.parametrize(
    "config",
    [
        {"nonsense": 1},
        {"max_batch_size": "x"},
        {"input": 3},
        {"input": [{"data_type": "TYPE_X"}]},
        {"input": [{"data_type": 99}]},
        {"name": 3},
    ],
)
def test_a_dictionary_that_is_no_configuration_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(BundleRefused):
        text.complete(config)


def test_the_generated_file_is_what_protoc_makes_of_the_proto(tmp_path: Any) -> None:
    regenerate.generate(tmp_path)
    path = regenerate.GENERATED.relative_to(regenerate.ROOT)

    assert (tmp_path / path).read_text() == regenerate.GENERATED.read_text(), "run: python -m tests.functions.config.regenerate"


def test_messages_have_the_public_package_and_live_in_a_pool_of_their_own() -> None:
    from google.protobuf import descriptor_pool

    message = model_config_pb2.DESCRIPTOR.message_types_by_name["ModelConfig"]

    assert message.full_name == "inference.ModelConfig"
    assert message.file.pool is not descriptor_pool.Default()
