"""Where a picture or a table comes from: what stands on everything that leaves a page."""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlencode

import streamlit as st

from app import cached
from app.selection import state

HOW = "pandas.read_csv(FILE, comment='#')"


def facts(title: str) -> dict[str, str]:
    """Name -> words: title, page with its settings (its address here), model, text, the results that the page had read
    up to here with their protocol, versions, date."""
    chosen = st.session_state
    controls = {name: raw for name, raw in state.address(chosen).items() if name != "job"}
    card = cached.card(chosen["model"])
    revision = f" (revision {card.numbers['revision']})" if card and "revision" in card.numbers else ""
    runs = cached.seen()
    versions = {name: stamped for run in runs for name, stamped in (run.protocol.get("versions") or {}).items()}
    stamped = {
        "title": title,
        "page": f"/{chosen.get('page_shown', '')}{'?' * bool(controls)}{urlencode(controls)}",
        "model": f"{chosen['model']}{revision}",
        "text": f"{_name_of(chosen['text'])} ({chosen['text']})",
        "results": "; ".join(f"{run.verb} {run.id}, computed {run.created[:16]}{_protocol(run)}" for run in runs),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "made with": f"Focuscope, {datetime.now().astimezone():%Y-%m-%d %H:%M %z}",
    }
    return {name: " ".join(words.split()) for name, words in stamped.items() if words}


def _name_of(text: str) -> str:
    return dict(cached.samples()).get(text) or cached.texts().get(text, "")


def _protocol(run) -> str:
    names = ("tokens", "window", "seed", "dtype", "device", "kernel", "threads")
    parts = [f"{name} {run.protocol[name]}" for name in names if run.protocol.get(name) is not None]
    return f" ({', '.join(parts)})" if parts else ""


def footer(facts: Mapping[str, str]) -> list[str]:
    """The lines below an exported picture."""
    first = [f"model {facts['model']}", f"text {facts['text']}", facts["made with"]]
    return [" · ".join(first), " · ".join(filter(None, [facts["page"], facts.get("versions")]))]
