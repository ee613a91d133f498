/* drawn.h - Which entries of a long table a test takes: all of them, or a share that is drawn.
 *
 * QM_TEST_SHARE=k takes one entry in k; without it every entry is taken.  QM_TEST_SEED says which
 * ones: each program has an offset of its own, so that a seed takes other entries in each.  run.sh
 * sets both and prints them; `make test ONLY=...` and `make check-long` take every entry. */
#ifndef QM_SUPPORT_DRAWN_H
#define QM_SUPPORT_DRAWN_H

#include <stdlib.h>

/* Whether entry i of a table, counted from 0, is taken; file: __FILE__. */
static inline int drawn_of(const char *file, int i)
{
    const char *share = getenv("QM_TEST_SHARE"), *seed = getenv("QM_TEST_SEED");
    unsigned k = share ? (unsigned)strtoul(share, NULL, 10) : 1;
    unsigned from = seed ? (unsigned)strtoul(seed, NULL, 10) : 0;
    for (; *file; file++)
        from = from * 31 + (unsigned char)*file;
    return k <= 1 || ((unsigned)i + from) % k == 0;
}

#define is_drawn(i) drawn_of(__FILE__, i)

#endif
