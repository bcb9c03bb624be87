"""Why a model could not be loaded: one sentence with what happened, why, and what to do."""

from pathlib import Path

from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError


def explain(name: str, place: str | Path, error: BaseException) -> str:
    """The sentence for `error`, raised while loading the model `name` from `place` (a local folder or a Hub id)."""
    causes: list[BaseException] = []
    while error is not None and len(causes) < 10:
        causes.append(error)
        error = error.__cause__ or error.__context__
    text = " ".join(map(str, causes)).lower()
    if any(isinstance(c, GatedRepoError) for c in causes) or "gated repo" in text:
        return (
            f"{name} is gated: accept its licence on its Hugging Face page and set HF_TOKEN to a token of yours."
        )
    if "trust_remote_code" in text or "requires you to execute" in text:
        return (
            f"{name} needs code from its own repository to run, and that is never executed here: choose a model that "
            "transformers itself supports."
        )
    if "safetensors" in text and any(words in text for words in ("does not appear to have", "no file named")):
        return f"{name} has no safetensors weights, and other formats can carry code: choose a copy that has them."
    if any(isinstance(c, RepositoryNotFoundError) for c in causes) or "is not a valid model identifier" in text:
        return (
            f"There is no model {name!r} on the Hugging Face Hub: check the spelling, or set HF_TOKEN if it is private."
        )
    if isinstance(place, Path) and not (place / "config.json").is_file():
        return f"The folder {name} has no config.json: give the folder of a transformers model."
    if "safetensor" in text or "deserializ" in text:
        return f"The weights of {name} are damaged ({str(causes[0])[:80]}): fetch them again."
    if not isinstance(place, Path) and any(words in text for words in ("connect", "offline", "cached files")):
        return (
            f"{name} is not on this machine and the Hugging Face Hub cannot be reached: check the spelling and the "
            "network, or give a local folder."
        )
    first = (str(causes[0]).splitlines() or ["no reason given"])[0][:120]
    return f"{name} could not be loaded ({type(causes[0]).__name__}: {first}): choose another model."
