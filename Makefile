# The verbs. Each is thin: presets are in CMakePresets.json, the rest under tools/.
PRESET ?= release
JOBS ?= $(shell nproc)
SUITE ?= ops
FUZZ_SECONDS ?= 60
ARGS ?=
# Node for the oracle tests, where tools/setup.sh had to fetch one.
export PATH := $(if $(wildcard tools/node_modules/.bin/node),$(CURDIR)/tools/node_modules/.bin:)$(PATH)

.PHONY: build setup run test-fast test test-all check tidy-all fix fuzz bench clean help

build:  ## build PRESET (default: release, as build/release/lathe)
	@cmake --preset $(PRESET) >/dev/null || cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET) -j $(JOBS)

setup:  ## install packages, oracle packages and the pre-commit hook
	@./tools/setup.sh

run: build  ## talk to the built-in model; ARGS='-p "Tell me a story about a fox."'
	@build/release/lathe run $(ARGS)

test-fast: build  ## the inner loop, at most 3 minutes
	@ctest --preset fast

test: build  ## fast tests and the longer ones of each feature, at most 20 minutes
	@ctest --preset full

test-all:  ## everything: second compiler, sanitizers, planted faults, kernel ring alone, CUDA, tidy, fuzzing; hours
	@./tools/test_all.sh

check: build  ## format, tidy, layers, sizes, parameters, words, links, instruction-set leaks
	@./tools/check.py

tidy-all: build  ## clang-tidy without a time limit
	@./tools/tidy.py

fix:  ## format sources and lower the size ratchet
	@./tools/format.py --fix
	@./tools/check_sizes.py --tighten

fuzz:  ## every fuzz target for FUZZ_SECONDS each
	@./tools/fuzz.sh $(FUZZ_SECONDS)

bench: build  ## SUITE=ops or model, against the recorded baselines; ARGS go to the program
	@build/release/lathe bench $(SUITE) $(ARGS)

clean:  ## remove all build folders
	@rm -rf build

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
