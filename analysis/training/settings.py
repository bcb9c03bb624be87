"""What a training run of a Focus router is: every number that decides its result, checked before anything is read."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from ..commands.groups import TrainRouter
from ..declaration import field, fields_of
from ..errors import BadSetting
from ..groups.router import FocusRouter, RouterSettings
from .steps import warmed

# Phase 2 under a hard mask that no router decides.
CONTROLS = ("drawn", "alone")


@dataclass(frozen=True)
class RouterTraining:
    """What a training run is; with the corpus and the model it decides every number of the result. Errors: BadSetting.

    Phase 1 trains the router with the base frozen, phase 2 the base as well. `rate` is the projection's peak learning
    rate (cosine after `warm_up` steps), `centroids_faster` times that the centroids'. The gate's sharpness rises to
    `sharpest` times its own over the steps after `sharpen_from` of them. `reading`: through the soft gate, or hard,
    where the router gets no gradient and only phase 2 has something to learn; `drawn` and `alone` are its controls:
    groups drawn by chance, and the window and sinks alone. Defaults are those of the command, where it has the field.
    """

    groups: int = TrainRouter.groups
    top: int = TrainRouter.top
    window: int = TrainRouter.window
    n_sink: int = TrainRouter.n_sink
    steps: int = field(TrainRouter.steps, "", low=1, high=1_000_000)
    tokens_per_step: int = TrainRouter.tokens_per_step
    length: int = TrainRouter.length
    rate: float = field(TrainRouter.rate, "", low=0, high=1)
    warm_up: int = 20
    calibration_windows: int = 32
    check_windows: int = 8
    seed: int = TrainRouter.seed
    phase: int = field(TrainRouter.phase, "", options=(1, 2))
    base_rate: float = field(TrainRouter.base_rate, "", low=0, high=1)
    centroids_faster: float = 10.0
    clip: float = 1.0
    d_s: int = TrainRouter.d_s
    temperature: float = TrainRouter.temperature
    iterations: int = TrainRouter.iterations
    balance: str = field(TrainRouter.balance, "", options=("sinkhorn", "softmax"))
    gate: str = TrainRouter.gate
    gate_sharpness: float | None = TrainRouter.gate_sharpness
    gate_offset: float | None = TrainRouter.gate_offset
    sharpen_from: float = 0.7
    sharpest: float = TrainRouter.sharpest
    reading: str = field(TrainRouter.reading, "", options=("soft", "straight_through", "hard", *CONTROLS))
    # What Focus' table 8 tries in place of balance: losses, no gradient from the router to its inputs, centroids that
    # follow the mean of their tokens with this decay, new centroids from k-means every so many steps.
    balance_weight: float = TrainRouter.balance_weight
    entropy_weight: float = TrainRouter.entropy_weight
    detach: bool = TrainRouter.detach
    ema: float = TrainRouter.ema
    recluster_every: int = TrainRouter.recluster_every
    similarity: str = TrainRouter.similarity
    # Places of the layers that have groups; None: all.
    grouped_layers: list[int] | None = TrainRouter.grouped_layers
    # Routers of a layer: one for all heads, or one for each key-value head.
    heads: int = 1

    def __post_init__(self) -> None:
        # Refuses what no router can have.
        self.router_settings()
        for setting in fields_of(RouterTraining):
            setting.check(getattr(self, setting.name), "a training")
        if self.reading in ("hard", *CONTROLS) and (self.phase == 1 or self.balance_weight or self.entropy_weight):
            raise BadSetting("A hard mask gives the router no gradient: train it softly, or only the base (phase 2).")
        if (fewest := min(self.length, self.tokens_per_step)) < max(2, self.groups):
            raise BadSetting(
                f"{self.groups} groups are balanced over the tokens of a step, and it has {fewest:,}: choose fewer "
                "groups, or more tokens in a sequence and in a step."
            )

    def router_settings(self) -> RouterSettings:
        """The settings of the router that is trained; without balance it has no Sinkhorn iterations."""
        settings = {name: getattr(self, name) for name in RouterSettings.__dataclass_fields__}
        return RouterSettings(**settings | {"iterations": self.iterations if self.balance == "sinkhorn" else 0})

    def plain(self) -> dict[str, Any]:
        """As plain data, which names what was trained; as before heads could have routers of their own where they have
        none, so that what was trained then is found again, and otherwise than before a seed had windows of its own, so
        that what was trained then is not. Seed 0 reads what it did."""
        settings = asdict(self)
        if self.heads == 1:
            del settings["heads"]
        return settings | ({"windows": "of step and seed"} if self.seed else {})

    def after(self, router: FocusRouter) -> "RouterTraining":
        """This plan with the settings of a router that is there already, as phase 2 goes on with one."""
        settings = asdict(router.settings)
        return replace(self, balance="sinkhorn" if settings["iterations"] else "softmax", **settings)

    def rate_at(self, step: int) -> float:
        """Multiple of the peak rates: linear warm-up, then cosine to 5%."""
        return warmed(step, self.steps, self.warm_up)

    def sharpening(self, step: int) -> float:
        """Multiple of the gate's sharpness: 1, then rising, so that the soft gate ends near the hard mask."""
        share = ((step + 1) / self.steps - self.sharpen_from) / max(1e-9, 1 - self.sharpen_from)
        return 1 + (self.sharpest - 1) * max(0.0, share)
