/*-------------------------------------------------------------------------
 *
 * test_names.c
 *		Promises about names: encoding, parsing, order, and which program created a node.
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "recipe/queue/queue_order.h"
#include "tap.h"

#define SESSION INT64_C(0x1000000abcd0001)

static void
encodes(const char *name, size_t length, const char *expected, const char *what)
{
	char		out[ZKL_ENCODED_SIZE(600)];

	zkl_encode_name(name, length, out);
	is_str(out, expected, "encoding %s", what);
}

static void
test_encoding(void)
{
	char		longest[512];
	char		out[ZKL_ENCODED_SIZE(512)];
	bool		right = true;

	encodes("AZaz09_.:@~+=-", 14, "AZaz09_.:@~+=-", "keeps plain characters");
	encodes(".", 1, "%2E", "encodes a single dot");
	encodes("..", 2, "%2E%2E", "encodes two dots");
	encodes("...", 3, "...", "keeps three dots");
	encodes(".a", 2, ".a", "keeps a leading dot");
	encodes("#42", 3, "%2342", "percent-encodes #");
	encodes("a/b", 3, "a%2Fb", "prevents a slash in a path");
	encodes("%2F", 3, "%252F", "encodes the escape character");
	encodes("\xc3\xa4\xe2\x82\xac", 5, "%C3%A4%E2%82%AC", "encodes UTF-8 bytewise");
	encodes("\x01\t\n\x1f\x7f ", 6, "%01%09%0A%1F%7F%20", "encodes controls and blanks");
	encodes("a\0b", 3, "a%00b", "does not stop at a NUL");
	encodes("a,b", 3, "a%2Cb", "encodes the comma of two-part keys");
	encodes("", 0, "", "of an empty name is empty");

	for (int c = 0; c < 256; c++)
	{
		char		byte = (char) c;
		bool		plain = c != 0 && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
											 "0123456789_.:@~+=-", c) != NULL;

		zkl_encode_name((char[]) {'x', byte}, 2, out);
		right = right && strlen(out) == (plain ? 2 : 4);
	}
	ok(right, "exactly the documented bytes are plain");
	memset(longest, '\xff', sizeof(longest));
	zkl_encode_name(longest, sizeof(longest), out);
	is_int((int64_t) strlen(out), 1536, "the longest name fits its buffer");
}

static void
reads(const char *name, int32_t number, bool writer)
{
	ZklContender c = {0};

	ok(zkl_parse_child(name, &c) && c.number == number && c.writer == writer,
	   "%s is %s number %d", name, writer ? "writer" : "reader", number);
}

static void
ignores(const char *name, const char *why)
{
	ZklContender c;

	ok(!zkl_parse_child(name, &c), "no contender: %s (%s)", name, why);
}

static void
test_known_names(void)
{
	reads("_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000007", 7, false);
	reads("_c_01234567-89ab-cdef-0123-456789abcdef-__WRIT__0000000008", 8, true);
	reads("_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000009", 9, true);
	reads("0123456789abcdef0123456789abcdef__lock__0000000010", 10, true);
	reads("0123456789abcdef0123456789abcdef__rlock__0000000011", 11, false);
	reads("lock-0000000012", 12, true);
	reads("__READ__0000000013", 13, false);
	reads("anything at all__WRIT__2147483647", INT32_MAX, true);
	reads("x-lock-0123456789", 123456789, true);
}

static void
test_numbers(void)
{
	reads("x__lock__-000000001", -1, true);
	reads("x__lock__-2147483648", INT32_MIN, true);
	reads("lock--000000001", -1, true);
	reads("lock--2147483648", INT32_MIN, true);
	reads("x__READ__-000000005", -5, false);
	ignores("x__lock__2147483648", "beyond the server's counter");
	ignores("x__lock__-2147483649", "beyond the server's counter");
	ignores("x__lock__9999999999", "beyond the server's counter");
	ignores("x__lock__000000001", "number too short");
	ignores("x__lock__-00000001", "number too short");
	ignores("lock-000000001", "number too short, the dash is the infix's");
	ignores("x__lock__00000000001", "number too long");
	ignores("x__lock__99999999999999999999999", "number too long");
}

static void
test_foreign_names(void)
{
	ignores("", "empty");
	ignores("0000000001", "a number alone");
	ignores("-000000001", "a number alone");
	ignores("0123456789abcdef0123456789abcdef", "kazoo semaphore");
	ignores("lease_holder", "kazoo lease");
	ignores("_c_01234567-89ab-cdef-0123-456789abcdef-lease-0000000001", "Curator semaphore");
	ignores("x-72057594037927937-0000000001", "WriteLock recipe");
	ignores("x-0100000000000001-0000000001", "C recipe");
	ignores("_c_01234567-89ab-cdef-0123-456789abcdef-__READ__", "no number");
	ignores("__lock__", "no number");
	ignores("x__lock__0000000001x", "number not at the end");
	ignores("x__LOCK__0000000001", "other case");
	ignores("x_rlock__0000000001", "broken infix");
	ignores("x__lock__ 000000001", "blank in the number");
	ignores("x__lock__+000000001", "plus sign");
	ignores("leases", "Curator semaphore");
	ignores("locks", "Curator semaphore");
}

static void
test_prefix(ZklNodeNames node_names, ZklMode mode, const char *prefix, const char *what)
{
	char		out[ZKL_CHILD_NAME_SIZE];
	ZklContender c;

	ok(zkl_child_prefix(node_names, mode, SESSION, 7, out), "%s has a prefix", what);
	is_str(out, prefix, "%s: prefix", what);
	ok(zkl_child_name(node_names, mode, SESSION, 7, INT32_MIN, out) &&
	   zkl_parse_child(out, &c) && c.number == INT32_MIN,
	   "%s: the lowest number can be written and read", what);
	ok(zkl_child_name(node_names, mode, SESSION, 7, 12, out) && zkl_parse_child(out, &c) &&
	   c.number == 12 && c.writer == (mode == ZKL_MODE_EXCLUSIVE),
	   "%s: a name written is read again", what);
	ok(c.has_owner && c.owner == (uint64_t) SESSION, "%s: the session is recognised", what);
	ok(zkl_child_prefix(node_names, mode, -1, UINT64_MAX, out) &&
	   strlen(out) + 11 < ZKL_CHILD_NAME_SIZE, "%s: the longest name fits", what);
}

static void
test_writing(void)
{
	char		out[ZKL_CHILD_NAME_SIZE];
	ZklContender c;

	test_prefix(ZKL_NODE_NAMES_CURATOR, ZKL_MODE_SHARED,
				"_c_01000000-abcd-0001-0000-000000000007-__READ__", "Curator reader");
	test_prefix(ZKL_NODE_NAMES_CURATOR, ZKL_MODE_EXCLUSIVE,
				"_c_01000000-abcd-0001-0000-000000000007-__WRIT__", "Curator writer");
	test_prefix(ZKL_NODE_NAMES_CURATOR_MUTEX, ZKL_MODE_EXCLUSIVE,
				"_c_01000000-abcd-0001-0000-000000000007-lock-", "Curator mutex");
	test_prefix(ZKL_NODE_NAMES_KAZOO, ZKL_MODE_SHARED,
				"01000000abcd00010000000000000007__rlock__", "kazoo reader");
	test_prefix(ZKL_NODE_NAMES_KAZOO, ZKL_MODE_EXCLUSIVE,
				"01000000abcd00010000000000000007__lock__", "kazoo writer");
	ok(zkl_parse_child("_c_01000000-abcd-0001-0000-000000000007-__WRIT__0000000001", &c) &&
	   c.guid_end == 7, "a name of an earlier version has no server tag");
	ok(zkl_parse_child("0123456789lock-0000000001", &c) && c.guid_end == 0, "nor has another name");
	for (int i = 0; i <= ZKL_NODE_NAMES_KAZOO; i++)
	{
		zkl_child_name((ZklNodeNames) i, ZKL_MODE_EXCLUSIVE, SESSION,
					   zkl_guid_end(0xfedcba98, UINT32_MAX), 3, out);
		ok(zkl_parse_child(out, &c) && c.guid_end >> 32 == 0xfedcba98,
		   "the server tag is read again: %s", out);
	}
	ok(!zkl_child_prefix(ZKL_NODE_NAMES_CURATOR_MUTEX, ZKL_MODE_SHARED, SESSION, 7, out),
	   "a Curator mutex has no shared mode");
}

static void
test_owner(void)
{
	ZklContender c;

	ok(zkl_parse_child("lock-0000000001", &c) && !c.has_owner, "a name without GUID has no owner");
	ok(zkl_parse_child("_c_null-lock-0000000001", &c) && !c.has_owner,
	   "Curator's null GUID is no owner");
	ok(zkl_parse_child("_c_FFFFFFFF-FFFF-FFFF-0000-000000000001-lock-0000000001", &c) &&
	   c.has_owner && c.owner == UINT64_MAX, "GUIDs are read in either case");
}

static void
test_find(void)
{
	static const char *const children[] = {
		"_c_01000000-abcd-0001-0000-000000000070-__WRIT__0000000001",
		"_c_01000000-abcd-0001-0000-000000000007-__READ__0000000002",
		"_c_01000000-abcd-0001-0000-000000000007-__WRIT__0000000003",
	};

	is_str(zkl_find_child(children, 3, "_c_01000000-abcd-0001-0000-000000000007-__WRIT__"),
		   children[2], "a node is found by its GUID and mode");
	is_str(zkl_find_child(children, 3, "_c_01000000-abcd-0001-0000-000000000008-__WRIT__"),
		   NULL, "a node with another GUID is not found");
}

static void
test_order(void)
{
	ok(zkl_is_before(1, "b", 2, "a"), "the lower number is first");
	ok(!zkl_is_before(2, "a", 1, "b"), "the higher number is not first");
	ok(zkl_is_before(1, "a", 1, "b") && !zkl_is_before(1, "b", 1, "a"),
	   "of equal numbers the lesser name is first");
	ok(!zkl_is_before(1, "a", 1, "a"), "a name is not before itself");
	ok(zkl_is_before(INT32_MAX, "a", INT32_MIN, "b") &&
	   !zkl_is_before(INT32_MIN, "b", INT32_MAX, "a"), "the order holds across the wrap");
	ok(zkl_is_before(-1, "a", 0, "b"), "minus one is before zero");
	ok(zkl_is_before(INT32_MAX - 5, "a", INT32_MIN + 5, "b"), "the order holds some steps around the wrap");
	ok(zkl_is_before(INT32_MIN, "a", 0, "b") != zkl_is_before(0, "b", INT32_MIN, "a"),
	   "exactly one of two opposite numbers is first");
}

static void
test_makers(void)
{
	static const struct
	{
		const char *child;
		int64_t		session;
		ZklMaker	maker;
	}			cases[] = {
		{"_c_01000000-0000-0001-0000-000000000001-__WRIT__0000000000", 0x100000000000001, ZKL_MAKER_ZKLOCK},
		{"_c_01000000-0000-0001-0000-000000000001-__WRIT__0000000000", 0x100000000000002, ZKL_MAKER_CURATOR},
		{"_c_01000000-0000-0001-0000-000000000001-lease-0000000000", 0x100000000000001, ZKL_MAKER_ZKLOCK},
		{"01000000000000010000000000000001__rlock__0000000003", 0x100000000000001, ZKL_MAKER_ZKLOCK},
		{"01000000000000010000000000000001__rlock__0000000003", 0, ZKL_MAKER_KAZOO},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-lock-0000000012", 5, ZKL_MAKER_CURATOR},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-__READ__-000000012", 5, ZKL_MAKER_CURATOR},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-lease-0000000012", 5, ZKL_MAKER_CURATOR},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-lock-", 5, ZKL_MAKER_OTHER},
		{"_c_0a1b2c3d-1111-2222-3333-444455556666-lock-1x", 5, ZKL_MAKER_OTHER},
		{"_c_0a1b2c3d-1111-2222-3333-44445555666", 5, ZKL_MAKER_OTHER},
		{"_c_", 5, ZKL_MAKER_OTHER},
		{"_c_0a1b2c3d111122223333444455556666-lock-0000000012", 5, ZKL_MAKER_CURATOR},
		{"0a1b2c3d111122223333444455556666__lock__0000000012", 5, ZKL_MAKER_KAZOO},
		{"0a1b2c3d111122223333444455556666", 5, ZKL_MAKER_OTHER},
		{"0a1b2c3d-1111-2222-3333-444455556666-lock-0000000012", 5, ZKL_MAKER_OTHER},
		{"0a1b2c3d-1111-2222-3333-444455556666__WRIT__0000000012", 5, ZKL_MAKER_OTHER},
		{"0a1b2c3d11112222333344445555666", 5, ZKL_MAKER_OTHER},
		{"x-0100000000000001-0000000001", 0x100000000000001, ZKL_MAKER_OTHER},
		{"lock-0000000001", 1, ZKL_MAKER_OTHER},
		{"", 0, ZKL_MAKER_OTHER},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_int(zkl_maker(cases[i].child, cases[i].session), cases[i].maker,
			   "the program that created \"%s\" is recognised", cases[i].child);
}

int
main(void)
{
	test_encoding();
	test_known_names();
	test_numbers();
	test_foreign_names();
	test_writing();
	test_owner();
	test_find();
	test_order();
	test_makers();
	return done();
}
