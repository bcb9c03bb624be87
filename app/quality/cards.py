"""What the quality tab asks for: how much of the text, which methods, and their settings in one word of the URL.

Everything about a method comes from the worker's description of it: fields with range, help and price. A new one needs
no line here.
"""

import html

import streamlit as st

from app import cached
from app.quality import words
from app.quality.words import Asked
from app.selection import state
from app.ui import widgets

MOST, AT_FIRST = 6, 3  # methods at once beside dense; those shown when nothing was chosen
FIRST = 1024  # tokens read when nothing was chosen: a pass of the bundled model takes a second
SIZES = tuple(1 << power for power in range(7, 18))
WIDE = 128  # a whole number with a wider range moves in powers of two
BOUNDS = {"top": "groups"}  # a field that something of the router bounds


def what_is_read(tokens: int, most: int) -> dict:
    """The choice of what is read, as arguments of `evaluate`; `tokens` in the text, `most` in the model's context."""
    fits = [size for size in SIZES if size <= min(tokens, most)]
    spelled = {f"{size}": f"the first {size:,} tokens" for size in fits}
    spelled["all"] = f"the whole text, {tokens:,} tokens"
    spelled |= {f"{size}w": f"the whole text in windows of {size:,}" for size in fits if 2 * size <= tokens}
    default = f"{FIRST}" if FIRST in fits else "all"
    if st.session_state["quality_read"] in {f"{size}{kind}" for size in SIZES for kind in ("", "w")} - set(spelled):
        state.choose(st.session_state, quality_read=default)  # it was right for another text
    widgets.settled("quality_read", list(spelled), default)
    help = cached.glossary("window (context)")
    st.selectbox("Read", list(spelled), format_func=spelled.get, key="quality_read", width=290, help=help)
    return reading_of(st.session_state["quality_read"])


def reading_of(choice: str) -> dict:
    """`1024` the first window of 1,024 tokens, `1024w` all of them, `all` the fewest windows of equal length."""
    if choice == "all":
        return {"window": None, "long_text": "windows"}
    return {"window": int(choice.rstrip("w")), "long_text": "windows" if choice.endswith("w") else "first"}


def choose_methods(described: dict) -> dict[str, dict[str, str]]:
    """The multi-select; returns method -> {field: text} as the URL's word says, which is read once. Dense is always
    there."""
    offered = [name for name in described if name != "dense"]
    mine = parse(st.session_state["quality"], offered)
    strange = [name for name in mine if name not in offered]
    if strange:
        st.caption(widgets.plain(state.unusable("quality", strange[0])))
        mine = {name: own for name, own in mine.items() if name in offered}
        _keep(mine)
    st.session_state["quality_pick"] = [name for name in offered if name in mine][:MOST]
    st.multiselect(
        "Methods, beside dense",
        offered,
        key="quality_pick",
        format_func=lambda name: described[name]["title"],
        max_selections=MOST,
        placeholder="Choose up to six",
        on_change=_picked,
        args=(offered,),
        width=560,
    )
    return mine


def cards(described: dict, mine: dict, router: dict, tokens: int, equal: bool = False) -> list[Asked]:
    """One card of controls for each method of `mine`, as `choose_methods` returns them; `tokens` are read at once;
    `equal`: a budget sets what counts keys. Returns what is asked for; the URL's word keeps what was not refused."""
    offered = [name for name in described if name != "dense"]
    asked = []
    for name in [name for name in offered if name in mine][:MOST]:
        with st.container(border=True, key=f"quality_card_{name}"):
            asked.append(_card(name, described[name], mine[name], offered, router, tokens, equal))
    kept = {one.name: {field: str(value) for field, value in one.changed.items()} for one in asked}
    if mine != mine | kept:
        _keep(mine | kept)
    return asked


def _card(name: str, about: dict, own: dict, offered: list[str], router: dict, tokens: int, equal: bool) -> Asked:
    routed = about["needs"] == "router"
    fields = {field["name"]: dict(field) for field in about["fields"]}
    for field, of_router in BOUNDS.items() if routed else ():
        if field in fields and router.get(of_router):
            fields[field]["high"] = min(fields[field]["high"], router[of_router])
    defaults = {field: fields[field]["default"] for field in fields}
    defaults |= {field: router[field] for field in fields if routed and field in router}
    changed, refused = read(fields, own, defaults)
    made = Asked(name, about, router["name"] if routed else None, defaults, changed, offered.index(name))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        colour, sign = words.look(made.place)
        title = html.escape(about["title"])
        st.html(f'<b style="white-space:nowrap"><span style="color:{colour}">{sign}</span> {title}</b>')
        with st.popover("What is it?", type="tertiary", key=f"quality_what_{name}"):
            st.markdown(about["doc"])
            st.caption(widgets.plain(about["paper"]))
        if changed:
            st.button("Reset", key=f"quality_reset_{name}", on_click=_reset, args=(offered, name), type="tertiary")
    for field in refused:
        said = words.field(field).split(",")[0].lower()
        st.caption(widgets.plain(f"The link's {said} “{own[field][:40]}” is not available here; it was dropped."))
    with st.grid(3, min_column_width=120, gap="small"):
        for field in fields.values():
            if equal and field["name"] in (about["budget"], *about["competing"]):
                st.caption(
                    f"{words.field(field['name']).split(',')[0]}: set by the budget", help=words.field_help(field)
                )
                continue
            _control(name, field, made.settings[field["name"]], defaults[field["name"]], tokens, offered)
    return made


def _control(method: str, field: dict, value: object, default: object, tokens: int, offered: list[str]) -> None:
    label, help = words.field(field["name"]), words.field_help(field)
    if field["price"] != "live":
        st.caption(f"{label}: {value} (needs {words.PRICES[field['price']]} to change)", help=help)
        return
    key = f"quality.{method}.{field['name']}"
    st.session_state[key] = value
    more = {"key": key, "help": help, "on_change": _moved, "args": (offered, method, field["name"], key, default)}
    low, high = field["low"], field["high"]
    if field["options"]:
        leaks = dict.fromkeys(field["future"], " (reads the future)")
        spelled = {option: words.spaced(option) + leaks.get(option, "") for option in field["options"]}
        st.selectbox(label, list(spelled), format_func=spelled.get, **more)
    elif field["type"] == "int" and high - low > WIDE:
        far = min(high, max(tokens, low + 1))
        steps = {1 << power for power in range(21) if low <= 1 << power <= far}
        st.select_slider(label, sorted(steps | {low, far, default, value}), format_func="{:,}".format, **more)
    elif field["type"] == "int":
        st.slider(label, low, high, step=field["step"] or 1, **more)
    else:
        st.slider(label, float(low), float(high), step=field["step"] or (high - low) / 100, **more)


def read(fields: dict, own: dict[str, str], defaults: dict) -> tuple[dict, list[str]]:
    """What the URL's word changes of `defaults`, and the fields whose text was refused."""
    settings, refused = {}, []
    for field, raw in own.items():
        try:
            settings[field] = typed(fields[field], raw)
        except (KeyError, ValueError):
            refused.append(field)
    return {field: value for field, value in settings.items() if value != defaults[field]}, refused


def typed(field: dict, raw: str) -> object:
    """The value of a field from its text in the URL; ValueError outside of what the field takes."""
    if field["options"]:
        if raw not in field["options"]:
            raise ValueError(raw)
        return raw
    value = int(raw) if field["type"] == "int" else float(raw)
    if not field["low"] <= value <= field["high"]:
        raise ValueError(raw)
    return value


def parse(raw: str | None, offered: list[str]) -> dict[str, dict[str, str]]:
    """method -> {field: text} of the URL's word, as in focus~window-64~top-2~~streaming_llm; `none` is no method."""
    if raw is None:
        return {name: {} for name in offered[:AT_FIRST]}
    found = {}
    for part in raw.split("~~") if raw != "none" else ():
        name, *settings = part.split("~")
        found[name] = dict(pair.partition("-")[::2] for pair in settings)
    return found


def spell(chosen: dict[str, dict]) -> str:
    """The URL's word for methods and settings."""
    parts = ["~".join([name, *(f"{field}-{value}" for field, value in own.items())]) for name, own in chosen.items()]
    return "~~".join(parts) or "none"


def _keep(chosen: dict[str, dict]) -> None:
    state.choose(st.session_state, quality=spell(chosen))


def _reset(offered: list[str], method: str) -> None:
    _keep(parse(st.session_state["quality"], offered) | {method: {}})


def _moved(offered: list[str], method: str, field: str, key: str, default: object) -> None:
    """The word is read here, not when the card was drawn: two controls may be moved before the page is drawn again."""
    mine, value = parse(st.session_state["quality"], offered), st.session_state[key]
    own = {name: raw for name, raw in mine.get(method, {}).items() if name != field}
    _keep(mine | {method: own if value == default else own | {field: str(value)}})


def _picked(offered: list[str]) -> None:
    mine = parse(st.session_state["quality"], offered)
    chosen = {name: mine.get(name, {}) for name in offered if name in st.session_state["quality_pick"]}
    _keep(chosen)
    if st.session_state["quality_paint"] not in chosen:
        state.choose(st.session_state, quality_paint=None)
