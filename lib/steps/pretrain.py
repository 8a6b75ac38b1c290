"""Step: pre-training of a small encoder on the generated corpus, as BERT's: masked words and next sentence.

The toy world's stand-in for a published checkpoint (Devlin et al. 2019, section 3.1).
"""

import numpy as np
import torch
import transformers
from torch.nn import functional

from lib.data import Split, grammar, toy
from lib.model import backbone
from lib.options import MaskedLM
from lib.spec import stream
from lib.train import loop
from lib.train.batches import encode


def pretrain(run, corpus, model, objective, train, numerics):
    """corpus: {"sentences", "seed"}; model: {"family", "layers", "hidden", "heads", "ffn"}."""
    numerics, train = loop.options(numerics, train)
    options = MaskedLM(**objective)
    tokenizer = words(run.folder / "vocabulary")
    first, second, follows = passages(toy.corpus(corpus["sentences"], corpus["seed"]), run.seed)
    encoded = encode(tokenizer, Split(first, second, follows, None), train.max_length)

    torch.manual_seed(stream(run.seed, "init"))
    network = backbone.build(transformers.BertForPreTraining, transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=model["hidden"], num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"], intermediate_size=model["ffn"], max_position_embeddings=128,
        initializer_range=model["init"], hidden_dropout_prob=train.dropout, attention_probs_dropout_prob=train.dropout))
    special = torch.tensor(tokenizer.all_special_ids)

    def loss(batch, rows):
        ids, chosen = batch["input_ids"], None
        masked, chosen = mask(ids, special.to(ids.device), len(tokenizer), tokenizer.mask_token_id, options)
        out = backbone.base(network)(**batch | {"input_ids": masked})
        words = network.cls.predictions(out.last_hidden_state[chosen])
        parts = {"masked": functional.cross_entropy(words.float(), ids[chosen])}
        if options.next_sentence:
            which = network.cls.seq_relationship(out.pooler_output)
            parts["next"] = functional.cross_entropy(which.float(), encoded.labels[rows].to(ids.device))
        return {"loss": sum(parts.values()), **parts}

    result = loop.fit(run, network, encoded, loss, train, numerics)
    backbone.save(network, tokenizer, run.model)
    return result | backbone.size(network) | {"vocabulary": len(tokenizer), "passages": len(first)}


def words(folder):
    """Tokenizer with one token for each word form of the grammar."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(grammar.vocabulary()) + "\n")
    return transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)


def passages(texts, seed):
    """Passages as pairs: first sentence, the rest, and code 0 where the rest follows. Every second pair gets the rest
    of another passage, of eight drawn the one that shares most words, so that words alone do not tell."""
    random = np.random.default_rng(stream(seed, "passages"))
    pairs = [text.partition(" . ")[::2] for text in texts]
    first, rest = zip(*((a + " .", b) for a, b in pairs if b), strict=True)
    bags = [set(b.split()) for b in rest]
    second, follows = list(rest), np.zeros(len(rest), np.int64)
    for i in range(0, len(rest), 2):
        own = set(first[i].split())
        others = random.integers(len(rest), size=8)
        best = max(others, key=lambda j: len(own & bags[j]) / len(bags[j]))
        second[i], follows[i] = rest[best], int(rest[best] != rest[i])
    return list(first), second, follows


def mask(ids, special, vocabulary, mask_id, options):
    """Corrupted ids [B, T] and which of them [B, T] to predict. Draws from the loop's random state, so that a resumed
    run masks the same tokens."""
    draw = torch.rand(ids.shape).to(ids.device) / options.share
    chosen = (draw < 1) & ~torch.isin(ids, special)
    other = torch.randint(vocabulary, ids.shape).to(ids.device)
    corrupted = torch.where(draw < options.hidden, mask_id, torch.where(draw < options.hidden + options.replaced, other, ids))
    return torch.where(chosen, corrupted, ids), chosen
