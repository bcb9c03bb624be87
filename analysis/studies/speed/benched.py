"""What every benchmark answers with, whatever it times."""

from ...answer import Answer, doc, record


@record
class Benchmark(Answer):
    """Times on this machine."""

    rows: list[dict] = doc("what was timed, with its times in milliseconds")
    sentence: str = doc("the result in words")
