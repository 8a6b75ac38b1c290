"""Step: warm-up distillation on plain text, from a teacher's states alone (EfficientBERT section
3.2), of a network or of a supernet; with `shared`, of one part of a supernet in each step (stage 3
of its search).

Text is shown whole: nothing is masked, and no word is predicted.
"""

from functools import partial
from itertools import chain

import numpy as np
import transformers

from lib.data import Split, texts, tokens, toy
from lib.data.corpus import EPOCHS, pairs
from lib.model import backbone
from lib.model.parts import size
from lib.runs import files
from lib.steps.pretrain import passages
from lib.train import loop, students
from lib.train.batches import Encoded, encode, order
from lib.train.options import Shared, Warmup


def predistil(run, corpus, warmup, train, numerics, net=None, shared=None):
    """Inputs: `teacher`, any BERT; `start`, a student or supernet to inherit from; `search`, whose
    Outputs net and shared may be. corpus: see `rows`. net: what to train (lib.search.net as JSON),
    by default that of `start`.
    """
    numerics, train = loop.options(numerics, train)
    options = Warmup(**warmup)
    teacher, tokenizer = backbone.load(run.inputs["teacher"].model)
    encoded, batches = rows(corpus, tokenizer, train, run.seed)
    student = students.student(run, net, transformers.BertModel, teacher, train.dropout)
    methods = [students.Parts(student, Shared(**shared), run.seed)] if shared else []
    with students.distilling(student, teacher, options, numerics) as loss:
        result = loop.fit(
            run, student, encoded, loss, train, numerics, methods=methods, batches=batches
        )
    students.curve(run)
    students.save(student, tokenizer, run.model)
    return result | size(student) | {"rows": len(encoded)}


def rows(corpus, tokenizer, train, seed):
    """(Encoded rows of a corpus, f(epoch) -> batches, or None for the usual order).

    corpus: {"sentences", "seed"} is generated text, paired as in pre-training. Otherwise it is a
    descriptor of lib.data.texts. Some epochs of data are made of a text and used in turn, as in the
    code.
    """
    if "text" not in corpus:
        first, second, _ = passages(toy.corpus(corpus["sentences"], corpus["seed"]), seed)
        split = Split(first, second, np.zeros(len(first), np.int64), None)
        return encode(tokenizer, split, train.max_length), None
    documents, key = tokenised(corpus, tokenizer)
    special = tokenizer.cls_token_id, tokenizer.sep_token_id
    names, epochs = ("input_ids", "token_type_ids"), range(min(train.epochs, EPOCHS))
    made = partial(pairs, documents, special, train.max_length, seed)
    key = files.key_of(key, train.max_length, seed, len(epochs))
    kept = tokens.kept(key, lambda: chain.from_iterable(map(made, epochs)), names)
    columns = {name: kept[name] for name in names if name in tokenizer.model_input_names}
    encoded, each = Encoded(columns, None, tokenizer.pad_token_id), len(documents)
    lengths = encoded.lengths()

    def batches(epoch):
        start = epoch % len(epochs) * each
        part = lengths[start : start + each]
        found = order(part, train.batch, seed, epoch, bucket=not train.pad_to)
        return [start + chosen for chosen in found]

    return encoded, batches


def tokenised(corpus, tokenizer):
    """(token ids of a text's documents on disk, empty ones dropped; the key that they are kept by).

    They are tokenised once for all runs, epochs and seeds.
    """
    what = corpus["text"], corpus["digest"], corpus.get("documents")
    key = files.key_of("documents", *what, tokens.vocabulary(tokenizer))

    def rows():
        for part in tokens.chunks(map(" ".join, texts.load(corpus))):
            found = tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]
            yield from ({"ids": ids} for ids in found if ids)

    return tokens.kept(key, rows, ("ids",))["ids"], key
