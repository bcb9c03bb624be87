"""The texts of a corpus by domain: novels, Python and WikiText where a folder holds them, else one domain."""

from pathlib import Path

from analysis.errors import BadSetting
from analysis.studies.context import Context
from analysis.studies.text.held_out import chosen, texts_of
from analysis.training.mixture import MIXTURE, documents


def domains(corpus: str, rows: str | None, context: Context) -> dict[str, tuple[list[str], list[str]]]:
    """Name -> (training documents, held-out ones) of the domains that `rows` names (default: all).

    A folder with the folders of the mixture (`books`, `python`, `wikitext2`, at least one) has these domains, prepared
    as for pretraining; any other folder is one domain named as itself. Errors: BadSetting, BadText.
    """
    if not corpus:
        raise BadSetting("The study needs a corpus: name a folder of texts, or one that holds a folder per domain.")
    folder = Path(corpus)
    there = {domain.name: domain for domain in MIXTURE if (folder / domain.folder).is_dir()}
    if not there:
        chosen(rows, [folder.name], "domain")
        return {folder.name: texts_of(corpus, context)}
    found = {}
    for name in chosen(rows, list(there), "domain"):
        context.progress(0.0, f"reading {name}")
        train, valid = (list(documents(folder, there[name], split)) for split in ("train", "valid"))
        held_out = list(dict.fromkeys(valid))
        found[name] = [text for text in dict.fromkeys(train) if text not in held_out], held_out
    return found
