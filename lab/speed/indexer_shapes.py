"""What does fitting indexers to a real shape take, and was that said?"""

import copy
import tempfile
import time
from pathlib import Path

import torch

from analysis.commands.routing import Route
from analysis.commands.text import Model as Card
from analysis.corpus import natural_samples, token_stream
from analysis.errors import BadSetting
from analysis.indexers.reading import targets
from analysis.indexers.sizes import Sizes
from analysis.runs import RunStore
from analysis.runs.price import predicted, spell, spell_bytes
from analysis.shapes import make_shape
from analysis.statistics import forward
from analysis.studies.context import Context
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, option
from analysis.timing import processor
from analysis.timing.memory import peak_bytes

WHOLE = "they are times and a machine's memory, other ones on every machine"
KINDS = ("dsa", "qsa", "m3", "seer", "moba", "low_rank")
# Of a step whose divergence has to come again.
STEPS, SAMPLE = 2, 128


class IndexerShapes(Study):
    """`route --kinds` with six indexers on a known shape with random weights, made for it and removed afterwards: what
    their training took, all layers, and what was said before."""

    whole = WHOLE

    shape: str = option("Qwen2.5-0.5B", "a known shape, such as Qwen2.5-0.5B")
    layers: int = option(0, "layers of the shape that are made (0: all)", low=0, high=1024)
    length: int = option(2048, "tokens of a prompt", low=128, high=1 << 20)
    prompts: int = option(3, "prompts that calibrate, and as many that test", low=3, high=64)

    def measure(self, run: Setting) -> dict:
        decides = [self.shape, self.layers, self.length, self.prompts]
        taken = run.part("indexer-shapes", decides, lambda: self.of_shape(run.context))
        about = {"text": None, "tokens": 2 * self.prompts * self.length, "window": self.length}
        about |= {name: taken.pop(name) for name in ("dtype", "device", "processor", "threads")}
        return taken | {"protocol": about | {"kernel": f"{self.shape}, random weights, {about['threads']} threads"}}

    def of_shape(self, context: Context) -> dict:
        """One call of the command, as on a first visit."""
        own = copy.copy(context)
        with tempfile.TemporaryDirectory() as folder:
            made = make_shape(self.shape, str(Path(folder) / "model"), context.progress, self.layers or None)
            own.store, own.state, own.browser = RunStore(Path(folder) / "runs"), Path(folder) / "state", False
            own._model, own.kept = None, {}
            lm = own.model(made.path)
            texts = [own.add_text(f"document {place}", text) for place, text in enumerate(self.documents())]
            about = {"model": made.path, "texts": texts, "prompts": self.prompts, "length": self.length, "mlp": False}
            request = Route.from_arguments(about | {"kinds": list(KINDS)})
            asked = Card.from_arguments({"model": made.path})
            answer = asked.compute(context=own)
            card = own.store.put(asked, answer, answer.numbers["protocol"], 1.0)
            price = predicted(own.store, request, 2 * self.prompts * self.length, card)
            # The weights are read when they are first used: they are not of the command.
            forward(lm, token_stream(lm.tokenizer, list(natural_samples().values()))[: self.length])
            answers: list[dict] = []
            begun, used = time.perf_counter(), time.process_time()
            peak = peak_bytes(lambda: answers.append(request.compute(context=own).numbers), lm.device)
            seconds, used = time.perf_counter() - begun, time.process_time() - used
            if peak is None:
                raise BadSetting("This system does not say what a process held at its peak: measure on Linux or a GPU.")
            rows = [
                {name: row[name] for name in ("kind", "shares", "cached", "multiplied", "seconds")}
                for row in answers[0]["indexers"]
            ]
            return {
                "rows": sorted(rows, key=lambda row: -row["seconds"]),
                "said": {"seconds": price.seconds, "low": price.low, "high": price.high, "bytes": price.bytes},
                "taken": {"seconds": seconds, "processor": used, "bytes": peak},
                "layers": lm.num_layers,
                "parameters": lm.parameters,
                "dtype": lm.precision,
                "device": str(lm.device),
                "processor": processor(str(lm.device)),
                "threads": torch.get_num_threads(),
            }

    def documents(self) -> list[str]:
        """The bundled texts, turned to other beginnings and repeated to surely as many tokens."""
        text = " ".join(natural_samples().values())
        count = 2 * self.prompts
        starts = [len(text) * place // count for place in range(count)]
        return [
            ((text[start:] + text[:start]) * -(-8 * self.length // len(text)))[: 8 * self.length] for start in starts
        ]

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids = token_stream(run.lm.tokenizer, list(natural_samples().values()))
        texts = [ids[place * SAMPLE : (place + 1) * SAMPLE] for place in range(2)]
        sizes = Sizes(steps=STEPS, queries=16, min_distance=SAMPLE // 4)
        fittings = targets(run.lm, texts, {kind: kind for kind in KINDS[:4]}, sizes)
        last = {place: fitting.fit().curve[-1].selection for place, fitting in fittings.items()}
        return {kind: sum(x for (_, name), x in last.items() if name == kind) / run.lm.num_layers for kind in KINDS[:4]}

    @staticmethod
    def shown(numbers: dict) -> dict:
        said, taken, sizes = numbers["said"], numbers["taken"], numbers["protocol"]["sizes"]
        told = (
            f"{sizes['shape']} ({numbers['layers']} layers), {sizes['prompts']} prompts of {sizes['length']:,} tokens: "
            f"{spell(taken['processor'])} of a processor, {spell(taken['seconds'])} by the clock (said "
            f"{spell(said['seconds'])}), {spell_bytes(taken['bytes'])} beside the weights (said "
            f"{spell_bytes(said['bytes'])})."
        )
        rest = taken["seconds"] - sum(row["seconds"] for row in numbers["rows"])
        note = f"{spell(rest)} go into reading the prompts, into the routers of buckets beside them and into the test."
        return presented("indexer-shapes", told, None, note)
