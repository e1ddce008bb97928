/* Random numbers: each step has a generator of its own, so that one result changes no later arguments. */
#include "sequences.h"

static uint64_t state;

static uint64_t next(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void random_start(uint64_t seed, uint32_t step)
{
	state = seed * 0xd1342543de82ef95u + step * 0x2545f4914f6cdd1du;
	next();
}

uint32_t pick(uint32_t count)
{
	return (uint32_t)((next() >> 32) * count >> 32);
}

int chance(uint32_t percent)
{
	return pick(100) < percent;
}

struct boundary boundary_at(uint64_t limit, uint64_t usual)
{
	switch (pick(12)) {
	case 0:
		return (struct boundary){ 0, "0" };
	case 1:
		return (struct boundary){ 1, "1" };
	case 2:
		return (struct boundary){ limit, "limit" };
	case 3:
		return (struct boundary){ limit + 1, "limit+1" };
	case 4:
		return (struct boundary){ UINT32_MAX, "u32max" };
	case 5:
		return (struct boundary){ 1u << 31, "2^31" };
	default:
		return (struct boundary){ usual, "usual" };
	}
}

struct boundary boundary_above(uint64_t limit, uint64_t usual)
{
	struct boundary it = boundary_at(limit, usual);
	return it.value == limit ? (struct boundary){ usual, "usual" } : it;
}
