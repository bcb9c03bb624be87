"""Who wrote the stream that a head's queries and keys are made of, with the norms frozen.

A decoder's stream is a sum: the embedding, and what every head and every feed-forward block below has added to it. Once
each norm keeps the scale that it had, all that lies between these writers and a layer's queries and keys is linear. So
a query is the sum of what each writer gives it, exactly (Elhage et al. 2021; Ferrando and Voita 2024), and the model's
own code does the algebra: its layers are run again at the places in question, with the outputs of the writers given.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import AnalysisError
from ..seam.attention import apply
from ..seam.blocks import LEARNED, is_norm, list_of_layers, not_a_sum, writing
from ..seam.calls import Prompt
from ..seam.hooks import Hooks
from ..seam.layers import attention_modules, running
from .frozen import Frozen

EMBEDDING, POSITION, BIAS, ROUNDING = "embedding", "position", "bias", "rounding"
FIRST = (EMBEDDING, POSITION)
# Of a query or key: what its writers may lack of it, by the precision of the model.
EXACT, HALF = 1e-3, 0.1
# Of gradients that are held at once.
GRADIENT_BYTES = 256 << 20
# Of a module that writes, or the place of an attention layer: what it gave.
Values = dict[Any, Tensor]


@dataclass
class Written:
    """Queries and keys of one head at P places by who wrote them: `queries` and `keys` float64 [W, P, D], in the order
    of `writers`, as they meet: rotated, and after a norm of their own, which is frozen too. `model_queries` and
    `model_keys` [P, D] are the model's own; `factor` scales their product."""

    writers: list[str]
    queries: Tensor
    keys: Tensor
    model_queries: Tensor
    model_keys: Tensor
    factor: float


class Stream:
    """What every writer of a model gave at some places [P] of one text, and the layers to run again with it.

    `ids` [T]; `place` that of an attention layer among those of softmax attention. `prompt`: queries, keys and values
    of the whole text at that layer. Errors: BadModel where the layers cannot be run again apart from their text.
    """

    @torch.no_grad()
    def __init__(self, lm: Any, ids: Tensor, place: int, places: list[int]) -> None:
        self.lm, self.place = lm, place
        self.places = torch.tensor(places, device=lm.device)
        self.ids, self.length = ids, len(ids)
        self.modules = attention_modules(lm)
        self.layers = list_of_layers(lm, self.modules)
        self.names: dict[Any, str] = {EMBEDDING: EMBEDDING}
        self.values: Values = {}
        self.means: Values = {}
        self.tuples: set[Any] = set()
        self.calls: list[tuple[tuple, dict[str, Any]]] = []
        self.final: nn.Module | None = None
        # Of a layer with an output gate: what it leaves of what the heads read, [P, H, D].
        self.gate: Tensor | None = None
        self.body: Any = None
        self.prompt: Prompt
        self._record(ids)

    def _record(self, ids: Tensor) -> None:
        with ExitStack() as hooks:
            for number, layer in enumerate(self.layers):
                hooks.enter_context(layer.register_forward_pre_hook(self._entering, with_kwargs=True))
                for kind, module in writing(layer, set(self.modules)):
                    self.names[module] = f"L{number}.{kind}"
                    hooks.enter_context(module.register_forward_hook(self._leaving))
            for name, module in self.lm.base_model.named_modules():
                if name.rpartition(".")[2] in LEARNED:
                    self.names[POSITION] = POSITION
                    hooks.enter_context(module.register_forward_hook(self._positions))
            parent = next(m for m in self.lm.modules() if any(child is self.layers for child in m.children()))
            for module in parent.children():
                if is_norm(module):
                    hooks.enter_context(module.register_forward_pre_hook(self._ending))
            hooks.enter_context(apply(self.lm, _Recorder(self)))
            self.body = self.lm.base_model(ids.to(self.lm.device)[None], use_cache=False)
        if POSITION in self.values:
            for held in (self.values, self.means):
                held[EMBEDDING] = held[EMBEDDING] - held[POSITION]

    def _entering(self, layer: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        kwargs = dict(kwargs)
        hidden = args[0] if args else kwargs.pop("hidden_states")
        if not isinstance(hidden, Tensor) or hidden.dim() != 3:
            raise not_a_sum(self.lm, "keeps several streams side by side")
        if not self.calls:
            self._keep(EMBEDDING, hidden)
        tensors = [x for x in (*args[1:], *kwargs.values()) if isinstance(x, Tensor)]
        if any(x.is_floating_point() and x.shape == hidden.shape for x in tensors):
            raise not_a_sum(self.lm, "hands its layers more than one stream")
        self.calls.append((self._cut(args[1:]), self._cut(kwargs)))

    def _leaving(self, module: nn.Module, args: tuple, out: Any) -> None:
        if module in self.values:
            raise not_a_sum(self.lm, "runs a block twice")
        if isinstance(out, tuple):
            self.tuples.add(module)
            out = out[0]
        if not isinstance(out, Tensor) or out.dim() not in (2, 3):
            raise not_a_sum(self.lm, "puts the outputs of its blocks together in a way of its own")
        self._keep(module, out)

    def _positions(self, module: nn.Module, args: tuple, out: Tensor) -> None:
        self._keep(POSITION, out.expand(1, -1, -1) if out.dim() == 3 else out[None])

    def _ending(self, module: nn.Module, args: tuple) -> None:
        # The last norm that is asked for is the one before the vocabulary.
        self.final = module

    def _keep(self, key: Any, out: Tensor) -> None:
        out = out.detach()
        dim = out.dim() - 2 if out.dim() < 4 else 1
        self.values[key] = out.index_select(dim, self.places.to(out.device))
        self.means[key] = out.mean(dim, keepdim=True).expand_as(self.values[key])

    def _cut(self, value: Any) -> Any:
        """Arguments of a layer at the places alone."""
        if isinstance(value, tuple | list):
            return type(value)(self._cut(part) for part in value)
        if isinstance(value, dict):
            return {name: self._cut(part) for name, part in value.items()}
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        places = self.places.to(value.device)
        if value.dim() == 4 and value.shape[-2] == value.shape[-1] == self.length:
            return value[..., places, :][..., places]
        dim = max(0, value.dim() - 2) if value.is_floating_point() else value.dim() - 1
        return value.index_select(dim, places) if value.shape[dim] == self.length else value

    def run(self, values: Values, norms: Frozen | None = None, to_end: bool = False) -> Any:
        """The layers once more with these outputs of the writers: the `Prompt` of the layer at the places, or with
        `to_end` what goes to the vocabulary, [1, P, d]. `norms`: frozen ones; else they are computed anew."""
        method = _Given(self, values, None if to_end else self.place)
        hidden = values[EMBEDDING]
        if POSITION in values:
            hidden = hidden + values[POSITION]
        try:
            with self._giving(values), apply(self.lm, method), norms or nullcontext():
                for layer, (args, kwargs) in zip(self.layers, self.calls, strict=True):
                    out = layer(hidden, *args, **kwargs)
                    hidden = out[0] if isinstance(out, tuple) else out
                return hidden if self.final is None else self.final(hidden)
        except Reached as reached:
            return reached.prompt
        except AnalysisError:
            raise
        # foreign code, run apart from the text that it was written for
        except (AttributeError, AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise not_a_sum(self.lm, "has layers that cannot be run at single places of a text") from error

    def _giving(self, values: Values) -> AbstractContextManager[None]:
        outs = {key: (value, None) if key in self.tuples else value for key, value in values.items()}
        modules = [key for key in outs if isinstance(key, nn.Module)]
        return running({module: lambda *args, out=outs[module], **kwargs: out for module in modules})

    def places_of(self, writer: str) -> Iterator[tuple[Any, int | None]]:
        """(key of `values`, the head where it is one of a layer) of all that a writer's name stands for."""
        for key in self.values:
            if not isinstance(key, int):
                if self.names[key] == writer:
                    yield key, None
            elif writer.startswith(prefix := f"L{self.modules[key].layer_idx}.H"):
                yield key, int(writer.removeprefix(prefix))

    def frozen(self) -> Frozen:
        """The norms as they were in this text."""
        norms = Frozen()
        with torch.no_grad():
            self.run(self.values, norms, to_end=True)
        return norms.again()

    def written(self, head: int) -> Written:
        """Queries and keys of a head at the places by their writers. Errors: BadModel where they do not add up."""
        leaves = {key: value.clone().requires_grad_() for key, value in self.values.items()}
        norms = Frozen()
        with torch.enable_grad():
            prompt: Prompt = self.run(leaves, norms)
            query, key = prompt.query[0, head], prompt.key[0, head * prompt.key.shape[1] // prompt.query.shape[1]]
            by_query, by_key = self._parts(query, leaves), self._parts(key, leaves)
        with torch.no_grad():
            nothing = {key: torch.zeros_like(value) for key, value in self.values.items()}
            constant: Prompt = self.run(nothing, norms.again())
        group = head * constant.key.shape[1] // constant.query.shape[1]
        by_query[BIAS], by_key[BIAS] = constant.query[0, head].double().cpu(), constant.key[0, group].double().cpu()
        whole = self.prompt.query[0, head, self.places].double().cpu(), self.prompt.key[0, group, self.places].double()
        sides = []
        for parts, model in zip((by_query, by_key), (whole[0], whole[1].cpu()), strict=True):
            lacking = model - torch.stack(list(parts.values())).sum(0)
            half = prompt.query.dtype.itemsize < 4
            if not float(lacking.norm()) <= (HALF if half else EXACT) * float(model.norm()):
                raise not_a_sum(self.lm, "does more to its stream than add to it and scale it")
            sides.append(parts | {ROUNDING: lacking} if half else parts)
        assert set(sides[0]) == set(sides[1]), "what writes a query's stream writes a key's"
        writers = sorted(sides[0], key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
        queries, keys = (torch.stack([side[name] for name in writers]) for side in sides)
        return Written(writers, queries, keys, whole[0], whole[1].cpu(), prompt.scoring.factor)

    def _parts(self, out: Tensor, leaves: Values) -> dict[str, Tensor]:
        """What each writer gives to `out` [P, D]: writer -> float64 [P, D]."""
        parts: dict[str, Tensor] = {}
        at_once = max(1, GRADIENT_BYTES // (8 * sum(value.numel() for value in leaves.values())))
        basis = torch.eye(out.shape[-1], dtype=out.dtype, device=out.device)[:, None].expand(-1, *out.shape)
        for first, rows in zip(range(0, len(basis), at_once), basis.split(at_once), strict=True):
            given = torch.autograd.grad(
                out, list(leaves.values()), rows, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            for (key, value), gradient in zip(leaves.items(), given, strict=True):
                if gradient is not None:
                    products = (gradient.double() * value.detach().double()).sum(-1)
                    for name, part in self._named(key, products):
                        parts.setdefault(name, torch.zeros(*out.shape, dtype=torch.float64))
                        parts[name][:, first : first + len(rows)] += part.cpu()
        return parts

    def _named(self, key: Any, products: Tensor) -> Iterator[tuple[str, Tensor]]:
        """(writer, [P, c]) of one key, from [c, 1, P] or of an attention layer [c, 1, P, H]."""
        if isinstance(key, int):
            number = self.modules[key].layer_idx
            for head in range(products.shape[-1]):
                yield f"L{number}.H{head}", products[:, 0, :, head].T
        else:
            yield self.names[key], products.flatten(1).T


class Reached(Exception):
    """The layer that is asked about, and what it was given."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt


class _Recorder(Hooks):
    """Keeps what leaves the heads of every layer, and queries and keys of one."""

    dense = True

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def prefill(self, prompt: Prompt) -> None:
        """Keep that of the layer."""
        if prompt.layer == self.stream.place:
            if prompt.visible is not None and (prompt.visible.bias is not None or prompt.visible.entries is not None):
                raise not_a_sum(self.stream.lm, "adds numbers of its own to its scores, or reads entries beside tokens")
            self.stream.prompt = prompt

    def see_gate(self, layer: int, out: Tensor, gated: Tensor) -> None:
        """Keep what the layer's gate leaves."""
        if layer == self.stream.place:
            self.stream.gate = (gated / out)[0].nan_to_num(0.0, 0.0, 0.0)[self.stream.places]

    def finish_output(self, layer: int, out: Tensor) -> Tensor:
        """The outputs [1, T, H, D], unchanged."""
        self.stream._keep(layer, out)
        return out


class _Given(Hooks):
    """Layers whose heads give what is `given`; ends at the layer `last`."""

    def __init__(self, stream: Stream, values: Values, last: int | None) -> None:
        self.stream, self.values, self.last = stream, values, last

    def prefill(self, prompt: Prompt) -> None:
        """The end of the way."""
        if prompt.layer == self.last:
            raise Reached(prompt)

    def finish_output(self, layer: int, out: Tensor) -> Tensor:
        """What the layer's heads gave."""
        return self.values[layer]
