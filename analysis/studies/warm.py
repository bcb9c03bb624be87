"""What a worker does before anybody asks it: all that the first text of a reader would wait for."""

from ..commands.text import Inspect, Start
from ..corpus import sample_texts
from . import STUDIES
from .context import Context
from .groups.routers import FOLDER

# Of a bundled text: enough that something is read from afar.
CHARACTERS = 2000


def warm(context: Context, name: str) -> None:
    """Load a model, and read a little with it: code, compiled kernels and threads are there then. Nothing is kept. A
    model that has no router yet is only loaded, as fitting one takes long."""
    model, aside = context.model(name), context.aside()
    title, text = sample_texts()["story"]
    key = aside.add_text(title, text[:CHARACTERS])
    inspect, start = Inspect(text=key, model=name), Start(text=key, model=name)
    if aside.stored(model, f"{FOLDER}/{start.router}.safetensors"):
        for request in (inspect, start):
            request.compute(STUDIES[request.verb], context=aside)
