"""Studies that may not be stored yet: their numbers are looked for where their own code will put them."""

import pytest

from analysis.papers.beside import beside
from tests.made.studies import studies, there

MADE = studies()


@pytest.mark.parametrize("name", MADE)
def test_numbers_of_a_study_are_where_it_will_put_them(name):
    wanted = [number for one in beside().values() for number in one.numbers if number.study == name]
    assert wanted and not [number for number in wanted if not there(number, MADE[name])]
