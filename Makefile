# trainbench: the developer's commands. CI runs exactly these.
PYTHON ?= python3
DRILL ?=
NIGHTS ?=
PORT ?= 8080
SAMPLE ?= h
CHECKOV := checkov==3.3.30# in an environment of its own: it pins packages that Airflow needs in other versions

VENV := .venv/bin
IMAGE_PYTHON := .venv-image/bin/python
IMAGE_RUNS := tests/image/process tests/image/seq2seq tests/image/data tests/image/test_runs.py
GIVE_WAY := nice -n 10# to Airflow, whose pods are timed in `make test`
DEMO = $(VENV)/python scripts/demo.py --port $(PORT) $(if $(DRILL),--drill $(DRILL))
CODE := dags plugins bench_image scripts studies tests docs/examples

.DEFAULT_GOAL := help
.PHONY: help setup setup-demo demo ui check-manifests mutants test test-fast test-image test-image-runs test-image-rest test-slow test-demo test-kube test-kube-dags test-kube-production test-kube-rest test-browser screenshots check format golden lock release clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make the two environments (.venv: Airflow; .venv-image: PyTorch)
	@$(PYTHON) scripts/setup.py

setup-demo: # without what only tests and checks need
	@$(PYTHON) scripts/setup.py demo

demo: setup-demo ## run the node check on this machine with a tiny model; DRILL=node-3 slows that node on purpose
	@$(DEMO)

ui: setup-demo ## the demo, and Airflow stays open until Ctrl-C; NIGHTS=14 shows the pages with so many made-up nights
	@PYTHONPATH=. $(DEMO) --ui $(if $(NIGHTS),--made-up-nights $(NIGHTS))

# Lanes that wait for pods run beside `check`, which fails soonest, and then beside those that compute. No more than five
# at once: what waits for a busy machine keeps its own Airflow at work for longer.
LANES := check test-kube-dags test-kube-production test-slow test-kube-rest test-fast test-image-rest test-image-runs test-browser

test: setup ## everything that runs without a GPU
	@begin=$$(date +%s); if $(MAKE) --no-print-directory -k -j5 -Otarget $(LANES); then end=passed; else end=failed; fi; \
	echo "make test: $$end after $$(($$(date +%s) - begin)) s; $(words $(LANES)) lanes"; [ $$end = passed ]

test-fast: setup ## unit tests of the control plane and the contract
	@$(GIVE_WAY) $(VENV)/pytest -q tests/unit

test-image: setup ## the benchmark program on the CPU, real processes
	@$(IMAGE_PYTHON) -m pytest -q tests/image

test-image-runs: setup # the two parts of test-image take about as long
	@$(GIVE_WAY) $(IMAGE_PYTHON) -m pytest -q $(IMAGE_RUNS)

test-image-rest: setup
	@$(GIVE_WAY) $(IMAGE_PYTHON) -m pytest -q tests/image $(addprefix --ignore ,$(IMAGE_RUNS))

test-slow: setup ## real DAG runs
	@$(GIVE_WAY) $(VENV)/pytest -q tests/dag

test-demo: setup ## `make demo DRILL=node-3` as a user runs it, by itself: its pods are timed
	@TRAINBENCH_TEST_DEMO=1 $(VENV)/pytest -q tests/dag/test_demo.py

test-kube: setup ## operator, doctor, housekeeping and DAGs against a stand-in for a Kubernetes cluster (needs root on Linux)
	@$(VENV)/pytest -q tests/kube

test-kube-dags: setup # the three parts of test-kube mostly wait, so `make test` runs them beside each other
	@$(VENV)/pytest -q tests/kube/test_gangs.py tests/kube/test_dags.py

test-kube-production: setup
	@$(VENV)/pytest -q tests/kube/production

test-kube-rest: setup
	@$(VENV)/pytest -q tests/kube $(addprefix --ignore tests/kube/,test_dags.py test_gangs.py production)

test-browser: setup ## our pages in a real Airflow, by a real Chromium
	@$(VENV)/pytest -q tests/browser

test-gpu: ## the benchmark program on an NVIDIA GPU, with this machine's python3
	@$(PYTHON) -m pytest -q tests/gpu

check: setup ## formatting, lint, types, walls
	@$(VENV)/ruff format --check $(CODE)
	@$(VENV)/ruff check $(CODE)
	@$(GIVE_WAY) $(VENV)/mypy plugins dags docs/examples/dags scripts/demo.py
	@$(GIVE_WAY) $(VENV)/mypy --python-executable $(IMAGE_PYTHON) bench_image docs/examples/own_job.py
	@PYTHONPATH=.:plugins $(VENV)/lint-imports

check-manifests: setup ## the manifests under docker/ through a security linter, in an environment of its own
	@folder=$$(mktemp -d) && trap "rm -rf $$folder" EXIT && cp -r docker $$folder && rm -f $$folder/docker/.env && \
	TRAINBENCH_PRIORITY_CLASS=trainbench-benchmark TRAINBENCH_SERVICE_ACCOUNT=trainbench-bench \
	$(VENV)/trainbench plan --nodes gpu-1 --manifests > $$folder/docker/pods.yaml && $(PYTHON) -m venv $$folder/env && \
	$$folder/env/bin/pip install --quiet --disable-pip-version-check $(CHECKOV) && \
	$$folder/env/bin/checkov --directory $$folder/docker --config-file docker/checkov.yaml

mutants: setup ## mutate what people act on, run its tests against each (SAMPLE=f); not part of `make test`, takes half an hour
	@$(VENV)/python studies/mutation_study.py $(SAMPLE)

format: setup ## rewrite the code in the house format
	@$(VENV)/ruff check --fix-only --quiet $(CODE)
	@$(VENV)/ruff format $(CODE)

golden: setup ## rewrite the golden files; the diff is the review
	@$(VENV)/pytest -q tests/unit --golden

screenshots: setup ## make the pictures under docs/images anew
	@PYTHONPATH=. $(VENV)/python scripts/screenshots.py

lock: ## write requirements/*.txt anew from pyproject.toml
	@$(PYTHON) scripts/lock.py

release: ## build wheel and sdist into dist/, check them, run the wheel's DAGs; REPOSITORY=https://... for its links
	@$(PYTHON) scripts/release.py $(REPOSITORY)

clean: ## remove the environments and everything the demo made
	rm -rf .venv .venv-image .trainbench
