"""One query on the text: every token painted by the attention that it gets, and the query marked."""

from collections.abc import Callable, Sequence

from app.ui import export, painted

# Of attention weights: steps of about three times.
LEVELS = ((0.003, "0.3–1%"), (0.01, "1–3%"), (0.03, "3–10%"), (0.1, "10–30%"), (0.3, "over 30%"))
# Of every token of the text, None for what the query cannot see.
Weights = Sequence[float | None]


def spread(row: Sequence[float], offset: int, query: int, size: int) -> list[float | None]:
    """Weights of a window's tokens placed in the text of `size` tokens; `query` is one of the window."""
    weights: list[float | None] = [None] * size
    weights[offset : offset + query + 1] = [float(weight) for weight in row[: query + 1]]
    return weights


def show(
    tokens: dict,
    weights: Weights,
    query: int,
    *,
    key: str,
    identity: str,
    legend: str,
    tips: Sequence[tuple[str, Sequence]] = (),
    crossed: dict | None = None,
    bare: bool = False,
    on_token: Callable | None = None,
) -> None:
    """The text painted by `weights`, the token `query` of the text marked; a click on a token calls `on_token`.
    `crossed`: what hovering marks (`packed.crossing`); `bare`: without legend."""
    hint = "Hover to see what a token reads and who reads it" if crossed else "Hover to see a token"
    paint, palette = painted.classes(weights, LEVELS, " of the attention")
    labels = [None if weight is None else f"{weight:.2%}" for weight in weights]
    painted.painted(
        tokens,
        paint,
        palette,
        key=key,
        identity=identity,
        place=f"{key}.{len(weights)}",
        tips=list(tips) or [("attention", labels)],
        legend=f"{legend}; unpainted: less than 0.3%",
        hint=f"{hint}, click to make it the query; a second click or Esc goes back to the first choice.",
        locked=query,
        crossed=crossed,
        bare=bare,
        on_token=on_token,
    )
    export.keep_text(tokens, paint, palette, title=f"The text, {legend}", key=key, legend="attention")
