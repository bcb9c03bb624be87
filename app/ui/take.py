"""Export: the setting of a result as a zip that runs on torch and transformers, without this program."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from analysis.commands.quality import Take
from analysis.runs import Run
from app import cached
from app.ui import widgets

ABOUT = (
    "A zip for your own code: the setting, its tensors, and one Python file that makes a transformers model read this "
    "way. It needs torch and transformers, and nothing from here."
)


def offer(settings: Mapping[str, tuple[Run, dict]], key: str) -> None:
    """The button, which opens on what it makes. `settings`: the name of a setting -> the run that it stands in, and the
    method as that run was asked for it. `key` begins the keys of what is drawn."""
    if not settings:
        return
    with st.popover("Export", icon=":material/luggage:", key=f"{key}_take"):
        widgets.prose(ABOUT, "quiet")
        name = st.selectbox("Method", list(settings), key=f"{key}_taken") if len(settings) > 1 else next(iter(settings))
        run, method = settings[name]
        request = Take.from_arguments({"run": run.id, "method": method, "model": st.session_state["model"]})
        look: dict[str, Any] = {"type": "primary", "icon": ":material/folder_zip:"}
        with widgets.guarded():
            taken = cached.store().find(request)
            if taken is None and st.button("Make the zip", key=f"{key}_make", **look):
                with st.spinner("Packing the setting"):
                    taken = cached.jobs().compute(request, timeout=cached.PATIENCE)
            if taken is not None:
                _download(taken, key)


def _download(taken: Run, key: str) -> None:
    name, size = taken.numbers["file"], taken.numbers["bytes"]
    st.download_button(
        f"{name}, {size / 1e3:,.0f} kB",
        lambda: cached.array(taken, "zip").tobytes(),
        file_name=name,
        mime="application/zip",
        key=f"{key}_zip",
        icon=":material/download:",
        on_click="ignore",
    )
    st.code(taken.numbers["readme"], language="markdown", wrap_lines=True)
