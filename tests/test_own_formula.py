"""A formula, an operation and a space of a reader's own, as CONTRIBUTING promises them."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lib.model import supernet
from lib.page import draw, notebook
from lib.papers import efficientbert
from lib.papers import efficientbert_search as search
from lib.runs import paths
from lib.search import space as spaces
from lib.search.net import BERT, Layer, Net, macs, parameters

GATED = {
    "GLU": "W2 (sigmoid(W1 x) * W3 x)",
    "GEGLU": "W2 (gelu(W1 x) * W3 x)",
    "SwiGLU": "W2 (swish(W1 x) * W3 x)",
}
PAGE = "efficientbert_t05_search_stages"


# ---- gated units ----
@pytest.mark.parametrize("name, text", [*GATED.items(), ("BERT", BERT)])
def test_counts_equal_pytorch_s(name, text):
    net = Net(48, 96, 12, "plain", "truncate", (Layer(text, 2, 3), Layer(text)))
    model, tokens = supernet.build(net).eval(), 16
    model.set_attn_implementation("eager")  # the counter sees no fused attention of a CPU
    tables = dict(vocab=30522, positions=512, types=2)
    assert parameters(net, "with pooler", **tables) == sum(p.numel() for p in model.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.ones(1, tokens, dtype=torch.long))
    pooler = 2 * 48 * 48
    assert counter.get_total_flops() == 2 * tokens * macs(net, tokens) + pooler


def test_a_gate_has_its_own_sign_in_a_drawing():
    drawn = [op for op, *_ in draw.placed(Layer(GATED["GLU"]).tree)[0]]
    assert sorted(drawn) == ["W1", "W2", "W3", "mul", "sigmoid", "x"]
    assert draw.kind("W3") == "linear map" and draw.SIGN["W3"] == "$W_3$"


def test_a_stack_without_a_gate_cannot_run_one():
    net = Net(48, 96, 12, "plain", "truncate", (Layer(BERT),))
    gated = Net(48, 96, 12, "plain", "truncate", (Layer(GATED["GLU"]),))
    with pytest.raises(ValueError, match="1 networks of 96 channels and 1 gates asked of a stack"):
        supernet.choose(supernet.build(net), gated)
    supernet.choose(supernet.build(gated), net)  # the gate rests


# ---- one line of text ----
def grid(**values):
    return notebook.grids(paths.NOTEBOOKS / f"{PAGE}.ipynb", {"profile": "toy"} | values)["grid"]


def test_a_typed_formula_is_a_row_beside_the_published_ones():
    plain, more = grid(), grid(networks=[GATED["SwiGLU"]])
    assert [row["spec"].id for row in plain] == [
        row["spec"].id for row in more if row["model"] != GATED["SwiGLU"]
    ]
    (own,) = (row["spec"] for row in more if row["model"] == GATED["SwiGLU"])
    (base,) = (row["spec"] for row in plain if row["model"] == "Base Model")
    nets = [spec.args["net"]["layers"] for spec in (own, base)]
    assert nets[0] == [[GATED["SwiGLU"], *ids] for _, *ids in nets[1]]
    assert {**own.args, "net": 0} == {**base.args, "net": 0}  # trained alike
    counted = efficientbert.sizes([GATED["SwiGLU"], "Base Model"]).values()
    large, small = (float(next(iter(cells.values()))) for cells in counted)
    assert large > small


def test_a_mistyped_formula_is_pointed_at_before_anything_runs():
    with pytest.raises(ValueError, match="unknown operation: .gleu.; did you mean 'gelu'?"):
        grid(networks=["W2 gleu(W1 x)"])


# ---- an operation of one's own ----
LINE = '    "sin": Operation(1, np.sin, lambda t, x: t.sin(x)),\n'
PUBLISHED = """
from lib.papers import efficientbert_search as search
from lib.search import space

told = {"settings": list(space.SPACES["paper"].operations)}
told["grammars"] = [space.grammar(stage) for stage in space.SEARCHED]
told["candidates"] = [net.to_json() for net in search.candidates("toy", 2)]
"""
USED = """
import json, torch
from lib.model import supernet
from lib.page import draw
from lib.search import surface
from lib.search.net import Layer, Net

net = Net(48, 48, 12, "plain", "truncate", (Layer("W2 sin(W1 x)"),))
model, ids = supernet.build(net), torch.ones(1, 4, dtype=torch.long)
model(ids).last_hidden_state[..., 0].sum().backward()
told["moved"] = float(model.encoder.layer[0].output.networks[0].W1.weight.grad.abs().sum())
told["z"] = float(surface.surface(net, surface.Recipe(points=5))[1].std())
told["drawn"] = draw.kind("sin")
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
    made = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=own)
    assert made.returncode == 0, made.stderr
    after = json.loads(made.stdout)
    assert after["moved"] > 0 and after["z"] > 0 and after["drawn"] == "activation"
    exec(PUBLISHED, here)  # without the operation
    before = json.loads(json.dumps(here["told"]))
    assert {name: after[name] for name in before} == before  # published searches stay found


# ---- a space of one's own ----
def test_a_space_with_gates_draws_them_inside_the_window():
    body = search.space("toy", "stage1", "gated")
    start = search.base("toy").to_json()
    told = {"start": start, "tables": efficientbert.tables("toy")}
    space, rng = spaces.from_json(body | told), np.random.default_rng(0)
    nets = [space.draw(rng) for _ in range(16)]
    nets += [space.mutate(net, rng) for net in nets]
    assert all(space.inside(net) for net in nets)
    gates = {layer.gates for net in nets for layer in net.layers}
    assert gates == {0, 1}
    assert space.features(nets).shape[0] == len(nets)
    plain = spaces.from_json(search.space("toy", "stage1") | told)
    assert not any(l.gates for _ in range(5) for l in plain.draw(rng).layers)


def test_a_space_is_one_line(monkeypatch):
    few = spaces.Grammar(("gelu", "relu", "mul"), stacks=(1, 2), ratios=(1,))
    monkeypatch.setitem(spaces.SPACES, "few", few)
    start = Net(96, 96, 12, "trigram", "truncate", (Layer(BERT), Layer(BERT)))
    space = spaces.from_json(
        {"stage": "single", "grammar": spaces.grammar("single", "few")} | {"start": start}
    )
    rng = np.random.default_rng(0)
    layers = [layer for _ in range(20) for layer in space.draw(rng).layers]
    assert {(l.stack, l.q) for l in layers} == {(1, 1), (2, 1)}
    assert {w for l in layers for w in l.formula.replace("(", " ").split()} & {
        "tanh",
        "max",
    } == set()
    assert any("relu" in l.formula for l in layers)
    assert space.features([space.draw(rng)]).shape == (1, 40)
    with pytest.raises(ValueError, match="the search space lacks gelu, which 'W2 gelu.W1 x.' has"):
        spaces.Space("stage1", start, grammar=spaces.Grammar(("relu", "mul")))
