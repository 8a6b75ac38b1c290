"""This module opens and saves BERT, RoBERTa, ELECTRA, MPNet and DistilBERT models.

A model with surgery (`lib.model.surgery`) is saved as a class of `lib.model.modeling`.
Runs and exports have one format; an export has the sources of these classes too."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from . import modeling
from .layout import rename_layer_parts_as_bert, restore_tensor_names
from .options import HEADLESS, Refused
from .parts import get_surgery, set_dropout
from .surgery import operate

# Prefixes of the names of a head's tensors.
HEADS = {"SequenceClassification": "classifier.", "QuestionAnswering": "qa_outputs."}
# dtypes of saved weights that are cast to float32 on loading.
FLOATS = ("F64", "F32", "F16", "BF16")


def load_with_head(
    folder: str | Path, head: str, outputs: int, dropout: float, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return (model, tokenizer) of a saved folder, with a head of a kind.

    A saved head of this kind is kept; otherwise a new one is drawn from `seed`. Raises
    Refused where the saved head has another size or is of another kind, and for a model
    with surgery but without such a head.

    head: "SequenceClassification" or "QuestionAnswering".
    outputs: the size of the head; 1 is a regression.
    dropout: the rate of all layers."""
    folder, cls = Path(folder), read_class_name(folder)
    if head in cls:
        model, tokenizer = load(folder)
        if model.config.num_labels != outputs:
            head_size = model.config.num_labels
            raise Refused(
                f"{folder.name} has {head_size} outputs; the task needs {outputs}; {HEADLESS}"
            )
    elif has_surgery(folder):
        raise Refused(
            f"the model in {folder.name} is a {cls}; the task needs a head for {head}: "
            "start from a model of such a task, or from one before surgery"
        )
    else:
        with explain_errors("weights", folder):
            has_other = any(
                name.startswith(HEADS[head]) for name, _ in read_tensor_dtypes(folder)
            )
        if has_other:
            raise Refused(f"{folder.name} has the head of a {cls}; {HEADLESS}")
        torch.manual_seed(seed)
        auto = getattr(transformers, f"AutoModelFor{head}")
        model = load_weights(auto, folder, has_new_head=True, num_labels=outputs)
        tokenizer = load_tokenizer(folder)
    set_dropout(model, dropout)
    return model, tokenizer


def read_configuration(folder: str | Path) -> dict[str, Any]:
    """Return `config.json` of a saved model. Raises FileNotFoundError where it is
    missing."""
    return json.loads((Path(folder) / "config.json").read_text())


def read_class_name(folder: str | Path) -> str:
    """Return the class name of the saved model in a folder, or "" where its
    configuration has none; several names are joined by spaces."""
    return " ".join(read_configuration(folder).get("architectures") or [])


def has_surgery(folder: str | Path) -> bool:
    """Return whether the saved model in a folder has operations of surgery."""
    return "surgery" in read_configuration(folder)


def save(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    folder: str | Path | None,
) -> None:
    """Write a model and its tokenizer to a folder, for `load`.

    folder: the new folder; None writes nothing."""
    if folder is None:
        return
    done = get_surgery(model)
    with silence_transformers():
        tensors = None if done else restore_tensor_names(model)
        model.save_pretrained(folder, state_dict=tensors)
        tokenizer.save_pretrained(folder)
    # Write the operations into the configuration, or remove operations that were
    # undone.
    if done or hasattr(model.config, "surgery"):
        cls = getattr(modeling if done else transformers, type(model).__name__)
        config = model.config.to_dict() | {"architectures": [cls.__name__]}
        for name in ("model_type", "auto_map", "surgery"):
            config.pop(name, None)
        if done:
            config["surgery"] = done
        cls.config_class.from_dict(config).save_pretrained(folder)


def load(folder: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return (model, tokenizer) of a folder, in float32 and eval mode.

    The model has the class that was saved. Where the weights are an encoder's alone, it
    is an encoder, even if the configuration names a head (all-mpnet-base-v2 names that
    of a masked LM). Raises Refused, naming the folder and the first tensors, where
    weights and configuration do not fit."""
    name = (read_class_name(folder).split() or ["AutoModel"])[0]
    cls = getattr(modeling if has_surgery(folder) else transformers, name)
    if "For" in name:
        with explain_errors("weights", folder):
            inside = any(
                n.startswith(f"{cls.base_model_prefix}.")
                for n, _ in read_tensor_dtypes(folder)
            )
        cls = cls if inside else transformers.AutoModel
    return load_weights(cls, folder), load_tokenizer(folder)


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Hide the warnings and progress bars of transformers while the context is open.

    Its earlier settings are restored at the end."""
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
def explain_errors(subject: str, folder: str | Path) -> Iterator[None]:
    """Turn every error inside the context into a Refused of one line that names the
    folder.

    subject: the thing that cannot be read, for the message."""
    try:
        with silence_transformers():
            yield
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise Refused(f"{folder}: the {subject} cannot be read ({why})") from None


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a folder. Raises Refused, naming the folder, where it
    cannot be read."""
    with explain_errors("tokenizer", folder):
        # pyrefly: ignore[bad-return]  It returns no None: it raises instead.
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


def load_weights(
    cls: type[PreTrainedModel] | type[transformers.AutoModel],
    folder: str | Path,
    has_new_head: bool = False,
    **options: Any,
) -> PreTrainedModel:
    """Return a model of a class with the weights of a folder, in float32 and eval mode.

    Raises Refused, naming the first tensors that are missing, unknown, or of another
    size or type.

    has_new_head: whether head and pooler may be missing; they are then drawn from
    torch's random state.
    options: further arguments of `from_pretrained`."""
    with explain_errors("weights", folder):
        # pyrefly: ignore[not-iterable]  output_loading_info makes it return a pair.
        model, report = cls.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    inside = rf"{model.base_model_prefix}\.(?!pooler)" if has_new_head else ""
    # Ignore unexpected tensors of heads, unless the model has surgery.
    asked = "" if get_surgery(model) else r"(encoder|transformer|embeddings)\."
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
    if not get_surgery(model):  # The operation "int8" stores integers.
        wrong += [
            f"{name} is {kind}, expected a floating-point type"
            for name, kind in read_tensor_dtypes(folder)
            if kind not in FLOATS and not name.endswith("_ids")
        ]
    if wrong:
        listed = "; ".join(sorted(wrong)[:3]) + f"; {len(wrong) - 3} more" * (
            len(wrong) > 3
        )
        raise Refused(f"{folder}: the weights do not fit the configuration: {listed}")
    return rename_layer_parts_as_bert(model).eval()


def read_tensor_dtypes(folder: str | Path) -> Iterator[tuple[str, str]]:
    """Yield (name, safetensors dtype) of each tensor in a folder, without loading
    it."""
    for path in Path(folder).glob("model*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                yield name, file.get_slice(name).get_dtype()


def build_model(
    cls: type[PreTrainedModel],
    config: PretrainedConfig,
    surgery: Iterable[dict[str, Any]] = (),
) -> PreTrainedModel:
    """Return a model with random weights, after some operations of surgery."""
    model = rename_layer_parts_as_bert(cls(config))
    for op in surgery:
        operate(model, op)
    return model
