/*-------------------------------------------------------------------------
 *
 * fuzz_text.c
 *		Fuzzes texts from users and from the client library: settings, the
 *		credentials file, log lines.
 *
 *-------------------------------------------------------------------------
 */
#include <locale.h>
#include <regex.h>
#include <wchar.h>

#include "fuzz.h"
#include "backend/base/syntax.h"
#include "recipe/recipe.h"
#include "recipe/zookeeper/log.h"

#define MAX_TEXT 2000

/* A component of a path is not "." or "..". */
#define PATH "(/([^/.][^/]*|\\.[^/.][^/]*|\\.\\.[^/]+))+"
#define HOST "[^,/\001-\040]+:[1-9][0-9]{0,4}"

typedef enum Form
{
	FORM_PATH,
	FORM_CONNECT_STRING,
	FORM_CREDENTIALS,
	FORM_TLS_PATH,
	N_FORMS
} Form;

static bool
has_form(const char *text, Form form)
{
	static const char *const expressions[] = {
		"^" PATH "$", "^" HOST "(," HOST ")*(" PATH ")?$", "^digest [^:]*:",
		"^[^,\001-\037\177]*$",
	};
	static regex_t patterns[N_FORMS];
	static bool compiled[N_FORMS];

	if (!compiled[form])
		must(regcomp(&patterns[form], expressions[form], REG_EXTENDED | REG_NOSUB) == 0,
			 "%s", expressions[form]);
	compiled[form] = true;
	return regexec(&patterns[form], text, 0, NULL, 0) == 0;
}

/* Has this only characters in UTF-8 that ZooKeeper accepts in a path? */
static bool
is_accepted(const char *text)
{
	static locale_t utf8;
	locale_t	old;
	mbstate_t	state = {0};
	wchar_t		c = 1;
	bool		good = true;

	if (utf8 == NULL)
		utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
	must(utf8 != NULL, "no locale with UTF-8");
	old = uselocale(utf8);
	while (good && c != 0)
	{
		size_t		n = mbrtowc(&c, text, MB_CUR_MAX, &state);

		good = n <= MB_CUR_MAX && (c == 0 || (c >= 0x20 && c < 0x7f) ||
								   (c > 0x9f && c < 0xd800) || (c > 0xf8ff && c < 0xfff0));
		text += good ? n : 0;
	}
	uselocale(old);
	return good;
}

static void
check_settings(const char *text)
{
	const char *chroot = strchr(text, '/');
	bool		is_path = has_form(text, FORM_PATH) && is_accepted(text);
	bool		good = has_form(text, FORM_CONNECT_STRING) &&
		!(chroot && (strchr(chroot, ',') || !is_accepted(chroot)));
	bool		accepted = zklock_is_connect_string(text);

	must(zklock_is_znode_path(text) == is_path, "wrongly accepted or refused as a path: %s", text);
	must(zklock_is_tls_path(text) == has_form(text, FORM_TLS_PATH), "wrongly accepted or refused as a path for TLS: %s", text);
	/* Not in the expression: no port has more than five digits or exceeds 65535. */
	if (!good)
		must(!accepted, "wrongly accepted as a connect string: %s", text);
	else
	{
		bool		in_range = true;

		for (const char *p = text; p && in_range;)
		{
			size_t		n = strcspn(p, ",/");
			size_t		digits = 0;

			while (p[n - 1 - digits] != ':')
				digits++;
			in_range = digits <= 5 && atol(p + n - digits) <= 65535;
			p = p[n] == ',' ? p + n + 1 : NULL;
		}
		must(accepted == in_range, "wrongly accepted or refused as a connect string: %s", text);
	}
}

static void
check_credentials(const uint8_t *data, size_t size)
{
	char		text[MAX_TEXT + 1];
	char		line[MAX_TEXT + 1];
	char	   *found;
	size_t		n = 0;

	memset(text, 'x', sizeof(text));
	memcpy(text, data, size);
	found = zklock_credentials_in(text, size);
	while (n < size && data[n] != '\n' && data[n] != '\r')
		n++;
	memcpy(line, data, n);
	line[n] = '\0';
	if (memchr(data, '\0', n) || !has_form(line, FORM_CREDENTIALS))
		must(found == NULL, "wrongly accepted as credentials: %s", line);
	else
		must(found && strcmp(found, line + 7) == 0, "not recognised as credentials: %s", line);
}

static void
check_log(const char *text)
{
	char		line[512];

	zkl_log_keep_io(text);
	must(zkl_log_take(line, sizeof(line)), "no line can be taken");
	must(!zkl_log_take((char[1]) {0}, 1), "a second line can be taken");
	must(memchr(line, '\0', sizeof(line)) && strchr(line, '\n') == NULL, "not one line");
	must(line[0] == '\0' || strstr(text, line), "a text that was not logged: %s", line);
	zklock_make_plain(line);
	for (const char *p = line; *p; p++)
		must(*p >= 0x20 && *p <= 0x7e, "byte %d in the log", *p);
}

/* Does this character start here?  Returns its length in UTF-8, or 0. */
static size_t
is_at(const uint8_t *data, size_t left, unsigned c)
{
	uint8_t		utf8[4] = {c};
	size_t		n = 1;

	if (c >= 0x10000)
		utf8[0] = 0xf0 | c >> 18, utf8[n++] = 0x80 | (c >> 12 & 0x3f),
			utf8[n++] = 0x80 | (c >> 6 & 0x3f), utf8[n++] = 0x80 | (c & 0x3f);
	else if (c >= 0x800)
		utf8[0] = 0xe0 | c >> 12, utf8[n++] = 0x80 | (c >> 6 & 0x3f), utf8[n++] = 0x80 | (c & 0x3f);
	else if (c >= 0x80)
		utf8[0] = 0xc0 | c >> 6, utf8[n++] = 0x80 | (c & 0x3f);
	return n <= left && memcmp(data, utf8, n) == 0 ? n : 0;
}

static bool
is_hidden(unsigned c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x34f || c == 0x61c ||
		c == 0x115f || c == 0x1160 || c == 0x17b4 || c == 0x17b5 || c == 0x3164 ||
		(c >= 0x180b && c <= 0x180f) || (c >= 0x200b && c <= 0x200f) ||
		(c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
		(c >= 0xfe00 && c <= 0xfe0f) || c == 0xfeff || c == 0xffa0 ||
		(c >= 0xfff0 && c <= 0xfffb) || (c >= 0x1bca0 && c <= 0x1bca3) ||
		(c >= 0x1d173 && c <= 0x1d17a) || c >> 12 == 0xe0;
}

/* Returns the length of the hidden character that starts here, or 0. */
static size_t
hidden_at(const uint8_t *data, size_t left)
{
	static const uint8_t first_bits[] = {0xff, 0x1f, 0x0f, 0x07};
	unsigned	rest = 0;

	for (size_t n = 1; n <= 4 && n <= left; n++)
	{
		unsigned	c;

		if (n > 1)
			rest = rest << 6 | (data[n - 1] & 0x3f);
		c = (unsigned) (data[0] & first_bits[n - 1]) << (6 * (n - 1)) | rest;
		if (is_hidden(c) && is_at(data, left, c) == n)
			return n;
	}
	return 0;
}

/* Checks that characters which a terminal executes or hides are masked, and no others. */
static void
check_mask(const uint8_t *data, size_t size)
{
	uint8_t		text[MAX_TEXT];
	bool		any = false;
	bool		found;
	size_t		hidden = 0;

	memcpy(text, data, size);
	found = zklock_mask_controls((char *) text, size);

	for (size_t i = 0; i < size; i++)
	{
		if (hidden == 0)
			hidden = hidden_at(data + i, size - i);
		any = any || hidden > 0;
		must(text[i] == (hidden > 0 ? '?' : data[i]), "byte %d becomes %d", data[i], text[i]);
		hidden -= hidden > 0;
	}
	must(found == any, "hidden characters: %d, reported: %d", any, found);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char		text[MAX_TEXT + 1];

	if (size > MAX_TEXT)
		size = MAX_TEXT;
	memcpy(text, data, size);
	text[size] = '\0';
	check_settings(text);
	check_log(text);
	check_credentials(data, size);
	check_mask(data, size);
	return 0;
}
