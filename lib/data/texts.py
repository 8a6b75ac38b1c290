"""Plain text for pre-training below DATA_ROOT: corpora, their digests, their documents.

    DATA_ROOT/<name>/train*.txt    UTF-8, one paragraph a line, a blank line between documents

Where a corpus has no training file, the others in its folder are taken. A descriptor for a Spec is
{"text", "digest", "documents"}; "wikipedia+books" takes documents of the two in turn. No text of
them is kept in a run. Free of torch.
"""

import hashlib
import json
from functools import cache
from itertools import chain, islice, zip_longest

from lib.data import at_hand_or_official, check
from lib.data.lines import each_line
from lib.runs import paths
from lib.runs.paths import remembered
from lib.runs.spec import known

# {corpus: (most paragraphs of a document, how many of its first ones are a title, and dropped)}. A
# book is cut after 20 paragraphs, as in EfficientBERT's code.
TEXTS = {"wikipedia": (None, 1), "books": (20, 0)}


def files(name):
    """Return the files of a corpus, by name; of several joined by "+" all. Raises FileNotFoundError
    where there is none."""
    chosen = []
    for each in name.split("+"):
        known("text corpus", each, TEXTS)
        folder = paths.data_root() / each
        there = sorted(folder.glob("*.txt"))
        if not there:
            fix = "put UTF-8 files train-00.txt, ... there, a paragraph a line"
            raise FileNotFoundError(f"no text under {paths.shown(folder)}: {fix}")
        chosen += [path for path in there if "train" in path.name] or there
    return chosen


def read(paths, most=None):
    """Yield lists of paragraphs, one list a document, of several files.

    A file's end ends a document, and so do `most` paragraphs. Raises ValueError where a file is not
    UTF-8.
    """
    for path in paths:
        document = []
        for line in chain(each_line(path), [""]):
            text = line.strip()
            document += [text] if text else []
            if document and (not text or len(document) == most):
                yield document
                document = []


def documents(name):
    """Yield the documents of a corpus, lists of paragraphs; of several joined by "+" in turn."""
    if "+" in name:
        turns = zip_longest(*map(documents, name.split("+")))
        yield from (document for turn in turns for document in turn if document)
        return
    most, title = TEXTS[name]
    yield from filter(None, (document[title:] for document in read(files(name), most)))


@cache
def first(name, count=None):
    """Return [number of the first `count` documents (None: all), digest of their text]. They are
    read once, then remembered by the sizes and times of the files."""

    def read():
        number, body = 0, hashlib.sha256()
        for document in islice(documents(name), count):
            number += 1
            for text in (*document, ""):
                body.update(json.dumps(text).encode())
        return [number, body.hexdigest()[:16]]

    return remembered(["text", name, count], files(name), read)


def describe(name, count=None):
    """Return the descriptor of a corpus for a Spec. Where it is not at hand, the digest is the
    official one, so that records are found."""
    key = f"texts/{name}/{count or 'all'}"
    digest = at_hand_or_official(key, lambda: first(name, count)[1])
    return {"text": name, "digest": digest} | ({"documents": count} if count else {})


def load(descriptor):
    """Return the documents of a descriptor, one after another. Raises ValueError where they are not
    those that were described, or too few."""
    name, count = descriptor["text"], descriptor.get("documents")
    number, digest = first(name, count)
    check(f"the text of {name}", digest, descriptor["digest"])
    if number < (count or 1):
        raise ValueError(f"{name} has {number} documents; this run is of {count}: ask for fewer")
    return islice(documents(name), count)
