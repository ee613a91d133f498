/* named_files.c - Keeps a command from writing over a file that it reads. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/cli.h"

/* What may be the name of a file that is read; copies, which last as long as the program. */
static char **read_names;
static int n_read;

void qm_cli_reads(const char *path)
{
    char *copy = strdup(path);
    if (!copy || qm_cli_append(&read_names, &n_read, copy) != QM_OK)
        free(copy);
}

qm_status qm_cli_writes(const char *path)
{
    struct stat out, in;
    if (stat(path, &out) != 0 || !S_ISREG(out.st_mode))
        return QM_OK;
    for (int i = 0; i < n_read; i++)
        if (stat(read_names[i], &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return qm_fail(QM_BAD_ARG,
                           "%s: would be written over a file that this command reads, expected "
                           "another name",
                           path);
    return QM_OK;
}
