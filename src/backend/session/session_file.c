/*-------------------------------------------------------------------------
 *
 * session_file.c
 *		The file with the ZooKeeper sessions of this server's backends.
 *
 * The postmaster creates the file, locks it with flock() and maps it.  Its children inherit
 * the mapping and the open file, and with it the lock: the kernel releases the lock when the
 * last of these processes has gone, whatever ended it.  A stopped process keeps it.
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "storage/proc.h"

#include "backend/base/settings.h"
#include "backend/session/session_file.h"

#define DIRECTORY PG_STAT_TMP_DIR
#define FILE_NAME "zklock_sessions"
#define FILE_PATH DIRECTORY "/" FILE_NAME
#define FORMER_PREFIX FILE_NAME "."
#define MAX_FORMER 100

#define MAGIC "zklock 1"

typedef struct Header
{
	char		magic[8];
	char		boot[48];
	uint64		device;
	uint64		inode;
	uint64		n_notes;
} Header;

typedef struct SessionFile
{
	Header		header;
	ZklockSessionNote notes[FLEXIBLE_ARRAY_MEMBER];
} SessionFile;

StaticAssertDecl(sizeof(ZklockSessionNote) == 1024, "notes are 1 kB");

/* In the postmaster and its children; NULL: there is no file. */
static SessionFile *mapped = NULL;
static int	mapped_fd = -1;

/* This backend's note, after the first one. */
static ZklockSessionNote *own_note = NULL;


static Size
file_size(uint64 n_notes)
{
	return offsetof(SessionFile, notes) + n_notes * sizeof(ZklockSessionNote);
}

static uint32
checksum(const ZklockSessionNote *note)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, (const char *) note + sizeof(note->crc), sizeof(*note) - sizeof(note->crc));
	FIN_CRC32C(crc);
	return crc;
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
unmap_former(void)
{
	if (mapped == NULL)
		return;
	(void) flock(mapped_fd, LOCK_UN);
	close(mapped_fd);
	(void) munmap(mapped, file_size(mapped->header.n_notes));
	mapped = NULL;
	mapped_fd = -1;
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

/* Returns false with errno set. */
static bool
create_file(int fd)
{
	uint64		n_notes = MaxBackends;
	Size		size = file_size(n_notes);
	Header		header;

	if (!expected_header(fd, &header))
		return false;
	header.n_notes = n_notes;

	/* Without its blocks on the disk, writing to the mapping could fail with SIGBUS. */
	errno = posix_fallocate(fd, 0, (off_t) size);
	if (errno != 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
		return false;
	mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
	{
		mapped = NULL;
		return false;
	}
	mapped->header = header;
	return true;
}

void
zklock_init_session_file(void)
{
	unmap_former();
	set_former_aside();
	mapped_fd = open(FILE_PATH, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (mapped_fd >= 0 && create_file(mapped_fd))
		return;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not create file \"%s\": %m", FILE_PATH),
			 errdetail("After a crash, the zk locks of this server will be free after zklock.session_timeout only.")));
	if (mapped_fd >= 0)
	{
		close(mapped_fd);
		(void) unlink(FILE_PATH);
	}
	mapped_fd = -1;
}


/*
 * The backends
 */

void
zklock_note_session(ZklSession *session)
{
	ZklockSessionNote note = {0};
	ZklSessionInfo info;

	if (mapped == NULL || strlen(zklock_connect_string) >= sizeof(note.connect_string))
		return;
	info = zkl_session_info(session);
	note.key = info.key;
	note.timeout_ms = info.session_timeout_ms;
	strcpy(note.connect_string, zklock_connect_string);
	note.crc = checksum(&note);
	own_note = &mapped->notes[MyProc - ProcGlobal->allProcs];
	*own_note = note;
}

void
zklock_forget_session(void)
{
	if (own_note)
		memset(own_note, 0, sizeof(*own_note));
	own_note = NULL;
}


/*
 * What a crash has left
 */

bool
zklock_former_files(bool (*process) (const char *path, void *arg), void *arg)
{
	DIR		   *directory = AllocateDir(DIRECTORY);
	struct dirent *entry;
	bool		any_left = false;

	while ((entry = ReadDir(directory, DIRECTORY)) != NULL)
	{
		char		path[MAXPGPATH];

		if (strncmp(entry->d_name, FORMER_PREFIX, strlen(FORMER_PREFIX)) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", DIRECTORY, entry->d_name);
		if (process(path, arg))
			(void) unlink(path);
		else
			any_left = true;
	}
	FreeDir(directory);
	return any_left;
}

/* Reads the notes behind the header; returns how many are whole. */
static int
read_notes(int fd, uint64 n_notes, ZklockSessionNote *notes)
{
	int			n = 0;

	for (uint64 i = 0; i < n_notes; i++)
	{
		ZklockSessionNote *note = &notes[n];

		if (pg_pread(fd, note, sizeof(*note), (off_t) file_size(i)) != sizeof(*note))
			break;
		note->connect_string[sizeof(note->connect_string) - 1] = '\0';
		if (note->key.id != 0 && note->crc == checksum(note))
			n++;
	}
	return n;
}

/* More than any server has backends. */
#define MAX_NOTES 262143

bool
zklock_read_former_file(const char *path, bool *free, ZklockSessionNote **notes, int *n)
{
	Header		header;
	Header		expected;
	int			fd = OpenTransientFile(path, O_RDWR | PG_BINARY);
	bool		is_ours;

	*n = 0;
	*notes = NULL;
	if (fd < 0)
		return false;
	is_ours = expected_header(fd, &expected) &&
		pg_pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
		memcmp(&header, &expected, offsetof(Header, n_notes)) == 0 && header.n_notes <= MAX_NOTES;
	*free = is_ours && flock(fd, LOCK_EX | LOCK_NB) == 0;
	if (*free)
	{
		*notes = palloc_extended(sizeof(ZklockSessionNote) * (header.n_notes + 1), MCXT_ALLOC_HUGE);
		*n = read_notes(fd, header.n_notes, *notes);
	}
	CloseTransientFile(fd);
	return is_ours;
}
