"""One HTML file with its scripts, its styles and its data inside: it asks nobody for anything."""

import html
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# The scripts and styles of the app's screens are these pages' too.
PARTS = HERE.parents[1] / "app" / "ui" / "parts"
SCREEN = ("numbers", "attention", "text", "card", "keep", "map", "read")
WORKER = ("attention", "reading", "forward", "worker")


def source(name: str) -> str:
    """A file of these pages or of the app's parts, by its name."""
    path = HERE / name
    return (path if path.exists() else PARTS / name).read_text(encoding="utf-8")


def body(name: str, /, **words: str) -> str:
    """The body of a page, with the screen of Read, the heads and the `words`, which are HTML, where it names them."""
    return source(name).format(screen=source("read.html"), heads=source("heads.html"), **words)


def whole(title: str, markup: str, scripts: Sequence[str], data: Mapping[str, Any], style: str = "") -> str:
    """The page around `markup`, HTML already, with the screen of Read and the `scripts` of these pages.

    `data`: by the id under which a script finds it, base64 of bytes or JSON of anything else. The policy lets this one
    script run, and workers that are made of text in the page; nothing may be loaded or sent.
    """
    # A script of the app whose names are its own.
    head_map = f"const headMap = (() => {{\n{_script('heads')}\nreturn headsScreen\n}})()"
    script = "\n".join([*map(_script, SCREEN), head_map, *map(_script, scripts)])
    style = "\n".join([style, *(source(f"{name}.css") for name in ("text", "read", "heads", "page"))])
    held = {"worker": "\n".join(map(_script, WORKER))} | {name: _packed(value) for name, value in data.items()}
    blocks = "".join(f'<script type="text/plain" id="{name}">{words}</script>\n' for name, words in held.items())
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{allowed}'; worker-src blob:; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}; base-uri 'none'; form-action 'none'\">\n"
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{html.escape(title)}</title>\n'
        f"<style>{style}</style></head>\n<body>\n{markup}\n{blocks}"
        f'<script type="module">{script}</script>\n</body></html>\n'
    )


def _script(name: str) -> str:
    """A script; what it exports is called by its own name, as `readScreen` of `read`."""
    return source(f"{name}.js").replace("export default function", f"const {name}Screen = function")


def _packed(value: Any) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    # A text that ends a script would end this one.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
