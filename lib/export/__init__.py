"""A finished model as a folder that anyone can open: Hugging Face layout, ONNX, a model card.

The folder is the one that a run keeps. Where the model was operated on it carries the sources of
`lib.model` beside the weights, so that transformers opens it without this library.
"""

import json
import logging
import shutil
import sys
from functools import partial
from pathlib import Path

import torch
import transformers
from transformers.dynamic_module_utils import get_relative_import_files

from lib.model import backbone, ghost, modeling
from lib.model.parts import size, surgery
from lib.model.surgery import OPERATIONS, function

CLOSE = 1e-4  # what outputs in float32 may differ by
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def export(source, folder, labels=None, onnx=False):
    """Write a saved model (a folder of lib.model.backbone) to a new folder, and check what is
    written against it.

    labels: names of its classes, () for a score, None where it is no classifier. onnx: also as
    `model.onnx`. Returns {"forms": {form: its largest difference to the outputs of the saved
    model}, "auto": the class that opens the folder, "remote": whether it needs the folder's code,
    "parameters"}. Raises, before anything is written, ValueError for a model that cannot
    have a form and ModuleNotFoundError where onnxruntime is absent (requirements-export.txt), and
    RuntimeError where a form differs by more than CLOSE.
    """
    folder, (model, tokenizer) = Path(folder), backbone.load(source)
    check(model, folder, onnx)
    samples = [(batch, outputs(model, batch)) for batch in batches(model)]
    backbone.save(named(backbone.load(source)[0], labels), tokenizer, folder)
    remote = carry(folder)
    name = auto(backbone.architecture(folder))
    more = {"trust_remote_code": True, "local_files_only": True}
    again = getattr(transformers, name).from_pretrained(folder, **more).eval()
    forms, apart = {"this folder": partial(outputs, again)}, {}
    if onnx:
        forms["ONNX"] = in_onnx(again, samples[0][0], folder / "model.onnx")
    for form, run in forms.items():
        most = max(float(abs(run(batch) - wanted).max()) for batch, wanted in samples)
        if not most <= CLOSE:
            why = f"{form} in {folder} differs from the run's model by {most:.1e}, which is more "
            raise RuntimeError(f"{why}than rounding ({CLOSE}): do not use it")
        apart[form] = most
    return {"forms": apart, "auto": name, "remote": remote, **size(again)}


def check(model, folder, onnx):
    """Raise ValueError where a model cannot be written, or not as ONNX."""
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder with --to, or delete it")
    if onnx:
        ops, cls = [op["op"] for op in surgery(model)], type(model).__name__
        if cls != "BertForSequenceClassification" or {"mix", "int8"} & {*ops} or fixed(model):
            changed = f"no ONNX of a {cls} with the changes [{', '.join(ops)}]: leave out --onnx"
            raise ValueError(f"{changed}, or take a BERT classifier without mix, int8, one length")
        import onnxruntime  # noqa: F401


# ---- what is written ----
def named(model, labels):
    """Return the model with the names of its classes in its configuration; labels as `export` has
    them.
    """
    if labels:
        model.config.id2label = dict(enumerate(labels))
        model.config.label2id = {name: number for number, name in enumerate(labels)}
    if labels is not None:
        model.config.problem_type = "single_label_classification" if labels else "regression"
    return model


def carry(folder):
    """Add the sources of an operated model to its folder, and the classes in them to its
    configuration as `auto_map`. Returns whether the model needs them."""
    if not backbone.operated(folder):
        return False
    config, code = backbone.described(folder), Path(modeling.__file__)
    methods = {op["op"] for op in config["surgery"]} - OPERATIONS.keys()
    files = [Path(sys.modules[function(name).__module__].__file__) for name in sorted(methods)]
    for path in (code, *get_relative_import_files(code), *files):
        shutil.copyfile(path, folder / Path(path).name)
    with (folder / code.name).open("a") as file:  # transformers follows imports alone
        file.writelines(f"from .{name} import change  # noqa\n" for name in sorted(methods))
    name = backbone.architecture(folder)
    classes = {"AutoConfig": getattr(modeling, name).config_class.__name__, auto(name): name}
    config["auto_map"] = {key: f"{code.stem}.{cls}" for key, cls in classes.items()}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return True


def auto(cls):
    """Return the Auto class that opens a model of this class."""
    head = cls.partition("For")
    return "AutoModel" + "".join(head[1:])


# ---- forms, compared ----
@torch.no_grad()
def outputs(model, batch):
    """Return all outputs of a model for a batch, in one row."""
    return torch.cat([each.flatten() for each in model(**batch).to_tuple()]).numpy()


def in_onnx(model, batch, path):
    """Return f(batch) -> all outputs of a classifier in one row, which is written as ONNX. Rows and
    tokens of a batch are free.
    """
    import onnxruntime

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision
    free = dict.fromkeys(INPUTS, dict.fromkeys((0, 1), torch.export.Dim.AUTO))
    told = {"input_names": INPUTS, "output_names": ["logits"], "dynamic_shapes": free}
    torch.onnx.export(model, (), path, kwargs=batch, external_data=False, verbose=False, **told)
    session = onnxruntime.InferenceSession(path)
    return lambda batch: session.run(None, {k: v.numpy() for k, v in batch.items()})[0].flatten()


def fixed(model):
    """Return the one number of tokens that a model takes; 0 where it takes any."""
    there = (p.options.tokens for p in model.modules() if isinstance(p, ghost.Convolution))
    return max(there, default=0)


def batches(model, rows=4):
    """Yield random batches of several lengths, each with one whole row and padded others."""
    config, random = model.config, torch.Generator().manual_seed(0)
    most = fixed(model) or min(128, config.max_position_embeddings - 2)
    for tokens in (most,) if fixed(model) else (most // 4, most // 2, most):
        ids = torch.randint(config.vocab_size, (rows, tokens), generator=random)
        ends = torch.randint(2, tokens, (rows, 1), generator=random)
        ends[0] = tokens
        mask = (torch.arange(tokens) < ends).long()
        ids = torch.where(mask.bool(), ids, config.pad_token_id)
        types = (torch.arange(tokens) >= ends // 2) * mask * (config.type_vocab_size > 1)
        yield dict(zip(INPUTS, (ids, mask, types), strict=True))
