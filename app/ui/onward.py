"""Next: where the finding of each page leads. Links carry the selection, as any link of the app does."""

import streamlit as st

from analysis.declaration import in_address as to_url
from analysis.limits import limits
from app.selection import state

FOUND = "_found"  # of the session: control -> value, what the page shows without it being chosen
CARRIED = ("model", "text", "router", "classroom")  # by every link
NEXT = {  # address of a page -> (view, what it tells, controls that the link carries besides)
    "": (
        ("attention_heads", "The head that reads this pair", ("layer", "head", "query")),
        ("long_range_pairs", "All far pairs of this text", ("pair",)),
        ("is_it_worth_it", "What reading less could gain", ()),
    ),
    "tour": (("start", "A text of your own", ()), ("is_it_worth_it", "What reading less could gain", ())),
    "long-range-pairs": (
        ("attention_heads", "The head that reads this pair", ("layer", "head", "query")),
        ("token_groups", "The group that holds it", ("layer", "group")),
    ),
    "attention-heads": (
        ("kv_budgets", "How many keys this head needs", ("budget_cells",)),
        ("softmax_temperature", "This head, sharpened", ("layer", "head", "query")),
        ("routing", "Whether a router finds what it reads", ()),
    ),
    "softmax-temperature": (
        ("attention_heads", "All that this head reads", ("layer", "head", "query")),
        ("quality_vs_speed", "What sharpening does to the predictions, beside other methods", ()),
    ),
    "token-groups": (
        ("long_range_pairs", "Far pairs of these groups", ("layer", "group")),
        ("quality_vs_speed", "What reading only these groups costs", ()),
    ),
    "kv-budgets": (
        ("quality_vs_speed", "This budget beside other methods", ()),
        ("speed", "How much time it saves here", ()),
    ),
    "routing": (
        ("quality_vs_speed", "What reading only those buckets costs", ()),
        ("kv_budgets", "How many keys a head needs at all", ()),
    ),
    "quality-vs-speed": (
        ("speed", "How much time it saves here", ()),
        ("generate", "What it still answers", ()),
        ("long_context_tests", "Whether it still finds what stands far back", ()),
    ),
    "generate": (
        ("speed", "The same timed in rounds", ()),
        ("quality_vs_speed", "What reading less costs on this text", ()),
        ("long_context_tests", "Whether it still finds what stands far back", ()),
    ),
    "is-it-worth-it": (
        ("quality_vs_speed", "What reading less costs on your text", ()),
        ("speed", "What it saves on this machine", ()),
    ),
    "speed": (
        ("generate", "Watch it write, dense and sparse", ()),
        ("runs", "Take it with you: the numbers, as a bundle", ()),
        ("is_it_worth_it", "What longer contexts could gain", ()),
    ),
    "long-context-tests": (
        ("quality_vs_speed", "What reading less costs on your text", ()),
        ("runs", "Take it with you: the numbers, as a bundle", ()),
    ),
    "train-a-router": (
        ("token_groups", "What its groups hold", ()),
        ("quality_vs_speed", "What reading only these groups costs", ()),
    ),
    "papers-vs-measured": (("train_a_router", "Train the router of a row", ()), ("runs", "All runs", ())),
    "runs": (("papers_vs_measured", "The papers' numbers beside these", ()), ("start", "Another text", ())),
}


def found(**controls: object) -> None:
    """What the page shows, such as the strongest pair's head, where nobody chose it: the links lead there."""
    for name in controls:
        assert name in state.CONTROLS, name
    st.session_state[FOUND] = controls


def carried(names: tuple[str, ...]) -> dict[str, str]:
    """The controls of a link, as they stand in the URL: what the page found before what was chosen."""
    in_view = st.session_state.get(FOUND, {})
    values = {name: in_view.get(name, st.session_state[name]) for name in (*CARRIED, *names)}
    return {name: to_url(value) for name, value in values.items() if value is not None and value is not False}


def begin() -> None:
    """A page is about to be drawn: what another one found leads nowhere here."""
    st.session_state[FOUND] = {}


def show(page: str) -> None:
    """The links at the end of the page at an address."""
    offered = [link for link in NEXT.get(page, ()) if link[0] != "runs" or not limits().demo]
    if not offered:
        return
    st.divider()
    with st.container(horizontal=True, vertical_alignment="center", key="onward"):
        st.markdown("**Next**", width="content")
        for view, label, names in offered:
            st.page_link(f"views/{view}.py", label=label, icon=":material/arrow_forward:", query_params=carried(names))
