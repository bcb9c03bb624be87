"""The options of the verb `probe`, named as its study's parameters. Loads nothing heavy."""

import argparse

from analysis.cli.words import names, numbers, whole_numbers


def probe_options(verb: str, sub: argparse.ArgumentParser) -> None:
    """Add what `probe` takes; nothing for another verb."""
    if verb != "probe":
        return
    sub.add_argument("--probes", type=names, metavar="A,B,...", help="uuid_needle,json,labels,... (default: all tasks)")
    sub.add_argument("--method", default="dense", metavar="A,B,...", help="methods beside dense, which is always first")
    sub.add_argument("--text", default="story", metavar="TEXT", help="what things are hidden in (default: story)")
    sub.add_argument("--lengths", type=whole_numbers, metavar="N,N,...", help="tokens (default: 256,512,1024)")
    sub.add_argument("--depths", type=numbers, metavar="X,X,...", help="0 beginning, 1 end (default: five of them)")
    sub.add_argument("--examples", type=whole_numbers, metavar="N,N,...", help="of labels (default: 4,16,64)")
    sub.add_argument("--items", type=int, default=16, help="questions in each cell")
    sub.add_argument("--choices", type=int, default=4, help="candidate answers; chance is one by them")
    sub.add_argument("--too-long", default="refuse", help="refuse, or cut the beginning of prompts and count it")
    sub.add_argument("--rope", default="as_trained", help="as_trained, longer, dynamic_ntk or base")
    sub.add_argument("--factor", type=float, default=2.0, help="times the context, beyond which nothing is read")
    sub.add_argument("--base", type=float, default=500_000.0, help="of the rotation, with --rope base")
    sub.add_argument("--router", default="k8-top1", help="which router: kGROUPS-topMEMBERSHIPS")
