"""What a bundle brings is put in its place as one: a journal in the draft folder says what is to come, and the next
store that is opened finishes what a sudden end left halfway, or takes it back."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from ..declaration.canonical import parsed
from ..errors import AnalysisError, BadSetting
from ..files import claimed, clear, read_json, write_json
from . import retention
from .run import Run

DRAFT = "bundle"  # in the name of the folder into which a bundle is unpacked, right below the state folder
JOURNAL = "arrival.json"
NOTHING = "An import was stopped before it was whole, and nothing of it was kept: open the bundle again."
Journal = dict[str, Any]


def check_room(store: Any, new: list[Run]) -> None:
    """Refuse runs from elsewhere that would have to push out others. Errors: BadSetting."""
    runs, size = store.imported()
    limit, room = retention.limits(store.root)
    if runs + len(new) > limit or size + sum(run.bytes for run in new) > room:
        raise BadSetting(
            f"The bundle brings {len(new):,} runs and {runs:,} came in bundles before, which is more than is kept of "
            f"those ({limit:,} runs of {room / 1e6:,.0f} MB), so nothing was brought in: delete some, or keep more."
        )


def arrive(store: Any, place: Path, runs: list[str], texts: list[str]) -> None:
    """Put the unpacked `runs` and `texts` of the draft folder `place` into the store: all, or after an error none."""
    stored = {key for key, *_ in store.texts()}
    journal = {"state": "in", "runs": runs, "texts": [key for key in texts if key not in stored]}
    write_json(place / JOURNAL, journal)
    try:
        _bring(store, place, journal)
    except (OSError, AnalysisError):
        # On a full disk.
        with suppress(OSError):
            write_json(place / JOURNAL, journal | {"state": "back"})
        _take_back(store, journal)
        raise


def finish(store: Any) -> list[str]:
    """End the imports that nobody works on any more; a sentence for each."""
    sentences = []
    for place in store.root.glob(f".tmp-{DRAFT}-*"):
        with claimed(place) as free:
            if not free:
                continue
            journal = read_json(place / JOURNAL)
            try:
                sentences.append(_end(store, place, journal))
            except AnalysisError as error:
                sentences.append(f"An import that was stopped halfway could not be finished: {error}")
                continue
            clear(place)
    return sentences


def _end(store: Any, place: Path, journal: Journal | None) -> str:
    if journal is None:
        return NOTHING
    if journal["state"] == "back":
        _take_back(store, journal)
        return NOTHING
    _bring(store, place, journal)
    return f"An import that was stopped halfway was finished: {len(journal['runs']):,} runs came in."


def _bring(store: Any, place: Path, journal: Journal) -> None:
    for folder in (place / "runs" / run_id for run_id in journal["runs"]):
        if folder.exists():
            store.take(folder)
    for path in (place / "texts" / f"{key}.json" for key in journal["texts"]):
        entry = parsed(path.read_bytes())
        store.put_text(entry["text"], entry["name"])


def _take_back(store: Any, journal: Journal) -> None:
    for run_id in journal["runs"]:
        store.delete(run_id)
    for key in journal["texts"]:
        store.forget_text(key)
