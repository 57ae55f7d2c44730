/*-------------------------------------------------------------------------
 *
 * faults.c
 *		SQL functions that let one call of zklock in this backend fail.
 *
 * fail_at(kind, n) lets the nth call of this kind that zklock makes from now on fail:
 *
 *   palloc     a function of PostgreSQL that allocates memory: "out of memory"
 *   malloc     a function of the C library that does, in the backend's own thread: NULL
 *   cancel     CHECK_FOR_INTERRUPTS(), as after pg_cancel_backend()
 *   terminate  CHECK_FOR_INTERRUPTS(), as after pg_terminate_backend()
 *
 * The call that fails creates the file "fault" in the data directory, with the place, as
 * addr2line reads it.  fail_at(kind, 0) ends it.
 *
 * The library that is installed is tested as it is: the addresses of these functions in
 * the tables that the dynamic linker has filled for it are replaced by those of functions in
 * this file.  CHECK_FOR_INTERRUPTS() reads the variable InterruptPending through such a
 * table, too.  Here it finds one that is always true, so it calls ProcessInterrupts() each time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(fail_at);

static char kind[16];
static int	calls_left;
static struct link_map *zklock;

/* zklock's idea of PostgreSQL's variable. */
static volatile sig_atomic_t always_pending;

/* Is this the call that fails? */
static bool
is_due(const char *this_kind, void *address)
{
	int			fd;

	if (gettid() != MyProcPid || strcmp(kind, this_kind) != 0 || calls_left == 0 ||
		--calls_left > 0)
		return false;
	fd = open("fault", O_CREAT | O_TRUNC | O_WRONLY, 0600);
	dprintf(fd, "zklock.so+0x%zx\n", (size_t) ((char *) address - (char *) zklock->l_addr));
	close(fd);
	return true;
}

static void
may_fail(void *address)
{
	if (is_due("palloc", address))
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
}

static void
process_interrupts(void)
{
	void	   *address = __builtin_return_address(0);

	always_pending = true;
	if (is_due("cancel", address))
		QueryCancelPending = true;
	if (is_due("terminate", address))
		ProcDiePending = true;
	if (QueryCancelPending || ProcDiePending)
		InterruptPending = true;
	if (InterruptPending)
		ProcessInterrupts();
}

/* zklock's handler of signals calls this after it has set InterruptPending, which is not PostgreSQL's. */
static void
set_latch(Latch * latch)
{
	if (QueryCancelPending)
		InterruptPending = true;
	SetLatch(latch);
}

/* Functions that fail with an ERROR, and those that return NULL. */
#define RAISES(type, function, parameters, arguments) \
	static type my_##function parameters \
	{ \
		may_fail(__builtin_return_address(0)); \
		return function arguments; \
	}
#define RETURNS_NULL(type, function, parameters, arguments) \
	static type my_##function parameters \
	{ \
		return is_due("malloc", __builtin_return_address(0)) ? NULL : function arguments; \
	}

RAISES(void *, palloc, (Size size), (size))
RAISES(void *, palloc0, (Size size), (size))
RAISES(void *, palloc_extended, (Size size, int flags), (size, flags))
RAISES(void *, repalloc, (void *old, Size size), (old, size))
RAISES(void *, MemoryContextAlloc, (MemoryContext context, Size size), (context, size))
RAISES(void *, MemoryContextAllocZero, (MemoryContext context, Size size), (context, size))
RAISES(MemoryContext, AllocSetContextCreateInternal,
	   (MemoryContext parent, const char *name, Size minimum, Size initial, Size maximum),
	   (parent, name, minimum, initial, maximum))
RAISES(char *, pstrdup, (const char *text), (text))
RAISES(char *, pnstrdup, (const char *text, Size length), (text, length))
RAISES(text *, cstring_to_text, (const char *text), (text))
RAISES(char *, quote_literal_cstr, (const char *text), (text))
RAISES(List *, lappend, (List *list, void *datum), (list, datum))
RAISES(HeapTuple, heap_form_tuple, (TupleDesc tuple, Datum *values, bool *nulls),
	   (tuple, values, nulls))
RAISES(void, initStringInfo, (StringInfo string), (string))
RAISES(void, enlargeStringInfo, (StringInfo string, int size), (string, size))
RAISES(void, appendStringInfoString, (StringInfo string, const char *text), (string, text))
RAISES(void, appendBinaryStringInfo, (StringInfo string, const void *data, int size),
	   (string, data, size))

static void
my_appendStringInfo(StringInfo string, const char *format,...)
{
	va_list		arguments;
	int			needed;

	may_fail(__builtin_return_address(0));
	do
	{
		va_start(arguments, format);
		needed = appendStringInfoVA(string, format, arguments);
		va_end(arguments);
		if (needed > 0)
			enlargeStringInfo(string, needed);
	} while (needed > 0);
}

static char *
my_psprintf(const char *format,...)
{
	char	   *text = palloc(64 * 1024);
	va_list		arguments;

	may_fail(__builtin_return_address(0));
	va_start(arguments, format);
	vsnprintf(text, 64 * 1024, format, arguments);
	va_end(arguments);
	return text;
}

RETURNS_NULL(void *, malloc, (size_t size), (size))
RETURNS_NULL(void *, calloc, (size_t n, size_t size), (n, size))
RETURNS_NULL(char *, strdup, (const char *text), (text))
RETURNS_NULL(char *, strndup, (const char *text, size_t length), (text, length))

static const struct
{
	const char *name;
	void	   *replacement;
}			imports[] = {
	{"InterruptPending", (void *) &always_pending},
	{"ProcessInterrupts", process_interrupts},
	{"SetLatch", set_latch},
#define IMPORT(name) {#name, my_##name}
	IMPORT(palloc), IMPORT(palloc0), IMPORT(palloc_extended), IMPORT(repalloc),
	IMPORT(MemoryContextAlloc), IMPORT(MemoryContextAllocZero), IMPORT(AllocSetContextCreateInternal),
	IMPORT(pstrdup), IMPORT(pnstrdup), IMPORT(cstring_to_text), IMPORT(quote_literal_cstr),
	IMPORT(lappend), IMPORT(heap_form_tuple), IMPORT(initStringInfo), IMPORT(enlargeStringInfo),
	IMPORT(appendStringInfo), IMPORT(appendStringInfoString), IMPORT(appendBinaryStringInfo),
	IMPORT(psprintf), IMPORT(malloc), IMPORT(calloc), IMPORT(strdup), IMPORT(strndup)
};

static void
replace(const char *name, void **entry)
{
	size_t		page_size = sysconf(_SC_PAGESIZE);
	char	   *page = (char *) entry - (uintptr_t) entry % page_size;

	for (size_t i = 0; i < lengthof(imports); i++)
	{
		if (strcmp(imports[i].name, name) != 0)
			continue;
		if (mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0)
			elog(ERROR, "mprotect: %m");
		*entry = imports[i].replacement;
	}
}

/* In one table of relocations; each has a symbol, or number 0, and a place. */
static void
replace_in(const ElfW(Rela) * relocations, size_t size, const ElfW(Sym) * symbols,
		   const char *strings)
{
	for (size_t i = 0; i < size / sizeof(*relocations); i++)
		replace(strings + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name,
				(void **) (zklock->l_addr + relocations[i].r_offset));
}

static void
replace_imports(void)
{
	const char *strings = NULL;
	const		ElfW(Sym) * symbols = NULL;
	const		ElfW(Rela) * data = NULL;
	const		ElfW(Rela) * functions = NULL;
	size_t		data_size = 0;
	size_t		functions_size = 0;
	void	   *library;

	load_external_function("$libdir/zklock", "zk_lock", true, &library);
	if (dlinfo(library, RTLD_DI_LINKMAP, &zklock) != 0)
		elog(ERROR, "dlinfo: %s", dlerror());
	for (const ElfW(Dyn) * entry = zklock->l_ld; entry->d_tag != DT_NULL; entry++)
	{
		void	   *pointer = (void *) entry->d_un.d_ptr;

		switch (entry->d_tag)
		{
			case DT_STRTAB:
				strings = pointer;
				break;
			case DT_SYMTAB:
				symbols = pointer;
				break;
			case DT_RELA:
				data = pointer;
				break;
			case DT_RELASZ:
				data_size = entry->d_un.d_val;
				break;
			case DT_JMPREL:
				functions = pointer;
				break;
			case DT_PLTRELSZ:
				functions_size = entry->d_un.d_val;
				break;
		}
	}
	replace_in(data, data_size, symbols, strings);
	replace_in(functions, functions_size, symbols, strings);
}

Datum
fail_at(PG_FUNCTION_ARGS)
{
	if (zklock == NULL)
		replace_imports();
	text_to_cstring_buffer(PG_GETARG_TEXT_PP(0), kind, sizeof(kind));
	calls_left = PG_GETARG_INT32(1);
	always_pending = true;
	PG_RETURN_VOID();
}
