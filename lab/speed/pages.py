"""What every page costs on a model of a real shape: time beside a plain pass, and memory beside what was predicted."""

import copy
import tempfile
from pathlib import Path

from analysis.costs import KNOWN, read_shape
from analysis.errors import BadSetting
from analysis.files import write_json
from analysis.models import Model
from analysis.shapes import make_shape
from analysis.studies.speed.bench_model import bench_model, costs
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import TIMES, Setting, Study, option

WHOLE = "all"


class Pages(Study):
    """`rows` and `plain` as `bench_model` gives them, of a checkpoint with random weights that is made for it and
    removed afterwards; `parameters`."""

    file = "pages-{shape}-{layers}-{length}"
    tables = ("rows", "plain")
    whole = TIMES

    shape: str = option("Qwen2.5-0.5B", "a known shape, such as Qwen2.5-0.5B")
    layers: str = option(WHOLE, "layers of the shape that are made: all, or so many")
    length: int = option(0, "tokens of the text, the bundled story repeated (default: the story as it is)")

    def check(self, lm: Model) -> None:
        _config(self)
        if self.length < 0 or 0 < self.length < 8:
            raise BadSetting(f"The text has {self.length} tokens and must have 8 or more.")

    def measure(self, run: Setting) -> dict:
        # A browser reads models_cache alone; this folder lies outside, and its model goes with it.
        context = copy.copy(run.context)
        context.browser, context._model, context.kept = False, None, {}
        with tempfile.TemporaryDirectory() as folder:
            config, out = Path(folder) / "config.json", Path(folder) / "model"
            write_json(config, _config(self))
            make_shape(str(config), str(out), context.progress)
            bench = bench_model(str(out), "", [self.length] if self.length else None, context).numbers
        protocol = bench["protocol"]
        about = {name: protocol[name] for name in ("dtype", "device", "processor", "text", "window")}
        about |= {"kernel": f"{_named(self)}, random weights", "tokens": bench["plain"][-1]["tokens"]}
        return {name: bench[name] for name in ("rows", "plain", "parameters")} | {"protocol": about}

    def sample(self, run: Setting, numbers: dict) -> dict:
        shape = read_shape(_config(self))
        return {"parameters": float(shape.parameters), "layers": float(shape.layers)}

    @staticmethod
    def shown(numbers: dict) -> dict:
        sizes = numbers["protocol"]["sizes"] if "sizes" in numbers["protocol"] else {}
        name = f"{_named(Pages(**sizes))}: {costs(numbers['rows'], numbers['plain'])}"
        refused = [f"{row['page']} did not run: {row['refused']}" for row in numbers["rows"] if row["refused"]]
        return presented("pages", name, None, *refused)


def _config(sizes: Pages) -> dict:
    """The config.json of the shape, cut to its first layers. Errors: BadSetting."""
    named = {name.partition("/")[2].lower(): config for name, config in KNOWN.items()}
    config = named.get(sizes.shape.rpartition("/")[2].lower())
    if config is None:
        names = ", ".join(name.partition("/")[2] for name in KNOWN)
        raise BadSetting(f"{sizes.shape[:80]!r} is no known shape; there are: {names}.")
    if sizes.layers == WHOLE:
        return dict(config)
    depth = read_shape(config).layers
    if not sizes.layers.isdigit() or not 1 <= int(sizes.layers) <= depth:
        raise BadSetting(f"{sizes.shape} has {depth} layers: make all, or 1 to {depth}, not {sizes.layers[:20]!r}.")
    cut = dict(config) | {"num_hidden_layers": int(sizes.layers)}
    return cut | ({"layer_types": cut["layer_types"][: int(sizes.layers)]} if cut.get("layer_types") else {})


def _named(sizes: Pages) -> str:
    return sizes.shape if sizes.layers == WHOLE else f"{sizes.shape} with {sizes.layers} of its layers"
