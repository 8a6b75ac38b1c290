"""This module moves N gates of a model to a target cost, as arithmetic on numpy arrays
(NAS report, sections 5.1, 5.2, 5.6, 7.4, 7.5, 7.9).

A gate's parameter is alpha; its mask sigmoid(alpha) multiplies a head or a neuron. A
gate is on where its mask is above 0.99. A region is the gates of one kind in one layer.
E is the expected cost in FLOPs, with soft masks. F is the actual cost, of the gates
that are on. R is the target cost. In the report each step does this:

    1. The gradient g of the task's loss by alpha gets weight * (+1, 0 or -1) * dlogE / dalpha,
       where F is above, within or below (1 +- tolerance) R.
    2. In each group of gates (`quota`) the share with the largest |g| may move.
    3. Their alphas become clamp(alpha - 10 sign(g), -5, 5): each switches or stays as it is.

So a step may switch off 10 % of the model at once, while the target falls by hundredths
of a per cent. And where the task's gradient outweighs that of the cost, the search
stops above its target. Our option "steps" of `landing` replaces 2 and 3:

    - Gates switch one after the other: off while F > R, then on while F < R. So a step ends
      within one gate of R.
    - First those gates switch off that the gradient pushes off (g > 0). They alternate between
      regions, so that each region loses the same share of them. By the size of g alone, heads
      would always come first, since one head has as many FLOPs as 60 to 160 neurons.
    - If these are not enough, others follow, in the order in which a growing weight of the cost
      would push them off.

A region keeps at least one gate on. `memory` averages the gradient over steps, as
momentum does, because the gradient of one batch is mostly noise."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lib.core.names import Refused, derive_seed
from lib.core.options import Region
from lib.papers.nas_pruning import gated
from lib.papers.nas_pruning.options import Gates

GateMask: TypeAlias = np.ndarray  # Whether each gate is on: bool [N].
GateNumbers: TypeAlias = np.ndarray  # Numbers of some of the N gates, counted from 0.

LIMIT, JUMP = gated.START, 2 * gated.START
EDGE = math.log(gated.KEPT / (1 - gated.KEPT))  # A gate is on where alpha > 4.595.
GateWidths = Mapping[str, float]  # {"heads", "ffn": width of a layer}.
FlopsFunction = Callable[[Mapping[Region, float]], float]


class AlphaUpdate(NamedTuple):
    alphas: np.ndarray  # [N].
    moving_average_gradient: np.ndarray  # [N].
    log_entry: np.ndarray  # [4].


def compute_target_cost_ratio(
    step: int, total_steps: int, final_cost_ratio: float, schedule: str
) -> float:
    """Return the target at a step from 0 to total_steps - 1, as a share of the whole
    model's cost.

    It starts at 1 and falls to `final_cost_ratio`. This corrects the report (section
    7.4), whose additive rule adds where it must subtract, whose equation 5 rises from 0
    to 1 - ratio, and whose rules divide by `total_steps` where total_steps - 1 moves
    lead to the last value.

    schedule: "additive" is a straight line, "multiplicative" a geometric one, "none" is
    `final_cost_ratio` throughout."""
    if schedule == "none" or total_steps == 1:
        return final_cost_ratio
    done = step / (total_steps - 1)
    return (
        final_cost_ratio**done
        if schedule == "multiplicative"
        else 1 - (1 - final_cost_ratio) * done
    )


def find_sign_of_cost_loss(
    actual_cost: float, target_cost: float, tolerance: float
) -> int:
    """Return the sign of the gradient of the cost loss (report, equation 4).

    It is +1 above (1 + tolerance) * target_cost, where gates should close, -1 below (1
    - tolerance) * target_cost, and 0 in between."""
    return int(actual_cost > (1 + tolerance) * target_cost) - int(
        actual_cost < (1 - tolerance) * target_cost
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def make_encoder_flops_function(
    hidden_size: int,
    head_size: int,
    widths_by_layer: Sequence[GateWidths],
    token_count: int = gated.TOKENS,
) -> FlopsFunction:
    """Return f({(layer, kind): sum of masks}) -> FLOPs of an encoder.

    widths_by_layer: of L layers, for layers or kinds that have no
    masks.
    token_count: T of the sequence that the FLOPs are of."""

    def count_flops(mask_sums: Mapping[Region, float]) -> float:
        widths = [dict(width) for width in widths_by_layer]
        for (layer, kind), number in mask_sums.items():
            widths[layer][kind] = number
        return gated.flops(hidden_size, head_size, widths, token_count)

    return count_flops


class TrimmedGates(NamedTuple):
    alphas: np.ndarray  # [N].
    switched_gates: GateNumbers


@dataclass
class Control:
    """A Control switches N gates off and on during a search until the model costs the
    FLOPs that were asked for.

    A gate multiplies a part of the model, such as a head, by sigmoid(alpha), and is off
    below 1/2. A Control holds no alphas: its methods take them and return changed ones.
    Raises Refused for a cost that no choice of gates has."""

    options: Gates
    # {region: number of gates}, in the order of the N gates. A region is the gates of one
    # kind in one layer: (layer, kind).
    sizes: dict[Any, int]
    # f({region: sum of masks}) -> FLOPs, linear in each sum.
    cost: Callable[[Mapping[Any, float]], float]
    seed: int = 0

    def __post_init__(self) -> None:
        # `region` [N] has the number of each gate's region. `groups` are lists of gates;
        # a step may switch at most a given share of each list.
        self.region = np.repeat(np.arange(len(self.sizes)), list(self.sizes.values()))
        group = (
            self.region if self.options.quota == "layer" else np.zeros_like(self.region)
        )
        self.groups = [np.flatnonzero(group == label) for label in np.unique(group)]
        self.full = self.cost(self.sizes)
        lowest, ratio = (
            self.cost(dict.fromkeys(self.sizes, 1)) / self.full,
            self.options.ratio,
        )
        if lowest > (1 + self.options.tolerance) * ratio:
            least = f"one gate for each kind and layer leaves {lowest:.4f} of the cost"
            raise Refused(f"Gates.ratio is {ratio}, but {least}: ask for at least that")

    def find_active_gates(self, alphas: np.ndarray) -> np.ndarray:
        return alphas > EDGE

    def sum_masks_by_region(self, masks: np.ndarray) -> dict[Region, float]:
        """Return {region: sum of its masks}, for masks [N]."""
        totals = np.bincount(self.region, masks, len(self.sizes)).tolist()
        return dict(zip(self.sizes, totals, strict=True))

    def compute_cost_ratio_of_gates(self, are_gates_on: np.ndarray) -> float:
        """Return the cost with these gates on, as a share of the whole model's cost.

        are_gates_on: bool [N]."""
        return self.cost(self.sum_masks_by_region(are_gates_on)) / self.full

    def compute_cost_ratio_of_alphas(self, alphas: np.ndarray) -> float:
        """Return the cost of the gates that are open for alphas [N], as a share of the
        whole model's cost."""
        return self.compute_cost_ratio_of_gates(self.find_active_gates(alphas))

    def compute_log_cost_slope(self, alphas: np.ndarray) -> np.ndarray:
        """Return dlogE / dalpha [N], the derivative of the log of the expected cost by
        each alpha.

        It is the FLOPs of one more gate of the region, times the derivative of the
        sigmoid, divided by the expected cost."""
        masks = sigmoid(alphas)
        sums = self.sum_masks_by_region(masks)
        expected = self.cost(sums)
        units = [
            self.cost(sums | {region: value + 1}) - expected
            for region, value in sums.items()
        ]
        return np.array(units)[self.region] * masks * (1 - masks) / expected

    def update_alphas(
        self,
        alphas: np.ndarray,
        moving_average_gradient: np.ndarray,
        gradient: np.ndarray,
        step: int,
        total_steps: int,
    ) -> AlphaUpdate:
        """Return the AlphaUpdate of one training step.

        The log entry has the target and actual cost as shares of the whole cost, and
        the numbers of gates that switched off and on.

        alphas: float64 [N].
        moving_average_gradient: the running average before this step [N].
        gradient: the gradient of the task's loss by alpha in this step [N]."""
        options, on = self.options, self.find_active_gates(alphas)
        moving_average_gradient = (
            options.memory * moving_average_gradient + (1 - options.memory) * gradient
        )
        wish = self.replace_near_zero_gradients(
            moving_average_gradient / (1 - options.memory ** (step + 1))
        )
        goal = self.full * compute_target_cost_ratio(
            step, total_steps, options.ratio, options.schedule
        )
        if sign := find_sign_of_cost_loss(
            self.cost(self.sum_masks_by_region(on)), goal, options.tolerance
        ):
            wish = wish + options.weight * sign * self.compute_log_cost_slope(alphas)
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
            new = self.switch_gates_with_largest_gradients(alphas, wish)
        switched = self.find_active_gates(new)
        note = [
            goal / self.full,
            self.compute_cost_ratio_of_alphas(new),
            (on & ~switched).sum(),
            (~on & switched).sum(),
        ]
        note = np.array(note, dtype=np.float64)
        return AlphaUpdate(new, moving_average_gradient, note)

    def replace_near_zero_gradients(self, gradients: np.ndarray) -> np.ndarray:
        """Return the gradients [N], with infinity for gates on which the loss hardly
        depends, so that these switch off first.

        The option `idle` says how small their gradients are. A gradient of about zero
        would otherwise keep such a gate on for as long as others have positive
        gradients."""
        size = np.abs(gradients)
        mean = np.bincount(self.region, size) / np.bincount(self.region)
        return np.where(size < self.options.idle * mean[self.region], np.inf, gradients)

    def switch_gates_with_largest_gradients(
        self, alphas: np.ndarray, gradients: np.ndarray
    ) -> np.ndarray:
        """Return the alphas [N] after a step of the report's rule: the alphas of the
        gates with the largest gradients change by JUMP, against the gradient, so that
        these gates are switched at once.

        A region whose gates would all be off keeps the one with the smallest gradient.
        """
        new = alphas.copy()
        for chosen in self.select_gates_with_largest_gradients(
            np.abs(gradients), self.options.share
        ):
            new[chosen] -= JUMP * np.sign(gradients[chosen])
        new = np.clip(new, -LIMIT, LIMIT)
        for region in np.flatnonzero(
            np.bincount(self.region, self.find_active_gates(new), len(self.sizes)) == 0
        ):
            gates = np.flatnonzero(
                self.find_active_gates(alphas) & (self.region == region)
            )
            last = gates[np.argmin(gradients[gates])]
            new[last] = alphas[last]
        return new

    def select_gates_with_largest_gradients(
        self, gradient_magnitudes: np.ndarray, selected_share: float
    ) -> list[np.ndarray]:
        """Return for each group of n gates the ceil(selected_share * n) with the
        largest values. Of equal ones the first are taken.

        gradient_magnitudes: [N]."""
        return [
            group[
                np.argsort(-gradient_magnitudes[group], kind="stable")[
                    : math.ceil(selected_share * len(group))
                ]
            ]
            for group in self.groups
        ]

    def order_gates_to_switch_off(
        self,
        is_on: GateMask,
        gate_alphas: np.ndarray,
        gate_gradients: np.ndarray,
        region_offsets: np.ndarray,
        max_share_of_group: float,
    ) -> GateNumbers:
        """Return the numbers of the gates that may switch off, in the order in which
        they do until the target is met.

        Gates with a positive gradient come first, others by their gradient per FLOPs
        saved.

        is_on, gate_alphas, gate_gradients: [N].
        region_offsets: as in `interleave_gates_of_regions`.
        max_share_of_group: at most this share of each group may switch."""
        gate_gradients = np.where(is_on, gate_gradients, -np.inf)
        may = np.concatenate(
            self.select_gates_with_largest_gradients(gate_gradients, max_share_of_group)
        )
        first = self.interleave_gates_of_regions(
            np.flatnonzero(gate_gradients > 0), gate_gradients, region_offsets
        )
        rest = may[is_on[may] & (gate_gradients[may] <= 0)]
        price = gate_gradients[rest] / self.compute_log_cost_slope(gate_alphas)[rest]
        return np.concatenate(
            [first[np.isin(first, may)], rest[np.argsort(-price, kind="stable")]]
        )

    def order_gates_to_switch_on(
        self,
        is_on: GateMask,
        gate_gradients: np.ndarray,
        region_offsets: np.ndarray,
        max_share_of_group: float,
    ) -> GateNumbers:
        """Return the numbers of the gates that may switch on, those with a negative
        gradient, in the order in which they do.

        is_on, gate_gradients: [N].
        region_offsets: as in `interleave_gates_of_regions`.
        max_share_of_group: at most this share of each group may switch."""
        gate_gradients = np.where(is_on, np.inf, gate_gradients)
        first = self.interleave_gates_of_regions(
            np.flatnonzero(gate_gradients < 0), -gate_gradients, region_offsets
        )
        return first[
            np.isin(
                first,
                np.concatenate(
                    self.select_gates_with_largest_gradients(
                        -gate_gradients, max_share_of_group
                    )
                ),
            )
        ]

    def interleave_gates_of_regions(
        self,
        gate_numbers: GateNumbers,
        gate_priorities: np.ndarray,
        region_offsets: np.ndarray,
    ) -> GateNumbers:
        """Return gates in an order that alternates between regions: at any point each
        region has had about the same share of its gates (systematic sampling).

        Within a region those with the largest values come first.

        gate_priorities: [N].
        region_offsets: for each region an offset in [0, 1), which decides which region
        comes first."""
        gate_numbers = gate_numbers[
            np.lexsort((-gate_priorities[gate_numbers], self.region[gate_numbers]))
        ]
        region = self.region[gate_numbers]
        number = np.bincount(region, minlength=len(self.sizes))
        place = np.arange(len(gate_numbers)) - (np.cumsum(number) - number)[region]
        return gate_numbers[
            np.argsort((place + region_offsets[region]) / number[region], kind="stable")
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
        """Return the numbers of the gates that switch, out of two ordered lists.

        First gates switch off in order while the actual cost is above
        `switch_off_above_cost`; a region keeps one gate on. Then gates switch on in
        order while it is below `switch_on_below_cost`; a gate with which it would
        exceed `max_cost_after_switching_on` is left out.

        is_on: bool [N]."""
        names, sums, taken, closed = (
            list(self.sizes),
            self.sum_masks_by_region(is_on),
            [],
            set(),
        )
        actual = self.cost(sums)
        for gate in (*ordered_gates_to_switch_off, *ordered_gates_to_switch_on):
            region, leaves = names[self.region[gate]], is_on[gate]
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
                # From here gates only switch on and the cost grows, so no other gate of
                # this region will fit.
                closed.add(region)
            else:
                sums, actual = new, cost
                taken.append(gate)
        return np.array(taken, dtype=np.int64)

    def trim_gates_to_target_cost(
        self, gate_alphas: np.ndarray, average_gradients: np.ndarray
    ) -> TrimmedGates:
        """Return the gates after a correction at the end of a search, which brings the
        cost to the target.

        No gate switches where the cost is within the tolerance already, or would not
        come nearer because one gate changes it too much.

        gate_alphas, average_gradients: [N]."""
        on = new = self.find_active_gates(gate_alphas)
        if find_sign_of_cost_loss(
            self.cost(self.sum_masks_by_region(on)),
            self.full * self.options.ratio,
            self.options.tolerance,
        ):
            wish = self.replace_near_zero_gradients(average_gradients)
            leaving = self.order_gates_to_switch_off(
                on, gate_alphas, wish, np.full(len(self.sizes), 0.5), 1.0
            )
            new = self.switch_gates_to_target_cost(on, leaving, average_gradients)
        was, now = (
            abs(self.compute_cost_ratio_of_gates(gates) - self.options.ratio)
            for gates in (on, new)
        )
        taken = np.flatnonzero(new != on) if now < was else np.array([], dtype=np.int64)
        gate_alphas = gate_alphas.copy()
        gate_alphas[taken] = np.where(new[taken], LIMIT, -LIMIT)
        return TrimmedGates(gate_alphas, taken)

    def switch_gates_to_target_cost(
        self,
        is_on: GateMask,
        ordered_gates_to_switch_off: GateNumbers,
        gate_gradients: np.ndarray,
    ) -> GateMask:
        """Return which gates are on, bool [N], with a cost at the target or at most one
        gate below.

        Gates switch off in order until the cost is at most the target. Then other gates
        switch on again, those with the smallest gradients first, as long as it stays
        so.

        is_on, gate_gradients: [N]."""
        goal, is_on = self.full * self.options.ratio, is_on.copy()
        is_on[
            self.select_gates_to_switch(is_on, ordered_gates_to_switch_off, [], goal, 0)
        ] = False
        back = self.interleave_gates_of_regions(
            np.flatnonzero(~is_on), -gate_gradients, np.full(len(self.sizes), 0.5)
        )
        is_on[self.select_gates_to_switch(is_on, [], back, math.inf, goal, goal)] = True
        return is_on


def sample_random_gates(
    gate_options: Gates,
    gate_count_by_region: dict[Any, int],
    count_flops_of_mask_sums: Callable[[Mapping[Any, float]], float],
    seed: int,
) -> GateMask:
    """Return the gates that are on in a random architecture with the target cost, bool
    [N].

    Every gate has the same chance, so layers end up similar. The report does not say
    how it draws. Raises Refused for a target out of reach.

    gate_count_by_region: {(layer, kind): number of gates}.
    count_flops_of_mask_sums: f({(layer, kind): sum of masks}) -> FLOPs."""
    control = Control(
        gate_options, gate_count_by_region, count_flops_of_mask_sums, seed
    )
    draws = np.random.default_rng(derive_seed(seed, "architecture")).random(
        len(control.region)
    )
    return control.switch_gates_to_target_cost(
        np.ones(len(draws), bool), np.argsort(draws, kind="stable"), -draws
    )


def sample_random_gates_of_counts(
    gate_count_by_region: dict[Any, int],
    kept_count_of_each_region: list[int],
    seed: int,
) -> GateMask:
    """Return the gates that are on in a random architecture with a given number of
    gates in each region, bool [N].

    For one seed it ranks gates by the same random numbers as `sample_random_gates`.

    gate_count_by_region: {(layer, kind): number of gates}.
    kept_count_of_each_region: how many stay on in each region, in that order."""
    draws = np.random.default_rng(derive_seed(seed, "architecture")).random(
        sum(gate_count_by_region.values())
    )
    parts = np.split(draws, np.cumsum(list(gate_count_by_region.values()))[:-1])
    ranks = [np.argsort(np.argsort(-part, kind="stable")) for part in parts]
    return np.concatenate(
        [
            rank < number
            for rank, number in zip(ranks, kept_count_of_each_region, strict=True)
        ]
    )
