/* status.h - Error codes and messages of functions that can fail.
 *
 * A function that can fail returns a qm_status; its results come last, through pointers, and are
 * untouched on failure.  qm_fail keeps one line of text per thread and yields the code.  Only
 * commands print it. */
#ifndef QM_BASE_STATUS_H
#define QM_BASE_STATUS_H

#include <stdio.h>

/* clang-format off */
#define QM_STATUS_LIST(X)                                                             \
    X(OK,          0, "done")                                                         \
    X(CHECK_FAILED, 1, "a verdict failed, or a regression")                           \
    X(BAD_ARG,     2, "usage, configuration or composition error")                    \
    X(BAD_FILE,    3, "a file is missing, truncated, foreign or cannot be written")   \
    X(NO_MEMORY,   3, "out of memory")                                                \
    X(INTERNAL,    3, "internal error")                                               \
    X(NO_MATCH,    4, "nothing matched a name or a filter")                           \
    X(INTERRUPTED, 75, "interrupted; the same command resumes or does its work anew")                       \
    X(SKIPPED,     77, "skipped: a device or an optional part is absent")
/* clang-format on */

enum { QM_MESSAGE_BYTES = 1024 }; /* room for a message with the 0 behind it */

typedef enum qm_status {
#define X(name, code, text) QM_##name,
    QM_STATUS_LIST(X)
#undef X
} qm_status;

/* The documented exit code of a status: 0 ok, 1 verdict, 2 usage, 3 I/O or internal, 4 nothing
 * matched, 75 interrupted, 77 skipped. */
int qm_exit_code(qm_status st);

/* The text of this thread's last failure, never NULL; "" when there was none.  Of a text that is
 * longer the first QM_MESSAGE_BYTES - 1 bytes are kept. */
const char *qm_message(void);

/* The source line of this thread's last failure, as "core/quant/quantizer.c:123"; shown by -v. */
const char *qm_message_where(void);

qm_status qm_fail_at(const char *file, int line, qm_status code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Records the text and yields the code: return qm_fail(QM_BAD_ARG, "tensor is %d x %d", r, c). */
#define qm_fail(code, ...) qm_fail_at(__FILE__, __LINE__, (code), __VA_ARGS__)

/* Puts "prefix: " before the text of the last failure and yields `code`. */
qm_status qm_fail_in(qm_status code, const char *prefix);

/* Returns a failure of `call` from the calling function, where nothing needs to be undone. */
#define QM_TRY(call)                   \
    do {                               \
        qm_status try_status = (call); \
        if (try_status != QM_OK)       \
            return try_status;         \
    } while (0)

#endif
