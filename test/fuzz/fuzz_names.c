/*-------------------------------------------------------------------------
 *
 * fuzz_names.c
 *		Fuzzes names: an encoded name can be decoded and is one component of a path;
 *		exactly the names that a lock recipe writes are parsed; the order is total.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <regex.h>

#include "backend/base/syntax.h"
#include "fuzz.h"
#include "recipe/queue/queue_order.h"

#define MAX_NAME 512

/* The inverse of zkl_encode_name(), by the rule of percent-encoding alone. */
static size_t
decode(const char *encoded, char *out)
{
	size_t		n = 0;

	while (*encoded)
	{
		unsigned	byte;

		if (*encoded != '%')
			out[n++] = *encoded++;
		else
		{
			must(sscanf(encoded, "%%%2X", &byte) == 1 && strlen(encoded) >= 3,
				 "a broken escape: %s", encoded);
			out[n++] = (char) byte;
			encoded += 3;
		}
	}
	return n;
}

static void
check_encoding(const char *name, size_t length)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	"0123456789_.:@~+=-%";
	char		encoded[ZKL_ENCODED_SIZE(MAX_NAME)];
	char		decoded[ZKL_ENCODED_SIZE(MAX_NAME)];
	size_t		n;

	zkl_encode_name(name, length, encoded);
	n = strlen(encoded);
	must(n < ZKL_ENCODED_SIZE(length), "%zu bytes became %zu", length, n);
	must(strspn(encoded, plain) == n, "not one component of plain characters: %s", encoded);
	must(strcmp(encoded, ".") != 0 && strcmp(encoded, "..") != 0, "a relative path");
	must(decode(encoded, decoded) == length && memcmp(decoded, name, length) == 0,
		 "decoded to another name: %s", encoded);
	must(zklock_decode(encoded) == length && memcmp(encoded, name, length) == 0,
		 "decoded to another name in place: %s", decoded);
}

/* Any text, a recipe's infix, a number as "%010d" writes it, or with zeros after "-"? */
static bool
is_contender(const char *name, int32_t *number, bool *writer)
{
	static regex_t pattern;
	static bool compiled;
	regmatch_t	m[3];
	int64_t		value;

	if (!compiled)
		compiled = regcomp(&pattern, "(__READ__|__WRIT__|lock-|__rlock__|__lock__)"
						   "([0-9]{10}|-[0-9]{9,10})$", REG_EXTENDED) == 0;
	if (regexec(&pattern, name, 3, m, 0) != 0)
		return false;
	value = strtoll(name + m[2].rm_so, NULL, 10);
	*number = (int32_t) value;
	*writer = strncmp(name + m[1].rm_so, "__READ__", 8) != 0 &&
		strncmp(name + m[1].rm_so, "__rlock__", 9) != 0;
	return value >= INT32_MIN && value <= INT32_MAX;
}

/* Returns the first 64 bits of a GUID as Curator or as kazoo writes it. */
static bool
begins_with_guid(const char *name, uint64_t *owner)
{
	static regex_t pattern;
	static bool compiled;
	char		digits[32] = "";

	if (!compiled)
		compiled = regcomp(&pattern, "^(_c_[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}-"
						   "|[0-9a-fA-F]{32}__)", REG_EXTENDED) == 0;
	if (regexec(&pattern, name, 0, NULL, 0) != 0)
		return false;
	if (strncmp(name, "_c_", 3) == 0)
		snprintf(digits, sizeof(digits), "%.8s%.4s%.4s", name + 3, name + 12, name + 17);
	else
		snprintf(digits, sizeof(digits), "%.16s", name);
	*owner = strtoull(digits, NULL, 16);
	return true;
}

static void
check_reading(const char *name)
{
	ZklContender c;
	int32_t		number;
	bool		writer;
	uint64_t	owner;
	bool		known = is_contender(name, &number, &writer);
	char	   *exact = strdup(name);	/* nothing is read behind it */

	must(zkl_parse_child(exact, &c) == known, "%s: wrongly recognised or not recognised as a contender", name);
	free(exact);
	if (!known)
		return;
	must(c.number == number && c.writer == writer, "%s: read as %" PRId32, name, c.number);
	if (begins_with_guid(name, &owner))
		must(c.has_owner && c.owner == owner, "%s: owner %" PRIx64, name, c.owner);
}

static bool
has_only_digits_after(const char *name, const char *prefix)
{
	size_t		n = strlen(prefix);

	return strncmp(name, prefix, n) == 0 && strspn(name + n, "-0123456789") == strlen(name + n);
}

/* A name that zklock writes is parsed again, and found among other names. */
static void
check_writing(Input *input, const char *other)
{
	ZklNodeNames node_names = (ZklNodeNames) (take(input) % 3);
	ZklMode		mode = take(input) % 2 ? ZKL_MODE_SHARED : ZKL_MODE_EXCLUSIVE;
	int64_t		session = (int64_t) ((uint64_t) take(input) << 56 | (uint32_t) take_number(input));
	uint64_t	counter = (uint64_t) take(input) << 56 | (uint64_t) take(input);
	int32_t		number = take_number(input);
	char		prefix[ZKL_CHILD_NAME_SIZE];
	char		name[ZKL_CHILD_NAME_SIZE];
	char		mimic[MAX_NAME + ZKL_CHILD_NAME_SIZE];
	ZklContender c;
	const char *found;

	must(zkl_child_prefix(node_names, mode, session, counter, prefix) ==
		 zkl_child_name(node_names, mode, session, counter, number, name), "either prefix or name cannot be written");
	if (node_names == ZKL_NODE_NAMES_CURATOR_MUTEX && mode == ZKL_MODE_SHARED)
		return;
	must(zkl_parse_child(name, &c) && c.number == number && c.has_owner &&
		 c.owner == (uint64_t) session && c.writer == (mode == ZKL_MODE_EXCLUSIVE),
		 "%s: not parsed again", name);
	check_reading(name);

	/* A name with the same prefix, but not continued as the server would. */
	snprintf(mimic, sizeof(mimic), "%s%s", prefix, other);
	found = zkl_find_child((const char *[]) {other, mimic, name}, 3, prefix);
	must(found && (found == name || has_only_digits_after(found, prefix)),
		 "%s is not found for %s beside %s and %s", name, prefix, other, mimic);
}

static void
check_order(Input *input, const char *a_name, const char *b_name)
{
	int32_t		a = take_number(input);
	int32_t		b = take_number(input);
	int32_t		shift = take_number(input);
	bool		before = zkl_is_before(a, a_name, b, b_name);
	int64_t		steps = ((int64_t) b - a) & INT64_C(0xffffffff);

	must(!zkl_is_before(a, a_name, a, a_name), "a node is before itself");
	if (a != b || strcmp(a_name, b_name) != 0)
		must(before != zkl_is_before(b, b_name, a, a_name),
			 "%" PRId32 " and %" PRId32 ": both or neither is before", a, b);
	if (a == b)
		must(before == (strcmp(a_name, b_name) < 0), "of equal numbers the lesser name is not first");
	else if (steps != INT64_C(0x80000000))
	{
		must(before == (steps < INT64_C(0x80000000)), "%" PRId32 " and %" PRId32, a, b);
		must(before == zkl_is_before((int32_t) ((uint32_t) a + (uint32_t) shift), a_name,
									 (int32_t) ((uint32_t) b + (uint32_t) shift), b_name),
			 "the order changes with the wrap");
	}
}

/* Appends a number as it may end a name, well-formed or not. */
static void
add_number(Input *input, char *name, size_t size)
{
	static const char *const formats[] = {
		"%010" PRId32, "%011" PRId32, "%09" PRId32, "-%010" PRId32, "%" PRId32, "%010" PRId32 "0",
	};
	size_t		n = strlen(name);
	int			format = take(input) % 6;

	snprintf(name + n, size - n, formats[format], take_number(input));
}

static void
take_name(Input *input, char *name, size_t size)
{
	static const char *const infixes[] = {
		"__READ__", "__WRIT__", "lock-", "__rlock__", "__lock__", "__READ__-", "lock", "",
	};
	static const char *const guids[] = {
		"", "_c_01000000-0000-0002-0000-000000000001-", "010000000000000200000000000000AB",
		"_c_", "-", "_c_0100000-00000-0002-",
	};
	size_t		n;

	snprintf(name, size, "%s", guids[take(input) % 6]);
	n = strlen(name);
	take_text(input, name + n, size - n - 64, '/');
	strcat(name, infixes[take(input) % 8]);
	if (take(input) % 4)
		add_number(input, name, size);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		input = {data, size};
	char		names[2][MAX_NAME];

	check_encoding((const char *) data, size < MAX_NAME ? size : MAX_NAME);
	take_name(&input, names[0], MAX_NAME);
	take_name(&input, names[1], MAX_NAME);
	check_reading(names[0]);
	check_reading(names[1]);
	check_writing(&input, names[0]);
	check_order(&input, names[0], names[1]);

	/* The rest of the input, unchanged. */
	take_text(&input, names[0], MAX_NAME, '/');
	check_reading(names[0]);
	return 0;
}
