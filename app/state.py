"""What the reader chose: one shared selection that drives every page and stands in the URL.

Pure functions over two mappings, the session (`st.session_state`) and the address (`st.query_params`), so that they
are tested without a browser. A control's name is its key in the session, its widget's key and its name in the URL.
"""

import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

CHOSEN = "_chosen"  # name -> value, kept over pages (a widget's own entry dies with the page that shows it)
WRITTEN = "_written"  # name -> text, what this session last put into the URL


@dataclass(frozen=True)
class Control:
    """A value that can stand in the URL: `parse` turns its text into the value or raises ValueError."""

    parse: Callable[[str], object]
    default: object = None


def _matching(pattern: str) -> Callable[[str], str]:
    def parse(raw: str) -> str:
        if not re.fullmatch(pattern, raw):
            raise ValueError(raw)
        return raw

    return parse


def _whole(raw: str, digits: int = 4) -> int:
    if not re.fullmatch(rf"[0-9]{{1,{digits}}}", raw):
        raise ValueError(raw)
    return int(raw)


def _number(raw: str) -> float:
    if not re.fullmatch(r"[0-9]{0,4}(\.[0-9]{1,8})?(e-?[0-9]{1,2})?", raw) or not raw[:1].isdigit():
        raise ValueError(raw)
    return float(raw)


def _one_of(*options) -> Callable[[str], object]:
    spelled = {to_url(option): option for option in options}

    def parse(raw: str) -> object:
        if raw not in spelled:
            raise ValueError(raw)
        return spelled[raw]

    return parse


def to_url(value: object) -> str:
    """The text of a value in the URL; yes and no for switches."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


HASH = r"[0-9a-f]{12}"
MODEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?"
DISTANCES = (16, 32, 64, 128, 256, 512, 1024)  # tokens between query and key
TOPS = (20, 50, 100, 200)  # rows of the pair table
CONTEXTS = tuple(1 << power for power in range(8, 21))  # tokens, 256 to 1,048,576
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # answered at once
KEEPS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.33, 0.5, 0.75)  # fraction of the keys that is read
TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of a router
EVIDENCE = ("train", "collapse", "balance", "causality", "ablations")  # tabs of Train a router
PATHS = ("share", "centroid_cosine", "drift", "start_share", "rank")  # what is followed over the steps of a training
DTYPES = ("bfloat16", "float32", "float16")

CONTROLS = {
    "model": Control(_matching(MODEL), "demo"),
    "text": Control(_matching(HASH)),
    "router": Control(_matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
    "long_text": Control(_one_of("windows", "first"), "windows"),
    "layer": Control(_whole),
    "group": Control(_whole),
    "head": Control(_whole),
    "pair": Control(_matching(r"([0-9]{1,4}\.){2}[0-9]{1,7}\.[0-9]{1,7}")),  # layer.head.query.key
    "distance": Control(_one_of(*DISTANCES), 128),
    "top": Control(_one_of(*TOPS), 100),
    "content": Control(_one_of(True, False), True),
    "measure": Control(_one_of("share", "confidence"), "share"),
    "view": Control(_one_of("PCA", "UMAP"), "PCA"),
    "speed_on": Control(_one_of("model", "shapes"), "model"),
    "speed_what": Control(_one_of("attention", "decode", "inference"), "attention"),
    "speed_heads": Control(_whole, 8),
    "speed_size": Control(_whole, 64),
    "speed_groups": Control(_whole, 8),
    "speed_top": Control(_whole),
    "speed_window": Control(lambda raw: _whole(raw, 7)),
    "speed_sinks": Control(_whole, 0),
    "speed_dtype": Control(_one_of(*DTYPES), DTYPES[0]),
    "speed_batch": Control(_whole, 1),
    "speed_members": Control(_one_of("even", "skewed", "router"), "even"),
    "speed_lengths": Control(_matching(r"[0-9kKmM, ]{1,80}"), "1024, 4096, 16384"),
    "speed_prompt": Control(lambda raw: _whole(raw, 7)),
    "speed_new": Control(_whole, 32),
    "speed_rounds": Control(_whole, 5),
    "tab": Control(_one_of("quality", "speed")),
    "quality": Control(_matching(r"[a-z0-9_.~-]{1,400}")),  # methods and their settings, see quality_controls
    "quality_read": Control(_matching(r"all|[0-9]{2,7}w?")),
    "quality_paint": Control(_matching(r"[a-z_]{1,40}")),
    "quality_token": Control(lambda raw: _whole(raw, 7)),
    "job": Control(_matching(HASH)),
    "shape": Control(_matching(MODEL), "loaded"),  # a well-known model, or the hash of a stored config.json
    "context": Control(_one_of(*CONTEXTS)),
    "sequences": Control(_one_of(*SEQUENCES), 1),
    "keep": Control(_one_of(*KEEPS), 0.1),
    "counted": Control(_one_of("all", "ffn"), "all"),
    "evidence": Control(_one_of(*EVIDENCE), EVIDENCE[0]),
    "train_corpus": Control(_matching(r"[0-9a-f]{12}(\+[0-9a-f]{12}){0,19}|[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
    "train_phase": Control(_one_of(1, 2), 1),
    "train_groups": Control(_whole, 8),
    "train_top": Control(_whole, 1),
    "train_steps": Control(lambda raw: _whole(raw, 6), 100),
    "train_window": Control(_whole, 16),
    "train_sinks": Control(_whole, 4),
    "train_rate": Control(_number, 1e-3),
    "train_base_rate": Control(_number, 1e-4),
    "train_tokens": Control(lambda raw: _whole(raw, 6), 1024),
    "train_gate": Control(_one_of("log", "literal", "centred"), "log"),
    "train_balance": Control(_one_of("sinkhorn", "softmax"), "sinkhorn"),
    "train_reading": Control(_one_of("soft", "straight_through", "hard"), "soft"),
    "train_temperature": Control(_number, 0.1),
    "train_iterations": Control(_whole, 10),
    "train_size": Control(_whole, 16),
    "train_label": Control(_matching(r"[a-z0-9]{1,16}"), "mine"),
    "train_seed": Control(_whole, 0),
    "collapse_rows": Control(_one_of("two", "all"), "two"),
    "collapse_measure": Control(_one_of(*PATHS), PATHS[0]),
    "balance_temperature": Control(_one_of(*TEMPERATURES), 0.1),
    "balance_iterations": Control(_whole, 10),
    "ablation": Control(_matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
    "other": Control(_matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
}
NAMES = {
    "long_text": "long text",
    "distance": "smallest distance",
    "top": "number of pairs",
    "content": "content words",
    "quality": "choice of methods",
    "quality_read": "choice of what is read",
    "quality_paint": "painted method",
    "quality_token": "marked token",
    "speed_on": "choice of what is timed",
    "speed_what": "choice of what is measured",
    "speed_heads": "number of heads",
    "speed_size": "head size",
    "speed_groups": "number of groups",
    "speed_top": "groups per token",
    "speed_window": "window",
    "speed_sinks": "number of sinks",
    "speed_dtype": "precision",
    "speed_batch": "batch",
    "speed_members": "kind of groups",
    "speed_lengths": "list of lengths",
    "speed_prompt": "prompt length",
    "speed_new": "number of new tokens",
    "speed_rounds": "number of rounds",
    "evidence": "part of the page",
    "train_corpus": "corpus",
    "ablation": "study",
    "other": "second router",
}


def read(session: MutableMapping, params: Mapping[str, str]) -> list[str]:
    """Settle every control at the start of a run; returns one sentence for each entry of the link that was dropped.

    The URL wins where it differs from what this session wrote last (a link was opened, or Back was pressed);
    otherwise the widget wins; otherwise the value chosen on another page stays.
    """
    chosen = session.setdefault(CHOSEN, {name: control.default for name, control in CONTROLS.items()})
    written = session.get(WRITTEN, {})
    dropped = []
    for name, control in CONTROLS.items():
        if name in session:
            chosen[name] = session[name]
        raw = params.get(name)
        if raw is not None and raw != written.get(name):
            try:
                chosen[name] = control.parse(raw)
            except ValueError:
                dropped.append(unusable(name, raw))
        session[name] = chosen[name]
    unknown = [name for name in params if name not in CONTROLS]
    if unknown:
        dropped.append(f"The link carries {_quoted(unknown[0])}, which means nothing here; it was dropped.")
    return dropped


def address(session: Mapping) -> dict[str, str]:
    """The URL's parameters for the present selection: only what differs from the default."""
    wanted = {}
    for name, control in CONTROLS.items():
        value = session[CHOSEN][name]
        if value is not None and value != control.default:
            wanted[name] = to_url(value)
    return wanted


def write(session: MutableMapping, params: Mapping[str, str]) -> dict[str, str] | None:
    """The parameters the URL should get now, or None when it already has them."""
    wanted = session[WRITTEN] = address(session)
    return wanted if dict(params) != wanted else None


def choose(session: MutableMapping, **values: object) -> None:
    """Set controls from code: a callback, or a page before its widgets are drawn."""
    for name, value in values.items():
        assert name in CONTROLS, name
        session[name] = session[CHOSEN][name] = value


def settle(session: MutableMapping, name: str, options: list, default: object) -> str | None:
    """Keep a control inside what this model and text offer; returns a sentence when a value had to go."""
    value = session[CHOSEN][name]
    if value in options:
        return None
    choose(session, **{name: default})
    return None if value is None else unusable(name, to_url(value))


def unusable(name: str, raw: str) -> str:
    """The sentence about a value that was dropped."""
    return f"The link's {NAMES.get(name, name.replace('_', ' '))} {_quoted(raw)} is not available here; it was dropped."


def _quoted(raw: str) -> str:
    return f"“{raw[:40]}…”" if len(raw) > 40 else f"“{raw}”"


def pair_key(layer: int, head: int, query: int, key: int) -> str:
    """How one (query, key) pair of one head is named in the URL."""
    return f"{layer}.{head}.{query}.{key}"


def study_args(session: Mapping, *names: str, **more: object) -> dict:
    """The arguments of a study from the selection: the text and model always, `names` besides, `more` as given."""
    chosen = session[CHOSEN]
    args = {name: chosen[name] for name in ("model", "text", "long_text", *names)}
    return args | more
