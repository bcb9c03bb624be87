"""Perplexity against the softmax temperature: of every domain, by position, and of one layer at a time, stored."""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.corpus import sample_texts, tokenize
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.stored.panels import column, panel, series
from analysis.studies.temperature.curve import ALL_LAYERS, KERNEL, UNTRAINED, Curve, counter, curve_of, sentence
from analysis.studies.text.domains import domains
from analysis.studies.text.held_out import check_range, held_out_windows, ids_hash, places, sample_windows, write
from analysis.studies.text.sizes import chosen

ONE_LAYER = (0.6, 0.8, 1.25)
COLUMNS = (
    column("domain", "text"),
    column("layer", "layer changed"),
    column("t", "temperature"),
    column("perplexity", "perplexity"),
    column("difference", "change against dense", "share"),
)


def temperatures(
    corpus: str = "",
    model: str = "demo",
    length: int = 1024,
    windows: int = 64,
    rows: str | None = None,
    seed: int = 0,
    output: str | None = None,
    *,
    context: Context,
) -> Result:
    """Perplexity against the temperature for every domain of `corpus` (of the bundled samples without one), by position
    in windows of `length` tokens, and one layer at a time on the first domain.

    `rows`: only these domains. numbers: `rows` (`domain layer t perplexity difference difference_low difference_high
    units unit tokens`; `layer` None: all of them), `bins` (`domain t bin first last n perplexity difference`),
    `columns`, `panels`, `sentence`, `notes`, `path`. table: `rows`. Errors: BadSetting, BadText.
    """
    check_seed(seed)
    lm = context.model(model)
    check_range("A window of text", length, 16, lm.max_positions)
    check_range("The number of windows of text", windows, 1, 4096)
    parts = _domains(context, lm, corpus, rows, length, windows)
    path, _ = places(context, lm, "temperature", output, None)
    held = [len(ids) for ids in parts.values()]
    told = counter(context, sum(held) * (1 + len(ALL_LAYERS)) + held[0] * lm.num_layers * len(ONE_LAYER))
    found, bins = [], []
    for at, (name, ids) in enumerate(parts.items()):
        curve = Curve(lm, ids, seed, told)
        table, its_bins = curve_of(curve, list(ALL_LAYERS))
        mine = [{"domain": name, "layer": None, **row} for row in table]
        if at == 0:
            one_by_one = [curve.one_layer(layer, t) for t in ONE_LAYER for layer in range(lm.num_layers)]
            mine += [{"domain": name, **row} for row in one_by_one]
        found += [_renamed(row) | {"tokens": int(ids.size)} for row in mine]
        bins += [{"domain": name, **row} for row in its_bins]
    tokens = np.concatenate([ids.ravel() for ids in parts.values()])
    said = ["python -m analysis study temperature --model", lm.name, "--length", length, "--windows-count", windows]
    said += ["--seed", seed, *(["--corpus DIR"] if corpus else []), *(["--rows", rows] if rows else [])]
    numbers = {
        "sentence": " ".join(
            sentence([row for row in found if row["domain"] == name and row["layer"] is None], name) for name in parts
        ),
        "rows": found,
        "bins": bins,
        "columns": list(COLUMNS),
        "panels": _panels(found, bins, list(parts), lm.num_layers),
        "notes": [UNTRAINED],
        "protocol": protocol(
            "study temperature", lm, ids_hash(tokens), tokens.size, window=length, seed=seed, kernel=KERNEL,
            corpus=Path(corpus).name if corpus else "bundled samples",
            command=" ".join(map(str, said)),
        ),
    }  # fmt: skip
    write(path, numbers | {"check": _check(lm)})
    return Result(numbers | {"path": str(path)}, {"rows": pd.DataFrame(found)})


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, temperature -> (what is stored, what comes out now)."""
    again = _check(context.model(stored["protocol"]["model"]))
    return {name: (kept, again[name]) for name, kept in stored["check"].items()}


def _check(lm: Model) -> dict[str, float]:
    """Perplexity on a little of the bundled samples, so that a stored study can be held against the code."""
    curve = Curve(lm, sample_windows(lm, min(256, lm.max_positions)), 0, lambda name: None)
    return {f"t {t:g}": curve.row(t=t)[0]["perplexity"] for t in (0.4, 1.0)}


def _domains(
    context: Context, lm: Model, corpus: str, rows: str | None, length: int, windows: int
) -> dict[str, np.ndarray]:
    """Name -> windows of token ids [n, length] of every domain."""
    if corpus:
        found = domains(corpus, rows, context)
        return {name: held_out_windows(lm, held, length, windows) for name, (_, held) in found.items()}
    samples = sample_texts()
    parts = {}
    for name in chosen(rows, list(samples), "domain"):
        ids = tokenize(lm.tokenizer, samples[name][1], lm.max_positions).ids
        size = min(length, len(ids))
        parts[name] = ids[: len(ids) // size * size].reshape(-1, size)[:windows]
    return parts


def _renamed(row: dict) -> dict:
    row = dict(row)
    return row | {f"difference_{edge}": row.pop(edge) for edge in ("low", "high")}


def _panels(rows: list[dict], bins: list[dict], names: list[str], layers: int) -> list[dict]:
    """Change against temperature by domain; by position in each domain; layer by layer in the first."""
    whole = {name: [row for row in rows if row["domain"] == name and row["layer"] is None] for name in names}
    lines = [
        series(name, *([row[key] for row in mine] for key in ("difference", "difference_low", "difference_high")))
        for name, mine in whole.items()
    ]
    first, change = names[0], "change of perplexity"
    made = [panel("All layers at one temperature", "t", "temperature", list(ALL_LAYERS), change, lines, share=True)]
    for name in names:
        there = [row for row in bins if row["domain"] == name]
        places = sorted({row["first"] for row in there})
        at = [
            series(f"t {t:g}", [row["difference"] for row in there if row["t"] == t])
            for t in ALL_LAYERS
            if t in (0.4, 0.6, 0.8, 1.25)
        ]
        made.append(panel(f"By position in the window, {name}", "first", "position", places, change, at, share=True))
    alone = [
        series(f"t {t:g}", [row["difference"] for row in rows if row["layer"] is not None and row["t"] == t])
        for t in ONE_LAYER
    ]
    made.append(
        panel(f"One layer at a time, {first}", "layer", "layer", list(range(layers)), change, alone, share=True)
    )
    return made
