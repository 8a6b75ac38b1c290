"""This module exports a trained model as a folder that transformers can open, and as
ONNX on request.

The folder has the format of the `model` folder of a run. Where a model was pruned or
otherwise changed (lib.model.surgery), the sources of `lib.model` are copied beside its
weights, so that transformers opens it without this library."""

from __future__ import annotations

import ast
import inspect
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
import transformers
from transformers import PreTrainedModel
from transformers.dynamic_module_utils import get_relative_import_files

from lib.core.names import Refused
from lib.export import check_export_folder_is_empty, check_onnx_packages
from lib.model import backbone, ghost, modeling
from lib.model.parts import count_parameters, get_recorded_model_changes
from lib.model.surgery import OPERATIONS, find_surgery_function

if TYPE_CHECKING:
    from lib.core.types import Json

    # {"forms": {form: largest difference of outputs}, "auto", "remote", "parameters"}.
    ExportReport = Json
    FlatArray = np.ndarray
    WasCopied = bool
    NoClassifier: TypeAlias = None
    AnyLength: TypeAlias = None

# Largest absolute difference that is allowed between the float32 outputs of the
# exported model and those of the saved one. Rounding errors are smaller.
CLOSE = 1e-4
# For int8 models, the allowed difference as a share of the largest output. A rounding
# error can move an activation to the next integer, so another attention kernel of
# PyTorch changes outputs of MiniLM by 4 %. A wrong graph changes them by about 100 %.
EDGE = 0.1
# Inputs of a model, in the order of its arguments. Models without token types (MPNet,
# DistilBERT) take the first two.
INPUTS = "input_ids", "attention_mask", "token_type_ids"

# Classes of models that can be written as ONNX.
ONNX = tuple(
    f"{family}ForSequenceClassification" for family in ("Bert", "MPNet", "DistilBert")
)


def export_model(
    model_folder: str | Path,
    export_folder: str | Path,
    class_names: Sequence[str] | NoClassifier = None,
    writes_onnx: bool = False,
) -> ExportReport:
    """Write a trained model to a new folder that transformers can open, and check it.

    The check compares outputs of the saved model with those of the model that is opened
    from the new folder. Return {"forms": {"this folder" or "ONNX": largest absolute
    difference of its outputs from those of the saved model}, "auto": name of the Auto
    class that opens the folder, "remote": whether it needs `trust_remote_code`,
    "parameters": their number}.

    Raises Refused, before anything is written, where the folder is not empty, the model
    cannot be written as ONNX, or packages are missing. Raises Refused, after the files
    are written, where outputs differ by more than 1e-4, or in ONNX of an int8 model by
    more than a tenth of the largest output.

    model_folder: the folder of the saved model.
    export_folder: the new folder.
    class_names: the names of the classes; () for a regression; None where the model has
    no classification head.
    writes_onnx: whether `model.onnx` is written too."""
    folder, (model, tokenizer) = Path(export_folder), backbone.load(model_folder)
    check_model_can_be_exported(model, folder, writes_onnx)
    samples = [
        (batch, compute_outputs_as_one_array(model, batch))
        for batch in sample_random_batches(model)
    ]
    backbone.save(
        backbone.set_class_names_and_problem_type(model, class_names), tokenizer, folder
    )
    remote = add_model_code_to_export(folder)
    name = find_auto_class_name(backbone.read_model_class_name(folder))
    more = {"trust_remote_code": True, "local_files_only": True}
    with backbone.silence_transformers_logging():
        again = getattr(transformers, name).from_pretrained(folder, **more).eval()
    forms, apart = {"this folder": partial(compute_outputs_as_one_array, again)}, {}
    if writes_onnx:
        forms["ONNX"] = write_onnx_and_make_runner(
            again, samples[0][0], folder / "model.onnx"
        )
    for form, run in forms.items():
        most = max(
            float(abs(run(batch) - expected).max()) for batch, expected in samples
        )
        limit = CLOSE
        if form == "ONNX" and any(
            op["op"] == "int8" for op in get_recorded_model_changes(model)
        ):
            limit = EDGE * max(float(abs(expected).max()) for _, expected in samples)
        if not most <= limit:
            why = f"{form} in {folder} differs from the run's model by {most:.1e}, which is more "
            raise Refused(f"{why}than rounding ({limit:.1g}): do not use it")
        apart[form] = most
    return {"forms": apart, "auto": name, "remote": remote, **count_parameters(again)}


def check_model_can_be_exported(
    model: PreTrainedModel, export_folder: Path, writes_onnx: bool
) -> None:
    """Raise Refused where a model cannot be exported, before anything is written.

    That is so where the new folder is not empty, and where the file of a pruning method
    imports this project. With `writes_onnx` it is also so where the
    model is no classifier of a supported family, has parts that cannot be written as
    ONNX, or packages are missing."""
    check_export_folder_is_empty(export_folder)
    ops = [op["op"] for op in get_recorded_model_changes(model)]
    for name in sorted({*ops} - OPERATIONS.keys()):
        check_method_does_not_import_lib(
            Path(inspect.getfile(find_surgery_function(name)))
        )
    if writes_onnx:
        cls = type(model).__name__
        if cls not in ONNX or "mix" in ops or find_fixed_sequence_length(model):
            changed = f"no ONNX of a {cls} with the changes [{', '.join(ops)}]: leave out --onnx"
            other = "take a classifier of a BERT, MPNet or DistilBERT without mix, one length"
            raise Refused(f"{changed}, or {other}")
        check_onnx_packages()


def add_model_code_to_export(export_folder: Path) -> WasCopied:
    """Copy the code of a pruned or otherwise changed model into its exported folder.

    So transformers opens it with `trust_remote_code` and without this project. An
    `auto_map` in the configuration says which class opens it. Return whether code was
    copied; a model of a standard architecture needs none.

    export_folder: the exported folder, which has the configuration and the weights."""
    if not backbone.has_recorded_model_changes(export_folder):
        return False
    config, code = backbone.read_configuration(export_folder), Path(modeling.__file__)
    methods = sorted({op["op"] for op in config["surgery"]} - OPERATIONS.keys())
    files = [inspect.getfile(find_surgery_function(name)) for name in methods]
    for path in (code, *get_relative_import_files(code), *files):
        shutil.copy(path, export_folder)
    # Import the modules of pruning methods, as transformers copies only imported files.
    with (export_folder / code.name).open("a") as file:
        file.writelines(f"from .{name} import prune  # noqa\n" for name in methods)
    name = backbone.read_model_class_name(export_folder)
    config_class = getattr(modeling, name).config_class.__name__
    classes = {"AutoConfig": config_class, find_auto_class_name(name): name}
    config["auto_map"] = {key: f"{code.stem}.{cls}" for key, cls in classes.items()}
    (export_folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return True


def check_method_does_not_import_lib(method_file: Path) -> None:
    """Raise Refused if a pruning method needs this project when a model is opened.

    An exported model has the method's file where the project is missing. Imports for
    type checkers alone, and in other functions than `prune`, may stay."""
    statements: list[ast.AST] = [*ast.parse(method_file.read_text()).body]
    for function in statements[:]:
        if isinstance(function, ast.FunctionDef) and function.name == "prune":
            statements += ast.walk(function)
    for node in statements:
        text = (
            ast.unparse(node) if isinstance(node, (ast.Import, ast.ImportFrom)) else ""
        )
        if re.match(r"(from|import) lib\b", text):
            raise Refused(
                f"{method_file.name}: `{text}`: an exported model opens where lib is not "
                "installed; copy what the method needs into its file"
            )


def find_auto_class_name(model_class_name: str) -> str:
    """Return the name of transformers' Auto class that opens a model of a given class.

    For "BertForSequenceClassification" it is "AutoModelForSequenceClassification"."""
    _, head, task = model_class_name.partition("For")
    return f"AutoModel{head}{task}"


@torch.no_grad()
def compute_outputs_as_one_array(
    model: PreTrainedModel, batch: Mapping[str, torch.Tensor]
) -> FlatArray:
    """Return all outputs of a model for a batch in one flat array.

    The outputs of two models are compared in this form.

    batch: {input: tensor [B, T]}, such as "input_ids" and "attention_mask"."""
    return torch.cat([output.flatten() for output in model(**batch).to_tuple()]).numpy()


def write_onnx_and_make_runner(
    model: PreTrainedModel, example_batch: dict[str, torch.Tensor], onnx_path: Path
) -> Callable[[Mapping[str, torch.Tensor]], FlatArray]:
    """Write a classifier as an ONNX file, and return a function that runs the file.

    The function takes a batch {input: tensor [B, T]} and returns the logits in one flat
    array, so that they can be compared with those of the model.

    example_batch: a batch by which the model is traced; the file accepts any B and
    T."""
    import onnxruntime
    from onnxscript import opset18

    def make_int8_matmul_node(a: Any, b: Any) -> Any:
        """Return the ONNX node for the product of two int8 matrices, summed in int32.

        PyTorch's exporter has no translation of this product, which quantised layers
        use."""
        return opset18.MatMulInteger(a, b)

    # Hide a warning that torchvision is missing; it is not needed.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    free = dict.fromkeys(example_batch, dict.fromkeys((0, 1), torch.export.Dim.AUTO))
    options: dict[str, Any] = {
        "input_names": [*example_batch],
        "output_names": ["logits"],
        "dynamic_shapes": free,
        "custom_translation_table": {
            torch.ops.aten._int_mm.default: make_int8_matmul_node
        },
    }
    torch.onnx.export(
        model,
        (),
        onnx_path,
        kwargs=example_batch,
        external_data=False,
        verbose=False,
        **options,
    )
    session = onnxruntime.InferenceSession(onnx_path)
    return lambda batch: session.run(None, {k: v.numpy() for k, v in batch.items()})[
        0
    ].flatten()


def find_fixed_sequence_length(model: PreTrainedModel) -> int | AnyLength:
    """Return the number of tokens that all inputs of a model must have; None for any.

    Only a ghost module of kind "conv1d_f" (GhostBERT) fixes it. It is a convolution
    over features, whose channels are the tokens."""
    lengths = (
        p.options.tokens for p in model.modules() if isinstance(p, ghost.Convolution)
    )
    return max(lengths, default=None)


def sample_random_batches(model: PreTrainedModel) -> Iterator[dict[str, torch.Tensor]]:
    """Yield random batches by which the outputs of two models are compared.

    A batch is {"input_ids", "attention_mask" and, if the model has them,
    "token_type_ids": int64 [4, T]}. T takes several values up to 128, or the
    one that the model allows. The first row has T tokens; the others are shorter and
    padded. The batches are the same in each call."""
    config, random = model.config, torch.Generator().manual_seed(0)
    fixed = find_fixed_sequence_length(model)
    most = min(128, config.max_position_embeddings - 2)
    for tokens in [fixed] if fixed else [most // 4, most // 2, most]:
        ids = torch.randint(config.vocab_size, (4, tokens), generator=random)
        ends = torch.randint(2, tokens, (4, 1), generator=random)
        ends[0] = tokens
        mask = (torch.arange(tokens) < ends).long()
        ids = torch.where(mask.bool(), ids, config.pad_token_id)
        kinds = getattr(config, "type_vocab_size", 0)
        types = (torch.arange(tokens) >= ends // 2) * mask * (kinds > 1)
        yield dict(zip(INPUTS, (ids, mask, types)[: 2 + (kinds > 0)], strict=False))
