"""This module builds EfficientBERT's supernet, activates parts of it as smaller
networks, and copies its weights to smaller models (section 3.2).

A supernet is one network that contains all candidates of a search. A net is the
description of an architecture, as a JSON dict or as an object whose `to_json` returns
this dict. `convert_architecture_to_json` describes the keys of the dict."""

import re
from typing import Any, TypeAlias

import transformers

from . import backbone
from .options import FACTOR, Refused
from .parts import get_layers, get_recorded_model_changes
from .stack import ArchitectureJson

# Net stands for the class lib.papers.efficientbert.search.net.Net in type hints.
# Exported models contain a copy of this module, but not that class, so it cannot be
# imported here.
Net = Any
BertDefaults: TypeAlias = None
WholeSupernet: TypeAlias = None


def convert_architecture_to_json(
    architecture: Net | ArchitectureJson,
) -> ArchitectureJson:
    """Return the description of an EfficientBERT architecture (a net) as a JSON dict.

    The keys are "hidden" (hidden size), "heads" (number), "width" (largest number of
    inner channels), "embedding" ("plain", or "trigram" where neighbouring tokens are
    embedded too), "mismatch" ("truncate" or "pad" for operands of different widths in a
    formula) and "layers": for each layer [formula such as "W2 gelu(W1 x)", number of
    feed-forward networks, q], where each network has width // q inner channels.

    architecture: an object with the method `to_json`, or the dict itself."""
    return architecture if isinstance(architecture, dict) else architecture.to_json()


def read_architecture_of_model(model: transformers.PreTrainedModel) -> ArchitectureJson:
    """Return the architecture of an EfficientBERT model (its net) as a JSON dict.

    The keys are "hidden" (hidden size), "heads" (number), "width" (largest number of
    inner channels), "embedding" ("plain", or "trigram" where neighbouring tokens are
    embedded too), "mismatch" ("truncate" or "pad" for operands of different widths in a
    formula) and "layers": for each layer [formula such as "W2 gelu(W1 x)", number of
    feed-forward networks, q], where each network has width // q inner channels.
    Raises Refused for a model that has no stacks of feed-forward networks."""
    for op in get_recorded_model_changes(model):
        if op["op"] == "stack":
            return op["net"]
    raise Refused(f"this {type(model).__name__} has no stacks of feed-forward networks")


def build_efficientbert_model(
    architecture: Net | ArchitectureJson,
    model_class: type[transformers.PreTrainedModel] = transformers.BertModel,
    vocabulary_config: transformers.PretrainedConfig | BertDefaults = None,
    **config_values: Any,
) -> transformers.PreTrainedModel:
    """Build a model of an EfficientBERT architecture, with random weights.

    Weights are drawn from a normal distribution with standard deviation 0.02, by
    torch's random state. LayerNorm's eps is PyTorch's 1e-5, as in EfficientBERT's code,
    not BERT's 1e-12.

    architecture: the description of the architecture: hidden size, heads, and the
    feed-forward networks of each layer.
    model_class: the class of transformers, with or without a head.
    vocabulary_config: a configuration from which vocabulary size, number of positions,
    number of token types and padding token are taken instead of BERT's. A number that
    it lacks, as MPNet's lacks that of token types, is 1.
    config_values: further values of the configuration, such as num_labels."""
    architecture = convert_architecture_to_json(architecture)
    tables = (
        "vocab_size",
        "max_position_embeddings",
        "type_vocab_size",
        "pad_token_id",
    )
    sizes: dict[str, Any] = {
        "layer_norm_eps": 1e-5,
        "initializer_range": 0.02,
        "hidden_size": architecture["hidden"],
        "num_hidden_layers": len(architecture["layers"]),
        "num_attention_heads": architecture["heads"],
        "intermediate_size": architecture["width"],
        "hidden_act": "gelu_pytorch_tanh",
    }
    shared: dict[str, Any] = (
        {name: getattr(vocabulary_config, name, 1) for name in tables}
        if vocabulary_config
        else {}
    )
    ops: list[dict[str, Any]] = [{"op": "stack", "net": architecture}]
    if architecture["embedding"] == "trigram":
        ops.insert(0, {"op": "trigram", "width": FACTOR})
    return backbone.build_random_model(
        model_class, transformers.BertConfig(**shared | sizes | config_values), ops
    )


def activate_subnetwork(
    model: transformers.PreTrainedModel,
    architecture: Net | ArchitectureJson | WholeSupernet = None,
) -> None:
    """Let a supernet compute as one of the smaller networks that it contains, in place.

    In each layer only the first feed-forward networks are used, with their first
    channels. `architecture` has the numbers of these networks and channels, and the
    function that each network computes (a formula such as "W2 gelu(W1 x)"). No weight
    is changed. In training, inactive channels get a gradient of zero, so AdamW's
    momentum and weight decay still change them. Inactive networks get no gradient, and
    do not change. Raises Refused where a layer of the supernet has fewer networks or
    channels, or the model has no stacks and `architecture` is None. Raises ValueError
    for another number of layers.

    architecture: the description of the smaller network (a net), as an object or JSON;
    None activates the whole supernet again."""
    architecture = (
        read_architecture_of_model(model)
        if architecture is None
        else convert_architecture_to_json(architecture)
    )
    for layer, (formula, count, q) in zip(
        get_layers(model), architecture["layers"], strict=True
    ):
        layer.output.set_active_subnetwork(
            formula, count, architecture["width"] // q, architecture["mismatch"]
        )


def inherit_weights_and_list_missing_tensors(
    student: transformers.PreTrainedModel, larger_model: transformers.PreTrainedModel
) -> list[str]:
    """Initialise a student with weights of a larger model, in place.

    Of each tensor of the larger model the leading block of the student's size is copied
    (EfficientBERT section 3.2, and its code). So the student gets the first
    feed-forward networks of each layer, and their first channels. A student with m
    times as many layers gets layer i of the larger model m times, as layers m * i to m
    * i + m - 1. The feed-forward block of a plain BERT becomes the first network of a
    layer of EfficientBERT, so the student must not be a plain BERT: its feed-forward
    blocks would inherit nothing.

    In a narrower student, heads mix those of the larger model, as in the authors' code:
    the first 360 of 540 rows are eight heads of 45, which the student reads as twelve
    of 30.

    Returns the names of the student's tensors that the larger model lacks, which are
    not changed. Raises Refused for a tensor or a number of layers that does not fit,
    and for another vocabulary size."""
    words = [m.config.vocab_size for m in (student, larger_model)]
    depths = [len(get_layers(m)) for m in (student, larger_model)]
    times, rest = divmod(*depths)
    if words[0] != words[1] or rest or not times:
        sizes = [*zip(words, depths, strict=True)]
        raise Refused(
            f"words and layers {sizes} of student and source: "
            "take the same vocabulary, and a multiple of the layers"
        )
    # Only models with a head have the prefix of the encoder, such as "bert.".
    source_tensors = {
        convert_bert_to_stack_tensor_name(
            name.removeprefix(f"{larger_model.base_model_prefix}.")
        ): value
        for name, value in larger_model.state_dict().items()
    }
    left = []
    for name, value in student.state_dict().items():
        place = r"(?<=encoder\.layer\.)\d+"
        origin = re.sub(
            place,
            lambda match: str(int(match[0]) // times),
            name.removeprefix(f"{student.base_model_prefix}."),
        )
        if origin not in source_tensors:
            left.append(name)
            continue
        larger = source_tensors[origin]
        block = larger[tuple(map(slice, value.shape))]
        head = name.startswith(("classifier.", "qa_outputs."))
        if block.shape != value.shape or head and value.shape[0] != larger.shape[0]:
            raise Refused(
                f"{name} {[*value.shape]} cannot inherit {[*larger.shape]}: "
                "the source must be at least as large, and have as many outputs"
            )
        value.copy_(block)
    return left


def convert_bert_to_stack_tensor_name(bert_tensor_name: str) -> str:
    """Return the name in EfficientBERT of a tensor of BERT's feed-forward block.

    In EfficientBERT the block becomes the first of a stack of feed-forward networks. By
    this renaming a student can inherit its weights. Other names are returned
    unchanged."""
    parts = {
        "intermediate.dense": "W1",
        "output.dense": "W2",
        "output.LayerNorm": "LayerNorm",
    }
    block = rf"(encoder\.layer\.\d+)\.({'|'.join(map(re.escape, parts))})\."
    return re.sub(
        block,
        lambda match: f"{match[1]}.output.networks.0.{parts[match[2]]}.",
        bert_tensor_name,
    )
