"""Tiny random models of the three families and batches for them, made from configurations alone."""

import pytest
import torch
import transformers

from lib.measure.cost import Shape
from lib.model import backbone

FAMILIES = ("bert", "roberta", "electra")
VOCAB, POSITIONS, HIDDEN, LAYERS, FFN = 60, 40, 48, 2, 96
PAD = {"bert": 0, "roberta": 1, "electra": 0}
WORDS = [f"word{i}" for i in range(VOCAB - 5)]


@pytest.fixture(autouse=True)
def single_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def classes(family):
    """(configuration, classifier, masked-LM model) of a family."""
    name = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra"}[family]
    return tuple(getattr(transformers, name + end) for end in ("Config", "ForSequenceClassification", "ForMaskedLM"))


def configuration(family, heads, labels):
    own = {"bert": {"max_position_embeddings": POSITIONS},
           "roberta": {"max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1, "pad_token_id": 1,
                       "bos_token_id": 2, "eos_token_id": 3},
           "electra": {"max_position_embeddings": POSITIONS, "embedding_size": 24}}[family]
    return classes(family)[0](vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=heads,
                              intermediate_size=FFN, num_labels=labels, initializer_range=0.25, hidden_dropout_prob=0.0,
                              attention_probs_dropout_prob=0.0, **own)


@pytest.fixture(scope="session")
def tiny():
    """f(family, heads=12, labels=2, seed=0, masked_lm=False): a model in eval mode whose biases and LayerNorms are
    random too, so that a test which loses one of them fails."""
    def make(family="bert", heads=12, labels=2, seed=0, masked_lm=False):
        torch.manual_seed(seed)
        model = backbone.build(classes(family)[2 if masked_lm else 1], configuration(family, heads, labels))
        with torch.no_grad():
            for value in model.parameters():
                if value.dim() == 1:
                    value.add_(0.25 * torch.randn_like(value))
        return model.eval()
    return make


@pytest.fixture(scope="session")
def shape():
    """f(family, heads=12): the same model as the cost formulas see it."""
    def make(family, heads=12):
        return Shape(family, LAYERS, HIDDEN, heads, FFN, VOCAB, POSITIONS + 2 * (family == "roberta"),
                     1 if family == "roberta" else 2, 24 if family == "electra" else HIDDEN)
    return make


@pytest.fixture(scope="session")
def sentences():
    """f(family, lengths, extra=0, seed=0): a batch of random sentences, padded to the longest and `extra` more."""
    def make(family="bert", lengths=(9, 5, 7), extra=0, seed=0):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.full((len(lengths), max(lengths) + extra), PAD[family])
        mask = torch.zeros_like(ids)
        for row, length in enumerate(lengths):
            ids[row, :length] = torch.randint(5, VOCAB, (length,), generator=generator)
            mask[row, :length] = 1
        return {"input_ids": ids, "attention_mask": mask}
    return make


@pytest.fixture
def tokenizer(tmp_path):
    """A word-piece tokenizer of VOCAB entries."""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    return transformers.BertTokenizerFast(str(path), do_lower_case=True)


@pytest.fixture
def logits():
    """f(model, batch): logits without a gradient."""
    def forward(model, batch):
        with torch.no_grad():
            return model(**batch).logits
    return forward
