"""The five steps of the tour, each one picture and one sentence: another text is another STORY."""

from dataclasses import dataclass

from analysis.commands.budgets import ReadsText
from analysis.commands.heads import Head
from analysis.commands.temperature import Temperature
from analysis.commands.text import Start
from analysis.declaration.command import Command
from analysis.runs import Run
from app import cached
from app.budgets import budget_charts
from app.budgets.budget_words import share, signed
from app.heads import painted_weights
from app.selection import state
from app.selection.sparsify import READ_SHARES, SOFTMAX
from app.start import far
from app.temperature import temperature_charts
from app.ui import asking, charts, painted, plots, widgets

# Of the chart of one query.
KEYS = 8


@dataclass(frozen=True)
class Story:
    """The text of the tour. `sample`: which bundled one; `query`, `key`: tokens of a far pair in its first window;
    `finder`, `spreader`: the (layer, head) that finds the pair and one that reads many tokens from the same query; `t`:
    the temperature that sharpens it; `share`: of the causal pairs that is left to read."""

    sample: int
    query: int
    key: int
    finder: tuple[int, int]
    spreader: tuple[int, int]
    t: float = 0.5
    share: float = 0.1

    def request(self, step: str, text: str) -> Command:
        """The stored example that a step shows, for the hash of the text."""
        common = {"model": "demo", "text": text, "long_text": "windows"}
        (layer, head), (spread_layer, second) = self.finder, self.spreader
        query = common | {"part": 0, "query": self.query}
        if step == "token":
            return Start(router="k8-top1", **common)
        if step in ("head", "pair"):
            return Head(layer=layer, head=head, without_first=False, **query)
        if step == "sharpen":
            return Temperature(layer=spread_layer, head=second, t=list(SOFTMAX), **query)
        return ReadsText(policy="policy", shares=list(READ_SHARES), window=None, seed=0, **common)

    def leads_to(self, step: str) -> tuple[str, dict]:
        """(page, controls in its URL) of the page that goes on from a step."""
        (layer, head), (spread_layer, second) = self.finder, self.spreader
        match step:
            case "token":
                return "text", {}
            case "head":
                return "map", {"query": self.query, "layer": layer, "head": head}
            case "pair":
                return "links", {"pair": state.pair_key(layer, head, self.query, self.key)}
            case "sharpen":
                place = {"query": self.query, "layer": spread_layer, "head": second}
                return "temperature", place | {"softmax": self.t}
            case _:
                return "budgets", {"budgets": "reads", "budget_reads": self.share}


STORY = Story(sample=0, query=2006, key=783, finder=(5, 4), spreader=(5, 3))


def _say(sentence: str) -> None:
    widgets.prose(sentence.replace(" %", "\N{NO-BREAK SPACE}%"), "said")


def token(run: Run, tokens: dict) -> None:
    """The text as the model sees it."""
    distance = run.numbers["min_distance"]
    _say(
        f"The model reads this text as {len(tokens['piece']):,} tokens; the stronger the colour, the more often a "
        f"token is read again from {distance:,} or more tokens later."
    )
    far.text(run, tokens, "tour_token", "Hover to see a token.")


def head(run: Run, tokens: dict) -> None:
    """What one head reads from one token."""
    numbers, query, row = run.numbers, run.numbers["query"], cached.array(run, "row")
    best, card = max(range(query + 1), key=lambda key: row[key]), asking.card("demo")
    piece, word, heads = tokens["piece"][query], tokens["word"][query], card["layers"] * card["heads"]
    _say(
        f"At “{piece.strip()}”, where “{word}” begins, head {numbers['head']} of layer {numbers['layer']} (one of "
        f"{heads}) puts {share(round(float(row[best]), 2))} of its attention on a single token {query - best:,} tokens "
        "back."
    )
    weights = painted_weights.spread(row, numbers["offset"], query, len(tokens["piece"]))
    paint, palette = painted_weights.by_weight(weights)
    painted.painted(
        tokens,
        paint,
        palette,
        key="tour_head",
        identity=run.id,
        tips=[("attention", [None if weight is None else f"{weight:.2%}" for weight in weights])],
        legend=f"read from “{painted.visible(piece)}”, which is framed",
        hint="The framed token reads; the coloured ones are read.",
        locked=query,
        arcs=[{"query": query, "key": best, "label": f"{query - best:,} tokens back", "mark": [query, best]}],
        open_arc=0,
    )


def pair(run: Run, tokens: dict) -> None:
    """Why it reads there: what followed the same piece the last time, where that is so."""
    query, key = STORY.query, STORY.key
    _say(found(*(tokens["piece"][place].strip() for place in (query, key, key - 1)), query - key))
    weight = share(round(float(cached.array(run, "row")[key]), 2))
    painted.contexts(tokens, query, key, notes=("what is read", f"reads it with {weight} of the attention"))


def found(piece: str, read: str, before: str, distance: int) -> str:
    """What the head finds, in a sentence; `before`: the piece in front of what is `read`."""
    if before == piece:
        return (
            f"There it finds “{read}”, which followed “{piece}” the last time, {distance:,} tokens earlier: the head "
            "looks up how the name goes on."
        )
    return f"There it finds “{read}”: two places {distance:,} tokens apart, joined by one head."


def sharpen(run: Run, tokens: dict) -> None:
    """What a lower softmax temperature does to another head at the same token."""
    numbers, weights = run.numbers, cached.array(run, "weights")
    places = [numbers["t"].index(t) for t in (1.0, STORY.t)]
    before, after = (numbers["reads"][row]["effective_support"] for row in places)
    _say(
        f"Head {numbers['head']} of layer {numbers['layer']} spreads its attention as if over {before:.0f} tokens; a "
        f"softmax temperature of {STORY.t:g} sharpens that to {after:.0f}."
    )
    table = dict(cached.columns(run, "query"))
    table["before"], table["after"] = (weights[row].tolist() for row in places)
    table["piece"] = table["word"]
    strongest = sorted(range(len(table["key"])), key=lambda row: -max(table["before"][row], table["after"][row]))[:KEYS]
    drawn = charts.larger(temperature_charts.query(table, strongest, STORY.t))
    numbers = {name: [table[name][row] for row in strongest] for name in ("position", "word", "before", "after")}
    plots.draw(drawn, numbers, "The tokens it reads most", "tour_sharpen")


def cut(run: Run, tokens: dict) -> None:
    """What reading a small share of the pairs costs."""
    rows = run.numbers["rows"]
    row = next(row for row in rows if row["share"] == STORY.share)
    _say(
        f"If all heads together read only the best {share(row['share'])} of the pairs, perplexity changes by "
        f"{signed(row['difference'])} on average, and by {signed(row['worst_bin_difference'])} where it hurts most."
    )
    numbers = plots.columns(rows, "share", "difference", "low", "high", "worst_bin_difference")
    drawn = charts.larger(budget_charts.by_reads(rows, row["share"]))
    plots.draw(drawn, numbers, "Reading less and less", "tour_cut")


SHOWN = {"token": token, "head": head, "pair": pair, "sharpen": sharpen, "cut": cut}
