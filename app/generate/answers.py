"""The answers, dense beside the others: while they are written, and when they are done."""

import streamlit as st

from analysis.jobs import JobStatus
from analysis.runs import Run
from app import cached
from app.generate import right
from app.selection import state
from app.speed import charts, texts
from app.ui import jobs, painted, tables, widgets
from app.ui.spelled import size

STOPPED = "_generate_stopped"  # of the session: the request that was stopped, and what it had written
BEFORE = 60  # tokens of the prompt's end that stand before an answer
COLUMNS = {
    "label": tables.Column("method"),
    "first": tables.Column("time to first token", help=cached.glossary("time to first token")),
    "each": tables.Column("each token after it"),
    "cache": tables.Column("KV cache, prompt read", help=cached.glossary("KV cache")),
    "share": tables.Column("of dense", "share"),
    "most": tables.Column("at most, reading the prompt", help=cached.glossary("KV cache at most")),
    "keys": tables.Column("keys a head holds", "number", 0),
    "apart": tables.Column("first difference", help=cached.glossary("first difference")),
}


def written(run: Run, tokens: dict) -> None:
    """The answers of a stored run, the first word that differs marked, and what each took; `tokens` of the prompt."""
    rows = run.numbers["rows"]
    end = "".join(tokens["piece"][-BEFORE:])
    widgets.prose(run.numbers["sentence"])
    prompt, written = "".join(tokens["piece"]), {row["label"]: row["text"] for row in rows}
    widgets.prose(*right.said(prompt, run.request["question"], written))
    widgets.source(run)
    widgets.notes(run)
    _panels(
        [row["label"] for row in rows],
        [_brief(row) for row in rows],
        [row["text"] for row in rows],
        end,
        run.id + run.created,
    )
    values = {
        "label": [row["label"] for row in rows],
        "first": [_time(row, "ms_first") for row in rows],
        "each": [_time(row, "ms_per_token") for row in rows],
        "cache": [size(row["kv_bytes"]) for row in rows],
        "share": [row["kv_share"] for row in rows],
        "most": [size(row["kv_most_bytes"]) for row in rows],
        "keys": [row["kept_keys"] for row in rows],
        "apart": ["–" if side == 0 else _apart(row) for side, row in enumerate(rows)],
    }
    tables.table(
        COLUMNS, values, key="generate_rows", identity=run.id + run.created, label="What each took", height=180
    )
    about = run.protocol
    widgets.prose(
        f"One run each, one after the other, after a short warm-up; greedy decoding. {about.get('processor', '?')}, "
        f"{about['threads']} threads, {about['dtype']}. Speed times both sides in rounds.",
        "quiet",
    )


def draft(curve: dict | None) -> None:
    """What was written so far."""
    if not curve or not any(curve["tokens"]):
        st.caption("The first answer begins when the prompt has been read.")
        return
    notes = [f"{count:,} tokens" if count else "waits" for count in curve["tokens"]]
    _panels(curve["label"], notes, curve["text"], "", f"draft.{sum(curve['tokens'])}")


@st.fragment(run_every=0.5)
def live(job_id: str) -> None:
    """The same, drawn anew while it is written, with Stop."""
    status = cached.jobs().watch(job_id)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Stop",
            key="generate_stop",
            icon=":material/stop_circle:",
            on_click=_stop,
            args=(status,),
            disabled=status.cancelling,
        )
        st.caption(jobs.progress_words(status))
    draft(cached.jobs().curve(job_id))


def _stop(job: JobStatus) -> None:
    """Cancel the job, keep what it has written in sight, and let it go: there is nothing more to say of it."""
    jobs.cancel(job.id)
    st.session_state[STOPPED] = job.args, cached.jobs().curve(job.id)
    state.choose(st.session_state, job=None)


def stopped(request: dict, job: JobStatus | None) -> bool:
    """What was written for a request before somebody stopped it, if anything was; whether there was something."""
    stopped_request, curve = st.session_state.get(STOPPED, (None, None))
    if job is not None:
        stopped_request, curve = job.args, cached.jobs().curve(job.id)
    if stopped_request != request or not curve or not any(curve["tokens"]):
        return False
    widgets.prose(f"Stopped after {sum(curve['tokens']):,} new tokens.", "note")
    draft(curve)
    return True


def _panels(labels: list[str], notes: list[str], answers: list[str], before: str, identity: str) -> None:
    panels = []
    for side, (label, note, text) in enumerate(zip(labels, notes, answers, strict=True)):
        compared = answers[0] if side else next(iter(answers[1:]), text)
        cut = texts.pieces(before, text, compared if before else text)  # a draft ends where it does not differ yet
        panels.append({"role": "query", "title": label, "note": note, "cut_before": bool(before), "same": []})
        panels[-1] |= {"cut_after": False} | cut
    painted.beside(panels, key="generate_answers", identity=identity)


def _brief(row: dict) -> str:
    facts = [f"{row['tokens']:,} tokens{', then it ends' if row['ended'] else ''}", size(row["kv_bytes"])]
    return " · ".join(facts)


def _time(row: dict, name: str) -> str:
    if row[name] is None:
        return "–"
    spelled = charts.milliseconds(row[name])
    return f"{spelled}, masked" if row["masked"] else spelled


def _apart(row: dict) -> str:
    place = row["first_difference"]
    return "none" if place is None else f"token {place + 1:,}"
