/*-------------------------------------------------------------------------
 *
 * fuzz.h
 *		Shared by the fuzzing harnesses: parsing of the input, and checks.
 *
 * A harness is one file fuzz_*.c with LLVMFuzzerTestOneInput().  It compares the
 * result of the code under test with an independent implementation of the rules; a
 * difference ends the process, which libFuzzer reports.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(condition, ...) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
			fprintf(stderr, __VA_ARGS__); \
			fputc('\n', stderr); \
			abort(); \
		} \
	} while (0)

/* An input, read from its beginning; followed by zeros. */
typedef struct Input
{
	const uint8_t *data;
	size_t		left;
} Input;

static inline unsigned
take(Input *input)
{
	if (input->left == 0)
		return 0;
	input->left--;
	return *input->data++;
}

/* Text of any bytes except NUL and "not"; its length precedes it. */
static inline void
take_text(Input *input, char *out, size_t size, char not)
{
	size_t		wanted = take(input);
	size_t		n = 0;

	for (; wanted > 0 && input->left > 0 && n + 1 < size; wanted--)
	{
		char		c = (char) take(input);

		if (c != '\0' && c != not)
			out[n++] = c;
	}
	out[n] = '\0';
}

/* One of a few close numbers, or any number. */
static inline int32_t
take_number(Input *input)
{
	static const int32_t bases[] = {0, INT32_MAX, INT32_MIN, 2147000000};
	unsigned	kind = take(input);
	uint32_t	any = 0;

	if (kind < 64)
		return (int32_t) ((uint32_t) bases[kind % 4] + take(input) % 16 - 8);
	if (kind < 192)
		return (int32_t) (kind % 16);
	for (int i = 0; i < 4; i++)
		any = any << 8 | take(input);
	return (int32_t) any;
}

#endif							/* FUZZ_H */
