"""Pages, addresses, options, settings and stored numbers are those that were written down."""

import json

from tests.surfaces import WRITTEN, differences, surfaces


def test_nothing_that_others_rely_on_changed_unseen():
    before = json.loads(WRITTEN.read_text(encoding="utf-8"))
    assert all(before.values())
    lines = differences(before, json.loads(json.dumps(surfaces())))
    assert not lines, "meant? then CHANGELOG.md and `python -m tests.surfaces --write`:\n" + "\n".join(lines)
