# Qualm - a harness for low-bit optimizer states.   make help
#
# Switches: V=1 shows commands, ONLY=WORD runs the tests that concern files with WORD in their path, SAN=1 builds with ASan and UBSan and fills variables that nobody set,
# CUDA=0 leaves CUDA checks out, CC=clang chooses the compiler, INSTALL=0 never installs packages,
# MPI=1 links with mpicc: `mpirun qualm run` deals cells then.
.DEFAULT_GOAL := all
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --jobs=$(shell nproc)
endif

# ---- detection -----------------------------------------------------------------------------
V ?= 0
SAN ?= 0
CUDA ?= 1
INSTALL ?= 1
MPI ?= 0
PEERS ?= python3 tests/peers/peers.py
PYTHON := /usr/bin/python3
ifeq ($(origin CC),default)
CC := gcc
endif
BUILD := build/$(notdir $(firstword $(CC)))$(if $(filter 1,$(SAN)),-san)
# Package = a test that it is there.  The names are those of Debian 12, Ubuntu 22.04 and Ubuntu 24.04.
define PACKAGES
gcc=command -v gcc
g++=command -v g++
libc6-dev=test -e /usr/include/stdio.h
pkg-config=command -v pkg-config
libhdf5-dev=pkg-config --exists hdf5
libgsl-dev=pkg-config --exists gsl
libyaml-dev=pkg-config --exists yaml-0.1
libjansson-dev=pkg-config --exists jansson
libzip-dev=pkg-config --exists libzip
zlib1g-dev=pkg-config --exists zlib
libcmocka-dev=pkg-config --exists cmocka
libmpfr-dev=pkg-config --exists mpfr
bats=command -v bats
procps=command -v pgrep
python3-numpy=$(PYTHON) -c "import numpy"
python3-h5py=$(PYTHON) -c "import h5py"
python3-matplotlib=$(PYTHON) -c "import matplotlib"
endef
# Manual pages are left out where help2man is missing and nothing is to be installed.
ifneq ($(if $(filter 0,$(INSTALL)),,$(filter install man,$(MAKECMDGOALS))),)
define PACKAGES +=

help2man=command -v help2man
endef
endif
export PACKAGES

# Asked when first needed, so that what setup has just installed is found.
PC := hdf5 gsl yaml-0.1 jansson libzip zlib
PC_CFLAGS = $(eval PC_CFLAGS := $(shell pkg-config --cflags $(PC)))$(PC_CFLAGS)
PC_LIBS = $(eval PC_LIBS := $(shell pkg-config --libs $(PC)) -lhdf5_hl)$(PC_LIBS)
TEST_LIBS = $(eval TEST_LIBS := $(shell pkg-config --libs cmocka mpfr))$(TEST_LIBS)

# ---- flags ---------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wvla -Wdouble-promotion \
  -Wfloat-conversion -Werror
# GCC 12 loses the rounding of two neighbouring (double)(float)x when it vectorizes straight lines.
NUMERIC := -ffp-contract=off -fno-fast-math -fno-math-errno -fno-tree-slp-vectorize
, := ,
OPT := $(if $(filter 1,$(SAN)),-O1 -g -fsanitize=address$(,)undefined -fno-omit-frame-pointer \
  -ftrivial-auto-var-init=pattern,-O3 -g1)
SANFLAGS := $(if $(filter 1,$(SAN)),-fsanitize=address$(,)undefined -fno-sanitize-recover=undefined)
CPPFLAGS = -I. -I$(BUILD)/gen -D_GNU_SOURCE $(PC_CFLAGS)
CFLAGS = -std=c11 $(WARN) $(NUMERIC) $(OPT) $(SANFLAGS) -fopenmp
# libgomp is linked into the executable, so that core/base/threads.c chooses how long its threads spin.
GOMP = $(if $(findstring clang,$(CC)),,$(filter /%,$(shell $(CC) -print-file-name=libgomp.a)) -Wl$(,)--as-needed)
LDLIBS = $(PC_LIBS) -ldl -lm $(GOMP)

# ---- sources -------------------------------------------------------------------------------
ISAS := sse2 avx2 avx512
ALL_SOURCES := $(filter-out variants/native/%,$(wildcard core/*/*.c variants/*.c variants/*/*.c \
  oracle/*.c oracle/*/*.c experiments/*/*.c))
# A source that names a table with QM_ISA_NAME is compiled once per instruction set.
BY_ISA := $(shell grep -lw QM_ISA_NAME $(ALL_SOURCES))
# A header that says "(dual)" in its first comment compiles as C11, as C++17 and as CUDA.
DUAL := core/base/dual.h $(shell grep -lE '^(/| )\*.*\(dual\)' $(wildcard core/*/*.h))
MAIN := experiments/command/main.c
MPI_DISPATCH := experiments/campaign/mpi_dispatch.c
SOURCES := $(filter-out $(BY_ISA) $(MAIN) $(MPI_DISPATCH),$(ALL_SOURCES))
LIB_OBJ := $(SOURCES:%.c=$(BUILD)/%.o)
ISA_OBJ := $(foreach isa,$(ISAS),$(BY_ISA:%.c=$(BUILD)/%_$(isa).o))
TEST_SOURCES := $(wildcard $(addprefix tests/,$(addsuffix test_*.c,*/ */*/ */*/*/)))
TESTS := $(TEST_SOURCES:%.c=$(BUILD)/%)
LONG_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/*/*/long_*.c))
Q := $(if $(filter 1,$(V)),,@)
say = @printf '%-4s %s\n' $(1) $(2)

.PHONY: all run readme-figures claims baseline test peers bench bench-peers check-dual check-kernels check-layers check-style \
  check-headers check-format check-links format gpu-check bench-gpu check-long config bundle help clean plots \
  setup tests install uninstall dist man fuzz
.DELETE_ON_ERROR:

all: qualm ## build ./qualm

# Objects are compiled again where the flags change, so that a result records the flags it was made
# with; a removed source leaves the library.  Both are written again only where they change.
FLAGS = $(CC) $(CPPFLAGS) $(CFLAGS) $(ISA_OPT) $(foreach isa,$(ISAS),$(ISA_$(isa)))
$(BUILD)/gen/flags: RECORD = $(FLAGS)
$(BUILD)/gen/objects: RECORD = $(LIB_OBJ) $(ISA_OBJ)
$(BUILD)/gen/flags $(BUILD)/gen/objects: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(RECORD))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(RECORD))' > $@

$(BUILD)/%.o: %.c $(BUILD)/gen/flags
	$(if $(filter 1,$(V)),,$(call say,CC,$<))
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

ISA_sse2 :=
ISA_avx2 := -mavx2 -mfma -mf16c -mtune=haswell
ISA_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vbmi2 -mfma -mf16c -mprefer-vector-width=512 -mtune=icelake-server
# One object per instruction set: the same source, the same bits, chosen when the program starts.
define isa_rule
$(BUILD)/%_$(1).o: %.c $(BUILD)/gen/flags
	$$(if $$(filter 1,$$(V)),,$$(call say,CC,"$$< ($(1))"))
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(ISA_OPT) $$(ISA_$(1)) -DQM_ISA=$(1) -MMD -MP -c $$< -o $$@
endef
# -fno-trapping-math lets these loops be vectorized.  It is not for the code that judges: with it gcc
# 12 folds isinf(x) || (isfinite(x) && c) to isinf(x) || c, which is another value where x is NaN.
ISA_OPT := $(if $(filter 1,$(SAN)),,-O3) -fno-trapping-math
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

# ---- registries: a file is its registration --------------------------------------------------
# A list is written again only where it changes, so that a removed file is noticed too.
entries = $(foreach f,$(sort $(1)),QM_ENTRY($(basename $(notdir $(f))),"$(f)")\n)
$(BUILD)/gen/variants.inc: FILES := $(filter-out variants/registry.c,$(filter variants/%,$(ALL_SOURCES)))
$(BUILD)/gen/problems.inc: FILES := $(shell grep -l '^const struct qm_problem qm_problem_' experiments/problems/*.c)
$(BUILD)/gen/families.inc: FILES := $(wildcard core/rule/family_*.c)
$(BUILD)/gen/%.inc: FORCE
	@mkdir -p $(@D)
	@printf '$(call entries,$(FILES))' | tr -d ' ' | LC_ALL=C sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/core/rule/rule.o: $(BUILD)/gen/families.inc
$(BUILD)/variants/registry.o: $(BUILD)/gen/variants.inc
$(BUILD)/experiments/problems/problem.o: $(BUILD)/gen/problems.inc

# Data that the executable carries: the bytes of a file.
$(BUILD)/gen/digits.inc: experiments/data/digits.npy
$(BUILD)/gen/novel.inc: experiments/data/pride_and_prejudice.zip
$(BUILD)/gen/digits.inc $(BUILD)/gen/novel.inc:
	@mkdir -p $(@D)
	@od -An -v -tu1 -w32 $< | sed -E 's/ +([0-9]+)/\1,/g' > $@.new && mv $@.new $@
$(BUILD)/experiments/source/digit_images.o: $(BUILD)/gen/digits.inc
$(BUILD)/experiments/problems/gpt.o: $(BUILD)/gen/novel.inc

# Texts that the executable carries: a line of the file is a string; NULL follows the last.
$(BUILD)/gen/texts.inc: TEXTS := $(sort $(wildcard core/abi/*.h)) \
  $(sort $(wildcard variants/native/*.c variants/native/*.cu))
$(BUILD)/gen/mutants.inc: TEXTS := $(sort $(wildcard experiments/mutants/*.txt))
# The sources of the device's kernels, named by their paths.
$(BUILD)/gen/device.inc: TEXTS := core/device/step.cu core/device/tensor_rule.cu core/device/step_emu.cu \
  core/abi/kernel_abi.h core/abi/kernel_cuda.h $(sort $(DUAL))
$(BUILD)/gen/device.inc: NAME_OF := echo
$(BUILD)/gen/emu.inc: TEXTS := $(sort $(wildcard core/emu/*.hpp core/emu/*.cpp)) \
  core/base/dual.h core/base/half.h core/base/fp8.h
$(BUILD)/gen/report.inc: TEXTS := experiments/report/page.css experiments/report/page.js \
  $(sort $(wildcard plots/figures/*.py plots/report/*.py))
# The glossary of experiments/README.md, a word and its meaning to each line.
$(BUILD)/gen/glossary.inc: experiments/README.md
	@mkdir -p $(@D)
	@sed -n '/^## Glossary/,$$p' $< | grep '^| ' | grep -v '^| word ' | sed -E 's/[\\"]/\\&/g; s/`//g; s/\*([A-Za-z][^*]*[A-Za-z])\*/\1/g; s/^\| *(.*[^ ]) +\| (.*[^ ]) *\|$$/QM_WORD("\1", "\2")/' > $@.new
	@mv $@.new $@
NAMED := $(foreach i,texts mutants emu report,$(BUILD)/gen/$(i).inc)
$(NAMED): NAME_OF := basename
$(NAMED) $(BUILD)/gen/device.inc: FORCE
	@mkdir -p $(@D)
	@for f in $(TEXTS); do echo "QM_TEXT(\"$$($(NAME_OF) $$f)\","; \
	  sed -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n",/' $$f; echo 'NULL)'; done > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
# Every object waits for the generated files; from the second build on -MMD knows who includes which.
$(LIB_OBJ) $(ISA_OBJ): | $(NAMED) $(foreach i,device digits variants problems families glossary,$(BUILD)/gen/$(i).inc)

$(BUILD)/libqm.a: $(LIB_OBJ) $(ISA_OBJ) $(BUILD)/gen/objects
	$(if $(filter 1,$(V)),,$(call say,AR,$@))
	@rm -f $@
	$(Q)ar rcs $@ $(filter %.o,$^)

$(BUILD)/qualm: $(BUILD)/experiments/command/main.o $(BUILD)/libqm.a
	$(if $(filter 1,$(V)),,$(call say,LD,$@))
	$(Q)$(CC) $(CFLAGS) $^ -o $@ $(LDLIBS)

# With MPI: mpi_dispatch.o takes the place of mpi_dispatch_none.o, which stays in the library.
$(BUILD)/qualm-mpi: $(BUILD)/experiments/command/main.o $(MPI_DISPATCH) $(BUILD)/libqm.a
	$(if $(filter 1,$(V)),,$(call say,MPI,$@))
	$(Q)OMPI_CC=$(CC) mpicc $(CPPFLAGS) $(CFLAGS) $^ -o $@ $(LDLIBS)

qualm: $(BUILD)/qualm$(if $(filter 1,$(MPI)),-mpi)
	@ln -sf $< $@

$(BUILD)/tests/%: tests/%.c $(BUILD)/libqm.a $(BUILD)/gen/flags
	$(if $(filter 1,$(V)),,$(call say,CC,$<))
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -O1 -MMD -MP $< $(BUILD)/libqm.a -o $@ $(TEST_LIBS) $(LDLIBS)

tests: $(TESTS)

# ---- what every result records ---------------------------------------------------------------
VERSION := $(shell sed -n 's/^.define QM_VERSION "\(.*\)"/\1/p' experiments/machine/version.h)
# What `make dist` packed holds the commit in a file, which counts also inside another repository.
COMMIT := $(shell cat .commit 2>/dev/null || \
  git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
PROVENANCE := -DQM_COMMIT='"$(COMMIT)"' -DQM_CFLAGS='"$(CFLAGS)"'
$(BUILD)/gen/provenance: FORCE
	@mkdir -p $(@D)
	@echo "$(VERSION) $(COMMIT) $(CFLAGS)" | cmp -s - $@ || \
	  echo "$(VERSION) $(COMMIT) $(CFLAGS)" > $@
$(BUILD)/experiments/machine/provenance.o: $(BUILD)/gen/provenance
$(BUILD)/experiments/machine/provenance.o: private CPPFLAGS += $(PROVENANCE)
FORCE:

# ---- what people call ----------------------------------------------------------------------
# Installs what is missing; silent when nothing is.  Only the goals below ask for it.
setup:
	@missing=; \
	while IFS='=' read -r package test; do \
	  eval "$$test" >/dev/null 2>&1 || missing="$$missing $$package"; \
	done <<< "$$PACKAGES"; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$(INSTALL)" = 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "qualm: missing Debian or Ubuntu packages:$$missing; install them and run make again" >&2; exit 1; \
	fi; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	if [ -n "$$sudo" ] && ! command -v sudo >/dev/null; then \
	  echo "qualm: missing packages:$$missing; run as root: apt-get install$$missing" >&2; exit 1; \
	fi; \
	echo "qualm: installing$$missing" >&2; mkdir -p build; \
	{ $$sudo apt-get update -qq; $$sudo env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends $$missing; } >build/setup.log 2>&1 || \
	{ echo "qualm: apt-get could not install$$missing (see build/setup.log)" >&2; exit 1; }

ifneq ($(filter run claims baseline test bench plots check-long setup install man,$(MAKECMDGOALS)),)
$(LIB_OBJ) $(ISA_OBJ) $(BUILD)/experiments/command/main.o $(BUILD)/gen/flags: | setup
endif

SUITES := momentum_format search rank1 second_moment theory drift drift_second \
  momentum_convergence momentum_sgdm convergence
# The steps that `make run` times; `make bench` times those of all variants.
RUN_STEPS := adamw4_(ao|lpmm|lpmm_group|qm)|adamw5_3_qm|adamw8_(ao|bnb_default)|adamw_fp8_ao|$\
  flash_adamw|lion8_(bnb_default|fused)|sgdm8_bnb_default
run: qualm ## the main job: the momentum ablation on real states; results, plots, the headline tables
	@mkdir -p results plots/out
	$(Q)./qualm bench --quick --only steps --only searches --step '^($(RUN_STEPS))$$' \
	  --out results/bench.h5 > results/bench.txt
	$(Q)./qualm run --headline $(SUITES:%=experiments/suites/%.yaml) > results/headline.txt
	@$(MAKE) --no-print-directory plots > results/plots.txt
	@cat results/headline.txt
	@echo; echo "The answers as one figure: plots/out/headline.png, $$(grep -c png results/plots.txt) figures in all; speeds of the best-known steps: results/bench.txt (make bench: of all)."
	@echo "What next: ./qualm analyze checkpoint.pt; README.md, three jobs: ablate, analyze your states, validate your kernel."

readme-figures: run ## the pictures that README.md and plots/gallery show, drawn anew from what make run measures
	$(Q)cp plots/out/*.svg plots/gallery/

# Figures of `qualm plot`: name, result file, figure, values compared (~ stands for a space).
PLOTS := dumbbell:momentum_format:dumbbell frontier:momentum_format:frontier \
  rank1:rank1:dumbbell:block~128,rank-1 drift:drift:drift drift_second:drift_second:drift \
  loss:convergence:ratio loss_momentum:momentum_convergence:ratio loss_sgdm:momentum_sgdm:ratio
plots: qualm ## draw results/*.h5 into plots/out (PNG and SVG)
	$(Q)for file in $(wildcard results/*.h5); do ./qualm digest $$file >/dev/null || exit 1; done
	$(Q)( printf '$(PYTHON) %s --results results --out plots/out\n' \
	    $(filter-out plots/figures/common.py,$(wildcard plots/figures/*.py)); \
	  for plot in $(PLOTS); do \
	    IFS=: read -r name file what pair <<<"$$(tr '~' ' ' <<<"$$plot")"; \
	    if [ -e results/$$file.h5 ]; then \
	      echo "./qualm plot -q results/$$file.h5 --what $$what $${pair:+--pair '$$pair'}" \
	        "-o plots/out/$$name.png -o plots/out/$$name.svg"; \
	    else echo "plots: skipped: results/$$file.h5 is not there (make run writes it)" >&2; fi; \
	  done ) | xargs -d '\n' -P $(shell nproc) -I{} bash -c '{}'

claims: qualm ## claims of the literature, each with its effect, 95 % interval and verdict
	@mkdir -p results/claims
	$(Q)./qualm run --claims --out results/claims/

# What `qualm run --against baseline` compares with; ships.
baseline: qualm ## run the baseline campaign, keep results/baseline.h5 of it (at most 3 MB)
	@mkdir -p build/baseline
	$(Q)./qualm run baseline --out build/baseline/all.h5
	$(Q)./qualm report build/baseline/all.h5 --archive results/baseline.h5
	@ls -l results/baseline.h5

test: qualm tests ## every test (ONLY=quant: those that concern it; ONLY=changed: your change)
	@BUILD=$(BUILD) SAN=$(SAN) ONLY="$(ONLY)" tests/run.sh

# Instrumented are the readers of files; the rest is the plain library.  Inputs that crash a target
# lie in build/fuzz/found/TARGET; those that are mended go to tests/fuzz/found/TARGET, which are seeds.
FUZZ_TARGETS := $(shell grep -E '^    X.[a-z0-9_]+, +read_' tests/fuzz/test_formats.c | cut -d, -f1 | cut -c7-)
FUZZED := $(wildcard experiments/foreign/*.c experiments/readers/*.c experiments/store/*.c \
  experiments/suite/suite*.c experiments/state/state_*.c) experiments/recipes/lpmm_config.c \
  experiments/campaign/ledger.c experiments/campaign/ledger_index.c experiments/campaign/segment.c \
  experiments/campaign/folder.c experiments/conform/golden.c experiments/vectors/vectors_file.c
build/fuzz/formats: tests/fuzz/test_formats.c $(FUZZED) $(BUILD)/libqm.a
	@mkdir -p build/fuzz
	$(Q)clang $(CPPFLAGS) -std=c11 $(NUMERIC) -Wno-everything -O1 -g -DQM_LIBFUZZER \
	  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
	  tests/fuzz/test_formats.c $(FUZZED) $(BUILD)/libqm.a -o $@ $(TEST_LIBS) $(LDLIBS)

fuzz: qualm build/fuzz/formats ## libFuzzer on the reader of every format, S seconds each (S=60 TARGET=npy); needs clang
	$(Q)rm -rf build/fuzz/seeds && tests/fuzz/make_seeds.sh ./qualm build/fuzz/seeds
	$(Q)for t in $(or $(TARGET),$(FUZZ_TARGETS)); do mkdir -p build/fuzz/corpus/$$t build/fuzz/found/$$t; \
	  dict=$$(sed -n "s/.*X($$t, *[a-z_]*, *\"\([a-z0-9]*\)\".*/\1/p" tests/fuzz/test_formats.c); \
	  echo "== $$t"; ASAN_OPTIONS=allocator_may_return_null=1 QM_FUZZ=$$t build/fuzz/formats build/fuzz/corpus/$$t build/fuzz/seeds/$$t \
	    -dict=tests/fuzz/dict/$$dict.dict -max_total_time=$(or $(S),60) -max_len=200000 -timeout=60 \
	    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=build/fuzz/found/$$t/ \
	    >build/fuzz/$$t.log 2>&1 || { tail -30 build/fuzz/$$t.log; exit 1; }; \
	  grep -E "cov:|number_of_executed_units" build/fuzz/$$t.log | tail -2; done

bench: qualm ## speed of steps and searches, as ratios within one run
	$(Q)./qualm bench --out results/bench.h5

check-layers: qualm ## link symbols and headers between folders go one way; each function has a caller
	$(Q)$(PYTHON) tests/style/check_layers.py --prefix $(BUILD)
	$(Q)$(PYTHON) tests/style/check_callers.py $(BUILD)

check-style: ## no line, function, list of parameters or file is longer than the house style allows
	$(Q)$(PYTHON) tests/style/check_style.py

check-links: ## texts and comments name files, headings and identifiers that are there
	$(Q)$(PYTHON) tests/style/check_links.py

# check_headers.py lists the headers that make sense alone, and checks their guards.
check-headers: ## each header has its own guard and compiles alone; all together in one translation unit: one meaning per name
	@mkdir -p $(BUILD); $(PYTHON) tests/style/check_headers.py --list > $(BUILD)/headers.txt
	@sed 's/.*/#include "&"/' $(BUILD)/headers.txt > $(BUILD)/headers.c
	$(Q)$(CC) $(CPPFLAGS) -std=c11 $(WARN) -fmax-errors=10 -fsyntax-only $(BUILD)/headers.c && \
	  $(PYTHON) tests/style/check_headers.py --alone $(CC) $(CPPFLAGS) -std=c11 && \
	  echo "check-headers: $$(wc -l < $(BUILD)/headers.txt) headers in one translation unit, and alone"

FORMATTED := $(shell find core oracle experiments variants tests -name '*.[ch]' -o -name '*.cu' \
  -o -name '*.[ch]pp')
CLANG_FORMAT := clang-format
format: ## lay all sources out with clang-format 14, as Debian 12 has it
	$(Q)$(CLANG_FORMAT) -i $(FORMATTED)
check-format: ## the sources are laid out as make format would lay them out
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED) && echo "check-format: ok"

compile_commands.json: Makefile FORCE ## the compiler's command lines, for clangd and clang-tidy
	@{ echo '['; for f in $(filter-out $(BY_ISA),$(ALL_SOURCES)) $(TEST_SOURCES); do \
	  printf '{"directory": "%s", "file": "%s", "command": "%s"},\n' "$(CURDIR)" $$f \
	    "$(CC) $(subst ",\",$(CPPFLAGS) $(CFLAGS)) -c $$f"; done; \
	  for f in $(BY_ISA); do \
	  printf '{"directory": "%s", "file": "%s", "command": "%s"},\n' "$(CURDIR)" $$f \
	    "$(CC) $(subst ",\",$(CPPFLAGS) $(CFLAGS)) $(ISA_avx512) -DQM_ISA=avx512 -c $$f"; done | \
	  sed '$$s/,$$//'; echo ']'; } > $@
	@echo "$@: $$(grep -c directory $@) files"

check-dual: ## the dual headers compile as C11, C++17 and CUDA
	@mkdir -p $(BUILD); printf '#include "%s"\n' $(DUAL) > $(BUILD)/dual.c
	$(Q)$(CC) -std=c11 $(WARN) -I. -fsyntax-only $(BUILD)/dual.c && echo "check-dual: C11 ok"
	$(Q)if echo 'int main(){}' | $(CC) -x c++ -fsyntax-only - 2>/dev/null; then \
	  $(CC) -x c++ -std=c++17 -Wall -Wextra -Werror -I. -fsyntax-only $(BUILD)/dual.c && \
	  echo "check-dual: C++17 ok"; else echo "check-dual: C++17 skipped: no C++ compiler"; fi
	$(Q)if [ "$(CUDA)" = 1 ] && command -v nvcc >/dev/null; then \
	  nvcc -x cu -std=c++17 -arch=sm_90 --fmad=false -I. -ptx -o $(BUILD)/dual.ptx $(BUILD)/dual.c && \
	  echo "check-dual: CUDA ok"; else echo "check-dual: CUDA skipped: no nvcc, or CUDA=0"; fi

# By NVRTC, as users' machines compile them: for A100, H100 and B200.
check-kernels: qualm ## every variant's CUDA kernels compile, without spills or local memory (NVRTC, no GPU)
	$(Q)if [ "$(CUDA)" = 1 ]; then QM_CACHE=off ./qualm kernels --arch sm_80,sm_90,sm_100; code=$$?; \
	  if [ $$code = 77 ]; then echo "check-kernels: skipped: no NVRTC (qualm doctor says what was sought)"; \
	  else exit $$code; fi; else echo "check-kernels: skipped: CUDA=0"; fi

GPU_CODE = code=$$?; [ $$code = 77 ] && { echo "$@: skipped, exit code 77: the line above says why"; exit 0; } || exit $$code
gpu-check: qualm ## on a machine with a GPU: bits, speed, codes, verdicts, peers of the CUDA backend, into results/gpu (ten minutes; RESUME=1 goes on)
	$(Q)./qualm gpu-check $(if $(RESUME),--resume,--peers "$(or $(PEERS),none)"); $(GPU_CODE)

# PyPI's packages in a virtual environment of their own; PEERS_FLAGS="--seed 7 --only torch".
PEERS_VENV ?= build/peers
PEERS_FLAGS ?=
PEERS_TEXT := tests/peers/requirements.txt tests/peers/adafactor8bit.txt
PEERS_RELEASES = $(patsubst adafactor8bit==%,%,$(shell grep '^adafactor8bit==' tests/peers/adafactor8bit.txt))
# Installs them where they are not, or ends the recipe with a word.
PEERS_READY = if ! cat $(PEERS_TEXT) | cmp -s - $(PEERS_VENV)/requirements.txt; then \
	  if python3 -m venv $(PEERS_VENV) && $(PEERS_VENV)/bin/pip install -q -r tests/peers/requirements.txt && \
	    for r in $(PEERS_RELEASES); do $(PEERS_VENV)/bin/pip install -q --upgrade --no-deps \
	      --target $(PEERS_VENV)/adafactor8bit/$$r adafactor8bit==$$r || exit 1; done; then \
	    cat $(PEERS_TEXT) > $(PEERS_VENV)/requirements.txt; \
	  else echo "$@: skipped: the packages of $(PEERS_TEXT) could not be installed (no network?)"; exit 0; fi; fi
peers: qualm ## torch, torchao, bitsandbytes, Lion, CAME and six releases of adafactor8bit against the variants, on fresh inputs (a download of gigabytes, once)
	$(Q)$(PEERS_READY); \
	$(PEERS_VENV)/bin/python tests/peers/compare.py $(PEERS_FLAGS); code=$$?; [ $$code = 77 ] && exit 0 || exit $$code

bench-peers: qualm ## the speed of these packages on this processor, in turn with ours (installs them as peers does)
	$(Q)$(PEERS_READY); \
	PYTHONPATH=$(PEERS_VENV)/adafactor8bit/$(lastword $(PEERS_RELEASES)) ./qualm bench --only peers --out results/bench_peers.h5 \
	  --peers "$(PEERS_VENV)/bin/python tests/peers/peers.py"

bench-gpu: qualm ## the speed of it alone, beside other optimizers where python3 has torch (PEERS= leaves them out)
	$(Q)./qualm gpu-check --only speed,tables,peers --peers "$(or $(PEERS),none)"; $(GPU_CODE)

SEARCH_TIME ?= 1800 # seconds for the variants, and as many for the kernel templates
LONG_ALL := core/rule/test_error_compensation experiments/protocol/test_stats experiments/protocol/test_instances \
  experiments/protocol/test_protocol experiments/gpu/test_driver_faults
check-long: qualm $(LONG_TESTS) $(LONG_ALL:%=$(BUILD)/tests/%) tests ## every test with its whole tables; every float through every routine, and in [-2, 2] through every search; an 8-bit step whole; the whole kill matrix; every variant by all cases; 200 killed campaigns; 100,000 cells in time; the problems' learning rates; intervals and null comparisons; every fault of a driver; an hour of searches for wrong bounds
	$(Q)BUILD=$(BUILD) QM_TEST_SHARE=1 tests/run.sh
	$(Q)for program in $(LONG_TESTS); do $$program || exit 1; done
	$(Q)for program in $(LONG_ALL:%=$(BUILD)/tests/%); do $$program all || exit 1; done
	$(Q)./qualm prove -q --all
	$(Q)./qualm prove -q step:adamw8_bnb --long --scales '1,1;1.7e-3,3.1e-7'
	$(Q)./qualm mutate -q
	$(Q)./qualm check -q --draws 680
	$(Q)./qualm check -q --search --time $(SEARCH_TIME)
	$(Q)for file in variants/native/*.c; do CFLAGS='-O3 -march=native -ffp-contract=fast' \
	  ./qualm check -q --search --time $$(($(SEARCH_TIME) / 24)) --kernel $$file || exit 1; done
	$(Q)QM_HOSTILE=1 bats tests/experiments/command/hostile.bats
	$(Q)QM_KILLS=200 bats -f 'kill -9' tests/experiments/command/campaign.bats
	$(Q)QM_CELLS=100000 bats -f 'many empty cells' tests/experiments/command/campaign.bats

config: ## a line per dependency, with the package to install
	@while IFS='=' read -r package test; do \
	  if eval "$$test" >/dev/null 2>&1; then state=found; else state="MISSING: apt-get install $$package"; fi; \
	  printf '%-20s %s\n' "$$package" "$$state"; done <<< "$$PACKAGES"
	@printf '%-20s %s\n' "nvcc (optional)" "$$(command -v nvcc || echo 'not found: check-dual leaves CUDA out')"

# The binary with every library it needs but libc and the driver, for machines without packages.  It
# finds them by $$ORIGIN/lib, so that what it starts (python3) has an environment without them.
BUNDLE ?= bundle
# what glibc itself brings: these libraries fit only the libc.so of their own version
NOT_BUNDLED := libc|libm|libdl|libpthread|librt|libmvec|libresolv|libutil|libanl|ld-linux-x86-64
bundle: $(BUILD)/experiments/command/main.o $(BUILD)/libqm.a ## a folder that runs without HDF5 and GSL installed; says which glibc it needs
	@rm -rf "$(BUNDLE)"; mkdir -p "$(BUNDLE)/lib" "$(BUNDLE)/experiments" "$(BUNDLE)/tests/peers" "$(BUNDLE)/results/gpu"
	$(Q)$(CC) $(CFLAGS) $^ -o "$(BUNDLE)/qualm.bin" $(LDLIBS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/lib'
	@ldd "$(BUNDLE)/qualm.bin" | awk '$$3 ~ /^\// && $$1 !~ /^($(NOT_BUNDLED))\.so/ {print $$3}' | \
	  while read -r lib; do cp -L "$$lib" "$(BUNDLE)/lib/" || exit 1; done
	@cp -r experiments/suites experiments/rates "$(BUNDLE)/experiments/"; cp tests/peers/peers.py "$(BUNDLE)/tests/peers/"
	@cp results/gpu/README.md "$(BUNDLE)/results/gpu/"
	@for f in "$(BUNDLE)/qualm.bin" "$(BUNDLE)"/lib/*; do objdump -T "$$f" | \
	  sed -nE 's/.*\(?GLIBC_([0-9]+)\.([0-9]+)[^ )]*\)? +([^ ]+)$$/\1 \2 \3/p' | sed "s#\$$# $${f##*/}#"; done | \
	  sort -k1,1n -k2,2n | tail -1 > "$(BUNDLE)/NEEDS"
	@read -r major minor symbol file < "$(BUNDLE)/NEEDS"; \
	  echo "glibc $$major.$$minor or newer, for $$symbol of $$file" > "$(BUNDLE)/NEEDS"; \
	  sed -e "s/@MAJOR@/$$major/g" -e "s/@MINOR@/$$minor/g" experiments/machine/bundle.sh > "$(BUNDLE)/qualm"
	@chmod +x "$(BUNDLE)/qualm"
	@"$(BUNDLE)/qualm" --version && echo "bundle: needs $$(cat "$(BUNDLE)/NEEDS")" && du -sh "$(BUNDLE)"

# ---- installing -------------------------------------------------------------------------------
# An installed qualm finds its files in share/qualm beside its own folder (shipped_files.h).
PREFIX ?= /usr/local
DESTDIR ?=
# The shell reads the place from $$P, since it may hold any character.  share/qualm/MANIFEST lists what
# install put there, relative to it; the next install and uninstall remove that and nothing else.
install uninstall: export P = $(DESTDIR)$(PREFIX)
SHIPPED_FILES := $(wildcard experiments/suites/*.yaml experiments/suites/claims/*.yaml experiments/rates/*.json \
  experiments/data/*.h5 experiments/data/README.md experiments/data/samples/* results/*.md results/baseline.h5 \
  plots/figures/*.py plots/report/*.py variants/native/*.c variants/native/*.cu) LICENSE \
  tests/peers/peers.py experiments/record/qualm_record.py
# The texts are installed with every file that they link to.
SHIPPED = $(sort $(SHIPPED_FILES) $(shell $(PYTHON) tests/style/check_links.py --texts))
COMMANDS = $(shell ./qualm --help | sed -n '/^Commands:/,/^$$/s/^  \([a-z-]*\) .*/\1/p')
MAN := $(BUILD)/man
man: $(MAN)/made ## manual pages in build/CC/man, by help2man out of --help
$(MAN)/made: $(BUILD)/qualm$(if $(filter 1,$(MPI)),-mpi) | qualm
	@command -v help2man >/dev/null || { echo "man: skipped: no help2man (Debian's package help2man)"; exit 0; }; \
	rm -rf $(MAN); mkdir -p $(MAN); \
	help2man -N -n "$$(./qualm --help | sed -n 2p)" -o $(MAN)/qualm.1 ./qualm || exit 1; \
	for c in $(COMMANDS); do \
	  help=$(MAN)/help text=$(MAN)/text; ./qualm $$c --help > $$help || exit 1; \
	  { printf '[EXAMPLES]\n.nf\n'; sed -n '/^Examples:/,/^$$/p' $$help | sed -e 1d -e '/^$$/d' -e 's/\\/\\\\/g'; \
	    printf '.fi\n[SEE ALSO]\n.BR qualm (1)\n'; } > $$text; \
	  printf '#!/bin/sh\n[ "$$1" = --version ] && exec echo qualm-%s $(VERSION)\nexec sed "/^Examples:/,/^\$$/d" "%s/%s"\n' \
	    $$c "$$PWD" $$help > $(MAN)/qualm-$$c; chmod +x $(MAN)/qualm-$$c; \
	  help2man -N -i $$text -n "$$(./qualm --help | sed -n "s/^  $$c  *//p" | head -1)" -o $(MAN)/qualm-$$c.1 \
	    $(MAN)/qualm-$$c || exit 1; rm $(MAN)/qualm-$$c $$help $$text; \
	done; touch $@; echo "man: $$(ls $(MAN)/*.1 | wc -l) pages in $(MAN)"

define REMOVE_INSTALLED
	while IFS= read -r f; do rm -f -- "$$P/$$f"; echo "$${f%/*}"; done < "$$P/share/qualm/MANIFEST" | sort -ru | \
	  while IFS= read -r d; do case $$d in share/qualm/*|include/qualm) \
	    (cd "$$P/$${d%%/*}" && [ ! -d "$${d#*/}" ] || rmdir -p --ignore-fail-on-non-empty -- "$${d#*/}");; esac; done; \
	rm -f -- "$$P/share/qualm/MANIFEST"; rmdir --ignore-fail-on-non-empty -- "$$P/share/qualm"
endef
install: qualm man ## install below DESTDIR PREFIX (/usr/local): program, manual, completion, headers, data
	@[ ! -f "$$P/share/qualm/MANIFEST" ] || { $(REMOVE_INSTALLED); }
	@mkdir -p "$$P/share/qualm"; \
	put() { install -D -m"$$1" -- "$$2" "$$P/$$3" && printf '%s\n' "$$3" >> "$$P/share/qualm/MANIFEST"; }; \
	put 755 $(BUILD)/qualm$(if $(filter 1,$(MPI)),-mpi) bin/qualm || exit 1; \
	printf 'share/qualm/%s\n' $(SHIPPED) >> "$$P/share/qualm/MANIFEST"; \
	cp --parents -- $(SHIPPED) "$$P/share/qualm" && (cd "$$P/share/qualm" && chmod 644 -- $(SHIPPED)) || exit 1; \
	for f in $(wildcard core/abi/*.h); do put 644 $$f include/qualm/$${f##*/} || exit 1; done; \
	for f in $(MAN)/*.1; do [ ! -e $$f ] || put 644 $$f share/man/man1/$${f##*/} || exit 1; done; \
	./qualm completion bash > $(BUILD)/completion && \
	put 644 $(BUILD)/completion share/bash-completion/completions/qualm
	@printf 'install: %s/bin/qualm and %s files in %s/share/qualm\n' "$$P" $(words $(SHIPPED)) "$$P"

uninstall: ## remove what install put there
	@[ -f "$$P/share/qualm/MANIFEST" ] || { printf 'uninstall: no list of installed files: %s/share/qualm/MANIFEST\n' "$$P" >&2; exit 1; }
	@$(REMOVE_INSTALLED)
	@printf 'uninstall: removed from %s\n' "$$P"

DIST := qualm-$(VERSION)
dist: ## build/qualm-VERSION.tar.xz of the last commit, which builds without git
	@[ "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$(CURDIR)" ] || \
	  { echo "qualm: make dist packs the last commit: this folder is no git clone" >&2; exit 1; }
	@mkdir -p build
	$(Q)set -o pipefail; git archive --format=tar --prefix=$(DIST)/ \
	  --add-virtual-file=$(DIST)/.commit:"$$(git describe --always --abbrev=12 --exclude='*')" HEAD | \
	  xz -T0 > build/$(DIST).tar.xz && ls -l build/$(DIST).tar.xz

help: ## this list
	@grep -hE '^[a-z_.-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

clean: ## remove build/, results and plots that can be made again
	rm -rf build qualm bundle plots/out

-include $(shell find build -name '*.d' 2>/dev/null)
