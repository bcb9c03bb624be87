"""What attention costs, by hand: the arithmetic of a prefill and of a step, bounds, and CSA's table."""

from dataclasses import replace

import pytest

from analysis.costs import (
    KNOWN,
    FeedForward,
    Shape,
    amdahl,
    coefficients,
    costs,
    decode_bytes,
    estimate,
    first_context,
    largest_batch,
    longest_context,
    named_gpu,
    prefill_flops,
    read_shape,
)
from analysis.costs.gpus import Gpu
from analysis.errors import BadSetting

PYTHIA = "EleutherAI/pythia-410m"
LLAMA = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 10}
LLAMA |= {"num_key_value_heads": 2, "intermediate_size": 16, "max_position_embeddings": 64, "dtype": "float32"}


def shape(**more) -> Shape:
    """Two layers of width 8, 4 heads of 2 on 2 key-value heads, 3 x 8 x 16 of feed-forward, 10 tokens; float32."""
    return read_shape(LLAMA | more)


def test_a_prefill_by_hand():
    """Per layer: projections 8x(8+4+4+8) = 192 weights, feed-forward 384; 3 tokens see 1+2+3 = 6 pairs of 8 numbers."""
    attention, rest = prefill_flops(shape(), 3)
    assert attention == 2 * 4 * 8 * 6
    assert rest == 2 * 3 * 2 * (192 + 384) + 2 * 80  # the head at the last position only
    assert prefill_flops(shape(), 3, "layers") == (attention, 2 * 3 * 2 * (192 + 384))
    assert prefill_flops(shape(), 3, "ffn") == (attention, 2 * 3 * 2 * 384)


def test_a_step_by_hand():
    """Keys and values of 2 heads of 2 in 2 layers: 16 numbers per token; weights 2 x 576 + 80, once for the batch."""
    assert decode_bytes(shape(), 5) == (5 * 16 * 4, (2 * 576 + 80) * 4)
    assert decode_bytes(shape(), 5, 3) == (3 * 5 * 16 * 4, (2 * 576 + 80) * 4)
    assert decode_bytes(shape(), 5, 1, "ffn") == (5 * 16 * 4, 2 * 384 * 4)
    row = costs(shape(), 5, 3, 0.5)
    assert row["kv_bytes"] == 960 and row["weight_bytes"] == 4928
    assert row["decode_share"] == pytest.approx(960 / 5888) and row["decode_gain"] == pytest.approx(5888 / (5888 - 480))
    assert row["gain_bound"] == max(row["prefill_gain"], row["decode_gain"])
    assert row["ceiling"] == pytest.approx(1 / (1 - max(row["prefill_share"], row["decode_share"])))


def test_a_window_limits_pairs_and_cache():
    """With 2 keys at most, 4 tokens see 1+2+2+2 = 7 pairs, and 2 tokens stay cached; only in the layer that has it."""
    limited = shape(layer_types=["sliding_attention", "full_attention"], sliding_window=2)
    assert limited.windows == (2, None)
    assert prefill_flops(limited, 4)[0] == 4 * 8 * (7 + 10)
    assert decode_bytes(limited, 4)[0] == (2 + 4) * 8 * 4
    assert prefill_flops(limited, 2) == prefill_flops(shape(), 2), "a window that is not full changes nothing"


def test_a_mixture_reads_the_experts_that_some_token_visits():
    """4 experts, 1 per token: one token visits 1, two visit 4 (1 - (3/4)^2) = 1.75, many visit all."""
    block = FeedForward(16, 3, experts=4, active=1, shared=5)
    assert block.visited(1) == 1 and block.visited(2) == pytest.approx(1.75) and block.visited(500) == pytest.approx(4)
    assert block.weights(8, 1) == 3 * 8 * (16 + 5) + 8 * 4
    mixed = shape(model_type="mixtral", num_local_experts=4, num_experts_per_tok=1)
    assert decode_bytes(mixed, 5, 1, "ffn")[1] == 2 * (384 + 32) * 4
    assert decode_bytes(mixed, 5, 2, "ffn")[1] == pytest.approx(2 * (1.75 * 384 + 32) * 4)
    assert prefill_flops(mixed, 3, "ffn")[1] == 2 * 3 * 2 * (384 + 32), "each token of a prompt visits its own"


def test_amdahl():
    assert amdahl(0.2, 0.1) == pytest.approx(1 / 0.82) and amdahl(0.5, 0) == 2 and amdahl(0, 0.1) == amdahl(0.7, 1) == 1


def test_csas_table_comes_out():
    """f = T / (T + 4d) with feed-forward blocks alone, T / (T + 6d) with projections; less with the output head."""
    pythia = read_shape(KNOWN[PYTHIA])
    for context, share, gain, projected in ((1024, 1 / 5, 1.22, (1 / 7, 1.15)), (2048, 1 / 3, 1.43, (1 / 4, 1.29))):
        row = costs(pythia, context, 1, 0.1, "ffn")
        assert row["decode_share"] == pytest.approx(share) and round(row["decode_gain"], 2) == gain
        row = costs(pythia, context, 1, 0.1, "layers")
        assert row["decode_share"] == pytest.approx(projected[0]) and round(row["decode_gain"], 2) == projected[1]
        assert costs(pythia, context)["decode_share"] < projected[0]


def test_shares_grow_with_context_and_batch():
    llama = read_shape(KNOWN["meta-llama/Llama-3.1-8B"])
    lengths = [costs(llama, 1 << power)["prefill_share"] for power in range(20)]
    assert lengths == sorted(lengths)
    batches = [costs(llama, 4096, 1 << power)["decode_share"] for power in range(9)]
    assert batches == sorted(batches) and batches[0] < 0.05 < 0.8 < batches[-1]
    assert len({costs(llama, 4096, batch)["prefill_share"] for batch in (1, 8, 64)}) == 1


def test_the_shortest_context_that_gains_enough():
    llama, mistral = (read_shape(KNOWN[name]) for name in ("meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1"))
    at = first_context(llama, 1, 0.1, 1.5)
    assert costs(llama, at - 1)["gain_bound"] < 1.5 <= costs(llama, at)["gain_bound"]
    assert first_context(mistral, 1, 0.1, 1.5) is None, "its layers read windows"


@pytest.mark.parametrize("counted", ["all", "layers", "ffn"])
@pytest.mark.parametrize("name", ["mistralai/Mixtral-8x7B-v0.1", "google/gemma-2-9b-it", "meta-llama/Llama-3.1-70B"])
def test_coefficients_count_what_the_shape_counts(name, counted):
    """Mixtures, windows and plain layers, at contexts inside a window and beyond it."""
    made = read_shape(KNOWN[name])
    parts = coefficients(made, counted)
    for context, batch in ((1000, 1), (4096, 3), (100_000, 64)):
        spans = [(min(context, window or context), layers) for window, layers in parts["windows"]]
        pairs = sum(layers * (span * (span + 1) // 2 + (context - span) * span) for span, layers in spans)
        flops = parts["pair_flops"] * pairs, parts["token_flops"] * context + parts["once_flops"]
        assert flops == pytest.approx(prefill_flops(made, context, counted))
        visited = sum(size * n * (1 - (1 - a / n) ** batch) * layers for size, n, a, layers in parts["experts"])
        cache = parts["key_bytes"] * batch * sum(span * layers for span, layers in spans)
        assert (cache, parts["step_bytes"] + visited) == pytest.approx(decode_bytes(made, context, batch, counted))


@pytest.mark.parametrize(
    "values", [(0, 1, 0.1), (1 << 25, 1, 0.1), (8, 0, 0.1), (8, 1 << 20, 0.1), (8, 1, 0), (8, 1, 1.1)]
)
def test_values_out_of_range_are_refused(values):
    with pytest.raises(BadSetting, match="must lie"):
        costs(shape(), *values)


def test_a_gpu_at_best_by_hand():
    """One layer of one head: 12 d^2 weights in two-byte numbers, and what reading them once takes."""
    toy = Shape("toy", 8, 1, 1, 8, 16, True, (None,), (FeedForward(8, 2),), None, "bfloat16", 2)
    on = Gpu("x", "X", memory=2 * 512 + 2 * 32 * 10, bandwidth=1000.0, flops=1e12, source="")
    weights = 4 * 64 + 2 * 64 + 8 * 16
    assert toy.parameters == weights == 512
    found = estimate(toy, on, context=4, batch=1, keep=0.5)
    assert found["ms_per_token"] == pytest.approx(1000 * (2 * weights + 4 * 32) / 1000), "bytes by bandwidth"
    assert found["ms_per_token_sparse"] == pytest.approx(1000 * (2 * weights + 2 * 32) / 1000)
    assert found["prefill_seconds"] == pytest.approx((4 * 8 * 10 + 2 * 384 * 4 + 2 * 128) / 1e12), "pairs, then weights"
    assert found["memory_bytes"] == 2 * weights + 4 * 32 and found["fits"]
    assert longest_context(toy, on, batch=2) == 10 and largest_batch(toy, on, context=4) == 5
    assert largest_batch(toy, on, context=21) == 0
    assert largest_batch(toy, on, context=4, keep=0.5) == 10 == found["largest_batch_sparse"], "half of every cache"
    assert found["tokens_per_second"] == pytest.approx(5 / ((2 * weights + 5 * 4 * 32) / 1000))
    assert found["tokens_per_second_sparse"] == pytest.approx(10 / ((2 * weights + 10 * 2 * 32) / 1000))
    slow = replace(on, flops=1.0)
    step = 2 * weights * 3 + 4 * 8 * 4 * 3
    assert estimate(toy, slow, 4, 3, 1.0)["ms_per_token"] == pytest.approx(1000 * step), "arithmetic decides"
    with pytest.raises(BadSetting, match="is no GPU known here"):
        named_gpu("abacus")
