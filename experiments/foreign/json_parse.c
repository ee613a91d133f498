/* json_parse.c - Parses JSON, and tells what is none from what does not fit into memory. */
#include "experiments/foreign/json_parse.h"

#include <stdlib.h>

/* Whether memory ran out in this thread: jansson then speaks of invalid tokens, or says nothing. */
static _Thread_local int has_run_out;

static void *take(size_t size)
{
    void *p = malloc(size);
    has_run_out |= !p;
    return p;
}

qm_status qm_json_parse(const char *text, size_t n, const char *what, int offset, json_t **out)
{
    json_error_t error;
    json_set_alloc_funcs(take, free); /* for good: threads that parse beside this one go on */
    has_run_out = 0;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!root && has_run_out)
        return qm_fail(QM_NO_MEMORY, "%s", what);
    if (!root)
        return qm_fail(QM_BAD_FILE, "%s, byte %d: not JSON: %s", what, offset + error.position,
                       error.text);
    *out = root;
    return QM_OK;
}
