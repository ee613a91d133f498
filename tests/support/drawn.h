/* drawn.h - Which entries of a long table a test takes: all of them, or a share that is drawn.
 *
 * QM_TEST_SHARE=k takes one entry in k; without it every entry is taken.  QM_TEST_SEED says which
 * ones: each program has an offset of its own, so that a seed takes other entries in each.  run.sh
 * sets both and prints them; `make test ONLY=...` and `make check-long` take every entry. */
#ifndef QM_SUPPORT_DRAWN_H
#define QM_SUPPORT_DRAWN_H

#include <stdlib.h>

/* Whether entry i of a table, counted from 0, is taken, where one in QM_TEST_SHARE is, and at least
 * one in `most`; file: __FILE__. */
static inline int drawn_of(const char *file, int i, unsigned most)
{
    const char *share = getenv("QM_TEST_SHARE"), *seed = getenv("QM_TEST_SEED");
    unsigned k = share ? (unsigned)strtoul(share, NULL, 10) : 1;
    k = k < most ? k : most;
    unsigned from = seed ? (unsigned)strtoul(seed, NULL, 10) : 0;
    for (; *file; file++)
        from = from * 31 + (unsigned char)*file;
    return k <= 1 || ((unsigned)i + from) % k == 0;
}

#define is_drawn(i) drawn_of(__FILE__, i, ~0u)
/* The same for a shorter table: one entry in k at least. */
#define is_one_drawn_in(k, i) drawn_of(__FILE__, i, k)

/* Skips a long test, number i of its file, but at one commit in k. */
#define AT_ONE_COMMIT_IN(k, i)                                                                 \
    do {                                                                                       \
        if (!is_one_drawn_in(k, i)) {                                                          \
            print_message("skipped: long: runs at one commit in %d, and in make check-long\n", \
                          (int)(k));                                                           \
            skip();                                                                            \
        }                                                                                      \
    } while (0)

#endif
