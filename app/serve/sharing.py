"""An app that several people share: who may come in, and what one reader sees of another."""

import streamlit as st

from analysis.limits import limits
from app.ui import widgets

OWN = "own_texts"  # hashes of the texts that this session brought
AT_HOME = "Your text stays on this machine."
SHARED = "Your text stays on the machine that serves this page; other readers are not shown it."


def private() -> str:
    """Where a reader's text stays."""
    return SHARED if limits().demo else AT_HOME


def mine(key: str) -> None:
    """This session brought a text."""
    st.session_state[OWN] = [*st.session_state.get(OWN, []), key]


def shown(texts: dict[str, str], samples: list[str]) -> dict[str, str]:
    """hash -> title of the texts that this session is offered: in a demo the samples, its own, and that of its link."""
    if not limits().demo:
        return texts
    known = {*samples, *st.session_state.get(OWN, []), st.session_state.get("text")}
    return {key: title for key, title in texts.items() if key in known}


def admitted() -> bool:
    """Whether this reader may go on. Without a section [auth] in the secrets everybody may; with one, whoever has
    signed in with its provider and stands in `allowed` of [focuscope]: an address, or @ with a domain."""
    if not st.secrets.load_if_toml_exists() or "auth" not in st.secrets:
        return True
    if not st.user.is_logged_in:
        st.title("Focuscope", anchor=False)
        st.button("Sign in", on_click=st.login, type="primary", key="sign_in")
        return False
    address = str(st.user.get("email") or "")
    allowed = list(st.secrets.get("focuscope", {}).get("allowed", []))
    if allowed and (st.user.get("email_verified") is False or not any(_matches(address, one) for one in allowed)):
        st.title("Focuscope", anchor=False)
        st.error(widgets.plain(f"{address or 'This account'} is not on the list of this installation: ask its owner."))
        st.button("Sign out", on_click=st.logout, key="sign_out")
        return False
    return True


def _matches(address: str, allowed: str) -> bool:
    address, allowed = address.lower(), str(allowed).lower()
    return address.endswith(allowed) if allowed.startswith("@") else bool(address) and address == allowed
