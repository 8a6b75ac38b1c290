"""Every so many layers stay whole, the others go (as DistilBERT begins, Sanh et al. 2019).

It is the simplest control of all: no importance, no search, no new parts.
"""


def kept(shape, share):
    """Return ([(heads, neurons)] of the layers that stay, {"layers": their numbers}).

    Their number is the divisor of L next to share * L, so that each matches a layer of the teacher.
    They are the last layer and those at equal steps before it.
    """
    total = shape.layers
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    number = min(divisors, key=lambda n: (abs(n - share * total), -n))
    step = total // number
    return [(shape.heads, shape.ffn)] * number, {"layers": list(range(step - 1, total, step))}


def change(model, layers):
    """Leave these layers, by number, in their order. Returns {"layers": how many stay}.

    Raises ValueError for a list that is empty, not rising, or names a layer that is not there.
    """
    from torch import nn

    encoder = model.base_model.encoder
    total = len(encoder.layer)
    if not layers or sorted(set(layers)) != layers or not 0 <= layers[0] <= layers[-1] < total:
        allowed = f"give numbers from 0 to {total - 1}, rising"
        raise ValueError(f"layer_dropping keeps the layers {layers}: {allowed}")
    encoder.layer = nn.ModuleList(encoder.layer[i] for i in layers)
    return {"layers": len(layers)}
