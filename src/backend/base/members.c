/*-------------------------------------------------------------------------
 *
 * members.c
 *		Reads a flat JSON object, as in the data of zklock's nodes.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "backend/base/members.h"

void
zklock_members_begin(ZklockMembers *members, const char *json, size_t length)
{
	members->next = json;
	members->end = json + length;
	members->started = false;
}

/* Reads this character, after white space; returns false if it is another one. */
static bool
take(ZklockMembers *m, char c)
{
	while (m->next < m->end && *m->next != '\0' && strchr(" \t\r\n", *m->next))
		m->next++;
	if (m->next == m->end || *m->next != c)
		return false;
	m->next++;
	return true;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Reads the four digits after \u, and writes UTF-8; returns its length, 0 on error. */
static size_t
take_code(ZklockMembers *m, char *out)
{
	unsigned	code = 0;

	if (m->end - m->next < 4)
		return 0;
	for (int i = 0; i < 4; i++)
	{
		int			digit = hex_digit(*m->next++);

		if (digit < 0)
			return 0;
		code = code << 4 | (unsigned) digit;
	}
	/* UTF-8 does not need surrogate pairs. */
	if (code == 0 || (code >= 0xd800 && code < 0xe000))
		return 0;
	if (code < 0x80)
	{
		out[0] = (char) code;
		return 1;
	}
	if (code < 0x800)
	{
		out[0] = (char) (0xc0 | code >> 6);
		out[1] = (char) (0x80 | (code & 0x3f));
		return 2;
	}
	out[0] = (char) (0xe0 | code >> 12);
	out[1] = (char) (0x80 | (code >> 6 & 0x3f));
	out[2] = (char) (0x80 | (code & 0x3f));
	return 3;
}

/* Reads the rest of an escape; returns like take_code(). */
static size_t
take_escape(ZklockMembers *m, char *out)
{
	static const char letters[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	const char *found;
	char		c;

	if (m->next == m->end)
		return 0;
	c = *m->next++;
	if (c == 'u')
		return take_code(m, out);
	found = c == '\0' ? NULL : strchr(letters, c);
	if (found == NULL)
		return 0;
	*out = meanings[found - letters];
	return 1;
}

/* Reads the rest of a string, after its opening quote. */
static bool
take_string(ZklockMembers *m, char *out)
{
	size_t		n = 0;

	while (m->next < m->end && n + 4 < ZKLOCK_MEMBER_SIZE)
	{
		char		c = *m->next++;
		size_t		bytes = 1;

		if (c == '"')
		{
			out[n] = '\0';
			return true;
		}
		if (c == '\\')
			bytes = take_escape(m, out + n);
		else
			out[n] = c;
		if (bytes == 0 || c == '\0')
			return false;
		n += bytes;
	}
	return false;
}

/* Reads a number or a word. */
static bool
take_word(ZklockMembers *m, char *out)
{
	size_t		n = 0;

	while (m->next < m->end && n + 1 < ZKLOCK_MEMBER_SIZE &&
		   ((*m->next >= '0' && *m->next <= '9') ||
			(*m->next >= 'a' && *m->next <= 'z') ||
			*m->next == '-' || *m->next == '+' || *m->next == '.' || *m->next == 'E'))
		out[n++] = *m->next++;
	out[n] = '\0';
	return n > 0;
}

bool
zklock_members_next(ZklockMembers *m)
{
	if (!take(m, m->started ? ',' : '{'))
		return false;
	m->started = true;
	if (!take(m, '"') || !take_string(m, m->name) || !take(m, ':'))
		return false;
	if (take(m, '"'))
		return take_string(m, m->value);
	return take_word(m, m->value);
}
