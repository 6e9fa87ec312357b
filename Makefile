# Everything a person or CI runs. `make help` explains each target in a line.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo build-tests build-lints test test-rust test-python test-long test-python-long test-all test-isa mutants test-valgrind test-differential test-ported test-frameworks check check-source check-tests check-use lint types layers instructions examples bench \
	bench-in-process bench-network bench-disk bench-timeline bench-smoke bench-smoke-replay bench-smoke-training bench-learn train-bench fuzz proto docs screenshots site site-serve wheel test-wheel try-image wheels other-systems fmt clean

export PATH := $(shell tools/rust_env.sh path)
FOUND_RUSTUP_HOME := $(shell tools/rust_env.sh rustup-home)
ifneq ($(FOUND_RUSTUP_HOME),)
export RUSTUP_HOME := $(FOUND_RUSTUP_HOME)
endif
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS ?= true
endif
# Python keeps the bytecode of what it imports: else each process of a test compiles PyTorch's sources again.
unexport PYTHONDONTWRITEBYTECODE
PY := .venv/bin/python
# pyo3's build script asks an interpreter; the bindings themselves are tested from Python.
export PYO3_PYTHON := $(CURDIR)/.venv/bin/python
NEXTEST := $(shell PATH="$(PATH)" command -v cargo-nextest)
# Tests of Python run in two workers (pytest-xdist), those that share something in one of them (`xdist_group`).
# WORKERS=0: in one process, one after another, as a debugger needs it.
WORKERS ?= 2
PYTEST = $(PY) -m pytest $(if $(filter-out 0,$(WORKERS)),-n $(WORKERS) --dist loadgroup)
# On CI a failed test is run once more, when the machine is quiet, and .ci/run reports it: a shared machine may have
# paused. Elsewhere a failed test is not repeated.
AGAIN := { [ -n "$${CI:-}" ] && echo "==> flaky, or broken: once more what failed" >&2 && tools/quiet.sh; }
INTERLEAVINGS = cargo test --locked --quiet --workspace --exclude reverie-py --features reverie-core/shuttle --test interleavings
CLIPPY = cargo clippy --locked --workspace --all-targets -- -D warnings
GENERATED = crates/reverie-net/generated
# Sources of the generated code, and the code: tests/house/test_generated.py checks that they fit together.
PROTO_FILES = proto/reverie/v1/replay.proto tools/proto/src/main.rs tools/proto/Cargo.lock \
	$(GENERATED)/reverie.v1.rs $(GENERATED)/descriptors.bin
# Tests of Python, by their markers.
run_python = $(PYTEST) -m "$(1)" $(ARGS) || \
	{ [ $$? -eq 1 ] && $(AGAIN) && $(PYTEST) -m "$(1)" --last-failed --last-failed-no-failures none $(ARGS); }

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install uv, .venv and packages, and build the Rust extension in release mode; quick when nothing changed
	@tools/setup.sh

demo: setup ## train Ape-X DQN on CartPole-v1 with the embedded replay; ARGS="--seed 3 --json" goes to `reverie demo`
	@.venv/bin/reverie demo $(ARGS)

test: test-rust test-python ## run every quick test, Rust and Python

test-rust: setup ## run the quick tests of the Rust crates
ifneq ($(NEXTEST),)
	cargo nextest run --locked --workspace --exclude reverie-py --lib --bins --tests $(if $(CI),--profile ci)
else
	cargo test --locked --workspace --exclude reverie-py --lib --bins --tests || \
		{ $(AGAIN) && cargo test --locked --workspace --exclude reverie-py --lib --bins --tests; }
endif
	$(INTERLEAVINGS)

# Needs neither .venv nor the extension: CI compiles at the same time.
build-tests:
	cargo test --locked --workspace --exclude reverie-py --lib --bins --tests --no-run
	$(INTERLEAVINGS) --no-run

# Needs .venv for the build of pyo3, and no extension: `lint` reuses the result, and the extension's build keeps one core busy.
build-lints:
	$(CLIPPY)

test-python: setup ## run the quick tests of the Python package; ARGS="-k limiter" goes to pytest, WORKERS=0 runs them in one process
	$(call run_python,not long and not slow)

test-long: setup ## run the tests that start processes or a Ray cluster, kill them, or train: ten minutes; CI runs them too
	$(call run_python,long and not slow)

# In one run, with one worker more than there are cores: while tests of processes wait, others compute.
test-python-long: WORKERS = 3
test-python-long: setup ## run the quick tests and the long ones together, as CI does
	$(call run_python,not slow)

test-all: setup test-rust wheel ## run all tests: also the learning runs, 10,000 simulated networks, 100,000 crashes of a journal, 200,000 items through a disk tier, the wheel in an empty environment
	REVERIE_CRASHES=48 cargo test --locked --quiet --profile quick --package reverie-core --test journal crash:: -- --nocapture
	REVERIE_SOAK=200000 cargo test --locked --quiet --profile quick --package reverie-core --test tier draws_during -- --nocapture
	REVERIE_SIMULATIONS=10000 cargo test --locked --quiet --profile quick --package reverie-net --test simulation -- --nocapture
	$(PYTEST) -m "slow or long or not long" $(ARGS)
	tools/frameworks.sh $(ARGS)
	tools/isa.sh $(ARGS)

test-isa: setup ## run the tests of numbers of PyTorch and NumPy on each instruction set of this processor; LEVELS="default avx2"
	tools/isa.sh $(ARGS)

mutants: setup ## insert prepared bugs, one at a time, and count those that the nearest tests detect; ARGS="--only heap"
	$(PY) tools/mutations/run.py $(ARGS)

test-differential: setup ## run the same random programs on dm-reverb and on Reverie; ARGS="--kind trajectories --seed 17" replays one
	$(PY) tests/differential $(ARGS)

test-ported: setup ## run code written for dm-reverb on Reverie: the tests that Acme publishes of its adders, and tests that need TensorFlow
	$(PY) tests/ported $(ARGS)

test-frameworks: setup ## run the tests inside RLlib, tianshou, EnvPool and W&B, in an environment that has their packages (minutes)
	tools/frameworks.sh $(ARGS)

check: check-source check-tests check-use ## run the checks of CI: lints, types, layers, instruction counts, tests, README, docs, examples, the site, the wheel, short benchmarks

# Two at a time: most of these keep one core busy.
PAIRED = $(MAKE) --jobs=2 --output-sync=target

check-source: setup
	$(PAIRED) lint types layers instructions

check-tests: test-rust test-python-long

# The longest first: one that begins last runs alone.
check-use: setup
	$(PAIRED) bench-smoke-replay bench-smoke-training examples site test-wheel

lint: setup ## check formatting, lints and Rust's documentation with its examples; warnings are errors
	cargo fmt --all --check
	$(CLIPPY)
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --quiet --no-deps --workspace
	cargo test --locked --quiet --workspace --exclude reverie-py --doc
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .

types: setup ## run mypy --strict, and compare the stubs with the built module
	.venv/bin/mypy
	.venv/bin/stubtest --mypy-config-file tools/stubtest.ini reverie._native

layers: setup ## check the rules of imports between modules, in Python and in Rust
	.venv/bin/lint-imports
	tools/core_stays_pure.sh

instructions: setup ## count the instructions of the engine's hot paths and compare them with the last commit's (needs valgrind); ARGS="--write" keeps the new counts
	$(PY) tools/instructions.py $(ARGS)

examples: setup ## run every script under examples/
	@for file in examples/*.py; do echo "==> $$file"; $(PY) $$file; done

bench: bench-in-process bench-network ## run both suites against their peers (about half an hour; results under benchmarks/results)

bench-in-process: setup ## measure tables in one process, against cpprb, SB3, TorchRL and NumPy
	$(PY) -m benchmarks --suite in-process $(ARGS)

bench-network: setup ## measure a server in another process, against dm-reverb, bare sockets and the machine's memory
	$(PY) -m benchmarks --suite network $(ARGS)

bench-disk: setup ## measure the costs of a journal, against plain files on the same disk; ARGS="--folder DIR" names the disk
	$(PY) -m benchmarks.disk $(ARGS)

bench-timeline: setup ## plot inserts and draws over time while a journal syncs, files are compacted and a checkpoint is taken
	$(PY) -m benchmarks.timeline $(ARGS)

bench-smoke: bench-smoke-replay bench-smoke-training ## run all benchmarks without peers, small and short, to check that they work

bench-smoke-replay: setup
	$(PY) -m benchmarks --suite in-process --smoke $(ARGS)
	$(PY) -m benchmarks --suite network --smoke $(ARGS)
	$(PY) -m benchmarks --suite in-process --smoke --rows "256, 20 k" --before .
	$(PY) -m benchmarks.disk --smoke
	$(PY) -m benchmarks.timeline --smoke

bench-smoke-training: setup
	$(PY) -m benchmarks.learn --smoke
	$(PY) -m benchmarks.train --work pong --smoke
	$(PY) -m benchmarks.train --work classic --smoke
	$(PY) benchmarks/gpu.py speed --device cpu --batch 16 --items 500 --seconds 0.1 --rounds 1 --threads 2 --out .bench-smoke && rm -r .bench-smoke

train-bench: setup ## measure the training of Ape-X DQN against SB3's DQN on CartPole-v1; ARGS="--work pong --minutes 60": on Pong, RLlib too; "--work classic": four agents, SBX too
	$(PY) -m benchmarks.train $(ARGS)

bench-learn: setup ## train each agent to its target with five seeds, resumable (hours); ARGS="--rows cartpole-dqn --minutes 30"
	$(PY) -m benchmarks.learn $(ARGS)

proto: ## generate the Rust code of proto/reverie/v1/replay.proto; compiles the generator first
	cargo run --locked --quiet --manifest-path tools/proto/Cargo.toml --target-dir target/proto -- $(GENERATED)
	sha256sum $(PROTO_FILES) > $(GENERATED)/SHA256SUMS

fuzz: ## fuzz the decoders of bytes from outside (needs a C++ compiler): SECONDS=30 for each target, TARGETS=packed_chunk
	tools/fuzz.sh $(or $(SECONDS),30) $(TARGETS)

test-valgrind: ## run tests of the engine's unsafe code under valgrind (needs valgrind)
	tools/valgrind.sh

docs: setup ## build the Rust reference under target/doc, and run every code block in README and docs
	cargo doc --locked --no-deps --workspace
	$(PY) -m pytest tests/docs

screenshots: setup ## take the pictures of docs/guides/watch-a-server.md from a running server (needs chromium)
	$(PY) tools/screenshots.py docs/guides/watch-a-server

site: setup ## build the documentation as a website under site/; it works without a server or a network
	@tools/setup.sh site
	PYTHONPATH=tools $(PY) -m website.stage target/site-pages
	rm -rf site
	$(PY) -m sphinx --quiet --jobs auto --write-all --fail-on-warning --builder html --conf-dir tools/website \
		--doctree-dir target/site-doctrees target/site-pages site

site-serve: site ## serve the website at http://127.0.0.1:8008; PORT=8009 takes another port
	$(PY) -m http.server --bind 127.0.0.1 --directory site $(or $(PORT),8008)

test-wheel: wheel ## install the wheel of `make wheel` into an empty environment without Rust, and use it
	$(PY) -m pytest -m slow tests/house/test_wheel.py

wheel: setup ## build one abi3 wheel under dist/
	PATH="$$(dirname "$$(tools/uv.sh)"):$$PATH" .venv/bin/maturin build --release --locked --out dist

try-image: wheel ## build deploy/Containerfile with podman and use its server (root, debootstrap, runc; FOLDER=where)
	$(PY) tools/containerfile.py $(or $(FOLDER),.image)

wheels: ## build and test a release's sdist and wheels for x86-64 and aarch64, under dist/release; PARTS="sdist x86_64 pythons" needs no root
	tools/wheels.sh $(PARTS)

other-systems: ## compile the crates and type-check the package for macOS and Windows; nothing is run (root; not for PARTS=python)
	tools/other_systems.sh $(PARTS)

fmt: setup ## format Rust and Python in place
	cargo fmt --all
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

clean: ## remove all build outputs (not the packages of .venv)
	cargo clean
	rm -rf dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .venv/.stamp-native
