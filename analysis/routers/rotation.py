"""Queries and keys as they were before their rotary embedding: with the model's own tables and function."""

import inspect
import sys

from torch import Tensor, nn

from ..errors import BadModel


def unrotate(x: Tensor, module: nn.Module, tables: tuple[Tensor, Tensor] | None) -> Tensor:
    """x [B, heads, n, D] before the rotation that the attention layer `module` gave it by `tables` (cos, sin).

    Rotary embeddings of a part of the dimensions, interleaved ones and scaled ones (YaRN multiplies the tables by a
    factor, which is divided out) go back as they came; without tables (GPT-2) x is returned as it is. Errors: BadModel
    for a layer whose rotation is written in another way.
    """
    if tables is None:
        return x
    cos, sin = (table.to(x) for table in tables)
    size = cos.flatten()[0].square() + sin.flatten()[0].square()  # the square of the factor
    return turned(x, module, cos / size, -sin / size)


def turned(x: Tensor, module: nn.Module, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, heads, n, D] rotated by these tables as the layer `module` does. Errors: BadModel."""
    try:
        turn = sys.modules[type(module).__module__].apply_rotary_pos_emb
        # DeepSeek-V4 turns queries and keys one by one
        alone = list(inspect.signature(turn).parameters)[1] == "cos"
        return turn(x, cos, sin) if alone else turn(x, x, cos, sin)[0]
    except (AttributeError, RuntimeError, TypeError) as error:
        raise BadModel(
            f"{type(module).__name__} rotates its queries and keys in a way that cannot be undone here, so "
            "nothing can be made of them: choose another model."
        ) from error
