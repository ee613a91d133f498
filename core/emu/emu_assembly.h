/* emu_assembly.h - Symbols of unoptimized assembly (g++ or clang++ -S -O0 -g1), and where each
 * function uses which. */
#ifndef QM_EMU_ASSEMBLY_H
#define QM_EMU_ASSEMBLY_H

#include "core/base/status.h"

enum { QM_ASM_FILES = 1024 };
enum qm_symbol_kind { QM_SYMBOL_unknown, QM_SYMBOL_function, QM_SYMBOL_variable };

struct qm_symbol {
    const char *name;
    int n; /* bytes of the name */
    enum qm_symbol_kind kind;
    int mark, is_defined, is_read_only, alias; /* alias: another symbol's number, or -1 */
    long size;
    int file, line; /* of a function: where it begins; file 0: unknown */
    int first_use, last_use;
    int is_visited;
};

/* An instruction that names a symbol. */
struct qm_symbol_use {
    int what, is_call, is_address, file, line; /* is_address: it takes the address (x86) */
};

struct qm_assembly {
    struct qm_symbol *symbol;
    struct qm_symbol_use *use;
    int n_symbols, room, n_uses, use_room, *table, table_size, failed;
    const char *text, *layer;
    struct {
        char *path;
        int is_users;
    } file[QM_ASM_FILES];
    /* While lines are read. */
    int power, current, is_read_only, at_file, at_line;
};

/* Reads assembly; text: the preprocessed source, whose line markers tell users' files from system
 * headers, as which files in `layer`, a folder, count too.  All three must outlive *out. */
qm_status qm_asm_read(const char *assembly, const char *text, const char *layer,
                      struct qm_assembly **out);
void qm_asm_free(struct qm_assembly *r);

/* The text of a line of a user's file in the preprocessed source, or NULL. */
const char *qm_asm_line(const struct qm_assembly *r, int file, int line);

int qm_asm_is_name(char c); /* of a symbol or a word */
int qm_asm_name_length(const char *s);

#endif
