"""What an action will hold in memory beside the weights, against what it held on shapes that fit."""

import pytest

from analysis.commands import COMMANDS
from analysis.runs.memory import held, of_token


def qwen(layers: int) -> dict:
    """The card's sizes of Qwen2.5-0.5B, or of its first layers."""
    sizes = {"layers": layers, "width": 896, "inner": 4864, "heads": 14, "kv_heads": 2, "head_dim": 64}
    return sizes | {"vocabulary": 151_936, "max_positions": 32_768, "dtype": "float32"}


@pytest.mark.parametrize(
    ("verb", "tokens", "megabytes"),  # megabytes beside the weights, measured on 2 layers of the 0.5B shape
    [
        ("statistics", 2218, 307),
        ("start", 2218, 261),
        ("head", 2218, 290),
        ("temperature", 2218, 318),
        ("groups", 2218, 257),
        ("pairs", 2218, 274),
        ("fit-router", 2218, 160),
        ("fit-router", 8872, 186),
        ("statistics", 8872, 1096),
    ],
)
def test_the_memory_of_a_request_is_predicted_within_a_quarter(verb, tokens, megabytes):
    assert held(COMMANDS[verb], {}, tokens, qwen(2)) == pytest.approx(megabytes * 1e6, rel=0.25)


def test_long_texts_keep_no_queries_and_keys_and_halves_take_half():
    model = qwen(24)

    def needed(verb: str, tokens: int, about=model, **options) -> int:
        return held(COMMANDS[verb], options.pop("arguments", {}), tokens, about, **options)

    assert needed("statistics", 32_768) < 10e9, "32k tokens on the 0.5B shape"
    assert needed("statistics", 65_536) - needed("statistics", 32_768) < 1e9, "windows one by one"
    half = needed("head", 8000, model | {"dtype": "bfloat16"})
    assert half < needed("head", 8000) < 2.1 * half
    assert needed("groups", 2218, is_read=True) < needed("groups", 2218) / 4
    compared = {n: needed("evaluate", 2218, arguments={"window": n}) for n in (32, 64, 256, 512)}
    assert compared[64] - compared[32] > 2 * 4 * 32 * 151_936, "the logits of both passes"
    assert compared[512] - compared[256] < 4 * 256 * 151_936, "those of a longer window are made in chunks"


def test_the_layers_of_a_hybrid_without_attention_count():
    """They hold tensors on the way back as others do."""
    verb = next(verb for verb, command in COMMANDS.items() if command.gradient)
    plain, hybrid = qwen(2), qwen(2) | {"other_layers": {"0": "linear attention", "2": "linear attention"}}
    difference = held(COMMANDS[verb], {}, 512, hybrid) - held(COMMANDS[verb], {}, 512, plain)
    assert difference == 2 * 512 * of_token(4, plain["width"], plain["inner"])
