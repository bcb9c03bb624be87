"""Training and stored studies."""

from typing import Any, Self

from ..declaration import field, fields_of
from ..declaration.canonical import canonical
from ..declaration.command import Command, OfModel, seed


class Finetune(OfModel):
    """Baselines trained on a domain: LoRA, full fine-tuning, Performer, Routing Transformer, Focus' router; resumes
    when stopped."""

    place = "training.finetune:finetune"
    page = "/train-a-router?evidence=ablations"
    changes = True
    exclusive = True
    stored = True

    seed: int = seed()
    corpus: str = field("", "a folder of texts, or of one folder per domain")
    length: int = field(512, "tokens in a window of text")
    windows: int = field(64, "number of held-out windows of text")
    seeds: int = field(
        3, "how often each arm is trained: with seed and those after it; three let a difference be said of the method"
    )
    method: str | None = field(None, "lora, focus or full, one or several (default: all)")
    rates: list[float] | None = field(None, "learning rates (default: 1e-5,5e-5,1e-4,1e-3)")
    groups: int = field(8, "number of groups K")
    window: int = field(16, "number of recent tokens that are always read")
    n_sink: int = field(4, "number of first tokens that are always read")
    steps: int = field(600, "number of training steps")
    tokens_per_step: int = field(512, "tokens in one training step")
    rows: str | None = field(None, "domains, the new one first")
    output: str | None = field(None, "file or folder to write")
    work: str | None = field(None, "folder of intermediate results to continue from (default: beside the output)")
    quick: bool = field(False, "compute a stated part of what is stored again, in under two minutes, and store nothing")


class Pretrain(Command):
    """A small language model of your own from a folder of texts; resumes when stopped."""

    place = "training.pretrain:pretrain"
    changes = True
    exclusive = True

    corpus: str = field(help="a folder with one folder of texts per domain")
    output: str = field(help="file or folder to write")
    work: str | None = field(None, "folder of intermediate results to continue from (default: beside the output)")
    family: str = field("llama", "model family: llama or gpt2")
    attention: str = field("dense", "dense, or the method to train with")
    steps: int = field(2600, "number of training steps")
    length: int = field(2048, "context of the model, in tokens")
    tokens_per_step: int = field(8192, "tokens in one training step")
    matrix_rate: float = field(0.01, "learning rate of the matrices")
    other_rate: float = field(0.005, "learning rate of all other parameters")
    vocabulary: int = field(4096, "number of tokens of the tokenizer that is trained first")
    seed: int = seed()


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
        names = {one.name for one in fields_of(cls)}
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
