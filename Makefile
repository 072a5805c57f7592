# Each target sets up what it needs; the second time it starts at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
CORE_SOURCES := $(wildcard core/*/*.cpp core/*/*.hpp core/*/*.inl)
CORE := CMakeLists.txt pyproject.toml $(CORE_SOURCES)
BROWSER := which chromium > /dev/null 2>&1 || which chromium-browser > /dev/null 2>&1 || which google-chrome > /dev/null 2>&1
SLURM := which slurmctld > /dev/null 2>&1 || test -x /usr/sbin/slurmctld
CORES := $(shell nproc 2>/dev/null || echo 2)

TRACES ?=

# LSF's external scheduler plugin. LSF_INCLUDE is where LSF's lssched.h is; without it the plugin is compiled
# against our own header, which shows that it compiles, and is not to be loaded into LSF.
LSF_INCLUDE ?= integrations/lsf/stub
LSF_SOCKET ?= /var/lib/gpuyard/lsf.socket
LSF_FLAGS := -std=c11 -O2 -g -Wall -Wextra -Wpedantic -fPIC
PLUGIN := build/lsf/schmod_gpuyard.so
lsf-plugin: $(PLUGIN)
$(PLUGIN): $(wildcard integrations/lsf/*.c integrations/lsf/*.h integrations/lsf/stub/*.h)
	@mkdir -p $(@D)
	@$(CC) $(LSF_FLAGS) -shared -I$(LSF_INCLUDE) -Iintegrations/lsf -DGPUYARD_SOCKET='"$(LSF_SOCKET)"' \
	  $(filter %.c,$^) -o $@
	@echo "$@ is built with $(LSF_INCLUDE)/lssched.h"

.PHONY: lsf-plugin setup demo test test-slow lint format docs bench results results-check fidelity live live-soak sanitize clean

setup: $(VENV)/built

$(VENV)/tools: constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "gpuyard needs Python 3.11 or later: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1)
	@echo "setting up $(VENV) (once; a minute or two)"
	@$(PIP) cmake ninja nanobind scikit-build-core
	@$(PIP) torch
	@touch $@

$(VENV)/built: $(VENV)/tools $(CORE)
	@echo "building the core"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) --no-build-isolation -e '.[test]'
	@touch $@

demo: setup
	@$(BIN)/gpuyard demo

test: setup
	@$(BROWSER) || echo "No chromium on PATH: the tests in a browser are skipped (Debian: apt-get install chromium)"
	@$(SLURM) || echo "No slurmctld here: the tests on a real Slurm are skipped (Debian, as root: tests/live/install.sh)"
	@$(BIN)/python -m pytest -n $(CORES) --dist loadgroup -m "not slow"

# Long tests, and all that draw random cases, on other cases each time; SEED repeats a run.
SEED ?= $(shell date +%s)
test-slow: setup
	@echo "random cases of seed $(SEED); to repeat them: make test-slow SEED=$(SEED)"
	@$(BIN)/python -m pytest -n $(CORES) --dist loadgroup -m "slow or hypothesis" --hypothesis-profile=explore --hypothesis-seed=$(SEED)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run -Werror $(CORE_SOURCES)
	@$(BIN)/mypy

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CORE_SOURCES)

# docs/cli.md, from the help of the commands; the outputs of the page on notebooks.
docs: setup
	@$(BIN)/python docs/make_cli.py
	@$(BIN)/python docs/make_notebook.py

bench: setup
	@$(BIN)/gpuyard bench

# All experiments, then the pages of docs/results. Takes hours; the second time it resumes where it stopped.
results: setup
	@$(BIN)/gpuyard experiments run $(if $(TRACES),--traces $(TRACES))
	@$(BIN)/gpuyard experiments page --readme README.md

# The models that come with gpuyard, evaluated again and compared with the figures on their cards.
results-check: setup
	@$(BIN)/gpuyard experiments check $(if $(TRACES),--traces $(TRACES))

# A real Slurm against the simulator: installs Slurm from Debian (as root), runs streams of jobs on it, replays
# their logs, and writes docs/results/fidelity.md. Takes half an hour, most of it waiting.
FIDELITY ?=
fidelity: setup
	@tests/live/install.sh
	@$(BIN)/python -m experiments.fidelity $(FIDELITY)

# The agent on a real Slurm: 16 nodes of 8 GPUs, in namespaces of its own. Two to three minutes; installs Slurm
# from Debian (as root), and says so where that is not possible. VERSIONS=yes: newer Slurms, too, in chroots
# that debootstrap makes; ten minutes more.
VERSIONS ?=
live: setup
	@tests/live/install.sh || echo "Slurm could not be installed: the tests on a real Slurm are skipped"
	@$(if $(VERSIONS),tests/live/roots.sh || echo "newer Slurms cannot be had here: their tests are skipped",true)
	@tests/live/isolated.sh $(BIN)/python -m pytest -n 2 --dist loadgroup -p no:cacheprovider -rs $(if $(VERSIONS),,-m "not slow") tests/live

# 10,000 jobs while the agent is killed, slurmctld restarted, nodes drained and the journal's disk filled. A
# quarter of an hour. The figures go to build/live-soak.json.
SOAK ?=
live-soak: setup
	@tests/live/install.sh
	@tests/live/isolated.sh env PYTHONPATH=tests:. $(BIN)/python tests/live/soak.py $(SOAK)

# The core with AddressSanitizer and UndefinedBehaviorSanitizer, under the fast tests.
SANITIZED := build/sanitize
sanitize: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B $(SANITIZED) -G Ninja -DSANITIZE=ON -DCMAKE_BUILD_TYPE=Debug \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python > /dev/null
	@PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build $(SANITIZED)
	@rm -rf $(SANITIZED)/package && mkdir -p $(SANITIZED)/package
	@cp -r src/gpuyard $(SANITIZED)/package/ && cp $(SANITIZED)/_core*.so $(SANITIZED)/package/gpuyard/
	@LD_PRELOAD="$$($${CXX:-c++} -print-file-name=libasan.so) $$($${CXX:-c++} -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 GPUYARD_PACKAGE=$(CURDIR)/$(SANITIZED)/package \
	  $(BIN)/python -m pytest -p no:cacheprovider -m "not slow"

clean:
	rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
