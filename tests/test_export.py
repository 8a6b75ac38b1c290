"""Exported folders give what the runs' models give, for every change that a model can
have: opened by transformers alone, and by onnxruntime."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from conftest import put

from lib import export
from lib.__main__ import main
from lib.core import paths
from lib.core.names import Refused
from lib.core.options import MIX_NORMS
from lib.export import opened, writer
from lib.model import backbone, supernet
from lib.model.parts import get_layers
from lib.model.surgery import apply_surgery
from lib.papers.efficientbert.search.net import Layer, Net

CUT = {"op": "cut", "heads": 3}
GHOST = {"op": "ghost", "kind": "dwconv", "positions": ["o", "ffn2"], "kernel": 3}
SURE = {"softmax": True, "relu": True, "mask": True}
KEPT = {
    "op": "keep",
    "heads": [[0, 5], [1, 2, 11]],
    "neurons": [[3, 4, 9], list(range(40))],
}
ROWS = {
    "op": "keep",
    "embedding": [[0, 7, 9]] * 2,
    "qk": [[1, 2], [40]],
    "v": [[3, 5, 6], [0, 47]],
}


def ghost(**more):
    return GHOST | more


MAPS = ghost(kind="conv2d", positions=["qk"], **SURE)
PLAIN = {
    "whole": ("bert", []),
    "whole MPNet": ("mpnet", []),
    "whole DistilBERT": ("distilbert", []),
}  # models without an operation
OWN = {
    "int8": ("bert", [{"op": "int8"}]),
    "fewer neurons": ("electra", [{"op": "keep", "neurons": [list(range(30))] * 2}]),
    "dropped layers": ("roberta", [{"op": "layer_dropping", "layers": [1]}]),
    "gates": ("bert", [{"op": "gates", "regions": ["heads", "ffn", "embedding"]}]),
    "gates of dimensions": ("roberta", [{"op": "gates", "regions": ["qkv"]}]),
    "inputs and dimensions": ("electra", [ROWS]),
    "cut": ("roberta", [CUT]),
    "searched": ("bert", [KEPT]),
    "searched, inputs too": ("bert", [KEPT | {"embedding": [[0, 7, 9], [40]]}]),
    "ghosts": ("bert", [CUT, ghost(**SURE)]),
    "ghosts of ELECTRA": ("electra", [CUT, ghost(**SURE)]),
    "ghosts of a searched model": (
        "bert",
        [KEPT, ghost(positions=["ffn1", "o"], relu=True)],
    ),
    "more ghosts": ("roberta", [CUT, ghost(features=2, **SURE)]),
    "ghosts of contexts": (
        "bert",
        [CUT | {"whole": ["o"]}, ghost(positions=["v"], **SURE)],
    ),
    "ghosts of maps": ("bert", [CUT | {"whole": ["v", "o"]}, MAPS]),
    "full convolutions": ("bert", [CUT, ghost(kind="conv1d_s", softmax=True)]),
    "convolutions of features": ("bert", [CUT, ghost(kind="conv1d_f", tokens=12)]),
    "square convolutions": ("bert", [CUT, ghost(kind="conv2d", **SURE)]),
    "cut MPNet": ("mpnet", [CUT]),
    "searched MPNet": ("mpnet", [KEPT, {"op": "gates", "regions": ["heads"]}]),
    "ghosts of MPNet's maps": ("mpnet", [CUT | {"whole": ["v", "o"]}, MAPS]),
    "cut DistilBERT": ("distilbert", [CUT]),
    "ghosts of DistilBERT's maps": ("distilbert", [CUT | {"whole": ["v", "o"]}, MAPS]),
    "mix of ELECTRA": ("electra", [{"op": "mix", "norm": "layers", "init": "zeros"}]),
} | {
    f"mix, {norm}": ("bert", [CUT, {"op": "mix", "norm": norm, "init": "zeros"}])
    for norm in MIX_NORMS
}
FORMULAS = (
    "elu(W2 (swish(W1 x + x) * x))",
    "max(W2 leaky_relu(W1 x), tanh(x)) + sigmoid(x) * x",
)
NETS = {"truncate": (24, "trigram"), "pad": (96, "plain")}


def saver(tiny, tokenizer, folder):
    """f(family, operations) -> a folder below `folder` of a model whose parameters are
    random."""

    def make(family, ops):
        model = tiny(family)
        for op in ops:
            apply_surgery(model, op)
        return keep(model)

    def keep(model):
        torch.manual_seed(1)
        with torch.no_grad():
            for value in model.parameters():
                if value.is_floating_point():
                    value.add_(0.1 * torch.randn_like(value))
        backbone.save(model, tokenizer, folder / "run")
        return folder / "run"

    make.keep = keep
    return make


@pytest.fixture
def saved(tiny, tokenizer, tmp_path):
    return saver(tiny, tokenizer, tmp_path)


def stacked(mismatch):
    width, embedding = NETS[mismatch]
    parts = Layer(FORMULAS[0], 2, 1), Layer(FORMULAS[1], 1, 1)
    like = transformers.BertConfig(vocab_size=60, max_position_embeddings=40)
    net = Net(48, width, 12, embedding, mismatch, parts)
    return supernet.build_efficientbert_model(
        net, transformers.BertForSequenceClassification, like
    )


@pytest.mark.parametrize("name", [*PLAIN, *OWN])
def test_a_folder_gives_what_the_run_s_model_gives(saved, tmp_path, name):
    told = writer.export_model(saved(*(PLAIN | OWN)[name]), tmp_path / "out")
    assert told["forms"]["this folder"] < 1e-5
    assert told["auto"] == "AutoModelForSequenceClassification"
    assert told["remote"] == (name in OWN)


@pytest.mark.parametrize("mismatch", NETS)
def test_a_network_of_any_formula_too_and_as_onnx(saved, tmp_path, mismatch):
    pytest.importorskip("onnxruntime")
    told = writer.export_model(
        saved.keep(stacked(mismatch)), tmp_path / "out", writes_onnx=True
    )
    assert told["remote"] and max(told["forms"].values()) < 1e-5


@pytest.mark.parametrize("family", ["bert", "mpnet", "distilbert"])
@pytest.mark.parametrize(
    "name",
    ["whole", "searched", "ghosts", "more ghosts", "ghosts of maps", "gates", "int8"],
)
def test_onnx_gives_the_same(saved, tmp_path, name, family):
    pytest.importorskip("onnxruntime")
    _, ops = (PLAIN | OWN)[name]
    told = writer.export_model(saved(family, ops), tmp_path / "out", writes_onnx=True)
    # An integer at an edge of rounding may be its neighbour.
    assert told["forms"]["ONNX"] < (0.05 if name == "int8" else 1e-5)


FIVE = {  # an export of each kind, and whether onnxruntime opens it too
    "ghost": (lambda make: make(*OWN["ghosts"]), True),
    "pruned": (lambda make: make("bert", [CUT]), True),
    "EfficientBERT": (lambda make: make.keep(stacked("truncate")), True),
    "BERMo": (lambda make: make(*OWN["mix, layers"]), False),
    "NAS": (lambda make: make(*OWN["searched, inputs too"]), True),
    "MPNet": (lambda make: make(*OWN["ghosts of MPNet's maps"]), True),
    "DistilBERT": (lambda make: make(*OWN["cut DistilBERT"]), True),
    "int8": (lambda make: make(*OWN["int8"]), True),
    "layer dropping": (
        lambda make: make("bert", [{"op": "layer_dropping", "layers": [1]}]),
        True,
    ),
}
ELSEWHERE = """
import json, sys
sys.modules["lib"] = None  # nothing can import this library
import numpy, transformers

def opened(folder, onnx):
    cls, more = transformers.AutoModelForSequenceClassification, {"trust_remote_code": True}
    model = cls.from_pretrained(folder, **more).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder, **more)
    batch = words(["word1 word2 word7", "word3"], return_tensors="pt", padding=True)
    found = {"torch": model(**batch).logits.detach().numpy()}
    if onnx:
        import onnxruntime
        names = {name: batch[name].numpy() for name in ("input_ids", "attention_mask")}
        session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
        names["token_type_ids"] = numpy.zeros_like(names["input_ids"])
        told = {each.name: names[each.name] for each in session.get_inputs()}
        found["onnx"] = session.run(None, told)[0]
    pipe = transformers.pipeline("text-classification", folder, **more)
    told = {name: value.tolist() for name, value in found.items()}
    return told | {"pipe": pipe(["word1 word2 word7", "word3"])}

print(json.dumps({folder: opened(folder, onnx) for folder, onnx in json.loads(sys.argv[1])}))
"""


@pytest.fixture(scope="module")
def elsewhere(tiny, tokenizer, tmp_path_factory):
    """{name: (the folder of a run's model, what its export gives in a process without
    lib)}."""
    root, sources = tmp_path_factory.mktemp("elsewhere"), {}
    there = bool(importlib.util.find_spec("onnxruntime"))
    for name, (make, onnx) in FIVE.items():
        sources[name] = make(saver(tiny, tokenizer, root / f"{name} run"))
        writer.export_model(
            sources[name], root / name, ("no", "yes"), writes_onnx=onnx and there
        )
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    more = {"HF_MODULES_CACHE": str(root / "modules"), "HF_HUB_OFFLINE": "1"}
    asked = json.dumps([(name, onnx and there) for name, (_, onnx) in FIVE.items()])
    command = [sys.executable, "-c", ELSEWHERE, asked]
    made = subprocess.run(
        command, capture_output=True, text=True, cwd=root, env=bare | more
    )
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout.splitlines()[-1])
    return {name: (sources[name], told[name]) for name in FIVE}


@pytest.mark.parametrize("name", FIVE)
def test_a_folder_opens_where_this_library_is_absent(name, elsewhere):
    source, told = elsewhere[name]
    model, tokenizer = backbone.load(source)
    texts = ["word1 word2 word7", "word3"]  # as one batch, and each by itself
    with torch.no_grad():
        expected, *alone = (
            model(**tokenizer(each, return_tensors="pt", padding=True)).logits
            for each in (texts, *texts)
        )
    for form in told.keys() - {"pipe"}:
        most = np.abs(np.array(told[form]) - expected.numpy()).max()
        assert most < (0.05 if (name, form) == ("int8", "onnx") else 1e-5), form
    for each, logits in zip(told["pipe"], alone, strict=True):
        assert each["label"] == ("no", "yes")[logits.argmax()]
        assert each["score"] == pytest.approx(float(logits.softmax(1).max()), abs=1e-5)


def test_a_folder_carries_the_very_sources_and_imports_nothing_else(saved, tmp_path):
    writer.export_model(saved(*OWN["ghosts"]), tmp_path / "out")
    carried = {path.name: path.read_text() for path in (tmp_path / "out").glob("*.py")}
    here = paths.ROOT / "lib" / "model"
    assert all(text == (here / name).read_text() for name, text in carried.items())
    assert {"modeling.py", "surgery.py", "ghost.py"} <= carried.keys()
    assert not any(
        "import lib" in text or "from lib" in text for text in carried.values()
    )


def test_a_method_of_a_file_of_its_own_is_carried_too(saved, tmp_path):
    writer.export_model(saved(*OWN["dropped layers"]), tmp_path / "out")
    file = paths.ROOT / "lib" / "methods" / "layer_dropping.py"
    assert (tmp_path / "out" / file.name).read_text() == file.read_text()
    assert (
        "from .layer_dropping import prune"
        in (tmp_path / "out/modeling.py").read_text()
    )


@pytest.mark.parametrize(
    "labels, kind", [(("bad", "good"), "single_label"), ((), "regression")]
)
def test_classes_have_their_names(labels, kind, saved, tmp_path):
    writer.export_model(saved("bert", [CUT]), tmp_path / "out", labels)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["problem_type"].startswith(kind)
    assert not labels or config["id2label"] == {"0": "bad", "1": "good"}


def test_the_configuration_has_no_path_of_the_machine(saved, tmp_path):
    writer.export_model(saved(*OWN["cut"]), tmp_path / "out")
    assert str(tmp_path) not in (tmp_path / "out" / "config.json").read_text()


@pytest.mark.parametrize(
    "family, ops, message",
    [
        (
            "roberta",
            [CUT],
            "no ONNX of a RobertaForSequenceClassification .*: leave out --onnx",
        ),
        ("bert", OWN["mix, none"][1], r"changes \[cut, mix\]"),
        ("bert", OWN["convolutions of features"][1], r"changes \[cut, ghost\]"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(
    saved, tmp_path, family, ops, message
):
    folder = saved(family, ops)
    with pytest.raises(ValueError, match=message):
        writer.export_model(folder, tmp_path / "out", writes_onnx=True)
    assert not (tmp_path / "out").exists()


def test_packages_that_are_absent_are_told_before_any_work(
    saved, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(export, "PACKAGES", ("json", "no_such_package"))
    told = "ONNX needs the packages no_such_package; fix: python -m pip install -r "
    folder = saved("bert", [])
    with pytest.raises(Refused, match=told):
        writer.export_model(folder, tmp_path / "out", writes_onnx=True)
    monkeypatch.setattr(
        opened, "find_run_by_name", None
    )  # No run is looked for or made.
    assert main(["export", "finetune-0", "--keep", "--onnx"]) == 2
    line = capsys.readouterr().err.splitlines()[0]
    assert told in line and line.endswith("requirements-export.txt")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["export", "show"])
def test_a_run_that_is_not_there_is_told_before_torch_is_imported(command, tmp_path):
    code = "import sys; from lib.__main__ import main; "
    code += f"assert main(['{command}', 'nothing']) == 2 and 'torch' not in sys.modules"
    env = os.environ | {"RUNS_ROOT": str(tmp_path), "RECORDS_ROOT": str(tmp_path)}
    words = [sys.executable, "-c", code]
    how = {"cwd": paths.ROOT, "env": env, "capture_output": True, "text": True}
    done = subprocess.run(words, **how)
    assert done.returncode == 0 and "is part of 0 runs" in done.stderr, done.stderr


def test_a_folder_with_something_in_it_is_left_alone(saved, tmp_path):
    put(tmp_path, "out/mine.txt", "mine")
    with pytest.raises(ValueError, match="is not empty: name a new folder with --to"):
        writer.export_model(saved("bert", []), tmp_path / "out")


def test_a_form_that_differs_is_an_error(saved, tmp_path, monkeypatch):
    def wrong(model, labels):
        with torch.no_grad():
            get_layers(model)[0].output.dense.weight.mul_(1.1)
        return model

    monkeypatch.setattr(writer.backbone, "set_class_names_and_problem_type", wrong)
    with pytest.raises(
        Refused, match="this folder in .* differs from the run's model by"
    ):
        writer.export_model(saved("bert", []), tmp_path / "out")
