/* fnv1a.h - FNV-1a of 64 bits, for tables and keys; no digest of results. */
#ifndef QM_BASE_FNV1A_H
#define QM_BASE_FNV1A_H

#include <stddef.h>
#include <stdint.h>

#define QM_FNV1A UINT64_C(0xcbf29ce484222325) /* the hash of nothing */

/* The hash of what `h` is the hash of, followed by n bytes.  Source: draft-eastlake-fnv-21. */
static inline uint64_t qm_fnv1a(uint64_t h, const void *data, size_t n)
{
    const unsigned char *at = (const unsigned char *)data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ at[i]) * UINT64_C(0x100000001b3);
    return h;
}

#endif
