"""A typed result, what is stored of it and the schema of what is printed of it, on an example worked by hand."""

import numpy as np
import pytest
from jsonschema import Draft202012Validator, ValidationError
from pandas import DataFrame

from analysis.answer import Answer, doc, frame, json_schema, plain, record, returned


@record
class Row:
    layer: int = doc("of the model")
    share: float | None = doc("None without tokens")
    note: str | None = doc("left out where there is none", default=None)


@record
class Example(Answer):
    count: int = doc("tokens")
    rows: list[Row] = doc("one per layer")
    by_name: dict[str, float] = doc("name -> share")
    table: DataFrame = doc("as rows", row=Row)
    measured: float | None = doc("only where it was asked for", default=None)
    scores: np.ndarray | None = doc("float32 [2]", default=None)


def example(**fields) -> Example:
    rows = [Row(0, 0.5, "half"), Row(1, None)]
    return Example(count=2, rows=rows, by_name={"a": 0.25}, table=frame(Row, rows), protocol={"verb": "x"}, **fields)


def test_what_is_stored_of_an_answer():
    answer = example(scores=np.zeros(2, np.float32))
    assert answer.numbers == {
        "protocol": {"verb": "x"},
        "count": 2,
        "rows": [{"layer": 0, "share": 0.5, "note": "half"}, {"layer": 1, "share": None}],
        "by_name": {"a": 0.25},
    }
    assert list(answer.tables) == ["table"] and list(answer.arrays) == ["scores"]
    assert answer.tables["table"].columns.tolist() == ["layer", "share", "note"]
    assert frame(Row, []).columns.tolist() == ["layer", "share", "note"]
    assert example(measured=0.0).numbers["measured"] == 0.0 and not example().arrays
    assert plain((Row(2, 1.0), range(2))) == [{"layer": 2, "share": 1.0}, [0, 1]]


def test_the_schema_of_an_answer():
    schema = json_schema(Example)
    Draft202012Validator.check_schema(schema)
    assert schema["required"] == ["by_name", "count", "rows"]
    assert schema["properties"]["count"] == {"type": "number", "description": "tokens"}
    assert schema["properties"]["rows"]["items"]["properties"]["share"]["type"] == ["number", "null"]
    assert set(schema["properties"]) == {"by_name", "count", "measured", "rows"}
    validator = Draft202012Validator(schema)
    validator.validate(example(measured=1.0).numbers)
    for wrong in ({"count": "two"}, {"rows": [{"share": 1.0}]}, {"by_name": {"a": "b"}}):
        with pytest.raises(ValidationError):
            validator.validate(example().numbers | wrong)


def test_which_functions_return_one():
    assert returned(example) is Example and returned(frame) is None
