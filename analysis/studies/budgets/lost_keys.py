"""Which keys a token lost: at one prediction, what dense attention read and a policy drops."""

import numpy as np
import pandas as pd
import torch

from ...answer import Answer, doc, record
from ...commands.budgets import LostKeys
from ...errors import BadSetting
from ...groups.words import word_of_tokens
from ...methods import METHODS
from ...methods.csa import CSA
from ...models import Model
from ...seam.attention import Block, apply
from ...statistics import forward
from ..context import Context, Reading, protocol
from ..text.scoring import score, whole_windows
from .policies import facts
from .recipes import resolve

LABEL = "csa"


@record
class LostToken:
    """What one prediction lost to a policy. Positions are places in the text."""

    position: int = doc("the predicted token")
    query: int = doc("the token before it, whose reading is compared")
    piece: str = doc("the predicted token as text")
    loss: float = doc("under the policy, nats")
    loss_dense: float = doc("of dense attention, nats")
    difference: float = doc("rise of the loss, nats")
    lost: float = doc("share of the attention that was dropped, mean over heads")
    key: dict | None = doc(
        "the key of which most was dropped: its place and distance, mass over heads, heads that dropped it, and the "
        "head that read it most; null where nothing was dropped"
    )
    sentence: str = doc("the result in words")


@record
class TokenLoss(Answer, LostToken):
    """The keys that a token lost to a policy."""

    policy: dict = doc("facts of the policy")
    cap: int = doc("keys that a head may read at most")
    keys: pd.DataFrame = doc("dropped keys: position piece distance mass heads, the most dropped first")
    heads: pd.DataFrame = doc("per head its budget, visible keys, the share it dropped, and the largest key of that")


def lost_keys(request: LostKeys, *, context: Context) -> TokenLoss:
    """The keys that dense attention reads at one prediction and min(budget, cap) of each head drops, by the attention
    of the query before the predicted token, whose `position` is that of the tables of `evaluate`. Errors: BadSetting,
    BadText."""
    lm = context.model(request.model)
    policy = resolve(context, lm, request.policy, request.window)
    method = policy.method(**({} if request.cap is None else {"cap": request.cap}))
    method.check(lm.lm)
    reading = whole_windows(context, lm, request.text, request.window, request.long_text)
    dense, scored = score(context, lm, request.text, reading, {LABEL: method})
    losses, before = scored[LABEL].losses, dense.losses
    number, inside = _place(request.position, losses - before)
    lost, keys, heads = lost_at(lm, reading, number, inside, method, losses[number, inside], before[number, inside])
    about = {"window": len(reading.windows[number]), "policy": policy.integers}
    return TokenLoss(
        **vars(lost),
        policy=facts(policy),
        cap=int(method.cap),
        keys=keys.head(request.top),
        heads=heads,
        protocol=protocol("lost-keys", lm, request.text, len(reading.tokens), **about),
    )


def lost_at(
    lm: Model, reading: Reading, number: int, inside: int, method: CSA, loss: float, loss_dense: float
) -> tuple[LostToken, pd.DataFrame, pd.DataFrame]:
    """What the query of prediction `inside` in window `number` lost to a method's budgets, all windows of equal length:
    (the token, its keys, its heads)."""
    # The token at inside + 1 is predicted by the query before it.
    ids, query, pieces = reading.windows[number], inside, reading.tokens.pieces
    start = number * len(ids)
    target = start + query + 1
    dropped, heads = _dropped(lm, ids, query, method, start)
    heads["piece"] = [pieces[place] if place >= 0 else "" for place in heads["position"]]
    by_key = {"mass": dropped.sum((0, 1)), "heads": (dropped > 0).sum((0, 1))}
    place = np.arange(query + 1)
    keys = pd.DataFrame({"position": start + place, "piece": pieces[start:target], "distance": query - place} | by_key)
    keys = keys[keys["mass"] > 0].sort_values("mass", ascending=False, kind="stable", ignore_index=True)
    key = None
    if not keys.empty:
        key = keys.head(1).to_dict("records")[0]
        of_key = dropped[:, :, key["position"] - start]
        layer, head = (int(n) for n in np.unravel_index(of_key.argmax(), of_key.shape))
        key |= {"layer": lm.layer_numbers[layer], "head": head, "attention": float(of_key.max())}
        key["budget"] = method.counts(layer)[head]
    words = word_of_tokens(reading.text, reading.tokens.starts, reading.tokens.ends)
    rise = float(loss - loss_dense)
    token = LostToken(
        position=target,
        query=start + query,
        piece=pieces[target],
        loss=float(loss),
        loss_dense=float(loss_dense),
        difference=rise,
        lost=float(heads["lost"].mean()),
        key=key,
        sentence=_sentence(pieces, words, target, rise, key),
    )
    return token, keys, heads


def _place(position: int | None, rise: np.ndarray) -> tuple[int, int]:
    """(window, place among its predictions) of a token of the text, or of the largest rise [windows, T - 1]."""
    windows, predicted = rise.shape
    if position is None:
        number, inside = np.unravel_index(rise.argmax(), rise.shape)
        return int(number), int(inside)
    number, inside = divmod(position, predicted + 1)
    if not 0 <= number < windows or inside == 0:
        raise BadSetting(
            f"Token {position:,} is not predicted: the first of each of {windows} windows of {predicted + 1:,} is not."
        )
    return number, inside - 1


def _dropped(lm: Model, ids: np.ndarray, query: int, method: CSA, start: int) -> tuple[np.ndarray, pd.DataFrame]:
    """Of one query in dense attention: [L, H, query + 1] the attention to keys outside the largest, and a row per
    head."""
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
            threshold = np.partition(row, -count)[-count] if count <= query else 0.0
            # What is kept, ties included; everything where the budget is large enough.
            row[row >= threshold] = 0.0
            worst = int(row.argmax())
            position = start + worst if row[worst] > 0 else -1
            table.append((lm.layer_numbers[layer], head, count, query + 1, row.sum(), position, row[worst]))
    columns = ["layer", "head", "budget", "visible", "lost", "position", "attention"]
    return lost, pd.DataFrame(table, columns=columns)


def _sentence(pieces: list[str], words: list[str], target: int, rise: float, key: dict | None) -> str:
    begin = f"{_named(pieces[target], words[target])} (token {target:,}) "
    begin += f"costs {rise:.2f} nats more" if rise > 0 else f"costs {-rise:.2f} nats less"
    if key is None:
        return f"{begin}, and no key of it was dropped in this query: the change comes from earlier tokens."
    named = _named(key["piece"], words[key["position"]])
    return (
        f"{begin}; the key it lost most of is {named}, {key['distance']:,} tokens back, dropped by "
        f"{key['heads']} heads: head {key['layer']}.{key['head']} gave it {key['attention']:.1%} of its "
        f"attention and keeps {key['budget']} keys."
    )


def _named(piece: str, word: str) -> str:
    """A token in quotes, with the word that it is a part of; one that is only white space by its name."""
    if not piece.strip():
        return "a line break" if "\n" in piece else "a space"
    part_of = f" of “{word}”" if word and word != piece.strip() else ""
    return f"“{piece.strip()}”{part_of}"
