"""A model as far as counting the tokens of a text needs it: its tokenizer and its context, without the weights, torch
or transformers."""

from dataclasses import dataclass
from pathlib import Path

from ..files import read_json
from ..places import BYPASS, how, locate, revision

# Classes that add nothing to tokenizer.json.
WHOLE = ("TokenizersBackend", "PreTrainedTokenizerFast")
SAID = {"backend", "tokenizer_class", "model_max_length", "bos_token", "eos_token", "pad_token", "unk_token"}


class Plain:
    """A tokenizer.json, called as `analysis.corpus` calls a tokenizer of transformers."""

    def __init__(self, file: Path, begin: str | None) -> None:
        from tokenizers import Tokenizer

        self._coder = Tokenizer.from_file(str(file))
        self._coder.no_truncation()
        self._coder.no_padding()
        self.bos_token_id = None if begin is None else self._coder.token_to_id(begin)

    def __call__(self, text: str, add_special_tokens: bool = True, **_: bool) -> dict[str, list]:
        """`input_ids`, and `offset_mapping`: first and past-the-last character of each token."""
        coded = self._coder.encode(text, add_special_tokens=add_special_tokens)
        return {"input_ids": coded.ids, "offset_mapping": coded.offsets}

    def convert_ids_to_tokens(self, token: int) -> str | None:
        """A token as the vocabulary writes it."""
        return self._coder.id_to_token(token)

    def decode(self, tokens: list[int]) -> str:
        """The text of some tokens, special ones too."""
        return self._coder.decode(tokens, skip_special_tokens=False)


@dataclass(frozen=True)
class Unloaded:
    """A model whose weights stay on the disk; the fields are those of `models.Model`."""

    name: str
    revision: str
    max_positions: int
    tokenizer: Plain


def unloaded(name: str, root: Path | None = None) -> Unloaded | None:
    """The model in a folder whose tokenizer.json is its whole tokenizer. None for any other, which has to be loaded:
    there transformers knows what belongs to the tokenizer, and why a model is refused."""
    place = locate(name, root)
    if how(name) != (name, "auto", "auto") or not isinstance(place, Path):
        return None
    config, settings = read_json(place / "config.json"), read_json(place / "tokenizer_config.json")
    weights, file = revision(name, root), place / "tokenizer.json"
    if not (isinstance(config, dict) and isinstance(settings, dict) and weights and file.is_file()):
        return None
    positions, begin = config.get("max_position_embeddings"), settings.get("bos_token")
    refused = config.get("model_type") in BYPASS
    is_plain = settings.get("tokenizer_class") in WHOLE and not set(settings) - SAID and isinstance(begin, str | None)
    if refused or not is_plain or not isinstance(positions, int):
        return None
    return Unloaded(name, weights, positions, Plain(file, begin))
