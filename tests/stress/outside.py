"""What lies outside the store that hostile input is thrown at, and whether any of it was touched.

Beside the store stand a file with a secret and the folder that the app works in, so that a name such as
`../../secret.txt`, or one without a folder, would hit what is watched.
"""

from pathlib import Path

from analysis.places import CACHE
from tests.stress.deal import SECRET
from tests.stress.rows import Row

OWN = ("state", "server.log", "home/.streamlit")  # of a folder: the store, what the app prints and is set up with


def prepared(folder: Path) -> set[tuple[str, int]]:
    """Lay out `folder` around its store, `folder/state`; returns what lies outside that."""
    for name in ("models/inside", "corpora/inside", "home"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "secret.txt").write_text(SECRET)
    return outside(folder)


def outside(folder: Path) -> set[tuple[str, int]]:
    """(name, bytes) of everything in `folder` outside the store, and in `models_cache`, its own store left out."""
    return {*_listed(folder, OWN), *_listed(CACHE, ("state",))}


def untouched(folder: Path, before: set[tuple[str, int]], part: str, count: int) -> Row:
    """The row that says so: `before` is what `prepared` returned, `count` how many inputs there were since."""
    touched = sorted(outside(folder) ^ before)
    said = f"touched: {touched[0][0]}"[:160] if touched else ""
    return Row(f"files outside the root after {part}", count, 0 if touched else count, said)


def _listed(folder: Path, own: tuple[str, ...]) -> set[tuple[str, int]]:
    known = {folder / name for name in own}
    found = [path for path in folder.rglob("*") if not known & {path, *path.parents}]
    return {(str(path.relative_to(folder.parent)), path.lstat().st_size * path.is_file()) for path in found}
