"""Which methods a page compares, and their settings: a multi-select, controls for a method, and one word of the URL.

Everything about a method comes from the worker's description of it: fields with range, help and price. A new one needs
no line here.
"""

from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from app import cached
from app.quality.asked import FIELDS, Asked, field_name, parse, read, spaced, spell
from app.selection import state
from app.ui import widgets

# A whole number with a wider range moves in powers of two.
WIDE = 128
PRICES = {"refit": "calibration", "retrain": "training"}


@dataclass(frozen=True)
class Picker:
    """The methods that a page offers beside dense, and at most how many at once; `control` of the URL keeps those that
    are chosen; without it they are the `usual` ones. `router`: of methods that read with one."""

    control: str
    described: dict[str, dict]
    most: int
    usual: tuple[str, ...] = ()
    router: dict = field(default_factory=lambda: {"name": ""})

    @property
    def offered(self) -> list[str]:
        """Their names, in the order in which they are described."""
        return [name for name in self.described if name != "dense"]

    def words(self) -> dict[str, dict[str, str]]:
        """method -> {field: text} as the URL's word says."""
        return parse(st.session_state[self.control], self.usual)

    def keep(self, chosen: dict[str, dict]) -> None:
        """Write the URL's word."""
        state.choose(st.session_state, **{self.control: spell(chosen)})

    def chosen(self) -> list[Asked]:
        """The methods of the URL's word, as they are asked for. What it cannot ask for is said and dropped."""
        words = self.words()
        strange = [name for name in words if name not in self.offered]
        if strange:
            widgets.dropped(state.unusable(self.control, strange[0]))
        choices, stale = [], bool(strange)
        for name in [name for name in self.offered if name in words][: self.most]:
            choice, refused = self.asked(name, words[name])
            choices.append(choice)
            stale |= bool(refused)
            for field_of in refused:
                label, raw = field_name(field_of).split(",")[0].lower(), words[name][field_of][:40]
                widgets.dropped(f"The link's {label} “{raw}” is not available here; it was dropped.")
        if stale:
            self.keep({choice.name: spelled(choice) for choice in choices})
        return choices

    def asked(self, name: str, raw_settings: dict[str, str] | None = None) -> tuple[Asked, list[str]]:
        """A method with settings as the URL's word has them, and those whose text was refused."""
        about, fields = self.described[name], self.fields(name)
        routed = about["needs"] == "router"
        defaults = {field: fields[field]["default"] for field in fields}
        defaults |= {field: self.router[field] for field in fields if routed and field in self.router}
        changed, refused = read(fields, raw_settings or {}, defaults)
        place = self.offered.index(name)
        return Asked(name, about, self.router["name"] if routed else None, defaults, changed, place), refused

    def fields(self, name: str) -> dict[str, dict]:
        """field -> its description; no token can be in more groups than the router has."""
        about = self.described[name]
        fields = {field["name"]: dict(field) for field in about["fields"]}
        if about["needs"] == "router" and "top" in fields and self.router.get("groups"):
            fields["top"]["high"] = min(fields["top"]["high"], self.router["groups"])
        return fields

    def choose(self, choices: list[Asked], **look: Any) -> None:
        """The multi-select."""
        key = f"{self.control}_pick"
        st.session_state[key] = [choice.name for choice in choices]
        st.multiselect(
            "Methods, beside dense",
            self.offered,
            key=key,
            format_func=lambda name: self.described[name]["title"],
            max_selections=self.most,
            placeholder=f"Choose up to {self.most}",
            on_change=self._picked,
            **look,
        )

    def _picked(self) -> None:
        words, picked = self.words(), st.session_state[f"{self.control}_pick"]
        self.keep({name: words.get(name, {}) for name in self.offered if name in picked})

    def reset(self, method: str) -> None:
        """A method as it comes."""
        self.keep(self.words() | {method: {}})

    def moved(self, method: str, field: str, key: str, default: object) -> None:
        """A control was moved. The word is read here, not when it was drawn: two may be moved before that."""
        words, value = self.words(), st.session_state[key]
        settings = {name: raw for name, raw in words.get(method, {}).items() if name != field}
        self.keep(words | {method: settings if value == default else settings | {field: str(value)}})

    def settings(self, choice: Asked, tokens: int) -> None:
        """What a method is, and its controls; `tokens` are read at once."""
        with st.container(key=f"{self.control}_card_{choice.name}"):
            st.markdown(f"**{widgets.plain(choice.title)}**")
            st.markdown(choice.about["doc"])
            st.caption(widgets.plain(choice.about["paper"]))
            for field in self.fields(choice.name).values():
                self._control(choice, field, tokens)
            if choice.changed:
                st.button("Reset", key=f"{self.control}_reset_{choice.name}", on_click=self.reset, args=(choice.name,))

    def _control(self, choice: Asked, field: dict, tokens: int) -> None:
        name, label = field["name"], field_name(field["name"])
        help = widgets.plain(f"{field['help'][:1].upper()}{field['help'][1:]}.")
        help += f"\n\n{cached.glossary(FIELDS[name][1])}" if name in FIELDS else ""
        value, default = choice.settings[name], choice.defaults[name]
        if field["price"] != "live":
            st.caption(f"{label}: {value} (needs {PRICES[field['price']]} to change)", help=help)
            return
        key = f"{self.control}.{choice.name}.{name}"
        st.session_state[key] = value
        look: dict[str, Any] = {"key": key, "help": help, "on_change": self.moved}
        look["args"] = (choice.name, name, key, default)
        low, high = field["low"], field["high"]
        if field["options"]:
            leaks = dict.fromkeys(field["future"], " (reads the future)")
            spelled_out = {option: spaced(option) + leaks.get(option, "") for option in field["options"]}
            st.selectbox(label, list(spelled_out), format_func=spelled_out.__getitem__, **look)
        elif field["type"] == "int" and high - low > WIDE:
            far = min(high, max(tokens, low + 1))
            steps = {1 << power for power in range(21) if low <= 1 << power <= far}
            st.select_slider(label, sorted(steps | {low, far, default, value}), format_func="{:,}".format, **look)
        elif field["type"] == "int":
            st.slider(label, low, high, step=field["step"] or 1, **look)
        else:
            st.slider(label, float(low), float(high), step=field["step"] or (high - low) / 100, **look)


def spelled(choice: Asked) -> dict[str, str]:
    """Its changed settings as the URL's word has them."""
    return {field: str(value) for field, value in choice.changed.items()}
