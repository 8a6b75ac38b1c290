"""Backbones: BERT, RoBERTa and ELECTRA through transformers, their parts by role, saving and loading.

Shapes: B batch, T tokens, H hidden, A heads, D head size, F ffn, L layers.

A model that was operated on (`lib.model.surgery`) is saved as `surgery.json` and `weights.safetensors`, without a
`config.json`: a plain `from_pretrained` refuses such a folder instead of filling cut matrices with random numbers.
"""

import copy
import json
import warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

from lib.measure.cost import Shape
from lib.model import surgery as operations

KINDS = ("bert", "roberta", "electra")


def base(model):
    """The encoder under the head: embeddings and L layers."""
    return model.base_model


def layers(model):
    """The L transformer layers, each with `attention.self`, `attention.output`, `intermediate`, `output`."""
    return base(model).encoder.layer


def shape(model):
    """The widths that the model had before any surgery, as the formulas of `lib.measure.cost` take them."""
    c = model.config
    return Shape(
        c.model_type,
        c.num_hidden_layers,
        c.hidden_size,
        c.num_attention_heads,
        c.intermediate_size,
        c.vocab_size,
        c.max_position_embeddings,
        c.type_vocab_size,
        getattr(c, "embedding_size", c.hidden_size),
    )


def embedding_output(model):
    """The module whose output [B, T, H] enters the first layer (ELECTRA projects its embeddings to H)."""
    return getattr(base(model), "embeddings_project", None) or base(model).embeddings


def classifier(folder, outputs, dropout, seed):
    """A model with a head of `outputs` values, and its tokenizer, out of any saved folder.

    A folder whose model already has such a head keeps it; otherwise the head is drawn from `seed`. Outputs: for one
    value a regression. Raises ValueError where the folder's head has another size.
    """
    folder = Path(folder)
    if bare(folder):
        model, tokenizer = headed(
            folder, transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, outputs, seed
        )
    elif (folder / "surgery.json").exists() or "SequenceClassification" in architecture(folder):
        model, tokenizer = load(folder)
        if model.config.num_labels != outputs:
            raise ValueError(
                f"the model in {folder.name} has {model.config.num_labels} outputs; the task needs {outputs}"
            )
    else:
        torch.manual_seed(seed)
        with quiet():
            model = transformers.AutoModelForSequenceClassification.from_pretrained(
                folder,
                num_labels=outputs,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
            )
        model.surgery = []
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    set_dropout(model, dropout)
    return model, tokenizer


def bare(folder):
    """Whether a folder holds an operated encoder without any head."""
    path = Path(folder) / "surgery.json"
    return path.exists() and json.loads(path.read_text())["class"].endswith("Model")


def headed(folder, classes, outputs, seed):
    """(model, tokenizer): a bare encoder under a head drawn from `seed`. classes: transformers' mapping from configurations
    to models with such a head."""
    encoder, tokenizer = load(folder)
    config = copy.deepcopy(encoder.config)
    config.num_labels = outputs
    torch.manual_seed(seed)
    model = build(classes[type(config)], config, encoder.surgery)
    base(model).load_state_dict(encoder.state_dict(), strict=False)  # a head may need no pooler
    return model, tokenizer


def architecture(folder):
    path = Path(folder) / "config.json"
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} has no config.json: it must be a checkpoint folder in Hugging Face layout"
        )
    return " ".join(json.loads(path.read_text()).get("architectures") or [])


def set_dropout(model, rate):
    """Every dropout of the model: hidden, attention and head."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate


def size(model):
    """Parameters of the model as it is: {"parameters"}."""
    return {"parameters": sum(p.numel() for p in model.parameters())}


def save(model, tokenizer, folder):
    """Write a model so that `load` gives the same function back. `folder` None: nobody needs it."""
    if folder is None:
        return
    folder = Path(folder)
    if model.surgery:
        folder.mkdir(parents=True, exist_ok=True)
        body = {
            "class": type(model).__name__,
            "config": model.config.to_dict(),
            "surgery": model.surgery,
        }
        (folder / "surgery.json").write_text(json.dumps(body, indent=1, default=str))
        save_file(
            {k: v.detach().contiguous() for k, v in model.state_dict().items()},
            folder / "weights.safetensors",
        )
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
    if not (folder / "surgery.json").exists():
        known = architecture(folder).split()
        cls = getattr(transformers, known[0]) if known else transformers.AutoModel
        with quiet():
            model = cls.from_pretrained(
                folder, dtype=torch.float32, use_safetensors=True, local_files_only=True
            )
        model.surgery = []
        return model.eval(), tokenizer
    body = json.loads((folder / "surgery.json").read_text())
    cls = getattr(transformers, body["class"])
    model = build(cls, cls.config_class.from_dict(body["config"]), body["surgery"])
    weights = load_file(folder / "weights.safetensors")
    shapes = {k: tuple(v.shape) for k, v in model.state_dict().items()}
    wrong = [
        f"{k} {tuple(weights[k].shape) if k in weights else 'missing'}, expected {shapes.get(k, 'none')}"
        for k in sorted(shapes.keys() | weights.keys())
        if k not in weights or tuple(weights[k].shape) != shapes.get(k)
    ]
    if wrong:
        raise ValueError(
            f"{folder.name}: weights do not fit surgery {body['surgery']}: {'; '.join(wrong[:3])}"
        )
    model.load_state_dict(weights)
    return model.eval(), tokenizer


def build(cls, config, surgery=()):
    """A model with random weights, operated on: for loading, and for proving a Spec at its true size."""
    model = cls(config)
    model.surgery = []
    for op in surgery:
        operations.operate(model, op)
    return model


class quiet(warnings.catch_warnings):
    """transformers reports new heads and shows bars on every load; a run's log says what matters."""

    def __enter__(self):
        self.level = transformers.logging.get_verbosity()
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        return super().__enter__()

    def __exit__(self, *error):
        transformers.logging.set_verbosity(self.level)
        return super().__exit__(*error)
