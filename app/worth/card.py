"""The card at the end of Is it worth it?: the verdict, both phases, and the commands that count and time it again."""

import streamlit as st

from analysis.commands import commandline
from app import cached
from app.ui import widgets
from app.worth import tables as worth

TIMED = ("bfloat16", "float16", "float32")  # number formats that the bench knows


def card(args: dict, shape: dict, rows: dict, place: int, verdict: str) -> None:
    """The verdict on one row of `worth`: `args` are what was asked, `rows` all contexts and batches."""
    figures = worth.figures(rows, place, shape["dtype"])
    with st.container(border=True, key="worth_card"):
        st.subheader("The verdict", anchor=False, help=cached.glossary("estimated and measured"))
        widgets.prose(verdict)
        with st.container(horizontal=True, gap="large"):
            widgets.metrics([(label, value, None, help) for label, value, help in figures])
        widgets.prose(worth.loaded(shape, rows["kv_bytes"][place]) or [], "quiet")
        st.code(snippet(args, shape, rows["context"][place], rows["batch"][place]), language=None, wrap_lines=True)
        labelled = [(label, value) for label, value, _ in figures]
        widgets.numbers(
            {
                "what": ["verdict", *(label for label, _ in labelled)],
                "value": [verdict, *(value for _, value in labelled)],
            },
            "worth-verdict",
            "worth_verdict",
            "The verdict",
        )


def snippet(args: dict, shape: dict, context: int, batch: int) -> str:
    """Commands for a terminal: the same count, and attention of this shape timed there, before the first token and in
    each later step. With 1 / keep groups a query reads about the share `keep` of the keys."""
    model = {"config": "CONFIG.json"} if args["config"] else {"model": args["model"]}
    counted = model | {"contexts": [context], "batches": [batch], "keep": args["keep"]}
    counted |= {"projections": False} if not args["projections"] else {}
    timed = {"lengths": [context], "heads": shape["heads"], "head_dim": shape["head_dim"], "batch": batch}
    timed |= {"kv_heads": shape["kv_heads"], "groups": max(2, round(1 / args["keep"]))}
    timed |= {"dtype": shape["dtype"]} if shape["dtype"] in TIMED else {}
    phases = {"attention": "the first token", "decode": "each later token"}
    parts = [("count it again", commandline("worth", counted))]
    parts += [
        (f"time its attention on your machine: {phase}", commandline("bench", {"what": kind} | timed))
        for kind, phase in phases.items()
    ]
    return "\n\n".join(f"# {comment}\n{command}" for comment, command in parts)
