"""What a pretraining is: sizes of the model, what it reads with, rates and optimiser, the length of its sequences."""

from dataclasses import dataclass

from ..commands.training import Pretrain
from ..errors import BadSetting
from .steps import warmed

# Plain: without the norm of queries and keys.
FAMILIES = ("llama", "llama_plain", "gpt2")
ATTENTION = ("dense", "focal", "focal_learned", "focus")
OPTIMISERS = ("muon", "adamw")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights. Rates are peaks; lengths and sizes are in tokens. Errors: BadSetting."""

    family: str = Pretrain.family
    attention: str = Pretrain.attention
    steps: int = Pretrain.steps
    context: int = Pretrain.length
    growing: bool = Pretrain.growing
    tokens_per_step: int = Pretrain.tokens_per_step
    tokens_per_pass: int = 4096
    matrix_rate: float = Pretrain.matrix_rate
    other_rate: float = Pretrain.other_rate
    floor: float = 0.02
    warm_up: int = 100
    weight_decay: float = 0.1
    layers: int = 6
    width: int = 256
    heads: int = 8
    kv_heads: int = 4
    intermediate: int = 768
    rope_base: float = 10_000.0
    seed: int = Pretrain.seed
    optimiser: str = Pretrain.optimiser
    # Of attention with a temperature: a constant one, or a learned one's mean, limits and offset.
    t: float = Pretrain.t
    mean: str = Pretrain.mean
    tau_min: float = Pretrain.tau_min
    tau_max: float = Pretrain.tau_max
    offset: float | None = Pretrain.offset

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise BadSetting(f"The family is one of {', '.join(FAMILIES)}, not {self.family!r}.")
        if self.attention not in ATTENTION:
            raise BadSetting(f"The attention is one of {', '.join(ATTENTION)}, not {self.attention!r}.")
        if self.context % 8 or self.tokens_per_step % self.context or self.tokens_per_pass < 1:
            raise BadSetting(
                f"The tokens of a step ({self.tokens_per_step:,}) must be a multiple of the context "
                f"({self.context:,}), and the context a multiple of 8."
            )
        if self.steps < 4 or not 0 <= self.warm_up < self.steps:
            raise BadSetting(f"Training needs at least 4 steps and a shorter warm-up, not {self.steps}/{self.warm_up}.")
        if self.width % self.heads or self.heads % self.kv_heads:
            raise BadSetting(f"{self.heads} heads must divide the width {self.width} and be shared by {self.kv_heads}.")
        if self.optimiser not in OPTIMISERS:
            raise BadSetting(f"The optimiser is one of {', '.join(OPTIMISERS)}, not {self.optimiser!r}.")

    def phases(self) -> list[tuple[int, int, int]]:
        """(first step, end step, sequence length): context/8 to 35%, /4 to 55%, /2 to 75%, the rest in full; all in
        full where sequences do not grow."""
        if not self.growing:
            return [(0, self.steps, self.context)]
        ends = [round(self.steps * part) for part in (0.35, 0.55, 0.75, 1.0)]
        return [(a, b, self.context // cut) for a, b, cut in zip([0, *ends], ends, (8, 4, 2, 1), strict=False)]

    def told(self) -> str:
        """How it was trained, for the model card: lengths, steps and rates."""
        lengths = ", ".join(f"{length:,} to step {end:,}" for _, end, length in self.phases())
        return (
            f"{self.steps:,} steps of {self.tokens_per_step:,} tokens. Sequence length: {lengths}. Cosine to "
            f"{self.floor:.0%} of the peak rates."
        )

    def optimised(self) -> str:
        """By what, for the model card."""
        betas = "betas 0.9 and 0.95"
        if self.optimiser == "adamw":
            rates = f"peak rate {self.matrix_rate} for hidden matrices and {self.other_rate} for the rest"
            return f"AdamW\n({rates}, {betas}, weight decay {self.weight_decay})"
        muon = f"peak rate {self.matrix_rate}, weight decay {self.weight_decay}, updates scaled to AdamW's"
        return f"Muon\nfor hidden matrices ({muon}),\nAdamW for the rest (peak {self.other_rate}, {betas})"

    def phase(self, step: int) -> int:
        """The phase of a step."""
        return next(number for number, (_, end, _) in enumerate(self.phases()) if step < end)

    def seen(self, step: int) -> int:
        """Tokens read after `step` steps."""
        return step * self.tokens_per_step

    def rate(self, step: int) -> float:
        """Factor of the peak rates at a step: linear warm-up, then cosine to `floor`."""
        return warmed(step, self.steps, self.warm_up, self.floor)
