"""What a study was asked for, checked."""

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.studies.text.held_out import check_range


def check_sizes(lm: Model, length: int, windows: int, window: int | None, n_sink: int | None) -> None:
    """Refuse windows of text, or what is always read in them, that cannot be. Errors: BadSetting."""
    check_range("A window of text", length, 16, lm.max_positions)
    check_range("The number of windows of text", windows, 2, 4096)
    check_range("The window that is always read", window, 1, length - 1)
    check_range("The number of sinks", n_sink, 0, 64)


def chosen(wanted: str | None, there: list[str], what: str = "row") -> list[str]:
    """The names that were asked for, joined by commas, of those there are (default: all). Errors: BadSetting."""
    names = [name.strip() for name in wanted.split(",")] if wanted else list(there)
    if unknown := [name for name in names if name not in there]:
        raise BadSetting(f"There is no {what} {unknown[0][:40]!r}: the {what}s are {', '.join(there)}.")
    return list(dict.fromkeys(names))
