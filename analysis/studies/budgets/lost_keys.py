"""Which keys a token lost: at one prediction, what dense attention read and a policy drops."""

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.groups.words import word_of_tokens
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import Model
from analysis.runs import Result
from analysis.seam.attention import Block, apply
from analysis.statistics import forward
from analysis.studies.budgets.policies import facts
from analysis.studies.budgets.recipes import resolve
from analysis.studies.context import Context, Reading, protocol
from analysis.studies.text.held_out import check_range
from analysis.studies.text.scoring import score, whole_windows

LABEL = "csa"


def lost_keys(
    model: str = "demo",
    text: str = "",
    policy: dict | str | None = None,
    cap: int | None = None,
    position: int | None = None,
    window: int | None = None,
    long_text: str = "windows",
    top: int = 20,
    *,
    context: Context,
) -> Result:
    """The keys that dense attention reads at one prediction and min(budget, cap) of each head drops, by the attention.

    `position` of the predicted token in the text, as in the tables of `evaluate`; without it the token whose loss the
    policy raises most. What is asked is the query before it. numbers: `position query` (places in the text), `piece`
    (the predicted token), `loss loss_dense difference` in nats, `lost` (the dropped share of attention, mean over
    heads), `key` (the key of which most was dropped: `position piece distance mass` summed over heads, `heads` that
    dropped it, and of the one that dropped most `layer head attention budget`), `policy`, `sentence`; tables: `keys`
    (`position piece distance mass heads`, the `top` ones), `heads` (`layer head budget visible lost position piece
    attention`: of each head what it dropped and the largest key of it). Errors: BadSetting, BadText.
    """
    check_range("The number of keys", top, 1, 1000)
    lm = context.model(model)
    made = resolve(context, lm, policy, window)
    method = made.method(**({} if cap is None else {"cap": cap}))
    method.check(lm.lm)
    reading = whole_windows(context, lm, text, window, long_text)
    dense, found = score(context, lm, text, reading, {LABEL: method})
    losses, before = found[LABEL].losses, dense.losses
    at, inside = _place(position, losses - before)
    numbers, keys, heads = lost_at(lm, reading, at, inside, method, losses[at, inside], before[at, inside])
    size = len(reading.windows[at])
    numbers |= {
        "policy": facts(made),
        "cap": int(method.cap),
        "protocol": protocol("lost-keys", lm, text, len(reading.tokens), window=size, policy=made.integers),
    }
    return Result(numbers, {"keys": keys.head(top), "heads": heads})


def lost_at(
    lm: Model, reading: Reading, at: int, inside: int, method: Method, loss: float, loss_dense: float
) -> tuple[dict, pd.DataFrame, pd.DataFrame]:
    """What the query of prediction `inside` in window `at` lost to a method's budgets, all windows of equal length:
    (`position query piece loss loss_dense difference lost key sentence`, its keys, its heads) as in `lost_keys`."""
    ids, query = reading.windows[at], inside  # position inside + 1 is predicted by the query before it
    start, pieces = at * len(ids), reading.tokens.pieces
    rows = _dropped(lm, ids, query, method, start)
    heads = rows["heads"].assign(piece=[pieces[p] if p >= 0 else "" for p in rows["heads"]["position"]])
    keys = _keys(rows["dropped"], start, query, pieces)
    target = start + inside + 1
    key, rise = _worst(keys, heads, rows["dropped"], start), float(loss - loss_dense)
    words = word_of_tokens(reading.text, reading.tokens.starts, reading.tokens.ends)
    numbers = {
        "position": target,
        "query": start + query,
        "piece": pieces[target],
        "loss": float(loss),
        "loss_dense": float(loss_dense),
        "difference": rise,
        "lost": float(heads["lost"].mean()),
        "key": key,
        "sentence": _sentence(pieces, words, target, rise, key),
    }
    return numbers, keys, heads


def _place(position: int | None, rise: np.ndarray) -> tuple[int, int]:
    """(window, place among its predictions) of a token of the text, or of the largest rise [windows, T - 1]."""
    windows, predicted = rise.shape
    if position is None:
        return tuple(int(n) for n in np.unravel_index(rise.argmax(), rise.shape))
    at, inside = divmod(position, predicted + 1)
    if not 0 <= at < windows or inside == 0:
        raise BadSetting(
            f"Token {position:,} is not predicted: the first of each of {windows} windows of {predicted + 1:,} is not."
        )
    return at, inside - 1


def _dropped(lm: Model, ids: np.ndarray, query: int, method: Method, start: int) -> dict:
    """Of one query in dense attention: `dropped` [L, H, query + 1] the attention to keys outside the largest, and
    `heads`, a row per head."""
    rows = []

    def watch(block: Block, probabilities: torch.Tensor) -> None:
        place = query - int(block.rows[0])
        if 0 <= place < len(block.rows):
            rows.append(probabilities[0, :, place, : query + 1].double().cpu().numpy())

    with apply(lm, METHODS["dense"](), watch=watch):
        forward(lm, ids[: query + 1])
    table, lost = [], np.stack(rows)  # [L, H, query + 1]
    for layer, of_layer in enumerate(lost):
        for head, (row, count) in enumerate(zip(of_layer, method.counts(layer), strict=True)):
            if count <= query:
                row[row >= np.partition(row, -count)[-count]] = 0.0  # what is kept, ties included
            else:
                row[:] = 0.0
            worst = int(row.argmax())
            any_lost = row[worst] > 0
            table.append((layer, head, count, query + 1, row.sum(), start + worst if any_lost else -1, row[worst]))
    columns = ["layer", "head", "budget", "visible", "lost", "position", "attention"]
    return {"dropped": lost, "heads": pd.DataFrame(table, columns=columns)}


def _keys(dropped: np.ndarray, start: int, query: int, pieces: list[str]) -> pd.DataFrame:
    """The dropped keys, the one of which most was dropped first."""
    mass, heads = dropped.sum((0, 1)), (dropped > 0).sum((0, 1))
    order = np.argsort(-mass, kind="stable")
    order = order[mass[order] > 0]
    return pd.DataFrame(
        {
            "position": start + order,
            "piece": [pieces[start + at] for at in order],
            "distance": query - order,
            "mass": mass[order],
            "heads": heads[order],
        }
    )


def _worst(keys: pd.DataFrame, heads: pd.DataFrame, dropped: np.ndarray, start: int) -> dict | None:
    """The first key, with the head that read it most; None where nothing was dropped."""
    if keys.empty:
        return None
    key = {name: value.item() if hasattr(value, "item") else value for name, value in keys.iloc[0].items()}
    of_key = dropped[:, :, key["position"] - start]
    layer, head = (int(n) for n in np.unravel_index(of_key.argmax(), of_key.shape))
    budget = heads[(heads["layer"] == layer) & (heads["head"] == head)]["budget"].item()
    return key | {"layer": layer, "head": head, "attention": float(of_key.max()), "budget": int(budget)}


def _sentence(pieces: list[str], words: list[str], target: int, rise: float, key: dict | None) -> str:
    begin = f"{_named(pieces[target], words[target])} (token {target:,}) "
    begin += f"costs {rise:.2f} nats more" if rise > 0 else f"costs {-rise:.2f} nats less"
    if key is None:
        return f"{begin}, and no key of it was dropped in this query: the change comes from earlier tokens."
    named = _named(key["piece"], words[key["position"]])
    return (
        f"{begin}; the key it lost most of is {named}, {key['distance']:,} tokens back, dropped by "
        f"{key['heads']} heads: head {key['head']} of layer {key['layer']} gave it {key['attention']:.1%} of its "
        f"attention and keeps {key['budget']} keys."
    )


def _named(piece: str, word: str) -> str:
    """A token in quotes, with the word that it is a part of; one that is only white space by its name."""
    if piece.strip():
        return f"“{piece.strip()}”" + (f" of “{word}”" if word and word != piece.strip() else "")
    return "a line break" if "\n" in piece else "a space"
