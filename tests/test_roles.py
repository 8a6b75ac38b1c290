"""What is read of a reader's rows is told, and can be said: roles of columns, kinds of
labels, files, repeated rows."""

import json

import datasets
import pytest
from conftest import put
from test_own import questions, refused

import lib
from lib.data import own
from lib.data.roles import CLASSES, SCORES, find_text_and_label_columns

WORDS = "plot film slow good loud bad fast calm".split()


def texts(count=48, more=""):
    """Texts that are all different."""
    return [f"{WORDS[i % 8]} {WORDS[i // 8 % 8]} row {i}{more}" for i in range(count)]


def rows(count=48, label=lambda i: i // 3 % 2, more=""):
    """[{"text", "label"}]."""
    return [
        {"text": text, "label": label(i)} for i, text in enumerate(texts(count, more))
    ]


def columns(between="\t", **values):
    """A table with a header, of functions of the number of a row."""
    lines = [between.join(values)]
    lines += [between.join(str(f(i)) for f in values.values()) for i in range(48)]
    return "\n".join(lines) + "\n"


def csv(body, between=","):
    head = between.join(body[0])
    return "\n".join([head, *(between.join(map(str, row.values())) for row in body)])


TEXT, LABEL = (lambda i: texts()[i]), (lambda i: i // 3 % 2)


@pytest.mark.parametrize(
    "name, content, first, unused",
    [
        (
            "setfit.jsonl",
            "".join(
                json.dumps(row | {"label_text": ["bad", "good"][row["label"]]}) + "\n"
                for row in rows()
            ),
            "texts: text; label: label, 2 classes: 0, 1",
            "label_text (the label decides it)",
        ),
        (
            "a.tsv",
            columns(uid=lambda i: f"u{i}", text=TEXT, label=LABEL),
            "text;",
            "uid (no text, by its name)",
        ),
        (
            "a.tsv",
            columns(**{"#": int}, text=TEXT, label=LABEL),
            "text;",
            "# (no text, by its name)",
        ),
        (
            "a.tsv",
            columns(text=TEXT, label=LABEL, lang=lambda i: "en"),
            "text;",
            "lang (no text, by its name)",
        ),
        (
            "a.tsv",
            columns(text=TEXT, label=LABEL, date=lambda i: f"{i}.5."),
            "",
            "date (no text, by its name)",
        ),
        (
            "a.csv",
            columns(",", sentence_id=int, sentence=TEXT, label=LABEL),
            "texts: sentence;",
            "sentence_id (no text, by its name)",
        ),
        (  # A name without a meaning is still the label in other words.
            "a.tsv",
            columns(text=TEXT, label=LABEL, mood=lambda i: "xy"[LABEL(i)]),
            "texts: text;",
            "mood (the label decides it)",
        ),
    ],
)
def test_what_is_no_text_is_left_out_and_told(tmp_path, name, content, first, unused):
    reading = own.read_user_data(str(put(tmp_path, name, content)))
    assert first in reading.lines[0] and f"left out: {unused}" in reading.lines
    assert not reading.task.pair and reading.splits["train"].b is None


def test_why_a_column_is_left_out_is_told_for_every_choice_of_the_label(tmp_path):
    """Five stars decide the mood, and the mood decides no number of stars."""
    content = columns(
        text=TEXT,
        stars=lambda i: i % 5 + 1,
        mood=lambda i: "bad" if i % 5 < 3 else "good",
        site=lambda i: "here",
        tone=lambda i: "xyz"[i // 3 % 3],
    )
    path = put(tmp_path, "a.tsv", content)
    more = "site (always the same), tone (not named by you)"
    left = {
        "stars": f"left out: mood (the label decides it), {more}",
        "mood": f"left out: stars (it decides the label), {more}",
    }
    for label, line in left.items():
        assert line in own.read_user_data(f"{path}: text, {label}: classes").lines


def test_every_line_that_is_no_row_is_counted(tmp_path):
    body = rows(60)
    body[7]["text"], body[9]["label"], body[11]["text"] = "", "", body[10]["text"]
    blank = {"a.csv": ";", "a.tsv": "", "a.jsonl": ""}
    for name, line in blank.items():
        head, *lines = csv(body, ";" if name == "a.csv" else "\t").split("\n")
        if name == "a.jsonl":
            head, lines = "", [json.dumps(row) for row in body]
        text = "\n".join([head, line, *lines[:30], line, *lines[30:], line, line, ""])
        told = own.read_user_data(
            str(put(tmp_path, name, text.removeprefix("\n")))
        ).lines
        first = 1 if name == "a.jsonl" else 2
        assert f"left out 4 blank lines, such as {name}:{first}" in told
        empty = "left out 2 of 60 rows with an empty cell (1 in text, 1 in label), such"
        assert sum(line.startswith(empty) for line in told) == 1
        assert sum(line.startswith("rows that repeat the texts") for line in told) == 1


def test_two_labels_and_what_is_left_over_are_refused_with_lines_that_work(tmp_path):
    content = columns(text=TEXT, score=lambda i: i / 47, label=LABEL)
    path = put(tmp_path, "two.tsv", content)
    both = f"--data '{path}: text, score' or --data '{path}: text, label'"
    refused(path, both)
    kinds = [
        own.infer_task(f"{path}: text, {name}").labels for name in ("score", "label")
    ]
    assert kinds == [(), ("0", "1")]
    path = put(tmp_path, "left.csv", columns(",", text=TEXT, tone=TEXT, label=LABEL))
    refused(path, f"fix: name them, the label last: --data '{path}: text, label'")
    path = put(
        tmp_path,
        "tweets.csv",
        columns(
            ",",
            place=lambda i: "here",
            tweet_coord=lambda i: "",
            tweet_texts=TEXT,
            tweet_sentiment=lambda i: LABEL(i) or -1,
        ),
    )
    refused(path, f"--data '{path}: tweet_texts, tweet_sentiment'")
    path = put(tmp_path, "names.tsv", columns(wording=TEXT, verdict=LABEL))
    refused(path, f"--data '{path}: wording, verdict'")
    assert own.infer_task(f"{path}: wording, verdict").labels == ("0", "1")


def test_a_text_that_says_the_label_is_refused_even_if_it_is_chosen(tmp_path):
    content = columns(text=TEXT, label=LABEL, mood=lambda i: "xy"[LABEL(i)])
    path = put(tmp_path, "a.tsv", content)
    refused(f"{path}: text, mood, label", "'mood' is the label 'label' in other words")


def test_a_long_text_with_a_word_of_metadata_in_its_name_is_not_left_out(tmp_path):
    def review(i):
        return f"the film number {i} was quite long {i % 7}"

    content = columns(title=TEXT, user_review=review, label=LABEL)
    path = put(tmp_path, "a.tsv", content)
    refused(path, "user_review")
    named = own.infer_task(f"{path}: title, user_review, label")
    assert named.pair and len(named.labels) == 2
    short = columns(text=TEXT, post_id=lambda i: f"p{i}", label=LABEL)
    assert not own.infer_task(str(put(tmp_path, "b.tsv", short))).pair


@pytest.mark.parametrize("tail", [": title, body, stars", ": title,body,stars"])
def test_columns_stand_behind_any_path(tmp_path, tail):
    content = columns(",", title=TEXT, body=TEXT, stars=lambda i: 1 + i % 5)
    for name in ("rows.csv", "a: b/rows: of mine.csv"):
        task = own.infer_task(f"{put(tmp_path, name, content)}{tail}")
        assert task.pair and len(task.labels) == 5
        assert own.infer_task(task.name) == task
        assert own.format_user_task_title(task.name) == name.rpartition("/")[2]
    assert own.infer_task(f"{tmp_path}/rows.csv{tail}: scores").labels == ()


@pytest.mark.parametrize(
    "name, label, suits",
    [
        ("agnews.csv", "label,text1,text2", 2),
        ("goemotions.tsv", r"text1\\tlabel\\tid3", 1),
    ],
)
def test_a_file_without_a_header_is_told_how_to_get_one(tmp_path, name, label, suits):
    lines = {
        "agnews.csv": [
            f'"{1 + i % 4}","Title {i}, one","{TEXT(i)}"' for i in range(48)
        ],
        "goemotions.tsv": [f"{TEXT(i)} x\t{i % 3}\tid{i}" for i in range(48)],
    }[name]
    path = put(tmp_path, name, "\n".join(lines))
    refused(path, rf"that is a row; .*; fix: .*printf '{label}\\n'; cat {path}")
    refused(f"{path}: text, label", "that is a row; expected the names of the columns")
    head = label.replace(r"\\t", "\t")
    reading = own.read_user_data(
        str(put(tmp_path, f"names-{name}", "\n".join([head, *lines])))
    )
    assert len(reading.lines[0].partition(";")[0].split(",")) == suits
    assert len(reading.task.labels) in (3, 4)


@pytest.mark.parametrize(
    "label, kind, low_high",
    [
        (lambda i: i % 28, CLASSES, 28),
        (lambda i: 2 * i % 60, SCORES, (0, 58)),
        (lambda i: f"{i // 10},{i % 10}", SCORES, (0, 8.9)),
        (lambda i: f"{i % 60 + 20}%", SCORES, (20, 79)),
        (lambda i: f"{i % 3 - 1}", CLASSES, 3),
        (lambda i: f"{i % 5 / 4} %", SCORES, (0, 1)),
    ],
)
def test_the_kind_of_label_is_told_and_can_be_said(tmp_path, label, kind, low_high):
    path = put(tmp_path, "a.tsv", csv(rows(90, label), "\t"))
    reading = own.read_user_data(str(path))
    is_classes = kind == CLASSES
    assert bool(reading.task.labels) == is_classes
    assert (len(reading.task.labels) if is_classes else reading.task.scale) == low_high
    assert ("classes: " if is_classes else "scores from") in reading.lines[0]
    others = [line for line in reading.lines if line.startswith("to have ")]
    assert len(others) == (is_classes or len(set(map(label, range(90)))) <= 45)
    for other in others:
        line = other.partition("--data ")[2].strip("'")
        assert bool(own.infer_task(line).labels) != is_classes
        assert len(own.read_user_data(line).lines) == len(reading.lines)
    assert own.infer_task(reading.task.name) == reading.task


def test_spellings_of_a_number_are_one_class_and_other_spellings_are_refused(tmp_path):
    mixed = put(
        tmp_path, "a.csv", csv(rows(label=lambda i: ["1", "0", "1.0", "00"][i % 4]))
    )
    reading = own.read_user_data(str(mixed))
    assert reading.task.labels == ("0", "1")
    assert "one class each: 1 and 1.0; 0 and 00" in reading.lines
    for one, other in (("Good", "good"), ("good  one", "good one")):
        spelled = csv(rows(label=lambda i, both=(one, "bad", other): both[i % 3]))
        fault = rf"b.csv:\d+: label '{one}' beside '{other}'; expected one spelling"
        if len(one) == len(other):
            fault = rf"b.csv:\d+: label '{other}' beside '{one}'; expected one spelling"
        refused(put(tmp_path, "b.csv", spelled), fault)
    many = lambda i: ["2", "7", "2,7,9"][i % 3]  # noqa: E731
    refused(
        put(tmp_path, "c.tsv", csv(rows(label=many), "\t")),
        "several labels in one cell",
    )


def test_labels_are_those_of_training_rows(tmp_path):
    put(tmp_path, "d/train.tsv", csv(rows(), "\t"))
    put(tmp_path, "d/dev.tsv", csv(rows(20, lambda i: f"{i % 2}.0", " v"), "\t"))
    reading = own.read_user_data(str(tmp_path / "d"))
    assert reading.task.labels == ("0", "1") and {*reading.splits["dev"].y} == {0, 1}
    for label in (
        lambda i: "cd"[i % 2],
        lambda i: i % 3,
        lambda i: ["true", "false"][i % 2],
    ):
        put(tmp_path, "d/dev.tsv", csv(rows(20, label, " v"), "\t"))
        refused(
            tmp_path / "d",
            r"dev.tsv:\d: label .* a class that a training row has: 0, 1",
        )


def test_a_class_is_not_drawn_away_from_training(tmp_path):
    once = rows(200, lambda i: f"rare {i}" if i % 20 == 7 else "ab"[i % 2])
    splits = own.read_user_data(str(put(tmp_path, "a.tsv", csv(once, "\t")))).splits
    assert {*splits["train"].y} == {*range(12)} and {*splits["dev"].y} == {0, 1}
    assert not {*splits["train"].a} & {*splits["dev"].a}


def test_a_class_of_one_row_among_many_is_pointed_out(tmp_path):
    odd = rows(48, lambda i: "psitive" if i == 7 else ["neg", "positive"][i % 2])
    lines = own.read_user_data(str(put(tmp_path, "a.tsv", csv(odd, "\t")))).lines
    (line,) = [line for line in lines if "single row" in line]
    assert "classes of a single row: 1" in line and "'psitive'" in line
    assert "a.tsv:9; mend them" in line  # the header is line 1
    even = put(tmp_path, "b.tsv", csv(rows(), "\t"))
    assert not [x for x in own.read_user_data(str(even)).lines if "single row" in x]


@pytest.mark.parametrize("body", ["text,label\na t,-1\nb t,-1\n", "id,text\n1,a t\n"])
def test_test_rows_without_labels_are_not_read(tmp_path, body):
    put(tmp_path, "d/train.csv", csv(rows()))
    put(tmp_path, "d/test.csv", body)
    reading = own.read_user_data(str(tmp_path / "d"))
    assert reading.task.labels == ("0", "1") and {*reading.splits} == {"train", "dev"}
    assert "the test rows have no labels, so they are not read" in reading.lines


@pytest.mark.parametrize("name", "val valid validation eval development Dev".split())
def test_development_rows_have_several_names(tmp_path, name):
    put(tmp_path, "d/train.csv", csv(rows()))
    put(tmp_path, f"d/{name}.csv", csv(rows(20, more=" v")))
    put(tmp_path, "d/extra.csv", csv(rows(20, more=" e")))
    reading = own.read_user_data(str(tmp_path / "d"))
    assert [len(reading.splits[n]) for n in ("train", "dev")] == [48, 20]
    assert f"files: train train.csv, dev {name}.csv" in reading.lines
    assert "not read: extra.csv" in reading.lines
    put(tmp_path, "d/dev.tsv", csv(rows(20, more=" w"), "\t"))
    refused(tmp_path / "d", "both .* and .*; expected one table of dev rows")


def test_tables_without_training_rows_are_named(tmp_path):
    put(tmp_path, "d/sts-train.csv", csv(rows()))
    refused(tmp_path / "d", r"no file train in .*, but sts-train.csv; fix: name one so")


def test_repeated_rows_are_counted_and_refused_when_all_are(tmp_path):
    put(tmp_path, "d/train.csv", csv(rows()))
    put(tmp_path, "d/dev.csv", csv([*rows(5), *rows(15, more=" v")]))
    reading = own.read_user_data(str(tmp_path / "d"))
    assert reading.cautions == ("5 of 20 dev rows are training rows too",)
    assert {*reading.cautions} <= {*reading.lines}
    put(tmp_path, "d/dev.csv", csv(rows(20)))
    refused(tmp_path / "d", "every dev row is a training row; expected other rows")


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.json", "\n".join(map(json.dumps, rows()))),
        ("a.jsonl", "\n\n".join(map(json.dumps, rows()))),
        ("a.json", {"data": rows()}),
        ("a.json", {k: [row[k] for row in rows()] for k in ("text", "label")}),
        (
            "a.json",
            {
                k: {str(i): row[k] for i, row in enumerate(rows())}
                for k in ("text", "label")
            },
        ),
        ("a.csv", csv(rows()).encode("utf-16")),
        ("a.csv", "sep=;\n" + csv(rows(), ";")),
        ("a.tsv", csv([row | {"text": f'"{row["text"]}"'} for row in rows()], "\t")),
        ("A.CSV", csv(rows())),
    ],
)
def test_public_forms_of_tables_are_the_same_rows(tmp_path, name, content):
    splits = own.read_user_data(str(put(tmp_path, name, content))).splits
    assert sorted([*splits["train"].a, *splits["dev"].a]) == sorted(texts())


def test_quotes_are_marks_where_all_of_them_can_be(tmp_path):
    said = [row | {"text": f'"He said ""{row["text"]}"""'} for row in rows()]
    reading = own.read_user_data(str(put(tmp_path, "a.tsv", csv(said, "\t"))))
    assert {text[:9] for text in reading.splits["train"].a} == {'He said "'}
    assert "a.tsv has its cells in quotes" in reading.lines
    said[3]["text"] = 'a 5" nail'  # Now no quote is a mark.
    reading = own.read_user_data(str(put(tmp_path, "a.tsv", csv(said, "\t"))))
    assert {text[:9] for text in reading.splits["train"].a} <= {
        '"He said ',
        'a 5" nail',
    }


def test_few_empty_rows_are_counted_and_left_out(tmp_path):
    body = [*rows(98), {"text": "", "label": 1}, {"text": "no label", "label": ""}]
    reading = own.read_user_data(str(put(tmp_path, "a.csv", csv(body))))
    assert sum(map(len, reading.splits.values())) == 98
    line = "left out 2 of 100 rows with an empty cell (1 in text, 1 in label), such as a.csv:100"
    assert line in reading.lines
    refused(
        put(tmp_path, "b.tsv", csv([*rows(90), *body[98:] * 5], "\t")),
        "b.tsv: 10 of 100 rows with an empty cell .5 in text, 5 in label., such as b.tsv:92",
    )


def test_a_cell_may_hold_a_book(tmp_path):
    body = rows()
    body[3]["text"] = "word " * 40_000
    splits = own.read_user_data(str(put(tmp_path, "a.csv", csv(body)))).splits
    assert max(map(len, [*splits["train"].a, *splits["dev"].a])) == 199_999


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_no_encoding_is_claimed_that_may_be_wrong(tmp_path, name):
    body = [row | {"text": f"{row['text']} 很好"} for row in rows()]
    text = csv(body) if name == "a.csv" else json.dumps(body, ensure_ascii=False)
    refused(
        put(tmp_path, name, text.encode("gb18030")),
        rf"{name}: .*; expected UTF-8 text; fix: save it .* GB18030 instead",
    )


def test_questions_come_in_public_variants(tmp_path):
    body = questions(60)
    asked = [qa for a in body["data"] for p in a["paragraphs"] for qa in p["qas"]]
    plain = own.read_user_data(str(put(tmp_path, "a.json", body))).splits["dev"]
    for qa in asked:
        for answer in qa["answers"]:
            answer["answer_start"] = str(answer["answer_start"])
        qa["answers"] = qa["answers"] or [{"text": "", "answer_start": -1}]
    variant = own.read_user_data(str(put(tmp_path, "b.json", body))).splits["dev"]
    assert variant.answers == plain.answers and (variant.y == plain.y).all()
    for qa in asked[0:4:2]:
        qa["answers"][0]["answer_start"] = 1
    reading = own.read_user_data(str(put(tmp_path, "c.json", body)))
    assert sum(map(len, reading.splits.values())) == 58
    assert any(
        line.startswith("left out 2 of 60 train questions: question '0good'")
        for line in reading.lines
    )
    for qa in asked[0:20:2]:
        qa["answers"][0]["answer_start"] = 1
    refused(
        put(tmp_path, "d.json", body),
        "answers of 10 of 60 train questions stand elsewhere",
    )


def test_a_data_set_is_taken_wherever_a_file_is(tmp_path):
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["zebra", "ant"]),
            "id": datasets.Value("int64"),
        }
    )
    body = [row | {"id": i} for i, row in enumerate(rows(60))]
    more = [row | {"id": i} for i, row in enumerate(rows(20, more=" v"))]
    train, dev = (datasets.Dataset.from_list(b, features) for b in (body, more))
    both = datasets.DatasetDict(train=train, validation=dev, unsupervised=dev)
    both.save_to_disk(tmp_path / "saved")
    for place in (both, tmp_path / "saved", str(tmp_path / "saved")):
        task, splits = lib.rows(place)
        assert task.labels == ("ant", "zebra")
        assert [len(splits[name]) for name in ("train", "dev")] == [60, 20]
    reading = own.read_user_data(str(tmp_path / "saved"))
    assert "not read: unsupervised" in reading.lines
    assert (
        own.list_task_files(reading.task.name)
        and own.infer_task(reading.task.name) == reading.task
    )
    task, splits = lib.rows(train)
    assert {*splits} == {"train", "dev"} and task.labels == ("ant", "zebra")
    again, _ = lib.rows(lib.dataset(splits))  # What this package writes, it reads.
    assert len(again.labels) == 2


def test_the_features_of_a_data_set_tell_the_kind(tmp_path):
    whole = datasets.Dataset.from_list(rows(60, lambda i: float(i % 5)))
    assert lib.rows(whole)[0].labels == ()
    task, _ = lib.rows(whole, "text, label: classes")
    assert task.labels == ("0.0", "1.0", "2.0", "3.0", "4.0")
    codes = datasets.ClassLabel(names=[str(2 * i) for i in range(30)])
    features = datasets.Features({"text": datasets.Value("string"), "label": codes})
    coded = datasets.Dataset.from_list(rows(90, lambda i: i % 30), features)
    assert len(lib.rows(coded)[0].labels) == 30
    with pytest.raises(ValueError, match="no split train, but all"):
        lib.rows(datasets.DatasetDict(all=whole))


@pytest.mark.parametrize(
    "value", [[{"text": "a", "label": 1}], {"train": [1]}, 5], ids=str
)
def test_another_object_than_a_data_set_is_refused_with_what_makes_one(value):
    kind = type(value["train"] if isinstance(value, dict) else value).__name__
    with pytest.raises(ValueError, match=f"rows in a {kind} are not read.*from_list"):
        lib.rows(value)


def test_unequal_rows_have_all_keys_as_columns():
    table = [("a.jsonl", ["text", "label", "text2"])]
    table += [(f"row {i}", [TEXT(i), LABEL(i), None]) for i in range(48)]
    _, unused = find_text_and_label_columns("a.jsonl", table, ["text", "label"])
    assert unused == ["text2 (always the same)"]
