"""Far-apart tokens that share a group, picked from streamed attention: never a T x T table of the text.

Source: Focus, section 5 ("Henry" at 18 and "Walker" at 772, affinity 0.945); the attention mass and the chance levels
beside each number are this project's. Attention does not cross windows, so a pair lies within one window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..answer import doc, record
from ..errors import BadSetting
from .shares import FarShares


@record
class Pair:
    """Two far-apart tokens of one group; positions count in the text."""

    layer: int
    head: int = doc("the query head that reads the key most, or the chosen one")
    group: int = doc("the shared group, of several the one with the largest part in the affinity")
    query_position: int
    key_position: int
    distance: int = doc("tokens from key to query")
    affinity: float = doc("g_q . g_k of their soft groups")
    attention: float = doc("probability that the head gives the key")
    uniform: float = doc("what reading every visible key alike would give, 1 / (query position in its window + 1)")


PAIR_COLUMNS = [column.name for column in fields(Pair)]
ROW = {
    "attention": float,
    "layer": int,
    "query_position": int,
    "key_position": int,
    "head": int,
    "group": int,
    "affinity": float,
    "uniform": float,
}
SLACK = 4  # a merge of the strongest pairs runs once this many times as many rows wait


class PairCollector(FarShares):
    """Collects, window by window and layer by layer, the strongest far same-group pairs and each arm's far mass.

    arms: name -> memberships per layer, bool [T, K] of the whole text. Pairs are listed for the first arm; every
    arm gets its share of far pairs and of far attention mass. affinity: per layer the causal soft assignment g,
    float [T, K]. A pair is far when query - key >= min_distance. The first `skip_first` tokens of a window are no
    keys, neither listed nor counted: they are the attention sink, whatever they mean. top: how many pairs to keep.
    content: bool [T], both tokens of a listed pair must be True. layer, group, head: list this one only; a chosen
    head also restricts the attention mass. Listed pairs have attention above 0; equal attention is ordered by
    layer, query, key. Errors: BadSetting for settings out of range or shapes that do not agree.
    """

    def __init__(
        self,
        arms: Mapping[str, Sequence[Tensor] | Tensor],
        affinity: Sequence[Tensor] | Tensor,
        *,
        min_distance: int = 128,
        top: int = 100,
        content: Tensor | None = None,
        layer: int | None = None,
        group: int | None = None,
        head: int | None = None,
        skip_first: int = 1,
    ) -> None:
        if not arms:
            raise BadSetting("Pairs need the memberships of at least one router.")
        if min_distance < 1 or top < 0 or skip_first < 0:
            raise BadSetting(
                f"min_distance starts at 1, top and skip_first at 0; they are {min_distance}, {top} and {skip_first}."
            )
        super().__init__(arms, min_distance, skip_first)
        self.members = {name: [members.bool() for members in layers] for name, layers in arms.items()}
        self.listed = next(iter(self.members.values()))
        self.affinity = list(affinity)
        tokens = len(self.affinity[0]) if self.affinity else 0
        self._check(tokens, content, layer, group)
        self.layer, self.group, self.head = layer, group, head
        self.content = torch.ones(tokens, dtype=torch.bool) if content is None else torch.as_tensor(content).bool()
        self.top = _TopPairs(top)

    def _check(self, tokens: int, content: Tensor | None, layer: int | None, group: int | None) -> None:
        depth = len(self.affinity)
        for name, layers in self.members.items():
            if len(layers) != depth or any(len(members) != tokens for members in layers):
                raise BadSetting(f"The memberships of {name!r} do not cover {depth} layers and {tokens} tokens.")
        if content is not None and len(content) != tokens:
            raise BadSetting(f"The content mask covers {len(content)} tokens and the text has {tokens}.")
        if layer is not None and not 0 <= layer < depth:
            raise BadSetting(f"Layers run from 0 to {depth - 1}, and {layer} was asked for.")
        if group is not None and not (depth and 0 <= group < self.listed[0].shape[-1]):
            raise BadSetting(
                f"Groups run from 0 to {self.listed[0].shape[-1] - 1 if depth else 0}, and {group} was asked for."
            )

    @torch.no_grad()
    def add(self, layer: int, rows: Tensor, probabilities: Tensor, start: int = 0) -> None:
        """One block of queries of one window.

        rows int [n]: query positions inside the window, any order; probabilities [H, n, Tk]: attention to the window's
        keys 0..Tk-1 (0 after the query), H the query heads; start: position of the window in the text.
        """
        heads, n, keys = probabilities.shape
        if n != len(rows) or start + keys > len(self.content) or (n and int(rows.max()) >= keys):
            raise BadSetting(
                f"A block of {n} queries and {keys} keys from {start} on does not fit {len(rows)} positions and a text "
                f"of {len(self.content)} tokens."
            )
        if self.head is not None and not 0 <= self.head < heads:
            raise BadSetting(f"Heads run from 0 to {heads - 1}, and {self.head} was asked for.")
        rows = rows.to(probabilities.device)
        # Keys past the last far one can belong to no far pair, so they are not even looked at.
        limit = max(0, int(rows.max()) - self.min_distance + 1) if n else 0
        if limit <= self.skip_first:
            self.count(layer, rows, None, [])
            return
        chosen = slice(None) if self.head is None else slice(self.head, self.head + 1)
        block = probabilities[chosen, :, self.skip_first : limit]  # [h, n, t]
        block = block if block.dtype == torch.float64 else block.float()
        places = torch.arange(self.skip_first, limit, device=rows.device)  # [t]
        far = places <= rows[:, None] - self.min_distance  # [n, t]
        q, k = (start + rows).cpu(), start + torch.arange(self.skip_first, limit)
        same_group = [
            _share(arm[layer][q], arm[layer][k]).to(far) & far for arm in self.members.values()
        ]  # arms x [n, t]
        self.count(layer, rows, block.mean(0).masked_fill(~far, 0.0), same_group)
        if self.top.size and self.layer in (None, layer):
            self._list(layer, rows, block, same_group[0], q, k)

    def _list(self, layer: int, rows: Tensor, block: Tensor, paired: Tensor, q: Tensor, k: Tensor) -> None:
        members, g = self.listed[layer], self.affinity[layer]
        wanted_q, wanted_k = self.content[q], self.content[k]
        if self.group is not None:
            wanted_q, wanted_k = wanted_q & members[q, self.group].cpu(), wanted_k & members[k, self.group].cpu()
        wanted = paired & wanted_q.to(block.device)[:, None] & wanted_k.to(block.device)
        best = torch.where(wanted, block.amax(0), 0.0)  # [n, t]
        worth = (best > 0) & (best >= self.top.least)
        if int(worth.sum()) > self.top.size:
            worth &= best >= best[worth].topk(self.top.size).values[-1]
        row, column = worth.nonzero(as_tuple=True)
        if not len(row):
            return
        attention, head = best[row, column].cpu(), block[:, row, column].argmax(0).cpu()
        row, column, window_rows = row.cpu(), column.cpu(), rows.cpu()
        both = (g[q[row]] * g[k[column]]).cpu().double()  # [m, K]
        shared = (members[q[row]] & members[k[column]]).cpu()
        group = torch.where(shared, both, -1.0).argmax(-1) if self.group is None else torch.full_like(row, self.group)
        self.top.add(
            attention=attention,
            layer=torch.full_like(row, layer),
            query_position=q[row],
            key_position=k[column],
            head=head if self.head is None else torch.full_like(row, self.head),
            group=group,
            affinity=both.sum(-1),
            uniform=1.0 / (window_rows[row] + 1).double(),
        )

    def table(self) -> pd.DataFrame:
        """The kept pairs, strongest first: rows of Pair."""
        frame = self.top.frame()
        frame["distance"] = frame["query_position"] - frame["key_position"]
        return frame[PAIR_COLUMNS]


def _share(queries: Tensor, keys: Tensor) -> Tensor:
    """Whether two tokens share a group: bool [n, K] and [t, K] -> bool [n, t]."""
    return (queries.float() @ keys.float().T) > 0


class _TopPairs:
    """Keeps the `size` rows of largest attention; equal ones by layer, then query, then key position.

    `least` is the attention a new row must reach to matter; it rises as rows come in.
    """

    def __init__(self, size: int) -> None:
        self.size, self.least = size, 0.0
        self._rows: dict[str, list[np.ndarray]] = {name: [np.empty(0, kind)] for name, kind in ROW.items()}
        self._waiting = 0

    def add(self, **columns: Tensor) -> None:
        """Rows as one tensor [m] per column of ROW."""
        for name, kind in ROW.items():
            self._rows[name].append(columns[name].numpy().astype(kind))
        self._waiting += len(columns["attention"])
        if self._waiting >= SLACK * self.size or self.least == 0.0:
            self._merge()

    def _merge(self) -> None:
        rows = {name: np.concatenate(parts) for name, parts in self._rows.items()}
        by = (rows["key_position"], rows["query_position"], rows["layer"], -rows["attention"])
        order = np.lexsort(by)[: self.size]
        self._rows = {name: [values[order]] for name, values in rows.items()}
        self._waiting = 0
        if self.size and len(order) == self.size:
            self.least = float(rows["attention"][order[-1]])

    def frame(self) -> pd.DataFrame:
        """The kept rows, strongest first."""
        self._merge()
        return pd.DataFrame({name: parts[0] for name, parts in self._rows.items()})
