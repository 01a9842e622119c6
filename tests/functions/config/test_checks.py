"""What a configuration must be, field by field, and how it is completed."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from functions.config import checks, text
from functions.config.spec import ModelConfig
from functions.errors import BundleRefused
from functions.records import File

IO = 'input { name: "X" data_type: TYPE_FP32 dims: [4] } output { name: "Y" data_type: TYPE_FP32 dims: [4] }'
MODEL = f'backend: "python" max_batch_size: 8 {IO}'


def normalise(source: str, name: str = "f", directory: str = "") -> tuple[dict[str, Any], list[str]]:
    warnings: list[str] = []
    return checks.normalise(text.parse(source), name, warnings, directory=directory), warnings


def refusal(source: str) -> BundleRefused:
    with pytest.raises(BundleRefused) as caught:
        normalise(source)
    return caught.value


def test_a_bare_python_function_is_completed_as_triton_does() -> None:
    config, warnings = normalise('backend: "python"')

    assert not warnings
    assert config == {
        "name": "f",
        "platform": "",
        "backend": "python",
        "runtime": "",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 0,
        "input": [],
        "output": [],
        "batch_input": [],
        "batch_output": [],
        "optimization": {
            "priority": "PRIORITY_DEFAULT",
            "input_pinned_memory": {"enable": True},
            "output_pinned_memory": {"enable": True},
            "gather_kernel_buffer_threshold": 0,
            "eager_batching": False,
        },
        "instance_group": [
            {
                "name": "f",
                "kind": "KIND_CPU",
                "count": 1,
                "gpus": [],
                "secondary_devices": [],
                "profile": [],
                "passive": False,
                "host_policy": "",
            }
        ],
        "default_model_filename": "model.py",
        "cc_model_filenames": {},
        "metric_tags": {},
        "parameters": {},
        "model_warmup": [],
    }


def test_keys_stand_in_tritons_order_also_when_they_were_filled_in() -> None:
    config, _ = normalise("dynamic_batching {} " + MODEL)
    keys = list(config)

    assert keys[keys.index("optimization") + 1 : keys.index("optimization") + 3] == ["dynamic_batching", "instance_group"]


COMPLETED: list[tuple[str, str, Any]] = [
    ("version_policy { all {} }", "version_policy", {"all": {}}),
    ("version_policy { latest { num_versions: 3 } }", "version_policy", {"latest": {"num_versions": 3}}),
    ("version_policy {}", "version_policy", {"latest": {"num_versions": 1}}),
    ("dynamic_batching {}", "dynamic_batching.preferred_batch_size", [8]),
    ("dynamic_batching { preferred_batch_size: [2, 4] }", "dynamic_batching.preferred_batch_size", [2, 4]),
    ("dynamic_batching { max_queue_delay_microseconds: 100 }", "dynamic_batching.max_queue_delay_microseconds", 100),
    ("dynamic_batching { preserve_ordering: true }", "dynamic_batching.preserve_ordering", True),
    ("dynamic_batching { priority_levels: 1 default_priority_level: 1 }", "dynamic_batching.priority_levels", 1),
    ("dynamic_batching { default_queue_policy { timeout_action: REJECT } }", "dynamic_batching.default_queue_policy.max_queue_size", 0),
    ("instance_group {}", "instance_group.0.name", "f_0"),
    ("instance_group {}", "instance_group.0.kind", "KIND_CPU"),
    ("instance_group { kind: KIND_AUTO count: 3 }", "instance_group.0.kind", "KIND_CPU"),
    ("instance_group { kind: KIND_MODEL }", "instance_group.0.kind", "KIND_MODEL"),
    ("instance_group { count: 3 }", "instance_group.0.count", 3),
    ("instance_group { count: -1 }", "instance_group.0.count", 1),
    ("instance_group {} instance_group { name: 'g' } instance_group {}", "instance_group.1.name", "g"),
    ("instance_group {} instance_group { name: 'g' } instance_group {}", "instance_group.2.name", "f_2"),
    ("optimization { graph { level: 1 } }", "optimization.input_pinned_memory", {"enable": True}),
    ("optimization { graph { level: 1 } }", "optimization.graph", {"level": 1}),
    ("model_transaction_policy { decoupled: false }", "model_transaction_policy", {"decoupled": False}),
    ("response_cache { enable: false }", "response_cache", {"enable": False}),
    ('metric_tags { key: "team" value: "x" }', "metric_tags", {"team": "x"}),
    ('parameters { key: "k" value { string_value: "v" } }', "parameters", {"k": {"string_value": "v"}}),
    ('parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }', "default_model_filename", "model.py"),
    ('default_model_filename: "serve.py"', "default_model_filename", "serve.py"),
    ('default_model_filename: "sub/serve.py"', "default_model_filename", "sub/serve.py"),
]


@pytest.mark.parametrize(("source", "path", "expected"), COMPLETED)
def test_a_field_is_kept_or_completed(source: str, path: str, expected: Any) -> None:
    value: Any = normalise(f"{MODEL} {source}")[0]
    for key in path.split("."):
        value = value[int(key)] if key.isdigit() else value[key]

    assert expected == value


@pytest.mark.parametrize("source", sorted({source for source, _, _ in COMPLETED}))
def test_completing_twice_is_completing_once(source: str) -> None:
    config, warnings = normalise(f"{MODEL} {source}")
    again: list[str] = []

    assert config == checks.normalise(copy.deepcopy(config), "f", again)
    assert warnings == again


def test_onnx_models_on_the_cpu_get_two_instances_where_a_group_names_no_number() -> None:
    source = MODEL.replace("python", "onnxruntime")

    assert normalise(source)[0]["instance_group"][0]["count"] == 1
    assert normalise(f"{source} instance_group {{ kind: KIND_CPU }}")[0]["instance_group"][0]["count"] == 2
    assert normalise(f"{source} instance_group {{ kind: KIND_MODEL }}")[0]["instance_group"][0]["count"] == 1
    assert normalise(f"{source} instance_group {{ count: 1 }}")[0]["instance_group"][0]["count"] == 1


@pytest.mark.parametrize(("written", "directory"), [("", ""), ("f", ""), ("folder", "folder"), ("f", "folder")])
def test_the_record_holds_the_functions_name(written: str, directory: str) -> None:
    config, _ = normalise(f'name: "{written}" {MODEL}', directory=directory)

    assert config["name"] == "f"


def test_another_name_than_the_functions_or_the_folders_is_refused() -> None:
    with pytest.raises(BundleRefused, match="'g' is not the function's name; write 'f' or leave it out"):
        normalise(f'name: "g" {MODEL}', directory="folder")


TENSOR = 'input { name: "X" data_type: TYPE_FP32 dims: [4] '
REFUSED: list[tuple[str, str, str]] = [
    # top level
    ("max_batch_size: -1", "max_batch_size", "-1"),
    ('backend: "foo"', "backend", "unknown"),
    ("version_policy { latest { num_versions: 0 } }", "version_policy.latest", "no version"),
    ("version_policy { latest { } }", "version_policy.latest", "no version"),
    ("version_policy { specific { } }", "version_policy.specific", "no version"),
    ('default_model_filename: "model.txt"', "default_model_filename", "ends in .py"),
    ('metric_tags { key: "a b" value: "x" }', "metric_tags", "'a b'"),
    (
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "maybe" } }',
        "parameters[FORCE_CPU_ONLY_INPUT_TENSORS]",
        "maybe",
    ),
    # not in this release
    ("sequence_batching {}", "sequence_batching", "not available"),
    ("model_transaction_policy { decoupled: true }", "model_transaction_policy.decoupled", "not available"),
    ("response_cache { enable: true }", "response_cache.enable", "not available"),
    ("batch_input { kind: BATCH_ELEMENT_COUNT }", "batch_input", "not available"),
    ("batch_output { }", "batch_output", "not available"),
    ('model_repository_agents { agents { name: "checksum" } }', "model_repository_agents.agents", "not available"),
    ('model_operations { op_library_filename: "x.so" }', "model_operations.op_library_filename", "not available"),
    ("model_metrics { metric_control { } }", "model_metrics.metric_control", "not available"),
    ('runtime: "x.so"', "runtime", "not available"),
    ('parameters { key: "EXECUTION_ENV_PATH" value { string_value: "x" } }', "parameters[EXECUTION_ENV_PATH]", "not available"),
    # inputs and outputs
    ("input { data_type: TYPE_FP32 dims: [1] }", "input[0].name", "without a name"),
    ('input { name: "X" dims: [1] }', "input[0].data_type", "no data type"),
    ('input { name: "X" data_type: TYPE_FP32 }', "input[0].dims", "no dims"),
    ('input { name: "X" data_type: TYPE_FP32 dims: [0] }', "input[0].dims", "0 in [0]"),
    ('input { name: "X" data_type: TYPE_FP32 dims: [2, -2] }', "input[0].dims", "-2"),
    ('output { name: "X" data_type: TYPE_FP32 dims: [0] }', "output[0].dims", "0 in [0]"),
    (f"{TENSOR} format: FORMAT_NHWC }}", "input[0].format", "needs 3 dims"),
    (f"{TENSOR} format: FORMAT_NCHW }}", "input[0].format", "needs 3 dims"),
    (f"{TENSOR} is_shape_tensor: true }}", "input[0].is_shape_tensor", "TensorRT"),
    (f"{TENSOR} is_non_linear_format_io: true }}", "input[0].is_non_linear_format_io", "TensorRT"),
    (f"{TENSOR} allow_ragged_batch: true }}", "input[0].allow_ragged_batch", "not available"),
    (f"{TENSOR} }} {TENSOR} }}", "input[1].name", "declared twice"),
    (f"{TENSOR} reshape {{ shape: [5] }} }}", "input[0].reshape.shape", "as many elements"),
    (f"{TENSOR} reshape {{ shape: [] }} }} max_batch_size: 1", "input[0].reshape.shape", "as many elements"),
    (f"{TENSOR} reshape {{ shape: [-1] }} }}", "input[0].reshape.shape", "has 1 sizes of -1"),
    (f"{TENSOR} reshape {{ shape: [0] }} }}", "input[0].reshape.shape", "0 in"),
    ('output { name: "Y" data_type: TYPE_FP32 dims: [4] label_filename: "../x" }', "output[0].label_filename", "'../x'"),
    ('output { name: "Y" data_type: TYPE_FP32 dims: [4] label_filename: "/etc/passwd" }', "output[0].label_filename", "passwd"),
    ('output { name: "Y" data_type: TYPE_FP32 dims: [4] label_filename: "a/../../x" }', "output[0].label_filename", "inside"),
    ('output { name: "Y" data_type: TYPE_FP32 dims: [4] label_filename: "a//x" }', "output[0].label_filename", "inside"),
    ('output { name: "Y" data_type: TYPE_FP32 dims: [4] label_filename: "." }', "output[0].label_filename", "inside"),
    (r'output { name: "Y" data_type: TYPE_FP32 dims: [4] label_filename: "a\0b" }', "output[0].label_filename", "inside"),
    ('default_model_filename: "../model.py"', "default_model_filename", "inside"),
    ('default_model_filename: "/model.py"', "default_model_filename", "inside"),
    # batching
    ("max_batch_size: 8 dynamic_batching { preferred_batch_size: [0] }", "dynamic_batching.preferred_batch_size", "0"),
    ("max_batch_size: 8 dynamic_batching { preferred_batch_size: [-4] }", "dynamic_batching.preferred_batch_size", "-4"),
    ("max_batch_size: 8 dynamic_batching { preferred_batch_size: [4, 9] }", "dynamic_batching.preferred_batch_size", "which is 8"),
    ("dynamic_batching { preferred_batch_size: [1] }", "dynamic_batching.preferred_batch_size", "which is 0"),
    ("dynamic_batching { priority_levels: 2 default_priority_level: 1 }", "dynamic_batching.priority_levels", "not available"),
    ("dynamic_batching { priority_levels: 3 }", "dynamic_batching.default_priority_level", "which is 3"),
    ("dynamic_batching { priority_levels: 3 default_priority_level: 4 }", "dynamic_batching.default_priority_level", "which is 3"),
    ("dynamic_batching { default_priority_level: 1 }", "dynamic_batching.default_priority_level", "without priority_levels"),
    ("dynamic_batching { priority_queue_policy { key: 1 value {} } }", "dynamic_batching.priority_queue_policy", "level 1"),
    (
        "dynamic_batching { default_queue_policy { max_queue_size: 3 } }",
        "dynamic_batching.default_queue_policy.max_queue_size",
        "not available",
    ),
    (
        "dynamic_batching { default_queue_policy { timeout_action: DELAY } }",
        "dynamic_batching.default_queue_policy.timeout_action",
        "not available",
    ),
    (
        "dynamic_batching { default_queue_policy { default_timeout_microseconds: 3 } }",
        "dynamic_batching.default_queue_policy.default_timeout_microseconds",
        "not available",
    ),
    (
        "dynamic_batching { default_queue_policy { allow_timeout_override: true } }",
        "dynamic_batching.default_queue_policy.allow_timeout_override",
        "not available",
    ),
    (
        "dynamic_batching { priority_levels: 1 default_priority_level: 1 priority_queue_policy { key: 1 value { max_queue_size: 3 } } }",
        "dynamic_batching.priority_queue_policy[1].max_queue_size",
        "not available",
    ),
    # instances
    ("instance_group { kind: KIND_GPU }", "instance_group[0].kind", "no GPU"),
    ("instance_group { kind: KIND_GPU gpus: [0] }", "instance_group[0].kind", "no GPU"),
    ("instance_group { kind: KIND_CPU gpus: [0] }", "instance_group[0].gpus", "KIND_CPU with GPUs [0]"),
    ("instance_group { gpus: [0] }", "instance_group[0].gpus", "KIND_CPU with GPUs"),
    ("instance_group { kind: KIND_MODEL gpus: [0] }", "instance_group[0].gpus", "KIND_MODEL with GPUs"),
    ('instance_group { profile: "1" }', "instance_group[0].profile", "TensorRT"),
    ("instance_group { passive: true }", "instance_group[0].passive", "not available"),
    ('instance_group { host_policy: "numa0" }', "instance_group[0].host_policy", "'numa0'"),
    ('instance_group { rate_limiter { resources { name: "r" count: 1 } } }', "instance_group[0].rate_limiter", "not available"),
    ("instance_group { rate_limiter { priority: 2 } }", "instance_group[0].rate_limiter", "not available"),
    ("instance_group { count: 257 }", "instance_group[0].count", "at most 256"),
    # optimization
    (
        'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }',
        "optimization.execution_accelerators.cpu_execution_accelerator",
        "'openvino'",
    ),
]


@pytest.mark.parametrize(("source", "field", "message"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_field(source: str, field: str, message: str) -> None:
    refused = refusal(source if "backend:" in source else f'backend: "python" {source}')

    assert f"config.pbtxt: {field}" == refused.field
    assert message in str(refused)
    assert refused.fix


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ("[4]", "[2, 2]"),
        ("[4]", "[4, 1]"),
        ("[1]", "[]"),
        ("[1, 1]", "[]"),
        ("[-1]", "[-1, 1]"),
        ("[2, -1, 3]", "[2, -1, 3, 1]"),
        ("[-1, 4, -1]", "[-1, 2, 2, -1]"),
    ],
)
def test_a_reshape_of_equal_size_is_accepted(dims: str, shape: str) -> None:
    source = f'backend: "python" max_batch_size: 1 input {{ name: "X" data_type: TYPE_FP32 dims: {dims} reshape {{ shape: {shape} }} }}'

    assert normalise(source)[0]["input"][0]["reshape"] == {"shape": [int(size) for size in re.findall(r"-?\d+", shape)]}


@pytest.mark.parametrize(
    ("dims", "shape"),
    [("[2, -1, 3]", "[3, -1, 2]"), ("[-1, 4]", "[4, -1]"), ("[-1, -1]", "[-1]"), ("[6]", "[4]"), ("[2]", "[]")],
)
def test_a_reshape_must_agree_also_between_open_sizes(dims: str, shape: str) -> None:
    refused = refusal(
        f'backend: "python" max_batch_size: 1 input {{ name: "X" data_type: TYPE_FP32 dims: {dims} reshape {{ shape: {shape} }} }}'
    )

    assert refused.field == "config.pbtxt: input[0].reshape.shape"


def test_an_empty_reshape_needs_a_batch_dimension() -> None:
    refused = refusal('backend: "python" input { name: "X" data_type: TYPE_FP32 dims: [1] reshape { shape: [] } }')

    assert "without batching" in str(refused)


WARNED = [
    ("instance_group { kind: KIND_GPU } instance_group { kind: KIND_CPU }", "instance_group[0]"),
    ("instance_group { secondary_devices { device_id: 1 } }", "instance_group[0].secondary_devices"),
    ("optimization { priority: PRIORITY_MAX }", "optimization.priority"),
    ("optimization { cuda { graphs: true } }", "optimization.cuda"),
    ("optimization { input_pinned_memory { enable: false } }", "optimization.input_pinned_memory"),
    ("optimization { output_pinned_memory { enable: false } }", "optimization.output_pinned_memory"),
    ("optimization { gather_kernel_buffer_threshold: 3 }", "optimization.gather_kernel_buffer_threshold"),
    ("optimization { eager_batching: true }", "optimization.eager_batching"),
    ("optimization { graph { level: 1 } }", "optimization.graph"),
    (
        'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }',
        "optimization.execution_accelerators.gpu_execution_accelerator",
    ),
    ('cc_model_filenames { key: "8.6" value: "x" }', "cc_model_filenames"),
]


@pytest.mark.parametrize(("source", "field"), WARNED)
def test_what_only_a_gpu_could_honour_is_kept_with_a_warning(source: str, field: str) -> None:
    config, warnings = normalise(f"{MODEL} {source}")
    top = field.split(".")[0].split("[")[0]

    assert [f"config.pbtxt: {field}"] == [warning.partition(": ")[0] + ": " + warning.split(": ")[1] for warning in warnings]
    assert text.parse(source)[top] != text.parse("").get(top)
    assert config[top] != normalise(MODEL)[0][top]


def test_a_graph_level_means_something_to_onnx() -> None:
    assert normalise(f"{MODEL.replace('python', 'onnxruntime')} optimization {{ graph {{ level: 1 }} }}")[1] == []


def test_dynamic_batching_without_batching_is_kept_with_a_warning() -> None:
    config, warnings = normalise('backend: "python" dynamic_batching {}')

    assert config["dynamic_batching"]["preferred_batch_size"] == []
    assert "has no effect" in warnings[0]


def test_a_gpu_group_beside_a_cpu_group_stays_in_the_record_and_starts_nothing() -> None:
    config, _ = normalise(f"{MODEL} instance_group {{ kind: KIND_GPU count: 4 }} instance_group {{ kind: KIND_CPU count: 2 }}")

    assert [group["kind"] for group in config["instance_group"]] == ["KIND_GPU", "KIND_CPU"]
    assert ModelConfig.of(config).instances == 2


def test_what_depends_on_other_fields_may_wait_for_the_backend_to_complete_them() -> None:
    """Triton reads a bundle without inputs and max_batch_size, and lets the model say them; only then is the rest checked."""
    source = 'backend: "onnxruntime" dynamic_batching { preferred_batch_size: [4] } ' + WARMUP % f"{GOOD} zero_data: true"
    prepared = checks.prepare(text.parse(source), "f")
    completed = {**prepared, "max_batch_size": 4, "input": text.parse(IO)["input"], "output": text.parse(IO)["output"]}

    assert checks.normalise(completed, "f", [])["dynamic_batching"]["preferred_batch_size"] == [4]
    with pytest.raises(BundleRefused, match="preferred_batch_size"):
        checks.normalise(prepared, "f", [])


@pytest.mark.parametrize(
    "source", ['name: "g"', 'backend: "foo"', "sequence_batching {}", 'default_model_filename: "../x"', "version_policy { latest {} }"]
)
def test_what_no_backend_can_put_right_is_refused_before_it_is_asked(source: str) -> None:
    with pytest.raises(BundleRefused):
        checks.prepare(text.parse(source if "backend" in source else f'backend: "python" {source}'), "f")


WARMUP = 'model_warmup { name: "w" batch_size: 1 inputs { key: "X" value { %s } } }'
GOOD = "data_type: TYPE_FP32 dims: [4] "


def warmup(file: str) -> str:
    return WARMUP % f'{GOOD} input_data_file: "{file}"'


@pytest.mark.parametrize("data", ["zero_data: true", "zero_data: false", "random_data: true", 'input_data_file: "x.raw"'])
def test_a_warm_up_sample_of_each_kind_is_accepted(data: str) -> None:
    config, warnings = normalise(f"{MODEL} {WARMUP % (GOOD + data)}")

    assert not warnings
    assert len(config["model_warmup"]) == 1


WARMUP_REFUSED = [
    (WARMUP % GOOD, "[X]", "what data"),
    (WARMUP % "dims: [4] zero_data: true", "[X].data_type", "TYPE_INVALID"),
    (WARMUP % "data_type: TYPE_INT32 dims: [4] zero_data: true", "[X].data_type", "the input is TYPE_FP32"),
    (WARMUP % "data_type: TYPE_FP32 dims: [5] zero_data: true", "[X].dims", "[4]"),
    (WARMUP % "data_type: TYPE_FP32 dims: [1, 4] zero_data: true", "[X].dims", "[4]"),
    (WARMUP % "data_type: TYPE_FP32 dims: [-1] zero_data: true", "[X].dims", "leaves a size open"),
    (WARMUP % f'{GOOD} input_data_file: ""', "[X].input_data_file", "empty"),
    ('model_warmup { name: "w" batch_size: 1 }', "", "required input 'X'"),
    (WARMUP.replace('"X"', '"Q"') % f"{GOOD} zero_data: true", "", "no input 'Q'"),
]


@pytest.mark.parametrize(("source", "field", "message"), WARMUP_REFUSED)
def test_a_warm_up_sample_must_fit_the_inputs(source: str, field: str, message: str) -> None:
    refused = refusal(f"{MODEL} {source}")

    assert f"config.pbtxt: model_warmup[0].inputs{field}" == refused.field
    assert message in str(refused)


def test_a_warm_up_file_must_lie_in_the_warmup_folder() -> None:
    refused = refusal(f"{MODEL} {warmup('../x')}")

    assert refused.field == "config.pbtxt: model_warmup[0].inputs[X].input_data_file"


@pytest.mark.parametrize(
    ("limit", "size", "accepted"), [(8, 1, True), (8, 8, True), (8, 9, False), (0, 1, True), (0, 0, False), (0, 2, False)]
)
def test_the_batch_of_a_warm_up_sample_must_be_one_the_model_takes(limit: int, size: int, accepted: bool) -> None:
    sample = (WARMUP % f"{GOOD} zero_data: true").replace("batch_size: 1", f"batch_size: {size}")
    source = f'backend: "python" max_batch_size: {limit} {IO} {sample}'

    if accepted:
        assert normalise(source)[1] == []
    else:
        assert refusal(source).field == "config.pbtxt: model_warmup[0].batch_size"


def test_a_sample_of_batch_0_is_skipped_as_triton_does_with_a_warning() -> None:
    config, warnings = normalise(f"{MODEL} {(WARMUP % (GOOD + 'zero_data: true')).replace('batch_size: 1', '')}")

    assert "skipped" in warnings[0]
    assert ModelConfig.of(config).warmups == ()


STEP = 'step { model_name: "a" model_version: -1 input_map { key: "I" value: "X" } output_map { key: "O" value: "Y" } }'


def test_an_ensemble_is_completed_as_triton_does() -> None:
    config, warnings = normalise(f'platform: "ensemble" {IO} ensemble_scheduling {{ {STEP} }}')

    assert not warnings
    assert "optimization" not in config
    assert config["instance_group"] == []
    assert config["backend"] == config["default_model_filename"] == ""
    assert config["model_transaction_policy"] == {"decoupled": False}
    assert config == checks.normalise(copy.deepcopy(config), "f", [])


ENSEMBLE_REFUSED = [
    (f"ensemble_scheduling {{ {STEP} }} instance_group {{}}", "instance_group"),
    (f"ensemble_scheduling {{ {STEP} }} optimization {{}}", "optimization"),
    (f'ensemble_scheduling {{ {STEP} }} model_warmup {{ name: "w" }}', "model_warmup"),
    ("ensemble_scheduling { }", "ensemble_scheduling"),
    ("", "ensemble_scheduling"),
    (f"ensemble_scheduling {{ {STEP} max_inflight_requests: 3 }}", "ensemble_scheduling.max_inflight_requests"),
    ("ensemble_scheduling {" + STEP.replace("-1", '-1 model_namespace: "n"') + "}", "ensemble_scheduling.step[0].model_namespace"),
    (f"ensemble_scheduling {{ {STEP} }} model_transaction_policy {{ decoupled: true }}", "model_transaction_policy.decoupled"),
    ("ensemble_scheduling {" + STEP.replace('"X"', '"Q"') + "}", "input"),
]


@pytest.mark.parametrize(("source", "field"), ENSEMBLE_REFUSED)
def test_an_ensemble_has_steps_and_nothing_of_a_model(source: str, field: str) -> None:
    assert f"config.pbtxt: {field}" == refusal(f'platform: "ensemble" {IO} {source}').field


def files(*paths: str, size: int = 100) -> dict[str, File]:
    return {path: File("0" * 64, size, False) for path in paths}


def test_what_a_config_names_must_be_in_the_bundle() -> None:
    labelled = f'{MODEL[:-1]} label_filename: "labels.txt" }}'
    config, _ = normalise(f"{labelled} {warmup('x.raw')}")
    whole = files("1/model.py", "labels.txt", "warmup/x.raw")
    checks.check_files(config, whole, "1")
    fields = {
        "1/model.py": "default_model_filename",
        "labels.txt": "output[0].label_filename",
        "warmup/x.raw": "model_warmup[0].inputs[X].input_data_file",
    }
    for missing, field in fields.items():
        with pytest.raises(BundleRefused, match="there is no") as caught:
            checks.check_files(config, {path: file for path, file in whole.items() if path != missing}, "1")

        assert f"config.pbtxt: {field}" == caught.value.field


@pytest.mark.parametrize(("size", "accepted"), [(15, False), (16, True), (20, True)])
def test_a_warm_up_file_must_hold_one_item(size: int, accepted: bool) -> None:
    config, _ = normalise(f"{MODEL} {warmup('x.raw')}")
    given = files("1/model.py", "warmup/x.raw", size=size)

    if accepted:
        checks.check_files(config, given, "1")
    else:
        with pytest.raises(BundleRefused, match="at least 16"):
            checks.check_files(config, given, "1")


def test_an_artifact_may_be_a_folder() -> None:
    config, _ = normalise(MODEL.replace("python", "onnxruntime"))

    checks.check_files(config, files("3/model.onnx/model.onnx", "3/model.onnx/weights"), "3")


def test_an_ensemble_needs_no_file() -> None:
    config, _ = normalise(f'platform: "ensemble" {IO} ensemble_scheduling {{ {STEP} }}')

    checks.check_files(config, {}, "")


@pytest.mark.parametrize(("versions", "accepted"), [("[1]", True), ("[2, 1]", True), ("[2]", False)])
def test_a_version_policy_must_choose_the_bundles_own_version(versions: str, accepted: bool) -> None:
    config, _ = normalise(f"{MODEL} version_policy {{ specific {{ versions: {versions} }} }}")

    if accepted:
        checks.check_files(config, files("1/model.py"), "1")
    else:
        with pytest.raises(BundleRefused, match="leaves out"):
            checks.check_files(config, files("1/model.py"), "1")
