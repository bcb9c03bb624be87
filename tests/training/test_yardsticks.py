"""What a pretrained model is measured by, by hand: bits per byte, mean losses, the gain from context."""

import math

import numpy as np
import pytest
import torch

from analysis.errors import BadText
from analysis.training.yardsticks import bits_per_byte, context_gain, evaluate
from tests.made.speaking import Speaking


def test_bits_per_byte_by_hand():
    # two tokens at ln 4 and ln 2 nats are 2 + 1 bits; spread over the 6 bytes they stand for: half a bit each
    assert bits_per_byte((math.log(4) + math.log(2)) / 2, tokens=2, size=6) == pytest.approx(0.5)


def test_evaluate_is_the_mean_over_predicted_tokens():
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
