"""The text of the tour and the places in it that the five steps look at: another text is another STORY."""

from dataclasses import dataclass

from app.selection import state
from app.selection.sparsify import READ_SHARES, SOFTMAX


@dataclass(frozen=True)
class Story:
    """`sample`: which bundled text; `query`, `key`: tokens of a far pair in its first window; `finder`, `spreader`: the
    (layer, head) that finds the pair and one that reads many tokens from the same query; `t`: the temperature that
    sharpens it; `share`: of the causal pairs that is left to read."""

    sample: int
    query: int
    key: int
    finder: tuple[int, int]
    spreader: tuple[int, int]
    t: float = 0.5
    share: float = 0.1

    def requests(self, text: str) -> dict[str, tuple[str, dict]]:
        """step -> (verb, arguments) of the stored example that it shows, for the hash of the text."""
        common = {"model": "demo", "text": text, "long_text": "windows"}
        reader, sharpened = (dict(zip(("layer", "head"), place, strict=True)) for place in (self.finder, self.spreader))
        query = {"part": 0, "query": self.query}
        return {
            "token": ("start", common | {"router": "k8-top1"}),
            "head": ("head", common | {"without_first": False} | reader | query),
            "pair": ("head", common | {"without_first": False} | reader | query),
            "sharpen": ("temperature", common | {"t": list(SOFTMAX)} | sharpened | query),
            "cut": (
                "reads-text",
                common | {"policy": "policy", "shares": list(READ_SHARES), "window": None, "seed": 0},
            ),
        }

    def links(self, text: str) -> dict[str, tuple[str, str, dict]]:
        """step -> (view, title of the page, controls in its URL) of the page that goes on from it."""
        common = {"model": "demo", "text": text}
        (layer, head), (spread_layer, second) = self.finder, self.spreader
        query = common | {"query": self.query}
        pair = state.pair_key(layer, head, self.query, self.key)
        return {
            "token": ("start", "Start", common),
            "head": ("attention_heads", "Attention heads", query | {"layer": layer, "head": head}),
            "pair": ("long_range_pairs", "Long-range pairs", common | {"pair": pair}),
            "sharpen": (
                "softmax_temperature",
                "Softmax temperature",
                query | {"layer": spread_layer, "head": second, "softmax": self.t},
            ),
            "cut": ("kv_budgets", "KV budgets", common | {"budgets": "reads", "budget_reads": self.share}),
        }


STORY = Story(sample=0, query=2006, key=783, finder=(5, 4), spreader=(5, 3))
