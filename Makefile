# Thin: every target is a line or two of cmake, ctest or a script in tools/. `make help` lists them.
# Variables: BUILD (build), JOBS, PREFIX (/usr/local), DESTDIR, CMAKE_FLAGS, CMD (demo), BENCH
# (bench).
BUILD ?= build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
CMAKE_FLAGS ?=

SANITIZERS = asan ubsan tsan
CTEST = ctest --output-on-failure --no-tests=error -j $(JOBS)

.PHONY: all configure test test-release test-python test-asan test-ubsan test-tsan test-debug demo \
        bench peers \
        coverage format lint install clean help

all: configure ## build libhakmem.so and libhakmem.a in build/
	cmake --build $(BUILD) -j $(JOBS) --target hakmem hakmem_static

# Whatever generator a build directory was made with stays; Ninja for a new one, where there is one.
configure:
	@test -f $(BUILD)/CMakeCache.txt && test -z "$(CMAKE_FLAGS)" || \
	  cmake -S . -B $(BUILD) $(CMAKE_FLAGS) $$(test -f $(BUILD)/CMakeCache.txt || \
	    ! command -v ninja >/dev/null || echo -G Ninja)

test: ## build and run all tests: release, then under each sanitizer
	tools/install-deps.sh test
	$(MAKE) test-release
	$(MAKE) test-python
	for kind in $(SANITIZERS); do $(MAKE) test-$$kind || exit 1; done

test-release: configure ## build and run the tests in build/ alone
	cmake --build $(BUILD) -j $(JOBS)
	cd $(BUILD) && $(CTEST)

test-python: ## install the Python package into build/venv, and run its tests
	tools/install-deps.sh python
	test -x $(BUILD)/venv/bin/pip || python3 -m venv $(BUILD)/venv
	$(BUILD)/venv/bin/pip install --quiet '.[test]'
	$(BUILD)/venv/bin/pytest -q python/tests

test-asan: ## likewise in build/asan; test-ubsan, test-tsan and test-debug do as it says
test-asan test-ubsan test-tsan test-debug: test-%:
	cmake --preset $* $(CMAKE_FLAGS)
	cmake --build build/$* -j $(JOBS)
	cd build/$* && $(CTEST)

demo: ## a program under glibc and under hakmem, side by side; CMD="..." for your own
	tools/install-deps.sh demo
	$(MAKE) all
	python3 tools/demo.py --lib $(BUILD)/libhakmem.so
demo: export HAK_DEMO_COMMAND = $(CMD)

peers: ## build the allocators that hakmem is measured against, into build/peers
	bench/peers/build.sh

bench: all ## measure hakmem against its peers; BENCH="..." for options of bench/run.py
	python3 bench/run.py --lib $(BUILD)/libhakmem.so $(BENCH)

coverage: ## line coverage of src/ by the tests; fails under 85%
	tools/install-deps.sh coverage
	cmake --preset coverage $(CMAKE_FLAGS)
	cmake --build build/coverage -j $(JOBS)
	find build/coverage -name '*.gcda' -delete
	# Real programs leave counts in places of their own, and messages about them on stderr.
	cd build/coverage && $(CTEST) -LE compat
	gcovr --root . --filter src/ --gcov-executable gcov --fail-under-line 85 --print-summary \
	  --sort-uncovered --txt build/coverage/coverage.txt build/coverage
	@echo "By file: build/coverage/coverage.txt"

format: ## format the sources
	tools/install-deps.sh lint
	tools/check-format.sh --fix

lint: configure ## formatting, forbidden words, clang-tidy, ruff
	tools/install-deps.sh lint
	tools/check-words.sh
	tools/check-format.sh
	tools/check-tidy.sh $(BUILD)

install: all ## install libraries, headers, hakmem.pc and the CMake package under PREFIX
	DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove build/
	rm -rf $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z].*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile
