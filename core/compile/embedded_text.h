/* embedded_text.h - Source texts that the executable carries, for compilers at run time.
 *
 * The Makefile writes them into build/gen/device.inc (the device's sources), texts.inc (headers and
 * templates of a user's kernel) and emu.inc (the emulator's layer). */
#ifndef QM_COMPILE_EMBEDDED_TEXT_H
#define QM_COMPILE_EMBEDDED_TEXT_H

#include "core/base/status.h"

/* The whole text of a device source (step.cu, tensor_rule.cu, step_emu.cu, a dual header or a
 * header of core/abi) by its path in the tree, "core/base/dual.h"; kept for good.  NULL: there is
 * no such text, or no memory. */
const char *qm_device_text(const char *path);

/* The path of device source number i; NULL beyond the last. */
const char *qm_device_text_path(int i);

/* The lines, ended by NULL, of a header of core/abi or of a template of variants/native, by its
 * name ("kernel_abi.h", "adamw4_ao.c"), for users who have the executable only.  NULL: there is no
 * such file.  And the name of file number i; NULL beyond the last. */
const char *const *qm_kernel_file_text(const char *name);
const char *qm_kernel_file_name(int i);

/* Writes one of those files, or one of core/emu, into a folder.  name may contain folders, which
 * are made; its last part names the text. */
qm_status qm_embedded_write(const char *folder, const char *name);

/* Makes the folders inside `folder` that name contains. */
qm_status qm_embedded_folder(const char *folder, const char *name);

#endif
