"""This step pre-trains a small BERT on generated text, for the profile toy, which needs
no download.

The model takes the place of a published checkpoint. It learns masked words and next
sentences (Devlin et al. 2019, section 3.1)."""

from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
import transformers
from torch.nn import functional

from lib.core.names import derive_seed
from lib.core.options import Train
from lib.core.store import RunWriter
from lib.core.types import Json, LossTerm
from lib.data import Split, grammar, toy
from lib.model import backbone
from lib.model.parts import count_parameters, get_encoder
from lib.stats.cost import Shape, build_transformers_config
from lib.stats.metrics import Metrics
from lib.train import loop
from lib.train.batches import EncodedRows, encode_split

# {"share": share of all tokens that are predicted; "hidden": share of the predicted
# tokens that the model sees as [MASK]; "replaced": share of them that it sees as a
# random word}.
ShareHiddenAndReplaced: TypeAlias = dict[str, float]
SentenceCountAndSeed: TypeAlias = Json  # {"sentences", "seed"} of a generated text.
BertSizes: TypeAlias = Json  # {"layers", "hidden", "heads", "ffn", "init"}.


class SentencePairs(NamedTuple):
    first_sentences: list[str]
    second_sentences: list[str]
    labels: np.ndarray  # [N]: 0 where the second sentence follows the first, else 1.


class MaskedBatch(NamedTuple):
    batch: loop.Batch
    true_token_ids: torch.Tensor  # Original ids of the n tokens to predict: [n].
    predicted_token_mask: torch.Tensor  # True at the tokens to predict: bool [B, T].


def pretrain(
    run: RunWriter,
    corpus: SentenceCountAndSeed,
    model: BertSizes,
    objective: ShareHiddenAndReplaced,
    numerics: loop.SettingsJson,
    train: loop.SettingsJson | None = None,
) -> Metrics:
    """Pre-train a BERT of any size on generated text, which needs no download.

    It learns masked words and next sentences, and takes the place of a published
    checkpoint. The model is saved. Returns {"parameters": their number, "vocabulary":
    number of tokens in it}. Where it is trained, the dict also has "passages" (number
    of training texts) and the metrics of the training, such as "steps".

    run: the folder of this run, for writing, and its seed.
    corpus: {"sentences": their number, "seed": the seed from which the text is drawn}.
    model: {"layers", "hidden", "heads", "ffn": sizes, "init": standard deviation of
    weights}.
    objective: {"share": share of tokens to predict, "hidden": share of these that are
    shown as [MASK], "replaced": share of these that are shown as a random token}.
    numerics: dtype, number of threads and device.
    train: settings of the training. None keeps random weights, as a control without
    pre-training."""
    arithmetic = loop.set_dtype_threads_and_device(numerics)
    training = Train(**train) if train else None
    tokenizer = write_toy_grammar_tokenizer(run.folder / "vocabulary")
    dropout = training.dropout if training else 0.0
    torch.manual_seed(derive_seed(run.seed, "init"))
    hidden = model["hidden"]
    sizes = model["layers"], hidden, model["heads"], model["ffn"]
    # 128 is the largest number of tokens of an input, 2 the number of token types.
    shape = Shape("bert", *sizes, len(tokenizer), 128, 2, hidden)
    rates = dict.fromkeys(
        ("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout
    )
    config = build_transformers_config(shape, initializer_range=model["init"], **rates)
    network = backbone.build_random_model(transformers.BertForPreTraining, config)
    result = {}
    if training:
        encoded = encode_generated_sentence_pairs(
            tokenizer, corpus, run.seed, training.max_length
        )
        assert encoded.labels is not None and isinstance(
            network, transformers.BertForPreTraining
        )
        loss = build_pretraining_loss(network, tokenizer, objective, encoded.labels)
        result = {"passages": len(encoded)} | loop.fit(
            run, network, encoded, loss, training, arithmetic
        )
    backbone.save(network, tokenizer, run.model_folder)
    return result | count_parameters(network) | {"vocabulary": len(tokenizer)}


def write_toy_grammar_tokenizer(
    folder: Path,
) -> transformers.PreTrainedTokenizerFast:
    """Write a BERT tokenizer for generated text to a folder, and return it.

    It has one token for each word form of the grammar that generates the text
    (lib.data.grammar), so that every word is one token."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(grammar.list_vocabulary()) + "\n")
    # pyrefly: ignore[missing-attribute]  # transformers defines this name lazily.
    return transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)


def encode_generated_sentence_pairs(
    tokenizer: transformers.PreTrainedTokenizerFast,
    corpus: SentenceCountAndSeed,
    seed: int,
    max_length: int,
) -> EncodedRows:
    """Generate text, and return tokenised pairs of its sentences for pre-training.

    The label is 0 where the second sentence of a pair follows the first, and else 1.

    corpus: {"sentences": their number, "seed": the seed from which the text is drawn}.
    seed: the seed from which the pairs are drawn.
    max_length: the number of tokens to which longer pairs are cut."""
    first, second, follows = sample_sentence_pairs(
        toy.generate_passages(corpus["sentences"], corpus["seed"]), seed
    )
    split = Split(first, second, follows, np.arange(len(first)))
    return encode_split(tokenizer, split, max_length)


def sample_sentence_pairs(two_sentence_passages: list[str], seed: int) -> SentencePairs:
    """Make pairs of sentences for BERT's next-sentence prediction.

    Returns (first sentences, second sentences, labels [N]); the label is 0 where the
    second sentence follows the first, and else 1. Every other passage, from the first
    on, gets a second sentence of another passage. Eight passages are drawn at random,
    and the second sentence with the largest share of words that are in the first
    sentence is taken. So common words do not reveal the label. By chance the passage's
    own sentence may be taken; the label is then 0.

    two_sentence_passages: N passages of two sentences."""
    random = np.random.default_rng(derive_seed(seed, "passages"))
    first, rest = zip(
        *(text.split(" . ") for text in two_sentence_passages), strict=True
    )
    second, follows = list(rest), np.zeros(len(rest), np.int64)
    bags = [set(b.split()) for b in rest]
    for i in range(0, len(rest), 2):
        first_bag = set(first[i].split())
        others = random.integers(len(rest), size=8)
        best = max(others, key=lambda j: len(first_bag & bags[j]) / len(bags[j]))
        second[i], follows[i] = rest[best], int(rest[best] != rest[i])
    return SentencePairs([one + " ." for one in first], second, follows)


def mask_tokens(
    batch: loop.Batch,
    tokenizer: transformers.PreTrainedTokenizerFast,
    masking_shares: ShareHiddenAndReplaced,
) -> MaskedBatch:
    """Mask tokens of a batch at random, for masked language modelling.

    Returns (batch with masked ids, true ids [n] of the n tokens to predict, bool [B, T]
    that is True at these tokens). Special tokens are never chosen. Random numbers come
    from PyTorch's global random state, which checkpoints save, so that a resumed
    training masks the same tokens.

    masking_shares: {"share": share of tokens to predict, "hidden": share of these that
    are shown as [MASK], "replaced": share of these that are shown as a random
    token}."""
    ids = batch["input_ids"]
    special = torch.tensor(tokenizer.all_special_ids, device=ids.device)
    draw = torch.rand(ids.shape).to(ids.device) / masking_shares["share"]
    chosen = (draw < 1) & ~torch.isin(ids, special)
    other = torch.randint(len(tokenizer), ids.shape).to(ids.device)
    shown = torch.where(
        draw < masking_shares["hidden"] + masking_shares["replaced"], other, ids
    )
    shown = torch.where(draw < masking_shares["hidden"], tokenizer.mask_token_id, shown)
    masked = batch | {"input_ids": torch.where(chosen, shown, ids)}
    return MaskedBatch(masked, ids[chosen], chosen)


def build_pretraining_loss(
    network: transformers.BertForPreTraining,
    tokenizer: transformers.PreTrainedTokenizerFast,
    masking_shares: ShareHiddenAndReplaced,
    next_sentence_labels: torch.Tensor,
) -> loop.LossFunction:
    """Make the loss of BERT's pre-training, for masked tokens and next sentences.

    It is f(batch, row numbers) -> {"masked": cross-entropy of the masked tokens,
    "next": that of the next-sentence labels, "loss": their sum}.

    masking_shares: {"share": share of tokens to predict, "hidden": share of these that
    are shown as [MASK], "replaced": share of these that are shown as a random token}.
    next_sentence_labels: [N], 0 where the second sentence of a row follows the
    first."""

    def compute_loss(
        batch: loop.Batch, training_row_numbers: np.ndarray
    ) -> dict[LossTerm, torch.Tensor]:
        masked, true_ids, chosen = mask_tokens(batch, tokenizer, masking_shares)
        out = get_encoder(network)(**masked)
        words = network.cls.predictions(out.last_hidden_state[chosen])
        which = network.cls.seq_relationship(out.pooler_output).float()
        parts = {
            "masked": functional.cross_entropy(words.float(), true_ids),
            "next": functional.cross_entropy(
                which, next_sentence_labels[training_row_numbers].to(which.device)
            ),
        }
        return {"loss": parts["masked"] + parts["next"], **parts}

    return compute_loss
