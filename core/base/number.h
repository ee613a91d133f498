/* number.h - the shortest decimal that reads back as the same number. */
#ifndef QM_BASE_NUMBER_H
#define QM_BASE_NUMBER_H

#define QM_NUMBER_TEXT 32

/* Up to 9 significant digits for a float ("1e-12"), 17 for a double.  Returns text. */
char *qm_float_text(float v, char text[QM_NUMBER_TEXT]);
char *qm_double_text(double v, char text[QM_NUMBER_TEXT]);

#endif
