"""The methods that a study compares: from plain names and settings to methods that are ready to run."""

from dataclasses import dataclass
from functools import partial

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import Model
from analysis.studies.budgets.policies import facts as policy_facts, named, resolve
from analysis.studies.context import Context
from analysis.studies.groups.routers import router_facts, router_for
from analysis.studies.ready.fitted import FITTED, fitted_for
from analysis.studies.ready.learned import learned_temperatures, ready
from analysis.studies.routing.states import state_for

ROUTER = "k8-top1"
MOST = 16  # methods at once
PARTS = ("name", "settings", "router", "policy")


@dataclass(frozen=True)
class Candidate:
    """A method with its settings: `label` names it with what differs from `defaults`, those of its router or policy."""

    name: str
    label: str
    method: Method
    defaults: dict
    router: dict | None
    policy: dict | None = None

    @property
    def settings(self) -> dict:
        """The value of every field that has a control."""
        return {field: getattr(self.method, field) for field in self.defaults}


def candidates(context: Context, model: Model, methods: list[dict] | None) -> list[Candidate]:
    """The methods {"name", "settings", "router", "policy"} for a model; all there are, with their defaults, for None.

    Whatever can be refused is refused here, before a pass. Errors: BadSetting.
    """
    asked = [{"name": name} for name in ready(context, model)] if methods is None else methods
    if not 1 <= len(asked) <= MOST:
        raise BadSetting(f"{len(asked)} methods were asked for: choose between 1 and {MOST}.")
    made = []
    for one in asked:
        made.append(_candidate(context, model, one))
        made[-1].method.check(model.lm)
    labels = [candidate.label for candidate in made]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise BadSetting(f"{twice} was asked for twice: name each method with the same settings once.")
    return made


def _candidate(context: Context, model: Model, asked: dict) -> Candidate:
    if not isinstance(asked, dict) or set(asked) - set(PARTS):
        raise BadSetting(f"{str(asked)[:40]!r} names no method: give {', '.join(PARTS)}, as in {{'name': 'dense'}}.")
    name, settings, router = asked.get("name"), asked.get("settings") or {}, asked.get("router") or ROUTER
    if not isinstance(name, str) or name not in METHODS:
        raise BadSetting(f"There is no method {str(name)[:40]!r}; there are: {', '.join(METHODS)}.")
    if not isinstance(settings, dict) or not isinstance(router, str):
        raise BadSetting(f"{name} takes its settings as names with values and its router as a name such as {ROUTER}.")
    cls = build = METHODS[name]
    known = [field["name"] for field in cls.describe()["fields"]]
    if strange := sorted(map(str, set(settings) - set(known))):
        raise BadSetting(f"{name} has no setting {strange[0][:40]!r}; it has: {', '.join(known) or 'none'}.")
    facts = policy = None
    words = [name]
    if asked.get("policy") is not None and name != "csa":
        raise BadSetting(f"{name} reads with no policy: leave the policy out.")
    if name == "focal_learned":
        build = partial(cls.from_weights, learned_temperatures(context, model))
    if name == "csa":
        budgets = resolve(context, model, asked.get("policy"))
        policy, words, build = policy_facts(budgets), [name, *named(budgets)], budgets.method
    if name == "bucket_routing":
        build = partial(cls.from_state, state_for(context, model))
    if name in FITTED:
        build = partial(cls, fitted_for(context, model, name))
    if hasattr(cls, "of"):  # it needs a router
        made = router_for(context, model, router)[0]
        facts = router_facts(router, made)

        def build(**given):
            return cls.of(made, **given)

    plain, method = build(), build(**settings)
    defaults = {field: getattr(plain, field) for field in known}
    changed = [f"{field} {value}" for field in known if (value := getattr(method, field)) != defaults[field]]
    label = ", ".join([f"{name} {router}" if facts and router != ROUTER else " ".join(words), *changed])
    return Candidate(name, label, method, defaults, facts, policy)


def specs(names: str | None, settings: list[str], router: str | None = None, policy=None) -> list[dict]:
    """The argument of `candidates` from words: "dense,focus" (None: all there are) and ["focus.window=64"].

    Errors: BadSetting for words that set nothing.
    """
    listed = METHODS if names is None else filter(None, map(str.strip, names.split(",")))
    made = {name: {"name": name, "settings": {}} for name in listed}
    if "focus" in made and router:
        made["focus"]["router"] = router
    if "csa" in made and policy:
        made["csa"]["policy"] = policy
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
        try:
            return kind(word)
        except ValueError:
            continue
    return word
