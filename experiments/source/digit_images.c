/* digit_images.c - Handwritten digits from the bytes of a .npy file in the executable. */
#include "experiments/source/digit_images.h"

/* A .npy file: a header of 128 bytes, then a row per image: 64 pixels and the digit. */
static const unsigned char npy[] = {
#include "digits.inc"
};
enum { HEADER = 128, ROW = QM_DIGIT_PIXELS + 1 };
_Static_assert(sizeof npy == HEADER + QM_DIGIT_IMAGES * ROW, "digits.npy has another size");

void qm_digit_image(int64_t i, double *x)
{
    for (int k = 0; k < QM_DIGIT_PIXELS; k++)
        x[k] = npy[HEADER + i * ROW + k] / 16.0;
}

int qm_digit_label(int64_t i) { return npy[HEADER + i * ROW + QM_DIGIT_PIXELS]; }
