"""The methods that a study compares: from plain names and settings to methods that are ready to run, with what they
need: for each word of `Method.needs` one function that finds it for a model, or fits it."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...answer import doc, record
from ...declaration import fields_of
from ...errors import BadModel, BadSetting, NotFitted
from ...fitted import Fitted
from ...methods import METHODS
from ...methods.base import Method
from ...methods.focal import FocalWeights
from ...models import Model
from ...runs.search import USUAL
from ..budgets.policies import facts as policy_facts, named
from ..budgets.recipes import resolve
from ..context import Context
from ..groups.routers import router_facts, router_for
from ..routing.states import calibrated_on, state_for
from .calibration import fitted_for, learned_temperatures, stored_for

MOST = 16  # methods at once
ROUTER = USUAL["router"]
# What methods save: see `Method.saves`.
FAMILIES = ("reads", "memory", "prefill")


@dataclass(frozen=True)
class State:
    """Fitted state that a method needs, as it is stored for a model."""

    value: object = None  # the argument of the method's `build`
    # How it was made, for a page.
    facts: dict | None = None
    # Tell it from the usual one in a label.
    words: str = ""
    # Keys of the texts that it comes from.
    texts: tuple[str, ...] = ()


@record
class Named:
    """Columns that name the method of a row."""

    method: str = doc("name of the method")
    label: str = doc("its title with every setting that is not the default")


@record
class Setting(Named):
    """Columns that say which method a row is about, and how it was set."""

    settings: dict = doc("value of every setting")


def _router(context: Context, model: Model, method: str, named: str | None) -> State:
    name = ROUTER if named is None else named
    if not isinstance(name, str):
        raise BadSetting(f"{method} takes its router as a name such as {ROUTER}.")
    router = router_for(context, model, name)[0]
    texts = tuple(router.about.get("calibration", ()))
    return State(router, router_facts(name, router), "" if name == ROUTER else name, texts)


def _policy(context: Context, model: Model, method: str, recipe: dict | str | None) -> State:
    policy = resolve(context, model, recipe)
    facts = policy_facts(policy)
    texts = (*facts.get("texts", ()), *filter(None, [facts.get("halves")]))
    return State(policy.integers, facts, " ".join(named(policy)), texts)


def _buckets(context: Context, model: Model, method: str, _: object) -> State:
    state = state_for(context, model)
    return State(state, texts=calibrated_on(state))


def _calibrated(fitted: FocalWeights | Fitted) -> State:
    """Fitted numbers; the protocol stored with them names their texts."""
    return State(fitted, texts=tuple(fitted.about.get("protocol", {}).get("keys", ())))


FIND: dict[str, Callable[[Context, Model, str, Any], State]] = {
    "": lambda context, model, method, _: State(),
    "router": _router,
    "policy": _policy,
    "buckets": _buckets,
    "temperatures": lambda context, model, method, _: _calibrated(learned_temperatures(context, model)),
    "indexers": lambda context, model, method, _: _calibrated(stored_for(context, model, method)),
    "calibration": lambda context, model, method, _: _calibrated(fitted_for(context, model, method)),
    # of a method that takes the scores of another: what that one needs
    "rule": lambda context, model, *_: State(lambda name: FIND[METHODS[name].needs](context, model, name, None).value),
}
# There are several of these for a model, so a study names the one it means.
CHOSEN = ("router", "policy")
PARTS = ("name", "settings", *CHOSEN)


@dataclass(frozen=True)
class Candidate:
    """A method that is ready to run."""

    name: str
    # Its title with every setting that is not the default.
    label: str
    method: Method
    # Of its settings, as its fitted state has them.
    defaults: dict
    state: State

    @property
    def settings(self) -> dict:
        """The value of every field that has a control."""
        return {field: getattr(self.method, field) for field in self.defaults}

    @property
    def setting(self) -> dict:
        """The columns of `Setting`."""
        return {"method": self.name, "label": self.label, "settings": self.settings}

    @property
    def facts(self) -> dict:
        """What a row says of the router or the policy, each None where the method needs none."""
        return dict.fromkeys(CHOSEN) | ({self.method.needs: self.state.facts} if self.state.facts else {})


def candidates(
    context: Context, model: Model, methods: list[dict] | None, families: tuple[str, ...] = ("reads",)
) -> list[Candidate]:
    """The methods {"name", "settings", "router", "policy"} for a model; for None all that can run on it as it is, with
    their defaults.

    `families`: what they may save. One pass that scores every token of a text takes only those that save reads: the
    others decide at the end of a prompt. Whatever can be refused is refused here, before a pass. Errors: BadSetting,
    NotFitted, BadModel.
    """
    if methods is None:
        able = []
        for name in (name for name in METHODS if METHODS[name].saves in families):
            # training comes first, or this model cannot run it
            with suppress(NotFitted, BadModel):
                able.append(_candidate(context, model, {"name": name}))
        return able
    if not 1 <= len(methods) <= MOST:
        raise BadSetting(f"{len(methods)} methods were asked for: choose between 1 and {MOST}.")
    built = [_candidate(context, model, spec) for spec in methods]
    for candidate in built:
        if candidate.method.saves not in families:
            raise BadSetting(
                f"{candidate.label} looks at the end of a prompt before it reads on, so one pass over a text says "
                "nothing about it: score what follows a prompt with `continuation`."
            )
    label, count = Counter(candidate.label for candidate in built).most_common(1)[0]
    if count > 1:
        raise BadSetting(f"{label} was asked for twice: name each method with the same settings once.")
    return built


def beside_dense(
    context: Context, model: Model, methods: list[dict] | None, families: tuple[str, ...] = ("reads",)
) -> list[Candidate]:
    """Dense attention first, then those of the methods that are not. Errors: as `candidates`."""
    sparse = [spec for spec in methods or [] if spec.get("name") != "dense"]
    return candidates(context, model, [{"name": "dense"}, *sparse], families)


def _candidate(context: Context, model: Model, spec: dict) -> Candidate:
    if not isinstance(spec, dict) or set(spec) - set(PARTS):
        raise BadSetting(f"{str(spec)[:40]!r} names no method: give {', '.join(PARTS)}, as in {{'name': 'dense'}}.")
    name, settings = spec.get("name"), spec.get("settings") or {}
    if not isinstance(name, str) or name not in METHODS:
        raise BadSetting(f"There is no method {str(name)[:40]!r}; there are: {', '.join(METHODS)}.")
    if not isinstance(settings, dict):
        raise BadSetting(f"{name} takes its settings as names with values.")
    cls = METHODS[name]
    fields = [declared.name for declared in fields_of(cls)]
    if strange := sorted(map(str, set(settings) - set(fields))):
        raise BadSetting(f"{name} has no setting {strange[0][:40]!r}; it has: {', '.join(fields) or 'none'}.")
    for part in CHOSEN:
        if spec.get(part) is not None and part != cls.needs:
            raise BadSetting(f"{name} reads with no {part}: leave the {part} out.")
    state = FIND[cls.needs](context, model, name, spec.get(cls.needs))
    plain, method = cls.build(state.value), cls.build(state.value, **settings)
    method.check(model.lm)
    defaults = {field: getattr(plain, field) for field in fields}
    changed = [f"{field} {value}" for field in fields if (value := getattr(method, field)) != defaults[field]]
    label = ", ".join([" ".join(filter(None, [cls.title, state.words])), *changed])
    return Candidate(name, label, method, defaults, state)


def looked_ahead(methods: Sequence[Candidate]) -> list[str]:
    """A note about the methods whose settings let the future in; none without them."""
    labels = [candidate.label for candidate in methods if candidate.method.reads_future]
    if not labels:
        return []
    return [f"Later tokens decide over earlier ones there: the numbers of {' and '.join(labels)} saw the future."]


def specs(
    names: str | None, settings: list[str], router: str | None = None, policy: dict | str | None = None
) -> list[dict]:
    """The argument of `candidates` from words: "dense,focus" (None: all there are) and ["focus.window=64"].

    Errors: BadSetting for words that set nothing.
    """
    chosen = {"router": router, "policy": policy}
    every = ",".join(name for name in METHODS if METHODS[name].saves == "reads")
    by_name: dict[str, dict] = {}
    for name in filter(None, map(str.strip, (every if names is None else names).split(","))):
        # an unknown name is refused with the others, by `candidates`
        needs = METHODS[name].needs if name in METHODS else ""
        by_name[name] = {"name": name, "settings": {}} | ({needs: chosen[needs]} if chosen.get(needs) else {})
    for words in settings:
        place, equals, value = words.partition("=")
        name, dot, field = place.partition(".")
        if not equals or not dot:
            raise BadSetting(f"{words[:40]!r} sets nothing: write it like focus.window=64.")
        if name not in by_name:
            raise BadSetting(f"{words[:40]!r} is about a method that is not evaluated: add {name[:20]} to --methods.")
        by_name[name]["settings"][field] = value
        # a whole number stays one
        for kind in (float, int):
            with suppress(ValueError):
                by_name[name]["settings"][field] = kind(value)
    return list(by_name.values())
