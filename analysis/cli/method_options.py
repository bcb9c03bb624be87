"""The options of the verbs that set, calibrate, time and train methods, named as the studies' parameters."""

from analysis.cli.words import numbers


def method_options(verb: str, sub) -> None:
    """Adds the options of `equal-budget`, `fit-method`, `finetune` and `time-method`."""
    if verb == "finetune":
        sub.add_argument("--method", metavar="A,B,...", help="lora, focus, full (default: all)")
        sub.add_argument("--corpus", required=True, metavar="DIR", help="folder of texts, or of one folder per domain")
        sub.add_argument(
            "--rates", type=numbers, metavar="R,R,...", help="learning rates (default: 1e-5,5e-5,1e-4,1e-3)"
        )
        sub.add_argument("--groups", type=int, default=8, help="K of Focus, beside 2")
        sub.add_argument("--length", type=int, default=512, help="tokens of a sequence")
        sub.add_argument("--windows-count", dest="windows", type=int, default=32, help="held-out windows of a domain")
        sub.add_argument("--window", type=int, help="of Focus' readings, tokens (default: 16)")
        sub.add_argument("--sinks", dest="n_sink", type=int, help="first tokens that they always read (default: 4)")
        sub.add_argument("--steps", type=int, default=600)
        sub.add_argument("--tokens-per-step", type=int, default=512)
        sub.add_argument("--rows", metavar="A,B,...", help="domains, the new one first")
        sub.add_argument("--work", metavar="DIR", help="what is trained so far (default: beside the output)")
        sub.add_argument("-o", "--output", metavar="FILE.json", help="default: studies/ in the fitted state")
    if verb == "time-method":
        sub.add_argument("--method", required=True, help="quest, csa, bucket_routing, focus, ...")
        sub.add_argument("--length", type=int, help="tokens of the longest prompt (default: as many as fit)")
        sub.add_argument("--new-tokens", type=int, default=16)
        sub.add_argument("--repeats", type=int, default=3, help="rounds, dense and sparse in turns")
    if verb == "equal-budget":
        sub.add_argument("--share", type=float, default=0.25, help="of the causal pairs")
        sub.add_argument("--attended", type=float, metavar="KEYS", help="of a query on average, instead of --share")
        sub.add_argument("--windows", type=int, default=1, help="windows of the text in which reads are counted")
    if verb == "fit-method":
        sub.add_argument("method", help="magicpig, routing_transformer or focal_learned")
        sub.add_argument("texts", metavar="TEXT", nargs="*", help="(default: the bundled samples except the story)")
        sub.add_argument("--clusters", type=int, default=16, help="of routing_transformer")
        sub.add_argument("--steps", type=int, default=300, help="of focal_learned: training, the model stays as it is")
