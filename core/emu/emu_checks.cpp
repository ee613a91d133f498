/* emu_checks.cpp - Reports violations of C++'s own rules: overflows, shifts, bounds, alignment.
 *
 * The functions are those that -fsanitize=alignment,bounds,... calls where a check fails; the
 * structs are laid out as the compiler passes them. */
#include "emu_runtime.hpp"

#include <stdio.h>
#include <string.h>

struct source {
    const char *file;
    uint32_t line, column;
};
struct type {
    uint16_t kind, info; /* 0: integer; info: 2 log2(bits), plus 1 where signed */
    char name[1];
};
struct mismatch {
    struct source at;
    const struct type *type;
    unsigned char log_align, kind;
};
struct two_types {
    struct source at;
    const struct type *first, *second;
};

static long long number(const struct type *t, uintptr_t value)
{
    unsigned int bits = 1u << (t->info >> 1);
    return !(t->info & 1) ? (long long)value
           : bits >= 64   ? (long long)value
                          : (long long)(value << (64 - bits)) >> (64 - bits);
}

static void __attribute__((format(printf, 2, 3)))
found(const struct source *at, const char *format, ...)
{
    char what[400], who[64] = "the host's code";
    struct qm_emu_at place = {at->file, (int)at->line, 0};
    __builtin_va_list list;
    __builtin_va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    __builtin_va_end(list);
    if (qm_now.is_running)
        qm_thread_name(qm_now.thread, who);
    qm_emu_fail(place, "%s: %s", what, who);
}

#define QM_OVERFLOW(op, sign)                                                                \
    void __ubsan_handle_##op##_overflow(const struct two_types *d, uintptr_t a, uintptr_t b) \
    {                                                                                        \
        found(&d->at, "signed overflow, %lld " sign " %lld in %s", number(d->first, a),      \
              number(d->first, b), d->first->name);                                          \
    }
extern "C" {
QM_OVERFLOW(add, "+")
QM_OVERFLOW(sub, "-")
QM_OVERFLOW(mul, "*")
void __ubsan_handle_negate_overflow(const struct two_types *d, uintptr_t)
{
    found(&d->at, "signed overflow of a negation in %s", d->first->name);
}
void __ubsan_handle_divrem_overflow(const struct two_types *d, uintptr_t, uintptr_t)
{
    found(&d->at, "integer division by zero, or of the least number by -1");
}
void __ubsan_handle_shift_out_of_bounds(const struct two_types *d, uintptr_t, uintptr_t by)
{
    found(&d->at, "shift of %s by %lld", d->first->name, number(d->second, by));
}
void __ubsan_handle_out_of_bounds(const struct two_types *d, uintptr_t index)
{
    found(&d->at, "index %lld is out of bounds of %s", number(d->second, index), d->first->name);
}
void __ubsan_handle_float_cast_overflow(const struct two_types *d, uintptr_t)
{
    found(&d->at, "a number outside the range of %s is converted to it from %s", d->second->name,
          d->first->name);
}
void __ubsan_handle_type_mismatch_v1(const struct mismatch *d, uintptr_t at)
{
    unsigned int align = 1u << d->log_align;
    if (at % align != 0)
        found(&d->at, "misaligned %s of %s: the address is %u bytes past a multiple of %u",
              d->kind == 1 ? "store" : "access", d->type->name, (unsigned int)(at % align), align);
}
}
