"""An app that several people share: who may come in, and what one reader sees of another."""

import logging
from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from analysis.errors import BadSetting
from analysis.limits import limits
from app.ui import widgets

log = logging.getLogger("focuscope.app")
# Hashes of the texts that this session brought.
OWN = "own_texts"
# Where a reader's text stays.
AT_HOME = "Your text stays on this machine."
SHARED = "Your text stays on the machine that serves this page; other readers are not shown it."


def mine(key: str) -> None:
    """This session brought a text."""
    st.session_state[OWN] = [*st.session_state.get(OWN, []), key]


def shown(texts: dict[str, str], samples: list[str]) -> dict[str, str]:
    """hash -> title of the texts that this session is offered: in a demo the samples, its own, and that of its link."""
    if not limits().demo:
        return texts
    visible = {*samples, *st.session_state.get(OWN, []), st.session_state.get("text")}
    return {key: title for key, title in texts.items() if key in visible}


def admitted() -> bool:
    """Whether this reader may go on. Where nobody signs in here everybody may; else who has signed in with the provider
    of [auth], whose address it calls verified, and who stands in `allowed` of [focuscope]."""
    try:
        allowed = _allowed()
    except BadSetting as error:
        log.error("%s", error)
        _refuse(str(error))
        return False
    if allowed is None:
        return True
    if not st.user.is_logged_in:
        st.title("Focuscope", anchor=False)
        st.button("Sign in", on_click=st.login, type="primary", key="sign_in")
        return False
    address = str(st.user.get("email") or "")
    reader, entries = address.lower(), [entry.lower() for entry in allowed]
    # Some providers leave it out, some send the word "false".
    if st.user.get("email_verified") is not True:
        _refuse(
            f"The provider does not call {address or 'this account'} verified: sign in with an address that it does."
        )
    elif any(reader.endswith(entry) if entry.startswith("@") else reader == entry for entry in entries):
        return True
    else:
        _refuse(f"{address or 'This account'} is not on the list of this installation: ask its owner.")
    st.button("Sign out", on_click=st.logout, key="sign_out")
    return False


def _refuse(why: str) -> None:
    st.title("Focuscope", anchor=False)
    st.error(widgets.plain(why))


def _allowed() -> list[str] | None:
    """Who may come in: addresses, and domains behind an @; None where the secrets say nothing of it. Errors: BadSetting
    where what they say is half, misspelt or cannot be read, because that must let nobody in."""
    # So it answers for a file with a slip too.
    if not st.secrets.load_if_toml_exists():
        unread = [path for path in st.get_option("secrets.files") if Path(path).exists()]
        why = f"{unread[0]} cannot be read" if unread else ""
    elif not {"auth", "focuscope"} & set(st.secrets):
        why = ""
    elif "auth" not in st.secrets:
        why = "the secrets have a section [focuscope] and no [auth]"
    else:
        section = st.secrets.get("focuscope")
        allowed = section.get("allowed") if isinstance(section, Mapping) else None
        if (
            isinstance(allowed, list)
            and allowed
            and all(isinstance(address, str) and "@" in address for address in allowed)
        ):
            return allowed
        why = "`allowed` in the section [focuscope] of the secrets is no list of addresses and @domains"
    if why:
        raise BadSetting(f"Nobody is let in here, because {why}: docs/sharing.md says how it is written.")
    return None
