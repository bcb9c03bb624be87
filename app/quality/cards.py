"""Which methods a page compares, with their settings: a multi-select, a card of controls for each, and one word of the
URL.

Everything about a method comes from the worker's description of it: fields with range, help and price. A new one needs
no line here.
"""

import html
from dataclasses import dataclass

import streamlit as st

from app.quality.asked import Asked, field_help, field_name, look, spaced
from app.selection import state
from app.ui import widgets

# Methods that are shown when nothing was chosen.
AT_FIRST = 3
# A whole number with a wider range moves in powers of two.
WIDE = 128
PRICES = {"refit": "calibration", "retrain": "training"}


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

    def all_of_them(self, chosen_methods: dict[str, dict[str, str]]) -> None:
        """A button that takes every method, those of `chosen_methods` with their settings."""
        everything = {name: chosen_methods.get(name, {}) for name in self.offered}
        look = {"on_click": self.keep, "args": (everything,), "disabled": chosen_methods == everything}
        st.button(f"All {len(everything)}", key=f"{self.control}_all", **look)

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
    are read at once; `equal`: a budget sets what counts keys. Returns what is asked for; the URL's word keeps what was
    not refused."""
    choices = []
    for name in [name for name in picker.offered if name in chosen_methods][: picker.most]:
        with st.container(border=True, key=f"{picker.control}_card_{name}"):
            fields = _fields(described[name], router)
            choice, refused = _asked(picker, name, described[name], fields, chosen_methods[name], router)
            _heading(picker, choice)
            for field in refused:
                label, raw = field_name(field).split(",")[0].lower(), chosen_methods[name][field][:40]
                st.caption(widgets.plain(f"The link's {label} “{raw}” is not available here; it was dropped."))
            by_budget = (choice.about["budget"], *choice.about["competing"]) if equal else ()
            with st.grid(3, min_column_width=120, gap="small"):
                for field in fields.values():
                    if field["name"] in by_budget:
                        label = field_name(field["name"]).split(",")[0]
                        st.caption(f"{label}: set by the budget", help=field_help(field))
                    else:
                        _control(picker, choice, field, tokens)
            choices.append(choice)
    changed = {choice.name: {field: str(value) for field, value in choice.changed.items()} for choice in choices}
    if chosen_methods != chosen_methods | changed:
        picker.keep(chosen_methods | changed)
    return choices


def _fields(about: dict, router: dict) -> dict[str, dict]:
    """field -> its description; no token can be in more groups than the router has."""
    fields = {field["name"]: dict(field) for field in about["fields"]}
    if about["needs"] == "router" and "top" in fields and router.get("groups"):
        fields["top"]["high"] = min(fields["top"]["high"], router["groups"])
    return fields


def _asked(
    picker: Picker, name: str, about: dict, fields: dict, raw_settings: dict, router: dict
) -> tuple[Asked, list[str]]:
    """The method as the URL's word has it, and the fields whose text was refused."""
    routed = about["needs"] == "router"
    defaults = {field: fields[field]["default"] for field in fields}
    defaults |= {field: router[field] for field in fields if routed and field in router}
    changed, refused = read(fields, raw_settings, defaults)
    made_by = router["name"] if routed else None
    return Asked(name, about, made_by, defaults, changed, picker.offered.index(name)), refused


def _heading(picker: Picker, choice: Asked) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        colour, sign = look(choice.place)
        words = f'<span style="color:{colour}">{sign}</span> {html.escape(choice.title)}'
        st.html(f'<b style="white-space:nowrap">{words}</b>')
        with st.popover("What is it?", type="tertiary", key=f"{picker.control}_what_{choice.name}"):
            st.markdown(choice.about["doc"])
            st.caption(widgets.plain(choice.about["paper"]))
        if choice.changed:
            key = f"{picker.control}_reset_{choice.name}"
            st.button("Reset", key=key, on_click=picker.reset, args=(choice.name,), type="tertiary")


def _control(picker: Picker, choice: Asked, field: dict, tokens: int) -> None:
    name, label, help = field["name"], field_name(field["name"]), field_help(field)
    value, default = choice.settings[name], choice.defaults[name]
    if field["price"] != "live":
        st.caption(f"{label}: {value} (needs {PRICES[field['price']]} to change)", help=help)
        return
    key = f"{picker.control}.{choice.name}.{name}"
    st.session_state[key] = value
    look = {"key": key, "help": help, "on_change": picker.moved, "args": (choice.name, name, key, default)}
    low, high = field["low"], field["high"]
    if field["options"]:
        leaks = dict.fromkeys(field["future"], " (reads the future)")
        spelled = {option: spaced(option) + leaks.get(option, "") for option in field["options"]}
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
