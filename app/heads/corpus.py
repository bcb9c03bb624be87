"""One head over many texts: how its statistic spreads beside this text, queries of every tenth, and its tokens."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.heads import charts, one
from app.heads.words import STATISTICS
from app.ui import asking, fields, tables, widgets

TOKENS = 16_384  # that are read of a corpus
LETTERS = 3  # of a token, at least on average: what texts hold is priced before anybody counted
TERM = "head over many texts"
KINDS = {"query": "reads from", "key": "reads", "pair": "pairs"}
STEPS = range(0, 101, 10)
TENTHS = ["highest of all", *(f"{place} of 10" for place in range(1, 11))]


def show(tokens: dict, layer: int, head: int) -> None:
    """A head in a corpus, by the statistic in use, beside the window of the text in use."""
    fields.corpus("heads_corpus", cached.corpus(), ("Texts from", "Texts"), "The bundled samples", "corpus")
    corpus = st.session_state["heads_corpus"] or cached.corpus()
    args = {"model": st.session_state["model"], "corpus": corpus}
    run = asking.ask("head-texts", args, "Reading the texts with every head", _tokens_of(corpus))
    widgets.prose(run.numbers["sentence"], "more")
    name = st.session_state["statistic"]
    _spread(run, one.ask(layer, head, *one.place(tokens)), name, layer, head)
    _examples(run, name, layer, head)
    _tokens(run, layer, head)
    widgets.notes(run)


def _tokens_of(corpus: str) -> int:
    """About how many tokens are read: of a folder the most that can be."""
    keys = corpus.split("+")
    if not set(keys) <= set(cached.texts()):
        return TOKENS
    return min(TOKENS, sum(len(cached.store().text(key)[1]) for key in keys) // LETTERS)


def _of(run: Run, table: str, **wanted: object) -> dict[str, list]:
    """The rows of a stored table that have these values."""
    columns = cached.columns(run, table)
    rows = [
        row
        for row in range(len(columns["layer"]))
        if all(columns[name][row] == value for name, value in wanted.items())
    ]
    return {name: [values[row] for row in rows] for name, values in columns.items()}


def _spread(run: Run, text_run: Run, name: str, layer: int, head: int) -> None:
    """The tenths of the statistic in the corpus and in this window."""
    about = STATISTICS[name]
    quantiles = _of(run, "spread", layer=layer, head=head, statistic=name)
    values = {"share": list(STEPS), "corpus": [quantiles[f"q{step}"][0] for step in STEPS]}
    sorted_values = sorted(value for value in cached.columns(text_run, "queries")[name] if value is not None)
    values["here"] = [
        sorted_values[round(step / 100 * (len(sorted_values) - 1))] if sorted_values else None for step in STEPS
    ]
    if values["corpus"][0] is None:
        st.caption("No query of these texts has a number for this statistic.")
        return
    widgets.chart(
        charts.spread(values, about),
        values,
        title=f"{about.title.split(',')[0]}, query by query",
        key="heads_corpus_spread",
        alt=f"{about.title} from the lowest to the highest query, in the corpus and in this text",
        help=cached.glossary(TERM),
    )


def _examples(run: Run, name: str, layer: int, head: int) -> None:
    """Queries of the corpus, the highest first, with what stands before them."""
    st.subheader("Queries of every tenth", anchor=False, help=cached.glossary(TERM))
    examples, about = _of(run, "examples", layer=layer, head=head, statistic=name), STATISTICS[name]
    texts = cached.columns(run, "texts")["begins"]
    values = {
        "tenth": [TENTHS[decile] for decile in examples["decile"]],
        "value": examples["value"],
        "before": examples["before"],
        "query": examples["query"],
        "text": [f"{texts[text]} …" for text in examples["text"]],
        "position": examples["position"],
    }
    columns = {
        "tenth": tables.Column("tenth"),
        "value": about.column(),
        "before": tables.Column("what stands before", wrap=True),
        "query": tables.Column("query", "token"),
        "text": tables.Column("text"),
        "position": tables.Column("token", "whole"),
    }
    identity = f"{run.id}.{name}.{layer}.{head}"
    label = "Queries of the corpus by this statistic, the highest first"
    tables.table(columns, values, key="heads_corpus_examples", identity=identity, label=label, height=420)
    widgets.numbers(values, f"queries-{name}", "heads_corpus_examples_numbers")


def _tokens(run: Run, layer: int, head: int) -> None:
    """The tokens that the head reads, reads from, and both, more often than by chance."""
    st.subheader("Which tokens", anchor=False, help=cached.glossary("lift of a token"))
    columns_ = _of(run, "tokens", layer=layer, head=head)
    columns_["kind"] = [KINDS[kind] for kind in columns_["kind"]]
    columns = {
        "kind": tables.Column("kind"),
        "query": tables.Column("query", "token"),
        "key": tables.Column("key", "token"),
        "count": tables.Column("times", "whole"),
        "lift": tables.Column("lift", "number", 1, help=cached.glossary("lift of a token")),
    }
    identity = f"{run.id}.{layer}.{head}"
    label = "Tokens and pairs that come more often than by chance"
    tables.table(columns, columns_, key="heads_corpus_tokens", identity=identity, label=label, height=330)
    widgets.numbers({name: columns_[name] for name in columns}, "tokens-of-the-head", "heads_corpus_tokens_numbers")
