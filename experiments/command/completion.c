/* completion.c - qualm completion: prints a bash completion script. */
#include <string.h>

#include "experiments/check/cases.h"
#include "experiments/cli/cli.h"
#include "experiments/command/catalog.h"
#include "experiments/command/command.h"
#include "experiments/readers/known_models.h"

/* The script asks the program for options and names, so that it stays current. */
static const char *const script =
    "_qualm()\n"
    "{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} words=\"\"\n"
    "    local command=${COMP_WORDS[1]}\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        words=\"$_qualm_commands help --help --version\"\n"
    "    elif [ \"$command\" = help ]; then\n"
    "        words=$_qualm_commands\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        words=$(\"$program\" \"$command\" --help 2>/dev/null | grep -oE -- "
    "'--[a-z0-9][a-z0-9-]*' | sort -u)\n"
    "    else\n"
    "        case \"$command\" in\n"
    "        list) words=$_qualm_kinds ;;\n"
    "        show) words=$(\"$program\" list --names 2>/dev/null | sort -u) ;;\n"
    "        prove) words=\"all $(\"$program\" list searches --names 2>/dev/null) "
    "$(\"$program\" list variants --names 2>/dev/null)\" ;;\n"
    "        completion) words=bash ;;\n"
    "        run|plan|submit|tune) words=$(\"$program\" list suites --names 2>/dev/null) ;;\n"
    "        status|merge) words=$(compgen -d -- \"$cur\" | grep '[.]run$'; ls -d results/*.run "
    "2>/dev/null) ;;\n"
    "        compare|predict|report|digest|plot) words=$(ls results/*.h5 2>/dev/null) ;;\n"
    "        gen|check|kernels) words=$(\"$program\" list variants --names 2>/dev/null) ;;\n"
    "        esac\n"
    "        case \"${COMP_WORDS[COMP_CWORD-1]}\" in\n"
    "        --variant|--variants|--step)\n"
    "            words=$(\"$program\" list variants --names 2>/dev/null) ;;\n"
    "        --map|--against) words=$(\"$program\" list maps --names 2>/dev/null) ;;\n"
    "        --round) words=\"near mid even away\" ;;\n"
    "        --nan) words=\"low top zero\" ;;\n"
    "        --metric)\n"
    "            words=$(\"$program\" list metrics --names 2>/dev/null)\n"
    "            [[ $command = compare || $command = predict ]] || words=\"mse mae unit_mse "
    "unit_mae\" ;;\n"
    "        --metrics) words=$(\"$program\" list metrics --names 2>/dev/null) ;;\n"
    "        --problem) words=$(\"$program\" list problems --names 2>/dev/null) ;;\n"
    "        --shapes) words=$_qualm_models ;;\n"
    "        --dist) words=$(\"$program\" list distributions --names 2>/dev/null) ;;\n"
    "        --cases) words=$_qualm_classes ;;\n"
    "        --setting) words=$_qualm_settings ;;\n"
    "        --form) words=\"safetensors npz\" ;;\n"
    "        --template) words=$(\"$program\" check --template list 2>/dev/null) ;;\n"
    "        --regime) words=$(\"$program\" check --list-cases 2>/dev/null | "
    "cut -d/ -f2,3 | tr / '\\n' | sort -u) ;;\n"
    "        --size) words=\"small normal large\" ;;\n"
    "        --backend) words=\"cpu cuda emu\" ;;\n"
    "        --mode) words=\"exact fast\" ;;\n"
    "        --arch) words=\"sm_80 sm_90 sm_100\" ;;\n"
    "        --as) words=$(\"$program\" list variants --names 2>/dev/null) ;;\n"
    "        --only|--export) words=$(\"$program\" mutate --list 2>/dev/null | awk 'NR > 1 {print "
    "$1}') ;;\n"
    "        --slot) words=\"exp_avg exp_avg_sq\" ;;\n"
    "        esac\n"
    "    fi\n"
    "    if [ -n \"$words\" ]; then\n"
    "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
    "    fi\n"
    "}\n"
    "complete -o default -F _qualm qualm ./qualm\n";

static error_t option(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case ARGP_KEY_ARG:
        if (strcmp(arg, "bash") != 0)
            argp_error(state, "no completion for '%s'; expected 'bash'", arg);
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "the shell is missing; expected 'bash'"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int qm_cmd_completion(int argc, char **argv)
{
    static const struct argp argp = {
        NULL,
        option,
        "bash",
        "Prints a completion script for bash: commands, their options, names of variants and of "
        "everything else."
        "\vExamples:\n"
        "  source <(./qualm completion bash)\n"
        "  qualm completion bash > ~/.local/share/bash-completion/completions/qualm\n",
        NULL,
        NULL,
        NULL};
    int code = qm_cli_parse(&argp, argc, argv, NULL);
    if (code)
        return code;
#define X(name, text) +1
    const int commands = 0 QM_COMMAND_LIST(X);
#undef X
    fputs("# bash completion for qualm\n_qualm_commands=\"", stdout);
    for (int i = 0; i < commands; i++)
        printf(" %s", qm_command_names()[i]);
    fputs("\"\n", stdout);
#define X(plural, singular) " " #plural
    fputs("_qualm_kinds=\"" QM_KIND_LIST(X) "\"\n", stdout);
#undef X
#define X(name, text) " " #name
    fputs("_qualm_classes=\"" QM_CLASS_LIST(X) "\"\n", stdout);
#undef X
#define X(name, lr, b1, b2, eps, wd, text) " " #name
    fputs("_qualm_settings=\"" QM_SETTING_LIST(X) "\"\n", stdout);
#undef X
    fputs("_qualm_models=\"", stdout);
    for (int i = 0; i < qm_model_count(); i++)
        printf(" %s", qm_model_at(i)->name);
    fputs("\"\n", stdout);
    fputs(script, stdout);
    return 0;
}
