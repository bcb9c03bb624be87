"""Which keys share enough hash tables with a query: codes are compared table by table, and no vector is touched."""

import torch
from torch import Tensor

from analysis.kernels.pool import each
from analysis.kernels.rank import compiled


def hash_codes(x: Tensor, planes: Tensor) -> Tensor:
    """Signs of x [..., D] against random directions [D, L, K] with K <= 15 -> int16 codes [..., L]."""
    bits = x @ planes.flatten(1) > 0
    powers = 1 << torch.arange(planes.shape[2], device=x.device)
    return (bits.unflatten(-1, planes.shape[1:]) * powers).sum(-1).short()


def collide(queries: Tensor, keys: Tensor, enough: int) -> Tensor:
    """bool [B, H, n, T]: pairs whose codes are equal in at least `enough` tables.

    queries int16 [B, H, n, L], keys int16 [B, G, T, L] with G a divisor of H. Compiled where numba is installed and the
    codes are on a processor.
    """
    batch, heads, count, tables = queries.shape
    shared, length = heads // keys.shape[1], keys.shape[2]
    keys = keys.transpose(2, 3).contiguous()  # [B, G, L, T]
    found = torch.empty(batch, heads, count, length, dtype=torch.bool, device=queries.device)
    if not compiled() or queries.device.type != "cpu":
        for head in range(heads):
            own, many = (
                keys[:, head // shared],
                torch.zeros(batch, count, length, dtype=torch.int16, device=keys.device),
            )
            for table in range(tables):
                many += queries[:, head, :, table, None] == own[:, table, None]
            found[:, head] = many >= enough
        return found
    from analysis.kernels.collisions_rows import count_rows

    queries = queries.contiguous()

    def one(place: tuple[int, int]) -> None:
        b, h = place
        count_rows(queries[b, h].numpy(), keys[b, h // shared].numpy(), enough, found[b, h].numpy())

    each(one, [(b, h) for b in range(batch) for h in range(heads)])
    return found
