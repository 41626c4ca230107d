# Everything runs in .venv, which the first target that needs it makes from the lock files.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help start-bench layers growth two-servers cut release upgrade-check docs docs-check workflow-check web-test limits-vm run test interop check format bench transfer ports file-bars soak durable ssh-soak ssh-bench memory races fuzz integrations map protocol protocol-check proto reference system lock clean

help: ## list the targets
	@echo "make TARGET [ARGS='...'] [PYTHON=python3]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: .venv/.stamp-run ## start a server; ARGS are its options, for example ARGS=--help
	@$(BIN)/exec-server $(ARGS)

test: .venv/.stamp reference system ## run the tests; ARGS go to pytest
	$(BIN)/python -m pytest -q -n 2 --dist loadfile $(ARGS)

interop: .venv/.stamp system ## run the real Codex CLI on our server and write docs/compatibility.md; ARGS go to pytest
	@scripts/interop.sh $(ARGS)

check: .venv/.stamp ## check formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/.stamp ## rewrite the code as `check` wants it
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

start-bench: .venv/.stamp ## measure the processor time of starts; ARGS go to bench/start.py
	$(BIN)/python bench/start.py $(ARGS)

layers: .venv/.stamp ## measure where the time of a small call goes, beside floors; ARGS go to bench/layers.py
	$(BIN)/python bench/layers.py $(ARGS)

two-servers: .venv/.stamp ## measure what more event loops could bring at most; ARGS go to bench/two_servers.py
	$(BIN)/python bench/two_servers.py $(ARGS)

growth: .venv/.stamp ## measure how costs grow with sessions, processes, output, handles and names; ARGS go to bench/growth.py
	$(BIN)/python bench/growth.py $(ARGS)

bench: .venv/.stamp reference ## measure, beside the reference if it is available; ARGS go to bench/run.py
	$(BIN)/python bench/run.py $(ARGS)

transfer: .venv/.stamp ## copy files with `exec-server cp`, scp, sftp and rsync; ARGS go to bench/transfer.py
	$(BIN)/python bench/transfer.py $(ARGS)

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

ssh-bench: .venv/.stamp ## measure the ssh door beside sshd and asyncssh alone; ARGS go to bench/ssh_door.py
	$(BIN)/python bench/ssh_door.py $(ARGS)

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
