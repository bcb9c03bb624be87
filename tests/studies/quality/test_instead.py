"""A method in place of the model's own indexer: labelled, and equal to the stock model that selects nothing and is
given the method's reads as its mask."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from analysis.commands.quality import Evaluate, Take
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.runs import RunStore
from analysis.studies.context import Context
from analysis.studies.take.take import take
from tests.made.evaluating import TEXT
from tests.made.families import COMMIT, KEEPS, saved

T, SINKS, WINDOW = 64, 2, 6
RULE = {"name": "streaming_llm", "settings": {"n_sink": SINKS, "window": WINDOW}}
# Reads of a query by the rule, and all past keys, itself included.
READ = torch.tensor([[k <= q and (q - k < WINDOW or k < SINKS) for k in range(T)] for q in range(T)])
CAUSAL = T * (T + 1) // 2


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> str:
    """The folder of a tiny DeepSeek-V3.2 whose indexer keeps fewer keys than a window has."""
    hub = tmp_path_factory.mktemp("hub")
    saved("deepseek_v32", hub)
    assert KEEPS < T
    return str(hub / "models--tiny--deepseek_v32" / "snapshots" / COMMIT)


@pytest.fixture(scope="module")
def ask_and_context(place, tmp_path_factory):
    """(`ask(**arguments)` -> the answer about the first window of the text, its context)."""
    state = tmp_path_factory.mktemp("state")
    context = Context(store=RunStore(state), state=state, browser=False)
    text = context.add_text("cats", TEXT)
    about = {"model": place, "text": text, "window": T, "long_text": "first"}
    return lambda **changes: Evaluate(**about | changes).compute(context=context), context


def stock(place: str, ids: torch.Tensor, read: torch.Tensor | None = None) -> torch.Tensor:
    """float64 log-probabilities [T - 1, V] of the model as transformers runs it; with `read` [T, T] its indexer selects
    every key and the mask alone says what may be read."""
    lm = AutoModelForCausalLM.from_pretrained(place, attn_implementation="eager", dtype=torch.float32).eval()
    mask = None
    if read is not None:
        for module in lm.modules():
            if hasattr(module, "index_topk"):
                module.index_topk = T
        mask = torch.zeros(1, 1, T, T).masked_fill(~read, torch.finfo(torch.float32).min)
    with torch.no_grad():
        return torch.log_softmax(lm(ids[None], attention_mask=mask, use_cache=False).logits[0, :-1].double(), -1)


def test_the_numbers_are_those_of_the_models_own_mask_and_say_so(ask_and_context, place):
    ask, context = ask_and_context
    result = ask(methods=[{"name": "dense"}, RULE], instead=True)
    dense, row = result.numbers["rows"]
    lm = context.model(place)
    ids = torch.tensor(lm.tokenizer(TEXT, add_special_tokens=False)["input_ids"][:T])
    targets = ids[1:, None]
    as_it_is, ours = stock(place, ids), stock(place, ids, READ)
    perplexity = {
        name: float(table.gather(-1, targets).mean().neg().exp()) for name, table in (("own", as_it_is), ("ours", ours))
    }
    assert dense["perplexity"] == pytest.approx(perplexity["own"], rel=1e-5), "dense is the model as it is"
    assert row["perplexity"] == pytest.approx(perplexity["ours"], rel=1e-5)
    divergence = (as_it_is.exp() * (as_it_is - ours)).sum(-1)
    assert row["kl_mean"] == pytest.approx(float(divergence.mean()), rel=1e-3)
    assert row["reads_causal"] == pytest.approx(int(READ.sum()) / CAUSAL)
    assert row["label"].endswith("instead of the indexer") and "instead" not in dense["label"]
    assert any("in place of the model's own indexer" in note for note in result.numbers["notes"])
    assert result.numbers["protocol"]["instead"] is True


def test_beside_the_indexer_it_reads_less_also_of_a_share(ask_and_context):
    ask, _ = ask_and_context
    (beside,), (instead,) = (ask(methods=[RULE], **arguments).numbers["rows"] for arguments in ({}, {"instead": True}))
    assert beside["reads_causal"] < instead["reads_causal"] and beside["perplexity"] != instead["perplexity"]
    assert "instead" not in beside["label"]
    # More of the pairs than the indexer leaves.
    ask, _ = ask_and_context
    share = 0.75
    (beside,), (instead,) = (
        ask(methods=[{"name": "streaming_llm"}], share=share, **arguments).numbers["rows"]
        for arguments in ({}, {"instead": True})
    )
    assert instead["reads_causal"] == pytest.approx(share, rel=0.1)
    assert beside["reads_causal"] < 0.9 * share


def test_what_chose_in_its_place_leaves_nowhere(ask_and_context):
    ask, context = ask_and_context
    request = {"model": "demo", "methods": [RULE], "instead": True}
    result = ask(methods=[RULE], instead=True)
    run = context.store.put(Undeclared("evaluate", request), result, result.numbers["protocol"], 1.0)
    with pytest.raises(BadSetting, match="in place of the model's own indexer"):
        take(Take(run=run.id, output="x.zip"), context=context)
