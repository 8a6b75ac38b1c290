"""This module steers a search over gates to a cost, as arithmetic on arrays.

It has the moving target, the cost loss, the choice of gates that may move in a step,
and the end of a search on its target (report on NAS pruning, sections 5.1, 5.2, 5.6,
7.4, 7.5, 7.9).

A gate is on where sigmoid(alpha) > 0.99. E is the expected cost, with soft masks; F is
the actual cost, of the gates that are on; R is the target. A region is one layer and
kind of gates. Each step does this:

    1. The gradient g of the task's loss gets weight * (+1, 0 or -1) * dlogE / dalpha where F is
       above, within or below (1 +- tolerance) R.
    2. In each group of gates (`quota`) the share with the largest |g| may move: the movers.
    3. alpha <- clamp(alpha - 10 sign(g), -5, 5): a mover jumps to the other side or stays there.

As reported, all movers jump at once. With a share of 10 % a step may take off 10 % of
the model, while the target falls by hundredths of a per cent. A task that outweighs the
cost loss stops the search above its target. Our landing "steps" does this instead:

    - Movers are the gates on with the largest g, and the gates off with the smallest g below 0.
    - They switch one after another: off while F > R, then on while F < R. So a step ends within one
      gate of R.
    - Gates that want off (g > 0) take turns so that each region yields the same share of its gates.
      The order of the gradients alone would not do: a head is worth 60 to 160 neurons,
      so heads would always come first, and always last in the order of gradient for
      cost.
    - If these gates are not enough, others follow in the order in which they would want off if the
      weight of the cost grew.

Each region keeps at least one gate on. `memory` averages the task's gradient over
steps, as an optimiser with momentum would, because the gradient of one batch is mostly
noise."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.core.names import Refused, derive_seed
from lib.papers.nas_pruning import gated
from lib.papers.nas_pruning.options import Gates

LIMIT, JUMP = gated.START, 2 * gated.START
EDGE = math.log(gated.KEPT / (1 - gated.KEPT))  # Alpha above which a gate is on: 4.595.


def compute_target_cost(
    step: int, steps: int, final_ratio: float, schedule: str
) -> float:
    """Return the target at a step from 0 to steps - 1, as a fraction of the whole cost.

    It starts at 1 and ends at `final_ratio`, along a line ("additive") or a geometric
    one ("multiplicative"); "none" is `final_ratio` throughout. This corrects the report
    (7.4): its additive rule adds where it must take away, its equation 5 rises from 0
    to 1 - ratio, and both of its rules divide by `steps`, where steps - 1 moves lead
    from the first value to the last."""
    if schedule == "none" or steps == 1:
        return final_ratio
    done = step / (steps - 1)
    return (
        final_ratio**done
        if schedule == "multiplicative"
        else 1 - (1 - final_ratio) * done
    )


def find_sign_of_loss(actual_cost: float, target_cost: float, tolerance: float) -> int:
    """Return the sign of the cost loss (equation 4).

    It is +1 where the actual cost is above (1 + tolerance) * target_cost, -1 where it
    is below (1 - tolerance) * target_cost, and 0 in between."""
    return int(actual_cost > (1 + tolerance) * target_cost) - int(
        actual_cost < (1 - tolerance) * target_cost
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def make_encoder_cost(
    hidden_size: int,
    head_size: int,
    widths_by_layer: Sequence[Mapping[str, float]],
    tokens: int = gated.TOKENS,
) -> Callable[[Mapping[tuple[int, str], float]], float]:
    """Return a function {(layer, kind): sum of masks} -> FLOPs of an encoder.

    head_size: the width of a head. widths_by_layer: L dicts {"heads", "ffn"} with the
    widths of layers, used where a layer has no masks."""

    def count_flops(mask_sums: Mapping[tuple[int, str], float]) -> float:
        widths = [dict(width) for width in widths_by_layer]
        for (layer, kind), number in mask_sums.items():
            widths[layer][kind] = number
        return gated.flops(hidden_size, head_size, widths, tokens)

    return count_flops


@dataclass
class Control:
    """A Control steers N gates to a cost. Raises Refused for a target out of reach."""

    options: Gates
    # {region: number of gates}, in the order of the gates; a region is (layer, kind).
    sizes: dict[Any, int]
    # f({region: sum of masks}) -> FLOPs, linear in each sum
    cost: Callable[[Mapping[Any, float]], float]
    seed: int = 0

    def __post_init__(self) -> None:
        # `region`: the number of each gate's region [N]. `groups`: the gates of which a
        # step may move a given share.
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

    def sum_masks(self, masks: np.ndarray) -> dict[Any, float]:
        """Return {region: sum} of masks [N]."""
        totals = np.bincount(self.region, masks, len(self.sizes)).tolist()
        return dict(zip(self.sizes, totals, strict=True))

    def compute_cost_ratio(self, is_on: np.ndarray) -> float:
        """Return the actual cost as a share of the whole cost; is_on: the gates [N]
        that are on."""
        return self.cost(self.sum_masks(is_on)) / self.full

    def compute_cost_ratio_of_alphas(self, alphas: np.ndarray) -> float:
        """Return the actual cost as a share of the whole cost, for alphas [N]."""
        return self.compute_cost_ratio(self.find_active_gates(alphas))

    def compute_log_cost_slope(self, alphas: np.ndarray) -> np.ndarray:
        """Return the derivative of the log of the expected cost by each alpha [N].

        It is the cost of one more gate of the region, times the derivative of the
        sigmoid, over the expected cost."""
        masks = sigmoid(alphas)
        sums = self.sum_masks(masks)
        expected = self.cost(sums)
        units = [
            self.cost(sums | {region: value + 1}) - expected
            for region, value in sums.items()
        ]
        return np.array(units)[self.region] * masks * (1 - masks) / expected

    def update_alphas(
        self,
        alphas: np.ndarray,
        average_gradient: np.ndarray,
        gradient: np.ndarray,
        step: int,
        steps: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (alphas, average, note) after one step.

        alphas: float64 [N]. average_gradient: the running average of the gradients [N].
        gradient: the gradient of this step [N]. The note [4] has target and actual cost
        ratio, and the numbers of gates that switched off and on."""
        options, on = self.options, self.find_active_gates(alphas)
        average_gradient = (
            options.memory * average_gradient + (1 - options.memory) * gradient
        )
        wish = self.replace_idle_gradients(
            average_gradient / (1 - options.memory ** (step + 1))
        )
        goal = self.full * compute_target_cost(
            step, steps, options.ratio, options.schedule
        )
        if sign := find_sign_of_loss(
            self.cost(self.sum_masks(on)), goal, options.tolerance
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
            new = self.move_alphas_at_once(alphas, wish)
        switched = self.find_active_gates(new)
        note = [
            goal / self.full,
            self.compute_cost_ratio_of_alphas(new),
            (on & ~switched).sum(),
            (~on & switched).sum(),
        ]
        return new, average_gradient, np.array(note, dtype=np.float64)

    def replace_idle_gradients(self, gradients: np.ndarray) -> np.ndarray:
        """Return the gradients [N], with infinity where a gate has almost none.

        The option `idle` says how small that is. A zero has no sign, so such a gate
        would otherwise stay as long as others want off."""
        size = np.abs(gradients)
        mean = np.bincount(self.region, size) / np.bincount(self.region)
        return np.where(size < self.options.idle * mean[self.region], np.inf, gradients)

    def move_alphas_at_once(
        self, alphas: np.ndarray, gradients: np.ndarray
    ) -> np.ndarray:
        """Return alphas after a step as reported: all movers jump at once.

        A region that would become empty keeps the gate with the smallest gradient."""
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
        self, gradient_sizes: np.ndarray, largest_share: float
    ) -> list[np.ndarray]:
        """Return the ceil(share * n) most eager gates of each group of n gates.

        Ties keep the first."""
        return [
            group[
                np.argsort(-gradient_sizes[group], kind="stable")[
                    : math.ceil(largest_share * len(group))
                ]
            ]
            for group in self.groups
        ]

    def order_gates_to_switch_off(
        self,
        is_on: np.ndarray,
        alphas: np.ndarray,
        gradients: np.ndarray,
        region_starts: np.ndarray,
        largest_share: float,
    ) -> np.ndarray:
        """Return the gates that may switch off, in the order of their turns.

        region_starts: as in `order_gates_by_region`. largest_share: the largest share
        of each group."""
        gradients = np.where(is_on, gradients, -np.inf)
        may = np.concatenate(
            self.select_gates_with_largest_gradients(gradients, largest_share)
        )
        first = self.order_gates_by_region(
            np.flatnonzero(gradients > 0), gradients, region_starts
        )
        rest = may[is_on[may] & (gradients[may] <= 0)]
        price = gradients[rest] / self.compute_log_cost_slope(alphas)[rest]
        return np.concatenate(
            [first[np.isin(first, may)], rest[np.argsort(-price, kind="stable")]]
        )

    def order_gates_to_switch_on(
        self,
        is_on: np.ndarray,
        gradients: np.ndarray,
        region_starts: np.ndarray,
        largest_share: float,
    ) -> np.ndarray:
        """Return the gates that may switch on by their gradient, in the order of turns.

        region_starts: as in `order_gates_by_region`. largest_share: the largest share
        of each group."""
        gradients = np.where(is_on, np.inf, gradients)
        first = self.order_gates_by_region(
            np.flatnonzero(gradients < 0), -gradients, region_starts
        )
        return first[
            np.isin(
                first,
                np.concatenate(
                    self.select_gates_with_largest_gradients(-gradients, largest_share)
                ),
            )
        ]

    def order_gates_by_region(
        self, gates: np.ndarray, gradient_sizes: np.ndarray, region_starts: np.ndarray
    ) -> np.ndarray:
        """Return the gates in the order of their turns.

        Within a region the most eager come first. At any moment each region has had the
        same share of its gates (systematic sampling). region_starts: the start of each
        region in [0, 1), [regions]."""
        gates = gates[np.lexsort((-gradient_sizes[gates], self.region[gates]))]
        region = self.region[gates]
        number = np.bincount(region, minlength=len(self.sizes))
        place = np.arange(len(gates)) - (np.cumsum(number) - number)[region]
        return gates[
            np.argsort((place + region_starts[region]) / number[region], kind="stable")
        ]

    def select_gates_to_switch(
        self,
        is_on: np.ndarray,
        ordered_gates_to_switch_off: Iterable[int],
        ordered_gates_to_switch_on: Iterable[int],
        switch_off_above_cost: float,
        switch_on_below_cost: float,
        max_cost: float = math.inf,
    ) -> np.ndarray:
        """Return the numbers of the gates that switch, out of gates in order of turns.

        Gates of `ordered_gates_to_switch_off` switch off while the actual cost exceeds
        `switch_off_above_cost`. Then gates of
        `ordered_gates_to_switch_on` switch on while it is below `switch_on_below_cost`,
        and as far as it stays within
        `max_cost`."""
        names, sums, taken, closed = list(self.sizes), self.sum_masks(is_on), [], set()
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
            if not leaves and cost > max_cost:
                # The actual cost only grows from here, so no other gate of this region
                # will fit.
                closed.add(region)
            else:
                sums, actual = new, cost
                taken.append(gate)
        return np.array(taken, dtype=np.int64)

    def trim_to_target_cost(
        self, alphas: np.ndarray, average_gradient: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (alphas, [gates switched]) of the final trim, which meets the target.

        Gates switch in turn by the average gradient. None switches where the cost is
        within the tolerance, or would come no nearer because gates are coarse."""
        on = new = self.find_active_gates(alphas)
        if find_sign_of_loss(
            self.cost(self.sum_masks(on)),
            self.full * self.options.ratio,
            self.options.tolerance,
        ):
            wish = self.replace_idle_gradients(average_gradient)
            leaving = self.order_gates_to_switch_off(
                on, alphas, wish, np.full(len(self.sizes), 0.5), 1.0
            )
            new = self.fit_gates_to_target_cost(on, leaving, average_gradient)
        was, now = (
            abs(self.compute_cost_ratio(gates) - self.options.ratio)
            for gates in (on, new)
        )
        taken = np.flatnonzero(new != on) if now < was else np.array([], dtype=np.int64)
        alphas = alphas.copy()
        alphas[taken] = np.where(new[taken], LIMIT, -LIMIT)
        return alphas, taken

    def fit_gates_to_target_cost(
        self,
        is_on: np.ndarray,
        ordered_gates_to_switch_off: np.ndarray,
        gradients: np.ndarray,
    ) -> np.ndarray:
        """Return the gates that are on [N], with a cost at most one gate below the
        target.

        Gates of `ordered_gates_to_switch_off` switch off in turn until the cost is at
        most the target. Then other gates switch on again as long as it stays so, those
        with the smallest
        `gradients` first."""
        goal, is_on = self.full * self.options.ratio, is_on.copy()
        is_on[
            self.select_gates_to_switch(is_on, ordered_gates_to_switch_off, [], goal, 0)
        ] = False
        back = self.order_gates_by_region(
            np.flatnonzero(~is_on), -gradients, np.full(len(self.sizes), 0.5)
        )
        is_on[self.select_gates_to_switch(is_on, [], back, math.inf, goal, goal)] = True
        return is_on


def draw_random_gates(
    gate_options: Gates,
    gates_by_region: dict[Any, int],
    cost: Callable[[Mapping[Any, float]], float],
    seed: int,
) -> np.ndarray:
    """Return the gates of a random architecture with the target's cost: bool [N].

    Each gate has the same chance, so layers end up alike; the report does not say how
    it draws. Raises Refused as Control does."""
    control = Control(gate_options, gates_by_region, cost, seed)
    draws = np.random.default_rng(derive_seed(seed, "architecture")).random(
        len(control.region)
    )
    return control.fit_gates_to_target_cost(
        np.ones(len(draws), bool), np.argsort(draws, kind="stable"), -draws
    )


def draw_random_gates_of_sizes(
    gates_by_region: dict[Any, int], kept_gates: list[int], seed: int
) -> np.ndarray:
    """Return the gates of a random architecture with given numbers by region: bool [N].

    gates_by_region: {region: number of gates}, in the order of the gates. kept_gates:
    the number of gates that stay in each region. The draws are those of
    `draw_random_gates`: in each region the largest stay."""
    draws = np.random.default_rng(derive_seed(seed, "architecture")).random(
        sum(gates_by_region.values())
    )
    parts = np.split(draws, np.cumsum(list(gates_by_region.values()))[:-1])
    ranks = [np.argsort(np.argsort(-part, kind="stable")) for part in parts]
    return np.concatenate(
        [rank < number for rank, number in zip(ranks, kept_gates, strict=True)]
    )
