/*
 * Element types, operators, what ranks contribute, and whether a result is right.
 * docs/ring-protocol.md has all of it under "Reduction" and "The bench job".
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ring.h"

const char *const op_names[OPS] = { "sum", "prod", "max", "min", "avg" };

/* Element i of what a rank contributes: so small that every type holds it exactly. */
static int pattern(enum op op, bool is_signed, unsigned rank, uint64_t i)
{
	if (op == PROD)
		return rank < 8 ? 1 + (int)((i + rank) % 2) : 1;
	return (int)((i % 13 * 5 + rank % 13 * 3) % 13) - (is_signed ? 6 : 0);
}

static float half_to_float(uint16_t bits)
{
	int exponent = bits >> 10 & 31, fraction = bits & 1023;
	float value = exponent == 31 ? (fraction ? NAN : INFINITY)
		    : exponent ? ldexpf((float)(fraction + 1024), exponent - 25)
			       : ldexpf((float)fraction, -24);
	return bits >> 15 ? -value : value;
}

/* Drops the lowest bits, rounding to nearest and ties to even. */
static uint32_t round_off(uint32_t value, unsigned bits)
{
	uint32_t half = 1u << (bits - 1), odd = value >> bits & 1;
	return (value + half - 1 + odd) >> bits;
}

static uint16_t float_to_half(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
	if (rest > 0x7f800000) {
		rest = 0x7e00; /* not a number */
	} else if (rest >= 0x47800000) {
		rest = 0x7c00; /* 65536 and more */
	} else if (rest >= 0x38800000) {
		rest = round_off(rest - 0x38000000, 13);
	} else { /* below the smallest normal number */
		unsigned drop = 126 - (rest >> 23);
		rest = drop > 24 ? 0 : round_off((rest & 0x7fffff) | 0x800000, drop);
	}
	return (uint16_t)(sign | rest);
}

static float bfloat_to_float(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;
	memcpy(&value, &wide, sizeof value);
	return value;
}

static uint16_t float_to_bfloat(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return isnan(value) ? 0x7fc0 : (uint16_t)round_off(bits, 16);
}

#define EACH(n, what)                                                                           \
	do {                                                                                    \
		for (size_t i = 0; i < (n); i++)                                                \
			what;                                                                   \
	} while (0)

/*
 * What is done with elements of a type T. Sums and products are computed in C, where they wrap as T
 * does; averages are divided in D; load and store convert. A number wins against a NaN, and of two
 * equals the left one stays.
 */
#define TYPE(name, T, C, D, is_signed, load, store)                                             \
	static void reduce_##name(enum op op, const void *left, const void *right, void *into,  \
				  size_t n)                                                     \
	{                                                                                       \
		const T *a = left, *b = right;                                                  \
		T *c = into;                                                                    \
		if (op == SUM || op == AVG)                                                     \
			EACH(n, c[i] = (T)store((C)load(a[i]) + (C)load(b[i])));                \
		else if (op == PROD)                                                            \
			EACH(n, c[i] = (T)store((C)load(a[i]) * (C)load(b[i])));                \
		else if (op == MAX)                                                             \
			EACH(n, c[i] = load(b[i]) > load(a[i]) || load(a[i]) != load(a[i]) ? b[i] : a[i]);  \
		else                                                                            \
			EACH(n, c[i] = load(b[i]) < load(a[i]) || load(a[i]) != load(a[i]) ? b[i] : a[i]);  \
	}                                                                                       \
	static void divide_##name(void *values, size_t n, unsigned by)                          \
	{                                                                                       \
		T *c = values;                                                                  \
		EACH(n, c[i] = (T)store((D)load(c[i]) / (D)by));                                \
	}                                                                                       \
	static void fill_##name(enum op op, unsigned rank, uint64_t first, void *values,        \
				size_t n)                                                       \
	{                                                                                       \
		T *c = values;                                                                  \
		EACH(n, c[i] = (T)store((C)pattern(op, is_signed, rank, first + i)));           \
	}                                                                                       \
	static double value_##name(const void *values, uint64_t i)                              \
	{                                                                                       \
		return (double)load(((const T *)values)[i]);                                    \
	}                                                                                       \
	static double expect_##name(int64_t total, unsigned by)                                 \
	{                                                                                       \
		T exact = (T)store((C)total), share = (T)store((D)load(exact) / (D)by);         \
		return (double)load(share);                                                     \
	}

#define AS_IS(x) (x)
TYPE(int8, int8_t, uint64_t, int64_t, true, AS_IS, AS_IS)
TYPE(uint8, uint8_t, uint64_t, uint64_t, false, AS_IS, AS_IS)
TYPE(int32, int32_t, uint64_t, int64_t, true, AS_IS, AS_IS)
TYPE(uint32, uint32_t, uint64_t, uint64_t, false, AS_IS, AS_IS)
TYPE(int64, int64_t, uint64_t, int64_t, true, AS_IS, AS_IS)
TYPE(uint64, uint64_t, uint64_t, uint64_t, false, AS_IS, AS_IS)
TYPE(half, uint16_t, float, float, true, half_to_float, float_to_half)
TYPE(float, float, float, float, true, AS_IS, AS_IS)
TYPE(double, double, double, double, true, AS_IS, AS_IS)
TYPE(bfloat16, uint16_t, float, float, true, bfloat_to_float, float_to_bfloat)

#define ROW(name, size, digits) \
	{ #name, size, digits, reduce_##name, divide_##name, fill_##name, value_##name, expect_##name }
const struct type types[TYPES] = {
	ROW(int8, 1, 0), ROW(uint8, 1, 0), ROW(int32, 4, 0), ROW(uint32, 4, 0), ROW(int64, 8, 0),
	ROW(uint64, 8, 0), ROW(half, 2, 11), ROW(float, 4, 24), ROW(double, 8, 53),
	ROW(bfloat16, 2, 8),
};

/* Whether an element is what the contributions of all ranks make. They are whole numbers, so this is
 * reckoned in whole numbers: not by the code that is put to the test. */
static bool is_right(const struct type *type, enum op op, uint64_t i, double value)
{
	bool is_signed = type->digits || type->name[0] == 'i';
	int64_t total = pattern(op, is_signed, 0, i), magnitude = llabs(total);
	for (unsigned rank = 1; rank < ranks; rank++) {
		int64_t one = pattern(op, is_signed, rank, i);
		magnitude += llabs(one);
		if (op == PROD)
			magnitude = total *= one;
		else if (op == MAX || op == MIN)
			total = (op == MAX) == (one > total) ? one : total;
		else
			total += one;
	}
	unsigned share = op == AVG ? ranks : 1;
	int64_t exact = 1ll << type->digits; /* up to here a float holds every whole number */
	if (!type->digits || op == MAX || op == MIN || magnitude <= exact)
		return value == type->expect(total, share);
	double roundings = ranks - (op == AVG ? 0 : 1);
	double error = roundings * (type->size == 2 ? 1.001 : 1) / (double)exact;
	return fabs(value - (double)total / share) <= error / (1 - error) * (double)magnitude / share;
}

uint64_t count_wrong(const struct type *type, enum op op, const void *result, uint64_t count)
{
	uint64_t wrong = 0;
	for (uint64_t i = 0; i < count; i++)
		wrong += !is_right(type, op, i, type->value(result, i));
	return wrong;
}
