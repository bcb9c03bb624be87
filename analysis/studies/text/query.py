"""Which token a page on one head opens with, when no token was chosen yet."""

import numpy as np
import pandas as pd
import torch

from ...statistics.states import States
from .states import query_blocks

# Tokens back from which on a key is far away, unless said otherwise.
FAR = 128


@torch.no_grad()
def far_reads(states: States, head: int, far: int = FAR) -> np.ndarray:
    """float32 [T]: the largest weight that each query of a window puts on one key `far` or more tokens back; 0 where
    there is none. The window's first token, a sink, is no such key."""
    strongest = np.zeros(states.length, np.float32)
    for start, stop in query_blocks(states.length):
        # No query of the block has a far key from here on.
        last = stop - far
        if last > 1:
            weights = states.scores(head, start, stop).softmax(-1)[:, 1:last]  # [n, keys 1 to last]
            back = torch.arange(start, stop)[:, None] - torch.arange(1, last)
            strongest[start:stop] = weights.masked_fill((back < far).to(weights.device), 0.0).amax(-1).cpu()
    return strongest


def telling_query(states: States, head: int, words: pd.DataFrame, offset: int, far: int = FAR) -> int:
    """The query of a window with the head's strongest far read, so that what is shown first means something.

    A content word of one token is preferred, then any token of a content word, then any token; the window's last token
    where nothing is far away. `words` as `token_table` gives them, `offset` the window's first token.
    """
    reads = far_reads(states, head, far)
    rows = words.iloc[offset : offset + len(reads)]
    content = rows["content"].to_numpy(bool)
    single = content & (rows["piece"].str.strip() == rows["word"]).to_numpy()
    for among in (single, content, np.ones(len(reads), bool)):
        strongest = int(np.where(among, reads, 0.0).argmax())
        if among[strongest] and reads[strongest] > 0:
            return strongest
    return len(reads) - 1
