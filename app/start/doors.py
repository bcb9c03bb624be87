"""What this is, in one sentence, and the three ways in."""

import streamlit as st

from app.ui import widgets

STYLE = """<style>
.fs-brand { margin: 0; max-width: 60rem; font-size: 1.05rem; line-height: 1.5; }
.fs-brand b { font-size: 1.35rem; margin-right: 0.4rem; }
.st-key-doors [data-testid="stPageLink"] p { font-size: 1.08rem; font-weight: 600; }
</style>"""
BRAND = (
    "<p class='fs-brand'><b>Focuscope</b> shows what a language model reads far back in a text, and what reading less "
    "would cost and gain.</p>"
)
DOORS = (  # view, title, icon, what is behind it
    ("long_range_pairs", "Explore a text", "search", "Which distant words belong together, and which head finds them."),
    ("is_it_worth_it", "Will it pay?", "speed", "What sparse attention could save, from a model's config alone."),
    ("tour", "60-second tour", "play_circle", "Five pictures: a token, a head, a far pair, sharper, cut to 10%."),
)


def doors() -> None:
    """The product's name, its sentence, and the doors."""
    st.html(STYLE + BRAND)
    with st.grid(3, min_column_width=240, gap="small", key="doors"):
        for view, title, icon, about in DOORS:
            with st.container(border=True, gap=None):
                st.page_link(f"views/{view}.py", label=title, icon=f":material/{icon}:")
                widgets.prose(about, "quiet")
