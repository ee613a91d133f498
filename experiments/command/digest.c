/* digest.c - qualm digest: prints digests of result files in the format of sha256sum. */
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/store/store.h"

struct digest_args {
    char **file;
    int n;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct digest_args *args = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_ARGS:
        args->file = state->argv + state->next;
        args->n = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no file given"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};

static const struct argp argp = {
    .parser = parse,
    .args_doc = "FILE...",
    .doc = "Prints the SHA-256 of what each HDF5 file, a result file or another program's, says "
           "outside /provenance and /timing: equal "
           "for two runs of one plan, whatever the compression.\v"
           "Examples:\n"
           "  # after: qualm run momentum_format theory rank1 --out results/\n"
           "  qualm digest results/momentum_format.h5\n"
           "  qualm digest --json results/theory.h5 results/rank1.h5\n\n"
           "Exit codes: 0 done, 2 usage, 3 a file cannot be read or is no HDF5 file.",
    .children = children,
};

int qm_cmd_digest(int argc, char **argv)
{
    struct digest_args args = {NULL, 0};
    int code = qm_cli_parse(&argp, argc, argv, &args);
    if (code)
        return code;
    json_t *list = json_array();
    for (int i = 0; i < args.n; i++) {
        char hash[65];
        qm_status st = qm_store_digest(args.file[i], hash);
        if (st != QM_OK) {
            json_decref(list);
            return qm_cli_failed("digest", st);
        }
        if (qm_cli.json)
            json_array_append_new(
                list, json_pack("{s:o, s:s}", "file", qm_json_text(args.file[i]), "sha256", hash));
        else {
            char *shown = qm_cli_shown(args.file[i]);
            printf("%s  %s\n", hash, shown ? shown : "");
            free(shown);
        }
    }
    if (qm_cli.json)
        qm_json_print(list);
    else
        json_decref(list);
    return 0;
}
