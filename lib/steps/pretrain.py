"""Step: masked-LM pre-training of a small encoder on the generated corpus (the toy world's stand-in for BERT)."""

import torch
import transformers
from torch.nn import functional

from lib.data import Split, grammar, toy
from lib.model import backbone
from lib.spec import stream
from lib.train import loop
from lib.train.batches import encode

MASKED = 0.15  # of the tokens; of these 80 % become [MASK], 10 % a random word, 10 % stay (Devlin et al. 2019)


def pretrain(run, corpus, model, train, numerics):
    """corpus: {"sentences", "seed"}; model: {"family", "layers", "hidden", "heads", "ffn"}."""
    numerics, train = loop.options(numerics, train)
    folder = run.folder / "vocabulary"
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(grammar.vocabulary()) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)
    texts = toy.corpus(corpus["sentences"], corpus["seed"])
    encoded = encode(tokenizer, Split(texts, None, torch.zeros(len(texts)).numpy(), None), train.max_length)

    torch.manual_seed(stream(run.seed, "init"))
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=model["hidden"], num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"], intermediate_size=model["ffn"], max_position_embeddings=128,
        hidden_dropout_prob=train.dropout, attention_probs_dropout_prob=train.dropout)
    network = backbone.build(transformers.BertForMaskedLM, config)
    special = torch.tensor(tokenizer.all_special_ids)

    def loss(batch, rows):
        ids = batch["input_ids"]
        draw = torch.rand(ids.shape).to(ids.device)  # the loop's random state: a resumed run masks the same tokens
        chosen = (draw < MASKED) & ~torch.isin(ids, special.to(ids.device))
        masked = torch.where(draw < MASKED * 0.8, tokenizer.mask_token_id, ids)
        other = torch.randint(len(tokenizer), ids.shape).to(ids.device)
        masked = torch.where((draw >= MASKED * 0.8) & (draw < MASKED * 0.9), other, masked)
        batch = batch | {"input_ids": torch.where(chosen, masked, ids)}
        hidden = backbone.base(network)(**batch).last_hidden_state[chosen]
        return {"loss": functional.cross_entropy(network.cls(hidden).float(), ids[chosen])}

    result = loop.fit(run, network, encoded, loss, train, numerics)
    backbone.save(network, tokenizer, run.model)
    return result | {"parameters": sum(p.numel() for p in network.parameters()), "vocabulary": len(tokenizer)}
