"""What a text is for a model, before anything is computed; and its tokens as the table every page paints from."""

import pandas as pd

from analysis.groups.words import content_tokens, word_of_tokens
from analysis.runs import Result
from analysis.studies.context import Context, Reading, protocol, read


def token_table(reading: Reading) -> pd.DataFrame:
    """One row per token: `position window piece start end word content`; start and end are character offsets."""
    tokens = reading.tokens
    return pd.DataFrame(
        {
            "position": range(len(tokens)),
            "window": tokens.window,
            "piece": tokens.pieces,
            "start": tokens.starts,
            "end": tokens.ends,
            "word": word_of_tokens(reading.text, tokens.starts, tokens.ends),
            "content": content_tokens(reading.text, tokens.starts, tokens.ends),
        }
    )


def inspect(model: str = "demo", text: str = "", long_text: str = "windows", *, context: Context) -> Result:
    """Tokens, windows and warnings of a text for this model.

    numbers: `tokens characters bytes windows max_positions byte_fallback_share notes`.
    """
    lm = context.model(model)
    reading = read(context, lm, text, long_text)
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
