# Fuzzes all parsers of bytes that other programs write, with libFuzzer.  Needs no
# PostgreSQL and no client library:
#
#   make -f test/fuzz/fuzz.mk check-fuzz                    a part of the tests
#   make -f test/fuzz/fuzz.mk check-fuzz FUZZ_SECONDS=600   longer, with random seeds
#   make -f test/fuzz/fuzz.mk fuzz-corpus FUZZ_SECONDS=600  adds new inputs to the corpus
#   make -f test/fuzz/fuzz.mk fuzz-add FUZZERS=fuzz_scene INPUTS=build/fuzz/crash-1
#                                                           adds these files to the corpus
#
# FUZZERS="fuzz_scene" runs only these.  An input that failed is kept in
# $(FUZZ_BUILD) as crash-...; run the program there with its path to repeat it.
#
# The corpus is one archive, with a directory for each fuzzer; the same inputs give the same
# archive.  It is unpacked to $(FUZZ_BUILD)/corpus.

FUZZ_BUILD ?= build/fuzz
FUZZ_CC ?= clang
FUZZ_SECONDS ?=
FUZZ_PROVE ?= prove
FUZZ_CFLAGS = -std=gnu11 -D_GNU_SOURCE -g -O1 -Wall -Wextra \
	$(if $(filter 1,$(WERROR)),-Werror) -Isrc -Itest/unit $(ZK_CPPFLAGS) -DZKL_CHECKS \
	-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer

FUZZERS ?= $(sort $(patsubst test/fuzz/%.c,%,$(wildcard test/fuzz/fuzz_*.c)))

# The objects that each harness is linked with.
FUZZ_OF_fuzz_names = node_names queue_order syntax
FUZZ_OF_fuzz_position = node_names queue_order
FUZZ_OF_fuzz_report = report scratch find_deadlock find_deadlock_edges find_deadlock_snapshot node_names queue_order
FUZZ_OF_fuzz_text = log syntax
FUZZ_OF_fuzz_scene = $(filter-out zk_%,$(patsubst %.c,%,$(notdir $(wildcard src/recipe/*.c src/recipe/*/*.c)))) \
	$(filter-out test_%,$(patsubst test/unit/%.c,%,$(wildcard test/unit/*.c))) syntax

vpath %.c src/recipe $(wildcard src/recipe/*) src/backend/base test/unit test/fuzz
FUZZ_HEADERS = $(wildcard src/backend/base/syntax.h src/recipe/*.h src/recipe/*/*.h test/unit/*.h test/fuzz/*.h)

$(FUZZ_BUILD):
	mkdir -p $@

$(FUZZ_BUILD)/%.o: %.c $(FUZZ_HEADERS) | $(FUZZ_BUILD)
	$(FUZZ_CC) $(FUZZ_CFLAGS) -c -o $@ $<

define fuzz_program
$(FUZZ_BUILD)/$(1): $(FUZZ_BUILD)/$(1).o $(FUZZ_OF_$(1):%=$(FUZZ_BUILD)/%.o)
	$(FUZZ_CC) $(FUZZ_CFLAGS) -fsanitize=fuzzer -o $$@ $$^ -lpthread
endef
$(foreach fuzzer,$(FUZZERS),$(eval $(call fuzz_program,$(fuzzer))))

FUZZ_ARCHIVE = test/fuzz/corpus.tar.gz
fuzz_pack = tar -C $(FUZZ_BUILD)/corpus --format=ustar --sort=name --mtime=@0 --owner=0 --group=0 \
	--numeric-owner --mode=u=rwX,go=rX -cf - . | gzip -9n >$(FUZZ_ARCHIVE)

$(FUZZ_BUILD)/corpus.unpacked: $(FUZZ_ARCHIVE) | $(FUZZ_BUILD)
	rm -rf $(FUZZ_BUILD)/corpus && mkdir $(FUZZ_BUILD)/corpus
	tar -C $(FUZZ_BUILD)/corpus -xzf $<
	touch $@

.PHONY: check-fuzz fuzz-corpus fuzz-add

check-fuzz: $(FUZZERS:%=$(FUZZ_BUILD)/%) $(FUZZ_BUILD)/corpus.unpacked
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(FUZZ_PROVE) $(PROVE_FLAGS) -j2 \
	  --exec test/fuzz/fuzz-tap $(FUZZERS:%=$(FUZZ_BUILD)/%)

# The smallest set of inputs that reaches all code that the old and new inputs reach.
fuzz-corpus: $(FUZZERS:%=$(FUZZ_BUILD)/%) $(FUZZ_BUILD)/corpus.unpacked
	for f in $(FUZZERS); do \
	  old=$(FUZZ_BUILD)/corpus/$$f && \
	  new=$$(mktemp -d) && least=$$(mktemp -d) && mkdir -p $$old && \
	  $(FUZZ_BUILD)/$$f -max_total_time=$(or $(FUZZ_SECONDS),60) -max_len=512 \
	    -reduce_inputs=1 -artifact_prefix=$(FUZZ_BUILD)/ $$new $$old && \
	  $(FUZZ_BUILD)/$$f -merge=1 -max_len=512 $$least $$old $$new && \
	  rm -r $$old $$new && mv $$least $$old || exit 1; \
	done
	$(fuzz_pack)

fuzz-add: $(FUZZ_BUILD)/corpus.unpacked
	mkdir -p $(FUZZ_BUILD)/corpus/$(FUZZERS)
	cp $(INPUTS) $(FUZZ_BUILD)/corpus/$(FUZZERS)/
	$(fuzz_pack)
