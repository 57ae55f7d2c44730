/*-------------------------------------------------------------------------
 *
 * credentials.c
 *		Reads the credentials of a session: a password, certificates.
 *
 * Must never reveal what a file contains, nor its name in a message to a client.
 * Called only by backend_session.c, session_file.c and crash_release.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"

#include "backend/base/credentials.h"
#include "backend/base/settings.h"
#include "backend/base/syntax.h"

#define MAX_AUTH_FILE 1024

#define AUTH_HINT "Use a file that belongs to the user that runs the server, is not accessible for group or others, and has one line: digest user:password"
#define PUBLIC_HINT "Use a PEM file that the user that runs the server can read."
#define KEY_HINT "Use a PEM file without a passphrase that belongs to the user that runs the server and is not accessible for group or others."

/*
 * The last part is the passphrase.  Without one, the library would ask on the terminal for the
 * passphrase of an encrypted key.
 */
#define TLS_FILES "%s,%s,%s,-"
#define N_TLS_FILES 3

/* A file that a setting names, and its permissions. */
typedef struct SecretFile
{
	const char *setting;
	const char *path;
	bool		is_secret;
	const char *hint;
} SecretFile;

static void
file_error(const SecretFile *file, const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg("could not use the file named by %s: %s", file->setting, problem),
			 errhint("%s", file->hint)));
}

/* The reason and the name of a file that cannot be opened go only to the server log. */
static int
open_file(const SecretFile *file, struct stat *st)
{
	/* Without O_NONBLOCK, opening a pipe would wait for a writer. */
	int			fd = OpenTransientFile(file->path, O_RDONLY | O_NONBLOCK | PG_BINARY);

	if (fd < 0)
	{
		ereport(LOG_SERVER_ONLY,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\" of setting %s: %m",
						file->path, file->setting)));
		file_error(file, "it cannot be read");
	}
	if (fstat(fd, st) != 0 || !S_ISREG(st->st_mode))
		file_error(file, "it is not a plain file");
	if (file->is_secret && (st->st_mode & (S_IRWXG | S_IRWXO)))
		file_error(file, "group or others may access it");
	return fd;
}

static char *
read_digest(void)
{
	const SecretFile file = {"zklock.auth_file", zklock_auth_file, true, AUTH_HINT};
	char		text[MAX_AUTH_FILE + 1];
	struct stat st;
	ssize_t		length;
	int			fd;
	char	   *result;
	const char *digest;

	if (file.path[0] == '\0')
		return NULL;
	result = palloc(sizeof(text));	/* before the read, so that nothing throws before the wipe */
	fd = open_file(&file, &st);
	if (st.st_size > MAX_AUTH_FILE)
		file_error(&file, "it is too long");
	length = read(fd, text, MAX_AUTH_FILE);
	CloseTransientFile(fd);
	if (length < 0)
		file_error(&file, "it cannot be read");

	digest = zklock_credentials_in(text, (size_t) length);
	if (digest)
		strlcpy(result, digest, sizeof(text));
	explicit_bzero(text, sizeof(text));
	if (digest == NULL)
		file_error(&file, "it does not hold credentials");
	return result;
}

/*
 * Makes sure that the client library can read these files.  The library reads them whenever
 * it connects, and retries without a pause if that fails.
 */
static char *
check_tls(void)
{
	const SecretFile files[] = {
		{"zklock.tls_ca_file", zklock_tls_ca_file, false, PUBLIC_HINT},
		{"zklock.tls_cert_file", zklock_tls_cert_file, false, PUBLIC_HINT},
		{"zklock.tls_key_file", zklock_tls_key_file, true, KEY_HINT},
	};
	struct stat st;
	int			n_named = 0;

	for (int i = 0; i < (int) lengthof(files); i++)
		n_named += files[i].path[0] != '\0';
	if (n_named == 0)
		return NULL;
	if (n_named < (int) lengthof(files))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("incomplete TLS configuration"),
				 errhint("Set all of zklock.tls_ca_file, zklock.tls_cert_file and zklock.tls_key_file, or none of them.")));
	for (int i = 0; i < (int) lengthof(files); i++)
		CloseTransientFile(open_file(&files[i], &st));
	return psprintf(TLS_FILES, files[0].path, files[1].path, files[2].path);
}

bool
zklock_tls_files(char *text, size_t size)
{
	text[0] = '\0';
	return zklock_tls_ca_file[0] == '\0' ||
		snprintf(text, size, TLS_FILES, zklock_tls_ca_file, zklock_tls_cert_file,
				 zklock_tls_key_file) < (int) size;
}

bool
zklock_tls_files_are_readable(const char *text)
{
	char	   *files = pstrdup(text);
	char	   *rest = files;
	bool		are_readable = true;

	for (int i = 0; text[0] && i < N_TLS_FILES; i++)
	{
		const char *path = strsep(&rest, ",");

		are_readable = are_readable && path && access(path, R_OK) == 0;
	}
	pfree(files);
	return are_readable;
}

void
zklock_credentials_read(ZklockCredentials *credentials)
{
	credentials->tls = check_tls();
	credentials->digest = read_digest();
}

void
zklock_credentials_wipe(ZklockCredentials *credentials)
{
	if (credentials->tls)
		pfree(credentials->tls);
	if (credentials->digest)
	{
		explicit_bzero(credentials->digest, strlen(credentials->digest));
		pfree(credentials->digest);
	}
	credentials->tls = credentials->digest = NULL;
}
