"""What a text is for a model, before anything is computed."""

from ...answer import Answer, doc, record
from ...commands.text import Inspect
from ..context import Context, protocol, read


@record
class Inspected(Answer):
    """What a text is for a model."""

    name: str = doc("name of the text")
    tokens: int = doc("tokens of the whole text")
    shown: int = doc("tokens that are read of it")
    characters: int = doc("characters of the whole text")
    bytes: int = doc("its bytes in UTF-8")
    windows: int = doc("windows that it is read in")
    max_positions: int = doc("tokens that the model reads at once")
    byte_fallback_share: float = doc("share of the tokens that hold a part of a character only")
    notes: list[str] = doc("what was cut")


def inspect(request: Inspect, *, context: Context) -> Inspected:
    """Tokens, windows and warnings of a text for this model."""
    lm = context.counts(request.model)
    reading = read(context, lm, request.text, request.long_text, passes=False)
    return Inspected(
        name=reading.name,
        tokens=reading.tokens.total,
        shown=len(reading.tokens),
        characters=len(reading.text),
        bytes=len(reading.text.encode("utf-8", "replace")),
        windows=len(reading.tokens.spans),
        max_positions=lm.max_positions,
        byte_fallback_share=reading.tokens.byte_fallback_share,
        notes=reading.notes,
        protocol=protocol("inspect", lm, request.text, len(reading.tokens)),
    )
