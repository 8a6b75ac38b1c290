"""A finished model as a folder that anyone can open: Hugging Face layout, ONNX, a model card.

A model of a shape that its class can have is written plainly. Any other one goes beside
`modeling_compressed.py`, which rebuilds it from `config.json` without this library.
"""

import importlib.util
import json
import statistics
import time
import warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lib.export.modeling_compressed import FUNCTIONS
from lib.model import backbone, cut, gates, ghost, masks, mix
from lib.model.parts import FFN1, OUT, QKV, base, layers, linear, size, surgery
from lib.search.formula import LINEAR
from lib.search.net import from_json
from lib.spec import known

CODE = Path(__file__).with_name("modeling_compressed.py")
CLOSE = 1e-4  # what outputs in float32 may differ by
TURNS = 15  # timed passes of each form
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def export(source, folder, onnx=False, int8=False):
    """Write a saved model (a folder of lib.model.backbone) to a new folder, and check what is
    written against it.

    onnx: also as `model.onnx`; int8: also as `model.int8.onnx`. Returns {"forms": {form:
    {"difference": the largest one to the outputs of the saved model, "ms": of CPU, for a row on one
    thread}}, "auto": the class that opens the folder, "remote": whether it needs the folder's code,
    "tokens": of the row, "parameters", "nonzero", "flops"}. Raises ValueError, before anything is
    written, for a model that cannot have a form, and RuntimeError where a form in float32 differs
    by more than CLOSE.
    """
    folder, (model, tokenizer) = Path(folder), backbone.load(source)
    check(model, folder, onnx or int8)
    found, forms = list(batches(model)), {"the run's model": in_torch(model)}
    write(folded(backbone.load(source)[0]), folder)
    tokenizer.save_pretrained(folder)
    name, again = opened(folder)
    forms["this folder"] = in_torch(again)
    if onnx or int8:
        forms["ONNX"] = in_onnx(to_onnx(again, found[0], folder / "model.onnx"))
    if int8:
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(folder / "model.onnx", folder / "model.int8.onnx")
        forms["ONNX, int8"] = in_onnx(folder / "model.int8.onnx")
    told = compared(forms, found)
    for form, each in told.items():
        if not each["difference"] <= CLOSE and "int8" not in form:
            raise RuntimeError(
                f"{form} in {folder} differs from the run's model by {each['difference']:.1e}, "
                f"which is more than rounding ({CLOSE}): do not use it"
            )
    with FlopCounterMode(display=False) as counter:
        forms["this folder"](row(found))
    return {
        "forms": told,
        "auto": name,
        "remote": (folder / CODE.name).exists(),
        "tokens": found[-1]["input_ids"].shape[1],
        "nonzero": sum(int(torch.count_nonzero(weight)) for weight in again.parameters()),
        "flops": counter.get_total_flops(),
        **size(again),
    }


def check(model, folder, onnx):
    """Raises ValueError where a model cannot be written, or not as ONNX."""
    ops, cls = [op["op"] for op in surgery(model)], type(model).__name__
    if "int8" in ops:
        raise ValueError("a model in int8: export the one that it was made of, with --int8")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder with --to, or delete it")
    why = {
        f"a {cls}": cls != "BertForSequenceClassification",
        "a layer mix": "mix" in ops,
        "a ghost convolution 'conv1d_f', which takes one length": fixed(model),
    }
    if onnx and any(why.values()):
        raise ValueError(
            f"no ONNX of {next(what for what, so in why.items() if so)}: only BERT classifiers "
            "have it, whole, cut, pruned, with stacks or other ghosts; leave out --onnx and --int8"
        )
    for package in ("onnx", "onnxruntime") if onnx else ():
        if not importlib.util.find_spec(package):
            raise ValueError(f"{package} is absent: pip install -r requirements-export.txt")


# ---- what is written ----
@torch.no_grad()
def folded(model):
    """The same function with gates, packed and thin matrices written out as plain ones."""
    masks.unpack(model)
    for layer in layers(model):
        inputs = dict.fromkeys(QKV, model.config.hidden_size)
        inputs[OUT] = layer.attention.self.all_head_size
        for name, part in list(layer.named_modules()):
            if isinstance(part, (gates.Gated, cut.Thin)):
                one = torch.eye(inputs.get(name, part.in_features), dtype=torch.double)
                bias = part.double()(0 * one[0])
                own = (nn.Parameter(x.float()) for x in (part(one).T - bias[:, None], bias))
                layer.set_submodule(name, linear(*own))
    if gates.present(model):
        gates.detach(model)
    return model


def described(model):
    """What `modeling_compressed.py` rebuilds a folded model from."""
    ops, parts = {op["op"]: op for op in surgery(model)}, dict(base(model).named_modules())
    told = {"linears": {}, "ghosts": {}}
    for name, part in parts.items():
        if type(part) is nn.Linear:
            told["linears"][name] = list(part.weight.shape)
        if isinstance(part, ghost.Ghosted):
            kernels, kind = list(part.convolution.full), part.convolution.options.kind
            told["ghosts"][name] = {"position": part.position, "kind": kind, "kernels": kernels}
            told["ghosts"][name] |= {"relu": part.relu, "mask": part.padding is not None}
    if "stack" in ops:
        net = from_json(ops["stack"]["net"])
        told["stacks"] = [[nested(layer.tree), layer.stack] for layer in net.layers]
        told["pad"] = net.mismatch == "pad"
    if "trigram" in ops:
        told["trigram"] = ops["trigram"]["width"]
    if found := mix.present(model):
        told |= {"mix": found.norm, "eps": mix.EPS}
    return told


def nested(node):
    """A formula's tree as nested lists. Raises ValueError for an operation of the reader's own: it
    needs a line in FUNCTIONS of `modeling_compressed.py`."""
    known("operation of modeling_compressed.py", node.op, ("x", *LINEAR, *FUNCTIONS))
    return "x" if node.op == "x" else [node.op, *map(nested, node.args)]


def write(model, folder):
    """Write configuration and weights of a folded model, and the code where it needs some."""
    told, config, cls = described(model), model.config, type(model)
    config.num_hidden_layers, first = len(layers(model)), layers(model)[0]
    if "stacks" not in told:
        config.intermediate_size = first.get_submodule(FFN1).out_features
    with torch.device("meta"):
        plain = {name: value.shape for name, value in cls(config).state_dict().items()}
    weights = {name: value.detach().contiguous() for name, value in model.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    if plain == {name: value.shape for name, value in weights.items()}:
        with backbone.quiet():
            return model.save_pretrained(folder)
    for name, part in model.named_modules():
        if isinstance(part, ghost.Convolution):  # as it convolves: after its softmax
            kernels = part.taps().detach().view(part.full).contiguous()
            weights[name.removesuffix("convolution") + "kernels"] = kernels
            del weights[f"{name}.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    code = CODE.read_text().replace("BertForSequenceClassification", cls.__name__)
    (folder / CODE.name).write_text(code)
    classes = {"AutoConfig": "CompressedConfig", auto(cls.__name__): "Compressed"}
    body = config.to_dict() | {"model_type": "compressed", "architectures": ["Compressed"]}
    body |= {"auto_map": {name: f"{CODE.stem}.{own}" for name, own in classes.items()}}
    body.pop("_name_or_path", None)  # a path of this machine
    text = json.dumps(body | {"compression": told}, indent=1, default=str)
    (folder / "config.json").write_text(text + "\n")


def auto(cls):
    """The Auto class that opens a model of this class."""
    head = cls.partition("For")
    return "AutoModel" + "".join(head[1:])


def opened(folder):
    """(name of the Auto class, the model) of an exported folder, opened as anyone would."""
    config = json.loads((folder / "config.json").read_text())
    name = list(config.get("auto_map", {None: 0, auto(config["architectures"][0]): 0}))[1]
    with backbone.quiet():
        cls, more = getattr(transformers, name), {"local_files_only": True}
        return name, cls.from_pretrained(folder, trust_remote_code=True, **more).eval()


# ---- forms, compared ----
def in_torch(model):
    """f(batch) -> all outputs of a model in one row."""

    @torch.inference_mode()
    def run(batch):
        return torch.cat([each.flatten() for each in model(**batch).to_tuple()]).numpy()

    return run


def to_onnx(model, batch, path):
    """Write a classifier as ONNX; rows and tokens of a batch are free. Returns the path."""
    free = {name: {0: "rows", 1: "tokens"} for name in INPUTS} | {"logits": {0: "rows"}}
    names = {"input_names": INPUTS, "output_names": ["logits"], "dynamic_axes": free}
    with backbone.quiet():
        warnings.simplefilter("ignore")  # of the tracer, about what it takes as constant
        torch.onnx.export(model, tuple(batch.values()), path, dynamo=False, **names)
    return path


def in_onnx(path):
    """The same of an ONNX file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    return lambda batch: session.run(None, {k: v.numpy() for k, v in batch.items()})[0].flatten()


def fixed(model):
    """The one number of tokens that a model takes; 0 where it takes any."""
    there = (p.options.tokens for p in model.modules() if isinstance(p, ghost.Convolution))
    return max(there, default=0)


def batches(model, rows=4):
    """Random batches of several lengths, each with one whole row and others that are padded."""
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


def row(found):
    """The whole row of the longest batch."""
    return {name: ids[:1] for name, ids in found[-1].items()}


def compared(forms, found):
    """{form: {"difference", "ms"}} against the first form; the forms take turns on one thread."""
    wanted = [next(iter(forms.values()))(batch) for batch in found]
    told, times = {}, {name: [] for name in forms}
    for name, form in forms.items():
        pairs = zip(found, wanted, strict=True)
        told[name] = {"difference": max(float(abs(form(b) - w).max()) for b, w in pairs)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for name, form in list(forms.items()) * TURNS:
        began = time.process_time()
        form(row(found))
        times[name].append(1e3 * (time.process_time() - began))
    torch.set_num_threads(threads)
    return {name: each | {"ms": statistics.median(times[name])} for name, each in told.items()}
