"""A compressed encoder in plain PyTorch and transformers: the model that BASE names, with what
`config.compression` changes in it. The weights are those of `model.safetensors`.

    AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)

    linears  {path: shape of a dense layer [O, I]}, all those of the encoder
    ghosts   {path: {"position", "kind", "kernels" (their shape), "relu", "mask"}}
    stacks   for each layer [formula as nested lists, number of networks]; "pad" or truncate
    trigram  width of the token table;  mix: how the mix of the layers normalises, with eps

Shapes: B batch, T tokens, H hidden, C channels, M maps to R maps, K taps, L layers.
"""

from functools import partial

import torch
import transformers
from torch import nn
from torch.nn import functional

BASE = "BertForSequenceClassification"
Base = getattr(transformers, BASE)


class CompressedConfig(Base.config_class):
    model_type = "compressed"


# ---- ghosts: cheap convolutions make more features out of the kept ones ----
def depthwise(x, kernels):
    """x [B, M, T, C], kernels [R, M, C, K]: over the tokens, each channel by itself."""
    outputs, _, channels, taps = kernels.shape
    maps = x.permute(0, 3, 1, 2).flatten(1, 2).unsqueeze(2)
    weight = kernels.permute(2, 0, 1, 3).flatten(0, 1).unsqueeze(2)
    made = functional.conv2d(maps, weight, padding=(0, taps // 2), groups=channels)
    return made.squeeze(2).unflatten(1, (channels, outputs)).permute(0, 2, 3, 1)


def mixed(x, kernels):
    """x [B, M, C, T], kernels [R, M, C, C, K]: over the last axis, all channels mixed."""
    weight = kernels.transpose(1, 2).flatten(2, 3).flatten(0, 1)
    made = functional.conv1d(x.flatten(1, 2), weight, padding=kernels.shape[-1] // 2)
    return made.unflatten(1, (kernels.shape[0], kernels.shape[2]))


CONVOLUTIONS = {
    "dwconv": depthwise,
    "conv1d_s": lambda x, kernels: mixed(x.transpose(2, 3), kernels).transpose(2, 3),
    "conv1d_f": mixed,
    "conv2d": lambda x, kernels: functional.conv2d(x, kernels, padding=kernels.shape[-1] // 2),
}


class Ghost(nn.Module):
    """A layer and its ghosts. real: the mask [B, T] of the batch in work, in a list."""

    def __init__(self, dense, told, real):
        super().__init__()
        self.dense, self.told, self.real = dense, told, real
        self.kernels = nn.Parameter(torch.empty(told["kernels"]))

    def zeroed(self, x):
        """x [B, M, T, C] with zeros at padded tokens; of attention maps columns are tokens too."""
        if not self.told["mask"] or self.real[0] is None:
            return x
        rows = self.real[0].to(x.dtype)[:, None, :, None]
        return x * rows * (rows.transpose(2, 3) if self.told["position"] == "qk" else 1)

    def ghosts(self, x):
        made = CONVOLUTIONS[self.told["kind"]](self.zeroed(x), self.kernels)
        made = self.zeroed(made) if self.told["position"] == "qk" else made
        return made.relu() if self.told["relu"] else made

    def forward(self, x):
        features, heads = self.kernels.shape[:2]
        if self.dense is None:  # the maps of the kept heads, then those of the others
            return torch.cat((x, self.ghosts(x)), 1)
        if features == 1:
            y = self.dense(x)
            return y + self.ghosts(y.unsqueeze(1)).squeeze(1)
        parts = x.unflatten(-1, (heads, -1)).transpose(1, 2)
        each = parts @ self.dense.weight.unflatten(1, (heads, -1)).permute(1, 2, 0)
        return each.sum(1) + self.dense.bias + self.ghosts(each).sum(1)


def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
    """Eager attention whose maps are completed by ghosts (position "qk")."""
    scores = query @ key.transpose(2, 3) * scaling
    scores = scores if attention_mask is None else scores + attention_mask
    maps = functional.dropout(module.ghost(scores.softmax(-1)), dropout, module.training)
    return (maps @ value).transpose(1, 2).contiguous(), maps


def complete(attention, _, output):
    """The hook of a self-attention with ghosts at "v": [B, T, M * D] to [B, T, A * D]."""
    heads = output[0].unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
    return attention.ghost(heads).transpose(1, 2).flatten(2), *output[1:]


# ---- stacks of feed-forward networks of any formula, and the embedding of three neighbours ----
NAMES = "sigmoid tanh relu leaky_relu elu add mul".split()
FUNCTIONS = {name: getattr(functional, name, None) or getattr(torch, name) for name in NAMES}
FUNCTIONS |= {"swish": functional.silu, "max": torch.maximum}
FUNCTIONS |= {"gelu": partial(functional.gelu, approximate="tanh")}
PADDING = {"mul": 1.0, "max": -float("inf")}


def evaluate(tree, x, network, pad):
    """A formula as nested lists, ["W2", ["gelu", ["W1", "x"]]], of x [B, T, H]."""
    if tree == "x":
        return x
    name, *parts = tree
    args = [evaluate(part, x, network, pad) for part in parts]
    if name in network:
        return network[name](*args)
    narrow, wide = min(a.shape[-1] for a in args), max(a.shape[-1] for a in args)
    if narrow < wide and pad:
        fill = PADDING.get(name, 0.0)
        args = [functional.pad(a, (0, wide - a.shape[-1]), value=fill) for a in args]
    return FUNCTIONS[name](*(a if pad else a[..., :narrow] for a in args))


class Stack(nn.Module):
    """In place of a layer's output block: k times LayerNorm(x + f(x))."""

    def __init__(self, config, tree, count, pad):
        super().__init__()
        self.tree, self.pad, self.networks = tree, pad, nn.ModuleList()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        for _ in range(count):
            norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
            self.networks.append(nn.ModuleDict({"LayerNorm": norm}))

    def forward(self, _, x):
        for network in self.networks:
            found = evaluate(self.tree, x, network, self.pad)
            x = network["LayerNorm"](x + self.dropout(found))
        return x


class Trigram(nn.Module):
    """Embeddings of the next token, the token and the one before, through a dense layer."""

    def __init__(self, config, width):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, width, config.pad_token_id)
        self.dense = nn.Identity()

    def forward(self, ids):
        x = self.word_embeddings(ids)
        after = functional.pad(x[:, 1:], (0, 0, 0, 1))
        return self.dense(torch.cat((after, x, functional.pad(x[:, :-1], (0, 0, 1, 0))), -1))


# ---- a mix of the layers in place of the last state ----
class Mix(nn.Module):
    """gamma * the sum of softmax(alpha)_j norm(h_j) over the L + 1 states h_j [B, T, H]."""

    def __init__(self, states, norm, eps, real):
        super().__init__()
        self.norm, self.eps, self.real, self.seen = norm, eps, real, []
        names = ["alpha"] + ["scale", "shift"] * (norm == "layers_affine")
        for name in names:
            self.register_parameter(name, nn.Parameter(torch.ones(states)))
        self.gamma = nn.Parameter(torch.ones(()))

    def normal(self, states):
        if self.norm == "none":
            return states
        if self.norm == "channels":
            return [functional.layer_norm(h, h.shape[-1:], eps=self.eps) for h in states]
        if self.norm == "tokens":
            ones = torch.ones_like(states[0][..., 0])
            real = (ones if self.real[0] is None else self.real[0].to(ones.dtype)).unsqueeze(-1)
            number = real.sum() * states[0].shape[-1]
            centred = [h - (h * real).sum() / number for h in states]
            return [c / ((c * real).square().sum() / number + self.eps).sqrt() for c in centred]
        mean = sum(states) / len(states)
        rate = (sum((h - mean).square() for h in states) / len(states) + self.eps).rsqrt()
        found = [(h - mean) * rate for h in states]
        if self.norm == "layers":
            return found
        return [h * self.scale[j] + self.shift[j] for j, h in enumerate(found)]

    def keep(self, _, __, output):
        self.seen.append(output[0] if isinstance(output, tuple) else output)

    def replace(self, _, __, output):
        states, self.seen = self.normal(self.seen), []
        mixed = sum(a * h for a, h in zip(self.alpha.softmax(0), states, strict=True))
        output["last_hidden_state"] = self.gamma * mixed
        return output


class Compressed(Base):
    config_class = CompressedConfig

    def __init__(self, config):
        super().__init__(config)
        encoder, told, real = self.base_model, config.compression, [None]
        embeddings, there = encoder.embeddings, encoder.encoder.layer

        def read(_, args, kwargs):
            real[0] = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)

        encoder.register_forward_pre_hook(read, with_kwargs=True)
        for layer, (tree, count) in zip(there, told.get("stacks", ()), strict=False):
            layer.intermediate = nn.Identity()
            layer.output = Stack(config, tree, count, told["pad"])
        if "trigram" in told:
            embeddings.word_embeddings = Trigram(config, told["trigram"])
        for path, ghost in told["ghosts"].items():
            parent, _, name = path.rpartition(".")
            parent = encoder.get_submodule(parent)
            setattr(parent, name, Ghost(getattr(parent, name, None), ghost, real))
            if ghost["position"] == "v":
                parent.register_forward_hook(complete)
            if ghost["position"] == "qk":
                mask = transformers.masking_utils.eager_mask
                transformers.AttentionInterface.register("compressed", attend)
                transformers.AttentionMaskInterface.register("compressed", mask)
                self.set_attn_implementation("compressed")
        for path, (outputs, inputs) in told["linears"].items():
            encoder.set_submodule(path, nn.Linear(inputs, outputs))
        for layer in there:
            attention = layer.attention.self
            attention.all_head_size = attention.query.out_features
            attention.num_attention_heads = attention.all_head_size // attention.attention_head_size
        if "mix" in told:
            encoder.mix = Mix(len(there) + 1, told["mix"], told["eps"], real)
            first = getattr(encoder, "embeddings_project", embeddings)
            for part in (first, *there):
                part.register_forward_hook(encoder.mix.keep)
            encoder.encoder.register_forward_hook(encoder.mix.replace)
