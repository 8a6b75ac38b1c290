"""This module opens and saves BERT, RoBERTa, ELECTRA, MPNet and DistilBERT models.

A model that was changed by operations such as pruning ("surgery", `lib.model.surgery`)
is saved as a class of `lib.model.modeling`. Trainings and exports save models in the
same format; an export has the source code of these classes too."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch
import transformers
from safetensors import safe_open

from . import modeling
from .layout import make_state_dict_with_transformers_names, rename_layer_parts_as_bert
from .options import HEADLESS, VOCABULARIES, ContextYield, Refused, SurgeryOperation
from .parts import get_recorded_model_changes, set_dropout
from .surgery import apply_surgery

# {kind of head: prefix of the names of its tensors}.
HEADS = {"SequenceClassification": "classifier.", "QuestionAnswering": "qa_outputs."}
# dtypes of saved weights that are cast to float32 on loading.
FLOATS = ("F64", "F32", "F16", "BF16")
TaskHeadKind = str  # A key of HEADS.
TensorNameAndDtype = tuple[str, str]
LeaveUnchanged: TypeAlias = None
SaveNothing: TypeAlias = None


def load_with_task_head(
    folder: str | Path,
    task_head_kind: TaskHeadKind,
    output_count: int,
    dropout: float,
    seed: int,
) -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerFast]:
    """Open a saved model with the head that a task needs, to train or score it.

    Returns (model, tokenizer), in float32 and eval mode. A saved head of the asked kind
    is loaded. Otherwise a new head is drawn from the seed, and a saved head whose
    tensors have other names, such as that of a masked LM, is dropped.

    Raises Refused where the saved head has another number of outputs, where it is of
    another kind but its tensors have the same names, and where a pruned or otherwise
    changed model has no head of the asked kind. A folder that `load` would refuse is
    refused too.

    task_head_kind: "SequenceClassification" or "QuestionAnswering".
    output_count: the number of outputs of the head; 1 is a regression.
    dropout: the rate that all dropout layers get.
    seed: the seed from which a new head is drawn."""
    folder, cls = Path(folder), read_model_class_name(folder)
    if task_head_kind in cls:
        model, tokenizer = load(folder)
        if model.config.num_labels != output_count:
            raise Refused(
                f"{folder.name} has {model.config.num_labels} outputs; the task needs "
                f"{output_count}; {suggest_fix_for_wrong_head(folder)}"
            )
    elif has_recorded_model_changes(folder):
        raise Refused(
            f"the model in {folder.name} is a {cls}; the task needs a head for "
            f"{task_head_kind}; {suggest_fix_for_wrong_head(folder)}"
        )
    elif has_tensors_with_prefix(HEADS[task_head_kind], folder):
        raise Refused(f"{folder.name} has the head of a {cls}; {HEADLESS}")
    else:
        torch.manual_seed(seed)
        auto = getattr(transformers, f"AutoModelFor{task_head_kind}")
        model = load_pretrained_model(
            auto, folder, allows_missing_head=True, num_labels=output_count
        )
        tokenizer = load_tokenizer(folder)
    set_dropout(model, dropout)
    return model, tokenizer


def read_configuration(folder: str | Path) -> dict[str, Any]:
    """Return a saved model's `config.json` as a dict, without loading the model.

    Raises FileNotFoundError where the file is missing.

    folder: the folder of the saved model."""
    return json.loads((Path(folder) / "config.json").read_text())


def read_model_class_name(folder: str | Path) -> str:
    """Return the class name of a saved model, such as "BertModel", without loading it.

    The name tells which head was saved. It is read from `config.json`. The result is ""
    where the file names no class, and several names are joined by spaces."""
    return " ".join(read_configuration(folder).get("architectures") or [])


def has_recorded_model_changes(folder: str | Path) -> bool:
    """Return whether a saved model was changed by operations such as pruning.

    Its `config.json` then lists these operations ("surgery"). `load` applies them again
    before it loads the weights, which transformers alone could not do."""
    return "surgery" in read_configuration(folder)


def save(
    model: transformers.PreTrainedModel,
    tokenizer: transformers.PreTrainedTokenizerFast,
    folder: str | Path | SaveNothing,
) -> None:
    """Write a model and its tokenizer to a folder, from which `load` restores both.

    Operations that changed the model's layers, such as pruning, are listed in the saved
    configuration, because the weights alone do not say how to build the layers. Raises
    Refused for the path of a file, where transformers would write nothing.

    folder: the folder to write; None writes nothing, for runs that save no weights."""
    if folder is None:
        return
    folder = Path(folder).expanduser()
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file; name a new folder")
    done = get_recorded_model_changes(model)
    with silence_transformers_logging():
        tensors = None if done else make_state_dict_with_transformers_names(model)
        model.save_pretrained(folder, state_dict=tensors)
        tokenizer.save_pretrained(folder)
    # The operations that changed this model, such as pruning, are written to its
    # configuration, so that it can be opened again. Operations that have been undone
    # since the model was loaded are removed from the configuration.
    if done or hasattr(model.config, "surgery"):
        cls = getattr(modeling if done else transformers, type(model).__name__)
        config = model.config.to_dict() | {"architectures": [cls.__name__]}
        for name in ("model_type", "auto_map", "surgery"):
            config.pop(name, None)
        if done:
            config["surgery"] = done
        cls.config_class.from_dict(config).save_pretrained(folder)


def load(
    folder: str | Path,
) -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerFast]:
    """Open a saved model from a folder, and return (model, tokenizer).

    The model is in float32 and eval mode, and has the class that was saved. Operations
    that had changed it before it was saved, such as pruning, are applied before its
    weights are loaded. Where only the weights of an encoder were saved, the model is a
    bare encoder, even if the configuration names a head (that of all-mpnet-base-v2
    names a masked LM).

    Raises Refused, naming the folder, where weights and configuration do not fit each
    other, and where weights or tokenizer cannot be read. Raises FileNotFoundError where
    `config.json` is missing."""
    name = (read_model_class_name(folder).split() or ["AutoModel"])[0]
    cls = getattr(
        modeling if has_recorded_model_changes(folder) else transformers, name
    )
    if "For" in name and not has_tensors_with_prefix(
        f"{cls.base_model_prefix}.", folder
    ):
        cls = transformers.AutoModel
    return load_pretrained_model(cls, folder), load_tokenizer(folder)


@contextmanager
def silence_transformers_logging() -> ContextYield[None]:
    """Hide the warnings and progress bars of transformers during a `with` block.

    The earlier settings are restored after it."""
    log = transformers.logging
    level, has_bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if has_bars:
            log.enable_progress_bar()


@contextmanager
def convert_read_errors_to_user_error(
    file_kind: str, folder: str | Path
) -> ContextYield[None]:
    """Turn every error inside a `with` block into one line for the user.

    The error becomes Refused, whose message names the folder, so that a damaged file is
    reported without a traceback.

    file_kind: what is read from the folder, for the message, such as "weights"."""
    try:
        with silence_transformers_logging():
            yield
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise Refused(f"{folder}: the {file_kind} cannot be read ({why})") from None


def set_class_names_and_problem_type(
    model: transformers.PreTrainedModel, class_names: Sequence[str] | LeaveUnchanged
) -> transformers.PreTrainedModel:
    """Set the names of a model's classes in its configuration, and return the model.

    A user of the saved model then sees names instead of LABEL_0, LABEL_1. The kind
    of task (classification or regression) is set too.

    class_names: the names in the order of the outputs; () for a regression; None
    changes nothing."""
    if class_names:
        model.config.id2label = dict(enumerate(class_names))
        model.config.label2id = {
            name: number for number, name in enumerate(class_names)
        }
    if class_names is not None:
        model.config.problem_type = (
            "single_label_classification" if class_names else "regression"
        )
    return model


def suggest_fix_for_wrong_head(folder: str | Path) -> str:
    """Return what to do where the saved head of a model does not fit a task.

    AutoModel opens no model that was pruned or otherwise changed."""
    if has_recorded_model_changes(folder):
        return "start from a model of such a task, or from one before surgery"
    return HEADLESS


def load_tokenizer(folder: str | Path) -> transformers.PreTrainedTokenizerFast:
    """Return the tokenizer in the folder of a saved model.

    Raises Refused, naming the folder, where it cannot be read. transformers itself
    would make a tokenizer without words where the vocabulary is missing."""
    with convert_read_errors_to_user_error("tokenizer", folder):
        if not any((Path(folder) / name).is_file() for name in VOCABULARIES):
            fix = "fix: tokenizer.save_pretrained writes it there"
            raise FileNotFoundError(f"no {' or '.join(VOCABULARIES)}; {fix}")
        # pyrefly: ignore[bad-return]  It returns no None: it raises instead.
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


def load_pretrained_model(
    model_class: type[transformers.PreTrainedModel] | type[transformers.AutoModel],
    folder: str | Path,
    allows_missing_head: bool = False,
    **from_pretrained_options: Any,
) -> transformers.PreTrainedModel:
    """Return a model of a given class with the saved weights of a folder.

    It is in float32 and eval mode. Raises Refused, naming the first tensors that are
    missing, not expected, of another shape than the model's, or not of a floating-point
    type (only a model changed by surgery may have integers). transformers itself would
    only warn, and draw weights at random. Tensors of a head that an unchanged model
    lacks are ignored. Raises Refused too where the weights cannot be read.

    allows_missing_head: whether head and pooler may be missing in the folder; they are
    then drawn from torch's random state.
    from_pretrained_options: further arguments of `from_pretrained`."""
    with convert_read_errors_to_user_error("weights", folder):
        # pyrefly: ignore[not-iterable]  output_loading_info makes it return a pair.
        model, report = model_class.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **from_pretrained_options,
        )
    inside = rf"{model.base_model_prefix}\.(?!pooler)" if allows_missing_head else ""
    # Files may have tensors of heads that this class does not have; they are ignored.
    # For a model with surgery (pruned, or changed in other ways) any tensor that the
    # class does not expect is an error.
    asked = (
        ""
        if get_recorded_model_changes(model)
        else r"(encoder|transformer|embeddings)\."
    )
    wrong = [
        f"{name} is missing"
        for name in report["missing_keys"]
        if re.match(inside, name)
    ]
    wrong += [
        f"{n} is not expected" for n in report["unexpected_keys"] if re.search(asked, n)
    ]
    wrong += [
        f"{n} has {[*a]}, expected {[*b]}" for n, a, b in report["mismatched_keys"]
    ]
    # Quantisation to integers is one of the recorded surgery operations. So a model
    # without such operations must have floats as weights.
    if not get_recorded_model_changes(model):
        wrong += [
            f"{name} is {kind}, expected a floating-point type"
            for name, kind in iterate_tensor_names_and_dtypes(folder)
            if kind not in FLOATS and not name.endswith("_ids")
        ]
    if wrong:
        listed = "; ".join(sorted(wrong)[:3]) + f"; {len(wrong) - 3} more" * (
            len(wrong) > 3
        )
        raise Refused(f"{folder}: the weights do not fit the configuration: {listed}")
    return rename_layer_parts_as_bert(model).eval()


def has_tensors_with_prefix(tensor_name_prefix: str, folder: str | Path) -> bool:
    """Return whether the weights of a saved model have tensors of one of its modules.

    By this a task head, or an encoder inside of a model with a head, is recognised
    before the model is opened. Raises Refused where the weights cannot be read.

    tensor_name_prefix: the beginning of the names of its tensors, such as
    "classifier."."""
    with convert_read_errors_to_user_error("weights", folder):
        return any(
            name.startswith(tensor_name_prefix)
            for name, _ in iterate_tensor_names_and_dtypes(folder)
        )


def iterate_tensor_names_and_dtypes(folder: str | Path) -> Iterator[TensorNameAndDtype]:
    """Yield (name, dtype) of each tensor of a saved model, without loading the tensors.

    The dtype is text as safetensors spells it, such as "F32"."""
    for path in Path(folder).glob("model*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                yield name, file.get_slice(name).get_dtype()


def build_random_model(
    model_class: type[transformers.PreTrainedModel],
    config: transformers.PretrainedConfig,
    surgery_operations: Iterable[SurgeryOperation] = (),
) -> transformers.PreTrainedModel:
    """Build a model with random weights, and change it by operations such as pruning.

    It serves models that are trained from scratch or only timed.

    surgery_operations: dicts such as {"op": "cut", "heads": 3}, which prunes each layer
    to 3 heads. `apply_surgery` applies them to the model in this order."""
    model = rename_layer_parts_as_bert(model_class(config))
    for op in surgery_operations:
        apply_surgery(model, op)
    return model
