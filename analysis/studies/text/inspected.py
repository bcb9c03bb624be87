"""What a text is for a model, before anything is computed."""

from analysis.runs import Result
from analysis.studies.context import Context, protocol, read


def inspect(model: str = "demo", text: str = "", long_text: str = "windows", *, context: Context) -> Result:
    """Tokens, windows and warnings of a text for this model.

    numbers: `tokens characters bytes windows max_positions byte_fallback_share notes`.
    """
    lm = context.counts(model)
    reading = read(context, lm, text, long_text, passes=False)
    numbers = {
        "name": reading.name,
        "tokens": reading.tokens.total,
        "shown": len(reading.tokens),
        "characters": len(reading.text),
        "bytes": len(reading.text.encode("utf-8", "replace")),
        "windows": len(reading.tokens.spans),
        "max_positions": lm.max_positions,
        "byte_fallback_share": reading.tokens.byte_fallback_share,
        "notes": reading.notes,
    }
    return Result(numbers | {"protocol": protocol("inspect", lm, text, len(reading.tokens))})
