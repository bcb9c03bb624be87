"""What is said of the next token in chunks: the logits of every family itself, and the gradient of their losses."""

import pytest
import torch
import torch.nn.functional as F

from analysis.seam import vocabulary
from analysis.seam.vocabulary import next_tokens
from tests.made.tiny import BY_KIND, VERIFIED, VOCABULARY, tiny, token_ids

ROWS = 5
FAMILIES = [*BY_KIND, *(pytest.param(name, marks=pytest.mark.slow) for name in VERIFIED)]


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of ROWS places of two texts."""
    monkeypatch.setattr(vocabulary, "LOGITS_BYTES", 4 * 2 * VOCABULARY * ROWS)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_chunk_is_the_stock_model_to_the_bit(family):
    lm, ids = tiny(family), token_ids(2, 37)
    with torch.no_grad():
        wanted = lm(ids, use_cache=False).logits
        ((rows, logits),) = next_tokens(lm, ids).chunks(lm)
        assert (rows.start, rows.stop) == (0, 37) and torch.equal(logits, wanted)
        assert torch.equal(lm(ids, use_cache=False).logits, wanted), "the model is as it came"
        assert torch.equal(next_tokens(lm, ids).last(3).logits(lm), wanted[:, -3:])


@pytest.mark.parametrize("family", FAMILIES)
def test_many_chunks_say_the_same_with_the_same_gradient(family, small_chunks):
    lm, ids = tiny(family), token_ids(2, 37)
    wanted = lm(ids, use_cache=False).logits
    with torch.no_grad():
        chunks = list(next_tokens(lm, ids).chunks(lm))
    assert [rows.stop - rows.start for rows, _ in chunks] == [ROWS] * 7 + [2]
    torch.testing.assert_close(torch.cat([logits for _, logits in chunks], 1), wanted, rtol=1e-5, atol=1e-5)
    weights = [p for p in lm.parameters() if p.requires_grad]
    nats = F.cross_entropy(wanted[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(2, 36)
    losses = next_tokens(lm, ids).losses(lm, ids[:, 1:])
    torch.testing.assert_close(losses, nats, rtol=1e-5, atol=1e-5)
    both = (torch.autograd.grad(loss.mean(), weights) for loss in (losses, nats))
    for gradients in zip(*both, strict=True):
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_chunks_run_no_layer_and_no_hook_of_the_model(small_chunks):
    lm, ids, calls = tiny("llama"), token_ids(1, 20), []
    handles = [m.register_forward_hook(lambda *_: calls.append(1)) for m in (lm, lm.model.layers[0])]
    with torch.no_grad():
        list(next_tokens(lm, ids).chunks(lm))
    for handle in handles:
        handle.remove()
    assert len(calls) == 2 and "forward" not in vars(lm.model)
