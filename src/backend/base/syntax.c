/*-------------------------------------------------------------------------
 *
 * syntax.c
 *		Syntax of settings and credentials; text of others made safe to show.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "backend/base/syntax.h"

/* Returns the length of the character; 1 for a byte that starts none, with ~0 as character. */
static size_t
decode(const unsigned char *s, size_t length, unsigned *character)
{
	static const unsigned smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t		n = s[0] < 0xc0 || s[0] >= 0xf8 ? 1
		: s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	*character = s[0] < 0x80 ? s[0] : ~0u;
	if (n == 1 || n > length)
		return 1;
	*character = s[0] & (0x7f >> n);
	for (size_t i = 1; i < n; i++)
	{
		if ((s[i] & 0xc0) != 0x80)
		{
			*character = ~0u;
			return 1;
		}
		*character = *character << 6 | (s[i] & 0x3f);
	}
	if (*character >= smallest[n])
		return n;
	*character = ~0u;
	return 1;
}

/* ZooKeeper refuses them (PathUtils.java); Java has those above 0xffff as surrogates. */
static bool
is_refused(unsigned character)
{
	return character <= 0x1f || (character >= 0x7f && character <= 0x9f) ||
		(character >= 0xd800 && character <= 0xf8ff) || character >= 0xfff0;
}

/* Slash-separated components, none of them empty, "." or "..". */
bool
zklock_is_znode_path(const char *path)
{
	if (path[0] != '/')
		return false;
	while (*path == '/')
	{
		size_t		n = strcspn(++path, "/");
		unsigned	character;

		if (n == 0 || (n == 1 && path[0] == '.') ||
			(n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		for (size_t i = 0; i < n;)
		{
			i += decode((const unsigned char *) path + i, n - i, &character);
			if (is_refused(character))
				return false;
		}
		path += n;
	}
	return *path == '\0';
}

static bool
is_host_and_port(const char *s, size_t length)
{
	size_t		digits = 0;

	while (digits < length && s[length - 1 - digits] >= '0' &&
		   s[length - 1 - digits] <= '9')
		digits++;
	if (digits == 0 || digits > 5 || length < digits + 2 ||
		s[length - 1 - digits] != ':')
		return false;
	/* The client library takes a port that begins with 0 for an octal number. */
	if (s[length - digits] == '0' || atoi(s + length - digits) > 65535)
		return false;
	for (size_t i = 0; i < length; i++)
		if ((unsigned char) s[i] <= 0x20)
			return false;
	return true;
}

bool
zklock_is_connect_string(const char *hosts)
{
	for (;;)
	{
		size_t		n = strcspn(hosts, ",/");

		if (!is_host_and_port(hosts, n))
			return false;
		hosts += n;
		if (*hosts != ',')
			break;
		hosts++;
	}
	/* A comma in the chroot means hosts after it; the client would not see them. */
	return *hosts == '\0' ||
		(zklock_is_znode_path(hosts) && strchr(hosts, ',') == NULL);
}

bool
zklock_is_tls_path(const char *path)
{
	for (; *path; path++)
		if (*path == ',' || (unsigned char) *path < 0x20 || *path == 0x7f)
			return false;
	return true;
}

char *
zklock_credentials_in(char *text, size_t length)
{
	static const char scheme[] = "digest ";
	size_t		n = 0;

	while (n < length && text[n] != '\n' && text[n] != '\r')
		n++;
	text[n] = '\0';

	/* A NUL would hide the rest of a password from the client library. */
	if (strlen(text) != n || strncmp(text, scheme, strlen(scheme)) != 0)
		return NULL;
	text += strlen(scheme);
	return strchr(text, ':') ? text : NULL;
}

/*
 * Characters that a terminal interprets, or that make text look like other text: control
 * characters, bidirectional controls, separators of lines and paragraphs, and all that
 * Unicode calls default ignorable, with its reserved ranges.  PostgreSQL's own width
 * (pg_encoding_dsplen) cannot decide: before version 16 it is 1 for the bidirectional
 * controls, and it is 0 for the accents of many languages.
 */
static const struct
{
	unsigned	first;
	unsigned	last;
}			hidden[] = {
	{0x00, 0x1f}, {0x7f, 0x9f}, {0xad, 0xad}, {0x34f, 0x34f}, {0x61c, 0x61c},
	{0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x200b, 0x200f},
	{0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164}, {0xfe00, 0xfe0f},
	{0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3},
	{0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}
};

static bool
is_hidden(unsigned character)
{
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (character >= hidden[i].first && character <= hidden[i].last)
			return true;
	return false;
}

bool
zklock_mask_controls(char *utf8, size_t length)
{
	unsigned char *s = (unsigned char *) utf8;
	bool		found = false;

	for (size_t i = 0, n; i < length; i += n)
	{
		unsigned	character;

		n = decode(s + i, length - i, &character);
		if (!is_hidden(character))
			continue;
		memset(s + i, '?', n);
		found = true;
	}
	return found;
}

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t
zklock_decode(char *text)
{
	char	   *out = text;

	for (const char *p = text; *p; p++)
		if (p[0] == '%' && hex_value(p[1]) >= 0 && hex_value(p[2]) >= 0)
		{
			*out++ = (char) (hex_value(p[1]) << 4 | hex_value(p[2]));
			p += 2;
		}
		else
			*out++ = *p;
	return out - text;
}

void
zklock_make_plain(char *text)
{
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			*text = '?';
}
