"""What was read, counted: by hand on masks, and on models against the masks as they were used."""

import pytest
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.metrics.sparsity import ReadCounter
from analysis.seam import reference
from analysis.seam.attention import Block, apply
from tests.contract.test_contract import router
from tests.made.tiny import LAYERS, tiny, token_ids

HEADS, LENGTH = 4, 24


def block(read, rows, total):
    """A block of one layer whose queries stand at `rows`; everything before a query is visible."""
    rows, columns = torch.tensor(rows), torch.arange(total)
    visible = (columns <= rows[:, None])[None, None]
    return Block(0, None, visible, rows, columns, torch.zeros(1), read=torch.tensor(read, dtype=torch.bool) & visible)


def counted(lm, method, length=LENGTH, batch=1):
    counter = ReadCounter(length)
    with torch.no_grad(), apply(lm, method, watch=counter):
        lm(token_ids(batch, length), use_cache=False)
    return counter.reads(method)


def test_reads_by_hand_of_heads_alone_and_of_heads_that_share():
    counter = ReadCounter(4)
    # Two heads: the first reads itself and its predecessor, the second itself only; queries in two blocks.
    counter(block([[[[1, 0], [1, 1]], [[1, 0], [0, 1]]]], [0, 1], 2), torch.zeros(1, 2, 2, 2))
    counter(block([[[[0, 1, 1, 0], [0, 0, 1, 1]], [[0, 0, 1, 0], [0, 0, 0, 1]]]], [2, 3], 4), torch.zeros(1, 2, 2, 4))
    reads = counter.reads(METHODS["dense"]())
    assert reads.attended == 11 / 8, "7 reads of the first head and 4 of the second, by 4 queries each"
    assert reads.reads_causal == 11 / 20 and reads.reads_full == 11 / 32 and reads.kv_read == 11 / 20
    assert counter.reads(METHODS["oracle_topk"](k=1)).kv_read == (20 + 11) / 2 / 20, "all keys and the kept values"
    counter, places = ReadCounter(3), torch.arange(3)
    read = torch.tensor([[[1, 0, 0], [1, 0, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [1, 0, 1]]]).bool()[None]
    visible = (places <= places[:, None])[None, None]
    counter(Block(0, None, visible, places, places, torch.zeros(1), read=read, sharing=2), torch.zeros(1, 2, 3, 3))
    reads = counter.reads(METHODS["dense"]())
    assert reads.attended == 7 / 6 and reads.reads_causal == 7 / 12, "3 keys of the first head, 4 of the second"
    assert reads.attended_kv == 5 / 3 and reads.reads_kv == reads.kv_read == 5 / 6, "1, 2 and 2 keys of the pair"
    assert reads.sharing == pytest.approx(10 / 7)
    assert counter.reads(METHODS["oracle_topk"](k=1)).kv_read == (6 + 5) / 2 / 6, "all keys, the values of the union"
    single, repeated = ReadCounter(2), ReadCounter(2)
    shared = [[[[1, 0], [1, 1]]]]
    single(block(shared, [0, 1], 2), torch.zeros(1, 1, 2, 2))
    repeated(block(shared, [0, 1], 2), torch.zeros(3, 5, 2, 2))
    assert (repeated.attended, repeated.causal, repeated.queries) == (
        15 * single.attended,
        15 * single.causal,
        15 * single.queries,
    )
    assert repeated.reads(METHODS["dense"]()) == single.reads(METHODS["dense"]())


@pytest.mark.parametrize("family", ["llama", "gpt2"])  # two query heads share keys, and none do
def test_reads_of_a_model_by_hand(family, monkeypatch):
    lm = tiny(family)
    causal = LENGTH * (LENGTH + 1) // 2
    dense = counted(lm, METHODS["dense"](), batch=2)
    assert dense.attended == (LENGTH + 1) / 2 and dense.reads_causal == dense.kv_read == 1
    assert dense.reads_full == causal / LENGTH**2
    sunk = METHODS["streaming_llm"](n_sink=2, window=5)
    retained = sum(min(i + 1, 7) for i in range(LENGTH))  # until the window has left the sinks all, then 2 + 5
    streamed = counted(lm, sunk)
    assert streamed.reads_causal == streamed.kv_read == retained / causal and streamed.attended == retained / LENGTH
    best = counted(lm, METHODS["oracle_topk"](k=3))
    top = sum(min(i + 1, 3) for i in range(LENGTH))
    assert best.reads_causal == top / causal and best.kv_read == (1 + best.reads_kv) / 2
    assert best.sharing == 1 if family == "gpt2" else 1 < best.sharing <= 2, "two heads a group choose different keys"
    monkeypatch.setattr(reference, "CPU_BLOCK_BYTES", 4 * HEADS * LENGTH * 7)
    assert counted(lm, sunk) == streamed, "blocks of 7 queries count the same"


def test_what_a_counter_sees():
    counter = ReadCounter(LENGTH)
    with pytest.raises(BadSetting, match="No attention passed this counter"):
        counter.reads(METHODS["dense"]())
    with torch.no_grad(), apply(tiny("llama"), METHODS["dense"](), watch=counter):
        tiny("llama")(token_ids(1, LENGTH), use_cache=False)
    assert counter.queries == LAYERS * HEADS * LENGTH
    assert counted(tiny("llama"), METHODS["focus"].build(router(), reading="soft")).reads_causal == 1
    reads = counted(tiny("mistral"), METHODS["dense"]())  # its own window is 12
    assert reads.attended == sum(min(i + 1, 12) for i in range(LENGTH)) / LENGTH
