"""Step: pre-training of a small encoder on the generated corpus, the toy world's stand-in for a
published checkpoint.

bert       masked words and next sentence (Devlin et al. 2019, section 3.1)
roberta    masked words alone, passages as they are (Liu et al. 2019)
electra    which words a small generator replaced (Clark et al. 2020); the discriminator is saved
"""

import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors
from torch import nn
from torch.nn import functional

from lib.data import Split, grammar, toy
from lib.model import backbone
from lib.model.parts import base, size
from lib.options import MaskedLM
from lib.spec import known, stream
from lib.train import loop
from lib.train.batches import encode

# Longest row. RoBERTa's table has two rows more, as its count starts behind the padding's id.
POSITIONS = 128
# RoBERTa's special tokens, which have the ids 0 to 4
ROBERTA = dict(bos="<s>", pad="<pad>", eos="</s>", unk="<unk>", mask="<mask>")
GENERATOR = 4  # times narrower than the discriminator, as ELECTRA-small's
DISCRIMINATOR = 50.0  # weight of its loss beside the generator's; ELECTRA's


def pretrain(run, corpus, model, objective, numerics, train=None):
    """corpus: {"sentences", "seed"}. model: {"family", "layers", "hidden", "heads", "ffn", "init"},
    and for ELECTRA's kind "embedding", the width of the tables. Without `train` the encoder keeps
    its random weights: the control that tells what pre-training is worth.
    """
    numerics, train = loop.options(numerics, train) if train else (loop.options(numerics), None)
    options, family = MaskedLM(**objective), model["family"]
    known("family of small encoders", family, FAMILIES)
    if options.next_sentence and family != "bert":
        raise ValueError(
            f"MaskedLM.next_sentence is on, but {family!r} is pre-trained without it: switch it off"
        )
    tokenizer = words(run.folder / "vocabulary", family)
    encoded, result, dropout = None, {}, 0.0
    if train:
        texts, dropout = toy.corpus(corpus["sentences"], corpus["seed"]), train.dropout
        first, second, follows = passages(texts, run.seed, mixed=family == "bert")
        encoded = encode(tokenizer, Split(first, second, follows, None), train.max_length)
        result = {"passages": len(first)}
    torch.manual_seed(stream(run.seed, "init"))
    sizes = dict(
        vocab_size=len(tokenizer),
        hidden_size=model["hidden"],
        num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"],
        intermediate_size=model["ffn"],
        initializer_range=model["init"],
        max_position_embeddings=POSITIONS,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    if "embedding" in model:
        sizes["embedding_size"] = model["embedding"]
    follows = encoded.labels if encoded and options.next_sentence else None
    trained, kept, loss = FAMILIES[family](sizes, tokenizer, options, follows)
    if train:
        result |= loop.fit(run, trained, encoded, loss, train, numerics)
    backbone.save(kept, tokenizer, run.model)
    return result | size(kept) | {"vocabulary": len(tokenizer)}


def words(folder, family="bert"):
    """Tokenizer with one token for each word form of the grammar, as the family has it."""
    folder.mkdir(exist_ok=True)
    forms = grammar.vocabulary()
    if family != "roberta":
        (folder / "vocab.txt").write_text("\n".join(forms) + "\n")
        return transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)
    forms = [*ROBERTA.values(), *(word for word in forms if not word.startswith("["))]
    rules = tokenizers.Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(forms)}, unk_token=ROBERTA["unk"])
    )
    rules.normalizer, rules.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    ends = [(ROBERTA[end], forms.index(ROBERTA[end])) for end in ("eos", "bos")]
    rules.post_processor = processors.RobertaProcessing(
        *ends, trim_offsets=False, add_prefix_space=False
    )
    named = {f"{role}_token": token for role, token in ROBERTA.items()}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=rules,
        cls_token=ROBERTA["bos"],
        sep_token=ROBERTA["eos"],
        model_input_names=["input_ids", "attention_mask"],
        **named,
    )


def passages(texts, seed, mixed=True):
    """(first sentences, second texts, codes: 0 where the second follows the first).

    The second text is the rest of the passage. In a mix, every second pair gets the rest of another
    passage: of eight drawn ones the one that shares most words, so that words alone do not tell.
    """
    random = np.random.default_rng(stream(seed, "passages"))
    pairs = [text.partition(" . ")[::2] for text in texts]
    first, rest = zip(*((a + " .", b) for a, b in pairs if b), strict=True)
    second, follows = list(rest), np.zeros(len(rest), np.int64)
    bags = [set(b.split()) for b in rest]
    for i in range(0, len(rest) if mixed else 0, 2):
        own = set(first[i].split())
        others = random.integers(len(rest), size=8)
        best = max(others, key=lambda j: len(own & bags[j]) / len(bags[j]))
        second[i], follows[i] = rest[best], int(rest[best] != rest[i])
    return list(first), second, follows


def mask(batch, tokenizer, options, lowest=0):
    """(the batch with corrupted ids, what was there [n], and its places [B, T]) for the n tokens
    that are to be predicted.

    Draws come from the loop's random state, so that a resumed run masks the same tokens. Random
    words have ids from `lowest` on.
    """
    ids = batch["input_ids"]
    special = torch.tensor(tokenizer.all_special_ids, device=ids.device)
    draw = torch.rand(ids.shape).to(ids.device) / options.share
    chosen = (draw < 1) & ~torch.isin(ids, special)
    other = torch.randint(lowest, len(tokenizer), ids.shape).to(ids.device)
    shown = torch.where(draw < options.hidden + options.replaced, other, ids)
    shown = torch.where(draw < options.hidden, tokenizer.mask_token_id, shown)
    return batch | {"input_ids": torch.where(chosen, shown, ids)}, ids[chosen], chosen


def bert(sizes, tokenizer, options, follows):
    """(what is trained, what is saved, its loss), as the next two. follows: codes of `passages` [N]
    where the next sentence is to be told.
    """
    network = backbone.build(transformers.BertForPreTraining, transformers.BertConfig(**sizes))

    def loss(batch, rows):
        masked, wanted, chosen = mask(batch, tokenizer, options)
        out = base(network)(**masked)
        words = network.cls.predictions(out.last_hidden_state[chosen])
        parts = {"masked": functional.cross_entropy(words.float(), wanted)}
        if follows is not None:
            which = network.cls.seq_relationship(out.pooler_output).float()
            parts["next"] = functional.cross_entropy(which, follows[rows].to(which.device))
        return {"loss": sum(parts.values()), **parts}

    return network, network, loss


def roberta(sizes, tokenizer, options, _):
    padding = tokenizer.pad_token_id
    own = {
        "max_position_embeddings": sizes["max_position_embeddings"] + padding + 1,
        "type_vocab_size": 1,
        "pad_token_id": padding,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    config = transformers.RobertaConfig(**sizes | own)
    network = backbone.build(transformers.RobertaForMaskedLM, config)

    def loss(batch, rows):
        # No special token as a random word: RoBERTa takes its padding's id for padding wherever it
        # stands.
        masked, wanted, chosen = mask(batch, tokenizer, options, lowest=len(ROBERTA))
        words = network.lm_head(base(network)(**masked)[0][chosen])
        return {"loss": functional.cross_entropy(words.float(), wanted)}

    return network, network, loss


class Both(nn.Module):
    """A generator and a discriminator on one table of embeddings."""

    def __init__(self, generator, discriminator):
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        generator.electra.embeddings = discriminator.electra.embeddings
        generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight

    @property
    def base_model(self):
        return self.discriminator.base_model

    @property
    def config(self):
        return self.discriminator.config

    def set_attn_implementation(self, name):
        for part in (self.generator, self.discriminator):
            part.set_attn_implementation(name)

    def get_output_embeddings(self):  # the table is an output layer too: all of it is trained
        return self.generator.generator_lm_head


def electra(sizes, tokenizer, options, _):
    narrow = ("hidden_size", "num_attention_heads", "intermediate_size")
    small = {name: max(1, sizes[name] // GENERATOR) for name in narrow}
    config = transformers.ElectraConfig
    network = Both(
        transformers.ElectraForMaskedLM(config(**sizes | small)),
        backbone.build(transformers.ElectraForPreTraining, config(**sizes)),
    )
    generator, discriminator = network.generator, network.discriminator

    def loss(batch, rows):
        ids, real = batch["input_ids"], batch["attention_mask"].bool()
        masked, wanted, chosen = mask(batch, tokenizer, options)
        hidden = base(generator)(**masked)[0][chosen]
        scores = generator.generator_lm_head(generator.generator_predictions(hidden)).float()
        drawn = ids.clone()
        drawn[chosen] = torch.multinomial(scores.detach().softmax(-1), 1)[:, 0]
        told = discriminator(**batch | {"input_ids": drawn}).logits.float()[real]
        other = (drawn != ids)[real].float()
        parts = {
            "masked": functional.cross_entropy(scores, wanted),
            "replaced": functional.binary_cross_entropy_with_logits(told, other),
        }
        return {"loss": parts["masked"] + DISCRIMINATOR * parts["replaced"], **parts}

    return network, discriminator, loss


FAMILIES = {"bert": bert, "roberta": roberta, "electra": electra}
