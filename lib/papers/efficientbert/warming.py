"""These are the steps of EfficientBERT's warm-up distillation (section 3.2).

One loss has attention, states and predictions of a teacher, on text or on one or more
tasks."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from lib.core import disk
from lib.core.names import derive_seed
from lib.core.options import Train
from lib.core.store import RunWriter
from lib.core.types import Json
from lib.data import Split, texts, tokens, toy
from lib.model import backbone, stack
from lib.model.parts import count_parameters
from lib.papers.efficientbert import students
from lib.papers.efficientbert.corpus import EPOCHS, pair_documents
from lib.papers.efficientbert.options import Warmup
from lib.train import loop
from lib.train.batches import Encoded, encode_split, order_batches
from lib.train.learn import TaskTraining, save_predictions, train_and_save
from lib.train.matching import match_states, run_teacher
from lib.train.steps.pretrain import draw_passages


def warmup(
    training: TaskTraining,
    warmup: Json,
    net: Json | None = None,
    classifier: str | None = None,
    score: str = "",
) -> dict[str, float]:
    """Fine-tune by warm-up distillation.

    Labels are not used, except for a regression with the option `gold`. Inputs:
    `teacher`, fine-tuned on the task; `start`, a student or supernet to inherit from,
    or a model that the step operate cut, which is then the student; `search`, optional,
    whose Output is the net. net: the network to train, or to cut out of `start` (JSON
    of search.net), by default that of `start`. classifier: the task whose head is
    inherited as well, from a `start` of the step multitask. score: with "loss" the
    metric "held_out.score" is the score of a candidate in a search with this option.

    It saves metrics and predictions as the step finetune does, also of held-out rows
    where the data have some. These select the model, where the training asks for the
    best. The loss over the steps is saved as `curve`."""
    run, options = training.run, Warmup(**warmup)
    teacher, training.tokenizer = training.teacher
    student = students.make_student_for_task(
        run, net, training.task, teacher, training.train.dropout
    )
    if classifier:
        linear = student.classifier
        assert isinstance(linear, nn.Linear)
        students.fill_linear(
            linear, *students.load_head(run.inputs["start"].model, classifier)
        )
    judged, methods = ("dev", "unseen", "held_out"), students.list_methods(run, student)
    heads, labels = students.list_kept_heads(run), training.training_rows.labels
    objective = students.make_distillation_objective(
        student, teacher, options, training.numerics, labels, heads
    )
    result = train_and_save(
        training, student, objective, methods, judged
    ) | count_parameters(student)
    return result | (
        {"held_out.score": students.make_likeness_score(training, student)()}
        if score
        else {}
    )


def predistil(
    run: RunWriter,
    corpus: Json,
    warmup: Json,
    train: Json,
    numerics: Json,
    net: Json | None = None,
    shared: Json | None = None,
) -> dict[str, float]:
    """Distil a network or a supernet on plain text, from a teacher's states alone.

    Nothing is masked, and no word is predicted. With `shared`, each step trains one
    part of a supernet (stage 3 of its search).

    Inputs: `teacher`, any BERT; `start`, a student or supernet to inherit from;
    `search`, whose Outputs net and shared may be. corpus: see `rows`. net: the network
    to train (JSON of search.net), by default that of `start`."""
    arithmetic, training = loop.read_numerics(numerics), Train(**train)
    teacher, tokenizer = backbone.load(run.inputs["teacher"].model)
    encoded, batches = encode_corpus(corpus, tokenizer, training, run.seed)
    student = students.make_student(
        run, net, transformers.BertModel, teacher, training.dropout
    )
    methods = students.list_methods(run, student, shared)
    with students.make_distillation_objective(
        student, teacher, Warmup(**warmup), arithmetic
    ) as loss:
        result = loop.fit(
            run, student, encoded, loss, training, arithmetic, None, methods, batches
        )
    backbone.save(student, tokenizer, run.model)
    return result | count_parameters(student) | {"rows": len(encoded)}


def multitask(
    run: RunWriter,
    data: dict[str, Json],
    warmup: Json,
    train: Json,
    numerics: Json,
    net: Json | None = None,
    shared: Json | None = None,
) -> dict[str, float]:
    """Fine-tune one encoder on several tasks by warm-up distillation (stage 3).

    With `shared`, each step trains one part of a supernet. data: {name: descriptor} of
    the tasks. Inputs: `teacher:<name>`, fine-tuned, for each task; `start`, a student
    or supernet to inherit from; `search`, whose Outputs net and shared may be. net: the
    network to train (JSON of search.net), by default that of `start`.

    A batch has rows of one task; batches of all tasks come mixed, in proportion to
    their rows. The run keeps the encoder with its pooler, and one head for each task,
    which `lib.papers.efficientbert.students.load_classifier` puts together. It judges
    each task with the whole net active: metrics are <name>.<metric>, and arrays
    `predictions_<name>`."""
    options = Warmup(**warmup)
    trainings = {
        name: TaskTraining(run, descriptor, train, numerics)
        for name, descriptor in data.items()
    }
    arithmetic, settings = loop.read_numerics(numerics), Train(**train)
    teachers = {
        name: backbone.load(run.inputs[f"teacher:{name}"].model) for name in trainings
    }
    teacher, tokenizer = next(iter(teachers.values()))
    for training in trainings.values():
        training.tokenizer = tokenizer
    encoder = students.make_student(
        run, net, transformers.BertModel, teacher, settings.dropout
    )
    width = encoder.config.hidden_size
    encoder.classifiers = classifiers = nn.ModuleDict()
    for name, training in trainings.items():
        classifiers[name] = stack.initialise_weights(
            nn.Linear(width, training.task.output_width), encoder
        )
    encoder.dropout = dropout = nn.Dropout(settings.dropout)
    encoded, names, batches = join_tasks(trainings, settings, run.seed)
    fit_args = {
        "methods": students.list_methods(run, encoder, shared),
        "batches": batches,
    }
    matches = students.list_matches(encoder, teacher, options)
    assert encoded.labels is not None
    prediction = students.make_prediction_loss(encoded.labels, options)

    def compute_logits(
        model: transformers.PreTrainedModel,
        batch: dict[str, torch.Tensor],
        rows: np.ndarray,
    ) -> torch.Tensor:
        pooled = dropout(model(**batch).pooler_output)
        return classifiers[names[rows[0]]](pooled)

    def run_task_teacher(
        batch: dict[str, torch.Tensor], rows: np.ndarray
    ) -> tuple[Mapping[str, Any], torch.Tensor | None]:
        return teaches[names[rows[0]]](batch, rows)

    with ExitStack() as held:
        teaches = {
            name: held.enter_context(
                run_teacher(model, arithmetic, students.compute_logits)
            )
            for name, (model, _) in teachers.items()
        }
        loss = held.enter_context(
            match_states(encoder, run_task_teacher, matches, compute_logits, prediction)
        )
        result = loop.fit(run, encoder, encoded, loss, settings, arithmetic, **fit_args)
    result |= {"rows": len(encoded)}
    del encoder.classifiers, encoder.dropout
    backbone.save(encoder, tokenizer, run.model)
    students.save_tensors(classifiers.state_dict(), run.model, students.HEADS)
    for name, training in trainings.items():
        head = classifiers[name]
        assert isinstance(head, nn.Linear)
        model = students.add_head(encoder, head.weight, head.bias)
        result |= save_predictions(run, training.build_split_scorers(model), name)
    return result | count_parameters(encoder)


def join_tasks(
    trainings: dict[str, TaskTraining], train: Train, seed: int
) -> tuple[Encoded, list[str], Callable[[int], list[np.ndarray]]]:
    """Return (Encoded rows of all tasks, the task of each row, f(epoch) -> batches).

    Labels are float32: classes learn from the teachers' logits, so no loss reads the
    labels as codes."""
    parts = [training.training_rows for training in trainings.values()]
    columns = {
        name: [row for part in parts for row in part.columns[name]]
        for name in parts[0].columns
    }
    labels = [part.labels.float() for part in parts if part.labels is not None]
    encoded = Encoded(columns, torch.cat(labels), parts[0].pad)
    names = [
        name
        for name, part in zip(trainings, parts, strict=True)
        for _ in range(len(part))
    ]
    starts = np.cumsum([0, *map(len, parts)])

    def order_task_batches(epoch: int) -> list[np.ndarray]:
        every = [
            start + rows
            for start, part in zip(starts, parts, strict=False)
            for rows in order_batches(
                part.lengths(), train.batch, seed, epoch, by_length=not train.pad_to
            )
        ]
        dice = np.random.default_rng(derive_seed(seed, f"tasks:{epoch}"))
        return [every[i] for i in dice.permutation(len(every))]

    return encoded, names, order_task_batches


def encode_corpus(
    corpus: Json,
    tokenizer: transformers.PreTrainedTokenizerFast,
    train: Train,
    seed: int,
) -> tuple[Encoded, Callable[[int], list[np.ndarray]] | None]:
    """Return (Encoded rows of a corpus, f(epoch) -> batches, or None for the usual
    order).

    corpus: {"sentences", "seed"} of generated text, which is paired as in pre-training,
    or a descriptor of lib.data.texts. Of such a text EPOCHS different epochs of rows
    are made, at most, and used in turn, as in the authors' code."""
    if "text" not in corpus:
        first, second, _ = draw_passages(
            toy.generate_passages(corpus["sentences"], corpus["seed"]), seed
        )
        split = Split(
            first, second, np.zeros(len(first), np.int64), np.arange(len(first))
        )
        return encode_split(tokenizer, split, train.max_length), None
    what = corpus["text"], corpus["digest"], corpus.get("documents")
    key = disk.digest_values("documents", *what, tokens.digest_vocabulary(tokenizer))
    read = partial(tokenise_documents, corpus, tokenizer)
    # All runs, epochs and seeds share the tokenised documents.
    documents = tokens.cache_rows(key, read, ("ids",))["ids"]
    special = tokenizer.cls_token_id, tokenizer.sep_token_id
    names, epochs = ("input_ids", "token_type_ids"), range(min(train.epochs, EPOCHS))
    made = partial(pair_documents, documents, special, train.max_length, seed)
    key = disk.digest_values(key, train.max_length, seed, len(epochs))
    cached_columns = tokens.cache_rows(
        key, lambda: chain.from_iterable(map(made, epochs)), names
    )
    columns = {
        name: cached_columns[name]
        for name in names
        if name in tokenizer.model_input_names
    }
    encoded, rows_per_epoch = (
        Encoded(columns, None, tokenizer.pad_token_id),
        len(documents),
    )
    lengths = encoded.lengths()

    def order_epoch_batches(epoch: int) -> list[np.ndarray]:
        start = epoch % len(epochs) * rows_per_epoch
        part = lengths[start : start + rows_per_epoch]
        row_batches = order_batches(
            part, train.batch, seed, epoch, by_length=not train.pad_to
        )
        return [start + chosen for chosen in row_batches]

    return encoded, order_epoch_batches


def tokenise_documents(
    corpus: Json, tokenizer: transformers.PreTrainedTokenizerFast
) -> Iterator[dict[str, list[int]]]:
    """Yield {"ids": token ids} of each document of a text that is not empty."""
    for part in tokens.split_chunks(map(" ".join, texts.load(corpus))):
        token_ids = tokenizer(part, add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
        yield from ({"ids": ids} for ids in token_ids if ids)
