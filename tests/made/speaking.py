"""A language model that is one function of the tokens, with a body and a vocabulary as transformers' models have."""

from types import SimpleNamespace

import torch
from transformers.modeling_outputs import BaseModelOutputWithPast


class Speaking(torch.nn.Module):
    """Says `logits_of(ids [B, T])`, float32 [B, T, vocabulary]."""

    def __init__(self, logits_of, vocabulary):
        super().__init__()
        self.base_model = _Body(logits_of)
        text_config = SimpleNamespace(vocab_size=vocabulary)
        self.config = SimpleNamespace(vocab_size=vocabulary, get_text_config=lambda: text_config)
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids, use_cache, logits_to_keep=0):
        return SimpleNamespace(logits=self.base_model(input_ids).last_hidden_state[:, -logits_to_keep:])


class _Body(torch.nn.Module):
    def __init__(self, logits_of):
        super().__init__()
        self.logits_of = logits_of

    def forward(self, ids):
        return BaseModelOutputWithPast(last_hidden_state=self.logits_of(ids))
