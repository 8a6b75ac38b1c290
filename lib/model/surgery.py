"""Surgery: small functions that change a model in place and say what they did.

    operate(model, {"op": "cut", "heads": 3}, ranks)   # physically smaller
    operate(model, {"op": "ghost", "kind": "dwconv", ...})

    operate(model, {"op": "keep", "heads": [[0, 5], ...], "neurons": [[3, 4, 9], ...]})   # each layer its own

    operate(model, {"op": "cut", "heads": 3, "whole": ["v", "o"]}, ranks)  # for ghosts that stand in for cut heads
    operate(model, {"op": "ghost", "kind": "conv2d", "positions": ["qk"], ...})

The list of operations is JSON; it is kept with the model and replayed before weights are loaded. transformers 5 can
no longer prune heads itself. Operate before the first forward: it records output hooks by class on first use.
"""

from collections import Counter

import torch
from torch import nn

from lib.spec import known


def operate(model, op, **more):
    """Apply one operation and note it in `model.surgery`. Returns the operation's report."""
    known("surgery", op.get("op"), OPERATIONS)
    report = OPERATIONS[op["op"]](model, **{k: v for k, v in op.items() if k != "op"}, **more)
    model.surgery.append(op)
    return report


def rank(scores):
    """Indices by falling score; ties keep their order, so that a ranking is the same on every machine."""
    return torch.sort(scores, descending=True, stable=True).indices


WHOLE = ([], ["o"], ["v", "o"])  # nothing, for a ghost at "v", for a ghost at "qk"


def cut(model, heads, head_scores=None, neuron_scores=None, whole=()):
    """Keep M of A heads and M * F / A of F neurons in every layer (GhostBERT section 2.3 after Hou et al. 2020).

    Cuts rows of Q, K, V and W1 with their biases, and columns of O and W2; biases of O and W2 stay whole. The kept
    ones come sorted by falling importance, so that a fold is a block of similar importance.

    heads: M, an integer. head_scores: [L, A]; neuron_scores: [L, F]; without them the first are kept (when a saved
    model is rebuilt only shapes matter). whole: ["o"] or ["v", "o"] keeps all A heads of the output projection, or of
    values and output projection, by falling importance too: kept heads first, so that what a ghost at "v" or "qk"
    puts behind them meets the others' weights (section 4.2). Such a model runs once it has that ghost.
    Returns {"heads": [L][M], "neurons": [L][M * F / A]} kept indices, and with `whole` {"others": [L][A - M]}.
    Raises ValueError where M is not in 1..A, scores are of another shape, or ghosts or whole parts are there already.
    """
    from lib.model.backbone import layers

    whole = sorted(whole, key=str, reverse=True) if isinstance(whole, (list, tuple)) else whole
    if whole not in WHOLE:
        raise ValueError(
            f'cut with "whole": {whole}; what can stay whole is one of {", ".join(map(str, WHOLE))}'
        )
    kept = {"heads": [], "neurons": []} | ({"others": []} if whole else {})
    for number, layer in enumerate(layers(model)):
        total = layer.attention.self.num_attention_heads
        if not (isinstance(heads, int) and 1 <= heads <= total):
            raise ValueError(
                f"cut to {heads!r} heads: a layer of this model has {total}; keep 1 to {total}"
            )
        uncut("cut", layer)
        ffn = layer.intermediate.dense.out_features
        order = choose(head_scores, len(layers(model)), number, total, total, "head")
        chosen_heads, chosen_neurons = (
            order[:heads],
            choose(neuron_scores, len(layers(model)), number, ffn, heads * ffn // total, "neuron"),
        )
        narrow(layer, chosen_heads, chosen_neurons, order, whole)
        kept["heads"].append(chosen_heads.tolist())
        kept["neurons"].append(chosen_neurons.tolist())
        if whole:
            kept["others"].append(order[heads:].tolist())
    return kept


def uncut(op, layer):
    """Raises ValueError where ghosts, or parts that were left whole for them, are there already, and for a stack."""
    from lib.model import ghost as ghosts

    if hasattr(layer.output, "networks"):
        raise ValueError(
            f"{op} after stack: the width of stacked networks is their net's, leave out the {op}"
        )
    if hasattr(layer, "gates"):
        raise ValueError(f"{op} after gates: detach them first (lib.model.gates.detach)")
    if any(hasattr(part, "columns") for part in layer.attention.self.children()):
        raise ValueError(
            f"{op} after keep of embedding inputs or of QKV dimensions: put the {op} first"
        )
    if ghosts.present(layer):
        raise ValueError(f"{op} after ghost: put the {op} first")
    if ghosts.whole(layer):
        raise ValueError(f"{op} after a cut that left {ghosts.whole(layer)} whole: cut once")


def narrow(layer, heads, neurons, every=None, whole=()):
    """Leave the chosen heads [M] and neurons [N] of one layer, in this order. every: [A] all heads in the order in which
    the parts named by `whole` keep them."""
    attention, size = layer.attention.self, layer.attention.self.attention_head_size
    rows, full = (
        None
        if index is None
        else (index[:, None] * size + torch.arange(size, device="cpu")).flatten()
        for index in (heads, every)
    )
    for name in ("query", "key", "value"):
        part = full if name == "value" and "v" in whole else rows
        setattr(attention, name, sliced(getattr(attention, name), rows=part))
    attention.num_attention_heads, attention.all_head_size = len(heads), len(rows)
    layer.attention.output.dense = sliced(
        layer.attention.output.dense, columns=full if "o" in whole else rows
    )
    layer.intermediate.dense = sliced(layer.intermediate.dense, rows=neurons)
    layer.output.dense = sliced(layer.output.dense, columns=neurons)


def keep(model, heads=None, neurons=None, embedding=None, qk=None, v=None):
    """Keep these heads and neurons, in each layer its own: the architecture that a search found, cut out.

    heads, neurons: L lists of indices among those that the model has now, all of them for None. The result equals the
    model with the context of the other heads and the activation of the other neurons set to zero. embedding: kept inputs
    of Q, K and V; qk, v: kept dimensions of queries and keys, and of values (lib.model.gates.thin). Every list keeps
    something: a block of nothing would be a constant, which no search here asks for. Returns counts, {"heads": [L], ...}.
    Raises ValueError naming the layer where a list is empty, names an index twice or one that is not there.
    """
    from lib.model import gates
    from lib.model.backbone import layers

    there = layers(model)
    given = {
        name: lists
        for name, lists in zip(
            ("heads", "neurons", "embedding", "qk", "v"),
            (heads, neurons, embedding, qk, v),
            strict=True,
        )
        if lists is not None
    }
    if "heads" in given and ("qk" in given or "v" in given):
        raise ValueError(
            "keep heads and dimensions of queries, keys or values: they are the same columns, give one of them"
        )
    for what, lists in given.items():
        if not isinstance(lists, (list, tuple)) or len(lists) != len(there):
            raise ValueError(
                f"keep {what}: {len(there)} lists of indices needed, one for each layer; found {str(lists)[:60]}"
            )
        for number, (layer, chosen) in enumerate(zip(there, lists, strict=True)):
            uncut("keep", layer)
            total = wide(layer)[what]
            wrong = [i for i in chosen if type(i) is not int or not 0 <= i < total] or [
                i for i, times in Counter(chosen).items() if times > 1
            ]
            if wrong or not chosen:
                raise ValueError(
                    f"keep {what} of layer {number}: found {wrong[0] if wrong else 'none'}; give at least one "
                    f"of 0 to {total - 1}, each once"
                )
    for number, layer in enumerate(there):
        chosen = {what: torch.tensor(lists[number], device="cpu") for what, lists in given.items()}
        narrow(
            layer,
            *(
                chosen.pop(what, torch.arange(wide(layer)[what], device="cpu"))
                for what in ("heads", "neurons")
            ),
        )
        gates.thin(layer, **chosen)
    return {what: [len(kept) for kept in lists] for what, lists in given.items()}


def wide(layer):
    """How much there is of what `keep` keeps."""
    attention = layer.attention.self
    return {
        "heads": attention.num_attention_heads,
        "neurons": layer.intermediate.dense.out_features,
        "embedding": attention.query.in_features,
        "qk": attention.query.out_features,
        "v": attention.value.out_features,
    }


def choose(scores, layers, layer, total, keep, what):
    if scores is None:
        return torch.arange(keep, device="cpu")  # also where a model is built on the meta device
    if tuple(scores.shape) != (layers, total):
        raise ValueError(
            f"{what} scores are of shape {list(scores.shape)}; this model has {layers} layers of {total} {what}s"
        )
    return rank(torch.as_tensor(scores[layer]))[:keep]


def sliced(linear, rows=None, columns=None):
    """A new linear layer of the chosen rows (outputs) or columns (inputs), on the same device and dtype."""
    weight, bias = linear.weight, linear.bias
    weight = weight if rows is None else weight[rows.to(weight.device)]
    weight = weight if columns is None else weight[:, columns.to(weight.device)]
    bias = bias if rows is None or bias is None else bias[rows.to(bias.device)]
    new = nn.Linear(
        weight.shape[1], weight.shape[0], bias is not None, device="meta", dtype=weight.dtype
    )
    new.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        new.bias = nn.Parameter(bias.detach().clone())
    return new


def ghost(model, seed=0, **options):
    """Add ghost modules; see lib.model.ghost. Returns {"modules", "parameters"}."""
    from lib.model import ghost as ghosts
    from lib.options import Ghost

    return ghosts.add(model, Ghost(**options), seed)


def mix(model, seed=0, **options):
    """Mix all layers in front of the head; see lib.model.mix. Returns {"states", "parameters"}."""
    from lib.model import mix as mixes

    return mixes.add(model, seed=seed, **options)


def sparse(model, kept, masks=None):
    """Store projections as packed masks and kept values; see lib.model.masks. Returns {"matrices", "values"}."""
    from lib.model.masks import pack

    return pack(model, kept, masks)


def stack(model, net):
    """Stacked feed-forward networks of any formula; see lib.model.stack. Returns {"networks", "parameters"}."""
    from lib.model import stack as stacks

    return stacks.stack(model, net)


def trigram(model, width):
    """Embedding of neighbouring tokens; see lib.model.stack. Returns {"parameters"}."""
    from lib.model import stack as stacks

    return stacks.trigram(model, width)


def gates(model, regions):
    """Put trained masks on parts of every layer; see lib.model.gates. Returns {kind: number of gates}."""
    from lib.model import gates as masks

    return masks.attach(model, regions)


OPERATIONS = {
    "cut": cut,
    "keep": keep,
    "gates": gates,
    "ghost": ghost,
    "mix": mix,
    "sparse": sparse,
    "stack": stack,
    "trigram": trigram,
}
