/*-------------------------------------------------------------------------
 *
 * fuzz_members.c
 *		Fuzzes the parser of lock nodes' data, which any client may have written.
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"
#include "backend/base/members.h"

/* Any bytes: the parser ends, and returns NUL-terminated text. */
static void
check_any(const uint8_t *data, size_t size)
{
	ZklockMembers members;
	char	   *copy = malloc(size);	/* exact size, for ASan */
	size_t		n = 0;

	if (size > 0)
		memcpy(copy, data, size);
	zklock_members_begin(&members, copy, size);
	for (; zklock_members_next(&members); n++)
	{
		must(memchr(members.name, '\0', sizeof(members.name)), "the name has no end");
		must(memchr(members.value, '\0', sizeof(members.value)), "the value has no end");
		must(n < size, "more members than bytes");
	}
	free(copy);
}

/* Writes a string as escape_json() does. */
static void
write_string(FILE *out, const char *text)
{
	static const char controls[] = "\b\f\n\r\t";

	fputc('"', out);
	for (const char *p = text; *p; p++)
		if (*p == '"' || *p == '\\')
			fprintf(out, "\\%c", *p);
		else if (strchr(controls, *p))
			fprintf(out, "\\%c", "bfnrt"[strchr(controls, *p) - controls]);
		else if ((unsigned char) *p < ' ')
			fprintf(out, "\\u%04x", *p);
		else
			fputc(*p, out);
	fputc('"', out);
}

/* Members that were written are read back. */
static void
check_written(Input input)
{
	enum
	{
	MOST = 4};
	char		names[MOST][200];
	char		values[MOST][200];
	unsigned	n = take(&input) % (MOST + 1);
	bool		spaced = take(&input) % 2;
	ZklockMembers members;
	char	   *json;
	size_t		size;
	FILE	   *out = open_memstream(&json, &size);

	fputc('{', out);
	for (unsigned i = 0; i < n; i++)
	{
		take_text(&input, names[i], sizeof(names[i]), '\0');
		take_text(&input, values[i], sizeof(values[i]), '\0');
		fputs(i == 0 ? "" : spaced ? " ,\n" : ",", out);
		write_string(out, names[i]);
		fputs(spaced ? "\t: " : ":", out);
		write_string(out, values[i]);
	}
	fputc('}', out);
	fclose(out);
	zklock_members_begin(&members, json, size);
	for (unsigned i = 0; i < n; i++)
	{
		must(zklock_members_next(&members), "member %u of %s", i, json);
		must(strcmp(members.name, names[i]) == 0, "%s in %s", members.name, json);
		must(strcmp(members.value, values[i]) == 0, "%s in %s", members.value, json);
	}
	must(!zklock_members_next(&members), "one member too many in %s", json);
	free(json);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		input = {data, size};

	check_any(data, size);
	check_written(input);
	return 0;
}
