"""What every parameter of a verb means, said once, and how its words become the value that the function takes."""

import argparse
import json
import types
import typing

HELP = {  # parameter or flag -> help; (verb, parameter) where it means something else there
    "--all-windows": "read all windows of a text beyond the context",
    "--all-words": "not only content words",
    "--first": "read only the first window of a text beyond the context",
    "against": "measure on these texts (default: the later half)",
    "attended": "keys of a query on average, instead of --share",
    "attention": "dense, or a method to train with",
    "balance": "sinkhorn or softmax",
    "base": "of the rotation, with --rope base",
    "base_rate": "learning rate of the model, in phase 2",
    "batch": "sequences at once",
    "batches": "sequences at once, one or several sizes (default: 1,8,64)",
    "beta": "keys in all, by the sum of the ranks",
    "buckets": "C (default: length / 32)",
    "bundle": "what `bundle-out` wrote",
    "by_layer": "one temperature for each layer",
    "cap": "most keys of a head (default: the policy's)",
    "caps": "most keys of a head, one or several (default: 32,64,128,256,512)",
    "choices": "candidate answers; chance is one by them",
    "chromium": "hostile inputs in a browser",
    "clusters": "of routing_transformer",
    "columns": "first and last key of an exact tile",
    "config": "a config.json, - for standard input, or a model (default: what --model names)",
    "contexts": "tokens, one or several lengths (default: 1024 to the model's context)",
    "corpus": "a folder of texts",
    "d_s": "of the routing vectors",
    "data": "one folder of files per task (default: models_cache/benchmarks)",
    "depths": "0 beginning, 1 end (default: five of them)",
    "dtype": "bfloat16, float16 or float32",
    "engine": "local, ray, or ray://HOST:10001",
    "every": "seconds between two interactions of a reader",
    "examples": "of labels (default: 4,16,64)",
    "factor": "times the context, beyond which nothing is read",
    "family": "llama or gpt2",
    "floor": "keys that every head gets",
    "gate": "log, literal or centred",
    "given": "its other arguments, as a JSON object",
    "gpus": "that each worker gets, on Ray",
    "grid": "distances 16, 64, 256, 1024 with sinks and without",
    "group": "only this group",
    "groups": "K",
    "head": "which head",
    "head_dim": "numbers of a key",
    "heads": "of queries",
    "ids": "the 12 digits that `runs` lists",
    "items": "questions in each cell",
    "iterations": "of Sinkhorn",
    "keep": "fraction of the keys that is read",
    "keys": "that every query reads",
    "kv_heads": "heads of keys and values (default: as many as heads)",
    "label": "ends the router's name, so that it stands beside others",
    "layer": "which layer",
    "layers": "temperatures that each layer gets alone",
    "length": "tokens of one window of text",
    "lengths": "tokens, one or several lengths",
    "made": "the date of the stored curves that are asked for",
    "mass": "of a head's attention that its rank holds",
    "matrix_rate": "learning rate of the matrices",
    "method": "one or several of lora, focus, full (default: all)",
    "methods": "dense,focus,streaming_llm,... (default: all there are)",
    "min_distance": "tokens between query and key, at least",
    "minutes": "stop after so many, to go on another time; 0 only says what it would take",
    "min_pos": "first position that counts in a rank",
    "mlp": "the learned router",
    "model": "demo, a Hugging Face id, or a local folder",
    "n_sink": "first tokens that are always read",
    "name": "the policy is stored under this name",
    "new_tokens": "generated after the prompt",
    "only": "names of stored studies, joined by commas (default: all)",
    "other": "the other one",
    "other_model": "the other router's model (default: the same)",
    "other_rate": "learning rate of everything else",
    "output": "where the result is written",
    "over": "NAME=A,B,C: an argument of it, and its values",
    "own": "whitening and geometric in buckets of their own, too",
    "pages": "hostile inputs into pages",
    "part": "which window of the text",
    "partition": "raw keys, whitening or gwr_geometric",
    "parts": "load, faults, validators, pages, chromium (default: all)",
    "phase": "1: the router; 2: a copy of the model with it",
    "policy": "of CSA, a stored name or JSON (default: the stored one)",
    "position": "of the token in the text (default: the one hurt most)",
    "probes": "uuid_needle,json,labels,... (default: all tasks)",
    "projections": "count the projections and the output head beside attention",
    "prompts": "of each side, where buckets are routed to",
    "query": "which token of the window (default: its last)",
    "question": "sparse (set-up A) or dense (set-up B): how it is read",
    "rate": "learning rate",
    "rates": "learning rates (default: 1e-5,5e-5,1e-4,1e-3)",
    "reading": "soft, straight_through, or in phase 2 hard",
    "reads": "as many keys as read this share of the causal pairs",
    "repeats": "rounds, dense and sparse in turns",
    "rope": "as_trained, longer, dynamic_ntk or base",
    "router": "which router of Focus: kGROUPS-topMEMBERSHIPS",
    "rows": "only these rows of it (default: all)",
    "runs": "the app's state folder (default: FOCUSCOPE_STATE, else its own)",
    "seconds": "of load",
    "seed": "of everything random",
    "sessions": "readers at once",
    "share": "of the causal pairs",
    "shares": "of the causal pairs (default: 1 to 0.02)",
    "shots": "examples in a prompt (default: the task's own)",
    "sinks": "first keys that are left out (stored: 0 and 4)",
    "skew": "groups of unequal size",
    "stale": "only what is out of date: other weights, version or sizes",
    "steps": "of training",
    "store": "keep buckets, routers and curves in the fitted state",
    "study": "a verb, or the name of a study",
    "t": "temperatures; 1 is dense attention",
    "tasks": "a task of the papers, or one of the harness itself",
    "temperature": "of the assignment",
    "text": "a text file, - for standard input, or story, essay, program",
    "texts": "text files, or story, essay, program",
    "tokens": "of each side, at most",
    "tokens_per_step": "of training",
    "tolerance": "of perplexity, as a share",
    "tolerance_bin": "of the worst position bin",
    "too_long": "refuse, or cut the beginning of prompts and count it",
    "top": "groups each token belongs to",
    "total": "keys of all heads together, instead of --beta",
    "validators": "hostile inputs into what judges input",
    "visited": "buckets (default: C / 32)",
    "vocabulary": "tokens of the tokenizer that is trained first",
    "what": "attention (a kernel), decode (one token), inference (a whole model), statistics (of every head)",
    "window": "tokens that are always read",
    "windows": "held-out windows of text",
    "without_first": "leave the first token out and renormalise",
    "words": "all of them stand in a run that is listed",
    "work": "what is measured so far, to go on from (default: beside the output)",
    "workers": "parts at once; each holds a model of its own",
    **{
        (verb, "window"): "tokens read at once (default: as many as the model takes)"
        for verb in "evaluate equal-budget temperature-curve calibrate cap-sweep reads-sweep reads-text".split()
        + ["budgets", "lost-keys"]
    },
    ("statistics", "window"): "tokens of the window mass, the token itself included",
    ("head", "window"): "tokens of the window mass, the token itself included",
    ("head", "rows"): "first and last query of an exact tile",
    ("bench", "router"): "memberships of this router on the bundled story, such as k8-top1",
    ("bench", "layer"): "of that router (default: the middle one)",
    ("benchmark", "items"): "only the first so many questions",
    ("calibrations", "policy"): "a stored policy",
    ("equal-budget", "windows"): "windows of the text in which reads are counted",
    ("finetune", "corpus"): "folder of texts, or of one folder per domain",
    ("finetune", "rows"): "domains, the new one first",
    ("fit-method", "method"): "magicpig, routing_transformer or focal_learned",
    ("fit-method", "texts"): "text files (default: the bundled samples except the story)",
    ("head", "top"): "how many keys",
    ("import-policy", "name"): "the policy is stored under this name",
    ("import-policy", "policy"): "the policy itself, as JSON",
    ("import-policy", "text"): "a file that holds the policy",
    ("launch", "length"): "tokens of the prompt (default: as many as fit)",
    ("lost-keys", "top"): "how many keys",
    ("pairs", "head"): "only this head",
    ("pairs", "layer"): "only this layer",
    ("pairs", "top"): "how many pairs",
    ("pretrain", "length"): "the context, in tokens",
    ("pretrain", "corpus"): "folder with one folder of texts per domain",
    ("probe", "text"): "what things are hidden in (default: story)",
    ("route", "corpus"): "folder of texts, instead of at least six text files",
    ("route", "heads"): "all, or layer:head,... as in 2:0,7:0",
    ("route", "length"): "tokens of a prompt (default: 2048 or the model's context)",
    ("route-at", "text"): "test on this text (default: the stored curves)",
    ("route-time", "length"): "tokens of the prompt (default: all that fits the model)",
    ("route-time", "router"): "a bucket router",
    ("route-visit", "position"): "of the query (default: the last of the first window)",
    ("route-visit", "router"): "a bucket router",
    ("runs", "examples"): "the bundled examples too",
    ("time-method", "length"): "tokens of the longest prompt (default: as many as fit)",
    ("time-method", "method"): "quest, csa, bucket_routing, focus, ...",
}
FOLDERS = ("corpus", "data", "runs", "work")


def explained(verb: str, parameter: str) -> str:
    """The help of a parameter."""
    return HELP.get((verb, parameter), HELP.get(parameter, ""))


def kind(annotation: object, default: object) -> tuple[type, type | None]:
    """(type, type of the items of a list) of a parameter: `list[int] | None` is (list, int)."""
    if annotation in (None, typing.Any) or not (isinstance(annotation, type) or typing.get_origin(annotation)):
        annotation = type(default)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = next(one for one in typing.get_args(annotation) if one is not types.NoneType)
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is list:
        return list, inner[0]
    return (typing.get_origin(annotation) or annotation), None


def reader(kind: type, item: type | None):
    """The function that reads the word of an option; `none` is an empty list."""
    if kind is dict:
        return nested
    if kind is not list:
        return kind
    if item is dict:
        return nested

    def listed(words: str) -> list:
        if words == "none":
            return []
        try:
            return [item(word.strip()) for word in words.split(",") if word.strip() or item is not str]
        except ValueError:
            what = {int: "whole numbers such as 1024,4096", float: "numbers such as 0.4,0.8"}[item]
            raise argparse.ArgumentTypeError(f"{words[:40]!r} is no list of {what}") from None

    return listed


def nested(words: str) -> object:
    """What JSON says, or the words themselves: the name of a policy, or names of methods."""
    if not words.lstrip().startswith(("{", "[")):
        return words
    try:
        return json.loads(words)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words[:40]!r} is neither a name nor JSON") from None


def shown(kind: type, item: type | None, parameter: str) -> str:
    """How the value of an option stands in the help."""
    one = {int: "N", float: "X"}.get(item or kind)
    if kind is list:
        return f"{one or 'A'},{one or 'B'},..."
    return one or ("DIR" if parameter in FOLDERS else parameter.upper().replace("_", "-"))
