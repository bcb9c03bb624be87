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
from analysis.studies.take.use_in import STACKS, use_in
from analysis.take.carry import TAKEN

SCHEMAS = json.loads(Path(package.__file__).with_name("stacks.schema.json").read_text(encoding="utf-8"))
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}
CONFIG |= {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 8192}
CONFIG |= {"max_position_embeddings": 2048, "dtype": "bfloat16"}
PROMPT = 64
RUN = f"""
import torch
ids = torch.arange(3, {PROMPT + 3})[None]
with torch.no_grad():
    begun = model(ids, use_cache=True)
    written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, min_new_tokens=4)
cache = begun["cache"] if "cache" in begun else begun.past_key_values
print(written.shape[1], *[layer.keys.shape[2] for layer in cache.layers])
"""


def lines(stack: str, method: str, **more) -> str:
    """What a stack is told; empty where it cannot run the method."""
    return next(row.lines for row in use_in(UseIn(method=method, **more)).rows if row.stack == stack)


@pytest.fixture(scope="module")
def shape(tmp_path_factory) -> Path:
    """A two-layer checkpoint of the configuration that somebody pastes."""
    folder = tmp_path_factory.mktemp("shape")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    make_shape(str(folder / "config.json"), str(folder / "model"))
    return folder


@pytest.mark.parametrize("method", ["snapkv", "streaming_llm"])
def test_the_transformers_lines_run_in_a_fresh_process_and_drop_what_they_say(method, shape, tmp_path):
    row, *_ = use_in(UseIn(method=method, model=str(shape / "model"), keep=0.25)).rows
    settings = {"method": {"name": method, "settings": row.settings}, "config": json.dumps(CONFIG)}
    take(Take(run=method, **settings, output=str(tmp_path / "it.zip")), context=Context(browser=False))
    zipfile.ZipFile(tmp_path / "it.zip").extractall(tmp_path)
    (tmp_path / "script.py").write_text(row.lines + RUN)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "HF_HUB_OFFLINE")}
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    written, *held = map(int, done.stdout.split())
    shrinks = METHODS[method].saves == "memory"
    assert written == PROMPT + 4 and held == [PROMPT // 4 if shrinks else PROMPT] * 2
    assert ("really shrinks" in row.says) == shrinks, "said before anybody takes it"


def test_the_lines_of_serving_stacks_hold_what_they_document():
    checked = []
    for method in METHODS:
        for gpu in ("H100-SXM", "B200-SXM"):
            for keep, length in ((0.1, 32768), (0.01, 256), (0.75, 1 << 20)):
                asked = {"gpu": gpu, "keep": keep, "length": length}
                for stack, read in READ.items():
                    if code := lines(stack, method, **asked):
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
    made = vars(schedulers[0])
    eviction = made.get("cache_eviction_config")
    assert not eviction or eviction["max_cache_size"] > eviction["start_size"] + eviction["recent_size"]
    return made


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


def test_a_config_stands_for_no_fitted_method():
    with pytest.raises(BadSetting, match="is fitted to a model"):
        take(Take(run="csa", config=json.dumps(CONFIG), output="x.zip"), context=Context(browser=False))


@pytest.mark.parametrize("method", ["snapkv", "tova", "keydiff"])
def test_code_that_drops_keys_leaves_for_no_cache_that_it_does_not_know(method, tmp_path):
    chooses = KNOWN["deepseek-ai/DeepSeek-V3.2"]
    latent = {name: value for name, value in chooses.items() if "index" not in name} | {"model_type": "deepseek_v3"}
    for config, why in ((chooses, "an indexer of its own"), (latent, "one latent for all heads")):
        request = Take(run=method, config=json.dumps(config), output=str(tmp_path / "it.zip"))
        with pytest.raises(BadSetting, match=why):
            take(request, context=Context(browser=False))
        masks = Take(run="streaming_llm", config=json.dumps(config), output=str(tmp_path / f"{why}.zip"))
        assert take(masks, context=Context(browser=False)).bytes > 1000
