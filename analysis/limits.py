"""What this installation allows whoever asks: everything on one's own machine, little in a demo that strangers share.

FOCUSCOPE_DEMO=1 locks the model, keeps what all share from being changed, and bounds texts, jobs and their time.
FOCUSCOPE_MODELS=demo,owner/name names the models that may be asked for, with or without the demo.
"""

import os
from dataclasses import dataclass, replace

from .commands import COMMANDS
from .declaration.command import Command
from .errors import BadModel, BadSetting, BadText
from .places import plain_name


@dataclass(frozen=True)
class Limits:
    """`models` that may be asked for (None: any); `text_bytes` of one text; `jobs_each` and `jobs_all` that wait or
    run, of one session and of all; `job_seconds` that one may take (None: any). `upload_bytes` of one file that comes
    in; `uploads` and `uploads_bytes` that wait in the app for one visitor, and `uploads_bytes_all` for all, until they
    are read: the app's own memory holds them. `demo`: strangers share this installation, so nobody is shown the texts
    and runs of others, and `allows` decides about verbs."""

    models: tuple[str, ...] | None = None
    text_bytes: int | None = None
    jobs_each: int = 10
    jobs_all: int = 100
    job_seconds: float | None = None
    upload_bytes: int = 64 << 20
    uploads: int = 40
    uploads_bytes: int = 256 << 20
    uploads_bytes_all: int = 1 << 30
    demo: bool = False

    def allows(self, verb: str) -> bool:
        """Whether a verb may be asked for: in a shared demo only one of the registry that changes nothing which others
        see and does not take the machine for itself."""
        return not self.demo or (verb in COMMANDS and COMMANDS[verb].in_a_demo())

    def check(self, request: Command) -> None:
        """Refuse what is not allowed here. Errors: BadSetting for a verb, BadModel for a model."""
        if not self.allows(request.verb):
            raise BadSetting(
                f"This is a shared demo, and {request.verb} would change or slow what everybody sees: start Focuscope "
                "on your own machine for it."
            )
        for name in ("model", "other_model"):
            self.check_model(request.spelled.get(name) or "demo")

    def check_model(self, name: object) -> None:
        """Refuse a model that is not on the list. Errors: BadModel."""
        # Strangers who share a model also share its precision.
        asked = name if self.demo else plain_name(str(name))
        if self.models is not None and asked not in self.models:
            raise BadModel(
                f"{str(name)[:80]!r} is not among the models of this installation: choose {', '.join(self.models)}."
            )

    def check_text(self, data: bytes, name: str) -> None:
        """Refuse a text that is too long for everybody's patience. Errors: BadText."""
        if self.text_bytes is not None and len(data) > self.text_bytes:
            raise BadText(
                f"{name} has {len(data) / 1e3:,.0f} kB and this shared demo reads {self.text_bytes / 1e3:,.0f} kB: "
                "take a part of it, or start Focuscope on your own machine."
            )


OPEN = Limits()
DEMO = Limits(
    models=("demo",),
    text_bytes=100_000,
    jobs_each=2,
    jobs_all=20,
    job_seconds=300,
    upload_bytes=1 << 20,
    uploads=20,
    uploads_bytes=4 << 20,
    uploads_bytes_all=100 << 20,
    demo=True,
)


def limits() -> Limits:
    """The limits of this process, by its environment."""
    chosen = DEMO if os.environ.get("FOCUSCOPE_DEMO") == "1" else OPEN
    listed = tuple(name.strip() for name in os.environ.get("FOCUSCOPE_MODELS", "").split(",") if name.strip())
    return replace(chosen, models=listed) if listed else chosen
