"""This module reads plain text for pre-training: corpora below DATA_ROOT, their
documents and their digests.

    DATA_ROOT/<name>/train*.txt    a paragraph a line, a blank line between documents

Files are UTF-8. Where a corpus has no training file, all its text files are read. The
description of a run has {"text": corpus, "digest", "documents": number} as its
descriptor of a corpus. The corpus "wikipedia+books" takes one document of "wikipedia"
and one of "books" in turn. No text is saved with a run."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TypeAlias

from lib.core import paths
from lib.core.disk import read_disk_cache_or_compute
from lib.core.names import Absent, Refused, check_known_name
from lib.core.types import Digest, Json
from lib.data import CODE, check_digest, find_local_or_committed_digest
from lib.data.lines import iterate_lines

# {"text": name of the corpus, "digest", "documents": their number}, a part of a Spec.
TextCorpusDescriptor: TypeAlias = Json
Paragraph: TypeAlias = str
DocumentCount: TypeAlias = int
# {corpus: (largest number of paragraphs in a document, None for no limit; number of
# paragraphs of title at the start of a document, which are left out)}. A book is cut
# into documents of 20 paragraphs. EfficientBERT's code cuts after 20 lines, and counts
# blank lines too.
TEXTS = {"wikipedia": (None, 1), "books": (20, 0)}


def list_corpus_files(corpus_name: str) -> list[Path]:
    """Return the text files of a corpus for pre-training, in the order of their names.

    Where the corpus has files with "train" in their names, only these are returned.
    Raises Refused for an unknown corpus, and Absent (a FileNotFoundError) where it has
    no file.

    corpus_name: a corpus such as "wikipedia", or several joined by "+"."""
    chosen = []
    for corpus in corpus_name.split("+"):
        check_known_name("text corpus", corpus, TEXTS)
        folder = paths.data_root() / corpus
        text_files = sorted(folder.glob("*.txt"))
        if not text_files:
            fix = "put UTF-8 files train-00.txt, ... there, a paragraph a line"
            raise Absent(f"no text under {paths.format_project_path(folder)}: {fix}")
        chosen += [path for path in text_files if "train" in path.name] or text_files
    return chosen


def read_documents(
    text_files: Iterable[Path], max_paragraphs_per_document: int | None = None
) -> Iterator[list[Paragraph]]:
    """Yield the documents of several text files, each as a list of its paragraphs.

    A line of a file is a paragraph. A document ends at a blank line, at the end of a
    file, and after `max_paragraphs_per_document` paragraphs (None: no such limit).
    Raises Refused where a file is not UTF-8 or UTF-16."""
    for path in text_files:
        document = []
        for line in chain(iterate_lines(path), [""]):
            text = line.strip()
            if text:
                document.append(text)
            if document and (not text or len(document) == max_paragraphs_per_document):
                yield document
                document = []


def iterate_documents(corpus_name: str) -> Iterator[list[Paragraph]]:
    """Yield the documents of a corpus for pre-training, each as a list of paragraphs.

    Titles are left out. Several corpora may be joined by "+", such as
    "wikipedia+books"; one document of each corpus is then taken in turn. Files are read
    while the documents are used, so a corpus may be larger than the memory. Raises
    Absent where a corpus has no files."""
    if "+" in corpus_name:
        turns = zip_longest(*map(iterate_documents, corpus_name.split("+")))
        yield from (document for turn in turns for document in turn if document)
        return
    most, title = TEXTS[corpus_name]
    for document in read_documents(list_corpus_files(corpus_name), most):
        if len(document) > title:
            yield document[title:]


@cache
def read_document_count_and_digest(
    corpus_name: str, max_document_count: int | None = None
) -> tuple[DocumentCount, Digest]:
    """Return (number, digest) of the first documents of a corpus for pre-training.

    The description of a training run contains the digest, which identifies the text
    that it reads. The digest is 16 hex digits of a SHA-256. The number is smaller than
    `max_document_count` where the corpus has fewer documents. The result is cached
    while the process lives, and on disk until a file changes.

    max_document_count: the number of documents to read; None reads all."""

    def count_and_digest_documents() -> list[int | str]:
        number, body = 0, hashlib.sha256()
        for document in islice(iterate_documents(corpus_name), max_document_count):
            number += 1
            for text in (*document, ""):
                body.update(json.dumps(text).encode())
        return [number, body.hexdigest()[:16]]

    key = ["text", corpus_name, max_document_count]
    number, digest = read_disk_cache_or_compute(
        key, [*CODE, *list_corpus_files(corpus_name)], count_and_digest_documents
    )
    return number, digest


def make_corpus_data_descriptor(
    corpus_name: str, document_count: int | None = None
) -> TextCorpusDescriptor:
    """Return a dict that identifies a pre-training text in the description of a run.

    It is {"text": corpus name, "digest", "documents": number of documents}, without
    "documents" if all are used. `iterate_verified_documents` takes it and reads the
    text. Where the corpus is missing, the digest is taken from this project's file
    `data/digests.json`, so that training runs of other machines are found. Where the
    file has none, it is "absent" within `plan_with_missing_data`, and
    FileNotFoundError is raised elsewhere.

    document_count: the number of documents from the start of the corpus; None takes
    all."""
    key = f"texts/{corpus_name}/{document_count or 'all'}"
    digest = find_local_or_committed_digest(
        key, lambda: read_document_count_and_digest(corpus_name, document_count)[1]
    )
    number = {"documents": document_count} if document_count else {}
    return {"text": corpus_name, "digest": digest} | number


def iterate_verified_documents(
    corpus_descriptor: TextCorpusDescriptor,
) -> Iterator[list[Paragraph]]:
    """Return an iterator over the documents of a corpus for pre-training.

    A document is a list of paragraphs. Raises Refused where the documents have another
    digest than described, or are too few, so that a run never trains on other text than
    its description names.

    corpus_descriptor: {"text": corpus name, "digest": digest of the documents,
    "documents": their number; all if absent}."""
    name, count = corpus_descriptor["text"], corpus_descriptor.get("documents")
    number, digest = read_document_count_and_digest(name, count)
    check_digest(f"the text of {name}", digest, corpus_descriptor["digest"])
    if number < (count or 1):
        raise Refused(
            f"{name} has {number} documents; this run is of {count}: ask for fewer"
        )
    return islice(iterate_documents(name), count)
