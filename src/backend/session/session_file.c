/*-------------------------------------------------------------------------
 *
 * session_file.c
 *		The file with the ZooKeeper sessions of this server's backends.
 *
 * The postmaster creates the file and locks it with flock().  Its children inherit the open
 * file, and with it the lock: the kernel releases the lock when the last of these processes
 * has gone, whatever ended it.  A stopped process keeps it.  The file is not mapped: if it
 * were truncated, or its disk failed, the processes that touch the mapping would crash.
 *
 * The header names the boot of the machine, and the file's own device and inode.  So a copy
 * of the data directory, a snapshot or a base backup has no sessions to close: there, the
 * processes that use them may still run.  (Base backups and pg_rewind leave the directory
 * out.)
 *
 * A crash of one backend makes the postmaster create its shared memory again, after all
 * processes that used it have ended.  The logging process survives and has the file open,
 * so the postmaster itself releases the lock then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/proc.h"

#include "backend/base/credentials.h"
#include "backend/base/settings.h"
#include "backend/base/syntax.h"
#include "backend/session/crash.h"
#include "recipe/recipe.h"

#define DIRECTORY PG_STAT_TMP_DIR
#define FILE_NAME "zklock_sessions"
#define FILE_PATH DIRECTORY "/" FILE_NAME
#define FORMER_PREFIX FILE_NAME "."
#define MAX_FORMER 100

#define MAGIC "zklock 3"

typedef struct Header
{
	char		magic[8];
	char		boot[48];
	uint64		device;
	uint64		inode;
	uint64		n_notes;
} Header;

StaticAssertDecl(sizeof(ZklockSessionNote) == 1024, "notes are 1 kB");

/* Of the postmaster and its children; -1: there is no file. */
static int	file_fd = -1;

/* This backend has a note. */
static bool is_noted = false;


static off_t
note_offset(uint64 i)
{
	return (off_t) (sizeof(Header) + i * sizeof(ZklockSessionNote));
}

static bool
write_at(int fd, const void *bytes, size_t size, off_t offset)
{
	return pg_pwrite(fd, bytes, size, offset) == (ssize_t) size;
}

/* Fills in the header that the open file must have; returns false if the boot is not known. */
static bool
expected_header(int fd, Header *header)
{
	struct stat st;
	ssize_t		length;
	int			boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	memset(header, 0, sizeof(*header));
	if (boot < 0)
		return false;
	length = read(boot, header->boot, sizeof(header->boot) - 1);
	close(boot);
	if (length <= 0 || fstat(fd, &st) != 0)
		return false;
	memcpy(header->magic, MAGIC, sizeof(header->magic));
	header->device = st.st_dev;
	header->inode = st.st_ino;
	return true;
}


/*
 * The postmaster
 */

static void
close_former(void)
{
	if (file_fd < 0)
		return;
	(void) flock(file_fd, LOCK_UN);
	close(file_fd);
	file_fd = -1;
}

static void
set_former_aside(void)
{
	struct stat st;

	if (lstat(FILE_PATH, &st) != 0)
		return;
	for (int i = 1; i <= MAX_FORMER; i++)
	{
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), "%s.%d", FILE_PATH, i);
		if (lstat(path, &st) != 0 && errno == ENOENT && rename(FILE_PATH, path) == 0)
			return;
	}
	(void) unlink(FILE_PATH);
}

/* Returns false with errno set.  A disk that is full later does not matter. */
static bool
fill_file(int fd)
{
	Header		header;

	if (!expected_header(fd, &header))
		return false;
	header.n_notes = MaxBackends;
	do
		errno = posix_fallocate(fd, 0, note_offset(header.n_notes));
	while (errno == EINTR);
	return errno == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
		write_at(fd, &header, sizeof(header), 0);
}

void
zklock_init_session_file(void)
{
	close_former();
	set_former_aside();
	file_fd = open(FILE_PATH, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (file_fd >= 0 && fill_file(file_fd))
		return;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not create file \"%s\": %m", FILE_PATH),
			 errdetail("After a crash, the zk locks of this server will be free after zklock.session_timeout only.")));
	if (file_fd >= 0)
	{
		close(file_fd);
		(void) unlink(FILE_PATH);
	}
	file_fd = -1;
}


/*
 * The backends
 */

/* A session whose note is not written lasts for its timeout. */
static void
write_own_note(const ZklockSessionNote *note)
{
	(void) write_at(file_fd, note, sizeof(*note), note_offset(MyProc - ProcGlobal->allProcs));
}

void
zklock_write_session_note(ZklSession *session)
{
	ZklockSessionNote note = {0};
	ZklSessionInfo info;

	if (file_fd < 0 ||
		strlcpy(note.connect_string, zklock_connect_string, sizeof(note.connect_string)) >= sizeof(note.connect_string) ||
		!zklock_tls_files(note.tls, sizeof(note.tls)))
		return;
	info = zkl_session_info(session);
	note.key = info.key;
	note.timeout_ms = info.session_timeout_ms;
	write_own_note(&note);
	is_noted = true;
}

void
zklock_erase_session_note(void)
{
	const ZklockSessionNote none = {0};

	if (is_noted)
		write_own_note(&none);
	is_noted = false;
}


/*
 * What a crash has left
 */

bool
zklock_former_files(ZklockFormerResult (*process) (const char *path, void *arg), void *arg)
{
	DIR		   *directory = AllocateDir(DIRECTORY);
	struct dirent *entry;
	bool		again = false;

	while ((entry = ReadDirExtended(directory, DIRECTORY, LOG)) != NULL)
	{
		char		path[MAXPGPATH];
		ZklockFormerResult result;

		if (strncmp(entry->d_name, FORMER_PREFIX, strlen(FORMER_PREFIX)) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", DIRECTORY, entry->d_name);
		result = process(path, arg);
		if (result == ZKLOCK_FORMER_DONE)
			(void) unlink(path);
		again |= result == ZKLOCK_FORMER_AGAIN;
	}
	if (directory)
		FreeDir(directory);
	return again;
}

/* Reads the notes behind the header; returns how many have a session. */
static int
read_notes(int fd, uint64 n_notes, ZklockSessionNote *notes)
{
	int			n = 0;

	for (uint64 i = 0; i < n_notes; i++)
	{
		ZklockSessionNote *note = &notes[n];

		if (pg_pread(fd, note, sizeof(*note), note_offset(i)) != sizeof(*note))
			break;
		note->connect_string[sizeof(note->connect_string) - 1] = '\0';
		note->tls[sizeof(note->tls) - 1] = '\0';
		n += note->key.id != 0 && zklock_is_connect_string(note->connect_string);
	}
	return n;
}

/* Returns -1 with errno set if the file cannot be opened. */
static int
open_former_file(const char *path, Header *expected)
{
	int			fd = OpenTransientFile(path, O_RDWR | O_NONBLOCK | PG_BINARY);
	int			saved_errno;

	if (fd < 0 || expected_header(fd, expected))
		return fd;
	saved_errno = errno;
	CloseTransientFile(fd);
	errno = saved_errno;
	return -1;
}

/* More than any server has backends. */
#define MAX_NOTES 262143

/* Another header, for example with another boot, is that of a copy or of another start. */
static ZklockFormerFile
read_open_file(int fd, const Header *expected, ZklockSessionNote **notes, int *n)
{
	Header		header;

	if (pg_pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
		memcmp(&header, expected, offsetof(Header, n_notes)) != 0 || header.n_notes > MAX_NOTES)
		return ZKLOCK_FORMER_FOREIGN;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		return ZKLOCK_FORMER_IN_USE;
	*notes = palloc_extended(sizeof(ZklockSessionNote) * (header.n_notes + 1), MCXT_ALLOC_HUGE);
	*n = read_notes(fd, header.n_notes, *notes);
	return ZKLOCK_FORMER_FREE;
}

ZklockFormerFile
zklock_read_former_file(const char *path, ZklockSessionNote **notes, int *n)
{
	Header		expected;
	int			fd = open_former_file(path, &expected);
	ZklockFormerFile state;

	if (fd < 0)
		return ZKLOCK_FORMER_UNREADABLE;
	state = read_open_file(fd, &expected, notes, n);
	CloseTransientFile(fd);
	return state;
}

void
zklock_write_former_file(const char *path, const ZklockSessionNote *notes, int n)
{
	Header		header;
	int			fd = open_former_file(path, &header);

	if (fd < 0)
		return;
	header.n_notes = n;
	for (int i = 0; i < n; i++)
		(void) write_at(fd, &notes[i], sizeof(notes[i]), note_offset(i));
	(void) write_at(fd, &header, sizeof(header), 0);
	CloseTransientFile(fd);
}
