/* Lines of output, and the names that replace numbers. */
#define _GNU_SOURCE
#include "sequences.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static int has_result;

void call(const char *name)
{
	printf("%s", name);
	has_result = 0;
}

static void words(const char *format, va_list arguments)
{
	putchar(' ');
	vprintf(format, arguments);
}

void arg(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	words(format, arguments);
	va_end(arguments);
	fflush(stdout); /* the line of a call that never returns is seen */
	errno = 0;
}

void out(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	words(format, arguments);
	va_end(arguments);
}

void result_text(const char *text)
{
	printf(" -> ret=%s", text);
	has_result = 1;
}

void result_pointer(const void *pointer)
{
	int code = errno;
	result_text(pointer ? "object" : "NULL");
	if (!pointer)
		out("errno=%s", errno_name(code));
}

void result_code(int code)
{
	int number = errno;
	t.has_failed = code != 0;
	if (code == 0) {
		result_text("0");
		return;
	}
	result_text(code < 0 ? (code == -1 ? "-1" : "negative") : errno_name(code));
	if (code == -1)
		out("errno=%s", errno_name(number));
}

void end_call(void)
{
	if (!has_result)
		result_text("none");
	putchar('\n');
	fflush(stdout);
}

void note(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

const char *errno_name(int code)
{
	const char *name = strerrorname_np(code);
	if (code == EOPNOTSUPP)
		return "EOPNOTSUPP";
	return name ? name : "unknown";
}

/* Numbers that were seen, by kind. */
static struct {
	char kind;
	uint64_t value;
	char name[12];
} seen[256];
static unsigned seen_count;

const char *named(char kind, uint64_t value)
{
	unsigned of_kind = 0;
	if (value == 0)
		return "0";
	for (unsigned i = 0; i < seen_count; i++) {
		if (seen[i].kind != kind)
			continue;
		if (seen[i].value == value)
			return seen[i].name;
		of_kind++;
	}
	if (seen_count == sizeof seen / sizeof *seen)
		return "further";
	seen[seen_count].kind = kind;
	seen[seen_count].value = value;
	snprintf(seen[seen_count].name, sizeof seen->name, "%c%u", kind, (of_kind + 1) % 1000);
	return seen[seen_count++].name;
}

const char *relation(uint64_t got, uint64_t asked)
{
	return got >= asked ? "enough" : "less";
}
