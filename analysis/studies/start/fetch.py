"""A model from the Hugging Face Hub onto this disk: in a process of its own, so that it can be stopped at any time."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ...available import LEFT_OUT, WANTED, on_the_hub
from ...commands.text import Fetch
from ...errors import BadModel, TooLarge
from ...places import hub_folder, plain_name
from ...runs import Result
from ...runs.price import spell_bytes
from ...runs.run import no_model
from ..context import Context

# Seconds between two looks at what has arrived.
LOOK = 0.5
FETCH = "import json, sys; from huggingface_hub import snapshot_download as get; get(**json.loads(sys.argv[1]))"


def fetch(request: Fetch, *, context: Context) -> Result:
    """Download a model into the Hugging Face cache. What arrived stays when it is stopped, and the next time goes on.

    numbers: `name`, `size` in bytes, `licence`. Errors: BadModel (no such model, gated, no network), TooLarge (more
    than is free on the disk).
    """
    offered = on_the_hub(plain_name(request.model))
    folder = hub_folder(offered.name)
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    missing, free = offered.size - _held(folder), shutil.disk_usage(existing).free
    if missing > free:
        raise TooLarge(
            f"{offered.name} takes {spell_bytes(missing)} and {spell_bytes(free)} are free on the disk of {existing}: "
            "choose a smaller model, or make room."
        )
    patterns = {"allow_patterns": WANTED, "ignore_patterns": LEFT_OUT}
    download = json.dumps({"repo_id": offered.name, "cache_dir": str(folder.parent), **patterns})
    with subprocess.Popen(
        [sys.executable, "-c", FETCH, download],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    ) as process:
        try:
            while process.poll() is None:
                arrived = min(_held(folder), offered.size)
                context.progress(
                    arrived / max(offered.size, 1), f"{spell_bytes(arrived)} of {spell_bytes(offered.size)}"
                )
                time.sleep(LOOK)
        finally:
            process.kill()
        last_line = (process.communicate()[1].strip().splitlines() or ["it was ended"])[-1]
    if process.returncode:
        raise BadModel(
            f"{offered.name} could not be downloaded ({last_line[:160]}): try again, and it goes on where it was."
        )
    numbers = {"name": offered.name, "size": offered.size, "licence": offered.licence}
    return Result(numbers | {"protocol": no_model("fetch")})


def _held(folder: Path) -> int:
    """Bytes that have arrived of a model, files that are not whole included."""
    total = 0
    for path in (folder / "blobs").glob("*"):
        try:
            total += path.stat().st_size
        # It just took the name of a whole one.
        except OSError:
            continue
    return total
