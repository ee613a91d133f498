/* shampoo.h - The linear algebra of Shampoo in eigenvector form, for one preconditioner at a time.
 *
 * Source: low-bit-Shampoo optimizers/shampoo2.py; arXiv:2405.18144, algorithms 1 to 3.  Matrices
 * are row-major.  Everything between the arguments and the results is in double, each sum in the
 * order of its inner index, and results are rounded to float32 once: the bits depend on no thread
 * and no instruction set, and lie within the rounding of the source, which computes in float32. */
#ifndef QM_RULE_SHAMPOO_H
#define QM_RULE_SHAMPOO_H

#include "core/rule/rule.h"

/* The slots behind the moments, of all preconditioners of a tensor.  Those of shorter last pieces
 * have two each, the left side's before the right side's. */
enum qm_shampoo_slot {
    QM_SHAMPOO_LEFT_VECTORS,
    QM_SHAMPOO_RIGHT_VECTORS,
    QM_SHAMPOO_EIGENVALUES,
    QM_SHAMPOO_LEFT_ROOT,
    QM_SHAMPOO_RIGHT_ROOT,
    QM_SHAMPOO_DIAGONALS,
    QM_SHAMPOO_LAST_VECTORS,
    QM_SHAMPOO_LAST_ROOT = QM_SHAMPOO_LAST_VECTORS + 2,
    QM_SHAMPOO_SLOTS = QM_SHAMPOO_LAST_ROOT + 2
};

/* How a tensor is cut: dims of size 1 are dropped, the rest is the matrix [d0, all others]; each
 * side longer than max_order is cut into pieces of max_order, the last one shorter.  Tiles are
 * numbered row by row. */
struct qm_shampoo_tiles {
    int64_t rows, cols;   /* of the matrix */
    int64_t high, wide;   /* of a tile that is not the last */
    int64_t down, across; /* pieces of a column, and of a row */
};

struct qm_shampoo_tile {
    int64_t row, col, rows, cols; /* its first row and column, and its sides */
};

/* 0 where the tensor has no preconditioner: it is empty, or fewer than two dims remain. */
int qm_shampoo_tiles_of(const struct qm_hyper *h, const struct qm_shape *param,
                        struct qm_shampoo_tiles *out);
struct qm_shampoo_tile qm_shampoo_tile_at(const struct qm_shampoo_tiles *s, int64_t k);

/* The preconditioners of one order on one side of the tiles: on the left (right 0) those of tiles
 * of `high` rows or, last 1, of the lower tiles of a last row; on the right those of tiles of
 * `wide` columns, or of the narrower tiles at the end of each row.  There are no last ones where
 * all pieces of a side are equal. */
struct qm_shampoo_group {
    int64_t n, count; /* their order, and how many there are */
};
struct qm_shampoo_group qm_shampoo_group_of(const struct qm_shampoo_tiles *s, int right, int last);

/* Where the preconditioner of tile k stands among those of its side. */
struct qm_shampoo_place {
    int last;       /* 1: it belongs to the group of last ones */
    int64_t n, at;  /* its order, and its number in its group, from 0 */
    int64_t before; /* the orders of all tiles before it, added up */
};
struct qm_shampoo_place qm_shampoo_place_of(const struct qm_shampoo_tiles *s, int right, int64_t k);

/* Updates the statistic of one side of a tile g of a gradient whose rows have `cols` elements.
 * right 0: order n = tile->rows, new term G G^T; 1: n = tile->cols, G^T G.  vt[n][n], whose rows
 * are the eigenvectors, and ev[n] are replaced:
 *
 *     X  <- V^T, then rect_stat times X <- 3/2 X - 1/2 X X^T X
 *     A   = stat_decay X^T diag(ev) X + (1 - stat_decay) G G^T
 *     Q R = A X^T by Householder reflections, with the signs of LAPACK's geqrf
 *     ev <- diag(Q^T A Q),  V^T <- Q^T
 *
 * A vt of zeros stands for the identity, and its ev for matrix_eps.  QM_NO_MEMORY. */
qm_status qm_shampoo_statistic(const struct qm_hyper *h, const struct qm_shampoo_tile *tile,
                               int64_t cols, const float *g, int right, float *vt, float *ev);

/* root[n][n] = V diag((ev + matrix_eps max ev)^(-1/4)) V^T, V^T after rect_root rectifications; a
 * NaN where a sum is negative.  vt of zeros: as above. */
qm_status qm_shampoo_root(const struct qm_hyper *h, int64_t n, const float *vt, const float *ev,
                          float *root);

/* A root x[n][n]; where d is not NULL, d[n] is its diagonal, whatever x has there.  One that is all
 * zero stands for the identity. */
struct qm_shampoo_factor {
    const float *x, *d;
};

/* out = L G R of one tile, g and out with rows of `cols` elements. */
qm_status qm_shampoo_precondition(const struct qm_shampoo_tile *tile, int64_t cols,
                                  struct qm_shampoo_factor l, struct qm_shampoo_factor r,
                                  const float *g, float *out);

/* p[n] <- p |g| / (|p| + 1e-12), norms in double of squares that overflow and vanish as in
 * float32. */
void qm_shampoo_graft(int64_t n, const float *g, float *p);

#endif
