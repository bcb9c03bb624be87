"""Fitted indexers of a model as one file: tensors by the names of their classes, and a note of how they were made."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..errors import BadSetting, NotFitted
from ..fitted import Fitted
from . import INDEXERS
from .base import Indexer
from .fit import FittedIndexer
from .sizes import Sizes

# Name of the method, and of its file in the fitted state.
METHOD = "indexer"
# Where the class of transformers has its tensors in a model.
PLACE = "layers.{}.self_attn.indexer."


def packed(indexers: Mapping[tuple[int, str], FittedIndexer], **about: Any) -> Fitted:
    """Indexers by (place of the layer, kind). The note has each kind's sizes and its divergence on selection
    documents by layer."""
    tensors, kinds = {}, dict[str, dict]()
    for (layer, kind), fitted in sorted(indexers.items()):
        for name, tensor in fitted.state.items():
            tensors[f"{kind}.{PLACE.format(layer)}{name}"] = tensor
        note = kinds.setdefault(kind, asdict(fitted.sizes) | {"rotated": fitted.indexer.rotated, "selection": []})
        note["selection"].append(min((look.selection for look in fitted.curve), default=None))
    return Fitted(METHOD, tensors, {"indexers": kinds} | about)


def unpacked(fitted: Fitted, kind: str, layers: int) -> tuple[list[Indexer], Sizes]:
    """The indexers of one kind, layer by layer, with their sizes. Errors: NotFitted, BadSetting."""
    kinds = fitted.about.get("indexers", {})
    if kind not in kinds:
        raise NotFitted(
            f"No indexer {kind} was fitted for this model, only {', '.join(kinds) or 'none'}: fit it with "
            f"`route --kinds {kind}`."
        )
    note = dict(kinds[kind])
    rotated, selection = note.pop("rotated"), note.pop("selection")
    if len(selection) != layers:
        raise BadSetting(
            f"These indexers were fitted for {len(selection)} layers and the model has {layers}: fit them again."
        )
    sizes, indexers = Sizes(**note), []
    for layer in range(layers):
        begin = f"{kind}.{PLACE.format(layer)}"
        state = {name: fitted[begin + name] for name in INDEXERS[kind].names}
        indexers.append(INDEXERS[kind](state, sizes.unit, rotated=rotated))
    return indexers, sizes
