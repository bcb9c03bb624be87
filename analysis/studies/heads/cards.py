"""Cards of heads: what is known of every head of a model, in one file, and others' cards beside one's own."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...answer import Answer, Worded, doc, record
from ...commands.heads import HeadCards, HeadTexts, ImportCards, Names, Statistics, Why
from ...corpus import natural_samples
from ...errors import BadSetting
from ...files import read_json, write_text
from ...metrics.intervals import interval
from ...runs import state_root
from ...runs.head_notes import checked_cards, notes_of, put_others
from ..context import Context, protocol
from ..text.states import heads_named
from .head import statistics
from .headvis import write_headvis
from .names import names
from .texts import head_texts
from .why import why

FORMAT = "focuscope-head-cards-1"
# Writers of a stream, and places of the corpus, on a card.
WRITERS, PLACES = 3, 3
# What a card says of each name, and of each place.
OF_NAME, OF_PLACE = "name score low high clear verdict".split(), ["before", "query", "value"]


@record
class Card:
    """What is known of one head."""

    layer: int = doc("its layer")
    head: int = doc("its number in the layer")
    name: str = doc("the reader's own name for it")
    note: str = doc("the reader's own note")
    names: list[dict] = doc("by published definitions: name score low high clear, and the verdict of ablation")
    statistics: list[dict] = doc(
        "statistic mean low high over the texts (95%); of fewer than five no interval but points, one of each text"
    )
    why: list[dict] = doc("who explains what it reads in the first text: side writer share; none where nobody asked")
    texts: list[dict] = doc("where in the corpus it reads farthest: before query value")


@record
class CardsOfHeads(Worded):
    """The cards of a model's heads."""

    format: str = doc("of these cards")
    model: str = doc("the model")
    revision: str = doc("of its weights")
    texts: list[str] = doc("titles of the texts that the statistics are means over")
    cards: list[Card] = doc("one of each head that was asked for")
    path: str | None = doc("the file that was written", default=None)


@record
class BroughtCards(Answer):
    """Cards of others that stand beside one's own."""

    path: str = doc("where they are kept")
    heads: int = doc("heads that they are of")


def head_cards(request: HeadCards, *, context: Context) -> CardsOfHeads:
    """What is known of each head: its names with their proof, own words, statistics over the texts, the writers that
    explain it (of those that `writers` says), and where it reads farthest. Errors: BadSetting."""
    path, folder = _writable(request.output, ".json", context), _writable(request.headvis, "", context)
    lm = context.model(request.model)
    titled = [context.text(key) for key in request.texts or []] or list(natural_samples().items())
    keys = request.texts or [context.add_text(*each) for each in titled]
    every = list(product(lm.layer_numbers, range(lm.num_heads)))
    cells = every if request.heads == "all" else sorted(heads_named(lm, request.heads))
    common: dict[str, Any] = {"model": request.model, "seed": request.seed}
    named = names(Names(**common), context=context.within(0.0, 0.3, "names"))
    read = []
    for place, key in enumerate(keys):
        within = context.within(0.3 + 0.2 * place / len(keys), 0.2 / len(keys), "statistics")
        read.append(statistics(Statistics(**common, text=key), context=within).heads)
    places = head_texts(HeadTexts(**common), context=context.within(0.5, 0.2)).examples
    of_name = {cell: [row for row in named.rows if (row["layer"], row["head"]) == cell] for cell in cells}
    asked = {"all": cells, "none": []}.get(request.writers, [cell for cell in cells if of_name[cell]])
    explained: dict[tuple[int, int], list[dict]] = {}
    for done, (layer, head) in enumerate(asked):
        within = context.within(0.7 + 0.3 * done / len(asked), 0.3 / len(asked), f"head {layer}.{head}")
        found = why(Why(**common, text=keys[0], layer=layer, head=head), context=within)
        strongest = found.writers.groupby("side", sort=True).head(WRITERS)
        explained[layer, head] = strongest[["side", "writer", "share"]].to_dict("records")
    own, cards = notes_of(_root(context), lm.name, lm.revision), []
    for layer, head in cells:
        words, cell = own.get(f"{layer}.{head}", {}), (layer, head)
        cards.append(
            Card(
                layer=layer,
                head=head,
                name=words.get("name", ""),
                note=words.get("note", ""),
                names=[{column: row[column] for column in OF_NAME} for row in of_name[cell]],
                statistics=_means([table[(table["layer"] == layer) & (table["head"] == head)] for table in read]),
                why=explained.get(cell, []),
                texts=_places(places, cell),
            )
        )
    count = sum(bool(card.names) for card in cards)
    about = {"seed": request.seed, "unit": "texts", "units": len(keys), "writers": request.writers}
    made = CardsOfHeads(
        format=FORMAT,
        model=lm.name,
        revision=lm.revision,
        texts=[title for title, _ in titled],
        cards=cards,
        sentence=f"Cards of {len(cards)} heads; {count} have a name.",
        notes=named.notes,
        path=str(path) if path else None,
        protocol=protocol("head-cards", lm, keys[0], None, **about),
    )
    if path:
        write_text(path, json.dumps(made.numbers, indent=1, ensure_ascii=False) + "\n")
    if folder:
        texts = [text for _, text in titled]
        write_headvis(folder, lm, texts, cells, made.protocol, context=context.within(0.9, 0.1))
    return made


def import_cards(request: ImportCards, *, context: Context) -> BroughtCards:
    """Keep others' cards of a model beside one's own; pages show them with the name of their file. Errors: BadSetting
    for a file that is no cards, or of another model or revision."""
    if context.browser:
        raise BadSetting("Cards are read on the command line only.")
    lm, path = context.model(request.model), Path(request.table)
    content = read_json(path)
    try:
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"it is no {FORMAT}")
        cards = checked_cards(content["cards"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadSetting(f"{path.name} holds no cards of heads ({error}): give what head-cards writes.") from None
    if (content["model"], content["revision"]) != (lm.name, lm.revision):
        theirs = f"{content['model']} {content['revision']}"
        raise BadSetting(f"{path.name} is about {theirs}, and this model is {lm.name} {lm.revision}.")
    place = put_others(_root(context), lm.name, lm.revision, path.stem, cards)
    about = protocol("import-cards", lm, kernel="none: cards from a file", file=path.name)
    return BroughtCards(path=str(place), heads=len(cards), protocol=about)


def _root(context: Context) -> Path:
    """Where own words and others' cards are kept."""
    return context.store.root if context.store else state_root()


def _writable(output: str, ending: str, context: Context) -> Path | None:
    """The file or folder to write, if any. Errors: BadSetting."""
    if not output:
        return None
    if context.browser or not output.endswith(ending) or Path(output).exists():
        kind = f"FILE{ending}" if ending else "folder"
        raise BadSetting(f"Cards are written to a new {kind}, on the command line only, and not to {output}.")
    return Path(output)


def _means(rows: list[pd.DataFrame]) -> list[dict]:
    """Each statistic of a head over the texts, one row of a table for each."""
    means = []
    for name in rows[0].columns.drop(["layer", "head", "label"]):
        values = np.array([row[name].item() for row in rows], float)
        values = values[~np.isnan(values)]
        if len(values):
            spread = interval(values)
            points: dict[str, Any] = {"points": values.tolist()} if spread.low is None else {}
            means.append({"statistic": name, "mean": spread.mean, "low": spread.low, "high": spread.high} | points)
    return means


def _places(examples: pd.DataFrame, cell: tuple[int, int]) -> list[dict]:
    of_head = (examples["layer"] == cell[0]) & (examples["head"] == cell[1]) & (examples["decile"] == 0)
    rows = examples[of_head & (examples["statistic"] == "mean_distance")].head(PLACES)
    return rows[OF_PLACE].to_dict("records")
