/* Replies, the words of an command, and objects by name. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

void ok(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	printf("ok%s", *format ? " " : "");
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
}

/* Replies with an error; `code` is an errno or 0. Returns -1 for convenience. */
int fail(int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	printf("error ");
	vprintf(format, arguments);
	if (code)
		printf(": %s", strerror(code));
	printf("\n");
	va_end(arguments);
	return -1;
}

/* The text after "key=" among the words, or NULL. */
const char *text(char **words, const char *key)
{
	size_t len = strlen(key);
	for (; *words; words++)
		if (strncmp(*words, key, len) == 0 && (*words)[len] == '=')
			return *words + len + 1;
	return NULL;
}

int bad_number;

uint64_t number(char **words, const char *key, uint64_t otherwise)
{
	const char *from = text(words, key);
	if (!from)
		return otherwise;
	char *end;
	errno = 0;
	uint64_t value = strtoull(from, &end, 0);
	if (errno || *end || end == from)
		bad_number = 1;
	return value;
}

/* The object of that kind and name, or NULL. */
struct object *lookup(const char *name, enum kind kind)
{
	for (int i = 0; name && i < MAX_OBJECTS; i++)
		if (objects[i].kind == kind && strcmp(objects[i].name, name) == 0)
			return &objects[i];
	return NULL;
}

/* The same; replies with an error when there is none. */
struct object *find(const char *name, enum kind kind)
{
	static const char *const kinds[] = {
		[REGION] = "region",
		[QUEUE_PAIR] = "queue pair",
		[SHARED_QUEUE] = "shared receive queue",
	};
	struct object *object = lookup(name, kind);
	if (!object)
		fail(0, "no such %s: %s", kinds[kind], name ? name : "(none named)");
	return object;
}

/* A free place for an object to be called `name`. The caller sets its kind when it is whole. */
struct object *place(const char *name)
{
	struct object *free_place = NULL;
	if (!name || strlen(name) >= NAME_LEN) {
		fail(0, "a name of 1 to %d letters is needed", NAME_LEN - 1);
		return NULL;
	}
	for (int i = 0; i < MAX_OBJECTS; i++) {
		if (objects[i].kind == NOTHING) {
			if (!free_place)
				free_place = &objects[i];
		} else if (strcmp(objects[i].name, name) == 0) {
			fail(0, "the name %s is taken", name);
			return NULL;
		}
	}
	if (!free_place) {
		fail(0, "no more than %d objects", MAX_OBJECTS);
		return NULL;
	}
	memset(free_place, 0, sizeof *free_place);
	strcpy(free_place->name, name);
	return free_place;
}
