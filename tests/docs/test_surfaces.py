"""Pages, addresses, options, settings and stored numbers are those that were written down."""

import json

from tests.surfaces import WRITTEN, differences, surfaces


def test_nothing_that_others_rely_on_changed_unseen():
    before = json.loads(WRITTEN.read_text(encoding="utf-8"))
    assert all(before.values())
    lines = differences(before, json.loads(json.dumps(surfaces())))
    assert not lines, "meant? then CHANGELOG.md and `python -m tests.surfaces --write`:\n" + "\n".join(lines)


def test_what_came_went_and_changed_is_told_apart():
    before = {"options": {"a": 1, "b": 2}, "pages": {"x": "page"}}
    now = {"options": {"b": 3, "c": 4}}
    assert differences(before, now) == [
        "options: a is gone",
        "options: b was 2 and is 3",
        "options: c is new",
        "pages: x is gone",
    ]
