"""The tab on ablations: every stored study that says what is drawn of it, as small multiples with its rows."""

import streamlit as st

from analysis.package import PROGRAM
from analysis.studies.registry import ABLATIONS, STORED, of_file
from app.ui import asking, fields, stored, study as study_panels, widgets


def tab() -> None:
    """One stored study at a time: its sentence, its panels, its rows, the command."""
    model = st.session_state["model"]
    listed = [name for name in asking.study_names(model) if shown_here(name)]
    names = [name for name in listed if (study := asking.study(model, name)[0]) and study.panels]
    if not names:
        stored.missing("An ablation", "NAME")
        st.caption(f"The names of the studies stand in: {PROGRAM} study --help")
        return
    widgets.settled("ablation", [None, *names], None)
    default = st.session_state["ablation"] or names[0]
    chosen = fields.pick(st.selectbox, "Study", names, "ablation", default, format_func=_titled, width=480)
    study = asking.study(model, chosen)[0]
    stored.told(chosen, study)
    study_panels.drawn(study, "ablation", name=chosen)


def shown_here(name: str) -> bool:
    """Whether the stored study of this name has no other page."""
    study = STORED.get(of_file(name)[0])
    return study is None or study.page == ABLATIONS


def _titled(name: str) -> str:
    kind, router = of_file(name)
    return ", ".join(filter(None, [STORED[kind].title if kind in STORED else kind, router]))
