"""Ways from one page to another, and the end of a page: its papers as BibTeX, where its finding leads.

Links carry the selection.
"""

from collections.abc import Mapping
from typing import NoReturn

import streamlit as st

from analysis.declaration import in_address
from analysis.limits import limits
from analysis.papers.references import bibtex
from app import cached
from app.selection import state
from app.selection.menu import Page, place

CITE = "Cite: BibTeX of the papers behind this page"
CARRIED = ("model", "text", "router", "classroom")  # by every link


def cite(page: Page) -> None:
    """BibTeX of the papers that a page is about and of the methods whose results it shows, folded away; nothing where
    there are none."""
    methods: list[str] = []
    for run in cached.drawing().runs.values():
        asked = [*(run.request.get("methods") or []), run.request.get("method")]
        methods += [method.get("name", "") for method in asked if isinstance(method, dict)]
    entries = bibtex([*page.papers, *methods])
    if not entries:
        return
    expander = st.expander(CITE, icon=":material/menu_book:", key="cite", on_change="rerun")
    if expander.open:
        with expander:
            st.code(entries, language="bibtex", wrap_lines=True)


def found(**controls: object) -> None:
    """What the page shows, such as the strongest pair's head, where nobody chose it: the links lead there."""
    assert controls.keys() <= state.CONTROLS.keys(), controls
    cached.drawing().in_view = controls


def carried(names: tuple[str, ...]) -> dict[str, str]:
    """The controls of a link, as they stand in the URL: what the page found before what was chosen."""
    values = {name: st.session_state[name] for name in (*CARRIED, *names)}
    values |= {name: value for name, value in cached.drawing().in_view.items() if name in values}
    return {name: in_address(value) for name, value in values.items() if value is not None and value is not False}


def links(page: Page) -> None:
    """The links at the end of a page."""
    offered = [lead for lead in page.leads if lead[0] != "runs" or not limits().demo]
    if not offered:
        return
    st.divider()
    with st.container(horizontal=True, vertical_alignment="center", key="onward"):
        st.markdown("**Next**", width="content")
        for name, label, *names in offered:
            link(name, label, carried(tuple(names)))


def link(name: str, label: str, controls: Mapping[str, str] | None = None, icon: str = "arrow_forward") -> None:
    """A link to a page, by its name in the menu. `controls`: of the address, as `carried` spells them."""
    view, query = place(name, controls)
    # The label says it; without `help` it would be what the menu says of the door.
    st.page_link(view, label=label, icon=f":material/{icon}:", query_params=query, help="")


def go(name: str, controls: Mapping[str, str] | None = None) -> NoReturn:
    """Open a page at once."""
    view, query = place(name, controls)
    st.switch_page(view, query_params=query)
