"""Run bundles that somebody could send: cut, changed, with a file too many, or sound and full of hostile words."""

import random
import tempfile
import warnings
import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path

from analysis.runs import Result, RunStore
from tests.stress.hostile import PATHS, hostile_bytes, hostile_text

SOUND = 24  # bundles that the others are made from: each takes a store


def hostile_bundle(dice: random.Random) -> bytes:
    """A file that is none, or a real bundle: as it is, with a bit changed or its end cut off, or with one more file."""
    if dice.random() < 0.2:
        return hostile_bytes(dice)
    data, kind = _made(dice.randrange(SOUND)), dice.randrange(3)
    if kind == 0:
        return data
    if kind == 1:
        changed = bytearray(data)
        changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        return bytes(changed[: dice.choice((len(data), dice.randrange(len(data))))])
    file = BytesIO(data)
    with zipfile.ZipFile(file, "a") as added, warnings.catch_warnings(action="ignore"):
        name = dice.choice((dice.choice(PATHS), "runs/0123456789ab/../../x", "runs/x/manifest.json", "bundle.json"))
        added.writestr(name.replace("\0", "") or "x", hostile_bytes(dice))
    return file.getvalue()


@cache
def _made(seed: int) -> bytes:
    """A sound bundle of one run with a text, whose name, words and numbers are hostile."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="focuscope-bundle-") as folder:
        store = RunStore(Path(folder))
        try:
            text = store.put_text(f"Some words. {_words(dice)}", _words(dice))
            asked = {"model": _words(dice), "text": text, _words(dice): _words(dice)}
            value = dice.choice((1e308, -1, None, [_words(dice)], {_words(dice): _words(dice)}))
            numbers = {"sentence": _words(dice), _words(dice): value}
            run = store.put("groups", asked, Result(numbers), {"model": _words(dice)}, 1.0)
            out = BytesIO()
            store.bundle([run.id], out)
            return out.getvalue()
        finally:
            store.close()


def _words(dice: random.Random) -> str:
    return hostile_text(dice).encode("utf-8", "replace").decode().replace("\0", "")[:200]
