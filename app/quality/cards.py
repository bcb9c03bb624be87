"""Which methods a page compares, with their settings: a multi-select, a card of controls for each, and one word of the
URL.

Everything about a method comes from the worker's description of it: fields with range, help and price. A new one needs
no line here.
"""

import html
from dataclasses import dataclass

import streamlit as st

from app.quality import words
from app.quality.words import Asked
from app.selection import state
from app.ui import widgets

AT_FIRST = 3  # methods that are shown when nothing was chosen
WIDE = 128  # a whole number with a wider range moves in powers of two
BOUNDS = {"top": "groups"}  # a field that something of the router bounds


@dataclass(frozen=True)
class Picker:
    """The methods that a page offers beside dense, and at most how many at once; `control` of the URL keeps those that
    are chosen; `marked` is one that names one of them, if there is such."""

    control: str
    offered: tuple[str, ...]
    most: int
    marked: str | None = None

    def chosen(self) -> dict[str, dict[str, str]]:
        """method -> {field: text} as the URL's word says."""
        return parse(st.session_state[self.control], list(self.offered))

    def keep(self, chosen: dict[str, dict]) -> None:
        """Write the URL's word."""
        state.choose(st.session_state, **{self.control: spell(chosen)})

    def choose(self, described: dict, width: int = 560) -> dict[str, dict[str, str]]:
        """The multi-select; returns method -> {field: text}. Dense is always there."""
        chosen_methods = self.chosen()
        strange = [name for name in chosen_methods if name not in self.offered]
        if strange:
            st.caption(widgets.plain(state.unusable(self.control, strange[0])))
            chosen_methods = {name: settings for name, settings in chosen_methods.items() if name in self.offered}
            self.keep(chosen_methods)
        key = f"{self.control}_pick"
        st.session_state[key] = [name for name in self.offered if name in chosen_methods][: self.most]
        st.multiselect(
            "Methods, beside dense",
            self.offered,
            key=key,
            format_func=lambda name: described[name]["title"],
            max_selections=self.most,
            placeholder=f"Choose up to {self.most}",
            on_change=self._picked,
            width=width,
        )
        return chosen_methods

    def all_of_them(self, label: str, chosen_methods: dict[str, dict[str, str]]) -> None:
        """A button that takes every method, those of `chosen_methods` with their settings."""
        everything = {name: chosen_methods.get(name, {}) for name in self.offered}
        key = f"{self.control}_all"
        st.button(label, key=key, on_click=self.keep, args=(everything,), disabled=chosen_methods == everything)

    def _picked(self) -> None:
        chosen_methods, picked = self.chosen(), st.session_state[f"{self.control}_pick"]
        self.keep({name: chosen_methods.get(name, {}) for name in self.offered if name in picked})
        if self.marked and st.session_state[self.marked] not in picked:
            state.choose(st.session_state, **{self.marked: None})

    def reset(self, method: str) -> None:
        """A method as it comes."""
        self.keep(self.chosen() | {method: {}})

    def moved(self, method: str, field: str, key: str, default: object) -> None:
        """A control was moved. The word is read here, not when the card was drawn: two may be moved before that."""
        chosen_methods, value = self.chosen(), st.session_state[key]
        settings = {name: raw for name, raw in chosen_methods.get(method, {}).items() if name != field}
        self.keep(chosen_methods | {method: settings if value == default else settings | {field: str(value)}})


def cards(
    picker: Picker, described: dict, chosen_methods: dict, router: dict, tokens: int, equal: bool = False
) -> list[Asked]:
    """One card of controls for each method of `chosen_methods`, as `choose` of the `picker` returns them; `tokens`
    are read at
    once; `equal`: a budget sets what counts keys. Returns what is asked for; the URL's word keeps what was not refused.
    """
    choices = []
    for name in [name for name in picker.offered if name in chosen_methods][: picker.most]:
        with st.container(border=True, key=f"{picker.control}_card_{name}"):
            choices.append(_card(picker, name, described[name], chosen_methods[name], router, tokens, equal))
    changed = {choice.name: {field: str(value) for field, value in choice.changed.items()} for choice in choices}
    if chosen_methods != chosen_methods | changed:
        picker.keep(chosen_methods | changed)
    return choices


def _card(picker: Picker, name: str, about: dict, raw_settings: dict, router: dict, tokens: int, equal: bool) -> Asked:
    routed = about["needs"] == "router"
    fields = {field["name"]: dict(field) for field in about["fields"]}
    for field, of_router in BOUNDS.items() if routed else ():
        if field in fields and router.get(of_router):
            fields[field]["high"] = min(fields[field]["high"], router[of_router])
    defaults = {field: fields[field]["default"] for field in fields}
    defaults |= {field: router[field] for field in fields if routed and field in router}
    changed, refused = read(fields, raw_settings, defaults)
    choice = Asked(name, about, router["name"] if routed else None, defaults, changed, picker.offered.index(name))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        colour, sign = words.look(choice.place)
        title = html.escape(about["title"])
        st.html(f'<b style="white-space:nowrap"><span style="color:{colour}">{sign}</span> {title}</b>')
        with st.popover("What is it?", type="tertiary", key=f"{picker.control}_what_{name}"):
            st.markdown(about["doc"])
            st.caption(widgets.plain(about["paper"]))
        if changed:
            key = f"{picker.control}_reset_{name}"
            st.button("Reset", key=key, on_click=picker.reset, args=(name,), type="tertiary")
    for field in refused:
        label = words.field(field).split(",")[0].lower()
        st.caption(
            widgets.plain(f"The link's {label} “{raw_settings[field][:40]}” is not available here; it was dropped.")
        )
    with st.grid(3, min_column_width=120, gap="small"):
        for field in fields.values():
            if equal and field["name"] in (about["budget"], *about["competing"]):
                st.caption(
                    f"{words.field(field['name']).split(',')[0]}: set by the budget", help=words.field_help(field)
                )
                continue
            _control(picker, name, field, choice.settings[field["name"]], defaults[field["name"]], tokens)
    return choice


def _control(picker: Picker, method: str, field: dict, value: object, default: object, tokens: int) -> None:
    label, help = words.field(field["name"]), words.field_help(field)
    if field["price"] != "live":
        st.caption(f"{label}: {value} (needs {words.PRICES[field['price']]} to change)", help=help)
        return
    key = f"{picker.control}.{method}.{field['name']}"
    st.session_state[key] = value
    look = {"key": key, "help": help, "on_change": picker.moved, "args": (method, field["name"], key, default)}
    low, high = field["low"], field["high"]
    if field["options"]:
        leaks = dict.fromkeys(field["future"], " (reads the future)")
        spelled = {option: words.spaced(option) + leaks.get(option, "") for option in field["options"]}
        st.selectbox(label, list(spelled), format_func=spelled.get, **look)
    elif field["type"] == "int" and high - low > WIDE:
        far = min(high, max(tokens, low + 1))
        steps = {1 << power for power in range(21) if low <= 1 << power <= far}
        st.select_slider(label, sorted(steps | {low, far, default, value}), format_func="{:,}".format, **look)
    elif field["type"] == "int":
        st.slider(label, low, high, step=field["step"] or 1, **look)
    else:
        st.slider(label, float(low), float(high), step=field["step"] or (high - low) / 100, **look)


def read(fields: dict, raw_settings: dict[str, str], defaults: dict) -> tuple[dict, list[str]]:
    """What the URL's word changes of `defaults`, and the fields whose text was refused."""
    settings, refused = {}, []
    for field, raw in raw_settings.items():
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
    methods = {}
    for part in raw.split("~~") if raw != "none" else ():
        name, *settings = part.split("~")
        methods[name] = dict(pair.partition("-")[::2] for pair in settings)
    return methods


def spell(chosen: dict[str, dict]) -> str:
    """The URL's word for methods and settings."""
    parts = [
        "~".join([name, *(f"{field}-{value}" for field, value in settings.items())])
        for name, settings in chosen.items()
    ]
    return "~~".join(parts) or "none"
