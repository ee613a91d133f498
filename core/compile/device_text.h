/* device_text.h - the device sources that travel with the executable: dual headers and step.cu. */
#ifndef QM_COMPILE_DEVICE_TEXT_H
#define QM_COMPILE_DEVICE_TEXT_H

/* The whole text of one, by its path in the tree ("core/base/dual.h"); NULL: it is not among them, or no
 * memory.  Kept for good. */
const char *qm_device_text(const char *path);

/* The path of number i; NULL beyond the last. */
const char *qm_device_text_path(int i);

#endif
