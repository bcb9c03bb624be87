"""The numbers of costs.js, which move with the sliders, against those of the study."""

import itertools

import pytest

from analysis.commands.speed import Worth
from analysis.costs import KNOWN
from analysis.studies.worth.worth import worth
from app.selection.decide import CONTEXTS, KEEPS, SEQUENCES
from app.ui.painted import PARTS
from tests.conftest import all_of_them
from tests.made.in_node import NEEDS_NODE, by_node

SCRIPT = """
console.log(JSON.stringify(sent.map(({ made, gpu, longest, asked }) => asked.map(([context, batch, keep]) => ({
  ...gains(made.gain, context, batch, keep), said: verdict(made, longest, context, batch, keep),
  dense: estimate(made, gpu, context, batch, 1), cut: estimate(made, gpu, context, batch, keep) })))))
"""
MODELS = ["meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-v0.1", "google/gemma-2-9b-it", "openai-community/gpt2"]
# Windows and 4-bit experts, an indexer over a latent, states beside keys.
MODELS += ["openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3.2", "Qwen/Qwen3-Next-80B-A3B-Instruct"]
ONE = {"dense": "", "cut": "_sparse"}


@pytest.mark.slow
@NEEDS_NODE
def test_every_number_and_verdict_is_python_s(pytestconfig):
    sent, wanted = [], []
    keeps, asked_of = KEEPS[::9], zip(MODELS, itertools.cycle((True, False)), strict=False)
    if all_of_them(pytestconfig):
        keeps, asked_of = KEEPS[::3], itertools.product(MODELS, (True, False))
    for name, counted in asked_of:
        assert name in KNOWN
        for keep in keeps:
            about = {"contexts": list(CONTEXTS), "batches": list(SEQUENCES), "keep": keep, "gpu": "H100-SXM"}
            run = worth(Worth(model=name, projections=counted, **about))
            choices = [[row["context"], row["batch"], keep] for row in run.rows]
            longest = run.shape["max_positions"]
            sent.append({"made": run.made_of, "gpu": run.gpu, "longest": longest, "asked": choices})
            wanted.append([row | {"said": words} for row, words in zip(run.rows, run.said["sentence"], strict=True)])
    script = (PARTS / "costs.js").read_text(encoding="utf-8") + SCRIPT
    for rows, answers in zip(wanted, by_node(script, sent), strict=True):
        for row, answer in zip(rows, answers, strict=True):
            assert (answer["prefill"], answer["token"]) == pytest.approx((row["prefill_gain"], row["decode_gain"]))
            assert answer["said"] == row["said"]
            for side, ending in ONE.items():
                counted_at = answer[side]
                times = counted_at["first"], 1e3 * counted_at["token"], counted_at["rate"]
                names = ("prefill_seconds", "ms_per_token", "tokens_per_second")
                assert times == pytest.approx([row[name + ending] for name in names])
                assert counted_at["largest"] == row[f"largest_batch{ending}"]
            assert answer["dense"]["cache"] == row["kv_bytes"] and answer["dense"]["fits"] == row["fits"]
