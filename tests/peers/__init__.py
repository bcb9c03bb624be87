"""Other people's code as oracles: each peer answers in an environment of its own, and what came of it is stored here.

`python -m tests.peers [PEER ...]` makes the environments, asks and stores; the suite reads what is stored.
"""
