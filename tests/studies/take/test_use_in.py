"""Use it in: the transformers lines run in a fresh process, those of other stacks hold what these document."""

import json
import os
import shlex
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import jsonschema
import pytest
import yaml

from analysis import take as package
from analysis.commands.quality import Take, UseIn
from analysis.costs import KNOWN
from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.shapes import make_shape
from analysis.studies.context import Context
from analysis.studies.take.take import take
from analysis.studies.take.use_in import STACKS, Stack, use_in
from analysis.take.carry import TAKEN
from tests.made.families import configured

SCHEMAS = json.loads(Path(package.__file__).with_name("stacks.schema.json").read_text(encoding="utf-8"))
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}
CONFIG |= {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 8192}
CONFIG |= {"max_position_embeddings": 2048, "dtype": "bfloat16"}
PROMPT, WINDOW = 64, 16
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
LINEAR = {f"linear_num_{name}_heads": 2 for name in ("key", "value")}
LINEAR |= {f"linear_{name}_head_dim": 8 for name in ("key", "value")}
# class of a kind that people run -> (what its config.json says besides, window of each layer that holds keys)
OTHERS: dict[str, tuple[dict, list[int | None]]] = {
    "Qwen3ForCausalLM": ({"model_type": "qwen3", "head_dim": 16}, [None, None]),
    "GptOssForCausalLM": (
        EXPERTS | {"model_type": "gpt_oss", "sliding_window": WINDOW, "num_local_experts": 4},
        [WINDOW, None],
    ),
    "Qwen3NextForCausalLM": (
        EXPERTS
        | LINEAR
        | {"model_type": "qwen3_next", "num_experts": 4, "shared_expert_intermediate_size": 32}
        | {"full_attention_interval": 2, "num_hidden_layers": 4},
        [None, None],
    ),
    "Gemma3ForCausalLM": (
        {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": WINDOW}
        | {"layer_types": ["sliding_attention", "full_attention"]},
        [WINDOW, None],
    ),
}
RUN = f"""
import torch
ids = torch.arange(3, {PROMPT + 3})[None]
with torch.no_grad():
    begun = model(ids, use_cache=True)
    written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, min_new_tokens=4)
cache = begun["cache"] if "cache" in begun else begun.past_key_values
held = []
for layer in cache.layers:
    if hasattr(layer, "held"):
        held.append(int(layer.held.counts.max()))
    elif getattr(layer, "keys", None) is not None:
        held.append(layer.keys.shape[2])
print(written.shape[1], *held)
"""


def lines(stack: str, method: str, **options) -> str:
    """What a stack is told; empty where it cannot run the method."""
    return next(row.lines for row in use_in(UseIn(method=method, **options)).rows if row.stack == stack)


def shaped(config: dict, folder: Path) -> Path:
    """A checkpoint of the configuration that somebody pastes."""
    (folder / "config.json").write_text(json.dumps(config))
    make_shape(str(folder / "config.json"), str(folder / "model"))
    return folder / "model"


# Each script finds the code of its own folder.
ALL = """
import os, runpy, sys
for folder in sys.argv[1:]:
    os.chdir(folder)
    sys.path[0] = folder
    for file in os.listdir(folder):
        sys.modules.pop(file.removesuffix(".py"), None)
    runpy.run_path("script.py")
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> dict[tuple[str, str], tuple[Stack, int, list[int]]]:
    """(method, kind of model) -> what the page says of a method in transformers; tokens of prompt and answer, and keys
    held after the prompt in each layer that holds keys, where its lines ran beside its zip in a fresh process."""
    cases = [
        ("snapkv", "llama"),
        ("streaming_llm", "llama"),
        ("kv_int4", "llama"),
        *(("snapkv", kind) for kind in OTHERS),
    ]
    rows, folders = [], []
    for method, kind in cases:
        folder = tmp_path_factory.mktemp(kind)
        config = CONFIG | (OTHERS[kind][0] | {"architectures": [kind]} if kind in OTHERS else {})
        row, *_ = use_in(UseIn(method=method, model=str(shaped(config, folder)), keep=0.25)).rows
        settings = {"method": {"name": method, "settings": row.settings}, "config": json.dumps(config)}
        take(Take(run=method, **settings, output=str(folder / "it.zip")), context=Context(browser=False))
        zipfile.ZipFile(folder / "it.zip").extractall(folder)
        (folder / "script.py").write_text(row.lines + RUN)
        rows.append(row)
        folders.append(str(folder))
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "HF_HUB_OFFLINE")}
    command = [sys.executable, "-c", ALL, *folders]
    done = subprocess.run(command, cwd=folders[0], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    numbers = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    return {case: (row, written, lengths) for case, row, (written, *lengths) in zip(cases, rows, numbers, strict=True)}


# What does not shrink also runs outside in tests/take, beside everything else that leaves.
@pytest.mark.slow
@pytest.mark.parametrize("method", ["snapkv", "streaming_llm", "kv_int4"])
def test_the_transformers_lines_run_in_a_fresh_process_and_drop_what_they_say(method, ran):
    row, written, lengths = ran[method, "llama"]
    shrinks = METHODS[method].saves == "memory"
    assert written == PROMPT + 4 and lengths == [PROMPT // 4 if method == "snapkv" else PROMPT] * 2
    assert ("really shrinks" in row.says) == shrinks, "said before anybody takes it"


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_they_run_in_every_kind_of_model_that_the_page_offers(kind, ran):
    """Layers with a window hold it without the token that comes next, and are not shortened; layers with a state hold
    no keys."""
    _, written, lengths = ran["snapkv", kind]
    windows = OTHERS[kind][1]
    assert written == PROMPT + 4 and lengths == [PROMPT // 4 if window is None else window - 1 for window in windows]


def test_the_lines_of_serving_stacks_hold_what_they_document():
    checked = []
    for method in METHODS:
        for gpu in ("H100-SXM", "B200-SXM"):
            for keep, length in ((0.1, 32768), (0.01, 256), (0.75, 1 << 20)):
                settings = {"gpu": gpu, "keep": keep, "length": length}
                for stack, read in READ.items():
                    if code := lines(stack, method, **settings):
                        jsonschema.validate(read(code), SCHEMAS[stack]["schema"])
                        checked.append((stack, method))
    can = {(stack, method) for stack in READ for method in STACKS[stack]["can"]}
    # what `sparse-config` writes for TensorRT-LLM is checked where it is made
    assert set(checked) == can


def of_tensorrt(code: str) -> dict:
    return yaml.safe_load(code) or {"sparse_attention_config": {"algorithm": "skip_softmax"}}


def of_openvino(code: str) -> dict:
    """The scheduler that the lines make, of stand-ins that keep what they are told."""
    module, schedulers = types.ModuleType("openvino_genai"), []
    module.SchedulerConfig = lambda: types.SimpleNamespace()
    module.CacheEvictionConfig = module.SparseAttentionConfig = dict
    module.AggregationMode = types.SimpleNamespace(SUM="SUM", NORM_SUM="NORM_SUM")
    module.SparseAttentionMode = types.SimpleNamespace(TRISHAPE="TRISHAPE", XATTENTION="XATTENTION")
    module.LLMPipeline = lambda folder, device, scheduler_config: schedulers.append(scheduler_config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "openvino_genai", module)
        exec(code, {})
    scheduler = vars(schedulers[0])
    eviction = scheduler.get("cache_eviction_config")
    assert not eviction or eviction["max_cache_size"] > eviction["start_size"] + eviction["recent_size"]
    return scheduler


READ = {
    "vllm": lambda code: shlex.split(code.splitlines()[-1])[1:],
    "tensorrt_llm": lambda code: of_tensorrt(code if "algorithm" in code else ""),
    "openvino": of_openvino,
}


def test_every_method_has_a_reason_or_lines_in_every_stack():
    for method in METHODS:
        for row in use_in(UseIn(method=method, gpu="T4")).rows:
            assert row.says.endswith(".") and len(row.says.split()) <= 14 and row.documented and row.read
    assert set(STACKS["transformers"]["can"]) | set(STACKS["transformers"]["without"]) == set(TAKEN) - {"dense"}
    assert lines("tensorrt_llm", "snapkv", gpu="B200-SXM") and not lines("tensorrt_llm", "snapkv", gpu="H100-SXM")
    with pytest.raises(BadSetting, match="There is no method"):
        use_in(UseIn(method="abacus"))
    with pytest.raises(BadSetting, match="is no GPU known here"):
        use_in(UseIn(gpu="abacus"))


def test_a_config_stands_for_no_fitted_method_and_without_one_it_is_said():
    with pytest.raises(BadSetting, match="is fitted to a model"):
        take(Take(run="csa", config=json.dumps(CONFIG), output="x.zip"), context=Context(browser=False))
    used = use_in(UseIn(model="nobody/nothing"))
    assert used.rows[0].lines and any("not known" in note for note in used.notes) and not use_in(UseIn()).notes


@pytest.mark.parametrize("method", ["snapkv", "tova", "keydiff"])
def test_code_that_drops_keys_leaves_for_no_cache_that_it_does_not_know(method, tmp_path):
    chooses = KNOWN["deepseek-ai/DeepSeek-V3.2"]
    latent = {name: value for name, value in chooses.items() if "index" not in name} | {"model_type": "deepseek_v3"}
    for config, why in ((chooses, "an indexer of its own"), (latent, "one latent for all heads")):
        request = Take(run=method, config=json.dumps(config), output=str(tmp_path / "it.zip"))
        with pytest.raises(BadSetting, match=why):
            take(request, context=Context(browser=False))
        row, *further_rows = use_in(UseIn(method=method, config=json.dumps(config))).rows
        assert why in row.says and not row.lines and row.settings is None, "said before a zip is asked for"
        assert [row_of_stack.lines for row_of_stack in further_rows] == [
            row_of_stack.lines for row_of_stack in use_in(UseIn(method=method)).rows[1:]
        ]
        assert lines("transformers", "streaming_llm", config=json.dumps(config))
        masks = Take(run="streaming_llm", config=json.dumps(config), output=str(tmp_path / f"{why}.zip"))
        assert take(masks, context=Context(browser=False)).bytes > 1000


@pytest.mark.parametrize("method", ["snapkv", "streaming_llm"])
def test_no_code_leaves_for_a_model_with_compressed_entries(method, tmp_path):
    config = json.dumps(configured("deepseek_v4").to_dict(), default=str)
    with pytest.raises(BadSetting, match="compressed entries"):
        take(Take(run=method, config=config, output=str(tmp_path / "it.zip")), context=Context(browser=False))
    assert not lines("transformers", method, config=config)
