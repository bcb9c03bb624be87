"""Pieces of training: Muon against that of PyTorch, matrix by matrix; what a pretrained model is measured by; a copy
that learns to be read by another method; layers that are computed again hold less, and what cannot fit is refused
before it begins."""

import copy
import math

import numpy as np
import pytest
import torch

from analysis.errors import BadText, TooLarge
from analysis.methods import METHODS
from analysis.metrics.quality import token_losses
from analysis.models import load_model
from analysis.runs.memory import of_training
from analysis.seam.attention import apply
from analysis.training import room
from analysis.training.extend import Extension, extend
from analysis.training.muon import Muon, orthogonal
from analysis.training.run import Run
from analysis.training.settings import RouterTraining
from analysis.training.yardsticks import bits_per_byte, context_gain, evaluate
from tests.made.speaking import Speaking
from tests.made.tiny import VOCABULARY, tiny, token_ids
from tests.made.tuning import IDS

SHAPES = [(16, 16), (8, 16), (16, 16), (40, 16), (16, 40)]


def test_muons_steps_are_those_of_pytorch_and_singular_values_come_near_one():
    def trained(optimiser, **options) -> list[torch.Tensor]:
        draw = torch.Generator().manual_seed(0)
        matrices = [torch.nn.Parameter(torch.randn(shape, generator=draw)) for shape in SHAPES]
        opt = optimiser(matrices, lr=0.1, weight_decay=0.1, **options)
        for _ in range(3):
            for p in matrices[:-1]:  # the last never gets a gradient
                p.grad = torch.randn(p.shape, generator=draw)
            opt.step()
        assert len(opt.state_dict()["state"]) == len(SHAPES) - 1
        return matrices

    for ours, theirs in zip(trained(Muon), trained(torch.optim.Muon, adjust_lr_fn="match_rms_adamw"), strict=True):
        assert (ours - theirs).norm() < 0.01 * theirs.norm()
    draw = torch.Generator().manual_seed(0)
    for shape in SHAPES:
        values = torch.linalg.svdvals(
            orthogonal(torch.randn(2, *shape, generator=draw), (3.4445, -4.775, 2.0315), 5, 1e-7, torch.float32)
        )
        assert values.shape == (2, min(shape)) and 0.3 < values.min() and values.max() < 1.5


def test_bits_per_byte_and_losses_over_predicted_tokens_by_hand():
    # two tokens at ln 4 and ln 2 nats are 2 + 1 bits; spread over the 6 bytes they stand for: half a bit each
    assert bits_per_byte((math.log(4) + math.log(2)) / 2, tokens=2, size=6) == pytest.approx(0.5)

    def doubling(ids):
        """Gives token (i + 1) mod 4 probability 1/2 after token i, each other one 1/6."""
        return torch.nn.functional.one_hot((ids + 1) % 4, 4).float() * math.log(3)

    model = Speaking(doubling, 4)
    right, wrong = math.log(2), math.log(6)
    # windows (0 1 2) and (3 0 0): four predictions, the last one wrong; the jump between windows is not predicted
    assert evaluate(model, np.array([0, 1, 2, 3, 0, 0]), 3) == pytest.approx((3 * right + wrong) / 4, rel=1e-3)
    assert evaluate(model, np.array([0, 1, 2, 3, 0, 0]), 3, limit=1) == pytest.approx(right, rel=1e-3)


def test_context_gain_is_zero_for_a_model_that_reads_one_token_and_not_for_one_that_reads_far():
    class Far(Speaking):
        """Knows the next token, the one `back` before it, if the text reaches that far; else all 8 are alike."""

        def __init__(self, back):
            super().__init__(self.far, 8)
            self.back = back

        def far(self, ids):
            logits = torch.zeros(*ids.shape, 8)
            certain = torch.nn.functional.one_hot(ids, 8).float() * 20
            logits[:, self.back - 1 :] = certain[:, : ids.shape[1] - self.back + 1]
            return logits

    tokens = np.tile(np.random.default_rng(0).integers(0, 8, 32), 16).astype(np.uint16)  # repeats every 32 tokens
    sizes = {"context": 128, "short": 16, "first": 48, "windows": 4, "samples": 20}
    far, near = context_gain(Far(32), tokens, **sizes), context_gain(Far(1), tokens, **sizes)
    assert far["nats"] == pytest.approx(math.log(8), abs=0.01) and far["low"] is far["high"] is None
    two_each = context_gain(Far(32), np.tile(tokens, 2), **sizes | {"windows": 8})
    assert two_each["low"] <= two_each["nats"] <= two_each["high"]
    assert near["nats"] == pytest.approx(0, abs=1e-6) and (far["n"], far["windows"]) == (80, 4)
    with pytest.raises(BadText, match="one window"):
        context_gain(Far(1), tokens[:100], **sizes)


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


PLAN = {"groups": 3, "window": 4, "steps": 2, "tokens_per_step": 48, "length": 24, "calibration_windows": 2}


def step_with(tmp_path, free, monkeypatch, **plan):
    """Whether layers were computed again, losses, and the weights after two steps with so many bytes free."""
    monkeypatch.setattr(room, "free_bytes", lambda device: free)
    lm, ids = load_model(copy.deepcopy(tiny("llama")).double()), np.random.default_rng(0).integers(3, VOCABULARY, 400)
    plan = RouterTraining(**PLAN, check_windows=0, **plan)
    lm.lm.requires_grad_(plan.phase == 2)
    run = Run(lm, None, ids, plan, tmp_path / "none", None)
    losses = [run.step(step) for step in range(2)]
    return run.recompute, losses, [p.detach() for p in run.parameters.values()]


@pytest.mark.slow
@pytest.mark.parametrize("plan", [{}, {"phase": 2}, {"balance_weight": 0.1, "ema": 0.9}], ids=str)
def test_layers_computed_again_train_to_the_same_weights(tmp_path, monkeypatch, plan):
    needed = of_training(24, 8, 32, 48, 3, VOCABULARY, 0, again=True)
    plain = step_with(tmp_path, 1e12, monkeypatch, **plan)
    again = step_with(tmp_path, needed * 1.9, monkeypatch, **plan)
    assert (plain[0], again[0]) == (False, True)
    assert plain[1] == pytest.approx(again[1], rel=1e-12)
    for weights in zip(plain[2], again[2], strict=True):
        torch.testing.assert_close(*weights, rtol=1e-9, atol=1e-12)


def test_what_is_kept_for_the_way_back_is_less():
    lm, ids = load_model(tiny("llama")), torch.full((1, 64), 5)
    saved = {}
    for wanted in (False, True):
        sizes = []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda x, sizes=sizes: sizes.append(x.nbytes) or x, lambda x: x
        )
        with hooks, room.recomputed(lm, wanted):
            lm.lm(ids, use_cache=False)
        saved[wanted] = sum(sizes)
    assert saved[True] < saved[False] / 3 and all("forward" not in vars(layer) for layer in lm.lm.model.layers)


def test_a_step_that_cannot_fit_is_refused_with_what_fits(monkeypatch):
    lm = load_model(tiny("llama"))
    again = of_training(8192, 4, 32, 48, 3, VOCABULARY, 0, again=True)
    monkeypatch.setattr(room, "free_bytes", lambda device: again)
    with pytest.raises(TooLarge, match="8,192 tokens .* at most [0-9,]+ tokens"):
        room.recomputes(lm, 8192, 1)
    monkeypatch.setattr(room, "free_bytes", lambda device: again * 2)
    assert room.recomputes(lm, 8192, 1)
    monkeypatch.setattr(room, "free_bytes", lambda device: 1 << 20)
    with pytest.raises(TooLarge, match="phase 1"):
        room.recomputes(lm, 8192, 2)
