# Unit tests of the recipe layer, with a ZooKeeper in memory.  No PostgreSQL
# and no client library is needed:
#
#   make -f test/unit/unit.mk check-unit
#
# make UNIT_BUILD=dir puts what is built elsewhere, WERROR=1 is for CI, and
# UNIT_TESTS="test_lock test_keeper" runs only these.

UNIT_BUILD ?= build/unit
UNIT_RECIPE ?= src/recipe
UNIT_CC ?= $(CC)
UNIT_SAN_CC ?= $(shell command -v clang || echo $(CC))
UNIT_CFLAGS = -std=gnu11 -D_GNU_SOURCE -g -O1 -Wall -Wextra \
	$(if $(filter 1,$(WERROR)),-Werror) -I$(UNIT_RECIPE) -Itest/unit
UNIT_PROVE ?= prove

UNIT_TESTS ?= $(sort $(patsubst test/unit/%.c,%,$(wildcard test/unit/test_*.c)))
# What runs long or in many threads is too slow under valgrind's one.
UNIT_VALGRIND_TESTS ?= $(filter-out test_threads test_faults test_random,$(UNIT_TESTS))

UNIT_PARTS = $(filter-out zk_%,$(patsubst $(UNIT_RECIPE)/%.c,%,$(wildcard $(UNIT_RECIPE)/*.c))) \
	$(filter-out test_%,$(patsubst test/unit/%.c,%,$(wildcard test/unit/*.c)))
UNIT_HEADERS = $(wildcard $(UNIT_RECIPE)/*.h test/unit/*.h)

# $(call unit_flavour,name,compiler,flags): objects and programs of one kind.
define unit_flavour
$(UNIT_BUILD)/$(1):
	mkdir -p $$@

$(UNIT_BUILD)/$(1)/%.o: $(UNIT_RECIPE)/%.c $(UNIT_HEADERS) | $(UNIT_BUILD)/$(1)
	$(2) $(UNIT_CFLAGS) $(3) -c -o $$@ $$<

$(UNIT_BUILD)/$(1)/%.o: test/unit/%.c $(UNIT_HEADERS) | $(UNIT_BUILD)/$(1)
	$(2) $(UNIT_CFLAGS) $(3) -c -o $$@ $$<

$(UNIT_BUILD)/$(1)/test_%: $(UNIT_BUILD)/$(1)/test_%.o $(UNIT_PARTS:%=$(UNIT_BUILD)/$(1)/%.o)
	$(2) $(UNIT_CFLAGS) $(3) -o $$@ $$^ -lpthread

.PHONY: unit-build-$(1)
unit-build-$(1): $(UNIT_TESTS:%=$(UNIT_BUILD)/$(1)/%)
endef

.SECONDARY:

# The sanitizers' programs take a tenth of the random walk's rounds.
$(eval $(call unit_flavour,plain,$$(UNIT_CC),))
$(eval $(call unit_flavour,asan,$$(UNIT_SAN_CC),-fsanitize=address -fno-omit-frame-pointer -DSHORT_RUN))
$(eval $(call unit_flavour,ubsan,$$(UNIT_SAN_CC),-fsanitize=undefined -fno-sanitize-recover=all -DSHORT_RUN))
$(eval $(call unit_flavour,tsan,$$(UNIT_SAN_CC),-fsanitize=thread -DSHORT_RUN))

.PHONY: check-unit check-asan check-ubsan check-tsan check-valgrind

check-unit: unit-build-plain
	$(UNIT_PROVE) $(PROVE_FLAGS) -j2 -e '' $(UNIT_TESTS:%=$(UNIT_BUILD)/plain/%)

check-asan: unit-build-asan
	ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 \
	  $(UNIT_PROVE) $(PROVE_FLAGS) -j2 -e '' $(UNIT_TESTS:%=$(UNIT_BUILD)/asan/%)

check-ubsan: unit-build-ubsan
	UBSAN_OPTIONS=print_stacktrace=1 \
	  $(UNIT_PROVE) $(PROVE_FLAGS) -j2 -e '' $(UNIT_TESTS:%=$(UNIT_BUILD)/ubsan/%)

check-tsan: unit-build-tsan
	TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
	  $(UNIT_PROVE) $(PROVE_FLAGS) -j2 -e '' $(UNIT_TESTS:%=$(UNIT_BUILD)/tsan/%)

check-valgrind: unit-build-plain
	$(UNIT_PROVE) $(PROVE_FLAGS) -j2 \
	  -e 'valgrind -q --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=99' \
	  $(UNIT_VALGRIND_TESTS:%=$(UNIT_BUILD)/plain/%)
