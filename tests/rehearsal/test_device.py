"""The fake device punishes what a real one would."""

import pytest
import torch

from analysis.kernels import packed
from lab.rehearsal.device import NAME, Crossings, fake_device

PUNISHED = {
    "one number": lambda x: x.sum().item(),
    "a number as Python's": lambda x: int(x.amax()),
    "a condition": lambda x: bool((x > 0).any()),
    "a list": lambda x: x.tolist(),
    "what a mask holds": lambda x: x[x > 0],
    "places": lambda x: x.nonzero(),
    "different numbers": lambda x: x.unique(),
    "an array": lambda x: x.numpy(),
    "another device": lambda x: x + torch.ones(4, device=f"{NAME}:1"),
    "the processor": lambda x: x + torch.ones(4),
    "a copy to the host": lambda x: x.cpu(),
    "a copy to the device": lambda x: torch.arange(4).to(x.device),
    "a list as a tensor": lambda x: torch.tensor([1, 2], device=x.device),
}


@pytest.mark.parametrize("name", PUNISHED)
def test_what_waits_or_mixes_is_an_error(name):
    with fake_device(), Crossings(), pytest.raises((RuntimeError, NotImplementedError)):
        PUNISHED[name](torch.ones(4, device=f"{NAME}:0"))


def test_shapes_are_computed():
    with fake_device(), Crossings():
        x = torch.ones(2, 3, 8, 4, device=NAME)
        assert torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).shape == x.shape
        assert x.to(f"{NAME}:1").device.index == 1


def test_a_question_is_answered_by_its_name_and_counted():
    with fake_device() as device:
        device.tokens = 10
        assert packed.Sizes.of(torch.ones(1, 10, 3, dtype=torch.bool, device=NAME)) == ([4, 3, 3], 1)
        assert device.asked == {"sizes of groups": 1}
