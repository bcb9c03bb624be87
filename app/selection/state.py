"""What the reader chose: one shared selection that drives every page and stands in the URL.

Pure functions over two mappings, the session (`st.session_state`) and the address (`st.query_params`), so that they
are tested without a browser. The controls themselves stand in `controls`, and in the rooms that declare them.
"""

import re
from collections.abc import Mapping, MutableMapping

from analysis.declaration import in_address as to_url
from app.selection.controls import CONTROLS

# Name -> value, kept over pages (a widget's own entry dies with the page that shows it).
CHOSEN = "_chosen"
# Name -> text, what this session last put into the URL.
WRITTEN = "_written"
# Controls that mean nothing in another text.
INSIDE_A_TEXT = ("pair", "quality_token", "query", "tile", "why_key")
# Another one of these has another key, unless that comes with it.
HAVE_A_KEY = {"layer", "head", "query"}
# Names that the URL brought into this run: a link was opened.
LINKED = "_linked"


def read(session: MutableMapping, params: Mapping[str, str]) -> list[str]:
    """Settle every control at the start of a run; returns one sentence for each entry of the link that was dropped.

    The URL wins where it differs from what this session wrote last (a link was opened, or Back was pressed);
    otherwise the widget wins; otherwise the value chosen on another page stays. `head=3.6` names a layer and a head.
    """
    if re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}", params.get("head", "")):
        params = dict(params) | dict(zip(("layer", "head"), params["head"].split("."), strict=True))
    chosen = session.setdefault(CHOSEN, {name: control.default for name, control in CONTROLS.items()})
    keep(session)
    written, dropped = session.get(WRITTEN, {}), []
    linked = session[LINKED] = {name for name, raw in params.items() if raw != written.get(name)}
    if linked & HAVE_A_KEY and "why_key" not in params:
        chosen["why_key"] = None
    for name, control in CONTROLS.items():
        if name in linked:
            try:
                chosen[name] = control.from_address(params[name])
            except ValueError:
                dropped.append(unusable(name, params[name]))
        session[name] = chosen[name]
    unknown = [name for name in params if name not in CONTROLS]
    if unknown:
        dropped.append(f"The link carries {_quoted(unknown[0])}, which means nothing here; it was dropped.")
    return dropped


def keep(session: MutableMapping) -> None:
    """Before anything is drawn, of a page or of a fragment: what a widget holds becomes the selection, and every entry
    is written again. Streamlit drops the entries of widgets that a run does not draw, except those this run wrote. The
    URL has brought nothing into this run, unless `read` finds otherwise."""
    chosen, session[LINKED] = session[CHOSEN], set()
    for name in CONTROLS:
        chosen[name] = session[name] = session.get(name, chosen[name])


def address(session: Mapping) -> dict[str, str]:
    """The URL's parameters for the present selection: only what differs from the default."""
    # Looked up once: each look into Streamlit's session takes microseconds, and there are hundreds of controls.
    wanted, chosen = {}, session[CHOSEN]
    for name, control in CONTROLS.items():
        value = chosen[name]
        if value is not None and value != control.default:
            # A word stands as it is.
            wanted[name] = value if isinstance(value, str) else to_url(value)
    return wanted


def write(session: MutableMapping, params: Mapping[str, str]) -> dict[str, str] | None:
    """The parameters the URL should get now, or None when it already has them. What a fragment, which runs alone, let
    somebody choose since the page was read is kept here."""
    chosen = session[CHOSEN]
    for name in CONTROLS:
        chosen[name] = session.get(name, chosen[name])
    wanted = session[WRITTEN] = address(session)
    return wanted if dict(params) != wanted else None


def choose(session: MutableMapping, **values: object) -> None:
    """Set controls from code: a callback, or a page before its widgets are drawn."""
    if values.keys() & HAVE_A_KEY:
        values = {"why_key": None} | values
    for name, value in values.items():
        assert name in CONTROLS, name
        session[name] = session[CHOSEN][name] = value


def settle(session: MutableMapping, name: str, options: list, default: object) -> str | None:
    """Keep a control inside what this model and text offer; returns a sentence when a value had to go."""
    value = session[CHOSEN][name]
    if value in options:
        return None
    choose(session, **{name: default})
    return None if value is None else unusable(name, to_url(value))


def follow(session: MutableMapping, name: str, options: list, usual: object) -> str | None:
    """Keep a control inside `options`, and as long as nobody chose a value, at what this page opens with: `usual`."""
    mark = f"{name}_unchosen"
    if name not in session[LINKED] and session[CHOSEN][name] == session.get(mark):
        choose(session, **{name: None})
    unchosen = session[CHOSEN][name] is None
    sentence = settle(session, name, options, usual)
    session[mark] = session[CHOSEN][name] if unchosen else None
    return sentence


def unusable(name: str, raw: str) -> str:
    """The sentence about a value that was dropped."""
    called = CONTROLS[name].label
    return f"The link's {called} {_quoted(raw)} is not available here; it was dropped."


def _quoted(raw: str) -> str:
    return f"“{raw[:40]}…”" if len(raw) > 40 else f"“{raw}”"


def pair_key(layer: int, head: int, query: int, key: int) -> str:
    """How one (query, key) pair of one head is named in the URL."""
    return f"{layer}.{head}.{query}.{key}"


def study_args(session: Mapping, *names: str, **arguments: object) -> dict:
    """The arguments of a study from the selection: the text and model always, `names` besides, `arguments` as given."""
    chosen = session[CHOSEN]
    args = {name: chosen[name] for name in ("model", "text", "long_text", *names)}
    return args | arguments
