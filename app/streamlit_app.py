"""The app's entry: the doors, the top bar, what every page begins and ends with. Run it with `python run.py`; it never
imports torch."""

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import cached, topbar
from app.selection import state
from app.selection.look import TOUR_STEPS
from app.selection.menu import DOORS, FIRST, MOVED
from app.serve import memory, sharing
from app.tour import steps
from app.ui import asking, chips, door, fields, foot, head_cards, jobs, share, widgets
from app.ui.painted import PARTS
from app.worth import banner

# Doors whose pages measure the loaded model, while a reader may decide on another one.
MEASURING = {"read", "heads", "cut"}
# Pages that ask what far reading is worth open with the text in which it decides, as long as none was chosen.
REGISTER = {"methods", "generate", "tests"}
SIDEBAR = 200  # pixels
NAME = PARTS / "name.svg"


def offered() -> list:
    """The doors, and unseen in the menu every address of an earlier version."""
    doors = [
        st.Page(
            one.view,
            title=one.title,
            # The first door has no address of its own, and no other page may have this one.
            url_path="home" if one is FIRST else one.name,
            help=" ".join(page.answers for page in door.pages_of(one)),
            default=one is FIRST,
        )
        for one in DOORS.values()
    ]
    earlier = [st.Page(_moved, title="Focuscope", url_path=address, visibility="hidden") for address in MOVED]
    return [*doors, *earlier]


def aside() -> None:
    """The foot of the menu: the tour, and what stands behind each door."""
    page, controls = steps.stop(next(iter(TOUR_STEPS)))
    foot.link(page, "Tour", foot.carried(()) | controls, icon="play_circle")
    with st.popover("Help", icon=":material/help:", type="tertiary", key="help"):
        for one in DOORS.values():
            st.markdown(f"**{one.title}**  \n" + " ".join(page.answers for page in door.pages_of(one)))
        st.caption("Tab and the arrow keys reach every control, every token of a text, every head of a map.")


def _moved() -> None:
    """Of an address of an earlier version: `foot.go` leaves it before anything is drawn."""


st.set_page_config(page_title="Focuscope", layout="wide", initial_sidebar_state=SIDEBAR)
st.html(PARTS / "page.css")
if not sharing.admitted():
    st.stop()
# Embed=true in a link: a page inside another one, without what stands around it.
bare = bool(st.context.is_embedded)
view = st.navigation(offered(), expanded=True, position="hidden" if bare else "sidebar")
if not bare:
    st.logo(NAME, size="large")
    # The icons of the doors, in the font that Streamlit serves: icons of pages would become those of the browser's tab,
    # which are fetched from another machine. Empty to the ear: an icon's name is no part of the name of its door.
    rules = [
        f'[data-testid="stSidebarNav"] li:nth-child({place}) a::before {{ content: "{icon}"; content: "{icon}" / ""; }}'
        for place, icon in enumerate((entry.icon for entry in DOORS.values()), 1)
    ]
    st.html(f"<style>{' '.join(rules)}</style>")
if view.url_path in MOVED:
    begun = {"step": next(iter(TOUR_STEPS))} if view.url_path == "tour" else {}
    foot.go(MOVED[view.url_path], begun | st.query_params.to_dict())

cached.drawn_anew()
# What had to go of the link is said again where the page was drawn anew by itself.
dropped = [*st.session_state.pop(widgets.REDRAWN, []), *state.read(st.session_state, st.query_params)]
st.session_state[widgets.DROPPED] = []
# The page of this door that the selection opens; the first one needs no name.
pages, at = door.pages_of(DOORS[view.url_path or FIRST.name]), st.session_state["at"]
about = next((page for page in pages if page.name == at), pages[0])
if at not in (None, about.name) and "at" in st.session_state[state.LINKED]:
    dropped.append(state.unusable("at", at))
if about is pages[0]:
    state.choose(st.session_state, at=None)
st.session_state["page_shown"] = about.name
context = get_script_run_ctx()
address = context.pages_manager.intended_page_name if context else ""
if address and address != view.url_path:
    dropped.append(f"There is no page at the address “{address}”: this is {about.called}, the menu has the others.")
if st.session_state["classroom"]:
    st.html(PARTS / "classroom.css")
wanted = st.session_state.pop("model_wanted", None)
if wanted:
    chips.use_model(wanted)

with widgets.guarded():
    cached.jobs()
    usual = cached.sample("register" if about.name in REGISTER else "story")
    if state.follow(st.session_state, "text", list(cached.texts()), usual):
        dropped.append("The link's text is not stored on this machine; a bundled sample is shown instead.")
    fields.write_address()
    if not bare:
        sharing_place = topbar.topbar(about.chips)
        with st.sidebar.container(key="aside"), widgets.guarded():
            aside()
        if about.door.name in MEASURING:
            banner.show()
    for sentence in dict.fromkeys(dropped):
        widgets.dropped(sentence)
    widgets.each(jobs.strip, steps.strip)
    with widgets.guarded():
        view.run()
    later = st.container()
    with widgets.guarded():
        if cached.card(st.session_state["model"]) is not None:
            head_cards.ON_HOVER(key="head_names", data={"cards": head_cards.cards()})
    if not bare:
        with widgets.guarded():
            foot.links(about)
        with sharing_place, widgets.guarded():
            share.contents(about)
    # Drawn last, because it may take long.
    with later, widgets.guarded():
        asking.rest()

st.session_state[asking.SHOWN] = asking.subject()
memory.trim()
# A page may have settled a value, such as the layer it opens with.
fields.write_address()
