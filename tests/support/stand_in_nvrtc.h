/* stand_in_nvrtc.h - The stand-in for NVRTC beside that for a GPU (stand_in_gpu.h): its binary is
 * the text of step_recipe.h behind an ELF header. */
#ifndef QM_SUPPORT_STAND_IN_NVRTC_H
#define QM_SUPPORT_STAND_IN_NVRTC_H

#include <string.h>

#include "tests/support/stand_in_fault.h"
#include "tests/support/stand_in_symbol.h"

static char *recipe; /* or the name of another source than step.cu */
static int compiles;
static int stand_in_nvrtc_major = 13, stand_in_other_major = 12;
static char stand_in_made_by; /* the major version that compiled last */

/* A fault that is planted in a call of NVRTC by its name. */
#define RTC_STRIKE_OUT(name, out, size)                                 \
    if (!stand_in_fault.call || strcmp(stand_in_fault.call, name) != 0) \
        stand_in_note(name);                                            \
    else                                                                \
        STRIKE_OUT(name, out, size)
#define RTC_STRIKE(name) RTC_STRIKE_OUT(name, (char[1]){0}, 1)

static int rtc_Version(int *major, int *minor)
{
    RTC_STRIKE_OUT("nvrtcVersion", major, sizeof *major);
    *major = stand_in_nvrtc_major;
    *minor = 0;
    return 0;
}

static int rtc_CreateProgram(void **program, const char *text, const char *name, int n,
                             const char *const *texts, const char *const *names)
{
    RTC_STRIKE_OUT("nvrtcCreateProgram", program, sizeof *program);
    int is_step = strcmp(name, "step.cu") == 0;
    free(recipe);
    recipe = is_step ? NULL : strdup(name);
    for (int i = 0; i < n; i++)
        if (is_step && strcmp(names[i], "step_recipe.h") == 0)
            recipe = strdup(texts[i]);
    stand_in_must(recipe && (!is_step || strstr(text, "qm_step")));
    *program = &recipe;
    return 0;
}

static int rtc_DestroyProgram(void **program)
{
    RTC_STRIKE("nvrtcDestroyProgram");
    *program = NULL;
    return 0;
}

static int rtc_CompileProgram(void *program, int n, const char *const *options)
{
    (void)program;
    stand_in_must(strcmp(options[0], "--gpu-architecture=sm_90") == 0 && n > 1);
    RTC_STRIKE("nvrtcCompileProgram");
    compiles++;
    stand_in_shared->compiles_beside += stand_in_process != 0;
    stand_in_made_by = (char)stand_in_nvrtc_major;
    return 0;
}

enum { STAND_IN_HEAD = 64 }; /* bytes of an ELF header, before the text */

static int rtc_GetCUBINSize(void *program, size_t *size)
{
    RTC_STRIKE_OUT("nvrtcGetCUBINSize", size, sizeof *size);
    (void)program;
    *size = STAND_IN_HEAD + strlen(recipe) + 1;
    return 0;
}

static int rtc_GetCUBIN(void *program, char *out)
{
    RTC_STRIKE_OUT("nvrtcGetCUBIN", out, STAND_IN_HEAD + strlen(recipe) + 1);
    (void)program;
    memset(out, 0, STAND_IN_HEAD);
    memcpy(out, "\177ELF", 4);
    out[18] = (char)190; /* EM_CUDA */
    strcpy(out + STAND_IN_HEAD, recipe);
    return 0;
}

static int rtc_GetPTXSize(void *program, size_t *size) { return rtc_GetCUBINSize(program, size); }
static int rtc_GetPTX(void *program, char *out) { return rtc_GetCUBIN(program, out); }

static const char log_text[] =
    "ptxas info    : Function properties for qm_step\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 40 registers, used 1 barriers, 140 bytes smem\n";

static int rtc_GetProgramLogSize(void *program, size_t *size)
{
    RTC_STRIKE_OUT("nvrtcGetProgramLogSize", size, sizeof *size);
    (void)program;
    *size = sizeof log_text;
    return 0;
}

static int rtc_GetProgramLog(void *program, char *out)
{
    RTC_STRIKE_OUT("nvrtcGetProgramLog", out, sizeof log_text);
    (void)program;
    strcpy(out, log_text);
    return 0;
}

static int rtc_GetNumSupportedArchs(int *n)
{
    RTC_STRIKE_OUT("nvrtcGetNumSupportedArchs", n, sizeof *n);
    *n = 2;
    return 0;
}

static int rtc_GetSupportedArchs(int *archs)
{
    archs[0] = 80;
    archs[1] = 90;
    return 0;
}

static int rtc_OtherVersion(int *major, int *minor)
{
    *major = stand_in_other_major;
    *minor = 4;
    return 0;
}

static int rtc_OtherCompileProgram(void *program, int n, const char *const *options)
{
    int error = rtc_CompileProgram(program, n, options);
    stand_in_made_by = (char)stand_in_other_major;
    return error;
}

static void *rtc_symbol(const char *name)
{
    static const struct stand_in_symbol table[] = {
#define F(exported, f) {exported, (void (*)(void))f}
        F("nvrtcVersion", rtc_Version),
        F("nvrtcCreateProgram", rtc_CreateProgram),
        F("nvrtcDestroyProgram", rtc_DestroyProgram),
        F("nvrtcCompileProgram", rtc_CompileProgram),
        F("nvrtcGetCUBINSize", rtc_GetCUBINSize),
        F("nvrtcGetCUBIN", rtc_GetCUBIN),
        F("nvrtcGetPTXSize", rtc_GetPTXSize),
        F("nvrtcGetPTX", rtc_GetPTX),
        F("nvrtcGetProgramLogSize", rtc_GetProgramLogSize),
        F("nvrtcGetProgramLog", rtc_GetProgramLog),
        F("nvrtcGetNumSupportedArchs", rtc_GetNumSupportedArchs),
        F("nvrtcGetSupportedArchs", rtc_GetSupportedArchs),
    };
    return stand_in_symbol(table, sizeof table / sizeof *table, name);
}

/* Another NVRTC beside the first. */
static void *rtc_other_symbol(const char *name)
{
    void (*f)(void) = NULL;
    void *at;
    if (strcmp(name, "nvrtcVersion") == 0)
        f = (void (*)(void))rtc_OtherVersion;
    if (strcmp(name, "nvrtcCompileProgram") == 0)
        f = (void (*)(void))rtc_OtherCompileProgram;
    if (!f)
        return rtc_symbol(name);
    memcpy(&at, &f, sizeof at);
    return at;
}

#endif
