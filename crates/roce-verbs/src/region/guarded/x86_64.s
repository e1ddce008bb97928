# Accesses to registered memory that may fault; see guarded.rs, and the module's documentation for what is
# never torn.
#
# All functions are between the labels at the two ends, and are leaves that leave the stack as it was. So the
# fault handler can end each of them at any instruction by a jump to roce_verbs_guarded_failed, which
# returns 1 to the caller. Otherwise they return 0. Nothing else may stand between the two labels.
#
# Unless a comment says otherwise: rdi is the target, rsi the source, rdx the length in bytes.

# Distance of prefetches in bytes. With payloads of 4096 bytes 1024 and 2048 are equal and 4096 is a tenth
# slower, with payloads of 1024 bytes 2048 to 8192 are equal and 1024 is a tenth slower.
.set .Lroce_verbs_ahead, 2048

.pushsection .text.roce_verbs_guarded, "ax", @progbits

.macro roce_verbs_function name
	.p2align 6
	.globl \name
	.hidden \name
	.type \name, @function
	\name:
.endm

# Copies rcx bytes, or with last = 1 one more, and advances rdi and rsi; rcx is below 2^63. One of these is the
# region, low is its lowest byte. Each access of the region is an aligned unit: bytes first until the region is
# aligned to 8, then words and pairs of words, then the rest. With last = 1 the last unit, of at most a word, is an
# access for itself behind all others; so a unit that would be the whole rest is left to the end, which finds it
# aligned. Changes rax, rcx, xmm0 and xmm1.
.macro roce_verbs_copy_units low, last
	test \low, 7
	jz 64f
	test \low, 1
	jz 61f
	cmp rcx, 1
	jb 75f
	movzx eax, byte ptr [rsi]
	mov [rdi], al
	inc rsi
	inc rdi
	dec rcx
61:	test \low, 2
	jz 62f
	cmp rcx, 2
	jb 75f
	movzx eax, word ptr [rsi]
	mov [rdi], ax
	add rsi, 2
	add rdi, 2
	sub rcx, 2
62:	test \low, 4
	jz 64f
	cmp rcx, 4
	jb 75f
	mov eax, [rsi]
	mov [rdi], eax
	add rsi, 4
	add rdi, 4
	sub rcx, 4
64:	sub rcx, 32
	jb 72f
	test \low, 8
	jz 71f
	mov rax, [rsi]
	mov [rdi], rax
	add rsi, 8
	add rdi, 8
	sub rcx, 8
	jb 72f
	.p2align 4
71:	movdqu xmm0, [rsi]
	movdqu xmm1, [rsi + 16]
	movdqu [rdi], xmm0
	movdqu [rdi + 16], xmm1
	add rsi, 32
	add rdi, 32
	sub rcx, 32
	jae 71b
72:	add rcx, 24
	jnc 74f
73:	mov rax, [rsi]
	mov [rdi], rax
	add rsi, 8
	add rdi, 8
	sub rcx, 8
	jae 73b
74:	add ecx, 8
75:
	.if \last
	inc ecx
	test cl, 8
	jz 76f
	mov rax, [rsi]
	mov [rdi], rax
	jmp 79f
76:
	.else
	test ecx, ecx
	jz 79f
	.endif
	test cl, 4
	jz 77f
	mov eax, [rsi]
	mov [rdi], eax
	add rsi, 4
	add rdi, 4
77:	test cl, 2
	jz 78f
	movzx eax, word ptr [rsi]
	mov [rdi], ax
	add rsi, 2
	add rdi, 2
78:	test cl, 1
	jz 79f
	movzx eax, byte ptr [rsi]
	mov [rdi], al
79:
.endm

# Copies a unit of each size until the region is aligned to 32 bytes. rdx is the length, at least 32.
# Changes rax and rdx.
.macro roce_verbs_align low
	test \low, 31
	jz 56f
	test \low, 1
	jz 51f
	movzx eax, byte ptr [rsi]
	mov [rdi], al
	inc rsi
	inc rdi
	dec rdx
51:	test \low, 2
	jz 52f
	movzx eax, word ptr [rsi]
	mov [rdi], ax
	add rsi, 2
	add rdi, 2
	sub rdx, 2
52:	test \low, 4
	jz 53f
	mov eax, [rsi]
	mov [rdi], eax
	add rsi, 4
	add rdi, 4
	sub rdx, 4
53:	test \low, 8
	jz 54f
	mov rax, [rsi]
	mov [rdi], rax
	add rsi, 8
	add rdi, 8
	sub rdx, 8
54:	test \low, 16
	jz 56f
	movdqu xmm0, [rsi]
	movdqu [rdi], xmm0
	add rsi, 16
	add rdi, 16
	sub rdx, 16
56:
.endm

# Copies rcx bytes in vectors, and advances rdi and rsi: a multiple of 32, and at least 128. A prefetch never
# faults, at any address. Changes rcx and the vector registers.
.macro roce_verbs_copy_vectors hint, region
	.p2align 5
21:	\hint [\region + .Lroce_verbs_ahead]
	\hint [\region + .Lroce_verbs_ahead + 64]
	vmovdqu ymm0, [rsi]
	vmovdqu ymm1, [rsi + 32]
	vmovdqu ymm2, [rsi + 64]
	vmovdqu ymm3, [rsi + 96]
	vmovdqu [rdi], ymm0
	vmovdqu [rdi + 32], ymm1
	vmovdqu [rdi + 64], ymm2
	vmovdqu [rdi + 96], ymm3
	sub rsi, -128
	sub rdi, -128
	sub rcx, 128
	cmp rcx, 128
	jae 21b
	test rcx, rcx
	jz 23f
22:	vmovdqu ymm0, [rsi]
	vmovdqu [rdi], ymm0
	add rsi, 32
	add rdi, 32
	sub rcx, 32
	jnz 22b
23:	vzeroupper
.endm

	.globl roce_verbs_guarded_start
	.hidden roce_verbs_guarded_start
roce_verbs_guarded_start:

# Loads from a region.
roce_verbs_function roce_verbs_guarded_read
	cmp rdx, 8
	jne 34f
	test sil, 7
	jnz 34f
	mov rax, [rsi]
	mov [rdi], rax
	xor eax, eax
	ret
34:	mov rcx, rdx
.Lroce_verbs_read_rest:
	roce_verbs_copy_units sil, 0
	xor eax, eax
	ret

# The same for at least 256 bytes, with AVX.
roce_verbs_function roce_verbs_guarded_read_vectors
	roce_verbs_align sil
	mov rcx, rdx
	and rcx, -32
	and edx, 31
	roce_verbs_copy_vectors prefetcht0, rsi
	mov ecx, edx
	jmp .Lroce_verbs_read_rest

# Stores into a region, at least one byte. The processor keeps the order of stores.
roce_verbs_function roce_verbs_guarded_write
	cmp rdx, 8
	jne 34f
	test dil, 7
	jnz 34f
	mov rax, [rsi]
	mov [rdi], rax
	xor eax, eax
	ret
34:	lea rcx, [rdx - 1]
.Lroce_verbs_write_rest:
	roce_verbs_copy_units dil, 1
	xor eax, eax
	ret

# The same for at least 256 bytes, with AVX.
roce_verbs_function roce_verbs_guarded_write_vectors
	roce_verbs_align dil
	dec rdx
	mov rcx, rdx
	and rcx, -32
	and edx, 31
	roce_verbs_copy_vectors prefetchw, rdi
	mov ecx, edx
	jmp .Lroce_verbs_write_rest

# Loads from a region and folds the bytes for their CRC; see copy_crc.rs. The length is a multiple of 256
# and not 0, and the region is aligned to 8; zmm6 has the multipliers of a block. Leaves the folded block in zmm0 to zmm3.
roce_verbs_function roce_verbs_guarded_read_folded
	vmovdqu64 zmm0, [rsi]
	vmovdqu64 zmm1, [rsi + 64]
	vmovdqu64 zmm2, [rsi + 128]
	vmovdqu64 zmm3, [rsi + 192]
	vmovdqu64 [rdi], zmm0
	vmovdqu64 [rdi + 64], zmm1
	vmovdqu64 [rdi + 128], zmm2
	vmovdqu64 [rdi + 192], zmm3
	sub rdx, 256
	jz 42f
	.p2align 5
41:	add rsi, 256
	add rdi, 256
	prefetcht0 [rsi + .Lroce_verbs_ahead]
	prefetcht0 [rsi + .Lroce_verbs_ahead + 64]
	prefetcht0 [rsi + .Lroce_verbs_ahead + 128]
	prefetcht0 [rsi + .Lroce_verbs_ahead + 192]
	vmovdqu64 zmm4, [rsi]
	vpclmulqdq zmm5, zmm0, zmm6, 0x00
	vpclmulqdq zmm0, zmm0, zmm6, 0x11
	vmovdqu64 [rdi], zmm4
	vpternlogq zmm0, zmm5, zmm4, 0x96
	vmovdqu64 zmm4, [rsi + 64]
	vpclmulqdq zmm5, zmm1, zmm6, 0x00
	vpclmulqdq zmm1, zmm1, zmm6, 0x11
	vmovdqu64 [rdi + 64], zmm4
	vpternlogq zmm1, zmm5, zmm4, 0x96
	vmovdqu64 zmm4, [rsi + 128]
	vpclmulqdq zmm5, zmm2, zmm6, 0x00
	vpclmulqdq zmm2, zmm2, zmm6, 0x11
	vmovdqu64 [rdi + 128], zmm4
	vpternlogq zmm2, zmm5, zmm4, 0x96
	vmovdqu64 zmm4, [rsi + 192]
	vpclmulqdq zmm5, zmm3, zmm6, 0x00
	vpclmulqdq zmm3, zmm3, zmm6, 0x11
	vmovdqu64 [rdi + 192], zmm4
	vpternlogq zmm3, zmm5, zmm4, 0x96
	sub rdx, 256
	jnz 41b
42:	xor eax, eax
	ret

# Adds rsi to the aligned word at rdi, and stores its value of before at rdx.
roce_verbs_function roce_verbs_guarded_fetch_add
	lock xadd [rdi], rsi
	mov [rdx], rsi
	xor eax, eax
	ret

# Stores rsi in the aligned word at rdi, and its value of before at rdx.
roce_verbs_function roce_verbs_guarded_swap
	xchg [rdi], rsi
	mov [rdx], rsi
	xor eax, eax
	ret

# Stores rdx in the aligned word at rdi if it holds rsi, and its value of before at rcx.
roce_verbs_function roce_verbs_guarded_compare_exchange
	mov rax, rsi
	lock cmpxchg [rdi], rdx
	mov [rcx], rax
	xor eax, eax
	ret

	.globl roce_verbs_guarded_end
	.hidden roce_verbs_guarded_end
roce_verbs_guarded_end:

roce_verbs_function roce_verbs_guarded_failed
	mov eax, 1
	ret

.popsection
.purgem roce_verbs_function
.purgem roce_verbs_copy_units
.purgem roce_verbs_align
.purgem roce_verbs_copy_vectors
