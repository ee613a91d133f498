/* json_parse.h - JSON in files that others wrote. */
#ifndef QM_FOREIGN_JSON_PARSE_H
#define QM_FOREIGN_JSON_PARSE_H

#include <jansson.h>

#include "core/base/status.h"

/* Parses n bytes of JSON, which may not have a key twice in one object.  *out is owned by the
 * caller.  QM_BAD_FILE: "WHAT, byte B: not JSON: WHY", where B counts from `offset` bytes before
 * the text.  QM_NO_MEMORY: it is more than this process may use. */
qm_status qm_json_parse(const char *text, size_t n, const char *what, int offset, json_t **out);

#endif
