"""What a worker does before anybody asks it: all that the first text of a reader would wait for."""

from ..commands.text import Start
from ..corpus import sample_texts
from .context import Context

# Of a bundled text: enough that something is read from afar.
CHARACTERS = 2000


def warm(context: Context, name: str) -> None:
    """Load a model, and read a little with it: code, compiled kernels and threads are there then. Nothing is kept. A
    model that has no router yet is only loaded, as fitting one takes long."""
    model, aside = context.model(name), context.aside()
    from .groups.routers import FOLDER
    from .start.start import start

    title, text = sample_texts()["story"]
    request = Start(text=aside.add_text(title, text[:CHARACTERS]), model=name)
    if aside.stored(model, f"{FOLDER}/{request.router}.safetensors"):
        start(request, context=aside)
