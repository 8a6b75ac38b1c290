"""A formula and an operation of a reader's own, as CONTRIBUTING promises them."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lib.claims import notebook
from lib.core import paths
from lib.model import supernet
from lib.papers.efficientbert.search.net import (
    BERT,
    Layer,
    Net,
    count_macs_per_token,
    count_net_parameters,
)

TYPED = "W2 gelu(W1 x) * x"
PAGE = "efficientbert_t05_search_stages"


@pytest.mark.parametrize("text", [TYPED, BERT])
def test_counts_equal_pytorch_s(text):
    net = Net(48, 96, 12, "plain", "truncate", (Layer(text, 2, 3), Layer(text)))
    model, tokens = supernet.build_efficientbert_model(net).eval(), 16
    model.set_attn_implementation(
        "eager"
    )  # the counter sees no fused attention of a CPU
    tables = dict(vocab=30522, positions=512, types=2)
    assert count_net_parameters(net, "with pooler", **tables) == sum(
        p.numel() for p in model.parameters()
    )
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.ones(1, tokens, dtype=torch.long))
    pooler = 2 * 48 * 48
    assert (
        counter.get_total_flops()
        == 2 * tokens * count_macs_per_token(net, tokens) + pooler
    )


def grid(**values):
    return notebook.execute_grid_cell_and_list_rows_by_variable(
        notebook.find_notebook_path(PAGE), {"profile": "toy"} | values
    )["grid"]


def test_a_typed_formula_is_a_row_beside_the_published_ones():
    plain, more = grid(), grid(networks=[TYPED])
    assert {row["spec"].id for row in plain} <= {
        row["spec"].id for row in more if row["model"] != TYPED
    }
    (own,) = (row["spec"] for row in more if row["model"] == TYPED)
    (base,) = (row["spec"] for row in plain if row["model"] == "Base Model")
    nets = [spec.args["net"]["layers"] for spec in (own, base)]
    assert nets[0] == [[TYPED, *ids] for _, *ids in nets[1]]
    assert {**own.args, "net": 0} == {**base.args, "net": 0}  # trained alike


def test_a_mistyped_formula_is_pointed_at_before_anything_runs():
    with pytest.raises(
        ValueError, match="unknown operation: .gleu.; did you mean 'gelu'?"
    ):
        grid(networks=["W2 gleu(W1 x)"])


LINE = '    "sin": Operation(1, np.sin, lambda t, x: t.sin(x)),\n'
PUBLISHED = """
from lib.papers.efficientbert import searches as search
from lib.papers.efficientbert.search import space

told = {"settings": list(space.TABLE_1)}
told["grammars"] = [space.make_grammar_json(stage) for stage in space.SEARCHED]
told["candidates"] = [net.to_json() for net in search.sample_stage_1_candidates("toy", 2)]
"""
USED = """
import json, torch
from lib.model import supernet
from lib.papers.efficientbert.search import surface
from lib.papers.efficientbert.search.net import Layer, Net

net = Net(48, 48, 12, "plain", "truncate", (Layer("W2 sin(W1 x)"),))
model, ids = supernet.build_efficientbert_model(net), torch.ones(1, 4, dtype=torch.long)
model(ids).last_hidden_state[..., 0].sum().backward()
told["moved"] = float(model.encoder.layer[0].output.networks[0].W1.weight.grad.abs().sum())
told["z"] = float(surface.compute_network_surface(net, surface.SurfaceOptions(points=5))[1].std())
print(json.dumps(told))
"""


def test_an_operation_is_one_line_and_nothing_else_breaks(tmp_path):
    """CONTRIBUTING's line, in a copy of lib that is taken away again."""
    assert LINE.strip() in (paths.ROOT / "CONTRIBUTING.md").read_text()
    for name in ("lib", "data/published"):
        shutil.copytree(paths.ROOT / name, tmp_path / name)
    file, head = tmp_path / "lib/model/formula.py", "OPERATIONS = {\n"
    file.write_text(file.read_text().replace(head, head + LINE))
    own, here = os.environ | {"PYTHONPATH": str(tmp_path)}, {}
    command = [sys.executable, "-c", PUBLISHED + USED]
    made = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=own
    )
    assert made.returncode == 0, made.stderr
    after = json.loads(made.stdout)
    assert after["moved"] > 0 and after["z"] > 0
    exec(PUBLISHED, here)  # without the operation
    before = json.loads(json.dumps(here["told"]))
    assert {
        name: after[name] for name in before
    } == before  # published searches stay found
