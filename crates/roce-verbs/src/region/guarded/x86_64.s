# Accesses to registered memory that may fault; see guarded.rs.
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

# Copies rcx bytes, whose number is below 2^63, and advances rdi and rsi. Changes rax, rcx, xmm0 and xmm1.
.macro roce_verbs_copy_short
	sub rcx, 32
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
74:	add rcx, 8
	jz 76f
75:	movzx eax, byte ptr [rsi]
	mov [rdi], al
	inc rsi
	inc rdi
	dec rcx
	jnz 75b
76:
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
	mov rax, [rsi]
	mov [rdi], rax
	xor eax, eax
	ret
34:	mov rcx, rdx
.Lroce_verbs_read_rest:
	roce_verbs_copy_short
	xor eax, eax
	ret

# The same for at least 128 bytes, with AVX.
roce_verbs_function roce_verbs_guarded_read_vectors
	mov rcx, rdx
	and rcx, -32
	and edx, 31
	roce_verbs_copy_vectors prefetcht0, rsi
	mov ecx, edx
	jmp .Lroce_verbs_read_rest

# The same for any length, with the string instruction.
roce_verbs_function roce_verbs_guarded_read_string
	mov rcx, rdx
	rep movsb
	xor eax, eax
	ret

# Stores into a region, at least one byte, the last word behind all others: in one piece where it is aligned,
# otherwise byte by byte. The processor keeps the order of stores.
roce_verbs_function roce_verbs_guarded_write
	mov rcx, rdx
	sub rcx, 8
	jb 31f
	je .Lroce_verbs_write_last_word
	roce_verbs_copy_short
.Lroce_verbs_write_last_word:
	test dil, 7
	jnz 32f
	mov rax, [rsi]
	mov [rdi], rax
	xor eax, eax
	ret
31:	mov ecx, edx
	jmp 33f
32:	mov ecx, 8
33:	movzx eax, byte ptr [rsi]
	mov [rdi], al
	inc rsi
	inc rdi
	dec ecx
	jnz 33b
	xor eax, eax
	ret

# The same for at least 136 bytes, with AVX.
roce_verbs_function roce_verbs_guarded_write_vectors
	sub rdx, 8
	mov rcx, rdx
	and rcx, -32
	and edx, 31
	roce_verbs_copy_vectors prefetchw, rdi
	mov ecx, edx
	roce_verbs_copy_short
	jmp .Lroce_verbs_write_last_word

# The same for at least 8 bytes, with the string instruction.
roce_verbs_function roce_verbs_guarded_write_string
	mov rcx, rdx
	sub rcx, 8
	rep movsb
	jmp .Lroce_verbs_write_last_word

# Loads from a region and folds the bytes for their CRC; see copy_crc.rs. The length is a multiple of 256
# and not 0; zmm6 has the multipliers of a block. Leaves the folded block in zmm0 to zmm3.
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
.purgem roce_verbs_copy_short
.purgem roce_verbs_copy_vectors
