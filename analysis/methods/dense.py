"""Every visible key: the baseline that everything else is compared with."""

from dataclasses import dataclass

from .base import Method


@dataclass
class Dense(Method):
    """Each token reads all tokens before it, as the stock model does.

    It runs through the same code as every other method and gives the stock model's logits, which the parity badge
    shows. What another method changes therefore comes from that method alone.
    """

    title = "Dense"
    paper = "Vaswani et al., 2017"
    dense = True
