"""What a method is: one dataclass whose fields are its settings, and the hooks of the seam that it overrides."""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ..declaration import field, fields_of
from ..kernels.dense import dense
from ..seam.calls import MASKED, Attended, Call
from ..seam.hooks import Hooks

# What a page's control is drawn from.
SHOWN = ("help", "price", "low", "high", "step", "options", "future")


def setting(default: Any, help: str, price: str = "live", low: Any = None, high: Any = None, **about: Any) -> Any:
    """The former spelling of `analysis.declaration.field`."""
    warnings.warn("setting(...) is analysis.declaration.field(...) now.", DeprecationWarning, stacklevel=2)
    return field(default, help, price=price, low=low, high=high, **about)


@dataclass
class Method(Hooks):
    """A way to read the context. The base class reads everything; a method overrides what it changes.

    Beside the hooks of `analysis.seam.hooks` these are `build` and `fit`; all else is declared by the class.
    """

    # Its name in words, the same on every page, table and chart.
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    # The fitted state that `build` takes: a word of `studies.ready.candidates.FIND`, or none.
    needs: ClassVar[str] = ""
    # Of "reads" of each query, "memory" after the prompt, time of its "prefill".
    saves: ClassVar[str] = "reads"
    # What `attend` computes itself, of "prompt" and "token".
    kernels: ClassVar[tuple[str, ...]] = ()
    # Looks at every key to choose: a bound on others, never a faster model itself. Some settings may change it; with an
    # annotation it would be a setting itself.
    ceiling = False

    # The settings with which its code can be exported, name -> the one value; None: it cannot. A subclass says it anew.
    exported_with: ClassVar[dict[str, Any] | None] = None

    # How the method takes part in comparisons at equal budgets.
    # The setting that counts keys: more of it reads more.
    budgeted: ClassVar[str | None] = None
    # Settings that count them another way: at their defaults under a budget.
    competing: ClassVar[tuple[str, ...]] = ()
    # The value tried first where `budgeted` counts something else than keys.
    budget_start: ClassVar[int | None] = None
    # of a method that decides at the end of a prompt: setting -> its value at a step of 0 to 100, more keeping more
    budget_steps: ClassVar[dict[str, Callable[[int], float]]] = {}

    def __post_init__(self) -> None:
        for declared in fields_of(type(self)):
            declared.check(getattr(self, declared.name), self.title)

    @classmethod
    def build(cls, state: Any = None, /, **settings: Any) -> Self:
        """The method with the fitted state that it `needs`; settings that are not given are those it was fitted for."""
        return cls(**{"fitted": state} if cls.needs in ("calibration", "rule") else {}, **settings)

    def fit(self, model: Any, windows: Tensor) -> Self:
        """Calibrate on token windows [n, T] of this model and return self; a method that needs a `calibration` leaves
        the result in `fitted` (`analysis.fitted.Fitted`), which `build` is given the next time."""
        return self

    @property
    def reads_future(self) -> bool:
        """Whether these settings let later tokens decide over what earlier ones read: a leak to measure, not to use."""
        return any(getattr(self, item.name) in item.declared.future for item in fields_of(type(self)))

    # What a query reads from memory, in pairs of a key and a value vector (definitions, section 2.14).
    @property
    def reads_of_attended(self) -> float:
        """So many for each key in its softmax."""
        return 1.0

    @property
    def reads_of_visible(self) -> float:
        """So many for each key that it could see."""
        return 0.0

    @property
    def extra_vectors(self) -> float:
        """So many besides."""
        return 0.0

    def fetched(self, attended: float, visible: float) -> float:
        """Pairs of key and value vectors that are read for keys, of counts summed over queries."""
        return self.reads_of_attended * attended + self.reads_of_visible * visible

    @property
    def budget_heads(self) -> int:
        """Heads that share the keys that `budgeted` counts."""
        return 1

    @property
    def budget_limits(self) -> tuple[int, int]:
        """Least and largest value of the setting that is `budgeted`."""
        about = next(item.declared for item in fields_of(type(self)) if item.name == self.budgeted)
        assert about.low is not None and about.high is not None, f"{self.budgeted} of {self.title} has a range"
        return int(about.low), int(about.high)

    def budget_range(self, length: int, target: float) -> tuple[int, int, int]:
        """Least and largest value of that setting in texts of `length` tokens, and one to try first when a query is to
        read `target` keys."""
        low, high = self.budget_limits
        if self.budget_start is not None:
            return low, high, self.budget_start
        return low, max(low, min(high, length * self.budget_heads)), round(target * self.budget_heads)

    @classmethod
    def at_step(cls, step: int) -> dict[str, float]:
        """The settings of a budget at a step of 0 to 100, of a method that decides at the end of a prompt."""
        return {name: value(step) for name, value in cls.budget_steps.items()}

    def addon(self) -> Any:
        """The trained part, a module of torch, if there is one."""
        return next((value for value in vars(self).values() if isinstance(value, torch.nn.Module)), None)

    @classmethod
    def describe(cls) -> dict[str, Any]:
        """The method as plain data, from which a page builds its text and its controls."""
        return {
            "doc": inspect.getdoc(cls),
            "paper": cls.paper,
            "title": cls.title,
            "needs": cls.needs,
            "ceiling": cls.ceiling,
            "saves": cls.saves,
            "kernels": list(cls.kernels),
            "exported": vars(cls).get("exported_with") is not None,
            "budget": cls.budgeted,
            "competing": [*cls.competing, *cls.budget_steps],
            "fields": [
                {"name": item.name, "type": item.kind.__name__, "default": item.default}
                | {name: getattr(item.declared, name) for name in SHOWN}
                for item in fields_of(cls)
            ],
        }


@dataclass
class Dense(Method):
    """Each token reads all tokens before it, as the stock model does.

    It runs through the same code as every other method and gives the stock model's logits, which the parity badge
    shows. What another method changes therefore comes from that method alone.
    """

    title = "Dense"
    paper = "Vaswani et al., 2017"
    exported_with = {}
    dense = True


def read_all(call: Call) -> Attended:
    """Every key up to the query by torch's own kernel, with gradients: for methods that only change the queries."""
    length = call.query.shape[2]
    if call.past and length > 1:
        return Attended(None, MASKED, "Several tokens follow a past, and torch's causal kernel begins at the first.")
    if call.sink_logits is not None and call.needs_gradient:
        return Attended(None, MASKED, "Torch's kernel has no gradient beside learned sinks.")
    out = dense(*call.states, None, length > 1, call.scaling, sink_logits=call.sink_logits)
    return Attended(out, "torch dense", "Every key is read.")
