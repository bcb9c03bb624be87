"""Tiny tokenizers of the two common kinds, and a tiny model saved to a folder: made here, nothing is downloaded."""

import functools
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.made.tiny import GROUPED

SEEN = ["the cat sat on the mat and the cat saw a dog", " 😀 😁 — “hi” 漢字 漢語 \ufffd"] * 20
END = "<|end|>"


@functools.cache
def byte_level(size: int = 300):
    """GPT-2's kind: bytes and merges, also merges that end inside a character; no text begins with a special token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=[END], show_progress=False)
    tokenizer.train_from_iterator(SEEN, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


@functools.cache
def llama_like():
    """Llama 2's kind: ▁ for spaces, one before every text, <0xNN> for unknown characters, <s> begins every text."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdeht\ufffd"]
    words += ["▁t", "▁th", "▁the", "▁c", "▁ca", "▁cat"]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "c"), ("▁c", "a"), ("▁ca", "t")]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


KEPT = tempfile.TemporaryDirectory(prefix="focuscope-tiny-")  # models made in this process, for all tests


def once(name: str, make: Callable[[Path], object], folder: Path) -> Path:
    """Copy to `folder` what `make(folder)` has made, which happens once in a process for each name."""
    saved = Path(KEPT.name, name)
    if not saved.exists():
        make(saved)
    shutil.copytree(saved, folder, dirs_exist_ok=True)
    return folder


def save_model(folder: Path, tokenizer=None, **config) -> Path:
    """A random Llama of 3 layers that reads 64 tokens, saved with `tokenizer` (default: byte_level) to `folder`."""
    tokenizer = tokenizer or byte_level()
    sizes = {**GROUPED, "vocab_size": len(tokenizer), "max_position_embeddings": 64, **config}

    def make(empty: Path) -> None:
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(empty)
        tokenizer.save_pretrained(empty)

    contents = tokenizer.backend_tokenizer.to_str() + repr(sorted(sizes.items()))
    return once(f"model-{zlib.crc32(contents.encode())}", make, folder)
