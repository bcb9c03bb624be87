"""Why a model is not taken: one sentence with what happened, why, and what to do."""

from contextlib import contextmanager
from pathlib import Path

from analysis.errors import AnalysisError, BadModel

BYPASS = {  # families whose attention does not pass through transformers' attention interface
    "gptj": "GPT-J",
    "gpt_neo": "GPT-Neo",
    "falcon": "Falcon",
    "bloom": "BLOOM",
    "mpt": "MPT",
    "codegen": "CodeGen",
}
SINKS = {"gpt_oss": "gpt-oss"}  # an extra learned logit in every softmax
PLAIN = "Llama, Qwen, Mistral, Gemma 2, OLMo 2, GPT-2 or Pythia"


def why_not(family: str, known: bool, bypasses: bool) -> str | None:
    """The sentence for a family whose attention cannot be replaced, None for any other.

    `known`: transformers has it as a causal language model; `bypasses`: it does so without the attention interface.
    """
    if family in SINKS:
        return (
            f"{SINKS[family]} models put a learned sink logit into every softmax, which the statistics here do not "
            f"define: choose a model with a plain softmax, such as {PLAIN}."
        )
    if bypasses or family in BYPASS:
        return (
            f"{BYPASS.get(family, family)} models bypass transformers' attention interface, so their attention cannot "
            f"be replaced: choose a {PLAIN} model."
        )
    return None if known else f"{family!r} is not a causal language model that transformers knows: choose one that is."


@contextmanager
def explained(name: str, place: str | Path):
    """Turn whatever loading the model `name` from `place` raises into BadModel: foreign files fail in every way."""
    try:
        yield
    except AnalysisError:
        raise
    except Exception as error:
        raise BadModel(explain(name, place, error)) from error


def explain(name: str, place: str | Path, error: BaseException) -> str:
    """The sentence for `error`, raised while loading the model `name` from `place` (a local folder or a Hub id)."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError  # a quarter of a second, only here

    causes: list[BaseException] = []
    while error is not None and len(causes) < 10:
        causes.append(error)
        error = error.__cause__ or error.__context__
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
    if not isinstance(place, Path) and any(words in text for words in ("connect", "offline", "cached files")):
        return (
            f"{name} is not on this machine and the Hugging Face Hub cannot be reached: check the spelling and the "
            "network, or give a local folder."
        )
    said = " ".join(str(causes[0]).split())[:160] or "no reason given"
    return f"{name} could not be loaded ({type(causes[0]).__name__}: {said}): choose another model."
