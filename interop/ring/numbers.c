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
	static double load_##name(const void *values, size_t i)                                 \
	{                                                                                       \
		return (double)load(((const T *)values)[i]);                                    \
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
	{ #name, size, digits, reduce_##name, divide_##name, fill_##name, load_##name }
const struct type types[TYPES] = {
	ROW(int8, 1, 0), ROW(uint8, 1, 0), ROW(int32, 4, 0), ROW(uint32, 4, 0), ROW(int64, 8, 0),
	ROW(uint64, 8, 0), ROW(half, 2, 11), ROW(float, 4, 24), ROW(double, 8, 53),
	ROW(bfloat16, 2, 8),
};

/* Whether a float is near enough to what it should be, where that cannot be exact. */
static bool is_within_bound(const struct type *type, enum op op, uint64_t i, double is)
{
	double sum = 0, product = 1, magnitude = 0;
	for (unsigned rank = 0; rank < ranks; rank++) {
		int value = pattern(op, true, rank, i);
		sum += value;
		magnitude += abs(value);
		product *= value;
	}
	if (op == PROD)
		sum = magnitude = product;
	double most = ldexp(1, type->digits), operations = ranks - (op == AVG ? 0 : 1);
	double error = operations * (type->size == 2 ? 1.001 : 1) / most;
	double share = op == AVG ? ranks : 1;
	return magnitude > most && fabs(is - sum / share) <= error / (1 - error) * magnitude / share;
}

/* How many elements of a result are not what the contributions of all ranks make. */
uint64_t count_wrong(const struct type *type, enum op op, const void *result, uint64_t count)
{
	static uint64_t one[512], all[512];
	size_t block = sizeof all / type->size;
	uint64_t wrong = 0;
	for (uint64_t first = 0; first < count; first += block) {
		size_t n = count - first < block ? (size_t)(count - first) : block;
		type->fill(op, 0, first, all, n);
		for (unsigned rank = 1; rank < ranks; rank++) {
			type->fill(op, rank, first, one, n);
			type->reduce(op, all, one, all, n);
		}
		if (op == AVG)
			type->divide(all, n, ranks);
		const uint8_t *is = (const uint8_t *)result + first * type->size;
		for (size_t i = 0; i < n; i++) {
			bool same = !memcmp(is + i * type->size, (uint8_t *)all + i * type->size, type->size);
			double value = type->load(is, i);
			if (!same && type->digits) /* -0 equals 0 */
				same = value == type->load(all, i) ||
				       (op != MAX && op != MIN && is_within_bound(type, op, first + i, value));
			wrong += !same;
		}
	}
	return wrong;
}
