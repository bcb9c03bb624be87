"""Where a model's files are: the bundled one, a local folder, the Hugging Face cache or the Hub; and why a model is not
taken, in one sentence with what happened, why, and what to do.

Loads no torch, and the Hub's client only for a name that is no folder.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from .errors import AnalysisError, BadModel

# Seconds in which the Hub answers whether it has a model.
ANSWER = 3.0
# Bytes; of a larger weight file only its ends are hashed.
HASHED_WHOLE = 64 << 20
CACHE = Path(__file__).parent.parent / "models_cache"
# Below it: trained copies, which are models too.
FINETUNED = "finetuned"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
PRECISIONS = ("float32", "bfloat16", "float16", "float64", "8bit", "4bit")
SPREAD = "spread"  # over all devices
HOW = re.compile(rf"(.*?)(?:@({'|'.join(PRECISIONS)}))?(?:@(cpu|{SPREAD}|cuda(?::[0-9]{{1,2}})?))?", re.DOTALL)
# Families whose attention does not pass through transformers' attention interface.
BYPASS = dict(
    bloom="BLOOM",
    falcon="Falcon",
    falcon_mamba="Falcon Mamba",
    gpt_neo="GPT-Neo",
    mamba="Mamba",
    mamba2="Mamba 2",
    mpt="MPT",
    rwkv="RWKV",
    xglm="XGLM",
    xlstm="xLSTM",
)
PLAIN = "Llama, Qwen, Mistral, Gemma 2, OLMo 2, GPT-2 or Pythia"


def how(name: str) -> tuple[str, str, str]:
    """(name, precision, device) of a model's name: `owner/name@bfloat16@cuda:1`; what it leaves open is `auto`."""
    parts = HOW.fullmatch(name)
    # Every text fits it.
    assert parts is not None
    bare, precision, device = parts.groups()
    return bare, precision or "auto", device or "auto"


def plain_name(name: str) -> str:
    """A model's name without precision and device: what names its files and what was fitted on it."""
    return how(name)[0]


def locate(name: str, root: Path | None = None) -> str | Path:
    """A folder in `models_cache`, another local folder, or a Hub id. With `root`, a folder below it or a Hub id."""
    name = plain_name(name)
    if name == "demo" or root is None and HUB_ID.fullmatch(name) and (CACHE / name / "config.json").is_file():
        return CACHE / name
    folder = Path(os.path.expanduser(name)) if root is None else root / name
    if os.path.isdir(folder) and (root is None or root.resolve() in folder.resolve().parents):
        return folder
    if not HUB_ID.fullmatch(name) or ".." in name or root and (os.path.lexists(folder) or os.path.exists(name)):
        where = f" Folders must lie below {root.name}/." if root else ""
        raise BadModel(
            f"{name[:80]!r} is no folder here and no Hugging Face id: write it like Qwen/Qwen2.5-0.5B.{where}"
        )
    return name


def config_file(name: str, root: Path | None = None) -> Path:
    """The config.json of a model, without its weights: from disk or the cache, and from the Hub when neither has it.

    Raises BadModel as loading the model would.
    """
    place = locate(name, root)
    with explained(name, place):
        if not isinstance(place, Path):
            try:
                return Path(hub().hf_hub_download(place, "config.json", local_files_only=True))
            except OSError:
                ask_the_hub(place)
                return Path(hub().hf_hub_download(place, "config.json"))
        if not (place / "config.json").is_file():
            raise FileNotFoundError("config.json")
    return place / "config.json"


def ask_the_hub(place: str) -> None:
    """Whether the Hub is there and has this model, asked once before anything is fetched: a download would try for half
    a minute to reach a Hub that is not there. Errors: those of the Hub's client, after ANSWER seconds at most."""
    hub().HfApi().model_info(place, timeout=ANSWER)


def weight_bytes(name: str, root: Path | None = None) -> int | None:
    """Bytes of a model's weights on this disk; None where they would have to be downloaded first. Errors: BadModel."""
    return sum(path.stat().st_size for path in weight_files(locate(name, root))) or None


def revision(name: str, root: Path | None = None) -> str | None:
    """Which weights a model's name stands for now, in twelve digits: of the commit in the Hugging Face cache, or over a
    folder's configuration and weights. None where none are on this disk. Changed files are read again."""
    try:
        place = locate(name, root)
    except BadModel:
        return None
    try:
        files = weight_files(place)
        if not files:
            return None
        if not isinstance(place, Path):
            return files[0].parent.name[:12]
        stats = [(path, path.stat()) for path in (place / "config.json", *files)]
        return _hash(tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats))
    # A folder that is just being written.
    except OSError:
        return None


def weight_files(place: str | Path) -> list[Path]:
    """The weight files in a folder, or of a Hub id in the Hugging Face cache."""
    if not isinstance(place, Path):
        config = hub().try_to_load_from_cache(place, "config.json")
        if not isinstance(config, str):
            return []
        place = Path(config).parent
    return sorted(place.glob("*.safetensors"))


@lru_cache(maxsize=64)
def _hash(files: tuple[tuple[Path, int, int], ...]) -> str:
    """Twelve digits over (path, size, time) of files: over what is in them, of a large one its size and both ends."""
    digest = hashlib.sha256()
    for path, size, _ in files:
        with path.open("rb") as file:
            if size > HASHED_WHOLE:
                digest.update(size.to_bytes(8, "little") + file.read(1 << 20))
                file.seek(max(0, size - (1 << 20)))
            digest.update(file.read())
    return digest.hexdigest()[:12]


def hub() -> Any:
    """The Hub's client. What it would print is said here, in a sentence."""
    import huggingface_hub
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()
    return huggingface_hub


def hub_folder(name: str) -> Path:
    """The folder of a Hub id in the Hugging Face cache, whether it is there or not."""
    from huggingface_hub.file_download import repo_folder_name

    return Path(hub().constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model")


def why_not(family: str, known: bool) -> str | None:
    """The sentence for a family whose attention cannot be replaced, None for any other.

    `known`: transformers has it as a causal language model.
    """
    if family in BYPASS:
        return (
            f"{BYPASS[family]} models have no softmax attention that goes through transformers' attention interface, "
            f"so nothing can be put in its place: choose a {PLAIN} model."
        )
    return None if known else f"{family!r} is not a causal language model that transformers knows: choose one that is."


@contextmanager
def explained(name: str, place: str | Path) -> Iterator[None]:
    """Turn whatever loading the model `name` from `place` raises into BadModel: foreign files fail in every way."""
    try:
        yield
    except AnalysisError:
        raise
    except Exception as error:
        raise BadModel(explain(name, place, error)) from error


def explain(name: str, place: str | Path, error: BaseException) -> str:
    """The sentence for `error`, raised while loading the model `name` from `place` (a local folder or a Hub id)."""
    # A quarter of a second, only here.
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and len(causes) < 10:
        causes.append(cause)
    text = " ".join(map(str, causes)).lower()
    if any(isinstance(c, GatedRepoError) for c in causes) or "gated repo" in text:
        return f"{name} is gated: accept its licence on its Hugging Face page and set HF_TOKEN to a token of yours."
    if "trust_remote_code" in text or "requires you to execute" in text:
        return (
            f"{name} needs code from its own repository to run, and that is never executed here: choose a model that "
            "transformers itself supports."
        )
    if "safetensors" in text and any(words in text for words in ("does not appear to have", "no file named")):
        return f"{name} has no safetensors weights, and other formats can carry code: choose a copy that has them."
    if any(isinstance(c, RepositoryNotFoundError) for c in causes) or "is not a valid model identifier" in text:
        return f"There is no model {name!r} on the Hugging Face Hub: check the spelling, or set HF_TOKEN if private."
    if isinstance(place, Path) and not (place / "config.json").is_file():
        return f"The folder {name} has no config.json: give the folder of a transformers model."
    if "does not recognize this architecture" in text or "unrecognized model" in text:
        return f"{name} is of a kind that this version of transformers does not know: choose another model."
    if "ignore_mismatched_sizes" in text:
        return f"The weights of {name} do not have the shapes that its config.json says: fetch both again."
    if "safetensor" in text or "deserializ" in text:
        return f"The weights of {name} are damaged ({str(causes[0])[:80]}): fetch them again."
    text += " ".join(type(cause).__name__ for cause in causes).lower()
    if not isinstance(place, Path) and any(words in text for words in ("connect", "offline", "cached files")):
        return (
            f"{name} is not on this machine and the Hugging Face Hub cannot be reached: check the spelling and the "
            "network, or give a local folder."
        )
    reason = " ".join(str(causes[0]).split())[:160] or "no reason given"
    return f"{name} could not be loaded ({type(causes[0]).__name__}: {reason}): choose another model."
