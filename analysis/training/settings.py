"""What a training run of a Focus router is: every number that decides its result, checked before anything is read."""

import math
from dataclasses import asdict, dataclass, replace

from ..errors import BadSetting
from ..groups.router import FocusRouter, RouterSettings

BALANCES = ("sinkhorn", "softmax")
READINGS = ("soft", "straight_through", "hard")
CONTROLS = ("drawn", "alone")  # phase 2 under a hard mask that no router decides


def warmed(step: int, steps: int, warm_up: int, floor: float = 0.05) -> float:
    """Multiple of a peak rate: linear warm-up, then cosine to `floor`."""
    if step < warm_up:
        return (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True)
class RouterTraining:
    """What a training run is; with the corpus and the model it decides every number of the result.

    Phase 1 trains the router with the base frozen, phase 2 the base as well. `window` tokens are read by all while
    training, `n_sink` first ones too; `length` tokens make one sequence. `rate` is the projection's peak learning rate
    (cosine after `warm_up` steps), `centroids_faster` times that the centroids', `base_rate` the base model's. The
    gate's sharpness rises to `sharpest` times its own over the steps after `sharpen_from` of them. `reading`: through
    the soft gate, or hard, where the router gets no gradient and only phase 2 has something to learn; `drawn` and
    `alone` are its controls: groups drawn by chance, and the window and sinks alone. `balance`
    softmax leaves the groups unbalanced; `similarity` cosine leaves lengths out of the scores. The rest are what Focus'
    table 8 tries in place of balance: weights of a balance and an entropy loss, no gradient from the router to its
    inputs (`detach`), centroids that follow the mean of their tokens with this decay (`ema`), new centroids from
    k-means every so many steps (`recluster_every`).
    Errors: BadSetting.
    """

    groups: int = 8
    top: int = 1
    window: int = 16
    n_sink: int = 4
    steps: int = 300
    tokens_per_step: int = 2048
    length: int = 1024
    rate: float = 1e-3
    warm_up: int = 20
    calibration_windows: int = 32
    check_windows: int = 8
    seed: int = 0
    phase: int = 1
    base_rate: float = 1e-4
    centroids_faster: float = 10.0
    clip: float = 1.0
    d_s: int = 16
    temperature: float = 0.1
    iterations: int = 10
    balance: str = "sinkhorn"
    gate: str = "log"
    gate_sharpness: float | None = None
    gate_offset: float | None = None
    sharpen_from: float = 0.7
    sharpest: float = 3.0
    reading: str = "soft"
    balance_weight: float = 0.0
    entropy_weight: float = 0.0
    detach: bool = False
    ema: float = 0.0
    recluster_every: int = 0
    similarity: str = "dot"

    def __post_init__(self) -> None:
        # Refuses what no router can have.
        self.router_settings()
        if not 1 <= self.steps <= 1_000_000 or not 0 < self.rate < 1 or not 0 < self.base_rate < 1:
            raise BadSetting(
                f"Training takes 1 or more steps at rates between 0 and 1, and got {self.steps} steps at {self.rate} "
                f"(base model {self.base_rate})."
            )
        for name, allowed in (("phase", (1, 2)), ("balance", BALANCES), ("reading", READINGS + CONTROLS)):
            if getattr(self, name) not in allowed:
                raise BadSetting(
                    f"{name} is {getattr(self, name)!r} and must be one of {', '.join(map(str, allowed))}."
                )
        if self.reading in ("hard", *CONTROLS) and (self.phase == 1 or self.balance_weight or self.entropy_weight):
            raise BadSetting("A hard mask gives the router no gradient: train it softly, or only the base (phase 2).")
        if (fewest := min(self.length, self.tokens_per_step)) < max(2, self.groups):
            raise BadSetting(
                f"{self.groups} groups are balanced over the tokens of a step, and it has {fewest:,}: choose fewer "
                "groups, or more tokens in a sequence and in a step."
            )

    def router_settings(self) -> RouterSettings:
        """The settings of the router that is trained; without balance it has no Sinkhorn iterations."""
        names = "groups top d_s temperature window n_sink gate gate_sharpness gate_offset similarity".split()
        iterations = self.iterations if self.balance == "sinkhorn" else 0
        return RouterSettings(iterations=iterations, **{name: getattr(self, name) for name in names})

    def after(self, router: FocusRouter) -> "RouterTraining":
        """This plan with the settings of a router that is there already, as phase 2 goes on with one."""
        fields = asdict(router.settings)
        return replace(self, balance="sinkhorn" if fields["iterations"] else "softmax", **fields)

    def rate_at(self, step: int) -> float:
        """Multiple of the peak rates: linear warm-up, then cosine to 5%."""
        return warmed(step, self.steps, self.warm_up)

    def sharpening(self, step: int) -> float:
        """Multiple of the gate's sharpness: 1, then rising, so that the soft gate ends near the hard mask."""
        share = ((step + 1) / self.steps - self.sharpen_from) / max(1e-9, 1 - self.sharpen_from)
        return 1 + (self.sharpest - 1) * max(0.0, share)
