"""Cutting, keeping, saving and opening, for BERT, RoBERTa and ELECTRA."""

import json
import math

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from lib.core.names import Refused
from lib.core.options import Ghost
from lib.core.spec import to_plain_json
from lib.model import backbone
from lib.model.cut import count_prunable_units
from lib.model.parts import count_parameters, get_layers, get_recorded_model_changes
from lib.model.surgery import apply_surgery
from lib.stats.cost import SHAPES, parameters

GHOST = Ghost("dwconv", ("o", "ffn2"), 3, softmax=True, relu=True, mask=True)
CUT, ADD = {"op": "cut", "heads": 3}, {"op": "ghost"} | to_plain_json(GHOST)
HEADS, NEURONS = [[2, 7, 11], [4]], [[0, 5, 6, 95], [33]]
KEEP = {"op": "keep", "heads": HEADS, "neurons": NEURONS}


def random_scores(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    heads, neurons = (
        count_prunable_units(get_layers(model)[0])[part]
        for part in ("heads", "neurons")
    )
    return {
        "head_scores": torch.rand(2, heads, generator=generator),
        "neuron_scores": torch.rand(2, neurons, generator=generator),
    }


def operated(model, *ops):
    for op in ops:
        more = {"cut": random_scores(model), "ghost": {"seed": 3}}.get(op["op"], {})
        apply_surgery(model, op, **more)
    return model


def zero_masked(model, heads, neurons):
    """The whole model with the context of the other heads, and the other neurons, set
    to zero."""

    def only(index):
        def hook(_, inputs):
            mask = torch.zeros(inputs[0].shape[-1]).index_fill(
                0, torch.tensor(index), 1.0
            )
            return (inputs[0] * mask.to(inputs[0]),)

        return hook

    for layer, kept_heads, kept_neurons in zip(
        get_layers(model), heads, neurons, strict=True
    ):
        width = layer.attention.self.attention_head_size
        columns = [head * width + i for head in kept_heads for i in range(width)]
        layer.attention.output.dense.register_forward_pre_hook(only(columns))
        layer.output.dense.register_forward_pre_hook(only(kept_neurons))
    return model


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@pytest.mark.parametrize("total, heads", [(12, 12), (12, 3), (12, 1), (4, 1)])
def test_a_cut_model_is_the_whole_one_with_zeros(
    family, total, heads, tiny, sentences, logits
):
    whole, model = (tiny(family, total).double() for _ in range(2))
    batch = sentences(family)
    scores = random_scores(model)
    kept = apply_surgery(model, {"op": "cut", "heads": heads}, **scores)
    for name, row, number in (
        ("heads", scores["head_scores"], heads),
        ("neurons", scores["neuron_scores"], 96 * heads // total),
    ):
        assert kept[name] == [
            layer.sort(descending=True, stable=True).indices[:number].tolist()
            for layer in row
        ]
    before = logits(whole, batch)
    close(logits(model, batch), logits(zero_masked(whole, **kept), batch))
    assert (heads == total) == torch.allclose(logits(model, batch), before)


@pytest.mark.parametrize(
    "heads, neurons",
    [
        (HEADS, NEURONS),
        ([[0], [11]], [[95], [0]]),
        ([[5, 1], list(range(12))], NEURONS),
    ],
)
def test_a_model_that_keeps_parts_is_the_whole_one_with_zeros(
    family, heads, neurons, tiny, sentences, logits
):
    model = tiny(family).double()
    whole = tiny(family).double()
    batch = sentences(family)
    report = apply_surgery(model, {"op": "keep", "heads": heads, "neurons": neurons})
    assert report == {
        "heads": [len(h) for h in heads],
        "neurons": [len(n) for n in neurons],
    }
    before = logits(whole, batch)
    close(logits(model, batch), logits(zero_masked(whole, heads, neurons), batch))
    assert not torch.allclose(logits(model, batch), before, atol=1e-3)


def test_keep_counts_within_what_an_earlier_cut_left(tiny, sentences, logits):
    model = tiny("bert").double()
    kept = apply_surgery(model, CUT, **random_scores(model))
    apply_surgery(
        model, {"op": "keep", "heads": [[1], [0, 2]], "neurons": [[3, 20], [7]]}
    )
    heads = [[kept["heads"][0][1]], [kept["heads"][1][i] for i in (0, 2)]]
    neurons = [[kept["neurons"][0][i] for i in (3, 20)], [kept["neurons"][1][7]]]
    expected = logits(zero_masked(tiny("bert").double(), heads, neurons), sentences())
    close(logits(model, sentences()), expected)


def test_an_argument_that_an_operation_lacks_is_refused_with_those_it_takes(tiny):
    model = tiny("bert")
    with pytest.raises(Refused, match="cut has no 'head'; it takes heads, "):
        apply_surgery(model, {"op": "cut", "head": 2})
    with pytest.raises(Refused, match="cut has no 'head_score'; it takes heads, "):
        apply_surgery(model, {"op": "cut", "heads": 2}, head_score=None)
    for name, lacking in {"cut": "heads", "mix": "norm", "ghost": "kind"}.items():
        with pytest.raises(Refused, match=f"operation {name}: .*missing .*'{lacking}'"):
            apply_surgery(model, {"op": name})
    with pytest.raises(Refused, match="operation cut: missing .*'heads'"):
        apply_surgery(model, {"op": "cut"}, heads=2)  # It would not be saved.
    with pytest.raises(Refused, match="the operation is 'cut'; write {'op': name"):
        apply_surgery(model, "cut")


def test_scores_that_are_not_finite_rank_nothing(tiny):
    scores = torch.tensor([[1.0, math.nan] * 6] * 2)
    with pytest.raises(Refused, match="head scores of layer 0 are not finite"):
        apply_surgery(tiny("bert"), {"op": "cut", "heads": 2}, head_scores=scores)


def test_cut_without_scores_keeps_the_first(tiny):
    kept = apply_surgery(tiny("bert"), {"op": "cut", "heads": 2})
    assert kept == {"heads": [[0, 1]] * 2, "neurons": [list(range(16))] * 2}


@pytest.mark.parametrize("heads", [12, 9, 1])
def test_parameters_are_those_of_the_formula(family, heads, tiny, shape):
    model = operated(tiny(family), CUT | {"heads": heads})
    assert count_parameters(model) == {"parameters": parameters(shape(family), heads)}


@pytest.mark.parametrize(
    "op, more, message",
    [
        ({"op": "cut", "heads": 0}, {}, "cut to 0 heads: keep 1 to 12"),
        ({"op": "cut", "heads": 13}, {}, "cut to 13 heads: keep 1 to 12"),
        ({"op": "cut", "heads": 2.5}, {}, "cut to 2.5 heads"),
        (
            CUT,
            {"head_scores": torch.rand(2, 4)},
            r"head scores.*\[2, 4\].*2 layers of 12",
        ),
        (
            CUT,
            {"neuron_scores": torch.rand(2, 95)},
            r"neuron scores.*\[2, 95\].*2 layers of 96",
        ),
        (
            CUT,
            {"head_scores": torch.rand(1, 12)},
            r"head scores.*\[1, 12\].*2 layers of 12",
        ),
        ({"op": "cutt", "heads": 3}, {}, "unknown surgery: 'cutt'; did you mean 'cut'"),
        ({"heads": 3}, {}, "unknown surgery: None"),
        ({"op": "layer_droping"}, {}, "did you mean 'layer_dropping'"),
        ({"op": "a.b"}, {}, "unknown surgery: 'a.b' .allowed: cut, keep, gates"),
        ({"op": "../cut"}, {}, "unknown surgery: '../cut'; did you mean 'cut'"),
        (ADD | {"kind": "dwconf"}, {}, "Ghost.kind is 'dwconf'; allowed: 'dwconv'"),
        (
            KEEP | {"heads": [[1], []]},
            {},
            r"keep heads of layer 1: found \[\]; .* 0 to 11, each",
        ),
        (
            KEEP | {"heads": [[1], [12]]},
            {},
            r"keep heads of layer 1: found \[12\]; .* 0 to 11",
        ),
        (KEEP | {"heads": [[-1], [2]]}, {}, r"keep heads of layer 0: found \[-1\];"),
        (
            KEEP | {"neurons": [[3, 4, 3], [2]]},
            {},
            r"keep neurons of layer 0: .* each once",
        ),
        (KEEP | {"heads": [[1]]}, {}, "zip.. argument 2 is shorter"),
        (
            KEEP | {"head": HEADS},
            {},
            "unknown part to keep: 'head'; did you mean 'heads'",
        ),
        (
            {"op": "keep", "qk": [[1], [48]]},
            {},
            r"keep qk of layer 1: found \[48\]; .* 0 to 47",
        ),
        ({"op": "keep", "embedding": [[1]]}, {}, "zip.. argument 2 is shorter"),
        (
            {"op": "keep", "heads": [[0], [0]], "qk": [[5], [5]]},
            {},
            "keep heads with qk: give heads alone, or dimensions of all heads",
        ),
        (
            KEEP | {"qk": [[1], [1]], "v": [[1], [1]]},
            {},
            "keep heads with qk and v: give heads alone",
        ),
    ],
)
def test_refusals_leave_the_model_alone(op, more, message, tiny, sentences, logits):
    model = tiny("bert")
    with pytest.raises(ValueError, match=message) as caught:
        apply_surgery(model, op, **more)
    assert "\n" not in str(caught.value) and get_recorded_model_changes(model) == []
    assert torch.equal(logits(model, sentences()), logits(tiny("bert"), sentences()))


GATES, STACK = {"op": "gates", "regions": ["ffn"]}, {"op": "stack", "net": {}}
NARROW = {"op": "keep", "v": [[1], [2]]}


@pytest.mark.parametrize(
    "first, second, message",
    [
        (ADD, CUT, "cut after ghost"),
        (ADD, KEEP, "keep after ghost"),
        (ADD, GATES, "gates after ghost"),
        (ADD, ADD, "position 'o' has a ghost already"),
        (ADD, STACK, "stack after ghost"),
        (GATES, GATES, "gates after gates"),
        (GATES, CUT, "cut after gates"),
        (NARROW, CUT, "cut after keep: leave"),
        (NARROW, GATES, "gates after keep: leave"),
        (CUT | {"whole": ["o"]}, CUT, "cut after cut: leave"),
        (CUT | {"whole": ["o"]}, KEEP, "keep after cut: leave"),
    ],
)
def test_what_cannot_come_after_another_is_refused(first, second, message, tiny):
    model = operated(tiny("bert"), first)
    shapes = {k: v.shape for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        apply_surgery(model, second)
    assert get_recorded_model_changes(model) == [first]
    assert shapes == {k: v.shape for k, v in model.state_dict().items()}


@pytest.mark.parametrize(
    "ops", [[], [CUT, ADD], [KEEP]], ids=["whole", "cut+ghost", "keep"]
)
def test_saved_and_loaded_gives_the_same_logits(
    family, ops, tiny, sentences, logits, tokenizer, tmp_path
):
    model, batch = operated(tiny(family, labels=3), *ops), sentences(family)
    backbone.save(model, tokenizer, tmp_path / "model")
    again, words = backbone.load(tmp_path / "model")
    assert isinstance(again, type(model)) and not again.training
    assert get_recorded_model_changes(again) == get_recorded_model_changes(model) == ops
    assert torch.equal(logits(again, batch), logits(model, batch))
    assert words("word3 word11")["input_ids"] == tokenizer("word3 word11")["input_ids"]
    backbone.save(again, words, tmp_path / "again")
    assert torch.equal(
        logits(backbone.load(tmp_path / "again")[0], batch), logits(model, batch)
    )
    for cls in (
        transformers.AutoModel,
        transformers.AutoModelForSequenceClassification,
    ):
        if ops:  # a plain load refuses such a folder
            with pytest.raises((OSError, ValueError), match="operated-"):
                cls.from_pretrained(tmp_path / "model", local_files_only=True)
        else:
            cls.from_pretrained(tmp_path / "model", local_files_only=True)


CLASSES, SPANS = "SequenceClassification", "QuestionAnswering"


@pytest.mark.parametrize("ops", [[], [CUT, ADD]], ids=["whole", "cut+ghost"])
def test_a_fitting_head_stays_and_another_is_refused(
    ops, tiny, sentences, logits, tokenizer, tmp_path
):
    model, folder = operated(tiny("bert", labels=3), *ops), tmp_path / "model"
    backbone.save(model, tokenizer, folder)
    again, _ = backbone.load_with_task_head(folder, CLASSES, 3, 0.1, seed=5)
    assert torch.equal(logits(again.eval(), sentences()), logits(model, sentences()))
    assert {m.p for m in again.modules() if isinstance(m, torch.nn.Dropout)} == {0.1}
    for head, said in (
        (CLASSES, "model has 3 outputs; the task needs 2"),
        *([(SPANS, "the task needs a head for QuestionAnswering")] if ops else []),
    ):
        with pytest.raises(ValueError, match=said):
            backbone.load_with_task_head(folder, head, 2, 0.1, seed=5)


@pytest.mark.parametrize("head", [CLASSES, SPANS])
def test_a_new_head_is_drawn_from_its_seed(family, head, tiny, tokenizer, tmp_path):
    backbone.save(tiny(family, masked_lm=True), tokenizer, tmp_path / "model")
    same, twin, other = (
        backbone.load_with_task_head(tmp_path / "model", head, 2, 0.0, seed)[
            0
        ].state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(same[k], twin[k]) for k in same)
    drawn = [k for k in same if not torch.equal(same[k], other[k])]
    assert drawn and all(
        k.startswith(("classifier", "pre_classifier", "qa_outputs")) or "pooler" in k
        for k in drawn
    )


def test_weights_that_disagree_with_their_surgery_are_named(tiny, tokenizer, tmp_path):
    folder = tmp_path / "model"
    backbone.save(operated(tiny("bert"), CUT, ADD), tokenizer, folder)
    body = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")

    def refusal(ops, tensors):
        (folder / "config.json").write_text(json.dumps(body | {"surgery": ops}))
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(ValueError) as caught:
            backbone.load(folder)
        return str(caught.value)

    first = "bert.encoder.layer.0.attention.output.dense"
    four = refusal([{"op": "cut", "heads": 4}, ADD], weights)
    assert (
        f"{first}.dense.weight has [48, 12], expected [48, 16]" in four
        and "\n" not in four
    )
    assert f"{folder}: the weights do not fit" in four
    kernel = f"{first}.convolution.weight"
    assert f"{kernel} is not expected" in refusal([CUT], weights)
    assert f"{kernel} has [48, 3], expected [48, 5]" in refusal(
        [CUT, ADD | {"kernel": 5}], weights
    )
    missing = {k: v for k, v in weights.items() if k != "classifier.bias"}
    assert "classifier.bias is missing" in refusal([CUT, ADD], missing)


HARM = {  # what is done to the tensors, or to the configuration, and what is said of it
    "a missing tensor": (
        lambda w: {k: v for k, v in w.items() if "0.output.dense.weight" not in k},
        {},
        "bert.encoder.layer.0.output.dense.weight is missing",
    ),
    "another prefix": (
        lambda w: {f"model.{k}": v for k, v in w.items()},
        {},
        "is missing; .*; 7[0-9] more",
    ),
    "more layers configured": (
        lambda w: w,
        {"num_hidden_layers": 4},
        r"layer\.2.* is missing",
    ),
    "fewer layers configured": (
        lambda w: w,
        {"num_hidden_layers": 1},
        r"layer\.1\.attention.* is not expected",
    ),
    "other sizes": (
        lambda w: w,
        {"intermediate_size": 90},
        r"has \[96\], expected \[90\]",
    ),
    "int8": (
        lambda w: {k: v.to(torch.int8) if v.dim() > 1 else v for k, v in w.items()},
        {},
        "weight is I8, expected a floating-point type",
    ),
    "int8 without the prefix": (
        lambda w: {k.removeprefix("bert."): v.to(torch.int8) for k, v in w.items()},
        {},
        "embeddings.LayerNorm.bias is I8, expected a floating-point type",
    ),
    "a mask": (
        lambda w: {
            k: v > 0 if k.endswith("0.output.dense.bias") else v for k, v in w.items()
        },
        {},
        "layer.0.output.dense.bias is BOOL, expected a floating-point type",
    ),
    "an unknown activation": (
        lambda w: w,
        {"hidden_act": "nope"},
        "cannot be read .*nope",
    ),
    "a text for a number": (
        lambda w: w,
        {"num_hidden_layers": "2"},
        "cannot be read .*got str",
    ),
    "no tensors at all": (None, {}, "the weights cannot be read"),
}


@pytest.mark.parametrize("head", ["load", CLASSES, SPANS])
@pytest.mark.parametrize("name", HARM)
def test_a_model_whose_weights_do_not_fit_is_refused(
    name, head, tiny, tokenizer, tmp_path
):
    """Whether its head is the wanted one, or is to be drawn."""
    folder, (change, config, said) = tmp_path / "model", HARM[name]
    backbone.save(tiny("bert"), tokenizer, folder)
    body = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(body | config))
    weights = folder / "model.safetensors"
    if change:
        save_file(change(load_file(weights)), weights, {"format": "pt"})
    else:
        weights.write_bytes(b"weights")
    with pytest.raises(ValueError, match=said) as caught:
        if head == "load":
            backbone.load(folder)
        else:
            backbone.load_with_task_head(folder, head, 2, 0.0, 0)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


@pytest.mark.parametrize(
    "body", ["", "[]", '{"version": "1.0"'], ids=["empty", "list", "cut"]
)
def test_a_tokenizer_that_is_none_is_refused(body, tiny, tokenizer, tmp_path):
    backbone.save(tiny("bert"), tokenizer, tmp_path)
    (tmp_path / "tokenizer.json").write_text(body)
    with pytest.raises(ValueError, match="the tokenizer cannot be read") as caught:
        backbone.load(tmp_path)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "ops", [[], [CUT, ADD], [KEEP]], ids=["whole", "cut+ghost", "keep"]
)
def test_loading_draws_no_random_number(family, ops, tiny, tokenizer, tmp_path):
    backbone.save(operated(tiny(family), *ops), tokenizer, tmp_path / "model")
    before = torch.get_rng_state()
    backbone.load(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json"):
        backbone.load_with_task_head(tmp_path, CLASSES, 2, 0.0, 0)


def test_nothing_is_saved_where_nobody_needs_it(tiny, tokenizer, tmp_path):
    before = set(tmp_path.iterdir())
    backbone.save(tiny("bert"), tokenizer, None)
    assert set(tmp_path.iterdir()) == before


ROBERTA = {"vocab_size": 50265, "type_vocab_size": 1, "max_position_embeddings": 514}


@pytest.mark.parametrize(
    "name, prefix, options",
    [
        ("bert-base", "Bert", {}),
        ("roberta-base", "Roberta", ROBERTA),
        ("electra-small", "Electra", {}),
    ],
)
@pytest.mark.parametrize("heads", [None, 3])
def test_true_size_on_the_meta_device(name, prefix, options, heads):
    ops = ([{"op": "cut", "heads": heads}] if heads else []) + [ADD]
    config = getattr(transformers, f"{prefix}Config")(**options)
    with torch.device("meta"):
        cls = getattr(transformers, f"{prefix}ForSequenceClassification")
        model = backbone.build_random_model(cls, config, ops)
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert count_parameters(model)["parameters"] == parameters(
        SHAPES[name], heads, GHOST
    )


@pytest.mark.parametrize("op", [CUT, KEEP])
def test_what_stays_can_be_trained(op, tiny, sentences):
    model = operated(tiny("bert"), op)
    model(**sentences()).logits.square().sum().backward()
    found = [
        p
        for n, p in model.named_parameters()
        if ".layer." in n and n.endswith("weight")
    ]
    assert len(found) == 16 and all(p.grad.abs().sum() > 0 for p in found)


def test_opening_and_saving_leave_the_logging_of_transformers(
    tiny, tokenizer, tmp_path, capfd
):
    log = transformers.logging
    level, has_bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_info()
    log.enable_progress_bar()
    try:
        backbone.save(tiny(), tokenizer, tmp_path / "model")
        backbone.load_with_task_head(tmp_path / "model", SPANS, 2, 0.0, seed=1)
        assert log.get_verbosity() == log.INFO and log.is_progress_bar_enabled()
    finally:
        log.set_verbosity(level)
        if not has_bars:
            log.disable_progress_bar()
    told = capfd.readouterr()
    assert told.out == told.err == ""
