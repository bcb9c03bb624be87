"""What is noted beside the runs: which page asked for a run that is not stored yet, and what was found damaged."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files import append, clear, read_json, sweep, write_json, write_text
from .run import checked_link
from .shelf import room

KEPT_LINKS = 1_000  # of requests whose run was not stored yet
KEPT_SENTENCES = 500


class Notes:
    """`root`/links/<question>.json and `root`/damage.log, a sentence a line."""

    def __init__(self, root: Path) -> None:
        self._links, self._log = root / "links", root / "damage.log"
        sweep(self._links)

    def remember(self, question: str, link: dict[str, Any]) -> None:
        """Keep which page and controls ask for a run that is not stored yet."""
        with room(self._links):
            self._links.mkdir(parents=True, exist_ok=True)
            write_json(self._links / f"{question}.json", link)
        # Another process may clear some of them meanwhile; the rest waits for the next time.
        with suppress(FileNotFoundError):
            for path in sorted(self._links.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-KEPT_LINKS]:
                clear(path)

    def link(self, question: str) -> dict[str, Any] | None:
        """The link of `remember`, or None."""
        return checked_link(read_json(self._links / f"{question}.json"))

    def forget_link(self, question: str) -> None:
        """Its run is stored now, with the link."""
        path = self._links / f"{question}.json"
        if path.exists():
            clear(path)

    def note(self, sentence: str) -> None:
        """Keep a sentence about damage; a full disk loses it, the log of the program has it too."""
        with suppress(OSError):
            append(self._log, " ".join(sentence.split()) + "\n")
            if len(lines := self._lines()) > 2 * KEPT_SENTENCES:
                write_text(self._log, "".join(f"{line}\n" for line in lines[-KEPT_SENTENCES:]))

    def sentences(self, limit: int = 20) -> list[str]:
        """The newest sentences about damage, the newest first."""
        return self._lines()[: -limit - 1 : -1]

    def _lines(self) -> list[str]:
        try:
            return self._log.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            return []
