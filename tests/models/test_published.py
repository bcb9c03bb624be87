"""Costs from config.json against what the models' authors print: weights to the printed digits, bytes cached for a
token exactly, and attention's share by arithmetic written out. The configurations are those of `KNOWN`.

Their values were compared with what others publish of the same files, and agree:

- Llama-3.1-8B: config.json of NbAiLab/nb-llama-3.1-8B, which is trained on from it.
- Qwen3-30B-A3B: configs/model/qwen3_30b_a3b.yaml of MindSpeed-RL, but for `intermediate_size`, which no layer has.
- Qwen3-Next-80B-A3B: the configuration in NVIDIA Megatron-Bridge's tests of Qwen3NextBridge.
- gpt-oss-20b: docs/gpt-oss-20b-architecture.md in EchoCog/gpt-oss-20b, a copy of the checkpoint's repository, its
  formats too; gpt-oss-120b: vLLM's GptOssConfig, whose defaults it is, with the formats of the smaller one.
- GLM-4.5: config.json of Delta-Vector/GLM4.5-Scattermoe, made from it, and of zai-org/GLM-4.7, but for the context.
- DeepSeek-V3.2: inference/config_671B_v3.2.json of the authors' DeepSeek-V3.2-Exp; it says nothing of the MTP layer.
"""

from dataclasses import replace

import pytest

from analysis.commands.speed import Worth
from analysis.costs import KNOWN, costs, prefill_flops, read_shape
from analysis.studies.worth.worth import worth

LLAMA, QWEN, NEXT = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-Next-80B-A3B-Instruct"
SMALL, LARGE = "openai/gpt-oss-20b", "openai/gpt-oss-120b"
GLM, DEEPSEEK = "zai-org/GLM-4.5", "deepseek-ai/DeepSeek-V3.2"
# model -> (billions of weights, of active ones, as printed; digits after the point of both; where)
PRINTED = {
    LLAMA: (8.03, None, 2, "model card: 8.03B params"),
    QWEN: (30.5, 3.3, 1, "model card: 30.5B in total and 3.3B activated, 29.9B without the embeddings"),
    NEXT: (80, 3, 0, "model card: 80B in total and 3B activated, 79B without the embeddings"),
    SMALL: (20.91, 3.61, 2, "gpt-oss model card (arXiv 2508.10925), table 1"),
    LARGE: (116.83, 5.13, 2, "gpt-oss model card (arXiv 2508.10925), table 1"),
    DEEPSEEK: (671, 37, 0, "DeepSeek-V3 (arXiv 2412.19437), abstract: the model below its indexer"),
    GLM: (355, 32, 0, "GLM-4.5 (arXiv 2508.06471), table 1: MTP counted, embeddings not"),
}
TABLES = {QWEN: 2 * 151936 * 2048, NEXT: 2 * 151936 * 2048, GLM: 2 * 151552 * 5120}
# 64 heads of 128 from the latent of the queries, a key of 128 and 64 weights of the heads from the stream
INDEXER = 61 * (1536 * 64 * 128 + 7168 * (128 + 64))
# GLM-4.5's further layer: attention, 160 experts and a shared one, and what joins stream and embedding
ATTENTION = 5120 * 128 * (2 * 96 + 2 * 8)
FURTHER = ATTENTION + 161 * 3 * 5120 * 1536 + 160 * 5120 + 2 * 5120**2


def shape(name: str):
    return read_shape(KNOWN[name])


@pytest.mark.parametrize("name", PRINTED)
def test_all_weights_to_the_printed_digits(name):
    total, _, digits, _ = PRINTED[name]
    beside = {DEEPSEEK: -INDEXER, GLM: FURTHER - TABLES[GLM]}.get(name, 0)
    assert round((shape(name).parameters + beside) / 1e9, digits) == total


@pytest.mark.parametrize(("name", "printed"), [(QWEN, 29.9), (NEXT, 79)])
def test_weights_without_the_embeddings(name, printed):
    digits = len(str(printed).partition(".")[2])
    assert round((shape(name).parameters - TABLES[name]) / 1e9, digits) == printed


@pytest.mark.parametrize("name", [name for name, (_, active, *_) in PRINTED.items() if active])
def test_active_weights_to_the_printed_digits(name):
    """What a step reads has the output head and no table of embeddings, as OpenAI counts. Qwen3-30B's 3.3 has both
    (3.35, cut), Qwen3-Next's 3 and GLM-4.5's 32 neither; GLM-4.5 counts the MTP layer's, DeepSeek no indexer yet."""
    _, printed, digits, _ = PRINTED[name]
    active = shape(name).active
    further = ATTENTION + 9 * 3 * 5120 * 1536 + 160 * 5120 + 2 * 5120**2
    beside = {QWEN: TABLES[QWEN] // 2, NEXT: -TABLES[NEXT] // 2, GLM: further - TABLES[GLM] // 2, DEEPSEEK: -INDEXER}
    billions = (active + beside.get(name, 0)) / 1e9
    if name == QWEN:
        assert billions == pytest.approx(3.353, abs=5e-4) and int(10 * billions) / 10 == printed
    else:
        assert round(billions, digits) == printed


BYTES = {  # of a token: layers x (keys and values) x heads x size x 2 bytes
    LLAMA: 32 * 2 * 8 * 128 * 2,
    QWEN: 48 * 2 * 4 * 128 * 2,
    NEXT: 12 * 2 * 2 * 256 * 2,
    SMALL: 24 * 2 * 8 * 64 * 2,
    LARGE: 36 * 2 * 8 * 64 * 2,
    # a latent of 512 and 64 rotary sizes, and a key of the indexer
    DEEPSEEK: 61 * (512 + 64 + 128) * 2,
    GLM: 92 * 2 * 8 * 128 * 2,
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_cached_for_a_token(name):
    counted = shape(name)
    assert counted.token_bytes == BYTES[name]
    assert replace(counted, cache_bytes=1).token_bytes == BYTES[name] / 2


CONTEXT = 32768
# Causal pairs of a prompt: of all keys, and of the last 128 at most.
PAIRS = CONTEXT * (CONTEXT + 1) // 2
BAND = 128 * 129 // 2 + (CONTEXT - 128) * 128
CHOSEN = 2048 * 2049 // 2 + (CONTEXT - 2048) * 2048
PROMPT = {  # FLOPs of attention in a prompt: 2 x heads x (size of a key + of a value) x pairs, of the layers that read
    LLAMA: 32 * 2 * 32 * 256 * PAIRS,
    QWEN: 48 * 2 * 32 * 256 * PAIRS,
    NEXT: 12 * 2 * 16 * 512 * PAIRS,
    SMALL: 12 * 2 * 64 * 128 * (PAIRS + BAND),
    LARGE: 18 * 2 * 64 * 128 * (PAIRS + BAND),
    DEEPSEEK: 61 * 2 * 128 * (192 + 128) * CHOSEN,
    GLM: 92 * 2 * 96 * 256 * PAIRS,
}
STEP = {  # bytes of keys and values in a step
    LLAMA: BYTES[LLAMA] * CONTEXT,
    QWEN: BYTES[QWEN] * CONTEXT,
    NEXT: BYTES[NEXT] * CONTEXT,
    SMALL: BYTES[SMALL] // 2 * (CONTEXT + 128),
    LARGE: BYTES[LARGE] // 2 * (CONTEXT + 128),
    DEEPSEEK: 61 * 576 * 2 * 2048,
    GLM: BYTES[GLM] * CONTEXT,
}


@pytest.mark.parametrize("name", PROMPT)
def test_attention_s_share_is_this_arithmetic(name):
    """Beside attention a prompt multiplies every active weight but the head's with every token, and the head once."""
    counted = shape(name)
    head = counted.width * counted.vocabulary
    beside = 2 * (counted.active - head) * CONTEXT + 2 * head
    if name == DEEPSEEK:
        beside += 61 * 2 * 64 * 128 * PAIRS
    if name == NEXT:
        # an update and a reading of 32 x 128 x 128 numbers and 4 tokens of 8,192 in 36 layers
        beside += 36 * 4 * (32 * 128 * 128 + 4 * 8192) * CONTEXT
    row = costs(counted, CONTEXT, keep=0.1)
    assert prefill_flops(counted, CONTEXT)[0] == PROMPT[name]
    assert row["prefill_share"] == pytest.approx(PROMPT[name] / (PROMPT[name] + beside), rel=1e-12)
    assert row["prefill_gain"] == pytest.approx((PROMPT[name] + beside) / (0.1 * PROMPT[name] + beside), rel=1e-12)


WEIGHTS = {  # bytes that a step of one sequence reads beside keys and values
    LLAMA: 2 * (32 * (4096 * 128 * (2 * 32 + 2 * 8) + 3 * 4096 * 14336) + 4096 * 128256),
    QWEN: 2 * (48 * (2048 * 128 * 72 + 8 * 3 * 2048 * 768 + 128 * 2048) + 2048 * 151936),
    # four and a quarter bits in the experts, their biases and the router
    SMALL: 24 * (4 * (3 * 2880 * 2880 + 3 * 2880) + 32 * 2880) * 4.25 / 8
    + 2 * (24 * 2880 * 64 * (2 * 64 + 2 * 8) + 2880 * 201088),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_step_s_share_is_this_arithmetic(name):
    row = costs(shape(name), CONTEXT)
    assert row["decode_share"] == pytest.approx(STEP[name] / (STEP[name] + WEIGHTS[name]), rel=1e-12)


@pytest.mark.parametrize("name", STEP)
def test_keys_and_values_that_a_step_reads(name):
    """By the share and the rest of the row, for those whose weights are counted above by others."""
    row, counted = costs(shape(name), CONTEXT), shape(name)
    beside = row["weight_bytes"] + counted.state + (61 * 128 * 2 * CONTEXT if name == DEEPSEEK else 0)
    assert row["decode_share"] == pytest.approx(STEP[name] / (STEP[name] + beside), rel=1e-6)


@pytest.mark.parametrize(("name", "gibibytes"), [(SMALL, 12.8), (LARGE, 60.8)])
def test_a_quantised_checkpoint_has_its_printed_size(name, gibibytes):
    """gpt-oss model card, table 1: the checkpoints' sizes, norms and scales of the attention included."""
    assert shape(name).weight_bytes / 2**30 == pytest.approx(gibibytes, abs=0.15)


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        # reading a tenth of the keys of a model that chooses 2,048 of 131,072 saves almost nothing
        (DEEPSEEK, "No. At 128k, reading 10%: prefill at most 7% faster"),
        (NEXT, "Only from"),
        (QWEN, "Yes."),
    ],
)
def test_the_answer_is_no_larger_than_what_there_is(name, begins):
    context = 131072 if name == DEEPSEEK else 32768
    result = worth(Worth(model=name, contexts=[context], batches=[1]))
    assert result.sentence.startswith(begins)
    assert result.numbers["shape"]["parameters"] == shape(name).parameters


def test_what_is_left_out_is_in_a_note():
    assert any("Left out: 1 layer" in note and "3.99 billion" in note for note in shape(GLM).notes)
    assert any("leaves each query 2,048 keys" in note for note in shape(DEEPSEEK).notes)
    assert any(note.startswith("12 of its 48 layers read keys") for note in shape(NEXT).notes)
