"""What methods need: for each word of `Method.needs` one function that finds it for a model, or fits it."""

from collections.abc import Callable
from dataclasses import dataclass

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.runs.search import USUAL
from analysis.studies.budgets.policies import facts as policy_facts, named
from analysis.studies.budgets.recipes import resolve
from analysis.studies.context import Context
from analysis.studies.groups.routers import router_facts, router_for
from analysis.studies.ready.fitted import fitted_for
from analysis.studies.ready.learned import learned_temperatures
from analysis.studies.routing.states import state_for

ROUTER = USUAL["router"]


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
    return State(router, router_facts(name, router), "" if name == ROUTER else name)


def _policy(context: Context, model: Model, method: str, recipe: dict | str | None) -> State:
    policy = resolve(context, model, recipe)
    facts = policy_facts(policy)
    texts = (*facts.get("texts", ()), *filter(None, [facts.get("halves")]))
    return State(policy.integers, facts, " ".join(named(policy)), texts)


def _buckets(context: Context, model: Model, method: str, _: object) -> State:
    return State(state_for(context, model))


def _temperatures(context: Context, model: Model, method: str, _: object) -> State:
    weights = learned_temperatures(context, model)
    return State(weights, texts=_keys(weights.about))


def _calibration(context: Context, model: Model, method: str, _: object) -> State:
    fitted = fitted_for(context, model, method)
    return State(fitted, texts=_keys(fitted.about))


def _keys(about: dict) -> tuple[str, ...]:
    """The texts that a note of how numbers were made names."""
    return tuple(about.get("protocol", {}).get("keys", ()))


FIND: dict[str, Callable[[Context, Model, str, object], State]] = {
    "": lambda context, model, method, _: State(),
    "router": _router,
    "policy": _policy,
    "buckets": _buckets,
    "temperatures": _temperatures,
    "calibration": _calibration,
}
CHOSEN = ("router", "policy")  # there are several of these for a model, so a study names the one it means
