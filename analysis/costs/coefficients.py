"""What costs are made of, as plain numbers for a page that counts while the hand moves."""

from collections import Counter
from typing import Any

from .shape import Shape, state_flops, weight_bytes_read, weights_read


def coefficients(shape: Shape, counted: str = "all") -> dict[str, Any]:
    """What `prefill_flops`, `decode_bytes`, `cache_bytes` and `step_flops` are made of, as plain numbers: whoever has
    them counts at any context and batch without the shape.

    `entries`: of each kind that is cached its `layers`, see `Entries`, with `bytes` of one, and FLOPs of a query with
    it in a prompt (`pair_flops`) and in a step; `token_flops` of a token beside attention and `once_flops` of a prompt;
    `state_bytes` of a sequence; `step_bytes` of the weights that every step reads, and `experts`: (bytes of an expert,
    experts, those that a token visits, layers).
    """
    head = shape.head if counted == "all" else 0
    sparse = Counter(block for block in shape.blocks if block.experts > 1)
    of_expert = {block: block.expert(shape.width) * shape.block_bytes for block in sparse}
    visited = sum(of_expert[block] * block.active * layers for block, layers in sparse.items())
    return {
        "entries": [
            {
                "layers": many,
                "every": entries.every,
                "capacity": entries.capacity,
                "limit": entries.limit,
                "chunked": entries.chunked,
                "selects": entries.selects,
                "shared": entries.shared,
                "bytes": entries.numbers * shape.cache_bytes,
                "pair_flops": 2 * entries.products,
                "step_flops": 2 * entries.step_products,
            }
            for entries, many in shape.cached
        ],
        "token_flops": 2 * (weights_read(shape, 1, counted) - head) + state_flops(shape),
        "once_flops": 2 * head,
        "state_bytes": shape.state,
        "step_bytes": weight_bytes_read(shape, 1, counted) - visited,
        "experts": [[of_expert[block], block.experts, block.active, layers] for block, layers in sparse.items()],
    }
