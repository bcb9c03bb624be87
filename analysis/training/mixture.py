"""Corpus folders -> one tokenizer and token shards, by domain.

A corpus folder holds one folder per domain; a domain's texts lie in `train/` and `valid/` below it, or in files whose
name has `train` or `valid` between dots (`wiki.train.tokens`). Train and valid never mix: they are different files.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ..corpus import normalise
from ..errors import BadSetting, BadText
from ..files import write_bytes, write_text, write_whole

END_OF_TEXT = "<|endoftext|>"
# What divides documents in a tokenizer of somebody else: the first that it has.
ENDS = (END_OF_TEXT, "</s>", "<|end_of_text|>", "<eos>")
SPLITS = ("train", "valid")
# Tokens that a shard can tell apart.
LARGEST = 1 << 16


def keep_lines(text: str) -> str:
    """Source code as it is: line breaks and indentation carry meaning; only carriage returns go."""
    return text.replace("\r\n", "\n")


def detokenise(text: str) -> str:
    """WikiText's word-level text as it was written: no space before punctuation, `@-@` joined, headings `== x ==`;
    `<unk>` stays, which is part of the published text."""
    # Marks that tokenising set apart: `well @-@ known`, `1 @,@ 000`.
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    text = re.sub(r"= (?==)|(?<==) =(?= *$)", "=", text, flags=re.M)
    # Quotations and brackets hug what they hold, and punctuation what it follows.
    text = re.sub(r'" ([^"\n]*?) "', r'"\1"', text)
    text = re.sub(r"([(\[]) ", r"\1", text)
    text = re.sub(r" ([,.;:!?)\]%])", r"\1", text)
    # `it 's` and `dogs ' `.
    text = re.sub(r" '(?=(?:s|t|re|ve|ll|d|m)\b)|(?<=s) '(?= )", "'", text)
    return re.sub(r"[ \t]+$", "", re.sub(r"^[ \t]+", "", text, flags=re.M), flags=re.M).strip()


def articles(text: str) -> list[str]:
    """A WikiText file holds many articles; each begins with a first-level heading ` = Title = `."""
    return [part for part in re.split(r"(?m)^(?= = [^=\n]+ = *$)", text) if part.strip()]


@dataclass(frozen=True)
class Domain:
    """One part of the mixture: its folder, its share of the training tokens, and how its files become documents."""

    name: str
    share: float
    folder: str
    prepare: Callable[[str], str]
    split: Callable[[str], list[str]] = lambda text: [text]  # a file is a document


# Of novels, hard-wrapped lines are joined and paragraphs stay.
MIXTURE = (
    Domain("novels", 0.8, "books", normalise),
    Domain("python", 0.1, "python", keep_lines),
    Domain("wikitext", 0.1, "wikitext2", detokenise, articles),
)


def of_corpus(corpus: Path) -> tuple[Domain, ...]:
    """MIXTURE where the folder of one of its domains is there; else a domain for every folder of texts, files as they
    are, its share that of its training bytes (`resharing` gives another)."""
    folders = [path for path in sorted(corpus.iterdir()) if path.is_dir() and split_in(path)]
    if not folders or {domain.folder for domain in MIXTURE} & {path.name for path in folders}:
        return MIXTURE
    own = [Domain(path.name, 0.0, path.name, keep_lines) for path in folders]
    sizes = [sum(path.stat().st_size for path in files(corpus, domain, "train")) for domain in own]
    return tuple(replace(domain, share=size / sum(sizes)) for domain, size in zip(own, sizes, strict=True))


def resharing(domains: tuple[Domain, ...], shares: list[float]) -> tuple[Domain, ...]:
    """The domains with other shares of the training tokens, in their order. Errors: BadSetting."""
    if len(shares) != len(domains) or min(shares) <= 0:
        names = ", ".join(domain.name for domain in domains)
        raise BadSetting(f"{len(shares)} shares were given: give a positive one for each of {names}.")
    return tuple(replace(one, share=share / sum(shares)) for one, share in zip(domains, shares, strict=True))


def split_in(folder: Path) -> bool:
    """Whether a folder holds texts for training, apart from others."""
    return (folder / "train").is_dir() or any(folder.glob("*.train.*"))


def files(corpus: Path, domain: Domain, split: str) -> list[Path]:
    """The files of a domain's split, sorted by name; BadText if there is none."""
    folder = corpus / domain.folder
    if not folder.is_dir():
        raise BadSetting(f"The corpus folder {corpus} has no folder {domain.folder!r}, which holds its {domain.name}.")
    below = folder / split
    candidates = below.iterdir() if below.is_dir() else folder.glob(f"*.{split}.*")
    paths = sorted(path for path in candidates if path.is_file() and not path.name.startswith("."))
    if not paths:
        raise BadText(f"There is no {split} file for {domain.name} in {folder}; put texts into {below}.")
    return paths


def documents(corpus: Path, domain: Domain, split: str) -> Iterator[str]:
    """The prepared documents of a split, in the order of the file names; empty ones are an error, never dropped."""
    for path in files(corpus, domain, split):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadText(f"{path} is not UTF-8 (byte {error.start}); convert it or take it away.") from None
        if not text.strip():
            raise BadText(f"{path} is empty; take it away.")
        yield from map(domain.prepare, domain.split(text))


def train_tokenizer(corpus: Path, mixture: tuple[Domain, ...], vocabulary: int, characters: int) -> Tokenizer:
    """Byte-level BPE over `characters` of training text, each domain with its share; id 0 is `<|endoftext|>`."""

    def sample() -> Iterator[str]:
        for domain in mixture:
            texts = list(documents(corpus, domain, "train"))
            keep = min(1.0, characters * domain.share / sum(map(len, texts)))
            yield from (text[: max(1, round(keep * len(text)))] for text in texts)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # All 256 bytes are tokens, so that no text is out of the vocabulary.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(sample(), trainer)
    return tokenizer


def known(path: Path) -> Tokenizer:
    """A tokenizer that is there already. Errors: BadSetting for one without ENDS, or with too many tokens."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises nothing narrower.
        raise BadSetting(f"{path} is no tokenizer.json ({error}): name one.") from None
    if end_of(tokenizer) is None:
        raise BadSetting(f"The tokenizer {path} has none of {', '.join(ENDS)}, which divide the documents.")
    if tokenizer.get_vocab_size() > LARGEST:
        raise BadSetting(f"The tokenizer {path} has {tokenizer.get_vocab_size():,} tokens: at most {LARGEST:,} fit.")
    return tokenizer


def end_of(tokenizer: Tokenizer) -> str | None:
    """The token that divides documents."""
    return next((token for token in ENDS if tokenizer.token_to_id(token) is not None), None)


def build(
    corpus: Path,
    folder: Path,
    vocabulary: int = 4096,
    characters: int = 24_000_000,
    seed: int = 0,
    tokenizer: Path | None = None,
    shares: list[float] | None = None,
) -> dict:
    """Make (or reuse) `tokenizer.json`, the shards and `mixture.json` in `folder`; returns what mixture.json holds: per
    domain and split shards (raw little-endian uint16), documents, tokens (the `end` token before each document) and
    UTF-8 bytes of the prepared text (without it). Training documents are shuffled with `seed`. `tokenizer`: a
    tokenizer.json to keep instead of training one, so that texts keep their tokens; `shares`: as of `resharing`."""
    described = folder / "mixture.json"
    if described.exists():
        return json.loads(described.read_text())
    if not 257 <= vocabulary <= LARGEST:
        raise BadSetting(f"A byte-level vocabulary has 257 to {LARGEST:,} tokens (16-bit shards), not {vocabulary:,}.")
    if not corpus.is_dir() or not any(corpus.iterdir()):
        raise BadSetting(f"The corpus folder {corpus} is missing or empty; it needs one folder per domain.")
    mixture = of_corpus(corpus)
    mixture = resharing(mixture, shares) if shares else mixture
    for domain in mixture:
        for split in SPLITS:
            # Refuses what lacks before minutes of tokenising.
            files(corpus, domain, split)
    folder.mkdir(parents=True, exist_ok=True)
    byte_pairs = known(tokenizer) if tokenizer else train_tokenizer(corpus, mixture, vocabulary, characters)
    end = end_of(byte_pairs) or END_OF_TEXT
    with write_whole(folder / "tokenizer.json") as place:
        byte_pairs.save(str(place))
    domains: dict[str, dict] = {}
    for domain in mixture:
        domains[domain.name] = {"share": domain.share}
        for split in SPLITS:
            texts = list(documents(corpus, domain, split))
            order = np.random.default_rng(seed).permutation(len(texts)) if split == "train" else range(len(texts))
            rows = byte_pairs.encode_batch_fast([end + texts[i] for i in order], add_special_tokens=False)
            ids = np.concatenate([np.asarray(row.ids, "<u2") for row in rows])  # [T]
            shard = f"{domain.name}-{split}-000.bin"
            write_bytes(folder / shard, ids.tobytes())
            sizes = {"documents": len(texts), "tokens": len(ids), "bytes": sum(len(text.encode()) for text in texts)}
            domains[domain.name][split] = {"shards": [shard], **sizes}
    about = {
        "vocabulary": byte_pairs.get_vocab_size(),
        "seed": seed,
        "end": byte_pairs.token_to_id(end),
        "given": bool(tokenizer),
        "domains": domains,
    }
    write_text(described, json.dumps(about, indent=1))
    return about


def read_shards(folder: Path, about: dict, split: str) -> dict[str, np.ndarray]:
    """The tokens of every domain's split: name -> uint16[T]."""
    return {
        name: np.concatenate([np.fromfile(folder / shard, "<u2") for shard in part[split]["shards"]])
        for name, part in about["domains"].items()
    }


def plan(
    phases: list[tuple], tokens_per_step: int, tokens: dict[str, int], shares: dict[str, float], seed: int
) -> list[np.ndarray]:
    """What is read when: per phase the first token of every row, in the domains' streams laid end to end.

    `phases`: (first step, end step, sequence length), the last of full length, the context. A stream is cut into blocks
    of that many tokens; their order is a permutation (one per epoch), so no block is read twice before every block of
    its domain was read once. A phase takes each domain's share of blocks, cuts them into rows of its own sequence
    length and shuffles the rows: int64[(end - first) * tokens_per_step / length].
    """
    rng, context = np.random.default_rng(seed), phases[-1][2]
    offset, queue = 0, {}
    total = phases[-1][1] * tokens_per_step // context
    for name, count in tokens.items():
        blocks = (count - 1) // context
        if blocks < 1:
            raise BadText(f"The {name} texts give {count:,} tokens and training at {context:,} needs one more.")
        epochs = math.ceil((total * shares[name] + 1) / blocks)
        order = np.concatenate([rng.permutation(blocks) for _ in range(epochs)])
        queue[name] = offset + order * context
        offset += count
    used, rows = dict.fromkeys(tokens, 0), []
    for _, end, length in phases:
        upto = end * tokens_per_step // context
        goal = {name: int(upto * shares[name]) for name in tokens}
        # What rounding leaves over goes to the largest domain.
        goal[max(tokens, key=lambda name: shares[name])] += upto - sum(goal.values())
        starts = np.concatenate([queue[name][used[name] : goal[name]] for name in tokens])
        used = goal
        rows.append(rng.permutation((starts[:, None] + np.arange(0, context, length)).ravel()))
    return rows
