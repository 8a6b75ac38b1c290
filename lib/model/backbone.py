"""Backbones: BERT, RoBERTa and ELECTRA through transformers, opened and saved in one place.

A model that was operated on (`lib.model.surgery`) is saved as `surgery.json` and
`weights.safetensors`, without a `config.json`: a plain `from_pretrained` refuses such a folder
instead of filling cut matrices with random numbers.
"""

import copy
import json
import warnings
from dataclasses import astuple
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from lib.measure.cost import CONFIG
from lib.model.parts import base, set_dropout, surgery
from lib.model.surgery import operate

OPERATED, WEIGHTS = "surgery.json", "weights.safetensors"
PLAIN = {"dtype": torch.float32, "use_safetensors": True, "local_files_only": True}


def headed(folder, head, outputs, dropout, seed):
    """A model with a head, and its tokenizer, out of any saved folder.

    head: "SequenceClassification" or "QuestionAnswering". A folder whose model has such a head
    keeps it; otherwise the head is drawn from `seed`. outputs: one value is a regression. dropout:
    the rate everywhere. Raises ValueError where the folder's head is another, or has another size.
    """
    folder, cls = Path(folder), architecture(folder)
    if head in cls:
        model, tokenizer = load(folder)
        if model.config.num_labels != outputs:
            raise ValueError(
                f"the model in {Path(folder).name} has {model.config.num_labels} outputs; the task "
                f"needs {outputs}"
            )
    elif not (folder / OPERATED).exists():
        torch.manual_seed(seed)
        with quiet():
            auto = getattr(transformers, f"AutoModelFor{head}")
            model = auto.from_pretrained(folder, num_labels=outputs, **PLAIN)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    elif cls.endswith("Model"):
        encoder, tokenizer = load(folder)
        config, wanted = copy.deepcopy(encoder.config), cls.removesuffix("Model") + "For" + head
        config.num_labels = outputs
        torch.manual_seed(seed)
        model = build(getattr(transformers, wanted), config, surgery(encoder))
        base(model).load_state_dict(encoder.state_dict(), strict=False)  # a head may need no pooler
    else:
        raise ValueError(
            f"the model in {folder.name} is a {cls}; the task needs a head for {head}: start from "
            "an encoder, or from a model of such a task"
        )
    set_dropout(model, dropout)
    return model, tokenizer


def architecture(folder):
    """The class name, or names, of the model in a folder; "" where it does not say.

    Raises FileNotFoundError where there is no model.
    """
    folder = Path(folder)
    if (folder / OPERATED).exists():
        return json.loads((folder / OPERATED).read_text())["class"]
    if not (folder / "config.json").exists():
        raise FileNotFoundError(
            f"{folder} has no config.json: it must be a checkpoint folder in Hugging Face layout"
        )
    return " ".join(json.loads((folder / "config.json").read_text()).get("architectures") or [])


def save(model, tokenizer, folder):
    """Write a model so that `load` gives the same function back. `folder` None: nobody needs it."""
    if folder is None:
        return
    folder = Path(folder)
    if surgery(model):
        folder.mkdir(parents=True, exist_ok=True)
        body = {
            "class": type(model).__name__,
            "config": {k: v for k, v in model.config.to_dict().items() if k != "_name_or_path"},
            "surgery": surgery(model),
        }
        (folder / OPERATED).write_text(json.dumps(body, indent=1, default=str))
        tensors = {k: v.detach().contiguous() for k, v in model.state_dict().items()}
        save_file(tensors, folder / WEIGHTS)
    else:
        with quiet():
            model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load(folder):
    """A saved model of the class it was saved as, in float32 and eval mode, and its tokenizer.

    Raises ValueError where weights and surgery disagree, naming the first tensors.
    """
    folder = Path(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    cls = getattr(transformers, (architecture(folder).split() or ["AutoModel"])[0])
    if not (folder / OPERATED).exists():
        with quiet():
            return cls.from_pretrained(folder, **PLAIN).eval(), tokenizer
    body = json.loads((folder / OPERATED).read_text())
    model = build(cls, cls.config_class.from_dict(body["config"]), body["surgery"])
    weights = load_file(folder / WEIGHTS)
    found, expected = (
        {name: tuple(value.shape) for name, value in tensors.items()}
        for tensors in (weights, model.state_dict())
    )
    wrong = [
        f"{name} {found.get(name, 'missing')}, expected {expected.get(name, 'none')}"
        for name in sorted({name for name, _ in found.items() ^ expected.items()})
    ]
    if wrong:
        raise ValueError(
            f"{folder.name}: weights do not fit surgery {body['surgery']}: {'; '.join(wrong[:3])}"
        )
    model.load_state_dict(weights)
    return model.eval(), tokenizer


def configuration(shape, **more):
    """The transformers configuration of a Shape (`lib.measure.cost`), with more fields."""
    if shape.family == "electra":
        more["embedding_size"] = shape.embedding
    family, *sizes, _ = astuple(shape)
    more |= zip(CONFIG[1:], sizes, strict=True)
    return transformers.AutoConfig.for_model(family, **more)


def build(cls, config, surgery=()):
    """A model with random weights, operated on."""
    model = cls(config)
    for op in surgery:
        operate(model, op)
    return model


class quiet(warnings.catch_warnings):
    """Within, transformers reports no new heads and shows no bars; a run's log says enough."""

    def __enter__(self):
        self.level = transformers.logging.get_verbosity()
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        return super().__enter__()

    def __exit__(self, *error):
        transformers.logging.set_verbosity(self.level)
        return super().__exit__(*error)
