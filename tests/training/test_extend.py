"""Fine-tuning a copy of a model that reads by another method: the weights learn to be read so."""

import pytest
import torch

from analysis.methods import METHODS
from analysis.metrics.quality import token_losses
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.training.extend import Extension, extend
from tests.made.tiny import tiny, token_ids
from tests.made.tuning import IDS


def routing(model):
    method = METHODS["routing_transformer"](window=4, n_sink=1, clusters=4)
    return method.fit(model, torch.as_tensor(IDS[:64]).view(2, 32))


METHODS_READ = {
    "performer": lambda model: METHODS["performer"](),
    "routing_transformer": routing,
    "longformer": lambda model: METHODS["longformer"](window=4, n_global=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS_READ)
def test_what_is_trained_while_a_method_reads_is_read_better_by_it(name, tmp_path):
    """One sequence is learned by heart: read by the method, the copy trained so beats the one trained dense."""
    model, ids = load_model(tiny("llama")), torch.as_tensor(IDS[:32])[None]
    method, losses = METHODS_READ[name](model), {}
    for way, reader in (("dense", None), ("method", method)):
        plan = Extension(32, steps=25, tokens_per_step=32, rate=1e-2, warm_up=2)
        copied, _ = extend(model, IDS[:64], plan, tmp_path / way, lambda fraction, stage: None, method=reader)
        with apply(copied, method):
            losses[way] = float(token_losses(copied, ids).mean())
    with apply(model, method):
        assert losses["method"] < float(token_losses(model, ids).mean()) - 0.1
    assert losses["method"] < losses["dense"]
    assert not any(hasattr(module, "_focuscope") for module in model.lm.modules())


def test_performer_passes_gradients_to_queries_and_keys():
    model, ids = load_model(tiny("llama")), token_ids(1, 24)
    model.lm.requires_grad_(True)
    with apply(model, METHODS["performer"]()):
        model.lm(ids, use_cache=False).logits.square().mean().backward()
    attention = model.lm.model.layers[0].self_attn
    gradients = [attention.q_proj.weight.grad, attention.k_proj.weight.grad]
    model.lm.zero_grad(set_to_none=True)
    model.lm.requires_grad_(False)
    assert all(grad is not None and grad.abs().max() > 0 for grad in gradients)
