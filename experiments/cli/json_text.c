/* json_text.c - Makes JSON of texts whose bytes nobody has checked. */
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"

int qm_cli_utf8_bytes(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    int n = *c < 0x80                 ? 1
            : *c >= 0xc2 && *c < 0xe0 ? 2
            : *c >= 0xe0 && *c < 0xf0 ? 3
            : *c >= 0xf0 && *c < 0xf5 ? 4
                                      : 0;
    for (int i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    int is_short = (*c == 0xe0 && c[1] < 0xa0) || (*c == 0xf0 && c[1] < 0x90);
    int is_none = (*c == 0xed && c[1] > 0x9f) || (*c == 0xf4 && c[1] > 0x8f);
    return is_short || is_none ? 0 : n;
}

json_t *qm_json_text(const char *text)
{
    char *out = malloc(3 * strlen(text) + 1), *to = out;
    if (!out)
        return NULL;
    for (const char *c = text; *c;) {
        int n = qm_cli_utf8_bytes(c);
        memcpy(to, n ? c : "\xef\xbf\xbd", n ? (size_t)n : 3);
        to += n ? n : 3;
        c += n ? n : 1;
    }
    *to = '\0';
    json_t *json = json_string(out);
    free(out);
    return json;
}

char *qm_json_without(json_t *object, const char *member)
{
    json_t *rest = json_copy(object);
    if (rest)
        json_object_del(rest, member);
    char *text = rest ? json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(rest);
    return text;
}
