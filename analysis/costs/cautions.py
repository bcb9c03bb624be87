"""What a reader has to know of a shape: which of its layers read keys, what is left out, and what was assumed."""

from collections import Counter

from .keys import Keys
from .kinds import CSA, HCA, INDEXED
from .shape import Shape

STATES = ("linear", "Mamba", "convolution")
FURTHER = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")


def notes_of(shape: Shape, keys: Keys, known: bool) -> list[str]:
    """One sentence each, for the page and the command line."""
    notes = []
    if not known:
        reason = f"The family {keys.family[:40]!r} is not known here" if keys.family else "The config names no family"
        notes.append(
            f"{reason}: its attention and its feed-forward blocks (gated, three matrices) are counted as in Llama."
        )
    many = len(shape.stack)
    kinds = Counter(layer.kind for layer in shape.stack)
    if states := [f"{kinds[kind]} {kind}" for kind in STATES if kinds[kind]]:
        notes.append(
            f"{shape.reading} of its {many} layers read keys; {' and '.join(states)} layers carry a state, which costs "
            "the same at any length."
        )
    if any(layer.state and layer.entries for layer in shape.stack):
        notes.append("Its layers also carry a state of fixed size beside the keys, which costs the same at any length.")
    if kinds[INDEXED] or kinds["minimax_m3_sparse"]:
        most = max(entries.top or 0 for layer in shape.stack for entries in layer.entries)
        notes.append(
            f"Its own indexer already leaves each query {most:,} keys at most; the keys and products of the "
            "indexer stay, however few are read."
        )
    if kinds[CSA] or kinds[HCA]:
        notes.append(
            "It caches one entry for several tokens; the keys and products of its indexer stay, however few are read."
        )
    if further := next((keys.number(key, high=1000, default=0, low=0) for key in FURTHER if keys.values.get(key)), 0):
        weights = further * (shape.layer_weights(shape.stack[-1]) + 2 * shape.width**2)
        layers = "layer that predicts" if further == 1 else "layers that predict"
        notes.append(f"Left out: {further} {layers} further tokens (MTP), about {weights / 1e9:.3g} billion weights.")
    return notes
