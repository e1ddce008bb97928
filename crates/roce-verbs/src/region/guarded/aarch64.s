// Accesses to registered memory that may fault; see guarded.rs, and the module's documentation for what is
// never torn.
//
// All functions are between the labels at the two ends, and are leaves that leave the stack as it was. So the
// fault handler can end each of them at any instruction by a jump to roce_verbs_guarded_failed, which
// returns 1 to the caller. Otherwise they return 0. Nothing else may stand between the two labels.
//
// Unless a comment says otherwise: x0 is the target, x1 the source, x2 the length in bytes.

// Distance of prefetches in bytes, as on x86-64.
.set .Lroce_verbs_ahead, 2048

.pushsection .text.roce_verbs_guarded, "ax", @progbits

.macro roce_verbs_function name
	.p2align 6
	.globl \name
	.hidden \name
	.type \name, @function
	\name:
.endm

// Copies x3 + 1 bytes, whose number is below 2^63, but for the last 1 to 8, of which x3 has the number less one
// afterwards. Advances x0 and x1; region is the one of them that is the region, and each access of it is an
// aligned unit: bytes first until the region is aligned to 8, then words, of which a vector has two. A unit that
// would be the whole rest is left, so that the rest begins with it. A prefetch never faults, at any address.
// Changes x4 and v0 to v3.
.macro roce_verbs_copy hint, region
	tst \region, #7
	b.eq 64f
	tbz \region, #0, 61f
	cbz x3, 76f
	ldrb w4, [x1], #1
	strb w4, [x0], #1
	sub x3, x3, #1
61:	tbz \region, #1, 62f
	cmp x3, #2
	b.lo 76f
	ldrh w4, [x1], #2
	strh w4, [x0], #2
	sub x3, x3, #2
62:	tbz \region, #2, 64f
	cmp x3, #4
	b.lo 76f
	ldr w4, [x1], #4
	str w4, [x0], #4
	sub x3, x3, #4
64:	subs x3, x3, #64
	b.lo 72f
	.p2align 4
71:	prfm \hint, [\region, #.Lroce_verbs_ahead]
	ldp q0, q1, [x1]
	ldp q2, q3, [x1, #32]
	stp q0, q1, [x0]
	stp q2, q3, [x0, #32]
	add x1, x1, #64
	add x0, x0, #64
	subs x3, x3, #64
	b.hs 71b
72:	adds x3, x3, #56
	b.lo 74f
73:	ldr x4, [x1], #8
	str x4, [x0], #8
	subs x3, x3, #8
	b.hs 73b
74:	add x3, x3, #8
76:
.endm

	.globl roce_verbs_guarded_start
	.hidden roce_verbs_guarded_start
roce_verbs_guarded_start:

// Loads from a region, at least one byte.
roce_verbs_function roce_verbs_guarded_read
	sub x3, x2, #1
	roce_verbs_copy pldl1keep, x1
	cmp x3, #7
	b.ne 31f
	ldr x4, [x1]
	str x4, [x0]
	mov w0, #0
	ret
31:	add x3, x3, #1
	tbz x3, #2, 32f
	ldr w4, [x1], #4
	str w4, [x0], #4
32:	tbz x3, #1, 33f
	ldrh w4, [x1], #2
	strh w4, [x0], #2
33:	tbz x3, #0, 34f
	ldrb w4, [x1]
	strb w4, [x0]
34:	mov w0, #0
	ret

// Stores into a region, at least one byte. The processor keeps no order of plain stores, so the last ones have
// release ordering, one of which is the last of all.
roce_verbs_function roce_verbs_guarded_write
	sub x3, x2, #1
	roce_verbs_copy pstl1keep, x0
	cmp x3, #7
	b.ne 31f
	ldr x4, [x1]
	stlr x4, [x0]
	mov w0, #0
	ret
31:	add x3, x3, #1
	tbz x3, #2, 32f
	ldr w4, [x1], #4
	stlr w4, [x0]
	add x0, x0, #4
32:	tbz x3, #1, 33f
	ldrh w4, [x1], #2
	stlrh w4, [x0]
	add x0, x0, #2
33:	tbz x3, #0, 34f
	ldrb w4, [x1]
	stlrb w4, [x0]
34:	mov w0, #0
	ret

// The atomic operations use exclusive accesses, which all processors have, and order what is before and
// behind them.

// Adds x1 to the aligned word at x0, and stores its value of before at x2.
roce_verbs_function roce_verbs_guarded_fetch_add
1:	ldaxr x3, [x0]
	add x4, x3, x1
	stlxr w5, x4, [x0]
	cbnz w5, 1b
	str x3, [x2]
	mov w0, #0
	ret

// Stores x1 in the aligned word at x0, and its value of before at x2.
roce_verbs_function roce_verbs_guarded_swap
1:	ldaxr x3, [x0]
	stlxr w5, x1, [x0]
	cbnz w5, 1b
	str x3, [x2]
	mov w0, #0
	ret

// Stores x2 in the aligned word at x0 if it holds x1, and its value of before at x3. A word that holds
// another value is stored again: so the access fails where the page cannot be written.
roce_verbs_function roce_verbs_guarded_compare_exchange
1:	ldaxr x4, [x0]
	cmp x4, x1
	csel x5, x2, x4, eq
	stlxr w6, x5, [x0]
	cbnz w6, 1b
	str x4, [x3]
	mov w0, #0
	ret

	.globl roce_verbs_guarded_end
	.hidden roce_verbs_guarded_end
roce_verbs_guarded_end:

roce_verbs_function roce_verbs_guarded_failed
	mov w0, #1
	ret

.popsection
.purgem roce_verbs_function
.purgem roce_verbs_copy
