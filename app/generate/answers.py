"""The answers, dense beside the others: while they are written, and when they are done; and whether they are right."""

import re

import streamlit as st

from analysis.jobs import JobStatus
from analysis.runs import Run
from app import cached
from app.speed.measured import panel, pieces
from app.speed.speed_charts import milliseconds
from app.ui import painted, plots, tables, widgets
from app.ui.spelled import size

# Characters of the prompt's end that stand before an answer.
BEFORE = 200
# Words of a question's end that the text must have, else it may be chance.
FEWEST = 3
# Over all of an answer; a run from before they were counted has none.
WRITING = {"peak": "most_bytes", "reads": "read_bytes"}
COLUMNS = {
    "label": tables.Column("method"),
    "first": tables.Column("time to first token", help=cached.glossary("time to first token")),
    "each": tables.Column("each token after it"),
    "cache": tables.Column("KV cache, prompt read", help=cached.glossary("KV cache")),
    "kv_share": tables.Column("of dense", "share"),
    "most": tables.Column("at most, reading the prompt", help=cached.glossary("KV cache at most")),
    "peak": tables.Column("at most, writing too"),
    "reads": tables.Column("read while writing"),
    "kept_keys": tables.Column("keys a head holds", "number", 0),
    "apart": tables.Column("first token apart", help=cached.glossary("first difference")),
    "per_check": tables.Column(
        "tokens per check, as a draft",
        "number",
        help="How many tokens of its answer dense attention would write in a pass, had this method drafted four and "
        "dense attention checked them at once (speculative decoding); without a draft it is 1.",
    ),
}


def headline(run: Run, prompt: str) -> str:
    """Whether a key that was put back mends a wrong answer; of other stored runs whether the answers are right, else
    where they part from dense attention's."""
    answer = stated(prompt, run.request["question"])
    if run.request.get("put_back") is not None and answer is not None:
        right, *_, without, back = (" ".join(row["text"].split()).startswith(answer) for row in run.numbers["rows"])
        if right and not without:
            return f"One key put back, and the answer is {f'right again: “{answer}”' if back else 'still wrong'}"
    dense, *others = run.numbers["rows"]
    texts = {row["label"]: row["text"] for row in run.numbers["rows"]}
    judged_answers = judged(prompt, run.request["question"], texts)
    if judged_answers or not others:
        return judged_answers or f"Dense attention wrote {dense['tokens']:,} tokens"
    apart = [f"{row['label']} at token {_apart(row)}" for row in others if row["first_difference"] is not None]
    return f"Apart from dense: {'; '.join(apart)}" if apart else "Word for word what dense attention writes"


def written(run: Run, prompt: str) -> None:
    """The answers of a stored run, the first word that differs marked."""
    rows = run.numbers["rows"]
    _panels(
        {row["label"]: row["text"] for row in rows},
        [
            f"{row['tokens']:,} tokens{', then it ends' if row['ended'] else ''} · {size(row['kv_bytes'])}"
            for row in rows
        ],
        prompt,
        # A part of its own: in a busy browser one that stayed was once seen with the answers of the run before.
        f"generate_answers_{run.id}{run.created}",
        run.id + run.created,
    )
    widgets.notes(run)
    widgets.source(run)


def took(run: Run) -> None:
    """What each took and held, in numbers."""
    listed = [
        row
        | {"first": _time(row, "ms_first"), "each": _time(row, "ms_per_token")}
        | {"cache": size(row["kv_bytes"]), "most": size(row["kv_most_bytes"]), "apart": _apart(row)}
        | {"per_check": row.get("per_check")}
        | {name: row.get(count) and size(row[count]) for name, count in WRITING.items()}
        for row in run.numbers["rows"]
    ]
    plots.listed(COLUMNS, listed, "generate_rows", "What each took", run.id + run.created, height=180)
    about = run.protocol
    widgets.prose(
        f"One run each, one after the other, after a short warm-up; greedy decoding. {about.get('processor', '?')}, "
        f"{about['threads']} threads, {about['dtype']}. Speed times both sides in rounds.",
        "quiet",
    )


@st.fragment(run_every=0.5)
def live(job_id: str) -> None:
    """What was written so far, drawn anew while it is written; it is stopped where all jobs are, on top of the page."""
    _draft(cached.jobs().curve(job_id))


def stopped(job: JobStatus) -> bool:
    """What was written before somebody stopped it; whether there was something."""
    curve = cached.jobs().curve(job.id)
    if not curve or not any(curve["tokens"]):
        return False
    widgets.prose(f"Stopped after {sum(curve['tokens']):,} new tokens.", "note")
    _draft(curve)
    return True


def _draft(curve: dict | None) -> None:
    if not curve or not any(curve["tokens"]):
        st.caption("The first answer begins when the prompt has been read.")
        return
    notes = [f"{count:,} tokens" if count else "waits" for count in curve["tokens"]]
    texts = dict(zip(curve["label"], curve["text"], strict=True))
    _panels(texts, notes, "", "generate_draft", f"draft.{sum(curve['tokens'])}")


def _panels(texts: dict[str, str], notes: list[str], prompt: str, key: str, identity: str) -> None:
    """The texts side by side, each compared with dense attention's, which stands first, behind the `prompt`'s end."""
    before = prompt[-BEFORE:]
    answers, panels = list(texts.values()), []
    for side, (label, text) in enumerate(texts.items()):
        compared = answers[0] if side else next(iter(answers[1:]), text)
        # A draft ends where it does not differ yet.
        cut = pieces(before, text, compared if before else text)
        panels.append(panel(label, notes[side], cut, bool(before)))
    painted.beside(panels, key=key, identity=identity)


def _time(row: dict, name: str) -> str | None:
    return row[name] and f"{milliseconds(row[name])}{', masked' if row['masked'] else ''}"


def _apart(row: dict) -> str:
    place = row["first_difference"]
    return "–" if place is None else f"{place + 1:,}"


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


def judged(prompt: str, question: str, texts: dict[str, str]) -> str:
    """Which answers (label -> text, dense attention first) say what the text says; nothing where that is not one."""
    answer = stated(prompt, question)
    if answer is None:
        return ""
    right = {label: " ".join(text.split()).startswith(answer) for label, text in texts.items()}
    dense, *others = right
    if not right[dense]:
        too = "" if any(right[label] for label in others) else ", too"
        return f"Dense is wrong{too}: the text says “{answer}”. Ask another question"
    wrong = [label for label in others if not right[label]]
    verdict = f"{' and '.join(wrong)} wrong" if wrong else "and so is what reads less" if others else ""
    return f"Dense is right: “{answer}”; {verdict}" if verdict else f"Dense is right: “{answer}”"
