"""The app's entry: page, shared choices, navigation. Run it with `python run.py`; it never imports torch."""

import streamlit as st

from analysis.errors import BadModel
from analysis.limits import limits
from app import cached, sidebar
from app.selection import state
from app.serve import sharing
from app.ui import fields, jobs, widgets

VIEWS = {
    "Start": [st.Page("views/start.py", title="Start", default=True, help="What the model reads in this text.")],
    "Look": [
        st.Page(
            "views/attention_heads.py",
            title="Attention heads",
            url_path="attention-heads",
            help="What each head reads, and what one token reads through it.",
        ),
        st.Page(
            "views/token_groups.py",
            title="Token groups",
            url_path="token-groups",
            help="Which tokens the model learned to treat alike.",
        ),
        st.Page(
            "views/long_range_pairs.py",
            title="Long-range pairs",
            url_path="long-range-pairs",
            help="Which far-apart tokens belong together.",
        ),
    ],
    "Sparsify": [
        st.Page(
            "views/kv_budgets.py",
            title="KV budgets",
            url_path="kv-budgets",
            help="How many keys each head needs, and where reading fewer breaks.",
        ),
        st.Page(
            "views/softmax_temperature.py",
            title="Softmax temperature",
            url_path="softmax-temperature",
            help="What sharpening attention does to every head and to the predictions.",
        ),
        st.Page(
            "views/routing.py",
            title="Routing",
            url_path="routing",
            help="Whether a router finds the attention without looking at every key.",
        ),
    ],
    "Decide": [
        st.Page(
            "views/is_it_worth_it.py",
            title="Is it worth it?",
            url_path="is-it-worth-it",
            help="What sparse attention could gain at most, from the model's shape alone.",
        ),
        st.Page(
            "views/quality_vs_speed.py",
            title="Quality vs speed",
            url_path="quality-vs-speed",
            help="What reading less costs on this text, and what it gains on this machine.",
        ),
        st.Page(
            "views/long_context_tests.py",
            title="Long-context tests",
            url_path="long-context-tests",
            help="How far back it can find something and use it, beside chance.",
        ),
    ],
    "Evidence": [
        st.Page(
            "views/train_a_router.py",
            title="Train a router",
            url_path="train-a-router",
            help="Training, routing collapse, the causality check and ablations.",
        ),
        st.Page(
            "views/papers_vs_measured.py",
            title="Papers vs measured",
            url_path="papers-vs-measured",
            help="Every row that the papers print, beside what was measured here.",
        ),
        st.Page(
            "views/runs.py",
            title="Runs",
            url_path="runs",
            help="What was computed here: search, open, pin, compare, take it elsewhere.",
        ),
    ],
}

st.set_page_config(page_title="Focuscope", layout="wide", initial_sidebar_state="auto")
st.html(widgets.STYLE)
if not sharing.admitted():
    st.stop()
if limits().demo:  # stored runs are those of all readers
    VIEWS["Evidence"] = [page for page in VIEWS["Evidence"] if page.url_path != "runs"]
page = st.navigation(VIEWS, expanded=True)
st.session_state["page_shown"] = page.url_path

dropped = state.read(st.session_state, st.query_params)
wanted = st.session_state.pop("model_wanted", None)
if wanted:
    sidebar.use_model(wanted)

with widgets.guarded():
    cached.jobs()
    gone = state.settle(st.session_state, "text", list(cached.texts()), cached.samples()[0][0])
    if gone:
        dropped.append("The link's text is not stored on this machine; the first sample is shown instead.")
    fields.write_address()
    for sentence in dropped:
        st.caption(widgets.plain(sentence))
    sidebar.sidebar()
    with widgets.guarded():
        jobs.strip()
    with widgets.guarded() as troubles:
        page.run()
    if any(isinstance(trouble, BadModel) for trouble in troubles):
        st.button("Back to the bundled model", on_click=sidebar.use_model, args=("demo",), key="way_back")

fields.write_address()  # a page may have settled a value, such as the layer it opens with
