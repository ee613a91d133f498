# Qualm - a harness for low-bit optimizer states.   make help
#
# Switches: V=1 shows commands, SAN=1 builds with ASan and UBSan and fills variables that nobody set,
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
# Debian package = a test that it is there
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
libcmocka-dev=pkg-config --exists cmocka
libmpfr-dev=pkg-config --exists mpfr
bats=command -v bats
procps=command -v pgrep
python3-numpy=$(PYTHON) -c "import numpy"
python3-h5py=$(PYTHON) -c "import h5py"
python3-matplotlib=$(PYTHON) -c "import matplotlib"
endef
export PACKAGES

# Asked when first needed, so that what setup has just installed is found.
PC := hdf5 gsl yaml-0.1 jansson libzip
PC_CFLAGS = $(eval PC_CFLAGS := $(shell pkg-config --cflags $(PC)))$(PC_CFLAGS)
PC_LIBS = $(eval PC_LIBS := $(shell pkg-config --libs $(PC)) -lhdf5_hl)$(PC_LIBS)
TEST_LIBS = $(eval TEST_LIBS := $(shell pkg-config --libs cmocka mpfr))$(TEST_LIBS)

# ---- flags ---------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wvla -Wdouble-promotion \
  -Wfloat-conversion -Werror
# GCC 12 loses the rounding of two neighbouring (double)(float)x when it vectorizes straight lines.
NUMERIC := -ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math \
  -fno-tree-slp-vectorize
, := ,
OPT := $(if $(filter 1,$(SAN)),-O1 -g -fsanitize=address$(,)undefined -fno-omit-frame-pointer \
  -ftrivial-auto-var-init=pattern,-O3 -g1)
SANFLAGS := $(if $(filter 1,$(SAN)),-fsanitize=address$(,)undefined -fno-sanitize-recover=undefined)
CPPFLAGS = -I. -I$(BUILD)/gen -D_GNU_SOURCE $(PC_CFLAGS)
CFLAGS = -std=c11 $(WARN) $(NUMERIC) $(OPT) $(SANFLAGS) -fopenmp
LDLIBS = $(PC_LIBS) -ldl -lm

# ---- sources -------------------------------------------------------------------------------
ISAS := sse2 avx2 avx512
BY_ISA := core/base/narrow.c core/quant/lanes.c core/quant/searches.c $(wildcard core/rule/*_loops.c) \
  experiments/bench/registers.c experiments/census.c experiments/dense.c experiments/exps.c
MAIN := experiments/main.c
DEAL := experiments/campaign/deal_mpi.c
SOURCES := $(filter-out $(BY_ISA) $(MAIN) $(DEAL),$(wildcard core/*/*.c variants/*.c oracle/*.c \
  experiments/*.c experiments/*/*.c))
LIB_OBJ := $(SOURCES:%.c=$(BUILD)/%.o)
ISA_OBJ := $(foreach isa,$(ISAS),$(BY_ISA:%.c=$(BUILD)/%_$(isa).o))
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
Q := $(if $(filter 1,$(V)),,@)
say = @printf '%-4s %s\n' $(1) $(2)

.PHONY: all run claims baseline test bench check-dual check-kernels gpu-check bench-gpu check-long config bundle help clean plots setup \
  tests
.DELETE_ON_ERROR:

all: qualm ## build ./qualm

$(BUILD)/%.o: %.c
	$(if $(filter 1,$(V)),,$(call say,CC,$<))
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

ISA_sse2 :=
ISA_avx2 := -mavx2 -mfma -mf16c -mtune=haswell
ISA_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vbmi2 -mfma -mf16c -mprefer-vector-width=512 -mtune=icelake-server
# One object per instruction set: the same source, the same bits, chosen when the program starts.
define isa_rule
$(BUILD)/%_$(1).o: %.c
	$$(if $$(filter 1,$$(V)),,$$(call say,CC,"$$< ($(1))"))
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(ISA_OPT) $$(ISA_$(1)) -DQM_ISA=$(1) -MMD -MP -c $$< -o $$@
endef
ISA_OPT := $(if $(filter 1,$(SAN)),,-O3)
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

# ---- registries: a file is its registration --------------------------------------------------
# A list is written again only where it changes, so that a file that went is noticed too.
listed = $(patsubst %,QM_ENTRY(%)\n,$(basename $(notdir $(sort $(filter-out variants/registry.c,$(wildcard $(1)))))))
$(BUILD)/gen/variants.inc: FILES := variants/*.c
$(BUILD)/gen/problems.inc: FILES := experiments/problems/*.c
$(BUILD)/gen/families.inc: FILES := core/rule/family_*.c
$(BUILD)/gen/%.inc: FORCE
	@mkdir -p $(@D)
	@printf '$(call listed,$(FILES))' | tr -d ' ' > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/core/rule/rule.o: $(BUILD)/gen/families.inc
$(LIB_OBJ): | $(BUILD)/gen/families.inc $(BUILD)/gen/variants.inc $(BUILD)/gen/problems.inc
$(BUILD)/variants/registry.o: $(BUILD)/gen/variants.inc
$(BUILD)/experiments/problem.o: $(BUILD)/gen/problems.inc

# The dual headers that a step's kernels are made of.
DEVICE := $(foreach h,dual half fp8 philox inverse logexp,core/base/$(h).h) \
  $(foreach h,element map norm scale search round unit curve pack place allog,core/quant/$(h).h) \
  $(foreach h,element adamw sgdm bnb lpmm lion lion8 sweep sweep_lowrank,core/rule/$(h).h)

# Data that the executable carries: the bytes of a file.
$(BUILD)/gen/digits.inc: experiments/data/digits.npy
	@mkdir -p $(@D)
	@od -An -v -tu1 -w32 $< | sed -E 's/ +([0-9]+)/\1,/g' > $@.new && mv $@.new $@
$(BUILD)/experiments/problems/digits.o: $(BUILD)/gen/digits.inc

# Texts that the executable carries: a line of the file, a string; NULL after the last.
$(BUILD)/gen/texts.inc: TEXTS := core/kernel_abi.h core/kernel_cuda.h core/kernel_nearest.h $(sort $(wildcard variants/native/*.c variants/native/*.cu))
$(BUILD)/gen/mutants.inc: TEXTS := $(sort $(wildcard experiments/mutants/*.txt))
# What is compiled for a GPU, by path.
$(BUILD)/gen/device.inc: TEXTS := core/engine/step.cu core/engine/whole.cu core/engine/step_emu.cu core/engine/step.h core/param.h core/kernel_abi.h \
  core/kernel_cuda.h $(DEVICE)
$(BUILD)/gen/device.inc: NAME_OF := echo
$(BUILD)/gen/emu.inc: TEXTS := $(sort $(wildcard core/emu/*.hpp core/emu/*.cpp)) core/base/dual.h core/base/half.h core/base/fp8.h
$(BUILD)/gen/report.inc: TEXTS := experiments/report/page.css experiments/report/page.js \
  $(sort $(wildcard plots/*.py plots/report/*.py))
NAMED := $(foreach i,texts mutants emu report,$(BUILD)/gen/$(i).inc)
$(NAMED): NAME_OF := basename
$(NAMED) $(BUILD)/gen/device.inc: FORCE
	@mkdir -p $(@D)
	@for f in $(TEXTS); do echo "QM_TEXT(\"$$($(NAME_OF) $$f)\","; \
	  sed -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n",/' $$f; echo 'NULL)'; done > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/experiments/mutants/registry.o: $(BUILD)/gen/mutants.inc
$(BUILD)/core/engine/device_text.o: $(BUILD)/gen/device.inc
$(BUILD)/core/engine/kernel_build.o: $(BUILD)/gen/texts.inc $(BUILD)/gen/emu.inc
$(BUILD)/core/engine/device_emu.o $(BUILD)/core/engine/emu_build.o: $(BUILD)/gen/emu.inc
$(BUILD)/experiments/report/texts.o: $(BUILD)/gen/report.inc

$(BUILD)/libqm.a: $(LIB_OBJ) $(ISA_OBJ)
	$(if $(filter 1,$(V)),,$(call say,AR,$@))
	@rm -f $@
	$(Q)ar rcs $@ $^

$(BUILD)/qualm: $(BUILD)/experiments/main.o $(BUILD)/libqm.a
	$(if $(filter 1,$(V)),,$(call say,LD,$@))
	$(Q)$(CC) $(CFLAGS) $^ -o $@ $(LDLIBS)

# The same program with one file in place of another: deal_none.o stays in the library.
$(BUILD)/qualm-mpi: $(BUILD)/experiments/main.o $(DEAL) $(BUILD)/libqm.a
	$(if $(filter 1,$(V)),,$(call say,MPI,$@))
	$(Q)OMPI_CC=$(CC) mpicc $(CPPFLAGS) $(CFLAGS) $^ -o $@ $(LDLIBS)

qualm: $(BUILD)/qualm$(if $(filter 1,$(MPI)),-mpi)
	@ln -sf $< $@

$(BUILD)/tests/test_%: tests/test_%.c $(BUILD)/libqm.a
	$(if $(filter 1,$(V)),,$(call say,CC,$<))
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $< $(BUILD)/libqm.a -o $@ $(TEST_LIBS) $(LDLIBS)

tests: $(TESTS)

# ---- what every result records ---------------------------------------------------------------
VERSION := 0.1.0
COMMIT := $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
PROVENANCE := -DQM_VERSION='"$(VERSION)"' -DQM_COMMIT='"$(COMMIT)"' -DQM_CFLAGS='"$(CFLAGS)"'
$(BUILD)/gen/provenance: FORCE
	@mkdir -p $(@D)
	@echo "$(VERSION) $(COMMIT) $(CFLAGS)" | cmp -s - $@ || \
	  echo "$(VERSION) $(COMMIT) $(CFLAGS)" > $@
$(BUILD)/experiments/provenance.o: $(BUILD)/gen/provenance
$(BUILD)/experiments/provenance.o: CPPFLAGS += $(PROVENANCE)
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
	  echo "qualm: missing Debian packages:$$missing; install them and run make again" >&2; exit 1; \
	fi; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	if [ -n "$$sudo" ] && ! command -v sudo >/dev/null; then \
	  echo "qualm: missing packages:$$missing; run as root: apt-get install$$missing" >&2; exit 1; \
	fi; \
	echo "qualm: installing$$missing" >&2; mkdir -p build; \
	{ $$sudo apt-get update -qq; $$sudo env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends $$missing; } >build/setup.log 2>&1 || \
	{ echo "qualm: apt-get could not install$$missing (see build/setup.log)" >&2; exit 1; }

ifneq ($(filter run claims baseline test bench plots check-long setup,$(MAKECMDGOALS)),)
$(LIB_OBJ) $(ISA_OBJ) $(BUILD)/experiments/main.o: | setup
endif

SUITES := momentum_format search rank1 second_moment theory drift drift_second \
  momentum_convergence momentum_sgdm convergence
run: qualm ## the main job: the momentum ablation on real states; results, plots, the headline tables
	@mkdir -p results plots/out
	$(Q)./qualm run --headline $(SUITES:%=experiments/suites/%.yaml)
	$(Q)./qualm bench --quick --out results/bench.h5
	@$(MAKE) --no-print-directory plots

plots: ## draw results/*.h5 into plots/out (PNG and SVG)
	$(Q)for script in $(filter-out plots/common.py,$(wildcard plots/*.py)); do \
	  $(PYTHON) $$script --results results --out plots/out || exit 1; done

claims: qualm ## claims of the literature, each with its effect, 95 % interval and verdict
	@mkdir -p results/claims
	$(Q)./qualm run --claims --out results/claims/

# What `qualm run --against baseline` compares with; ships.
baseline: qualm ## run the baseline campaign, keep results/baseline.h5 of it (at most 3 MB)
	@mkdir -p build/baseline
	$(Q)./qualm run baseline --out build/baseline/all.h5
	$(Q)./qualm report build/baseline/all.h5 --archive results/baseline.h5
	@ls -l results/baseline.h5

test: qualm tests ## every test; ends with N passed, N failed, N skipped
	@BUILD=$(BUILD) SAN=$(SAN) tests/run.sh

bench: qualm ## speed of steps and searches, as ratios within one run
	$(Q)./qualm bench --out results/bench.h5

# Dual headers compile as C11, as C++17 and, where nvcc is there, as CUDA.
DUAL := $(wildcard core/base/dual.h core/base/half.h core/base/fp8.h core/base/philox.h \
  core/base/inverse.h core/base/logexp.h core/kernel_abi.h core/kernel_cuda.h core/kernel_nearest.h core/param.h core/quant/*.h \
  core/engine/step.h core/rule/element.h core/rule/adamw.h core/rule/sgdm.h \
  core/rule/bnb.h core/rule/lpmm.h core/rule/lion.h core/rule/lion8.h core/rule/sweep.h \
  core/rule/sweep_lowrank.h)
DUAL := $(filter-out core/quant/quantizer.h core/quant/lanes.h core/quant/lanes_avx512.h \
  core/quant/lanes_avx2.h core/quant/lanes_blocks.h core/quant/lanes_group.h core/quant/searches.h core/quant/norm_pair.h,$(DUAL))
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

gpu-check: qualm ## on a machine with a GPU: the CUDA backend's bits, verdicts, codes and speed, into results/gpu
	$(Q)./qualm gpu-check; code=$$?; [ $$code = 77 ] && exit 0 || exit $$code

bench-gpu: qualm ## the speed of it alone, beside other optimizers where python3 has torch (PEERS= leaves them out)
	$(Q)./qualm gpu-check --only speed $(if $(PEERS),--peers "$(PEERS)"); code=$$?; [ $$code = 77 ] && exit 0 || exit $$code

check-long: qualm $(BUILD)/tests/long_edges $(BUILD)/tests/long_problems $(BUILD)/tests/test_ecc $(BUILD)/tests/test_stats $(BUILD)/tests/test_protocol ## every float through every routine, and in [-2, 2] through every search; an 8-bit step whole; the whole kill matrix; 200 killed campaigns; 100,000 cells in time; the problems' learning rates; intervals and null comparisons
	$(Q)$(BUILD)/tests/long_edges
	$(Q)$(BUILD)/tests/long_problems
	$(Q)$(BUILD)/tests/test_ecc all
	$(Q)$(BUILD)/tests/test_stats all
	$(Q)$(BUILD)/tests/test_protocol all
	$(Q)./qualm prove -q --all
	$(Q)./qualm prove -q step:adamw8_bnb --long --scales '1,1;1.7e-3,3.1e-7'
	$(Q)./qualm mutate -q
	$(Q)QM_KILLS=200 bats -f 'kill -9' tests/cli_campaign.bats
	$(Q)QM_CELLS=100000 bats -f 'many empty cells' tests/cli_campaign.bats

$(BUILD)/tests/long_%: tests/long_%.c $(BUILD)/libqm.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $< $(BUILD)/libqm.a -o $@ $(LDLIBS)

config: ## a line per dependency, with the package to install
	@while IFS='=' read -r package test; do \
	  if eval "$$test" >/dev/null 2>&1; then state=found; else state="MISSING: apt-get install $$package"; fi; \
	  printf '%-20s %s\n' "$$package" "$$state"; done <<< "$$PACKAGES"
	@printf '%-20s %s\n' "nvcc (optional)" "$$(command -v nvcc || echo 'not found: check-dual leaves CUDA out')"

# The binary with every library it needs but libc and the driver, for machines without packages.
bundle: qualm ## a folder that runs without HDF5 and GSL installed
	@rm -rf bundle; mkdir -p bundle/lib
	@cp -L qualm bundle/qualm.bin
	@ldd qualm | awk '$$3 ~ /^\// && $$1 !~ /^(libc|libm|libdl|libpthread|librt)\.so/ {print $$3}' | \
	  xargs -I{} cp -L {} bundle/lib/
	@printf '#!/bin/sh\nhere=$$(dirname "$$(readlink -f "$$0")")\nLD_LIBRARY_PATH="$$here/lib$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}" exec "$$here/qualm.bin" "$$@"\n' > bundle/qualm
	@chmod +x bundle/qualm; cp -r experiments/suites bundle/
	@bundle/qualm --version && du -sh bundle

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

clean: ## remove build/, results and plots that can be made again
	rm -rf build qualm bundle plots/out

-include $(shell find build -name '*.d' 2>/dev/null)
