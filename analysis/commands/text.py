"""What a text and a model are."""

from ..declaration import field
from ..declaration.command import Command, OfModel, OfText, long_text, router, seed


class Read(Command):
    """Files and folders as texts: PDF, Word, HTML, notebooks; what was read of each, kept for the pages."""

    place = "analysis.runs.commands:read"
    changes = True

    files: list[str] = field(
        help="files and folders: plain text, PDF, Word (.docx), HTML, notebooks (.ipynb)", word="FILE..."
    )
    output: str = field("", "file or folder to write")
    runs: str | None = field(None, "state folder of the app (default: FOCUSCOPE_STATE, else the app's own)")


class Inspect(OfText):
    """Tokens, windows and warnings of a text."""

    place = "text.inspected:inspect"
    page = "/"
    unasked = True

    long_text: str = long_text()


class Model(OfModel):
    """The model's card: its routers, and whether it matches the stock model."""

    place = "start.card:model_card"
    page = "/"
    unasked = True

    full: bool = field(
        False, "compare with the stock model at full length, too, beyond every window that the model has"
    )


class Fetch(OfModel):
    """Download of a model from the Hugging Face Hub; resumes when stopped."""

    place = "start.fetch:fetch"
    changes = True


class Start(OfText):
    """What the model reads in a text: one far pair and three sentences."""

    place = "start.start:start"
    page = "/"
    version = 3
    readings = 1.1
    looks = True

    router: str = router()
    min_distance: int = field(128, "fewest tokens between query and key", low=1)
    long_text: str = long_text()
    windows: int | None = field(None, "windows that are read of a long text, its first ones (default: all)", low=1)


class Keep(OfText):
    """A text read with ever fewer keys, each head keeping its best: the loss, and which tokens are still read from
    afar."""

    place = "start.keep:keep"
    page = "/"
    repeated_by = ("shares",)
    scores = True

    shares: list[float] | None = field(None, "shares of the keys that every query of a head keeps, one or several")
    min_distance: int = field(128, "fewest tokens between query and key", low=1)
    long_text: str = long_text()


class Report(OfText):
    """One self-contained page about a text."""

    place = "start.report:report"
    changes = True
    looks = True

    router: str = router()
    min_distance: int = field(128, "fewest tokens between query and key", low=1)
    seed: int = seed()
    output: str = field("report.html", "file or folder to write")


class TryPage(Command):
    """Docs/try.html: the bundled model in one HTML file, which runs it in the browser on any text."""

    place = "analysis.pages.try_page:try_page"
    changes = True

    output: str = field("docs/try.html", "file or folder to write")
