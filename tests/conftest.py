"""What tests share: tiny random models of the four families and batches for them, made
from configurations alone; Specs where no data are; stores of a module's own; made-up
runs."""

import ast
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pytest
import tokenizers
import torch
import transformers
from safetensors.numpy import load_file
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from lib import data
from lib.claims import judging, notebook
from lib.core import paths
from lib.core.execute import execute
from lib.core.options import Numerics, Targets
from lib.core.papers import list_papers_by_name
from lib.core.spec import Spec
from lib.core.steps import STEPS
from lib.core.store import Store, TrainingOutput
from lib.data import grammar, own, texts, toy
from lib.model import backbone
from lib.papers import grids
from lib.stats import cost
from lib.stats.cost import Shape
from lib.train.steps.pretrain import write_toy_grammar_tokenizer

# Files with commands, workers and kernels of their own. They take longest.
FIRST = (
    "test_report",
    "test_sweep",
    "test_faults",
    "test_evidence",
    "test_own",
    "test_kills",
)


def papers_of(path):
    """The papers that a test file is of: it imports their modules, or another test file
    that does, or has `pytestmark = pytest.mark.papers(...)`."""
    tree = ast.parse(path.read_text())
    names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    papers = {name.split(".")[2] for name in names if name.startswith("lib.papers.")}
    for name in names:
        if name.startswith("test_"):
            papers |= papers_of(path.with_name(f"{name}.py"))
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "pytestmark"
        ):
            papers |= {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
    return papers & {*PAPERS}


def papers_with_prefix(name):
    """The paper that a page or a folder is of, in a list; none for a shared page."""
    return [paper for paper in PAPERS if name.split("_")[0] == paper.split("_")[0]]


def of_papers(name, *values):
    """A case of a test that is about a page or a folder of a paper."""
    papers = papers_with_prefix(name)
    marks = [pytest.mark.papers(*papers)] if papers else []
    return pytest.param(name, *values, marks=marks)


def of_page(path):
    """A case of a test that is about a committed page, or about its notebook; one of no
    single paper is made of all papers."""
    name = notebook.make_notebook_id(path).partition(".")[0]
    marks = pytest.mark.papers(*papers_with_prefix(name))
    return pytest.param(path, id=name, marks=marks)


def pytest_ignore_collect(collection_path):
    """A paper that is taken away takes its own tests along."""
    is_test = collection_path.match("test_*.py")
    return (
        True
        if is_test and papers_of(collection_path) - {*list_papers_by_name()}
        else None
    )


def pytest_collection_modifyitems(config, items):
    """Leave out tests of papers that are not here. Let the longest files begin, so that
    the processes of `make test` end together."""
    here = {*list_papers_by_name()}
    away = [
        item
        for item in items
        if any({*(m.args or PAPERS)} - here for m in item.iter_markers("papers"))
    ]
    if away:
        items[:] = [item for item in items if item not in away]
        config.hook.pytest_deselected(items=away)
    stems = [*FIRST, ""]
    items.sort(
        key=lambda item: stems.index(item.path.stem if item.path.stem in FIRST else "")
    )


PAPERS = ("ghostbert", "efficientbert", "bermo", "nas_pruning")
FAMILIES = ("bert", "roberta", "electra", "mpnet", "distilbert")
VOCAB, POSITIONS, HIDDEN, LAYERS, FFN = 60, 40, 48, 2, 96
PAD = {"bert": 0, "roberta": 1, "electra": 0, "mpnet": 1, "distilbert": 0}
TYPES = {"roberta": 1, "mpnet": 0, "distilbert": 0}  # Others have two.
WORDS = [f"word{i}" for i in range(VOCAB - 5)]


def small_backbone(train, sentences=80, **sizes):
    """The Spec of toy's encoder, of width 48 and with other sizes, pre-trained with
    `train`."""
    whole = grids.toy_pretrained_encoder_spec()
    more = {
        "corpus": {"sentences": sentences, "seed": 0},
        "train": replace(train, weight_decay=0.01),
        "model": whole.args["model"] | {"hidden": 48, "ffn": 96} | sizes,
    }
    return Spec("pretrain", whole.args | more, seed=0)


def untrained(family="bert", **sizes):
    """The Spec of a small encoder of a family with random weights; of the other
    families than BERT's it is a checkpoint."""
    sizes = {"layers": 2, "hidden": 48, "heads": 12, "ffn": 96} | sizes
    if family != "bert":
        folder = _stand_in(family, *sizes.items())
        return Spec(
            "checkpoint",
            {"name": folder, "digest": data.digest_local_checkpoint(folder)},
            seed=0,
        )
    whole = grids.untrained_toy_encoder_spec()
    told = {"corpus": {"sentences": 1, "seed": 0}, "model": whole.args["model"] | sizes}
    return Spec("pretrain", whole.args | told, seed=0)


_kept = []  # temporary folders, which last as long as the tests


@cache
def _stand_in(family, *sizes):
    _kept.append(tempfile.TemporaryDirectory())
    stand_in(Path(_kept[-1].name), toy.generate_passages(120, 0), family, **dict(sizes))
    return _kept[-1].name


@cache
def scored(*sizes):
    """The descriptor of rows of one's own whose label is a score: how many words two
    texts share; sizes: as of `lib.data.make_data_descriptor`."""
    _kept.append(tempfile.TemporaryDirectory())
    pairs = toy.load("RTE")["train"].select_rows(range(400))
    lines = [
        f"{a}\t{b}\t{len({*a.split()} & {*b.split()}) / max(len(a.split()), len(b.split()))}\n"
        for a, b in zip(pairs.a, pairs.b, strict=True)
    ]
    path = put(Path(_kept[-1].name), "scores.tsv", "a\tb\tscore\n" + "".join(lines))
    return data.make_data_descriptor("own", own.infer_task(str(path)).name, *sizes)


def byte_level(folder, sentences):
    """A byte-level tokenizer as RoBERTa's, of few words."""
    made = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator(
        sentences, 400, special_tokens=special, show_progress=False
    )
    made.save_model(str(folder))
    return transformers.RobertaTokenizer.from_pretrained(str(folder))


def word_level():
    """A tokenizer as MPNet's, with one token for each word form of the grammar."""
    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    names = special + [name for name in grammar.list_vocabulary() if name[0] != "["]
    return transformers.MPNetTokenizer(vocab={name: i for i, name in enumerate(names)})


NETWORKS = {
    "bert": transformers.BertForPreTraining,
    "roberta": transformers.RobertaForMaskedLM,
    "electra": transformers.ElectraForPreTraining,
    "mpnet": transformers.MPNetForMaskedLM,
    "distilbert": transformers.DistilBertForMaskedLM,
}


def stand_in(folder, sentences, family, heads, layers, ffn, hidden, positions=130):
    """Fill a folder with a tiny random encoder in Hugging Face layout. ELECTRA's tables
    are half as wide."""
    made = {"roberta": lambda: byte_level(folder, sentences), "mpnet": word_level}
    tokenizer = made.get(family, lambda: write_toy_grammar_tokenizer(folder))()
    tables = len(tokenizer), positions, TYPES.get(family, 2)
    embedding = hidden // 2 if family == "electra" else hidden
    more = {"initializer_range": 0.2}
    if family == "roberta":
        more |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    torch.manual_seed(0)
    sizes = Shape(family, layers, hidden, heads, ffn, *tables, embedding)
    NETWORKS[family](cost.build_transformers_config(sizes, **more)).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)


def finetuned(described, train, inputs, kind="hard", **more):
    """The Spec of a fine-tuning on described data, without a seed."""
    told = {"data": described, "train": train, "targets": Targets(kind)}
    return Spec("finetune", told | {"numerics": Numerics("float32", 1)} | more, inputs)


@pytest.fixture(autouse=True)
def single_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def classes(family):
    """(configuration, classifier, masked-LM model) of a family."""
    name = {
        "bert": "Bert",
        "roberta": "Roberta",
        "electra": "Electra",
        "mpnet": "MPNet",
        "distilbert": "DistilBert",
    }[family]
    return tuple(
        getattr(transformers, name + end)
        for end in ("Config", "ForSequenceClassification", "ForMaskedLM")
    )


def configuration(family, heads, labels):
    own = {
        "bert": {"max_position_embeddings": POSITIONS},
        "roberta": {
            "max_position_embeddings": POSITIONS + 2,
            "type_vocab_size": 1,
            "pad_token_id": 1,
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
        "electra": {"max_position_embeddings": POSITIONS, "embedding_size": 24},
        "mpnet": {"max_position_embeddings": POSITIONS + 2},
        "distilbert": {"max_position_embeddings": POSITIONS},
    }[family]
    rates = ["hidden_dropout_prob", "attention_probs_dropout_prob"]
    if family == "distilbert":
        rates = ["dropout", "attention_dropout", "seq_classif_dropout"]
    sizes = zip(
        cost.list_config_size_fields(family), (LAYERS, HIDDEN, heads, FFN), strict=False
    )
    return classes(family)[0](
        vocab_size=VOCAB,
        num_labels=labels,
        initializer_range=0.25,
        **dict(sizes) | dict.fromkeys(rates, 0.0) | own,
    )


@pytest.fixture(scope="session")
def tiny():
    """f(family, heads=12, labels=2, seed=0, masked_lm=False): a model in eval mode
    whose biases and LayerNorms are random too, so that a test which loses one of them
    fails."""

    def make(family="bert", heads=12, labels=2, seed=0, masked_lm=False):
        torch.manual_seed(seed)
        model = backbone.build_random_model(
            classes(family)[2 if masked_lm else 1], configuration(family, heads, labels)
        )
        with torch.no_grad():
            for value in model.parameters():
                if value.dim() == 1:
                    value.add_(0.25 * torch.randn_like(value))
        return model.eval()

    return make


def position_bias(model, x):
    """What transformers adds to the scores of an MPNet for states x [B, T, H]: [B, A,
    T, T]; zeros for another family."""
    encoder = model.base_model.encoder
    if hasattr(encoder, "relative_attention_bias"):
        return MPNetEncoder.compute_position_bias(encoder, x)
    return x.new_zeros(1, model.config.num_attention_heads, 1, 1)


@torch.no_grad()
def silence(linear, stay):
    """Set the columns of a linear map to zero, but for some."""
    gone = [i for i in range(linear.in_features) if i not in stay]
    linear.weight[:, gone] = 0


@pytest.fixture(scope="session")
def shape():
    """f(family, heads=12): the same model as the cost formulas see it."""

    def make(family, heads=12):
        return Shape(
            family,
            LAYERS,
            HIDDEN,
            heads,
            FFN,
            VOCAB,
            POSITIONS + 2 * (family in ("roberta", "mpnet")),
            TYPES.get(family, 2),
            24 if family == "electra" else HIDDEN,
        )

    return make


@pytest.fixture(scope="session")
def sentences():
    """f(family, lengths, extra=0, seed=0): a batch of random sentences, padded to the
    longest and `extra` more."""

    def make(family="bert", lengths=(9, 5, 7), extra=0, seed=0):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.full((len(lengths), max(lengths) + extra), PAD[family])
        mask = torch.zeros_like(ids)
        for row, length in enumerate(lengths):
            ids[row, :length] = torch.randint(5, VOCAB, (length,), generator=generator)
            mask[row, :length] = 1
        return {"input_ids": ids, "attention_mask": mask}

    return make


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A word-piece tokenizer of VOCAB entries."""
    path = tmp_path_factory.mktemp("words") / "vocab.txt"
    path.write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n"
    )
    return transformers.BertTokenizerFast(str(path), do_lower_case=True)


@pytest.fixture
def logits():
    """f(model, batch): logits without a gradient."""

    def forward(model, batch):
        with torch.no_grad():
            return model(**batch).logits

    return forward


# Real data, where they are at hand.
REAL = Path(
    os.environ.get("DATA_ROOT", Path(__file__).resolve().parents[2] / "shared" / "data")
)


def put(root, name, content):
    """A file below a folder, with bytes, a text, or a value as JSON. Returns its
    path."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, bytes | str):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def anywhere(monkeypatch):
    """Specs where neither data, texts nor checkpoints are: which bytes they have does
    not matter here. Rows of claims that were made with them are forgotten."""

    def described(
        source,
        task,
        rows=None,
        held_out=0,
        max_unseen_rows=0,
        reserved_rows=0,
        in_file_order=False,
        min_words=0,
        draws_rows_by_seed=False,
    ):
        data.find_task_by_name(source, task)
        told = {
            "source": source,
            "task": task,
            "digest": "0" * 16,
            "rows": rows,
            "held_out": held_out,
            "in_order": in_file_order,
            "unseen": max_unseen_rows
            and {
                "rows": max_unseen_rows,
                "beside": reserved_rows,
                "digest": "0" * 16,
            },
            "drawn": draws_rows_by_seed and {"rows": 10**6, "digest": "0" * 16},
        }
        return {name: value for name, value in told.items() if value}

    monkeypatch.setattr(data, "make_data_descriptor", described)
    monkeypatch.setattr(
        texts,
        "make_corpus_data_descriptor",
        lambda corpus_name, document_count=None: (
            {"text": corpus_name, "digest": "0" * 16}
            | ({"documents": document_count} if document_count else {})
        ),
    )
    monkeypatch.setattr(data, "find_checkpoint_digest", lambda name: "0" * 64)
    yield
    for function in (
        judging.list_grid_rows_of_notebooks,
        judging.list_grid_rows_of_notebook,
    ):
        function.cache_clear()


@pytest.fixture
def without_data(monkeypatch, tmp_path):
    """f(): from then on neither data, texts nor checkpoints are at hand, and none is
    remembered."""

    def leave():
        monkeypatch.setenv("DATA_ROOT", str(tmp_path))
        monkeypatch.setattr(paths, "models_root", lambda: tmp_path)
        forget()

    return leave


def forget():
    """Read data, texts and checkpoints anew: another test may have put its own in their
    place."""
    drawing = (
        data.choose_test_rows_among_training_rows,
        data.drop_training_rows_that_share_text_with_test_rows,
    )
    for function in (
        data.read_splits_cached,
        *drawing,
        texts.read_document_count_and_digest,
    ):
        function.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def _read_anew():
    forget()


def with_inputs(specs):
    """The Specs and all their inputs, each once."""
    found = {}

    def walk(spec):
        if spec not in found:
            found[spec] = None
            for parent in spec.input_specs_with_seeds.values():
                walk(parent)

    for spec in specs:
        walk(spec)
    return list(found)


def every_spec(pages, profile):
    """Every Spec, inputs included, that the pages (paths of notebooks) would run at a
    profile."""
    return with_inputs(
        row["spec"]
        for path in pages
        for row in notebook.execute_grid_cell_and_list_rows_by_variable(
            path, {"profile": profile}
        ).get("grid", [])
    )


class RunWriter(TrainingOutput):
    """What a step or the loop asks of a lib.core.store.RunWriter, without a store;
    `lines` were logged, `told` is the progress."""

    def __init__(self, folder, seed=0, checkpoint_interval_seconds=1e9):
        super().__init__(folder, seed)
        self.checkpoint_interval_seconds = checkpoint_interval_seconds
        self.told = []
        folder.mkdir(exist_ok=True)

    def report_progress(self, fraction, **_):
        self.told.append(fraction)


@pytest.fixture(scope="module")
def few_rows():
    """Runs that this process makes read the first 240 rows of generated development
    sets, where a module's statements do not depend on their number."""
    load = data.load

    def few(descriptor, seed=None):
        splits = load(descriptor, seed)
        if descriptor["source"] == "toy":
            splits["dev"] = splits["dev"].select_rows(
                np.arange(min(240, len(splits["dev"])))
            )
        return splits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "load", few)
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An empty store of the module's own, without records."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    return Store(folder, folder / "none")


def finish(writer, metrics=None, env=None):
    """The run that a lib.core.store.RunWriter becomes."""
    writer.write_final_files(metrics or {}, env or {})
    return writer.store.rename_finished_run_folder(writer.spec)


def made(store, spec, **more):
    """The run of a Spec, at seed 1 where it has none, after those of its inputs; each
    with its weights."""
    spec = spec if spec.seed is not None else spec.with_seed(1)
    for parent in spec.input_specs_with_seeds.values():
        made(store, parent)
    return execute(spec, store, keep_weights=STEPS[spec.step].saves_weights, **more)


@pytest.fixture(scope="module")
def make(store):
    """f(spec): `made` in the module's store."""
    return partial(made, store)


@pytest.fixture(scope="module")
def runs(request, make):
    """{name: run} of the module's CHAIN of Specs."""
    return {name: make(spec) for name, spec in request.module.CHAIN.items()}


def store_with(folder, *runs):
    """A store below a folder, without records, that holds these runs of another one."""
    for run in runs:
        (folder / run.name).parent.mkdir(parents=True, exist_ok=True)
        (folder / run.name).symlink_to(run.folder)
    return Store(folder, folder / "none")


def stop_at(monkeypatch, owner, name, number, error=KeyboardInterrupt):
    """Let the call of `owner.name` with this number, from 1, raise instead. Returns the
    list of calls, kept up to date."""
    calls, each = [], getattr(owner, name)

    def call(*args, **options):
        calls.append(args)
        if len(calls) == number:
            raise error
        return each(*args, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


def holder(path):
    """The process below this one that holds the lock file at a path; None where none
    does."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if str(path) in [file.path for file in child.open_files()]:
                return child.pid


def losses_of(run):
    """Return [{"loss": ..., parts...}] of a run, step by step."""
    return [
        line["curve"] for line in run.read_json_lines("events.jsonl") if "curve" in line
    ]


def same_run(a, b):
    """Asserts that two runs have the same metrics, but for the clock, and the same
    arrays and weights, bit by bit."""
    one, two = (
        {k: v for k, v in run.metrics.items() if "second" not in k} for run in (a, b)
    )
    assert json.dumps(one) == json.dumps(two)
    files = sorted(
        path.relative_to(a.folder) for path in a.folder.rglob("*.safetensors")
    )
    assert files and files == sorted(
        path.relative_to(b.folder) for path in b.folder.rglob("*.safetensors")
    )
    for file in files:
        one, two = load_file(a.folder / file), load_file(b.folder / file)
        assert one.keys() == two.keys() and all(
            np.array_equal(one[k], two[k]) for k in one
        ), file


def landscape(seed, layers, spread=0.02):
    """f(net): a made-up score around 0.75, a sum of one drawn term for each layer's id.
    `best` is the highest score of any network of so many layers."""
    from lib.papers.efficientbert.search.space import IDS, find_index_of_layer_size

    terms = np.random.default_rng(seed).normal(
        0, spread / np.sqrt(layers), (layers, len(IDS))
    )

    def score(net):
        return 0.75 + sum(
            terms[i, find_index_of_layer_size(layer)]
            for i, layer in enumerate(net.layers)
        )

    score.best = 0.75 + terms.max(1).sum()
    return score


class Held(SimpleNamespace):
    """Plain attributes that can be the key of a cache."""

    __hash__ = object.__hash__


def holding(arrays=None, name="made up", **metrics):
    """A run that pages read these arrays and metrics from."""
    told = {"name": name, "origin": "run", "metrics": metrics, "spec": {"args": {}}}
    return Held(**told, read_arrays=lambda _: arrays)


def collected(*rows):
    """A collected frame of made-up runs on two classes: rows are (task, model, seed,
    which predictions are right [N] or None for a missing run, more columns)."""
    lines = []
    for task, model, seed, right, more in rows:
        line = {
            "task": task,
            "model": model,
            "seed": seed,
            "state": "missing",
            "run": None,
        }
        if right is not None:
            labels = np.arange(len(right)) % 2
            logits = np.eye(2, dtype=np.float32)[np.where(right, labels, 1 - labels)]
            run = holding(
                {"labels": labels, "index": np.arange(len(right)), "logits": logits},
                f"{task}/{model}/{seed}",
                **{"accuracy": np.mean(right)} | more,
            )
            line |= {"state": "finished", "run": run, **run.metrics}
        lines.append(line | more)
    return pd.DataFrame(lines)


def made_up(shares, *others, seeds=5, rows=600, task="SST-2", **more):
    """The same of {model: share of right predictions}: others are wrong in each seed,
    and one fewer. `others` are rows of `collected`."""
    return collected(
        *(
            (
                task,
                model,
                seed,
                np.random.default_rng(seed).permutation(rows) < share * rows + seed,
                more,
            )
            for model, share in shares.items()
            for seed in range(seeds)
        ),
        *others,
    )
