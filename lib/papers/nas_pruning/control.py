"""This module moves N gates of a model to a target cost, as arithmetic on numpy arrays
(NAS report, sections 5.1, 5.2, 5.6, 7.4, 7.5, 7.9).

A gate's parameter is alpha; its mask sigmoid(alpha) multiplies a head or a neuron. A
gate is on where its mask is above 0.99. A region is the gates of one kind in one layer.
E is the expected cost in FLOPs, with soft masks. F is the actual cost, of the gates
that are on. R is the target cost. In the report, as we read it, each step does this:

    1. The gradient g of the task's loss by alpha gets weight * (+1, 0 or -1) * dlogE / dalpha,
       where F is above, within or below (1 +- tolerance) R.
    2. In each group of gates (`quota`) the share with the largest |g| may move.
    3. Their alphas become clamp(alpha - 10 sign(g), -5, 5): each switches or stays as it is.

So a step may switch off 10 % of the model at once, while the target falls by hundredths
of a per cent. And where the task's gradient outweighs that of the cost, the search
stops above its target. Our option "steps" of `landing` replaces 2 and 3:

    - Gates switch one after the other: off while F > R, then on while F < R. So a step ends
      within one gate of R, if `share` and the signs of g let enough gates switch.
    - First those gates switch off that the gradient pushes off (g > 0). They alternate between
      regions, so that each region loses the same share of them. By the size of g alone, heads
      would always come first, since one head of the report's models has as many FLOPs as 60 to
      160 neurons.
    - If these are not enough, others follow, in the order in which a growing weight of the cost
      would push them off.

A region keeps at least one gate on. `memory` averages the gradient over steps, as
momentum does, because the gradient of one batch is mostly noise."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from lib.core.names import Refused, derive_seed
from lib.core.options import LayerAndGateKind
from lib.core.types import IndicesPerLayerByKind
from lib.papers.nas_pruning import gated
from lib.papers.nas_pruning.options import Gates

GateKind: TypeAlias = str  # "heads", "ffn" (neurons), "embedding", "qkv" or the like.
GateAlphas: TypeAlias = np.ndarray  # Parameters of all gates [N].
GateGradients: TypeAlias = np.ndarray  # Of the loss by the alphas [N].
GatePriorities: TypeAlias = np.ndarray  # The larger the earlier, [N].
OffsetByRegion: TypeAlias = np.ndarray  # One in [0, 1) for each region.
# {region: number of its gates}. A region is (layer, kind of gate).
GateCountByRegion: TypeAlias = Mapping[Any, int]
# f({region: sum of its masks}) -> FLOPs or another cost.
CostOfMaskSumsByRegion: TypeAlias = Callable[[Mapping[Any, float]], float]
GateMask: TypeAlias = np.ndarray  # Whether each gate is on: bool [N].
GateNumbers: TypeAlias = np.ndarray  # Numbers of some of the N gates, counted from 0.

LIMIT = gated.START
JUMP = 2 * gated.START
EDGE = math.log(gated.KEPT / (1 - gated.KEPT))  # A gate is on where alpha > 4.595.
# {kind of gate: its name in the operation "keep", which prunes a model}, for kinds
# whose two names differ.
NAMES = {"ffn": "neurons"}


class AlphaUpdate(NamedTuple):
    alphas: GateAlphas  # [N].
    moving_average_gradient: GateGradients  # [N].
    # [4]: target and actual cost ratio, and numbers of gates switched off and on.
    log_entry: np.ndarray


def compute_target_cost_ratio(
    step: int,
    total_steps: int,
    final_cost_ratio: float,
    decrease_schedule: Literal["none", "additive", "multiplicative"],
) -> float:
    """Return the FLOPs target of one step of a pruning search, as a share from 0 to 1.

    The share is of the unpruned model's FLOPs. It starts at 1 and reaches
    `final_cost_ratio` at the last step, so that the search prunes gradually. The report
    on pruning by differentiable NAS prints rules (section 7.4) by which the share would
    rise, or miss the last value; they are corrected here.

    step: number of the step, from 0 to total_steps - 1.
    decrease_schedule: "additive" falls on a straight line, "multiplicative"
    geometrically; "none" is `final_cost_ratio` at every step."""
    if decrease_schedule == "none" or total_steps == 1:
        return final_cost_ratio
    done = step / (total_steps - 1)
    return (
        final_cost_ratio**done
        if decrease_schedule == "multiplicative"
        else 1 - (1 - final_cost_ratio) * done
    )


def compute_cost_gradient_sign(
    actual_cost: float, target_cost: float, relative_tolerance: float
) -> int:
    """Return the sign (+1, 0 or -1) of the cost loss's gradient in a pruning search.

    It is +1 above (1 + tolerance) * target_cost, where gradient descent should close
    gates (trained masks on parts of a model). It is -1 below (1 - tolerance) *
    target_cost, where descent should open gates, and 0 in between (equation 4 of the
    report on pruning by differentiable NAS).

    actual_cost, target_cost: in the same unit, such as FLOPs."""
    return int(actual_cost > (1 + relative_tolerance) * target_cost) - int(
        actual_cost < (1 - relative_tolerance) * target_cost
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def make_encoder_flops_function(
    hidden_size: int,
    head_size: int,
    widths_by_layer: Sequence[Mapping[GateKind, float]],
) -> CostOfMaskSumsByRegion:
    """Return a function that counts the FLOPs of an encoder whose parts are masked.

    The function takes {(layer, kind): sum of masks}, where `kind` is a kind of part
    such as "heads" or "ffn" (feed-forward neurons). With soft masks the function gives
    the expected FLOPs, with masks of 0 and 1 the actual FLOPs. A pruning search steers
    by it.

    widths_by_layer: {"heads": A, "ffn": F} of each of the L layers. They count for
    layers and kinds that the argument of the function leaves out."""

    def count_flops(mask_sum_by_region: Mapping[LayerAndGateKind, float]) -> float:
        widths = [dict(width) for width in widths_by_layer]
        for (layer, kind), number in mask_sum_by_region.items():
            widths[layer][kind] = number
        return gated.flops(hidden_size, head_size, widths, gated.TOKENS)

    return count_flops


class TrimmedGates(NamedTuple):
    alphas: GateAlphas  # [N].
    switched_gates: GateNumbers


@dataclass
class GateController:
    """A GateController decides which of N gates are on during a pruning search.

    A gate multiplies a part of the model, such as a head, by the mask sigmoid(alpha).
    It is on where the mask is above 0.99. The GateController switches gates until the
    model costs `options.ratio` of what it costs with all gates on. It stores no alphas:
    its methods take them and return changed ones. A region is the gates of one kind in
    one layer, (layer, kind). The constructor raises Refused where one gate in each
    region costs more than the target and its tolerance.

    options: settings of the search.
    sizes: {region: number of gates}, in the order of the N gates.
    cost: f({region: sum of masks}) -> FLOPs or another cost, linear in each sum.
    seed: seed of the random order in which regions take turns in each step."""

    options: Gates
    sizes: GateCountByRegion
    cost: CostOfMaskSumsByRegion
    seed: int = 0

    def __post_init__(self) -> None:
        # `region` [N] has the number of each gate's region. `groups` are lists of
        # gates; a step may switch at most a given share of each list.
        self.region = np.repeat(np.arange(len(self.sizes)), list(self.sizes.values()))
        group = (
            self.region if self.options.quota == "layer" else np.zeros_like(self.region)
        )
        self.groups = [np.flatnonzero(group == label) for label in np.unique(group)]
        self.full = self.cost(self.sizes)
        lowest = self.cost(dict.fromkeys(self.sizes, 1)) / self.full
        ratio = self.options.ratio
        if lowest > (1 + self.options.tolerance) * ratio:
            least = f"one gate for each kind and layer leaves {lowest:.4f} of the cost"
            raise Refused(f"Gates.ratio is {ratio}, but {least}: ask for at least that")

    def compute_open_gate_mask(self, alphas: GateAlphas) -> GateMask:
        return alphas > EDGE

    def sum_masks_by_region(self, masks: np.ndarray) -> dict[LayerAndGateKind, float]:
        """Return {region: sum of its masks} for the masks [N] of all gates.

        A gate is a trained mask on a part of a model, a region the gates of one kind in
        one layer. The cost function of a pruning search takes these sums."""
        totals = np.bincount(self.region, masks, len(self.sizes)).tolist()
        return dict(zip(self.sizes, totals, strict=True))

    def compute_cost_ratio_of_gates(self, are_gates_on: GateMask) -> float:
        """Return the cost with some gates on, as a share of the cost with all gates on.

        A gate is a mask on a head, a neuron or another part of the model. A pruning
        search compares this share with its target.

        are_gates_on: bool [N], one value for each gate."""
        return self.cost(self.sum_masks_by_region(are_gates_on)) / self.full

    def compute_cost_ratio_of_alphas(self, alphas: GateAlphas) -> float:
        """Return the cost of the gates that are on, as a share of that of all gates.

        A gate is a mask sigmoid(alpha) on a part of the model, such as a head. It is on
        where the mask is above 0.99. A pruning search compares this share with its
        target.

        alphas: the parameters of all gates [N]."""
        return self.compute_cost_ratio_of_gates(self.compute_open_gate_mask(alphas))

    def compute_log_cost_gradient(self, alphas: GateAlphas) -> GateGradients:
        """Return d log E / d alpha [N], the slope of the log of the expected cost E.

        E is the cost with the soft masks sigmoid(alpha) of N gates. The slope is the
        cost of one more gate of the same kind and layer, times the derivative of the
        sigmoid, divided by E. A pruning search adds it to the gradient of the task's
        loss while the cost is above its target, and subtracts it while below.

        alphas: the parameters of all gates [N]."""
        masks = sigmoid(alphas)
        sums = self.sum_masks_by_region(masks)
        expected = self.cost(sums)
        units = [
            self.cost(sums | {region: value + 1}) - expected
            for region, value in sums.items()
        ]
        return np.array(units)[self.region] * masks * (1 - masks) / expected

    def compute_gate_logits_after_step(
        self,
        alphas: GateAlphas,
        moving_average_gradient: GateGradients,
        task_loss_gradient: GateGradients,
        step: int,
        total_steps: int,
    ) -> AlphaUpdate:
        """Return the gates' alphas after one training step of a pruning search.

        The AlphaUpdate that is returned has the new alphas [N], the new moving average
        of their gradients [N], and a log entry of four numbers: target and actual cost
        as shares of the cost with all gates on, and how many gates switched off and on.

        alphas: parameters of the gates, whose masks are sigmoid(alpha), float64 [N].
        moving_average_gradient: the average before this step [N].
        task_loss_gradient: gradient of the task's loss by each alpha in this step [N].
        step: number of the step, from 0 to total_steps - 1."""
        options = self.options
        on = self.compute_open_gate_mask(alphas)
        moving_average_gradient = (
            options.memory * moving_average_gradient
            + (1 - options.memory) * task_loss_gradient
        )
        wish = self.mark_unimportant_gates_by_infinite_gradient(
            moving_average_gradient / (1 - options.memory ** (step + 1))
        )
        goal = self.full * compute_target_cost_ratio(
            step, total_steps, options.ratio, options.schedule
        )
        if sign := compute_cost_gradient_sign(
            self.cost(self.sum_masks_by_region(on)), goal, options.tolerance
        ):
            wish = wish + options.weight * sign * self.compute_log_cost_gradient(alphas)
        if options.landing == "steps":
            dice = np.random.default_rng(derive_seed(self.seed, f"gates:{step}"))
            starts = dice.random(len(self.sizes))
            leaving = self.order_gates_to_switch_off(
                on, alphas, wish, starts, options.share
            )
            returning = self.order_gates_to_switch_on(on, wish, starts, options.share)
            taken = self.select_gates_to_switch(on, leaving, returning, goal, goal)
            new = alphas.copy()
            new[taken] = np.where(on[taken], -LIMIT, LIMIT)
        else:
            new = self.apply_published_switching_rule(alphas, wish)
        switched = self.compute_open_gate_mask(new)
        log_entry = [
            goal / self.full,
            self.compute_cost_ratio_of_gates(switched),
            (on & ~switched).sum(),
            (~on & switched).sum(),
        ]
        return AlphaUpdate(new, moving_average_gradient, np.array(log_entry))

    def mark_unimportant_gates_by_infinite_gradient(
        self, gradients: GateGradients
    ) -> GateGradients:
        """Return the gradients [N] with infinity for gates that hardly affect the loss.

        An infinite gradient makes these gates, masks on parts of a model, switch off
        first in a pruning search. Otherwise a gate with a gradient of about zero would
        stay on for as long as others have positive gradients. A gradient counts as
        about zero below `options.idle` times the mean absolute gradient of the gates of
        its kind and layer.

        gradients: of the loss by the alpha of each gate [N]; a mask is
        sigmoid(alpha)."""
        size = np.abs(gradients)
        mean = np.bincount(self.region, size) / np.bincount(self.region)
        return np.where(size < self.options.idle * mean[self.region], np.inf, gradients)

    def apply_published_switching_rule(
        self, alphas: GateAlphas, gradients: GateGradients
    ) -> GateAlphas:
        """Return the alphas [N] after a step of the original switching rule.

        It is the rule of the report on pruning by differentiable NAS. A gate is a mask
        sigmoid(alpha) on a part of the model. In each layer and kind, or among all
        gates, the share `options.share` with the largest absolute gradients is taken.
        The alphas of these gates change by 10 against the sign of their gradient and
        are clipped to [-5, 5], so each gate switches at once or stays as it is. Where
        all gates of one kind in one layer would be off, the one with the smallest
        gradient stays on.

        gradients: of the loss by alpha [N]."""
        new = alphas.copy()
        chosen = self.select_top_gates_per_group(np.abs(gradients), self.options.share)
        new[chosen] -= JUMP * np.sign(gradients[chosen])
        new = np.clip(new, -LIMIT, LIMIT)
        for region in np.flatnonzero(
            np.bincount(self.region, self.compute_open_gate_mask(new), len(self.sizes))
            == 0
        ):
            gates = np.flatnonzero(
                self.compute_open_gate_mask(alphas) & (self.region == region)
            )
            last = gates[np.argmin(gradients[gates])]
            new[last] = alphas[last]
        return new

    def select_top_gates_per_group(
        self, gate_priorities: GatePriorities, selected_share: float
    ) -> GateNumbers:
        """Return the indices of the gates with the largest values of each group.

        A gate is a mask on a part of a model. A group is the gates of one kind in one
        layer, or all gates, by `options.quota`. Of a group of n the result has the
        ceil(selected_share * n) largest, largest first, as indices into all N gates.
        One step of a pruning search may switch only these.

        gate_priorities: the values by which gates are ranked [N]."""
        tops = []
        for group in self.groups:
            order = np.argsort(-gate_priorities[group], kind="stable")
            tops.append(group[order[: math.ceil(selected_share * len(group))]])
        return np.concatenate(tops)

    def order_gates_to_switch_off(
        self,
        is_on: GateMask,
        gate_alphas: GateAlphas,
        gate_gradients: GateGradients,
        random_offset_of_each_region: OffsetByRegion,
        max_switched_share_per_group: float,
    ) -> GateNumbers:
        """Return the indices of the gates that may switch off, as an ordered array.

        A gate is a mask on a part of a model. A pruning search switches gates off in
        this order until the cost is at its target. Of the gates that are on, those with
        a positive gradient come first. They alternate between regions (the gates of one
        kind in one layer), and within a region the largest gradient is first. The other
        gates follow, the largest gradient per cost saved first.

        is_on, gate_alphas, gate_gradients: of all gates [N].
        random_offset_of_each_region: a random number in [0, 1) for each region, which
        shifts its turns in the alternation.
        max_switched_share_per_group: largest share that may switch of the gates of one
        region, or of all gates, by `options.quota`."""
        gate_gradients = np.where(is_on, gate_gradients, -np.inf)
        may = self.select_top_gates_per_group(
            gate_gradients, max_switched_share_per_group
        )
        first = self.alternate_gates_between_layers_and_kinds(
            np.flatnonzero(gate_gradients > 0),
            gate_gradients,
            random_offset_of_each_region,
        )
        rest = may[is_on[may] & (gate_gradients[may] <= 0)]
        price = gate_gradients[rest] / self.compute_log_cost_gradient(gate_alphas)[rest]
        return np.concatenate(
            [first[np.isin(first, may)], rest[np.argsort(-price, kind="stable")]]
        )

    def order_gates_to_switch_on(
        self,
        is_on: GateMask,
        gate_gradients: GateGradients,
        random_offset_of_each_region: OffsetByRegion,
        max_switched_share_per_group: float,
    ) -> GateNumbers:
        """Return the indices of the gates that may switch on, as an ordered array.

        A gate is a mask on a part of a model. The result has gates that are off and
        have a negative gradient, so that opening them lowers the task's loss. A pruning
        search switches them on in this order while the cost is below its target. They
        alternate between regions (the gates of one kind in one layer), and within a
        region the most negative gradient is first.

        is_on, gate_gradients: of all gates [N].
        random_offset_of_each_region: a random number in [0, 1) for each region, which
        shifts its turns in the alternation.
        max_switched_share_per_group: largest share that may switch of the gates of one
        kind in one layer, or of all gates, by `options.quota`."""
        priorities = np.where(is_on, -np.inf, -gate_gradients)
        may = self.select_top_gates_per_group(priorities, max_switched_share_per_group)
        first = self.alternate_gates_between_layers_and_kinds(
            np.flatnonzero(priorities > 0), priorities, random_offset_of_each_region
        )
        return first[np.isin(first, may)]

    def alternate_gates_between_layers_and_kinds(
        self,
        gate_numbers: GateNumbers,
        gate_priorities: GatePriorities,
        random_offset_of_each_region: OffsetByRegion,
    ) -> GateNumbers:
        """Return gate indices in an order that alternates between layers and kinds.

        A gate is a mask on a part of a model, a region the gates of one kind in one
        layer. Of the n given gates of a region, the one that has p gates of higher
        priority before it gets the position (p + offset of the region) / n. The result
        is sorted by position. So a pruning search takes about the same share of each
        region, and does not empty one layer or kind first.

        gate_numbers: indices of the gates to order, from 0 to N - 1.
        gate_priorities: of all gates [N].
        random_offset_of_each_region: a random number in [0, 1) for each region."""
        gate_numbers = gate_numbers[
            np.lexsort((-gate_priorities[gate_numbers], self.region[gate_numbers]))
        ]
        region = self.region[gate_numbers]
        number = np.bincount(region, minlength=len(self.sizes))
        place = np.arange(len(gate_numbers)) - (np.cumsum(number) - number)[region]
        return gate_numbers[
            np.argsort(
                (place + random_offset_of_each_region[region]) / number[region],
                kind="stable",
            )
        ]

    def select_gates_to_switch(
        self,
        is_on: GateMask,
        ordered_gates_to_switch_off: Iterable[int],
        ordered_gates_to_switch_on: Iterable[int],
        switch_off_above_cost: float,
        switch_on_below_cost: float,
        max_cost_after_switching_on: float = math.inf,
    ) -> GateNumbers:
        """Return the indices of the gates that switch, taken from two ordered lists.

        So a step of a pruning search comes to its target cost. A gate is a mask on a
        part of a model. First gates switch off, in order, while the cost is above
        `switch_off_above_cost`; the last gate of its kind in a layer stays on. Then
        gates switch on, in order, while the cost is below `switch_on_below_cost`. A
        gate that would raise the cost above `max_cost_after_switching_on` is left out.

        is_on: whether each gate is on before, bool [N]."""
        names = list(self.sizes)
        sums = self.sum_masks_by_region(is_on)
        taken = []
        closed = set()
        actual = self.cost(sums)
        for gate in (*ordered_gates_to_switch_off, *ordered_gates_to_switch_on):
            region = names[self.region[gate]]
            leaves = is_on[gate]
            stays = (
                actual <= switch_off_above_cost or sums[region] <= 1
                if leaves
                else actual >= switch_on_below_cost
            )
            if stays or region in closed:
                continue
            new = sums | {region: sums[region] + (-1 if leaves else 1)}
            cost = self.cost(new)
            if not leaves and cost > max_cost_after_switching_on:
                # All gates that follow switch on, so the cost can only grow. Gates of
                # one region cost the same, so no other gate of this region will fit.
                closed.add(region)
            else:
                sums = new
                actual = cost
                taken.append(gate)
        return np.array(taken, dtype=np.int64)

    def correct_final_gates_to_target_cost(
        self, gate_alphas: GateAlphas, average_gradients: GateGradients
    ) -> TrimmedGates:
        """Correct the gates' cost to its target at the end of a pruning search.

        A gate is a mask sigmoid(alpha) on a part of the model. The correction lets
        networks of different searches cost the same. The TrimmedGates that is returned
        has the new alphas [N] and the indices of the gates that switched. No gate
        switches where the cost is within the tolerance already, or where it would not
        come nearer because a single gate changes it too much.

        gate_alphas: the alphas before [N].
        average_gradients: moving averages of the loss's gradients by alpha [N]."""
        on = new = self.compute_open_gate_mask(gate_alphas)
        if compute_cost_gradient_sign(
            self.cost(self.sum_masks_by_region(on)),
            self.full * self.options.ratio,
            self.options.tolerance,
        ):
            wish = self.mark_unimportant_gates_by_infinite_gradient(average_gradients)
            leaving = self.order_gates_to_switch_off(
                on, gate_alphas, wish, np.full(len(self.sizes), 0.5), 1.0
            )
            new = self.switch_gates_off_then_on_to_target_cost(
                on, leaving, average_gradients
            )
        was, now = (
            abs(self.compute_cost_ratio_of_gates(gates) - self.options.ratio)
            for gates in (on, new)
        )
        if now >= was:
            new = on
        taken = np.flatnonzero(new != on)
        gate_alphas = gate_alphas.copy()
        gate_alphas[taken] = np.where(new[taken], LIMIT, -LIMIT)
        return TrimmedGates(gate_alphas, taken)

    def switch_gates_off_then_on_to_target_cost(
        self,
        is_on: GateMask,
        ordered_gates_to_switch_off: GateNumbers,
        gate_gradients: GateGradients,
    ) -> GateMask:
        """Return which gates are on, bool [N], at the target cost of a pruning search.

        A gate is a mask on a part of the model. The cost ends at the target or less
        than one gate below it, unless one gate in each layer and kind already costs
        more. Gates switch off in the given order until the cost is at most the target.
        Then gates that are off switch on again, wherever the cost stays at most the
        target; layers and kinds alternate, and within them the smallest gradient is
        first.

        is_on: whether each gate is on before, bool [N].
        gate_gradients: of the loss by the alpha of each gate [N]."""
        goal = self.full * self.options.ratio
        is_on = is_on.copy()
        is_on[
            self.select_gates_to_switch(is_on, ordered_gates_to_switch_off, [], goal, 0)
        ] = False
        back = self.alternate_gates_between_layers_and_kinds(
            np.flatnonzero(~is_on), -gate_gradients, np.full(len(self.sizes), 0.5)
        )
        is_on[self.select_gates_to_switch(is_on, [], back, math.inf, goal, goal)] = True
        return is_on


def sample_random_architecture_at_target_flops(
    gate_options: Gates,
    gate_count_by_region: GateCountByRegion,
    flops_function: CostOfMaskSumsByRegion,
    seed: int,
) -> GateMask:
    """Return which gates a random architecture has on, bool [N], at a target cost.

    A gate is a mask on a head or a neuron; gates that are off are pruned. The random
    architecture is the control for a search: it shows whether the search does better
    than chance at the same FLOPs. Gates are dropped in random order until the cost is
    at the target. Every gate has the same chance, so all layers keep about the same
    share. Raises Refused for a target out of reach.

    gate_options: settings of a search, such as `ratio`, the target share of the FLOPs.
    gate_count_by_region: {(layer, kind of gate): number of gates}.
    flops_function: f({(layer, kind): sum of masks}) -> FLOPs."""
    control = GateController(gate_options, gate_count_by_region, flops_function, seed)
    draws = np.random.default_rng(derive_seed(seed, "architecture")).random(
        len(control.region)
    )
    return control.switch_gates_off_then_on_to_target_cost(
        np.ones(len(draws), bool), np.argsort(draws, kind="stable"), -draws
    )


def sample_random_architecture_with_layer_sizes(
    gate_count_by_region: GateCountByRegion,
    kept_count_of_each_region: list[int],
    seed: int,
) -> GateMask:
    """Return which gates a random architecture of given layer sizes has on, bool [N].

    A gate is a mask on a head or a neuron; gates that are off are pruned. With the
    layer sizes that a search found, the random architecture shows whether it matters
    which heads and neurons of a layer stay.

    gate_count_by_region: {(layer, kind of gate): number of gates}.
    kept_count_of_each_region: how many gates of each (layer, kind) stay on, in the
    order of `gate_count_by_region`."""
    draws = np.random.default_rng(derive_seed(seed, "architecture")).random(
        sum(gate_count_by_region.values())
    )
    parts = split_gate_values_by_region(draws, gate_count_by_region)
    ranks = [np.argsort(np.argsort(-part, kind="stable")) for part in parts]
    return np.concatenate(
        [
            rank < number
            for rank, number in zip(ranks, kept_count_of_each_region, strict=True)
        ]
    )


def split_gate_values_by_region(
    gate_values: np.ndarray, gate_count_by_region: GateCountByRegion
) -> list[np.ndarray]:
    """Return the values of all gates [N] as one array for each region.

    A gate is a trained mask, a region the gates of one kind in one layer.

    gate_count_by_region: {(layer, kind of gate): number of gates}."""
    return np.split(gate_values, np.cumsum([*gate_count_by_region.values()])[:-1])


def list_kept_indices(
    gate_count_by_region: GateCountByRegion, is_on: GateMask
) -> IndicesPerLayerByKind:
    """Return the indices of the heads and neurons that a pruning search keeps.

    The result is {"heads": L lists of indices, "neurons": L lists}, the arguments of
    the model operation "keep", which prunes all others. A gate is a trained mask; a
    part is kept where its gate is on. For gates on other kinds of parts the keys are
    the names of these kinds.

    gate_count_by_region: {(layer, kind of gate): number of gates}.
    is_on: whether each gate is on, bool [N], in the order of `gate_count_by_region`."""
    indices: dict[str, list[list[int]]] = {}
    parts = split_gate_values_by_region(is_on, gate_count_by_region)
    for (_, kind), part in zip(gate_count_by_region, parts, strict=True):
        chosen = np.flatnonzero(part).tolist()
        indices.setdefault(NAMES.get(kind, kind), []).append(chosen)
    return indices
