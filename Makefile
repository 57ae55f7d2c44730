# zklock: cluster-wide advisory locks for PostgreSQL, over ZooKeeper.
#
#   make && make install        build against PG_CONFIG (default: pg_config)
#   make -f DIR/Makefile        the same in another directory than the sources
#   make ZOOKEEPER_PREFIX=/opt/zk    with the ZooKeeper client library that is there;
#                               the settings for TLS exist if that has TLS
#   make t T=release            builds, and runs the tests of that name in seconds; installs
#                               nothing: scripts/one-test
#   make unit T=test_lock K=upgrade    the same for unit tests: test/unit/unit.mk
#   make installcheck           pg_regress and isolation tests against a running
#                               server whose zklock.connect_string works
#   make check-layers           checks includes and calls between layers, and the length of files
#   make check-meta             compares META.json and the changelogs with zklock.control
#   make check-format           checks that C files are formatted like PostgreSQL's; make format does it
#   make check-checks           tests these checks with small trees that break the rules
#   make check-words            finds words in names that the glossary replaces
#   make check-scripts          shellcheck, perlcritic, pyflakes; checks that the mutants' patches apply, that
#                               each promise has a test, that no assertion's name begins with "...", and
#                               that the picture of a loss is not stale
#   make check-unit             tests the recipe layer with a fake client, as TAP
#   make check-asan check-tsan check-valgrind    the same with a sanitizer
#                               or valgrind
#   make check-fuzz             fuzzes the parsers of received data (FUZZ_SECONDS=600: longer)
#   make check-backend-asan check-backend-valgrind    installcheck on a private
#                               server under a sanitizer or valgrind
#   make check-coverage         measures the coverage of all tests; takes as long as they do
#   make check-matrix           runs the tests in Debian 12, 13, testing and unstable
#   make bench                  measures zklock and other lock services; bench/README.md
#   make check-package          builds and tests the Debian package in a clean system
#   make dist                   writes an archive of HEAD for PGXN to build
#
# scripts/test builds, installs, and tests against private servers; see test/README.md.

EXTENSION = zklock zklock_advisory
# The sources; "." unless built in another directory.
TOP := $(patsubst %/,%,$(dir $(firstword $(MAKEFILE_LIST))))
sources = $(patsubst $(TOP)/%,%,$(wildcard $(addprefix $(TOP)/,$(1))))
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(TOP)/zklock.control)

MODULE_big = zklock
OBJS = $(patsubst %.c,%.o,$(call sources,src/*.c src/sql/*.c src/backend/*/*.c src/recipe/*.c src/recipe/*/*.c))
DATA = $(call sources,sql/zklock--*.sql sql/zklock_advisory--*.sql)
ifneq ($(TOP),.)
$(shell mkdir -p $(sort $(dir $(OBJS))))
endif

# The library is linked by file name: its -dev package conflicts with that of the
# multi-threaded library, and both have the same headers.
ZK_LIBS ?= -l:libzookeeper_st.so.2
ifdef ZOOKEEPER_PREFIX
ZK_CPPFLAGS = -I$(ZOOKEEPER_PREFIX)/include
ZK_LDFLAGS = -L$(ZOOKEEPER_PREFIX)/lib -Wl,-rpath,$(ZOOKEEPER_PREFIX)/lib
endif

# The client library has TLS if it can be linked so; its header shows it only then.
ZK_TLS_PROBE = \#define HAVE_OPENSSL_H\n\#include <zookeeper/zookeeper.h>\nint main(void) { return !zookeeper_init_ssl("", "", 0, 0, 0, 0, 0); }\n
ZK_TLS := $(shell printf '$(ZK_TLS_PROBE)' | $(CC) $(ZK_CPPFLAGS) -x c - -x none \
	-o /dev/null $(ZK_LDFLAGS) $(ZK_LIBS) -lpthread 2>/dev/null && echo -DZKLOCK_HAVE_TLS)

PG_CPPFLAGS = -I$(TOP)/src $(ZK_CPPFLAGS) $(ZK_TLS) -D_GNU_SOURCE -DZKLOCK_VERSION='"$(EXTVERSION)"'
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter $(ZKL_CHECKS)
# PostgreSQL's flags and headers are those of the compiler it was built with.
ifneq ($(findstring clang,$(CC)),)
PG_CFLAGS += -Wno-unknown-warning-option -Wno-ignored-optimization-argument \
	-Wno-ignored-attributes
endif
SHLIB_LINK = $(ZK_LDFLAGS) $(ZK_LIBS) -lpthread

REGRESS = $(sort $(patsubst test/sql/%.sql,%,$(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=test --load-extension=zklock
ISOLATION = $(sort $(patsubst test/specs/%.spec,%,$(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test --load-extension=zklock

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)

# With a PostgreSQL with assertions, the recipe layer checks its states, too.
ZKL_CHECKS := $(shell grep -qs 'define USE_ASSERT_CHECKING 1' \
	"$$($(PG_CONFIG) --includedir-server)/pg_config.h" && echo -DZKL_CHECKS)

# PGXS may want bitcode from a clang that is not there; do without then.
PGXS_CLANG := $(shell sed -n 's/^CLANG *= *//p' $(dir $(PGXS))../Makefile.global)
ifeq ($(shell command -v $(PGXS_CLANG) 2>/dev/null),)
override with_llvm = no
endif

include $(PGXS)

# PostgreSQL calls SQL functions, _PG_init() and the background worker by name, and nothing else.
$(filter-out %/shared_memory.o %/crash_release.o,$(filter src/backend/% src/recipe/%,$(OBJS))): \
	CFLAGS += -fvisibility=hidden

$(OBJS): $(wildcard $(TOP)/src/*.h $(TOP)/src/sql/*.h $(TOP)/src/backend/*/*.h $(TOP)/src/recipe/*.h $(TOP)/src/recipe/*/*.h)

include $(TOP)/test/unit/unit.mk
include $(TOP)/test/fuzz/fuzz.mk

.PHONY: t
t: $(shlib)
	@exec env PG_CONFIG='$(PG_CONFIG)' scripts/one-test '$(or $(PROVE_TESTS),$(T))' '$(K)'

.PHONY: check-backend-asan check-backend-valgrind
check-backend-asan check-backend-valgrind:
	scripts/test $(@:check-%=%)

.PHONY: check-coverage check-matrix check-package
check-coverage:
	scripts/test --coverage build/coverage

check-matrix:
	scripts/test-matrix

check-package:
	scripts/package-test

.PHONY: bench
bench:
	scripts/bench

.PHONY: format check-format check-meta check-scripts check-words
format:
	PG_CONFIG=$(PG_CONFIG) scripts/format

check-format:
	PG_CONFIG=$(PG_CONFIG) scripts/format --check

check-words:
	scripts/check-words

check-meta:
	scripts/check-meta

check-scripts:
	scripts/promises --check
	doc/pictures/loss.py --check
	shellcheck -x scripts/*.sh bench/*.sh doc/examples/*.sh $$(grep -lrIE '^#!.*sh$$' .ci scripts test debian)
	perlcritic --quiet $$(grep -lrIE '^#!.*perl$$' scripts test) test/lib/ZkLock
	pyflakes3 $$(grep -lrIE '^#!.*python3$$' test) test/chaos test/lib bench clients doc/examples doc/pictures
	! grep -rnE "(^[[:space:]]*|, |\{)[\"']\.\.\. " test --include=*.c --include=*.pl --include=*.pm --include=*.py --include=*.sql
	@for patch in test/chaos/mutants/*.patch; do \
	  patch --dry-run --force --silent -p1 <$$patch || exit 1; done
	@echo "scripts: ok"

.PHONY: dist
DIST ?= build/zklock-$(shell sed -n 's/^\t"version": "\(.*\)",/\1/p' META.json).zip
dist: check-meta
	@mkdir -p $(dir $(DIST))
	git -c safe.directory='$(CURDIR)' archive --prefix=$(patsubst %.zip,%,$(patsubst %.tar.gz,%,$(notdir $(DIST))))/ -o $(DIST) HEAD
	@echo $(DIST)

.PHONY: check-layers
check-layers: $(OBJS)
	@PG_CONFIG=$(PG_CONFIG) scripts/check-layers
	@echo "layers: ok"

.PHONY: check-checks
check-checks:
	@PG_CONFIG=$(PG_CONFIG) prove -Q test/checks/*.pl
