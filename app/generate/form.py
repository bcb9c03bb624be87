"""What the page Generate asks for: a question, methods, sizes; and the request that they make."""

import streamlit as st

from app import cached
from app.quality import cards
from app.quality.words import Asked
from app.selection import state
from app.ui import asking, fields, widgets

MOST_NEW, MOST_METHODS = 256, 2
EXAMPLES = tuple(  # (beginning of a sample's title, question behind it): those that the bundled model answers right
    ("The Register", f"Who is the master of the {ship}? The master of the {ship} is")
    for ship in ("Nightjar", "Sparrowhawk", "Windhover", "Wanderer")
)
FIRST = {  # beside model, text and question: what is asked for as long as nothing was chosen
    "methods": [{"name": "snapkv", "settings": {"ratio": 0.75}}],
    **{"new_tokens": 48, "length": None, "known": True, "chat": True},
}
FAMILIES = {"memory": "keeps fewer keys", "prefill": "reads fewer blocks", "reads": "reads fewer keys"}


def form(card: dict) -> list[Asked]:
    """The controls; returns the methods that are asked for beside dense. The register opens with a question, as long as
    nobody typed one."""
    usual = EXAMPLES[0][1] if st.session_state["text"] == cached.sample("register") else None
    state.follow(st.session_state, "generate_question", [st.session_state["generate_question"] or usual], usual)
    described = cached.catalogue()
    offered = sorted((name for name in described if name != "dense"), key=lambda name: _order(described[name]))
    picker = cards.Picker("generate", tuple(offered), MOST_METHODS)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(
            "Question behind the text",
            key="generate_question",
            max_chars=300,
            placeholder="empty: the text goes on",
            help="Stands behind the text. Where the model has a chat template, both stand inside it.",
        )
        _examples()
    router = next((fitted for fitted in card["routers"] if fitted["name"] == st.session_state["router"]), {"name": ""})
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        names = picker.choose(described, 330)
        with st.popover("Settings", icon=":material/tune:", key="generate_settings", disabled=not names):
            choices = cards.cards(picker, described, names, router, card["max_positions"])
        fields.number("New tokens", "generate_new", 2, MOST_NEW, width=130)
        longest = card["max_positions"]
        fields.number("Text, tokens", "generate_prompt", 2, longest, placeholder="all that fit", width=140)
    with st.container(horizontal=True, gap="small"):
        st.toggle(
            "Question seen before keys are dropped",
            key="generate_known",
            disabled=not st.session_state["generate_question"],
            help="On: methods that drop keys know the question when they decide. Off: they decide when the text has "
            "been read, and the question comes after, as it does in a conversation about one document.",
        )
        st.toggle("Chat template", key="generate_chat", help="Used where the tokenizer has one.")
    return choices


def _order(about: dict) -> tuple[int, str]:
    return list(FAMILIES).index(about["saves"]), about["title"]


def request(choices: list[Asked]) -> dict:
    """The arguments of `generate` for the present choices."""
    chosen = st.session_state
    args = {"model": chosen["model"], "text": chosen["text"], "methods": [choice.spec for choice in choices]}
    args |= {"question": (chosen["generate_question"] or "").strip(), "new_tokens": chosen["generate_new"]}
    args |= {"length": chosen["generate_prompt"], "known": chosen["generate_known"] or not args["question"]}
    return args | {"chat": chosen["generate_chat"]}


def example() -> dict:
    """The arguments of the bundled answer."""
    return {"model": "demo", "text": cached.sample("register"), "question": EXAMPLES[0][1]} | FIRST


def tokens(args: dict) -> int:
    """Tokens that a request reads and writes, which is what it costs."""
    inspected = asking.inspected()
    prompt = args["length"] or min(inspected["tokens"], inspected["max_positions"] - args["new_tokens"])
    return (1 + len(args["methods"])) * (2 * prompt + args["new_tokens"])  # the answer is read again, watched


def _examples() -> None:
    titles = dict(cached.samples())
    examples = [
        (key, question) for begin, question in EXAMPLES for key, title in titles.items() if title.startswith(begin)
    ]
    with st.popover("Examples", icon=":material/auto_stories:", key="generate_examples"):
        for place, (key, question) in enumerate(examples):
            label = widgets.plain(f"{titles[key]}: {question}")
            st.button(label, key=f"generate_example_{place}", on_click=_take, args=(key, question), type="tertiary")


def _take(key: str, question: str) -> None:
    state.choose(st.session_state, text=key, generate_question=question, generate_prompt=None, generate_at=None)
