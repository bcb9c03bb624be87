"""What attention costs, by hand: the arithmetic of a prefill and of a step, bounds, and CSA's table."""

from dataclasses import replace

import pytest

from analysis.costs import (
    KNOWN,
    Entries,
    FeedForward,
    Layer,
    Shape,
    amdahl,
    cache_bytes,
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
from analysis.costs.shape import step_flops
from analysis.errors import BadSetting

PYTHIA = "EleutherAI/pythia-410m"
LLAMA = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 10}
LLAMA |= {"num_key_value_heads": 2, "intermediate_size": 16, "max_position_embeddings": 64, "dtype": "float32"}


def shape(**changes) -> Shape:
    """Two layers of width 8, 4 heads of 2 on 2 key-value heads, 3 x 8 x 16 of feed-forward, 10 tokens; float32."""
    return read_shape(LLAMA | changes)


def test_a_prefill_and_a_step_by_hand():
    """Per layer: projections 8x(8+4+4+8) = 192 weights, feed-forward 384; 3 tokens see 1+2+3 = 6 pairs of 8 numbers."""
    attention, others_flops = prefill_flops(shape(), 3)
    assert attention == 2 * 4 * 8 * 6
    assert others_flops == 2 * 3 * 2 * (192 + 384) + 2 * 80  # the head at the last position only
    assert prefill_flops(shape(), 3, "layers") == (attention, 2 * 3 * 2 * (192 + 384))
    assert prefill_flops(shape(), 3, "ffn") == (attention, 2 * 3 * 2 * 384)
    # Keys and values of 2 heads of 2 in 2 layers: 16 numbers per token; weights 2 x 576 + 80, once for the batch.
    assert decode_bytes(shape(), 5) == (5 * 16 * 4, (2 * 576 + 80) * 4)
    assert decode_bytes(shape(), 5, 3) == (3 * 5 * 16 * 4, (2 * 576 + 80) * 4)
    assert decode_bytes(shape(), 5, 1, "ffn") == (5 * 16 * 4, 2 * 384 * 4)
    row = costs(shape(), 5, 3, 0.5)
    assert row["kv_bytes"] == 960 and row["weight_bytes"] == 4928
    assert row["decode_share"] == pytest.approx(960 / 5888) and row["decode_gain"] == pytest.approx(5888 / (5888 - 480))
    assert row["gain_bound"] == max(row["prefill_gain"], row["decode_gain"])
    assert row["ceiling"] == pytest.approx(1 / (1 - max(row["prefill_share"], row["decode_share"])))
    # With 2 keys at most, 4 tokens see 1+2+2+2 = 7 pairs, and 2 tokens stay cached; only in the layer that has it.
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


def test_gains_by_amdahl_and_shares_grow_with_context_and_batch():
    assert amdahl(0.2, 0.1) == pytest.approx(1 / 0.82) and amdahl(0.5, 0) == 2 and amdahl(0, 0.1) == amdahl(0.7, 1) == 1
    llama = read_shape(KNOWN["meta-llama/Llama-3.1-8B"])
    lengths = [costs(llama, 1 << power)["prefill_share"] for power in range(20)]
    assert lengths == sorted(lengths)
    batches = [costs(llama, 4096, 1 << power)["decode_share"] for power in range(9)]
    assert batches == sorted(batches) and batches[0] < 0.05 < 0.8 < batches[-1]
    assert len({costs(llama, 4096, batch)["prefill_share"] for batch in (1, 8, 64)}) == 1


def test_csas_table_comes_out_and_the_shortest_context_that_gains_enough():
    """f = T / (T + 4d) with feed-forward blocks alone, T / (T + 6d) with projections; less with the output head."""
    pythia = read_shape(KNOWN[PYTHIA])
    for context, share, gain, projected in ((1024, 1 / 5, 1.22, (1 / 7, 1.15)), (2048, 1 / 3, 1.43, (1 / 4, 1.29))):
        row = costs(pythia, context, 1, 0.1, "ffn")
        assert row["decode_share"] == pytest.approx(share) and round(row["decode_gain"], 2) == gain
        row = costs(pythia, context, 1, 0.1, "layers")
        assert row["decode_share"] == pytest.approx(projected[0]) and round(row["decode_gain"], 2) == projected[1]
        assert costs(pythia, context)["decode_share"] < projected[0]
    llama, mistral = (read_shape(KNOWN[name]) for name in ("meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1"))
    shortest = first_context(llama, 1, 0.1, 1.5)
    assert costs(llama, shortest - 1)["gain_bound"] < 1.5 <= costs(llama, shortest)["gain_bound"]
    assert first_context(mistral, 1, 0.1, 1.5) is None, "its layers read windows"
    chooses = read_shape(KNOWN["deepseek-ai/DeepSeek-V3.2"])
    gains = [costs(chooses, 1 << power)["gain_bound"] for power in range(24)]
    assert max(gains) > gains[-1], "a gain may fall again where the model itself chooses what it reads"
    shortest = first_context(chooses, 1, 0.1, 1.09)
    assert costs(chooses, shortest - 1)["gain_bound"] < 1.09 <= costs(chooses, shortest)["gain_bound"]


def test_entries_by_hand_also_compressed_ones():
    """Every second token makes an entry, and a query reads two at most: the queries after 1, 2, 3 ... tokens read 0, 1,
    1, 2, 2, 2 of them."""
    entries = Entries(5, 7, 7, every=2, top=2)
    assert [entries.step(tokens) for tokens in range(1, 8)] == [0, 1, 1, 2, 2, 2, 2] and entries.cached(7) == 3
    assert [entries.pairs(tokens) for tokens in range(1, 8)] == [0, 1, 2, 4, 6, 8, 10]
    chunks = Entries(5, 7, 7, capacity=3, chunked=True)
    assert chunks.pairs(8) == (1 + 2 + 3) + (1 + 2 + 3) + (1 + 2) and chunks.step(8) == chunks.cached(8) == 3
    assert Entries(5, 7, 7, shared=True).cached(9) == 0 and Entries(5, 7, 7, shared=True).step(9) == 9
    # DeepSeek-V4 with windows of 2 and heads of 2: CSA an entry of 4 tokens and an indexer of 3 heads of 4, of
    # which a query reads 2; HCA an entry of 128. Keys are values too: 2 numbers, and 4 heads multiply both.
    sizes = {"head_dim": 2, "q_lora_rank": 5, "o_lora_rank": 3, "o_groups": 2, "sliding_window": 2, "hc_mult": 2}
    kinds = ["compressed_sparse_attention", "heavily_compressed_attention"]
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
    four = shape(model_type="deepseek_v4", layer_types=kinds, **sizes, **INDEXER, **experts)
    assert cache_bytes(four, 130) == (2 * 2 + 32 * 2 + 32 * 4 + 2 * 2 + 1 * 2) * 4
    keys, others_bytes = decode_bytes(four, 130)
    assert keys == (2 * 2 + 2 * 2 + 2 * 2 + 1 * 2) * 4
    assert others_bytes - decode_bytes(four, 2)[1] == 32 * 4 * 4, "the indexer reads all of its keys"


LATENT = {"kv_lora_rank": 6, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 3, "q_lora_rank": 5}
INDEXER = {"index_n_heads": 3, "index_head_dim": 4, "index_topk": 2}


def test_a_latent_and_an_indexer_by_hand():
    """MLA: a token caches 6 + 2 numbers a layer, a prompt multiplies 4 heads of 5 and 3 numbers, a step the latent: 4
    heads of 8 and 6. The indexer caches 4 numbers more and multiplies 3 x 4; of 5 keys a query reads 2."""
    latent = shape(model_type="deepseek_v3", **LATENT)
    projections = 5 * (8 + 4 * 5) + 8 * (6 + 2) + 6 * 4 * (3 + 3) + 4 * 3 * 8
    assert latent.stack[0].weights == projections and latent.token_bytes == 2 * 8 * 4
    assert prefill_flops(latent, 5)[0] == 2 * 2 * 4 * (5 + 3) * 15
    assert decode_bytes(latent, 5)[0] == 2 * 5 * 8 * 4
    assert step_flops(latent, 5, 1) - step_flops(latent, 4, 1) == 2 * 2 * 4 * (8 + 6)
    chosen = shape(model_type="deepseek_v32", **LATENT, **INDEXER)
    indexer = 5 * 12 + 8 * (4 + 3)
    assert chosen.stack[0].weights == projections + indexer and chosen.token_bytes == 2 * (8 + 4) * 4
    assert prefill_flops(chosen, 5)[0] == 2 * 2 * 4 * (5 + 3) * (1 + 2 + 2 + 2 + 2)
    assert prefill_flops(chosen, 5)[1] - prefill_flops(latent, 5)[1] == 2 * 2 * (12 * 15 + 5 * indexer)
    keys, others_bytes = decode_bytes(chosen, 5)
    assert keys == 2 * 2 * 8 * 4 and others_bytes - decode_bytes(latent, 5)[1] == 2 * (5 * 4 + indexer) * 4
    assert cache_bytes(chosen, 5, 3, keep=0.5) == 3 * 2 * 5 * (0.5 * 8 + 4) * 4, "an indexer's keys stay"


HYBRID = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3, "linear_value_head_dim": 2}


def test_a_hybrid_by_hand():
    """One layer of two reads keys, with a gate over its output; the other carries 4 x 3 x 2 numbers and 4 tokens of its
    convolution, which every sequence reads at any length."""
    hybrid = shape(model_type="qwen3_next", full_attention_interval=2, **HYBRID)
    linear, softmax = hybrid.stack
    read = 2 * 6 + 8
    assert linear.state == 4 * 3 * 2 + read * 4 and not linear.entries and hybrid.windows == (None, None)
    assert linear.weights == 8 * (read + 8 + 8) + 8 * 8 + read * 4
    assert softmax.weights == 192 + 8 * 8, "the gate is a projection more"
    assert cache_bytes(hybrid, 10, 2) == 2 * (10 * 8 + linear.state) * 4 and hybrid.token_bytes == 8 * 4
    assert decode_bytes(hybrid, 10)[0] == 10 * 8 * 4, "reading fewer keys leaves the state as it is"
    assert decode_bytes(hybrid, 10, 2)[1] - decode_bytes(hybrid, 10)[1] == linear.state * 4
    assert hybrid.notes[0].startswith("1 of its 2 layers read keys; 1 linear layers carry")


def test_a_smaller_cache_and_smaller_weights():
    """Bytes of a cached number are one thing, of weights another: 4-bit experts beside projections in two bytes."""
    halved = replace(shape(), cache_bytes=1)
    assert decode_bytes(halved, 5)[0] == 5 * 16 and decode_bytes(halved, 5)[1] == decode_bytes(shape(), 5)[1]
    quantised = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    mixed = shape(dtype="bfloat16", quantization_config=quantised)
    assert decode_bytes(mixed, 5)[1] == 2 * 384 * 4.25 / 8 + (2 * 192 + 80) * 2
    assert mixed.weight_bytes == 2 * 384 * 4.25 / 8 + (2 * 192 + 2 * 80) * 2
    all_of_it = shape(dtype="bfloat16", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 64})
    assert all_of_it.block_bytes == all_of_it.mixer_bytes == (4 + 32 / 64) / 8


EVERY_KIND = ["mistralai/Mixtral-8x7B-v0.1", "google/gemma-2-9b-it", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3.2"]
EVERY_KIND += ["Qwen/Qwen3-Next-80B-A3B-Instruct"]


@pytest.mark.parametrize("counted", ["all", "layers", "ffn"])
@pytest.mark.parametrize("name", EVERY_KIND)
def test_coefficients_count_what_the_shape_counts(name, counted):
    """Mixtures, windows, an indexer, states and plain layers, at contexts inside a window and beyond it."""
    shape_of_model = read_shape(KNOWN[name])
    parts = coefficients(shape_of_model, counted)
    for context, batch in ((100, 1), (4096, 3), (100_000, 64)):
        sums = {}
        for selects, entries in ((entry["selects"], entry) for entry in parts["entries"]):
            reach = min(context, entries["limit"] or context)
            pairs = reach * (reach + 1) // 2 + (context - reach) * reach
            sums[selects, "flops"] = sums.get((selects, "flops"), 0) + entries["layers"] * entries["pair_flops"] * pairs
            sums[selects, "bytes"] = sums.get((selects, "bytes"), 0) + entries["layers"] * entries["bytes"] * reach
        flops_beside = parts["token_flops"] * context + parts["once_flops"] + sums.get((True, "flops"), 0)
        assert (sums[False, "flops"], flops_beside) == pytest.approx(prefill_flops(shape_of_model, context, counted))
        visited = sum(size * n * (1 - (1 - a / n) ** batch) * layers for size, n, a, layers in parts["experts"])
        beside = batch * (sums.get((True, "bytes"), 0) + parts["state_bytes"])
        step = batch * sums[False, "bytes"], parts["step_bytes"] + visited + beside
        assert step == pytest.approx(decode_bytes(shape_of_model, context, batch, counted))


@pytest.mark.parametrize(
    "values", [(0, 1, 0.1), (1 << 25, 1, 0.1), (8, 0, 0.1), (8, 1 << 20, 0.1), (8, 1, 0), (8, 1, 1.1)]
)
def test_values_out_of_range_are_refused(values):
    with pytest.raises(BadSetting, match="must lie"):
        costs(shape(), *values)


def test_a_gpu_at_best_by_hand():
    """One layer of one head: 12 d^2 weights in two-byte numbers, and what reading them once takes."""
    layer = Layer("full_attention", 4 * 64, (Entries(16, 16, 16),), blocks=(FeedForward(8, 2),))
    toy = Shape("toy", 8, 1, 1, 8, 16, True, (layer,), None, "bfloat16", 2, 2, 2, 2, 2)
    on = Gpu("x", "X", memory=2 * 512 + 2 * 32 * 10, bandwidth=1000.0, flops=1e12, source="")
    weights = 4 * 64 + 2 * 64 + 8 * 16
    assert toy.parameters == weights == 512
    estimated = estimate(toy, on, context=4, batch=1, keep=0.5)
    assert estimated["ms_per_token"] == pytest.approx(1000 * (2 * weights + 4 * 32) / 1000), "bytes by bandwidth"
    assert estimated["ms_per_token_sparse"] == pytest.approx(1000 * (2 * weights + 2 * 32) / 1000)
    assert estimated["prefill_seconds"] == pytest.approx((4 * 8 * 10 + 2 * 384 * 4 + 2 * 128) / 1e12), (
        "pairs, then weights"
    )
    assert estimated["memory_bytes"] == 2 * weights + 4 * 32 and estimated["fits"]
    assert longest_context(toy, on, batch=2) == 10 and largest_batch(toy, on, context=4) == 5
    assert largest_batch(toy, on, context=21) == 0
    assert largest_batch(toy, on, context=4, keep=0.5) == 10 == estimated["largest_batch_sparse"], "half of every cache"
    assert estimated["tokens_per_second"] == pytest.approx(5 / ((2 * weights + 5 * 4 * 32) / 1000))
    assert estimated["tokens_per_second_sparse"] == pytest.approx(10 / ((2 * weights + 10 * 2 * 32) / 1000))
    slow = replace(on, flops=1.0)
    step = 2 * weights * 3 + 4 * 8 * 4 * 3
    assert estimate(toy, slow, 4, 3, 1.0)["ms_per_token"] == pytest.approx(1000 * step), "arithmetic decides"
    with pytest.raises(BadSetting, match="is no GPU known here"):
        named_gpu("abacus")
