"""A method as it is asked for; its settings as words, in the URL and on the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.ui.charts import GROUPS

# Field -> (its name, a glossary term that explains it); any other is spelled as it is.
FIELDS = {
    "top": ("Groups per token", "membership (top-k)"),
    "window": ("Window, tokens", "sliding window"),
    "n_sink": ("Sinks, tokens", "attention sink"),
    "k": ("Keys per query", "KV reads (% of causal)"),
    "fraction": ("Share of keys kept", "KV reads (% of causal)"),
    "keep_window": ("Window kept too", "sliding window"),
    "membership": ("Membership", "literal and causal membership"),
}


@dataclass(frozen=True)
class Asked:
    """A method as it is asked for: its description, its router's name where it has one, `changed` from `defaults`."""

    name: str
    about: dict
    router: str | None
    defaults: dict
    changed: dict
    # Among the methods that are offered: its colour.
    place: int
    # Of CSA, where a budget was given to it.
    policy: dict | None = None

    @property
    def title(self) -> str:
        """Its name as it stands on the page."""
        return self.about["title"]

    @property
    def settings(self) -> dict:
        """The value of every field."""
        return self.defaults | self.changed

    @property
    def spec(self) -> dict:
        """The method in the words of `evaluate`."""
        spec = {"name": self.name, "settings": self.changed}
        spec |= {"router": self.router} if self.router else {}
        return spec | ({"policy": self.policy} if self.policy else {})

    @property
    def budget_fields(self) -> tuple[str, ...]:
        """The settings that say how much it keeps or reads."""
        return tuple(filter(None, (self.about["budget"], *self.about["competing"])))

    @property
    def fixed(self) -> bool:
        """Whether no share can be given to it: it has no such setting, or somebody has set it."""
        return not self.budget_fields or bool(set(self.budget_fields) & set(self.changed))

    @property
    def colour(self) -> str:
        """Of its curve."""
        return GROUPS[self.place % len(GROUPS)]

    def at(self, settings: Mapping, policy: dict | None = None) -> "Asked":
        """The method at settings that a run used, which a budget may have chosen."""
        changed = {name: value for name, value in settings.items() if value != self.defaults.get(name)}
        return replace(self, changed=changed, policy=policy)

    def free(self) -> "Asked":
        """The method without the settings that a share chooses."""
        return self.at({name: value for name, value in self.changed.items() if name not in self.budget_fields})


def counted(count: int, name: str) -> str:
    """1 window, 2 windows."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def spaced(name: str) -> str:
    """A name of the code as words."""
    return name.replace("_", " ")


def field_name(name: str) -> str:
    """The name of a setting."""
    return FIELDS[name][0] if name in FIELDS else spaced(name).capitalize()


def changes(choice: Asked) -> str:
    """The settings that differ from the defaults, in words."""
    return ", ".join(
        f"{field_name(name).split(',')[0].lower()} {spaced(str(value))}" for name, value in choice.changed.items()
    )


# --- the word of the URL ----------------------------------------------------------------------------------------------


def parse(raw: str | None, usual: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """method -> {field: text} of the URL's word, as in focus~window-64~top-2~~streaming_llm; `none` is no method, and
    without a word they are the `usual` ones."""
    if raw is None:
        return {name: {} for name in usual}
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
    if field["type"] == "str":
        return raw
    value = int(raw) if field["type"] == "int" else float(raw)
    if not field["low"] <= value <= field["high"]:
        raise ValueError(raw)
    return value
