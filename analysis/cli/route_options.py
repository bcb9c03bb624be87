"""The options of the verbs of bucket routing, named as their studies' parameters. Loads nothing heavy."""

import argparse


def routing_options(verb: str, sub: argparse.ArgumentParser) -> None:
    """Add what `route`, `route-at`, `route-visit`, `route-time` and `study` take; nothing for another verb."""
    if verb in ("route", "route-at", "route-visit"):
        distance, sinks = (None, None) if verb == "route-at" else (64, 0)
        sub.add_argument("--min-distance", type=int, default=distance, help="tokens between query and key, at least")
        sub.add_argument("--sinks", type=int, default=sinks, help="first keys that are left out (stored: 0 and 4)")
        kind, default = (int, 2) if verb == "route-visit" else (float, None)
        sub.add_argument("--visited", type=kind, default=default, help="buckets (default: C / 32)")
    if verb == "route":
        sub.add_argument("texts", metavar="TEXT", nargs="*", help="at least six text files, or --corpus")
        sub.add_argument("--corpus", default="", metavar="DIR", help="folder of texts instead")
        sub.add_argument("--heads", default="all", help="all, or layer:head,... as in 2:0,7:0")
        sub.add_argument("--buckets", type=int, help="C (default: length / 32)")
        sub.add_argument("--length", type=int, help="tokens of a prompt (default: 2048 or the model's context)")
        sub.add_argument("--grid", action="store_true", help="distances 16, 64, 256, 1024 with sinks and without")
        sub.add_argument("--own", action="store_true", help="also whitening and geometric in buckets of their own")
        sub.add_argument("--no-mlp", dest="mlp", action="store_false", help="without the learned router")
        sub.add_argument("--work", metavar="DIR", help="a folder from which a stopped run goes on")
        sub.add_argument("--store", action="store_true", help="keep buckets, routers and curves in the fitted state")
    if verb in ("route", "study"):
        sub.add_argument("--prompts", type=int, default=12, help="of each side, where buckets are routed to")
    if verb == "route-at":
        about = "test on this text (default: the stored curves)"
        sub.add_argument("--text", default=argparse.SUPPRESS, metavar="TEXT", help=about)
        sub.add_argument("--partition", default="raw keys", help="or whitening, gwr_geometric")
    if verb == "route-time":
        sub.add_argument("text", metavar="TEXT", help="a text file, - for standard input, or story, essay, program")
        sub.add_argument("--router", default="gwr_linear", help="a bucket router")
        sub.add_argument("--visited", type=int, default=2, help="buckets")
        sub.add_argument("--length", type=int, help="tokens of the prompt (default: all that fits the model)")
        sub.add_argument("--new-tokens", type=int, default=32)
        sub.add_argument("--repeats", type=int, default=5, help="rounds")
    if verb == "route-visit":
        sub.add_argument("text", metavar="TEXT", help="a text file, - for standard input, or story, essay, program")
        sub.add_argument("--position", type=int, help="of the query (default: the last of the first window)")
        for name in ("layer", "head"):
            sub.add_argument(f"--{name}", type=int, default=0)
        sub.add_argument("--router", default="gwr_linear", help="a bucket router")
