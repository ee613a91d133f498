# Qualm - a harness for low-bit optimizer states.   make help
#
# Switches: V=1 shows commands, SAN=1 builds with ASan and UBSan, CUDA=0 leaves CUDA checks out,
# CC=clang chooses the compiler, INSTALL=0 never installs packages.
.DEFAULT_GOAL := all
SHELL := /bin/bash

# ---- detection -----------------------------------------------------------------------------
V ?= 0
SAN ?= 0
CUDA ?= 1
INSTALL ?= 1
PYTHON := /usr/bin/python3
ifeq ($(origin CC),default)
CC := gcc
endif
BUILD := build/$(notdir $(firstword $(CC)))$(if $(filter 1,$(SAN)),-san)
# package:what must exist for it to count as present
PACKAGES := gcc:/usr/bin/gcc pkg-config:/usr/bin/pkg-config libhdf5-dev:pc/hdf5 libgsl-dev:pc/gsl \
  libyaml-dev:pc/yaml-0.1 libjansson-dev:pc/jansson libcmocka-dev:pc/cmocka libmpfr-dev:pc/mpfr \
  bats:/usr/bin/bats python3-h5py:py/h5py python3-matplotlib:py/matplotlib

PC := hdf5 gsl yaml-0.1 jansson
PC_CFLAGS = $(shell pkg-config --cflags $(PC) 2>/dev/null)
PC_LIBS = $(shell pkg-config --libs $(PC) 2>/dev/null) -lhdf5_hl
TEST_LIBS = $(shell pkg-config --libs cmocka mpfr 2>/dev/null)

# ---- flags ---------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wvla -Wdouble-promotion \
  -Wfloat-conversion -Werror
NUMERIC := -ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math
, := ,
OPT := $(if $(filter 1,$(SAN)),-O1 -g -fsanitize=address$(,)undefined -fno-omit-frame-pointer,-O2 -g1)
SANFLAGS := $(if $(filter 1,$(SAN)),-fsanitize=address$(,)undefined -fno-sanitize-recover=undefined)
CPPFLAGS = -I. -I$(BUILD)/gen -D_GNU_SOURCE $(PC_CFLAGS)
CFLAGS = -std=c11 $(WARN) $(NUMERIC) $(OPT) $(SANFLAGS) -fopenmp
LDLIBS = $(PC_LIBS) -ldl -lm

# ---- sources -------------------------------------------------------------------------------
ISAS := sse2 avx2 avx512
BY_ISA := core/quant/lanes.c core/rule/blocks.c
MAIN := experiments/main.c
SOURCES := $(filter-out $(BY_ISA) $(MAIN),$(wildcard core/*/*.c variants/*.c oracle/*.c \
  experiments/*.c experiments/*/*.c))
LIB_OBJ := $(SOURCES:%.c=$(BUILD)/%.o)
ISA_OBJ := $(foreach isa,$(ISAS),$(BY_ISA:%.c=$(BUILD)/%_$(isa).o))
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
Q := $(if $(filter 1,$(V)),,@)
say = @printf '%-4s %s\n' $(1) $(2)

.PHONY: all run test bench check-dual check-kernels check-long config bundle help clean plots setup \
  tests

all: qualm ## build ./qualm

$(BUILD)/%.o: %.c
	$(if $(filter 1,$(V)),,$(call say,CC,$<))
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

ISA_sse2 :=
ISA_avx2 := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512
# One object per instruction set: the same source, the same bits, chosen when the program starts.
define isa_rule
$(BUILD)/%_$(1).o: %.c
	$$(if $$(filter 1,$$(V)),,$$(call say,CC,"$$< ($(1))"))
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(ISA_OPT) $$(ISA_$(1)) -DQM_ISA=$(1) -MMD -MP -c $$< -o $$@
endef
ISA_, := ,
OPT := $(if $(filter 1,$(SAN)),,-O3)
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

# ---- registries: a file is its registration --------------------------------------------------
entries = $(patsubst %,QM_ENTRY(%)\n,$(basename $(notdir $(sort $(wildcard $(1)/*.c)))))
$(BUILD)/gen/variants.inc: $(wildcard variants/*.c) Makefile
	@mkdir -p $(@D)
	@printf '$(subst QM_ENTRY(registry)\n,,$(call entries,variants))' | tr -d ' ' > $@
$(BUILD)/gen/problems.inc: $(wildcard experiments/problems/*.c) Makefile
	@mkdir -p $(@D)
	@printf '$(call entries,experiments/problems)' | tr -d ' ' > $@
$(LIB_OBJ): | $(BUILD)/gen/variants.inc $(BUILD)/gen/problems.inc
$(BUILD)/variants/registry.o: $(BUILD)/gen/variants.inc
$(BUILD)/experiments/problem.o: $(BUILD)/gen/problems.inc

$(BUILD)/libqm.a: $(LIB_OBJ) $(ISA_OBJ)
	$(if $(filter 1,$(V)),,$(call say,AR,$@))
	@rm -f $@
	$(Q)ar rcs $@ $^

$(BUILD)/qualm: $(BUILD)/experiments/main.o $(BUILD)/libqm.a
	$(if $(filter 1,$(V)),,$(call say,LD,$@))
	$(Q)$(CC) $(CFLAGS) $^ -o $@ $(LDLIBS)

qualm: $(BUILD)/qualm
	@ln -sf $< $@

$(BUILD)/tests/test_%: tests/test_%.c $(BUILD)/libqm.a
	$(if $(filter 1,$(V)),,$(call say,CC,$<))
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $< $(BUILD)/libqm.a -o $@ $(TEST_LIBS) $(LDLIBS)

tests: $(TESTS)

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

clean: ## remove build/, results and plots that can be made again
	rm -rf build qualm bundle plots/out

-include $(shell find build -name '*.d' 2>/dev/null)
