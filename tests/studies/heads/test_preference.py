"""`head-preference`: the curve of one head over distance, and how nearly one way its queries point."""

import numpy as np
import pytest

from analysis.commands.heads import HeadPreference
from analysis.routers.preferences import query_statistics
from analysis.studies.heads.preference import head_preference
from analysis.studies.text.states import states_of
from tests.made.evaluating import TEXT


def test_the_curve_is_the_mean_query_on_the_mean_key_turned_apart(context, home):
    lm, text = context.model(str(home / "tiny")), context.add_text("one", TEXT)
    preference = head_preference(HeadPreference(text=text, model=str(home / "tiny"), layer=2, head=3), context=context)
    ids = np.asarray(lm.tokenizer(TEXT, add_special_tokens=False)["input_ids"][: lm.max_positions])
    statistics = query_statistics(lm, [ids])
    table = preference.preference
    assert table["distance"].iloc[0] == 0 and table["distance"].iloc[-1] == lm.max_positions - 1
    scaling = states_of(context, lm, ids, 2)[2].scaling
    wanted = statistics.preference(2, 3, table["distance"].to_numpy()) * scaling
    np.testing.assert_allclose(table["logit"], wanted, rtol=1e-6)
    assert (
        preference.concentration == pytest.approx(statistics.concentration()[2, 3])
        and 0 < preference.concentration <= 1
    )
