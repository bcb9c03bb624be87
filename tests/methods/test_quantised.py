"""KV caches in few bits: the bytes that they hold, what each query reads, and nothing lost where nothing is packed."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from analysis.kernels import narrow, native
from analysis.kernels.bits import stored
from analysis.kernels.narrow import STORAGES, Narrow, Storage, steps
from analysis.kernels.native import one_query
from analysis.methods import METHODS
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply, ran
from analysis.seam.cache import cache_bytes, most_bytes
from tests.made.alive import Alive
from tests.made.passes import logits
from tests.made.tiny import LAYERS, tiny, token_ids

KINDS = [name for name in METHODS if name.startswith("kv_int")] + ["kv_fp8", "kv_turbo"]
BUILT = pytest.mark.skipif(not one_query.programs(), reason="no C++ compiler is here")
# Sizes that are no multiple of a vector or no power of two, and bfloat16.
OTHERS = [("int4", "float32", 24), ("k3v4_nc", "float32", 24), ("int2", "bfloat16", 64), ("4bit_nc", "bfloat16", 64)]
PROMPT, HEADS, SIZE = 768, 2, 64
# Bytes of a key and of a value of 64 numbers, with what its group adds: 4 bytes for 64 numbers, 2 for a row.
BYTES = {
    "kv_int8": (64 + 4, 64 + 4),
    "kv_int4": (32 + 4, 32 + 4),
    "kv_int2": (16 + 4, 16 + 4),
    "kv_fp8": (66, 66),
    "kv_turbo": (32 + 2, 32 + 4),
}


def built(name: str, **settings):
    return METHODS[name](**({"full_layers": 0} if name == "kv_turbo" else {}) | settings)


def deep():
    """Narrow layers and wide heads: a KV cache that outweighs the rest."""
    torch.manual_seed(0)
    shape = dict(vocab_size=96, hidden_size=16, intermediate_size=16, num_hidden_layers=4, head_dim=SIZE)
    heads = dict(num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=PROMPT)
    return AutoModelForCausalLM.from_config(LlamaConfig(**shape, **heads), attn_implementation="sdpa").eval()


def traced(lm, method, cached: bool = True) -> tuple[int, int, int]:
    """Bytes alive once a prompt was read; what the KV cache says that it holds, and held at most."""
    kept_alive = Alive([*lm.parameters(), *lm.buffers()])
    with apply(lm, method, kernels=True), torch.no_grad(), kept_alive as alive:
        cache = method.cache(lm) if cached else None
        lm(token_ids(1, PROMPT), **as_past(lm, cache), use_cache=cached, logits_to_keep=1)
        return (alive.now, cache_bytes(cache)[0], most_bytes(cache)) if cached else (alive.now, 0, 0)


@pytest.mark.parametrize("name", KINDS)
def test_the_cache_holds_packed_bytes_and_counts_them(name):
    """By hand: of 768 tokens the last 128 values stay in float32 beside even steps, and every key is packed."""
    lm, full = deep(), 128 if name.startswith("kv_int") else 0
    alive, bytes_held, peak = traced(lm, built(name))
    without, *_ = traced(lm, built(name), cached=False)
    key, value = BYTES[name]
    by_layer = HEADS * (PROMPT * key + (PROMPT - full) * value + full * SIZE * 4)
    assert bytes_held == 4 * by_layer and peak == bytes_held + 2 * HEADS * PROMPT * SIZE * 4
    assert alive - without == pytest.approx(bytes_held, rel=0.02), "what is alive beside the pass is what is counted"


def test_eviction_and_few_bits_are_one_setting():
    lm = deep()
    alive, bytes_held, _ = traced(lm, METHODS["snapkv"](ratio=0.5, storage="4bit_nc"))
    without, *_ = traced(lm, METHODS["snapkv"](ratio=0.5, storage="4bit_nc"), cached=False)
    assert bytes_held == 4 * HEADS * PROMPT // 2 * (34 + 36) and alive - without == pytest.approx(bytes_held, rel=0.02)


def test_a_storage_packs_whole_groups_and_all_but_the_last_values():
    """By hand: of 21 tokens in groups of 8, with 4 values in full. The 17th key waits until 24 tokens are there, which
    is in the first block after the prompt; the 18th value until 4 more follow it."""
    storage = steps(4, group=8, recent=4)
    assert storage.packed(21) == (16, 17) and storage.packed(3) == (0, 0)
    key, value = storage.since(torch.arange(21 + 240), 21)
    assert key[:17].tolist() == [0] * 16 + [128] and value[:18].tolist() == [0] * 17 + [128]
    # 149 and 277 tokens are there when blocks end: 144 and 272 keys, 145 and 273 values are packed then
    assert key[143:145].tolist() == [128, 256] and value[144:146].tolist() == [128, 256]
    for after in (128, 256):
        assert storage.packed(21 + after) == (int((key <= after).sum()), int((value <= after).sum())) or after == 256


@pytest.mark.parametrize("program", [False, pytest.param(True, marks=BUILT)], ids=["torch", "compiled"])
@pytest.mark.parametrize(("name", "dtype", "size"), [*((name, "float32", 16) for name in STORAGES), *OTHERS])
def test_a_step_reads_what_is_packed(name, dtype, size, program, monkeypatch, heads=4, tokens=200):
    """One query of two texts over a ragged cache beside learned sinks, in float64 from the packed numbers of each head
    by itself: of 200 tokens some keys and values lie behind those that are packed."""
    if not program:
        monkeypatch.setattr(native, "library", lambda: None)
    draw, kind = torch.Generator().manual_seed(0), getattr(torch, dtype)
    keys, values, new = (torch.randn(2, 2, n, size, generator=draw).to(kind) for n in (tokens, tokens, 1))
    query, sinks = torch.randn(2, heads, 1, size, generator=draw).to(kind), torch.randn(heads, generator=draw)
    stays = torch.rand(2, 2, tokens, generator=draw) < 0.95
    stays[1, 1] = True
    storage = STORAGES[name]
    with torch.no_grad():
        assert one_query.compiled(query) == program
        packed_cache = Narrow(keys, values, stays, storage)
        packed_cache.put(new, 2 * new)
        out = packed_cache.attend(query, 0.25, sinks)
    for text, head in torch.cartesian_prod(torch.arange(2), torch.arange(heads)).tolist():
        row = text, head // 2
        read = []
        sides = (keys, new, storage.keys), (values, 2 * new, storage.values)
        for (x, added, stored_as), packed in zip(sides, storage.packed(int(stays[row].sum())), strict=True):
            x = x[row][stays[row]]
            coded = stored(stored_as, x[:packed].float()) if packed else x[:0]
            read.append(torch.cat([coded.double(), x[packed:].double(), added[row].double()]))
        scores = read[0] @ query[text, head, 0].double() * 0.25
        weights = torch.softmax(torch.cat([scores, sinks[head : head + 1].double()]), 0)[:-1]
        close = 1e-5 if dtype == "float32" else 1e-2
        assert torch.allclose(out[text, head, 0].double(), weights @ read[1], atol=close)


@pytest.mark.parametrize("name", ["kv_int4", "kv_turbo", "kv_fp8", "snapkv"])
def test_tokens_are_packed_as_they_come_and_written_as_the_reference_writes_them(name, monkeypatch):
    """Blocks of 12: four of them are packed while an answer is written, in one call of 20 tokens and token by token."""
    monkeypatch.setattr(narrow, "BLOCK", 12)
    monkeypatch.setattr(narrow, "ROWS", 16)
    settings = {"kv_int4": {"group": 8, "recent": 4}, "snapkv": {"storage": "3bit_nc", "window": 3, "ratio": 0.4}}
    lm, ids, method = tiny("llama"), token_ids(2, 60), built(name, **settings.get(name, {}))
    options = dict(max_new_tokens=20, do_sample=False, eos_token_id=None)

    def answer(kernels):
        with apply(lm, method, kernels=kernels), torch.no_grad():
            cache = (kernels and method.cache(lm)) or None
            begun = lm(ids[:, :40], **as_past(lm, cache), use_cache=True) if cache else lm(ids[:, :40], use_cache=True)
            past = as_past(lm, cache or begun.past_key_values)
            after = [lm(ids[:, 40:], **past, use_cache=True).logits]
            after += [lm(ids[:, :1], **past, use_cache=True).logits for _ in range(15)]
            return torch.cat(after, 1), {entry.kernel for entry in ran(lm)}

    (wanted, masked), (read, kernels) = answer(False), answer(True)
    assert masked == {"masked blocks"} and kernels == {"dense, then compacted", "compacted cache"}
    assert (read - wanted).abs().max() < 1e-4
    with apply(lm, method):
        tokens = lm.generate(ids, **options)
    with apply(lm, method, kernels=True):
        assert torch.equal(lm.generate(ids, **options), tokens)


@pytest.mark.parametrize("settings", [{"group": 128, "recent": 1024}, {"full_layers": 2}])
def test_nothing_packed_is_dense(settings):
    """A text shorter than a group and its last values; TurboQuant's first and last two layers of three."""
    name = "kv_int4" if "group" in settings else "kv_turbo"
    lm, ids, method = tiny("llama"), token_ids(2, 40), METHODS[name](cut=20, **settings)
    assert torch.equal(logits(lm, ids, method), logits(lm, ids))


def test_the_first_and_last_layers_of_turboquant_stay_in_full_but_not_in_a_hybrid():
    for family, full in (("llama", {0, LAYERS - 1}), ("gemma2", set())):
        lm, method = tiny(family), METHODS["kv_turbo"](full_layers=1)
        method.check(lm)
        assert {layer for layer in range(LAYERS) if method.stored_as(layer) is None} == full
    assert isinstance(method.stored_as(0), Storage)
