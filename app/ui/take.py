"""Export: the setting of a result as a zip that runs on torch and transformers, without this program."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from analysis.commands.quality import Take
from analysis.runs import Run
from app import cached
from app.ui import widgets

# Said before anybody downloads, by what a method saves.
GAINS = {
    "memory": "It drops keys after the prompt, so the KV cache shrinks; plain torch, no fast kernel.",
    "reads": "It masks what is not read: it shows the quality, and saves neither time nor memory.",
    "prefill": "It masks what is not read: it shows the quality, and saves neither time nor memory.",
}
LEAVES = {"exported": True}


def offer(settings: Mapping[str, tuple[Run, dict]], key: str) -> None:
    """The button, which opens on what it makes; there is none for methods that cannot leave.
    `settings`: the name of a setting -> the run that it stands in, and the method as that run was asked for it. `key`
    begins the keys of what is drawn."""
    methods = cached.catalogue()
    # A stored run may hold a method that is not known here.
    stays = [label for label, (_, method) in settings.items() if not methods.get(method["name"], LEAVES)["exported"]]
    settings = {label: setting for label, setting in settings.items() if label not in stays}
    if not settings or in_a_class():
        return
    with st.popover("Export", icon=":material/folder_zip:", key=f"{key}_take"):
        name = st.selectbox("Method", list(settings), key=f"{key}_taken") if len(settings) > 1 else next(iter(settings))
        run, method = settings[name]
        widgets.prose("One Python file, the setting and its tensors, for torch and transformers.", "quiet")
        if about := methods.get(method["name"]):
            widgets.prose(GAINS[about["saves"]], "note")
        button(Take.from_arguments({"run": run.id, "method": method, "model": st.session_state["model"]}), key)


def in_a_class() -> bool:
    """Whether nothing is taken along, as a class only looks."""
    return bool(st.session_state.get("classroom"))


def button(request: Take, key: str) -> None:
    """Makes the zip, then hands it over."""
    if in_a_class():
        return
    with widgets.guarded():
        stored = cached.store().find(request)
        look: dict[str, Any] = {"type": "primary", "icon": ":material/folder_zip:"}
        if stored is None and st.button("Make the zip", key=f"{key}_make", **look):
            with st.spinner("Packing the setting"):
                stored = cached.jobs().compute(request, timeout=cached.PATIENCE)
        if stored is not None:
            name, size = stored.numbers["file"], stored.numbers["bytes"]
            download(stored, name, key, f"{name}, {size / 1e3:,.0f} kB")
            with st.popover("What is in it", type="tertiary"):
                st.code(stored.numbers["readme"], language="markdown", wrap_lines=True)


def download(run: Run, name: str, key: str, label: str = "") -> None:
    """Hands over the zip that a run keeps."""
    st.download_button(
        label or name,
        lambda: cached.array(run, "zip").tobytes(),
        file_name=name,
        mime="application/zip",
        key=f"{key}_zip",
        icon=":material/download:",
        on_click="ignore",
    )
