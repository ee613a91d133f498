/* emu_end.cpp - A step that ends its process after a finding, which would hide it.
 *
 * Programs wrap CUDA's functions in macros that end the process where one fails, as after a
 * finding some do.  Here that end is the end of the step, whose finding is then told: exit, abort,
 * a failed assertion, std::terminate, an exception that nothing catches.  Without a finding they
 * do what they always do. */
#include "emu_runtime.hpp"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <exception>

static jmp_buf step_end;
static int is_in_step;

/* Leaves the step where it has a finding; else returns. */
static void leave_step()
{
    if (!is_in_step || !*qm_emu_text || qm_now.is_running)
        return;
    is_in_step = 0;
    longjmp(step_end, 1);
}

static std::terminate_handler terminate_before;

static void on_terminate()
{
    leave_step();
    if (terminate_before)
        terminate_before();
    abort();
}

int qm_step_call(int (*step)(const void *a), const void *a)
{
    volatile int refused = 0;
    terminate_before = std::set_terminate(on_terminate);
    is_in_step = 1;
    if (setjmp(step_end) == 0) {
        try {
            refused = step(a);
        } catch (...) {
            leave_step();
            throw;
        }
    }
    is_in_step = 0;
    std::set_terminate(terminate_before);
    return refused;
}

/* Calls of these functions in the file come here by the linker's option --wrap. */
extern "C" {
#define QM_END(name, type)                                   \
    void __real_##name(type code) __attribute__((noreturn)); \
    void __wrap_##name(type) __attribute__((noreturn));      \
    void __wrap_##name(type code)                            \
    {                                                        \
        leave_step();                                        \
        __real_##name(code);                                 \
    }
QM_END(exit, int)
QM_END(_exit, int)
QM_END(_Exit, int)
QM_END(quick_exit, int)
#undef QM_END
void __real_abort(void) __attribute__((noreturn));
void __wrap_abort(void) __attribute__((noreturn));
void __wrap_abort(void)
{
    leave_step();
    __real_abort();
}
void __real___assert_fail(const char *what, const char *file, unsigned int line, const char *in)
    __attribute__((noreturn));
void __wrap___assert_fail(const char *what, const char *file, unsigned int line, const char *in)
    __attribute__((noreturn));
void __wrap___assert_fail(const char *what, const char *file, unsigned int line, const char *in)
{
    leave_step();
    __real___assert_fail(what, file, line, in);
}
}
