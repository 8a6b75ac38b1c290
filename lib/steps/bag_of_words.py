"""Step: what a task gives away without training an encoder: the most frequent class, a linear model
over word counts, and the cosine of the two texts of a pair.
"""

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from lib import data as sources
from lib.measure import metrics
from lib.model import backbone
from lib.model.parts import base
from lib.train import heads


def bag_of_words(run, data):
    """Metrics: the task's first one on the development set, for answers that need no reading.

    "majority" is the most frequent class. "bag_of_words" is a linear model over word counts, with a
    fixed regularisation: C = 0.3, ridge 10; a task of spans has none. Of pairs and with the input
    `start`, "cosine" is a linear model over the cosine that this encoder gives without training.
    """
    task, splits = sources.task(data["source"], data["task"]), sources.load(data)
    train, dev = splits["train"], splits["dev"]
    result = {"majority": heads.majority(task, splits)}
    if not task.span:
        counter = CountVectorizer(token_pattern=r"\S+").fit(train.a + (train.b or []))
        found = [counts(counter, split) for split in (train, dev)]
        result["bag_of_words"] = linear(task, train, dev, *found)
    if "start" in run.inputs and not task.span:
        model, tokenizer = backbone.load(run.inputs["start"].model)
        found = [cosines(base(model).eval(), tokenizer, split) for split in (train, dev)]
        result["cosine"] = linear(task, train, dev, *found)
    return result | {"train_rows": len(train), "dev_rows": len(dev)}


def linear(task, train, dev, x, y):
    """Return the score of a linear model over the features x of the training and y of the dev
    rows.
    """
    model = LogisticRegression(C=0.3, max_iter=1000) if task.labels else Ridge(10.0)
    return metrics.score(task.metrics[0], model.fit(x, train.y).predict(y), dev.y)


@torch.no_grad()
def cosines(model, tokenizer, split):
    """Return the cosine of the two texts of each row, [N, 1]: of means over the last states."""

    def means(texts):
        given = dict(padding=True, truncation=True, max_length=128, return_tensors="pt")
        for i in range(0, len(texts), 32):
            batch = tokenizer(texts[i : i + 32], **given)
            weight = batch["attention_mask"][..., None].float()
            yield (model(**batch).last_hidden_state * weight).sum(1) / weight.sum(1)

    a, b = (torch.cat([*means(texts)]) for texts in (split.a, split.b))
    return torch.cosine_similarity(a, b)[:, None].numpy()


def counts(counter, split):
    """Return counts of a row's words; of a pair those of each side, the number of shared words, and
    the number of words that are new in the second.
    """
    a = counter.transform(split.a)
    if split.b is None:
        return a
    b = counter.transform(split.b)
    shared = a.minimum(b).sum(1)
    return hstack([a, b, csr_matrix(np.hstack([shared, b.sum(1) - shared]))])
