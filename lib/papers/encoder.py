"""This module checks a reader's own encoder before any run with it is planned.

The folder must have been written by `save_pretrained` of transformers: a configuration,
weights and a tokenizer. They are checked against each other and against the task. Of
the weights only small tensors and the header are read, which has names, shapes and
types of all tensors, so no torch is needed. An encoder that cannot be trained is
refused at once, by a message of one line that names the reader's path."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lib import data
from lib.core import paths
from lib.core.names import HEADLESS, VOCABULARIES, Absent, Refused
from lib.core.types import EncoderFamily, Json
from lib.data import Task, lines, models
from lib.data.feed import load_tokenizer
from lib.model.places import FFN1, FFN2, LINEAR, NAMES, STACKS
from lib.stats.cost import Shape, list_config_size_fields, read_shape_of_config

# {model_type in a configuration: name of the family of encoders}.
FAMILIES = {
    "bert": "BERT",
    "roberta": "RoBERTa",
    "electra": "ELECTRA",
    "mpnet": "MPNet",
    "distilbert": "DistilBERT",
}
TensorName: TypeAlias = str
TensorHeader: TypeAlias = Json  # {"dtype", "shape", "data_offsets"}.
ConfigJson: TypeAlias = Json  # Content of config.json.
ErrorMessage: TypeAlias = str
Token: TypeAlias = str
TokenId: TypeAlias = int
FORM = f"a {', '.join(FAMILIES.values())} folder by save_pretrained"
OTHER = "take another model"
LONGEST = 128  # An encoder must be able to read at least this number of tokens.
CONFIG = "config.json"
SETTINGS = "tokenizer_config.json"
# First bytes of a pointer file: Git LFS leaves it where a large file was not
# downloaded.
POINTER = b"version https://git-lfs"
# {type in safetensors: numpy type}. numpy has no bfloat16, so its bits are read as
# uint16.
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# Only tensors of at most this number of values are searched for NaN, to save time. That
# is enough, since a training that diverged has NaN in all tensors.
SMALL = 1 << 16
# {whether the task is question answering with answer spans: (end of the name of its
# model's class in transformers, prefix of the tensors of its head)}.
HEADS = {
    False: ("SequenceClassification", "classifier."),
    True: ("QuestionAnswering", "qa_outputs."),
}
# SPECIAL is {kind of tokenizer: its special tokens, where its files name no others}.
# Its values are NO_TOKENS, BRACKETS and ANGLES.
NO_TOKENS: dict[str, str] = {}
BRACKETS = {
    f"{x}_token": f"[{x.upper()}]" for x in ("pad", "unk", "cls", "sep", "mask")
}
ANGLES = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
SPECIAL = dict.fromkeys(("bert", "electra", "distilbert"), BRACKETS)
SPECIAL |= dict.fromkeys(("roberta", "mpnet"), ANGLES)
SPECIAL |= dict.fromkeys(("pretrained", "tokenizersbackend"), NO_TOKENS)


@dataclass(frozen=True)
class TokenizerIds:
    """A TokenizerIds describes the token ids that a tokenizer can produce.

    It is compared with an encoder's embedding tables before any training.

    id_count: one more than the largest id.
    padding_id: the id of padding; -1 if there is none, None for an unknown kind of
    tokenizer.
    token_type_count: the number of token types that a pair of texts gets, 1 or 2."""

    id_count: int
    padding_id: int | None
    token_type_count: int


def check_and_find_encoder_folder(
    folder_or_checkpoint_name: str | Path, task_to_train: Task | None = None
) -> str:
    """Check a user's own encoder, and return the full path of its folder.

    So an encoder that cannot be trained is refused before any work begins. Raises
    Absent where a file is missing, and Refused where configuration, weights, tokenizer
    and task do not fit together.

    folder_or_checkpoint_name: a folder written by `save_pretrained` of transformers,
    relative to the working folder or to the project, or the name of a downloaded
    checkpoint.
    task_to_train: the task to train; None checks that the encoder reads pairs of texts,
    and does not check a task head."""
    name = str(folder_or_checkpoint_name)
    if not name.isprintable():
        fix = "fix: rename its folder, in characters that are printed"
        raise Absent(f"no model {name!r}: it is no name of one line; {fix}")
    place = paths.resolve_user_path(name)
    if not place.is_dir():
        checkpoint = models.map_hub_name_to_local_name(name)
        place = data.find_checkpoint_folder_with_file(checkpoint, data.WEIGHTS) or place
    try:
        check_encoder_can_be_trained(place, task_to_train)
    except Refused as error:
        message = str(error).replace(str(place), name.rstrip("/"))
        raise type(error)(message) from None
    return str(place)


def check_encoder_can_be_trained(folder: Path, task_to_train: Task | None) -> None:
    """Raise Refused for an encoder that cannot be trained on a task.

    Configuration, weights and tokenizer are checked against each other and the task; of
    the weights only the header and small tensors are read. Raises Absent where a file
    is missing.

    folder: a folder written by `save_pretrained` of transformers.
    task_to_train: the task to be trained. With None the encoder has to read pairs of
    texts, and a task head in the folder is not checked."""
    for names in ((CONFIG,), (data.WEIGHTS,), VOCABULARIES):
        if not any((folder / name).is_file() for name in names):
            why = explain_missing_file(folder, " or ".join(names))
            raise Absent(f"no model {str(folder)!r}: {why}")
    for file in data.list_checkpoint_files(folder):
        with open(file, "rb") as opened:
            if opened.read(len(POINTER)) == POINTER:
                fix = f"git -C {folder} lfs pull"
                raise Refused(f"{file} is a Git LFS pointer; fix: {fix}")
    config = read_configuration(folder)
    weights = folder / data.WEIGHTS
    shape = read_shape_of_config(config)
    tensors = {
        name.removeprefix(f"{shape.family}."): tensor
        for name, tensor in read_safetensors_header(weights).items()
    }
    if wrong := list(list_tensor_errors(tensors, shape)):
        more = f"; {len(wrong) - 3} more" * (len(wrong) > 3)
        fix = "fix: save model and configuration together, by save_pretrained"
        raise Refused(f"{folder}: {'; '.join(wrong[:3])}{more}; {fix}")
    wrong = [
        *list_non_finite_tensor_errors(weights, tensors),
        *list_tokenizer_errors(
            read_tokenizer_ids(folder, shape.family), shape, config, task_to_train
        ),
        *(
            list_task_head_errors(folder, tensors, config, task_to_train)
            if task_to_train
            else []
        ),
    ]
    if wrong:
        raise Refused(f"{folder}: {'; '.join(wrong)}")


def explain_missing_file(folder: Path, missing_file: str) -> str:
    """Return why a model folder lacks a file, with a fix, as text of an error message.

    The fix depends on the files that are there: an adapter has to be merged, weights in
    parts have to be saved again, and so on.

    missing_file: such as "config.json", or several names of which one is needed,
    joined by " or "."""
    quoted = shlex.quote(str(folder))
    if not folder.is_dir():
        fetch = f"fix: python -m lib fetch {quoted}, then the same command"
        return f"no folder has this name; {fetch}, or name {FORM}"
    inside = [sub.parent.name for sub in sorted(folder.glob(f"*/{CONFIG}"))]
    if missing_file == CONFIG and (folder / "adapter_config.json").exists():
        return "it is an adapter; fix: merge it into its encoder, and save that"
    if missing_file == CONFIG and inside:
        return f"it has no {missing_file}; fix: name its folder {folder / inside[0]}"
    if missing_file == data.WEIGHTS and (folder / models.PICKLE).exists():
        return f"it has a pickle of weights; fix: python -m lib fetch {quoted}"
    if missing_file == data.WEIGHTS and any(folder.glob("*.index.json")):
        cls = (read_json_object(folder / CONFIG).get("architectures") or ["AutoModel"])[
            0
        ]
        code = f"from transformers import {cls}; name = {str(folder)!r}; "
        code += f"{cls}.from_pretrained(name).save_pretrained(name)"
        return f'its weights are in parts; fix: python -c "{code}"'
    return f"it has no {missing_file}; it must be {FORM}"


def read_json_object(file: Path) -> Json:
    """Return the object in a JSON file; {} where there is no file or no object.

    So callers need not check whether a file that may be missing is there."""
    body = lines.read_json_or_parquet_file(file) if file.exists() else {}
    return body if isinstance(body, dict) else {}


def read_encoder_shape(folder: str | Path) -> Shape:
    """Return the Shape of the encoder in a folder, such as its layers and heads.

    Costs are counted from it, without loading the model. Raises Refused for a
    configuration that is no encoder of a known family."""
    return read_shape_of_config(read_configuration(Path(folder)))


def read_configuration(folder: Path) -> ConfigJson:
    """Return the content of config.json of the encoder in a folder.

    Raises Refused where it is no encoder that can be used here: for an unknown
    model_type, for impossible sizes, for a position table of fewer than 128 tokens, and
    for a decoder."""
    config = read_json_object(file := folder / CONFIG)
    family = config.get("model_type")
    if family not in FAMILIES:
        fault = f"a model of type {family!r}"
        raise lines.make_file_content_error(file, fault, " or ".join(FAMILIES), OTHER)
    least = dict.fromkeys(list_config_size_fields(family), 1)
    least["max_position_embeddings"] = LONGEST + find_position_offset(family, config)
    for name, low in least.items():
        if type(config.get(name)) is not int or config[name] < low:
            fault = f"{name} {config.get(name)!r}"
            raise lines.make_file_content_error(
                file, fault, f"a whole number from {low}", OTHER
            )
    if config.get("is_decoder"):
        fault = "is_decoder true, so that a token sees those before it alone"
        raise lines.make_file_content_error(file, fault, "an encoder", OTHER)
    return config


def find_position_offset(family: EncoderFamily, configuration: ConfigJson) -> int:
    """Return the index of the first token of an input in the position embedding table.

    It is 0, except for RoBERTa (the id of padding + 1) and MPNet (2). So their tables
    have room for fewer tokens than they have rows.

    family: the model_type in the configuration.
    configuration: the content of config.json."""
    if family == "roberta":
        padding = configuration.get("pad_token_id")
        return 2 if padding is None else padding + 1
    return 2 * (family == "mpnet")


def read_safetensors_header(file: Path) -> dict[TensorName, TensorHeader]:
    """Return {tensor: {"dtype", "shape", "data_offsets"}} of a safetensors file.

    The tensors themselves are not read, so it is fast. The file has eight bytes with
    the length of a JSON object, then this object, then the values. "data_offsets" are
    the first and the last + 1 byte of a tensor, counted from the end of the object.
    Raises Refused where the file is damaged or cut off."""
    size = file.stat().st_size
    with open(file, "rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        text = opened.read(length) if length < size else b""
    try:
        tensors = {k: v for k, v in json.loads(text).items() if k != "__metadata__"}
        end = 8 + length + max(v["data_offsets"][1] for v in tensors.values())
    except (ValueError, AttributeError, KeyError, TypeError):
        fix = "save or copy it again"
        raise lines.make_file_content_error(
            file, "no header", "safetensors", fix
        ) from None
    if size != end:
        fix = "copy it again"
        raise lines.make_file_content_error(file, f"{size:,} bytes", f"{end:,}", fix)
    return tensors


def list_tensor_errors(
    header_by_tensor_name: Mapping[TensorName, TensorHeader], shape: Shape
) -> Iterator[ErrorMessage]:
    """Yield a sentence for each tensor that contradicts the encoder's configuration.

    Checked are the shapes of embedding tables and linear layers, the number of layers,
    and whether tensors have floating-point types. The sentences become an error
    message.

    header_by_tensor_name: {name: {"dtype", "shape"}}, read from the weights.
    shape: sizes of the encoder, read from the configuration."""
    h = shape.hidden
    e = shape.embedding
    f = shape.ffn
    tables = ("word", shape.vocab), ("position", shape.positions)
    tables += (("token_type", shape.types),) if shape.types else ()
    expected = {f"embeddings.{what}_embeddings": [rows, e] for what, rows in tables}
    names = NAMES.get(shape.family, {})
    stack = STACKS.get(shape.family, "encoder")
    for layer in range(shape.layers):
        for part in LINEAR:
            size = {FFN1: [f, h], FFN2: [h, f]}.get(part, [h, h])
            expected[f"{stack}.layer.{layer}.{names.get(part, part)}"] = size
    for name, size in expected.items():
        tensor = header_by_tensor_name.get(f"{name}.weight")
        if not tensor:
            yield f"{name}.weight is missing in the weights"
        elif tensor["shape"] != size:
            yield f"{name}.weight is {tensor['shape']}, by {CONFIG} {size}"
    if any(
        name.startswith(f"{stack}.layer.{shape.layers}.")
        for name in header_by_tensor_name
    ):
        yield f"the weights have more than {shape.layers} layers"
    for name, tensor in header_by_tensor_name.items():
        if tensor["dtype"] not in FLOATS and not name.endswith("_ids"):
            yield f"{name} is {tensor['dtype']}, expected a floating-point type"


def list_non_finite_tensor_errors(
    safetensors_file: Path, header_by_tensor_name: Mapping[TensorName, TensorHeader]
) -> Iterator[ErrorMessage]:
    """Yield a sentence on the first small tensor that has a NaN or an infinity.

    It yields nothing if there is none. Only tensors of at most 65,536 values are read,
    which is fast; a training that diverged has NaN in all of them.

    safetensors_file: the safetensors file.
    header_by_tensor_name: its header, as `read_safetensors_header` returns it."""
    values = np.memmap(safetensors_file, np.uint8, "r")
    start = 8 + int.from_bytes(values[:8].tobytes(), "little")
    for name, tensor in header_by_tensor_name.items():
        kind = FLOATS.get(tensor["dtype"])
        if not kind or np.prod(tensor["shape"], dtype=int) > SMALL:
            continue
        first, last = (start + offset for offset in tensor["data_offsets"])
        numbers = np.frombuffer(values[first:last].tobytes(), kind)
        # In an infinity or NaN of bfloat16 all bits of the exponent are set.
        if kind == "<u2":
            numbers = np.where((numbers & 0x7F80) == 0x7F80, np.nan, 0.0)
        if not np.isfinite(numbers).all():
            yield f"{name} has values that are no finite numbers; fix: {OTHER}"
            return


def read_tokenizer_ids(folder: Path, family: EncoderFamily) -> TokenizerIds:
    """Return which token ids the tokenizer in a folder can produce.

    The TokenizerIds that is returned has the number of ids, the id of padding, and the
    number of token types. The tokenizer's files are read as transformers would, to
    check them against the encoder's embedding tables. A special token that the
    vocabulary lacks gets the next free id.

    family: the encoder's model_type, for tokenizers that do not name their class."""
    settings = read_json_object(folder / SETTINGS)
    cls = settings.get("tokenizer_class") or f"{family}tokenizer"
    kind = cls.lower().removesuffix("fast").removesuffix("tokenizer")
    special = SPECIAL.get(kind, NO_TOKENS) | {
        name: extract_token_text(value)
        for name, value in (
            read_json_object(folder / "special_tokens_map.json") | settings
        ).items()
        if name.endswith("_token") and value and value is not True
    }
    vocabulary = read_vocabulary(folder)
    ids = vocabulary.id_by_token | read_json_object(folder / "added_tokens.json")
    for number, token in settings.get("added_tokens_decoder", {}).items():
        ids[extract_token_text(token)] = int(number)
    size = 1 + max(ids.values(), default=-1)
    for token in dict.fromkeys(special.values()):
        if token not in ids:
            ids[token], size = size, size + 1
    pad = ids[special["pad_token"]] if "pad_token" in special else -1
    by_default = ["token_type_ids"] * (kind in ("bert", "electra"))
    has_types = "token_type_ids" in (settings.get("model_input_names") or by_default)
    return TokenizerIds(
        size,
        pad if kind in SPECIAL else None,
        1 + (has_types and vocabulary.marks_second_text),
    )


def extract_token_text(token_entry: Any) -> str:
    """Return the text of a special token in a tokenizer file.

    The files store it as text or as {"content": text}."""
    return str(token_entry["content"] if isinstance(token_entry, dict) else token_entry)


class Vocabulary(NamedTuple):
    id_by_token: dict[Token, TokenId]
    marks_second_text: bool  # Whether the second text of a pair gets the token type 1.


def read_vocabulary(folder: Path) -> Vocabulary:
    """Return the Vocabulary of the tokenizer in a folder: its tokens with their ids.

    It reads tokenizer.json, or else vocab.txt or vocab.json. Raises Refused for a file
    that is no tokenizer."""
    file = next(filter(Path.exists, (folder / name for name in VOCABULARIES)))
    try:
        tokenizer = load_tokenizer(folder)
        if tokenizer:
            types = tokenizer.encode("a", "b").type_ids
            return Vocabulary(tokenizer.get_vocab(), 1 in types)
    except Exception as error:  # The library raises no narrower class.
        fix = "save the tokenizer again"
        raise lines.make_file_content_error(file, error, "a tokenizer", fix) from None
    return Vocabulary(read_json_object(file), True)


def list_tokenizer_errors(
    tokenizer_ids: TokenizerIds, shape: Shape, config: ConfigJson, task: Task | None
) -> Iterator[ErrorMessage]:
    """Yield a sentence for each fault by which a tokenizer does not fit an encoder.

    Faults are more tokens than embeddings, no token for padding, an id of padding that
    does not fit the positions of RoBERTa or MPNet (their first position is the id of
    padding + 1), and too few token types for pairs of texts. The sentences become an
    error message.

    shape, config: sizes and configuration of the encoder.
    task: the task to be trained; None checks for pairs of texts."""
    if tokenizer_ids.id_count > shape.vocab:
        fix = "fix: model.resize_token_embeddings(len(tokenizer)), and save it again"
        yield (
            f"the tokenizer has {tokenizer_ids.id_count} tokens, "
            f"vocab_size is {shape.vocab}; {fix}"
        )
    if tokenizer_ids.padding_id == -1:
        fix = f"fix: name one as pad_token in {SETTINGS}"
        yield f"the tokenizer has no token for padding; {fix}"
    counts = find_position_offset(shape.family, config) - 1
    if (
        tokenizer_ids.padding_id is not None
        and 0 <= tokenizer_ids.padding_id != counts >= 0
    ):
        ids = f"padding has id {tokenizer_ids.padding_id} in the tokenizer"
        yield f"{ids}, and positions count from id {counts}; fix: {OTHER}"
    if (
        shape.types
        and tokenizer_ids.token_type_count > shape.types
        and (task is None or task.pair)
    ):
        fix = f"fix: take texts without a second one, or {OTHER}"
        yield (
            f"type_vocab_size is {shape.types}, "
            f"and pairs have {tokenizer_ids.token_type_count}; {fix}"
        )


def list_task_head_errors(
    folder: Path,
    header_by_tensor_name: Mapping[TensorName, TensorHeader],
    config: ConfigJson,
    task: Task,
) -> Iterator[ErrorMessage]:
    """Yield one sentence if the task head in a model folder does not fit a task.

    A head fits if it is of the right class and has the task's number of outputs. Its
    class names must be the task's; names such as "LABEL_0" count as none. An encoder
    without a head fits every task. The sentence becomes an error message.

    header_by_tensor_name: {name: {"shape"}} of the weights.
    config: the content of config.json."""
    cls, prefix = HEADS[task.span]
    sizes = {
        name: tensor["shape"][0]
        for name, tensor in header_by_tensor_name.items()
        if name.startswith(prefix) and name.endswith("weight")
    }
    if not sizes:
        return
    saved = " ".join(config.get("architectures") or ["a model without a name"])
    outputs = [*sizes.values()][-1]
    labels = config.get("id2label") or {}
    names = ", ".join(map(str, labels.values()))
    unnamed = ", ".join(f"LABEL_{i}" for i in range(outputs))
    classes = ", ".join(task.labels)
    fault = ""
    if cls not in saved:
        fault = f"its head is that of {saved}"
    elif outputs != task.output_width:
        fault = f"its head has {outputs} outputs; the task needs {task.output_width}"
    elif classes and names and names.lower() not in (classes.lower(), unnamed.lower()):
        fault = f"the head's classes are {names}, the task's {classes}"
    if fault:
        code = f"from transformers import AutoModel as M, AutoTokenizer as T; a = {str(folder)!r}; "
        code += "b = a + '-encoder'; [x.from_pretrained(a).save_pretrained(b) for x in (M, T)]"
        yield f'{fault}; {HEADLESS}: python -c "{code}", then take {folder}-encoder'
