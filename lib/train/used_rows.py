"""Train only the word embeddings that the data use.

Under Adam without weight decay, a row of the table without a gradient stays as it is. Leaving it
out of the optimiser changes nothing but the time: a small task uses a few thousand of 30,522 rows.
"""

from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional

from lib.model.parts import base


class UsedRows(nn.Module):
    """An embedding whose trained weight holds only the rows `used` of the whole table.

    Token ids stay what they are. In training they are looked up among the used rows, in eval mode
    in the whole table, which is brought up to date first.
    """

    def __init__(self, embedding, used):
        super().__init__()
        # In a list, so that it is no submodule: its table is neither trained nor saved twice.
        self.full = [embedding]
        self.used = used
        self.place = torch.full((embedding.num_embeddings,), -1, device=used.device)
        self.place[used] = torch.arange(len(used), device=used.device)
        self.padding_idx = None
        if embedding.padding_idx is not None and self.place[embedding.padding_idx] >= 0:
            self.padding_idx = int(self.place[embedding.padding_idx])
        own = embedding.weight.detach()[used].clone()
        self.weight = nn.Parameter(own, embedding.weight.requires_grad)
        self.train(embedding.training)

    def whole(self):
        """The embedding with the trained rows written back."""
        with torch.no_grad():
            self.full[0].weight[self.used] = self.weight
        return self.full[0]

    def forward(self, ids):
        if self.training:
            return functional.embedding(self.place[ids], self.weight, self.padding_idx)
        return self.whole()(ids)


@contextmanager
def used_rows(model, encoded, weight_decay):
    """Within, the model's word embeddings are those of `encoded`; afterwards they are whole again.

    Does nothing under weight decay, or where the output layer shares the table (masked-LM heads).
    """
    embeddings = getattr(base(model), "embeddings", None)
    head = model.get_output_embeddings()
    if weight_decay or head is not None:
        yield
        return
    owner = getattr(embeddings, "word_embeddings", None)  # a table, or a module around one
    owner = owner if hasattr(owner, "word_embeddings") else embeddings
    table = owner.word_embeddings
    used = torch.from_numpy(encoded.used())
    owner.word_embeddings = UsedRows(table, used.to(table.weight.device))
    try:
        yield
    finally:
        owner.word_embeddings = owner.word_embeddings.whole()
