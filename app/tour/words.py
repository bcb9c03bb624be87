"""What each step of the tour says: one sentence, computed from the example that it shows."""

from app.budgets.budget_words import share as spelled, signed


def token(size: int, far: int) -> str:
    """The text as the model sees it."""
    return (
        f"The model reads this text as {size:,} tokens; the stronger the colour, the more often a token is read again "
        f"from {far:,} or more tokens later."
    )


def head(piece: str, word: str, layer: int, head: int, heads: int, share: float, distance: int) -> str:
    """What one head reads from one token."""
    return (
        f"At “{piece}”, where “{word}” begins, head {head} of layer {layer} (one of {heads}) puts "
        f"{spelled(round(share, 2))} of its attention on a single token {distance:,} tokens back."
    )


def pair(piece: str, read: str, before: str, distance: int) -> str:
    """Why it reads there: what followed the same piece the last time, where that is so."""
    if before == piece:
        return (
            f"There it finds “{read}”, which followed “{piece}” the last time, {distance:,} tokens earlier: the head "
            "looks up how the name goes on."
        )
    return f"There it finds “{read}”: two places {distance:,} tokens apart, joined by one head."


def sharpen(layer: int, head: int, before: float, after: float, t: float) -> str:
    """What a lower softmax temperature does to another head at the same token."""
    return (
        f"Head {head} of layer {layer} spreads its attention as if over {before:.0f} tokens; a softmax temperature of "
        f"{t:g} sharpens that to {after:.0f}."
    )


def cut(share: float, mean: float, worst: float) -> str:
    """What reading a small share of the pairs costs."""
    return (
        f"If all heads together read only the best {spelled(share)} of the pairs, perplexity changes by "
        f"{signed(mean)} on average, and by {signed(worst)} where it hurts most."
    )
