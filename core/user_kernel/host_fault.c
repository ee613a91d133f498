/* host_fault.c - What a fault was.
 *
 * x86-64 tells no address where a number is none (its upper 17 bits differ), nor where a vector
 * instruction wants an alignment: both are general protection faults, and the instruction tells
 * which. */
#include <string.h>
#include <ucontext.h>

#include "core/user_kernel/host_page.h"

#if defined(__x86_64__)

/* Whether a vector instruction of 16 bytes or more faults at an address that is not aligned;
 * `prefix`: 0, 0x66, 0xf3 or 0xf2, which the encodings VEX and EVEX have as a field. */
static int is_aligned_move(unsigned char op, unsigned char prefix)
{
    return op == 0x28 || op == 0x29 || op == 0x2b || op == 0xe7 ||
           ((op == 0x6f || op == 0x7f) && prefix == 0x66);
}

/* Of the older encoding, in which operands in memory are aligned too: 0x0f and this byte. */
static int is_aligned_old(unsigned char op, unsigned char prefix)
{
    int is_arithmetic = (op >= 0x51 && op <= 0x6d && op != 0x5a) || (op >= 0x74 && op <= 0x76) ||
                        op == 0xc2 || op == 0xc6 || (op >= 0xd0 && op != 0xd6);
    return prefix != 0xf3 && prefix != 0xf2 &&
           (is_aligned_move(op, prefix) || (is_arithmetic && (op < 0x60 || prefix == 0x66)));
}

static int wants_alignment(const unsigned char *code)
{
    static const unsigned char prefixes[] = {0, 0x66, 0xf3, 0xf2};
    unsigned char prefix = 0;
    for (; *code && strchr("\x66\xf2\xf3\x2e\x36\x3e\x26\x64\x65", *code); code++)
        prefix = *code == 0x66 || *code == 0xf3 || *code == 0xf2 ? *code : prefix;
    if (code[0] == 0xc5)
        return is_aligned_move(code[2], prefixes[code[1] & 3]);
    if (code[0] == 0xc4)
        return is_aligned_move(code[3], prefixes[code[2] & 3]);
    if (code[0] == 0x62)
        return is_aligned_move(code[4], prefixes[code[2] & 3]);
    code += code[0] >= 0x40 && code[0] <= 0x4f; /* REX */
    return code[0] == 0x0f && is_aligned_old(code[1], prefix);
}

enum qm_host_fault qm_host_fault_of(const siginfo_t *info, const void *context)
{
    const ucontext_t *c = context;
    if (info->si_signo != SIGSEGV || info->si_code != SI_KERNEL)
        return QM_FAULT_AT;
    return wants_alignment((const unsigned char *)(uintptr_t)c->uc_mcontext.gregs[REG_RIP])
               ? QM_FAULT_MISALIGNED
               : QM_FAULT_NO_ADDRESS;
}

#else

enum qm_host_fault qm_host_fault_of(const siginfo_t *info, const void *context)
{
    (void)context;
    return info->si_signo == SIGBUS && info->si_code == BUS_ADRALN ? QM_FAULT_MISALIGNED
                                                                   : QM_FAULT_AT;
}

#endif
