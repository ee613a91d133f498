/* oracle_by_name.h - Finds a reference by its family; a missing one fails the test. */
#ifndef QM_TESTS_ORACLE_BY_NAME_H
#define QM_TESTS_ORACLE_BY_NAME_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "oracle/oracle.h"

static inline const struct qm_oracle *oracle(const char *family)
{
    const struct qm_oracle *o = qm_oracle_find(family);
    assert_non_null(o);
    return o;
}

#endif
