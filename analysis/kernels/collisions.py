"""Which keys share enough hash tables with a query: codes are compared table by table, and no vector is touched."""

import numpy as np
import torch
from torch import Tensor

from .jit import jit
from .pool import AT_ONCE, accelerated, each

# Tables that an accelerator compares at once: it takes as long to begin with one.
TABLES = 8
# Products that are made at once: they stay in the cache.
TOGETHER = 1 << 18


def hash_codes(x: Tensor, planes: Tensor) -> Tensor:
    """Signs of x [..., D] against random directions [D, L, K] with K <= 15 -> int16 codes [..., L]. Compiled on a
    processor."""
    tables, bits = planes.shape[1:]
    rows = x.detach().reshape(-1, x.shape[-1])
    if accelerated(x):
        # products, their signs as bools and as numbers
        size = max(1, AT_ONCE // (tables * bits * (x.element_size() + 5)))
        parts = []
        for part in rows.split(size):
            signs = (part @ planes.flatten(1) > 0).float().unflatten(-1, (tables, bits))
            # sums of powers of two below 2^15, which float32 holds exactly
            parts.append((signs @ 2.0 ** torch.arange(bits, device=rows.device)).short())
        return torch.cat(parts).view(*x.shape[:-1], tables)
    directions = planes.transpose(1, 2).flatten(1)  # [D, K L]
    codes = torch.empty(len(rows), tables, dtype=torch.int16)

    def one(part: tuple[Tensor, Tensor]) -> None:
        vectors, packed = part
        _pack((vectors @ directions).view(-1, bits, tables).numpy(), packed.numpy())

    size = max(1, TOGETHER // (tables * bits))
    each(one, zip(rows.split(size), codes.split(size), strict=True))
    return codes.view(*x.shape[:-1], tables)


def collide(queries: Tensor, keys: Tensor, enough: int) -> Tensor:
    """bool [B, H, n, T]: pairs whose codes are equal in at least `enough` tables.

    queries int16 [B, H, n, L], keys int16 [B, G, T, L] with G a divisor of H. Compiled on a processor.
    """
    batch, heads, count, tables = queries.shape
    shared = heads // keys.shape[1]
    if accelerated(queries):
        return _by_torch(queries, keys, enough)
    # short codes: twice as many fit into a vector
    short = tables < 256 and max(int(x.max()) for x in (queries, keys)) < 128
    kind, sums = (torch.int8, np.uint8) if short else (torch.int16, np.uint16)
    queries, keys = queries.to(kind).contiguous(), keys.to(kind).transpose(2, 3).contiguous()  # [B, G, L, T]
    collided = torch.empty(batch, heads, count, keys.shape[-1], dtype=torch.bool)

    def one(place: tuple[int, int]) -> None:
        text, head = place
        key_codes = keys[text, head // shared]
        matches = np.empty(keys.shape[-1], sums)
        _count_rows(queries[place].numpy(), key_codes.numpy(), enough, matches, collided[place].numpy())

    each(one, list(np.ndindex(batch, heads)))
    return collided


def _by_torch(queries: Tensor, keys: Tensor, enough: int) -> Tensor:
    grouped = queries.unflatten(1, (keys.shape[1], -1))  # [B, G, H / G, n, L]
    matches = torch.zeros(*grouped.shape[:-1], keys.shape[2], dtype=torch.int16, device=keys.device)
    for query_codes, key_codes in zip(grouped.split(TABLES, -1), keys.split(TABLES, -1), strict=True):
        # no name for the comparison, which would live on beside the next
        matches += (query_codes[..., None, :] == key_codes[:, :, None, None]).sum(-1, dtype=torch.int16)
    return (matches >= enough).flatten(1, 2)


@jit()
def _count_rows(queries: np.ndarray, keys: np.ndarray, enough: int, matches: np.ndarray, collided: np.ndarray) -> None:
    """queries int [n, L], keys int [L, T] -> fills `collided` bool [n, T]: at least `enough` equal codes, whose number
    `matches` [T] holds."""
    tables, length = keys.shape
    for row in range(queries.shape[0]):
        matches[:] = 0
        # two at once: half the sums to fetch and to put back
        for table in range(0, tables - 1, 2):
            code, key_codes = queries[row, table], keys[table]
            next_code, next_key_codes = queries[row, table + 1], keys[table + 1]
            for key in range(length):
                matches[key] += (key_codes[key] == code) + (next_key_codes[key] == next_code)
        for table in range(tables // 2 * 2, tables):
            code, key_codes = queries[row, table], keys[table]
            for key in range(length):
                matches[key] += key_codes[key] == code
        for key in range(length):
            collided[row, key] = matches[key] >= enough


@jit()
def _pack(products: np.ndarray, codes: np.ndarray) -> None:
    """products float [n, K, L] -> fills `codes` int16 [n, L]: bit k says whether the k-th product is positive."""
    for row in range(products.shape[0]):
        codes[row] = 0
        for bit in range(products.shape[1]):
            for table in range(products.shape[2]):
                codes[row, table] += np.int16(products[row, bit, table] > 0) << bit
