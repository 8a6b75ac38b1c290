"""Surgery: small functions that change a model in place and say what they did.

    operate(model, {"op": "cut", "heads": 3}, ranks)   # physically smaller
    operate(model, {"op": "ghost", "kind": "dwconv", ...})

    operate(model, {"op": "cut", "heads": 3, "whole": ["v", "o"]}, ranks)  # for ghosts that stand in for cut heads
    operate(model, {"op": "ghost", "kind": "conv2d", "positions": ["qk"], ...})

The list of operations is JSON; it is kept with the model and replayed before weights are loaded. transformers 5 can
no longer prune heads itself. Operate before the first forward: it records output hooks by class on first use.
"""

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
    from lib.model import ghost as ghosts
    from lib.model.backbone import layers

    whole = sorted(whole, key=str, reverse=True) if isinstance(whole, (list, tuple)) else whole
    if whole not in WHOLE:
        raise ValueError(f"cut with \"whole\": {whole}; what can stay whole is one of {', '.join(map(str, WHOLE))}")
    kept = {"heads": [], "neurons": []} | ({"others": []} if whole else {})
    for number, layer in enumerate(layers(model)):
        attention, total = layer.attention.self, layer.attention.self.num_attention_heads
        if not (isinstance(heads, int) and 1 <= heads <= total):
            raise ValueError(f"cut to {heads!r} heads: a layer of this model has {total}; keep 1 to {total}")
        if ghosts.present(layer):
            raise ValueError("cut after ghost: put the cut first")
        if ghosts.whole(layer):
            raise ValueError(f"cut after a cut that left {ghosts.whole(layer)} whole: cut once")
        size, ffn = attention.attention_head_size, layer.intermediate.dense.out_features
        order = choose(head_scores, len(layers(model)), number, total, total, "head")
        chosen_heads, chosen_neurons = order[:heads], choose(neuron_scores, len(layers(model)), number, ffn,
                                                             heads * ffn // total, "neuron")
        every = (order[:, None] * size + torch.arange(size, device="cpu")).flatten()
        rows = every[:heads * size]
        for name in ("query", "key", "value"):
            part = every if name == "value" and "v" in whole else rows
            setattr(attention, name, sliced(getattr(attention, name), rows=part))
        attention.num_attention_heads, attention.all_head_size = heads, heads * size
        layer.attention.output.dense = sliced(layer.attention.output.dense, columns=every if "o" in whole else rows)
        layer.intermediate.dense = sliced(layer.intermediate.dense, rows=chosen_neurons)
        layer.output.dense = sliced(layer.output.dense, columns=chosen_neurons)
        kept["heads"].append(chosen_heads.tolist())
        kept["neurons"].append(chosen_neurons.tolist())
        if whole:
            kept["others"].append(order[heads:].tolist())
    return kept


def choose(scores, layers, layer, total, keep, what):
    if scores is None:
        return torch.arange(keep, device="cpu")  # also where a model is built on the meta device
    if tuple(scores.shape) != (layers, total):
        raise ValueError(f"{what} scores are of shape {list(scores.shape)}; this model has {layers} layers of {total} {what}s")
    return rank(torch.as_tensor(scores[layer]))[:keep]


def sliced(linear, rows=None, columns=None):
    """A new linear layer of the chosen rows (outputs) or columns (inputs), on the same device and dtype."""
    weight, bias = linear.weight, linear.bias
    weight = weight if rows is None else weight[rows.to(weight.device)]
    weight = weight if columns is None else weight[:, columns.to(weight.device)]
    bias = bias if rows is None or bias is None else bias[rows.to(bias.device)]
    new = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta", dtype=weight.dtype)
    new.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        new.bias = nn.Parameter(bias.detach().clone())
    return new


def ghost(model, seed=0, **options):
    """Add ghost modules; see lib.model.ghost. Returns {"modules", "parameters"}."""
    from lib.model import ghost as ghosts
    from lib.options import Ghost

    return ghosts.add(model, Ghost(**options), seed)


OPERATIONS = {"cut": cut, "ghost": ghost}
