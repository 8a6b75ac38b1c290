"""This module has the steps of EfficientBERT's warm-up distillation (section 3.2).

A student matches a teacher's attention scores, hidden states and predictions in one
loss. It does so on plain text, on one task, or on several tasks together."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
import transformers
from torch import nn

from lib.core import disk
from lib.core.names import derive_seed
from lib.core.options import Train
from lib.core.store import RunWriter
from lib.core.types import TaskName
from lib.data import DataDescriptor, texts, tokens
from lib.model import backbone, stack
from lib.model.parts import count_parameters
from lib.papers.efficientbert import students
from lib.papers.efficientbert.corpus import EPOCHS, iterate_encoded_segment_pairs
from lib.papers.efficientbert.options import CorpusDescriptor, Warmup
from lib.stats.metrics import Metrics
from lib.train import loop
from lib.train.batches import EncodedRows, shuffle_row_numbers_into_batches
from lib.train.learn import TaskTraining, score_and_save_predictions, train_and_save
from lib.train.matching import (
    build_hidden_state_loss_from_teacher_outputs,
    build_teacher_forward,
)
from lib.train.steps.pretrain import encode_generated_sentence_pairs

BatchMaker = Callable[[int], list[np.ndarray]]  # f(epoch) -> batches of row numbers.


ColumnName: TypeAlias = str


class JoinedRowsOfTasks(NamedTuple):
    encoded: EncodedRows
    task_of_each_row: list[TaskName]  # Name of the task of each row.
    make_batches: BatchMaker


class EncodedCorpus(NamedTuple):
    encoded: EncodedRows
    make_batches: BatchMaker | None  # None: the training loop makes random batches.


def warmup(
    training: TaskTraining,
    warmup: loop.SettingsJson,
    net: stack.ArchitectureJson | None = None,
    classifier: TaskName | None = None,
    score: Literal["", "loss"] = "",
) -> Metrics:
    """Distil a student on a task from a fine-tuned teacher.

    This function is a step: it does the work of a run and returns its metrics.
    "Warm-up" means that the student inherits weights before it learns (EfficientBERT,
    section 3.2). The loss compares attention scores, hidden states and logits with the
    teacher's. Labels are not used, except for a regression with the option `gold`.

    It saves the model and the predictions on development and held-out rows, and on
    unseen rows (never trained or selected on). It also saves the array `curve`, the
    loss over the steps. Metrics are the scores on these rows, the number of parameters
    and those of the training loop, such as the number of steps. With the training
    setting `select` "best" the saved weights are those with the best score on held-out
    rows; if no rows are held out, on development rows.

    training: the task's rows, the training settings, and the run with its inputs.
    `teacher` is fine-tuned on the task. `start`, optional if `net` is given, is a model
    whose weights are inherited, or a pruned model that is itself the student. `search`,
    optional, is the search that found `net`.
    warmup: fields of the options Warmup.
    net: JSON of the student's architecture; None takes that of `start`.
    classifier: the task whose classification head is inherited too, from a `start` that
    was trained on several tasks; None draws a new head, but a pruned `start` keeps the
    head that it has.
    score: "loss" adds the metric "held_out.score", exp(-L) of the loss on logits, by
    which a search ranks networks; "" adds none."""
    run = training.run
    teacher, training.tokenizer = training.teacher
    student = students.make_student_for_task(
        run, net, training.task, teacher, training.train.dropout
    )
    if classifier:
        linear = student.classifier
        assert isinstance(linear, nn.Linear)
        students.inherit_linear_weights_of_first_inputs(
            linear,
            *students.load_classification_head(
                run.inputs["start"].model_folder, classifier
            ),
        )
    objective = students.build_distillation_loss(
        student,
        teacher,
        Warmup(**warmup),
        training.numerics,
        training.training_rows.labels,
        students.read_teacher_head_indices_by_student_layer(run),
    )
    methods = students.make_training_callbacks(run, student)
    judged = ("dev", "unseen", "held_out")
    result = train_and_save(training, student, objective, methods, judged)
    result |= count_parameters(student)
    if score:
        measure_agreement = students.make_teacher_agreement_scorer(training, student)
        result["held_out.score"] = measure_agreement()
    return result


def predistil(
    run: RunWriter,
    corpus: CorpusDescriptor,
    warmup: loop.SettingsJson,
    train: loop.SettingsJson,
    numerics: loop.SettingsJson,
    net: stack.ArchitectureJson | None = None,
    shared: loop.SettingsJson | None = None,
) -> Metrics:
    """Distil a student on plain text.

    The loss compares attention scores and hidden states with a teacher's. This prepares
    the student for tasks, as pre-training does; no token is masked, and no word is
    predicted. This function is a step: it does the work of a run, saves the model, and
    returns metrics, such as the numbers of steps, rows and parameters.

    run: the run that is made, with its inputs. `teacher` is any BERT. `start`,
    optional, is a model whose weights are inherited. `search`, optional, is the search
    that found `net` and `shared`.
    corpus: dict of the text, as `encode_corpus` takes it.
    warmup, train, numerics: fields of the options of the distillation, the training and
    the arithmetic (Warmup, Train, Numerics).
    net: JSON of the student's architecture; None takes that of `start`.
    shared: fields of the options SubnetworkOptions. With them the student is a
    supernet, and each step trains one random subnetwork of it (stage 3 of
    EfficientBERT's search). None trains the whole student."""
    arithmetic = loop.set_dtype_threads_and_device(numerics)
    training = Train(**train)
    teacher, tokenizer = backbone.load(run.inputs["teacher"].model_folder)
    encoded, batches = encode_corpus(corpus, tokenizer, training, run.seed)
    student = students.make_student(
        run, net, transformers.BertModel, teacher, training.dropout
    )
    methods = students.make_training_callbacks(run, student, shared)
    with students.build_distillation_loss(
        student, teacher, Warmup(**warmup), arithmetic
    ) as loss:
        result = loop.fit(
            run, student, encoded, loss, training, arithmetic, None, methods, batches
        )
    backbone.save(student, tokenizer, run.model_folder)
    return result | count_parameters(student) | {"rows": len(encoded)}


def multitask(
    run: RunWriter,
    data: dict[TaskName, DataDescriptor],
    warmup: loop.SettingsJson,
    train: loop.SettingsJson,
    numerics: loop.SettingsJson,
    net: stack.ArchitectureJson | None = None,
    shared: loop.SettingsJson | None = None,
) -> Metrics:
    """Distil one encoder on several tasks at once.

    Each task has a fine-tuned teacher. EfficientBERT does this in stage 3 of its
    search. This function is a step: it does the work of a run and returns its metrics.
    A batch has rows of one task. Batches of all tasks are mixed, in proportion to their
    rows.

    The run saves the encoder and a classification head for each task, which
    `students.load_classifier` joins. It saves the predictions on development rows as
    arrays `predictions_<task>`, and on unseen rows (scored, but never trained on) as
    `predictions_<task>_unseen`. Metrics are "<task>.<metric>" and
    "<task>_unseen.<metric>", of the whole network, and numbers such as those of steps,
    rows and parameters.

    run: the run that is made, with its inputs: `teacher:<task>` for each task. `start`,
    optional, is a model whose weights are inherited. `search`, optional, is the search
    that found `net` and `shared`.
    data: {task: dict that says which rows are used}.
    warmup, train, numerics: fields of the options of the distillation, the training and
    the arithmetic (Warmup, Train, Numerics).
    net: JSON of the encoder's architecture; None takes that of `start`.
    shared: fields of the options SubnetworkOptions. With them each step trains one
    random subnetwork of the encoder, which is then a supernet. None trains the whole
    encoder."""
    options = Warmup(**warmup)
    trainings = {
        name: TaskTraining(run, descriptor, train, numerics)
        for name, descriptor in data.items()
    }
    arithmetic = loop.set_dtype_threads_and_device(numerics)
    settings = Train(**train)
    teachers = {
        name: backbone.load(run.inputs[f"teacher:{name}"].model_folder)
        for name in trainings
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
    encoded, names, batches = join_training_rows_of_tasks(trainings, settings, run.seed)
    callbacks = students.make_training_callbacks(run, encoder, shared)
    matches = students.pair_student_with_teacher_states(encoder, teacher, options)
    assert encoded.labels is not None
    prediction = students.make_weighted_prediction_loss(encoded.labels, options)

    def compute_logits(
        model: transformers.PreTrainedModel,
        batch: dict[str, torch.Tensor],
        training_row_numbers: np.ndarray,
    ) -> torch.Tensor:
        pooled = dropout(model(**batch).pooler_output)
        return classifiers[names[training_row_numbers[0]]](pooled)

    def compute_teacher_outputs_and_logits(
        batch: dict[str, torch.Tensor], training_row_numbers: np.ndarray
    ) -> tuple[Mapping[str, Any], torch.Tensor | None]:
        return teaches[names[training_row_numbers[0]]](batch, training_row_numbers)

    with ExitStack() as held:
        teaches = {
            name: held.enter_context(
                build_teacher_forward(model, arithmetic, students.compute_logits)
            )
            for name, (model, _) in teachers.items()
        }
        loss = held.enter_context(
            build_hidden_state_loss_from_teacher_outputs(
                encoder,
                compute_teacher_outputs_and_logits,
                matches,
                compute_logits,
                prediction,
            )
        )
        result = loop.fit(
            run,
            encoder,
            encoded,
            loss,
            settings,
            arithmetic,
            callbacks=callbacks,
            list_batches_of_epoch=batches,
        )
    result["rows"] = len(encoded)
    del encoder.classifiers, encoder.dropout
    backbone.save(encoder, tokenizer, run.model_folder)
    students.save_tensors_if_folder_given(
        classifiers.state_dict(), run.model_folder, students.HEADS
    )
    for name, training in trainings.items():
        head = classifiers[name]
        assert isinstance(head, nn.Linear)
        model = students.join_encoder_and_head(encoder, head.weight, head.bias)
        result |= score_and_save_predictions(
            run, training.build_split_scorers(model), name
        )
    return result | count_parameters(encoder)


def join_training_rows_of_tasks(
    training_by_task: dict[TaskName, TaskTraining], train: Train, seed: int
) -> JoinedRowsOfTasks:
    """Join the tokenised training rows of several tasks, to train on all at once.

    Return the rows of all tasks in one EncodedRows, the task's name of each row, and a
    function f(epoch) -> batches. A batch is an array of row numbers of a single task,
    and the batches of all tasks come in random order. Labels become float32, so those
    of classification and regression fit in one tensor. No loss reads them as class
    numbers, because students learn classes from the teachers' logits.

    training_by_task: {task: its rows and training settings}.
    train: its batch size and padding are used.
    seed: seed of the order."""
    parts = [training.training_rows for training in training_by_task.values()]
    columns = {
        name: [row for part in parts for row in part.columns[name]]
        for name in parts[0].columns
    }
    labels = [part.labels.float() for part in parts if part.labels is not None]
    encoded = EncodedRows(columns, torch.cat(labels), parts[0].padding_id)
    task_of_row = np.repeat([*training_by_task], [*map(len, parts)]).tolist()
    starts = np.cumsum([0, *map(len, parts)])

    def order_batches_of_all_tasks(epoch: int) -> list[np.ndarray]:
        every = [
            start + rows
            for start, part in zip(starts, parts, strict=False)
            for rows in shuffle_row_numbers_into_batches(
                part.compute_row_lengths(),
                train.batch,
                seed,
                epoch,
                groups_similar_lengths=not train.pad_to,
            )
        ]
        dice = np.random.default_rng(derive_seed(seed, f"tasks:{epoch}"))
        return [every[i] for i in dice.permutation(len(every))]

    return JoinedRowsOfTasks(encoded, task_of_row, order_batches_of_all_tasks)


def encode_corpus(
    corpus: CorpusDescriptor,
    tokenizer: transformers.PreTrainedTokenizerFast,
    train: Train,
    seed: int,
) -> EncodedCorpus:
    """Return the tokenised rows of a text for pre-training, and their batches.

    Text from files gives a row for each document, paired with another document. There
    are up to 5 different sets of rows, one for each epoch and used in turn, as in
    EfficientBERT's code. The result has the rows as `encoded`, and `make_batches`,
    f(epoch) -> lists of row numbers. The latter is None for generated text, which has
    one set of rows; the training loop then makes random batches.

    corpus: {"sentences": count, "seed"} for generated text, whose sentences are paired
    as in BERT's pre-training. Text in files has {"text": name, "digest", "documents":
    count} (lib.data.texts).
    train: its epochs, length, batch size and padding are used.
    seed: seed of the pairs and of their order."""
    if "text" not in corpus:
        encoded = encode_generated_sentence_pairs(
            tokenizer, corpus, seed, train.max_length
        )
        return EncodedCorpus(encoded, None)
    what = corpus["text"], corpus["digest"], corpus.get("documents")
    key = disk.digest_values("documents", *what, tokens.digest_tokenizer(tokenizer))
    read = partial(iterate_document_token_ids, corpus, tokenizer)
    # Tokenising a large text is slow, so the token ids are cached on disk. They are the
    # same for all epochs and seeds, and for all runs with this text and vocabulary.
    documents = tokens.load_or_compute_token_rows(key, read, ("ids",))["ids"]
    special = tokenizer.cls_token_id, tokenizer.sep_token_id
    names = ("input_ids", "token_type_ids")
    epochs = range(min(train.epochs, EPOCHS))
    made = partial(
        iterate_encoded_segment_pairs, documents, special, train.max_length, seed
    )
    key = disk.digest_values(key, train.max_length, seed, len(epochs))
    cached_columns = tokens.load_or_compute_token_rows(
        key, lambda: chain.from_iterable(map(made, epochs)), names
    )
    columns = {
        name: cached_columns[name]
        for name in names
        if name in tokenizer.model_input_names
    }
    encoded = EncodedRows(columns, None, tokenizer.pad_token_id)
    rows_per_epoch = len(documents)
    lengths = encoded.compute_row_lengths()

    def order_epoch_batches(epoch: int) -> list[np.ndarray]:
        start = epoch % len(epochs) * rows_per_epoch
        part = lengths[start : start + rows_per_epoch]
        row_batches = shuffle_row_numbers_into_batches(
            part, train.batch, seed, epoch, groups_similar_lengths=not train.pad_to
        )
        return [start + chosen for chosen in row_batches]

    return EncodedCorpus(encoded, order_epoch_batches)


def iterate_document_token_ids(
    corpus: CorpusDescriptor, tokenizer: transformers.PreTrainedTokenizerFast
) -> Iterator[dict[ColumnName, list[int]]]:
    """Yield {"ids": token ids} for each document of a text, without [CLS] and [SEP].

    Empty documents are left out. The caller caches the result, as it is the same for
    all runs.

    corpus: {"text": name, "digest", "documents": count}, which names text in files
    (lib.data.texts)."""
    for part in tokens.split_into_chunks(
        map(" ".join, texts.iterate_verified_documents(corpus))
    ):
        token_ids = tokenizer(part, add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
        yield from ({"ids": ids} for ids in token_ids if ids)
