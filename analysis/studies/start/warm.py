"""What a worker does before anybody asks it: all that the first text of a reader would wait for."""

from ...commands import named
from ...corpus import sample_texts
from ...runs.search import USUAL
from .. import STUDIES
from ..context import Context
from ..groups.routers import FOLDER

# Of a bundled text: enough that something is read from afar.
CHARACTERS = 2000


def warm(context: Context, name: str) -> None:
    """Load a model, and read a little with it: code, compiled kernels and threads are there then. Nothing is kept. A
    model that has no router yet is only loaded, as fitting one takes long."""
    model, aside = context.model(name), context.aside()
    if not aside.stored(model, f"{FOLDER}/{USUAL['router']}.safetensors"):
        return
    title, text = sample_texts()["story"]
    about = {"text": aside.add_text(title, text[:CHARACTERS]), "model": name}
    for verb in ("inspect", "start"):
        named(verb, about).compute(STUDIES[verb], context=aside)
