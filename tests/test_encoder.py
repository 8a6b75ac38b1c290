"""A reader's encoder is opened before anything is planned: what cannot be trained is
refused in one line with the path that the reader gave, and what can is not."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from conftest import FAMILIES, put, stand_in
from safetensors.torch import load_file, save_file

import lib
from lib.__main__ import main
from lib.core import paths
from lib.core.names import HEADLESS, Absent, Refused
from lib.data import Task, models, toy
from lib.model import backbone
from lib.papers import encoder
from lib.stats import cost

SINGLE = Task("reviews", False, ("bad", "good"), ("accuracy",))
PAIRS = Task("pairs", True, ("no", "yes"), ("accuracy",))
SPANS = Task("questions", True, (), ("span_f1",), True)
SIZES = dict(heads=4, layers=2, ffn=32, hidden=16)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """f(family, **sizes): the name of a small encoder's folder below the working
    folder."""
    monkeypatch.chdir(tmp_path)

    def build(family="bert", positions=130, **sizes):
        folder = Path(f"my-{family}")
        folder.mkdir()
        stand_in(
            folder,
            toy.generate_passages(60, 0),
            family,
            positions=positions,
            **SIZES | sizes,
        )
        return folder

    return build


def changed(folder, name="config.json", **fields):
    """Set fields in a JSON file of a folder."""
    body = json.loads((folder / name).read_text())
    put(folder, name, body | fields)


def refusal(folder, task=None):
    """The line with which a folder is refused."""
    with pytest.raises(Refused) as caught:
        encoder.check_and_find_encoder_folder(folder, task)
    told = str(caught.value)
    assert "\n" not in told and f"{folder}" in told and "fix: " in told
    assert str(Path(folder).resolve()) not in told  # It is the path as it was given.
    return told


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_of_each_family_is_taken(family, make):
    folder = make(family, positions=132)
    for task in (None, SINGLE, PAIRS, SPANS):
        assert encoder.check_and_find_encoder_folder(folder, task) == str(
            folder.resolve()
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = encoder.read_tokenizer_ids(folder, family)
    assert (found.id_count, found.padding_id) == (
        len(tokenizer),
        tokenizer.pad_token_id,
    )
    types = tokenizer("a", "b").get("token_type_ids", [0])
    assert found.token_type_count == 1 + max(types)
    shape = encoder.read_encoder_shape(folder)
    assert (shape.family, shape.layers, shape.ffn) == (family, 2, 32)
    body = json.loads((folder / "config.json").read_text())
    assert shape == cost.read_shape_of_config(body)


def test_a_tokenizer_larger_than_the_embedding_is_refused_with_both_sizes(make):
    folder = make()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    size = len(tokenizer)
    tokenizer.add_tokens(["film2024"])
    tokenizer.save_pretrained(folder)
    told = refusal(folder)
    assert f"the tokenizer has {size + 1} tokens, vocab_size is {size}" in told
    model, tokenizer = backbone.load(folder)
    model.resize_token_embeddings(len(tokenizer))
    backbone.save(model, tokenizer, folder)
    assert encoder.check_and_find_encoder_folder(folder)


def test_a_vocabulary_without_special_tokens_gets_them_behind_the_last_one(make):
    folder = make()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    words = transformers.BertTokenizer.from_pretrained
    lines = ["[UNK]", "[CLS]", "[SEP]", *(f"word{i}" for i in range(20))]
    put(folder, "vocab.txt", "\n".join(lines) + "\n")
    found = encoder.read_tokenizer_ids(folder, "bert")
    assert (found.id_count, found.padding_id) == (25, words(folder).pad_token_id)
    assert found.id_count == len(words(folder))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"version": "1.0"', b"{}"])
def test_a_tokenizer_that_is_none_is_refused(body, make):
    folder = make()
    put(folder, "tokenizer.json", body)
    assert f"{folder}/tokenizer.json: " in refusal(folder)


def test_a_tokenizer_without_padding_is_refused(make):
    folder = make()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    bare = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, unk_token="[UNK]"
    )
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).unlink(missing_ok=True)
    bare.save_pretrained(folder)
    assert "no token for padding; fix: name one as pad_token" in refusal(folder)
    changed(folder, "tokenizer_config.json", pad_token="[PAD]")
    assert encoder.check_and_find_encoder_folder(folder)
    assert transformers.AutoTokenizer.from_pretrained(folder).pad_token_id == 0


def test_positions_count_from_the_padding_id(make):
    folder = make("roberta", positions=130)
    assert encoder.check_and_find_encoder_folder(folder)
    changed(folder, pad_token_id=3)
    told = refusal(folder)
    assert "max_position_embeddings 130; expected a whole number from 132" in told
    other = make("mpnet")
    changed(other, "tokenizer_config.json", pad_token="</s>")
    assert (
        "padding has id 2 in the tokenizer, and positions count from id 1"
        in refusal(other)
    )


def test_pairs_need_two_token_types(make):
    folder = make()
    model, tokenizer = backbone.load(folder)
    config = transformers.BertConfig(**model.config.to_dict() | {"type_vocab_size": 1})
    backbone.save(transformers.BertModel(config), tokenizer, folder)
    for task in (PAIRS, None):
        assert "type_vocab_size is 1, and pairs have 2" in refusal(folder, task)
    assert encoder.check_and_find_encoder_folder(folder, SINGLE)


def test_a_git_lfs_pointer_is_told(make):
    folder = make()
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    put(folder, "model.safetensors", pointer)
    told = refusal(folder)
    assert told.endswith("is a Git LFS pointer; fix: git -C my-bert lfs pull")


def test_weights_that_are_cut_off_or_no_weights_are_refused(make):
    file = make() / "model.safetensors"
    sound = file.read_bytes()
    for content, message in (
        (sound[:-7], f"{len(sound) - 7:,} bytes; expected {len(sound):,}"),
        (sound[:100], "no header; expected safetensors"),
        (b"PK" + bytes(60), "no header; expected safetensors"),
        (b"", "no header; expected safetensors"),
    ):
        file.write_bytes(content)
        assert message in refusal(file.parent)


def test_weights_that_do_not_fit_the_configuration_are_named(make):
    folder = make()
    sound = load_file(folder / "model.safetensors")
    query = "encoder.layer.0.attention.self.query.weight"
    (name,) = (n for n in sound if n.endswith(query))
    zeros = torch.zeros_like(sound[name])
    for tensors, message in (
        ({n: v for n, v in sound.items() if n != name}, f"{query} is missing"),
        (sound | {name: zeros[:8]}, f"{query} is [8, 16], by config.json [16, 16]"),
        (sound | {name: zeros.to(torch.int8)}, "is I8, expected a floating-point"),
        (sound | {name: zeros / 0}, f"{query} has values that are no finite numbers"),
        (sound | {name: (zeros / 0).bfloat16()}, "no finite numbers"),
        (sound | {name.replace("0", "2"): zeros}, "have more than 2 layers"),
    ):
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        told = refusal(folder)
        assert message in told
    half = {n: v.bfloat16() for n, v in sound.items()}
    save_file(half, folder / "model.safetensors", {"format": "pt"})
    assert encoder.check_and_find_encoder_folder(folder)


def test_what_reads_to_the_left_alone_is_refused(make):
    folder = make()
    changed(folder, is_decoder=True)
    assert "is_decoder true" in refusal(folder)


def headed(folder, cls, **more):
    """Put a head on the encoder in a folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, cls).from_pretrained(folder, **more)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    "cls, more, message",
    [
        (
            "BertForSequenceClassification",
            {"num_labels": 5},
            "5 outputs; the task needs 2",
        ),
        ("BertForTokenClassification", {"num_labels": 2}, "is that of BertForToken"),
        (
            "BertForSequenceClassification",
            {"id2label": {0: "neg", 1: "pos"}},
            "the head's classes are neg, pos, the task's bad, good",
        ),
    ],
)
def test_a_head_for_something_else_is_refused_and_its_fix_works(
    cls, more, message, make
):
    folder = make()
    headed(folder, cls, **more)
    with pytest.raises(Refused, match=HEADLESS):
        lib.network(folder, SINGLE)
    told = refusal(folder, SINGLE)
    assert message in told and HEADLESS in told
    exec(told.partition('python -c "')[2].partition('"')[0], {})
    assert encoder.check_and_find_encoder_folder(f"{folder}-encoder", SINGLE)


@pytest.mark.parametrize(
    "folder, why", [("nope", "no folder has this name"), (".", "it has no config.json")]
)
def test_a_folder_without_a_model_is_told_what_it_lacks(
    folder, why, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Absent, match=f"no model '{folder}': {why}"):
        lib.network(folder, SINGLE)


@pytest.mark.parametrize(
    "damage, why",
    [
        (lambda folder: changed(folder, is_decoder=True), "is_decoder true"),
        (lambda folder: changed(folder, vocab_size=9), "by config.json .9, 16."),
        (lambda folder: put(folder, "config.json", "{"), "config.json"),
        (lambda folder: put(folder, "config.json", "[]"), "a model of type None"),
        (
            lambda folder: [
                *map(Path.unlink, {*folder.glob("*token*"), *folder.glob("vocab*")})
            ],
            "tokenizer.json",
        ),
    ],
)
def test_a_program_opens_no_encoder_that_a_command_refuses(damage, why, make):
    damage(folder := make())
    with pytest.raises(Refused, match=why):
        lib.network(folder, SINGLE)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_program_opens_what_it_saved_and_misses_its_tokenizer(
    family, make, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    model, tokenizer = lib.network(make(family), SINGLE)
    lib.save(model, tokenizer, "~/whole")
    lib.operate(model, {"op": "cut", "heads": 2})
    lib.save(model, tokenizer, "~/cut")
    for folder in ("~/whole", "~/cut"):
        opened, _ = lib.network(folder, SINGLE)
        assert type(opened).__name__ == type(model).__name__
        most = 130 - 2 * (family in ("roberta", "mpnet"))
        with pytest.raises(Refused, match=f"this model reads {most} at most"):
            lib.rank(opened, tokenizer, SINGLE, [], most + 1)
    [*map(Path.unlink, (tmp_path / "cut").glob("*token*"))]
    [*map(Path.unlink, (tmp_path / "cut").glob("vocab*"))]
    with pytest.raises(Refused, match="tokenizer.json or vocab.txt.*save_pretrained"):
        lib.network("~/cut", SINGLE)


def test_weights_in_parts_are_opened(make):
    folder = make()
    model = transformers.AutoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert [*folder.glob("*.index.json")]
    lib.network(folder, SINGLE)


def test_nothing_is_saved_below_a_file(make, tmp_path):
    model, tokenizer = lib.network(make(), SINGLE)
    with pytest.raises(Refused, match="a-file is a file; name a new folder"):
        lib.save(model, tokenizer, put(tmp_path, "a-file", "text"))


def test_a_head_that_fits_is_taken(make):
    folder = make()
    headed(folder, "BertForSequenceClassification", num_labels=2)
    assert encoder.check_and_find_encoder_folder(folder, SINGLE)
    assert encoder.check_and_find_encoder_folder(folder, SPANS)  # It gets a new one.
    changed(folder, id2label={"0": "Bad", "1": "GOOD"})
    assert encoder.check_and_find_encoder_folder(folder, SINGLE)


def test_a_pickle_is_converted_by_the_command_that_the_refusal_names(make, capsys):
    folder = make()
    save = load_file(folder / "model.safetensors")
    torch.save(save, folder / models.PICKLE)
    (folder / "model.safetensors").unlink()
    command = refusal(folder).partition("fix: python -m lib ")[2]
    assert command == "fetch my-bert" and not main(command.split())
    assert capsys.readouterr().out.strip().endswith("my-bert")
    assert encoder.check_and_find_encoder_folder(folder)
    again = load_file(folder / "model.safetensors")
    assert all(torch.equal(again[name], value) for name, value in save.items())


def test_weights_in_parts_are_joined_by_the_command_that_the_refusal_names(make):
    folder = make()
    model, _ = backbone.load(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    told = refusal(folder)
    assert "its weights are in parts" in told
    code = told.partition('python -c "')[2].removesuffix('"')
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert encoder.check_and_find_encoder_folder(folder)


def test_names_with_blanks_and_line_ends_give_one_line_that_can_be_typed(make):
    assert "fetch 'my model', then" in refusal("my model")
    folder = make().rename("two\nlines")
    for name in ("a\nb", str(folder), "tab\there"):
        with pytest.raises(Refused, match="no name of one line; fix: ") as caught:
            encoder.check_and_find_encoder_folder(name)
        assert len(str(caught.value).splitlines()) == 1


def test_a_name_at_the_hub_is_told_how_to_fetch_and_then_taken(make, monkeypatch):
    folder = make()
    told = refusal("bert-base-uncased")
    assert "fix: python -m lib fetch bert-base-uncased, then the same command" in told
    monkeypatch.setattr(paths, "models_root", lambda: Path.cwd() / "models")
    shutil.copytree(folder, "models/bert-base-uncased")
    for name in ("bert-base-uncased", "google-bert/bert-base-uncased"):
        found = encoder.check_and_find_encoder_folder(name)
        assert found == str(Path.cwd() / "models/bert-base-uncased")


def test_a_folder_that_holds_the_encoder_and_an_adapter_are_told(make):
    folder, whole = make(), Path("sentences")
    whole.mkdir()
    shutil.move(folder, whole / "0_Transformer")
    put(whole, "modules.json", [])
    assert "fix: name its folder sentences/0_Transformer" in refusal(whole)
    (whole / "0_Transformer" / "config.json").unlink()
    put(whole, "adapter_config.json", {})
    assert "it is an adapter; fix: merge it into its encoder" in refusal(whole)


def test_an_encoder_is_opened_without_torch(make):
    folder = make()
    code = "import sys; from lib.papers import encoder; "
    code += "encoder.check_and_find_encoder_folder(sys.argv[1]); "
    code += "assert not {'torch', 'transformers'} & {*sys.modules}"
    command = [sys.executable, "-c", code, str(folder.resolve())]
    subprocess.run(command, check=True, cwd=paths.ROOT)
