/* digit_images.h - 1797 images of handwritten digits, 8 x 8 pixels, embedded in the executable.
 *
 * They are those of experiments/data/digits.npy; origin and licence are in
 * experiments/data/README.md. */
#ifndef QM_SOURCE_DIGIT_IMAGES_H
#define QM_SOURCE_DIGIT_IMAGES_H

#include <stdint.h>

enum { QM_DIGIT_IMAGES = 1797, QM_DIGIT_PIXELS = 64, QM_DIGIT_CLASSES = 10 };

/* Sets x[QM_DIGIT_PIXELS] to the pixels of image i, row by row, divided by 16, in [0, 1]. */
void qm_digit_image(int64_t i, double *x);

int qm_digit_label(int64_t i); /* 0 to 9 */

#endif
