/*
 * A guest without an operating system, which is moved between hosts: it fills pages of its memory with a
 * pattern, and then checks and changes them for ever. Its serial port has a line for each pass.
 *
 * QEMU 7.2's emulated processor notes a change of a page when it looks up the page's address, and keeps the
 * addresses that it has looked up when a migration takes what was noted: later changes of such a page never
 * reach the destination, over `tcp:` as well. So this guest makes the processor forget an address before each
 * write (invlpg), and has no stack: all that it counts is in registers.
 */
#define COM1 0x3f8
/* The pages with the pattern; `PATTERN` of qemu.rs has their bytes. */
#define START 0x1000000
#define PAGES 8192
/* A pass writes one of so many groups of pages anew, so that the host finds changed pages while it sends. */
#define GROUPS 128
#define GROUP_SHIFT 6

    .section .multiboot, "a"
    .long 0x1badb002, 0, -0x1badb002

/* Waits until the transmitter is empty. Uses eax, edx. */
.macro wait_for_port
    movw $(COM1 + 5), %dx
empty\@:
    inb %dx, %al
    testb $0x20, %al
    jz empty\@
    movw $COM1, %dx
.endm

/* Prints characters. Uses eax, edx. */
.macro print characters:vararg
    .irp character, \characters
    wait_for_port
    movb $\character, %al
    outb %al, %dx
    .endr
.endm

/* Prints eight hexadecimal digits. Uses eax, ecx, edx, edi, ebp. */
.macro print_number register
    movl \register, %edi
    movl $8, %ecx
digit\@:
    roll $4, %edi
    movl %edi, %ebp
    andl $15, %ebp
    cmpl $10, %ebp
    jb decimal\@
    addl $('a' - 10 - '0'), %ebp
decimal\@:
    wait_for_port
    leal '0'(%ebp), %eax
    outb %al, %dx
    decl %ecx
    jnz digit\@
.endm

/* Sets edi to the address of page esi, and ebp to what the pattern of that page and of a pass has besides the
   index of a word. */
.macro address_and_pattern pass
    imull $40503, \pass, %ebp
    imull $0x9e3779b1, %esi, %edi
    xorl %edi, %ebp
    movl %esi, %edi
    shll $12, %edi
    addl $START, %edi
    xorl %ecx, %ecx
.endm

/* Writes the pattern of pass ebx to page esi. Uses eax, ecx, edi, ebp. */
.macro fill
    address_and_pattern %ebx
word\@:
    movl %ebp, %eax
    xorl %ecx, %eax
    invlpg (%edi, %ecx, 4)
    movl %eax, (%edi, %ecx, 4)
    incl %ecx
    cmpl $1024, %ecx
    jb word\@
.endm

    .text
    .globl _start
_start:
    xorl %ebx, %ebx
    xorl %esi, %esi
first:
    fill
    incl %esi
    cmpl $PAGES, %esi
    jb first
    print 'f', 'i', 'l', 'l', 'e', 'd', '\n'

pass:
    incl %ebx
    xorl %esi, %esi
check:
    /* The last pass before this one that wrote the group g of the page: pass - 1 - (pass - 2 - g) mod GROUPS,
       and 0 if there was none. */
    movl %esi, %eax
    shrl $GROUP_SHIFT, %eax
    negl %eax
    leal -2(%eax, %ebx), %eax
    andl $(GROUPS - 1), %eax
    negl %eax
    leal -1(%eax, %ebx), %eax
    testl %eax, %eax
    jg written
    xorl %eax, %eax
written:
    address_and_pattern %eax
compare:
    movl %ebp, %eax
    xorl %ecx, %eax
    cmpl %eax, (%edi, %ecx, 4)
    jne damaged
    incl %ecx
    cmpl $1024, %ecx
    jb compare
checked:
    incl %esi
    cmpl $PAGES, %esi
    jb check

    leal -1(%ebx), %esi
    andl $(GROUPS - 1), %esi
    shll $GROUP_SHIFT, %esi
change:
    fill
    incl %esi
    testl $((1 << GROUP_SHIFT) - 1), %esi
    jnz change
    print 'p', 'a', 's', 's', ' '
    print_number %ebx
    print ' ', 'o', 'k', '\n'
    jmp pass

damaged:
    print 'd', 'a', 'm', 'a', 'g', 'e', 'd', ' ', 'p', 'a', 'g', 'e', ' '
    print_number %esi
    print '\n'
    jmp checked
