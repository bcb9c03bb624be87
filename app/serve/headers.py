"""Security headers on every answer of the app: what a page may load, who may frame it, what it tells others."""

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

import streamlit

INDEX = Path(streamlit.__file__).parent / "static" / "index.html"


@cache
def policy() -> str:
    """The content security policy. Scripts are those of the app itself, and the inline script of Streamlit's page, by
    its hash; images and requests never leave this host. `blob:` stays in script-src because Streamlit imports the
    script of every component of ours from a blob that its page makes; only a script that already runs can make one."""
    inline = re.findall(r"<script>(.*?)</script>", INDEX.read_text(encoding="utf-8"), flags=re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in inline]
    rules = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", "blob:", *(f"'sha256-{value}'" for value in hashes)]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'self'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


@cache
def headers() -> tuple[tuple[bytes, bytes], ...]:
    """All of them, as ASGI sends them."""
    values = {
        "content-security-policy": policy(),
        "x-content-type-options": "nosniff",
        "x-frame-options": "SAMEORIGIN",
        "referrer-policy": "no-referrer",
        "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    return tuple((name.encode(), value.encode()) for name, value in values.items())


class Headers:
    """ASGI middleware: every HTTP answer carries them, in the place of what it may say itself."""

    def __init__(self, app: Callable):
        self.app = app

    async def __call__(self, scope: dict, receive: Callable, send: Callable[[dict], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        ours = {name for name, _ in headers()}

        async def sent(message: dict) -> None:
            if message["type"] == "http.response.start":
                foreign = [pair for pair in message.get("headers", ()) if pair[0].lower() not in ours]
                message = {**message, "headers": [*foreign, *headers()]}
            await send(message)

        return await self.app(scope, receive, sent)
