/* report_device.c - Whether a report's GPU, driver and NVRTC are those of now. */
#include <stdlib.h>

#include "experiments/gpu/gpu_report.h"

/* An empty text: NVML, which tells the driver's version, is optional. */
static int is_unknown(const json_t *fact)
{
    return json_is_string(fact) && json_string_length(fact) == 0;
}

void qm_gpu_report_renew(json_t *was, json_t *is)
{
    static const char *const facts[] = {"driver", "most_sm_mhz", "most_memory_mhz", "nvml"};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        json_t *fact = json_object_get(is, facts[i]);
        if (fact && !is_unknown(fact) && !(json_is_integer(fact) && !json_integer_value(fact)))
            json_object_set(was, facts[i], fact);
    }
}

qm_status qm_gpu_report_same_device(json_t *was, json_t *is, const char *path)
{
    static const char *const facts[] = {
        "name",         "uuid",     "compute_capability", "multiprocessors",
        "memory_bytes", "l2_bytes", "driver_api",         "driver",
        "nvrtc"};
    char text[800] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof facts / sizeof *facts && used < sizeof text; i++) {
        json_t *a = json_object_get(was, facts[i]), *b = json_object_get(is, facts[i]);
        if ((!a && !b) || (a && b && json_equal(a, b)) || is_unknown(a) || is_unknown(b))
            continue;
        char *x = a ? json_dumps(a, JSON_ENCODE_ANY) : NULL;
        char *y = b ? json_dumps(b, JSON_ENCODE_ANY) : NULL;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %.120s, now %.120s",
                                 used ? "; " : "", facts[i], x ? x : "unknown", y ? y : "unknown");
        free(x);
        free(y);
    }
    return *text ? qm_fail(QM_BAD_ARG,
                           "%s was begun with another GPU, driver or NVRTC (%s): "
                           "begin a new report",
                           path, text)
                 : QM_OK;
}
