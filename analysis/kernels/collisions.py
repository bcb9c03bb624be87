"""Which keys share enough hash tables with a query: codes are compared table by table, and no vector is touched."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from analysis.kernels.pool import each


def hash_codes(x: Tensor, planes: Tensor) -> Tensor:
    """Signs of x [..., D] against random directions [D, L, K] with K <= 15 -> int16 codes [..., L]."""
    bits = (x @ planes.flatten(1) > 0).float().unflatten(-1, planes.shape[1:])
    powers = 2.0 ** torch.arange(planes.shape[2], device=x.device)
    return (bits @ powers).short()  # sums of powers of two below 2^15, which float32 holds exactly


def collide(queries: Tensor, keys: Tensor, enough: int) -> Tensor:
    """bool [B, H, n, T]: pairs whose codes are equal in at least `enough` tables.

    queries int16 [B, H, n, L], keys int16 [B, G, T, L] with G a divisor of H. Compiled on a processor.
    """
    if queries.device.type != "cpu":
        return _by_torch(queries, keys, enough)
    batch, heads, count, _ = queries.shape
    shared = heads // keys.shape[1]
    queries, keys = queries.contiguous(), keys.transpose(2, 3).contiguous()  # [B, G, L, T]
    found = torch.empty(batch, heads, count, keys.shape[-1], dtype=torch.bool)

    def one(place: tuple[int, int]) -> None:
        b, h = place
        _count_rows(queries[b, h].numpy(), keys[b, h // shared].numpy(), enough, found[b, h].numpy())

    each(one, [(b, h) for b in range(batch) for h in range(heads)])
    return found


def _by_torch(queries: Tensor, keys: Tensor, enough: int) -> Tensor:
    found = []
    for head, own in enumerate(queries.unbind(1)):  # [B, n, L]
        theirs = keys[:, head * keys.shape[1] // queries.shape[1]]  # [B, T, L]
        many = torch.zeros(*own.shape[:2], theirs.shape[1], dtype=torch.int16, device=own.device)
        for table in range(own.shape[-1]):
            many += own[..., table, None] == theirs[:, None, :, table]
        found.append(many >= enough)
    return torch.stack(found, 1)


@njit(nogil=True, cache=True)
def _count_rows(queries, keys, enough, found):
    """queries int16 [n, L], keys int16 [L, T] -> fills `found` bool [n, T]: at least `enough` equal codes."""
    tables, length = keys.shape
    many = np.empty(length, np.uint16)
    for row in range(queries.shape[0]):
        many[:] = 0
        for table in range(tables):
            code, own = queries[row, table], keys[table]
            for at in range(length):
                many[at] += np.uint16(own[at] == code)
        for at in range(length):
            found[row, at] = many[at] >= enough
