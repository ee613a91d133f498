/* number.c - Finds shortest decimals by trying one digit more at a time. */
#include "core/base/number.h"

#include <stdio.h>
#include <stdlib.h>

char *qm_float_text(float v, char text[QM_NUMBER_TEXT])
{
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, QM_NUMBER_TEXT, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v)
            break;
    }
    return text;
}

char *qm_double_text(double v, char text[QM_NUMBER_TEXT])
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, QM_NUMBER_TEXT, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    return text;
}
