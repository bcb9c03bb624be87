"""What a notebook shows: pages that need no server and no network, made by the studies of the app's pages."""

import html
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..answer import Answer
from ..claims import signed
from ..cli.asked import asked
from ..cli.options import parsed
from ..corpus import sample_texts
from ..errors import AnalysisError
from ..files import write_text
from ..methods import METHODS
from ..models import Model, load_model
from ..runs import Result
from ..seam.attention import apply as applied
from ..seam.sound import check_tokens
from ..sheet import sheet, table
from ..studies import STUDIES
from ..studies.context import Context
from ..studies.ready.candidates import candidates, specs
from ..studies.start.report import painted, pair

__all__ = ["AnalysisError", "METHODS", "Shown", "apply", "compare", "inspect", "load_model", "run"]

PAIRS = 6
# Pixels of the frame in a notebook.
HEIGHT = 640
PLAIN = "dense,focus,streaming_llm"


@dataclass(frozen=True)
class Shown:
    """A page about a text, and its numbers: `sentences`, `tables` (name -> DataFrame), `protocol`."""

    page: str = field(repr=False)
    sentences: list[str]
    tables: dict[str, pd.DataFrame] = field(repr=False)
    protocol: dict[str, Any] = field(repr=False)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its styles and those of the notebook leave each other alone."""
        look = f"width:100%;height:{HEIGHT}px;border:1px solid #8884;border-radius:8px"
        return f'<iframe sandbox title="Focuscope" style="{look}" srcdoc="{html.escape(self.page)}"></iframe>'

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file that needs no network."""
        path = Path(path)
        write_text(path, self.page)
        return path


class _Held(Context):
    """A context with one model, whoever loaded it, and one text."""

    def __init__(self, model: Any, tokenizer: Any, text: str) -> None:
        super().__init__(browser=False)
        self.held = model if isinstance(model, Model) else load_model(model, tokenizer=tokenizer)
        check_tokens(self.held.lm, self.held.tokenizer, self.held.name)
        name, content = sample_texts().get(text, ("the text", text))
        self.asked: dict[str, Any] = {"model": self.held.name, "text": self.add_text(name, content), "context": self}

    def model(self, name: str = "demo") -> Model:
        return self.held


def inspect(model: Any = "demo", tokenizer: Any = None, text: str = "story", min_distance: int = 128) -> Shown:
    """What a model reads in a text: a map of its heads, the text painted by what is read from afar, far pairs.

    `text`: the text itself, or the name of a bundled one (story, essay, program, register). `min_distance`: tokens
    from which on something counts as far. Groups are those of the router k8-top1; where the model has none, one is
    fitted, in seconds and without training, and kept in the state folder.
    tables: `heads`, `tokens`, `pairs`, `distance` as the verbs `statistics` and `start` give them. Errors:
    AnalysisError in one sentence.
    """
    context = _Held(model, tokenizer, text)
    first = STUDIES["start"](**context.asked, min_distance=min_distance)
    far = first.numbers["min_distance"]
    heads = STUDIES["statistics"](**context.asked, window=far, without_first=True).tables["heads"]
    tokens, pairs = first.tables["tokens"], first.tables["pairs"].head(PAIRS)
    name, content = context.text(context.asked["text"])
    parts = [
        f"<h1>What does {html.escape(context.held.name)} read in “{html.escape(name)}”?</h1>",
        *(f"<p class=lead>{html.escape(sentence)}</p>" for sentence in first.numbers["sentences"]),
        *(f"<p class=note>{html.escape(sentence)}</p>" for sentence in first.numbers["notes"]),
        "<h2>Heads</h2>",
        f"<p>Percent of a head's attention that lands {far:,} or more tokens back, the first token left out. Rows are "
        "layers, columns heads.</p>",
        head_map(heads, far),
        "<h2>Read from afar</h2>",
        f"<p>Colour: attention that a token draws from {far:,} or more tokens later, in multiples of chance.</p>",
        f"<div class=text>{painted(content, tokens)}</div>",
        "<h2>Far pairs in one learned group</h2>",
        *(pair(row, tokens) for row in pairs.to_dict("records")),
    ]
    return _shown(f"{context.held.name}: {name}", parts, first.numbers["sentences"], first, {"heads": heads})


def compare(
    model: Any = "demo",
    tokenizer: Any = None,
    text: str = "story",
    methods: str | list[dict] = PLAIN,
    window: int | None = None,
) -> Shown:
    """Quality of methods on a text, against dense attention, token by token in the same windows.

    `methods`: names such as "dense,focus,quest", or a list of {"name", "settings", "router", "policy"}. `window`:
    tokens that are read at once (default: as many as the model reads). tables: `rows`, one per method: perplexity with
    its interval, difference to dense, KL, share of the causal pairs that is read. Errors: AnalysisError.
    """
    context = _Held(model, tokenizer, text)
    listed = specs(methods, []) if isinstance(methods, str) else methods
    quality = STUDIES["evaluate"](**context.asked, methods=listed, window=window)
    rows = pd.DataFrame(quality.numbers["rows"])
    name = context.text(context.asked["text"])[0]
    columns = [
        "method",
        "perplexity",
        "against dense",
        "95% interval",
        "KL from dense, nats",
        "same top token",
        "reads",
    ]
    parts = [
        f"<h1>Methods against dense attention on “{html.escape(name)}”</h1>",
        f"<p class=lead>{html.escape(quality.numbers['sentence'])}</p>",
        table(columns, [_cells(row) for row in quality.numbers["rows"]]),
        "<p class=note>Reads: share of the causal pairs that a method's heads read; less is less work, not yet less "
        "time.</p>",
    ]
    return _shown(f"Methods on {name}", parts, [quality.numbers["sentence"]], quality, {"rows": rows})


def apply(
    model: Any = "demo",
    tokenizer: Any = None,
    method: str = "streaming_llm",
    router: str | None = None,
    policy: dict | str | None = None,
    **settings: Any,
) -> AbstractContextManager:
    """Run a method inside the model's own forward and `generate`; on exit the model is as it came.

    `method`: a name of METHODS; `settings`: its fields. What it needs fitted is looked for in the state folder, of
    several routers or policies the one that is named. Errors: BadSetting, NotFitted.
    """
    context = _Held(model, tokenizer, "story")
    families = (METHODS[method].saves,) if method in METHODS else ("reads",)
    spec = {"name": method, "settings": settings, "router": router, "policy": policy}
    (ready,) = candidates(context, context.held, [spec], families)
    return applied(context.held, ready.method)


def run(words: str) -> Result | Answer:
    """What a command of the command line finds, such as "pairs story --min-distance 512": a verb and its words, as
    docs/commands.md lists them. `numbers`, `tables` (name -> DataFrame), `arrays`. Errors: AnalysisError in one
    sentence."""
    return asked(parsed(words)).run(lambda fraction, stage: None)


def head_map(heads: pd.DataFrame, far: int) -> str:
    """Every head as a cell of a table, coloured by the share of its attention that lands `far` or more tokens back."""
    rows = []
    for layer, layer_heads in heads.groupby("layer"):
        cells = []
        for row in layer_heads.sort_values("head").to_dict("records"):
            share = 1 - row["window_mass"]
            tooltip = f"head {layer}.{row['head']}: {share:.1%} lands {far:,} or more tokens back; {row['label']}"
            cells.append(f'<td style="--s:{100 * share:.0f}%" title="{html.escape(tooltip)}">{100 * share:.0f}</td>')
        rows.append(f"<tr><th>{layer}</th>{''.join(cells)}</tr>")
    top = "".join(f"<th>{head}</th>" for head in sorted(heads["head"].unique()))
    return f"<table class=heads><tr><th></th>{top}</tr>{''.join(rows)}</table>"


def _cells(row: dict) -> list[str]:
    interval = "" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
    difference = "" if row["difference"] is None else signed(row["difference"], ".1%")
    shares = [f"{row[name]:.1%}" for name in ("same_top1", "reads_causal")]
    return [row["label"], f"{row['perplexity']:.2f}", difference, interval, f"{row['kl_mean']:.4f}", *shares]


def _shown(title: str, parts: list[str], sentences: list[str], result: Result | Answer, tables: dict) -> Shown:
    protocol = result.numbers["protocol"]
    protocol_html = f"<h2>Protocol</h2><pre>{html.escape(json.dumps(protocol, indent=1, default=str))}</pre>"
    return Shown(sheet(title, "\n".join([*parts, protocol_html])), sentences, result.tables | tables, protocol)
