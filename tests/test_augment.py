"""Augmentation: what may be replaced, by what, and that neither batches nor chunks
change a row."""

import json
from dataclasses import replace
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from lib import data as sources
from lib.core.options import Augment, Numerics
from lib.core.store import TrainingOutput
from lib.data import Split
from lib.model import backbone
from lib.train import augment as words
from lib.train.augment import STOP, iterate_pairs_of_text_variants, split_into_words
from lib.train.batches import encode_split
from lib.train.steps import augment as step

WORDS = (
    "the cat dog bird sees chases likes red blue green small big house tree and not is on it don"
).split()
PIECES = [
    *"[PAD] [UNK] [CLS] [SEP] [MASK]".split(),
    *WORDS,
    *"un ##red ##ly ' . , 2 t".split(),
]
NUMERICS = Numerics("float32", 1)
OPTIONS = Augment(tries=12, p=0.4, candidates=6, neighbours="embeddings")
TEXTS = [
    "The cat sees the small dog.",
    "the bird likes it",
    "A red bird is on the big, blue house",
    "Don't chase 2 birds",
    "unred dog sees unredly tree",
    "the cat sees the small dog .",
    "it is not",
    "big tree",
]
SPLIT = Split(TEXTS, None, np.arange(len(TEXTS)), np.arange(len(TEXTS)) * 10 + 3)
PAIRS = Split(
    TEXTS,
    TEXTS[::-1],
    np.linspace(0, 5, len(TEXTS), dtype=np.float32),
    np.arange(len(TEXTS)),
)


def saved(folder, cls):
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    tokenizer = transformers.BertTokenizerFast(
        str(folder / "vocab.txt"), do_lower_case=True
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_attention_heads": 2, "intermediate_size": 32}
    more = {
        "vocab_size": len(PIECES),
        "num_hidden_layers": 1,
        "max_position_embeddings": 48,
    }
    config = transformers.BertConfig(**sizes | more, initializer_range=0.5)
    backbone.save(backbone.build_random_model(cls, config), tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("lm") / "model", transformers.BertForMaskedLM)


@pytest.fixture(scope="module")
def source(folder):
    return words.WordReplacer(folder)


@pytest.fixture(scope="module")
def headless(tmp_path_factory):
    return words.WordReplacer(
        saved(tmp_path_factory.mktemp("plain") / "model", transformers.BertModel)
    )


def rows_of(split, source, options=OPTIONS, seed=0):
    texts = [*split.a, *(split.b or [])]
    with TemporaryDirectory() as folder:
        run = TrainingOutput(folder, seed)
        found, _ = step.collect_replacement_candidates(
            run, texts, source, options.candidates, NUMERICS
        )
    return list(step.iterate_row_variants(split, source, found, options, seed))


def single(text):
    return Split([text], None, np.zeros(1), np.zeros(1, int))


def look(source, text, count=6):
    """{eligible word: its candidates} of one sentence."""
    ids = words.find_replacement_candidates([text], source, count, NUMERICS, {})["ids"]
    cut_words, places = split_into_words(source, text)
    found = [[source.names[i] for i in row if i >= 0] for row in ids]
    return dict(zip([cut_words[i] for i in places], found, strict=True))


def test_original_first_and_at_most_n_other_sentences(source):
    rows = rows_of(SPLIT, source)
    for text, (made,) in zip(TEXTS, rows, strict=True):
        assert (
            made[0] == text
            and " ".join(split_into_words(source, text)[0]) not in made[1:]
        )
        assert len(set(made)) == len(made) <= 1 + OPTIONS.tries
    assert any(len(made) > 5 for (made,) in rows)


def test_stop_words_and_other_signs_stay(source):
    replaced = set()
    for text, (made,) in zip(TEXTS, rows_of(SPLIT, source), strict=True):
        before, _ = split_into_words(source, text)
        for variant in made[1:]:
            after = variant.split(" ")
            assert len(after) == len(before)
            replaced |= {
                old for old, new in zip(before, after, strict=True) if old != new
            }
    assert replaced
    assert all(
        word.isalpha() and word.isascii() and word not in STOP for word in replaced
    )


def test_a_word_is_replaced_with_chance_p_by_each_candidate_alike(source):
    wanted = ["tree", "dog", "bird"]
    ids = np.array([[PIECES.index(w) for w in wanted] + [-1]], dtype=np.int32)
    once, made = replace(OPTIONS, tries=1), []
    for seed in range(3000):
        made += words.sample_text_variants(
            "cat", source, ids, once, np.random.default_rng(seed)
        )[1:]
    assert len(made) / 3000 == pytest.approx(OPTIONS.p, abs=0.03)
    assert {w: made.count(w) / len(made) for w in wanted} == pytest.approx(
        dict.fromkeys(wanted, 1 / 3), abs=0.05
    )
    assert set(made) == set(wanted)


def test_pieces_and_specials_are_never_candidates(source):
    wanted = sorted(piece for piece in PIECES if not piece.startswith(("##", "[")))
    for word, found in look(source, TEXTS[0], len(PIECES)).items():
        assert sorted(found) == wanted and word in found


def test_candidates_are_the_likeliest_at_the_mask(source):
    """Against one plain call of the model."""
    text = "[CLS] the [MASK] sees the dog [SEP] the cat sees the dog [SEP]"
    ids = torch.tensor([source.tokenizer.convert_tokens_to_ids(text.split())])
    segments = torch.tensor([[0] * 7 + [1] * 6])
    with torch.inference_mode():
        logits = source.model(input_ids=ids, token_type_ids=segments).logits[0, 2]
    wanted = [PIECES[i] for i in logits.topk(6).indices if source.usable[i]]
    assert sorted(look(source, "the cat sees the dog")["cat"]) == sorted(wanted)


@pytest.mark.parametrize("tokens", [1, 40, 100000])
def test_batch_size_and_order_change_nothing(source, tokens):
    whole = words.find_replacement_candidates(TEXTS, source, 6, NUMERICS, {})
    other = words.find_replacement_candidates(
        TEXTS[::-1], source, 6, NUMERICS, {}, tokens
    )
    cuts = np.split(other["ids"], np.cumsum(other["sizes"])[:-1])
    assert np.array_equal(whole["ids"], np.concatenate(cuts[::-1]))


def test_draws_are_of_seed_and_row_number(source):
    whole = rows_of(SPLIT, source)
    assert whole == rows_of(SPLIT, source)
    assert whole != rows_of(SPLIT, source, seed=1)
    some = [4, 0, 2]
    assert rows_of(SPLIT.select_rows(some), source) == [whole[i] for i in some]


def test_chunks_change_nothing(source, tmp_path, monkeypatch):
    whole, report = step.collect_replacement_candidates(
        TrainingOutput(tmp_path, 0), TEXTS, source, 6, NUMERICS
    )
    monkeypatch.setattr(step, "CHUNK", 3)
    again, same = step.collect_replacement_candidates(
        TrainingOutput(tmp_path, 0), TEXTS, source, 6, NUMERICS
    )
    assert again.keys() == whole.keys() and report == same
    assert all(np.array_equal(again[text], whole[text]) for text in whole)


def test_neighbours_of_pieces_leave_the_word_out(headless):
    assert headless.head is None
    for word, found in look(headless, "the cat sees a red house").items():
        assert len(found) == 6 and word not in found
        assert all(w.isalpha() for w in found)


def test_word_of_several_pieces_gets_the_nearest_to_the_mean_of_its_pieces(source):
    weight = source.model.get_input_embeddings().weight.detach().numpy()
    mean = weight[[PIECES.index("un"), PIECES.index("##red")]].mean(0)
    cosine = {
        w: weight[i] @ mean / np.linalg.norm(weight[i]) for i, w in enumerate(PIECES)
    }
    cosine = {word: value for word, value in cosine.items() if word.isalpha()}
    assert set(look(source, "unred dog")["unred"]) == set(
        sorted(cosine, key=cosine.get)[-6:]
    )


def test_unknown_word_stays(source, headless):
    for each in (source, headless):
        assert look(each, "the cat sees zzz")["zzz"] == []
        assert rows_of(single("zzz is"), each) == [[["zzz is"]]]


def test_word_behind_the_last_position_stays(source):
    text = "cat " * 60 + "dog"
    ids = words.find_replacement_candidates([text], source, 6, NUMERICS, {})["ids"]
    assert (ids[:47] >= 0).any(1).all() and (ids[47:] == -1).all()


def test_text_of_special_tokens_is_text(source):
    assert (
        split_into_words(source, "the [MASK] cat [SEP]")[0]
        == "the [ mask ] cat [ sep ]".split()
    )


@pytest.mark.parametrize("text", ["", "   ", "...", "it is not"])
def test_nothing_to_replace(source, text):
    assert rows_of(single(text), source) == [[[text]]]


def test_each_side_varies_beside_the_original_of_the_other():
    assert list(iterate_pairs_of_text_variants([["one", "two"]])) == [
        ("one", None),
        ("two", None),
    ]
    assert list(iterate_pairs_of_text_variants([["a", "b"], ["x", "y"]])) == [
        ("a", "x"),
        ("b", "x"),
        ("a", "y"),
    ]


class RunWriter(SimpleNamespace):
    """What a step uses of lib.core.store.RunWriter."""

    def report_progress(self, fraction):
        self.fractions.append(fraction)

    def save_arrays(self, name, **arrays):
        self.saved[name] = arrays

    def read_arrays(self, name):
        return self.saved[name]


def test_the_step_and_reading_it(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "load", lambda data, seed=None: {"train": PAIRS})
    monkeypatch.setenv("RUNS_ROOT", str(tmp_path))
    options = {"tries": 5, "p": 0.4, "candidates": 6, "neighbours": "embeddings"}
    run = RunWriter(
        folder=tmp_path,
        model_folder=tmp_path / "model",
        resume=tmp_path / "resume",
        seed=0,
        fractions=[],
        saved={},
        inputs={"language_model": SimpleNamespace(model_folder=folder)},
        spec={"args": {"augment": options}},
    )
    result = step.augment(
        run, {"source": "toy", "task": "RTE"}, options, vars(NUMERICS)
    )
    tokenizer = words.WordReplacer(folder).tokenizer
    run.name = "augment-made/0"
    there = words.encode_augmented_rows(run, tokenizer, 12)
    assert result["rows_in"] == len(PAIRS)
    assert result["rows_out"] == len(there) == run.saved["rows"]["counts"].sum()
    assert result["masked_lm"] and 0 < result["one_piece"] < 1
    assert run.fractions == sorted(run.fractions) and run.fractions[-1] == 1.0
    sides = rows_of(PAIRS, words.WordReplacer(folder), Augment(**options))
    made = [
        (*pair, y)
        for each, y in zip(sides, PAIRS.y, strict=True)
        for pair in iterate_pairs_of_text_variants(each)
    ]
    a, b, labels = zip(*made, strict=True)
    wanted = encode_split(
        tokenizer, Split(list(a), list(b), np.array(labels), None), 12
    )
    assert torch.equal(there.labels, wanted.labels)
    assert there.columns.keys() == wanted.columns.keys()
    for name, column in wanted.columns.items():
        assert all(map(np.array_equal, there.columns[name], column)), name
    json.dumps(result)


@pytest.mark.parametrize(
    "cls", [transformers.BertForMaskedLM, transformers.BertForPreTraining]
)
def test_a_head_whose_weights_are_not_there_is_refused(cls, tmp_path):
    there = saved(tmp_path / "model", cls)
    assert words.WordReplacer(there).head is not None
    weights = load_file(there / "model.safetensors")
    kept = {
        name: value for name, value in weights.items() if not name.startswith("cls.")
    }
    save_file(kept, there / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="cls.predictions.bias is missing"):
        words.WordReplacer(there)


@pytest.mark.parametrize(
    "wrong",
    [{"p": 0.0}, {"p": 1.5}, {"tries": 0}, {"candidates": 0}, {"neighbours": "glove"}],
)
def test_options_name_what_is_wrong(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(OPTIONS, **wrong)
