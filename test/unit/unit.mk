# Unit tests of the recipe layer, with a ZooKeeper in memory.  No PostgreSQL
# and no client library is needed:
#
#   make -f test/unit/unit.mk check-unit
#
# One test, its plays whose promises contain a word, and of its other tests those whose names do:
#
#   make unit T=test_lock K=upgrade
#
# UNIT_BUILD=dir builds in another directory, WERROR=1 is for CI, and
# UNIT_TESTS="test_lock test_io_thread" runs only these tests.

UNIT_BUILD ?= build/unit
UNIT_RECIPE ?= src/recipe
UNIT_CC ?= $(CC)
UNIT_SAN_CC ?= $(shell command -v clang || echo $(CC))
UNIT_CFLAGS = -std=gnu11 -D_GNU_SOURCE -g -O1 -Wall -Wextra \
	$(if $(filter 1,$(WERROR)),-Werror) -I$(UNIT_RECIPE)/.. -Itest/unit
UNIT_PROVE ?= prove

UNIT_TESTS ?= $(sort $(patsubst test/unit/%.c,%,$(wildcard test/unit/test_*.c)))
# valgrind runs one thread at a time, so long tests and tests with many threads are too slow.
UNIT_VALGRIND_TESTS ?= $(filter-out test_threads test_faults test_random test_fence_schedules,$(UNIT_TESTS))

# In the others only one thread runs at any time: a sanitizer of threads has nothing to find.
UNIT_THREAD_TESTS ?= $(filter test_io_thread test_log test_threads,$(UNIT_TESTS))

# Without the files that call the client library.
UNIT_COUNTED = $(filter-out zk_%,$(patsubst %.c,%,$(notdir $(wildcard $(UNIT_RECIPE)/*.c $(UNIT_RECIPE)/*/*.c))))
UNIT_PARTS = $(UNIT_COUNTED) \
	$(filter-out test_%,$(patsubst test/unit/%.c,%,$(wildcard test/unit/*.c)))
UNIT_HEADERS = $(wildcard $(UNIT_RECIPE)/../backend/base/fence_rule.h $(UNIT_RECIPE)/*.h $(UNIT_RECIPE)/*/*.h test/unit/*.h)

vpath %.c $(UNIT_RECIPE) $(wildcard $(UNIT_RECIPE)/*) test/unit

# $(call unit_flavour,name,compiler,flags): objects and programs of one kind.
define unit_flavour
$(UNIT_BUILD)/$(1):
	mkdir -p $$@

$(UNIT_BUILD)/$(1)/%.o: %.c $(UNIT_HEADERS) | $(UNIT_BUILD)/$(1)
	$(2) $(UNIT_CFLAGS) $(3) -c -o $$@ $$<

$(UNIT_BUILD)/$(1)/test_%: $(UNIT_BUILD)/$(1)/test_%.o $(UNIT_PARTS:%=$(UNIT_BUILD)/$(1)/%.o)
	$(2) $(UNIT_CFLAGS) $(3) -o $$@ $$^ $$(UNIT_LDFLAGS) -lpthread

.PHONY: unit-build-$(1)
unit-build-$(1): $(patsubst %,$(UNIT_BUILD)/$(1)/%,$(if $(filter tsan,$(1)),$(UNIT_THREAD_TESTS),$(UNIT_TESTS)))
endef

.SECONDARY:

# This test lets allocations fail.
$(UNIT_BUILD)/%/test_no_memory: UNIT_LDFLAGS = -Wl,--wrap=malloc,--wrap=calloc

# The sanitizers' programs take a tenth of the random walk's rounds, unless UNIT_SHORT is empty.
UNIT_SHORT ?= -DSHORT_RUN
$(eval $(call unit_flavour,plain,$$(UNIT_CC),-DZKL_CHECKS))
$(eval $(call unit_flavour,asan,$$(UNIT_SAN_CC),-DZKL_CHECKS -fsanitize=address,undefined \
	-fno-sanitize-recover=all -fno-omit-frame-pointer $(UNIT_SHORT)))
$(eval $(call unit_flavour,tsan,$$(UNIT_SAN_CC),-DZKL_CHECKS -fsanitize=thread $(UNIT_SHORT)))

# test_growth counts the basic blocks of the recipe layer, without the checks of its states.
UNIT_COUNTED_TESTS = $(patsubst %,$(UNIT_BUILD)/counted/%,$(filter test_growth,$(UNIT_TESTS)))
$(UNIT_BUILD)/counted/%.o: %.c $(UNIT_HEADERS)
	mkdir -p $(@D)
	$(UNIT_CC) $(UNIT_CFLAGS) -fsanitize-coverage=trace-pc -c -o $@ $<

$(UNIT_BUILD)/counted/test_growth: $(UNIT_BUILD)/plain/test_growth.o \
		$(UNIT_COUNTED:%=$(UNIT_BUILD)/counted/%.o) \
		$(patsubst %,$(UNIT_BUILD)/plain/%.o,$(filter-out $(UNIT_COUNTED),$(UNIT_PARTS)))
	$(UNIT_CC) $(UNIT_CFLAGS) -o $@ $^ -lpthread

.PHONY: unit check-unit check-asan check-tsan check-valgrind

unit_chosen = $(or $(filter $(T) test_$(T),$(UNIT_TESTS)),$(foreach t,$(UNIT_TESTS),$(if $(findstring $(T),$(t)),$(t))))

unit: $(unit_chosen:%=$(UNIT_BUILD)/plain/%)
	@$(if $^,,$(error No unit test is named "$(T)"))$(if $(K),ZKLOCK_ONLY='$(K)') $(UNIT_PROVE) $(PROVE_FLAGS) -v -e '' $^

check-unit: unit-build-plain $(UNIT_COUNTED_TESTS)
	$(UNIT_PROVE) $(PROVE_FLAGS) -j2 -e '' $(UNIT_TESTS:%=$(UNIT_BUILD)/plain/%) $(UNIT_COUNTED_TESTS)

check-asan: unit-build-asan
	ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  $(UNIT_PROVE) $(PROVE_FLAGS) -j2 -e '' $(UNIT_TESTS:%=$(UNIT_BUILD)/asan/%)

check-tsan: unit-build-tsan
	TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
	  $(UNIT_PROVE) $(PROVE_FLAGS) -j2 -e '' $(UNIT_THREAD_TESTS:%=$(UNIT_BUILD)/tsan/%)

check-valgrind: unit-build-plain
	$(UNIT_PROVE) $(PROVE_FLAGS) -j2 \
	  -e 'valgrind -q --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=99' \
	  $(UNIT_VALGRIND_TESTS:%=$(UNIT_BUILD)/plain/%)
