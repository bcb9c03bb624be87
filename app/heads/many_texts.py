"""One head over many texts: how its statistic spreads beside this text, queries of every tenth, and its tokens."""

import streamlit as st

from analysis.commands.heads import HeadTexts
from analysis.runs import Run
from app import cached
from app.heads import head_charts, scope
from app.heads.head_statistics import STATISTICS
from app.ui import asking, fields, plots, tables, widgets
from app.ui.reading import rows_of

# That are read of a corpus.
TOKENS = 16_384
# Of a token, at least on average: what texts hold is priced before anybody counted.
LETTERS = 3
TERM = "head over many texts"
KINDS = {"query": "reads from", "key": "reads", "pair": "pairs"}
STEPS = range(0, 101, 10)
TENTHS = ["highest of all", *(f"{place} of 10" for place in range(1, 11))]
TOKEN = {
    "kind": tables.Column("kind"),
    "query": tables.Column("query", "token"),
    "key": tables.Column("key", "token"),
    "count": tables.Column("times", "whole"),
    "lift": tables.Column("lift", "number", 1, help=cached.glossary("lift of a token")),
}


def show(tokens: dict, layer: int, head: int) -> None:
    """A head in a corpus, by the statistic in use, beside the window of the text in use."""
    fields.corpus("heads_corpus", cached.corpus(), ("Texts from", "Texts"), "The bundled samples", "corpus")
    corpus = st.session_state["heads_corpus"] or cached.corpus()
    request = cached.request(HeadTexts, model=st.session_state["model"], corpus=corpus)
    # About how many tokens are read: of a folder the most that can be.
    keys, tokens_read = corpus.split("+"), TOKENS
    if set(keys) <= set(cached.texts()):
        tokens_read = min(TOKENS, sum(len(cached.store().text(key)[1]) for key in keys) // LETTERS)
    run = asking.ask(request, "Reading the texts with every head", tokens_read)
    widgets.prose(run.numbers["sentence"], "more")
    cell, name = {"layer": layer, "head": head}, st.session_state["statistic"]
    if name in STATISTICS:
        _spread(run, scope.ask(layer, head, *scope.place(tokens)), cell, name)
        _examples(run, cell, name)
    st.subheader("Which tokens", anchor=False, help=cached.glossary("lift of a token"))
    rows = dict(rows_of(cached.columns(run, "tokens"), **cell))
    rows["kind"] = [KINDS[kind] for kind in rows["kind"]]
    label, identity = "Tokens and pairs that come more often than by chance", f"{run.id}.{layer}.{head}"
    plots.listed(TOKEN, rows, "heads_corpus_tokens", label, identity, height=330)
    widgets.notes(run)


def _spread(run: Run, text_run: Run, cell: dict, name: str) -> None:
    """The tenths of the statistic in the corpus and in this window."""
    quantiles = rows_of(cached.columns(run, "spread"), **cell, statistic=name)
    here = sorted(value for value in cached.columns(text_run, "queries")[name] if value is not None)
    values = {"share": list(STEPS), "corpus": [quantiles[f"q{step}"][0] for step in STEPS]}
    values["here"] = [here[round(step / 100 * (len(here) - 1))] if here else None for step in STEPS]
    if values["corpus"][0] is None:
        st.caption("No query of these texts has a number for this statistic.")
        return
    about = STATISTICS[name]
    title = f"{about.short}, query by query"
    plots.draw(head_charts.spread(values, about), values, title, "heads_corpus_spread", TERM)


def _examples(run: Run, cell: dict, name: str) -> None:
    """Queries of the corpus, the highest first, with what stands before them."""
    st.subheader("Queries of every tenth", anchor=False, help=cached.glossary(TERM))
    texts = cached.columns(run, "texts")["begins"]
    examples = dict(rows_of(cached.columns(run, "examples"), **cell, statistic=name))
    examples["tenth"] = [TENTHS[decile] for decile in examples["decile"]]
    examples["text"] = [f"{texts[text]} …" for text in examples["text"]]
    columns = {
        "tenth": tables.Column("tenth"),
        "value": STATISTICS[name].column,
        "before": tables.Column("what stands before", wrap=True),
        "query": tables.Column("query", "token"),
        "text": tables.Column("text"),
        "position": tables.Column("token", "whole"),
    }
    identity = f"{run.id}.{name}.{cell['layer']}.{cell['head']}"
    label = "Queries of the corpus by this statistic, the highest first"
    plots.listed(columns, examples, "heads_corpus_examples", label, identity, height=420)
