"""How many keys hold most of a row's mass: the effective rank, exactly, without sorting the row.

A histogram of the top bits of the numbers finds the one bin in which the sum passes the mass; only what lies in it is
sorted: the same count as a sort gives, 10 to 45 times faster. A positive float32 grows with its bits read as an
integer, so its top twelve bits are a logarithmic bin of an eighth of an octave. Whole bins are taken from the top, the
target's is cut finer by the next eight bits, the rest sorted.
"""

from typing import Any

import numpy as np
import torch

from ..errors import BadSetting
from .jit import jit
from .pool import accelerated

# Half a unit of float32: 0.7 + 0.2 reaches 0.9 although neither is exact.
SLACK = 1 - 2**-24
# Keys of a row whose weights are its peaks: the strongest of those that are far away.
PEAKS = 4
# Sorted at once on a GPU.
SORTED_VALUES = 16 << 20
# Eight for each power of two from 2^-32 up, one for 1, and what is smaller lies in the lowest.
BINS = 257
# Of the top 12 bits of a float32.
LOWEST = (127 - 32) * 8
# The smallest number above 0.
TINY = np.float32(1e-45)
# A bin with more numbers is cut into as many finer ones.
FINE, MANY = 256, 48


def top_p_rank(probabilities: torch.Tensor | np.ndarray | list, mass: float = 0.9) -> torch.Tensor:
    """The fewest keys whose largest probabilities reach `mass`: rows [..., T] that sum to 1 -> int64 [...].

    Exact; of equal probabilities any are taken, which changes no count. A row that never reaches `mass` counts all that
    is above zero. In CSA this is the effective rank. Errors: BadSetting for a mass that is not in (0, 1].
    """
    return top_p(probabilities, mass)[0]


def top_p(probabilities: torch.Tensor | np.ndarray | list, mass: float = 0.9) -> tuple[torch.Tensor, torch.Tensor]:
    """(`top_p_rank`, the least of those probabilities, float32 [...])."""
    check_mass(mass)
    rows = torch.as_tensor(probabilities).detach()
    if rows.dim() == 0:
        raise BadSetting("Ranks are counted of rows of probabilities [..., keys], and a single number was given.")
    shape = rows.shape[:-1]
    if rows.numel() == 0:
        return torch.zeros(shape, dtype=torch.long, device=rows.device), torch.zeros(shape, device=rows.device)
    rows = rows.reshape(-1, rows.shape[-1])
    if accelerated(rows) or rows.dtype == torch.float64:
        parts = rows.split(max(1, SORTED_VALUES // rows.shape[1]))
        ranks, smallest = (torch.cat(one) for one in zip(*(by_sorting(part, mass) for part in parts), strict=True))
    else:
        ranks, smallest = torch.empty(len(rows), dtype=torch.long), torch.empty(len(rows))
        ranks_of(rows.float().contiguous().numpy(), mass * SLACK, ranks.numpy(), smallest.numpy())
    return ranks.view(shape), smallest.view(shape)


def check_mass(mass: float) -> None:
    """Refuse a mass outside (0, 1]."""
    if not 0 < mass <= 1:
        raise BadSetting(f"The mass is {mass} and must lie above 0 and up to 1, such as 0.9.")


def by_sorting(rows: torch.Tensor, mass: float) -> tuple[torch.Tensor, torch.Tensor]:
    """`top_p` of rows [n, T] by the definition: what an accelerator runs, and the oracle of the compiled pass."""
    slack = 1 - 1e-12 if rows.dtype == torch.float64 else SLACK
    best = rows.to(torch.promote_types(rows.dtype, torch.float32)).sort(-1, descending=True).values.double()
    short = (best.cumsum(-1) < mass * slack).sum(-1) + 1
    ranks = torch.minimum(short, (best > 0).sum(-1))
    return ranks, best.gather(-1, (ranks - 1).clamp(min=0)[:, None])[:, 0].float()


@jit()
def ranks_of(rows: np.ndarray, target: Any, ranks: np.ndarray, smallest: np.ndarray) -> None:
    """Fill `ranks` int64 [n] with the fewest numbers of each row [n, T] float32 from 0 to 1 that reach `target`, and
    `smallest` float32 [n] with the least of them."""
    sums, counts = np.zeros(BINS), np.zeros(BINS, np.int64)
    spare = np.empty(rows.shape[1], np.float32)
    for r in range(len(rows)):
        histogram(rows[r], sums, counts)
        ranks[r], smallest[r] = rank_of(rows[r], target, sums, counts, spare)


@jit()
def histogram(row: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> Any:
    """Fill `sums` float64 and `counts` int64 [BINS] with the numbers of a float32 row, by size; returns their sum."""
    bits = row.view(np.int32)
    sums[:] = 0.0
    counts[:] = 0
    for j in range(len(row)):
        bin_index = min(max(0, (bits[j] >> 20) - LOWEST), BINS - 1)
        sums[bin_index] += row[j]
        counts[bin_index] += 1
    return sums.sum()


@jit()
def rank_of(row: np.ndarray, target: Any, sums: np.ndarray, counts: np.ndarray, spare: np.ndarray) -> tuple[int, Any]:
    """(the fewest numbers of `row` whose sum reaches `target`, the least of them), given its histogram, used up;
    `spare` float32, as long."""
    bits = row.view(np.int32)
    reached, count, bin_index = _pass_bins(target, 0.0, 0, BINS - 1, sums, counts)
    inside = 0
    for j in range(len(row)):
        spare[inside] = row[j]
        inside += min(max(0, (bits[j] >> 20) - LOWEST), BINS - 1) == bin_index
        if inside == len(spare):
            break
    # a full bin is cut by the next eight bits
    if inside > MANY and bin_index > 0:
        sums[:FINE] = 0.0
        counts[:FINE] = 0
        bits = spare.view(np.int32)
        for j in range(inside):
            bin_index = (bits[j] >> 12) & (FINE - 1)
            sums[bin_index] += spare[j]
            counts[bin_index] += 1
        reached, count, bin_index = _pass_bins(target, reached, count, FINE - 1, sums, counts)
        before, inside = inside, 0
        for j in range(before):
            value = spare[j]
            fits = ((bits[j] >> 12) & (FINE - 1)) == bin_index
            spare[inside] = value
            inside += fits
    best, smallest = spare[:inside], TINY
    best.sort()
    for j in range(inside - 1, -1, -1):
        if reached >= target or best[j] <= 0:
            break
        reached += best[j]
        smallest = best[j]
        count += 1
    return count, smallest


@jit()
def _pass_bins(
    target: Any, reached: Any, count: int, bin_index: int, sums: np.ndarray, counts: np.ndarray
) -> tuple[Any, int, int]:
    """Take whole bins from the top while the target lies beyond them -> (sum, count, the bin it lies in)."""
    while bin_index > 0 and reached + sums[bin_index] < target:
        reached += sums[bin_index]
        count += counts[bin_index]
        bin_index -= 1
    return reached, count, bin_index
