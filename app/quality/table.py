"""The numbers of the quality tab as a table: each with its interval, its definition one hover away."""

from collections.abc import Sequence

import streamlit as st

from analysis.runs import Run
from app import cached
from app.quality import words as quality_words
from app.quality.words import Shown
from app.ui import tables, widgets

COLUMNS = {
    "method": tables.Column("method"),
    "perplexity": tables.Column("perplexity", "number", words="perplexity_words", help=cached.glossary("perplexity")),
    "change": tables.Column("against dense", "number", words="change_words", help=cached.glossary("paired difference")),
    "kl_mean": tables.Column("KL, mean / 99%", "number", words="kl_words", help=cached.glossary("KL to dense")),
    "same_top1": tables.Column("same top-1", "share", help=cached.glossary("same top-1")),
    "attended": tables.Column("keys of a query", "number", 1, help=cached.glossary("KV reads (% of causal)")),
    "attended_kv": tables.Column(
        "keys of a key-value head", "number", 1, help=cached.glossary("reads per key-value head")
    ),
    "kv_read": tables.Column("KV reads", "share", help=cached.glossary("KV reads (% of causal)")),
    "worst": tables.Column("worst bin", "number", words="worst_words", help=cached.glossary("worst position bin")),
    "bound": tables.Column("speed", "number", words="speed_words", help=cached.glossary("quality against speed")),
}


def table(results: Sequence[Shown], dense: Run) -> None:
    """Dense and every method, and what the intervals stand on."""
    st.subheader("The numbers", anchor=False, help=cached.glossary("interval"))
    values = {"method": ["Dense", *(result.asked.label for result in results)]}
    rows = [dense.numbers["rows"][0], *(result.row for result in results)]
    for name in ("perplexity", "kl_mean", "kl_p99", "same_top1", "attended", "attended_kv", "kv_read"):
        values[name] = [row[name] for row in rows]
    values["change"] = [row["difference"] for row in rows]
    values["worst"] = [row["worst_bin_difference"] for row in rows]
    values["bound"] = [1.0, *(None if result.row["ceiling"] else result.bound for result in results)]
    values["bound_kv"] = [1.0, *(None if result.row["ceiling"] else result.bound_kv for result in results)]
    values["speed"] = [1.0, *(result.speed and result.speed["median"] for result in results)]
    values["perplexity_words"] = [_perplexity(row) for row in rows]
    values["change_words"] = ["–", *map(quality_words.change, rows[1:])]
    values["worst_words"] = ["–", *map(_worst, rows[1:])]
    values["kl_words"] = [f"{row['kl_mean']:.3f} / {row['kl_p99']:.2f}" for row in rows]
    values["speed_words"] = ["1.0 times", *(_speed(result) for result in results)]
    tables.table(
        COLUMNS, values, key="quality_table", identity="quality", label="Methods and their numbers", height=420
    )
    plain = {name: cells for name, cells in values.items() if not name.endswith("_words")}
    widgets.numbers(plain, "quality", "quality_rows")
    widgets.prose(quality_words.unit(results[0].run if results else dense), "quiet")


def _perplexity(row: dict) -> str:
    spread = "" if row["low"] is None else f" ({row['low']:.2f}–{row['high']:.2f})"
    return f"{row['perplexity']:.2f}{spread}"


def _worst(row: dict) -> str:
    cell = row["bins"][row["worst_bin"]]
    return f"{quality_words.signed(cell['difference'])} at {cell['first'] + 1:,}–{cell['last']:,}"


def _speed(result: Shown) -> str:
    """What was measured, else what it can be at most; a ceiling is no faster itself."""
    if result.row["ceiling"]:
        return "ceiling"
    bound = f"≤ {result.bound:.1f} times"
    if result.shares:
        bound += f", by keys fetched ≤ {result.bound_kv:.1f} times"
    return bound if result.speed is None else f"{result.speed['median']:.2f} times, {bound}"
