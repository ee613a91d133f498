/* named_files.c - Keeps a command from writing over a file that it reads. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/cli.h"

/* What may be the name of a file that is read, and what options name to be written; copies, which
 * last as long as the program. */
static char **read_names, **written_names;
static int n_read, n_written;

void qm_cli_reads(const char *path)
{
    char *copy = strdup(path);
    if (!copy || qm_cli_append(&read_names, &n_read, copy) != QM_OK)
        free(copy);
}

/* The folder's real path and the file's name; NULL: the folder is not there. */
static char *whole_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *in = slash ? strndup(path, (size_t)(slash - path + 1)) : strdup(".");
    char *folder = in ? realpath(in, NULL) : NULL, *whole = NULL;
    if (folder && asprintf(&whole, "%s/%s", folder, slash ? slash + 1 : path) < 0)
        whole = NULL;
    free(in);
    free(folder);
    return whole;
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

qm_status qm_cli_writes_once(const char *path)
{
    struct stat a, b;
    char *whole = strcmp(path, "-") == 0 ? NULL : whole_name(path);
    qm_status st = QM_OK;
    if (!whole)
        return QM_OK;
    for (int i = 0; i < n_written && st == QM_OK; i++)
        if (strcmp(written_names[i], whole) == 0 ||
            (stat(written_names[i], &a) == 0 && S_ISREG(a.st_mode) && stat(whole, &b) == 0 &&
             a.st_dev == b.st_dev && a.st_ino == b.st_ino))
            st = qm_fail(QM_BAD_ARG, "%s: two files would be written under this name, expected one",
                         path);
    if (st != QM_OK || qm_cli_append(&written_names, &n_written, whole) != QM_OK)
        free(whole);
    return st;
}
