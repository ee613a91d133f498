/* unread.h - Keys of a suite that no cell of it reads. */
#ifndef QM_SUITE_UNREAD_H
#define QM_SUITE_UNREAD_H

#include "experiments/suite/suite.h"

enum { QM_UNREAD_TEXT = 200 };

/* Writes why the first key that no cell[n] without a reason reads has no effect; "" where there is
 * none, or where every cell has a reason.  Keys that all cells read, such as `title`, and those
 * that a cell refuses by a reason of its own, such as `warmup`, are not looked at. */
void qm_suite_unread(const struct qm_suite *s, const struct qm_cell *cell, int64_t n,
                     char text[QM_UNREAD_TEXT]);

#endif
