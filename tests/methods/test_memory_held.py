"""Memory of eviction, traced tensor by tensor on a model whose KV cache outweighs the rest: what is held, and the most
that a prompt takes, fall as the ratio says."""

import functools
from dataclasses import dataclass

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from analysis.fitted import Fitted
from analysis.kernels.decode import Growing
from analysis.methods import METHODS
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply
from analysis.seam.cache import GrowingCache, cache_bytes, most_bytes
from tests.made.alive import Alive
from tests.made.tiny import tiny, token_ids

DEEP, HEADS, PROMPT = 8, 2, 256
WITHIN = 0.1
SINKS, WINDOW = 4, 16  # of DuoAttention's heads without retrieval
MEMORY = [name for name, method in METHODS.items() if method.saves == "memory" and "ratio" in method.budget_steps]


@functools.cache
def deep():
    """A model with narrow layers and wide heads: 2 MB of keys and values for 256 tokens, beside 0.2 MB of states."""
    torch.manual_seed(0)
    shape = dict(vocab_size=96, hidden_size=16, intermediate_size=16, num_hidden_layers=DEEP, head_dim=64)
    heads = dict(num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=2 * PROMPT)
    return AutoModelForCausalLM.from_config(LlamaConfig(**shape, **heads), attn_implementation="sdpa").eval()


@dataclass(frozen=True)
class Traced:
    """Bytes of tensors while a prompt was read, at `most` and `after` it, and what the KV cache says of itself."""

    most: int
    after: int
    held: int
    held_at_most: int


def traced(method, cached=True) -> Traced:
    lm = deep()
    with apply(lm, method, kernels=True), torch.no_grad(), Alive([*lm.parameters(), *lm.buffers()]) as alive:
        cache = (method.cache(lm) or GrowingCache(lm.config)) if cached else None
        lm(token_ids(1, PROMPT), **as_past(lm, cache), use_cache=cached, logits_to_keep=1)
        of_cache = (cache_bytes(cache)[0], most_bytes(cache)) if cached else (0, 0)
        return Traced(alive.most, alive.now, *of_cache)


@functools.cache
def dense() -> tuple[Traced, Traced]:
    return traced(METHODS["dense"]()), traced(METHODS["dense"](), cached=False)


def built(name: str, ratio: float):
    draw, pairs = torch.Generator().manual_seed(0), torch.arange(32.0).expand(DEEP, -1)
    turns = {"real": pairs, "imaginary": pairs + 32, "rates": 0.8**pairs, "factor": torch.ones(DEEP)}
    mean = {name: torch.randn(DEEP, HEADS, 32, generator=draw) for name in ("mean_real", "mean_imaginary")}
    state = {
        "duo_attention": {"far": torch.rand(DEEP, HEADS, generator=draw)},
        "triattention": turns | mean | {"size": torch.full((DEEP, HEADS, 32), 2.0)},
        "kvzap": {"weight": torch.randn(DEEP, HEADS, 16, generator=draw), "bias": torch.zeros(DEEP, HEADS)},
    }.get(name)
    settings = {"window": WINDOW} if "window" in METHODS[name].__dataclass_fields__ else {}
    settings |= {"n_sink": SINKS} if name == "duo_attention" else {}
    return METHODS[name].build(None if state is None else Fitted(name, state), ratio=ratio, **settings)


def share_held(name: str, ratio: float) -> float:
    """The share of the KV cache that should be held: of DuoAttention, whose ratio counts heads, what whole heads keep
    and the sinks and windows of the others."""
    gone = int(ratio * DEEP * HEADS) / (DEEP * HEADS)
    return 1 - gone * (1 - (SINKS + WINDOW) / PROMPT) if name == "duo_attention" else 1 - ratio


@pytest.mark.parametrize("name", MEMORY)
def test_the_cache_and_the_peak_fall_as_the_ratio_says(name, ratio=0.75):
    share, (uncut, passes) = share_held(name, ratio), dense()
    with_cache, without = traced(built(name, ratio)), traced(built(name, ratio), cached=False)
    assert uncut.held == uncut.held_at_most == 2 * DEEP * HEADS * PROMPT * 64 * 4
    assert with_cache.held == pytest.approx(share * uncut.held, rel=WITHIN), "what the cache says that it holds"
    assert with_cache.after - without.after == pytest.approx(share * (uncut.after - passes.after), rel=WITHIN)
    adds, wanted = with_cache.most - without.most, share * (uncut.most - passes.most)
    layer = uncut.held / DEEP
    # layers hold different shares, and the last one counts less; KVzip+ takes most while it repeats the prompt
    if name in ("pyramid_kv", "duo_attention", "kvzip_plus"):
        assert adds <= (1 + WITHIN) * with_cache.held and with_cache.held_at_most <= with_cache.held + layer
    else:
        assert adds == pytest.approx(wanted, rel=WITHIN), "what the cache adds to the peak of the pass"
        assert with_cache.held_at_most == pytest.approx(with_cache.held + layer, rel=0.01)


def test_a_view_of_something_larger_is_not_kept_alive():
    """GPT-2 makes queries, keys and values in one product; the cache keeps keys and values only."""
    lm, cache = tiny("gpt2"), GrowingCache(tiny("gpt2").config)
    with torch.no_grad():
        lm(token_ids(1, 32), **as_past(lm, cache), use_cache=True)
    for layer in cache.layers:
        for buffer in layer.held.buffers:
            assert isinstance(buffer, Growing) and buffer.rows.untyped_storage().nbytes() == buffer.rows.nbytes
