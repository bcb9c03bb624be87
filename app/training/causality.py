"""The tab on causality: does the printed rule read the future, and what does that gain?"""

import streamlit as st

from app import cached
from app.training import causality_charts
from app.ui import stored, tables, widgets

LEAKS = "whether other tokens in the second half of a window move the logits of the first"
COLUMNS = {
    "reading": tables.Column("groups"),
    "gate": tables.Column("gate", help=cached.glossary("gate")),
    "membership": tables.Column("membership", help=cached.glossary("literal and causal membership")),
    "perplexity": tables.Column("perplexity", "number", help=cached.glossary("perplexity")),
    "pairs_share": tables.Column("pairs read", "share", help=cached.glossary("KV reads (% of causal)")),
    "smallest_gate": tables.Column("smallest gate", "number", 4, help=cached.glossary("gate")),
    "mean_gate": tables.Column("mean gate", "number", 3, help=cached.glossary("gate")),
    "moved": tables.Column("largest move of a logit", "number", 4, help=cached.glossary("causality check")),
    "verdict": tables.Column("verdict", help=LEAKS),
}


def tab() -> None:
    """The study's sentence, the difference with its interval, agreement by layer, every arm with its verdict."""
    router = st.session_state["router"]
    study = stored.study(name := f"causality-{router}")
    if study is None:
        stored.missing(f"The causality of the router {router}", "causality", small=True, router=router)
        return
    stored.told(name, study)
    widgets.prose(
        "Token groups names the perplexity of this router with its own window; here every form of the gate reads "
        "the same one.",
        "quiet",
    )
    with st.grid(2, min_column_width=420, gap="large"):
        rows = study.numbers["literal_minus_causal"]
        widgets.chart(
            causality_charts.differences(rows),
            {name: [row[name] for row in rows] for name in ("reading", "gate", "mean", "low", "high", "units")},
            title="What reading the future gains",
            key="causality_gain",
            alt="Loss with literal minus loss with causal membership for each gate, with intervals",
            help=cached.glossary("literal and causal membership"),
        )
        agreed = study.numbers["group_agreement"]
        widgets.chart(
            causality_charts.agreement(agreed, study.numbers["prediction_agreement"]),
            {"layer": list(range(len(agreed))), "same group": agreed},
            title="Tokens in the same group by both rules",
            key="causality_agreement",
            alt="Share of tokens whose group is the same by the literal and the causal rule, by layer",
            help=cached.glossary("literal and causal membership"),
        )
    st.subheader("Every form of the gate", anchor=False, help=cached.glossary("gate"))
    values = {name: [row.get(name) for row in study.rows] for name in COLUMNS if name != "verdict"}
    values["verdict"] = ["reads the future" if row["reads_future"] else "causal" for row in study.rows]
    tables.table(COLUMNS, values, key="causality_table", identity=router, label="Arms of the causality check")
    widgets.numbers(values, "causality", "causality_rows")
    widgets.prose(
        "The printed gate is a factor between one half and one: it cannot close, so all pairs are read and the "
        "smallest gate stays at 0.5. The centred form can close the score but not the weight; only log "
        "and hard skip pairs. Left of zero in the chart, the future helps.",
        "quiet",
    )
    stored.made(study)
