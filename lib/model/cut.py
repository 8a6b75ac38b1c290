"""This module removes attention heads and feed-forward neurons from an encoder: the
operation "cut" by importance, the operation "keep" by index.

transformers 5 cannot prune heads any more. Letters: A heads, D head size, H hidden, F
neurons, L layers, M kept heads."""

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

import torch
from torch import nn

from .options import AllKept, IndicesPerLayerByKind, Refused, check_known_name
from .parts import AnyModule, get_layers, slice_linear
from .places import FFN1, FFN2, KEY, OUT, QKV, QUERY, VALUE

UnitCountByKind = dict[str, int]  # {kind, such as "heads": number in a layer}.
UnprunedProjection = str  # Matrix that keeps all heads: "v" or "o".
KeepFirst: TypeAlias = None  # None in the place of scores: the first units stay.
# {kind, such as "heads": number that is left in each of L layers}.
RemainingUnitsPerLayerByKind = dict[str, list[int]]


def prune_to_head_count(
    model: nn.Module,
    heads: int,
    head_scores: torch.Tensor | KeepFirst = None,
    neuron_scores: torch.Tensor | KeepFirst = None,
    whole: Collection[UnprunedProjection] = (),
) -> IndicesPerLayerByKind:
    """Prune each layer of a model to its M most important attention heads, in place.

    M * F / A of the F feed-forward neurons stay, rounded down, where A is the number of
    heads (GhostBERT 2.3, Hou et al. 2020). Rows of the query, key and value projections
    and of the first feed-forward matrix are removed with their biases. Columns of the
    output projection and of the second feed-forward matrix are removed, and their
    biases stay. Heads and neurons are put in order of falling importance. This change
    is the operation named "cut" in the list of changes that is saved with a model.

    Returns the kept indices {"heads": L lists of M, "neurons": L lists of M * F / A},
    and with `whole` also {"others": L lists of the A - M removed heads}. Raises Refused
    where M is not an integer from 1 to A, and where scores have another shape.

    heads: M, the number of heads that stay in each layer.
    head_scores, neuron_scores: importance, tensors [L, A] and [L, F]. None keeps the
    first heads and neurons. That is enough to rebuild the shapes of a saved model,
    whose weights are loaded afterwards.
    whole: matrices that keep all A heads, the M kept ones first: ["o"] the output
    projection, ["v", "o"] the value projection too. Such a model runs only after a
    ghost module (a convolution that generates the other heads, section 4.2) was added.
    By default all matrices are pruned."""
    selection: dict[str, list[list[int]]] = {"heads": [], "neurons": []}
    selection |= {"others": []} if whole else {}
    for number, layer in enumerate(get_layers(model)):
        total = layer.attention.self.num_attention_heads
        ffn = layer.intermediate.dense.out_features
        if not (isinstance(heads, int) and 1 <= heads <= total):
            raise Refused(f"cut to {heads!r} heads: keep 1 to {total}")
        order = rank_heads_or_neurons_of_layer(
            head_scores, model, number, total, "head"
        )
        neurons = rank_heads_or_neurons_of_layer(
            neuron_scores, model, number, ffn, "neuron"
        )[: heads * ffn // total]
        prune_heads_and_neurons(layer, order, heads, neurons, whole)
        selection["heads"].append(order[:heads].tolist())
        selection["neurons"].append(neurons.tolist())
        if whole:
            selection["others"].append(order[heads:].tolist())
    return selection


def rank_heads_or_neurons_of_layer(
    importance_scores: torch.Tensor | KeepFirst,
    model: nn.Module,
    layer_index: int,
    unit_count: int,
    unit_kind: Literal["head", "neuron"],
) -> torch.Tensor:
    """Return the indices of one layer's heads or neurons by falling importance.

    The result is int64 [unit_count]. Equal scores keep the order of their indices, so
    that a ranking is the same on every machine. Raises Refused for scores of another
    shape, and for those that are not finite.

    importance_scores: importance in all layers, [L, unit_count]; None ranks by index.
    model: the model, whose number of layers is L.
    layer_index: the layer that is ranked.
    unit_count: the number of heads or neurons of the layer.
    unit_kind: "head" or "neuron", for the message of the error."""
    if importance_scores is None:
        # Large models are built within torch.device("meta"), where tensors have no
        # values. The indices need values, so their device is named here.
        return torch.arange(unit_count, device="cpu")
    if tuple(importance_scores.shape) != (len(get_layers(model)), unit_count):
        why = f"{unit_kind} scores are of shape {list(importance_scores.shape)}; this model has "
        raise Refused(
            f"{why}{len(get_layers(model))} layers of {unit_count} {unit_kind}s"
        )
    scores = torch.as_tensor(importance_scores[layer_index])
    if not scores.isfinite().all():
        raise Refused(
            f"{unit_kind} scores of layer {layer_index} are not finite: "
            f"{scores.tolist()[:4]}...; mend what computes them"
        )
    return scores.sort(descending=True, stable=True).indices


def prune_heads_and_neurons(
    layer: AnyModule,
    head_indices_remaining_first: torch.Tensor,
    kept_head_count: int,
    remaining_neuron_indices: torch.Tensor,
    unpruned_projections: Collection[UnprunedProjection] = (),
) -> None:
    """Remove heads and neurons of one transformer layer, in place.

    Its matrices become smaller: projections of queries, keys and values, output
    projection, and both feed-forward matrices.

    head_indices_remaining_first: the indices of the heads in the order that they get in
    the pruned layer: first those that stay. Removed heads may be left out, unless some
    matrix keeps all A heads.
    kept_head_count: M, the number of heads that stay.
    remaining_neuron_indices: the indices of the neurons that stay, in the order that
    they get.
    unpruned_projections: the matrices that keep all A heads: "v" (values), "o"
    (output projection)."""
    attention, size = layer.attention.self, layer.attention.self.attention_head_size
    kept_heads = head_indices_remaining_first[:kept_head_count]
    full = (
        head_indices_remaining_first[:, None] * size + torch.arange(size, device="cpu")
    ).flatten()
    rows = full[: kept_head_count * size]
    for path, row_indices, columns in (
        (QUERY, rows, None),
        (KEY, rows, None),
        (VALUE, full if "v" in unpruned_projections else rows, None),
        (OUT, None, full if "o" in unpruned_projections else rows),
        (FFN1, remaining_neuron_indices, None),
        (FFN2, None, remaining_neuron_indices),
    ):
        layer.set_submodule(
            path, slice_linear(layer.get_submodule(path), row_indices, columns)
        )
    attention.num_attention_heads, attention.all_head_size = kept_head_count, len(rows)
    # MPNet adds a position bias for each head to the attention scores. `columns` lists
    # the heads of this bias that the layer reads: those that are kept.
    if hasattr(attention, "columns"):
        columns = kept_heads.to(attention.query.weight.device)
        before = attention.columns
        attention.columns = columns if before is None else before[columns]


def keep_heads_neurons_or_dimensions(
    model: nn.Module, **kept_indices_per_layer_by_kind: Sequence[Sequence[int]]
) -> RemainingUnitsPerLayerByKind:
    """Prune a model in place to given heads, neurons or dimensions of each layer.

    The indices come from an architecture search, for example. The outputs equal those
    of the whole model with the removed parts set to zero. This change is the operation
    named "keep" in the list of changes that is saved with a model.

    Returns how many heads, neurons or dimensions each layer has left, {kind: [L]}.
    Raises Refused for an unknown kind, for kinds that do not go together and, naming
    the layer, where a list is empty, has an index twice, or has one that does not
    exist. Raises ValueError for another number of lists than L.

    kept_indices_per_layer_by_kind: for some kinds, L lists of the indices that stay:
    "heads", "neurons", "embedding" (inputs of the query, key and value projections),
    "qk" (dimensions of queries and keys) and "v" (dimensions of values). Indices are
    those of the model as it is now. So "heads" does not go together with "qk" or "v",
    which are cut after the heads. Other kinds are not pruned."""
    encoder_layers = get_layers(model)
    apart = [what for what in ("qk", "v") if what in kept_indices_per_layer_by_kind]
    if "heads" in kept_indices_per_layer_by_kind and apart:
        raise Refused(
            f"keep heads with {' and '.join(apart)}: give heads alone, or dimensions "
            'of all heads as "qk" and "v"'
        )
    for what, lists in kept_indices_per_layer_by_kind.items():
        check_known_name("part to keep", what, count_prunable_units(encoder_layers[0]))
        for number, (layer, chosen) in enumerate(
            zip(encoder_layers, lists, strict=True)
        ):
            total = count_prunable_units(layer)[what]
            if not chosen or len(chosen) > len({*chosen} & {*range(total)}):
                why = f"keep {what} of layer {number}: found {str(chosen)[:60]}; give at least one "
                raise Refused(f"{why}of 0 to {total - 1}, each once")
    for number, layer in enumerate(encoder_layers):
        chosen = {
            what: torch.tensor(lists[number], device="cpu")
            for what, lists in kept_indices_per_layer_by_kind.items()
        }
        stay = {
            what: torch.arange(count, device="cpu")
            for what, count in count_prunable_units(layer).items()
        }
        stay |= chosen
        heads = stay["heads"]
        prune_heads_and_neurons(layer, heads, len(heads), stay["neurons"])
        prune_attention_dimensions(
            layer, *(chosen.get(what) for what in ("embedding", "qk", "v"))
        )
    return {
        what: [len(indices) for indices in lists]
        for what, lists in kept_indices_per_layer_by_kind.items()
    }


def count_prunable_units(layer: AnyModule) -> UnitCountByKind:
    """Return the numbers of heads, neurons and dimensions of one transformer layer.

    Pruning checks its indices against them. The dict is {kind: number}, with the kinds
    "heads", "neurons", "embedding" (inputs of the query, key and value projections),
    "qk" (outputs of the query projection) and "v" (outputs of the value projection)."""
    attention = layer.attention.self
    return {
        "heads": attention.num_attention_heads,
        "neurons": layer.intermediate.dense.out_features,
        "embedding": attention.query.in_features,
        "qk": attention.query.out_features,
        "v": attention.value.out_features,
    }


class ZeroFilledPrunedLinear(nn.Linear):
    """A ZeroFilledPrunedLinear is a pruned linear layer that keeps its old input and
    output width.

    It reads only the columns of its input that stay, and puts zeros in place of removed
    outputs. So heads can lose different dimensions, although the matrix products inside
    attention need heads of one size (report on pruning by differentiable NAS, section
    7.2.2).

    linear: the layer to prune; the weights that stay are copied.
    kept_output_indices, kept_input_indices: the indices of outputs and inputs that
    stay; None keeps all."""

    def __init__(
        self,
        linear: nn.Linear,
        kept_output_indices: torch.Tensor | AllKept,
        kept_input_indices: torch.Tensor | AllKept,
    ) -> None:
        small = slice_linear(linear, kept_output_indices, kept_input_indices)
        outputs, inputs = small.weight.shape
        super().__init__(inputs, outputs, small.bias is not None, device="meta")
        self.weight = small.weight
        self.bias = small.bias
        self.total = linear.out_features
        # Plain attributes, not buffers: transformers builds a model on the meta device,
        # where tensors have no values, and then loads the weights. A buffer that is not
        # saved would stay without values.
        self.rows, self.columns = kept_output_indices, kept_input_indices

    # pyrefly: ignore[bad-override-param-name]  Modules are called by position.
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.columns is not None:
            x = x.index_select(-1, self.columns.to(x.device))
        made = super().forward(x)
        if self.rows is None:
            return made
        rows = self.rows.to(x.device)
        return made.new_zeros(*made.shape[:-1], self.total).index_copy(-1, rows, made)


def prune_attention_dimensions(
    layer: AnyModule,
    kept_input_indices: torch.Tensor | AllKept,
    kept_query_key_indices: torch.Tensor | AllKept,
    kept_value_indices: torch.Tensor | AllKept,
) -> None:
    """Remove single dimensions from the attention of one transformer layer, in place.

    The projections are replaced by layers with smaller weights (ZeroFilledPrunedLinear)
    that still take and give tensors of the old width, with zeros for what was removed.

    kept_input_indices: the inputs of the query, key and value projections that stay.
    kept_query_key_indices: the dimensions of queries and keys that stay.
    kept_value_indices: the dimensions of values that stay. None keeps all of a kind."""
    for path, rows, columns in zip(
        (*QKV, OUT),
        (kept_query_key_indices, kept_query_key_indices, kept_value_indices, None),
        (*[kept_input_indices] * 3, kept_value_indices),
        strict=True,
    ):
        if rows is not None or columns is not None:
            layer.set_submodule(
                path, ZeroFilledPrunedLinear(layer.get_submodule(path), rows, columns)
            )
