/* status.c - Keeps the last failure of each thread. */
#include "core/base/status.h"

#include <stdarg.h>
#include <string.h>

static _Thread_local char message[QM_MESSAGE_BYTES];
static _Thread_local char where[160];

int qm_exit_code(qm_status st)
{
    switch (st) {
#define X(name, code, text) \
    case QM_##name: return code;
        QM_STATUS_LIST(X)
#undef X
    }
    return 3;
}

const char *qm_message(void) { return message; }

const char *qm_message_where(void) { return where; }

qm_status qm_fail_at(const char *file, int line, qm_status code, const char *format, ...)
{
    char text[sizeof message]; /* the arguments may have the message of the failure before */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(message, text, strlen(text) + 1);
    snprintf(where, sizeof where, "%s:%d", file, line);
    return code;
}

qm_status qm_fail_in(qm_status code, const char *prefix)
{
    char old[sizeof message];
    memcpy(old, message, sizeof old);
    snprintf(message, sizeof message, "%.300s: %.700s", prefix, old);
    return code;
}
