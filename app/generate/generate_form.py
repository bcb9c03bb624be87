"""What the page Generate asks for: a question, methods, sizes; and the request that they make."""

from typing import Any

import streamlit as st

from analysis.commands.quality import Generate
from app import cached
from app.quality.asked import Asked
from app.quality.picker import Picker
from app.selection import state
from app.ui import asking, fields, widgets

MOST_NEW, MOST_METHODS = 256, 2
# New tokens of an answer beside another page.
SHORT_ANSWER = 16
# (beginning of a sample's title, question behind it): those that the bundled model answers right.
EXAMPLES = tuple(
    ("The Register", f"Who is the master of the {ship}? The master of the {ship} is")
    for ship in ("Nightjar", "Sparrowhawk", "Windhover", "Wanderer")
)
# A question to the register that is answered wrong under a budget, and right with one key more in a key's place.
FILM: dict[str, Any] = {
    "generate": "snapkv~budget-384~every-16",
    "generate_question": "Who is the master of the Harvest Moon? The master of the Harvest Moon is",
    **{"generate_prompt": 700, "generate_new": 24, "generate_known": True, "generate_chat": True},
    "generate_back": "3.3.611",
}
# Beside model, text and question: what is asked for as long as nothing was chosen.
FIRST: dict[str, Any] = {
    "methods": [{"name": "snapkv", "settings": {"ratio": 0.75}}],
    **{"new_tokens": 48, "length": None, "known": True, "chat": True},
}
# In which order the methods are offered, by what they save.
FAMILIES = ("memory", "prefill", "reads")
KNOWN = (
    "On: methods that drop keys know the question when they decide. Off: they decide when the text has been read, and "
    "the question comes after, as it does in a conversation about one document."
)


def form(card: dict) -> list[Asked]:
    """The controls; returns the methods that are asked for beside dense. The register opens with a question, as long as
    nobody typed one."""
    chosen, context = st.session_state, card["max_positions"]
    usual = EXAMPLES[0][1] if chosen["text"] == cached.sample("register") else None
    state.follow(chosen, "generate_question", [chosen["generate_question"] or usual], usual)
    described = cached.catalogue()
    by_family = lambda name: (FAMILIES.index(described[name]["saves"]), described[name]["title"])  # noqa: E731
    router = next((candidate for candidate in card["routers"] if candidate["name"] == chosen["router"]), {"name": ""})
    ordered = {name: described[name] for name in sorted(set(described) - {"dense"}, key=by_family)}
    picker = Picker("generate", ordered, MOST_METHODS, router=router)
    look: dict[str, Any] = {"max_chars": 300, "placeholder": "empty: the text goes on"}
    help = "Stands behind the text. Where the model has a chat template, both stand inside it."
    st.text_input("Question behind the text", key="generate_question", help=help, **look)
    choices = picker.chosen()
    picker.choose(choices)
    with st.popover("Settings", icon=":material/tune:", key="generate_settings"):
        fields.number("New tokens", "generate_new", 2, MOST_NEW)
        fields.number("Text, tokens", "generate_prompt", 2, context, placeholder="all that fit")
        look = {"disabled": not chosen["generate_question"], "help": KNOWN}
        st.toggle("Question seen before keys are dropped", key="generate_known", **look)
        st.toggle("Chat template", key="generate_chat", help="Used where the tokenizer has one.")
        _examples()
        for choice in choices:
            picker.settings(choice, context)
    return choices


def request(choices: list[Asked]) -> Generate:
    """What the present choices ask for."""
    chosen = st.session_state
    args = {"model": chosen["model"], "text": chosen["text"], "methods": [choice.spec for choice in choices]}
    question = (chosen["generate_question"] or "").strip()
    sizes = {"new_tokens": chosen["generate_new"], "length": chosen["generate_prompt"]}
    known = chosen["generate_known"] or not question
    about: dict[str, Any] = {"known": known, "chat": chosen["generate_chat"]}
    if chosen["generate_back"] and choices and choices[-1].settings.get("budget"):
        about["put_back"] = [int(part) for part in chosen["generate_back"].split(".")]
    return cached.request(Generate, **args, question=question, **sizes, **about)


def example() -> Generate:
    """What the bundled answer was asked."""
    about = {"model": "demo", "text": cached.sample("register"), "question": EXAMPLES[0][1]}
    return cached.request(Generate, **about, **FIRST)


def same_question(text: str, methods: list[dict]) -> Generate | None:
    """The question that is known for a text, to these methods; None where there is none."""
    question = st.session_state["generate_question"] or (EXAMPLES[0][1] if text == cached.sample("register") else None)
    if not question:
        return None
    sizes = FIRST | {"methods": methods, "new_tokens": SHORT_ANSWER}
    return cached.request(Generate, model=st.session_state["model"], text=text, question=question, **sizes)


def tokens(asked: Generate) -> int:
    """Tokens that a request reads and writes, which is what it costs."""
    inspected = asking.inspected()
    prompt = asked.length or min(inspected["tokens"], inspected["max_positions"] - asked.new_tokens)
    sides = 1 + len(asked.methods or ()) + (asked.put_back is not None)
    return sides * (2 * prompt + asked.new_tokens)  # the answer is read again, watched


def _examples() -> None:
    """Questions that the bundled model answers right, and one that hangs on a key."""
    look: dict[str, Any] = {"on_click": _take, "type": "tertiary"}
    about = (cached.sample("register"), FILM["generate_question"], FILM)
    st.button("One key that decides an answer, under a budget", key="generate_film", args=about, **look)
    titles = dict(cached.samples())
    for place, (begin, question) in enumerate(EXAMPLES):
        key = next(key for key, title in titles.items() if title.startswith(begin))
        st.button(widgets.plain(question), key=f"generate_example_{place}", args=(key, question, {}), **look)


def _take(key: str, question: str, more: dict[str, Any]) -> None:
    clean = dict.fromkeys(("generate_prompt", "generate_at", "generate_back"))
    state.choose(st.session_state, **clean | {"text": key, "generate_question": question} | more)
