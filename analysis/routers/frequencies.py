"""Rotary positions as complex numbers: which two sizes of a head a layer turns together, and how fast."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import BadModel
from .rotation import turned

# Radians between a step of the tables and the frequency that made it: bfloat16 tables err by a hundredth.
CLOSE = 0.02


@dataclass(frozen=True)
class Frequencies:
    """How one layer turns its queries and keys.

    Pair f is the complex number x[real] + i x[imaginary] and turns by `rates` radians from one position to the next
    (float64 [D/2], fastest first); `factor` is what the tables multiply besides, as YaRN's do. Sizes that are not
    turned are pairs of rate 0 behind the others.
    """

    real: Tensor
    imaginary: Tensor
    rates: Tensor
    factor: float

    def pairs(self, x: Tensor) -> Tensor:
        """x [..., D] as complex128 [..., D/2]."""
        x = x.double()
        return torch.complex(x[..., self.real], x[..., self.imaginary])


def frequencies(lm: nn.Module, module: nn.Module, tables: tuple[Tensor, Tensor] | None, size: int) -> Frequencies:
    """The frequencies of an attention layer of a model, whose tables (cos, sin) [B or 1, T, D'] turn heads of `size`.

    Half-split and interleaved pairs, parts of the sizes, YaRN's and Llama 3's scaling: what is paired is read off the
    model's own function, the rates off its own float32 numbers. Errors: BadModel without rotary positions, and where
    the numbers do not explain the tables.
    """
    if tables is None:
        raise BadModel("This model has no rotary positions, so no frequencies of its queries: choose another method.")
    cos, sin = (table[:1].detach().cpu().double() for table in tables)
    # A quarter turn by the number of its column shows where each size goes, and which column turns it.
    columns = torch.arange(1.0, cos.shape[-1] + 1)[None, None]
    probe = turned(torch.eye(size)[None, None], module, torch.zeros_like(columns), columns)[0, 0]
    real, imaginary = torch.where((probe > 0) & ~torch.eye(size, dtype=torch.bool))
    column = probe[real, imaginary].long() - 1
    rest = torch.tensor(sorted(set(range(size)) - set(real.tolist()) - set(imaginary.tolist())), dtype=torch.long)
    angle = torch.atan2(sin, cos)[0][:, column]  # [T, pairs]
    steps = torch.remainder(angle.diff(dim=0) + torch.pi, 2 * torch.pi) - torch.pi
    # A model may have several sets, such as one for each kind of layer: those count that make these steps.
    named = [x for name, x in lm.named_buffers() if name.endswith("inv_freq") and "original" not in name]
    fitting = [x.detach().cpu().double() for x in named if x.numel() == steps.shape[1]]
    errors = [float((steps.mean(0) - rates).abs().max()) if len(steps) else 0.0 for rates in fitting]
    if not errors or not min(errors) < CLOSE:
        raise BadModel(
            "The frequencies of this model's rotary positions do not explain how its queries turn, so nothing can be "
            "said of later positions: choose another method."
        )
    rates = fitting[errors.index(min(errors))]
    still = rest.view(2, -1)
    return Frequencies(
        torch.cat([real, still[0]]),
        torch.cat([imaginary, still[1]]),
        torch.cat([rates, rates.new_zeros(still.shape[1])]),
        float((cos[0, 0, column[0]].square() + sin[0, 0, column[0]].square()).sqrt()),
    )
