"""Words and numbers as every page spells them."""

import re


def plain(text: object) -> str:
    """Text that a reader supplied, with every mark escaped that Streamlit would read as Markdown: it shows as it was
    written."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", str(text)).replace("\n", " ")


def size(count: float) -> str:
    """Bytes as a person says them, three digits of them."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            value = count / unit
            return f"{value:,.0f} {name}" if value >= 100 else f"{value:.3g} {name}"
    return f"{count:,.0f} bytes"


def parameters(count: int) -> str:
    """A number of parameters in two or three digits."""
    return f"{count / 1e9:.3g} B" if count >= 1e9 else f"{count / 1e6:.3g} M"
