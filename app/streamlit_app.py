"""The app's entry: pages, the top bar, what every page begins and ends with. Run it with `python run.py`; it never
imports torch."""

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from analysis.errors import BadModel, TooLarge
from analysis.limits import limits
from app import cached, topbar
from app.selection import state
from app.selection.menu import MENU, PAGES
from app.serve import sharing
from app.ui import asking, chips, fields, foot, jobs, repeat, widgets
from app.ui.painted import PARTS

# Pages that ask what far reading is worth open with the text in which it decides, as long as none was chosen.
REGISTER = {"quality-vs-speed", "generate", "long-context-tests"}


def offered() -> dict[str, list]:
    """The pages of the menu, each at the address of its name; a shared demo has no list of runs, which are those of all
    readers."""
    return {
        heading: [
            st.Page(
                f"views/{page.view}.py",
                title=page.title,
                url_path=page.view.replace("_", "-"),
                help=page.answers,
                default=page.address == "",
            )
            for page in pages
            if page.view != "runs" or not limits().demo
        ]
        for heading, pages in MENU.items()
    }


st.set_page_config(page_title="Focuscope", layout="wide", initial_sidebar_state="auto")
st.html(PARTS / "page.css")
if not sharing.admitted():
    st.stop()
# Embed=true in a link: a page inside another one, without what stands around it.
bare = bool(st.context.is_embedded)
page = st.navigation(offered(), expanded=True, position="hidden" if bare else "sidebar")
about = PAGES[page.url_path]
st.session_state["page_shown"] = page.url_path

cached.drawn_anew()
dropped = [*widgets.drawn_before(), *state.read(st.session_state, st.query_params)]
context = get_script_run_ctx()
address = context.pages_manager.intended_page_name if context else ""
if address and address != page.url_path:
    dropped.append(f"There is no page at the address “{address}”: this is {page.title}, the menu has the others.")
if st.session_state["classroom"]:
    st.html(PARTS / "classroom.css")
wanted = st.session_state.pop("model_wanted", None)
if wanted:
    chips.use_model(wanted)

with widgets.guarded():
    cached.jobs()
    usual = cached.sample("register" if page.url_path in REGISTER else "story")
    if state.follow(st.session_state, "text", list(cached.texts()), usual):
        dropped.append("The link's text is not stored on this machine; a bundled sample is shown instead.")
    fields.write_address()
    if not bare:
        topbar.topbar(about.chips)
    for sentence in dropped:
        widgets.dropped(sentence)
    with widgets.guarded():
        jobs.strip()
    with widgets.guarded() as troubles:
        page.run()
    if any(isinstance(trouble, (BadModel, TooLarge)) for trouble in troubles):
        st.button("Back to the bundled model", on_click=chips.use_model, args=("demo",), key="way_back")
    later = st.container()
    if not bare:
        widgets.each(repeat.rest, lambda: foot.cite(about), lambda: foot.links(about))
    # Drawn last, because it may take long.
    with later, widgets.guarded():
        asking.rest()

st.session_state[asking.SHOWN] = asking.subject()
# A page may have settled a value, such as the layer it opens with.
fields.write_address()
