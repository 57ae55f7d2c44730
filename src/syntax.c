/*-------------------------------------------------------------------------
 *
 * syntax.c
 *		What settings and the credentials file must look like.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "syntax.h"

/* Slash-separated components, none of them empty, "." or "..". */
bool
zklock_is_znode_path(const char *path)
{
	if (path[0] != '/')
		return false;
	while (*path == '/')
	{
		size_t		n = strcspn(++path, "/");

		if (n == 0 || (n == 1 && path[0] == '.') ||
			(n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		for (size_t i = 0; i < n; i++)
			if ((unsigned char) path[i] < 0x20 || path[i] == 0x7f)
				return false;
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
	if (atoi(s + length - digits) < 1 || atoi(s + length - digits) > 65535)
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
	/* A comma in the chroot is hosts after it, which the client would not see. */
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

	/* A NUL would hide the end of a password from the client library. */
	if (strlen(text) != n || strncmp(text, scheme, strlen(scheme)) != 0)
		return NULL;
	text += strlen(scheme);
	return strchr(text, ':') ? text : NULL;
}

void
zklock_hush(char *utf8, size_t length)
{
	unsigned char *s = (unsigned char *) utf8;

	for (size_t i = 0; i < length; i++)
	{
		if (s[i] < 0x20 || s[i] == 0x7f)
			s[i] = '?';
		else if (s[i] == 0xc2 && i + 1 < length && s[i + 1] >= 0x80 && s[i + 1] < 0xa0)
		{
			s[i++] = '?';
			s[i] = '?';
		}
	}
}

void
zklock_make_plain(char *text)
{
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			*text = '?';
}
