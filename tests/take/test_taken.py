"""The file that leaves the program does what the program does: every method it knows, on every family of models."""

import inspect
import io
import json
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from analysis.errors import BadSetting
from analysis.kernels.bits import Directions, Steps
from analysis.kernels.narrow import Narrow
from analysis.kernels.ragged import Ragged
from analysis.methods import METHODS
from analysis.seam.arguments import as_past, past_of
from analysis.seam.attention import apply
from analysis.seam.cache import CompactLayer, cache_bytes
from analysis.take.carry import CODE, LEFT_BEHIND, MASKS, OF_CACHE, SHRINKS, TAKEN, carry, code, pack, readme
from tests.contract.test_contract import router
from tests.made.routed import made_state
from tests.made.tiny import LAYERS, WIDTH, left_padded, tiny, token_ids

CUT, NEW = 32, 6  # tokens of the prompt, and of the answer
LONG = 160  # of the prompt where keys leave it or are packed
MADE = {
    "dense": lambda: METHODS["dense"](),
    "focus": lambda: METHODS["focus"].build(router(6, 2), n_sink=2),
    "csa": lambda: METHODS["csa"].build({"layers": LAYERS, "heads": 4, "policy": [*range(2, 14), 9]}),
    "bucket_routing": lambda: METHODS["bucket_routing"].build(made_state(), visited=2, window=4, n_sink=1),
    "snapkv": lambda: METHODS["snapkv"](ratio=0.6, window=4),
    "streaming_llm": lambda: METHODS["streaming_llm"](n_sink=2, window=6),
    "oracle_topk": lambda: METHODS["oracle_topk"](k=5),
    "focal": lambda: METHODS["focal"](t=0.7),
    "tova": lambda: METHODS["tova"](ratio=0.6),
    "keydiff": lambda: METHODS["keydiff"](ratio=0.6),
    "snapkv+int4": lambda: METHODS["snapkv"](ratio=0.6, window=4, storage="4bit_nc"),
    **{f"kv_int{bits}": partial(METHODS[f"kv_int{bits}"], group=8, recent=4) for bits in (8, 4, 2)},
    "kv_fp8": lambda: METHODS["kv_fp8"](),
    "kv_turbo": lambda: METHODS["kv_turbo"](full_layers=1),
}
# Bytes of a key-value head of the tiny model after a prompt of LONG tokens, in 64 keys and values of 8 numbers or
# in all: of few bits with the steps of a group of 8 (4 bytes) or the factor of a row (2), the last 4 values in full.
FULL = 2 * 8 * 4
HELD = {name: 64 * FULL for name in ("snapkv", "tova", "keydiff")} | {
    "snapkv+int4": 64 * (4 + 2 + 4 + 4),
    **{f"kv_int{bits}": LONG * (bits + 4) + (LONG - 4) * (bits + 4) + 4 * 8 * 4 for bits in (8, 4, 2)},
    "kv_fp8": LONG * 2 * (8 + 2),
    "kv_turbo": LONG * (4 + 2 + 4 + 4 + 2 * FULL) / 3,  # the first and the last of three layers stay in full
}
OWN = ("gpt2", "gpt_neox", "mistral", "gemma2")  # families whose attention is called or bounded in a way of its own
CASES = [("llama", name) for name in MADE] + [
    (family, name) for family in OWN for name in ("focus", "csa", "bucket_routing", "snapkv")
]
# scores with a factor and a cap of their own
CASES += [("granite", "snapkv"), ("granite", "tova"), ("gemma2", "tova"), ("gemma2", "kv_int4")]
RATIOS = [0.25, 0.75, 0.5]  # of layers that keep unlike shares
STATIC = [("llama", "snapkv"), ("llama", "csa")]  # tried with a static KV cache too


def unpacked(name: str, method, folder: Path, **changes) -> Path:
    """A folder with what is taken along of a method for a tiny model; `changes` are made in its policy.json."""
    name = name.partition("+")[0]
    settings, tensors = carry(name, method, LAYERS)
    policy = {"format": 1, "method": name, "label": method.title, "model": "tiny", "revision": "0"}
    policy |= {"layers": LAYERS, "heads": 4, "kv_heads": 2, "width": WIDTH, "quality": None, "protocol": {}}
    with zipfile.ZipFile(io.BytesIO(pack(policy | {"command": ""} | settings | changes, tensors))) as file:
        file.extractall(folder)
    return folder


def texts(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and mask: padded on the left where the method allows it."""
    if name in HELD:
        # so long that a block of new tokens is packed
        ids = token_ids(1, 300)
        return ids, torch.ones_like(ids)
    return left_padded()


def cut(name: str) -> int:
    """Tokens of the prompt."""
    return LONG if name in HELD else CUT


def run_outside(home: Path) -> None:
    """One process that runs every case; what it computed lies in `home`."""
    jobs = []
    for family, name in CASES:
        model, out = home / family, home / f"{family}-{name}.safetensors"
        if not model.exists():
            tiny(family).save_pretrained(model)
        folder = unpacked(name, MADE[name](), home / f"{family}-{name}")
        ids, mask = texts(name)
        job = {"model": str(model), "folder": str(folder), "ids": ids.tolist(), "mask": mask.tolist(), "out": str(out)}
        jobs.append(job | {"cut": cut(name), "new": NEW, "static": (family, name) in STATIC, "own": name == "kv_int8"})
    ids, mask = texts("snapkv")
    folder = unpacked("snapkv", MADE["snapkv"](), home / "by-layer", ratios=RATIOS)
    job = {"model": str(home / "llama"), "folder": str(folder), "ids": ids.tolist(), "mask": mask.tolist()}
    jobs.append(job | {"out": str(home / "by-layer.safetensors"), "cut": LONG, "new": NEW})
    (home / "jobs.json").write_text(json.dumps(jobs))
    script = Path(__file__).with_name("outside.py")
    done = subprocess.run([sys.executable, "-I", script, home / "jobs.json"], cwd=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="session")
def home(once):
    """What the process outside left."""
    return once("taken", run_outside)


@pytest.fixture(scope="session")
def outside(home):
    """(family, method) -> what the process outside computed."""
    texts_of_static = {pair: (home / f"{pair[0]}-{pair[1]}.txt").read_text() for pair in STATIC}
    return lambda family, name: (
        load_file(home / f"{family}-{name}.safetensors") | {"static": texts_of_static.get((family, name))}
    )


@pytest.mark.slow
@pytest.mark.parametrize("family, name", CASES)
def test_the_logits_and_the_greedy_text_are_the_programs(outside, family, name):
    lm, method, (ids, mask), prompt = tiny(family), MADE[name](), texts(name), slice(cut(name))
    generation = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    with torch.no_grad(), apply(lm, method):
        logits = lm(ids, attention_mask=mask).logits
        begun = lm(ids[:, prompt], attention_mask=mask[:, prompt], use_cache=True)
        after = lm(ids[:, cut(name) :], attention_mask=mask, **as_past(lm, past_of(begun))).logits
        written = lm.generate(ids[:, prompt], attention_mask=mask[:, prompt], **generation)
    outputs = outside(family, name)
    real = mask.bool()
    torch.testing.assert_close(outputs["whole"][real], logits[real], atol=1e-4, rtol=0)
    torch.testing.assert_close(outputs["after"], after, atol=1e-4, rtol=0)
    assert outputs["written"].tolist() == written.tolist()
    if name in HELD and family == "llama":
        with torch.no_grad(), apply(lm, method, kernels=True):
            cache = method.cache(lm)
            lm(ids[:, prompt], **as_past(lm, cache))
            counted = cache_bytes(cache)[0]
        stays = int(LONG * (1 - method.ratio)) + ids.shape[1] - LONG
        assert outputs["held"].tolist() == [stays] * LAYERS
        # dropped or packed for good, not masked: all that the cache outside keeps alive
        assert outputs["bytes"].item() == pytest.approx(2 * LAYERS * HELD[name], rel=0.02) == counted


@pytest.mark.slow
def test_the_settings_matter_here(outside):
    """Else all methods would agree whatever the file does."""
    dense, sparse = outside("llama", "dense"), [outside("llama", name) for name in MADE if name != "dense"]
    equal = [
        output["whole"].shape == dense["whole"].shape and torch.allclose(output["after"], dense["after"])
        for output in sparse
    ]
    assert not any(equal)


@pytest.mark.slow
def test_layers_may_keep_unlike_shares(home):
    outputs = load_file(home / "by-layer.safetensors")
    added = texts("snapkv")[0].shape[1] - LONG
    assert outputs["held"].tolist() == [int(LONG * (1 - ratio)) + added for ratio in RATIOS]
    by_hand = sum(2 * int(LONG * (1 - ratio)) * FULL for ratio in RATIOS)
    assert outputs["bytes"].item() == pytest.approx(by_hand, rel=0.02)
    assert outputs["written"].shape[1] == LONG + NEW


@pytest.mark.slow
def test_a_static_cache_is_refused_where_keys_are_dropped(outside):
    refused, fine = (outside(*pair)["static"] for pair in STATIC)
    assert refused == "Keys can be dropped from a DynamicCache only: choose no other KV cache." and fine == ""


@pytest.mark.parametrize("name", TAKEN)
def test_the_file_that_leaves_is_the_methods_own_source(name):
    """Its hooks, to the letter, but for what only the program calls."""
    files, method = code(name), METHODS[name]
    source = files[CODE]
    for hook in ("token_features", "encode_tokens", "scale_queries", "mask", "key_scores"):
        written = vars(method).get(hook)
        if written is not None and f"{method.__name__}.{hook}" not in LEFT_BEHIND:
            assert inspect.getsource(written) in source, hook
    assert "def attend(" not in source and len(source.splitlines()) < 1000
    if method.saves == "memory":
        for of_cache in (Narrow.attend, Ragged.attend, Steps, Directions, CompactLayer.compact):
            assert inspect.getsource(of_cache) in files[OF_CACHE]


@pytest.mark.parametrize(
    "name, method, words",
    [
        (
            "skip_softmax",
            METHODS["skip_softmax"](),
            "Skip softmax leaves in a file of its own: python -m analysis sparse",
        ),
        ("performer", METHODS["performer"](), "Performer cannot be taken along yet; these can: Focus, "),
        ("focus", METHODS["focus"].build(router(), reading="soft"), "with reading hard only, and here it is soft"),
        ("csa", METHODS["csa"].build([2] * 13, eviction="at the budget"), "with eviction never only"),
    ],
)
def test_what_cannot_be_taken_says_so_in_one_sentence(name, method, words):
    with pytest.raises(BadSetting) as refused:
        carry(name, method, LAYERS)
    message = str(refused.value)
    assert words in message and message.endswith(".") and message.count(". ") == 0


@pytest.mark.parametrize("kind, loaded", [("float32", True), ("bfloat16", True), ("8bit, products in bfloat16", False)])
def test_the_readme_loads_what_was_measured_or_says_that_it_does_not(kind, loaded):
    policy = {"label": "A", "method": "csa", "model": "tiny", "layers": 1, "heads": 1, "revision": "0", "command": "c"}
    written = readme(policy | {"quality": "perplexity 2.", "protocol": {"dtype": kind}}, "/models/tiny")
    assert ("'/models/tiny'" in written) and (f"dtype=torch.{kind})" in written) == loaded
    assert (f"measured with weights in {kind}, not in these" in written) == (not loaded)
    assert (MASKS in written) and SHRINKS in readme(policy | {"method": "snapkv", "quality": None, "protocol": {}})
