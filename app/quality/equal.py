"""Equal reads: every chosen method set to the same number of keys of a query, as the verb `equal-budget` finds it."""

from dataclasses import replace

import streamlit as st

from analysis.runs import Run
from app import cached
from app.quality.words import Asked
from app.selection.decide import EQUAL_SHARES
from app.ui import asking, widgets


def choice() -> float | None:
    """The control; the share of the causal pairs that every method is to read, or None."""
    st.segmented_control(
        "Same budget for all",
        EQUAL_SHARES,
        format_func="{}%".format,
        key="quality_equal",
        help=cached.glossary("equal reads"),
    )
    percent = st.session_state["quality_equal"]
    return None if percent is None else percent / 100


def request(choice: Asked, share: float, reading: dict) -> dict | None:
    """The arguments of `equal-budget` for one method; None where it has no setting that counts keys."""
    if choice.about["budget"] is None:
        return None
    args = {name: st.session_state[name] for name in ("model", "text")} | reading
    return args | {"methods": [_given(choice).spec], "share": share, "windows": 1, "seed": 0}


def _given(choice: Asked) -> Asked:
    """A method without what a budget sets."""
    counts = (choice.about["budget"], *choice.about["competing"])
    return replace(choice, changed={name: value for name, value in choice.changed.items() if name not in counts})


def settled(choice: Asked, args: dict | None, share: float, tokens: int) -> tuple[Asked, Run | None]:
    """A method at the setting at which it reads so much, and the run of `request` that found it; as it was, and None,
    where it has no setting that counts keys."""
    if args is None:
        return choice, None
    choice_alone = _given(choice)
    run = asking.ask("equal-budget", args, f"Setting {choice.about['title']} to {share:.0%} of the reads", tokens)
    (spec,) = run.numbers["methods"]
    changed = {name: value for name, value in spec["settings"].items() if value != choice.defaults.get(name)}
    return replace(choice_alone, changed=changed, policy=spec.get("policy")), run


def reaches(run: Run | None) -> bool:
    """Whether a method has a setting at which it reads so much; one that counts no keys is shown as it is."""
    return run is None or run.numbers["rows"][0]["reached"]


def said(settled_methods: list[tuple[Asked, Run | None]]) -> None:
    """What the budget is, whom it cannot be given to, and who does not reach it."""
    runs = [run for _, run in settled_methods if run is not None]
    if runs:
        numbers = runs[0].numbers
        widgets.prose(
            f"Every method is set so that a query reads {numbers['target']:,.1f} keys on average over all layers and "
            f"heads in the first {numbers['window']:,} tokens. The table shows what each reached; KV reads also counts "
            "what it fetches from memory to choose its keys.",
            "more",
        )
    for choice, run in settled_methods:
        if run is None:
            widgets.prose(f"{choice.about['title']} reads every key, so it cannot be given a budget.", "note")
        elif not reaches(run):
            widgets.prose(f"Left out: {run.numbers['notes'][-1]}", "note")
