"""The methods that a study compares: from plain names and settings to methods that are ready to run, with what they
need: for each word of `Method.needs` one function that finds it for a model, or fits it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from analysis.errors import BadModel, BadSetting, NotFitted
from analysis.fitted import Fitted
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.focal_learned import FocalWeights
from analysis.models import Model
from analysis.runs.search import USUAL
from analysis.studies.budgets.policies import facts as policy_facts, named
from analysis.studies.budgets.recipes import resolve
from analysis.studies.context import Context
from analysis.studies.groups.routers import router_facts, router_for
from analysis.studies.ready.fitted import fitted_for, learned_temperatures
from analysis.studies.routing.states import calibrated_on, state_for

MOST = 16  # methods at once
ROUTER = USUAL["router"]
FAMILIES = ("reads", "memory", "prefill")  # what methods save: see `Method.saves`


@dataclass(frozen=True)
class State:
    """What a method needs, found for a model.

    `thing` goes to the method's `build`; `facts` say on a page how it was made; `words` tell it in a label from the
    usual one; `texts` are the keys of the texts that it comes from.
    """

    thing: object = None
    facts: dict | None = None
    words: str = ""
    texts: tuple[str, ...] = ()


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
    found = state_for(context, model)
    return State(found, texts=calibrated_on(found))


def _noted(thing: FocalWeights | Fitted) -> State:
    """Numbers with the note of how they were made, which names their texts."""
    return State(thing, texts=tuple(thing.about.get("protocol", {}).get("keys", ())))


FIND: dict[str, Callable[[Context, Model, str, object], State]] = {
    "": lambda context, model, method, _: State(),
    "router": _router,
    "policy": _policy,
    "buckets": _buckets,
    "temperatures": lambda context, model, method, _: _noted(learned_temperatures(context, model)),
    "calibration": lambda context, model, method, _: _noted(fitted_for(context, model, method)),
}
CHOSEN = ("router", "policy")  # there are several of these for a model, so a study names the one it means
PARTS = ("name", "settings", *CHOSEN)


@dataclass(frozen=True)
class Candidate:
    """A method with its settings: `label` names it with what differs from `defaults`, those of what it was built of."""

    name: str
    label: str
    method: Method
    defaults: dict
    state: State

    @property
    def settings(self) -> dict:
        """The value of every field that has a control."""
        return {field: getattr(self.method, field) for field in self.defaults}

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
            with suppress(NotFitted, BadModel):  # training comes first, or this model cannot run it
                able.append(_candidate(context, model, {"name": name}))
        return able
    if not 1 <= len(methods) <= MOST:
        raise BadSetting(f"{len(methods)} methods were asked for: choose between 1 and {MOST}.")
    made = [_candidate(context, model, asked) for asked in methods]
    if late := next((one for one in made if one.method.saves not in families), None):
        raise BadSetting(
            f"{late.label} looks at the end of a prompt before it reads on, so one pass over a text says nothing about "
            "it: score what follows a prompt with `continuation`."
        )
    labels = [candidate.label for candidate in made]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise BadSetting(f"{twice} was asked for twice: name each method with the same settings once.")
    return made


def beside_dense(
    context: Context, model: Model, methods: list[dict] | None, families: tuple[str, ...] = ("reads",)
) -> list[Candidate]:
    """Dense attention first, then those of the methods that are not. Errors: as `candidates`."""
    others = [one for one in methods or [] if one.get("name") != "dense"]
    return candidates(context, model, [{"name": "dense"}, *others], families)


def _candidate(context: Context, model: Model, asked: dict) -> Candidate:
    if not isinstance(asked, dict) or set(asked) - set(PARTS):
        raise BadSetting(f"{str(asked)[:40]!r} names no method: give {', '.join(PARTS)}, as in {{'name': 'dense'}}.")
    name, settings = asked.get("name"), asked.get("settings") or {}
    if not isinstance(name, str) or name not in METHODS:
        raise BadSetting(f"There is no method {str(name)[:40]!r}; there are: {', '.join(METHODS)}.")
    if not isinstance(settings, dict):
        raise BadSetting(f"{name} takes its settings as names with values.")
    cls = METHODS[name]
    known = [field["name"] for field in cls.describe()["fields"]]
    if strange := sorted(map(str, set(settings) - set(known))):
        raise BadSetting(f"{name} has no setting {strange[0][:40]!r}; it has: {', '.join(known) or 'none'}.")
    if part := next((part for part in CHOSEN if asked.get(part) is not None and part != cls.needs), None):
        raise BadSetting(f"{name} reads with no {part}: leave the {part} out.")
    state = FIND[cls.needs](context, model, name, asked.get(cls.needs))
    plain, method = cls.build(state.thing), cls.build(state.thing, **settings)
    method.check(model.lm)
    defaults = {field: getattr(plain, field) for field in known}
    changed = [f"{field} {value}" for field in known if (value := getattr(method, field)) != defaults[field]]
    label = ", ".join([" ".join(filter(None, [cls.title, state.words])), *changed])
    return Candidate(name, label, method, defaults, state)


def looked_ahead(methods: Sequence[Candidate]) -> list[str]:
    """A note about the methods whose settings let the future in; none without them."""
    labels = [one.label for one in methods if one.method.reads_future]
    said = "Later tokens decide over earlier ones there: the numbers of {} saw the future."
    return [said.format(" and ".join(labels))] if labels else []


def specs(
    names: str | None, settings: list[str], router: str | None = None, policy: dict | str | None = None
) -> list[dict]:
    """The argument of `candidates` from words: "dense,focus" (None: all there are) and ["focus.window=64"].

    Errors: BadSetting for words that set nothing.
    """
    chosen = {"router": router, "policy": policy}
    made = {}
    every = [name for name in METHODS if METHODS[name].saves == "reads"]
    for name in every if names is None else filter(None, map(str.strip, names.split(","))):
        needs = METHODS[name].needs if name in METHODS else ""  # an unknown name is refused with the others
        made[name] = {"name": name, "settings": {}} | ({needs: chosen[needs]} if chosen.get(needs) else {})
    for words in settings:
        place, equals, value = words.partition("=")
        name, dot, field = place.partition(".")
        if not equals or not dot:
            raise BadSetting(f"{words[:40]!r} sets nothing: write it like focus.window=64.")
        if name not in made:
            raise BadSetting(f"{words[:40]!r} is about a method that is not evaluated: add {name[:20]} to --methods.")
        made[name]["settings"][field] = _value(value)
    return list(made.values())


def _value(word: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return word
