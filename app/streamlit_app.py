"""The app's entry: pages, the top bar, what every page begins and ends with. Run it with `python run.py`; it never
imports torch."""

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from analysis.errors import BadModel, TooLarge
from analysis.limits import limits
from app import cached, topbar
from app.selection import state
from app.serve import sharing
from app.ui import asking, chips, cite, classroom, fields, jobs, onward, repeat, widgets

TEXT, GROUPS = "text model", "text model groups"  # chips of the top bar
VIEWS = {  # heading of the menu -> its views: file, title, the chips it uses, the question it answers
    "Look": [
        ("start", "Start", GROUPS, "What the model reads in this text."),
        ("tour", "60-second tour", "", "What attention reads, in five steps on a bundled text."),
        ("long_range_pairs", "Long-range pairs", GROUPS, "Which far-apart tokens belong together."),
        ("attention_heads", "Attention heads", TEXT, "What each head reads, and what one token reads through it."),
        ("softmax_temperature", "Softmax temperature", TEXT, "What sharpening does to every head and the predictions."),
        ("token_groups", "Token groups", GROUPS, "Which tokens the model learned to treat alike."),
    ],
    "Shrink": [
        ("kv_budgets", "KV budgets", TEXT, "How many keys each head needs, and where reading fewer breaks."),
        ("routing", "Routing", TEXT, "Whether a router finds the attention without looking at every key."),
        ("quality_vs_speed", "Quality vs speed", GROUPS, "What reading less costs on this text, and gains here."),
        ("generate", "Generate", GROUPS, "What it still answers when it reads or keeps less, token by token."),
    ],
    "Decide": [
        (
            "is_it_worth_it",
            "Is it worth it?",
            "model",
            "What sparse attention could gain at most, from a model's shape.",
        ),
        ("speed", "Speed", GROUPS, "How much time sparse inference saves on this machine, against the fastest dense."),
        ("long_context_tests", "Long-context tests", GROUPS, "How far back it can find something and use it."),
    ],
    "Lab": [
        ("train_a_router", "Train a router", GROUPS, "Training, routing collapse, the causality check and ablations."),
        ("papers_vs_measured", "Papers vs measured", "model", "Every row that the papers print, beside ours."),
        ("runs", "Runs", "", "What was computed here: search, open, pin, compare, take it elsewhere."),
    ],
}

# Pages that ask what far reading is worth open with the text in which it decides, as long as none was chosen.
REGISTER = {"quality-vs-speed", "generate", "long-context-tests"}


def offered() -> dict[str, list]:
    """The pages of the menu, each at the address of its name; a shared demo has no list of runs."""
    return {
        heading: [
            st.Page(
                f"views/{name}.py", title=title, url_path=name.replace("_", "-"), help=help, default=name == "start"
            )
            for name, title, _, help in views
            if name != "runs" or not limits().demo  # stored runs are those of all readers
        ]
        for heading, views in VIEWS.items()
    }


st.set_page_config(page_title="Focuscope", layout="wide", initial_sidebar_state="auto")
st.html(widgets.STYLE)
if not sharing.admitted():
    st.stop()
bare = bool(st.context.is_embedded)  # embed=true in a link: a page inside another one, without what stands around it
page = st.navigation(offered(), expanded=True, position="hidden" if bare else "sidebar")
st.session_state["page_shown"] = page.url_path

cached.drawn_anew()
dropped = [*widgets.drawn_before(), *state.read(st.session_state, st.query_params)]
context = get_script_run_ctx()
address = context.pages_manager.intended_page_name if context else ""
if address and address != page.url_path:
    dropped.append(f"There is no page at the address “{address}”: this is {page.title}, the menu has the others.")
if classroom.on():
    st.html(classroom.STYLE)
wanted = st.session_state.pop("model_wanted", None)
if wanted:
    chips.use_model(wanted)

with widgets.guarded():
    cached.jobs()
    usual = cached.sample("register" if page.url_path in REGISTER else "story")
    gone = state.follow(st.session_state, "text", list(cached.texts()), usual)
    if gone:
        dropped.append("The link's text is not stored on this machine; a bundled sample is shown instead.")
    fields.write_address()
    if not bare:
        topbar.topbar(next(chips for views in VIEWS.values() for _, title, chips, _ in views if title == page.title))
    for sentence in dropped:
        widgets.dropped(sentence)
    with widgets.guarded():
        jobs.strip()
    onward.begin()
    repeat.begin()
    with widgets.guarded() as troubles:
        page.run()
    if any(isinstance(trouble, (BadModel, TooLarge)) for trouble in troubles):
        st.button("Back to the bundled model", on_click=chips.use_model, args=("demo",), key="way_back")
    later = st.container()
    if not bare:
        with widgets.guarded():
            repeat.rest()
            cite.show(page.url_path)
        with widgets.guarded():
            onward.show(page.url_path)
    with later, widgets.guarded():  # drawn last, because it may take long
        asking.rest()

st.session_state[asking.SHOWN] = asking.subject()
fields.write_address()  # a page may have settled a value, such as the layer it opens with
