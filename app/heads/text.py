"""One query on the text: every token painted by the attention that it gets, and the query marked."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from app.ui import kept_text, painted

LEVELS = ((0.003, "0.3–1%"), (0.01, "1–3%"), (0.03, "3–10%"), (0.1, "10–30%"), (0.3, "over 30%"))
LOWS = [low for low, _ in LEVELS]


def by_weight(weights: Sequence[float | None]) -> tuple[list[int], list[dict]]:
    """Paint for attention weights: a class for every step of about three times above 0.3%; less, and None, is bare."""
    paint = [-1 if weight is None else bisect_right(LOWS, weight) - 1 for weight in weights]
    return paint, painted.heat(paint, [f"{name} of the attention" for _, name in LEVELS])


def spread(row: Sequence[float], offset: int, query: int, size: int) -> list[float | None]:
    """Weights of a window's tokens placed in the text of `size` tokens; None for what `query` (of the window) cannot
    see."""
    weights = [None] * size
    for key in range(query + 1):
        weights[offset + key] = float(row[key])
    return weights


def show(
    tokens: dict,
    weights: Sequence[float | None],
    query: int,
    *,
    key: str,
    identity: str,
    legend: str,
    tips: Sequence[tuple[str, Sequence]] = (),
    crossed: dict | None = None,
    on_token: Callable | None = None,
) -> None:
    """The text painted by `weights`, the token `query` of the text marked; a click on a token calls `on_token`.
    `crossed`: what hovering marks (`painted.crossing`)."""
    hint = "Hover to see what a token reads and who reads it" if crossed else "Hover to see a token"
    paint, palette = by_weight(weights)
    labels = [None if weight is None else f"{weight:.2%}" for weight in weights]
    painted.painted(
        tokens,
        paint,
        palette,
        key=key,
        identity=identity,
        place=f"{key}.{len(weights)}",
        tips=tips or [("attention", labels)],
        legend=f"{legend}; unpainted: less than 0.3%",
        hint=f"{hint}, click to make it the query; a second click or Esc goes back to the first choice.",
        locked=query,
        crossed=crossed,
        on_token=on_token,
    )
    kept_text.keep(tokens, paint, palette, title=f"The text, {legend}", key=key, legend="attention")
