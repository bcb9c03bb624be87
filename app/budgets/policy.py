"""What all parts of the budgets share: which policy, its changes by hand, and the file that it travels in."""

import json
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from typing import Any

import streamlit as st

from analysis.commands.budgets import Budgets, ImportPolicy
from analysis.declaration.canonical import parsed
from analysis.errors import AnalysisError, BadSetting
from analysis.limits import limits
from analysis.runs import Run
from analysis.runs.stored import POLICY_FORMAT, policies, study_folders
from app import cached, topbar
from app.budgets import budget_words, edits as by_word
from app.selection import state
from app.ui import asking, take, widgets

DEFAULT = "policy"
MOST_BYTES = 1_000_000  # of an uploaded file
A_POLICY = "give a list of whole numbers, a budget for each head and then the cap"
SENT = "format method layers heads policy ranks mass min_pos tokens window beta texts halves".split()


def known() -> dict[str, dict]:
    """name -> the JSON of every policy stored for the model in use."""
    model = st.session_state["model"]
    folders = study_folders(cached.store(), model, asking.card(model)["revision"])
    return policies([folder.parent for folder in folders])


# --- the policy in use ------------------------------------------------------------------------------------------------


def edits() -> list[dict]:
    """The changes by hand in the URL; what is none is dropped and said."""
    try:
        return by_word.parse(st.session_state["budget_edits"])
    except ValueError:
        widgets.settled("budget_edits", [None], None)
        return []


def recipe(changes: list[dict] | None = None) -> dict:
    """The policy in use as the commands take it: its name, changes by hand and cap."""
    chosen, changes = st.session_state, edits() if changes is None else changes
    policy: dict[str, Any] = {"name": chosen["budget_policy"]}
    way = chosen["budget_way"]
    if way != "stored":
        policy[way] = chosen["budget_size"] / (100 if way == "reads" else 1)
    if changes:
        policy |= {"edits": changes, "keep_total": chosen["budget_keep"]}
    return policy | ({"cap": chosen["budget_cap"]} if chosen["budget_cap"] else {})


def _request(policy: dict) -> Budgets:
    return Budgets(model=st.session_state["model"], policy=policy, window=None)


def ask(policy: dict) -> Run:
    """The map of a policy, with what it reads."""
    return asking.ask(_request(policy), "Sharing out the keys")


def in_use() -> Run:
    """The map of the policy in use; changes that do not fit it are said and can be dropped."""
    chosen = st.session_state
    if chosen.setdefault("budget_model_seen", chosen["model"]) != chosen["model"]:
        chosen["budget_model_seen"] = chosen["model"]
        # Changes, heads and policies of another model mean nothing here.
        start_over()
        state.choose(chosen, budget_policy=DEFAULT, budget_other=None, budget_cells=None)
    changes = edits()
    try:
        return ask(recipe(changes))
    except AnalysisError as error:
        if not by_hand():
            raise
        widgets.show_error(error)
        st.button("Drop the changes by hand", key="budget_drop", on_click=start_over)
        return ask({"name": st.session_state["budget_policy"]})


def by_hand() -> bool:
    """Whether anything differs from the policy as it is stored."""
    chosen = st.session_state
    return bool(chosen["budget_edits"] or chosen["budget_cap"] or chosen["budget_way"] != "stored")


def start_over() -> None:
    """Back to the policy as it is stored."""
    st.session_state["budget_trouble"] = None
    state.choose(st.session_state, budget_edits=None, budget_cap=None, budget_way="stored", budget_size=1.0)


def use(name: str) -> None:
    """Another policy: changes by hand and marks of the old one mean nothing in it."""
    start_over()
    state.choose(st.session_state, budget_policy=name, budget_token=None, job=None)


def change(added: dict | None) -> None:
    """Apply one more change by hand, or undo the last one; a change that cannot be leaves all as it was."""
    with widgets.attempt("budget_trouble"):
        changes = [*edits(), added] if added else edits()[:-1]
        word = by_word.spell(changes)
        if word and len(word) > by_word.MOST:
            raise BadSetting("These are more changes than a link can hold: start over, or scale whole layers.")
        request = _request(recipe(changes))
        cached.jobs().request(request, timeout=cached.PATIENCE)
        state.choose(st.session_state, budget_edits=word)


def refused(reason: str, about: dict) -> None:
    """Say why nothing can be measured, and offer a text on which it can be."""
    texts = cached.texts()
    st.info(widgets.plain(reason))
    other = next((key for key in texts if budget_words.measured_on(texts, key, about) is None), None)
    if other is not None:
        label = f"Take “{widgets.plain(texts[other])}” instead"
        take_other = partial(state.choose, st.session_state, text=other, budget_token=None)
        st.button(label, key="budget_other_text", on_click=take_other)


# --- its card, and its file -------------------------------------------------------------------------------------------


def head(table: dict, cells: Sequence[int], about: dict) -> None:
    """What the head that was chosen last needs, and may read."""
    cell, mass = cells[-1], about.get("mass")
    name = f"{table['layer'][cell]}.{table['head'][cell]}"
    st.subheader(f"Head {name}", anchor=False, help=cached.glossary("top-p rank"))
    needed = f" for {budget_words.share(mass)} of its attention" if mass else ""
    by_hand = ", set by hand" if table["fixed"][cell] else ""
    may_read = f"{table['capped'][cell]:,.0f}{by_hand}"
    widgets.prose(f"Needs {table['rank'][cell]:,.0f} tokens{needed}; may read {may_read}.", "more")


def card(stored: dict[str, dict], run: Run, about: dict) -> None:
    """Which policy, the way back to it as it was calibrated, and its file."""
    chosen = st.session_state
    names = [DEFAULT, *(name for name in stored if name != DEFAULT)]
    widgets.settled("budget_policy", names, DEFAULT)
    chosen["budget_policy_pick"] = chosen["budget_policy"]
    look: dict[str, Any] = {"on_change": lambda: use(chosen["budget_policy_pick"]), "help": budget_words.made(about)}
    st.selectbox("Policy", names, key="budget_policy_pick", **look)
    with st.container(horizontal=True, gap="small"):
        if by_hand():
            st.button("As calibrated", key="budget_over", icon=":material/replay:", on_click=start_over)
        with st.popover("More", icon=":material/more_horiz:", key="budget_more"):
            download(run)
            if limits().allows(ImportPolicy.verb):
                key = f"budget_upload_{chosen.setdefault('budget_nonce', 0)}"
                help = "Lower-case letters, digits, -."
                st.text_input("Store it as", key="budget_upload_name", value="uploaded", max_chars=32, help=help)
                st.file_uploader("A policy, JSON", key=key, type=["json"], on_change=_uploaded, args=(key,))
                widgets.prose("It is checked against the model in use before it is stored.", "quiet")
    widgets.trouble("budget_upload_trouble")


def download(run: Run) -> None:
    """The policy in use as a file: L * H + 1 whole numbers, their shape, and the ranks behind them. Or taken along."""
    numbers = run.numbers
    document = {"format": POLICY_FORMAT, "method": "csa"} | numbers["integers"]
    document |= {"ranks": numbers["ranks"], "model": st.session_state["model"]}
    document |= {name: value for name, value in numbers["policy"].items() if name in SENT}
    st.download_button(
        "Download",
        json.dumps(document),
        file_name=f"{st.session_state['budget_policy']}.json",
        mime="application/json",
        key="budget_download",
        icon=":material/download:",
        help=f"{len(numbers['integers']['policy']):,} whole numbers as JSON: a budget for each head, and the cap.",
        on_click="ignore",
    )
    take.offer({"Calibrated Sparse Attention": (run, {"name": "csa", "policy": run.request["policy"]})}, "budget")


def _uploaded(key: str) -> None:
    file = st.session_state.get(key)
    # An interrupted run calls this again, when the file has been released.
    if not isinstance(file, BytesIO):
        return
    data, name = file.getvalue(), (st.session_state.get("budget_upload_name") or "uploaded").strip()
    topbar.release(file)
    with widgets.attempt("budget_upload_trouble"):
        bring(data, name)
    st.session_state["budget_nonce"] += 1


def bring(data: bytes, name: str) -> None:
    """Store an uploaded policy under a name and use it. Errors: BadSetting."""
    if name == DEFAULT:
        raise BadSetting(f"{DEFAULT} is the name of the first policy: give yours another one.")
    request = cached.request(ImportPolicy, model=st.session_state["model"], name=name, policy=read_json(data))
    stored = cached.jobs().request(request, timeout=cached.PATIENCE)
    for moved in stored.numbers.get("notes", []):  # what went to the trash
        st.toast(widgets.plain(moved), duration="long")
    use(name)


def read_json(data: bytes) -> dict | list:
    """What an uploaded file holds, without what no policy needs. Errors: BadSetting in one sentence."""
    if len(data) > MOST_BYTES:
        raise BadSetting(f"The file has {len(data) / 1e6:,.1f} MB, and a policy has 1 MB at most: give another file.")
    try:
        document = parsed(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise BadSetting(f"The file is not JSON: {A_POLICY}.") from None
    if isinstance(document, dict):
        return {key: document[key] for key in SENT if key in document}
    if isinstance(document, list):
        return document
    raise BadSetting(f"The file holds no policy: {A_POLICY}.")
