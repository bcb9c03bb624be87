"""Text that a reader supplied, on its way into Streamlit."""

import re


def plain(text: object) -> str:
    """Text that Streamlit would read as Markdown, with every mark escaped: it shows as it was written."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", str(text)).replace("\n", " ")
