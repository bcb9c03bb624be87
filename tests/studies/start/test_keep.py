"""A text read with ever fewer keys: losses and what is still read from afar, against other ways to compute them."""

import math

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.methods.oracle import OracleTopK
from analysis.metrics.quality import token_losses
from analysis.seam.attention import Block, apply
from analysis.studies.start.keep import EVERY, KeptFar
from tests.made.asking import SHORT

SHARES = [1.0, 0.3, 0.05]


def test_the_loss_is_that_of_the_best_keys_of_every_query(run, bundled):
    rows = run("keep", SHORT, shares=SHARES, min_distance=20).numbers["rows"]
    lm = bundled.model()
    assert [row["share"] for row in rows] == SHARES and rows[0]["change"] == 0
    ids = torch.as_tensor(lm.tokenizer(SHORT)["input_ids"])[None]
    for row in rows[1:]:
        with torch.no_grad(), apply(lm, OracleTopK(k=row["keys"])):
            loss = float(token_losses(lm, ids).mean())
        assert row["loss"] == pytest.approx(loss, abs=1e-4)
        assert row["change"] == pytest.approx(math.expm1(row["loss"] - rows[0]["loss"]), abs=1e-5)
    assert rows[2]["keys"] < rows[1]["keys"] < ids.shape[1] and rows[2]["loss"] > rows[0]["loss"]


def test_what_is_kept_falls_with_the_share_and_starts_whole(run):
    shares = run("keep", SHORT, shares=SHARES, min_distance=20).arrays["kept"]
    readable = ~np.isnan(shares[0])
    assert (
        readable.sum() > 20
        and (shares[0, readable] == 1).all()
        and (np.diff(shares[:, readable], axis=0) <= 1e-6).all()
    )
    assert not readable[0] and not readable[-20:].any(), "the first token is no key, and nothing is far from the last"


def test_kept_far_attention_is_the_mass_among_the_best_keys():
    draw, size, keys, far = torch.Generator().manual_seed(0), 37, [9, 2], 6
    scores = torch.randn(3, size, size, generator=draw) * 2
    table = torch.softmax(scores.masked_fill(torch.ones(size, size, dtype=torch.bool).triu(1), -torch.inf), -1)
    rows, columns = torch.arange(size), torch.arange(size)
    visible = (columns <= rows[:, None])[None, None]
    far_kept = KeptFar(size, keys, far)
    far_kept.window(0)(Block(0, table[None], visible, rows, columns, torch.zeros(1, dtype=torch.long)), table[None])
    shares = far_kept.shares()
    for key in range(1, size):
        readers = range(-(-(key + far) // EVERY) * EVERY, size, EVERY)
        mass = sum(float(table[:, query, key].sum()) for query in readers)
        for place, count in enumerate(keys, 1):
            best = [(head, query) for head in range(3) for query in readers]
            best = [reader for reader in best if table[reader].topk(count).values[-1] <= table[reader][key]]
            among = sum(float(table[reader][key]) for reader in best)
            assert shares[place, key] == pytest.approx(among / mass if mass else math.nan, nan_ok=True)


@pytest.mark.parametrize("shares", [[], [0.0], [1.5], [0.5] * 33])
def test_bad_shares_are_refused(shares, run):
    with pytest.raises(BadSetting, match="must be 1 to 32 numbers"):
        run("keep", SHORT, shares=shares)
