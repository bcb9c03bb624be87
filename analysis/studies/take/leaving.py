"""What the code that leaves cannot run, told from a config.json alone, before a zip is made."""

from ...costs import Shape


def stays(title: str, saves: str, model: str, shape: Shape) -> str | None:
    """Why a method, by its `title` and what it `saves`, does not leave for a model of this shape, one sentence; None
    where it does. The code that leaves reads the keys of tokens alone, and drops them from a cache that holds those of
    each head: neither a latent of MLA, nor what an indexer of the model's own chooses among by place."""
    if shape.compresses:
        return (
            f"{title} leaves as code that reads keys of tokens, and {model} reads compressed entries beside them: look "
            "at it on Cut."
        )
    if saves != "memory" or not (shape.latent or shape.chooses):
        return None
    why = "chooses keys by an indexer of its own" if shape.chooses else "caches one latent for all heads"
    return (
        f"{title} leaves as code that drops keys of each head, and {model} {why}: take a method along that masks, such "
        "as streaming_llm."
    )
