"""Training and stored studies."""

from collections.abc import Mapping
from typing import Any, Self

from ..declaration import field, fields_of
from ..declaration.canonical import canonical
from ..declaration.command import SMALLEST, Command, OfModel, Shape, seed

# The bundled model's training took 0.23 times as long for a token as its reading for Start does, on a processor; and
# its parameters (`models_cache/demo/pretrain.json`).
TRAINED_TOKEN, BUNDLED = 0.23, 5_770_496
# How copies are trained, and what reads them.
WAYS = ("lora", "dora", "focus", "full", "longformer", "performer", "routing_transformer")


class Finetune(OfModel):
    """Baselines trained on a domain: LoRA, DoRA, full fine-tuning, Longformer, Performer, Routing Transformer, Focus'
    router; resumes when stopped."""

    place = "training.finetune:Baseline.run"
    page = "/train-a-router?evidence=ablations"
    changes = True
    exclusive = True
    stored = True

    seed: int = seed()
    corpus: str = field("", "a folder of texts, or of one folder per domain")
    length: int = field(512, "tokens in a window of text")
    windows: int = field(64, "number of held-out windows of text")
    seeds: int = field(
        3,
        "how often each arm is trained at the rate that its first training chooses: with seed and those after it; "
        "three let a difference be said of the method",
    )
    others: int = field(
        1,
        "how often an arm is trained at a rate that its first training did not choose, at most `seeds`",
        low=1,
        high=99,
    )
    method: str | None = field(
        None, f"{', '.join(WAYS[:-1])} or {WAYS[-1]}, one or several (default: all)", control="tuned_method"
    )
    rates: list[float] | None = field(None, "learning rates (default: 1e-5,5e-5,1e-4,1e-3)")
    groups: int = field(8, "number of groups K")
    window: int = field(16, "number of recent tokens that are always read")
    n_sink: int = field(4, "number of first tokens that are always read")
    steps: int = field(600, "number of training steps", control="tuned_steps", low=1, high=1_000_000)
    tokens_per_step: int = field(512, "tokens in one training step")
    rows: str | None = field(None, "domains, the new one first")
    keep: bool = field(
        False, "keep the trained copies as models: finetuned/NAME, of LoRA the adapter alone", control="tuned_keep"
    )
    benchmarks: bool = field(
        False, "ask every copy the benchmarks of Focus' tables too, from models_cache/benchmarks", control="tuned_asked"
    )
    output: str | None = field(None, "file or folder to write")
    work: str | None = field(None, "folder of intermediate results to continue from (default: beside the output)")
    quick: bool = field(False, "compute a stated part of what is stored again, in under two minutes, and store nothing")


class Pretrain(Command):
    """A small language model of your own from a folder of texts; resumes when stopped."""

    place = "training.pretrain:pretrain"
    changes = True
    exclusive = True

    corpus: str = field(help="a folder with one folder of texts per domain, each with `train` and `valid` in it")
    output: str = field(help="file or folder to write")
    work: str | None = field(None, "folder of intermediate results to continue from (default: beside the output)")
    family: str = field("llama", "model family: llama, llama_plain (queries and keys not normalised) or gpt2")
    attention: str = field("dense", "dense, or the method to train with")
    steps: int = field(2600, "number of training steps")
    length: int = field(2048, "context of the model, in tokens")
    growing: bool = field(True, "sequences begin at an 8th of the context and grow")
    tokens_per_step: int = field(8192, "tokens in one training step")
    matrix_rate: float = field(0.01, "learning rate of the matrices")
    other_rate: float = field(0.005, "learning rate of all other parameters")
    vocabulary: int = field(4096, "number of tokens of the tokenizer that is trained first")
    tokenizer: str = field("", "a tokenizer.json to read with in its place, such as that of Llama")
    shares: list[float] | None = field(
        None,
        "share of the tokens of each domain, in the order of the folders' names (default: by their sizes; of the "
        "bundled model's novels, Python and Wikipedia 0.8,0.1,0.1)",
        low=0,
    )
    layers: int | None = field(None, "number of layers (default: 6, of gpt2 4)", low=1, high=1024)
    width: int | None = field(None, "width of the model (default: 256, of gpt2 192)", low=8, high=1 << 16)
    heads: int | None = field(None, "query heads of a layer (default: 8, of gpt2 6)", low=1, high=1024)
    kv_heads: int | None = field(None, "key-value heads (default: half the query heads, of gpt2 all)", low=1, high=1024)
    intermediate: int | None = field(
        None, "width inside the feed-forward layers (default: 3 times the width, of gpt2 4)", low=8, high=1 << 18
    )
    optimiser: str = field(
        "muon", "of hidden matrices: muon, or adamw, which then decays all parameters", options=("muon", "adamw")
    )
    weight_decay: float = field(0.1, "weight decay", low=0, high=10)
    warm_up: int | None = field(None, "steps of warm-up (default: 100, at most a quarter)", low=0, high=1_000_000)
    floor: float = field(0.02, "share of the peak rates at which the cosine ends", low=0, high=1)
    t: float = field(0.4, "softmax temperature, with --attention focal", low=0.05, high=3)
    mean: str = field(
        "prefix",
        "what the mean of a learned temperature is over, with --attention focal_learned",
        options=("prefix", "literal", "token"),
    )
    tau_min: float = field(5.0, "its lower limit, for heads of 128 (11.31 is dense)", low=0.5, high=32)
    tau_max: float = field(10.0, "its upper limit", low=0.5, high=32)
    offset: float | None = field(None, "what it begins at (default: 11.31, dense; the paper has 0)", low=0, high=32)
    seed: int = seed()

    @classmethod
    def workload(cls, arguments: Mapping[str, Any], tokens: int, shape: Shape = SMALLEST) -> int:
        """The tokens of all steps, by how many more parameters the model has than the bundled one."""
        about = cls.defaults | dict(arguments)
        tokens_read = about["steps"] * about["tokens_per_step"]
        return round(TRAINED_TOKEN * tokens_read * cls.parameters(about) / BUNDLED)

    @classmethod
    def parameters(cls, arguments: Mapping[str, Any]) -> int:
        """About how many parameters the model has."""
        about = cls.defaults | dict(arguments)
        layers, width = about["layers"] or 6, about["width"] or 256
        of_layer = 4 * width * width + 3 * width * (about["intermediate"] or 3 * width)
        return layers * of_layer + about["vocabulary"] * width


# What Focal Attention prints of its model and training (sections 2.2, 3.1 and 3.2); rates and sizes are in its tables
# 3 and 4. Queries and keys are normalised.
TRAINED_AS_PRINTED: dict[str, Any] = {
    "family": "llama",
    "vocabulary": 32_000,
    "length": 2048,
    "growing": False,
    "tokens_per_step": 1 << 18,
    "optimiser": "adamw",
    "weight_decay": 0.05,
    "warm_up": 2000,
    "floor": 0.1,
    "mean": "literal",
    "offset": 0.0,
}


class Study(OfModel):
    """A named study, stored; continues when stopped."""

    place = "stored.runner:study"
    changes = True
    exclusive = True
    stored = True

    name: str = field(help="which one", word="NAME")
    seed: int = seed()
    output: str | None = field(None, "file to write")
    work: str | None = field(None, "folder of intermediate results to continue from (default: beside the output)")
    quick: bool = field(False, "compute a stated part of what is stored again, in under two minutes, and store nothing")

    @classmethod
    def from_arguments(cls, arguments: object) -> Self:
        """As of any command; what else is named are sizes, which the named study declares in the lab and checks."""
        given = canonical(arguments)
        names = {declared.name for declared in fields_of(cls)}
        request = super().from_arguments({name: value for name, value in given.items() if name in names})
        request.__dict__["spelled"] = given
        return request

    @property
    def named(self) -> dict[str, Any]:
        """What was named, sizes among it."""
        return self.spelled if "spelled" in self.__dict__ else super().named

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments, and the sizes that were named."""
        return super().arguments | self.named


class Remeasure(OfModel):
    """Stored studies measured again: those out of date or named, the cheapest first; continues when stopped."""

    place = "lab.harness.remeasure:remeasure"
    changes = True
    exclusive = True
    stored = True

    corpus: str = field("", "a folder of texts")
    stale: bool = field(False, "only studies that are out of date: other weights, another version or other sizes")
    only: str | None = field(None, "names of stored studies, separated by commas (default: all)")
    minutes: float | None = field(
        None, "stop after this many minutes and continue another time; 0 only says what it would take"
    )


class Measured(Command):
    """Docs/measured.md, from the stored studies."""

    place = "lab.harness.documented:measured"
    changes = True

    output: str = field("", "file or folder to write")


class Examples(Command):
    """The bundled examples of every page, computed anew."""

    place = "start.examples:examples"
    changes = True
    exclusive = True
