/* paired_cells.h - Cells of a paired suite for tests, made from the text of the suite. */
#ifndef QM_SUPPORT_PAIRED_CELLS_H
#define QM_SUPPORT_PAIRED_CELLS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/protocol/protocol.h"
#include "experiments/run/run_cells.h"

/* The file that make_suite_file creates and cells_of writes suites to. */
static char path[] = "/tmp/qm_protocol_XXXXXX";

static inline int make_suite_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static inline int remove_suite_file(void **state)
{
    (void)state;
    return unlink(path);
}

static inline void near_to(double x, double want, double within)
{
    if (!(fabs(x - want) <= within))
        fail_msg("%.10g, want %.10g within %g", x, want, within);
}

/* A suite with its cells; a test adds outcomes. */
struct paired_cells {
    struct qm_suite *s;
    struct qm_results r;
};

static inline void cells_of(const char *text, struct paired_cells *a)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    memset(a, 0, sizeof *a);
    if (qm_suite_read(path, &a->s) != QM_OK ||
        qm_suite_cells(a->s, NULL, &a->r.cell, &a->r.n_cells) != QM_OK)
        fail_msg("%s", qm_message());
    a->r.suite = a->s;
}

static inline void release(struct paired_cells *a)
{
    struct qm_cell *cells = a->r.cell;
    qm_results_free(&a->r);
    free(cells);
    qm_suite_free(a->s);
}

/* The keys that make a suite paired. */
#define PAIRED "coupling: closed\nprotocol: paired\nweight_decay: 0\n"

#endif
