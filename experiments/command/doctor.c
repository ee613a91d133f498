/* doctor.c - qualm doctor: reports what this machine offers, and what is missing. */
#include <gnu/libc-version.h>
#include <gsl/gsl_version.h>
#include <hdf5.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "core/cuda/cuda_apart.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/machine/probe.h"
#include "experiments/machine/provenance.h"

static error_t option(int key, char *arg, struct argp_state *state)
{
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    argp_error(state, "unexpected word '%s'", arg);
    return 0;
}

static json_t *program(void)
{
#ifdef __clang__
    const char *compiler = "clang " __clang_version__;
#else
    const char *compiler = "gcc " __VERSION__;
#endif
    return json_pack("{s:s, s:s, s:s}", "version", qm_version(), "compiler", compiler, "libc",
                     gnu_get_libc_version());
}

static json_t *libraries(void)
{
    unsigned major = 0, minor = 0, release = 0;
    char hdf5[64];
    H5get_libversion(&major, &minor, &release);
    snprintf(hdf5, sizeof hdf5, "%u.%u.%u", major, minor, release);
    return json_pack("{s:s, s:s, s:s, s:s}", "hdf5", hdf5, "gsl", gsl_version, "libyaml",
                     yaml_get_version_string(), "jansson", jansson_version_str());
}

static json_t *locale(int *broken)
{
    const char *point = localeconv()->decimal_point, *set = getenv("LC_ALL");
    int ok = strcmp(point, ".") == 0 && strtod("1.5", NULL) > 1.25;
    *broken |= !ok;
    return json_pack("{s:s, s:s, s:b}", "LC_ALL", set && *set ? set : "not set", "decimal_point",
                     point, "numbers_read_with_a_point", ok);
}

int qm_cmd_doctor(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        NULL,
        option,
        NULL,
        "Reports the environment: program, CPU and instruction set, limits, how floating point "
        "behaves, libraries, CUDA found or why not, and what plots need.  Leaves with 3 when the "
        "floating-point mode is broken, with 2 when $QM_CUDA_LIMIT is no number of seconds, else "
        "with 0.  A library of CUDA that crashes, or does not "
        "answer within $QM_CUDA_LIMIT seconds (30), is a line of the report."
        "\vExamples:\n"
        "  qualm doctor\n"
        "  qualm doctor --json | jq .floating_point\n"
        "  QM_ISA=sse2 qualm doctor  # the instruction set, lowered\n",
        children,
        NULL,
        NULL};
    int code = qm_cli_parse(&argp, argc, argv, NULL);
    if (code)
        return code;
    int broken = 0, no_point = 0;
    double limit;
    qm_status st = qm_cuda_limit(&limit);
    if (st != QM_OK)
        return qm_cli_failed("doctor", st);
    json_t *o = json_object();
    json_object_set_new(o, "program", program());
    json_object_set_new(o, "machine", qm_probe_machine());
    json_object_set_new(o, "floating_point", qm_probe_float(&broken));
    json_object_set_new(o, "locale", locale(&no_point));
    json_object_set_new(o, "libraries", libraries());
    json_object_set_new(o, "cuda", qm_probe_cuda());
    json_object_set_new(o, "plots", qm_probe_plots());
    qm_report(o);
    if (broken || no_point)
        qm_note("qualm doctor: %s", broken ? "the floating-point mode is broken"
                                           : "numbers are not read with a decimal point");
    return broken || no_point ? qm_exit_code(QM_INTERNAL) : 0;
}
