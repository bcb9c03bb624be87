"""What a layer of a decoder is made of, as far as costs go: what it caches of a text, matrices, feed-forward blocks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entries:
    """What a layer caches of a text: an entry for every `every` tokens, each so many `numbers`.

    `products`: multiply-adds of a query with one entry, over all heads, in a prompt; `step_products` in a later step,
    where a latent is read as it lies. `capacity`: entries that the cache holds at most, `top`: that a query reads at
    most; None: all. `chunked`: the layer begins anew after `capacity` tokens. `selects`: keys by which an indexer of
    the model chooses: it reads them all, whatever is read after it. `shared`: they are in another layer's cache.
    """

    numbers: int
    products: int
    step_products: int
    every: int = 1
    capacity: int | None = None
    top: int | None = None
    chunked: bool = False
    selects: bool = False
    shared: bool = False

    @property
    def limit(self) -> int | None:
        """Entries that a query reads at most."""
        limits = [limit for limit in (self.capacity, self.top) if limit is not None]
        return min(limits, default=None)

    def cached(self, context: int) -> int:
        """Entries held of a context."""
        return 0 if self.shared else _at_most(context // self.every, self.capacity)

    def step(self, context: int) -> int:
        """Entries that the query after a context reads."""
        return _at_most(context // self.every, self.limit)

    def pairs(self, context: int) -> int:
        """Entries that the queries of a prompt read, one by one: the sum over t = 1 ... T of min(t // every, limit)."""
        if self.chunked and self.capacity:
            whole, rest = divmod(context, self.capacity)
            return whole * self.capacity * (self.capacity + 1) // 2 + rest * (rest + 1) // 2
        last = self.step(context)
        return self.every * last * (last - 1) // 2 + last * (context - last * self.every + 1)


def _at_most(count: int, limit: int | None) -> int:
    return count if limit is None else min(count, limit)


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward block, dense or a mixture of experts."""

    width: int
    matrices: int  # 3 when gated, else 2
    experts: int = 1  # of that width
    active: int = 1  # experts that a token visits
    # Width that every token visits beside them.
    shared: int = 0
    # Numbers that each expert works on, where it isn't the model's width.
    latent: int | None = None
    biased: bool = False

    def expert(self, width: int) -> int:
        """Weights of one expert, in a model of that width."""
        inner = self.latent or width
        biases = (self.matrices - 1) * self.width + inner if self.biased else 0
        return self.matrices * inner * self.width + biases

    def weights(self, width: int, experts: float) -> float:
        """Number of weights in `experts` of its experts, in what is shared and in the router, for a model's width."""
        router = width * self.experts if self.experts > 1 else 0
        into_latent = 2 * width * self.latent if self.latent else 0
        return self.expert(width) * experts + self.matrices * width * self.shared + router + into_latent

    def visited(self, tokens: int) -> float:
        """Different experts that a number of tokens visit, when every expert is as likely as any other."""
        return self.experts * (1 - (1 - self.active / self.experts) ** tokens)


@dataclass(frozen=True)
class Layer:
    """One layer: `weights` of what mixes tokens (projections, an indexer), what it caches, a state of so many numbers
    for each sequence where it has one, and its feed-forward blocks."""

    kind: str
    weights: int
    entries: tuple[Entries, ...] = ()
    state: int = 0
    # MLA: the first entries are a latent.
    latent: bool = False
    blocks: tuple[FeedForward, ...] = ()

    @property
    def window(self) -> int | None:
        """Tokens that its queries see at most; None: all, or it isn't a layer of softmax attention."""
        reaching = [entries for entries in self.entries if not entries.selects]
        if not reaching or any(entries.limit is None for entries in reaching):
            return None
        return max(entries.capacity or 0 for entries in reaching) or None
