"""The answers, dense beside the others: while they are written, and when they are done; and whether they are right."""

import re

import streamlit as st

from analysis.commands.quality import Generate
from analysis.jobs import JobStatus
from analysis.runs import Run
from app import cached
from app.selection import state
from app.speed.measured import panel, pieces
from app.speed.speed_charts import milliseconds
from app.ui import jobs, painted, plots, tables, widgets
from app.ui.spelled import size

# Of the session: the request that was stopped, and what it had written.
STOPPED = "_generate_stopped"
# Tokens of the prompt's end that stand before an answer.
BEFORE = 60
# Words of a question's end that the text must have, else it may be chance.
FEWEST = 3
COLUMNS = {
    "label": tables.Column("method"),
    "first": tables.Column("time to first token", help=cached.glossary("time to first token")),
    "each": tables.Column("each token after it"),
    "cache": tables.Column("KV cache, prompt read", help=cached.glossary("KV cache")),
    "kv_share": tables.Column("of dense", "share"),
    "most": tables.Column("at most, reading the prompt", help=cached.glossary("KV cache at most")),
    "kept_keys": tables.Column("keys a head holds", "number", 0),
    "apart": tables.Column("first difference", help=cached.glossary("first difference")),
}


def written(run: Run, tokens: dict) -> None:
    """The answers of a stored run, the first word that differs marked, and what each took; `tokens` of the prompt."""
    rows, identity = run.numbers["rows"], run.id + run.created
    widgets.prose(run.numbers["sentence"])
    texts = {row["label"]: row["text"] for row in rows}
    widgets.prose(*judged("".join(tokens["piece"]), run.request["question"], texts))
    widgets.source(run)
    widgets.notes(run)
    _panels(texts, [_brief(row) for row in rows], "".join(tokens["piece"][-BEFORE:]), identity)
    listed = [
        row
        | {"first": _time(row, "ms_first"), "each": _time(row, "ms_per_token"), "apart": _apart(row)}
        | {"cache": size(row["kv_bytes"]), "most": size(row["kv_most_bytes"])}
        for row in rows
    ]
    listed[0]["apart"] = "–"
    plots.listed(COLUMNS, listed, "generate_rows", "What each took", identity, height=180)
    about = run.protocol
    widgets.prose(
        f"One run each, one after the other, after a short warm-up; greedy decoding. {about.get('processor', '?')}, "
        f"{about['threads']} threads, {about['dtype']}. Speed times both sides in rounds.",
        "quiet",
    )


@st.fragment(run_every=0.5)
def live(job_id: str) -> None:
    """What was written so far, drawn anew while it is written, with Stop."""
    status = cached.jobs().watch(job_id)
    with st.container(horizontal=True, vertical_alignment="center"):
        look = {"icon": ":material/stop_circle:", "on_click": _stop, "args": (status,), "disabled": status.cancelling}
        st.button("Stop", key="generate_stop", **look)
        st.caption(jobs.progress_words(status))
    _draft(cached.jobs().curve(job_id))


def stopped(request: Generate, job: JobStatus | None) -> bool:
    """What was written for a request before somebody stopped it, if anything was; whether there was something."""
    args, curve = st.session_state.get(STOPPED, (None, None))
    if job is not None:
        args, curve = job.args, cached.jobs().curve(job.id)
    if args != request.spelled or not curve or not any(curve["tokens"]):
        return False
    widgets.prose(f"Stopped after {sum(curve['tokens']):,} new tokens.", "note")
    _draft(curve)
    return True


def _stop(job: JobStatus) -> None:
    """Cancel the job, keep what it has written in sight, and let it go: there is nothing more to say of it."""
    jobs.cancel(job.id)
    st.session_state[STOPPED] = job.args, cached.jobs().curve(job.id)
    state.choose(st.session_state, job=None)


def _draft(curve: dict | None) -> None:
    if not curve or not any(curve["tokens"]):
        st.caption("The first answer begins when the prompt has been read.")
        return
    notes = [f"{count:,} tokens" if count else "waits" for count in curve["tokens"]]
    texts = dict(zip(curve["label"], curve["text"], strict=True))
    _panels(texts, notes, "", f"draft.{sum(curve['tokens'])}")


def _panels(texts: dict[str, str], notes: list[str], before: str, identity: str) -> None:
    """The texts side by side, each compared with dense attention's, which stands first, `before` them."""
    answers, panels = list(texts.values()), []
    for side, (label, text) in enumerate(texts.items()):
        compared = answers[0] if side else next(iter(answers[1:]), text)
        # A draft ends where it does not differ yet.
        cut = pieces(before, text, compared if before else text)
        panels.append(panel(label, notes[side], cut, bool(before)))
    painted.beside(panels, key="generate_answers", identity=identity)


def _brief(row: dict) -> str:
    return f"{row['tokens']:,} tokens{', then it ends' if row['ended'] else ''} · {size(row['kv_bytes'])}"


def _time(row: dict, name: str) -> str | None:
    return row[name] and f"{milliseconds(row[name])}{', masked' if row['masked'] else ''}"


def _apart(row: dict) -> str:
    place = row["first_difference"]
    return "none" if place is None else f"token {place + 1:,}"


# --- whether they are right -------------------------------------------------------------------------------------------


def stated(prompt: str, question: str) -> str | None:
    """What the text of a prompt writes behind the last words of the question, up to the end of that sentence: the
    answer to a question whose last words stand in it. None where it has not these words, or goes on in several ways."""
    end = re.split(r"[?!.:]\s", question.strip())[-1].strip()
    if len(end.split()) < FEWEST or question not in prompt:
        return None
    text = " ".join(prompt[: prompt.rindex(question)].split())
    answers = {part.strip() for part in re.findall(rf"{re.escape(end)} ([^.!?;]+)[.!?;]", text)}
    return answers.pop() if len(answers) == 1 else None


def judged(prompt: str, question: str, texts: dict[str, str]) -> tuple[str, str]:
    """(a sentence, its kind) about the answers, label -> text, dense attention first."""
    answer = stated(prompt, question)
    if answer is None:
        return "Nobody checks these answers: dense attention can be wrong, too.", "quiet"
    right = {label: " ".join(text.split()).startswith(answer) for label, text in texts.items()}
    sentence = f"The text says “{answer}”."
    for name, way in (("Right", True), ("Wrong", False)):
        labels = [label for label, good in right.items() if good == way]
        sentence += f" {name}: {'; '.join(labels)}." if labels else ""
    if next(iter(right.values())):
        return sentence, "more"
    way_on = "Where dense attention is wrong, too, nothing is told about the others: ask another question."
    return f"{sentence} {way_on}", "note"
