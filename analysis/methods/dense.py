"""Every visible key: the baseline that everything else is compared with."""

from dataclasses import dataclass
from typing import ClassVar

from analysis.methods.base import Method


@dataclass
class Dense(Method):
    """Each token reads all tokens before it, as the stock model does.

    Run through the same seam as every other method, it gives the stock model's logits: that equality is the badge
    that the numbers of the other methods speak about the model and not about the seam.
    """

    title: ClassVar[str] = "Dense"
    paper: ClassVar[str] = "Vaswani et al., 2017"
    dense: ClassVar[bool] = True
