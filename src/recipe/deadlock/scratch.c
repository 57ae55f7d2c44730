/*-------------------------------------------------------------------------
 *
 * scratch.c
 *		Memory of one step of a detector.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "scratch.h"

typedef struct ZklScratchBlock
{
	struct ZklScratchBlock *next;
	max_align_t start[];
} Block;

noreturn void
zkl__scratch_leave(ZklScratch *scratch, ZklLeft why)
{
	longjmp(scratch->left, (int) why);
}

void *
zkl__scratch(ZklScratch *scratch, size_t n, size_t size)
{
	Block	   *block = calloc(1, sizeof(Block) + n * size);

	if (block == NULL)
		zkl__scratch_leave(scratch, ZKL_LEFT_FAILED);
	block->next = scratch->blocks;
	scratch->blocks = block;
	return block->start;
}

char *
zkl__scratch_text(ZklScratch *scratch, const char *format,...)
{
	va_list		args;
	int			length;
	char	   *text;

	va_start(args, format);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	text = zkl__scratch(scratch, (size_t) length + 1, 1);
	va_start(args, format);
	vsnprintf(text, (size_t) length + 1, format, args);
	va_end(args);
	return text;
}

void
zkl__scratch_free(ZklScratch *scratch)
{
	zkl__scratch_release(scratch, NULL);
}

void
zkl__scratch_release(ZklScratch *scratch, const Block *blocks)
{
	while (scratch->blocks != blocks)
	{
		Block	   *block = scratch->blocks;

		scratch->blocks = block->next;
		free(block);
	}
}
