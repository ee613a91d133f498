/* number.h - Prints the shortest decimal that reads back as the same number. */
#ifndef QM_BASE_NUMBER_H
#define QM_BASE_NUMBER_H

#define QM_NUMBER_TEXT 32

/* A float gets up to 9 significant digits ("1e-12"), a double up to 17.  Both return text. */
char *qm_float_text(float v, char text[QM_NUMBER_TEXT]);
char *qm_double_text(double v, char text[QM_NUMBER_TEXT]);

#endif
